"""Propagated features for the linear methods: P = D^-1 (A + I) on the graph taken as simple and undirected, nothing n x n.

Also which rows a change of the graph reaches, their recomputation alone, and common neighbours by binary search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnndelete.graph.edge_table import EdgeTable, ranges

#: Neighbours that are looked up at once when common ones are counted.
CHUNK_NEIGHBORS = 1 << 22


class Adjacency:
    """Neighbours of every node: each edge once in both directions, without self-loops.

    >>> path = Adjacency(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    >>> path.degree.tolist()
    [1, 2, 1]
    >>> path.average(torch.tensor([[0.0], [3.0], [6.0]])).flatten().tolist()
    [1.5, 3.0, 4.5]
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        edges = edge_index[:, edge_index[0] != edge_index[1]]
        keys = torch.unique(torch.cat([edges[0] * num_nodes + edges[1], edges[1] * num_nodes + edges[0]]))
        self.table = EdgeTable(torch.stack([keys // num_nodes, keys % num_nodes]), num_nodes)

    @property
    def num_nodes(self) -> int:
        return self.table.num_nodes

    @property
    def degree(self) -> Tensor:
        """Neighbours of every node."""
        return self.table.degree

    def average(self, h: Tensor, rows: Tensor | None = None) -> Tensor:
        """``P h``: the mean of a node's row and its neighbours' rows, for all nodes or for ``rows``."""
        nodes = torch.arange(self.num_nodes, device=h.device) if rows is None else rows
        degree = self.degree[nodes]
        target = torch.repeat_interleave(torch.arange(nodes.numel(), device=h.device), degree)
        index = torch.stack([target, self.table.neighbors(nodes)])
        ones = torch.ones(target.numel(), dtype=h.dtype, device=h.device)
        shape = (nodes.numel(), self.num_nodes)
        matrix = torch.sparse_coo_tensor(index, ones, shape, is_coalesced=True, check_invariants=False)
        return (torch.sparse.mm(matrix, h) + h[nodes]) / (degree + 1).to(h.dtype)[:, None]

    def common_neighbors(self, pairs: Tensor) -> Tensor:
        """How many neighbours the two ends of each ``[2, k]`` pair share, by looking up those of the end that has fewer."""
        swap = self.degree[pairs[0]] > self.degree[pairs[1]]
        few, many = torch.where(swap, pairs[1], pairs[0]), torch.where(swap, pairs[0], pairs[1])
        size = self.degree[few]
        counts = torch.zeros_like(few)
        part = (size.cumsum(0) - size) // CHUNK_NEIGHBORS
        start = (self.degree.cumsum(0) - self.degree)[few]
        for chunk in range(int(part.max()) + 1 if part.numel() else 0):
            here = (part == chunk).nonzero().flatten()
            pair = torch.repeat_interleave(here, size[here])
            near = self.table.keys[ranges(start[here], start[here] + size[here])] % self.num_nodes
            shared = self.table.contains(torch.stack([many[pair], near]))
            counts += torch.bincount(pair[shared], minlength=counts.numel())
        return counts


def propagate(adjacency: Adjacency, x: Tensor, hops: int) -> list[Tensor]:
    """``[X, PX, …, P^hops X]``."""
    levels = [x]
    for _ in range(hops):
        levels.append(adjacency.average(levels[-1]))
    return levels


def propagate_again(adjacency: Adjacency, x: Tensor, before: list[Tensor], rows: Tensor) -> list[Tensor]:
    """`propagate` after a change that reaches only ``rows``; all others are taken from ``before``, which stays as it is."""
    levels = [x]
    for old in before[1:]:
        levels.append(old.index_copy(0, rows, adjacency.average(levels[-1], rows)))
    return levels


def reached(old: Adjacency, new: Adjacency, exchanged: Tensor, hops: int) -> Tensor:
    """Sorted ids of the nodes whose propagated features can differ between two graphs.

    A row of P changes where an edge came or went, and that is seen up to ``hops - 1`` steps away in either graph.
    ``exchanged`` names the nodes whose own features differ, which is seen ``hops`` steps away.
    """
    changed = []
    for a, b in ((old.table, new.table), (new.table, old.table)):
        edges = a.edges(a.keys)
        changed.append(edges[:, ~b.contains(edges)])
    seeds, tables = torch.cat([edges[0] for edges in changed]), [old.table, new.table]
    found = exchanged.unique()
    for hop in range(hops):
        near = [table.neighbors(found) for table in tables]
        found = torch.cat([found, *near, seeds] if hop == 0 else [found, *near]).unique()
    return found


def project(x: Tensor, dim: int, seed: int) -> Tensor:
    """Features in double precision; wider ones are mapped to ``dim`` columns by a random matrix that only ``seed`` decides.

    >>> project(torch.eye(3), dim=2, seed=0).shape
    torch.Size([3, 2])
    """
    if x.size(1) <= dim:
        return x.double().to_dense()
    draw = torch.randn(x.size(1), dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x.double() @ (draw / dim**0.5).to(x.device)
