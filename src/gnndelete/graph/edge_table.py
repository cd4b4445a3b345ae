"""A sorted table of edges: membership, positions, direction and neighbours by binary search, with nothing n x n.

`Neighborhood` walks such tables: the rings around a deletion, and S^l of the paper. The key of an edge (u, v) is
``u * n + v``; that of a triple (u, r, v) is ``(u * n + v) * R + r``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from gnndelete.errors import SettingError

Hops = Literal["undirected", "directed"]

#: A directed graph is nearly undirected if this share of its edges, and at least this number, have a reverse.
NEARLY_UNDIRECTED_SHARE, NEARLY_UNDIRECTED_EDGES = 0.95, 20

#: A sample of edges, and the share of them with a reverse below which all edges need not be looked at.
_SAMPLE_EDGES, _SAMPLE_SHARE = 1024, 0.9

#: Fewer nodes than one in so many are sorted; a mask over the graph finds more of them.
FEW_NODES = 32


class EdgeTable:
    """A sorted index over an edge list, built once per graph.

    ``mirror`` names, for each relation of a typed graph, the one that holds its reverse edges; -1: there is none, itself:
    both directions are in one. ``num_relations`` counts relations that have no edge left, too.

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
        mirror: Sequence[int] | None = None,
    ) -> None:
        self.num_nodes, self.num_edges = num_nodes, edge_index.size(1)
        self.typed = edge_type is not None
        keys = edge_index[0] * num_nodes + edge_index[1]
        self.num_relations, self._mirror = 1, None
        if edge_type is not None:
            present = int(edge_type.max()) + 1 if edge_type.numel() else 1
            self.num_relations = max(present, num_relations or 1)
            if mirror is not None and any(other >= 0 for other in mirror):
                padded = [*mirror, *[-1] * (self.num_relations - len(mirror))]
                self._mirror = torch.tensor(padded, device=edge_index.device)
            keys = keys * self.num_relations + edge_type
        self.mirrored = self._mirror is not None  # whether some relations hold the reverse edges of others
        self.keys, self.order = torch.sort(keys)

    def of_part(self, edge_index: Tensor, num_nodes: int, edge_type: Tensor | None = None) -> EdgeTable:
        """The table of some of these edges in other node numbers; they run both ways where all of them do."""
        mirror = None if self._mirror is None else self._mirror.tolist()
        part = EdgeTable(edge_index, num_nodes, edge_type, self.num_relations, mirror=mirror)
        part.undirected = self.undirected
        return part

    def key(self, edges: Tensor) -> Tensor:
        """The keys of ``[2, k]`` pairs, or of ``[3, k]`` triples on a typed graph; -1 for an unknown relation."""
        if not self.typed:
            return edges[0] * self.num_nodes + edges[1]
        head, relation, tail = edges
        key = (head * self.num_nodes + tail) * self.num_relations + relation
        return torch.where(relation < self.num_relations, key, -1)

    def both_ways(self, edges: Tensor) -> Tensor:
        """Edges together with their reverses: the other direction on an undirected graph, the reverse triples on a typed one.

        >>> table = EdgeTable(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([0, 1]), mirror=[1, 0])
        >>> table.both_ways(torch.tensor([[0], [0], [1]])).tolist()
        [[0, 1], [0, 1], [1, 0]]
        """
        if self.undirected:
            return torch.cat([edges, edges.flip(0)], dim=1)
        if self._mirror is None or not edges.size(1):
            return edges
        other = self._mirror.to(edges.device)[edges[1]]
        return torch.cat([edges, torch.stack([edges[2], other, edges[0]])[:, other >= 0]], dim=1)

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

    def edges(self, keys: Tensor) -> Tensor:
        """The pairs or triples of some keys: the inverse of `key`."""
        pair = keys // self.num_relations if self.num_relations > 1 else keys
        head, tail = pair // self.num_nodes, pair % self.num_nodes
        return torch.stack([head, keys % self.num_relations, tail] if self.typed else [head, tail])

    def contains(self, edges: Tensor) -> Tensor:
        """Which of the given edges exist, as a mask."""
        key = self.key(edges)
        if self.num_edges == 0:
            return torch.zeros_like(key, dtype=torch.bool)
        position = torch.searchsorted(self.keys, key).clamp_(max=self.num_edges - 1)
        return self.keys[position] == key

    def positions(self, edges: Tensor) -> Tensor:
        """The columns of ``edge_index`` with the given edges, parallel copies included.

        >>> EdgeTable(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3).positions(torch.tensor([[1, 2], [0, 0]])).tolist()
        [1]
        """
        key = torch.unique(self.key(edges))
        return self.order[ranges(torch.searchsorted(self.keys, key), torch.searchsorted(self.keys, key, right=True))]

    @cached_property
    def sample(self) -> Tensor:
        """The keys of some edges, spread over all of them."""
        return self.keys[:: max(self.num_edges // _SAMPLE_EDGES, 1)]

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
        """How many edges of a directed graph lack a reverse, if nearly all have one; 0 in any other graph.

        >>> pairs = torch.stack([torch.arange(30), torch.arange(1, 31)])
        >>> EdgeTable(torch.cat([pairs, pairs[:, 1:].flip(0)], dim=1), 31).one_way, EdgeTable(pairs, 31).one_way
        (1, 0)
        """
        if self.typed or self.undirected:
            return 0
        sampled = max(self.num_edges // _SAMPLE_EDGES, 1)
        for step, share in ((sampled, _SAMPLE_SHARE), (1, NEARLY_UNDIRECTED_SHARE)):
            edges = self.edges(torch.unique_consecutive(self.keys[::step]))
            edges = edges[:, edges[0] != edges[1]]
            both = int(self.contains(edges.flip(0)).sum())
            if both < share * edges.size(1):
                return 0
        return edges.size(1) - both if both >= NEARLY_UNDIRECTED_EDGES else 0

    def neighbors(self, nodes: Tensor) -> Tensor:
        """The targets of all edges that leave the given nodes, repeats included; the cost follows their number."""
        keys = self.keys[self._leaving(nodes)]
        return (keys // self.num_relations if self.num_relations > 1 else keys) % self.num_nodes

    def reversed(self, edge_index: Tensor) -> EdgeTable:
        """The table of edges in the other direction, for its neighbours alone."""
        return EdgeTable(edge_index.flip(0), self.num_nodes)

    def leaving(self, nodes: Tensor) -> Tensor:
        """The columns of ``edge_index`` with the edges that leave the given nodes."""
        return self.order[self._leaving(nodes)]

    def _leaving(self, nodes: Tensor) -> Tensor:
        first = nodes * (self.num_nodes * self.num_relations)  # the smallest key of each node
        stop = first + self.num_nodes * self.num_relations
        return ranges(torch.searchsorted(self.keys, first), torch.searchsorted(self.keys, stop))

    @cached_property
    def degree(self) -> Tensor:
        """The out-degree of every node."""
        first = torch.arange(self.num_nodes + 1, device=self.keys.device) * (self.num_nodes * self.num_relations)
        return torch.searchsorted(self.keys, first).diff()


class Neighborhood:
    """Finds the nodes within some hops of others; the cost follows the neighbourhood, not the graph.

    ``hops="undirected"`` walks every edge both ways and covers whatever a message-passing model can change. ``"directed"`` is
    what the paper's authors computed, to reproduce their tables: on an undirected graph only edges u < v, walked from the
    higher to the lower id; on a directed graph every edge, from target to source.

    >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> near = Neighborhood(EdgeTable(path, 4), path)
    >>> [ring.tolist() for ring in near.rings(torch.tensor([0]), 2)]
    [[0], [1], [2]]
    """

    def __init__(self, table: EdgeTable, edge_index: Tensor, hops: Hops = "undirected") -> None:
        if hops not in ("undirected", "directed"):
            raise SettingError(f"'hops' must be 'undirected' or 'directed' (got {hops!r})")
        self._tables = [table] if hops == "undirected" else []
        if hops == "directed" and table.undirected:
            edge_index = edge_index[:, edge_index[0] < edge_index[1]]
        elif hops == "directed" and table.mirrored:  # reverse triples are left out
            edges = table.edges(table.keys)
            edge_index = edges[:, ~table.runs_back(edges)][[0, 2]]
        if hops == "directed" or not table.undirected:
            self._tables.append(table.reversed(edge_index))

    def rings(self, seeds: Tensor, hops: int) -> list[Tensor]:
        """The rings 0 to ``hops``: ring k holds the sorted ids at distance k from the nearest seed, ring 0 the seeds.

        The last rings may be empty.
        """
        nodes, device = self._tables[0].num_nodes, self._tables[0].keys.device
        visited: Tensor | None = None
        rings: list[Tensor] = []
        for hop in range(hops + 1):
            found = torch.cat([table.neighbors(rings[-1]) for table in self._tables]) if hop else seeds.to(device)
            if visited is None and device.type == "cpu" and found.numel() * FEW_NODES < nodes:
                ring = torch.unique(found)
                rings.append(ring[~torch.isin(ring, torch.cat(rings))] if hop else ring)
                continue
            if visited is None:  # cheaper than sorting, unless few nodes of a large graph are found
                visited = torch.zeros(nodes, dtype=torch.bool, device=device)
                visited[torch.cat([found[:0], *rings])] = True
            now = visited.index_fill(0, found, True)
            rings.append((now ^ visited).nonzero().flatten())
            visited = now
        return rings

    def within(self, seeds: Tensor, hops: int) -> Tensor:
        """All nodes at distance at most ``hops``, sorted: S^l of the paper."""
        return torch.cat(self.rings(seeds, hops)).sort().values


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


def entries(graph: Any, name: str, positions: Tensor, store: Any = None) -> Any:
    """Entries of one attribute: of a tensor along its own dimension, or of a list; of a ``store``, where types have their own."""
    value = graph[name] if store is None else store[name]
    if not isinstance(value, Tensor):
        return [value[position] for position in positions.tolist()]
    return value.index_select(graph.__cat_dim__(name, value, store), positions.to(value.device))
