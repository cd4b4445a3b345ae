"""The local engine: a request is solved on its block, and answered by the rows of the block over those of the cache."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.engine.blocks import Block, Blocks, computed_rows
from gnndelete.engine.segments import Version
from gnndelete.engine.session import Session
from gnndelete.engine.trial import close
from gnndelete.graph.edge_table import EdgeTable, Hops, Neighborhood
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Finished, Key, Site, Visit, entry
from gnndelete.nn.layers import Layers, evaluation_view
from gnndelete.nn.operator import Operator
from gnndelete.nn.receptive_field import Probe
from gnndelete.nn.tables import Vectors

Solved = list[tuple[Site, Operator]]


class BlockSession(Session):
    """A model and one block, in the place of a `Session` with the whole graph.

    Args:
        blocks: How the model is run on blocks.
        block: The block of the request.
    """

    blocks: Blocks

    def __init__(self, blocks: Blocks, block: Block) -> None:
        self.blocks, self.block = blocks, block
        self.model, self.data = blocks.model, block.data
        self.random, self.hooks = blocks.session.random, 1

    keeps_first = False

    @property
    def table(self) -> EdgeTable:  # type: ignore[override]
        """The edges of the block."""
        return self.block.table

    def probe(self, layers: Layers = "all") -> Probe:
        """The sites of the model, with their rows in the numbers of the block."""
        found = self.blocks.session.probe(layers)
        sites = [replace(site, rows=self.blocks.local_rows(self.block, site.rows)) for site in found.sites]
        return replace(found, sites=tuple(sites))

    def neighborhood(self, hops: Hops = "undirected") -> Neighborhood:
        """The rings around nodes of the block."""
        return Neighborhood(self.table, self.data.edge_index, hops)

    def forward(self, model: nn.Module, graph: Data) -> Any:
        """Run the model on the original or the remaining graph of the block."""
        return self.blocks.run(self.block, graph)

    def watch(self, model: nn.Module, graph: Data, layers: list[str], visit: Visit, base: bool = False) -> Any:
        """Run the model on the block with a visitor behind some layers, who is given the rows that operators may act on."""
        try:
            return self.blocks.run(self.block, graph, visit, layers, base)
        except Finished:
            return None

    def answer(self, model: nn.Module, data: Data) -> Any:
        """The output on the block."""
        return self.forward(model, data)

    @property
    def tables(self) -> frozenset[str]:  # type: ignore[override]
        """The parameters of which the block has rows."""
        return frozenset(name for name, _ in self.blocks.reads.tables)

    @property
    def vectors(self) -> tuple[Vectors, ...]:
        """The tables of the model, by the numbers of the block."""
        known = self.blocks.session.vectors
        return tuple(replace(each, nodes=self.blocks.local_rows(self.block, each.nodes)) for each in known)

    def placed(self, vectors: Vectors, rows: Tensor) -> Tensor:
        """Where rows of a table stand: in the rows of the block, or in the whole table where that is read by ids."""
        if vectors.parameter in self.tables:
            return rows
        start = next(each.nodes.start for each in self.blocks.session.vectors if each.site == vectors.site)
        return self.block.nodes[rows + vectors.nodes.start] - start

    def running(self) -> AbstractContextManager[None]:
        """Keep the rows of the block in the model's tables for longer than one run."""
        return self.blocks.on(self.block)

    def parameter(self, name: str) -> Tensor:
        """A parameter of the model, with the rows of the whole graph."""
        return self.blocks.session.parameter(name)

    def untrained_rows(self, name: str, nodes: range, deleted: Tensor) -> Tensor:
        """The rows of a parameter for nodes of the graph that never had an edge and are not deleted."""
        session = self.blocks.session  # ``nodes`` are those of the block
        known = [each.nodes for each in session.vectors if each.parameter == name]
        height = len(session.parameter(name))
        known += [
            each for each in (session.row_ranges.whole, *session.row_ranges.types.values()) if len(each) == height
        ]
        return session.untrained_rows(name, known[0], self.block.nodes[deleted])

    def mean_row(self, site: Site, h: Tensor, deleted: Tensor) -> Tensor:
        """The mean row of all nodes of the graph that are not deleted: that of the cache and what differs on the block."""
        blocks, nodes = self.blocks, self.blocks.sites[site].rows
        if self.block.levels is None:
            ids, computed = computed_rows(blocks, self.block, nodes)
            changed = h.flatten(1).index_select(0, computed)
        else:
            ids, changed = self.block.nodes[: h.size(0)], h.flatten(1)
        rows, before, state = h.flatten(1), blocks.rows(site, ids).flatten(1), blocks.segments
        total, count = (
            (blocks.cache.sums[site], len(nodes)) if state is None else (state.sums[site], state.counts[site])
        )
        total = total + (changed.double() - before.double()).sum(dim=0)
        total = total - rows.index_select(0, deleted).sum(dim=0, dtype=torch.float64)
        return total / max(count - deleted.numel(), 1)

    def lift(self, solved: Solved) -> Solved:
        """Operators in the numbers of the block as operators on the whole graph."""
        result = []
        for site, operator in solved:
            known = self.blocks.session.row_ranges
            behind_model = replace(site, rows=known.types.get(site.key, known.whole))
            tables = {vectors.site: vectors.site for vectors in self.blocks.session.vectors} if site.table else {}
            whole = tables.get(site) or self.blocks.sites.get(site, behind_model)
            here = self.blocks.local_rows(self.block, whole.rows)
            ids = self.block.nodes[here.start : here.stop] - whole.rows.start
            result.append((whole, operator.on(len(whole.rows), ids)))
        return result

    def whole(self, output: Any, into: Any = None) -> Any:
        """The output on the whole graph: the computed rows of an output on the block over the rows of the cache.

        Args:
            output: The output on the block.
            into: An earlier whole output of the same block, which is written to instead of a copy of the cache.
        """
        answers = self.answers(output)
        if into is None:
            return answers.whole()
        for key, rows in answers.output.items():
            assert isinstance(rows, Overlay)
            entry(into, key).index_copy_(0, rows.ids, rows.rows)
        return into

    def answers(self, output: Any) -> Answers:
        """Answers by the computed rows of an output on the block."""
        found: dict[Key, Overlay | Version] = {}
        for key, base in self.blocks.cache.output.items():
            ids, computed = self.blocks.computed_output(self.block, key)
            found[key] = Overlay.of(base, ids, entry(output, key).index_select(0, computed))
        return Answers(self.blocks, found)


@dataclass(frozen=True)
class Overlay:
    """Some rows (of sorted ids) in the place of those of a base, which stays as it is."""

    base: Tensor
    ids: Tensor
    rows: Tensor

    @classmethod
    def of(cls, base: Tensor, ids: Tensor, rows: Tensor) -> Overlay:
        """Some rows, given in any order."""
        ids, order = ids.sort()
        return cls(base, ids, rows.index_select(0, order))

    def read(self, ids: Tensor) -> Tensor:
        """Some rows."""
        result = self.base.index_select(0, ids)
        if self.ids.numel():
            position = torch.searchsorted(self.ids, ids).clamp_(max=self.ids.numel() - 1)
            found = self.ids[position] == ids
            result[found] = self.rows[position[found]]
        return result

    def whole(self) -> Tensor:
        """All rows, as a copy."""
        return self.base.index_copy(0, self.ids, self.rows)


class Answers:
    """Rows of the model's output after a request.

    Args:
        blocks: How the model is run on blocks.
        output: Per entry of the output what gives its rows.
    """

    def __init__(self, blocks: Blocks, output: Mapping[Key, Overlay | Version]) -> None:
        self.blocks, self.output = blocks, output

    def before(self) -> Answers:
        """Answers of the base model on the original graph."""
        rows = self.blocks.cache.output
        none = self.blocks.edges.edge_index[0, :0].long()
        return Answers(self.blocks, {key: Overlay(base, none, base[:0]) for key, base in rows.items()})

    def whole(self) -> Any:
        """The whole output, as one pass over the remaining graph would give it."""
        entries = {key: rows.whole() for key, rows in self.output.items()}
        return entries.get(None, entries)

    def predict(self, task: Any, elements: Any) -> Tensor:
        """What the task says of some elements, by the rows of their nodes alone where these are enough."""
        model, blocks = evaluation_view(self.blocks.session.model), self.blocks
        with evaluating(model):
            if blocks.rows_suffice is not False and not blocks.per_graph and list(self.output) == [None]:
                ids, local = task.local(elements)
                if ids.numel() and int(ids.min()) >= 0 and int(ids.max()) < blocks.session.table.num_nodes:
                    found = task.predict(model, self.output[None].read(ids.to(blocks.edges.edge_index.device)), local)
                    if blocks.rows_suffice is None:  # a decoder may know nodes by their ids
                        whole = task.predict(model, self.whole(), elements)
                        blocks.rows_suffice = close(found, whole)
                        return whole
                    return found
            return task.predict(model, self.whole(), elements)
