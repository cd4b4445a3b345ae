"""Distance to retraining: score distributions (Jensen-Shannon) and the share of equal decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import DASH, deleted_title, number, sentence, share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.auditing.samples import answers, deleted, samples

#: Elements of each group that are compared at most.
SAMPLE_LIMIT = 5_000
#: The fewest elements of which a distribution is compared.
SAMPLE_MINIMUM = 10

WHAT = (
    "Jensen-Shannon divergence in bits (0: the same distribution, 1: no overlap) between histograms whose shared bins hold "
    "equal parts of the two models' answers together. 'Sampling alone' is what two independent samples of this size from the "
    "reference's own distribution would show on average."
)


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Bits between a model's scores of one group and the reference's; ``floor`` is what sampling alone gives."""

    after: float
    before: float | None = None
    floor: float = 0.0
    count: int = 0
    elements: str = ""
    graph: str = "served"


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """A number that compares decisions on test elements with the reference's."""

    after: float
    before: float | None = None
    count: int = 0
    what: str = ""


@dataclass(frozen=True, kw_only=True)
class DistanceSection(Section):
    """How far each model is from the reference: ``js`` by group of elements, agreement and difference on test elements."""

    js: dict[str, Divergence]
    left_out: dict[str, str]
    agreement: Decisions | None = None
    difference: Decisions | None = None

    @property
    def beyond_sampling(self) -> tuple[float, float]:
        """Bits between the model and the reference beyond sampling: of deleted elements, and the most of any others."""
        over = {group: max(part.after - part.floor, 0.0) for group, part in self.js.items()}
        return over.pop("deleted", 0.0), max(over.values(), default=0.0)

    def tables(self, names: Names) -> Iterable[Table]:
        two = {key: names[key] for key in ("before", "after")}
        rows = tuple(
            (*row(f"scores of {part.elements or f'{key} elements'}", _two(part), two), number(part.floor))
            for key, part in self.js.items()
        )
        yield Table(("Jensen-Shannon to the reference, bits", *two.values(), "sampling alone"), rows)
        listed: list[Row] = []
        if self.agreement is not None:
            listed.append(row("decisions that agree", _two(self.agreement), two, share))
        if self.difference is not None:
            listed.append(row("mean difference", _two(self.difference), two))
        caption = " ".join(sentence(part.what) for part in (self.agreement, self.difference) if part is not None)
        yield Table(("test elements against the reference", *two.values()), tuple(listed), caption)

    def key_rows(self, names: Names) -> Iterable[Row]:
        if "deleted" in self.js and "reference" in names:
            part = self.js["deleted"]
            title = f"Scores of {part.elements or 'deleted elements'}, bits from {names['reference']}"
            before, after = number(part.before) if part.before is not None else DASH, number(part.after)
            yield (title, before, after, f"{number(part.floor)} by sampling")


def _two(part: Divergence | Decisions) -> PerModel[float]:
    return PerModel(part.before, part.after)


class Distance(Measure):
    """Divergence of scores, agreement of decisions and difference of probabilities, each against the reference."""

    name: ClassVar[str] = "distance"
    title: ClassVar[str] = "Distance to retraining"

    def run(self, case: Case) -> DistanceSection:
        reference = case.subjects.get("reference")
        if reference is None:
            raise NotMeasuredError(
                "there is no reference; pass reference= the result of method 'retrain' for the same deletion"
            )
        gone = deleted(case)
        js: dict[str, Divergence] = {}
        left_out: dict[str, str] = {}
        for offset, (group, elements) in enumerate(samples(case, SAMPLE_LIMIT).items()):
            if elements.size(-1) < SAMPLE_MINIMUM:
                continue
            models = gone.subjects if group == "deleted" else case.subjects
            if not {"after", "reference"} <= set(models):
                left_out[group] = gone.reason
                continue
            js[group] = _divergence(case, models, elements, case.seed + offset)
        if "deleted" in js:
            js["deleted"] = replace(js["deleted"], elements=deleted_title(gone.title, gone.graph), graph=gone.graph)
        agreement, difference = _decisions(case, reference)
        if not js and agreement is None:
            raise NotMeasuredError(f"there are neither {SAMPLE_MINIMUM} elements to compare nor any test data")
        section = DistanceSection(js=js, left_out=left_out, what=WHAT, agreement=agreement, difference=difference)
        return replace(section, sentence=_sentence(section))


def _divergence(case: Case, models: dict[str, Subject], elements: Tensor, seed: int) -> Divergence:
    scores = {name: answers(case, subject, elements).numpy() for name, subject in models.items()}
    if not all(np.isfinite(values).all() for values in scores.values()):
        raise NotMeasuredError("a model gives NaN or infinite scores, so that nothing can be compared")
    reference = scores.pop("reference")
    found: dict[str, Any] = {name: divergence(values, reference) for name, values in scores.items()}
    return Divergence(**found, floor=floor(reference, seed), count=int(reference.size))


def divergence(a: np.ndarray, b: np.ndarray) -> float:
    """Jensen-Shannon divergence (base 2) of two samples; invariant under any increasing function of the scores.

    >>> divergence(np.arange(100.0), np.arange(100.0)), divergence(np.zeros(50), np.ones(50))
    (0.0, 1.0)
    """
    cuts = _cuts(np.concatenate([a, b]), min(a.size, b.size))
    return _js(_histogram(a, cuts), _histogram(b, cuts))


def floor(values: np.ndarray, seed: int, draws: int = 50) -> float:
    """The divergence that sampling alone gives: the mean over pairs of resamples of one sample."""
    shares = _histogram(values, _cuts(values, values.size))
    drawn = np.random.default_rng(seed).multinomial(values.size, shares, size=(draws, 2)) / values.size
    return float(np.mean([_js(first, second) for first, second in drawn]))


def _cuts(pooled: np.ndarray, count: int) -> np.ndarray:
    """Where one bin ends and the next begins: up to 20 bins, fewer where few elements would leave them empty.

    Their number is even, so that the median is a cut and two samples that do not overlap share no bin.
    """
    bins = 2 * max(1, min(10, isqrt(count) // 2))
    return np.unique(np.quantile(pooled, np.linspace(0, 1, bins + 1)[1:-1], method="higher"))


def _histogram(values: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    bins = np.searchsorted(cuts, values, side="right")
    return np.bincount(bins, minlength=cuts.size + 1) / values.size


def _js(p: np.ndarray, q: np.ndarray) -> float:
    middle = (p + q) / 2
    total = 0.0
    for part in (p, q):
        filled = part > 0
        total += float((part[filled] * np.log2(part[filled] / middle[filled])).sum()) / 2
    return min(1.0, max(0.0, total))


def _decisions(case: Case, reference: Subject) -> tuple[Decisions | None, Decisions | None]:
    """On test elements: the share decided alike, and the mean total variation between the predicted distributions."""
    elements = case.task.examples(case.remaining, "test")[0].cpu()
    if not elements.size(-1):
        return None, None
    target = _probabilities(case, reference, elements)
    others = {name: _probabilities(case, case.subjects[name], elements) for name in ("before", "after")}
    # of a pair, column 1 wins only where the probability of an edge is above 0.5
    equal: dict[str, Any] = {
        name: float((p.argmax(dim=1) == target.argmax(dim=1)).double().mean()) for name, p in others.items()
    }
    difference: dict[str, Any] = {name: float((p - target).abs().sum(dim=1).mean() / 2) for name, p in others.items()}
    noun = case.task.noun
    decided = f"test {noun}s" if not case.task.pairwise else "test pairs, edges and non-edges, on the same side of 0.5"
    measured = "mean absolute difference of the probability"
    if not case.task.pairwise:
        measured = "mean total variation of the class probabilities"
    count = elements.size(-1)
    return (
        Decisions(**equal, count=count, what=f"share of {decided} that both models decide alike"),
        Decisions(**difference, count=count, what=f"{measured} on the same test elements"),
    )


def _probabilities(case: Case, subject: Subject, elements: Tensor) -> Tensor:
    return case.task.probabilities(subject.predict(elements).detach().double().cpu())


def _sentence(section: DistanceSection) -> str:
    parts = []
    if "deleted" in section.js:
        js = section.js["deleted"]
        was = f", before the deletion {js.before:.3f}" if js.before is not None else ""
        parts.append(
            f"The scores of {js.elements} are {js.after:.3f} bits from the retrained model's{was}. Sampling alone gives about "
            f"{js.floor:.3f}."
        )
    elif "deleted" in section.left_out:
        reason = section.left_out["deleted"]
        parts.append(f"Scores of deleted elements are not compared: nothing of them is left as served, and {reason}.")
    if section.agreement is not None:
        agreement = section.agreement
        was = f" (before: {agreement.before:.1%})" if agreement.before is not None else ""
        parts.append(f"The two models decide alike on {agreement.after:.1%} of {agreement.count:,} test elements{was}.")
    return " ".join(parts) or "Too few elements were deleted to compare distributions, and there is no test data."
