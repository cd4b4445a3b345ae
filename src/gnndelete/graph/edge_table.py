"""A sorted table of edges: membership, positions, direction and neighbours by binary search, with nothing n x n.

The key of an edge (u, v) is ``u * n + v``; that of a triple (u, r, v) is ``(u * n + v) * R + r``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

#: A directed graph is nearly undirected if this share of its edges, and at least this number, have a reverse.
NEARLY_UNDIRECTED_SHARE, NEARLY_UNDIRECTED_EDGES = 0.95, 20

#: A sample of edges, and the share of them with a reverse below which all edges need not be looked at.
_SAMPLE_EDGES, _SAMPLE_SHARE = 1024, 0.9


class EdgeTable:
    """A sorted index over an edge list, built once per graph.

    Args:
        edge_index: The ``[2, E]`` edges.
        num_nodes: The number of nodes.
        edge_type: The relation of each edge; edges are then triples.
        num_relations: The number of relations, where some may have no edge left.
        reverse: Relation r + ``reverse`` holds the reverse edges of relation r.
        mirror: For each relation the one that holds its reverse edges; -1: there is none, itself: both directions in one.

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
        """The number of edges, parallel copies included."""
        return self.keys.numel()

    def key(self, edges: Tensor) -> Tensor:
        """The keys of ``[2, k]`` pairs, or of ``[3, k]`` triples (head, relation, tail) on a typed graph."""
        if self.typed:
            head, relation, tail = edges
            return (head * self.num_nodes + tail) * self.num_relations + relation
        return edges[0] * self.num_nodes + edges[1]

    def _known(self, edges: Tensor) -> Tensor:
        """`key`, or -1 for an unknown relation, whose key would be that of another edge."""
        key = self.key(edges)
        return torch.where(edges[1] < self.num_relations, key, -1) if self.typed else key

    def both_ways(self, edges: Tensor) -> Tensor:
        """Edges together with their reverses: the other direction on an undirected graph, the reverse triples on a typed one.

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
        """Whether some relations hold the reverse edges of others."""
        return self._mirror is not None

    def runs_back(self, edges: Tensor) -> Tensor:
        """Which triples are only the reverse of another one."""
        if self._mirror is None:
            return torch.zeros(edges.size(1), dtype=torch.bool, device=edges.device)
        other = self._mirror.to(edges.device)[edges[1]]
        return ((other >= 0) & (other < edges[1])) | ((other == edges[1]) & (edges[0] > edges[2]))

    def forward(self, edges: Tensor) -> Tensor:
        """Triples in their forward direction: a reverse triple is replaced by the one it is the reverse of."""
        if self._mirror is None:
            return edges
        back, other = self.runs_back(edges), self._mirror.to(edges.device)[edges[1]]
        return torch.where(back, torch.stack([edges[2], other, edges[0]]), edges)

    def forward_types(self, relations: Tensor) -> Tensor:
        """Relations in their forward direction: a reverse relation is replaced by the one it is the reverse of."""
        if self._mirror is None:
            return relations
        mirror = self._mirror.to(relations.device)
        other = torch.where(relations < mirror.numel(), mirror[relations.clamp(max=mirror.numel() - 1)], -1)
        return torch.where((other >= 0) & (other < relations), other, relations)

    def edges(self, keys: Tensor) -> Tensor:
        """The pairs or triples of some keys: the inverse of `key`."""
        pair = keys // self.num_relations if self.num_relations > 1 else keys
        head, tail = pair // self.num_nodes, pair % self.num_nodes
        return torch.stack([head, keys % self.num_relations, tail] if self.typed else [head, tail])

    def contains(self, edges: Tensor) -> Tensor:
        """Which of the given edges exist, as a mask."""
        if self.num_edges == 0:
            return torch.zeros(edges.size(1), dtype=torch.bool, device=edges.device)
        key = self._known(edges)
        position = torch.searchsorted(self.keys, key).clamp_(max=self.num_edges - 1)
        return self.keys[position] == key

    def positions(self, edges: Tensor) -> Tensor:
        """The columns of ``edge_index`` with the given edges, parallel copies included."""
        key = torch.unique(self._known(edges))
        start = torch.searchsorted(self.keys, key)
        stop = torch.searchsorted(self.keys, key, right=True)
        return self.order[ranges(start, stop)]

    def without(self, edges: Tensor) -> Tensor:
        """Which columns of ``edge_index`` hold none of the given edges, as a mask.

        Without parallel edges, each edge has one column, which is found without waiting for a device.

        >>> EdgeTable(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3).without(torch.tensor([[1, 2], [0, 0]])).tolist()
        [True, False, True]
        """
        mask = torch.ones(self.num_edges + 1, dtype=torch.bool, device=self.keys.device)
        if self.distinct < max(self.num_edges, 1):
            columns = self.positions(edges)
        else:
            key = self._known(edges)
            position = torch.searchsorted(self.keys, key).clamp_(max=self.num_edges - 1)
            # edges that are not in the graph get a column past the last one
            columns = self.order[position].masked_fill_(self.keys[position] != key, self.num_edges)
        return mask.index_fill_(0, columns, False)[:-1]

    @cached_property
    def distinct(self) -> int:
        """The number of edges without parallel copies; an undirected edge and its reverse count as two."""
        return int(torch.unique_consecutive(self.keys).numel())

    @cached_property
    def undirected(self) -> bool:
        """Whether every edge has its reverse; a typed graph counts as directed."""
        if self.typed:
            return False
        present = torch.unique_consecutive(self.keys)
        reverse = (present % self.num_nodes) * self.num_nodes + present // self.num_nodes
        return bool(torch.equal(present, torch.sort(reverse).values))

    @cached_property
    def one_way(self) -> int:
        """How many edges lack a reverse in a nearly undirected graph; 0 in any other graph.

        >>> pairs = torch.stack([torch.arange(30), torch.arange(1, 31)])
        >>> EdgeTable(torch.cat([pairs, pairs[:, 1:].flip(0)], dim=1), 31).one_way, EdgeTable(pairs, 31).one_way
        (1, 0)
        """
        if self.typed or self.undirected:
            return 0
        for step, share in (
            (max(self.num_edges // _SAMPLE_EDGES, 1), _SAMPLE_SHARE),
            (1, NEARLY_UNDIRECTED_SHARE),
        ):
            edges = self.edges(torch.unique_consecutive(self.keys[::step]))
            edges = edges[:, edges[0] != edges[1]]
            both = int(self.contains(edges.flip(0)).sum())
            if both < share * edges.size(1):
                return 0
        return edges.size(1) - both if both >= NEARLY_UNDIRECTED_EDGES else 0

    @cached_property
    def _pointers(self) -> Tensor:
        scale = self.num_nodes * self.num_relations
        bounds = torch.arange(self.num_nodes + 1, device=self.keys.device) * scale
        return torch.searchsorted(self.keys, bounds)

    def neighbors(self, nodes: Tensor) -> Tensor:
        """The targets of all edges that leave the given nodes, repeats included; the cost follows their number."""
        pointers = self._pointers
        keys = self.keys[ranges(pointers[nodes], pointers[nodes + 1])]
        return (keys // self.num_relations if self.num_relations > 1 else keys) % self.num_nodes

    @property
    def degree(self) -> Tensor:
        """The out-degree of every node."""
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
    """Heads and tails of pairs or triples, as a view; a single row of nodes stays as it is.

    >>> ends_of(torch.tensor([[0, 1], [7, 7], [2, 3]])).tolist()
    [[0, 1], [2, 3]]
    """
    return edges[:: max(edges.size(0) - 1, 1)]
