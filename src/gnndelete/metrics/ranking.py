"""Ranking: the one AUC of the package, and filtered ranks of triples.

Scores are logits wherever there are any: 32-bit sigmoids saturate and turn different scores into ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gnndelete.errors import GraphError, RunError
from gnndelete.graph.edge_table import EdgeTable, ranges

Floats = NDArray[np.float64]


def auc(high: Tensor | ArrayLike, low: Tensor | ArrayLike) -> float:
    """The probability that a score of ``high`` lies above a score of ``low``. Ties count half.

    It is computed on the device of the scores.

    Args:
        high: Scores that should rank first.
        low: Scores that should rank last.

    Returns:
        A number from 0 to 1.

    Raises:
        GraphError: One of the two is empty.
        RunError: A score is NaN or infinite.

    >>> auc(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0]))
    0.75
    """
    above, below = (torch.as_tensor(part).detach().flatten().double() for part in (high, low))
    if not above.numel() or not below.numel():
        raise GraphError(
            f"a ranking needs elements of both kinds (got {above.numel()} positives, {below.numel()} negatives)"
        )
    below = below.to(above.device)
    bad = above.numel() + below.numel() - above.isfinite().sum() - below.isfinite().sum()
    below = below.sort().values
    counts = torch.searchsorted(below, above) + torch.searchsorted(below, above, right=True)
    wrong, counted = torch.stack([bad, counts.sum()]).tolist()  # one wait for the device
    if wrong:
        raise RunError(
            f"{wrong} of {above.numel() + below.numel()} scores are not finite; the model's weights or outputs overflowed"
        )
    return float(counted / (2 * above.numel() * below.numel()))


def ranking(positives: Tensor, negatives: Tensor) -> dict[str, float]:
    """AUROC and average precision of positives above negatives.

    Args:
        positives: Scores of true elements.
        negatives: Scores of false elements.

    Returns:
        ``{"auroc": …, "auprc": …}``.

    Raises:
        GraphError: One of the two is empty.
        RunError: A score is NaN or infinite.

    >>> ranking(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]))["auroc"]
    0.75
    """
    area = auc(positives, negatives)
    scores = torch.cat([positives, negatives]).detach().double().cpu().numpy()
    return {"auroc": area, "auprc": average_precision(scores, np.arange(scores.size) < positives.numel())}


def average_precision(scores: Floats, is_positive: NDArray[np.bool_]) -> float:
    """The mean precision at the thresholds where recall rises, weighted by how much: as scikit-learn has it.

    scikit-learn takes longer to import than a local request takes, so it is not used here.

    >>> average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))
    0.8333333333333333
    """
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)  # of each run of equal scores
    found = np.cumsum(is_positive[order])[last]
    return float(np.sum(np.diff(found, prepend=0) / found[-1] * found / (last + 1)))


def share_below(scores: Floats, others: Floats) -> Floats:
    """For each score, the share of the others below it. Ties count half, and the mean of the shares is the AUC."""
    others = np.sort(others)
    below = np.searchsorted(others, scores, side="left") + np.searchsorted(others, scores, side="right")
    return np.asarray(below / (2 * others.size))


def auc_variance(value: float, high: int, low: int) -> float:
    """The variance of an AUC whose true value is ``value`` (Hanley and McNeil 1982).

    Args:
        value: The true AUC.
        high: Number of elements that should rank first.
        low: Number of elements that should rank last.

    Returns:
        The variance.

    >>> round(auc_variance(0.5, 1, 10), 6) == (1 + 10 + 1) / (12 * 1 * 10)
    True
    >>> auc_variance(0.9, 50, 50) < auc_variance(0.5, 50, 50)
    True
    """
    first, second = value / (2 - value), 2 * value**2 / (1 + value)
    spread = (high - 1) * (first - value**2) + (low - 1) * (second - value**2)
    return (value * (1 - value) + spread) / (high * low)


def filtered_scores(z: Tensor, relation: Tensor, triples: Tensor, known: Tensor) -> dict[str, float]:
    """Mean reciprocal rank and Hits@1, 3 and 10 of triples under DistMult, over both ends.

    Args:
        z: ``[n, d]`` representations of the entities.
        relation: ``[r, d]`` vectors of the relations.
        triples: ``[3, k]`` triples (head, relation, tail) to rank.
        known: ``[3, m]`` all true triples, of every part of the data.

    Returns:
        ``{"mrr": …, "hits@1": …, "hits@3": …, "hits@10": …}``.

    >>> z, known = torch.tensor([[2.0], [1.0]]), torch.tensor([[0], [0], [1]])
    >>> filtered_scores(z, torch.ones(1, 1), known, known)["hits@1"]
    0.5
    """
    ranks = filtered_ranks(z, relation, triples, known).flatten()
    found = {"mrr": float((1 / ranks).mean())}
    return found | {f"hits@{count}": float((ranks <= count).double().mean()) for count in (1, 3, 10)}


@torch.no_grad()
def filtered_ranks(z: Tensor, relation: Tensor, triples: Tensor, known: Tensor, chunk: int = 256) -> Tensor:
    """``[2, k]`` ranks from 1: of the true head among all heads, and of the true tail among all tails. Ties count half.

    Entities that make another known triple are left out: a model is not blamed for being right. Scores of ``chunk``
    triples against all entities are held at once.
    """
    z = z.double()
    weight, count = relation.double().to(z.device), z.size(0)
    triples = triples.to(z.device)
    known = torch.cat([known.to(z.device), triples], dim=1)
    result = []
    for end, other in ((0, 2), (2, 0)):
        # the question "which entity completes (other, relation)?" as one number; its true answers are its neighbours
        table = EdgeTable(
            torch.stack([known[other] * weight.size(0) + known[1], known[end]]), max(count * weight.size(0), 1)
        )
        parts: list[Any] = []
        for block in triples.split(chunk, dim=1):
            scores = (z[block[other]] * weight[block[1]]) @ z.t()
            true = scores.gather(1, block[end].view(-1, 1))
            above = (scores > true).sum(dim=1) + (scores == true).sum(dim=1) / 2
            parts.append(1 + above - _known_above(scores, true, block[other] * weight.size(0) + block[1], table))
        result.append(torch.cat(parts) if parts else z.new_empty(0))
    return torch.stack(result)


def _known_above(scores: Tensor, true: Tensor, question: Tensor, table: EdgeTable) -> Tensor:
    """How many known answers rank above the true one, ties half. The true answer itself is one of them."""
    base = table.num_nodes
    keys = torch.unique_consecutive(table.keys)
    start, stop = torch.searchsorted(keys, question * base), torch.searchsorted(keys, (question + 1) * base)
    row = torch.repeat_interleave(torch.arange(question.numel(), device=keys.device), stop - start)
    known = scores[row, keys[ranges(start, stop)] % base]
    mine = true.view(-1)[row]
    share = (known > mine).double() + (known == mine).double() / 2
    return torch.zeros(question.numel(), dtype=torch.double, device=keys.device).index_add_(0, row, share)
