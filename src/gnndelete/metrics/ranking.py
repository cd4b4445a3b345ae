"""Ranking scores, of links above all, always from logits: sigmoids saturate in 32 bits and turn distinct scores into ties."""

from __future__ import annotations

import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from gnndelete.errors import GraphError, RunError


def ranking(positives: Tensor, negatives: Tensor) -> dict[str, float]:
    """How well the scores of ``positives`` stand above those of ``negatives``.

    >>> ranking(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]))["auroc"]
    0.75
    """
    area = auroc(positives, negatives)
    scores = torch.cat([positives, negatives]).detach().double().cpu()
    labels = torch.zeros(scores.numel(), dtype=torch.long)
    labels[: positives.numel()] = 1
    return {"auroc": area, "auprc": float(average_precision_score(labels.numpy(), scores.numpy()))}


def auroc(positives: Tensor, negatives: Tensor) -> float:
    """How often a positive stands above a negative, ties half; computed where the scores are.

    >>> auroc(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0]))
    0.75
    """
    if not positives.numel() or not negatives.numel():
        raise GraphError(
            f"a ranking needs elements of both kinds (got {positives.numel()} positives, {negatives.numel()} negatives)"
        )
    high, low = (part.detach().flatten().double().to(positives.device) for part in (positives, negatives))
    bad = high.numel() + low.numel() - torch.isfinite(torch.cat([high, low])).sum()
    low = low.sort().values
    below = torch.searchsorted(low, high) + torch.searchsorted(low, high, right=True)
    wrong, counted = torch.stack([bad, below.sum()]).tolist()  # a device is waited for once
    if wrong:
        raise RunError(
            f"{wrong} of {high.numel() + low.numel()} scores are not finite; the model's weights or outputs overflowed"
        )
    return float(counted / (2 * high.numel() * low.numel()))
