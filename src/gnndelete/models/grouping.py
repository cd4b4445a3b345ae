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
    """Rows to be summed: bag b holds ``index[starts[b] : starts[b + 1]]``, each with its share in the mean."""

    index: Tensor
    starts: Tensor
    share: Tensor


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
        share = torch.repeat_interleave(1 / self.sizes.double(), self.sizes, output_size=self.order.numel())
        starts = self.sizes.cumsum(0) - self.sizes
        self._bags = Bags(edge_index[0].index_select(0, self.order), starts, share)

    @cached_property
    def _back(self) -> Bags:
        """The way back from pairs to the senders, for gradients."""
        senders, order = torch.sort(self._bags.index, stable=True)
        starts = torch.searchsorted(senders, torch.arange(self._nodes, device=senders.device))
        return Bags(self._place.index_select(0, order), starts, self._bags.share.index_select(0, order))

    @cached_property
    def _place(self) -> Tensor:
        """The pair of each message, messages sorted."""
        pairs = torch.arange(self.sizes.numel(), device=self.sizes.device)
        return torch.repeat_interleave(pairs, self.sizes, output_size=self.order.numel())

    def mean(self, x: Tensor) -> Tensor:
        """One row per pair: the mean of what its senders say."""
        return _BagMean.apply(x, self, False)

    def sum(self, messages: Tensor) -> Tensor:
        """One row per pair: the sum of its messages, which are given one per edge in the order of the edges."""
        into = torch.empty_like(self.order).index_copy_(0, self.order, self._place)
        return messages.new_zeros(self.sizes.numel(), messages.size(1)).index_add(0, into, messages)


class _BagMean(torch.autograd.Function):
    """Means of rows over bags. The gradient is a weighted sum along the bags that lead back, so that it can be derived again.

    PyTorch's own gradient of ``embedding_bag`` adds row after row; this one is as fast as the mean itself, and neither
    adds up in an order that changes from run to run.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, grouping: Grouping, back: bool) -> Tensor:
        ctx.grouping, ctx.back = grouping, back
        bags = grouping._back if back else grouping._bags
        if not bags.index.numel():
            return x.new_zeros(bags.starts.numel(), x.size(1))
        return F.embedding_bag(bags.index, x, bags.starts, mode="sum", per_sample_weights=bags.share.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return _BagMean.apply(slopes[0].contiguous(), ctx.grouping, not ctx.back), None, None
