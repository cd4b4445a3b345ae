"""Blocks: a model run on the neighbourhood of a deletion, with the same rows as on the whole graph.

A deletion changes only rows within the model's reach of it. A block holds these *computed rows*, the nodes whose messages
they read, and the edges into them. The user's own ``forward`` runs on the block. Behind every site the rows that are not
computed are overwritten by the cached rows of the whole graph, so each layer reads the rows it would read there.

Three things of a whole graph a block has to be given:

- parameters with a row per node (embedding tables that are read whole) are replaced by the rows of the block;
- layers that weigh messages by the degree of their source (`gcn_norm`) get the degrees of the whole graph;
- a layer that counts degrees in a way of its own gets all edges into every node of the block.

Nothing is assumed of a model: `Blocks.find` tries blocks on the unchanged graph and after a trial cut, and compares them
with passes over the whole graph.
"""

from __future__ import annotations

import copy
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.cache import Cache
from gnndelete.engine.segments import NONE, Operators, Segments, Version
from gnndelete.graph.batch import GraphBatch, Selection
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable, ends_of, entries, ranges
from gnndelete.graph.hetero import HeteroGraph, Types
from gnndelete.graph.kinds import cut
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key, Site, entry, listening, replaced
from gnndelete.nn.layers import working_copy
from gnndelete.nn.receptive_field import Probe

#: Rows are equal if they differ by no more than this share of the largest number in the rows compared.
TOLERANCE = 1e-5

#: So many nodes lie in each block of the check on the unchanged graph, and so many edges are cut in the trial.
CHECKED_NODES, CHECKED_EDGES = 8, 4

#: A block with more than this share of the edges costs no less than the whole graph, whose passes multiply sparse matrices:
#: measured with two layers of SAGE and GCN on graphs with communities (`benchmarks/local.py --parts share`).
LARGEST_SHARE = 0.125


@dataclass(frozen=True)
class Reads:
    """How a model is given a block.

    Attributes:
        tables: Parameters and buffers that are replaced by their rows of the block, with the nodes that have a row in each.
        all_edges: Whether every node of the block has all its edges, not only the computed rows.
    """

    tables: tuple[tuple[str, range], ...] = ()
    all_edges: bool = False


@dataclass(frozen=True)
class Block:
    """A part of the graph that a model can run on.

    Attributes:
        nodes: The ids of its nodes, sorted.
        data: Their part of the original graph, numbered from 0.
        table: The edges of ``data``.
        computed: The numbers in the block of the rows that are computed; all others come from the cache.
        boundary: The numbers of the nodes whose own edges are not in the block.
        graphs: The ids of the graphs that the block is made of, where the data is a set of graphs.
    """

    nodes: Tensor
    data: Data
    table: EdgeTable
    computed: Tensor
    boundary: Tensor
    graphs: Tensor | None = None

    def local(self, nodes: Tensor) -> Tensor:
        """The numbers in the block of nodes that are in it."""
        return torch.searchsorted(self.nodes, nodes.contiguous())

    def part_of(self, deletion: Deletion) -> Deletion:
        """What of a checked deletion lies in the block."""
        edges, cells = deletion.edges, deletion.features
        if edges.size(1):
            edges = edges[:, _contains(self.nodes, ends_of(edges)).all(dim=0)]
        chosen = _contains(self.nodes, cells[0])
        inside = {
            name: getattr(deletion, name)[_contains(self.nodes, getattr(deletion, name))]
            for name in ("nodes", "labels", "inside_graphs")
        }
        if self.graphs is not None:
            inside["graphs"] = deletion.graphs[_contains(self.graphs, deletion.graphs)]
        return deletion.replace(edges=edges, features=cells[:, chosen], fill=deletion.fill[chosen], **inside)

    def deletion(self, deletion: Deletion) -> Deletion:
        """A checked deletion in the numbers of the block."""
        edges = deletion.edges
        if edges.size(1):
            edges = edges.clone()
            edges[:: edges.size(0) - 1] = self.local(edges[:: edges.size(0) - 1])
        cells = deletion.features
        if cells.size(1):
            cells = torch.stack([self.local(cells[0]), cells[1]])
        changes = {name: self.local(getattr(deletion, name)) for name in ("nodes", "labels", "inside_graphs")}
        if self.graphs is not None:
            changes["graphs"] = torch.searchsorted(self.graphs, deletion.graphs)
        return deletion.replace(edges=edges, features=cells, **changes)


class Edges:
    """The columns of all edges that enter a node, and its degree, by look-up."""

    def __init__(self, data: Data, table: EdgeTable, weight: Tensor | None) -> None:
        self.edge_index = data.edge_index
        targets, self._order = torch.sort(data.edge_index[1], stable=True)
        ids = torch.arange(table.num_nodes + 1, device=targets.device)
        self._pointers = torch.searchsorted(targets, ids)
        self._loops = data.edge_index[0] == data.edge_index[1]
        self.loopless = not bool(self._loops.any())
        self._weight = (
            torch.ones_like(self._loops, dtype=torch.float32) if weight is None else weight.detach().flatten()
        )
        self._table = table
        self.degree = self._in_degree(torch.ones_like(self._loops, dtype=torch.float32), table.num_nodes)
        self.weighted = self._in_degree(self._weight, table.num_nodes)

    def _in_degree(self, weight: Tensor, nodes: int) -> Tensor:
        """The sum of weights of all edges that enter a node from another one."""
        result = torch.zeros(nodes, dtype=weight.dtype, device=weight.device)
        return result.index_add_(0, self.edge_index[1], torch.where(self._loops, torch.zeros_like(weight), weight))

    def into(self, nodes: Tensor) -> Tensor:
        """The columns of all edges that enter the given nodes, in the order of the graph."""
        return self._order[ranges(self._pointers[nodes], self._pointers[nodes + 1])].sort().values

    def at(self, nodes: Tensor) -> Tensor:
        """The columns of all edges that enter or leave the given nodes."""
        return torch.cat([self.into(nodes), self._table.leaving(nodes)])

    def lost_degrees(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The targets of some edges, and what each edge adds to their degree by weight; a loop adds nothing."""
        columns = columns[~self._loops[columns]]
        return self.edge_index[1, columns], self._weight[columns]

    def loops(self, nodes: Tensor) -> Tensor:
        """The columns of the edges that join one of the nodes with itself."""
        if self.loopless or not nodes.numel():
            return nodes[:0]
        columns = self.into(nodes)
        return columns[self._loops[columns]]


class Blocks:
    """Runs one model on blocks of its graph. Make one with `find`, which checks that blocks give the right rows.

    Args:
        session: The model and its graph.
        probe: The sites of the model.
        cache: Rows of all sites on the original graph.
        reads: How the model is given a block.
        edges: The edges of the graph by their target.
        degrees: Whether a deleted node changes rows one hop further than a deleted edge.
    """

    def __init__(self, session: Any, probe: Probe, cache: Cache, reads: Reads, edges: Edges, degrees: bool) -> None:
        self.session, self.probe, self.cache, self.reads, self.edges = session, probe, cache, reads, edges
        data = session.data
        self._select = Selection(data) if isinstance(data, GraphBatch) else None
        #: whether the model answers about graphs, with a row for each
        self.per_graph = self._select is not None and all(len(v) == data.num_graphs for v in cache.output.values())
        self._kinds = {} if isinstance(data, HeteroGraph) else {key: _kind(data, key) for key in data.to_dict()}
        #: messages travel so far in one call of a layer
        self.hops_of_call = _hops_of_a_call(probe.sites)
        self.reach = _reach(probe)
        self.sites = {site: site for site in probe.sites}  # by layer, call and key
        self.degrees = degrees
        self.model = working_copy(session.model, share=True).eval()  # costs nothing, however large the model is
        self._block: Block | None = None
        self.segments: Segments | None = None  # where requests are solved on top of each other
        self.rows_suffice: bool | None = None  # whether the task scores elements by the rows of their nodes alone
        for module in self.model.modules():
            _use_given_degrees(module, self._normalize)
        self._calls: Counter[str] = Counter()
        for name in probe.layers:  # before the hooks of any solver, which must read restored rows
            self.model.get_submodule(name).register_forward_hook(partial(self._restore, name))

    # Making blocks

    def near(self, deletion: Deletion, share: float = LARGEST_SHARE, earlier: Deletion | None = None) -> Block | None:
        """The block of a checked deletion; None where it has more than a share of the edges of the graph.

        ``earlier`` is what is gone from the graph already, where the request is solved on top of other segments.
        """
        start = seeds(deletion, self.session.table, self.degrees)
        block = self.around(self.session.neighborhood().within(start, self.reach))
        if block.data.num_edges > share * max(self.session.table.num_edges, 1):
            return None
        if earlier is None or not any(earlier.counts.values()):
            return block
        data = cut(block.deletion(block.part_of(earlier)), block.data, block.table)
        table = self.session.table.of_part(data.edge_index, block.nodes.numel(), data.get("edge_type"))
        return replace(block, data=data, table=table)

    def commit(self, block: Block, remaining: Data, deletion: Deletion, operators: Operators) -> dict[Key, Version]:
        """Make a solved request the newest segment, which later ones start from."""
        if self.segments is None:
            self.segments = Segments(self.cache, self.edges.degree, self.edges.weighted, self.session.table.num_edges)
        segments, found = self.segments, {}

        def visit(name: str, call: int, value: Any) -> None:
            for site in self.probe.sites:
                if (site.layer, site.call) == (name, call):
                    found[site] = entry(value, site.key)

        segments.begin(operators)
        try:
            with torch.no_grad(), listening(self.model, self.probe.layers, visit):
                output = self.forward(block, self.model, remaining)
        except BaseException:
            segments.undo()
            raise
        for site, h in found.items():
            ids, computed = computed_rows(self, block, site.rows)
            before, after = segments.rows[site].read(ids), h.index_select(0, computed)
            segments.sums[site] = segments.sums[site] + (after.flatten(1).double() - before.flatten(1).double()).sum(0)
            segments.rows[site].append(ids, after, segments.version)
            gone = site.local(deletion.nodes.to(ids.device))  # deleted nodes leave the mean of all rows
            segments.sums[site] = segments.sums[site] - segments.rows[site].read(gone).flatten(1).double().sum(0)
            segments.counts[site] -= gone.numel()
        for key in self.cache.output:
            ids, computed = self.computed_output(block, key)
            segments.output[key].append(ids, entry(output, key).index_select(0, computed), segments.version)
        segments.cut(deletion, self.session.table, self.edges)
        return {key: Version(rows, segments.version) for key, rows in segments.output.items()}

    def around(self, computed: Tensor) -> Block:
        """The block in which the rows of some nodes can be computed; ``computed`` is sorted."""
        if self._select is not None:
            return self._graphs_of(computed, self._select)
        edge_index, edges = self.session.data.edge_index, self.edges
        complete = computed  # nodes whose edges are all in the block
        for _ in range(self.hops_of_call - 1):
            complete = torch.cat([complete, edge_index[0, edges.into(complete)]]).unique()
        columns = edges.into(complete)
        nodes = torch.cat([complete, edge_index[0, columns]]).unique()
        if self.reads.all_edges:
            complete = nodes
            columns = edges.into(complete)
            nodes = torch.cat([complete, edge_index[0, columns]]).unique()
        boundary = nodes[~_contains(complete, nodes)]
        loops = edges.loops(boundary)
        if loops.numel():
            columns = torch.cat([columns, loops]).sort().values
        data = self._part(nodes, columns)
        local = self.session.table.of_part(data.edge_index, nodes.numel(), data.get("edge_type"))
        return Block(nodes, data, local, torch.searchsorted(nodes, computed), torch.searchsorted(nodes, boundary))

    def _graphs_of(self, nodes: Tensor, select: Selection) -> Block:
        """The graphs that some nodes are in, of which all rows are computed."""
        graphs = self.session.data.batch[nodes].unique()
        data = select(graphs)
        ids = self.session.data.nodes_of(graphs)
        table = self.session.table.of_part(data.edge_index, ids.numel(), data.get("edge_type"))
        return Block(ids, data, table, torch.arange(ids.numel(), device=ids.device), ids[:0], graphs)

    def _part(self, nodes: Tensor, columns: Tensor) -> Data:
        """Some nodes and edges of the graph, with their attributes, numbered from 0."""
        data = self.session.data
        if isinstance(data, HeteroGraph):
            return self._typed_part(data, nodes, columns)
        result = copy.copy(data)
        for key, kind in self._kinds.items():
            if kind == "node":
                result[key] = entries(data, key, nodes)
            elif kind == "edge":
                result[key] = entries(data, key, columns)
            elif kind == "drop":
                del result[key]
        result.edge_index = torch.searchsorted(nodes, data.edge_index[:, columns].contiguous())
        result.num_nodes = nodes.numel()
        return result

    def _typed_part(self, data: HeteroGraph, nodes: Tensor, columns: Tensor) -> HeteroGraph:
        result = HeteroData()
        for key, value in data.hetero._global_store.to_dict().items():
            result[key] = value
        local: dict[str, range] = {}
        for name, rows in data.types.nodes.items():
            bounds = torch.tensor([rows.start, rows.stop], device=nodes.device)
            start, stop = torch.searchsorted(nodes, bounds).tolist()
            local[name] = range(start, stop)
            _copy_store(data.hetero, data.hetero[name], result[name], nodes[start:stop] - rows.start)
            result[name].num_nodes = stop - start
        start_column = 0
        for kind in data.types.edges:
            store = data.hetero[kind]
            count = store.edge_index.size(1)
            chosen = columns[(columns >= start_column) & (columns < start_column + count)] - start_column
            start_column += count
            _copy_store(data.hetero, store, result[kind], chosen)
            pairs = store.edge_index[:, chosen]
            source, target = data.types.ends(kind)
            ends = [
                torch.searchsorted(nodes, row + whole.start) - local[name].start
                for row, whole, name in zip(pairs, (source, target), (kind[0], kind[2]), strict=True)
            ]
            result[kind].edge_index = torch.stack(ends)
        return HeteroGraph.of(result, Types(local, data.types.edges, data.types.mirror))

    # Running the model on one

    def forward(self, block: Block, model: nn.Module, graph: Data) -> Any:
        """Run the model (`self.model`) on the original or the remaining graph of a block."""
        with self.on(block), torch.no_grad():
            output = self.session.forward(model, graph)
        if self.segments is None:
            return output
        for site in self.segments.behind_model:
            ids, computed = self.computed_output(block, site.key)
            h = entry(output, site.key)
            for operator in self.segments.at(site, ids):
                local = torch.full((len(h),), NONE, device=ids.device).index_copy_(0, computed, ids)
                h = operator(h, local)
            output = replaced(output, site.key, h)
        return output

    @contextmanager
    def on(self, block: Block) -> Iterator[None]:
        """The model with the rows of a block in its tables; again within such a block this only begins a new run."""
        self._calls.clear()
        if self._block is block:
            yield
            return
        before = self._block
        whole: list[tuple[dict[str, Any], str, Any]] = []
        self._block = block
        try:
            for name, nodes in self.reads.tables:
                owner, _, leaf = name.rpartition(".")
                module = self.model.get_submodule(owner)
                held: dict[str, Any] = module._parameters if leaf in module._parameters else module._buffers
                value = held[leaf]
                here = self.local_rows(block, nodes)
                rows = value.detach().index_select(0, block.nodes[here.start : here.stop] - nodes.start)
                whole.append((held, leaf, value))
                held[leaf] = nn.Parameter(rows, requires_grad=False) if isinstance(value, nn.Parameter) else rows
            yield
        finally:
            for held, leaf, value in whole:
                held[leaf] = value
            self._block = before

    def local_rows(self, block: Block, nodes: range) -> range:
        """The numbers in the block of a range of nodes: all of them, or those of one type."""
        if len(nodes) == self.session.table.num_nodes:
            return range(block.nodes.numel())
        bounds = torch.tensor([nodes.start, nodes.stop], device=block.nodes.device)
        return range(*torch.searchsorted(block.nodes, bounds).tolist())

    def computed_output(self, block: Block, key: Key) -> tuple[Tensor, Tensor]:
        """The computed rows of an entry of the output: their ids in it, and their numbers on the block."""
        if self.per_graph and block.graphs is not None:
            return block.graphs, torch.arange(block.graphs.numel(), device=block.graphs.device)
        known = self.session.row_ranges
        return computed_rows(self, block, known.types.get(key, known.whole))

    def _restore(self, name: str, _: nn.Module, __: Any, output: Any) -> Any:
        """Overwrite the rows that are not computed by those of the whole graph."""
        block, call = self._block, self._calls[name]
        self._calls[name] += 1
        if block is None:
            return None
        for site in self.probe.sites:
            if (site.layer, site.call) != (name, call):
                continue
            here = self.local_rows(block, site.rows)
            computed = block.computed[(block.computed >= here.start) & (block.computed < here.stop)] - here.start
            h = entry(output, site.key)
            ids = block.nodes[here.start : here.stop] - site.rows.start
            if self.segments is not None:
                for operator in self.segments.at(site, ids[computed]):
                    h = operator(h, ids)
            restored = self.rows(site, ids).to(h.dtype)
            output = replaced(output, site.key, restored.index_copy(0, computed, h.index_select(0, computed)))
        return output

    def rows(self, site: Site, local: Tensor) -> Tensor:
        """Rows of a site before the request."""
        if self.segments is not None:
            return self.segments.rows[site].read(local)
        return self.cache.rows[site].index_select(0, local)

    def _normalize(
        self, normalize: Callable[..., Any], edge_index: Any, edge_weight: Any = None, *args: Any, **kw: Any
    ) -> Any:
        """``gcn_norm`` with the degrees of the whole graph: an edge from outside stands for all that a node lacks."""
        block = self._block
        if block is None or not block.boundary.numel() or not isinstance(edge_index, Tensor):
            return normalize(edge_index, edge_weight, *args, **kw)
        count = block.nodes.numel()
        if args:
            args = (count + 1, *args[1:])
        else:
            kw["num_nodes"] = count + 1
        degrees = self.edges if self.segments is None else self.segments
        lacking = (degrees.degree if edge_weight is None else degrees.weighted)[block.nodes[block.boundary]]
        weight = lacking.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
        outside = torch.stack([torch.full_like(block.boundary, count), block.boundary])
        more, norm = normalize(
            torch.cat([edge_index, outside], dim=1), torch.cat([weight, lacking.to(weight.dtype)]), *args, **kw
        )
        inside = (more < count).all(dim=0)
        return more[:, inside], norm[inside]

    # Finding out whether blocks give the right rows

    def facts(self) -> dict[str, Any]:
        """What was found out about the model, as plain values for `of`."""
        tables = [[name, nodes.start, nodes.stop] for name, nodes in self.reads.tables]
        return {"tables": tables, "all_edges": self.reads.all_edges, "degrees": self.degrees}

    @classmethod
    def of(cls, session: Any, cache: Cache, facts: Mapping[str, Any]) -> Blocks:
        """Blocks that `find` has found before, for the same model and graph."""
        tables = tuple((name, range(start, stop)) for name, start, stop in facts["tables"])
        edges = Edges(session.data, session.table, _edge_weight(session.data))
        reads = Reads(tables, facts["all_edges"])
        return cls(session, session.probe("all"), cache, reads, edges, facts["degrees"])

    @classmethod
    def find(cls, session: Any) -> Blocks | str:
        """The first way to give the model blocks that is right in every check; otherwise why there is none."""
        probe = session.probe("all")
        batch = isinstance(session.data, GraphBatch)  # its blocks are whole graphs, of which nothing is left out
        if not batch and (not probe.bounded or probe.hops is None):
            return "every node sees every other"
        if not isinstance(session.data, HeteroGraph) and "adj_t" in session.data:
            return "the graph holds its edges as a sparse matrix 'adj_t'"
        model = working_copy(session.model)
        cache = Cache.compute(session, model, probe.sites)
        if not cache.output:
            return f"the output of the model does not have one row per {'graph' if batch else 'node'}"
        edges = Edges(session.data, session.table, _edge_weight(session.data))
        trial = _Trial.make(session, probe, cache, model)
        if isinstance(trial, str):
            return trial
        reason = ""
        for reads in _ways(session):
            blocks = cls(session, probe, cache, reads, edges, trial.degrees)
            found = blocks._differs(trial)
            if found is None:
                return blocks
            reason = reason or found
        return reason

    def _differs(self, trial: _Trial) -> str | None:
        """What is wrong with blocks, in words; None where nothing is."""
        try:
            for nodes in trial.unchanged:
                block = self.around(nodes)
                found = self._compare(block, block.data, {}, {})
                if found:
                    return found
            block = self.around(trial.computed)
            remaining = cut(block.deletion(trial.deletion), block.data, block.table)
            return self._compare(block, remaining, trial.rows, trial.output)
        except Exception as error:  # whatever a user's model has against a part of its graph
            return f"the model does not run on a part of its graph ({type(error).__name__}: {first_line(error)})"

    def _compare(self, block: Block, graph: Data, rows: dict[Site, Tensor], output: dict[Key, Tensor]) -> str | None:
        """The first difference between the computed rows of a block and those of the whole graph."""
        found: dict[Site, Tensor] = {}

        def visit(name: str, call: int, value: Any) -> None:
            for site in self.probe.sites:
                if (site.layer, site.call) == (name, call):
                    found[site] = entry(value, site.key)

        with torch.no_grad(), listening(self.model, self.probe.layers, visit):
            answer = self.forward(block, self.model, graph)
        for site, h in found.items():
            ids, computed = computed_rows(self, block, site.rows)
            right = rows[site] if site in rows else self.cache.rows[site].index_select(0, ids)
            if not close(h.index_select(0, computed), right):
                return f"on a part of the graph the layer '{site.title}' gives other rows than on the whole"
        for key in self.cache.output:
            value = entry(answer, key)
            ids, computed = self.computed_output(block, key)
            right = output[key] if key in output else self.cache.output[key].index_select(0, ids)
            if not close(value.index_select(0, computed), right):
                return "on a part of the graph the output has other rows than on the whole"
        return None


@dataclass(frozen=True)
class _Trial:
    """A trial cut of a few edges and a node, and what a pass over the whole remaining graph gives there.

    Attributes:
        deletion: What is cut.
        degrees: Whether a deleted node changes rows one hop further, since its neighbours lose a degree.
        computed: The nodes whose rows may change, sorted.
        unchanged: Nodes for the checks on the unchanged graph.
        rows: What the whole pass gives at every site.
        output: What it gives in the end.
    """

    deletion: Deletion
    degrees: bool
    computed: Tensor
    unchanged: list[Tensor]
    rows: dict[Site, Tensor]
    output: dict[Key, Tensor]

    @classmethod
    def make(cls, session: Any, probe: Probe, cache: Cache, model: nn.Module) -> _Trial | str:
        data, table = session.data, session.table
        if not table.num_edges:
            return "the graph has no edges"
        generator = torch.Generator().manual_seed(0)
        deletion = _few_edges_and_a_node(table, generator)
        near, far = (
            session.neighborhood().within(seeds(deletion, table, degrees), _reach(probe)) for degrees in (False, True)
        )
        graphs = None
        if isinstance(data, GraphBatch):
            graphs = data.batch[far].unique()
            near = far = data.nodes_of(graphs)
        rows: dict[Site, Tensor] = {}
        output: dict[Key, Tensor] = {}
        beyond = {"near": False, "far": False}

        def compare(value: Tensor, before: Tensor, near: Tensor, far: Tensor) -> Tensor:
            """The ``far`` rows; whether others have moved is noted."""
            moved = (value - before).flatten(1).abs().amax(dim=1) > TOLERANCE * before.abs().max().clamp_(min=1e-30)
            for name, computed in (("near", near), ("far", far)):  # the far nodes include the near ones
                moved[computed] = False
                beyond[name] |= bool(moved.any())
            return value.index_select(0, far)

        def visit(name: str, call: int, value: Any) -> None:
            for site in probe.sites:
                if (site.layer, site.call) == (name, call):
                    inside = _inside(near, site.rows), _inside(far, site.rows)
                    rows[site] = compare(entry(value, site.key), cache.rows[site], *inside)

        with evaluating(model), listening(model, probe.layers, visit):
            answer = session.forward(model, cut(deletion, data, table))
        for key, before in cache.output.items():
            nodes = session.row_ranges.types.get(key, session.row_ranges.whole)
            inside = _inside(near, nodes), _inside(far, nodes)
            if graphs is not None and before.size(0) == data.num_graphs:
                inside = graphs, graphs
            output[key] = compare(entry(answer, key), before, *inside)
        if beyond["far"]:
            return "a trial cut moved rows beyond the reach of the model"
        nodes = torch.randint(table.num_nodes, (2, CHECKED_NODES), generator=generator).to(far.device)
        return cls(deletion, beyond["near"], far, [part.unique() for part in nodes], rows, output)


def _few_edges_and_a_node(table: EdgeTable, generator: torch.Generator) -> Deletion:
    """A deletion of random edges, and of a node at none of them."""
    columns = torch.randint(table.num_edges, (CHECKED_EDGES + 1,), generator=generator)
    edges = table.edges(table.keys[columns.to(table.keys.device)])
    node = edges[-1, -1:]
    others = edges[:, :-1]
    others = others[:, (others[0] != node) & (others[-1] != node)]
    return Deletion(edges=others if others.size(1) else None, nodes=node)


def seeds(deletion: Deletion, table: EdgeTable, degrees: bool) -> Tensor:
    """The nodes from which changes spread: all that a deletion names, and with ``degrees`` whoever loses a neighbour."""
    found = [ends_of_deletion(deletion)]
    if degrees and deletion.nodes.numel():
        found.append(table.neighbors(deletion.nodes.to(table.keys.device)))
    return torch.cat(found).unique()


def _reach(probe: Probe) -> int:
    return max([probe.hops or 0, *(site.hops for site in probe.sites)])


def ends_of_deletion(deletion: Deletion) -> Tensor:
    """Every node that a deletion names: ends of edges, nodes, and nodes that lose features or a label."""
    return torch.cat([ends_of(deletion.edges).flatten(), deletion.nodes, deletion.feature_nodes, deletion.labels])


def close(a: Tensor, b: Tensor) -> bool:
    """Whether rows are equal but for rounding."""
    if a.shape != b.shape:
        return False
    return not a.numel() or float((a - b).abs().max()) <= TOLERANCE * max(float(b.abs().max()), 1e-30)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 200 characters."""
    return (str(error).splitlines() or [""])[0][:200]


def _ways(session: Any) -> list[Reads]:
    """The ways to give a model blocks, the cheapest first."""
    known = session.row_ranges
    by_size = {len(nodes): nodes for nodes in [*reversed(known.types.values()), known.whole]}
    tensors = [*session.model.named_parameters(), *session.model.named_buffers()]
    tables = tuple((name, by_size[len(value)]) for name, value in tensors if value.dim() and len(value) in by_size)
    choices = [tables, ()] if tables else [()]
    return [Reads(chosen, all_edges) for all_edges in (False, True) for chosen in choices]


def _hops_of_a_call(sites: tuple[Site, ...]) -> int:
    """The hops that messages travel in one call of a layer, at the most."""
    result, before = 1, 0
    for site in sites:
        result = max(result, site.hops - before)
        before = max(before, site.hops)
    return result


def _kind(data: Data, key: str) -> str:
    if key in ("edge_index", "num_nodes"):
        return "other"
    if key.startswith("edge_label"):
        return "drop"
    if data.is_node_attr(key):
        return "node"
    return "edge" if data.is_edge_attr(key) else "other"


def _copy_store(graph: HeteroData, store: Any, result: Any, positions: Tensor) -> None:
    for key in store.to_dict():
        if key in ("edge_index", "num_nodes") or key.startswith("edge_label"):
            continue
        indexed = store.is_node_attr(key) or store.is_edge_attr(key)
        result[key] = entries(graph, key, positions, store) if indexed else store[key]


def _edge_weight(data: Data) -> Tensor | None:
    weight = None if isinstance(data, HeteroGraph) else data.get("edge_weight")
    return weight if isinstance(weight, Tensor) and weight.numel() == data.edge_index.size(1) else None


def _use_given_degrees(module: nn.Module, normalize: Callable[..., Any]) -> None:
    """Let a layer whose ``forward`` calls PyG's ``gcn_norm`` call ``normalize`` with it instead."""
    forward: Any = getattr(type(module), "forward", None)
    code = getattr(forward, "__code__", None)
    if code is None or "gcn_norm" not in code.co_names or "forward" in vars(module):
        return
    known = forward.__globals__.get("gcn_norm")
    if known is None:
        return

    def given(*args: Any, **kwargs: Any) -> Any:
        return normalize(known, *args, **kwargs)

    function = types.FunctionType(
        code, {**forward.__globals__, "gcn_norm": given}, forward.__name__, forward.__defaults__, forward.__closure__
    )
    function.__kwdefaults__ = forward.__kwdefaults__
    module.forward = types.MethodType(function, module)


def _contains(sorted_ids: Tensor, ids: Tensor) -> Tensor:
    """Which ids are among sorted ones, as a mask."""
    if not sorted_ids.numel():
        return torch.zeros_like(ids, dtype=torch.bool)
    position = torch.searchsorted(sorted_ids, ids).clamp_(max=sorted_ids.numel() - 1)
    return sorted_ids[position] == ids


def computed_rows(blocks: Blocks, block: Block, nodes: range) -> tuple[Tensor, Tensor]:
    """The computed rows among a range of nodes: their ids from its start, and their numbers in the block's part of it."""
    here = blocks.local_rows(block, nodes)
    computed = _inside(block.computed, here)
    return block.nodes[computed + here.start] - nodes.start, computed


def _inside(numbers: Tensor, rows: range) -> Tensor:
    return numbers[(numbers >= rows.start) & (numbers < rows.stop)] - rows.start
