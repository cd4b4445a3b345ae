"""The edges of a graph by the node that they enter: sources, columns and degrees by look-up, with no scan of the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.disk import DiskEdgeTable
from gnndelete.graph.edge_table import EdgeTable, ranges
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.io.arrays import release

#: Nodes of a graph on disk whose degrees are counted at once.
NODES_AT_ONCE = 1 << 18


class Edges:
    """The sources and columns of all edges that enter a node, and its degree.

    Args:
        data: The graph.
        table: Its sorted edges.
        weight: The weight of each edge, where edges have one.
    """

    def __init__(self, data: Data, table: EdgeTable, weight: Tensor | None) -> None:
        self.edge_index = data.edge_index
        targets, self._order = torch.sort(data.edge_index[1], stable=True)
        ids = torch.arange(table.num_nodes + 1, device=targets.device)
        self._pointers = torch.searchsorted(targets, ids)
        self._loops = data.edge_index[0] == data.edge_index[1]
        self.loopless = not bool(self._loops.any())
        self._sources = data.edge_index[0][self._order].to(torch.int32 if table.num_nodes < 2**31 else torch.long)
        self._weight = (
            torch.ones_like(self._loops, dtype=torch.float32) if weight is None else weight.detach().flatten()
        )
        self._table = table
        self.degree = self._in_degree(torch.ones_like(self._loops, dtype=torch.float32), table.num_nodes)
        self.weighted = self.degree if weight is None else self._in_degree(self._weight, table.num_nodes)

    def _in_degree(self, weight: Tensor, nodes: int) -> Tensor:
        """The sum of weights of all edges that enter a node from another one."""
        result = torch.zeros(nodes, dtype=weight.dtype, device=weight.device)
        return result.index_add_(0, self.edge_index[1], torch.where(self._loops, torch.zeros_like(weight), weight))

    def count(self, nodes: Tensor) -> Tensor:
        """How many edges enter each of the given nodes."""
        return self._pointers[nodes + 1] - self._pointers[nodes]

    def positions(self, nodes: Tensor) -> Tensor:
        """Where the edges that enter the given nodes stand, node by node, for `sources` and `columns`."""
        return ranges(self._pointers[nodes], self._pointers[nodes + 1])

    def sources(self, positions: Tensor) -> Tensor:
        """The sources of edges at some positions."""
        return self._sources[positions].long()

    def columns(self, positions: Tensor) -> Tensor:
        """The columns of ``edge_index`` with the edges at some positions."""
        return self._order[positions]

    def into(self, nodes: Tensor) -> Tensor:
        """The columns of all edges that enter the given nodes, in the order of the graph."""
        return self._order[self.positions(nodes)].sort().values

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


class DiskEdges(Edges):
    """The same for a graph on disk, whose edges stand by their target already: what is asked for is read there.

    Args:
        graph: The graph.
        table: Its edges.
        weight: The weight of each edge, where edges have one.
    """

    _table: DiskEdgeTable
    _weight: Tensor | None  # type: ignore[assignment]

    def __init__(self, graph: Data, table: DiskEdgeTable, weight: Tensor | None) -> None:
        self.edge_index, self._pointers, self._table = graph.edge_index, table.pointers, table
        self._weight = weight
        self.loopless = table.loops == 0
        self.degree = torch.empty(table.num_nodes)
        self.weighted = self.degree if weight is None else torch.empty(table.num_nodes)
        for start in range(0, table.num_nodes, NODES_AT_ONCE):
            nodes = slice(start, start + NODES_AT_ONCE)
            pointers = self._pointers[start : start + NODES_AT_ONCE + 1]
            self.degree[nodes] = pointers.diff().float()
            if self.loopless and weight is None:
                continue
            first, last = int(pointers[0]), int(pointers[-1])
            targets = self.edge_index[1, first:last].long() - start
            joins = (self.edge_index[0, first:last].long() - start != targets).float()
            for result, value in ((self.degree, None), (self.weighted, weight)):
                if value is not None:
                    joins = joins * value[first:last].flatten().float()
                result[nodes] = torch.zeros(len(pointers) - 1).index_add_(0, targets, joins)
            release(self.edge_index)

    def sources(self, positions: Tensor) -> Tensor:
        """The sources of edges at some positions."""
        return self.edge_index[0, positions].long()

    def columns(self, positions: Tensor) -> Tensor:
        """The columns with the edges at some positions: edges stand in this order."""
        return positions

    def into(self, nodes: Tensor) -> Tensor:
        """The columns of all edges that enter the given nodes, in the order of the graph."""
        return self.positions(nodes).sort().values

    def lost_degrees(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The targets of some edges, and what each edge adds to their degree by weight; a loop adds nothing."""
        sources, targets = self.edge_index[:, columns].long()
        joins = sources != targets
        weight = torch.ones(columns.numel()) if self._weight is None else self._weight[columns].flatten().float()
        return targets[joins], weight[joins]

    def loops(self, nodes: Tensor) -> Tensor:
        """The columns of the edges that join one of the nodes with itself."""
        return nodes[:0] if self.loopless else self._table.between(torch.stack([nodes, nodes]))


def edges_of(session: Any) -> Edges:
    """The edges of a session's graph by their target."""
    table, weight = session.table, edge_weight(session.data)
    if isinstance(table, DiskEdgeTable):
        return DiskEdges(session.data, table, weight)
    return Edges(session.data, table, weight)


def edge_weight(data: Data) -> Tensor | None:
    """The weight of each edge, where edges have one."""
    weight = None if isinstance(data, HeteroGraph) else data.get("edge_weight")
    return weight if isinstance(weight, Tensor) and weight.numel() == data.edge_index.size(1) else None
