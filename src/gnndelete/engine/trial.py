"""Whether a model can be run on blocks, found out by trying: on the unchanged graph and after a trial cut.

Blocks are compared with passes over the whole graph, inside the computed rows and outside them: only that shows that enough
rows are computed. The cheapest way of giving the model a block that is right everywhere is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear, MeanAggregation, MessagePassing, SumAggregation

from gnndelete.engine.blocks import Block, Blocks, Reads, inside, reach_of, seeds
from gnndelete.engine.cache import Cache
from gnndelete.engine.incoming import Edges, edges_of
from gnndelete.engine.passes import Record
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import cut
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key, Site, entry, listening
from gnndelete.nn.layers import working_copy
from gnndelete.nn.receptive_field import Probe

#: Rows are equal if they differ by no more than this share of the largest number in the rows compared. Rows that a deletion
#: leaves as they are differ by rounding alone.
TOLERANCE, ROUNDING = 1e-5, 1e-6

#: Parts of a layer that may add up messages.
ADDING = (nn.Linear, Linear, nn.Identity, SumAggregation, MeanAggregation)

#: So many rows must read more than what changes, for a trial to tell sums from other aggregations.
SHOWN_ROWS = 4

#: So many edges are cut in the trial: of so many random ones those at nodes with few edges, where a lost edge shows most.
TRIAL_EDGES, TRIAL_SAMPLE = 4, 1000


def find(session: Any) -> Blocks | str:
    """Blocks that are given to the model in the first way that is right in every check; otherwise why there is none."""
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
    edges = edges_of(session)
    trial = Trial.make(session, probe, cache, model, edges)
    if isinstance(trial, str):
        return trial
    reason = ""
    for reads in _ways(session, probe, trial.degrees):
        blocks = Blocks(session, probe, cache, reads, edges)
        found = trial.differs(blocks)
        if found is None:
            return _cheapest(blocks, trial)
        reason = reason or found
    return reason


def _ways(session: Any, probe: Probe, degrees: bool) -> Iterator[Reads]:
    """The ways to give a model blocks, the cheapest first."""
    known = session.row_ranges
    by_size = {len(nodes): nodes for nodes in [*reversed(known.types.values()), known.whole]}
    tensors = [*session.model.named_parameters(), *session.model.named_buffers()]
    tables = tuple((name, by_size[len(value)]) for name, value in tensors if value.dim() and len(value) in by_size)
    for all_edges in (False, True):
        for chosen in [tables, ()] if tables else [()]:
            for narrow in (True, False):
                yield Reads(chosen, all_edges, degrees, narrow=narrow)


def _cheapest(blocks: Blocks, trial: Trial) -> Blocks:
    """Blocks that cost less, where they are right as well."""

    def tried(**changes: Any) -> Blocks:
        other = Blocks(blocks.session, blocks.probe, blocks.cache, replace(blocks.reads, **changes), blocks.edges)
        return other if trial.differs(other) is None else blocks

    if not blocks.narrows:
        return blocks
    data = blocks.session.data
    floats = (key for key, value in data.to_dict().items() if isinstance(value, Tensor) and value.is_floating_point())
    for name in floats:
        if data.is_node_attr(name) and not name.startswith("edge"):
            blocks = tried(first_only=blocks.reads.first_only | {name})
    layers = blocks.probe.layers
    candidates = frozenset(name for name in layers if isinstance(blocks.model.get_submodule(name), MessagePassing))
    all_together = tried(pairs=candidates)
    if all_together is not blocks:
        blocks = all_together
    else:
        for name in candidates if len(candidates) > 1 else ():
            blocks = tried(pairs=blocks.reads.pairs | {name})
    if trial.lags(blocks):
        blocks = tried(lags=True)
    return tried(sums=True) if _may_add_up(blocks) and trial.shows_sums(blocks) else blocks


def _may_add_up(blocks: Blocks) -> bool:
    """Whether the outermost layers are PyG's own, of linear maps and sums: a trial might miss a bound that is seldom met."""
    names = {site.layer for site in blocks.probe.sites if site.hops == blocks.reach}
    layers = [blocks.model.get_submodule(name) for name in names]
    return all(
        type(layer).__module__.startswith("torch_geometric.nn.conv.")
        and all(isinstance(part, ADDING) for part in list(layer.modules())[1:])
        for layer in layers
    )


@dataclass(frozen=True)
class Trial:
    """A trial cut of a few edges and a node, and what a pass over the whole remaining graph gives there.

    Attributes:
        deletion: What is cut.
        degrees: Whether a deleted node changes rows one hop further, since its neighbours lose a degree.
        computed: The nodes whose rows may change, sorted.
        rows: What the whole pass gives at every site.
        output: What it gives in the end.
    """

    deletion: Deletion
    degrees: bool
    computed: Tensor
    rows: dict[Site, Tensor]
    output: dict[Key, Tensor]

    @classmethod
    def make(cls, session: Any, probe: Probe, cache: Cache, model: nn.Module, edges: Edges) -> Trial | str:
        """Cut a few elements and run the model on the whole graph; why that cannot be, in words."""
        data, table = session.data, session.table
        if not table.num_edges:
            return "the graph has no edges"
        deletion = _few_edges_and_a_node(table, edges, torch.Generator().manual_seed(0))
        near, far = (
            session.neighborhood().within(seeds(deletion, table, degrees), reach_of(probe)) for degrees in (False, True)
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
                    reached = inside(near, site.rows), inside(far, site.rows)
                    rows[site] = compare(entry(value, site.key), cache.rows[site], *reached)

        with evaluating(model), listening(model, probe.layers, visit):
            try:
                answer = session.forward(model, cut(deletion, data, table))
            except Exception as error:  # a layer may not bear isolated nodes
                return f"the model does not run after a trial cut ({type(error).__name__}: {first_line(error)})"
        for key, before in cache.output.items():
            nodes = session.row_ranges.types.get(key, session.row_ranges.whole)
            reached = inside(near, nodes), inside(far, nodes)
            if graphs is not None and before.size(0) == data.num_graphs:
                reached = graphs, graphs
            output[key] = compare(entry(answer, key), before, *reached)
        if beyond["far"]:
            return "a trial cut moved rows beyond the reach of the model"
        return cls(deletion, beyond["near"], far, rows, output)

    def differs(self, blocks: Blocks) -> str | None:
        """What is wrong with blocks, in words; None where nothing is. Rows that nothing should read are NaN meanwhile."""
        blocks.blank = float("nan")
        try:
            block = blocks.near(self.deletion, share=1.0)
            assert block is not None
            remaining = cut(block.deletion(self.deletion), block.data, block.table)
            edges = blocks.near(self.deletion.replace(nodes=self.deletion.nodes[:0]), share=1.0)
            assert edges is not None
            return (
                self._compare(blocks, block, block.data, False)
                or self._compare(blocks, block, remaining, True)
                or self._compare(blocks, edges, edges.data, False)
            )
        except Exception as error:  # whatever a user's model has against a part of its graph
            return f"the model does not run on a part of its graph ({type(error).__name__}: {first_line(error)})"
        finally:
            blocks.blank = 0.0

    def _compare(self, blocks: Blocks, block: Block, graph: Any, after: bool) -> str | None:
        """The first difference between the computed rows of a block and those of the whole graph."""
        record = Record()
        answer = blocks.run(block, graph, record=record)
        for site, (h, _) in record.items():
            ids, _ = blocks.computed_at(block, site)
            right = self._among(self.rows[site], ids, site.rows) if after else blocks.cache.rows[site][ids]
            if not close(h, right):
                return f"on a part of the graph the layer '{site.title}' gives other rows than on the whole"
        for key in blocks.cache.output:
            ids, computed = blocks.computed_output(block, key)
            right = blocks.cache.output[key][ids]
            if after:
                nodes = blocks.session.row_ranges.types.get(key, blocks.session.row_ranges.whole)
                right = self.output[key] if blocks.per_graph else self._among(self.output[key], ids, nodes)
            if not close(entry(answer, key).index_select(0, computed), right):
                return "on a part of the graph the output has other rows than on the whole"
        return None

    def _among(self, rows: Tensor, ids: Tensor, nodes: range) -> Tensor:
        """Some of the rows of the whole pass."""
        return rows[torch.searchsorted(inside(self.computed, nodes), ids.contiguous())]

    def shows_sums(self, blocks: Blocks) -> bool:
        """Whether the trial changes rows that read more than what it changes: only these tell sums from other aggregations."""
        block = blocks.near(self.deletion, share=1.0)
        if block is None or block.levels is None or len(block.levels) < 2:
            return False
        first, last = block.levels[-2:]
        sources, targets = block.data.edge_index
        outer = targets >= first
        reads_more = targets[outer & (sources >= last)].unique()
        ids, nodes = block.nodes[reads_more], blocks.session.row_ranges.whole
        entries = blocks.cache.output.items()
        moved = any(not close(self._among(self.output[key], ids, nodes), before[ids]) for key, before in entries)
        return moved and ids.numel() >= SHOWN_ROWS

    def lags(self, blocks: Blocks) -> bool:
        """Whether deleted edges change rows one hop later than they could."""
        if blocks.knows_degrees or blocks.reads.lags:
            return False
        deletion, record = self.deletion.replace(nodes=self.deletion.nodes[:0]), Record()
        block = blocks.near(deletion, share=1.0)
        if block is None or block.levels is None or not deletion.edges.size(1):
            return False
        blocks.run(block, cut(block.deletion(deletion), block.data, block.table), record=record)
        for site, (h, _) in record.items():
            count = block.levels[max(site.hops - 1, 0)]
            ids = block.nodes[count : h.size(0)]
            before = blocks.cache.rows[site][ids]
            if ids.numel() and float((h[count:] - before).abs().max()) > ROUNDING * float(before.abs().max()):
                return False
        return True


def _few_edges_and_a_node(table: EdgeTable, edges: Edges, generator: torch.Generator) -> Deletion:
    """A deletion of random edges and of a node at none of them, all with few edges, so that one more or less shows."""
    columns = torch.randint(table.num_edges, (TRIAL_SAMPLE,), generator=generator)
    found = table.edges(table.keys[columns.to(table.keys.device).unique()])
    ends = found[:: found.size(0) - 1]
    degree = edges.degree[ends].amin(dim=0)
    degree = torch.where((degree < 2) | (ends[0] == ends[1]), degree + table.num_edges, degree)
    found = found[:, degree.argsort(stable=True)[: 2 * TRIAL_EDGES + 1]]
    node = found[-1, -1:]
    others = found[:, :TRIAL_EDGES]
    others = others[:, (others[0] != node) & (others[-1] != node)]
    return Deletion(edges=others if others.size(1) else None, nodes=node)


def close(a: Tensor, b: Tensor) -> bool:
    """Whether rows are equal but for rounding."""
    if a.shape != b.shape:
        return False
    return not a.numel() or float((a - b).abs().max()) <= TOLERANCE * max(float(b.abs().max()), 1e-30)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 200 characters."""
    return (str(error).splitlines() or [""])[0][:200]
