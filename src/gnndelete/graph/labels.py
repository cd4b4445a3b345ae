"""Labels that are gone: what stands in their place."""

from __future__ import annotations

from torch import Tensor


def unlabelled(y: Tensor, places: Tensor) -> Tensor:
    """Labels without some of them: -1, or NaN where they are floats; types that hold neither become whole numbers.

    >>> import torch
    >>> unlabelled(torch.tensor([True, False]), torch.tensor([0])).tolist()
    [-1, 0]
    """
    if not y.is_floating_point() and not y.dtype.is_signed:
        y = y.long()
    return y.index_fill(0, places.to(y.device), float("nan") if y.is_floating_point() else -1)
