"""LBAggr: how much each shard's model counts, learned on a sample of what they were trained on (Chen et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.tasks import LinkPrediction, NodeClassification, Task
from gnndelete.tasks.base import Predict
from gnndelete.tasks.supervision import SupervisionCache

Kind = Literal["link", "node"]


def weights(evidence: Tensor, target: Tensor, kind: Kind) -> Tensor:
    """Weights alpha >= 0 that sum to 1 and minimise `loss`, never worse than equal weights; both problems are convex.

    ``evidence`` is ``[samples, shards]``: scores of links with ``target`` 0 or 1, or what each shard gives the true
    class of a node (``target`` is not read then).

    >>> weights(torch.tensor([[0.9, 0.1], [0.8, 0.3]]), torch.ones(2), "node").tolist()
    [1.0, 0.0]
    """
    E, y = evidence.double().cpu().numpy(), target.double().cpu().numpy()
    shards = E.shape[1]
    equal = np.full(shards, 1 / shards)
    if shards == 1 or not len(E):
        return torch.from_numpy(equal)

    def value_and_slope(alpha: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = E @ alpha
        if kind == "link":
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


def loss(alpha: Tensor, evidence: Tensor, target: Tensor, kind: Kind) -> float:
    """Binary cross-entropy of the mixed link scores, or cross-entropy of the mixed class probabilities."""
    mixed = evidence.double().cpu() @ alpha.double().cpu()
    if kind == "link":
        return float(torch.nn.functional.binary_cross_entropy_with_logits(mixed, target.double().cpu()))
    return float(-mixed.clamp(min=1e-12).log().mean())


def sampled(
    task: Task, data: Data, models: Sequence[Predict], samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """What every shard says about sampled training nodes, or training edges and as many non-edges: `weights`' input."""
    if isinstance(task, LinkPrediction):
        supervision = SupervisionCache().of(data)
        true = _some(supervision.positives, samples, generator)
        edges = torch.cat([true, supervision.false(true, generator)], dim=1)
        target = (torch.arange(edges.size(1), device=edges.device) < true.size(1)).float()
        return torch.stack([predict(edges) for predict in models], dim=1), target
    nodes = _some(training_nodes(data), samples, generator)
    assert isinstance(task, NodeClassification)
    true = task.labels(data)[nodes]
    return torch.cat([predict(nodes).gather(1, true[:, None]) for predict in models], dim=1), true


def training_nodes(data: Data) -> Tensor:
    """Ids of the labelled nodes that are trained on: ``train_mask``, or all outside the other masks."""
    chosen = data.y.view(-1) >= 0
    if data.get("train_mask") is not None:
        return (chosen & data.train_mask).nonzero().flatten()
    for name in ("val_mask", "test_mask"):
        if data.get(name) is not None:
            chosen = chosen & ~data[name]
    return chosen.nonzero().flatten()


def _some(elements: Tensor, count: int, generator: torch.Generator) -> Tensor:
    pick = torch.randperm(elements.size(-1), generator=generator)[:count]
    return elements[..., pick.to(elements.device)]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(x / 2))
