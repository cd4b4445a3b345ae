"""PyG's `RGCNConv` and `RGATConv` with messages summed per node and relation before they are multiplied.

Parameters, their names and the results are PyG's own. PyG's loops hold a row for every node in every relation (R-GCN), or
a weight matrix for every edge (R-GAT: 20 GB on WordNet18); these hold a row for every node and relation that meet. What is
known of the edges alone (`Grouping`) can be made once and given to every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import RGATConv, RGCNConv
from torch_geometric.utils import softmax

from gnndelete.models.grouping import Grouping


class RelationalConvolution(RGCNConv):
    """``h_i = x_i W_0 + b + sum_r mean_j x_j W_r`` over the neighbours j of i by each relation r."""

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_grouping: Grouping | None = None
    ) -> Tensor:
        grouping = edge_grouping or Grouping(edge_index, edge_type, x.size(0))
        if self.num_bases is not None:
            weights = (self.comp @ self.weight.flatten(1)).view(-1, self.in_channels, self.out_channels)
        else:
            weights = self.weight
        met = grouping.mean(x)
        out = sum_by_relation(x, met, grouping, [_dense(weight) for weight in weights.unbind()], self.out_channels)
        return out + x @ self.root + self.bias


class RelationalAttention(RGATConv):
    """``h_i = b + sum_j a_ij x_j W_r`` with additive attention of one head across all relations."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.ones_(self.w)  # PyG leaves these two, which only other kinds of attention use, as they are
        nn.init.constant_(self.l2, 1 / self.out_channels)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_grouping: Grouping | None = None
    ) -> Tensor:
        grouping = edge_grouping or Grouping(edge_index, edge_type, x.size(0))
        if self.num_bases is not None:
            weights = (self.att @ self.basis.flatten(1)).view(-1, self.in_channels, self.out_channels)
        else:
            weights = torch.stack([_dense(weight) for weight in self.weight])
        source, target = edge_index
        # what a node asks and answers by each relation is a number: a table [nodes, relations] holds them all
        asked, answered = (x @ (weights @ part).squeeze(-1).t() for part in (self.q, self.k))
        logits = _entries(asked, target, edge_type) + _entries(answered, source, edge_type)
        share = softmax(F.leaky_relu(logits, self.negative_slope), target, num_nodes=x.size(0))
        met = grouping.sum(share.view(-1, 1) * x.index_select(0, source))
        return sum_by_relation(x, met, grouping, weights.unbind(), self.out_channels) + self.bias


def sum_by_relation(x: Tensor, met: Tensor, grouping: Grouping, weights: Sequence[Tensor], width: int) -> Tensor:
    """``sum_r met_ir W_r`` for every node i, where ``met`` holds one row for every node and relation that meet."""
    out: Any = x.new_zeros(x.size(0), width)
    if grouping.per_relation:
        parts = zip(met.split(grouping.per_relation), grouping.target.split(grouping.per_relation), strict=True)
        for weight, (part, target) in zip(weights, parts, strict=False):
            if part.size(0):
                out = out.index_add_(0, target, part @ weight)  # a node has one row of each kind
    return out


def _entries(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return table.reshape(-1).index_select(0, rows * table.size(1) + columns)


def _dense(weight: Tensor) -> Tensor:
    """The matrix of one relation; blocks are put along its diagonal."""
    return weight if weight.dim() == 2 else torch.block_diag(*weight)
