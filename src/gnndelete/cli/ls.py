"""``gnndelete ls``: the datasets, models, methods and tasks that can be named."""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = {
    "datasets": ("name", "nodes", "edges", "features", "classes", "relations", "source"),
    "models": ("name", "description"),
    "methods": ("name", "assurance", "needs", "description"),
    "tasks": ("name", "description"),
}
#: Columns of a terminal below which there is no room for where a dataset comes from.
_WIDE = 110
_MORE = {
    "datasets": "A graph of your own: --graph PATH (tables with your own ids, or a file of torch.save).",
    "models": "A model of your own: --model file.py:factory or package.module:factory.",
}


class Kind(StrEnum):
    """What can be listed."""

    DATASETS = "datasets"
    MODELS = "models"
    METHODS = "methods"
    TASKS = "tasks"


def ls(
    kind: Annotated[Kind | None, typer.Argument(help="What to list; everything when left out.")] = None,
    json: options.Json = False,
) -> Report:
    """List the datasets, models, methods and tasks that can be named."""
    found = {"datasets": _datasets, "models": _models, "methods": _methods, "tasks": _tasks}
    values = {name: listing() for name, listing in found.items() if kind in (None, name)}
    return Report(values, lambda console: _show(console, values))


def _datasets() -> list[dict[str, Any]]:
    from gnndelete.datasets.registry import ENTRIES  # which needs no torch, as whatever lies in gnndelete.datasets does

    return [{name: getattr(entry, name) for name in _COLUMNS["datasets"]} for entry in ENTRIES.values()]


def _models() -> list[dict[str, Any]]:
    from gnndelete.models import resolver

    return [{"name": name, "description": _first(kind)} for name, kind in sorted(resolver.lookup_dict.items())]


def _methods() -> list[dict[str, Any]]:
    from gnndelete.methods import resolver

    return [
        {"name": name, "assurance": kind.assurance, "needs": kind.needs, "description": kind.summary or _first(kind)}
        for name, kind in sorted(resolver.lookup_dict.items())
    ]


def _tasks() -> list[dict[str, Any]]:
    from gnndelete.tasks import resolver

    return [{"name": kind.name, "description": _first(kind)} for kind in resolver.lookup_dict.values()]


def _first(kind: type) -> str:
    """The first paragraph's first sentence of a docstring."""
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].replace("``", "").split())
    return text if len(text) <= 120 else text[: text.find(". ") + 1] or text


def _show(console: Console, values: dict[str, list[dict[str, Any]]]) -> None:
    from rich.table import Table

    for kind, entries in values.items():
        console.print(kind, style="bold")
        table = Table()
        columns = [name for name in _COLUMNS[kind] if name != "source" or console.width >= _WIDE]
        for column in columns:
            numeric = bool(entries) and isinstance(entries[0][column], int)
            table.add_column(column, justify="right" if numeric else "left", no_wrap=numeric or column == "name")
        for entry in entries:
            table.add_row(*(f"{entry[c]:,}" if isinstance(entry[c], int) else entry[c] for c in columns))
        console.print(table)
        if kind in _MORE:
            console.print(_MORE[kind], markup=False)
