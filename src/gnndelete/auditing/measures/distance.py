"""How far a model is from the retrained one: score distributions (Jensen-Shannon) and the share of equal decisions."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.report.wording import of_deleted
from gnndelete.auditing.samples import AXES, answers, deleted, samples
from gnndelete.errors import GraphError
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification

#: Elements of each group that are compared, and the fewest of which a distribution is drawn.
LIMIT, FEWEST = 5_000, 10

WHAT = (
    "Jensen-Shannon divergence in bits (0: the same distribution, 1: no overlap) between histograms whose shared bins hold "
    "equal parts of the two models' answers together. 'floor' is what two independent samples of this size from the "
    "reference's own distribution would show on average."
)


def distance(case: Case) -> dict[str, Any]:
    """Divergence of scores, agreement of decisions and difference of probabilities, each against the reference."""
    reference = case.subjects.get("reference")
    if reference is None:
        return {
            "available": False,
            "reason": "there is no reference; pass reference= the result of method 'retrain' for the same deletion",
        }
    if not isinstance(case.task, (LinkPrediction, NodeClassification, GraphClassification)):
        return {"available": False, "reason": f"a '{case.task.name}' task has no scores of edges or nodes to compare"}
    others = [case.subjects[name] for name in ("after", "before") if name in case.subjects]
    js: dict[str, dict[str, Any]] = {}
    gone = deleted(case)
    left_out: dict[str, str] = {}
    for index, (group, elements) in enumerate(samples(case, LIMIT).items()):
        if elements.size(-1) < FEWEST:
            continue
        asked = gone.subjects if group == "deleted" else case.subjects
        if not {"after", "reference"} <= set(asked):
            left_out[group] = gone.reason
            continue
        own = answers(case, asked["reference"], elements).numpy()
        theirs = {name: answers(case, asked[name], elements).numpy() for name in ("after", "before") if name in asked}
        if not all(np.isfinite(values).all() for values in (own, *theirs.values())):
            return {
                "available": False,
                "reason": "a model gives NaN or infinite scores, so that nothing can be compared",
            }
        js[group] = {name: divergence(values, own) for name, values in theirs.items()}
        js[group] |= {"floor": floor(own, case.seed + index), "count": int(own.size)}
        js[group] |= {"elements": gone.what, "graph": gone.graph} if group == "deleted" else {}
    decided = _decisions(case, reference, others)
    if not js and decided is None:
        return {"available": False, "reason": f"there are neither {FEWEST} elements to compare nor any test data"}
    result = {"available": True, "js": js, "left_out": left_out, "what": WHAT}
    result |= decided or {"agreement": None, "difference": None}
    result["sentence"] = _sentence(result)
    return result


def divergence(a: np.ndarray, b: np.ndarray) -> float:
    """Jensen-Shannon divergence (base 2) of two samples; invariant under any rising function of the scores.

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
    places = np.searchsorted(cuts, values, side="right")
    return np.bincount(places, minlength=cuts.size + 1) / values.size


def _js(p: np.ndarray, q: np.ndarray) -> float:
    middle = (p + q) / 2
    total = 0.0
    for part in (p, q):
        some = part > 0
        total += float((part[some] * np.log2(part[some] / middle[some])).sum()) / 2
    return min(1.0, max(0.0, total))


def _decisions(case: Case, reference: Subject, others: list[Subject]) -> dict[str, Any] | None:
    """On the test elements: the share decided alike, and the mean total variation between the predicted distributions."""
    elements = _test(case)
    if not elements.size(-1):
        return None
    own = _probabilities(case, reference, elements)
    theirs = {subject.name: _probabilities(case, subject, elements) for subject in others}
    alike = {name: float((_decision(p) == _decision(own)).double().mean()) for name, p in theirs.items()}
    apart = {name: float((p - own).abs().sum(dim=1).mean() / 2) for name, p in theirs.items()}
    link = isinstance(case.task, LinkPrediction)
    rule = (
        "test pairs, edges and non-edges, with a probability on the same side of 0.5"
        if link
        else f"test {case.task.name}s"
    )
    spread = (
        "mean absolute difference of the probability" if link else "mean total variation of the class probabilities"
    )
    return {
        "agreement": {**alike, "count": elements.size(-1), "what": f"share of {rule} that both models decide alike"},
        "difference": {**apart, "what": f"{spread} on the same test elements"},
    }


def _decision(probabilities: Tensor) -> Tensor:
    return probabilities.argmax(dim=1)  # of a pair: column 1 only where the probability of an edge is above 0.5


def _test(case: Case) -> Tensor:
    if isinstance(case.task, LinkPrediction):
        if case.task.test is None:
            return torch.empty(2, 0, dtype=torch.long)
        known = [part for part in (case.task.test.positives, case.task.test.negatives) if part is not None]
        return torch.cat([part.cpu() for part in known], dim=1)
    if isinstance(case.task, GraphClassification) or isinstance(case.remaining, HeteroGraph):
        assert isinstance(case.task, (GraphClassification, NodeClassification))
        try:
            return case.task.part(case.remaining, "test").cpu().nonzero().flatten()
        except GraphError:
            return torch.empty(0, dtype=torch.long)
    mask = case.remaining.get("test_mask")
    return torch.empty(0, dtype=torch.long) if mask is None else mask.cpu().nonzero().flatten()


def _probabilities(case: Case, subject: Subject, elements: Tensor) -> Tensor:
    result = subject.predict(elements).detach().double().cpu()
    if isinstance(case.task, LinkPrediction):
        yes = result.view(-1).sigmoid()
        return torch.stack([1 - yes, yes], dim=1)
    return result


def _sentence(result: dict[str, Any]) -> str:
    parts = []
    if "deleted" in result["js"]:
        js = result["js"]["deleted"]
        was = f", before the deletion {js['before']:.3f}" if "before" in js else ""
        parts.append(
            f"On {of_deleted(js)} the scores are {js['after']:.3f} bits from the retrained model's{was}; "
            f"sampling alone gives about {js['floor']:.3f}."
        )
    elif "deleted" in result["left_out"]:
        why = f"they are blank in the graph as served, and {result['left_out']['deleted']}"
        parts.append(f"Scores of deleted elements are not compared: {why}.")
    if result["agreement"]:
        alike = result["agreement"]
        was = f" (before: {alike['before']:.1%})" if "before" in alike else ""
        parts.append(f"The two decide alike on {alike['after']:.1%} of {alike['count']:,} test elements{was}.")
    return " ".join(parts) or "Too few elements were deleted to compare distributions, and there is no test data."


def score_samples(case: Case, limit: int = 2000) -> dict[str, Any]:
    """Figure data: what each model answers on deleted, unseen, remaining and random elements. Empty for other tasks."""
    if case.task.name not in AXES:
        return {}
    chosen, gone = samples(case, limit), deleted(case)
    scores = {
        name: {
            group: _rounded(answers(case, asked[name], elements))
            for group, elements in chosen.items()
            if name in (asked := gone.subjects if group == "deleted" else case.subjects)
        }
        for name in case.subjects
    }
    some = any("deleted" in groups for groups in scores.values())
    shown = {"scores_deleted": {"elements": gone.what, "graph": gone.graph}} if some else {}
    return {"scores": scores, "scores_axis": AXES[case.task.name], **shown}


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values[torch.isfinite(values)].tolist()]
