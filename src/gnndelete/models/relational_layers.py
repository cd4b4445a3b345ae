"""PyG's `RGCNConv` and `RGATConv` with messages summed per node and relation before they are multiplied.

Parameters, their names and the results are PyG's own. PyG's loops hold a row for every node in every relation (R-GCN), or
a weight matrix for every edge (R-GAT: 20 GB on WordNet18); these hold a row for every node and relation that meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import RGATConv, RGCNConv
from torch_geometric.utils import scatter, softmax


class RelationalConvolution(RGCNConv):
    """``h_i = x_i W_0 + b + sum_r mean_j x_j W_r`` over the neighbours j of i by each relation r."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        if self.num_bases is not None:
            weights = (self.comp @ self.weight.flatten(1)).view(-1, self.in_channels, self.out_channels)
        else:
            weights = self.weight
        out = sum_by_relation(x, edge_index, edge_type, lambda relation: _dense(weights[relation]), self.out_channels)
        return out + x @ self.root + self.bias


class RelationalAttention(RGATConv):
    """``h_i = b + sum_j a_ij x_j W_r`` with additive attention of one head across all relations."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.ones_(self.w)  # PyG leaves these two, which only other kinds of attention use, as they are
        nn.init.constant_(self.l2, 1 / self.out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        if self.num_bases is not None:
            weights = (self.att @ self.basis.flatten(1)).view(-1, self.in_channels, self.out_channels)
        else:
            weights = torch.stack([_dense(weight) for weight in self.weight])
        source, target = edge_index
        # what a node asks and answers by each relation is a number: a table [nodes, relations] holds them all
        asked, answered = (x @ (weights @ part).squeeze(-1).t() for part in (self.q, self.k))
        logits = _entries(asked, target, edge_type) + _entries(answered, source, edge_type)
        share = softmax(F.leaky_relu(logits, self.negative_slope), target, num_nodes=x.size(0))
        return sum_by_relation(x, edge_index, edge_type, weights.__getitem__, self.out_channels, share) + self.bias


def sum_by_relation(
    x: Tensor,
    edge_index: Tensor,
    edge_type: Tensor,
    weight: Callable[[int], Tensor],
    width: int,
    share: Tensor | None = None,
) -> Tensor:
    """``sum_r (sum_j share_ij x_j) W_r`` for every node i; without ``share`` the inner sum is a mean.

    >>> edges, types = torch.tensor([[0, 1, 1], [2, 2, 2]]), torch.tensor([0, 0, 1])
    >>> sum_by_relation(torch.tensor([[1.0], [3.0], [0.0]]), edges, types, lambda r: torch.full((1, 1), 10.0**r), 1).tolist()
    [[0.0], [0.0], [32.0]]
    """
    nodes = x.size(0)
    pairs, place = torch.unique(edge_type * nodes + edge_index[1], return_inverse=True)
    sent = x.index_select(0, edge_index[0])
    if share is not None:
        sent = share.view(-1, 1) * sent
    met = scatter(sent, place, dim_size=pairs.numel(), reduce="mean" if share is None else "sum")
    relation = torch.div(pairs, nodes, rounding_mode="floor")
    counts: list[int] = torch.bincount(relation).tolist() if pairs.numel() else []
    parts = [part @ weight(kind) for kind, part in enumerate(met.split(counts)) if part.size(0)] if counts else []
    out: Any = x.new_zeros(nodes, width)
    return out.index_add(0, pairs % nodes, torch.cat(parts)) if parts else out


def _entries(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return table.reshape(-1).index_select(0, rows * table.size(1) + columns)


def _dense(weight: Tensor) -> Tensor:
    """The matrix of one relation; blocks are put along its diagonal."""
    return weight if weight.dim() == 2 else torch.block_diag(*weight)
