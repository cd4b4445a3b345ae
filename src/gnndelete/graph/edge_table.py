"""One sorted table per edge list: membership, positions, direction and neighbours, with nothing n x n.

An edge (u, v) is the number ``u * n + v`` (a triple (u, r, v) is ``(u * n + v) * R + r``). Sorted, these numbers answer
"is this an edge", "where in edge_index is it" and "who are the neighbours of u" by binary search.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

#: A graph is nearly undirected where this share of its edges, and at least so many, have their reverse beside them.
NEARLY, AT_LEAST = 0.95, 20

#: Edges that are looked at first.
_SAMPLE = 1024


class EdgeTable:
    """A sorted index over an edge list, built once per graph.

    >>> import torch
    >>> table = EdgeTable(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4)
    >>> table.contains(torch.tensor([[0, 0], [1, 2]])).tolist()
    [True, False]
    >>> table.undirected
    True
    >>> table.neighbors(torch.tensor([1])).tolist()
    [0, 2]
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        edge_type: Tensor | None = None,
        num_relations: int | None = None,
        reverse: int | None = None,
        mirror: Sequence[int] | None = None,
    ) -> None:
        # `num_relations` counts relations of which no edge may be left; type r + `reverse` is the way back of type r, or
        # mirror[r] is (-1: there is none, r itself: the type holds every edge both ways)
        self.num_nodes = num_nodes
        self.typed = edge_type is not None
        present = int(edge_type.max()) + 1 if edge_type is not None and edge_type.numel() else 1
        self.num_relations = max(present, num_relations or 1) if self.typed else 1
        self.reverse = reverse if self.typed else None
        if mirror is None and self.reverse is not None:
            mirror = [*range(self.reverse, 2 * self.reverse), *range(self.reverse)]
        self._mirror: Tensor | None = None
        if self.typed and mirror is not None and any(other >= 0 for other in mirror):
            padded = [*mirror, *[-1] * (self.num_relations - len(mirror))]
            self._mirror = torch.tensor(padded, device=edge_index.device)
        keys = edge_index[0] * num_nodes + edge_index[1]
        if edge_type is not None:
            keys = keys * self.num_relations + edge_type
        self.keys, self.order = torch.sort(keys)

    @property
    def num_edges(self) -> int:
        return self.keys.numel()

    def key(self, edges: Tensor) -> Tensor:
        """The numbers of ``[2, k]`` pairs, or of ``[3, k]`` (head, relation, tail) triples on a typed graph."""
        if self.typed:
            head, relation, tail = edges
            return (head * self.num_nodes + tail) * self.num_relations + relation
        return edges[0] * self.num_nodes + edges[1]

    def _known(self, edges: Tensor) -> Tensor:
        """`key`, and -1 for a relation that the table has never seen: its number would be that of another edge."""
        key = self.key(edges)
        return torch.where(edges[1] < self.num_relations, key, -1) if self.typed else key

    def both_ways(self, edges: Tensor) -> Tensor:
        """Edges and whatever goes with them: the other direction on an undirected graph, the reverse of each triple.

        >>> table = EdgeTable(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([0, 1]), reverse=1)
        >>> table.both_ways(torch.tensor([[0], [0], [1]])).tolist()
        [[0, 1], [0, 1], [1, 0]]
        """
        if self.undirected:
            return torch.cat([edges, edges.flip(0)], dim=1)
        if self._mirror is None:
            return edges
        other = self._mirror.to(edges.device)[edges[1]]
        return torch.cat([edges, torch.stack([edges[2], other, edges[0]])[:, other >= 0]], dim=1)

    @property
    def mirrored(self) -> bool:
        """Whether some types hold the way back of others."""
        return self._mirror is not None

    def runs_back(self, edges: Tensor) -> Tensor:
        """Which triples only say again, the other way round, what another one says."""
        if self._mirror is None:
            return torch.zeros(edges.size(1), dtype=torch.bool, device=edges.device)
        other = self._mirror.to(edges.device)[edges[1]]
        return ((other >= 0) & (other < edges[1])) | ((other == edges[1]) & (edges[0] > edges[2]))

    def forward(self, edges: Tensor) -> Tensor:
        """Triples in their own direction: one that runs back is named by the triple it belongs to."""
        if self._mirror is None:
            return edges
        back, other = self.runs_back(edges), self._mirror.to(edges.device)[edges[1]]
        return torch.where(back, torch.stack([edges[2], other, edges[0]]), edges)

    def forward_types(self, relations: Tensor) -> Tensor:
        """Types in their own direction: one that runs back is named by the type it belongs to."""
        if self._mirror is None:
            return relations
        mirror = self._mirror.to(relations.device)
        other = torch.where(relations < mirror.numel(), mirror[relations.clamp(max=mirror.numel() - 1)], -1)
        return torch.where((other >= 0) & (other < relations), other, relations)

    def edges(self, keys: Tensor) -> Tensor:
        """The pairs (triples) that numbers stand for: the inverse of `key`."""
        pair = keys // self.num_relations if self.num_relations > 1 else keys
        head, tail = pair // self.num_nodes, pair % self.num_nodes
        return torch.stack([head, keys % self.num_relations, tail] if self.typed else [head, tail])

    def contains(self, edges: Tensor) -> Tensor:
        """Which of the given edges exist."""
        if self.num_edges == 0:
            return torch.zeros(edges.size(1), dtype=torch.bool, device=edges.device)
        key = self._known(edges)
        place = torch.searchsorted(self.keys, key).clamp_(max=self.num_edges - 1)
        return self.keys[place] == key

    def positions(self, edges: Tensor) -> Tensor:
        """Columns of ``edge_index`` that hold the given edges, every parallel copy included."""
        key = torch.unique(self._known(edges))
        start = torch.searchsorted(self.keys, key)
        stop = torch.searchsorted(self.keys, key, right=True)
        return self.order[ranges(start, stop)]

    def without(self, edges: Tensor) -> Tensor:
        """Which columns of ``edge_index`` hold none of the given edges, as a mask.

        Where no edge has a parallel copy each has one place, which is found without waiting for a device.

        >>> EdgeTable(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3).without(torch.tensor([[1, 2], [0, 0]])).tolist()
        [True, False, True]
        """
        keep = torch.ones(self.num_edges + 1, dtype=torch.bool, device=self.keys.device)
        if self.distinct < max(self.num_edges, 1):
            places = self.positions(edges)
        else:
            key = self._known(edges)
            place = torch.searchsorted(self.keys, key).clamp_(max=self.num_edges - 1)
            # an edge that is not in the graph has its place past the last column
            places = self.order[place].masked_fill_(self.keys[place] != key, self.num_edges)
        return keep.index_fill_(0, places, False)[:-1]

    @cached_property
    def distinct(self) -> int:
        """Number of edges without their parallel copies; an undirected edge and its reverse are two."""
        return int(torch.unique_consecutive(self.keys).numel())

    @cached_property
    def undirected(self) -> bool:
        """Whether every edge stands beside its reverse (types, where there are any, are a direction of their own)."""
        if self.typed:
            return False
        present = torch.unique_consecutive(self.keys)
        reverse = (present % self.num_nodes) * self.num_nodes + present // self.num_nodes
        return bool(torch.equal(present, torch.sort(reverse).values))

    @cached_property
    def one_way(self) -> int:
        """How many edges lack their reverse, where nearly all have one; 0 in a graph that is undirected, or directed in earnest.

        >>> pairs = torch.stack([torch.arange(30), torch.arange(1, 31)])
        >>> EdgeTable(torch.cat([pairs, pairs[:, 1:].flip(0)], dim=1), 31).one_way, EdgeTable(pairs, 31).one_way
        (1, 0)
        """
        if self.typed or self.undirected:
            return 0
        # of a graph that is directed in earnest, a part of the edges tells
        for step, share in ((max(self.num_edges // _SAMPLE, 1), 0.9), (1, NEARLY)):
            edges = self.edges(torch.unique_consecutive(self.keys[::step]))
            edges = edges[:, edges[0] != edges[1]]
            both = int(self.contains(edges.flip(0)).sum())
            if both < share * edges.size(1):
                return 0
        return edges.size(1) - both if both >= AT_LEAST else 0

    @cached_property
    def _pointers(self) -> Tensor:
        scale = self.num_nodes * self.num_relations
        bounds = torch.arange(self.num_nodes + 1, device=self.keys.device) * scale
        return torch.searchsorted(self.keys, bounds)

    def neighbors(self, nodes: Tensor) -> Tensor:
        """Targets of all edges that leave the given nodes, repeats included, in O(their number)."""
        pointers = self._pointers
        keys = self.keys[ranges(pointers[nodes], pointers[nodes + 1])]
        return (keys // self.num_relations if self.num_relations > 1 else keys) % self.num_nodes

    @property
    def degree(self) -> Tensor:
        """Out-degree of every node."""
        return self._pointers[1:] - self._pointers[:-1]


def ranges(start: Tensor, stop: Tensor) -> Tensor:
    """The concatenation of ``arange(start[i], stop[i])`` over all i.

    >>> ranges(torch.tensor([0, 5]), torch.tensor([2, 8])).tolist()
    [0, 1, 5, 6, 7]
    """
    length = stop - start
    total = int(length.sum())
    shift = torch.repeat_interleave(start - (length.cumsum(0) - length), length, output_size=total)
    return shift + torch.arange(total, device=start.device)


def ends_of(edges: Tensor) -> Tensor:
    """Heads and tails of pairs or triples, without a copy: rows named by a list would have to reach the device first.

    A single row, of nodes, is its own.

    >>> ends_of(torch.tensor([[0, 1], [7, 7], [2, 3]])).tolist()
    [[0, 1], [2, 3]]
    """
    return edges[:: max(edges.size(0) - 1, 1)]
