"""Shortest paths between all nodes of a graph (n x n, for graphs that fit): lengths, and the edges' features along them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gnndelete.errors import GraphError
from gnndelete.models.attention import size_scale


@dataclass(frozen=True, eq=False)
class Block:
    """Graphs of similar size, padded to the largest of them, with all pairs of nodes ``[graph, i, j]``."""

    nodes: Tensor  # [graphs, size]: which node of the batch; padding has the number of all nodes
    slots: Tensor  # the places that are no padding, as positions in the flattened ``nodes``
    distance: Tensor  # [graphs, size, size]: edges on a shortest path from j to i; max_distance + 1 for none so short
    features: Tensor | None  # [graphs, size, size, f]: mean edge feature on the shortest paths; 0 where there is none

    @property
    def padded(self) -> bool:
        return self.slots.numel() < self.nodes.numel()


@torch.no_grad()
def shortest_paths(
    edge_index: Tensor,
    num_nodes: int,
    batch: Tensor | None = None,
    edge_attr: Tensor | None = None,  # [E, f]
    max_distance: int = 5,
) -> list[Block]:
    """Paths along the edges' direction, as messages travel, up to ``max_distance`` edges, within each graph of a batch.

    Graphs whose sizes lie between the same powers of two share a block, so that padding at most doubles a side.

    >>> line = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> shortest_paths(line, 3)[0].distance[0].tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """
    graph = torch.zeros(num_nodes, dtype=torch.long, device=edge_index.device) if batch is None else batch
    source, target = edge_index
    if batch is not None and bool((graph[source] != graph[target]).any()):
        raise GraphError(
            "'edge_index' joins nodes of two graphs of the batch; give each graph its own edges in 'batch'"
        )
    sizes = torch.bincount(graph)
    order = torch.argsort(graph, stable=True)
    local = torch.empty_like(graph)  # place of a node within its graph
    local[order] = torch.arange(num_nodes, device=graph.device) - (sizes.cumsum(0) - sizes)[graph[order]]
    scale = size_scale(sizes)
    blocks = []
    for level in torch.unique(scale[sizes > 0]).tolist():
        mine = (scale == level) & (sizes > 0)
        size = int(sizes[mine].max())
        slot = (mine.cumsum(0) - 1)[graph] * size + local
        inside = mine[graph]
        members = inside.nonzero().flatten()
        nodes = graph.new_full((int(mine.sum()) * size,), num_nodes)
        nodes[slot[members]] = members
        kept = inside[source]
        ends = slot[edge_index[:, kept]]
        given = None if edge_attr is None else edge_attr[kept]
        distance, features = _walk(ends, nodes.numel(), slot[members], local[members], size, given, max_distance)
        if features is not None:
            features = features.view(-1, size, size, features.size(-1))
        blocks.append(Block(nodes.view(-1, size), slot[members], distance.view(-1, size, size), features))
    return blocks


def _walk(
    ends: Tensor, slots: int, slot: Tensor, local: Tensor, size: int, edge_attr: Tensor | None, max_distance: int
) -> tuple[Tensor, Tensor | None]:
    """All breadth-first searches of a block at once: column j of a row belongs to the search from node j of its graph."""
    start = torch.zeros(slots, size, device=ends.device)
    start[slot, local] = 1.0
    distance = torch.full((slots, size), max_distance + 1, dtype=torch.int32, device=ends.device)
    distance[slot, local] = 0
    step = _sparse(ends, None, slots)
    along = None if edge_attr is None else _Along(ends, slots, start, edge_attr)
    frontier = start
    for length in range(1, max_distance + 1):
        new = (torch.sparse.mm(step, frontier) > 0) & (distance > max_distance)
        if not bool(new.any()):
            break
        distance.masked_fill_(new, length)
        frontier = new.to(start.dtype)
        if along is not None:
            along.advance(new, length)
    return distance, None if along is None else along.mean.float()


class _Along:
    """Edge features along the walks. Shortest paths are rarely unique: all of them count alike, so that no order of nodes
    or edges shows. With c the number of shortest paths j -> i and t the sum of the features of their edges,
    c_i = sum_p c_p and t_i = sum_p (t_p + c_p e_pi) over the edges p -> i that come from one step closer to j.
    """

    def __init__(self, ends: Tensor, slots: int, start: Tensor, edge_attr: Tensor) -> None:
        # numbers of paths grow exponentially with their length: double precision holds them
        values = edge_attr.double()
        self._step = _sparse(ends, None, slots, torch.float64)
        self._weighted = [_sparse(ends, column, slots) for column in values.unbind(dim=1)]
        self._count = start.double()
        self._total = start.new_zeros((*start.shape, len(self._weighted)), dtype=torch.float64)
        self.mean = torch.zeros_like(self._total)

    def advance(self, new: Tensor, length: int) -> None:
        passed = torch.sparse.mm(self._step, self._total.flatten(1)).view_as(self._total)
        added = torch.stack([torch.sparse.mm(weighted, self._count) for weighted in self._weighted], dim=-1)
        self._count = torch.sparse.mm(self._step, self._count).masked_fill_(~new, 0.0)
        self._total = (passed + added).masked_fill_(~new[..., None], 0.0)
        self.mean += self._total / (self._count.clamp(min=1.0) * length)[..., None]


def _sparse(ends: Tensor, values: Tensor | None, slots: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """One step along all edges: [target, source]; parallel edges add up."""
    given = torch.ones(ends.size(1), dtype=dtype, device=ends.device) if values is None else values
    return torch.sparse_coo_tensor(ends.flip(0), given, (slots, slots), check_invariants=False).coalesce()


class RecentPaths:
    """The paths of the graphs seen last, known by their tensors and these tensors' versions.

    A copy or pickle of a model starts with none: paths tell which edges there were.
    """

    def __init__(self, limit: int = 2) -> None:
        self._limit = limit  # a deletion runs on the remaining and on the original graph in turn
        self._entries: list[tuple[tuple[tuple[object, int], ...], tuple[int, ...], list[Block]]] = []

    def __reduce__(self) -> tuple[type[RecentPaths], tuple[int]]:
        return RecentPaths, (self._limit,)

    def get(
        self, tensors: tuple[Tensor | None, ...], numbers: tuple[int, ...], compute: Callable[[], list[Block]]
    ) -> list[Block]:
        """The paths for these tensors and numbers, computed if they are not known or a tensor has changed."""
        if any(tensor is not None and tensor.is_inference() for tensor in tensors):
            return compute()  # such tensors do not tell when they change
        for entry in self._entries:
            seen, given, blocks = entry
            same = all(
                version == (-1 if tensor is None else tensor._version) and (ref() if ref else None) is tensor  # type: ignore[operator]
                for (ref, version), tensor in zip(seen, tensors, strict=True)
            )
            if same and given == numbers:
                return blocks
        blocks = compute()
        key = tuple((None, -1) if t is None else (weakref.ref(t), t._version) for t in tensors)
        alive = [entry for entry in self._entries if all(ref is None or ref() is not None for ref, _ in entry[0])]  # type: ignore[operator]
        self._entries = [(key, numbers, blocks), *alive][: self._limit]
        return blocks
