"""Your own graph from node and edge tables: CSV and TSV (also gzipped) or Parquet, with names as ids.

Tables are read in blocks of rows, so that large ones fit in memory. Rows that cannot be used are collected with their line
numbers and refused together at the end.
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
from typing import IO, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.ids import IdMap, is_utf8
from gnndelete.errors import GraphError, NotYetError, RequestError, SettingError, some
from gnndelete.graph.validation import check_graph

#: Rows that are read at a time.
BLOCK = 65_536
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")

#: Bad rows that an error names; the others are counted.
_SHOWN = 20

Missing = Literal["error", "zeros"]


class Problems:
    """Rows that cannot be used, each with the first reason that was found."""

    def __init__(
        self,
        name: str,
        unit: str = "line",
        titles: Sequence[str] | None = None,
        error: type[RequestError] = GraphError,
    ) -> None:
        self.name, self.unit, self._titles, self._error = name, unit, titles, error
        self._reasons: dict[int, str] = {}

    def title(self, row: int) -> str:
        """What errors call a row: by its number, or by its title where it has one."""
        return f"{self.unit} {row if self._titles is None else self._titles[row - 1]}"

    def add(self, row: int, reason: str) -> None:
        self._reasons.setdefault(int(row), reason)

    def check(self) -> None:
        """Refuse the table where there are any problems."""
        if not self._reasons:
            return
        count = len(self._reasons)
        shown = ", ".join(f"{self.title(row)} ({self._reasons[row]})" for row in sorted(self._reasons)[:_SHOWN])
        rest = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
        raise self._error(
            f"{count:,} {self.unit}{'s' if count > 1 else ''} of '{self.name}' cannot be used: {shown}{rest}",
            "correct or remove them" if count > 1 else "correct or remove it",
        )


class Records:
    """The records of a CSV file. A quote that is not closed spoils only the line that it is in."""

    def __init__(self, stream: IO[bytes], problems: Problems, delimiter: str = ",") -> None:
        self._file = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
        self._problems = problems
        self._again: deque[str] = deque()  # lines to read once more
        self._record: list[str] = []  # lines of the record that is being read
        self._done = 0  # lines of finished records
        self._reader = csv.reader(self, delimiter=delimiter, strict=True, skipinitialspace=True)

    def __iter__(self) -> Iterator[str]:
        """The lines, for the CSV reader. Not a generator: after its end it can go on with lines to read again."""
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._file)
        self._record.append(line)
        return line

    def _next(self) -> list[str]:
        """The cells of the next record; none at a blank line."""
        self._done += len(self._record)
        self._record.clear()
        cells = next(self._reader)
        return cells if len(cells) > 1 or any(map(str.strip, cells)) else []

    def first(self) -> tuple[int, list[str]]:
        """The first record that is not blank, with its line number; without cells where the file is empty.

        It can raise ``csv.Error``.
        """
        while True:
            try:
                cells = self._next()
            except StopIteration:
                return 0, []
            if cells:
                return self._done + 1, cells

    def rest(self, width: int, keys: Collection[int]) -> Iterator[tuple[int, list[str]]]:
        """The following records with their line numbers, without those that cannot be used.

        A record has ``width`` cells, and those at the positions ``keys`` hold no line breaks: both show where a quote is
        missing.
        """
        while True:
            try:
                cells = self._next()
            except StopIteration:
                return
            except csv.Error as error:
                self._problems.add(self._done + 1, _reason(error, len(self._record)))
                self._rewind()
                continue
            if cells and self._usable(cells, width, keys):
                yield self._done + 1, cells

    def _usable(self, cells: list[str], width: int, keys: Collection[int]) -> bool:
        first, lines = self._done + 1, self._record
        if len(lines) > 1 and (len(cells) != width or any("\n" in cells[key] for key in keys)):
            self._problems.add(first, "a quote is not closed")
            self._rewind()
            return False
        if not all(map(str.isascii, lines)) and not all(map(is_utf8, lines)):
            for offset, line in enumerate(lines):
                if not is_utf8(line):
                    self._problems.add(first + offset, f"not UTF-8: {line.strip()[:40]!r}")
            return False
        if len(cells) != width:
            text = lines[0].strip()[:40]
            self._problems.add(first, f"{len(cells)} cell{'s' * (len(cells) != 1)} instead of {width}: {text!r}")
            return False
        return True

    def _rewind(self) -> None:
        """Read all lines of this record but its first again."""
        self._again.extendleft(reversed(self._record[1:]))
        del self._record[1:]


def _reason(error: csv.Error, lines: int) -> str:
    if lines > 1 or "unexpected end" in str(error):
        return "a quote is not closed"
    return "a cell goes on after its closing quote" if "expected after" in str(error) else str(error)


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
        """The column, or an error that lists the columns there are."""
        if column not in self.columns:
            only = self.columns[0] if len(self.columns) == 1 else ""
            other = next((sign for sign in (";", "\t", "|", ",") if sign in only), None)
            way_out = f"pass delimiter={other!r}" if other else f"name it with {option}="
            way_out += f" (--set data.{'delimiter' if other else option}=… on the command line)"
            shown = some(map(repr, self.columns), 10)
            raise GraphError(f"'{self.name}' has no column {column!r} (its columns: {shown})", way_out)
        return column


@contextmanager
def open_table(path: Path, keys: Collection[str] = (), delimiter: str | None = None) -> Iterator[Table]:
    """Open a table by its suffix; cells of the columns ``keys`` hold no line breaks."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise GraphError(f"'{path}' is no table that can be read; give one of {', '.join(SUFFIXES)}")
    if name.endswith(".parquet"):
        with open_parquet(path) as table:
            yield table
        return
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as stream:
            yield _open_csv(path, stream, keys, delimiter or ("\t" if ".tsv" in name[-7:] else ","))
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise GraphError(f"the table '{path}' cannot be read ({why}); check the file") from None


def _open_csv(path: Path, stream: Any, keys: Collection[str], delimiter: str) -> Table:
    if b"\0" in stream.peek(4096)[:4096]:
        raise GraphError(f"'{path}' is not a text table in UTF-8 (it holds zero bytes); save it as CSV in UTF-8")
    problems = Problems(str(path))
    try:
        records = Records(stream, problems, delimiter)
        header = tuple(cell.strip() for cell in records.first()[1])
    except (csv.Error, TypeError) as error:
        raise GraphError(f"the header of '{path}' cannot be read ({error}); give a CSV file with a header") from None
    if not header:
        raise GraphError(f"the table '{path}' is empty; give a header and one row per element")
    _refuse_repeats(path, [column for column in header if column])
    if not all(map(is_utf8, header)):
        raise GraphError(f"the header of '{path}' is not in UTF-8; save the table in UTF-8")
    positions = [position for position, column in enumerate(header) if column in keys]
    named = tuple(column for column in header if column)  # data frames write their row numbers without a name
    return Table(str(path), named, _csv_blocks(records.rest(len(header), positions), header), problems)


def _refuse_repeats(path: Path, columns: Sequence[str]) -> None:
    again = sorted({column for column in columns if columns.count(column) > 1})
    if again:
        raise GraphError(f"'{path}' has several columns named {some(map(repr, again))}; make their names distinct")


def _csv_blocks(records: Iterator[tuple[int, list[str]]], header: tuple[str, ...]) -> Iterator[Block]:
    cells: list[str] = []  # of all rows in one list: a million small lists would keep the garbage collector busy
    rows: list[int] = []

    def block() -> Block:
        width = len(header)
        return Block(rows, {column: cells[start::width] for start, column in enumerate(header) if column})

    for row, record in records:
        cells += record
        rows.append(row)
        if len(rows) == BLOCK:
            yield block()
            cells, rows = [], []
    if rows:
        yield block()


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
            _refuse_repeats(path, names)
            yield Table(str(path), tuple(names), _parquet_blocks(file), Problems(str(path), "row"))
    except (pyarrow.ArrowException, OSError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GraphError(f"the table '{path}' cannot be read ({why}); check the file") from None


def _parquet_blocks(file: Any) -> Iterator[Block]:
    first = 1
    for batch in file.iter_batches(batch_size=BLOCK):
        columns = {name: _cells(batch.column(position)) for position, name in enumerate(batch.schema.names)}
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


#: Cells that decide whether a column that was not chosen holds numbers.
_FIRST_CELLS = 1000

#: How a missing number is written, in lower case.
_MISSING = ("nan", "-nan")


class Numbers:
    """The numeric columns of a table, collected block by block.

    ``chosen=None`` takes the columns outside ``taken`` whose first cells are mostly numbers. Every cell of these columns
    must be a finite number.
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
            self.names = tuple(name for name in self._rest if _mostly_numbers(block.columns[name][:_FIRST_CELLS]))
        part = np.empty((len(block.rows), len(self.names)), dtype=np.float32)
        for position, name in enumerate(self.names):
            part[:, position] = numbers(name, block, self._problems)
        self._parts.append(part)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Columns that were not chosen and hold no numbers."""
        return tuple(name for name in self._rest if name not in (self.names or ()))

    def values(self) -> Tensor | None:
        """``[rows, columns]``, or None where there are no such columns."""
        if not self.names or not self._parts:
            return None
        return torch.from_numpy(np.concatenate(self._parts))


def numbers(column: str, block: Block, problems: Problems) -> np.ndarray:
    """One column as 32-bit floats; other cells become problems of their rows."""
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
    for position in np.flatnonzero(~np.isfinite(result)).tolist():
        cell = cells[position]
        empty = cell is None or (isinstance(cell, str) and not cell.strip())
        problems.add(
            block.rows[position], f"{column!r} is empty" if empty else f"{column!r} is {_short(cell)}, no number"
        )
    return result


def _number(cell: Any) -> float:
    """A cell as a number, or NaN; 1_0 is no number, though Python reads it as 10."""
    try:
        return float("nan") if isinstance(cell, str) and "_" in cell else float(cell)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _mostly_numbers(cells: Sequence[Any]) -> bool:
    if isinstance(cells, np.ndarray):
        return True
    filled = [cell for cell in cells if cell is not None and (not isinstance(cell, str) or cell.strip())]
    good = sum(1 for cell in filled if not np.isnan(_number(cell)))
    return 2 * good > len(filled)


def texts(cells: Sequence[Any]) -> list[str]:
    """Cells as text without surrounding blanks; missing cells are empty, and 3.0 is 3.

    >>> texts([" user:4711", None, 3.0, 7])
    ['user:4711', '', '3', '7']
    """
    values = cells.tolist() if isinstance(cells, np.ndarray) else cells
    return [cell.strip() if type(cell) is str else _text(cell) for cell in values]


def _text(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


class Codes(dict[str, int]):
    """Numbers for names, in the order in which the names come first.

    >>> Codes().codes(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code

    def codes(self, names: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.__getitem__, names), np.int64, len(names))


def in_order(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Distinct names sorted (whole numbers by value), and the rank of each.

    >>> in_order(["10", "9"])
    (('9', '10'), array([1, 0]))
    """
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    ordered = sorted(names, key=int) if whole else sorted(names)
    rank = {name: position for position, name in enumerate(ordered)}
    return tuple(ordered), np.array([rank[name] for name in names], dtype=np.int64)


def class_names(names: Sequence[str]) -> list[str]:
    """The class of each label: 2.0 is the class 2, and measurements such as 2.5 are refused.

    Among numbers, ``nan`` is a missing label, as numpy and pandas write it, and has no class (empty).

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


@dataclass(frozen=True, eq=False, repr=False)
class NamedGraph:
    """A graph with the names that its user has for nodes, relations, classes and columns.

    Args:
        data: The graph.
        ids: The names of the nodes; None where they only have numbers.
        relations: The names of the relation types.
        classes: The names of the classes in ``y``.
        features: The names of the columns of ``x``.
        edge_features: The names of the columns of ``edge_attr``.
        ignored: Columns of the tables that were not used.
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
    """The names of the columns. None: the column of the usual name where there is one; for features, all columns of numbers."""

    source: str = "source"
    target: str = "target"
    relation: str | None = None
    node_id: str = "id"
    features: Sequence[str] | None = None
    label: str | None = None
    weight: str | None = None
    edge_features: Sequence[str] | None = None


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

    Ids are text, such as ``user:4711``. Nodes come in the order of the node table, else as the edges name them. An edge that
    is listed again with the same values counts once; with other values it stays as a parallel edge, and deleting it deletes
    all copies.

    Args:
        edges: The edge table.
        nodes: The node table.
        source: The column of the sources of edges.
        target: The column of their targets.
        relation: The column of relation types; by default ``relation``, where it exists.
        node_id: The column of ids in the node table.
        features: The columns of ``x``; by default all other columns of numbers. Every cell must be a finite number.
        label: The column of labels; by default ``label``, where it exists. Labels are names or whole numbers. An empty cell
            is a node without a label (-1), and so is ``nan`` where all other labels are numbers.
        weight: The column of edge weights; by default ``weight``, where it exists.
        edge_features: The columns of ``edge_attr``; by default all other columns of numbers.
        undirected: Add the reverse of every edge.
        missing: What to do with ids that only edges name: ``"error"``, or ``"zeros"`` for nodes with features of zero and
            no label.
        delimiter: The character between cells; by default a comma, in TSV files a tab.

    Returns:
        The graph with its names.

    Raises:
        GraphError: If a table cannot be read or has rows that cannot be used. All are counted, and the first 20 named.
        NotYetError: If a table with relations is read with ``undirected=True``.

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


def build(
    edges: AbstractContextManager[Table],
    nodes: AbstractContextManager[Table] | None,
    columns: Columns,
    undirected: bool,
    missing: Missing,
) -> NamedGraph:
    """The graph of two tables, whatever they are read from."""
    if missing not in ("error", "zeros"):
        raise SettingError(f"'missing' must be 'error' or 'zeros' (got {missing!r})")
    index, found = Codes(), _NodeRows()
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


def _read_nodes(table: Table, columns: Columns, index: Codes) -> _NodeRows:
    key = table.need(columns.node_id, "node_id")
    label = _optional(table, columns.label, "label", columns.features)
    features = Numbers(table, columns.features, (key, label), "features")
    labels, codes = Codes({"": 0}), []
    for block in table.blocks:
        names, known = texts(block.columns[key]), len(index)
        codes_of_nodes = index.codes(names)
        if len(index) - known < len(names):
            _add_repeats(table, block.rows, names, codes_of_nodes, known)
        if "" in index:
            _add_empty(table, block.rows, names, key)
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
    """The chosen column, else the one of the usual name, unless that was chosen as a feature."""
    if column is not None:
        return table.need(column, name)
    return name if name in table.columns and name not in (features or ()) else None


def _labels(labels: Codes, codes: list[np.ndarray]) -> tuple[tuple[str, ...], Tensor | None]:
    if not codes:
        return (), None
    class_of_label = class_names(list(labels)[1:])
    found = [name for name in dict.fromkeys(class_of_label) if name]
    classes, ranks = in_order(found)
    number = dict(zip(found, ranks.tolist(), strict=True))
    class_of_code = np.array([-1, *(number.get(name, -1) for name in class_of_label)], dtype=np.int64)
    return classes, torch.from_numpy(class_of_code[np.concatenate(codes)])


def _add_repeats(table: Table, rows: Sequence[int], names: list[str], codes: np.ndarray, known: int) -> None:
    """Add rows whose id is in an earlier row to the problems; ``known`` ids came before these rows."""
    for row, name, code in zip(rows, names, codes.tolist(), strict=True):
        if code == known:
            known += 1
        elif name:
            table.problems.add(row, f"the id {name!r} is in an earlier row too")


def _add_empty(table: Table, rows: Sequence[int], names: list[str], column: str) -> None:
    for row, name in zip(rows, names, strict=True):
        if not name:
            table.problems.add(row, f"{column!r} is empty")


def _read_edges(
    table: Table, columns: Columns, index: Codes, nodes: _NodeRows, undirected: bool, missing: Missing
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
    kinds, pairs, types, weights = Codes(), [], [], []
    unknown: dict[int, int] = {}
    for block in table.blocks:
        found = [texts(block.columns[end]) for end in ends]
        in_turn = [name for pair in zip(*found, strict=True) for name in pair]
        ids = index.codes(in_turn).reshape(-1, 2).T
        if "" in index:
            for end, names in zip(ends, found, strict=True):
                _add_empty(table, block.rows, names, end)
        if nodes.name is not None and missing == "error" and len(index) > nodes.count:
            for side, position in np.argwhere(ids >= nodes.count).tolist():
                unknown.setdefault(int(ids[side, position]), block.rows[position])
        pairs.append(ids)
        attributes.add(block)
        if relation is not None:
            names = texts(block.columns[relation])
            types.append(kinds.codes(names))
            if "" in kinds:
                _add_empty(table, block.rows, names, relation)
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
    first = list(unknown.items())[:_SHOWN]
    shown = ", ".join(f"{known.unknown(names[node])} ({table.problems.title(row)})" for node, row in first)
    rest = f" and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
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
    """Positions of the edges, without those that repeat an earlier edge with all its values."""
    _, first, of, count = np.unique(
        pairs[0] * (int(pairs.max()) + 1) + pairs[1], return_index=True, return_inverse=True, return_counts=True
    )
    if not held:
        return np.sort(first)
    again = np.flatnonzero(count[of] > 1)  # usually few: only these need their values compared
    rows = np.column_stack([of[again], *(value[again] for value in held.values())])
    distinct = again[np.unique(rows, axis=0, return_index=True)[1]]
    return np.sort(np.concatenate([np.flatnonzero(count[of] == 1), distinct]))
