"""Turning what a user writes down (lists, tensors, CSV files) into sorted tensors of ids, or into one clear sentence."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gnndelete.errors import DeletionError, some, why

if TYPE_CHECKING:
    from gnndelete.datasets.ids import IdMap

_NODE_COLUMNS = ("node", "id", "node_id", "graph")
_FEATURE_COLUMNS = ("column", "feature")
_SOURCES, _RELATIONS, _TARGETS = ("source", "src", "head", "u"), ("relation", "type"), ("target", "dst", "tail", "v")


def as_edges(edges: Any) -> Tensor:
    """Sorted, distinct edges as a ``[2, k]`` (or ``[3, k]``) tensor on the CPU.

    >>> as_edges([(7, 9), (0, 5), (7, 9)]).tolist()
    [[0, 7], [5, 9]]
    """
    if edges is None:
        return torch.empty(2, 0, dtype=torch.long)
    if isinstance(edges, (Tensor, np.ndarray)):
        array = _integers("edges", edges)
        if array.dim() != 2 or array.size(0) not in (2, 3):
            hint = "; transpose it" if array.dim() == 2 and array.size(1) in (2, 3) else ""
            raise DeletionError(
                f"'edges' is a tensor of shape {list(array.shape)}; it must be [2, k] (or [3, k] for triples){hint}"
            )
    else:
        pairs = _listed("edges", edges)
        if not pairs:
            return torch.empty(2, 0, dtype=torch.long)
        widths = [_width(pair) for pair in pairs]
        odd = next(
            (p for p, width in zip(pairs, widths, strict=True) if width not in (2, 3) or width != widths[0]), None
        )
        if odd is not None:
            raise DeletionError(f"'edges' must hold pairs (source, target), or triples throughout; got {odd!r}")
        array = _integers("edges", pairs)
        if array.dim() != 2:
            raise DeletionError(f"'edges' must hold pairs of ids; got {pairs[0]!r}")
        array = array.t()
    return distinct(array) if array.numel() else array.reshape(array.size(0), 0)


def _width(pair: Any) -> int:
    try:
        return 1 if isinstance(pair, (str, bytes, dict)) else len(pair)
    except TypeError:
        return 1


def distinct(edges: Tensor) -> Tensor:
    """Sorted columns without repeats.

    >>> distinct(torch.tensor([[7, 0, 7], [9, 5, 9]])).tolist()
    [[0, 7], [5, 9]]
    """
    base = int(edges.max()) + 1 if edges.numel() else 1
    if base ** edges.size(0) > torch.iinfo(torch.long).max:
        return torch.unique(edges, dim=1)
    key = torch.unique(_keys(edges, base))  # one number per column: far cheaper to sort than columns
    rows = []
    for _ in range(edges.size(0) - 1):
        rows.append(key % base)
        key = key // base
    return torch.stack([key, *reversed(rows)])


def common(a: Tensor, b: Tensor) -> Tensor:
    """The columns of ``a`` that also stand in ``b``.

    >>> common(torch.tensor([[0, 7], [5, 9]]), torch.tensor([[7], [9]])).tolist()
    [[7], [9]]
    """
    return a[:, among(a, b)] if a.numel() and b.numel() else a[:, :0]


def among(a: Tensor, b: Tensor) -> Tensor:
    """Which columns of ``a`` also stand in ``b``; both hold some."""
    base = int(max(a.max(), b.max())) + 1
    return torch.isin(_keys(a, base), _keys(b, base))


def join_edges(a: Tensor, b: Tensor) -> Tensor:
    """All columns of both, each once; they must be of one kind."""
    if not a.size(1) or not b.size(1):
        return a if a.size(1) else b
    if a.size(0) != b.size(0):
        raise DeletionError("a deletion of pairs cannot be joined with one of triples; they belong to different graphs")
    return distinct(torch.cat([a, b], dim=1))


def join_ids(a: Tensor, b: Tensor) -> Tensor:
    """The ids of both, each once."""
    return torch.unique(torch.cat([a, b])) if a.numel() and b.numel() else a if a.numel() else b


def once(ids: Tensor) -> Tensor:
    """Each id once, sorted; most kinds of a request hold none, and then nothing is done."""
    return torch.unique(ids) if ids.numel() else ids


def _keys(edges: Tensor, base: int) -> Tensor:
    key = edges[0]
    for row in edges[1:]:
        key = key * base + row
    return key


def as_ids(name: str, ids: Any) -> Tensor:
    """Sorted, distinct ids as a tensor on the CPU.

    >>> as_ids("nodes", [3, 1, 3]).tolist()
    [1, 3]
    """
    if ids is None:
        return torch.empty(0, dtype=torch.long)
    if isinstance(ids, (int, np.integer)) and not isinstance(ids, bool):
        ids = [int(ids)]
    array = _integers(name, ids if isinstance(ids, (Tensor, np.ndarray)) else _listed(name, ids))
    if array.dim() != 1:
        raise DeletionError(f"'{name}' has shape {list(array.shape)}; it must be a flat list of ids")
    return torch.unique(array)


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise DeletionError(
            f"'{name}' is a '{type(values).__name__}' ({values!r}); give a list or a tensor of integer ids"
        )
    return list(values)


def _integers(name: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        if values.is_floating_point() and values.numel():
            raise DeletionError(f"'{name}' holds floats, for example {values.flatten()[0].item()!r}; ids are integers")
        array = values.detach().cpu().numpy()
    else:
        try:
            array = np.asarray(values)
        except (ValueError, TypeError) as error:
            raise DeletionError(f"'{name}' is not a regular list of ids ({error}); give integers") from error
    if array.size == 0:
        return torch.empty(array.shape if array.ndim > 1 else (0,), dtype=torch.long)
    if array.dtype.kind not in "iu":
        raise DeletionError(f"'{name}' holds {_kind(array)}, for example {_plain(array.flat[0])!r}; ids are integers")
    if int(array.min()) < 0:
        raise DeletionError(f"'{name}' holds the negative id {int(array.min())}; ids start at 0")
    if int(array.max()) > np.iinfo(np.int64).max:
        raise DeletionError(f"'{name}' holds the id {int(array.max())}, which is no 64-bit integer")
    return torch.from_numpy(np.array(array, dtype=np.int64))


def _plain(value: Any) -> Any:
    """A value as its user wrote it, not as numpy holds it."""
    return value.item() if isinstance(value, np.generic) else value


def _kind(array: np.ndarray) -> str:
    return {"f": "floats", "b": "booleans (a mask: pass mask.nonzero())", "U": "strings", "O": "mixed values"}.get(
        array.dtype.kind, str(array.dtype)
    )


def read_csv(
    path: str | PathLike[str],
    ids: IdMap | None = None,
    relations: Sequence[str] | None = None,
    wanted: str | None = None,
    columns_of_x: Sequence[str] | None = None,
) -> tuple[str, list[tuple[int, ...]]]:
    """The kind ('edges', 'nodes', 'features') and the rows of a request file; all lines that do not parse are named at once.

    With ``ids`` the cells are names of nodes, with ``relations`` those of edge types too, else numbers; with ``columns_of_x``
    a column of features goes by its name or its number. ``wanted`` says what a file of nodes names: these, their 'features'
    or their 'labels'.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            # a blank line is none; one of nothing but commas is a row whose ids are missing
            filled = ((reader.line_num, [cell.strip() for cell in row]) for row in reader)
            lines = [(number, cells) for number, cells in filled if len(cells) > 1 or any(cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DeletionError(
            f"the request file '{path}' cannot be read: {why(error)}; give a CSV file of ids"
        ) from error
    if not lines:
        raise DeletionError(f"the request file '{path}' is empty; give one row per edge or node")
    _refuse_other_separator(path, lines[0][1], ids)
    columns = list(range(len(lines[0][1])))
    kind = "nodes" if len(columns) == 1 else "edges" if wanted != "features" or len(columns) != 2 else wanted
    width = len(columns)
    if _has_header(path, lines[0][1], ids):
        kind, columns = _header(path, [cell.lower() for cell in lines[0][1]])
        lines = lines[1:]
        if not lines:
            raise DeletionError(f"the request file '{path}' holds a header and no rows; give one row per edge or node")
    if wanted is not None and kind != wanted:
        if kind != "nodes":
            raise DeletionError(f"'{path}' names {kind}, and {wanted} were asked for; give a column node")
        kind = wanted
    rows, bad = [], []
    for number, cells in lines:
        try:
            if len(cells) != width:
                raise ValueError
            picked = [cells[column] for column in columns]
            if ids is None:
                rows.append(tuple(map(_number, picked)))
            elif kind == "features":
                rows.append((*look_up(picked[:1], ids, None), *look_up_columns(picked[1:], columns_of_x)))
            else:
                rows.append(look_up(picked, ids, relations))
        except ValueError as error:
            reason = error.args[0] if ids is not None and error.args else ",".join(cells)
            bad.append(f"line {number} ({reason})")
    if bad:
        one = len(bad) == 1
        what = (
            ("is no id" if one else "are not ids") if ids is None else f"do{'es' * one} not name elements of the graph"
        )
        lines_of = f"{len(bad)} line{'s' * (not one)} of '{path}'"
        raise DeletionError(f"{lines_of} {what}: {some(bad, 20)}; correct or remove {'it' if one else 'them'}")
    return kind, rows


def _number(cell: str) -> int:
    if "_" in cell or int(cell) < 0:  # Python reads 1_0 as 10
        raise ValueError
    return int(cell)


def _refuse_other_separator(path: str | PathLike[str], cells: list[str], ids: IdMap | None) -> None:
    found = next((mark for mark in (";", "\t", "|") if len(cells) == 1 and mark in cells[0]), None)
    if found is not None and (ids is None or cells[0] not in ids):
        name = {"\t": "tabs"}.get(found, f"'{found}'")
        raise DeletionError(
            f"the columns of '{path}' are separated by {name} ('{cells[0]}'); separate them by commas, such as source,target"
        )


def _has_header(path: str | PathLike[str], cells: list[str], ids: IdMap | None) -> bool:
    if ids is None:
        return not all(cell.lstrip("-").isdigit() for cell in cells)
    names = {cell.lower() for cell in cells}
    found = not names.isdisjoint(_NODE_COLUMNS) or all(not names.isdisjoint(o) for o in (_SOURCES, _TARGETS))
    if found and all(cell in ids for cell in cells):
        raise DeletionError(
            f"the first line of '{path}' ({','.join(cells)}) is both a header and a row of ids; "
            "put a header above it that is no id, such as node_id or head,tail"
        )
    if not found and len(cells) > 3:
        raise DeletionError(f"'{path}' has {len(cells)} columns and no header; name the columns source,target or node")
    return found


def look_up(cells: Sequence[str], ids: IdMap, relations: Sequence[str] | None) -> tuple[int, ...]:
    """A node, a pair or a triple (source, relation, target) by its names; a ``ValueError`` says which one is not known."""
    found = []
    for place, cell in enumerate(cells):
        if len(cells) == 3 and place == 1:
            found.append(_relation(cell, relations))
            continue
        node = ids.find(cell)
        if node is None:
            raise ValueError(f"no id {ids.unknown(cell)}")
        found.append(node)
    return tuple(found)


def look_up_columns(cells: Sequence[str], names: Sequence[str] | None) -> tuple[int, ...]:
    """Columns of features by their names, or by their numbers from 0; a ``ValueError`` says which one is not known.

    >>> look_up_columns(["age", "2"], ["city", "age", "score"])
    (1, 2)
    """
    names = list(names or ())
    for cell in cells:
        if cell not in names and not (cell.isascii() and cell.isdigit()):
            known = (
                f"there are {some(map(repr, names))}, or numbers from 0"
                if names
                else "columns of 'x' have numbers from 0"
            )
            raise ValueError(f"no column {cell!r}, {known}")
    return tuple(names.index(cell) if cell in names else int(cell) for cell in cells)


def _relation(cell: str, relations: Sequence[str] | None) -> int:
    if relations:
        if cell not in relations:
            raise ValueError(f"no relation {cell!r}, there are {some(map(repr, relations))}")
        return list(relations).index(cell)
    if not cell.isdigit():
        raise ValueError(f"no relation {cell!r}, they have numbers here")
    return int(cell)


def _header(path: str | PathLike[str], names: list[str]) -> tuple[str, list[int]]:
    def find(options: tuple[str, ...]) -> int | None:
        return next((names.index(name) for name in options if name in names), None)

    source, relation, target, node, column = (
        find(o) for o in (_SOURCES, _RELATIONS, _TARGETS, _NODE_COLUMNS, _FEATURE_COLUMNS)
    )
    if source is not None and target is not None:
        return "edges", [source, target] if relation is None else [source, relation, target]
    if node is not None and column is not None:
        return "features", [node, column]
    if node is not None:
        return "nodes", [node]
    raise DeletionError(f"the header of '{path}' is '{','.join(names)}'; name the columns source,target or node")
