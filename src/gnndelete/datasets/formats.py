"""Graphs from elsewhere: whatever lies at a path, and NetworkX. Ids of the nodes are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnndelete.datasets.assembly import Columns, NamedGraph, build
from gnndelete.datasets.folder import CONFIG, IDS, TENSORS, read_folder
from gnndelete.datasets.named import from_tables
from gnndelete.datasets.pickled import load_saved
from gnndelete.datasets.tables import SUFFIXES, Block, Problems, Table
from gnndelete.errors import GraphError, SettingError, some

if TYPE_CHECKING:
    import networkx


def load_graph(path: str | PathLike[str], **options: Any) -> NamedGraph:
    """The graph at a path, known by its kind.

    - a folder that `save_graph` wrote;
    - a folder with ``edges.csv`` and perhaps ``nodes.csv`` (or .tsv, .csv.gz, .tsv.gz, .parquet), or one edge table;
      ``options`` go to `from_tables`;
    - a ``.pt`` file with a PyG ``Data`` that ``torch.save`` wrote (its nodes have numbers only, so ``ids`` is None).

    Files are data: nothing in them is run, and one that holds anything else is refused.
    """
    place = Path(path)
    if place.is_dir() and not (place / CONFIG).exists():
        return from_tables(*_tables(place), **options)
    if place.is_file() and place.name.lower().endswith(SUFFIXES):
        return from_tables(place, **options)
    if not place.exists():
        raise GraphError(f"there is no graph at '{place}'; check the path")
    if options:
        raise SettingError(f"'{place}' is no table, and {some(options)} say how to read tables; leave them out")
    if place.is_dir():
        return read_folder(place)
    parts = load_saved(place)
    if len(parts) != 1:
        raise GraphError(f"'{place}' holds three parts, which is a split of links; save one Data")
    return NamedGraph(parts[0])


def graph_files(path: str | PathLike[str]) -> list[Path]:
    """The files that `load_graph` reads at a path."""
    place = Path(path)
    if place.is_dir() and not (place / CONFIG).exists():
        return [table for table in _tables(place) if table is not None]
    if not place.exists():
        raise GraphError(f"there is no graph at '{place}'; check the path")
    kept = [place / name for name in (CONFIG, TENSORS, IDS)] if place.is_dir() else [place]
    return [file for file in kept if file.is_file()]


def _tables(folder: Path) -> tuple[Path, Path | None]:
    edges = _table(folder, "edges")
    if edges is None:
        raise GraphError(f"the folder '{folder}' holds neither {CONFIG} nor edges.csv; give it an edge table")
    return edges, _table(folder, "nodes")


def _table(folder: Path, name: str) -> Path | None:
    found = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(found) > 1:
        raise GraphError(f"'{folder}' holds {found[0].name} and {found[1].name}; keep one table of {name}")
    return found[0] if found else None


def from_networkx(
    graph: networkx.Graph,
    *,
    features: Sequence[str] | None = None,
    label: str | None = None,
    relation: str | None = None,
    weight: str | None = None,
    edge_features: Sequence[str] | None = None,
) -> NamedGraph:
    """A NetworkX graph with its node names as ids; attributes become columns, as in `from_tables`.

    Undirected graphs hold each edge in both directions. An attribute with a list of numbers makes one column per number.

    >>> import networkx
    >>> friends = networkx.Graph()
    >>> friends.add_node("ann", age=31, label="a")
    >>> friends.add_node("bob", age=40, label="b")
    >>> friends.add_edge("ann", "bob", weight=0.5)
    >>> from_networkx(friends)
    NamedGraph(Data(edge_index=[2, 2], edge_weight=[2], x=[2, 1], y=[2]), ids=IdMap('ann', 'bob'))
    """
    names = [str(name) for name in graph]
    if len(set(names)) < len(names):
        again = [repr(name) for name, count in Counter(names).items() if count > 1]
        raise GraphError(
            f"different nodes of the NetworkX graph have the same name as text: {some(again)}; rename them"
        )
    nodes = {"id": names, **_attributes([values for _, values in graph.nodes(data=True)], "id")}
    links = list(graph.edges(data=True))
    edges = {
        "source": [str(u) for u, _, _ in links],
        "target": [str(v) for _, v, _ in links],
        **_attributes([values for _, _, values in links], "source", "target"),
    }
    columns = Columns(
        relation=relation,
        features=_expanded(features, nodes),
        label=label,
        weight=weight,
        edge_features=_expanded(edge_features, edges),
    )
    pairs = [f"{u!r}, {v!r}" for u, v, _ in links]
    return build(
        _opened(edges, Problems("the NetworkX graph", "edge", pairs)),
        _opened(nodes, Problems("the NetworkX graph", "node", [repr(name) for name in graph])),
        columns,
        undirected=not graph.is_directed(),
        missing="error",
    )


@contextmanager
def _opened(columns: dict[str, list[Any]], problems: Problems) -> Iterator[Table]:
    count = len(next(iter(columns.values())))
    blocks = iter([Block(range(1, count + 1), columns)] if count else [])
    yield Table(problems.name, tuple(columns), blocks, problems)


def _attributes(rows: list[dict[Any, Any]], *reserved: str) -> dict[str, list[Any]]:
    """Attributes as columns, None where an element lacks one; lists of numbers become several columns."""
    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values: list[Any] = [row.get(name) for row in rows]
        lengths = [len(value) for value in values if _is_list(value)]
        if str(name) in reserved:
            raise GraphError(f"an attribute of the NetworkX graph is called '{name}', which the ids are; rename it")
        if not lengths:
            columns[str(name)] = values
        for place in range(max(lengths, default=0)):
            columns[f"{name}.{place}"] = [
                value[place] if _is_list(value) and place < len(value) else None for value in values
            ]
    return columns


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, (str, bytes, dict))


def _expanded(chosen: Sequence[str] | None, columns: dict[str, list[Any]]) -> Sequence[str] | None:
    """The columns of the chosen attributes."""
    if chosen is None or isinstance(chosen, str):
        return chosen
    return [
        column
        for name in chosen
        for column in ([c for c in columns if c.rpartition(".")[0] == name] if name not in columns else [name])
        or [name]
    ]
