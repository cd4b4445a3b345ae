"""Requests that are solved one after another, each on top of the earlier ones and at the price of its own neighbourhood.

A segment is one request: the rows that its operators and the cut have changed. Rows are appended and never
overwritten, so every earlier result still reads what it was given. `Segments` is what a later request starts from: the rows
of the cache, of which the newest version counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gnndelete.engine.cache import Cache
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.nn.hooks import Key, Site
from gnndelete.nn.operator import AddedRows, GivenRows, Operator

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
        self.base: Tensor = base
        self._newest = torch.full((base.size(0),), NONE, dtype=torch.int32, device=base.device)
        self._values, self._count = base.new_empty((0, *base.shape[1:])), 0
        self._version = torch.empty(0, dtype=torch.int32, device=base.device)
        self._before = torch.empty(0, dtype=torch.int32, device=base.device)

    @classmethod
    def zeros(cls, like: Tensor) -> Rows:
        """Rows of zeros, in the shape of others; they take no memory."""
        return cls(like.new_zeros(()).expand_as(like))

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

    def changed(self, version: int | None = None) -> Tensor:
        """The rows that have a later version than the first, sorted."""
        ids = (self._newest >= 0).nonzero().flatten()
        return ids[self._positions(ids, version) >= 0]

    def appended(self, version: int) -> Tensor:
        """The rows whose newest version this is, sorted."""
        found = (self._newest >= 0).nonzero().flatten()
        return found[self._version[self._newest[found]] == version]

    def whole(self, version: int | None = None) -> Tensor:
        """All rows, as a copy."""
        ids = self.changed(version)
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

    def appended(self) -> Tensor:
        """The rows that this segment changed, as long as it is the newest."""
        return self.rows.appended(self.number)


class LaterOperators(Sequence[tuple[Site, Operator]]):
    """Operators that add the offsets of rows, or give those of tables; made when they are first read.

    Args:
        places: The sites, and the offsets of their rows; tables with their rows.
        version: The newest segment that counts.
    """

    def __init__(self, places: list[tuple[Site, Rows]], version: int) -> None:
        self._places, self._version = places, version

    @cached_property
    def _made(self) -> Operators:
        made = []
        for site, offsets in self._places:
            ids = offsets.changed(self._version)
            if ids.numel():
                values = offsets.read(ids, self._version).flatten(1)
                added = (GivenRows(values) if site.table else AddedRows(values)).requires_grad_(False)
                made.append((site, Operator(len(offsets.base), values.size(1), [ids], [added])))
        return made

    def __getitem__(self, index: Any) -> Any:
        return self._made[index]

    def __len__(self) -> int:
        return len(self._made)


class Segments:
    """The state after some segments.

    What the operators of a segment did to a row is kept as an *offset*: the row after them less the row that the base model
    gives. A later request that changes what the row is computed from adds the same offset again. Its cost therefore does not
    grow with the number of segments, and maps that were solved for a few rows never act on others.

    Args:
        cache: The rows before the first one.
        degree: The number of edges that enter each node from another one.
        weighted: The same, by weight.
        edges: The number of edges of the graph.
    """

    def __init__(self, cache: Cache, degree: Tensor, weighted: Tensor, edges: int) -> None:
        self.rows = {site: Rows(values) for site, values in cache.rows.items()}
        self.output = {key: Rows(values) for key, values in cache.output.items()}
        self.offsets = {site: Rows.zeros(values) for site, values in cache.rows.items()}
        self.tables: dict[str, Rows] = {}  # parameters of which segments replaced rows
        self.behind_model: dict[Key, Rows] = {}  # offsets of rows of the output, behind all layers
        self.sums = dict(cache.sums)
        self.counts = {site: values.size(0) for site, values in cache.rows.items()}
        self.degree, self.weighted = degree.clone(), weighted.clone()
        self.gone = torch.zeros(edges, dtype=torch.bool, device=degree.device)
        self.version = NONE  #: the number of the newest segment

    def begin(self) -> None:
        """Begin a segment."""
        self.version += 1

    def set_rows(self, site: Site, ids: Tensor, before: Tensor, after: Tensor) -> None:
        """The computed rows of a site, before and after the operators of the newest segment."""
        known = self.rows[site].read(ids).flatten(1)
        self.sums[site] = self.sums[site] + (after.flatten(1).double() - known.double()).sum(0)
        self.rows[site].append(ids, after, self.version)
        _add(self.offsets[site], ids, before, after, self.version)

    def leave(self, site: Site, rows: Tensor) -> None:
        """Take rows of deleted nodes out of the mean of all rows."""
        self.sums[site] = self.sums[site] - self.rows[site].read(rows).flatten(1).double().sum(0)
        self.counts[site] -= rows.numel()

    def set_output(self, key: Key, ids: Tensor, before: Tensor, after: Tensor) -> None:
        """The computed rows of the output, before and after operators behind the model itself."""
        self.output[key].append(ids, after, self.version)
        if after is not before and key not in self.behind_model:
            self.behind_model[key] = Rows.zeros(self.output[key].base)
        if key in self.behind_model:
            _add(self.behind_model[key], ids, before, after, self.version)

    def set_table(self, name: str, base: Tensor, ids: Tensor, rows: Tensor) -> None:
        """The rows of a table that the newest segment replaces; ``base`` is the table before the first one."""
        if name not in self.tables:
            self.tables[name] = Rows(base)
        self.tables[name].append(ids, rows, self.version)

    def operators(
        self, sites: Iterable[Site], whole: Mapping[Key, Site], tables: Iterable[Site] = ()
    ) -> LaterOperators:
        """What all segments so far do to the base model, as one operator for each site; made when it is first read.

        Args:
            sites: The sites of the model.
            whole: The sites of its output.
            tables: Its tables.
        """
        places = [(site, self.offsets[site]) for site in sites]
        places += [(whole[key], rows) for key, rows in self.behind_model.items()]
        names = {site.title: site for site in tables}
        places += [(names[name], rows) for name, rows in self.tables.items()]
        return LaterOperators(places, self.version)

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


def _add(offsets: Rows, ids: Tensor, before: Tensor, after: Tensor, version: int) -> None:
    """Add what operators did to some rows to their offsets."""
    moved = (after != before).flatten(1).any(dim=1)
    if bool(moved.any()):
        ids = ids[moved]
        offsets.append(ids, offsets.read(ids) + (after[moved] - before[moved]), version)
