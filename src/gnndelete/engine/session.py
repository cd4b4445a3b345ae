"""`Session`: a model, its graph, and what is computed once for both and shared by all requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.engine import layerwise
from gnndelete.engine.blocks import Blocks
from gnndelete.engine.cache import Cache
from gnndelete.engine.trial import find
from gnndelete.errors import GraphError, ModelError
from gnndelete.graph.batch import GraphBatch, label_edges
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.edge_table import Hops, Neighborhood, ends_of
from gnndelete.graph.fingerprint import attributes, fingerprint
from gnndelete.graph.validation import check_graph, edge_table
from gnndelete.io.files import write
from gnndelete.nn.adapter import model_fingerprint
from gnndelete.nn.checks import refuse_blind
from gnndelete.nn.forward import Forward, require_rows, unwrapped
from gnndelete.nn.hooks import Finished, Rows, Site, Visit, listening
from gnndelete.nn.layers import Layers, working_copy
from gnndelete.nn.operator import LayerOperators
from gnndelete.nn.receptive_field import Probe, probe, run
from gnndelete.nn.tables import Vectors, node_tables
from gnndelete.notes import Note

#: Of many graphs, so many are enough to measure the reach of a model's layers.
PROBED_GRAPHS = 64

#: From so many nodes on, the probe's random line of nodes hardly ever follows edges that a model keeps for itself.
LARGE_GRAPH = 1000

#: The note about a model that answers differently each time.
MODEL_RANDOM = Note(
    "model-random",
    "The model draws random numbers in evaluation mode (a dropout without training=self.training, say): the same request "
    "gives another result each time, and lam, distances and forgetting scores hold only on average.",
)

#: Rows that are summed in their own precision, and numbers of which a double copy costs nothing: for the mean of all rows.
MEAN_BLOCK_ROWS, SMALL_MEAN = 1024, 1 << 21

#: So many nodes of a graph on disk are read into memory, to find out how the model is run.
SAMPLED_NODES = 3000

#: The file of `Session.keep`.
KEPT = "rehearsed.json"

#: Raises an error where the output of a model on a graph does not fit the task.
Check = Callable[[Any, Any], None]


class Session:
    """A checked pair of model and graph. Neither is changed; everything expensive is made when first needed.

    Args:
        model: The trained model of the user.
        data: The graph as the library holds it.
        forward: How the model is called on a graph.
        check: Raises an error where the model's output does not fit the task.

    Raises:
        ModelError: If the model is no ``nn.Module`` or carries operators already.
        GraphError: If the graph is malformed or on another device than the model.
    """

    def __init__(self, model: nn.Module, data: Data, forward: Forward, check: Check | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise ModelError(f"model is a '{type(model).__name__}'", "pass a trained torch.nn.Module")
        if any(isinstance(module, LayerOperators) for module in model.modules()):
            raise ModelError(
                "the model already carries deletion operators",
                "give the base model, and further requests to the Unlearner that served the first (unlearner.delete, or "
                "load_state after a restart)",
            )
        check_graph(data)
        devices = {p.device for p in model.parameters()} or {data.edge_index.device}
        if data.edge_index.device not in devices:
            raise GraphError(
                f"the model is on '{next(iter(devices))}' and the graph on '{data.edge_index.device}'",
                "move one with .to(…)",
            )
        self.model, self.data, self.forward, self._check = model, data, forward, check
        self.table = edge_table(data)
        self.row_ranges = Rows(data)  # which nodes the rows of a tensor can be
        #: whether no edge joins a node with itself; then no edge of a remaining graph does
        if isinstance(data, DiskGraph):
            self.loopless = data.table.loops == 0
        else:
            self.loopless = not bool((data.edge_index[0] == data.edge_index[1]).any())
        self.sample = data  # what the model is probed on: of many graphs the largest ones show as much as all
        if isinstance(data, GraphBatch) and data.num_graphs > PROBED_GRAPHS:
            self.sample = data.select(data.sizes.topk(PROBED_GRAPHS).indices)
        if isinstance(data, DiskGraph):
            _refuse_tables(model, data)
            self.sample = data.sample(SAMPLED_NODES, torch.Generator().manual_seed(0))
        self.hooks = 0  # its own forward hooks behind every layer, which may act twice
        self.random = False  # whether the model draws random numbers in evaluation mode; known after the probe
        self.blocks: Blocks | None = None  # how requests are served locally; set by `prepare`
        self.rehearsed: Any = None  # what a method found on a trial deletion, for requests too small to find it by
        self.folder: Path | None = None  # where they are kept
        self.not_local = "the model has not been tried on a part of the graph"  # why there are no blocks
        self.row_model: Any = None  # what a method found out about the model's tables, for all requests
        self._reads_edges = self._gives_rows = False
        self._trial: nn.Module | None = (
            None  # a working copy, never that of a result; checks and probes leave it as it was
        )
        self._near: dict[str, Neighborhood] = {}
        self._probes: dict[str, Probe] = {}

    def neighborhood(self, hops: Hops = "undirected") -> Neighborhood:
        """The rings around nodes of the graph, walked as ``hops`` says."""
        if hops not in self._near:
            self._near[hops] = Neighborhood(self.table, self.data.edge_index, hops)
        return self._near[hops]

    def require_reading_edges(self) -> None:
        """Refuse a model that does not read the edges of the graph; checked once."""
        if self._reads_edges:
            return
        if self.table.num_nodes < LARGE_GRAPH:
            self.require_rows()
        else:  # in a small one an edge of the model's own may look like one of the graph
            with suppress(ModelError):  # no layer that a probe can read
                self._reads_edges = self.probe().moves_along
        if not self._reads_edges:
            with self._trying() as trial:
                refuse_blind(trial, self.sample, self.forward)
            self._reads_edges = True
        self.require_rows()

    def require_rows(self) -> None:
        """Refuse a model that does not run on the graph, or whose output holds no rows; checked once."""
        if not self._gives_rows:
            with self._trying() as trial:
                run(trial, self.sample, self.answer, ())

    @contextmanager
    def _trying(self) -> Iterator[nn.Module]:
        """A working copy for a check; the next one has it too where the check passes, since a refused model may be mended."""
        trial, self._trial = working_copy(self.model) if self._trial is None else self._trial, None
        yield trial
        self._trial = trial

    def probe(self, layers: Layers = "all") -> Probe:
        """The sites of the model and their reach; measured once."""
        key = repr(layers)
        if key not in self._probes:
            generators = [torch.default_generator]
            if self.data.edge_index.is_cuda:
                generators.append(torch.cuda.default_generators[self.data.edge_index.get_device()])
            before = [generator.get_state() for generator in generators]
            trial = working_copy(self.model) if self._trial is None else self._trial
            found = probe(trial, self.sample, self.answer, layers)
            # the library draws no global random numbers here: the model drew them, if it was not another thread
            after = [generator.get_state() for generator in generators]
            if not all(map(torch.equal, before, after)):
                one, other = (run(trial, self.sample, self.answer, found.layers).readings for _ in range(2))
                self.random = not all(torch.equal(a.h, b.h) for a, b in zip(one, other, strict=True))
            self._trial = None
            if self.sample is not self.data:  # what was measured on a part holds for the rows of all graphs
                whole = range(self.table.num_nodes)
                found = replace(found, sites=tuple(replace(site, rows=whole) for site in found.sites))
            self._probes[key] = found
        return self._probes[key]

    #: Whether the first layer's output can be kept for a later pass.
    keeps_first = True

    def watch(self, model: nn.Module, graph: Data, layers: list[str], visit: Visit, base: bool = False) -> Any:
        """Run a working copy with a visitor behind some layers.

        Args:
            model: The working copy.
            graph: The original or the remaining graph.
            layers: The layers; ``""`` is the model itself.
            visit: As for `nn.hooks.listening`.
            base: No operator acts: on a block fewer rows change then.

        Returns:
            The output; None where the visitor ended the pass.
        """
        try:
            with listening(model, layers, visit):
                return self.forward(model, graph)
        except Finished:
            return None

    @cached_property
    def vectors(self) -> tuple[Vectors, ...]:
        """The tables of the model: its parameters with a trained row per node."""
        if isinstance(self.data, DiskGraph):
            return ()
        with suppress(ModelError):  # no layer that a probe can read
            return node_tables(working_copy(self.model), self.data, self.forward, self.probe().layers)
        return ()

    def placed(self, vectors: Vectors, rows: Tensor) -> Tensor:
        """Where rows of a table stand in the parameter that the model has while it runs."""
        return rows

    #: Parameters with a row per node, where they are known; None where any parameter of that size may be one.
    tables: frozenset[str] | None = None

    def parameter(self, name: str) -> Tensor:
        """A parameter of the model, without its gradient."""
        return self.model.get_parameter(name).detach()

    @cached_property
    def never_connected(self) -> Tensor:
        """The nodes that have no edge to another node, neither to pass messages nor to learn from."""
        has = torch.zeros(self.table.num_nodes, dtype=torch.bool, device=self.data.edge_index.device)
        labels = label_edges(self.data)
        for edges in (self.data.edge_index, *([] if labels is None else [ends_of(labels).to(has.device)])):
            has[edges[:, edges[0] != edges[1]].flatten()] = True
        return (~has).nonzero().flatten()

    def untrained_rows(self, name: str, nodes: range, deleted: Tensor) -> Tensor:
        """The rows of a parameter, which are of ``nodes``, for those that never had an edge and are not deleted."""
        values = self.parameter(name)
        never = self.never_connected[~torch.isin(self.never_connected, deleted)]
        return values[never[(never >= nodes.start) & (never < nodes.stop)] - nodes.start]

    def mean_row(self, site: Site, h: Tensor, deleted: Tensor) -> Tensor:
        """mu: the mean of the rows h of a site, without those of deleted nodes.

        Runs of rows are summed as they are and added in double precision: one look at every row, and no second copy.
        """
        rows = h.flatten(1)
        whole = rows.size(0) // MEAN_BLOCK_ROWS * MEAN_BLOCK_ROWS if rows.numel() > SMALL_MEAN else 0
        total = rows[whole:].sum(dim=0, dtype=torch.float64)
        if whole:
            total += rows[:whole].unflatten(0, (-1, MEAN_BLOCK_ROWS)).sum(dim=1).double().sum(dim=0)
        if deleted.numel():
            total -= rows[deleted].double().sum(dim=0)
        return total / max(h.size(0) - deleted.numel(), 1)

    def prepare(self, folder: Path | None = None, memory: int | str = "2GB", progress: bool = False) -> None:
        """Find out whether requests can be served on blocks of the graph, and compute what they start from.

        With a ``folder`` this is read from there; where it holds nothing for this model and graph, it is written there.
        A graph on disk is prepared layer by layer, in so much ``memory``.
        """
        if isinstance(self.data, DiskGraph):
            self._prepare_on_disk(folder, memory, progress)
            return
        identity = {} if folder is None else self.identity()
        known = None if folder is None else Cache.load(folder, identity)
        if known is not None:
            measured = known[1].pop("probe")
            self.random = measured.pop("random")
            self._probes[repr("all")] = Probe(tuple(known[0].rows), **measured)
        try:
            found = find(self) if known is None else Blocks.of(self, *known)
        except ModelError as error:  # no graph layer that is known by its class
            found = error.why
        self.blocks, self.not_local = (None, found) if isinstance(found, str) else (found, "")
        self._gives_rows = self._gives_rows or known is not None  # they are in the cache
        if folder is not None and known is None and self.blocks is not None:
            found_probe = self.probe("all")
            measured = {name: getattr(found_probe, name) for name in ("layers", "hops", "bounded", "moves_along")}
            measured["random"] = self.random
            self.blocks.cache.save(folder, identity, **self.blocks.facts(), probe=measured)
        self.folder = folder if self.blocks is not None else None

    def _prepare_on_disk(self, folder: Path | None, memory: int | str, progress: bool) -> None:
        """How the model is run on blocks is found out on a part of the graph; all rows are computed layer by layer."""
        identity = self.identity()
        part = Session(self.model, self.sample, self.forward)
        try:
            found = find(part)
            reason = found if isinstance(found, str) else layerwise.unfit(found)
        except ModelError as error:  # no graph layer that is known by its class
            found, reason = error.why, error.why
        if isinstance(found, str) or reason:
            self.not_local = reason
            return
        self.random = part.random
        if folder is None:
            folder = self.data.folder / f"rows-{identity['model'][:12]}"
        cache = layerwise.prepare(self, found, folder, identity, memory, progress)
        self.blocks, self.not_local = Blocks.of(self, cache, found.facts()), ""
        self.blocks.rows_suffice = True  # trying it would take an answer about the whole graph
        self._gives_rows, self.folder = True, folder

    def read_kept(self, digest: str) -> Any:
        """Plain values that `keep` wrote under a digest beside the rows of this model and graph; None where there are none."""
        try:
            text = "" if self.folder is None else (self.folder / KEPT).read_text()
            kept = json.loads(text or "{}")
            return kept["values"] if kept.get("digest") == self._digest(digest) else None
        except (OSError, ValueError, KeyError):
            return None

    def keep(self, digest: str, values: dict[str, Any]) -> None:
        """Keep plain values beside the rows, where these are in a folder."""
        if self.folder is not None:
            content = json.dumps({"digest": self._digest(digest), "values": values}, indent=1) + "\n"
            write(self.folder / KEPT, content.encode(), private=True)

    def _digest(self, digest: str) -> str:
        return hashlib.sha256(f"{digest} {sorted(self.identity().items())}".encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        """Blocks hold functions that cannot be pickled; they are made again from their cache."""
        state, blocks = dict(vars(self)), self.blocks
        kept = None if blocks is None else (blocks.cache, blocks.facts(), blocks.segments)
        return {**state, "blocks": None, "_kept_blocks": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = state.pop("_kept_blocks")
        vars(self).update(state)
        if kept is not None:
            cache, facts, segments = kept
            self.blocks = Blocks.of(self, cache, facts)
            self.blocks.segments = segments

    def identity(self) -> dict[str, str]:
        """Digests of the model, the graph and its attributes."""
        return {"model": self.base_fingerprint(), "graph": self.graph_fingerprint(), **self.graph_attributes}

    def answer(self, model: nn.Module, data: Data) -> Any:
        """The output of a whole pass, which the task has checked."""
        output = self.forward(model, data)
        if not self._gives_rows:
            require_rows(unwrapped(model), output)
            self._gives_rows = True
        if self._check is not None:
            self._check(output, data)
        return output

    def base_fingerprint(self) -> str:
        """A digest of the model's weights."""
        return model_fingerprint(self.model)

    def graph_fingerprint(self) -> str:
        """A digest of the graph; made once."""
        return self._graph_fingerprint

    @cached_property
    def _graph_fingerprint(self) -> str:
        return fingerprint(self.data)

    @cached_property
    def graph_attributes(self) -> dict[str, str]:
        """Digests of weights, labels and other attributes by name; made once, since many of them take seconds."""
        return attributes(self.data, labels=True)


def _refuse_tables(model: nn.Module, graph: DiskGraph) -> None:
    """Refuse a model with a row per node, which a part of the graph cannot show."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.dim() and len(value) == graph.num_nodes:
            raise ModelError(
                f"'{name}' has a row for each of {graph.num_nodes:,} nodes, and models with tables of nodes do not run on a "
                "DiskGraph yet",
                "give the graph as a Data in memory",
            )
