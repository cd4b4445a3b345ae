"""`inspect`: what gnndelete finds in a model before anything is deleted, and which methods fit it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.session import RANDOM, Session
from gnndelete.errors import ModelError
from gnndelete.graph.batch import collate
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import nearly_undirected, ways
from gnndelete.methods import resolver
from gnndelete.methods.base import Context, Reason, reasons
from gnndelete.methods.gnndelete.method import GNNDelete
from gnndelete.nn.forward import Forward, as_seen, call, evaluating
from gnndelete.nn.hooks import Site
from gnndelete.nn.layers import Layers, working_copy
from gnndelete.notes import Note
from gnndelete.registry import by_name
from gnndelete.tasks import LinkPrediction, Task
from gnndelete.tasks import resolver as tasks


@dataclass(frozen=True)
class Inspection:
    """Graph layers, their widths and true reach, the size of an adapter, and for each method whether it fits."""

    model: str
    nodes: int
    edges: int
    undirected: bool
    sites: tuple[Site, ...]
    hops: int | None  # of the model's output; None where it sees the whole graph
    bounded: bool
    parameters: int  # sum of d^2: of one shared operator per site
    ring_parameters: (
        int  # of one per ring, the default: a second one wherever a site before has changed the outer rings
    )
    methods: dict[str, tuple[Reason, ...]]
    error: str | None = None  # why the model could not be run on the graph; nothing else is then known of it
    notes: tuple[Note, ...] = ()
    counted: str = ""  # how edges are counted, in words; of a HeteroData by their types

    def to_dict(self) -> dict[str, Any]:
        result = asdict(self)
        result["sites"] = [{**site, "rows": len(site["rows"])} for site in result["sites"]]
        result["methods"] = {
            name: {"fits": not unfit, "reasons": [{"why": r.why, "remedy": r.remedy} for r in unfit]}
            for name, unfit in self.methods.items()
        }
        return result

    def sizes(self) -> str:
        """How large an adapter is, in words.

        >>> Inspection("GCN", 3, 2, True, (), 2, True, 80, 96, {}).sizes()
        '96 for deleted edges (one operator per ring, the default), 80 with operator="shared" (sum of d^2)'
        """
        ring = f"{self.ring_parameters:,} for deleted edges (one operator per ring, the default)"
        return f'{ring}, {self.parameters:,} with operator="shared" (sum of d^2)'

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.nodes:,} nodes and {self.edges:,} edges ({self.counted or ways(self.undirected)})",
            *(["", f"error: the model could not be run on this graph: {self.error}"] if self.error else []),
            "",
            "layers an operator would follow:",
        ]
        for site in self.sites:
            reach = f"{site.hops} hop{'s' * (site.hops != 1)}" if site.bounded else "the whole graph"
            lines.append(
                f"  {site.title:<32} width {site.width:<6} reach {reach}{'' if site.probed else ' (counted, not measured)'}"
            )
        if not self.sites:
            lines.append("  none")
        reach = "the whole graph" if not self.bounded else f"{self.hops} hops" if self.hops is not None else "unknown"
        lines += [
            f"receptive field of the output: {reach}",
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
    """Run the model once on its graph and say what a deletion would work with.

    >>> import gnndelete as gd
    >>> found = inspect(gd.models.GCN(64, hidden=8, out=4), gd.datasets.load("digits"))
    >>> [(site.layer, site.width, site.hops) for site in found.sites], found.parameters
    ([('convs.0', 8, 1), ('convs.1', 4, 2)], 80)
    """
    data = collate(data)
    named = None if task is None else by_name("task", task, tasks).on(data)
    session = Session(model, data, as_seen(forward) or call, None if named is None else named.check_output)
    asked = Context(session, task=named, **context)
    methods: dict[str, tuple[Reason, ...]] = {}
    error, output = _tried(session)
    for name, method in sorted(resolver.lookup_dict.items()):
        found = tuple(reasons(method(), asked))
        methods[name] = found if found or error is None else (_NOT_RUN,)
    notes: list[Note] = []
    try:
        probe = session.probe(layers)
        sites, hops, bounded = probe.sites, probe.hops, probe.bounded
    except ModelError as unknown:
        sites, hops, bounded = (), None, True
        if error is None:
            notes.append(Note("no-sites", str(unknown)))
            methods[GNNDelete.name] = methods[GNNDelete.name] or (Reason(unknown.why, unknown.remedy),)
    if error is None:
        try:
            session.look()
        except ModelError as blind:
            notes.append(Note("edges-not-read", str(blind)))
    if named is not None and error is None and (remark := named.remark(output)) is not None:
        notes.append(Note("output", remark))
    if session.random:
        notes.append(Note("model-random", RANDOM))
    notes += nearly_undirected(session.table)
    if not bounded:
        notes.append(
            Note(
                "reach-unbounded",
                "Some layer lets every node see every other, so distance does not bound the influence of a deletion.",
            )
        )
    if isinstance(named, LinkPrediction) and named.decoder == "dot" and callable(getattr(model, "decode", None)):
        notes.append(
            Note(
                "decode-unused",
                "Links are scored by inner products, not by the model's 'decode' method; to use it, pass "
                "task=LinkPrediction(decoder='decode', …).",
            )
        )
    return Inspection(
        model=type(model).__name__,
        nodes=session.table.num_nodes,
        edges=data.edge_index.size(1),
        undirected=session.table.undirected,
        sites=sites,
        hops=hops,
        bounded=bounded,
        parameters=sum(site.width**2 for site in sites),
        ring_parameters=sum(site.width**2 * (1 + bool(place and site.hops)) for place, site in enumerate(sites)),
        methods=methods,
        error=error,
        notes=tuple(notes),
        counted=data.types.ways() if isinstance(data, HeteroGraph) else ways(session.table.undirected),
    )


_NOT_RUN = Reason("the model could not be run on this graph", "see the error first")


def _tried(session: Session) -> tuple[str | None, Any]:
    """What is wrong when the model is run as it would be for a deletion, None where it runs; and what it returned."""
    data, _ = session.sample()
    try:
        model = working_copy(session.model)  # it may keep something of what it is run on
        with evaluating(model):
            return None, session.answer(model, data)
    except ModelError as error:
        return str(error), None
    except Exception as error:  # the user's own model: whatever it raises
        return f"{type(error).__name__}: {error}", None
