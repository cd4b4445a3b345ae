"""The edges of a graph by the node that they enter: sources, columns and degrees by look-up, with no scan of the graph."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.edge_table import EdgeTable, ranges
from gnndelete.graph.hetero import HeteroGraph


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


def edge_weight(data: Data) -> Tensor | None:
    """The weight of each edge, where edges have one."""
    weight = None if isinstance(data, HeteroGraph) else data.get("edge_weight")
    return weight if isinstance(weight, Tensor) and weight.numel() == data.edge_index.size(1) else None
