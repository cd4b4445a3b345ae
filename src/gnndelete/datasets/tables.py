"""Tables of your own, as CSV and TSV (also gzipped) or Parquet, with names as ids: graphs, and requests to delete.

Tables are read in blocks of rows, so that large ones fit in memory. Rows that cannot be used are collected with their line
numbers and refused together at the end.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.ids import IdMap, is_utf8
from gnndelete.errors import DeletionError, GraphError, NotYetError, RequestError, SettingError, some, why
from gnndelete.graph.validation import check_graph

#: Rows that are read at a time.
BLOCK = 65_536
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")

#: Different reasons, and unknown ids, that an error names; the others are counted.
_SHOWN = 20

#: Cells that decide whether a column that was not chosen holds numbers.
_FIRST_CELLS = 1000

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
        return f"{self.unit} {self._short_title(row)}"

    def _short_title(self, row: int) -> str:
        return str(row) if self._titles is None else self._titles[row - 1]

    def add(self, row: int, reason: str) -> None:
        self._reasons.setdefault(int(row), reason)

    @property
    def many(self) -> bool:
        """Whether there are more than are shown; looking for the name that was meant would take long."""
        return len(self._reasons) > _SHOWN

    def add_empty(self, rows: Sequence[int], names: Sequence[str], column: str) -> None:
        if "" in names:
            for row, name in zip(rows, names, strict=True):
                if not name:
                    self.add(row, f"{column!r} is empty")

    def check(self) -> None:
        """Refuse the table where there are any problems."""
        if not self._reasons:
            return
        count, alike = len(self._reasons), defaultdict(list)
        for row in sorted(self._reasons):
            alike[self._reasons[row]].append(self._short_title(row))
        groups = islice(alike.items(), _SHOWN)
        shown = [f"{self.unit}{'s' if len(titles) > 1 else ''} {some(titles)} ({reason})" for reason, titles in groups]
        shown += [""] * (len(alike) - len(shown))  # these are only counted
        raise self._error(
            f"{count:,} {self.unit}{'s' if count > 1 else ''} of '{self.name}' cannot be used: {some(shown, _SHOWN)}",
            "correct or remove them" if count > 1 else "correct or remove it",
        )


def read_records(stream: IO[bytes], problems: Problems, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The line number and the cells of each record of a CSV file: the first one, and those that are as wide as it.

    Blank lines are left out. An error in the first record is a ``csv.Error``.
    """
    reader = csv.reader(
        io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline=""),
        delimiter=delimiter,
        strict=True,
        skipinitialspace=True,
    )
    width = 0
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            if not width:
                raise
            problems.add(line, "a quote is not closed, or a cell goes on after its closing quote")
            continue
        text = delimiter.join(cells).strip()
        if not text:
            continue
        if not width and not is_utf8(text):
            raise csv.Error("it is not in UTF-8")
        width = width or len(cells)
        if not is_utf8(text):
            problems.add(line, f"not UTF-8: {text[:40]!r}")
        elif len(cells) != width:
            problems.add(line, f"{len(cells)} cell{'s' * (len(cells) != 1)} instead of {width}: {text[:40]!r}")
        else:
            yield line, cells


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
def open_table(path: Path, delimiter: str | None = None) -> Iterator[Table]:
    """Open a table by its suffix."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise GraphError(f"'{path}' is no table that can be read; give one of {', '.join(SUFFIXES)}")
    if name.endswith(".parquet"):
        with _open_parquet(path) as table:
            yield table
        return
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as stream:
            yield _open_csv(path, stream, delimiter or ("\t" if ".tsv" in name[-7:] else ","))
    except (OSError, EOFError, zlib.error) as error:
        raise GraphError(f"the table '{path}' cannot be read ({why(error)}); check the file") from None


def _open_csv(path: Path, stream: Any, delimiter: str) -> Table:
    if b"\0" in stream.peek(4096)[:4096]:
        raise GraphError(f"'{path}' is not a text table in UTF-8 (it holds zero bytes); save it as CSV in UTF-8")
    problems = Problems(str(path))
    try:
        records = read_records(stream, problems, delimiter)
        header = [cell.strip() for cell in next(records, (0, []))[1]]
    except (csv.Error, TypeError) as error:
        raise GraphError(f"the header of '{path}' cannot be read ({error}); give a CSV file with a header") from None
    if not header:
        problems.check()
        raise GraphError(f"the table '{path}' is empty; give a header and one row per element")
    named = tuple(column for column in header if column)  # data frames write their row numbers without a name
    _refuse_repeats(path, named)
    return Table(str(path), named, _csv_blocks(records, header), problems)


def _csv_blocks(records: Iterator[tuple[int, list[str]]], header: list[str]) -> Iterator[Block]:
    while True:
        rows: list[int] = []
        cells: list[str] = []  # of all rows: many small lists would keep the garbage collector busy
        for line, record in islice(records, BLOCK):
            rows.append(line)
            cells += record
        if not rows:
            return
        yield Block(rows, {name: cells[i :: len(header)] for i, name in enumerate(header) if name})


def _refuse_repeats(path: Path, columns: Sequence[str]) -> None:
    again = sorted({column for column in columns if columns.count(column) > 1})
    if again:
        raise GraphError(f"'{path}' has several columns named {some(map(repr, again))}; make their names distinct")


@contextmanager
def _open_parquet(path: Path) -> Iterator[Table]:
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
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GraphError(f"the table '{path}' cannot be read ({said}); check the file") from None


def _parquet_blocks(file: Any) -> Iterator[Block]:
    first = 1
    for batch in file.iter_batches(batch_size=BLOCK):
        if batch.num_rows:
            yield Block(range(first, first + batch.num_rows), batch.to_pydict())
        first += batch.num_rows


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
        if self.names:
            self._parts.append(np.stack([read_numbers(name, block, self._problems) for name in self.names], axis=1))

    @property
    def ignored(self) -> tuple[str, ...]:
        """Columns that were not chosen and hold no numbers."""
        return tuple(name for name in self._rest if name not in (self.names or ()))

    def values(self) -> Tensor | None:
        """``[rows, columns]``, or None where there are no such columns."""
        return torch.from_numpy(np.concatenate(self._parts)) if self._parts else None


def read_numbers(column: str, block: Block, problems: Problems) -> np.ndarray:
    """One column as 32-bit floats; other cells become problems of their rows."""
    cells = block.columns[column]
    with np.errstate(over="ignore"):
        result = np.array([_number(cell) for cell in cells]).astype(np.float32)
    for position in np.flatnonzero(~np.isfinite(result)).tolist():
        cell = cells[position]
        shown = repr(cell) if len(repr(cell)) <= 40 else f"{cell!r:.40}…"
        reason = "is empty" if _is_empty(cell) else f"is {shown}, no number"
        problems.add(block.rows[position], f"{column!r} {reason}")
    return result


def _number(cell: Any) -> float:
    """A cell as a number, or NaN; 1_0 is no number, though Python reads it as 10."""
    try:
        return float("nan") if isinstance(cell, str) and "_" in cell else float(cell)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _mostly_numbers(cells: Sequence[Any]) -> bool:
    filled = [cell for cell in cells if not _is_empty(cell)]
    return 2 * sum(not np.isnan(_number(cell)) for cell in filled) > len(filled)


def read_texts(cells: Sequence[Any]) -> list[str]:
    """Cells as text without surrounding blanks; missing cells are empty, and 3.0 is 3.

    >>> read_texts([" user:4711", None, 3.0, 7])
    ['user:4711', '', '3', '7']
    """
    return [cell.strip() if type(cell) is str else _text(cell) for cell in cells]


def _text(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


def numbering() -> defaultdict[str, int]:
    """A number for each name, in the order in which the names are first looked up.

    >>> index = numbering()
    >>> [index[name] for name in ("b", "a", "b")]
    [0, 1, 0]
    """
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    return index


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
    values = {name: _number(name) for name in names if name.lower() not in ("nan", "-nan")}
    if not np.isfinite(list(values.values())).all():
        return list(names)
    broken = [name for name, value in values.items() if value != int(value)]
    if broken:
        raise GraphError(f"labels are classes, and {some(broken)} look like measurements; give whole numbers or names")
    classes = {name: str(int(value)) if "." in name else name for name, value in values.items()}
    return [classes.get(name, "") for name in names]


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
        header: The names of the columns with ids and relations, which a file of requests may have, too.
    """

    data: Data
    ids: IdMap | None = None
    relations: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    edge_features: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    header: Mapping[str, str] = field(default_factory=dict)

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
        GraphError: If a table cannot be read or has rows that cannot be used. All are counted, and the first ones named.
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
    opened = None if nodes is None else open_table(Path(nodes), delimiter)
    return build(open_table(Path(edges), delimiter), opened, columns, undirected, missing)


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
    index, of_nodes, count = numbering(), NamedGraph(Data()), 0
    if nodes is not None:
        with nodes as table:
            of_nodes, count, title = _read_nodes(table, columns, index), len(index), table.name
    with edges as table:
        of_edges, extra = _read_edges(table, columns, index, undirected, count)
    ids, data = IdMap(index), of_edges.data
    if nodes is not None and missing == "error" and extra:
        known = IdMap(ids.names[:count])
        shown = (f"{known.unknown(name)} ({row})" for name, row in islice(extra.items(), _SHOWN))
        rest = f" and {len(extra) - _SHOWN:,} more" if len(extra) > _SHOWN else ""
        raise GraphError(
            f"{len(extra):,} ids of '{table.name}' are not in '{title}': {', '.join(shown)}{rest}",
            'add them there, or pass missing="zeros" (--set data.missing=zeros) to give them features of zero',
        )
    x, y = of_nodes.data.x, of_nodes.data.y
    if x is None:
        data.num_nodes = len(ids)
    else:
        data.x = torch.cat([x, x.new_zeros(len(ids) - count, x.size(1))])
    if y is not None:
        data.y = torch.cat([y, y.new_full((len(ids) - count,), -1)])
    check_graph(data)
    header = {"source": columns.source, "target": columns.target, "node": columns.node_id}
    if columns.relation is not None:
        header["relation"] = columns.relation
    ignored, texts = (
        (*of_nodes.ignored, *of_edges.ignored),
        {"classes": of_nodes.classes, "features": of_nodes.features},
    )
    return replace(of_edges, ids=ids, ignored=ignored, header=header, **texts)


def _read_nodes(table: Table, columns: Columns, index: dict[str, int]) -> NamedGraph:
    key = table.need(columns.node_id, "node_id")
    label = _optional(table, columns.label, "label", columns.features)
    features = Numbers(table, columns.features, (key, label), "features")
    labels: list[str] = []
    for block in table.blocks:
        names = read_texts(block.columns[key])
        table.problems.add_empty(block.rows, names, key)
        for row, name in zip(block.rows, names, strict=True):
            if name and name in index:
                table.problems.add(row, f"the id {name!r} is in an earlier row too")
            index.setdefault(name, len(index))
        features.add(block)
        if label is not None:
            labels += read_texts(block.columns[label])
    table.problems.check()
    if not index:
        raise GraphError(f"the table '{table.name}' holds a header and no rows; give one row per node")
    classes, y = _labels(labels) if label is not None else ((), None)
    data = Data(x=features.values(), y=y)
    return NamedGraph(data, classes=classes, features=features.names or (), ignored=features.ignored)


def _optional(table: Table, column: str | None, name: str, features: Sequence[str] | None = None) -> str | None:
    """The chosen column, else the one of the usual name, unless that was chosen as a feature."""
    if column is not None:
        return table.need(column, name)
    return name if name in table.columns and name not in (features or ()) else None


def _labels(labels: list[str]) -> tuple[tuple[str, ...], Tensor]:
    """The names of the classes, and the class of each label; -1 where there is none."""
    distinct = [name for name in dict.fromkeys(labels) if name]
    class_of = dict(zip(distinct, class_names(distinct), strict=True))
    found = [name for name in dict.fromkeys(class_of.values()) if name]
    classes, ranks = in_order(found)
    number = dict(zip(found, ranks.tolist(), strict=True))
    return classes, torch.tensor([number.get(class_of.get(label, ""), -1) for label in labels])


def _read_edges(
    table: Table, columns: Columns, index: defaultdict[str, int], undirected: bool, count: int
) -> tuple[NamedGraph, dict[str, str]]:
    """What an edge table says, and the row that first names each id beyond the first ``count``."""
    ends = [table.need(columns.source, "source"), table.need(columns.target, "target")]
    relation = _optional(table, columns.relation, "relation", columns.edge_features)
    weight = _optional(table, columns.weight, "weight", columns.edge_features)
    if relation is not None and undirected:
        raise NotYetError(
            f"'{table.name}' has typed edges (column {relation!r}), which have a direction; leave out undirected=True, "
            "or list the reverse edges with a relation of their own"
        )
    attributes = Numbers(table, columns.edge_features, (*ends, relation, weight), "edge_features")
    kinds, pairs, types, weights = numbering(), [], [], []
    extra: dict[str, str] = {}
    for block in table.blocks:
        found = [read_texts(block.columns[end]) for end in ends]
        for end, names in zip(ends, found, strict=True):
            table.problems.add_empty(block.rows, names, end)
        ids = np.array([index[name] for pair in zip(*found, strict=True) for name in pair]).reshape(-1, 2)
        if count:
            for position, side in np.argwhere(ids >= count).tolist():
                extra.setdefault(found[side][position], table.problems.title(block.rows[position]))
        pairs.append(ids)
        attributes.add(block)
        if relation is not None:
            names = read_texts(block.columns[relation])
            table.problems.add_empty(block.rows, names, relation)
            types.append(np.array([kinds[name] for name in names]))
        if weight is not None:
            weights.append(read_numbers(weight, block, table.problems))
    table.problems.check()
    if not pairs:
        raise GraphError(f"the table '{table.name}' holds a header and no rows; give one row per edge")
    relations, order = in_order(list(kinds))
    values = {
        "edge_type": order[np.concatenate(types)] if types else None,
        "edge_weight": np.concatenate(weights) if weights else None,
        "edge_attr": attributes.values(),
    }
    held = {name: np.asarray(value) for name, value in values.items() if value is not None}
    data = _edges(np.concatenate(pairs), held, undirected)
    names_of_values = attributes.names or ()
    return NamedGraph(data, relations=relations, edge_features=names_of_values, ignored=attributes.ignored), extra


def _edges(pairs: np.ndarray, held: dict[str, np.ndarray], undirected: bool) -> Data:
    """The graph of some pairs and their values; an edge that repeats an earlier one with all its values counts once."""
    if undirected:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
        held = {name: np.concatenate([value, value]) for name, value in held.items()}
    _, of, count = np.unique(
        pairs[:, 0] * (int(pairs.max()) + 1) + pairs[:, 1], return_inverse=True, return_counts=True
    )
    again = np.flatnonzero(count[of] > 1)  # usually few: only these need their values compared
    rows = np.column_stack([of[again], *(value[again] for value in held.values())])
    distinct = again[np.unique(rows, axis=0, return_index=True)[1]]
    keep = np.sort(np.concatenate([np.flatnonzero(count[of] == 1), distinct]))
    return Data(
        edge_index=torch.from_numpy(np.ascontiguousarray(pairs[keep].T)),
        **{name: torch.from_numpy(value[keep]) for name, value in held.items()},
    )


#: The usual names of the columns of a request.
_REQUEST_COLUMNS = {
    "source": ("source", "src", "head", "u"),
    "relation": ("relation", "type"),
    "target": ("target", "dst", "tail", "v"),
    "node": ("node", "id", "node_id", "graph"),
    "column": ("column", "feature"),
}


def read_request(
    path: str | PathLike[str],
    ids: IdMap | None = None,
    relations: Sequence[str] | None = None,
    wanted: str | None = None,
    columns_of_x: Sequence[str] | None = None,
    header: Mapping[str, str] | None = None,
) -> tuple[str, list[tuple[int, ...]]]:
    """The kind ('edges', 'nodes', 'features', 'labels') and the rows of a request file; all bad lines are reported together.

    Cells are numbers, or names where ``ids`` and ``relations`` have names; with ``columns_of_x`` a column of features goes by
    its name or its number. ``wanted`` says what a file of nodes names: the nodes, their 'features' or their 'labels'.
    ``header`` has names of columns besides the usual ones, as `NamedGraph.header` has.
    """
    problems = Problems(str(path), error=DeletionError)
    try:
        with Path(path).open("rb") as file:
            lines = [(line, [cell.strip() for cell in cells]) for line, cells in read_records(file, problems)]
    except (OSError, csv.Error) as error:
        raise DeletionError(
            f"the request file '{path}' cannot be read: {why(error)}; give a CSV file of ids"
        ) from error
    if not lines:
        raise DeletionError(f"the request file '{path}' is empty; give one row per edge or node")
    first = lines[0][1]
    mark = next((mark for mark in (";", "\t", "|") if len(first) == 1 and mark in first[0]), None)
    if mark is not None and (ids is None or first[0] not in ids):
        raise DeletionError(f"the columns of '{path}' are separated by {mark!r} ('{first[0]}')", "use commas")
    columns = list(range(len(first)))
    kind = "nodes" if len(columns) == 1 else "edges" if wanted != "features" or len(columns) != 2 else wanted
    if (named := _read_header(path, first, ids, header or {})) is not None:
        kind, columns = named
        lines = lines[1:]
    if wanted is not None and kind != wanted:
        if kind != "nodes":
            raise DeletionError(f"'{path}' names {kind}, and {wanted} were asked for; give a column node")
        kind = wanted
    rows = []
    for line, cells in lines:
        picked = [cells[column] for column in columns]
        try:
            if ids is None:
                rows.append(tuple(map(_whole_number, picked)))
            elif kind == "features":
                node = look_up(picked[:1], ids, None, suggest=not problems.many)
                rows.append((*node, *look_up_columns(picked[1:], columns_of_x)))
            else:
                rows.append(look_up(picked, ids, relations, suggest=not problems.many))
        except ValueError as error:
            problems.add(line, ",".join(cells) if ids is None else str(error))
    problems.check()
    if not rows:
        raise DeletionError(f"the request file '{path}' holds a header and no rows; give one row per edge or node")
    return kind, rows


def _read_header(
    path: str | PathLike[str], cells: list[str], ids: IdMap | None, header: Mapping[str, str]
) -> tuple[str, list[int]] | None:
    """What the rows below a header name, and in which columns; None where the first line is no header."""
    names = [cell.lower() for cell in cells]
    found: dict[str, int] = {}
    for role, usual in _REQUEST_COLUMNS.items():
        for name in (header.get(role, "").lower(), *usual):
            if name in names:
                found.setdefault(role, names.index(name))
    if len(names) == 1 and names[0] in (header.get("source", "").lower(), header.get("target", "").lower()):
        found = {"node": 0}  # a column of one end alone names nodes
    pairs = "source" in found and "target" in found
    if ids is None and all(cell.lstrip("-").isdigit() for cell in cells):
        return None
    if ids is not None and not pairs and "node" not in found:
        if len(cells) > 3:
            raise DeletionError(
                f"'{path}' has {len(cells)} columns and no header; name the columns source,target or node"
            )
        return None
    if ids is not None and all(cell in ids for cell in cells):
        raise DeletionError(
            f"the first line of '{path}' ({','.join(cells)}) is both a header and a row of ids; "
            "put a header above it that is no id, such as node_id or head,tail"
        )
    if pairs:
        return "edges", [found[role] for role in ("source", "relation", "target") if role in found]
    if "node" in found:
        both = [found[role] for role in ("node", "column") if role in found]
        return "features" if len(both) == 2 else "nodes", both
    raise DeletionError(f"the header of '{path}' is '{','.join(names)}'; name the columns source,target or node")


def _whole_number(cell: str) -> int:
    if "_" in cell or int(cell) < 0:  # Python reads 1_0 as 10
        raise ValueError
    return int(cell)


def look_up(cells: Sequence[str], ids: IdMap, relations: Sequence[str] | None, suggest: bool = True) -> tuple[int, ...]:
    """A node, a pair or a triple (source, relation, target) by its names; a ``ValueError`` says which name is unknown."""
    found = []
    for position, cell in enumerate(cells):
        if len(cells) == 3 and position == 1:
            found.append(_relation(cell, relations))
            continue
        node = ids.find(cell)
        if node is None:
            raise ValueError(f"no id {ids.unknown(cell) if suggest else repr(cell)}")
        found.append(node)
    return tuple(found)


def look_up_columns(cells: Sequence[str], names: Sequence[str] | None) -> tuple[int, ...]:
    """Columns of features by their names, or by their numbers from 0; a ``ValueError`` says which one is unknown.

    >>> look_up_columns(["age", "2"], ["city", "age", "score"])
    (1, 2)
    """
    names = list(names or ())
    for cell in cells:
        if cell not in names and not (cell.isascii() and cell.isdigit()):
            there_are = f"there are {some(map(repr, names))}, or" if names else "columns of 'x' have"
            raise ValueError(f"no column {cell!r}, {there_are} numbers from 0")
    return tuple(names.index(cell) if cell in names else int(cell) for cell in cells)


def _relation(cell: str, relations: Sequence[str] | None) -> int:
    if relations:
        if cell not in relations:
            raise ValueError(f"no relation {cell!r}, there are {some(map(repr, relations))}")
        return list(relations).index(cell)
    if not cell.isdigit():
        raise ValueError(f"no relation {cell!r}, they have numbers here")
    return int(cell)
