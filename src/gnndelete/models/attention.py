"""Attention between all nodes of a graph (n x n pairs): size checks, and batches of graphs of unequal size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.errors import ModelError, SettingError
from gnndelete.models.encoders import check_sizes


def check_widths(hidden: int, out: int, num_layers: int, heads: int, dropout: float) -> None:
    """Refuse widths that do not fit together."""
    check_sizes(dropout, hidden=hidden, out=out, num_layers=num_layers, heads=heads)
    if hidden % heads:
        raise SettingError(f"'hidden' must be a multiple of 'heads' (got hidden={hidden} and heads={heads})")


def check_size(model: str, num_nodes: int, batch: Tensor | None, max_nodes: int, way_out: str) -> None:
    """Refuse a graph whose n x n pairs would not fit; in a batch each graph is checked by itself."""
    if num_nodes <= max_nodes:  # then no graph of the batch is larger
        return
    largest = num_nodes if batch is None else int(torch.bincount(batch).max())
    if largest > max_nodes:
        raise ModelError(
            f"{model} compares every node with every other, and a graph with {largest:,} nodes has {largest**2:,} pairs (the "
            f"limit is max_nodes={max_nodes:,}); {way_out}, work on an induced subgraph, or raise max_nodes"
        )


class GroupedAttention(nn.MultiheadAttention):
    """torch's attention for a padded batch of graphs of unequal size, computed for graphs of similar size together.

    Padding every graph to the largest would cost the square of that size for each; here padding at most doubles a side.
    Weights and their names are those of ``nn.MultiheadAttention``.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        *args: Any,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """As in ``nn.MultiheadAttention``; ``key_padding_mask`` marks the padding at the end of each graph."""
        if query.size(0) == 1 or key_padding_mask is None or need_weights:
            return super().forward(query, key, value, key_padding_mask, need_weights, *args, **options)
        sizes = (~key_padding_mask).sum(dim=1)
        scales = size_scale(sizes)
        result = torch.zeros_like(query)
        for scale in torch.unique(scales[sizes > 0]).tolist():
            chosen = ((scales == scale) & (sizes > 0)).nonzero().flatten()
            size = int(sizes[chosen].max())
            q, k, v = (part[chosen, :size] for part in (query, key, value))
            found, _ = super().forward(q, k, v, key_padding_mask[chosen, :size], need_weights, *args, **options)
            padded = torch.nn.functional.pad(found, (0, 0, 0, query.size(1) - size))
            result = result.index_copy(0, chosen, padded)
        return result, None


def size_scale(sizes: Tensor) -> Tensor:
    """Sizes between the same powers of two have the same scale.

    >>> size_scale(torch.tensor([1, 2, 3, 4, 5, 8, 9])).tolist()
    [0, 1, 2, 2, 3, 3, 4]
    """
    return sizes.clamp(min=1).double().log2().ceil().long()
