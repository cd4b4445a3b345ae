"""Two tables, of nodes and of edges, put together to a graph that remembers what its numbers are called."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.columns import Names, Numbers, class_names, in_order, numbers, texts
from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.tables import Table
from gnndelete.errors import GraphError, NotYetError, SettingError, some
from gnndelete.graph.validation import check_graph

Missing = Literal["error", "zeros"]


@dataclass(frozen=True, eq=False, repr=False)
class NamedGraph:
    """A graph, and what its numbers are called where it comes from.

    ``ids`` names the nodes (None where they only have numbers), ``relations`` the edge types, ``classes`` the labels,
    ``features`` and ``edge_features`` the columns of ``x`` and ``edge_attr``; ``ignored`` lists columns that were not used.
    """

    data: Data
    ids: IdMap | None = None
    relations: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    edge_features: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"NamedGraph({self.data}, ids={self.ids})"


@dataclass(frozen=True)
class Columns:
    """Which column of the tables is what. None: the column of that name where there is one; for features, all numbers."""

    source: str = "source"
    target: str = "target"
    relation: str | None = None
    node_id: str = "id"
    features: Sequence[str] | None = None
    label: str | None = None
    weight: str | None = None
    edge_features: Sequence[str] | None = None


def build(
    edges: AbstractContextManager[Table],
    nodes: AbstractContextManager[Table] | None,
    columns: Columns,
    undirected: bool,
    missing: Missing,
) -> NamedGraph:
    """The graph of two tables, whatever they were read from."""
    if missing not in ("error", "zeros"):
        raise SettingError(f"'missing' must be 'error' or 'zeros' (got {missing!r})")
    index, found = Names(), _NodeRows()
    if nodes is not None:
        with nodes as table:
            found = _read_nodes(table, columns, index)
    with edges as table:
        data, relations, attributes, ignored = _read_edges(table, columns, index, found, undirected, missing)
    ids = IdMap(index)
    extra = len(ids) - found.count
    if found.x is None:
        data.num_nodes = len(ids)
    else:
        data.x = torch.cat([found.x, found.x.new_zeros(extra, found.x.size(1))])
    if found.y is not None:
        data.y = torch.cat([found.y, found.y.new_full((extra,), -1)])
    check_graph(data)
    return NamedGraph(data, ids, relations, found.classes, found.features, attributes, (*found.ignored, *ignored))


@dataclass(frozen=True)
class _NodeRows:
    name: str | None = None
    count: int = 0
    x: Tensor | None = None
    y: Tensor | None = None
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def _read_nodes(table: Table, columns: Columns, index: Names) -> _NodeRows:
    key = table.need(columns.node_id, "node_id")
    label = _optional(table, columns.label, "label", columns.features)
    features = Numbers(table, columns.features, (key, label), "features")
    labels, codes = Names({"": 0}), []
    for block in table.blocks:
        names, known = texts(block.columns[key]), len(index)
        places = index.codes(names)
        if len(index) - known < len(names):
            _name_repeats(table, block.rows, names, places, known)
        if "" in index:
            _name_empty(table, block.rows, names, key)
        features.add(block)
        if label is not None:
            codes.append(labels.codes(texts(block.columns[label])))
    table.problems.check()
    if not index:
        raise GraphError(f"the table '{table.name}' holds a header and no rows; give one row per node")
    classes, y = _labels(labels, codes)
    x = features.values()
    return _NodeRows(table.name, len(index), x, y, classes, features.names or (), features.ignored)


def _optional(table: Table, column: str | None, name: str, features: Sequence[str] | None = None) -> str | None:
    """The column that was asked for, else the one of the usual name, unless that was asked for as a feature."""
    if column is not None:
        return table.need(column, name)
    return name if name in table.columns and name not in (features or ()) else None


def _labels(labels: Names, codes: list[np.ndarray]) -> tuple[tuple[str, ...], Tensor | None]:
    if not codes:
        return (), None
    of = class_names(list(labels)[1:])
    found = [name for name in dict.fromkeys(of) if name]
    classes, places = in_order(found)
    number = dict(zip(found, places.tolist(), strict=True))
    table = np.array([-1, *(number.get(name, -1) for name in of)], dtype=np.int64)
    return classes, torch.from_numpy(table[np.concatenate(codes)])


def _name_repeats(table: Table, rows: Sequence[int], names: list[str], places: np.ndarray, known: int) -> None:
    fresh = known
    for row, name, place in zip(rows, names, places.tolist(), strict=True):
        if place == fresh:
            fresh += 1
        elif name:
            table.problems.add(row, f"the id {name!r} stands in an earlier row too")


def _name_empty(table: Table, rows: Sequence[int], names: list[str], column: str) -> None:
    for row, name in zip(rows, names, strict=True):
        if not name:
            table.problems.add(row, f"{column!r} is empty")


def _read_edges(
    table: Table, columns: Columns, index: Names, nodes: _NodeRows, undirected: bool, missing: Missing
) -> tuple[Data, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    ends = [table.need(columns.source, "source"), table.need(columns.target, "target")]
    relation = _optional(table, columns.relation, "relation", columns.edge_features)
    weight = _optional(table, columns.weight, "weight", columns.edge_features)
    if relation is not None and undirected:
        raise NotYetError(
            f"'{table.name}' has typed edges (column {relation!r}), which have a direction; leave out undirected=True, "
            "or list the reverse edges with a relation of their own"
        )
    attributes = Numbers(table, columns.edge_features, (*ends, relation, weight), "edge_features")
    kinds, pairs, types, weights = Names(), [], [], []
    unknown: dict[int, int] = {}
    for block in table.blocks:
        found = [texts(block.columns[end]) for end in ends]
        in_turn = [name for pair in zip(*found, strict=True) for name in pair]
        places = index.codes(in_turn).reshape(-1, 2).T
        if "" in index:
            for end, names in zip(ends, found, strict=True):
                _name_empty(table, block.rows, names, end)
        if nodes.name is not None and missing == "error" and len(index) > nodes.count:
            for side, place in np.argwhere(places >= nodes.count).tolist():
                unknown.setdefault(int(places[side, place]), block.rows[place])
        pairs.append(places)
        attributes.add(block)
        if relation is not None:
            names = texts(block.columns[relation])
            types.append(kinds.codes(names))
            if "" in kinds:
                _name_empty(table, block.rows, names, relation)
        if weight is not None:
            weights.append(numbers(weight, block, table.problems))
    table.problems.check()
    if unknown:
        raise _not_in_the_node_table(unknown, list(index), table, nodes)
    if not pairs:
        raise GraphError(f"the table '{table.name}' holds a header and no rows; give one row per edge")
    relations, order = in_order(list(kinds))
    data = _edges(
        np.concatenate(pairs, axis=1),
        order[np.concatenate(types)] if types else None,
        np.concatenate(weights) if weights else None,
        attributes.values(),
        undirected,
    )
    return data, relations, attributes.names or (), attributes.ignored


def _not_in_the_node_table(unknown: dict[int, int], names: list[str], table: Table, nodes: _NodeRows) -> GraphError:
    known = IdMap(names[: nodes.count])
    first = list(unknown.items())[:20]
    shown = some((f"{known.unknown(names[place])} ({table.problems.place(row)})" for place, row in first), 20)
    rest = f" and {len(unknown) - 20:,} more" if len(unknown) > 20 else ""
    return GraphError(
        f"{len(unknown):,} ids of '{table.name}' are not in '{nodes.name}': {shown}{rest}; add them there, or pass "
        'missing="zeros" (--set data.missing=zeros) to give them features of zero'
    )


def _edges(
    pairs: np.ndarray, types: np.ndarray | None, weight: np.ndarray | None, values: Tensor | None, undirected: bool
) -> Data:
    parts = {"edge_type": types, "edge_weight": weight, "edge_attr": None if values is None else values.numpy()}
    held = {name: value for name, value in parts.items() if value is not None}
    if undirected:
        pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
        held = {name: np.concatenate([value, value]) for name, value in held.items()}
    keep = _first_of_each(pairs, held)
    return Data(
        edge_index=torch.from_numpy(np.ascontiguousarray(pairs[:, keep])),
        **{name: torch.from_numpy(value[keep]) for name, value in held.items()},
    )


def _first_of_each(pairs: np.ndarray, held: dict[str, np.ndarray]) -> np.ndarray:
    """Positions of the edges without those that repeat an earlier one with all its values."""
    _, first, of, count = np.unique(
        pairs[0] * (int(pairs.max()) + 1) + pairs[1], return_index=True, return_inverse=True, return_counts=True
    )
    if not held:
        return np.sort(first)
    again = np.flatnonzero(count[of] > 1)  # few, mostly: only these need a look at their values
    rows = np.column_stack([of[again], *(value[again] for value in held.values())])
    distinct = again[np.unique(rows, axis=0, return_index=True)[1]]
    return np.sort(np.concatenate([np.flatnonzero(count[of] == 1), distinct]))
