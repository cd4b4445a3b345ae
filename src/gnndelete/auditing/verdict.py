"""The verdict in plain words. Utility is judged first: a ruined model forgets everything, and that is worth nothing."""

from __future__ import annotations

from typing import Any

from gnndelete.auditing.case import Case
from gnndelete.auditing.samples import labels

#: A model that keeps less than this share of its skill above chance is called ruined; near the deletion, less than half of it.
SKILL, SKILL_NEAR = 0.75, 0.4
#: Differences of the AUC below this are called none, and a sample with more noise than this decides nothing.
TOLERANCE, VAGUE = 0.03, 0.15
#: Skill above chance that a model must have had before its loss can be judged.
LEAST_SKILL = 0.02

TITLES = {
    "ruined": "The model is ruined",
    "under-forgotten": "Under-forgotten: the deleted data can still be recognised",
    "indistinguishable": "Indistinguishable from data the model never saw",
    "over-forgotten": "Over-forgotten: the deleted data stand out by low scores",
    "undecided": "Undecided",
}

RETRAINED = "Indistinguishable from a model trained without the data"


def judge(test: dict[str, Any]) -> tuple[str, str]:
    """The verdict on one held-out test: by the reference's AUC where there is one, else by 0.5.

    >>> judge({"after": {"auc": 0.62, "low": 0.6, "high": 0.64, "se": 0.01, "deleted": 900}, "reference": None})[0]
    'under-forgotten'
    """
    after, reference = test["after"], test.get("reference")
    aim = 0.5 if reference is None else reference["auc"]
    figures = f"AUC {after['auc']:.3f} (95% interval {after['low']:.3f} to {after['high']:.3f})"
    against = "0.5 for what was never seen" if reference is None else f"{aim:.3f} of the retrained model"
    if reference is None and test.get("unfair"):
        return "undecided", f"Without a reference this does not tell, since {test['unfair']}: {figures}."
    off, noise = after["auc"] - aim, 1.96 * after["se"]
    if abs(off) > max(TOLERANCE, noise) and not after["low"] <= aim <= after["high"]:
        word, how = ("under-forgotten", "above") if off > 0 else ("over-forgotten", "below")
        return word, f"Deleted elements score {how} matched held-out ones: {figures}, against {against}."
    if noise > VAGUE:
        return "undecided", f"{after['deleted']:,} deleted elements are too few to tell: {figures}, against {against}."
    return "indistinguishable", f"Deleted elements score like matched held-out ones: {figures}, against {against}."


def verdict(
    case: Case, utility: dict[str, Any], forgetting: dict[str, Any], still_there: int, only_reported: str | None
) -> dict[str, Any]:
    """The word, its reasons, and the verdict of each graph that can be asked."""
    tests = forgetting.get("heldout", {})
    by_query: dict[str, str | None] = {
        name: test["verdict"] if test["available"] else None for name, test in tests.items()
    }
    ruin = ruined(case, utility)
    if ruin:
        word, sentence = "ruined", ruin
    elif still_there:
        word = "under-forgotten"
        sentence = f"The graph it is served on still holds {still_there:,} of the deleted elements."
    elif only_reported:
        word, sentence = "under-forgotten", only_reported
    else:
        word, sentence = _headline(case, forgetting, by_query)
    return {
        "word": word,
        "title": RETRAINED if word == "indistinguishable" and case.reference is not None else TITLES[word],
        "sentence": sentence,
        "warnings": _warnings(word, by_query, tests, utility),
        "by_query": by_query,
    }


def ruined(case: Case, utility: dict[str, Any]) -> str:
    """Why the model is ruined, or nothing."""
    if not utility["available"]:
        return ""
    name, values = next(iter(utility["metrics"].items()))
    before, after, reference = (values[key] for key in ("before", "after", "reference"))
    if before is not None and after is None:
        return "It gives answers that are no finite numbers."
    if before is None or after is None:
        return ""
    chance = 0.5 if name in ("auroc", "auprc") else 1 / max(int(labels(case).max()) + 1, 2)
    base, beside = before, "before the deletion"
    if reference is not None and reference < before:
        base, beside = reference, "of the retrained model"
    if base - chance > LEAST_SKILL and after - chance < SKILL * (base - chance):
        return f"Its test {name} is {after:.3f}, {base:.3f} {beside}: whatever it forgets, it no longer does its task."
    return _ruined_near(utility["near"], chance)


def _ruined_near(near: dict[str, Any], chance: float) -> str:
    if not near["available"]:
        return ""
    values = near[near["metric"]]
    known = [values[key] for key in ("before", "reference") if values.get(key) is not None]
    after = values.get("after")
    if not known or after is None or min(known) - chance <= LEAST_SKILL:
        return ""
    if after - chance < SKILL_NEAR * (min(known) - chance):
        return (
            f"Around the deletion it no longer does its task: {near['metric']} {after:.3f} on {near['count']:,} "
            f"{near['what']}, {min(known):.3f} before the deletion or after retraining."
        )
    return ""


def _headline(case: Case, forgetting: dict[str, Any], by_query: dict[str, str | None]) -> tuple[str, str]:
    if not forgetting["available"]:
        return "undecided", f"Forgetting could not be tested: {forgetting['reason']}."
    # a deleted node, or one without its features, is blank in the graph as served, where nothing of it can be asked
    deletion = case.deletion
    blank = not deletion.edges.size(1) and bool(deletion.nodes.numel() or deletion.features.size(1))
    if case.task.name == "node":
        blank = bool(deletion.nodes.numel() or deletion.features.size(1))
    for name in ("old_id", "served") if blank else ("served", "old_id"):
        if by_query.get(name) is not None:
            return str(by_query[name]), forgetting["heldout"][name]["sentence"]
    return "undecided", "No graph could be asked about the deleted elements."


def _warnings(word: str, by_query: dict[str, str | None], tests: dict[str, Any], utility: dict[str, Any]) -> list[str]:
    found = []
    names = {"old_id": "presented again under their old ids", "new_id": "presented again under new ids"}
    if word != "ruined":
        for name, said in names.items():
            if by_query.get(name) not in (None, "indistinguishable", "undecided") and by_query[name] != word:
                found.append(f"When deleted elements are {said}, they are {by_query[name]}. {tests[name]['sentence']}")
    near = utility.get("near", {"available": False})
    if near["available"] and word != "ruined":
        values = near[near["metric"]]
        known = [values[key] for key in ("before", "reference") if values.get(key) is not None]
        if values.get("after") is not None and known and min(known) - values["after"] > 0.05:
            found.append(
                f"Near the deletion the model has lost: {near['metric']} {values['after']:.3f} on {near['count']:,} "
                f"{near['what']}, {min(known):.3f} before or retrained."
            )
    return found
