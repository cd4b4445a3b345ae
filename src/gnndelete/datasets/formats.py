"""Graphs in files and from NetworkX: tables, folders that `save_graph` wrote, files of ``torch.save``. Ids are kept.

Files are data: only tensors, numbers, text and PyG's graphs are read from them, and nothing in them is run.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.storage import AttrType, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from gnndelete.datasets.columns import Encoding
from gnndelete.datasets.description import Description, Sources, read_description
from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.table_files import DATABASES, SUFFIXES, Block, Problems, Table
from gnndelete.datasets.tables import NamedGraph, from_tables
from gnndelete.errors import GraphError, RequestError, SettingError, some
from gnndelete.graph.batch import as_user_graph, collate
from gnndelete.graph.validation import check_graph, count_nodes
from gnndelete.io.files import write_all

if TYPE_CHECKING:
    import networkx


def load_graph(path: str | PathLike[str], **options: Any) -> NamedGraph:
    """Load the graph at a path.

    Args:
        path: A folder that `save_graph` wrote; a folder of tables, with a description (``graph.toml`` or ``graph.yaml``) or
            without one; a database; one edge table; a description; or a ``.pt`` file with a PyG ``Data`` or ``HeteroData``
            that ``torch.save`` wrote. In a folder with ``edges.csv`` (or another suffix) that is the edge table and
            ``nodes.csv`` the node table, if there is one.
        options: Arguments of `from_tables`, for tables.

    Returns:
        The graph with its names. Nodes of a ``.pt`` file only have numbers, so that ``ids`` is None.

    Raises:
        GraphError: If there is no graph at the path, or it holds anything but a graph.
        SettingError: If options are given and the path holds no table.
    """
    file = Path(path)
    if not file.exists():
        raise GraphError(f"there is no graph at '{file}'; check the path")
    if is_tables(file):
        found = file if file.suffix.lower() in _DESCRIPTIONS else _description_in(file)
        if found is not None and options.get("description") is None:
            options["description"] = found
        if options.get("description") is not None:
            return from_tables(file.parent if file == found else file, **options)
        if file.is_dir() and _table(file, "edges") is not None:
            return from_tables(_table(file, "edges"), _table(file, "nodes"), **options)
        return from_tables(file, **options)
    if options:
        raise SettingError(f"'{file}' is no table, and {some(options)} say how to read tables; leave them out")
    if file.is_dir():
        return _read_folder(file)
    parts = load_saved(file)
    if len(parts) != 1:
        raise GraphError(f"'{file}' holds three parts, which is a split of links; save one Data")
    return NamedGraph(parts[0])


_DESCRIPTIONS = (".toml", ".yaml", ".yml")


def is_tables(path: Path) -> bool:
    """Whether there are tables at a path, or a description of some."""
    if path.is_dir():
        return not (path / CONFIG).exists()
    return path.name.lower().endswith((*SUFFIXES, *DATABASES, *_DESCRIPTIONS))


def _description_in(folder: Path) -> Path | None:
    """The description of the tables in a folder."""
    names = [f"{name}{suffix}" for name in ("graph", "tables") for suffix in _DESCRIPTIONS] if folder.is_dir() else []
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        raise GraphError(f"'{folder}' holds {found[0].name} and {found[1].name}; keep one description")
    return found[0] if found else None


def graph_files(path: str | PathLike[str]) -> list[Path]:
    """The files that `load_graph` reads at a path."""
    file = Path(path)
    if not file.exists():
        raise GraphError(f"there is no graph at '{file}'; check the path")
    if is_tables(file) and file.is_dir():
        found = _description_in(file)
        pair = None if found else _table(file, "edges")
        if pair is not None:
            return [pair, *([nodes] if (nodes := _table(file, "nodes")) is not None else [])]
        return [*([found] if found else []), *Sources.at(file).files()]
    if file.suffix.lower() in _DESCRIPTIONS:
        named = read_description(file)
        sources = Sources.at(file.parent)
        tables = [*(each.table for each in named.nodes), *(each.table for each in named.edges)]
        used = Sources({name: sources[name] for name in tables}, str(file))
        return [file, *used.files()]
    files = [file / name for name in (CONFIG, GRAPH, IDS)] if file.is_dir() else [file]
    return [path for path in files if path.is_file()]


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
    """Convert a NetworkX graph; the names of its nodes become ids.

    Undirected graphs hold each edge in both directions. An attribute with a list of numbers becomes one column per number.

    Args:
        graph: The NetworkX graph.
        features: The node attributes of ``x``; by default all that are numbers.
        label: The node attribute with labels; by default ``label``, where it exists.
        relation: The edge attribute with relation types; by default ``relation``, where it exists.
        weight: The edge attribute with weights; by default ``weight``, where it exists.
        edge_features: The edge attributes of ``edge_attr``; by default all that are numbers.

    Returns:
        The graph with its names.

    Raises:
        GraphError: If two nodes have the same name as text, or values cannot be used.

    >>> import networkx
    >>> friends = networkx.Graph()
    >>> friends.add_node("ann", age=31, label="a")
    >>> friends.add_node("bob", age=40, label="b")
    >>> friends.add_edge("ann", "bob", weight=0.5)
    >>> from_networkx(friends)
    NamedGraph(Data(x=[2, 1], y=[2], edge_index=[2, 2], edge_weight=[2]), ids=IdMap('ann', 'bob'))
    """
    names = [str(name) for name in graph]
    if len(set(names)) < len(names):
        again = [repr(name) for name, count in Counter(names).items() if count > 1]
        raise GraphError(
            f"different nodes of the NetworkX graph have the same name as text: {some(again)}; rename them"
        )
    links = list(graph.edges(data=True))
    nodes = {"id": names, **_attributes([values for _, values in graph.nodes(data=True)], "id")}
    edges = {
        "source": [str(u) for u, _, _ in links],
        "target": [str(v) for _, v, _ in links],
        **_attributes([values for _, _, values in links], "source", "target"),
    }
    pairs = [f"{u!r}, {v!r}" for u, v, _ in links]
    of_edges = _table_of(edges, Problems("the NetworkX graph", "edge", pairs))
    of_nodes = _table_of(nodes, Problems("the NetworkX graph", "node", [repr(name) for name in graph]))
    return from_tables(
        of_edges,
        of_nodes,
        relation=relation,
        features=_expanded(features, nodes),
        label=label,
        weight=weight,
        edge_features=_expanded(edge_features, edges),
        undirected=not graph.is_directed(),
        empty="error",
    )


def _table_of(columns: dict[str, list[Any]], problems: Problems) -> Table:
    count = len(next(iter(columns.values())))
    blocks = iter([Block(range(1, count + 1), columns)] if count else [])
    return Table(problems.name, tuple(columns), blocks, problems)


def _attributes(rows: list[dict[Any, Any]], *reserved: str) -> dict[str, list[Any]]:
    """Attributes as columns, None where an element lacks one; lists of numbers become several columns."""
    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        if str(name) in reserved:
            raise GraphError(f"an attribute of the NetworkX graph is called '{name}', which the ids are; rename it")
        values: list[Any] = [row.get(name) for row in rows]
        lists = [list(value) if isinstance(value, (list, tuple, np.ndarray, Tensor)) else [] for value in values]
        width = max(map(len, lists))
        if not width:
            columns[str(name)] = values
        for index in range(width):
            columns[f"{name}.{index}"] = [each[index] if index < len(each) else None for each in lists]
    return columns


def _expanded(chosen: Sequence[str] | None, columns: dict[str, list[Any]]) -> Sequence[str] | None:
    """The columns of the chosen attributes."""
    if chosen is None or isinstance(chosen, str):
        return chosen
    found: list[str] = []
    for name in chosen:
        parts = [column for column in columns if column.rpartition(".")[0] == name and name not in columns]
        found += parts or [name]
    return found


CONFIG, GRAPH, IDS = "graph.json", "graph.pt", "ids.json"
_FORMAT = "gnndelete-graph-1"
_TEXTS = ("relations", "classes", "features", "edge_features", "ignored")
_SAVED = (Tensor, bool, int, float, str, list, tuple, dict, type(None))


def save_graph(graph: NamedGraph | Data | HeteroData, folder: str | PathLike[str]) -> None:
    """Write a graph with all its names to a folder, to be read with `load_graph`.

    The folder holds ``graph.pt``, ``graph.json`` and ``ids.json``.

    Args:
        graph: The graph.
        folder: The folder.

    Raises:
        GraphError: If the graph is malformed, or holds values that cannot be saved.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> graph = NamedGraph(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2), IdMap(["user:4711", "item:7"]))
    >>> save_graph(graph, folder)
    >>> load_graph(folder)
    NamedGraph(Data(edge_index=[2, 1], num_nodes=2), ids=IdMap('user:4711', 'item:7'))
    """
    write_all(Path(folder), graph_contents(graph if isinstance(graph, NamedGraph) else NamedGraph(graph)))


def graph_contents(graph: NamedGraph) -> dict[str, bytes]:
    """The files that `save_graph` writes, by name."""
    whole = collate(graph.data)
    check_graph(whole)
    if graph.ids is not None and len(graph.ids) != count_nodes(whole):
        raise GraphError(f"the graph has {count_nodes(whole)} nodes and {len(graph.ids)} ids; give one per node")
    content = dump_data(as_user_graph(whole))
    encodings = {name: [each.to_dict() for each in part] for name, part in graph.encodings.items()}
    config = {
        "format": _FORMAT,
        "sha256": hashlib.sha256(content).hexdigest(),
        "ids": None if graph.ids is None else graph.ids.fingerprint,
        **{name: getattr(graph, name) for name in _TEXTS},
        "tables": None if graph.tables is None else graph.tables.to_dict(),
        "encodings": encodings,
    }
    contents = {GRAPH: content, CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    return contents if graph.ids is None else contents | {IDS: graph.ids.to_bytes()}


def dump_data(data: Data | HeteroData) -> bytes:
    """A graph on the CPU as the content of a file of ``torch.save``."""
    buffer = io.BytesIO()
    torch.save(type(data).from_dict(_plain(data.to_dict(), "")), buffer)
    return buffer.getvalue()


def _plain(values: Mapping[Any, Any], whose: str) -> dict[Any, Any]:
    """The values of a graph, of all its types, on the CPU."""
    result: dict[Any, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and name != "_global_store":
            result[name] = _plain(value, f" of {name!r}")
            continue
        if not isinstance(value, _SAVED):
            kind = type(value).__name__
            raise GraphError(f"data.{name}{whose} is a '{kind}', which is not saved", "give a tensor or remove it")
        # Clones: torch.save writes the whole memory behind a tensor, also the deleted part that a view does not show.
        result[name] = value.detach().cpu().clone() if isinstance(value, Tensor) else value
    return result


def _read_folder(folder: Path) -> NamedGraph:
    """Read what `save_graph` wrote; refused where a file is damaged or belongs to another graph."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        if config["format"] != _FORMAT:
            raise GraphError(f"'{folder / CONFIG}' is of another format ({config['format']!r}); save the graph again")
        if hashlib.sha256((folder / GRAPH).read_bytes()).hexdigest() != config["sha256"]:
            raise GraphError(f"'{folder / GRAPH}' is not the file that {CONFIG} describes; save the graph again")
        ids = None if config["ids"] is None else IdMap.load(folder / IDS)
        if ids is not None and ids.fingerprint != config["ids"]:
            raise GraphError(f"'{folder / IDS}' belongs to another graph; save the graph again")
        texts: dict[str, Any] = {name: _texts(config[name]) for name in _TEXTS}
        if config.get("tables") is not None:
            texts["tables"] = Description.from_dict(config["tables"], f"'{folder / CONFIG}'")
        encodings = config.get("encodings", {}).items()
        texts["encodings"] = {str(name): tuple(map(Encoding.from_dict, part)) for name, part in encodings}
    except OSError as error:
        raise GraphError(f"the graph '{folder}' cannot be read ({error.filename}: {error.strerror})") from None
    except GraphError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GraphError(f"the graph '{folder}' is damaged ({error}); save it again") from None
    return NamedGraph(load_saved(folder / GRAPH)[0], ids, **texts)


def _texts(names: Any) -> Any:
    """Names as they were saved: of one kind, or by type."""
    if isinstance(names, dict):
        return {str(kind): _texts(part) for kind, part in names.items()}
    return tuple(map(str, names))


def load_saved(path: Path) -> tuple[Data | HeteroData, ...]:
    """The graph in a file of ``torch.save``: one, or the training, validation and test parts of one."""
    found = load_pickle(path, GraphError, "graph")
    parts = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(parts) not in (1, 3) or not all(isinstance(part, (Data, HeteroData)) for part in parts):
        kinds = some(type(part).__name__ for part in parts) or "nothing"
        raise GraphError(
            f"'{path}' holds {kinds}; save a Data or HeteroData, or a tuple of three (training, validation, test)"
        )
    try:
        # Made again from its attributes, without anything else that was stored with the object.
        graphs = tuple(type(part).from_dict(part.to_dict()) for part in parts)
        for graph in graphs:
            check_graph(collate(graph))
    except (AttributeError, KeyError, TypeError) as error:  # an object that lacks parts
        raise GraphError(f"the graph '{path}' is damaged ({type(error).__name__}); save it again") from None
    return graphs


def load_pickle(path: Path, kind: type[RequestError], what: str) -> Any:
    """The content of a file of ``torch.save``, which may hold tensors, plain values and graphs."""
    try:
        with _only_graphs(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the unpickler's advice about protocols
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise kind(f"the {what} '{path}' cannot be read ({error.strerror or error})") from None
    except Exception as error:  # a damaged pickle can fail in any way
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        why = (
            f"it holds '{foreign[1]}', and only tensors and graphs are read"
            if foreign
            else "it is damaged or of another kind"
        )
        way = "torch.save(model.state_dict(), …)" if what == "checkpoint" else "torch.save"
        raise kind(f"the {what} '{path}' is refused: {why}; save it again with {way}, nothing in it was run") from None


@contextmanager
def _only_graphs() -> Iterator[None]:
    """Let torch's safe unpickler make tensors and PyG's graphs, and nothing else."""
    serialization = torch.serialization
    before = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    graphs = [Data, HeteroData, GlobalStorage, BaseStorage, NodeStorage, EdgeStorage]
    graphs += [DataEdgeAttr, DataTensorAttr, EdgeAttr, TensorAttr, EdgeLayout, AttrType]
    try:
        # A graph that was used holds a defaultdict, which the safe unpickler cannot fill: use a dict.
        serialization.add_safe_globals([*graphs, (_empty, "collections.defaultdict")])
        yield
    finally:
        serialization.clear_safe_globals()
        serialization.add_safe_globals(before)


def _empty(*_: Any) -> dict[Any, Any]:
    return {}
