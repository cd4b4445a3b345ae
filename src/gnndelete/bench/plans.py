"""Experiment files as the report sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gnndelete.bench.cells import Cell, cells
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
    twins = _twins(each, wanted, device)
    return Plan(each.name, each.title, wanted, each.published, each.missing, each.about, source, twins, each.summary)


def _twins(each: Experiment, wanted: Sequence[Cell], device: str) -> dict[str, str]:
    """Methods without a cell of their own, because another of the experiment has the same settings."""
    known = {cell.label for cell in wanted}
    owners = {cell.digest: cell.label for cell in wanted}
    found = {}
    for spec in each.methods:
        if spec.title not in known:
            alone = cells(each.model_copy(update={"methods": [spec]}), device, 1)
            if alone and alone[0].digest in owners:
                found[spec.title] = owners[alone[0].digest]
    return found
