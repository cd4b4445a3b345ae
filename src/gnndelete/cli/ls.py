"""``gnndelete ls``: the datasets, models, methods and tasks that can be named."""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, table

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = {
    "datasets": ("name", "nodes", "edges", "features", "classes", "relations", "source"),
    "models": ("name", "description"),
    "methods": ("name", "assurance", "weights", "needs", "description"),
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
    values = {str(name): _entries(str(name)) for name in Kind if kind in (None, name)}
    return Report(values, lambda console: _show(console, values))


def _entries(kind: str) -> list[dict[str, Any]]:
    if kind == "datasets":
        from gnndelete.datasets.registry import ENTRIES  # which needs no torch

        return [{name: getattr(entry, name) for name in _COLUMNS[kind]} for entry in ENTRIES.values()]
    from gnndelete import methods, models, tasks

    known = {"models": models, "methods": methods, "tasks": tasks}[kind].resolver.lookup_dict
    known = {each.name: each for each in known.values()} if kind == "tasks" else known
    described = [(name, each, getattr(each, "summary", "") or _first(each)) for name, each in sorted(known.items())]
    return [
        {"name": name, **{column: getattr(each, column) for column in _COLUMNS[kind][1:-1]}, "description": text}
        for name, each, text in described
    ]


def _first(kind: type) -> str:
    """The first paragraph's first sentence of a docstring."""
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].replace("``", "").split())
    return text if len(text) <= 120 else text[: text.find(". ") + 1] or text


def _show(console: Console, values: dict[str, list[dict[str, Any]]]) -> None:
    for kind, entries in values.items():
        console.print(kind, style="bold")
        columns = [name for name in _COLUMNS[kind] if name != "source" or console.width >= _WIDE]
        console.print(table(columns, [[entry[column] for column in columns] for entry in entries]))
        if kind in _MORE:
            console.print(_MORE[kind], markup=False)
