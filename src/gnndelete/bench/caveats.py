"""What a number is not: calibrated after all, timed by today's rule, or taken from the model that Retrain stands beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gnndelete.bench.cells import search_rule
from gnndelete.bench.gathered import Result, Row, references
from gnndelete.bench.reasons import noted
from gnndelete.bench.wording import listed, many, method_name

#: How the note of a deletion begins whose lam was to be calibrated and could not be.
_STATED = "lam was not calibrated"

#: Scores of a model before the deletion that tell one training from another, and what is no more than rounding on a GPU.
_TELLING, _ROUNDING = ("test_auroc", "test_accuracy"), 1e-4


def stated(row: Row) -> bool:
    """Whether lam was to be calibrated, could not be, and is a number that was stated beforehand."""
    return (row.get("calibration") or {}).get("status") == "fallback"


def why_stated(cell: Result) -> str:
    """Why the lam of a cell is no calibrated one; empty where it is, or was never to be."""
    rows = [row for row in cell.rows.values() if stated(row)]
    return (noted(rows, _STATED) or f"{_STATED}.") if rows else ""


def calibrated_apart(cells: Iterable[Result]) -> list[Result]:
    """The cells; runs that could not be calibrated go by a name that says so, and count as no others."""
    found = []
    for cell in cells:
        parts = [{seed: row for seed, row in cell.rows.items() if stated(row) is flag} for flag in (False, True)]
        if parts[0] or not parts[1]:
            found.append(replace(cell, rows=parts[0]) if parts[1] else cell)
        if parts[1]:
            label, method = f"{method_name(cell.label)}, lam stated", {**cell.method, "lam": "stated"}
            found.append(replace(cell, label=label, method=method, rows=parts[1], errors={}))
    return found


def of_today(cell: Result) -> Result:
    """A cell without times of a search for lam that went by another rule than today's: such times do not belong together."""
    searched = [seed for seed, row in cell.rows.items() if "calibrated" in (row.get("seconds_of") or {})]
    if not searched:
        return cell
    rule, rows = search_rule(cell.method, cell.place.task, cell.place.model), dict(cell.rows)
    for seed in searched:
        row = rows[seed]
        if row.get("search_rule") not in (None, rule):
            kept = {name: value for name, value in row["seconds_of"].items() if name != "calibrated"}
            rows[seed] = {**row, "seconds_of": kept, "outdated": True}
    return replace(cell, rows=rows)


def outdated(results: Iterable[Result]) -> str:
    """How many times of a search were left out since it goes otherwise today; empty where none was."""
    count = sum(bool(row.get("outdated")) for result in results for row in result.rows.values())
    return (
        f"In {many(count, 'run')} the time of a calibrated deletion is left out: an earlier rule chose lam."
        if count
        else ""
    )


def other_bases(results: Sequence[Result], label: str | None = None) -> str:
    """Which methods did not start from the very model that Retrain's row stands beside, and how far apart the two are.

    A base model that is trained again, in another session, is another one: on a GPU not even the same seed gives the same.
    """
    retrained = references(results)
    every, others, most = 0, 0, 0.0
    who: dict[str, None] = {}
    for cell in results:
        reference = retrained.get(cell.place.rest)
        if reference is None or cell is reference or label not in (None, cell.label):
            continue
        for seed in cell.rows.keys() & reference.rows.keys():
            far = _apart(cell.rows[seed], reference.rows[seed])
            if far is not None:
                every += 1
                if far > _ROUNDING:
                    others, most = others + 1, max(most, far)
                    who[method_name(cell.label)] = None
    if not others:
        return ""
    return (
        f"{others:,} of {many(every, 'run')} ({listed(who)}) started from another training of the base model, by the same "
        f"settings and seed, than the Retrain beside them: before the deletion the two differ by up to {most:.3f} in "
        "the score of the task. So much of a gap may be the chance of two trainings."
    )


def _apart(row: Row, other: Row) -> float | None:
    for name in _TELLING:
        mine, theirs = ((each.get("before") or {}).get(name) for each in (row, other))
        if isinstance(mine, int | float) and isinstance(theirs, int | float):
            return abs(mine - theirs)
    return None
