"""The score of every model on the same elements, and the error of what was lost of it: a few elements show little."""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor

from gnndelete.auditing.case import Case
from gnndelete.auditing.samples import labels
from gnndelete.errors import GNNDeleteError
from gnndelete.metrics.ranking import auc
from gnndelete.metrics.unseen_test import UnseenTest
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification

#: Two models, `after` and one of these, are asked about the same elements.
BESIDE = ("before", "reference")


def tested(case: Case, metric: str) -> dict[str, Any] | None:
    """The first score of the task on its test elements; None for a task that is not known here.

    ``chance`` is what guessing reaches, ``constant`` what one and the same answer for all does, ``before_error`` and
    ``reference_error`` the standard error of the difference to the model after the deletion.
    """
    task = case.task
    if isinstance(task, LinkPrediction) and metric == "auroc" and task.test is not None:
        true, false = task.test.positives, task.test.negatives
        return None if false is None else pairs(case, true, false) | {"count": true.size(1) + false.size(1)}
    if not isinstance(task, (NodeClassification, GraphClassification)) or metric not in ("accuracy", "auroc"):
        return None
    try:
        elements = task.part(case.remaining, "test").nonzero().flatten().cpu()
    except GNNDeleteError:  # a task of the user's own that is tested on something else
        return None
    if metric == "accuracy":
        return classes(case, elements) | {"count": elements.numel(), "outside": _outside(case, elements)}
    true = labels(case)[elements]
    odds = {name: _odds(subject.predict(elements)) for name, subject in case.subjects.items()}
    parts = {name: (values[true == 1], values[true == 0]) for name, values in odds.items()}
    return _ranked(parts) | {"count": elements.numel()}


def pairs(case: Case, true: Tensor, false: Tensor) -> dict[str, Any]:
    """How well each model ranks edges above pairs that are none."""
    scores = {
        name: (subject.predict(true).detach().double().cpu(), subject.predict(false).detach().double().cpu())
        for name, subject in case.subjects.items()
    }
    return _ranked(scores)


def classes(case: Case, elements: Tensor) -> dict[str, Any]:
    """How many classes of nodes or graphs each model gets right.

    The error comes from the elements that one model gets right and the other wrong, as in McNemar's test.
    """
    true = labels(case)[elements]
    right = {name: answer == true for name, answer in _answers(case, elements).items()}
    errors = {
        f"{name}_error": sqrt(int((right["after"] ^ right[name]).sum())) / elements.numel()
        for name in BESIDE
        if {"after", name} <= set(right)
    }
    value = {name: float(right[name].double().mean()) if name in right else None for name in case.subjects}
    return {"metric": "accuracy", "accuracy": value, **errors, **_chances(case)}


def _outside(case: Case, elements: Tensor) -> dict[str, int]:
    """For every model and for the true classes, how many elements are outside the most frequent class."""
    found = {**_answers(case, elements), "true": labels(case)[elements]}
    return {name: values.numel() - int(values.bincount().max()) for name, values in found.items()}


def _answers(case: Case, elements: Tensor) -> dict[str, Tensor]:
    """The class that each model gives the elements; models whose answers are no finite numbers are left out."""
    chances = {name: subject.predict(elements).detach().cpu() for name, subject in case.subjects.items()}
    return {name: found.argmax(dim=-1) for name, found in chances.items() if bool(torch.isfinite(found).all())}


def _ranked(scores: dict[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
    finite = {name: parts for name, parts in scores.items() if all(bool(torch.isfinite(part).all()) for part in parts)}
    value = {name: auc(*finite[name]) if name in finite else None for name in scores}
    tests = {name: _test(*parts) for name, parts in finite.items()}
    errors = {f"{name}_error": _error(tests["after"], tests[name]) for name in BESIDE if {"after", name} <= set(tests)}
    return {"metric": "auroc", "auroc": value, **errors, "chance": 0.5, "constant": 0.5}


def _error(after: UnseenTest, other: UnseenTest) -> float:
    """Of the difference of two AUROC, were it none: where few elements all fall alike, their spread alone is no error."""
    off, error = after.against(other)
    return sqrt(error**2 + off**2 * (1 / after.deleted + 1 / after.unseen))


def _test(true: Tensor, false: Tensor) -> UnseenTest:
    scores = true.flatten().numpy(), false.flatten().numpy()
    return UnseenTest((scores,), scores)


def _odds(chances: Tensor) -> Tensor:
    logs = chances.detach().double().cpu().clamp(min=1e-300).log()
    return logs[:, 1] - logs[:, 0]


def _chances(case: Case) -> dict[str, float]:
    """What guessing reaches, and what the most frequent class of the test elements does when it is all that is said."""
    assert isinstance(case.task, (NodeClassification, GraphClassification))
    guessing = 1 / max(int(labels(case).max()) + 1, 2)
    true = labels(case)[case.task.part(case.remaining, "test").cpu()]
    return {"chance": guessing, "constant": max(guessing, int(true.bincount().max()) / true.numel())}
