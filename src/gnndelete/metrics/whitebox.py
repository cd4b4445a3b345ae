"""What somebody with the weights can measure: the loss of an element, the size of its gradient, and where weights come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnndelete.metrics.ranking import Floats, auc, auc_variance

#: Random directions by which gradients are measured; the size is known to a factor of about sqrt(2 / directions).
DIRECTIONS = 8

#: How far weights are moved along a direction, as a share of their size.
STEP = 1e-2

#: Elements of each kind that an attack learns from, or asks about, at most.
ATTACKED = 1000

#: The fewest elements of each kind that an attack is made with.
ATTACK_MINIMUM = 20

#: Matrices of fewer entries correlate by chance.
ENTRY_MINIMUM = 64
#: A larger correlation of weights than this is none of two fresh trainings.
CORRELATION = 0.5


def gradient_sizes(
    model: nn.Module, losses: Callable[[], Tensor], seed: int = 0, directions: int = DIRECTIONS
) -> Tensor:
    """The size of the gradient of every element's loss, without a backward pass for each.

    The loss is compared between weights moved forth and back along random directions. The mean square of these differences
    is that of the gradient, where each weight is measured in units of its tensor's size.

    Args:
        model: The model, in evaluation mode; its weights are moved meanwhile and put back.
        losses: Gives the loss of every element.
        seed: Draws the directions.
        directions: How many of them.

    Returns:
        One number per element.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[1.0, 1.0], [10.0, 10.0]])
    >>> near, far = gradient_sizes(model, lambda: model(x).view(-1))
    >>> round(float(far / near))
    10
    """
    generator = torch.Generator().manual_seed(seed)
    weights = [weight for weight in model.parameters() if weight.requires_grad and weight.is_floating_point()]
    sizes = [float(weight.detach().square().mean().sqrt()) or 1.0 for weight in weights]
    total: Tensor | float = 0.0
    for _ in range(directions):
        moves = [
            (STEP * size) * torch.randn(weight.shape, generator=generator).to(weight)
            for weight, size in zip(weights, sizes, strict=True)
        ]
        with _moved(weights, moves, 1.0):
            forth = losses().double()
        with _moved(weights, moves, -1.0):
            back = losses().double()
        total = total + ((forth - back) / (2 * STEP)).square()
    assert isinstance(total, Tensor)
    return (total / directions).sqrt()


@contextmanager
def _moved(weights: list[nn.Parameter], moves: list[Tensor], factor: float) -> Iterator[None]:
    before = [weight.data for weight in weights]
    try:
        for weight, move in zip(weights, moves, strict=True):
            weight.data = weight.data + factor * move
        yield
    finally:
        for weight, values in zip(weights, before, strict=True):
            weight.data = values


def white_box(model: nn.Module, losses: Callable[[], Tensor], seed: int = 0) -> Floats:
    """What an attacker with the weights reads off every element: the logarithms of its loss and of its gradient's size.

    Args:
        model: The model, in evaluation mode.
        losses: Gives the loss of every element.
        seed: Draws the directions along which gradients are measured.
    """
    with torch.no_grad():
        loss, size = losses().double(), gradient_sizes(model, losses, seed)
    columns = torch.stack([(part.clamp(min=0) + 1e-12).log() for part in (loss, size.to(loss.device))], dim=1)
    return columns.cpu().numpy().astype(np.float64)


def peers_attack(trained: Floats, unseen: Floats, deleted: Floats, seed: int = 0) -> tuple[float, float]:
    """An attack that learns from training elements and one half of the unseen ones, and is asked about the other half.

    Both halves take turns. At 0.5 the attack cannot tell deleted from unseen elements.

    Args:
        trained: Elements that the model was trained on, a row each.
        unseen: Elements that no model was trained on.
        deleted: Deleted elements.
        seed: Divides the unseen elements.

    Returns:
        The AUC of deleted against unseen elements, and its standard error if they are alike.

    >>> generator = np.random.default_rng(0)
    >>> known, new = generator.normal(0, 1, (200, 2)), generator.normal(3, 1, (200, 2))
    >>> peers_attack(known[:100], new, known[100:])[0] > 0.9
    True
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    order = np.random.default_rng(seed).permutation(len(unseen))
    halves = unseen[order[::2]], unseen[order[1::2]]
    found = []
    for mine, theirs in (halves, halves[::-1]):
        attack: Any = make_pipeline(
            StandardScaler(), PolynomialFeatures(2, include_bias=False), LogisticRegression(class_weight="balanced")
        )
        attack.fit(np.concatenate([trained, mine]), np.repeat([1, 0], [len(trained), len(mine)]))
        answers = [np.ascontiguousarray(attack.predict_proba(part)[:, 1]) for part in (deleted, theirs)]
        found.append(auc(*answers))
    return float(np.mean(found)), auc_variance(0.5, len(deleted), len(unseen)) ** 0.5


def weight_correlation(base: nn.Module, other: nn.Module) -> float | None:
    """The mean correlation of trained matrices of the same name; None where there is nothing to compare.

    A model of one matrix is convex, so any two trainings of it agree, unless it is a table of vectors.

    >>> first, second = (nn.Sequential(nn.Linear(30, 30), nn.Linear(30, 30)) for _ in range(2))
    >>> round(weight_correlation(first, first), 3), abs(weight_correlation(first, second)) < 0.2
    (1.0, True)
    """
    theirs = dict(other.named_parameters())
    tables = [module.weight for module in base.modules() if isinstance(module, nn.Embedding)]
    found: list[tuple[int, float]] = []
    for name, mine in base.named_parameters():
        match = theirs.get(name)
        if match is None or match.shape != mine.shape or mine.dim() < 2 or mine.numel() < ENTRY_MINIMUM:
            continue
        if not mine.requires_grad:  # frozen: an input, which every training keeps
            continue
        found.append((mine.numel(), matrix_correlation(mine, match)))
    if (not tables and len(found) < 2) or not found:
        return None
    return sum(size * value for size, value in found) / sum(size for size, _ in found)


def matrix_correlation(first: Tensor, second: Tensor) -> float:
    """The correlation of two matrices entry by entry, beyond the means of rows and columns."""
    return float(torch.corrcoef(torch.stack([_own_part(first), _own_part(second)]))[0, 1].nan_to_num())


def _own_part(matrix: Tensor) -> Tensor:
    """Entries beyond the means of their row and column: frequent features have large weights in any training."""
    flat = matrix.detach().double().cpu().flatten(1)
    return (flat - flat.mean(dim=0) - flat.mean(dim=1, keepdim=True)).flatten()
