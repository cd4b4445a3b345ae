"""Tables, whatever they are in: CSV and TSV (also gzipped), Parquet, Arrow, DuckDB, SQLite, data frames.

All are read in blocks of rows, so that large ones fit in memory. Rows that cannot be used are collected with their line
numbers and refused together at the end.
"""

from __future__ import annotations

import csv
import gzip
import io
import sqlite3
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from gnndelete.datasets.ids import is_utf8
from gnndelete.errors import GraphError, RequestError, some, why

#: Rows that are read at a time, and characters of a line at most.
BLOCK, LONGEST_LINE = 65_536, 1 << 20

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", *ARROW_SUFFIXES)
DATABASES = (".duckdb", ".ddb", ".sqlite", ".sqlite3", ".db")

#: Different reasons that an error names; the others are counted.
SHOWN = 20


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
        return len(self._reasons) > SHOWN

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
        groups = islice(alike.items(), SHOWN)
        shown = [f"{self.unit}{'s' if len(titles) > 1 else ''} {some(titles)} ({reason})" for reason, titles in groups]
        shown += [""] * (len(alike) - len(shown))  # these are only counted
        raise self._error(
            f"{count:,} {self.unit}{'s' if count > 1 else ''} of '{self.name}' cannot be used: {some(shown, SHOWN)}",
            "correct or remove them" if count > 1 else "correct or remove it",
        )


@dataclass(frozen=True)
class Block:
    """Some consecutive rows: their numbers, and their cells by column. Cells are texts, values, or an array of numbers."""

    rows: Sequence[int]
    columns: Mapping[str, Any]


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
            way_out = f"say that {other!r} separates them by delimiter" if other else f"name it by {option}"
            way_out += f" (--set data.{'delimiter' if other else option}=… on the command line)"
            raise GraphError(f"'{self.name}' has no column {column!r} (its columns: {self.listed})", way_out)
        return column

    @property
    def listed(self) -> str:
        """The columns as errors name them."""
        return some(map(repr, self.columns), 10)


@contextmanager
def open_table(source: Any, delimiter: str | None = None, name: str | None = None) -> Iterator[Table]:
    """Open a table: a file by its suffix, a table of a database (``shop.duckdb::users``), or a data frame.

    Args:
        source: The path of a file, or a frame of pandas, polars or pyarrow.
        delimiter: What separates the cells of a text file; by default a comma, in ``.tsv`` files a tab.
        name: What errors call a frame.
    """
    if isinstance(source, Table):
        yield source
        return
    if is_frame(source):
        yield _of_frame(source, name or f"the {type(source).__name__}")
        return
    path, _, inner = str(source).partition("::")
    lower = path.lower()
    if inner:
        with _open_database(Path(path), inner) as table:
            yield table
    elif lower.endswith(".parquet"):
        with _reading(path) as pyarrow, pyarrow.parquet.ParquetFile(path) as file:
            yield _of_batches(path, file.schema_arrow.names, file.iter_batches(batch_size=BLOCK))
    elif lower.endswith(ARROW_SUFFIXES):
        with _reading(path) as pyarrow, pyarrow.memory_map(path) as stream:
            batches = _arrow_batches(pyarrow, stream)
            yield _of_batches(path, batches.schema.names, batches)
    elif lower.endswith(TEXT_SUFFIXES):
        try:
            with gzip.open(path) if lower.endswith(".gz") else Path(path).open("rb") as stream:
                yield _open_csv(Path(path), stream, delimiter or ("\t" if ".tsv" in lower[-7:] else ","))
        except (OSError, EOFError, zlib.error) as error:
            raise GraphError(f"the table '{path}' cannot be read ({why(error)}); check the file") from None
    elif lower.endswith(DATABASES):
        found = database_tables(Path(path))
        raise GraphError(f"'{path}' is a database; name one of its tables, such as '{path}::{(found or ['users'])[0]}'")
    else:
        raise GraphError(
            f"'{path}' is no table that can be read; give one of {', '.join(SUFFIXES)}, or a database "
            f"({', '.join(DATABASES)})"
        )


# Text files.


def read_records(stream: IO[bytes], problems: Problems, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The line number and the cells of each record of a CSV file: the first one, and those that are as wide as it.

    Blank lines are left out. An error in the first record is a ``csv.Error``.
    """
    reader = csv.reader(_lines(stream), delimiter=delimiter, strict=True, skipinitialspace=True)
    width = 0
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if not width or str(error) == _TOO_LONG:
                raise
            long = "field limit" in str(error)
            said = "a cell is too long" if long else "a quote is not closed, or a cell goes on after its closing quote"
            problems.add(line, said)
            continue
        text = delimiter.join(cells).strip()
        if not text:
            continue
        if not width and not is_utf8(text):
            raise csv.Error("it is not in UTF-8")
        width = width or len(cells)
        if not is_utf8(text):
            problems.add(line, "not in UTF-8")
        elif len(cells) != width:
            problems.add(line, f"{len(cells)} cell{'s' * (len(cells) != 1)} instead of {width}: {text[:40]!r}")
        else:
            yield line, cells


_TOO_LONG = f"a line has more than {LONGEST_LINE:,} characters"


def _lines(stream: IO[bytes]) -> Iterator[str]:
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    for line in iter(lambda: text.readline(LONGEST_LINE), ""):
        if len(line) == LONGEST_LINE:
            raise csv.Error(_TOO_LONG)
        yield line


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
    return Table(str(path), named, _csv_blocks(records, header, str(path)), problems)


def _csv_blocks(records: Iterator[tuple[int, list[str]]], header: list[str], name: str) -> Iterator[Block]:
    while True:
        rows: list[int] = []
        cells: list[str] = []  # of all rows: many small lists would keep the garbage collector busy
        try:
            for line, record in islice(records, BLOCK):
                rows.append(line)
                cells += record
        except csv.Error as error:
            raise GraphError(f"the table '{name}' cannot be read ({error}); check the file") from None
        if not rows:
            return
        yield Block(rows, {name: cells[i :: len(header)] for i, name in enumerate(header) if name})


def _refuse_repeats(path: Any, columns: Sequence[str]) -> None:
    again = sorted(column for column, count in Counter(columns).items() if count > 1)
    if again:
        raise GraphError(f"'{path}' has several columns named {some(map(repr, again))}; make their names distinct")


# Arrow: Parquet, Arrow files, DuckDB and data frames.


def need_pyarrow(what: str) -> Any:
    """The package pyarrow, with the modules that are used here."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise GraphError(
            f"reading {what} needs pyarrow; install it with: pip install 'gnndelete[tables]', or give a CSV file"
        ) from None
    return pyarrow


@contextmanager
def _reading(path: str) -> Iterator[Any]:
    """Pyarrow, whose errors are told as those of a table."""
    pyarrow = need_pyarrow(f"'{path}'")
    try:
        yield pyarrow
    except (pyarrow.ArrowException, OSError) as error:
        said = why(error) if isinstance(error, FileNotFoundError) else str(error).splitlines()[:1]
        said = said if isinstance(said, str) else (said or [type(error).__name__])[0]
        raise GraphError(f"the table '{path}' cannot be read ({said}); check the file") from None


def _arrow_batches(pyarrow: Any, stream: Any) -> Any:
    """The batches of an Arrow file, which has an index, or of a stream, which has none."""
    try:
        file = pyarrow.ipc.open_file(stream)
    except pyarrow.ArrowInvalid:
        stream.seek(0)
        return pyarrow.ipc.open_stream(stream)
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return pyarrow.RecordBatchReader.from_batches(file.schema, batches)


def _of_batches(name: str, columns: Sequence[str], batches: Iterable[Any]) -> Table:
    """A table whose rows are counted from 1."""
    _refuse_repeats(name, columns)
    return Table(name, tuple(columns), _arrow_blocks(batches), Problems(name, "row"))


def _arrow_blocks(batches: Iterable[Any]) -> Iterator[Block]:
    first = 1
    for batch in batches:
        batch.validate(full=True)  # reading damaged memory could end the process
        for start in range(0, batch.num_rows, BLOCK):
            part = batch.slice(start, BLOCK)
            columns = {name: _cells(part.column(at), name) for at, name in enumerate(part.schema.names)}
            yield Block(range(first, first + part.num_rows), columns)
            first += part.num_rows


def _cells(column: Any, name: str) -> Any:
    """The cells of an Arrow array: numbers without gaps as an array, which is quick to read, else Python values."""
    import pyarrow

    kind = column.type
    if (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)) and not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    try:
        return column.to_pylist()
    except (OverflowError, ValueError) as error:  # a date that Python does not have, say
        raise GraphError(f"the column {name!r} cannot be read ({error}); correct it") from None


def is_frame(source: Any) -> bool:
    """Whether something is a data frame: of pandas, polars, pyarrow, or a relation of DuckDB."""
    return hasattr(source, "__arrow_c_stream__") or (hasattr(source, "columns") and hasattr(source, "__getitem__"))


def _of_frame(frame: Any, name: str) -> Table:
    try:
        import pyarrow
    except ImportError:
        columns = [str(column) for column in frame.columns]
        _refuse_repeats(name, columns)
        blocks = iter([Block(range(1, len(frame) + 1), {str(column): list(frame[column]) for column in frame.columns})])
        return Table(name, tuple(columns), blocks if len(frame) else iter(()), Problems(name, "row"))
    if hasattr(frame, "columns") and len({str(column) for column in frame.columns}) < len(list(frame.columns)):
        _refuse_repeats(name, [str(column) for column in frame.columns])
    try:
        if type(frame).__module__.split(".")[0] == "pandas":  # its index is no column
            table = pyarrow.Table.from_pandas(frame, preserve_index=False)
            return _of_batches(name, table.schema.names, table.to_batches(BLOCK))
        reader = pyarrow.RecordBatchReader.from_stream(frame)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise GraphError(
            f"{name} cannot be read ({str(error).splitlines()[0]}); give columns of one kind each"
        ) from None
    return _of_batches(name, reader.schema.names, reader)


# Databases.


def database_tables(path: Path) -> list[str]:
    """The names of the tables and views of a database."""
    with _connected(path) as (connection, sqlite):
        if sqlite:
            query = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%'"
        else:
            query = "select table_name from information_schema.tables where table_schema = 'main'"
        return sorted(str(name) for (name,) in connection.execute(query).fetchall())


#: A view in a database of DuckDB reads no other file, asks no server and loads no extension.
_CLOSED: dict[str, Any] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}


@contextmanager
def _connected(path: Path) -> Iterator[tuple[Any, bool]]:
    """A connection that only reads, and whether it is one of SQLite."""
    if not path.is_file():
        raise GraphError(f"the database '{path}' cannot be read (it does not exist); check the path")
    with path.open("rb") as file:
        sqlite = file.read(16) == b"SQLite format 3\0"
    if sqlite:
        connection: Any = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        failures: tuple[type[Exception], ...] = (sqlite3.Error, UnicodeDecodeError)  # one in the names of columns
    else:
        need_pyarrow(f"'{path}'")
        try:
            import duckdb
        except ImportError:
            raise GraphError(
                f"reading '{path}' needs duckdb; install it with: pip install 'gnndelete[tables]'"
            ) from None
        failures = (duckdb.Error,)
        try:
            connection = duckdb.connect(str(path), read_only=True, config=_CLOSED)
        except duckdb.ConnectionException:
            raise GraphError(f"this process has '{path}' open already", "close that connection first") from None
        except failures as error:
            said = str(error).splitlines()[0]
            raise GraphError(
                f"'{path}' is no database of DuckDB or SQLite that can be read ({said}); check the file"
            ) from None
    try:
        yield connection, sqlite
    except failures as error:
        raise GraphError(f"the database '{path}' cannot be read ({str(error).splitlines()[0]}); check it") from None
    finally:
        connection.close()


@contextmanager
def _open_database(path: Path, table: str) -> Iterator[Table]:
    known = database_tables(path)
    if table not in known:
        raise GraphError(f"'{path}' has no table '{table}'; it has {some(known, 10)}")
    name, quoted = f"{path}::{table}", '"' + table.replace('"', '""') + '"'
    with _connected(path) as (connection, sqlite):
        if not sqlite:
            relation = connection.sql(f"select * from {quoted}")
            reader = getattr(relation, "to_arrow_reader", relation.fetch_arrow_reader)(BLOCK)  # by version of duckdb
            yield _of_batches(name, reader.schema.names, reader)
            return
        cursor = connection.execute(f"select * from {quoted}")
        columns = [each[0] for each in cursor.description]
        yield Table(name, tuple(columns), _sqlite_blocks(cursor, columns), Problems(name, "row"))


def _sqlite_blocks(cursor: Any, columns: Sequence[str]) -> Iterator[Block]:
    first = 1
    while rows := cursor.fetchmany(BLOCK):
        cells = zip(*rows, strict=True)
        yield Block(range(first, first + len(rows)), dict(zip(columns, cells, strict=True)))
        first += len(rows)


def as_list(cells: Any) -> Sequence[Any]:
    """Cells as plain Python values."""
    return cells.tolist() if isinstance(cells, np.ndarray) else cells
