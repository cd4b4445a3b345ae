"""`inspect`: what gnndelete finds in a model before anything is deleted, and which methods fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.session import MODEL_RANDOM, SAMPLED_NODES, Session
from gnndelete.errors import ModelError
from gnndelete.graph.batch import collate
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import nearly_undirected, ways
from gnndelete.methods import resolver
from gnndelete.methods.base import Context, Reason, reasons
from gnndelete.methods.gnndelete.method import GNNDelete
from gnndelete.nn.forward import Forward, evaluating, resolve_forward
from gnndelete.nn.hooks import Site
from gnndelete.nn.layers import Layers, working_copy
from gnndelete.notes import Note
from gnndelete.registry import by_name
from gnndelete.tasks import Task
from gnndelete.tasks import resolver as tasks


@dataclass(frozen=True)
class TableFound:
    """A parameter with a trained row per node.

    Args:
        parameter: Its name.
        width: Numbers in a row.
        nodes: How many nodes have a row.
        first: The first layer that reads it; None where no layer does.
        beyond: Whether rows also go past the layers.

    >>> print(TableFound("embedding.weight", 32, 1700, "convs.0", True))
    embedding.weight                 width 32     1,700 nodes, read by convs.0 and past the layers
    """

    parameter: str
    width: int
    nodes: int
    first: str | None
    beyond: bool

    def __str__(self) -> str:
        where = "not seen behind any layer" if self.first is None else f"read by {self.first}"
        if self.beyond:
            where = "past all layers" if self.first is None else f"{where} and past the layers"
        return f"{self.parameter:<32} width {self.width:<6} {self.nodes:,} nodes, {where}"


@dataclass(frozen=True)
class Inspection:
    """Graph layers with their widths and true reach, the size of an adapter, and which methods fit.

    Args:
        model: The class of the model.
        nodes: How many nodes the graph has.
        edges: How many edges it has, both directions counted where it is undirected.
        undirected: Whether it is undirected.
        sites: Where operators would sit.
        hops: How far the output sees; None where it sees the whole graph or was not measured.
        bounded: Whether the reach of every layer is bounded.
        parameters: The size of an adapter with one shared operator per site: the sum of d².
        ring_parameters: The size of an adapter with one operator per ring, which is the default.
        methods: For each method the reasons why it does not fit; an empty tuple where it fits.
        error: Why the model could not be run on the graph; None where it runs.
        notes: What a user should know.
        counted: How edges are counted, in words.
        not_local: Why requests cannot be solved locally; empty where they can.
        tables: The parameters with a trained row per node, and where the model reads them.
    """

    model: str
    nodes: int
    edges: int
    undirected: bool
    sites: tuple[Site, ...]
    hops: int | None
    bounded: bool
    parameters: int
    ring_parameters: int
    methods: dict[str, tuple[Reason, ...]]
    error: str | None = None
    notes: tuple[Note, ...] = ()
    counted: str = ""
    not_local: str = ""
    tables: tuple[TableFound, ...] = ()

    @property
    def local(self) -> bool:
        """Whether a request can be solved on the neighbourhood of the deletion (``engine="local"``)."""
        return not self.not_local

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        result = {**asdict(self), "local": self.local}
        result["sites"] = [{**site, "rows": len(site["rows"])} for site in result["sites"]]
        result["tables"] = list(result["tables"])
        result["methods"] = {
            name: {"fits": not unfit, "reasons": [{"why": r.why, "remedy": r.remedy} for r in unfit]}
            for name, unfit in self.methods.items()
        }
        return result

    def sizes(self) -> str:
        """Return the size of an adapter, in words.

        >>> Inspection("GCN", 3, 2, True, (), 2, True, 80, 96, {}).sizes()
        '96 for deleted edges (one operator per ring, the default), 80 with operator="shared" (sum of d^2)'
        """
        ring = f"{self.ring_parameters:,} for deleted edges (one operator per ring, the default)"
        return f'{ring}, {self.parameters:,} with operator="shared" (sum of d^2)'

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.nodes:,} nodes and {self.edges:,} edges ({self.counted or ways(self.undirected)})"
        ]
        if self.error:
            lines += ["", f"error: the model could not be run on this graph: {self.error}"]
        lines += ["", "layers an operator would follow:"]
        for site in self.sites:
            reach = f"{site.hops} hop{'s' * (site.hops != 1)}" if site.bounded else "the whole graph"
            counted = "" if site.probed else " (counted, not measured)"
            lines.append(f"  {site.title:<32} width {site.width:<6} reach {reach}{counted}")
        if not self.sites:
            lines.append("  none")
        if self.tables:
            lines += ["", "trained vectors of nodes:", *(f"  {table}" for table in self.tables), ""]
        reach = "the whole graph" if not self.bounded else f"{self.hops} hops" if self.hops is not None else "unknown"
        local = (
            f"no: {self.not_local}" if self.not_local else "yes: a request costs its own neighbourhood, after prepare()"
        )
        lines += [
            f"receptive field of the output: {reach}",
            f"local requests: {local}",
            f"operator parameters: {self.sizes()}",
            "",
            "methods:",
        ]
        for name, unfit in self.methods.items():
            lines.append(f"  {name:<14} {'fits' if not unfit else f'does not fit: {unfit[0]}'}")
        return "\n".join([*lines, *(f"note: {note.text}" for note in self.notes)])


def inspect(
    model: nn.Module,
    data: Data | HeteroData,
    task: Task | str | None = None,
    forward: Forward | None = None,
    layers: Layers = "all",
    **context: Any,
) -> Inspection:
    """Run the model on its graph and say what a deletion would work with. Nothing is changed.

    Args:
        model: The trained model.
        data: The graph that it was trained on.
        task: What it was trained for, as a task or its name. Some methods fit some tasks only.
        forward: ``forward(model, data)`` runs the model, where the default call does not fit.
        layers: Which layers to look at: ``"all"``, ``"last"``, or names of modules.
        **context: ``fit`` and ``build``, as the `Unlearner` takes them.

    Returns:
        Graph layers, their true reach, and for each method whether it fits or why not.

    Raises:
        GraphError: If the graph is malformed.
        SettingError: If ``layers`` names no module of the model.

    >>> import gnndelete as gd
    >>> found = inspect(gd.models.GCN(64, hidden=8, out=4), gd.datasets.load("digits"))
    >>> [(site.layer, site.width, site.hops) for site in found.sites], found.parameters
    ([('convs.0', 8, 1), ('convs.1', 4, 2)], 80)
    """
    data = collate(data)
    notes: list[Note] = []
    if isinstance(data, DiskGraph):
        whole, data = data, data.sample(SAMPLED_NODES, torch.Generator().manual_seed(0))
        text = (
            f"The graph is on disk: all this is said of {data.num_nodes:,} of its {whole.num_nodes:,} nodes, read into memory. "
            "On the whole of it, GNNDelete(lam=…) with a number and Unlink serve."
        )
        notes.append(Note("part-inspected", text))
    known: Task | None = None if task is None else by_name("task", task, tasks).on(data)
    session = Session(model, data, resolve_forward(forward), None if known is None else known.check_output)
    error, output = _try_model(session)
    methods = _fitting_methods(Context(session, task=known, **context), error)
    sites: tuple[Site, ...] = ()
    hops, bounded = None, True
    try:
        probe = session.probe(layers)
        sites, hops, bounded = probe.sites, probe.hops, probe.bounded
    except ModelError as no_sites:
        if error is None:
            notes.append(Note("no-sites", str(no_sites)))
            methods[GNNDelete.name] = methods[GNNDelete.name] or (Reason(no_sites.why, no_sites.remedy),)
    if error is None:
        try:
            session.require_reading_edges()
        except ModelError as blind:
            notes.append(Note("edges-not-read", str(blind)))
        if sites:
            session.prepare()
        notes += () if known is None else known.remarks(session.model, output)
    notes += [MODEL_RANDOM] if session.random else []
    notes += nearly_undirected(session.table)
    if not bounded:
        text = "Some layer lets every node see every other, so distance does not bound the influence of a deletion."
        notes.append(Note("reach-unbounded", text))
    return Inspection(
        model=type(model).__name__,
        nodes=session.table.num_nodes,
        edges=data.edge_index.size(1),
        undirected=session.table.undirected,
        sites=sites,
        hops=hops,
        bounded=bounded,
        parameters=sum(site.width**2 for site in sites),
        ring_parameters=sum(site.width**2 * (1 + bool(index and site.hops)) for index, site in enumerate(sites)),
        methods=methods,
        error=error,
        notes=tuple(notes),
        not_local=session.not_local,
        tables=tuple(
            TableFound(
                found.parameter, session.parameter(found.parameter).size(1), len(found.nodes), found.first, found.beyond
            )
            for found in (session.vectors if error is None and sites else ())
        ),
        counted=data.types.ways() if isinstance(data, HeteroGraph) else ways(session.table.undirected),
    )


def _try_model(session: Session) -> tuple[str | None, Any]:
    """Run the model as a deletion would. Returns what is wrong, None where it runs, and its output."""
    data = session.sample
    try:
        model = working_copy(session.model)  # The model may remember something of what it is run on.
        with evaluating(model):
            return None, session.answer(model, data)
    except ModelError as error:
        return str(error), None
    except Exception as error:  # The user's model may raise anything.
        return f"{type(error).__name__}: {error}", None


def _fitting_methods(context: Context, error: str | None) -> dict[str, tuple[Reason, ...]]:
    not_run = Reason("the model could not be run on this graph", "see the error first")
    found: dict[str, tuple[Reason, ...]] = {}
    for name, method in sorted(resolver.lookup_dict.items()):
        unfit = tuple(reasons(method(), context))
        found[name] = unfit if unfit or error is None else (not_run,)
    return found
