"""What models with attention over whole graphs share: their checks. Attention compares n x n pairs, so graphs must fit."""

from __future__ import annotations

import torch
from torch import Tensor

from gnndelete.errors import ModelError, SettingError


def check_widths(hidden: int, num_layers: int, heads: int) -> None:
    """Refuse a stack that cannot be built."""
    if num_layers < 1:
        raise SettingError(f"'num_layers' must be at least 1 (got {num_layers})")
    if heads < 1 or hidden % heads:
        raise SettingError(f"'hidden' must be a multiple of 'heads' (got hidden={hidden} and heads={heads})")


def check_size(model: str, num_nodes: int, batch: Tensor | None, max_nodes: int, way_out: str) -> None:
    """Refuse a graph whose n x n pairs would not fit; of a batch, each graph counts for itself."""
    if num_nodes <= max_nodes:  # then no graph of a batch is larger either
        return
    largest = num_nodes if batch is None else int(torch.bincount(batch).max())
    if largest > max_nodes:
        raise ModelError(
            f"{model} compares every node with every other, and a graph with {largest:,} nodes has {largest**2:,} pairs (the "
            f"limit is max_nodes={max_nodes:,}); {way_out}, work on an induced subgraph, or raise max_nodes"
        )
