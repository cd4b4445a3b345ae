"""Requests in files and data frames: CSV, JSON, Parquet or Arrow, in the ids and by the column names of one's own tables."""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from gnndelete.datasets.columns import read_texts
from gnndelete.datasets.description import ENDS, Description, Edges
from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.table_files import ARROW_SUFFIXES, Problems, as_list, is_frame, open_table, read_records
from gnndelete.errors import DeletionError, GraphError, some, why

#: The usual names of the columns of a request.
_USUAL = {
    "source": tuple(source for source, _ in ENDS),
    "relation": ("relation", "type"),
    "target": tuple(target for _, target in ENDS),
    "node": ("node", "id", "node_id", "graph"),
    "column": ("column", "feature"),
}
_PARQUET = (".parquet", *ARROW_SUFFIXES)
#: A JSON file of a request is read whole.
MAX_BYTES = 1 << 28

Row = tuple[int, ...]
Found = list[Row] | dict[Any, list[Row]]


@dataclass(frozen=True)
class Names:
    """What the user calls nodes, relations and columns.

    Args:
        ids: The names of the nodes; None where cells are numbers.
        relations: The names of the relation types of a ``Data``.
        features: The names of the columns of ``x``; of a ``HeteroData`` by node type.
        tables: What the user's tables mean.
        classes: The names of the classes of nodes.
    """

    ids: IdMap | None = None
    relations: Sequence[str] = ()
    features: Sequence[str] | Mapping[str, Sequence[str]] = ()
    tables: Description | None = None
    classes: Sequence[str] = ()

    @classmethod
    def of(cls, graph: Any) -> Names:
        """The names of a `NamedGraph`."""
        return cls(graph.ids, graph.relations, graph.features, graph.tables, graph.classes)

    @property
    def by_type(self) -> bool:
        """Whether every node type counts its own ids, as in a ``HeteroData``."""
        return self.ids is not None and bool(self.ids.types) and not self.ids.joined

    def node(self, cell: str, kind: str | None = None, suggest: bool = True) -> tuple[str | None, int]:
        """The type of a node (None where there is only one) and its id; a ``ValueError`` says what is not known."""
        if self.ids is None:
            return None, _whole_number(cell)
        ids = self.ids if kind is None or not self.ids.types else self.ids.of(kind)
        node = ids.find(cell)
        if node is None:
            what = f"{kind} " if kind is not None and self.ids.types else ""
            raise ValueError(f"no {what}id {ids.unknown(cell) if suggest else repr(cell)}")
        if not self.by_type:
            return None, node
        if kind is not None:
            return kind, node
        kind = next(name for name, rows in self.ids.types.items() if node in rows)
        return kind, node - self.ids.types[kind].start

    def edge(self, cells: Sequence[str], form: Edges | None = None, suggest: bool = True) -> tuple[Any, Row]:
        """The type of an edge (None where ids say all) and its ends, with the relation in between where there are several."""
        kinds = (None, None) if form is None else (form.source_type, form.target_type)
        ends = [self.node(cell, kind, suggest) for cell, kind in zip((cells[0], cells[-1]), kinds, strict=True)]
        if self.by_type:
            return self._edge_type(ends, cells, form), (ends[0][1], ends[1][1])
        if len(cells) == 3:
            return None, (ends[0][1], self.relation(cells[1]), ends[1][1])
        if form is not None and form.relation is None and form.name in self.relations:
            return None, (ends[0][1], list(self.relations).index(form.name), ends[1][1])
        return None, (ends[0][1], ends[1][1])

    def _edge_type(self, ends: list[tuple[str | None, int]], cells: Sequence[str], form: Edges | None) -> Any:
        if form is not None:
            return form.kind
        assert self.tables is not None
        fits = [
            each for each in self.tables.edges if [each.source_type, each.target_type] == [kind for kind, _ in ends]
        ]
        if len(cells) == 3:
            fits = [each for each in fits if each.name == cells[1]]
        if len(fits) != 1:
            names = some((each.name for each in fits or self.tables.edges), 10)
            joined = f"join {ends[0][0]} and {ends[1][0]}"
            raise ValueError(
                f"{f'several relations {joined}' if fits else f'no such relation can {joined}'}; there are {names}"
            )
        return fits[0].kind

    def relation(self, cell: str) -> int:
        """The number of a relation; a ``ValueError`` lists those there are."""
        if self.relations:
            if cell not in self.relations:
                raise ValueError(f"no relation {cell!r}, there are {some(map(repr, self.relations))}")
            return list(self.relations).index(cell)
        if not cell.isdigit():
            raise ValueError(f"no relation {cell!r}, they have numbers here")
        return int(cell)

    def new_label(self, cell: str) -> int:
        """The class that a cell names, by its name or its number; a ``ValueError`` lists those there are."""
        if cell in self.classes:
            return list(self.classes).index(cell)
        if self.classes or not (cell.isascii() and cell.isdigit()):
            known = f"there are {some(map(repr, self.classes))}" if self.classes else "classes have numbers here"
            raise ValueError(f"no class {cell!r}, {known}")
        return int(cell)

    def columns(self, cell: str, node: int, kind: str | None = None) -> list[int]:
        """The columns of ``x`` that a cell names; a ``ValueError`` lists those the node has.

        A cell is the name of a column, a number from 0, or the name of a column of the table: one of texts became several
        columns, ``plan=free`` and so on, and stands for all of them. Where node types share one ``x``, its columns are
        called ``user.age``; ``age`` is then the one of the node's own type.

        >>> ids = IdMap(["ann", "pen"], types={"user": 1, "item": 1})
        >>> names = Names(ids, features=["user.age", "user.plan=free", "user.plan=pro", "item.age"])
        >>> names.columns("age", 0), names.columns("age", 1), names.columns("plan", 0), names.columns("user.age", 0)
        ([0], [3], [1, 2], [0])
        """
        names = list(self.features.get(kind or "", ()) if isinstance(self.features, Mapping) else self.features)
        prefix = self._prefix(node)
        for name in (cell, f"{prefix}{cell}"):
            if name in names:
                return [names.index(name)]
            if found := [place for place, column in enumerate(names) if column.startswith(f"{name}=")]:
                return found
        if cell.isascii() and cell.isdigit():
            return [int(cell)]
        if not names:
            raise ValueError(f"no column {cell!r}, columns of 'x' have numbers from 0")
        own = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        known = dict.fromkeys(name.partition("=")[0] for name in own)
        near = difflib.get_close_matches(cell, known, n=1, cutoff=0.6)
        there_are = f"there are {some(map(repr, known))}, or numbers from 0" if known else "this node has none"
        raise ValueError(f"no column {cell!r}, {f'did you mean {near[0]!r}?' if near else there_are}")

    def _prefix(self, node: int) -> str:
        """What the names of a node's own columns start with, where node types share one ``x``."""
        if self.ids is None or not self.ids.joined:
            return ""
        return next((f"{name}." for name, rows in self.ids.types.items() if node in rows), "")


def _whole_number(cell: str) -> int:
    if "_" in cell or int(cell) < 0:  # Python reads 1_0 as 10
        raise ValueError
    return int(cell)


@dataclass
class _Cells:
    """The rows of a request, and the names of its columns where it has a header."""

    header: list[str] | None
    rows: list[tuple[int, list[str]]]
    problems: Problems


def read_request(source: Any, names: Names, wanted: str | None = None) -> tuple[str, Found]:
    """The kind ('edges', 'nodes', 'features', 'labels') and the rows of a request; all bad rows are reported together.

    Args:
        source: The path of a CSV, JSON, Parquet or Arrow file, an open file, or a data frame.
        names: What the user calls nodes, relations and columns.
        wanted: What a request of nodes names: the nodes, their 'features' or their 'labels'.

    Returns:
        The kind, and its rows; on a ``HeteroData`` by type.
    """
    title = f"'{source}'" if isinstance(source, (str, PathLike)) else "the request"
    cells = _read_cells(source, title)
    if not cells.rows and cells.header is None:
        cells.problems.check()
        raise DeletionError(f"the request file {title} is empty; give one row per edge or node")
    form = _form(cells, names, title, wanted)
    kind = form.kind
    if wanted is not None and kind != wanted:
        if kind != "nodes":
            raise DeletionError(f"{title} names {kind}, and {wanted} were asked for; give a column node")
        kind = wanted
    if kind == "labels" and (new := _new_labels(cells, form)) is not None:
        form = replace(form, columns=[*form.columns, new])
    plain: list[Row] = []
    typed: dict[Any, list[Row]] = {}
    for line, row in cells.rows:
        picked = [row[column] for column in form.columns]
        try:
            for of_type, element in _elements(kind, picked, form, names, not cells.problems.many):
                (plain if of_type is None else typed.setdefault(of_type, [])).append(element)
        except ValueError as error:
            cells.problems.add(line, str(error) if names.ids is not None else ",".join(row))
    cells.problems.check()
    if not plain and not typed:
        raise DeletionError(f"the request file {title} holds a header and no rows; give one row per edge or node")
    return kind, typed or plain


def _elements(kind: str, picked: list[str], form: _Form, names: Names, suggest: bool) -> list[tuple[Any, Row]]:
    """What a row names: one element, or several columns of features."""
    if kind == "edges":
        return [names.edge(picked, form.edges, suggest)]
    of_type, node = names.node(picked[0], form.node_type, suggest)
    if kind == "labels" and len(picked) == 2:
        return [(of_type, (node, names.new_label(picked[1])))]
    if kind != "features" or len(picked) == 1:
        return [(of_type, (node,))]
    return [(of_type, (node, column)) for column in names.columns(picked[1], node, of_type)]


@dataclass(frozen=True)
class _Form:
    """What the rows of a request name, and in which columns."""

    kind: str
    columns: list[int]
    edges: Edges | None = None
    node_type: str | None = None
    header: Sequence[str] = ()


def _form(cells: _Cells, names: Names, title: str, wanted: str | None) -> _Form:
    """How a request is to be read; a first line that is a header is taken off its rows."""
    first = cells.header if cells.header is not None else cells.rows[0][1]
    if cells.header is None:
        mark = next((mark for mark in (";", "\t", "|") if len(first) == 1 and mark in first[0]), None)
        if mark is not None and (names.ids is None or first[0] not in names.ids):
            raise DeletionError(f"the columns of {title} are separated by {mark!r} ('{first[0]}')", "use commas")
    form = _by_header(cells, first, names, title)
    if form is not None:
        cells.rows = cells.rows if cells.header is not None else cells.rows[1:]
        return replace(form, header=first)
    if cells.header is not None or len(first) > 3:
        raise DeletionError(
            f"{_unknown_columns(first, cells.header is not None, title)}; name the columns {_expected(names)}"
        )
    if names.ids is not None and len(cells.rows) > 1 and not any(_resembles(cell, names.ids) for cell in first):
        raise DeletionError(
            f"the first line of {title} ({','.join(first)[:80]}) is neither a header that is known nor a row of ids",
            f"name the columns {_expected(names)}, or correct the ids",
        )
    kind = "nodes" if len(first) == 1 else "edges" if wanted != "features" or len(first) != 2 else wanted
    return _Form(kind, list(range(len(first))))


def _resembles(cell: str, ids: IdMap) -> bool:
    """Whether a cell is an id, or nearly one."""
    return cell in ids or ids.closest(cell) is not None


def _new_labels(cells: _Cells, form: _Form) -> int | None:
    """The column with the labels that are right instead, where a request of labels has one."""
    header = [cell.lower() for cell in form.header]
    return next((header.index(name) for name in ("new", "new_label", "replace") if name in header), None)


def _unknown_columns(first: list[str], has_header: bool, title: str) -> str:
    if has_header:
        return f"none of the columns of {title} ({some(first, 8)}) is known"
    return f"{title} has {len(first)} columns and no header that is known (its first line: {','.join(first)[:80]})"


def _expected(names: Names) -> str:
    """The columns that a request may have, in the user's own words."""
    if names.tables is None or names.tables.named_by_options:
        known = [] if names.tables is None else [f"{each.source},{each.target}" for each in names.tables.edges]
        return " or ".join(dict.fromkeys([*known, "source,target", "node"]))
    edges = [f"{each.source},{each.target}" for each in names.tables.edges]
    return " or ".join(dict.fromkeys([*edges, *(each.key for each in names.tables.nodes)]))


def _by_header(cells: _Cells, first: list[str], names: Names, title: str) -> _Form | None:
    """The form that the names of columns tell; None where the first line is no header."""
    lower = [cell.lower() for cell in first]
    usual = {role: lower.index(name) for role, known in _USUAL.items() for name in known[::-1] if name in lower}
    form = _of_tables(lower, first, cells, usual, names, title)
    if form is None and "source" in usual and "target" in usual:
        form = _Form("edges", [usual[role] for role in ("source", "relation", "target") if role in usual])
    if form is None and "node" in usual:
        both = [usual[role] for role in ("node", "column") if role in usual]
        form = _Form("features" if len(both) == 2 else "nodes", both)
    if cells.header is not None:
        return form
    if names.ids is None:
        if all(cell.lstrip("-").isdigit() for cell in first):
            return None
        if form is None:
            raise DeletionError(f"the header of {title} is '{','.join(lower)}'; name the columns source,target or node")
    elif form is not None and all(cell in names.ids for cell in first):
        raise DeletionError(
            f"the first line of {title} ({','.join(first)}) is both a header and a row of ids; "
            "put a header above it that is no id, such as node_id or head,tail"
        )
    return form


def _of_tables(
    lower: list[str], first: list[str], cells: _Cells, usual: dict[str, int], names: Names, title: str
) -> _Form | None:
    """The form of a request whose columns are called as those of the user's tables."""
    if names.tables is None:
        return None
    place = {name: at for at, name in enumerate(lower)}
    fits = [each for each in names.tables.edges if each.source.lower() in place and each.target.lower() in place]
    if len(fits) > 1 and "relation" in usual:
        values = {row[usual["relation"]] for _, row in cells.rows} - {first[usual["relation"]]}
        fits = [each for each in fits if values == {each.name}] or fits
    if len(fits) > 1:
        raise DeletionError(
            f"{title} has the columns {fits[0].source} and {fits[0].target}, which {some((each.name for each in fits), 6)} "
            "have; add a column relation with one of these names, and give a file for each"
        )
    if fits:
        columns = [place[fits[0].source.lower()], place[fits[0].target.lower()]]
        relation = fits[0].relation
        if relation is not None and relation.lower() in place:
            columns.insert(1, place[relation.lower()])
        elif "relation" in usual and names.relations and fits[0].name not in names.relations:
            columns.insert(1, usual["relation"])
        return _Form("edges", columns, fits[0])
    keys = [(each.key, each.name) for each in names.tables.nodes]
    for each in names.tables.edges:
        keys += [(each.source, each.source_type), (each.target, each.target_type)]
    for key, node_type in keys:
        if key.lower() in place and (key.lower() not in _ENDS or len(lower) == 1):
            both = [place[key.lower()], *([usual["column"]] if "column" in usual else [])]
            return _Form("features" if len(both) == 2 else "nodes", both, node_type=node_type)
    return None


_ENDS = frozenset(end for pair in ENDS for end in pair)


def _read_cells(source: Any, title: str) -> _Cells:
    """The cells of a request as text."""
    if is_frame(source):
        return _from_table(source, "the request")
    if hasattr(source, "read"):
        return _read_text(source, "the request")
    path = Path(source)
    if path.name.lower().endswith(_PARQUET):
        return _from_table(path, str(path))
    problems = Problems(str(path), error=DeletionError)
    try:
        if path.suffix.lower() == ".json":
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise ValueError(f"it is longer than {MAX_BYTES:,} bytes")
            return _from_json(json.loads(content), title)
        with path.open("rb") as file:
            rows = [(line, [cell.strip() for cell in cells]) for line, cells in read_records(file, problems)]
    except (OSError, csv.Error, ValueError, RecursionError) as error:
        if isinstance(error, DeletionError):
            raise
        what = "a JSON file" if path.suffix.lower() == ".json" else "a CSV file"
        raise DeletionError(f"the request file {title} cannot be read: {why(error)}; give {what} of ids") from error
    return _Cells(None, rows, problems)


def _read_text(stream: Any, title: str) -> _Cells:
    """The rows of an open CSV file, of bytes or of text."""
    import io

    content = stream.read()
    binary = io.BytesIO(content if isinstance(content, bytes) else content.encode())
    problems = Problems(title, error=DeletionError)
    try:
        rows = [(line, [cell.strip() for cell in cells]) for line, cells in read_records(binary, problems)]
    except csv.Error as error:
        raise DeletionError(f"{title} cannot be read: {error}; give CSV text with ids") from None
    return _Cells(None, rows, problems)


def _from_table(source: Any, title: str) -> _Cells:
    rows: list[tuple[int, list[str]]] = []
    try:
        with open_table(source, name=title) as table:
            header = list(table.columns)
            for block in table.blocks:
                columns = [read_texts(as_list(block.columns[name])) for name in header]
                rows += [(row, list(cells)) for row, *cells in zip(block.rows, *columns, strict=True)]
    except GraphError as error:
        raise DeletionError(error.why, error.remedy) from None
    return _Cells(header, rows, Problems(title, "row", error=DeletionError))


def _from_json(content: Any, title: str) -> _Cells:
    """A list of objects with the names of columns, a list of rows or ids, or an object with a list for each column."""
    if isinstance(content, dict) and content and all(isinstance(part, list) for part in content.values()):
        lengths = {len(part) for part in content.values()}
        if len(lengths) == 1:
            content = [dict(zip(content, row, strict=True)) for row in zip(*content.values(), strict=True)]
    elif isinstance(content, dict):
        content = [content]
    problems = Problems(title.strip("'"), "entry", error=DeletionError)
    if not isinstance(content, list) or not content:
        raise DeletionError(f'the request file {title} holds no list of objects; write [{{"user_id": "u-1"}}, …]')
    header = list(content[0]) if isinstance(content[0], dict) else None
    rows = []
    for number, entry in enumerate(content, 1):
        if header is not None and isinstance(entry, dict) and set(entry) == set(header):
            entry = [entry[name] for name in header]
        elif header is not None or isinstance(entry, dict):
            problems.add(
                number, f"its names are not {some(header or (), 8)}" if header else "it has names, others have none"
            )
            continue
        values = entry if isinstance(entry, list) else [entry]
        if any(isinstance(value, (dict, list)) for value in values):
            problems.add(number, "it holds lists within it")
            continue
        rows.append((number, read_texts(values)))
    width = len(header) if header is not None else len(rows[0][1]) if rows else 0
    for number, row in rows:
        if len(row) != width:
            problems.add(number, f"{len(row)} values instead of {width}")
    return _Cells(header, [row for row in rows if len(row[1]) == width], problems)
