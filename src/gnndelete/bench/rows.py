"""The store of a benchmark as it is read: a row that is no result is a failure that names its line, never a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from os import PathLike
from typing import Any

from gnndelete.bench.cells import Cell
from gnndelete.errors import SettingError
from gnndelete.io.store import Store

#: The kind of error of a row that is no result.
BROKEN = "BrokenRow"

_NUMBERS = ("seconds", "train_seconds", "wall_seconds", "parameters", "peak_mb", "lam")


def open_store(path: str | PathLike[str]) -> Store:
    """The rows of a file; those with something else where a number belongs count as failed.

    A line whose key is that of no cell is refused: nobody would ever ask for it, so that it would be lost without a word.
    """

    def read(key: Any, row: dict[str, Any], line: int) -> dict[str, Any]:
        said = stray(key)
        if said:
            raise SettingError(
                f"line {line} of the store '{path}' is no result: {said}; remove or repair line {line}, or give another file"
            )
        return sound(row, line)

    return Store(path, read)


def stray(key: object) -> str:
    """Why a key is not that of a cell; empty where it is.

    >>> stray(5)
    'its key is no cell (5)'
    >>> stray({"format": 1})
    "its key has no 'device'"
    """
    if not isinstance(key, dict):
        return f"its key is no cell ({repr(key)[:40]})"
    lacking = next((name for name in _KEY if name not in key), None)
    if lacking:
        return f"its key has no '{lacking}'"
    for name, inside in _WITHIN.items():
        if not isinstance(key[name], dict) or inside not in key[name]:
            return f"the '{name}' of its key has no '{inside}'"
    return "" if isinstance(key["measures"], list) else "the 'measures' of its key are no list"


#: What the key of a cell has, and what its parts have at least.
_KEY = ("format", "device", "dataset", "task", "model", "train", "seed", "forget", "method", "measures")
_WITHIN = {"model": "name", "train": "epochs", "forget": "amount", "method": "name"}


def broken(cells: Iterable[Cell], store: Store) -> list[dict[str, str]]:
    """Which of these cells have a row that is no result, each once, and what is wrong with it."""
    found = {str(cell): row["error"] for cell in cells if (row := store.get(cell.key)) and row.get("kind") == BROKEN}
    return [{"cell": cell, "error": error} for cell, error in found.items()]


def sound(row: dict[str, Any], line: int) -> dict[str, Any]:
    """A row as it is, or in its place the failure that says what is wrong with it.

    >>> sound({"scores": {"test_auroc": 0.9}}, 3)
    {'scores': {'test_auroc': 0.9}}
    >>> sound({"scores": {"test_auroc": "abc"}}, 3)["error"]
    "line 3 of the store is no result: its test_auroc is no number ('abc'); repair the line, or run with --retry-failed"
    """
    said = "" if "error" in row else flaw(row)
    if not said:
        return row
    way = "repair the line, or run with --retry-failed"
    return {**row, "error": f"line {line} of the store is no result: {said}; {way}", "kind": BROKEN}


def flaw(row: Mapping[str, Any]) -> str:
    """What is wrong with the row of a finished cell; null stands for what could not be measured, and is sound."""
    if not isinstance(row.get("scores"), dict):
        return "it has neither scores nor an error"
    said = row.get("hardware")
    if said is not None and not (isinstance(said, dict) and isinstance(said.get("jobs", 1), int | None)):
        return f"its hardware is none that a run writes ({repr(said)[:40]})"
    if not all(isinstance(note, dict) and {"code", "text"} <= note.keys() for note in row.get("notes") or ()):
        return "its notes have no codes"
    for name, part in _parts(row):
        if not isinstance(part, dict):
            return f"its {name} are no numbers by name ({repr(part)[:40]})"
        wrong = next(((each, value) for each, value in part.items() if not _is_number(value)), None)
        if wrong:
            return f"its {wrong[0]} is no number ({repr(wrong[1])[:40]})"
    return ""


def _parts(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Whatever of a row has to be numbers by name; those of a step may stand under a name of their own."""
    yield "costs", {name: row.get(name) for name in _NUMBERS}
    yield from ((name, row.get(name) or {}) for name in ("scores", "before", "seconds_of"))
    steps = row.get("steps") or []
    for step in steps if isinstance(steps, list) else [steps]:
        yield "steps", step.get("scores", step) if isinstance(step, dict) else step


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value))
