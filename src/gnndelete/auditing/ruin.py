"""Whether a model still does its task: how much of its skill it has lost, and whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

from gnndelete.auditing.case import Case
from gnndelete.auditing.samples import labels

#: A model that keeps less than this share of its skill above chance is called ruined; near the deletion, less than half of it.
SKILL, SKILL_NEAR = 0.75, 0.4
#: Skill above chance that a model must have had before its loss can be judged, and the least loss that is.
LEAST_SKILL = 0.02
#: Standard errors by which a loss must exceed none: 95% of all differences that are chance lie within.
ERRORS = 1.96

USELESS = "whatever it forgets, it no longer does its task"


@dataclass(frozen=True)
class _Sign:
    """A sign of ruin: the fact, the sentence where it is more than chance, and why it may be no more."""

    fact: str
    sentence: str
    sure: bool
    few: str

    @property
    def doubt(self) -> str:
        return f"{self.fact}; {self.few} too few to say whether the model is ruined"


def ruined(case: Case, utility: dict[str, Any]) -> tuple[str, str]:
    """Why the model is ruined, or else why it may be; one of the two is empty, or both."""
    if not utility["available"]:
        return "", ""
    name, values = next(iter(utility["metrics"].items()))
    if values["before"] is None:
        return "", ""
    tested = utility["tested"]
    if values["after"] is None or (tested is not None and tested[name]["after"] is None):
        return "It gives answers that are no finite numbers.", ""
    tested = tested or _unknown(case, name)
    signs = [_of_all(name, values, tested), _one_answer(tested), _near(utility["near"])]
    found = [sign for sign in signs if sign is not None]
    sure = next((sign.sentence for sign in found if sign.sure), "")
    return sure, found[0].doubt if found and not sure else ""


def _unknown(case: Case, name: str) -> dict[str, Any]:
    """Of a task that is not known here only the scores are, without an error."""
    chance = 0.5 if name in ("auroc", "auprc") else 1 / max(int(labels(case).max()) + 1, 2)
    return {"chance": chance, "constant": chance, "count": 0}


def _of_all(name: str, values: dict[str, Any], tested: dict[str, Any]) -> _Sign | None:
    base, after = _base(values), values["after"]
    if base is None or not _lost(after, values[base], tested, SKILL):
        return None
    beside = "before the deletion" if base == "before" else "of the retrained model"
    fact = f"its test {name} is {after:.3f}, {values[base]:.3f} {beside}"
    sure = values[base] - after > ERRORS * tested.get(f"{base}_error", 0.0)
    return _Sign(fact, f"{_capital(fact)}: {USELESS}.", sure, f"{tested['count']:,} test elements are")


def _one_answer(tested: dict[str, Any]) -> _Sign | None:
    """All test elements get one class; neither did they before or of the retrained model, nor are they of one class."""
    outside = tested.get("outside") or {}
    others = [outside[name] for name in ("before", "reference") if name in outside]
    if outside.get("after") != 0 or not outside["true"] or not others or not min(others):
        return None
    least = min(others)
    fact = f"it gives all {tested['count']:,} test elements the same class"
    told = f"{_capital(fact)}, and did not before the deletion: {USELESS}."
    few = f"{least:,} that had another one {'are' if least > 1 else 'is'}"
    return _Sign(fact, told, least > ERRORS * sqrt(least), few)


def _near(near: dict[str, Any]) -> _Sign | None:
    if not near["available"]:
        return None
    name, count, what = near["metric"], near["count"], near["what"]
    values = near[name]
    base, after = _base(values), values.get("after")
    if base is None or after is None or not _lost(after, values[base], near, SKILL_NEAR):
        return None
    both = " or after retraining" if values.get("before") is not None and values.get("reference") is not None else ""
    figures = f"{name} {after:.3f} on {count:,} {what}, {values[base]:.3f} before the deletion{both}"
    sure = values[base] - after > ERRORS * near.get(f"{base}_error", 0.0)
    said = f"Around the deletion it no longer does its task: {figures}."
    return _Sign(f"around the deletion it has lost: {figures}", said, sure, "these are")


def _base(values: dict[str, Any]) -> str | None:
    """The model whose score is to be kept: that before the deletion or the retrained one, whichever is lower."""
    known = [name for name in ("before", "reference") if values.get(name) is not None]
    return min(known, key=lambda name: values[name]) if known else None


def _lost(after: float, base: float, measured: dict[str, Any], kept: float) -> bool:
    """Less than a share of the skill is kept: above one and the same answer for all, or above guessing where that was all."""
    chances = measured["constant"], measured["chance"]
    chance = next((value for value in chances if base - value > LEAST_SKILL), None)
    return chance is not None and after - chance < kept * (base - chance) and base - after > LEAST_SKILL


def _capital(said: str) -> str:
    return said[0].upper() + said[1:]
