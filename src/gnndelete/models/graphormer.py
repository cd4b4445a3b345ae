"""Graphormer: attention over all nodes of a graph, told by biases where they stand in it (Ying et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndelete.errors import ModelError, SettingError
from gnndelete.models.attention import check_size, check_widths
from gnndelete.models.paths import Block, RecentPaths, shortest_paths

#: Spread of new embeddings of degrees and distances: small, so that training starts from plain attention.
_SPREAD = 0.02


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of nodes that attend to each other, with one bias per head ``[graphs * heads, size, size]``."""

    block: Block
    bias: Tensor


class GraphormerAttention(nn.Module):
    """h + MHA(LN(h)), with biases on the scores: the block behind which a deletion operator sits."""

    #: Tells the library that the output of this module is a node representation.
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
        qkv = torch.cat([qkv, qkv.new_zeros(1, qkv.size(1))])  # the last row is what padding holds
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
    """Attention, then h + FFN(LN(h)) for every node by itself."""

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

    Degrees count up to ``max_degree``, shortest paths up to ``max_distance`` edges; pairs further apart, or without a path,
    share one bias. ``edge_dim`` columns of ``edge_attr`` add the mean over the edges of a pair's shortest paths, weighted
    per head; without ``edge_dim`` edge features are ignored. Everything is computed from the ``edge_index`` given, for all
    pairs of nodes, so graphs of more than ``max_nodes`` are refused.

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
        """Node representations ``[num_nodes, out]``; ``batch`` says which graph each node belongs to."""
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
            held = "no 'edge_attr'" if edge_attr is None else f"an 'edge_attr' of shape {list(edge_attr.shape)}"
            raise ModelError(
                f"this Graphormer was made for {self.edge_dim} edge features, and the graph has {held}; give one row of "
                f"{self.edge_dim} per edge, or make the model without edge_dim"
            )
        return edge_attr

    def _pairs(self, num_nodes: int, edge_index: Tensor, batch: Tensor | None, edge_attr: Tensor | None) -> list[Pairs]:
        blocks = self._blocks(num_nodes, edge_index, batch, edge_attr)
        return [Pairs(block, self._bias(block, num_nodes)) for block in blocks]

    @torch.compiler.disable  # searches and what is remembered of them are no part of a compiled graph
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
        """Draw all weights anew."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.LayerNorm)):
                module.reset_parameters()
        for table in (self.in_degree, self.out_degree, self.spatial):
            nn.init.normal_(table.weight, std=_SPREAD)
