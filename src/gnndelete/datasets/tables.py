"""Reading node and edge tables in blocks of rows: CSV and TSV (also gzipped) line by line, Parquet through pyarrow.

What does not parse is collected with its line number, and all of it is refused at once when the table has been read.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnndelete.datasets.ids import decoded
from gnndelete.errors import GraphError, some

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
        from gnndelete.datasets.parquet import open_parquet

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
