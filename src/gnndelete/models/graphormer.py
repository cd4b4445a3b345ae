"""Graphormer: attention over all nodes of a graph, with biases for degrees and shortest paths (Ying et al. 2021).

Shortest paths are computed between all nodes of a graph (n x n), so they are for graphs that fit.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndelete.errors import GraphError, ModelError, SettingError
from gnndelete.models.gps import check_size, check_widths, size_scale

#: Standard deviation of new embeddings of degrees and distances: small, so that training starts from plain attention.
EMBEDDING_STD = 0.02


@dataclass(frozen=True, eq=False)
class Block:
    """Shortest paths of graphs of similar size, padded to the largest, for all pairs of nodes ``[graph, i, j]``."""

    nodes: Tensor  # [graphs, size]: which node of the batch; padding has the number of all nodes
    slots: Tensor  # the positions in the flattened ``nodes`` that are not padding
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
    local = torch.empty_like(graph)  # position of a node within its graph
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
        chosen = inside[source]
        ends = slot[edge_index[:, chosen]]
        attributes = None if edge_attr is None else edge_attr[chosen]
        distance, features = _walk(ends, nodes.numel(), slot[members], local[members], size, attributes, max_distance)
        if features is not None:
            features = features.view(-1, size, size, features.size(-1))
        blocks.append(Block(nodes.view(-1, size), slot[members], distance.view(-1, size, size), features))
    return blocks


def _walk(
    ends: Tensor, slots: int, slot: Tensor, local: Tensor, size: int, edge_attr: Tensor | None, max_distance: int
) -> tuple[Tensor, Tensor | None]:
    """All breadth-first searches of a block at once: column j of a row belongs to the search from node j of its graph."""
    start = torch.zeros(slots, size, dtype=torch.float32, device=ends.device)
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
    return distance, None if along is None or edge_attr is None else along.mean.to(edge_attr.dtype)


class _Along:
    """Mean edge features along shortest paths.

    Shortest paths are rarely unique: all of them count equally, so the order of nodes and edges does not matter. With c the
    number of shortest paths j -> i and t the sum of the features of their edges, c_i = sum_p c_p and
    t_i = sum_p (t_p + c_p e_pi) over the edges p -> i that come from one step closer to j.
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
    entries = torch.ones(ends.size(1), dtype=dtype, device=ends.device) if values is None else values
    return torch.sparse_coo_tensor(ends.flip(0), entries, (slots, slots), check_invariants=False).coalesce()


class RecentPaths:
    """A cache of the paths of the last graphs, by their tensors and the versions of these.

    A copy or pickle of a model starts with an empty cache: paths reveal which edges there were.
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
            return compute()  # such tensors have no version
        for entry in self._entries:
            known, values, blocks = entry
            same = all(
                version == (-1 if tensor is None else tensor._version) and (ref() if ref else None) is tensor  # type: ignore[operator]
                for (ref, version), tensor in zip(known, tensors, strict=True)
            )
            if same and values == numbers:
                return blocks
        blocks = compute()
        key = tuple((None, -1) if t is None else (weakref.ref(t), t._version) for t in tensors)
        alive = [entry for entry in self._entries if all(ref is None or ref() is not None for ref, _ in entry[0])]  # type: ignore[operator]
        self._entries = [(key, numbers, blocks), *alive][: self._limit]
        return blocks


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of nodes that attend to each other, with one bias per head ``[graphs * heads, size, size]``."""

    block: Block
    bias: Tensor


class GraphormerAttention(nn.Module):
    """h + MHA(LN(h)), with biases on the scores. A deletion operator acts on its output."""

    #: Marks the output of this module as node representations, so that the library can put an operator there.
    gnndelete_layer: ClassVar[bool] = True

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, pairs: list[Pairs]) -> Tensor:
        """One row per node, as in ``x``."""
        qkv = self.qkv(self.norm(x))
        qkv = torch.cat([qkv, qkv.new_zeros(1, qkv.size(1))])  # padding reads the last row
        rows, values = [], []
        for pair in pairs:
            nodes, slots = pair.block.nodes, pair.block.slots
            q, k, v = qkv[nodes].unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).flatten(1, 2)
            scores = torch.baddbmm(pair.bias, q, k.transpose(-1, -2), alpha=1 / math.sqrt(q.size(-1)))
            weights = F.dropout(scores.softmax(dim=-1), p=self.dropout, training=self.training)
            heads = (weights @ v).unflatten(0, (-1, self.heads)).transpose(1, 2)
            rows.append(nodes.flatten()[slots])
            values.append(heads.flatten(2).flatten(0, 1)[slots])
        mixed = torch.zeros_like(x).index_copy(0, torch.cat(rows), torch.cat(values)) if rows else x
        return x + F.dropout(self.out(mixed), p=self.dropout, training=self.training)


class GraphormerLayer(nn.Module):
    """Attention, then h + FFN(LN(h)) for every node."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = GraphormerAttention(width, heads, dropout)
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = dropout

    def forward(self, x: Tensor, pairs: list[Pairs]) -> Tensor:
        """One row per node, as in ``x``."""
        h = self.attention(x, pairs)
        return h + F.dropout(self.narrow(F.gelu(self.widen(self.norm(h)))), p=self.dropout, training=self.training)


class Graphormer(nn.Module):
    """Graphormer layers: attention between all nodes of a graph with centrality, shortest-path and edge encodings.

    Everything is computed from ``edge_index``, for all pairs of nodes.

    Args:
        in_channels: Number of node features.
        hidden: Width of the layers; ``heads`` must divide it.
        out: Width of the output.
        num_layers: Number of layers.
        heads: Number of attention heads.
        dropout: Share of entries that are dropped.
        edge_dim: Number of columns of ``edge_attr``. The mean over the edges of a pair's shortest paths is added to its
            bias, weighted per head. None ignores edge features.
        max_degree: Larger degrees count as this one.
        max_distance: Pairs further apart than this many edges, or without a path, share one bias. At most 64.
        max_nodes: Larger graphs are refused.

    >>> model = Graphormer(in_channels=16, hidden=32, out=8)
    >>> model(torch.ones(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        in_channels: int,
        hidden: int = 128,
        out: int = 64,
        num_layers: int = 2,
        heads: int = 4,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        max_degree: int = 64,
        max_distance: int = 5,
        max_nodes: int = 4096,
    ) -> None:
        super().__init__()
        check_widths(hidden, out, num_layers, heads, dropout)
        if not 1 <= max_distance <= 64 or max_degree < 1:
            raise SettingError(
                "'max_distance' must be from 1 to 64 and 'max_degree' at least 1 "
                f"(got max_distance={max_distance} and max_degree={max_degree})"
            )
        self.dropout, self.edge_dim = dropout, edge_dim
        self.max_degree, self.max_distance, self.max_nodes = max_degree, max_distance, max_nodes
        self.embed = nn.Linear(in_channels, hidden)
        self.in_degree, self.out_degree = nn.Embedding(max_degree + 1, hidden), nn.Embedding(max_degree + 1, hidden)
        self.spatial = nn.Embedding(max_distance + 2, heads)
        self.edge = nn.Linear(edge_dim, heads, bias=False) if edge_dim is not None else None
        self.layers = nn.ModuleList(GraphormerLayer(hidden, heads, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, out)
        self._paths = RecentPaths()
        self.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        """Compute node representations.

        Args:
            x: Node features ``[num_nodes, in_channels]``.
            edge_index: Edges ``[2, num_edges]``.
            batch: The graph of each node; by default all are in one.
            edge_attr: Edge features, where the model was made with ``edge_dim``.

        Returns:
            ``[num_nodes, out]``.

        Raises:
            ModelError: If the graph is too large, or edge features are missing.
        """
        check_size("Graphormer", x.size(0), batch, self.max_nodes, "use GPS with attention='performer'")
        pairs = self._pairs(x.size(0), edge_index, batch, self._edge_features(edge_index, edge_attr))
        h = self.embed(x) + self._centrality(x.size(0), edge_index)
        h = F.dropout(h, p=self.dropout, training=self.training)
        for layer in self.layers:
            h = layer(h, pairs)
        return self.head(self.norm(h))

    def _centrality(self, num_nodes: int, edge_index: Tensor) -> Tensor:
        received, sent = (
            torch.bincount(ends, minlength=num_nodes).clamp(max=self.max_degree) for ends in edge_index.flip(0)
        )
        return self.in_degree(received) + self.out_degree(sent)

    def _edge_features(self, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor | None:
        if self.edge_dim is None:
            return None
        expected = (edge_index.size(1), self.edge_dim)
        if edge_attr is None or (edge_attr[:, None] if edge_attr.dim() == 1 else edge_attr).shape != expected:
            found = "no 'edge_attr'" if edge_attr is None else f"an 'edge_attr' of shape {list(edge_attr.shape)}"
            raise ModelError(
                f"this Graphormer was made for {self.edge_dim} edge features, and the graph has {found}; give one row of "
                f"{self.edge_dim} per edge, or make the model without edge_dim"
            )
        return edge_attr

    def _pairs(self, num_nodes: int, edge_index: Tensor, batch: Tensor | None, edge_attr: Tensor | None) -> list[Pairs]:
        blocks = self._blocks(num_nodes, edge_index, batch, edge_attr)
        return [Pairs(block, self._bias(block, num_nodes)) for block in blocks]

    @torch.compiler.disable  # path searches and their cache are not part of a compiled graph
    def _blocks(
        self, num_nodes: int, edge_index: Tensor, batch: Tensor | None, edge_attr: Tensor | None
    ) -> list[Block]:
        columns = edge_attr[:, None] if edge_attr is not None and edge_attr.dim() == 1 else edge_attr
        return self._paths.get(
            (edge_index, batch, edge_attr),
            (num_nodes, self.max_distance),
            lambda: shortest_paths(edge_index, num_nodes, batch, columns, self.max_distance),
        )

    def _bias(self, block: Block, num_nodes: int) -> Tensor:
        bias = self.spatial(block.distance)
        if self.edge is not None and block.features is not None:
            bias = bias + self.edge(block.features.to(bias.dtype))
        bias = bias.permute(0, 3, 1, 2).contiguous()
        if block.padded:
            bias = bias.masked_fill((block.nodes == num_nodes)[:, None, None, :], -math.inf)
        return bias.flatten(0, 1)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.LayerNorm)):
                module.reset_parameters()
        for table in (self.in_degree, self.out_degree, self.spatial):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)
