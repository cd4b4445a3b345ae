"""Messages put together by receiver and relation, once for all layers, and sums of rows that hold no row per message."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Bags:
    """Rows to be summed: bag b holds ``index[starts[b] : starts[b + 1]]``."""

    index: Tensor
    starts: Tensor


class Grouping:
    """The messages of a typed graph, sorted so that those of one relation to one node, a *pair*, stand together.

    >>> edges, types = torch.tensor([[0, 1, 1], [2, 2, 2]]), torch.tensor([0, 0, 1])
    >>> grouping = Grouping(edges, types, num_nodes=3)
    >>> grouping.target.tolist(), grouping.per_relation
    ([2, 2], [1, 1])
    >>> grouping.mean(torch.tensor([[1.0], [3.0], [0.0]])).tolist()
    [[2.0], [3.0]]
    """

    def __init__(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> None:
        keys, self.order = torch.sort(edge_type * num_nodes + edge_index[1], stable=True)
        pairs, self.sizes = torch.unique_consecutive(keys, return_counts=True)
        self.target = pairs % num_nodes
        relation = torch.div(pairs, num_nodes, rounding_mode="floor")
        self.per_relation: list[int] = torch.bincount(relation).tolist() if pairs.numel() else []
        self._nodes = num_nodes
        self._bags = Bags(edge_index[0].index_select(0, self.order), self.sizes.cumsum(0) - self.sizes)

    @cached_property
    def _back(self) -> Bags:
        """The way back from pairs to the senders, for gradients."""
        place = torch.repeat_interleave(
            torch.arange(self.sizes.numel(), device=self.sizes.device), self.sizes, output_size=self.order.numel()
        )
        senders, order = torch.sort(self._bags.index, stable=True)
        starts = torch.searchsorted(senders, torch.arange(self._nodes, device=senders.device))
        return Bags(place.index_select(0, order), starts)

    def mean(self, x: Tensor) -> Tensor:
        """One row per pair: the mean of what its senders say."""
        return _BagSum.apply(x, self, False) / self.sizes.view(-1, 1)

    def sum(self, messages: Tensor) -> Tensor:
        """One row per pair: the sum of its messages, which are given one per edge in the order of the edges."""
        place = torch.repeat_interleave(
            torch.arange(self.sizes.numel(), device=self.sizes.device), self.sizes, output_size=self.order.numel()
        )
        into = torch.empty_like(place).index_copy_(0, self.order, place)
        return messages.new_zeros(self.sizes.numel(), messages.size(1)).index_add(0, into, messages)


class _BagSum(torch.autograd.Function):
    """Sums of rows over bags. Its gradient is the same thing along the bags that lead back, so that it can be derived again.

    PyTorch's own gradient of ``embedding_bag`` adds row after row; this one is as fast as the sum itself, and neither
    adds up in an order that changes from run to run.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, grouping: Grouping, back: bool) -> Tensor:
        ctx.grouping, ctx.back = grouping, back
        bags = grouping._back if back else grouping._bags
        return F.embedding_bag(bags.index, x, bags.starts, mode="sum")

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return _BagSum.apply(slopes[0].contiguous(), ctx.grouping, not ctx.back), None, None
