"""Options that say what to forget, for every verb that deletes: `asking` adds them to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from gnndelete.cli.report import Report

_WHAT = "What to forget"

Edges = Annotated[
    Path | None, typer.Option(help="CSV with columns source,target, in your own ids.", rich_help_panel=_WHAT)
]
Nodes = Annotated[Path | None, typer.Option(help="CSV with a column node.", rich_help_panel=_WHAT)]
Edge = Annotated[
    list[str] | None, typer.Option(metavar="U,V", help="One edge; can be repeated.", rich_help_panel=_WHAT)
]
Node = Annotated[list[str] | None, typer.Option(metavar="ID", help="One node; can be repeated.", rich_help_panel=_WHAT)]
Graphs = Annotated[
    Path | None,
    typer.Option("--graphs", help="CSV with a column graph: positions of whole graphs.", rich_help_panel=_WHAT),
]
OneGraph = Annotated[
    list[int] | None,
    typer.Option("--graph", metavar="ID", help="One whole graph; can be repeated.", rich_help_panel=_WHAT),
]
Features = Annotated[
    Path | None, typer.Option(help="CSV with a column node, and column for some features alone.", rich_help_panel=_WHAT)
]
Labels = Annotated[
    Path | None, typer.Option(help="CSV with a column node: whose labels to forget.", rich_help_panel=_WHAT)
]
Feature = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID[,COLUMN]", help="Features of a node, or one of them; can be repeated.", rich_help_panel=_WHAT
    ),
]
Label = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="The label of one node; can be repeated.", rich_help_panel=_WHAT)
]
Fill = Annotated[
    float | None, typer.Option(help="What replaces deleted features; 0 by default.", rich_help_panel=_WHAT)
]
Random = Annotated[
    float | None, typer.Option(help="Draw a share (below 1) or a number of elements.", rich_help_panel=_WHAT)
]
Relation = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="All edges of one relation; can be repeated.", rich_help_panel=_WHAT),
]
Kind = Annotated[str | None, typer.Option(help="With --random: edges, nodes or graphs.", rich_help_panel=_WHAT)]
Where = Annotated[
    str | None,
    typer.Option(
        help="With --random: in or out of the test edges' 2-hop neighbourhood, hubs, or community.",
        rich_help_panel=_WHAT,
    ),
]
Hops = Annotated[
    str | None, typer.Option(help="With --where: undirected, or directed as in the paper.", rich_help_panel=_WHAT)
]
DrawSeed = Annotated[int | None, typer.Option(help="With --random: seed.", rich_help_panel=_WHAT)]

#: All of them by their names, in the order that --help shows.
OPTIONS: dict[str, Any] = {
    "edges": Edges,
    "nodes": Nodes,
    "edge": Edge,
    "node": Node,
    "graphs": Graphs,
    "graph": OneGraph,
    "features": Features,
    "labels": Labels,
    "feature": Feature,
    "label": Label,
    "fill": Fill,
    "relation": Relation,
    "random": Random,
    "kind": Kind,
    "where": Where,
    "hops": Hops,
    "draw_seed": DrawSeed,
}


def asking(verb: Callable[..., Report]) -> Callable[..., Report]:
    """The verb with all these options in place of its argument ``request``, which gets them as settings."""

    @wraps(verb)
    def asked(**given: Any) -> Report:
        named = {name: given.pop(name, None) for name in OPTIONS}
        return verb(request=_settings(**named), **given)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        if parameter.name != "request":
            parameters.append(parameter)
            continue
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters += [inspect.Parameter(name, kind, default=None, annotation=of) for name, of in OPTIONS.items()]
    asked.__signature__ = inspect.Signature(parameters, return_annotation=Report)  # type: ignore[attr-defined]
    asked.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return asked


def _settings(
    edge: list[str] | None,
    node: list[str] | None,
    feature: list[str] | None,
    label: list[str] | None,
    relation: list[str] | None,
    graph: list[int] | None,
    random: float | None,
    draw_seed: int | None,
    **same: Any,
) -> dict[str, Any]:
    """What is to be forgotten, as settings; None where an option was not given."""
    files = {f"deletion.{name}_csv": same.pop(name) for name in ("edges", "nodes", "graphs", "features", "labels")}
    return {
        **files,
        "deletion.edges": _pairs(edge or ()) or None,
        "deletion.nodes": [name.strip() for name in node or ()] or None,
        "deletion.graphs": list(graph or ()) or None,
        "deletion.features": _pairs(feature or (), "features are written node or node,column, such as --feature 3,7")
        or None,
        "deletion.labels": [name.strip() for name in label or ()] or None,
        "deletion.relations": [name.strip() for name in relation or ()] or None,
        "deletion.random": _amount(random),
        "deletion.seed": draw_seed,
        **{f"deletion.{name}": value for name, value in same.items()},
    }


def _pairs(texts: Iterable[str], form: str = "an edge is written source,target, such as --edge 0,5") -> list[list[str]]:
    """The cells of edges or features as a line of a CSV file has them, so that an id can hold a comma."""
    import csv

    from gnndelete.errors import DeletionError

    pairs = []
    for text in texts:
        try:
            rows = list(csv.reader([text], strict=True, skipinitialspace=True))
        except csv.Error as error:
            raise DeletionError(f"{form} (got {text}: {error})") from None
        pairs.append([cell.strip() for cell in rows[0]] if rows else [])
    return pairs


def _amount(random: float | None) -> int | float | None:
    """A whole number of elements, or a share of them."""
    return int(random) if random is not None and random >= 1 and random.is_integer() else random
