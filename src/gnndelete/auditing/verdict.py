"""The verdict in plain words. Utility is judged first: a ruined model forgets everything, and that is worth nothing."""

from __future__ import annotations

from typing import Any

from gnndelete.auditing.case import Case
from gnndelete.auditing.judging import apart, attacked, opposite, other_training, spread_otherwise, title, trend_told
from gnndelete.auditing.ruin import ruined

TITLES = {
    "ruined": "The model is ruined",
    "under-forgotten": "Under-forgotten: the deleted data can still be recognised",
    "over-forgotten": "Over-forgotten: the deleted data stand out by low scores",
    "undecided": "Undecided",
}

#: The graphs on which deleted elements may be asked about, in words.
ASKED = {
    "served": "as served",
    "old_id": "presented again under their old ids",
    "new_id": "presented again under new ids",
}


def verdict(
    case: Case,
    utility: dict[str, Any],
    forgetting: dict[str, Any],
    membership: dict[str, Any],
    trend: dict[str, Any],
    distance: dict[str, Any],
    still_there: int,
    only_reported: str | None,
    learned: str = "",
) -> dict[str, Any]:
    """The word, its reasons, and the verdict of each graph that can be asked.

    ``doubts`` names the graphs whose own verdict speaks against the word; they take its tick away. ``learned`` is what is said
    of test elements that the model was trained on.
    """
    tests = forgetting.get("unseen", {})
    by_query: dict[str, str | None] = {
        name: test["verdict"] if test["available"] else None for name, test in tests.items()
    }
    (ruin, perhaps), asked = ruined(case, utility), None
    if ruin:
        word, sentence = "ruined", ruin
    elif still_there:
        word = "under-forgotten"
        sentence = f"The graph it is served on still holds {still_there:,} of the deleted elements."
    elif only_reported:
        word, sentence = "under-forgotten", only_reported
    else:
        asked, word, sentence = _headline(case, forgetting, by_query)
        against = attacked(membership) if word == "indistinguishable" else None
        if against is not None:
            word, sentence = against[0], f"{sentence} But {against[1]}."
        doubt = spread_otherwise(distance) if word == "indistinguishable" else None
        if doubt is not None:
            word, sentence = "undecided", f"{sentence} But {doubt}."
        if perhaps and word == "indistinguishable":  # a ruined model forgets everything
            word, sentence, perhaps = "undecided", f"{sentence} But {perhaps}.", ""
    doubts = [
        name
        for name in ("served", "old_id")
        if word == "indistinguishable" and by_query.get(name) in ("under-forgotten", "over-forgotten")
    ]
    told = (
        perhaps and f"{perhaps[0].upper()}{perhaps[1:]}.",
        apart(tests.get("served") or {}),
        opposite(word, forgetting.get("ranking") or {}),
        trend_told(trend),
        other_training(distance),
        learned,
    )
    return {
        "word": word,
        "title": _title(word, asked, tests, doubts),
        "sentence": sentence,
        "warnings": [
            *_warnings(case, word, by_query, tests, utility),
            *(said for said in told if said and word != "ruined"),
        ],
        "by_query": by_query,
        "doubts": doubts,
    }


def _title(word: str, asked: str | None, tests: dict[str, Any], doubts: list[str]) -> str:
    if word != "indistinguishable" or asked is None:
        return TITLES[word]
    said = title(tests[asked])
    return f"{said}, {ASKED[asked]}; but not {' or '.join(ASKED[name] for name in doubts)}" if doubts else said


def _headline(case: Case, forgetting: dict[str, Any], by_query: dict[str, str | None]) -> tuple[str | None, str, str]:
    """The graph that decides, its verdict and why."""
    if not forgetting["available"]:
        return None, "undecided", f"Forgetting could not be tested: {forgetting['reason']}."
    for name in ("old_id", "served") if case.blank else ("served", "old_id"):
        if by_query.get(name) is not None:
            return name, str(by_query[name]), forgetting["unseen"][name]["sentence"]
    return None, "undecided", "No graph could be asked about the deleted elements."


def _warnings(
    case: Case, word: str, by_query: dict[str, str | None], tests: dict[str, Any], utility: dict[str, Any]
) -> list[str]:
    found = []
    if word != "ruined":
        for name, said in ASKED.items():
            if by_query.get(name) in (None, "indistinguishable", "undecided", word):
                continue
            kept = case.unlearned.adapter is not None and name == "new_id"
            expected = " This is to be expected: operators know rows, and the weights are unchanged." if kept else ""
            found.append(f"Deleted elements {said} are {by_query[name]}. {tests[name]['sentence']}{expected}")
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
