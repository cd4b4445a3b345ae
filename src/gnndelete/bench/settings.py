"""By which call in Python a method of an experiment can be had: a label alone does not say with which settings it was run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gnndelete.bench.cells import LATER, method_class
from gnndelete.bench.formats import plain
from gnndelete.bench.gathered import Result
from gnndelete.bench.wording import method_name


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
    kind = method_class(str(method["name"]))
    takes = inspect.signature(kind).parameters
    usual = {name: parameter.default for name, parameter in takes.items()} | LATER.get(kind.name, {})
    if kind.needs == "a training function":
        usual |= {name: value for name, value in (schedule or {}).items() if name in usual}
    given = {name: value for name, value in method.items() if name in takes}
    shortest = {name: value for name, value in given.items() if value != usual[name]}
    called = kind.__name__
    for name, preset in vars(kind).items():
        if isinstance(preset, classmethod) and name[0] != "_":
            asked = _preset(getattr(kind, name), usual | given)
            if asked is not None and len(asked) < len(shortest):
                called, shortest = f"{kind.__name__}.{name}", asked
    return f"{called}({', '.join(f'{name}={value!r}' for name, value in shortest.items())})"


def _preset(make: Any, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a preset has to be given to have these settings; None where it cannot have them."""
    takes = inspect.signature(make).parameters
    asked = {name: wanted[name] for name, each in takes.items() if name in wanted and wanted[name] != each.default}
    made = make(**asked).settings()
    return asked if all(made.get(name) == value for name, value in wanted.items() if name in made) else None


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
