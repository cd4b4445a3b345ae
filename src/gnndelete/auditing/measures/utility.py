"""Utility: the task's scores on test data, on what remains, and around the deletion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import DASH, label, number, share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.auditing.samples import answers, samples
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.validation import edge_table
from gnndelete.metrics.ranking import auc
from gnndelete.metrics.unseen_test import UnseenTest

#: Remaining elements that are asked about at most.
RETAINED_LIMIT = 5000
#: Fewer test elements near the deletion than this do not show whether it did damage there.
NEAR_MINIMUM = 30


@dataclass(frozen=True)
class Skill:
    """The score of every model on the same elements, and how certain a loss of it is.

    Args:
        metric: ``"auroc"`` or ``"accuracy"``.
        values: The score of each model; None where its answers are not finite.
        chance: What guessing reaches.
        constant: What one and the same answer for every element reaches.
        count: The number of elements.
        what: Which elements.
        before_error: Standard error of the difference between the models after and before the deletion.
        reference_error: The same for the reference.
    """

    metric: str
    values: PerModel[float]
    chance: float
    constant: float
    count: int
    what: str
    before_error: float | None = None
    reference_error: float | None = None

    def error(self, name: str) -> float:
        """The standard error of the loss against a model; 0 where it is not known."""
        value = self.before_error if name == "before" else self.reference_error
        return value or 0.0

    @property
    def lowest(self) -> tuple[str, float] | None:
        """The model whose score is to be kept, before the deletion or the retrained one, whichever is lower."""
        known = [(name, value) for name in ("before", "reference") if (value := self.values.get(name)) is not None]
        return min(known, key=lambda pair: pair[1]) if known else None


@dataclass(frozen=True)
class Retained:
    """How the probability of remaining elements has changed since before the deletion."""

    count: int
    share_fell: float
    mean_change: float
    median_change: float
    worst: float
    reference_share_fell: float | None = None
    reference_mean_change: float | None = None


@dataclass(frozen=True, kw_only=True)
class UtilitySection(Section):
    """Scores before, after and of the reference. ``tested`` is the first of them with its error, ``near`` around the deletion."""

    metrics: dict[str, PerModel[float]]
    tested: Skill
    retained: Retained | None = None
    near: Skill | None = None
    near_reason: str = ""

    def tables(self, names: Names) -> Iterable[Table]:
        rows = [row(label(key), values, names) for key, values in self.metrics.items()]
        if self.near is not None:
            title = f"{label(self.near.metric)} near the deletion ({number(self.near.count)} elements)"
            rows.append(row(title, self.near.values, names))
        caption = f"Not measured near the deletion: {self.near_reason}." if self.near_reason else ""
        yield Table(("test data", *names.values()), tuple(rows), caption)
        if self.retained is not None:
            yield self._retained_table(self.retained, names)

    def _retained_table(self, change: Retained, names: Names) -> Table:
        rows = [
            ("score fell, share", share(change.share_fell), share(change.reference_share_fell)),
            ("mean change", number(change.mean_change, 4), number(change.reference_mean_change, 4)),
            ("median change", number(change.median_change, 4), DASH),
            ("worst change", number(change.worst), DASH),
        ]
        width = 3 if "reference" in names else 2
        columns = ("remaining elements", "after", names.get("reference", ""))[:width]
        caption = f"Change in the probability of {number(change.count)} remaining elements since before the deletion."
        return Table(columns, tuple(cells[:width] for cells in rows), caption)

    def key_rows(self, names: Names) -> Iterable[Row]:
        for key, values in list(self.metrics.items())[:1]:
            yield row(f"Test {label(key)}", values, names)


class Utility(Measure):
    """The task's scores on the test elements that remain."""

    name: ClassVar[str] = "utility"
    title: ClassVar[str] = "Utility"

    def run(self, case: Case) -> UtilitySection:
        scores = {name: _scores(case, subject) for name, subject in case.subjects.items()}
        if not any(scores.values()):
            marked = "there is no test data; mark some in 'test_mask', or name it with gnndelete adopt --test FILE"
            raise NotMeasuredError(case.task.no_unseen("test") if case.task.pairwise else marked)
        keys = dict.fromkeys(key for found in scores.values() for key in found)
        metrics = {key: PerModel(**{name: found.get(key) for name, found in scores.items()}) for key in keys}
        near, reason = _near(case)
        return UtilitySection(
            metrics=metrics,
            tested=_tested(case, *next(iter(metrics.items()))),
            retained=_retained(case),
            near=near,
            near_reason=reason,
        )


def _scores(case: Case, subject: Subject) -> dict[str, float]:
    try:
        return case.task.evaluate_by(subject.predict, case.remaining)
    except GNNDeleteError:  # nothing to test on, or answers that are not finite
        return {}


def _tested(case: Case, metric: str, values: PerModel[float]) -> Skill:
    """The task's first score on its test elements with its error; without one for a task or a score of the user's own."""
    elements, true = (part.cpu() for part in case.task.examples(case.remaining, "test"))
    if elements.numel() and metric in ("auroc", "accuracy"):
        return ranked(case, elements, true) if metric == "auroc" else classified(case, elements)
    chance = 0.5 if metric in ("auroc", "auprc") else 1 / case.task.num_classes(case.original)
    return Skill(metric, values, chance, chance, elements.size(-1), "test elements")


def ranked(case: Case, elements: Tensor, true: Tensor, what: str = "test elements") -> Skill:
    """How well each model ranks elements of class 1 above those of class 0."""
    scores = {name: _logits(case, subject, elements) for name, subject in case.subjects.items()}
    finite = {name: values for name, values in scores.items() if bool(torch.isfinite(values).all())}
    tests = {name: _test(values[true == 1], values[true == 0]) for name, values in finite.items()}
    values = PerModel(**{name: auc(*test.scores) for name, test in tests.items()})
    errors: dict[str, Any] = {
        f"{name}_error": _loss_error(tests["after"], tests[name])
        for name in ("before", "reference")
        if {"after", name} <= set(tests)
    }
    return Skill("auroc", values, 0.5, 0.5, elements.size(-1), what, **errors)


def classified(case: Case, elements: Tensor, what: str = "test elements") -> Skill:
    """How many classes each model gets right.

    The error comes from the elements that one model gets right and the other wrong, as in McNemar's test.
    """
    true = case.task.classes(case.original, elements).cpu()
    answered = {name: subject.predict(elements).detach().cpu() for name, subject in case.subjects.items()}
    right = {name: p.argmax(dim=-1) == true for name, p in answered.items() if bool(torch.isfinite(p).all())}
    errors: dict[str, Any] = {
        f"{name}_error": sqrt(int((right["after"] ^ right[name]).sum())) / elements.numel()
        for name in ("before", "reference")
        if {"after", name} <= set(right)
    }
    every = case.task.examples(case.remaining, "test")[1].cpu()
    guessing = 1 / case.task.num_classes(case.original)
    constant = max(guessing, int(every.bincount().max()) / every.numel())
    values = PerModel(**{name: float(part.double().mean()) for name, part in right.items()})
    return Skill("accuracy", values, guessing, constant, elements.numel(), what, **errors)


def _logits(case: Case, subject: Subject, elements: Tensor) -> Tensor:
    """Logits of edges; of two classes the log-odds of the second."""
    predicted = subject.predict(elements).detach().double().cpu()
    if case.task.pairwise:
        return predicted.view(-1)
    logs = predicted.clamp(min=1e-300).log()
    return logs[:, 1] - logs[:, 0]


def _test(true: Tensor, false: Tensor) -> UnseenTest:
    return UnseenTest([(np.arange(len(true)), np.arange(len(false)))], true, false)


def _loss_error(after: UnseenTest, other: UnseenTest) -> float:
    """The error of the difference of two AUROC. Where a few elements all fall alike, their spread alone is no error."""
    off, error = after.against(other)
    return sqrt(error**2 + off**2 * (1 / after.deleted + 1 / after.unseen))


def _retained(case: Case) -> Retained | None:
    elements = samples(case, RETAINED_LIMIT).get("remaining")
    if elements is None:
        return None
    scores = {name: answers(case, subject, elements) for name, subject in case.subjects.items()}
    chance = {name: value.sigmoid() if case.task.pairwise else value for name, value in scores.items()}
    if not all(bool(torch.isfinite(value).all()) for value in chance.values()):
        return None
    change = chance["after"] - chance["before"]
    other = chance["reference"] - chance["before"] if "reference" in chance else None
    return Retained(
        count=change.numel(),
        share_fell=float((change < 0).double().mean()),
        mean_change=float(change.mean()),
        median_change=float(change.median()),
        worst=float(change.min()),
        reference_share_fell=None if other is None else float((other < 0).double().mean()),
        reference_mean_change=None if other is None else float(other.mean()),
    )


def _near(case: Case) -> tuple[Skill | None, str]:
    """The score on elements near the deletion, or the reason without one: damage there hardly shows in the score of all."""
    task = case.task
    elements, true = (part.cpu() for part in task.examples(case.remaining, "test"))
    if not elements.numel():
        return None, f"there are no test {task.noun}s"
    near = task.near(elements, case.deletion, case.original)
    elements, true = elements[..., near], true[near]
    what = f"test {task.noun}s {task.near_title}"
    if not task.pairwise:
        if elements.numel() < NEAR_MINIMUM:
            return None, f"only {elements.numel()} {what}"
        return classified(case, elements, what), ""
    positive = int(true.sum())
    if min(positive, true.numel() - positive) < NEAR_MINIMUM:
        return _near_remaining(case)
    return replace(ranked(case, elements, true, what), count=positive), ""


def _near_remaining(case: Case) -> tuple[Skill | None, str]:
    """With few test edges near the deletion: remaining edges there, against the same near ends with random other ends.

    A model that says the same of all of them has no skill left there.
    """
    task, named = case.task, case.deletion.named_nodes.cpu()
    near = torch.zeros(case.original.num_nodes, dtype=torch.bool).index_fill(0, named, True)
    near[case.deletion.nodes.cpu()] = False
    true = edges_from(near, task.learned_once(case.remaining).cpu(), edge_table(case.remaining).undirected)
    true = true[:, :RETAINED_LIMIT]
    if not true.size(1):
        return None, f"no test {task.noun} and no remaining {task.noun} touches the deletion"
    other = task.random_targets(case.remaining, true.size(1), case.generator(13))
    pairs = torch.cat([true, torch.stack([*true[:-1], other])], dim=1)
    kinds = torch.arange(pairs.size(1)) < true.size(1)
    what = f"remaining {task.noun}s {task.near_title}"
    return replace(ranked(case, pairs, kinds.long(), what), count=true.size(1)), ""


def edges_from(near: Tensor, edges: Tensor, undirected: bool) -> Tensor:
    """The edges that leave a marked node; of an undirected graph those that touch one, with the marked end first.

    >>> edges_from(torch.tensor([False, True, True]), torch.tensor([[0, 1], [1, 2]]), True).tolist()
    [[1, 1], [0, 2]]
    """
    if edges.size(0) == 2 and undirected:
        edges = torch.where(near[edges[0]], edges, edges.flip(0))
    return edges[:, near[edges[0]]]
