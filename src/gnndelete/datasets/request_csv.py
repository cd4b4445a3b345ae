"""Deletion requests in CSV files: ids or names of edges, nodes, features and labels."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from gnndelete.datasets.ids import IdMap, is_utf8
from gnndelete.datasets.tables import Problems, Records
from gnndelete.errors import DeletionError, some, why

_NODE_COLUMNS = ("node", "id", "node_id", "graph")
_FEATURE_COLUMNS = ("column", "feature")
_SOURCES, _RELATIONS, _TARGETS = ("source", "src", "head", "u"), ("relation", "type"), ("target", "dst", "tail", "v")


def read_csv(
    path: str | PathLike[str],
    ids: IdMap | None = None,
    relations: Sequence[str] | None = None,
    wanted: str | None = None,
    columns_of_x: Sequence[str] | None = None,
) -> tuple[str, list[tuple[int, ...]]]:
    """The kind ('edges', 'nodes', 'features', 'labels') and the rows of a request file; all bad lines are reported together.

    Cells are numbers, or names where ``ids`` and ``relations`` have names; with ``columns_of_x`` a column of features goes by
    its name or its number. ``wanted`` says what a file of nodes names: the nodes, their 'features' or their 'labels'.
    """
    problems = Problems(str(path), error=DeletionError)
    try:
        with Path(path).open("rb") as file:
            records = Records(file, problems)
            number, first = records.first()
            lines = [(number, first), *records.rest(len(first), range(len(first)))]
        if not all(map(is_utf8, first)):
            raise ValueError("it is not text in UTF-8")
    except (OSError, ValueError, csv.Error) as error:
        raise DeletionError(
            f"the request file '{path}' cannot be read: {why(error)}; give a CSV file of ids"
        ) from error
    lines = [(number, [cell.strip() for cell in cells]) for number, cells in lines if cells]
    if not lines:
        raise DeletionError(f"the request file '{path}' is empty; give one row per edge or node")
    first = lines[0][1]
    _refuse_other_separator(path, first, ids)
    columns = list(range(len(first)))
    kind = "nodes" if len(columns) == 1 else "edges" if wanted != "features" or len(columns) != 2 else wanted
    if _has_header(path, first, ids):
        kind, columns = _header(path, [cell.lower() for cell in first])
        lines = lines[1:]
    if wanted is not None and kind != wanted:
        if kind != "nodes":
            raise DeletionError(f"'{path}' names {kind}, and {wanted} were asked for; give a column node")
        kind = wanted
    rows = []
    for number, cells in lines:
        picked = [cells[column] for column in columns]
        try:
            if ids is None:
                rows.append(tuple(map(_number, picked)))
            elif kind == "features":
                rows.append((*look_up(picked[:1], ids, None), *look_up_columns(picked[1:], columns_of_x)))
            else:
                rows.append(look_up(picked, ids, relations))
        except ValueError as error:
            problems.add(number, ",".join(cells) if ids is None else str(error))
    problems.check()
    if not rows:
        raise DeletionError(f"the request file '{path}' holds a header and no rows; give one row per edge or node")
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
    """A node, a pair or a triple (source, relation, target) by its names; a ``ValueError`` says which name is unknown."""
    found = []
    for position, cell in enumerate(cells):
        if len(cells) == 3 and position == 1:
            found.append(_relation(cell, relations))
            continue
        node = ids.find(cell)
        if node is None:
            raise ValueError(f"no id {ids.unknown(cell)}")
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
