"""Turning the cells of tables into tensors: numbers, and names with a number for each."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnndelete.datasets.tables import Block, Problems, Table
from gnndelete.errors import GraphError, some

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
