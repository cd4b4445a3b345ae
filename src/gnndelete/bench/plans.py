"""Experiment files as the report sees them."""

from __future__ import annotations

from collections.abc import Iterable

from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import find
from gnndelete.bench.gathered import Plan


def plans(names: Iterable[str], device: str, seeds: int | None = None) -> list[Plan]:
    """Experiments by name, by group or from files of your own; all where none is named."""
    return [
        Plan(each.name, each.title, cells(each, device, seeds), each.published, each.missing, each.about)
        for each in find(names)
    ]
