"""Requests that are solved one after another, each on top of the earlier ones and at the price of its own neighbourhood.

A segment is one request: its operators, and the rows that they and the cut have changed. Rows are appended and never
overwritten, so every earlier result still reads what it was given. `Segments` is what a later request starts from: the rows
of the cache, of which the newest version counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnndelete.engine.cache import Cache
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.nn.hooks import Site
from gnndelete.nn.operator import Operator

Operators = list[tuple[Site, Operator]]

NONE = -1


class Rows:
    """A matrix of which later versions of some rows are appended: ``base`` stays as it is.

    Args:
        base: The first version of every row.

    >>> rows = Rows(torch.zeros(3, 1))
    >>> rows.append(torch.tensor([1]), torch.ones(1, 1), version=0)
    >>> rows.append(torch.tensor([1]), torch.full((1, 1), 2.0), version=1)
    >>> rows.read(torch.tensor([0, 1])).flatten().tolist(), rows.read(torch.tensor([1]), version=0).item()
    ([0.0, 2.0], 1.0)
    """

    def __init__(self, base: Tensor) -> None:
        self.base = base
        self._newest = torch.full((base.size(0),), NONE, dtype=torch.int32, device=base.device)
        self._values, self._count = base.new_empty((0, *base.shape[1:])), 0
        self._version = torch.empty(0, dtype=torch.int32, device=base.device)
        self._before = torch.empty(0, dtype=torch.int32, device=base.device)

    def append(self, ids: Tensor, rows: Tensor, version: int) -> None:
        """Add a version of some rows."""
        start, stop = self._count, self._count + ids.numel()
        if stop > self._values.size(0):
            self._grow(max(2 * stop, 1024))
        self._values[start:stop], self._version[start:stop], self._before[start:stop] = rows, version, self._newest[ids]
        self._newest[ids] = torch.arange(start, stop, dtype=torch.int32, device=ids.device)
        self._count = stop

    def _grow(self, size: int) -> None:
        for name in ("_values", "_version", "_before"):
            old = getattr(self, name)
            new = old.new_empty((size, *old.shape[1:]))
            new[: self._count] = old[: self._count]
            setattr(self, name, new)

    def _positions(self, ids: Tensor, version: int | None) -> Tensor:
        position = self._newest[ids]
        while version is not None and position.numel():
            late = (position >= 0) & (self._version[position.clamp(min=0)] > version) if self._count else position > 0
            if not bool(late.any()):
                break
            position = torch.where(late, self._before[position.clamp(min=0)], position)
        return position

    def read(self, ids: Tensor, version: int | None = None) -> Tensor:
        """The newest rows, or those of a version."""
        result, position = self.base.index_select(0, ids), self._positions(ids, version)
        changed = position >= 0
        if self._count and bool(changed.any()):
            result[changed] = self._values[position[changed]]
        return result

    def whole(self, version: int | None = None) -> Tensor:
        """All rows, as a copy."""
        ids = (self._newest >= 0).nonzero().flatten()
        return self.base.index_copy(0, ids, self.read(ids, version)) if ids.numel() else self.base.clone()


@dataclass(frozen=True)
class Version:
    """The rows as they were after one segment, whatever came later."""

    rows: Rows
    number: int

    def read(self, ids: Tensor) -> Tensor:
        """Some rows."""
        return self.rows.read(ids, self.number)

    def whole(self) -> Tensor:
        """All rows, as a copy."""
        return self.rows.whole(self.number)


@dataclass(frozen=True)
class Segment:
    """One request.

    Attributes:
        operators: Its operators, on the whole graph.
        rows: Per site the rows of its operator, sorted.
        before: Per site and row the last earlier segment with an operator for it; `NONE` where there is none.
    """

    operators: dict[Site, Operator]
    rows: dict[Site, Tensor]
    before: dict[Site, Tensor]


class Segments:
    """The state after some segments.

    Args:
        cache: The rows before the first one.
        degree: The number of edges that enter each node from another one.
        weighted: The same, by weight.
        edges: The number of edges of the graph.
    """

    def __init__(self, cache: Cache, degree: Tensor, weighted: Tensor, edges: int) -> None:
        self.rows = {site: Rows(values) for site, values in cache.rows.items()}
        self.output = {key: Rows(values) for key, values in cache.output.items()}
        self.sums = dict(cache.sums)
        self.counts = {site: values.size(0) for site, values in cache.rows.items()}
        self.degree, self.weighted = degree.clone(), weighted.clone()
        self.gone = torch.zeros(edges, dtype=torch.bool, device=degree.device)
        self.segments: list[Segment] = []
        self._last = {site: self._last_of(len(values), values.device) for site, values in cache.rows.items()}

    @staticmethod
    def _last_of(size: int, device: torch.device) -> Tensor:
        """Per row the last segment with an operator for it."""
        return torch.full((size,), NONE, dtype=torch.int32, device=device)

    @property
    def behind_model(self) -> list[Site]:
        """Where operators act on the output of the model itself."""
        return [site for site in self._last if site not in self.rows]

    @property
    def version(self) -> int:
        """The number of the newest segment."""
        return len(self.segments) - 1

    @property
    def operators(self) -> Operators:
        """The operators of all segments, in the order in which they act."""
        return [item for segment in self.segments for item in segment.operators.items()]

    def begin(self, operators: Operators) -> None:
        """Add a segment; `Blocks.commit` then appends the rows that it changes."""
        number = len(self.segments)
        rows, before = {}, {}
        for site, operator in operators:
            if site not in self._last:  # behind the model itself
                size = len(self.output[site.key].base)
                self._last[site] = self._last_of(size, operator.rows.device)
            rows[site] = operator.rows.sort().values
            before[site] = self._last[site][rows[site]]
            self._last[site][rows[site]] = number
        self.segments.append(Segment(dict(operators), rows, before))

    def undo(self) -> None:
        """Take back the newest segment, of which no row was appended."""
        segment = self.segments.pop()
        for site, rows in segment.rows.items():
            self._last[site][rows] = segment.before[site]

    def at(self, site: Site, ids: Tensor) -> list[Operator]:
        """The operators that act on some rows of a site, in the order of the segments."""
        left = set(self._last[site][ids].unique().tolist()) - {NONE}
        found: set[int] = set()
        while left:
            number = max(left)
            left.discard(number)
            found.add(number)
            segment = self.segments[number]
            mine = segment.before[site][torch.isin(segment.rows[site], ids)]
            left |= set(mine.unique().tolist()) - {NONE} - found
        return [self.segments[number].operators[site] for number in sorted(found)]

    def cut(self, deletion: Deletion, table: EdgeTable, edges: Any) -> None:
        """Count the edges that leave with a checked deletion out of the degrees."""
        parts = []
        if deletion.edges.size(1):
            parts.append(table.positions(table.both_ways(deletion.edges.to(table.keys.device))))
        if deletion.nodes.numel():
            parts.append(edges.at(deletion.nodes.to(table.keys.device)))
        if not parts:
            return
        columns = torch.cat(parts).unique()
        columns = columns[~self.gone[columns]]
        self.gone[columns] = True
        targets, weights = edges.lost_degrees(columns)
        self.degree.index_add_(0, targets, -torch.ones_like(weights, dtype=self.degree.dtype))
        self.weighted.index_add_(0, targets, -weights.to(self.weighted.dtype))
