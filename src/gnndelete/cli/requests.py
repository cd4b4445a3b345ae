"""From the deletion settings to a `Deletion` of the training graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnndelete.cli.settings import DeletionSettings
from gnndelete.datasets import NamedGraph
from gnndelete.datasets.forget import forget_edges, forget_graphs, forget_nodes
from gnndelete.errors import DeletionError, SettingError, some
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.parsing import look_up, look_up_columns
from gnndelete.tasks import LinkPrediction, Task


def read_request(settings: DeletionSettings, graph: NamedGraph, task: Task) -> Deletion:
    """What is to be deleted from ``graph``, as earlier requests have left it; elements have the ids of its user."""
    named, data = _named(settings, graph), graph.data
    if settings.fill and not named.features.size(1):
        raise SettingError(
            f"--fill says what replaces features, and none are named (got {settings.fill}); name --feature"
        )
    if settings.random is None:
        if not len(named):
            raise DeletionError(
                "nothing is named to be deleted; give --edges or --nodes FILE, --edge 0,5, --node 3, --feature 3, --label 3, "
                "--relation NAME, --graph 7, or --random 0.025"
            )
        return named
    if len(named):
        raise SettingError("elements are named and --random is given too; name what to delete, or have it drawn")
    if settings.random >= 1 and settings.random != int(settings.random):
        raise SettingError(f"--random must be a share below 1 or a whole number (got {settings.random})")
    if settings.kind != "edges" and settings.where != "random":
        raise SettingError(
            f"--where {settings.where} says which edges are drawn, and --kind {settings.kind} draws {settings.kind} from all; "
            "leave one of them out"
        )
    if settings.kind == "graphs":
        if not isinstance(data, GraphBatch):
            raise SettingError("--kind graphs draws whole graphs, and this run has one; leave it out")
        return Deletion(graphs=forget_graphs(data, settings.random, seed=settings.seed))
    if settings.kind == "nodes":
        return Deletion(nodes=forget_nodes(data, settings.random, seed=settings.seed))
    test = task.test.positives if isinstance(task, LinkPrediction) and task.test is not None else None
    if settings.where in ("in", "out") and test is None:
        raise SettingError(f"--where {settings.where} is relative to test edges, and this run has none; leave it out")
    drawn = forget_edges(data, settings.random, settings.where, test=test, hops=settings.hops, seed=settings.seed)
    return Deletion(edges=drawn)


def _named(settings: DeletionSettings, graph: NamedGraph) -> Deletion:
    request = _in_place(settings, graph)
    if settings.graphs_csv is not None:
        request = request | Deletion(graphs=Deletion.from_csv(_from_here(settings.graphs_csv)).nodes)
    for kind in ("edges", "nodes", "features", "labels"):
        option, path = f"--{kind}", getattr(settings, f"{kind}_csv")
        if path is None:
            continue
        path = _from_here(path)
        of_nodes: Any = kind if kind in ("features", "labels") else None
        fill = settings.fill if kind == "features" else 0.0
        found = Deletion.from_csv(
            path, graph.ids, graph.relations or None, kind=of_nodes, fill=fill, columns=graph.features
        )
        if kind not in found.counts:
            other = next(iter(found.counts))
            raise DeletionError(f"'{path}' names {other}, and {option} takes {kind}; give it with --{other}")
        request = request | found
    return request


def _from_here(path: Path) -> Path:
    """A file below the current folder by its relative path, as errors had better name it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _in_place(settings: DeletionSettings, graph: NamedGraph) -> Deletion:
    """Elements that are named on the command line or in a settings file."""
    edges: list[tuple[int, ...]] = []
    nodes: list[tuple[int, ...]] = []
    bad: list[str] = []
    for cells in settings.edges:
        try:
            edges.append(_edge(cells, graph))
        except ValueError as error:
            bad.append(f"--edge {','.join(map(str, cells))} ({error})")
    labels: list[tuple[int, ...]] = []
    features: list[tuple[int, ...]] = []
    for option, given, found in (("--node", settings.nodes, nodes), ("--label", settings.labels, labels)):
        for node in given:
            try:
                found.append(_ids([node], graph))
            except ValueError as error:
                bad.append(f"{option} {node} ({error})")
    for cells in settings.features:
        try:
            features.append(_feature(cells, graph))
        except ValueError as error:
            bad.append(f"--feature {','.join(map(str, cells))} ({error})")
    if bad:
        raise DeletionError(
            f"{len(bad)} of the elements to delete {'is' if len(bad) == 1 else 'are'} not in the graph: {some(bad, 20)}; "
            "correct or remove them"
        )
    relations = [_relation(name, graph) for name in settings.relations]
    request = Deletion(
        edges=edges or None,
        nodes=[node for (node,) in nodes] or None,
        labels=[node for (node,) in labels] or None,
        relations=relations or None,
        graphs=settings.graphs or None,
    )
    for width in (1, 2):  # whole nodes, and single columns of nodes
        if chosen := [cells for cells in features if len(cells) == width]:
            listed: list[Any] = [cells[0] for cells in chosen] if width == 1 else chosen
            request = request | Deletion(features=listed, fill=settings.fill)
    return request._named(None if graph.ids is None else graph.ids.calling(graph.relations))


def _relation(name: Any, graph: NamedGraph) -> int:
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


def _feature(cells: Sequence[Any], graph: NamedGraph) -> tuple[int, ...]:
    if not 1 <= len(cells) <= 2:
        example = "such as --feature 3,7" if graph.ids is None else "an id with a comma in quotes"
        raise ValueError(f"features of this graph are written node or node,column, {example}")
    return (*_ids(cells[:1], graph), *look_up_columns([str(cell) for cell in cells[1:]], graph.features))


def _edge(cells: Sequence[Any], graph: NamedGraph) -> tuple[int, ...]:
    form = "source,relation,target" if "edge_type" in graph.data else "source,target"
    if graph.ids is None:
        try:
            return _ids(cells, graph)
        except ValueError:
            got, example = ",".join(map(str, cells)), "0,2,5" if form.count(",") == 2 else "0,5"
            raise DeletionError(f"an edge is written {form}, such as --edge {example} (got {got})") from None
    if len(cells) != form.count(",") + 1:
        raise ValueError(f"an edge of this graph is written {form}, an id with a comma in quotes")
    return _ids(cells, graph)


def _ids(cells: Sequence[Any], graph: NamedGraph) -> tuple[int, ...]:
    """Nodes (and the relation between them) by their names, or by their numbers where they have no names."""
    if graph.ids is None:
        if all(isinstance(cell, int) or (cell.isascii() and cell.isdigit()) for cell in cells):
            return tuple(map(int, cells))
        raise ValueError(f"nodes have numbers here, from 0, and no names (got {','.join(map(str, cells))})")
    number = next((cell for cell in cells if isinstance(cell, int)), None)
    if number is not None:  # YAML has read it: 007 would be 7, and 010 be 8
        raise ValueError(f"ids of this graph are text, and {number} is a number: write it in quotes")
    return look_up(cells, graph.ids, graph.relations or None)
