"""Ranking scores of links, always from logits: sigmoids saturate in 32 bits and turn distinct scores into ties."""

from __future__ import annotations

import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from gnndelete.errors import GraphError, RunError


def ranking(positives: Tensor, negatives: Tensor) -> dict[str, float]:
    """How well the scores of ``positives`` stand above those of ``negatives``.

    >>> ranking(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]))["auroc"]
    0.75
    """
    if not positives.numel() or not negatives.numel():
        raise GraphError(
            f"a ranking needs links of both kinds (got {positives.numel()} positives, {negatives.numel()} negatives)"
        )
    scores = torch.cat([positives, negatives]).detach().double().cpu()
    if not torch.isfinite(scores).all():
        bad = int((~torch.isfinite(scores)).sum())
        raise RunError(
            f"{bad} of {scores.numel()} link scores are not finite; the model's weights or outputs overflowed"
        )
    labels = torch.zeros(scores.numel(), dtype=torch.long)
    labels[: positives.numel()] = 1
    return {
        "auroc": float(roc_auc_score(labels.numpy(), scores.numpy())),
        "auprc": float(average_precision_score(labels.numpy(), scores.numpy())),
    }
