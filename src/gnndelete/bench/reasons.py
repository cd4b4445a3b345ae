"""Why a cell that was run has no number, or one of fewer seeds than it has rows: what its rows say about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnndelete.bench.gathered import Result, Row, hardware
from gnndelete.bench.wording import listed, method_name, model_titles

#: What a measure adds to the scores of a row, and how its note begins where it could not be taken.
GIVEN = {
    "unseen": (("unseen_auc",), "No unseen AUC"),
    "mi": (("mi_ratio", "mi_auc"), "No membership attack"),
    "outliers": (("outlier_share", "regular_share"), "No detection of outliers"),
}

#: How the note of one score begins, where the others of its measure could be taken.
_ALONE = {"mi_auc": "No MI AUC"}

#: What null stands for, where a measure was taken and a score still has no value.
_NULL = {
    "mi_ratio": "the attack takes no deleted element for a member after the deletion (probability 0), and 0 cannot divide"
}

#: How the notes of methods begin that served a request and forgot nothing by it: a number like that of Unlink.
_IDLE = ("The loss did not rise", "No training term lies near the deletion")

#: How the note of a row begins where edges IN are all there are.
ALL_INSIDE = "All training edges are IN here"

#: What is said of a cell without any row.
UNRUN = "the store holds no run of it"


def noted(rows: Iterable[Row], begins: str) -> str:
    """The reason that most of these rows give in a note of this beginning; empty where none does."""
    notes = [str(text) for row in rows for text in row.get("notes") or () if str(text).startswith(begins)]
    return max(sorted(set(notes)), key=notes.count) if notes else ""


def grouped(results: Sequence[Result]) -> list[str]:
    """Who has no number and why, one sentence for every reason; nobody is named where it is the same for all."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    models = model_titles(result.place.variant for result in results)
    for result in results:
        if result.state != "done" or result.reason:
            state = "failed" if result.errors and result.rows else result.state
            who = f"{method_name(result.label)} ({models[result.place.variant]})"
            reason = result.reason or UNRUN * (state == "not run")
            found.setdefault((state, reason), {})[who] = None
    everyone = len(found) == 1 and not any(result.rows for result in results)
    return [
        f"{'' if everyone else f'{listed(who)}: '}{state}{f': {reason.rstrip(chr(46))}' if reason else ''}."
        for (state, reason), who in found.items()
    ]


def unmeasured(cell: Result, metric: str) -> str:
    """Why a score has no value in some rows of a cell; empty where all have one, or nothing asked for it."""
    begins = next((begins for scores, begins in GIVEN.values() if metric in scores), None)
    known = cell.values(metric)
    without = [row for seed, row in cell.rows.items() if seed not in known]
    if begins is None or not without or not _asked(cell, metric):
        return ""
    said = (
        noted(without, begins)
        or noted(without, _ALONE.get(metric, begins))
        or _NULL.get(metric, "no reason was recorded")
    )
    return f"{len(without)} of {len(cell.rows)} seeds have no number: {said}" if known else said


def idle(cell: Result) -> str:
    """What the rows of a method say that forgot nothing, and how many of them; empty where none does."""
    said = [note for begins in _IDLE for row in cell.rows.values() if (note := noted([row], begins))]
    if not said:
        return ""
    few = f"In {len(said)} of {len(cell.rows)} seeds: " if len(said) < len(cell.rows) else ""
    return few + max(sorted(set(said)), key=said.count)


def _asked(cell: Result, metric: str) -> bool:
    """Whether a measure that gives this score was asked for; a regular share is for edges alone."""
    return any(metric in GIVEN[name][0] for name in cell.measures if name in GIVEN) and (
        metric != "regular_share" or cell.place.kind == "edges"
    )


def unpaired(cell: Result, reference: Result | None) -> str:
    """Why two times do not make a ratio: they were not taken on the same machine with the same number of processes."""
    if reference is None or not cell.values("seconds") or not reference.values("seconds"):
        return ""
    if cell.ratios(reference):
        return ""
    mine, theirs = _paces(list(cell.rows.values())), _paces(list(reference.rows.values()))
    return f"no ratio: timed {mine}, and Retrain {theirs}" if mine != theirs else ""


def _paces(rows: Sequence[Row]) -> str:
    """On what, and beside how many others, times were taken."""
    said = sorted({hardware(row) for row in rows}, key=str)
    return " or ".join(
        f"in {jobs or 1} process{'es' * ((jobs or 1) > 1)} at a time on {name}"
        + (f" with {threads} thread{'s' * (threads > 1)} each" if threads else "")
        for name, jobs, threads in said
    )


def kept_to(results: Sequence[Result]) -> str:
    """Which methods an experiment asks for with some of its models alone; where it does not, tables have a dash."""
    titles = model_titles(result.place.variant for result in results)
    asked: dict[str, dict[str, None]] = {}
    for result in results:
        asked.setdefault(result.label, {})[titles[result.place.variant]] = None
    groups: dict[str, list[str]] = {}
    for label, models in asked.items():
        if len(models) < len(set(titles.values())):
            groups.setdefault(listed(models), []).append(method_name(label))
    return " ".join(
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} asked for with {models} alone."
        for models, names in groups.items()
    )
