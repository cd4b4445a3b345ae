"""Blocks: a model run on the neighbourhood of a deletion, with the same rows as on the whole graph.

A deletion changes only rows within the model's reach of it, and behind an early layer fewer than behind a late one: rows of
layer l change within l hops. A block holds these *computed rows*, the nodes whose messages they read, and the edges into
them. The user's own ``forward`` runs on the block. Behind every site the rows that are not computed are those of the cache,
so each layer reads the rows it would read on the whole graph.

The nodes of a block are numbered by their distance from the deletion, and its edges by their target. What a layer must
compute, and what it reads for that, are therefore its first rows and edges, and each layer is called with these alone
(`engine.passes`). On typed graphs, where numbers follow the types, and on graphs with self-loops every layer runs on all rows.

Three things of a whole graph a block has to be given:

- parameters with a row per node (embedding tables that are read whole) are replaced by the rows of the block;
- layers that weigh messages by the degree of their source (`gcn_norm`) get the degrees of the whole graph;
- a layer that counts degrees in a way of its own gets all edges into every node of the block.

Where layers add up messages (GCN, the mean of SAGE), the outermost rows need not be computed from all that they read: they are
those of the cache and what messages from changed rows add to them. A block then ends with the computed rows.

Nothing is assumed of a model: `engine.trial` tries blocks on the unchanged graph and after a trial cut, and compares them
with passes over the whole graph.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.cache import Cache
from gnndelete.engine.incoming import Edges, edges_of
from gnndelete.engine.passes import Passes, Record, blank_rows
from gnndelete.engine.segments import LaterOperators, Operators, Segments, Version
from gnndelete.graph.batch import GraphBatch, Selection
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.disk import DiskGraph, in_full
from gnndelete.graph.edge_table import EdgeTable, ends_of, entries
from gnndelete.graph.hetero import HeteroGraph, Types
from gnndelete.graph.kinds import cut
from gnndelete.nn.hooks import Key, Site, Visit, entry, replaced
from gnndelete.nn.layers import working_copy
from gnndelete.nn.operator import Operator
from gnndelete.nn.receptive_field import Probe
from gnndelete.nn.tables import filled

#: A block with more than this share of the edges costs no less than the whole graph, whose passes multiply sparse matrices:
#: measured with two layers of SAGE and GCN on graphs with communities (`benchmarks/local.py --parts share`).
LARGEST_SHARE = 0.125


@dataclass(frozen=True)
class Reads:
    """How a model is given a block.

    Attributes:
        tables: Parameters and buffers that are replaced by their rows of the block, with the nodes that have a row in each.
        all_edges: Whether every node of the block has all its edges, not only the computed rows.
        degrees: Whether a deleted node changes rows one hop further than a deleted edge.
        lags: Whether a deleted edge changes rows one hop later: messages do not depend on the degree of their source.
        narrow: Whether each layer is called with the rows and edges that it needs.
        sums: Whether layers add up messages, so that changes can be added to the outermost rows.
        pairs: The layers that take their sources and their targets apart, as ``(x, x_targets)``.
        first_only: Attributes of nodes that nothing reads but what comes before the first layer.
    """

    tables: tuple[tuple[str, range], ...] = ()
    all_edges: bool = False
    degrees: bool = False
    lags: bool = False
    narrow: bool = True
    sums: bool = False
    pairs: frozenset[str] = frozenset()
    first_only: frozenset[str] = frozenset()

    def facts(self) -> dict[str, Any]:
        """Plain values for `of`."""
        tables = [[name, nodes.start, nodes.stop] for name, nodes in self.tables]
        sets = {"pairs": sorted(self.pairs), "first_only": sorted(self.first_only)}
        return {**asdict(self), "tables": tables, **sets}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Reads:
        """What `facts` gave."""
        tables = tuple((name, range(start, stop)) for name, start, stop in facts["tables"])
        sets = {name: frozenset(facts[name]) for name in ("pairs", "first_only")}
        return cls(**{**facts, "tables": tables, **sets})


@dataclass(frozen=True, eq=False)
class Block:
    """A part of the graph that a model can run on.

    Attributes:
        nodes: The ids of its nodes.
        data: Their part of the original graph, numbered from 0.
        computed: The numbers in the block of the rows that are computed; all others come from the cache.
        complete: How many nodes, the first ones, have all their edges in the block (where ``levels`` are known).
        boundary: The numbers of the nodes whose own edges are not in the block.
        graphs: The ids of the graphs that the block is made of, where the data is a set of graphs.
        levels: How many nodes, the first ones, lie within 0, 1, ... hops of the deletion; None where nodes are sorted by id.
        lag: By how many hops fewer the base model's rows change than operators act.
        whole: The edges of the whole graph.
    """

    nodes: Tensor
    data: Data
    computed: Tensor
    boundary: Tensor
    whole: EdgeTable = field(repr=False)
    complete: int = 0
    graphs: Tensor | None = None
    levels: tuple[int, ...] | None = None
    lag: int = 0

    @cached_property
    def table(self) -> EdgeTable:
        """The edges of ``data``."""
        return self.whole.of_part(self.data.edge_index, self.nodes.numel(), self.data.get("edge_type"))

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor | None]:
        """The ids in their order, and the number of each; None where the nodes are sorted."""
        return (self.nodes, None) if self.levels is None else self.nodes.sort()

    def local(self, nodes: Tensor) -> Tensor:
        """The numbers in the block of nodes that are in it."""
        if self.levels is not None and nodes.numel() and self.levels[0]:  # most often those that the deletion names
            seeds = self.nodes[: self.levels[0]]
            found = torch.searchsorted(seeds, nodes.contiguous()).clamp_(max=self.levels[0] - 1)
            if torch.equal(seeds[found], nodes):
                return found
        ids, numbers = self._sorted
        found = torch.searchsorted(ids, nodes.contiguous())
        return found if numbers is None else numbers[found.clamp_(max=ids.numel() - 1)]

    def has(self, nodes: Tensor) -> Tensor:
        """Which nodes are in the block, as a mask."""
        return _contains(self._sorted[0], nodes)

    def part_of(self, deletion: Deletion) -> Deletion:
        """What of a checked deletion lies in the block."""
        edges, cells = deletion.edges, deletion.features
        if edges.size(1):
            edges = edges[:, self.has(ends_of(edges)).all(dim=0)]
        chosen = self.has(cells[0])
        inside = {
            name: getattr(deletion, name)[self.has(getattr(deletion, name))]
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


class Blocks:
    """Runs one model on blocks of its graph. Make one with `engine.trial.find`, which checks that blocks give the right rows.

    Args:
        session: The model and its graph.
        probe: The sites of the model.
        cache: Rows of all sites on the original graph.
        reads: How the model is given a block.
        edges: The edges of the graph by their target.
    """

    def __init__(self, session: Any, probe: Probe, cache: Cache, reads: Reads, edges: Edges) -> None:
        self.session, self.probe, self.cache, self.reads, self.edges = session, probe, cache, reads, edges
        data = session.data
        self._select = Selection(data) if isinstance(data, GraphBatch) else None
        self._typed = isinstance(data, HeteroGraph)
        #: whether the model answers about graphs, with a row for each
        self.per_graph = self._select is not None and all(len(v) == data.num_graphs for v in cache.output.values())
        self._kinds = {} if self._typed else {key: _kind(data, key) for key in data.to_dict()}
        #: messages travel so far in one call of a layer
        self.hops_of_call = _hops_of_a_call(probe.sites)
        self.reach = reach_of(probe)
        self.sites = {site: site for site in probe.sites}  # by layer, call and key
        self.model = working_copy(session.model, share=True).eval()  # costs nothing, however large the model is
        self.segments: Segments | None = None  # where requests are solved on top of each other
        self.rows_suffice: bool | None = None  # whether the task scores elements by the rows of their nodes alone
        self.blank = 0.0  # what rows that nothing reads are filled with; the trial takes NaN
        self._held: Block | None = None  # the block whose rows are in the model's tables
        self._numbers: Tensor | None = None  # per node its number in the newest block; others hold anything
        self._passes = Passes(self)

    @property
    def narrows(self) -> bool:
        """Whether each layer is called with the rows and edges that it needs alone."""
        plain = self._select is None and not self._typed
        return (
            self.reads.narrow and plain and self.hops_of_call == 1 and not self.reads.all_edges and self.edges.loopless
        )

    @property
    def sums(self) -> bool:
        """Whether a block ends with the computed rows, to which changes are added."""
        return self.reads.sums and self.narrows

    @property
    def knows_degrees(self) -> bool:
        """Whether some layer is given the degrees of the whole graph."""
        return self._passes.knows_degrees

    # Making blocks

    def near(self, deletion: Deletion, share: float = LARGEST_SHARE, earlier: Deletion | None = None) -> Block | None:
        """The block of a checked deletion; None where it has more than a share of the edges of the graph.

        ``earlier`` is what is gone from the graph already, where the request is solved on top of other segments.
        """
        tables = bool(self.session.vectors)  # rows of tables may change, of deleted nodes and of their neighbours
        start = seeds(deletion, self.session.table, self.reads.degrees or tables)
        only_edges = set(deletion.counts) <= {"edges", "relations"}
        rings = self._rings(start)
        if share < 1 and self._select is None:
            read = rings[:-1] if self.sums else rings
            entering = sum(int(self.edges.count(ring).sum()) for ring in read)
            if entering > share * max(self.session.table.num_edges, 1):
                return None
        block = self.around(rings, int(only_edges and self.reads.lags and not tables))
        if share < 1 and block.data.num_edges > share * max(self.session.table.num_edges, 1):
            return None
        if earlier is None or not any(earlier.counts.values()):
            return block
        return replace(block, data=cut(block.deletion(block.part_of(earlier)), block.data, block.table))

    def _rings(self, start: Tensor) -> list[Tensor]:
        """The nodes at distance 0, 1, ... up to the reach of the model, each sorted."""
        if not self.session.table.undirected or self._typed or self._select is not None:
            return self.session.neighborhood().rings(start, self.reach)
        rings = [start]
        known = self._number(start, start[:0])
        for _ in range(self.reach):
            found = self._new(self.edges.sources(self.edges.positions(rings[-1])), known)
            rings.append(found)
            known = self._number(found, known)
        return rings

    def _number(self, nodes: Tensor, before: Tensor) -> Tensor:
        """Number some nodes after those before them; all of them are returned."""
        if self._numbers is None:
            self._numbers = torch.zeros(self.session.table.num_nodes, dtype=torch.long, device=nodes.device)
        self._numbers[nodes] = torch.arange(before.numel(), before.numel() + nodes.numel(), device=nodes.device)
        return torch.cat([before, nodes])

    def _new(self, nodes: Tensor, known: Tensor) -> Tensor:
        """The nodes that are not among those numbered, each once and sorted."""
        if not known.numel():
            return nodes.unique()
        assert self._numbers is not None
        number = self._numbers[nodes].clamp_(max=known.numel() - 1)
        return nodes[known[number] != nodes].unique()

    def around(self, rings: list[Tensor], lag: int = 0) -> Block:
        """The block in which the rows of some nodes can be computed: of those in each ring, and of all of them together."""
        if self._select is not None:
            return self._graphs_of(torch.cat(rings), self._select)
        if self._typed:
            return self._typed_block(torch.cat(rings).sort().values)
        edges, lengths = self.edges, torch.tensor([ring.numel() for ring in rings])
        if self.sums:
            return self._summing_block(rings, tuple(lengths.cumsum(0).tolist()), lag)
        computed = complete = torch.cat(rings)
        self._number(complete, complete[:0])
        for _ in range(self.hops_of_call - 1 + self.reads.all_edges):  # nodes whose edges are all in the block
            complete = self._number(self._new(edges.sources(edges.positions(complete)), complete), complete)
        positions = edges.positions(complete)
        sources = edges.sources(positions)
        nodes = self._number(self._new(sources, complete), complete)
        assert self._numbers is not None
        targets = torch.arange(complete.numel(), device=nodes.device).repeat_interleave(edges.count(complete))
        pairs = torch.stack([self._numbers[sources], targets])
        boundary = torch.arange(complete.numel(), nodes.numel(), device=nodes.device)
        loops = edges.loops(nodes[complete.numel() :])
        if loops.numel():
            own = self._numbers[edges.edge_index[0, loops]]
            pairs = torch.cat([pairs, torch.stack([own, own])], dim=1)
        levels = tuple(lengths.cumsum(0).tolist())
        data = self._part(nodes, pairs, lambda: torch.cat([edges.columns(positions), loops]), levels, lag)
        rows = torch.arange(computed.numel(), device=nodes.device)
        return Block(nodes, data, rows, boundary, self.session.table, complete.numel(), None, levels, lag)

    def _summing_block(self, rings: list[Tensor], levels: tuple[int, ...], lag: int) -> Block:
        """The block of a model that adds up messages: the outermost rows have only the edges that changes arrive by."""
        edges, nodes = self.edges, torch.cat(rings)
        self._number(nodes, nodes[:0])
        assert self._numbers is not None
        complete = nodes[: nodes.numel() - rings[-1].numel()]
        positions = edges.positions(complete)
        targets = torch.arange(complete.numel(), device=nodes.device).repeat_interleave(edges.count(complete))
        outward = self.session.table.leaving(rings[-2])
        heads, tails = edges.edge_index[:, outward]
        tails = self._numbers[tails]
        tails, order = tails.sort(stable=True)
        last = order[tails >= complete.numel()]
        sources = torch.cat([self._numbers[edges.sources(positions)], self._numbers[heads[last]]])
        pairs = torch.stack([sources, torch.cat([targets, tails[tails.numel() - last.numel() :]])])
        data = self._part(nodes, pairs, lambda: torch.cat([edges.columns(positions), outward[last]]), levels, lag)
        rows = torch.arange(nodes.numel(), device=nodes.device)
        return Block(nodes, data, rows, nodes[:0], self.session.table, complete.numel(), None, levels, lag)

    def _graphs_of(self, nodes: Tensor, select: Selection) -> Block:
        """The graphs that some nodes are in, of which all rows are computed."""
        graphs = self.session.data.batch[nodes].unique()
        ids = self.session.data.nodes_of(graphs)
        rows = torch.arange(ids.numel(), device=ids.device)
        return Block(ids, select(graphs), rows, ids[:0], self.session.table, ids.numel(), graphs)

    def _part(self, nodes: Tensor, pairs: Tensor, columns: Any, levels: tuple[int, ...], lag: int) -> Data:
        """Some nodes and edges of the graph, with their attributes, numbered from 0."""
        data, chosen = self.session.data, None
        on_disk = isinstance(data, DiskGraph)
        result = Data.from_dict(data.to_dict()) if on_disk else copy.copy(data)
        for key, kind in self._kinds.items():
            if kind == "node" and key in self.reads.first_only and self.narrows:
                result[key] = self._first_rows(data[key], nodes, levels, lag)
            elif kind == "node":
                result[key] = entries(data, key, nodes)
            elif kind == "edge":
                chosen = columns() if chosen is None else chosen
                result[key] = entries(data, key, chosen)
            elif kind == "drop":
                del result[key]
        result.edge_index = pairs
        result.num_nodes = nodes.numel()
        return in_full(result) if on_disk else result

    def _first_rows(self, value: Tensor, nodes: Tensor, levels: tuple[int, ...], lag: int) -> Tensor:
        """The rows that the first layer reads; nothing reads the others."""
        hop = max(self.probe.sites[0].hops - lag, 0) + 1
        read = levels[hop] if hop < len(levels) else nodes.numel()
        result = blank_rows((nodes.numel(), *value.shape[1:]), value, self.blank)
        result[:read] = value.index_select(0, nodes[:read])
        return result

    def _typed_block(self, computed: Tensor) -> Block:
        """The block of a typed graph, in the order of ids and so of types; ``computed`` is sorted."""
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
        data = self._typed_part(self.session.data, nodes, columns)
        numbers = torch.searchsorted(nodes, computed), torch.searchsorted(nodes, boundary)
        return Block(nodes, data, *numbers, self.session.table)

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

    def run(
        self,
        block: Block,
        graph: Data,
        visit: Visit | None = None,
        layers: list[str] | None = None,
        base: bool = False,
        record: Record | None = None,
    ) -> Any:
        """Run `model` on the original or the remaining graph of a block.

        Args:
            block: The block.
            graph: Its data, or what remains of it.
            visit: Called behind every layer as by `nn.hooks.listening`. Where the block has levels it is given the rows
                that operators may act on, not those of the boundary.
            layers: The layers behind which ``visit`` is called.
            base: No operator of this request acts: fewer rows change, and only the first ones are in the output.
            record: Takes the computed rows of every site, before and after ``visit``.
        """
        shrunk = base and block.lag > 0 and self._held is None and self.narrows
        rows = block.levels[-1] if shrunk and block.levels else block.nodes.numel()
        lag = block.lag if shrunk else 0
        if shrunk:
            graph = self._first(graph, rows, block)
        with self.on(block, rows), torch.no_grad(), self._passes.on(block, graph, rows, lag, visit, layers, record):
            output = self.session.forward(self.model, graph)
        output = self._behind_model(block, output)
        visited = visit("", 0, output) if visit is not None and "" in (layers or ()) else None
        return output if visited is None else visited

    def forward(self, block: Block, model: nn.Module, graph: Data) -> Any:
        """Run the model (`self.model`) on the original or the remaining graph of a block."""
        return self.run(block, graph)

    def _first(self, graph: Data, rows: int, block: Block) -> Data:
        """The first rows of a graph, and the edges into those that the base model changes; both are views."""
        assert block.levels is not None
        target = block.levels[-1 - block.lag] if len(block.levels) > block.lag else 0
        count = int(torch.searchsorted(graph.edge_index[1].contiguous(), target))
        result = copy.copy(graph)
        for key, kind in self._kinds.items():
            if kind in ("node", "edge") and isinstance(graph.get(key), Tensor):
                result[key] = graph[key].narrow(
                    graph.__cat_dim__(key, graph[key]), 0, rows if kind == "node" else count
                )
        result.edge_index, result.num_nodes = graph.edge_index[:, :count], rows
        return result

    def _behind_model(self, block: Block, output: Any) -> Any:
        """What earlier segments set behind the model itself."""
        state = self.segments
        for key, offsets in () if state is None else state.behind_model.items():
            ids, computed = self.computed_output(block, key)
            h = entry(output, key)
            h = h.index_copy(0, computed, h.index_select(0, computed) + offsets.read(ids).to(h.dtype))
            output = replaced(output, key, h)
        return output

    @contextmanager
    def on(self, block: Block, rows: int | None = None) -> Iterator[None]:
        """The model with the rows of a block in its tables, or the first of them; no effect within such a block."""
        if self._held is block:
            yield
            return
        whole: list[tuple[dict[str, Any], str, Any]] = []
        before, self._held = self._held, block
        later = {} if self.segments is None else self.segments.tables
        try:
            for name, nodes in {**dict.fromkeys(later), **dict(self.reads.tables)}.items():
                owner, _, leaf = name.rpartition(".")
                module = self.model.get_submodule(owner)
                held: dict[str, Any] = module._parameters if leaf in module._parameters else module._buffers
                value = held[leaf]
                if nodes is None:  # read by ids of the whole graph
                    part = later[name].whole()
                else:
                    here = self.local_rows(block, nodes)
                    chosen = block.nodes[here.start : here.stop][:rows] - nodes.start
                    part = later[name].read(chosen) if name in later else value.detach().index_select(0, chosen)
                whole.append((held, leaf, value))
                held[leaf] = nn.Parameter(part, requires_grad=False) if isinstance(value, nn.Parameter) else part
            if self.sums:
                self._passes.measure(block)  # with the tables as they are, before anyone fills other values in
            yield
        finally:
            for held, leaf, value in whole:
                held[leaf] = value
            self._held = before

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

    def rows(self, site: Site, local: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows of a site before the request, written to ``out`` where it is given."""
        base = self.cache.rows[site]
        out = base.new_empty((local.numel(), *base.shape[1:])) if out is None else out
        if self.segments is not None:
            return out.copy_(self.segments.rows[site].read(local))
        return torch.index_select(base, 0, local, out=out) if out.dtype == base.dtype else out.copy_(base[local])

    def commit(self, block: Block, remaining: Data, deletion: Deletion, operators: Operators) -> dict[Key, Version]:
        """Make a solved request the newest segment, which later ones start from."""
        if self.segments is None:
            self.segments = Segments(self.cache, self.edges.degree, self.edges.weighted, self.session.table.num_edges)
        segments, record = self.segments, Record()
        tables = {site.title: self._replaced(site, operator) for site, operator in operators if site.table}
        operators = [(site, operator) for site, operator in operators if not site.table]
        behind = [(site, operator) for site, operator in operators if site not in self.sites]
        at: dict[tuple[str, int], list[Any]] = {}
        for site, operator in operators:
            at.setdefault((site.layer, site.call), []).append((site, operator))

        def visit(name: str, call: int, value: Any) -> Any:
            for site, operator in at.get((name, call), []):
                h = entry(value, site.key)
                here = self.local_rows(block, self.sites[site].rows)
                ids = block.nodes[here.start : here.stop][: h.size(0)] - self.sites[site].rows.start
                value = replaced(value, site.key, operator(h, ids))
            return value

        with (
            self.on(block),
            filled(self.model, {name: self.placed(block, name, *rows) for name, rows in tables.items()}),
        ):
            output = self.run(block, remaining, visit, self.probe.layers, record=record)
        segments.begin()
        for name, (ids, rows) in tables.items():
            segments.set_table(name, self.session.parameter(name), ids, rows)
        for site, (before, after) in record.items():
            ids = self.computed_at(block, site)[0]
            segments.set_rows(site, ids, before, after)
            gone = site.local(deletion.nodes.to(ids.device))  # deleted nodes leave the mean of all rows
            segments.leave(site, gone)
        for key in self.cache.output:
            ids, computed = self.computed_output(block, key)
            before = after = entry(output, key).index_select(0, computed)
            for site, operator in behind:
                after = operator(after, ids) if site.key == key else after
            segments.set_output(key, ids, before, after)
        segments.cut(deletion, self.session.table, self.edges)
        return {key: Version(rows, segments.version) for key, rows in segments.output.items()}

    def _replaced(self, site: Site, operator: Operator) -> tuple[Tensor, Tensor]:
        """The ids of the rows of a table that an operator replaces, and the rows."""
        later = None if self.segments is None else self.segments.tables.get(site.title)
        before = self.session.parameter(site.title)[operator.rows] if later is None else later.read(operator.rows)
        return operator.rows, operator(before, operator.rows)

    def placed(self, block: Block, name: str, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of a table of the whole graph by their numbers in the part of it that the model is given with a block."""
        nodes = dict(self.reads.tables).get(name)
        if nodes is None:  # read by ids of the whole graph
            return ids, rows
        return block.local(ids + nodes.start) - self.local_rows(block, nodes).start, rows

    def operators(self) -> LaterOperators:
        """What all segments so far do to the base model."""
        assert self.segments is not None
        known = self.session.row_ranges
        nodes = {key: known.types.get(key, known.whole) for key in self.cache.output}
        width = {key: rows[0].numel() if len(rows) else 0 for key, rows in self.cache.output.items()}
        behind = {key: Site("", 0, key, width[key], rows=nodes[key]) for key in nodes}
        tables = [vectors.site for vectors in self.session.vectors] if self.segments.tables else []
        return self.segments.operators(self.probe.sites, behind, tables)

    def computed_at(self, block: Block, site: Site) -> tuple[Tensor, Tensor]:
        """The computed rows of a site: their ids in it, and their numbers in the block's part of it."""
        if block.levels is None:
            return computed_rows(self, block, site.rows)
        count = self._passes.count(block, site)
        return block.nodes[:count], block.computed[:count]

    # A copy of this object is made from plain values

    def facts(self) -> dict[str, Any]:
        """What was found out about the model, as plain values for `of`."""
        return self.reads.facts()

    @classmethod
    def of(cls, session: Any, cache: Cache, facts: Mapping[str, Any]) -> Blocks:
        """Blocks that were found before, for the same model and graph."""
        return cls(session, session.probe("all"), cache, Reads.of(facts), edges_of(session))


def seeds(deletion: Deletion, table: EdgeTable, degrees: bool) -> Tensor:
    """The nodes from which changes spread: all that a deletion names, and with ``degrees`` whoever loses a neighbour."""
    found = [ends_of_deletion(deletion)]
    if degrees and deletion.nodes.numel():
        found.append(table.neighbors(deletion.nodes.to(table.keys.device)))
    return torch.cat([part.to(table.keys.device) for part in found]).unique()


def reach_of(probe: Probe) -> int:
    """The hops that a model sees."""
    return max([probe.hops or 0, *(site.hops for site in probe.sites)])


def ends_of_deletion(deletion: Deletion) -> Tensor:
    """Every node that a deletion names: ends of edges, nodes, and nodes that lose features or a label."""
    return torch.cat([ends_of(deletion.edges).flatten(), deletion.nodes, deletion.feature_nodes, deletion.labels])


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


def _contains(sorted_ids: Tensor, ids: Tensor) -> Tensor:
    """Which ids are among sorted ones, as a mask."""
    if not sorted_ids.numel():
        return torch.zeros_like(ids, dtype=torch.bool)
    position = torch.searchsorted(sorted_ids, ids).clamp_(max=sorted_ids.numel() - 1)
    return sorted_ids[position] == ids


def computed_rows(blocks: Blocks, block: Block, nodes: range) -> tuple[Tensor, Tensor]:
    """The computed rows among a range of nodes: their ids from its start, and their numbers in the block's part of it."""
    here = blocks.local_rows(block, nodes)
    computed = inside(block.computed, here)
    return block.nodes[computed + here.start] - nodes.start, computed


def inside(numbers: Tensor, rows: range) -> Tensor:
    """Those of some numbers that lie in a range, from its start."""
    return numbers[(numbers >= rows.start) & (numbers < rows.stop)] - rows.start
