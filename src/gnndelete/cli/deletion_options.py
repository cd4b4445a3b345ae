"""The options that name a deletion, for every verb that deletes, and the `Deletion` they mean on the graph of a run.

`deletion_options` adds the options to a verb, `read_request` turns their settings into a deletion, and `check_trained`
checks that the model was trained on it.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli.output import Report, note, plain
from gnndelete.errors import DeletionError, SettingError, some

if TYPE_CHECKING:
    from torch import Tensor

    from gnndelete.cli.settings import DeletionSettings
    from gnndelete.datasets import NamedGraph
    from gnndelete.graph.deletion import Deletion
    from gnndelete.graph.edge_table import EdgeTable
    from gnndelete.tasks import Task


def _option(kind: Any, text: str, *names: str, metavar: str | None = None) -> Any:
    """An option of the panel that says what to forget; None where it is not used."""
    return Annotated[kind | None, typer.Option(*names, help=text, metavar=metavar, rich_help_panel="What to forget")]


#: The options by name, in the order of --help.
OPTIONS: dict[str, Any] = {
    "edges": _option(Path, "CSV with columns source,target, in your own ids."),
    "nodes": _option(Path, "CSV with a column node."),
    "edge": _option(list[str], "One edge; can be repeated.", metavar="U,V"),
    "node": _option(list[str], "One node; can be repeated.", metavar="ID"),
    "graphs": _option(Path, "CSV with a column graph: positions of whole graphs.", "--graphs"),
    "graph": _option(list[int], "One whole graph; can be repeated.", "--graph", metavar="ID"),
    "features": _option(Path, "CSV with a column node; add a column named column to forget single features."),
    "labels": _option(Path, "CSV with a column node: whose labels to forget; add a column new with the right ones."),
    "feature": _option(list[str], "All features of a node, or one column; can be repeated.", metavar="ID[,COLUMN]"),
    "label": _option(
        list[str], "The label of one node, or what it should have been; can be repeated.", metavar="ID[,NEW]"
    ),
    "fill": _option(float, "Value that replaces deleted features; 0 by default."),
    "relation": _option(list[str], "All edges of one relation; can be repeated.", metavar="NAME"),
    "random": _option(float, "Draw a share (below 1) or a number of elements."),
    "kind": _option(str, "With --random: edges, nodes or graphs."),
    "where": _option(str, "With --random: in or out of the test edges' 2-hop neighbourhood, hubs, or community."),
    "hops": _option(str, "With --where: undirected, or directed as in the paper."),
    "draw_seed": _option(int, "With --random: seed."),
}


def deletion_options(verb: Callable[..., Report]) -> Callable[..., Report]:
    """Replace the argument ``request`` of a verb by all options above; the verb receives them as settings."""

    @wraps(verb)
    def with_options(**arguments: Any) -> Report:
        options = {name: arguments.pop(name, None) for name in OPTIONS}
        return verb(request=_settings(options), **arguments)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        if parameter.name != "request":
            parameters.append(parameter)
            continue
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters += [inspect.Parameter(name, kind, default=None, annotation=of) for name, of in OPTIONS.items()]
    with_options.__signature__ = inspect.Signature(parameters, return_annotation=Report)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """The options as settings by dotted name; None where an option is not used."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name in _FILES:
            values[f"{name}_csv"] = value
        elif name in _REPEATED:
            values[f"{name}s"] = [_element(name, text) for text in value or ()] or None
        else:
            values["seed" if name == "draw_seed" else name] = value
    return {f"deletion.{name}": value for name, value in values.items()}


_FILES = ("edges", "nodes", "graphs", "features", "labels")
_REPEATED = ("edge", "node", "graph", "feature", "label", "relation")
_FORMS = {
    "edge": "an edge is written source,target, such as --edge 0,5",
    "feature": "features are written node or node,column, such as --feature 3,7",
    "label": "a label is written node or node,new, such as --label 3,2",
}


def _element(option: str, text: Any) -> Any:
    """One element; an edge or features are read as a line of a CSV file, so that an id in quotes can hold a comma."""
    if option not in _FORMS:
        return text.strip() if isinstance(text, str) else text
    try:
        rows = list(csv.reader([text], strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise DeletionError(f"{_FORMS[option]} (got {text}: {error})") from None
    return [cell.strip() for cell in rows[0]] if rows else []


def read_request(settings: DeletionSettings, graph: NamedGraph, task: Task) -> Deletion:
    """The elements to delete from ``graph``, which earlier requests may have made smaller; in the ids of its user."""
    request = _across_types(_named(settings, graph), graph)
    if settings.fill and not request.features.size(1):
        raise SettingError(
            f"--fill says what replaces features, and none are named (got {settings.fill}); name --feature"
        )
    if settings.random is None:
        if not len(request):
            raise DeletionError(
                "nothing is named to be deleted; give --edges or --nodes FILE, --edge 0,5, --node 3, --feature 3, --label 3, "
                "--relation NAME, --graph 7, or --random 0.025"
            )
        return request
    if len(request):
        raise SettingError("elements are named and --random is given too; name what to delete, or have it drawn")
    return _drawn(settings, settings.random, graph, task)


def _across_types(request: Deletion, graph: NamedGraph) -> Deletion:
    """A request by type in ids across all types of a HeteroData; any other as it is."""
    from gnndelete.graph.validation import across_types

    return across_types(request, graph.data) if request.by_type else request


def _drawn(settings: DeletionSettings, amount: int | float, graph: NamedGraph, task: Task) -> Deletion:
    """Elements drawn at random."""
    from gnndelete.datasets.forget import forget_edges, forget_graphs, forget_nodes
    from gnndelete.graph.batch import GraphBatch
    from gnndelete.graph.deletion import Deletion

    data, kind, where, seed = graph.data, settings.kind, settings.where, settings.seed
    if amount >= 1 and amount != int(amount):
        raise SettingError(f"--random must be a share below 1 or a whole number (got {amount})")
    amount = int(amount) if amount >= 1 else amount
    if kind != "edges" and where != "random":
        raise SettingError(
            f"--where {where} says which edges are drawn, and --kind {kind} draws {kind} from all; leave one of them out"
        )
    if kind == "graphs":
        if not isinstance(data, GraphBatch):
            raise SettingError("--kind graphs draws whole graphs, and this run has one; leave it out")
        return Deletion(graphs=forget_graphs(data, amount, seed=seed))
    if kind == "nodes":
        return _on_types(Deletion(nodes=forget_nodes(data, amount, seed=seed)), data)
    test = task.unseen(data, "test") if task.pairwise else None
    if where in ("in", "out") and (test is None or not test.numel()):
        raise SettingError(f"--where {where} is relative to test edges, and this run has none; leave it out")
    return _on_types(Deletion(edges=forget_edges(data, amount, where, test=test, hops=settings.hops, seed=seed)), data)


def _on_types(request: Deletion, data: Any) -> Deletion:
    """A request that was drawn on the graph as the library holds it: on a HeteroData its ids count across all types."""
    from gnndelete.graph.hetero import HeteroGraph

    return request.replace(across_types=True) if isinstance(data, HeteroGraph) else request


def _named(settings: DeletionSettings, graph: NamedGraph) -> Deletion:
    """The elements that are named in place and in CSV files."""
    from gnndelete.graph.deletion import Deletion

    request = _in_place(settings, graph)
    if settings.graphs_csv is not None:
        request = request | Deletion(graphs=Deletion.from_csv(_from_here(settings.graphs_csv)).nodes)
    for kind in ("edges", "nodes", "features", "labels"):
        path = getattr(settings, f"{kind}_csv")
        if path is None:
            continue
        path = _from_here(path)
        of_nodes: Any = kind if kind in ("features", "labels") else None
        fill = settings.fill if kind == "features" else 0.0
        found = Deletion.from_csv(path, graph=graph, kind=of_nodes, fill=fill)
        if kind not in found.counts:
            other = next(iter(found.counts))
            raise DeletionError(f"'{path}' names {other}, and --{kind} takes {kind}; give it with --{other}")
        request = request | found
    return request


def _from_here(path: Path) -> Path:
    """The path as errors show it: relative where the file is below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _in_place(settings: DeletionSettings, graph: NamedGraph) -> Deletion:
    """The elements that are named on the command line or in a settings file; all bad ones are reported together."""
    from gnndelete.graph.deletion import Deletion

    bad: list[str] = []

    def parsed(option: str) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = {}
        for element in getattr(settings, f"{option}s"):
            cells = element if isinstance(element, list) else [element]
            try:
                of_type, rows = _rows(option, cells, graph)
                found.setdefault(of_type, []).extend(rows)
            except ValueError as error:
                bad.append(f"--{option} {','.join(map(str, cells))} ({error})")
        return found

    named = {option: parsed(option) for option in ("edge", "node", "label", "feature")}
    if bad:
        raise DeletionError(
            f"{len(bad)} of the elements to delete cannot be found in the graph: {some(bad, 20)}; correct or remove them"
        )
    whole = {kind: [row for row in rows if len(row) == 1] for kind, rows in named["feature"].items()}
    cells = {kind: [row for row in rows if len(row) == 2] for kind, rows in named["feature"].items()}
    request = Deletion(
        edges=_by_type(named["edge"]),
        nodes=_by_type(named["node"], single=True),
        relations=[_relation(name, graph) for name in settings.relations] or None,
        graphs=settings.graphs or None,
    )
    forgotten = {kind: [row for row in rows if len(row) == 1] for kind, rows in named["label"].items()}
    corrected = {kind: [row for row in rows if len(row) == 2] for kind, rows in named["label"].items()}
    if (chosen := _by_type(forgotten, single=True)) is not None:
        request = request | Deletion(labels=chosen)
    if (chosen := _by_type(corrected, single=True)) is not None:
        new = {kind: [row[1] for row in rows] for kind, rows in corrected.items()}
        request = request | Deletion(labels=chosen, replace=new.get(None, new))
    for rows, single in ((whole, True), (cells, False)):  # whole rows, and single columns
        if (chosen := _by_type(rows, single)) is not None:
            request = request | Deletion(features=chosen, fill=settings.fill)
    return request.with_names(graph.ids, graph.relations)


def _by_type(found: dict[Any, list[Any]], single: bool = False) -> Any:
    """Rows as `Deletion` takes them: by type where the graph has types, else as a list; None where there are none."""
    parts = {kind: [row[0] for row in rows] if single else rows for kind, rows in found.items() if rows}
    return parts.get(None) if None in parts else parts or None


def _rows(option: str, cells: list[Any], graph: NamedGraph) -> tuple[Any, list[tuple[int, ...]]]:
    """One element by the names of its nodes, or by their numbers where they have no names, and its type on a HeteroData.

    A column of texts is several columns of features, a row for each.
    """
    from gnndelete.datasets.requests import Names
    from gnndelete.graph.hetero import HeteroGraph

    hetero = isinstance(graph.data, HeteroGraph)
    form, example = {
        "edge": ("source,relation,target", "0,2,5") if "edge_type" in graph.data else ("source,target", "0,5"),
        "feature": ("node or node,column", "3,7"),
        "label": ("node or node,new label", "3,2"),
    }.get(option, ("node", "3"))
    if option == "edge" and graph.ids is not None and graph.ids.types and graph.tables is not None:
        table = graph.tables.edges[0]
        form = f"{table.source},{table.target}" if "edge_type" not in graph.data or hetero else form
        example = ",".join(graph.ids.of(kind).names[0] for kind in (table.source_type, table.target_type))
    widths = (
        (1, 2) if option in ("feature", "label") else (2, 3) if option == "edge" and hetero else (form.count(",") + 1,)
    )
    if len(cells) not in widths:
        quotes = "" if graph.ids is None else ", an id with a comma in quotes"
        raise ValueError(f"it is written {form}, such as --{option} {example}{quotes}")
    names = Names.of(graph)
    nodes, columns = (cells[:1], cells[1:]) if option in ("feature", "label") else (cells, [])
    if graph.ids is None:
        if hetero:
            raise ValueError(
                "nodes have numbers within their types here; delete them from Python, or give tables with ids"
            )
        if not all(isinstance(cell, int) or (cell.isascii() and cell.isdigit()) for cell in nodes):
            raise ValueError(f"nodes have numbers here, from 0, and no names: --{option} {example}")
        kind, found = None, tuple(map(int, nodes))
    else:
        number = next((cell for cell in nodes if isinstance(cell, int)), None)
        if number is not None:  # YAML has read it: 007 would be 7, and 010 be 8
            raise ValueError(f"ids of this graph are text, and {number} is a number: write it in quotes")
        if option == "edge":
            kind, found = names.edge(nodes)
        else:
            kind, node = names.node(nodes[0])
            found = (node,)
    if option == "label":
        return kind, [(*found, *map(names.new_label, map(str, columns)))]
    if columns:
        return kind, [(*found, column) for column in names.columns(str(columns[0]), found[0], kind)]
    return kind, [found]


def _relation(name: Any, graph: NamedGraph) -> Any:
    from gnndelete.graph.hetero import HeteroGraph

    if isinstance(graph.data, HeteroGraph):
        types = [kind[1] for kind in graph.data.types.forward()]
        if str(name) not in types:
            raise DeletionError(f"no relation of the graph is called {name!r}; there are {some(map(repr, types), 12)}")
        return str(name)
    if "edge_type" not in graph.data:
        raise DeletionError(
            f"--relation names {name!r}, and the graph has no relation types; name edges with --edge, or nodes with --node"
        )
    if graph.relations and name in graph.relations:
        return graph.relations.index(name)
    if graph.relations or not str(name).isdigit():
        known = some(map(repr, graph.relations)) or "numbers from 0"
        raise DeletionError(f"no relation of the graph is called {name!r}; there are {known}")
    return int(name)


def check_trained(
    request: Deletion, graph: NamedGraph, table: EdgeTable, task: Task, skip: bool = False
) -> tuple[Deletion, int]:
    """Check the request against the graph and what the model was trained on.

    Returns the request in the graph's own terms, and how many unseen edges were left out of it. Without ``skip`` unseen
    edges are an error.
    """
    from gnndelete.graph.validation import check_deletion, name_unseen, unseen_edges

    if request.names.nodes is None:
        request = request.with_names(graph.ids, graph.relations)
    unseen = task.unseen_edges()
    found = unseen_edges(request.edges, table, unseen, task.learned(graph.data) if unseen else None)
    names = name_unseen(request.edges, found, table, request.names)
    if names and skip:
        request = _without_edges(request, list(found.values()), names)
    try:
        return check_deletion(request, graph.data, table, task.unseen_edges), len(names) if skip else 0
    except DeletionError as error:
        if not names or skip:
            raise
        raise DeletionError(f"{error} (--skip-unseen leaves them out)") from None


def _without_edges(request: Deletion, unseen: list[Tensor], names: list[str]) -> Deletion:
    """The request without its unseen edges; a note names them."""
    import torch

    rest = request.replace(edges=request.edges[:, ~torch.stack(unseen).any(dim=0)])
    if not len(rest):
        raise DeletionError(
            f"nothing is left to delete: all of it was held out from training, so the model has not learned it: "
            f"{some(names)}; remove it from your own data"
        )
    edges = f"{len(names)} edge{'s' * (len(names) != 1)}"
    note(
        f"note: left out {edges} that the model was not trained on: {plain(some(names))}; there is nothing to forget, but "
        "this run goes on validating and testing with them: remove them from your own data before you train again"
    )
    return rest
