"""Reading node and edge tables in blocks of rows: CSV and TSV (also gzipped) line by line, Parquet through pyarrow.

What does not parse is collected with its line number, and all of it is refused at once when the table has been read.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.ids import IdMap, decoded
from gnndelete.errors import GraphError, NotYetError, SettingError, some
from gnndelete.graph.validation import check_graph

BLOCK = 65_536
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")


class Problems:
    """Rows that cannot be used, each with the first reason that was found."""

    def __init__(self, name: str, unit: str = "line", names: Sequence[str] | None = None) -> None:
        self.name, self.unit, self._names = name, unit, names
        self._found: dict[int, str] = {}

    def place(self, row: int) -> str:
        """How a row is called: by its number, or by a name it has."""
        return f"{self.unit} {row if self._names is None else self._names[row - 1]}"

    def add(self, row: int, why: str) -> None:
        self._found.setdefault(int(row), why)

    def check(self) -> None:
        """Refuse the table where there are any: all are counted, the first 20 named."""
        if not self._found:
            return
        count = len(self._found)
        rows = sorted(self._found)[:20]
        shown = some((f"{self.place(row)} ({self._found[row]})" for row in rows), 20)
        rest = f" and {count - 20:,} more" if count > 20 else ""
        raise GraphError(
            f"{count:,} {self.unit}{'s' if count > 1 else ''} of '{self.name}' cannot be used: {shown}{rest}; "
            "correct or remove them"
        )


@dataclass(frozen=True)
class Block:
    """Some consecutive rows: their line numbers, and their cells by column."""

    rows: Sequence[int]
    columns: Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Table:
    """An open table."""

    name: str
    columns: tuple[str, ...]
    blocks: Iterator[Block]
    problems: Problems

    def need(self, column: str, option: str) -> str:
        """The column, or a sentence about the columns there are."""
        if column not in self.columns:
            alone = self.columns[0] if len(self.columns) == 1 else ""
            other = next((sign for sign in (";", "\t", "|", ",") if sign in alone), None)
            way_out = f"pass delimiter={other!r}" if other else f"name it with {option}="
            way_out += f" (--set data.{'delimiter' if other else option}=… on the command line)"
            shown = some(map(repr, self.columns), 10)
            raise GraphError(f"'{self.name}' has no column {column!r} (its columns: {shown}); {way_out}")
        return column


@contextmanager
def open_table(path: Path, keys: Collection[str] = (), delimiter: str | None = None) -> Iterator[Table]:
    """Open a table by its suffix. Cells of the columns ``keys`` hold no line breaks, which tells where a quote is missing."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise GraphError(f"'{path}' is no table that can be read; give one of {', '.join(SUFFIXES)}")
    if name.endswith(".parquet"):
        with open_parquet(path) as table:
            yield table
        return
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as stream:
            yield _open_text(path, stream, keys, delimiter or ("\t" if ".tsv" in name[-7:] else ","))
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise GraphError(f"the table '{path}' cannot be read ({why}); check the file") from None


def _open_text(path: Path, stream: Any, keys: Collection[str], delimiter: str) -> Table:
    if b"\0" in stream.peek(4096)[:4096]:
        raise GraphError(f"'{path}' is not a text table in UTF-8 (it holds zero bytes); save it as CSV in UTF-8")
    lines = _Lines(io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline=""))
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        header = tuple(cell.strip() for cell in next((row for row in reader if row), []))
    except (csv.Error, TypeError) as error:
        raise GraphError(f"the header of '{path}' cannot be read ({error}); give a CSV file with a header") from None
    if not header:
        raise GraphError(f"the table '{path}' is empty; give a header and one row per element")
    again = sorted({column for column in header if column and header.count(column) > 1})
    if again:
        raise GraphError(f"'{path}' has several columns named {some(map(repr, again))}; make their names distinct")
    if not all(map(decoded, header)):
        raise GraphError(f"the header of '{path}' is not in UTF-8; save the table in UTF-8")
    problems = Problems(str(path))
    places = [place for place, column in enumerate(header) if column in keys]
    named = tuple(column for column in header if column)  # data frames write their row numbers without a name
    return Table(str(path), named, _blocks(lines, reader, header, places, problems), problems)


class _Lines:
    """Lines of a file for a CSV reader; those of an unfinished record can be read again."""

    def __init__(self, file: Iterator[str]) -> None:
        self._file = file
        self._again: deque[str] = deque()
        self.record: list[str] = []
        self.done = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._file)
        self.record.append(line)
        return line

    def next_record(self) -> int:
        """Forget the lines of the last record; the number of the line that comes next."""
        self.done += len(self.record)
        self.record.clear()
        return self.done + 1

    def rewind(self) -> None:
        """Take back all lines of this record but its first."""
        self._again.extendleft(reversed(self.record[1:]))
        del self.record[1:]


def _blocks(
    lines: _Lines, reader: Iterator[list[str]], header: tuple[str, ...], places: list[int], problems: Problems
) -> Iterator[Block]:
    width = len(header)
    cells: list[str] = []  # of all rows, one after the other: a million small lists would keep the collector busy
    numbers: list[int] = []
    while True:
        first = lines.next_record()
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            problems.add(first, _reason(error, len(lines.record)))
            lines.rewind()
            continue
        if not row:
            continue
        if len(lines.record) > 1 and (len(row) != width or any("\n" in row[place] for place in places)):
            problems.add(first, "a quote is not closed")
            lines.rewind()
            continue
        if not all(map(str.isascii, lines.record)) and not all(map(decoded, lines.record)):
            for offset, line in enumerate(lines.record):
                if not decoded(line):
                    problems.add(first + offset, f"not UTF-8: {line.strip()[:40]!r}")
            continue
        if len(row) != width:
            problems.add(first, f"{len(row)} cells where the header has {width}: {lines.record[0].strip()[:40]!r}")
            continue
        cells += row
        numbers.append(first)
        if len(numbers) == BLOCK:
            yield _block(header, cells, numbers)
            cells, numbers = [], []
    if numbers:
        yield _block(header, cells, numbers)


def _block(header: tuple[str, ...], cells: list[str], numbers: list[int]) -> Block:
    return Block(numbers, {column: cells[place :: len(header)] for place, column in enumerate(header) if column})


def _reason(error: csv.Error, lines: int) -> str:
    if lines > 1 or "unexpected end" in str(error):
        return "a quote is not closed"
    return "a cell goes on after its closing quote" if "expected after" in str(error) else str(error)


_LOOKED_AT = 1000
"""Cells by which a column that was not asked for is taken for numbers."""

_MISSING = ("nan", "-nan")
"""How a number that is missing is written, in small letters."""


class Numbers:
    """The numeric columns of a table, collected block by block.

    ``chosen=None`` takes the columns outside ``taken`` whose first cells are mostly numbers. In a column that is taken
    every cell must be a finite number.
    """

    def __init__(self, table: Table, chosen: Sequence[str] | None, taken: Collection[str | None], option: str) -> None:
        if isinstance(chosen, str):
            raise GraphError(f"{option}= is the text {chosen!r}; give a list of columns")
        self.names = None if chosen is None else tuple(table.need(column, option) for column in chosen)
        self._rest = [column for column in table.columns if column not in taken]
        self._problems = table.problems
        self._parts: list[np.ndarray] = []

    def add(self, block: Block) -> None:
        if self.names is None:
            self.names = tuple(name for name in self._rest if _mostly_numbers(block.columns[name][:_LOOKED_AT]))
        part = np.empty((len(block.rows), len(self.names)), dtype=np.float32)
        for place, name in enumerate(self.names):
            part[:, place] = numbers(name, block, self._problems)
        self._parts.append(part)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Columns that no one asked for and that hold no numbers."""
        return tuple(name for name in self._rest if name not in (self.names or ()))

    def values(self) -> Tensor | None:
        """``[rows, columns]``, or None where there are no such columns."""
        if not self.names or not self._parts:
            return None
        return torch.from_numpy(np.concatenate(self._parts))


def numbers(column: str, block: Block, problems: Problems) -> np.ndarray:
    """One column as 32-bit floats; cells that are none are noted as problems of their rows."""
    cells = block.columns[column]
    if isinstance(cells, np.ndarray):
        found = cells
    else:
        try:
            if "_" in "".join(cells):  # Python reads 1_0 as 10
                raise ValueError
            found = np.fromiter(map(float, cells), np.float64, len(cells))
        except (ValueError, TypeError, OverflowError):
            found = np.array([_number(cell) for cell in cells])
    with np.errstate(over="ignore"):
        result = found.astype(np.float32)
    for place in np.flatnonzero(~np.isfinite(result)).tolist():
        cell = cells[place]
        empty = cell is None or (isinstance(cell, str) and not cell.strip())
        problems.add(block.rows[place], f"{column!r} is empty" if empty else f"{column!r} is {_short(cell)}, no number")
    return result


def _number(cell: Any) -> float:
    """A cell as a number, or NaN; 1_0, which Python takes for 10, is none."""
    try:
        return float("nan") if isinstance(cell, str) and "_" in cell else float(cell)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _mostly_numbers(cells: Sequence[Any]) -> bool:
    if isinstance(cells, np.ndarray):
        return True
    given = [cell for cell in cells if cell is not None and (not isinstance(cell, str) or cell.strip())]
    good = sum(1 for cell in given if not np.isnan(_number(cell)))
    return 2 * good > len(given)


def texts(cells: Sequence[Any]) -> list[str]:
    """Cells as text without surrounding blanks; what is missing is empty, and 3.0 is 3.

    >>> texts([" user:4711", None, 3.0, 7])
    ['user:4711', '', '3', '7']
    """
    values = cells.tolist() if isinstance(cells, np.ndarray) else cells
    return [cell.strip() if type(cell) is str else _text(cell) for cell in values]


def _text(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


class Names(dict[str, int]):
    """Numbers names in the order in which they are first seen.

    >>> Names().codes(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """

    def __missing__(self, name: str) -> int:
        place = self[name] = len(self)
        return place

    def codes(self, names: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.__getitem__, names), np.int64, len(names))


def in_order(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Distinct names sorted (whole numbers by value), and the place of each given one among them.

    >>> in_order(["10", "9"])
    (('9', '10'), array([1, 0]))
    """
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    ordered = sorted(names, key=int) if whole else sorted(names)
    place = {name: position for position, name in enumerate(ordered)}
    return tuple(ordered), np.array([place[name] for name in names], dtype=np.int64)


def class_names(names: Sequence[str]) -> list[str]:
    """The class of each label: 2.0 is the class 2, and measurements such as 2.5 are refused.

    Among numbers ``nan`` is a label that is missing, as numpy and pandas write it, and has no class (empty).

    >>> class_names(["1.0", "2.0", "nan"])
    ['1', '2', '']
    >>> class_names(["tea", "nan"])
    ['tea', 'nan']
    """
    values = {name: _number(name) for name in names if name.lower() not in _MISSING}
    if not np.isfinite(list(values.values())).all():
        return list(names)
    broken = [name for name, value in values.items() if value != int(value)]
    if broken:
        raise GraphError(f"labels are classes, and {some(broken)} look like measurements; give whole numbers or names")
    classes = {name: str(int(value)) if "." in name else name for name, value in values.items()}
    return [classes.get(name, "") for name in names]


def _short(cell: Any) -> str:
    shown = repr(cell)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"


@contextmanager
def open_parquet(path: Path) -> Iterator[Table]:
    """Open a Parquet file; its rows are counted from 1."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise GraphError(
            f"reading '{path}' needs pyarrow; install it with: pip install 'gnndelete[parquet]', or give a CSV file"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            again = sorted({name for name in names if names.count(name) > 1})
            if again:
                raise GraphError(
                    f"'{path}' has several columns named {some(map(repr, again))}; make their names distinct"
                )
            yield Table(str(path), tuple(names), _parquet_blocks(file), Problems(str(path), "row"))
    except (pyarrow.ArrowException, OSError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GraphError(f"the table '{path}' cannot be read ({why}); check the file") from None


def _parquet_blocks(file: Any) -> Iterator[Block]:
    first = 1
    for batch in file.iter_batches(batch_size=BLOCK):
        columns = {name: _cells(batch.column(place)) for place, name in enumerate(batch.schema.names)}
        if batch.num_rows:
            yield Block(range(first, first + batch.num_rows), columns)
        first += batch.num_rows


def _cells(column: Any) -> Sequence[Any]:
    """Numbers as an array where none is missing; everything else as Python values, None where missing."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if (types.is_integer(column.type) or types.is_floating(column.type)) and not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


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


def from_tables(
    edges: str | PathLike[str],
    nodes: str | PathLike[str] | None = None,
    *,
    source: str = "source",
    target: str = "target",
    relation: str | None = None,
    node_id: str = "id",
    features: Sequence[str] | None = None,
    label: str | None = None,
    weight: str | None = None,
    edge_features: Sequence[str] | None = None,
    undirected: bool = False,
    missing: Missing = "error",
    delimiter: str | None = None,
) -> NamedGraph:
    """Read a graph from an edge table and, where there is one, a node table: CSV, TSV, either gzipped, or Parquet.

    - Ids are text, such as ``user:4711``. Nodes come in the order of the node table, else as the edges name them.
    - ``relation``, ``label`` and ``weight`` name columns; by default the columns of just these names, where they exist.
    - ``features`` (columns of ``x``) and ``edge_features`` (of ``edge_attr``) are by default all other columns of numbers;
      every cell of theirs must be a finite number.
    - Labels are names or whole numbers; ``classes`` has them in order, and an empty cell is a node without a label (-1),
      as ``nan`` is where all other labels are numbers.
    - ``undirected=True`` adds the reverse of every edge. An edge that is listed again with the same values counts once;
      with another weight or other features it stays as a parallel edge, and deleting it deletes all its copies.
    - Ids that only edges name are an error, or with ``missing="zeros"`` nodes with features of zero and no label.

    Rows that cannot be used are all counted and the first 20 named by their line.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("id,age,label\\nuser:4711,31,a\\nuser:12,40,b\\nitem:7,0,\\n")
    >>> _ = (folder / "edges.csv").write_text("source,target\\nuser:4711,item:7\\nuser:12,item:7\\n")
    >>> graph = from_tables(folder / "edges.csv", folder / "nodes.csv", undirected=True)
    >>> graph
    NamedGraph(Data(edge_index=[2, 4], x=[3, 1], y=[3]), ids=IdMap('user:4711', 'user:12', 'item:7'))
    >>> graph.classes, graph.data.y.tolist()
    (('a', 'b'), [0, 1, -1])
    """
    columns = Columns(source, target, relation, node_id, features, label, weight, edge_features)
    opened = None if nodes is None else open_table(Path(nodes), [node_id], delimiter)
    keys = [source, target, relation or "relation"]
    return build(open_table(Path(edges), keys, delimiter), opened, columns, undirected, missing)
