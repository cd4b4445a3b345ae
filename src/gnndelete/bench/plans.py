"""Experiment files as the report sees them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import Experiment, find
from gnndelete.bench.gathered import Plan
from gnndelete.errors import SettingError


def plans(names: Iterable[str], device: str, seeds: int | None = None) -> list[Plan]:
    """Experiments by name, by group or from files of your own; all where none is named."""
    asked = list(dict.fromkeys(names))
    found: dict[tuple[str, str], Plan] = {}
    for name in asked or [""]:
        source = name if name.endswith((".yaml", ".yml")) else ""
        file = str(Path(source).resolve()) if source else ""
        for each in find([name] if name else []):
            if (file, each.name) not in found:
                found[file, each.name] = _plan(each, source, device, seeds)
    _check_apart(found.values())
    return list(found.values())


def _check_apart(found: Iterable[Plan]) -> None:
    """Refuse experiments that would write the same files: the second would take the place of the first without a word."""
    owners: dict[str, str] = {}
    for plan in found:
        name, source = plan.name.replace("/", "-"), plan.source or plan.name
        if name in owners:
            raise SettingError(
                f"'{owners[name]}' and '{source}' would write the same files ({name}); rename one of them, or report them "
                "into two folders"
            )
        owners[name] = source


def _plan(each: Experiment, source: str, device: str, seeds: int | None) -> Plan:
    wanted = cells(each, device, seeds)
    return Plan(each.name, each.title, wanted, each.published, each.missing, each.about, source, summary=each.summary)
