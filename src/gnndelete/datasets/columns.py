"""Columns of tables as numbers: which kind each one is, how it is encoded, and what becomes of empty cells.

| kind | recognised by | becomes |
|---|---|---|
| number | most of its first cells are numbers | one column |
| boolean | true/false, yes/no | one column of 1 and 0 |
| category | few different texts, each of which comes again | one column of 1 and 0 for each text |
| date | calendar days such as 2024-05-17 | one column: years since 2000 |
| time | date and time, or seconds since 1970 | no feature unless asked for: years since 2000 |
| text | all other text, and names of rows | no feature |
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gnndelete.datasets.table_files import Block, Problems, Table, as_list
from gnndelete.errors import GraphError, SettingError, some, unknown

Kind = Literal["number", "boolean", "category", "date", "time", "text"]
Empty = Literal["mean", "zero", "error"]
KINDS: tuple[Kind, ...] = ("number", "boolean", "category", "date", "time")

#: Cells that decide of which kind a column is, and the different texts of a category: found, and at most where asked for.
FIRST_CELLS, CATEGORIES, MOST_CATEGORIES = 1000, 50, 1000

#: What an empty cell of a column of numbers may hold.
EMPTY = frozenset({"", "nan", "-nan", "na", "n/a", "null", "none"})

_BOOLEANS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, True: 1.0, False: 0.0}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?")
#: A column whose name is one of these, or ends so, names rows of a table.
_NAMES_ROWS = re.compile(r"(id|.*_id|.*Id|.*ID|uuid|guid|index|key|.*_key|.*_uuid)")

#: Seconds from 1990 to 2100; whole numbers in this range, also as milli-, micro- and nanoseconds, are times.
_SECONDS = 631_152_000, 4_102_444_800
_START = datetime(2000, 1, 1, tzinfo=UTC)
_YEAR = timedelta(days=365.25)


@dataclass(frozen=True)
class Encoding:
    """How one column became columns of numbers.

    Args:
        column: Its name.
        kind: Its kind.
        names: The columns that it became; none where it is no feature.
        reason: Why it is no feature.
        values: The texts of a category, in the order of the columns.
        empty: How many cells were empty.
        fill: What stands for them.
    """

    column: str
    kind: Kind
    names: tuple[str, ...] = ()
    reason: str = ""
    values: tuple[str, ...] = ()
    empty: int = 0
    fill: float | None = None

    def __str__(self) -> str:
        if self.reason:
            return f"{self.column}: not used ({self.reason})"
        what = {
            "category": f"category of {len(self.values)} values ({some(self.values, 6)}), one column each",
            "date": "date, as years since 2000",
            "time": "time, as years since 2000",
            "boolean": "boolean, as 1 and 0",
        }.get(self.kind, self.kind)
        fill = (
            "0 in all of its columns" if self.kind == "category" else f"{self.fill:g}" if self.fill is not None else ""
        )
        cells = f"; {self.empty:,} empty cell{'s' * (self.empty != 1)} count{'s' * (self.empty == 1)} as {fill}"
        return f"{self.column}: {what}{cells if self.empty else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as plain values, for a file."""
        shown = {"kind": self.kind, "reason": self.reason, "values": list(self.values), "empty": self.empty}
        return {"column": self.column, "names": list(self.names), "fill": self.fill} | {
            name: value for name, value in shown.items() if value
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Encoding:
        """Read what `to_dict` gave.

        Args:
            values: The plain values.
        """
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**plain)


class Features:
    """The columns of features of a table, collected block by block.

    Args:
        table: The table.
        chosen: The columns to take, in this order, by kind where they are a mapping: a name of a kind, or the texts of a
            category in the order of its columns. None takes all outside ``taken`` that can be encoded.
        taken: Columns that mean something else.
        option: What errors call the choice.
        empty: What stands for empty cells: the mean of the column, zero, or an error that names them.
    """

    def __init__(
        self,
        table: Table,
        chosen: Sequence[str] | Mapping[str, Any] | None,
        taken: Collection[str | None],
        option: str,
        empty: Empty = "mean",
    ) -> None:
        if isinstance(chosen, str):
            raise GraphError(f"{option}= is the text {chosen!r}; give a list of columns")
        self.table, self.empty, self._chosen = table, empty, chosen
        for column in chosen or ():
            table.need(column, option)
        kinds = chosen if isinstance(chosen, Mapping) else {}
        self._given = {column: _given_kind(column, kind, table.name) for column, kind in kinds.items()}
        self._rest = [column for column in table.columns if column not in taken and column not in (chosen or ())]
        self._columns: dict[str, _Column] | None = None
        self._unused: dict[str, Encoding] = {}

    def add(self, block: Block) -> None:
        """Collect the cells of a block."""
        if self._columns is None:
            self._columns = {name: self._column(name, block) for name in self._chosen or ()}
            for name in self._rest:
                kind, reason = _kind_found(name, as_list(block.columns[name][:FIRST_CELLS]))
                if self._chosen is not None:
                    reason = "not among the features that were asked for"
                if reason:
                    self._unused[name] = Encoding(name, kind, reason=reason)
                else:
                    self._columns[name] = _Column(name, kind, self.empty, self.table)
        for column in list(self._columns.values()):
            column.add(block)
            if column.reason:
                self._unused[column.name] = Encoding(column.name, column.kind, reason=column.reason)
                del self._columns[column.name]

    def _column(self, name: str, block: Block) -> _Column:
        """A column that was asked for: by the kind that was given, else by the one that it looks like."""
        kind, values = self._given.get(name, (None, None))
        if kind is None:
            kind, _ = _kind_found(name, as_list(block.columns[name][:FIRST_CELLS]))
            kind = "category" if kind == "text" else kind
        return _Column(name, kind, self.empty, self.table, values, asked=True)

    def finish(self) -> tuple[Tensor | None, tuple[str, ...], tuple[Encoding, ...]]:
        """The numbers ``[rows, columns]`` (None where there are none), the names of their columns, and every encoding."""
        parts: list[np.ndarray] = []
        names: list[str] = []
        encodings: list[Encoding] = []
        for column in (self._columns or {}).values():
            values, encoding = column.finish()
            encodings.append(encoding)
            if not encoding.reason:
                parts.append(values)
                names += encoding.names
        order = {name: position for position, name in enumerate(self.table.columns)}
        encodings += sorted(self._unused.values(), key=lambda each: order[each.column])
        if not parts:
            return None, (), tuple(encodings)
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return torch.from_numpy(whole), tuple(names), tuple(encodings)


class _Column:
    """One column as it is collected."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        empty: Empty,
        table: Table,
        values: Sequence[str] | None = None,
        asked: bool = False,
    ) -> None:
        self.name, self.kind, self.reason = name, kind, ""
        self._rule, self._table, self._values, self._asked = empty, table, values, asked
        self._codes: dict[str, int] = {value: code for code, value in enumerate(values or ())}
        self._parts: list[np.ndarray] = []

    def add(self, block: Block) -> None:
        """Collect the cells of a block."""
        cells, problems = block.columns[self.name], self._table.problems
        if self.kind == "category":
            self._parts.append(self._coded(read_texts(as_list(cells)), block.rows))
            return
        reader = {"number": None, "boolean": _boolean, "date": _years, "time": _years}[self.kind]
        if reader is None:
            self._parts.append(read_numbers(self.name, block, problems, self._rule != "error"))
            return
        result = np.array([reader(cell) for cell in as_list(cells)], dtype=np.float32)
        for position in np.flatnonzero(np.isnan(result)).tolist():
            if not _is_empty(cells[position], EMPTY):
                problems.add(block.rows[position], f"{self.name!r} is {_shown(cells[position])}, no {self.kind}")
            elif self._rule == "error":
                problems.add(block.rows[position], f"{self.name!r} is empty")
        self._parts.append(result)

    def _coded(self, texts: list[str], rows: Sequence[int]) -> np.ndarray:
        codes = self._codes
        if self._values is not None:
            unknown_texts = set(texts) - codes.keys() - {""}
            for row, text in zip(rows, texts, strict=True) if unknown_texts else ():
                if text in unknown_texts:
                    self._table.problems.add(row, f"{self.name!r} is {_shown(text)}, none of {some(self._values, 10)}")
        for text in texts if self._values is None else ():
            if text and text not in codes:
                codes[text] = len(codes)
        most = MOST_CATEGORIES if self._asked else CATEGORIES
        if len(codes) > most:
            if self._asked:
                raise GraphError(
                    f"'{self._table.name}' has more than {most:,} different texts in the column {self.name!r}, which are no "
                    "categories",
                    "leave it out of the features",
                )
            self.reason = f"text with more than {most} different values"
        if self._rule == "error" and "" in texts:
            self._table.problems.add_empty(rows, texts, self.name)
        return np.array([codes.get(text, -1) for text in texts], dtype=np.int32)

    def finish(self) -> tuple[np.ndarray, Encoding]:
        """The numbers ``[rows, columns]`` of the column, and its encoding."""
        whole = np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.float32)
        if self.kind != "category":
            gaps = np.isnan(whole)
            count, fill = int(gaps.sum()), None
            if count:
                filled = whole[~gaps]
                fill = float(filled.mean(dtype=np.float64)) if self._rule == "mean" and filled.size else 0.0
                whole[gaps] = fill
            return whole[:, None], Encoding(self.name, self.kind, (self.name,), empty=count, fill=fill)
        texts = list(self._codes) if self._values is not None else sorted(self._codes)
        count = int((whole < 0).sum())
        if len(texts) < 2 and not count and not self._asked:
            return whole, Encoding(self.name, self.kind, reason="the same everywhere")
        place = np.full(len(texts) + 1, -1)  # the last one stands for -1
        place[[self._codes[text] for text in texts]] = np.arange(len(texts))
        values = np.zeros((whole.size, len(texts)), dtype=np.float32)
        rows = np.flatnonzero(whole >= 0)
        values[rows, place[whole[rows]]] = 1
        names = tuple(f"{self.name}={text}" for text in texts)
        return values, Encoding(self.name, self.kind, names, "", tuple(texts), count, 0.0 if count else None)


def _given_kind(column: str, kind: Any, name: str) -> tuple[Kind | None, Sequence[str] | None]:
    if kind is None:
        return None, None
    if isinstance(kind, (list, tuple)) and kind and all(isinstance(each, (str, int, bool)) for each in kind):
        values = [each if isinstance(each, str) else _text(each) for each in kind]
        if len(set(values)) == len(values):
            return "category", values
    if isinstance(kind, str) and kind in KINDS:
        return kind, None
    if isinstance(kind, str):
        raise SettingError(unknown(f"the feature {column!r} of '{name}' has no kind", kind, KINDS))
    raise SettingError(
        f"the feature {column!r} of '{name}' is given as {kind!r}; give one of {', '.join(KINDS)}, or the list of its texts"
    )


def _kind_found(name: str, cells: Sequence[Any]) -> tuple[Kind, str]:
    """The kind of a column by its first cells, and why it is no feature unless it was asked for."""
    kind = kind_of(cells)
    if kind == "time":
        return kind, "a time"
    if kind == "text":
        return kind, "text" if any(not _is_empty(cell) for cell in cells) else "empty"
    if _NAMES_ROWS.fullmatch(name):
        return kind, "it names rows"
    return kind, ""


def kind_of(cells: Sequence[Any]) -> Kind:
    """The kind that a column looks like.

    >>> kind_of(["3", "", "4.5"]), kind_of(["yes", "no"]), kind_of(["2024-05-17"]), kind_of(["1715937600"])
    ('number', 'boolean', 'date', 'time')
    >>> kind_of(["red", "blue", "red", "red"]), kind_of(["Ann", "Bob"])
    ('category', 'text')
    """
    filled = [cell for cell in cells if not _is_empty(cell)]
    if not filled:
        return "text"
    if all(isinstance(cell, bool) or (isinstance(cell, str) and cell.strip().lower() in _BOOLEANS) for cell in filled):
        return "boolean"
    if all(isinstance(cell, date) or (isinstance(cell, str) and _is_day(cell)) for cell in filled):
        return "time" if any(isinstance(cell, datetime) for cell in filled) else "date"
    if all(isinstance(cell, str) and _TIME.fullmatch(cell.strip()) for cell in filled):
        return "time"
    numbers = np.array(
        [_number(cell) for cell in filled if not (isinstance(cell, str) and cell.strip().lower() in EMPTY)]
    )
    if 2 * np.isfinite(numbers).sum() > numbers.size:
        return "time" if _are_times(numbers) else "number"
    texts = [cell.strip() for cell in filled if isinstance(cell, str)]
    different = len(set(texts))
    repeated = len(texts) == len(filled) and different <= CATEGORIES and 2 * different <= len(texts)
    return "category" if repeated else "text"


def _are_times(numbers: np.ndarray) -> bool:
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return False
    return any(((numbers >= _SECONDS[0] * unit) & (numbers <= _SECONDS[1] * unit)).all() for unit in (1, 1e3, 1e6, 1e9))


def _is_day(cell: str) -> bool:
    return _DAY.fullmatch(cell.strip()) is not None


def read_numbers(column: str, block: Block, problems: Problems, gaps: bool = False) -> np.ndarray:
    """One column as 32-bit floats; other cells become problems of their rows. With ``gaps`` empty cells become NaN."""
    cells = block.columns[column]
    with np.errstate(over="ignore"):
        if isinstance(cells, np.ndarray):
            result = cells.astype(np.float32)
        else:
            result = np.array([_number(cell) for cell in cells]).astype(np.float32)
    for position in np.flatnonzero(~np.isfinite(result)).tolist():
        cell = cells[position]
        if gaps and _is_empty(cell, EMPTY):
            result[position] = np.nan
            continue
        reason = "is empty" if _is_empty(cell) else f"is {_shown(cell)}, no number"
        problems.add(block.rows[position], f"{column!r} {reason}")
    return result


def _shown(cell: Any) -> str:
    cell = cell.item() if isinstance(cell, np.generic) else cell
    return repr(cell) if len(repr(cell)) <= 40 else f"{cell!r:.40}…"


def _number(cell: Any) -> float:
    """A cell as a number, or NaN; 1_0 is no number, though Python reads it as 10."""
    try:
        return float("nan") if isinstance(cell, str) and "_" in cell else float(cell)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _boolean(cell: Any) -> float:
    return _BOOLEANS.get(cell.strip().lower() if isinstance(cell, str) else cell, float("nan"))


def _years(cell: Any) -> float:
    """A date or time as years since 2000; numbers are seconds since 1970, or a thousand or a million times as many."""
    try:
        if isinstance(cell, str) and _number(cell) != _number(cell):
            cell = datetime.fromisoformat(cell.strip().replace("Z", "+00:00"))
        if isinstance(cell, (str, int, float, np.number)):
            seconds = float(cell)
            while seconds > _SECONDS[1]:
                seconds /= 1000
            cell = datetime.fromtimestamp(seconds, UTC)
        if not isinstance(cell, datetime):
            cell = datetime(cell.year, cell.month, cell.day)
        return ((cell if cell.tzinfo else cell.replace(tzinfo=UTC)) - _START) / _YEAR
    except (ValueError, TypeError, OverflowError, OSError, AttributeError):
        return float("nan")


def _is_empty(cell: Any, empty: Collection[str] = ("",)) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in empty)


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


def in_order(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Distinct names sorted (whole numbers by value), and the rank of each.

    >>> in_order(["10", "9"])
    (('9', '10'), array([1, 0]))
    """
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    ordered = sorted(names, key=int) if whole else sorted(names)
    rank = {name: position for position, name in enumerate(ordered)}
    return tuple(ordered), np.array([rank[name] for name in names], dtype=np.int64)
