"""Negatives: pairs of nodes that are not edges, and false triples (head, relation, tail) of typed graphs.

Pairs are drawn uniformly and exactly, without rejection and with nothing n x n. Ordered pairs are the numbers ``u * n + v``.
Below the i-th taken number t_i (an edge or a self-loop) lie ``t_i - i`` free ones, so the r-th free pair is found by one
binary search.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.validation import check_graph, count_nodes, count_relations


class NegativeSampler:
    """Draws pairs of nodes that are neither edges nor self-loops; built once per graph, then one binary search per draw.

    On an undirected graph a pair comes as u < v.

    Args:
        edge_index: The edges ``[2, E]``.
        num_nodes: Number of nodes; with ``targets``, the number of sources.
        undirected: None to see it from the edges. True also accepts a list that holds each edge in one direction only.
        targets: Count the two ends separately: ``num_nodes`` sources and this many targets.

    >>> import torch
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> sampler = NegativeSampler(path, num_nodes=3)
    >>> sampler.available
    1
    >>> sampler.sample(2, torch.Generator().manual_seed(0)).tolist()
    [[0, 0], [2, 2]]
    """

    def __init__(
        self, edge_index: Tensor, num_nodes: int, undirected: bool | None = None, targets: int | None = None
    ) -> None:
        if targets is not None:
            self.undirected, self.num_nodes, self._ordered = False, targets, num_nodes * targets
            keys = EdgeTable(edge_index, targets).keys
        else:
            if undirected:
                edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
            table = EdgeTable(edge_index, num_nodes)
            self.undirected = table.undirected if undirected is None else undirected
            self.num_nodes, self._ordered = num_nodes, num_nodes**2
            keys = torch.cat([table.keys, torch.arange(num_nodes, device=edge_index.device) * (num_nodes + 1)])
        self._taken = torch.unique(keys)
        self._free_below = self._taken - torch.arange(self._taken.numel(), device=self._taken.device)
        self._ordered -= self._taken.numel()

    @property
    def available(self) -> int:
        """How many different negatives this graph has."""
        return self._ordered // 2 if self.undirected else self._ordered

    def sample(self, count: int, generator: torch.Generator | None = None, *, distinct: bool = False) -> Tensor:
        """Draw pairs.

        Args:
            count: How many.
            generator: Draws them; torch's default generator where it is None.
            distinct: Draw no pair twice.

        Returns:
            ``[2, count]`` pairs on the device of the edges.

        Raises:
            GraphError: If the graph has fewer such pairs.
            SettingError: If ``count`` is negative.
        """
        if count < 0:
            raise SettingError(f"'count' must not be negative (got {count})")
        if count > 0 and self.available < (count if distinct else 1):
            raise GraphError(
                f"{count} {'distinct ' if distinct else ''}negative pairs were asked for, and a graph of "
                f"{self.num_nodes} nodes with these edges has {self.available} pairs that are not edges; ask for fewer"
            )
        if count == 0:
            return self._free_below.new_empty(2, 0)
        if not distinct:
            return self._pairs(self._draw(count, generator))
        if 4 * count > self.available:
            # Few pairs are left over: a permutation of all of them is no larger than a few times the answer.
            pairs = self._pairs(self._permutation(self._ordered, generator), canonical=False)
            if self.undirected:
                pairs = pairs[:, pairs[0] < pairs[1]]
            return pairs[:, :count].contiguous()
        found = self._free_below.new_empty(0)
        while found.numel() < count:
            pairs = self._pairs(self._draw(count - found.numel() + 16, generator))
            found = torch.unique(torch.cat([found, pairs[0] * self.num_nodes + pairs[1]]))
        found = found[self._permutation(found.numel(), generator)[:count]]
        return self._split(found)

    def beside(self, edges: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw one pair for each edge, with the same first end.

        Args:
            edges: Edges ``[2, k]``; a first end that is joined with every node gets a pair of another one.
            generator: Draws the second ends.

        Returns:
            ``[2, k]`` pairs; also on an undirected graph, the first end comes first.

        >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> NegativeSampler(path, num_nodes=4).beside(torch.tensor([[3, 1], [2, 0]])).tolist()[0]
        [3, 1]
        """
        first = edges[0] * self.num_nodes
        low, high = (key - torch.searchsorted(self._taken, key) for key in (first, first + self.num_nodes))
        device = self._taken.device if generator is None else generator.device
        lot = torch.rand(edges.size(1), generator=generator, dtype=torch.float64, device=device).to(low.device)
        rank = low + (lot * (high - low).clamp(min=1)).long()
        return self._pairs(rank.clamp(max=self._ordered - 1), canonical=False)

    def _draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        device = self._free_below.device if generator is None else generator.device
        return torch.randint(self._ordered, (count,), generator=generator, device=device).to(self._free_below.device)

    def _permutation(self, count: int, generator: torch.Generator | None) -> Tensor:
        device = self._free_below.device if generator is None else generator.device
        return torch.randperm(count, generator=generator, device=device).to(self._free_below.device)

    def _pairs(self, rank: Tensor, canonical: bool = True) -> Tensor:
        pairs = self._split(rank + torch.searchsorted(self._free_below, rank, right=True))
        return torch.stack(pairs.aminmax(dim=0)) if canonical and self.undirected else pairs

    def _split(self, key: Tensor) -> Tensor:
        return torch.stack([key // self.num_nodes, key % self.num_nodes])


class BipartiteSampler:
    """Draws pairs of a bipartite graph that join its two parts and are no edges: pairs within a part are too easy to tell.

    Args:
        edge_index: The edges ``[2, E]``.
        sides: The part of each node, as `bipartite_sides` gives it. Pairs begin in part 0; where all edges are directed
            towards it, in the other.
    """

    def __init__(self, edge_index: Tensor, sides: Tensor) -> None:
        sides = sides.to(edge_index.device)
        self._first = int(bool((sides[edge_index[0]] == 1).all()))
        self._sides = sides
        self._parts = [(sides == side).nonzero().flatten() for side in (self._first, 1 - self._first)]
        self._position = torch.zeros_like(sides)
        for part in self._parts:
            self._position[part] = torch.arange(part.numel(), device=part.device)
        between = self._position[self.across(edge_index)]
        self._pairs = NegativeSampler(between, self._parts[0].numel(), targets=self._parts[1].numel())

    @property
    def available(self) -> int:
        """How many different negatives this graph has."""
        return self._pairs.available

    def across(self, edges: Tensor) -> Tensor:
        """Edges with the end in the first part first."""
        return torch.where(self._sides[edges[0]] == self._first, edges, edges.flip(0))

    def sample(self, count: int, generator: torch.Generator | None = None, *, distinct: bool = False) -> Tensor:
        """Draw pairs, as `NegativeSampler.sample` does."""
        return self._placed(self._pairs.sample(count, generator, distinct=distinct))

    def beside(self, edges: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw one pair for each edge, with the same end in the first part, as `NegativeSampler.beside` does."""
        return self._placed(self._pairs.beside(self._position[self.across(edges)], generator))

    def _placed(self, pairs: Tensor) -> Tensor:
        return torch.stack([part[ids] for part, ids in zip(self._parts, pairs, strict=True)])


def pair_sampler(
    edge_index: Tensor, num_nodes: int, undirected: bool | None = None
) -> NegativeSampler | BipartiteSampler:
    """A sampler of pairs that are no edges; of a bipartite graph, of pairs between its parts.

    Args:
        edge_index: The edges ``[2, E]``.
        num_nodes: Number of nodes.
        undirected: As in `NegativeSampler`.
    """
    sides = bipartite_sides(edge_index, num_nodes)
    if sides is None:
        return NegativeSampler(edge_index, num_nodes, undirected)
    return BipartiteSampler(edge_index, sides)


def bipartite_sides(edge_index: Tensor, num_nodes: int) -> Tensor | None:
    """The part of each node where every edge joins two parts, such as users and items in one graph; else None.

    A graph with fewer than two edges per node may have no odd cycle by chance, and is not taken for such a graph.

    Args:
        edge_index: The edges ``[2, E]``, in one or both directions.
        num_nodes: Number of nodes.

    Returns:
        0 or 1 for each node, 0 for the part with the smallest id, and -1 for a node without an edge.

    >>> users = torch.arange(6).repeat_interleave(6)
    >>> bipartite_sides(torch.stack([users, users.new_tensor([6, 7, 8, 9, 10, 11]).repeat(6)]), 13).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, -1]
    """
    ends = edge_index.cpu().numpy()
    linked = np.unique(ends)
    low, high = np.sort(ends, axis=0)
    pairs = np.unique(low * num_nodes + high)
    if pairs.size < 2 * max(linked.size, 1) or _has_triangle(ends, pairs, num_nodes):
        return None
    from scipy.sparse import coo_matrix  # takes longer to import than a local request
    from scipy.sparse.csgraph import connected_components

    # two copies of each node, and each edge between different copies: a component holds both copies after an odd cycle
    row, column = np.append(ends[0], ends[0] + num_nodes), np.append(ends[1] + num_nodes, ends[1])
    double = coo_matrix((np.ones(row.size), (row, column)), shape=(2 * num_nodes, 2 * num_nodes))
    component = connected_components(double, directed=False)[1]
    first, second = component[:num_nodes], component[num_nodes:]
    if (first[linked] == second[linked]).any():
        return None
    smallest = np.full(component.max() + 1, 2 * num_nodes)
    np.minimum.at(smallest, first, np.arange(num_nodes))
    np.minimum.at(smallest, second, np.arange(num_nodes))
    # the smallest id of a pair of components is in both, as itself and as its copy: the side is where it is itself
    sides = np.full(num_nodes, -1)
    sides[linked] = (first[linked] != first[smallest[first[linked]]]).astype(int)
    return torch.from_numpy(sides)


def _has_triangle(ends: NDArray[np.int64], pairs: NDArray[np.int64], num_nodes: int) -> bool:
    """Whether some neighbours of a node that stand next to each other in the list are joined: most graphs show one."""
    source, target = ends[:, np.argsort(ends[0], kind="stable")]
    same = source[1:] == source[:-1]
    low, high = np.sort([target[:-1][same], target[1:][same]], axis=0)
    keys = low * num_nodes + high
    known = pairs[np.searchsorted(pairs, keys).clip(max=pairs.size - 1)] == keys
    return bool((known & (low != high) & (source[1:][same] != low) & (source[1:][same] != high)).any())


def triples(data: Data) -> Tensor:
    """List the edges of a typed graph as triples.

    Args:
        data: A graph with ``edge_type``.

    Returns:
        ``[3, E]`` (head, relation, tail) in the order of the edges, without the reverses of `with_reverse`.

    >>> triples(Data(edge_index=torch.tensor([[0, 1], [2, 3]]), edge_type=torch.tensor([1, 0]))).tolist()
    [[0, 1], [1, 0], [2, 3]]
    """
    found = torch.stack([data.edge_index[0], data.edge_type, data.edge_index[1]])
    back = data.get("reverse_offset")
    return found if back is None else found[:, found[1] < back]


def with_reverse(data: Data) -> Data:
    """Add the reverse (t, r + R, h) of every triple (h, r, t), where R is the number of relations.

    For models that need messages against the direction of a relation and read them from the graph. The encoders of this
    library add reverses themselves (``reverse=True``). Split the graph first. A deletion of a triple also deletes its
    reverse, and reverses are neither trained on nor scored.

    Args:
        data: A graph with ``edge_type``.

    Returns:
        A copy with the reverses; its ``reverse_offset`` is R.

    Raises:
        GraphError: If the graph has no ``edge_type``, or has reverses already.

    >>> data = Data(edge_index=torch.tensor([[0, 1], [2, 3]]), edge_type=torch.tensor([1, 0]), num_nodes=4)
    >>> both = with_reverse(data)
    >>> both.edge_index.tolist(), both.edge_type.tolist(), both.reverse_offset
    ([[0, 1, 2, 3], [2, 3, 0, 1]], [1, 0, 3, 2], 2)
    """
    check_graph(data)
    if data.get("edge_type") is None:
        raise GraphError(
            "the graph has no 'edge_type', so there are no relations to reverse; make it undirected instead"
        )
    if data.get("reverse_offset") is not None:
        raise GraphError("the graph already holds the reverses of its relations; use it as it is")
    count, result = count_relations(data), data.__copy__()
    result.num_nodes = count_nodes(data)
    for name, value in data.to_dict().items():
        if data.is_edge_attr(name) and isinstance(value, Tensor) and not name.startswith("edge_label"):
            result[name] = torch.cat([value, value], dim=data.__cat_dim__(name, value))
    result.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    result.edge_type = torch.cat([data.edge_type, data.edge_type + count])
    result.num_relations, result.reverse_offset = 2 * count, count
    return result


class TripleCorrupter:
    """Turns true triples into false ones: another head (or tail) that occurs with the same relation; built once per graph.

    Args:
        edge_index: The edges ``[2, E]``.
        edge_type: The relation of each edge.
        num_nodes: Number of nodes.
        tries: Draws among the entities of a relation before any entity is taken.
        known: Further true triples ``[3, k]``, such as unseen ones, which are never returned.

    >>> corrupter = TripleCorrupter(torch.tensor([[0, 1], [2, 3]]), edge_type=torch.tensor([0, 0]), num_nodes=4)
    >>> corrupter.corrupt(torch.tensor([[0], [0], [2]]), torch.Generator().manual_seed(0)).tolist()
    [[1], [0], [2]]
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge_type: Tensor,
        num_nodes: int,
        tries: int = 20,
        known: Tensor | None = None,
    ) -> None:
        if known is not None:
            edge_index, edge_type = torch.cat([edge_index, known[[0, 2]]], dim=1), torch.cat([edge_type, known[1]])
        self._table = EdgeTable(edge_index, num_nodes, edge_type)
        self._tries = tries
        order = torch.argsort(edge_type, stable=True)
        self._members = edge_index[:, order]
        self._start = torch.searchsorted(
            edge_type[order], torch.arange(self._table.num_relations + 1, device=order.device)
        )

    def corrupt(self, triples: Tensor, generator: torch.Generator | None = None, end: int = 0) -> Tensor:
        """Draw one false triple for each true one.

        Args:
            triples: True triples ``[3, k]``.
            generator: Draws the entities; torch's default generator where it is None.
            end: 0 replaces heads, 1 tails.

        Returns:
            ``[3, k]`` triples that the graph does not have.

        Raises:
            GraphError: If a relation is not in the graph, or nearly every entity has it.
        """
        result = triples.clone()
        source = triples.device if generator is None else generator.device
        if triples.size(1) and int(triples[1].max()) >= self._table.num_relations:
            raise GraphError(
                f"no triple of the graph has the relation {int(triples[1].max())}, so nothing says which entities could have "
                f"it; types go from 0 to {self._table.num_relations - 1}"
            )
        open_ = torch.arange(triples.size(1), device=triples.device)
        row = 0 if end == 0 else 2
        for attempt in range(self._tries * 10):
            relation = triples[1, open_]
            low, high = self._start[relation], self._start[relation + 1]
            lot = torch.rand(open_.numel(), generator=generator, dtype=torch.float64, device=source).to(triples.device)
            if attempt < self._tries:
                entity = self._members[end, low + (lot * (high - low)).long()]
            else:  # the relation knows too few entities: any other will do
                entity = (lot * self._table.num_nodes).long()
            result[row, open_] = entity
            open_ = open_[self._table.contains(result[:, open_])]
            if not open_.numel():
                return result
        raise GraphError(
            f"no false triple could be found for {open_.numel()} true ones, for example "
            f"{tuple(triples[:, open_[0]].tolist())}: nearly every entity has that relation; leave it out"
        )
