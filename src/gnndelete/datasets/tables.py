"""Graphs from tables of your own, with names as ids: one table of edges, or many tables of nodes and edges.

`gnndelete.datasets.description` says what each table is, `gnndelete.datasets.columns` how its columns become numbers, and
`gnndelete.datasets.table_files` how files, databases and data frames are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from gnndelete.datasets.columns import Encoding, Features, class_names, in_order, read_numbers, read_texts
from gnndelete.datasets.description import (
    Description,
    Edges,
    Nodes,
    Sources,
    find_description,
    read_description,
    to_toml,
)
from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.negatives import with_reverse
from gnndelete.datasets.table_files import SHOWN, Table, as_list, is_frame
from gnndelete.errors import GraphError, NotYetError, SettingError, some
from gnndelete.graph.batch import as_user_graph, collate
from gnndelete.graph.hetero import REVERSE
from gnndelete.graph.validation import check_graph, edge_table

Missing = Literal["error", "zeros"]
EdgeType = tuple[str, str, str]

#: What the cells of a split column mean.
_PARTS = {
    **dict.fromkeys(("", "train", "training", "tr"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True, eq=False, repr=False)
class NamedGraph:
    """A graph with the names that its user has for nodes, relations, classes and columns.

    Args:
        data: The graph.
        ids: The names of the nodes; None where they only have numbers.
        relations: The names of the relation types of a ``Data``.
        classes: The names of the classes in ``y``.
        features: The names of the columns of ``x``; of a ``HeteroData`` by node type.
        edge_features: The names of the columns of ``edge_attr``; of a ``HeteroData`` those of all edge types.
        ignored: Columns of the tables that were not used.
        tables: What the tables mean; None where there were none.
        encodings: How the columns of each table became numbers, by its part of ``tables``.
        counts: Rows of each table, and rows of edges that repeat others, by its part of ``tables``.
        unseen: ``"validation"`` and ``"test"`` edges that a split column names, by edge type. The graph does not hold them.
    """

    data: Data | HeteroData
    ids: IdMap | None = None
    relations: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    edge_features: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    tables: Description | None = None
    encodings: Mapping[str, tuple[Encoding, ...]] = field(default_factory=dict)
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unseen: Mapping[EdgeType, Mapping[str, Tensor]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"NamedGraph({self.data}, ids={self.ids})"

    def describe(self) -> str:
        """What was understood of the tables: a description as TOML, with what became of every column as comments."""
        if self.tables is None:
            raise GraphError("the graph was not read from tables, so there is nothing to describe")
        parts: dict[str, list[str]] = {"": [self.about()]}
        if self.tables.unused:
            parts[""].append(f"tables that hold neither nodes nor edges: {some(self.tables.unused, 10)}")
        for section, tables in (("nodes", self.tables.nodes), ("edges", self.tables.edges)):
            for part in tables:
                name = f"{section}.{part.name}"
                rows, again = self.counts.get(name, (0, 0))
                repeats = f", {again:,} of them repeated, which count once" if again else ""
                parts[name] = [f"{rows:,} rows{repeats}", *map(str, self.encodings.get(name, ()))]
                if isinstance(part, Edges) and (unseen := self.unseen.get(part.kind)):
                    held = [f"{edges.size(1):,} for {purpose}" for purpose, edges in unseen.items()]
                    parts[name].append(f"not trained on, by the column {part.split}: {' and '.join(held)}")
        return to_toml(self.tables, parts)

    def about(self) -> str:
        """What the graph holds, in one line."""
        data = as_user_graph(self.data)
        if isinstance(data, HeteroData):
            nodes = ", ".join(f"{data[name].num_nodes:,} {name}" for name in data.node_types)
            edges = [kind for kind in data.edge_types if not kind[1].startswith(REVERSE)]
            counts = ", ".join(f"{data[kind].edge_index.size(1):,} {kind[1]}" for kind in edges)
            back = ", each also in the other direction" if len(edges) < len(data.edge_types) else ""
            return f"HeteroData with nodes: {nodes}; edges: {counts}{back}"
        ways = "both ways" if edge_table(data).undirected else "one way"
        types = {} if self.ids is None else self.ids.types
        kinds = f" ({', '.join(f'{len(rows):,} {name}' for name, rows in types.items())})" if types else ""
        size = f"{data.edge_index.size(1):,} entries of edge_index, {ways}"
        return f"Data with {data.num_nodes:,} nodes{kinds} and {size}"


def from_tables(
    edges: Any,
    nodes: Any = None,
    *,
    description: Description | Mapping[str, Any] | str | PathLike[str] | None = None,
    layout: str | None = None,
    source: str = "source",
    target: str = "target",
    relation: str | None = None,
    node_id: str = "id",
    features: Sequence[str] | Mapping[str, Any] | None = None,
    label: str | None = None,
    weight: str | None = None,
    edge_features: Sequence[str] | Mapping[str, Any] | None = None,
    undirected: bool | None = None,
    missing: Missing | None = None,
    empty: str | None = None,
    delimiter: str | None = None,
) -> NamedGraph:
    """Read a graph from tables: CSV, TSV (also gzipped), Parquet, Arrow, DuckDB, SQLite, or data frames.

    Either all tables (a folder, a database, or a mapping of names to files and frames), with a description or with what is
    found by looking at them; or one edge table and perhaps one node table, whose columns are named by the arguments.

    Ids are text, such as ``user:4711``. Nodes come in the order of their table, else as the edges name them. An edge that
    is listed again with the same values counts once; with other values it stays as a parallel edge, and deleting it deletes
    all copies. Every column that was used or not is listed by `NamedGraph.describe`.

    Args:
        edges: All tables, or the edge table.
        nodes: The node table; without it the nodes are those that edges name, and have no features.
        description: What all tables mean: a `Description`, its values, or a TOML or YAML file with it.
        layout: ``"hetero"`` makes a ``HeteroData``, ``"single"`` one ``Data`` with the node types one after the other. By
            default several node types make a ``HeteroData``.
        source: The column of an edge table with the ids of sources.
        target: The column of an edge table with the ids of targets.
        relation: The column with the relation types of edges. Default: ``relation``, where it exists.
        node_id: The column of a node table with the ids.
        features: The columns of ``x``, or the kind of each; by default all others that can be encoded.
        label: The column with labels, names or whole numbers; an empty cell is a node without label (-1). Default:
            ``label``, where it exists.
        weight: The column with edge weights. Default: ``weight``, where it exists.
        edge_features: The columns of ``edge_attr``, or the kind of each; by default all others that can be encoded.
        undirected: Whether an edge goes both ways. By default those between two node types do, others do not.
        missing: What an id of an edge without a row in the node table becomes: ``"error"`` (default), or a node with
            features of zero (``"zeros"``).
        empty: What stands for an empty cell of features: the ``"mean"`` of its column (default), ``"zero"``, or an
            ``"error"``. Empty cells of categories are 0 in all of their columns.
        delimiter: The character between cells of text files; by default a comma, in ``.tsv`` files a tab.

    Returns:
        The graph with its names.

    Raises:
        GraphError: If a table cannot be read, or rows cannot be used. Every bad row is named by its line number.
        NotYetError: If typed edges of one table are to be undirected.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("id,age,label\\nuser:4711,31,a\\nuser:12,40,b\\nitem:7,0,\\n")
    >>> _ = (folder / "edges.csv").write_text("source,target\\nuser:4711,item:7\\nuser:12,item:7\\n")
    >>> graph = from_tables(folder / "edges.csv", folder / "nodes.csv", undirected=True)
    >>> graph
    NamedGraph(Data(x=[3, 1], y=[3], edge_index=[2, 4]), ids=IdMap('user:4711', 'user:12', 'item:7'))
    >>> graph.classes, graph.data.y.tolist()
    (('a', 'b'), [0, 1, -1])
    """
    given = {"missing": missing, "empty": empty, "layout": layout, "delimiter": delimiter}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    several = isinstance(edges, Mapping) or (
        not isinstance(edges, Table) and not is_frame(edges) and (Path(edges).is_dir() or Sources.is_database(edges))
    )
    if description is not None or (several and nodes is None):
        chosen = {"source": source, "target": target, "node_id": node_id, "relation": relation, "features": features}
        chosen |= {"label": label, "weight": weight, "edge_features": edge_features}
        named = [name for name, value in chosen.items() if value != _USUAL.get(name)]
        if named:
            raise SettingError(
                f"{some(named)} name{'s' * (len(named) == 1)} columns of one table, and there are several: name them in a "
                "description"
            )
        sources = _sources(edges)
        found = description if isinstance(description, Description) else None
        if found is None and isinstance(description, Mapping):
            found = Description.from_dict(description)
        elif found is None and isinstance(description, (str, PathLike)):
            found = read_description(Path(description))
        return build(sources, replace(found or find_description(sources, delimiter), **options), undirected)
    tables = {"edges": edges} if nodes is None else {"edges": edges, "nodes": nodes}
    of_nodes = () if nodes is None else (Nodes("node", "nodes", node_id, features=features, label=label),)
    of_edges = Edges(
        "edge", "edges", source, target, "node", "node", relation=relation, weight=weight, features=edge_features
    )
    parts = Description(of_nodes, (of_edges,), **options, named_by_options=True)
    return build(Sources(tables, "the tables"), parts, undirected)


_USUAL = {"source": "source", "target": "target", "node_id": "id"}


def _sources(tables: Any) -> Sources:
    return Sources(tables, "the tables") if isinstance(tables, Mapping) else Sources.at(Path(tables))


@dataclass
class _NodePart:
    """The nodes of one type."""

    index: defaultdict[str, int]
    count: int = 0  # nodes of the table; ids beyond them come from edges
    table: str | None = None
    x: Tensor | None = None
    y: Tensor | None = None
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    masks: dict[str, Tensor] = field(default_factory=dict)

    def padded(self, value: Tensor, rest: Any = 0) -> Tensor:
        """A value of every node; nodes beyond the table have ``rest``."""
        more = value.new_full((len(self.index) - self.count, *value.shape[1:]), rest)
        return torch.cat([value, more]) if more.size(0) else value


@dataclass
class _EdgePart:
    """The edges of one table, each once, and their values."""

    source: Edges
    pairs: np.ndarray  # [E, 2], ids within the types
    values: dict[str, np.ndarray]
    relations: tuple[str, ...]
    features: tuple[str, ...]
    unseen: dict[str, np.ndarray]


def build(sources: Sources, description: Description, undirected: bool | None = None) -> NamedGraph:
    """The graph of some tables.

    Args:
        sources: The tables.
        description: What they mean.
        undirected: Whether edges go both ways; where it is None, as the description says.
    """
    reader = _Reader(sources, description)
    nodes = {name: _NodePart(_numbering()) for name in description.types}
    for of_nodes in description.nodes:
        nodes[of_nodes.name] = reader.nodes(of_nodes)
    edges = [reader.edges(part, nodes) for part in description.edges]
    hetero = description.layout == "hetero" or (description.layout == "auto" and len(nodes) > 1)
    make = _hetero if hetero else _single
    data, more = make(nodes, edges, undirected)
    check_graph(collate(data))
    names = [name for part in nodes.values() for name in part.index]
    types = {name: len(part.index) for name, part in nodes.items()} if hetero or len(nodes) > 1 else {}
    classes = [part.classes for part in nodes.values() if part.classes]
    return NamedGraph(
        data,
        IdMap(names, types, joined=not hetero),
        classes=classes[0] if classes else (),
        ignored=tuple(each.column for part in reader.encodings.values() for each in part if each.reason),
        tables=description,
        encodings=reader.encodings,
        counts=reader.counts,
        edge_features=tuple(name for part in edges for name in part.features),
        **more,
    )


def _hetero(
    nodes: Mapping[str, _NodePart], edges: Sequence[_EdgePart], undirected: bool | None
) -> tuple[HeteroData, dict[str, Any]]:
    """One store for each node type and edge type; edges between types also in the other direction."""
    data = HeteroData()
    for name, part in nodes.items():
        if part.x is None:
            data[name].num_nodes = len(part.index)
        else:
            data[name].x = part.padded(part.x)
        if part.y is not None:
            data[name].y = part.padded(part.y, -1)
        for mask, value in part.masks.items():
            data[name][mask] = part.padded(value, False)
    unseen = {}
    for each in edges:
        if each.relations:
            raise NotYetError(
                f"'{each.source.table}' has a column of relations ({each.source.relation!r}) between several node types",
                "put each relation into a table of its own, or name no relation",
            )
        kind, both = each.source.kind, _goes_both_ways(each.source, undirected)
        same = kind[0] == kind[2]
        pairs, values = _once(each.pairs, each.values, both and same)
        for direction, ends in ((kind, pairs), ((kind[2], REVERSE + kind[1], kind[0]), pairs[:, ::-1])):
            if direction == kind or (both and not same):
                data[direction].edge_index = _columns(ends)
                for value_name, array in values.items():
                    data[direction][value_name] = torch.from_numpy(array)
        if each.unseen:
            unseen[kind] = {part: _columns(held_out) for part, held_out in each.unseen.items()}
    return data, {"features": {name: part.features for name, part in nodes.items()}, "unseen": unseen}


def _single(
    nodes: Mapping[str, _NodePart], edges: Sequence[_EdgePart], undirected: bool | None
) -> tuple[Data, dict[str, Any]]:
    """One ``Data`` with all node types one after the other, each with columns of features of its own."""
    data, several = Data(), len(nodes) > 1
    starts = dict(zip(nodes, np.cumsum([0, *(len(part.index) for part in nodes.values())]).tolist(), strict=False))
    total, width = sum(len(part.index) for part in nodes.values()), sum(len(part.features) for part in nodes.values())
    features: list[str] = []
    if width:
        data.x = torch.zeros(total, width)
    for name, part in nodes.items():
        rows = slice(starts[name], starts[name] + part.count)
        if part.x is not None:
            data.x[rows, len(features) : len(features) + len(part.features)] = part.x
        features += [f"{name}.{column}" for column in part.features] if several else part.features
        if part.y is not None:
            if data.y is not None:
                raise GraphError(f"two node types have labels, and {name!r} is one of them; leave out one label column")
            data.y = torch.full((total,), -1)
            data.y[rows] = part.y
        for mask, value in part.masks.items():
            data[mask] = torch.zeros(total, dtype=torch.bool)
            data[mask][rows] = value
    if not width:
        data.num_nodes = total
    if several:
        sizes = torch.tensor([len(part.index) for part in nodes.values()])
        data.node_type = torch.arange(len(nodes)).repeat_interleave(sizes)
    typed = len(edges) > 1 or bool(edges[0].relations)
    both = [_goes_both_ways(each.source, undirected) for each in edges]
    if typed and any(both) and edges[0].relations:
        raise NotYetError(
            f"'{edges[0].source.table}' has typed edges (column {edges[0].source.relation!r}), which have a direction; leave "
            "out undirected=True, or list the reverse edges with a relation of their own"
        )
    relations: list[str] = []
    pairs, values, unseen = [], [], {}
    for each in edges:
        shift = np.array([starts[each.source.source_type], starts[each.source.target_type]])
        held = dict(each.values)
        if typed:
            own = held.pop("edge_type", np.zeros(len(each.pairs), dtype=np.int64)) + len(relations)
            relations += each.relations or [each.source.name]
            held["edge_type"] = own
        pairs.append(each.pairs + shift)
        values.append(held)
        if each.unseen:
            unseen[each.source.kind] = {part: _columns(held_out + shift) for part, held_out in each.unseen.items()}
    names = set(values[0]) if len({tuple(sorted(held)) for held in values}) == 1 else {"edge_type"}
    names -= {"edge_attr"} if len({held["edge_attr"].shape[1] for held in values if "edge_attr" in held}) > 1 else set()
    whole = {name: np.concatenate([held[name] for held in values]) for name in values[0] if name in names}
    joined, whole = _once(np.concatenate(pairs), whole, all(both) and not typed)
    data.edge_index = _columns(joined)
    for name, array in whole.items():
        data[name] = torch.from_numpy(array)
    if typed and any(both):
        data = with_reverse(data)
    return data, {"features": tuple(features), "relations": tuple(relations) if typed else (), "unseen": unseen}


def _goes_both_ways(edges: Edges, undirected: bool | None) -> bool:
    if undirected is not None:
        return undirected
    return edges.source_type != edges.target_type if edges.directed is None else not edges.directed


def _columns(pairs: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(pairs.T))


class _Reader:
    """Reads the tables of a description."""

    def __init__(self, sources: Sources, description: Description) -> None:
        self.sources, self.description = sources, description
        self.encodings: dict[str, tuple[Encoding, ...]] = {}
        self.counts: dict[str, tuple[int, int]] = {}

    def _need(self, table: Table, column: str, part: Nodes | Edges, option: str) -> str:
        """A column that must be there."""
        if self.description.named_by_options:
            return table.need(column, {"key": "node_id"}.get(option, option))
        if column not in table.columns:
            section = "nodes" if isinstance(part, Nodes) else "edges"
            raise GraphError(
                f"'{table.name}' has no column {column!r} (its columns: {table.listed})",
                f"correct '{option}' in [{section}.{part.name}] of the description",
            )
        return column

    def _choice(self, table: Table, part: Nodes | Edges, option: str) -> str | None:
        """The column that was chosen; where options name columns, else the one of the usual name."""
        column: str | None = getattr(part, option)
        if column is not None:
            return self._need(table, column, part, option)
        usual = self.description.named_by_options and option in table.columns and option not in (part.features or ())
        return option if usual else None

    def _features(self, table: Table, part: Nodes | Edges, taken: Sequence[str | None]) -> Features:
        option = "edge_features" if isinstance(part, Edges) and self.description.named_by_options else "features"
        return Features(table, part.features, taken, option, self.description.empty)

    def nodes(self, part: Nodes) -> _NodePart:
        """The nodes of a table."""
        index, places = _numbering(), []
        labels: list[str] = []
        splits: list[str] = []
        with self.sources.open(part.table, self.description.delimiter) as table:
            key = self._need(table, part.key, part, "key")
            label, split, place = (self._choice(table, part, name) for name in ("label", "split", "index"))
            features = self._features(table, part, (key, label, split, place))
            for block in table.blocks:
                names = read_texts(as_list(block.columns[key]))
                table.problems.add_empty(block.rows, names, key)
                for row, name in zip(block.rows, names, strict=True):
                    if name and name in index:
                        table.problems.add(row, f"the id {name!r} is in an earlier row too")
                    index.setdefault(name, len(index))
                features.add(block)
                for column, found in ((label, labels), (split, splits)):
                    if column is not None:
                        found += read_texts(as_list(block.columns[column]))
                if place is not None:
                    places.append(read_numbers(place, block, table.problems))
            table.problems.check()
        if not index:
            raise GraphError(f"the table '{table.name}' holds a header and no rows; give one row per node")
        result = _NodePart(index, len(index), table.name)
        result.x, result.features, encodings = features.finish()
        self.encodings[f"nodes.{part.name}"], self.counts[f"nodes.{part.name}"] = encodings, (len(index), 0)
        if label is not None:
            result.classes, result.y = _labels(labels)
        if split is not None:
            parts = np.array([_part_of(cell, table.name, split) for cell in splits])
            masks = {"train_mask": "train", "val_mask": "validation", "test_mask": "test"}
            result.masks = {mask: torch.from_numpy(parts == name) for mask, name in masks.items()}
        if place is not None:
            _put_in_place(result, np.concatenate(places), table.name, place)
        return result

    def edges(self, part: Edges, nodes: Mapping[str, _NodePart]) -> _EdgePart:
        """The edges of a table. Ids that no table of nodes has are refused, or become nodes."""
        with self.sources.open(part.table, self.description.delimiter) as table:
            ends = [self._need(table, part.source, part, "source"), self._need(table, part.target, part, "target")]
            relation, weight, split = (self._choice(table, part, name) for name in ("relation", "weight", "split"))
            features = self._features(table, part, (*ends, relation, weight, split))
            kinds, pairs, types, weights = _numbering(), [], [], []
            splits: list[str] = []
            sides = [nodes[part.source_type], nodes[part.target_type]]
            ends_types = (part.source_type, part.target_type)
            known = [side.count if side.table is not None else np.iinfo(np.int64).max for side in sides]
            extra: dict[str, dict[str, str]] = {}  # ids without a row in the table of their type, and where they are
            for block in table.blocks:
                found = [read_texts(as_list(block.columns[end])) for end in ends]
                for end, names in zip(ends, found, strict=True):
                    table.problems.add_empty(block.rows, names, end)
                pairs.append(_look_up(sides, found))
                for position, side in np.argwhere(pairs[-1] >= known).tolist():
                    row = table.problems.title(block.rows[position])
                    extra.setdefault(ends_types[side], {}).setdefault(found[side][position], row)
                features.add(block)
                if relation is not None:
                    names = read_texts(as_list(block.columns[relation]))
                    table.problems.add_empty(block.rows, names, relation)
                    types.append(np.array([kinds[name] for name in names]))
                if weight is not None:
                    weights.append(read_numbers(weight, block, table.problems))
                if split is not None:
                    splits += read_texts(as_list(block.columns[split]))
            table.problems.check()
        if not pairs:
            raise GraphError(f"the table '{table.name}' holds a header and no rows; give one row per edge")
        for node_type, named in extra.items() if self.description.missing == "error" else ():
            self._refuse(table.name, nodes[node_type], named)
        attributes, names_of_values, encodings = features.finish()
        self.encodings[f"edges.{part.name}"] = encodings
        relations, order = in_order(list(kinds))
        values = {
            "edge_type": order[np.concatenate(types)] if types else None,
            "edge_weight": np.concatenate(weights) if weights else None,
            "edge_attr": None if attributes is None else attributes.numpy(),
        }
        held = {name: value for name, value in values.items() if value is not None}
        whole = np.concatenate(pairs)
        del pairs
        unseen: dict[str, np.ndarray] = {}
        if split is not None:
            if relation is not None:
                raise NotYetError(
                    f"'{table.name}' has a split column and a column of relations", "leave one of them out"
                )
            whole, held, unseen = _split_off(whole, held, [_part_of(cell, table.name, split) for cell in splits])
            if not len(whole):
                raise GraphError(
                    f"the column {split!r} of '{table.name}' marks no edge as train; mark those trained on"
                )
        count = len(whole)
        whole, held = _once(whole, held)
        self.counts[f"edges.{part.name}"] = count, count - len(whole)
        return _EdgePart(part, whole, held, relations, names_of_values, unseen)

    def _refuse(self, edges: str, part: _NodePart, extra: dict[str, str]) -> None:
        known = IdMap(list(part.index)[: part.count])
        shown = (f"{known.unknown(name)} ({row})" for name, row in islice(extra.items(), SHOWN))
        rest = f" and {len(extra) - SHOWN:,} more" if len(extra) > SHOWN else ""
        raise GraphError(
            f"{len(extra):,} id{'s' * (len(extra) != 1)} of '{edges}' {'are' if len(extra) != 1 else 'is'} not in "
            f"'{part.table}': {', '.join(shown)}{rest}",
            "add them there, or give them features of zero by missing = zeros (--set data.missing=zeros on the command line)",
        )


def _numbering() -> defaultdict[str, int]:
    """A number for each name, in the order in which the names are first looked up.

    >>> index = _numbering()
    >>> [index[name] for name in ("b", "a", "b")]
    [0, 1, 0]
    """
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    return index


def _look_up(sides: Sequence[_NodePart], found: Sequence[Sequence[str]]) -> np.ndarray:
    """The numbers of both ends of edges; unknown names get the next ones, row by row."""
    one, other = (side.index for side in sides)
    pairs = [(one[a], other[b]) for a, b in zip(*found, strict=True)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _labels(labels: list[str]) -> tuple[tuple[str, ...], Tensor]:
    """The names of the classes, and the class of each label; -1 where there is none."""
    distinct = [name for name in dict.fromkeys(labels) if name]
    class_of = dict(zip(distinct, class_names(distinct), strict=True))
    found = [name for name in dict.fromkeys(class_of.values()) if name]
    classes, ranks = in_order(found)
    number = dict(zip(found, ranks.tolist(), strict=True))
    return classes, torch.tensor([number.get(class_of.get(label, ""), -1) for label in labels])


def _part_of(cell: str, table: str, column: str) -> str:
    part = _PARTS.get(cell.lower())
    if part is None:
        raise GraphError(
            f"the column {column!r} of '{table}' holds {cell!r}; write train, validation or test",
            "empty cells are train",
        )
    return part


def _put_in_place(part: _NodePart, places: np.ndarray, table: str, column: str) -> None:
    """Put the nodes of a table in the order of a column."""
    order = np.argsort(places, kind="stable")
    if (places[order] != np.arange(len(places))).any():
        raise GraphError(
            f"the column {column!r} of '{table}' must hold each row of the model once, from 0 to {len(places) - 1}",
            "correct it, or leave 'index' out where the rows of the table are in the order of the model",
        )
    names = list(part.index)
    part.index.clear()
    part.index.update((names[row], place) for place, row in enumerate(order.tolist()))
    rows = torch.from_numpy(order)
    part.x, part.y = (None if value is None else value[rows] for value in (part.x, part.y))
    part.masks = {name: mask[rows] for name, mask in part.masks.items()}


def _split_off(
    pairs: np.ndarray, held: dict[str, np.ndarray], parts: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The training edges with their values, and the validation and test edges that are no training edges, each once."""
    named = np.array(parts)
    base = int(pairs.max()) + 1
    keys = pairs[:, 0] * base + pairs[:, 1]
    train, known = named == "train", np.unique(keys[named == "train"])
    unseen = {}
    for part in ("validation", "test"):
        first = np.unique(keys[named == part], return_index=True)[1]
        chosen = np.flatnonzero(named == part)[np.sort(first)]
        chosen = chosen[~np.isin(keys[chosen], known)]
        known = np.concatenate([known, keys[chosen]])  # an edge to validate with is none to test with
        if chosen.size:
            unseen[part] = pairs[chosen]
    return pairs[train], {name: value[train] for name, value in held.items()}, unseen


def _once(
    pairs: np.ndarray, held: dict[str, np.ndarray], undirected: bool = False
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Pairs and their values; an edge that repeats an earlier one with all its values counts once."""
    if undirected:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
        held = {name: np.concatenate([value, value]) for name, value in held.items()}
    keys = pairs[:, 0] * (int(pairs.max()) + 1) + pairs[:, 1]
    order = np.argsort(keys, kind="stable")
    starts = np.append(True, keys[order[1:]] != keys[order[:-1]])
    if starts.all():
        return pairs, held
    group = np.empty(len(keys), dtype=np.int64)
    group[order] = np.cumsum(starts) - 1
    alone = np.append(starts[1:], True) & starts
    again = np.sort(order[~alone])  # usually few: only these need their values compared
    if held:
        rows = np.column_stack([group[again], *(value[again] for value in held.values())])
        distinct = again[np.unique(rows, axis=0, return_index=True)[1]]
    else:
        distinct = order[starts & ~alone]
    keep = np.sort(np.concatenate([order[alone], distinct]))
    return pairs[keep], {name: value[keep] for name, value in held.items()}
