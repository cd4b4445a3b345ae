"""By which call in Python a method of an experiment can be had: a label alone does not say with which settings it was run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gnndelete.bench.cells import make_method
from gnndelete.bench.formats import plain
from gnndelete.bench.gathered import Result
from gnndelete.bench.wording import method_name
from gnndelete.comparison import settings_that_differ


def call_of(cell: Result) -> str:
    """The shortest call that makes the method of a cell; what it takes from the schedule of the cell is left out."""
    schedule = json.loads(cell.place.setting).get("train") or {} if cell.place.setting else {}
    return call(cell.method, schedule)


def call(method: Mapping[str, Any], schedule: Mapping[str, Any] | None = None) -> str:
    """
    >>> call({"name": "gnndelete", "lam": 0.2})
    'GNNDelete(lam=0.2)'
    >>> call({"name": "gnndelete", "aim": "nonexistent", "lam": 0.5, "operator": "shared", "targets": "original"})
    'GNNDelete.paper()'
    >>> call({"name": "retrain", "epochs": 50, "lr": 0.01}, {"epochs": 50, "lr": 0.001})
    'Retrain(lr=0.01)'
    """
    made = make_method(method)
    trains = made.needs == "a training function"
    preset, apart = settings_that_differ(made, schedule if trains else None)
    said = ", ".join(f"{name}={value!r}" for name, value in apart.items())
    return f"{type(made).__name__}{f'.{preset}' * bool(preset)}({said})"


def settings_table(results: Sequence[Result]) -> str:
    """Every label with its call, where that is not the method's name and nothing else."""
    found: dict[str, dict[str, None]] = {}
    for cell in results:
        made = call_of(cell)
        if not made.endswith("()") or cell.method.get("name") == "gnndelete":
            found.setdefault(cell.label, {})[made] = None
    if not found:
        return ""
    rows = [
        f"| {plain(method_name(label))} | {' or '.join(f'`{made}`' for made in calls)} |"
        for label, calls in found.items()
    ]
    return "\n".join(
        ["## Settings", "", "What is not named has its default.", "", "| method | in Python |", "| --- | --- |", *rows]
    )
