"""LBAggr: how much each shard's model counts, learned on a sample of what they were trained on (Chen et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.tasks import Task
from gnndelete.tasks.base import Predict


def weights(scores: Tensor, target: Tensor, logits: bool) -> Tensor:
    """Weights alpha >= 0 that sum to 1 and minimise `loss`, never worse than equal weights; both problems are convex.

    ``scores`` is ``[samples, shards]``. With ``logits`` they are logits of links with ``target`` 0 or 1, else the probability
    that each shard gives the true class (``target`` is not read then).

    >>> weights(torch.tensor([[0.9, 0.1], [0.8, 0.3]]), torch.ones(2), logits=False).tolist()
    [1.0, 0.0]
    """
    E, y = scores.double().cpu().numpy(), target.double().cpu().numpy()
    shards = E.shape[1]
    equal = np.full(shards, 1 / shards)
    if shards == 1 or not len(E):
        return torch.from_numpy(equal)

    def value_and_slope(alpha: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = E @ alpha
        if logits:
            return float(np.mean(np.logaddexp(0, mixed) - y * mixed)), E.T @ (_sigmoid(mixed) - y) / len(E)
        mixed = np.maximum(mixed, 1e-12)
        return float(-np.log(mixed).mean()), -E.T @ (1 / mixed) / len(E)

    found = minimize(
        value_and_slope,
        equal,
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * shards,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: np.ones(shards)},
        options={"maxiter": 500, "ftol": 1e-10},
    ).x
    alpha = np.where(found > 1e-9, found, 0)
    if not np.isfinite(alpha).all() or alpha.sum() <= 0:
        return torch.from_numpy(equal)
    alpha /= alpha.sum()
    return torch.from_numpy(alpha if value_and_slope(alpha)[0] < value_and_slope(equal)[0] else equal)


def loss(alpha: Tensor, scores: Tensor, target: Tensor, logits: bool) -> float:
    """Binary cross-entropy of the mixed logits, or cross-entropy of the mixed probabilities."""
    mixed = scores.double().cpu() @ alpha.double().cpu()
    if logits:
        return float(torch.nn.functional.binary_cross_entropy_with_logits(mixed, target.double().cpu()))
    return float(-mixed.clamp(min=1e-12).log().mean())


def sampled(
    task: Task, data: Data, models: Sequence[Predict], samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The scores of sampled training elements by every shard, and their classes: the input of `weights`."""
    elements, classes = task.sample(data, samples, generator)
    return torch.stack([task.scores_by(predict, data, elements) for predict in models], dim=1), classes


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(x / 2))
