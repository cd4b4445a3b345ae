"""Building a `DiskGraph`: an external counting sort of the edges by ranges of targets, in bounded memory.

Edges are read once and put into one file per range of targets. Each file is sorted in memory and appended to the graph. For a
directed graph the same is done by source. Every step ends with a commit, from which a killed build goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data.feature_store import FeatureStore
from torch_geometric.data.graph_store import GraphStore

from gnndelete.errors import GraphError, SettingError, some
from gnndelete.graph.disk import BY_SOURCE, KIND, NAME_ENDS, NAMES, POINTERS, SOURCE_POINTERS
from gnndelete.io.arrays import MANIFEST, Draft, in_bytes
from gnndelete.io.progress import bar

#: Ids up to this take four bytes.
LARGEST_INT32 = 2**31 - 1

#: Each edge takes so many bytes while its piece is sorted: as it is read, as a key, and in order.
SORTING = 4

#: Nodes of one range of targets.
RANGE_NODES = 1 << 19

#: A commit brings files to disk, so there is one after so many bytes.
COMMIT_BYTES = 1 << 28

Chunk = dict[str, np.ndarray]


class Build:
    """One build.

    Args:
        folder: Where to write.
        memory: How much memory may be used.
        progress: Show progress bars.
        undirected: Add the reverse of every edge, and keep each edge once.
        dtype: The type in which features are kept.
    """

    def __init__(self, folder: Path, memory: int | str, progress: bool, undirected: bool, dtype: str | None) -> None:
        if (folder / MANIFEST).exists():
            raise SettingError(f"'{folder}' holds a graph already", "open it with DiskGraph, or choose another folder")
        self.folder, self.memory, self.progress = folder, in_bytes(memory), progress
        self.undirected, self.dtype = undirected, dtype
        self.names: Names | None = None

    def run(
        self,
        edges: Any,
        x: Any,
        nodes: int | None,
        columns: tuple[str, str],
        edge_attributes: Mapping[str, Any],
        node_attributes: Mapping[str, Any],
        names: Iterable[str] | None,
    ) -> None:
        """Build everything; see `DiskGraph.build`."""
        wrong = [name for name in edge_attributes if not name.startswith("edge_")]
        wrong += [name for name in node_attributes if name.startswith("edge_")]
        if wrong:
            raise SettingError(
                f"an attribute of edges is called edge_…, and no other ({some(map(repr, wrong))})", "rename it"
            )
        tables = {name: value for name, value in {"x": x, **node_attributes}.items() if value is not None}
        identity = {
            "edges": _described(edges),
            "attributes": {name: _described(value) for name, value in {**tables, **edge_attributes}.items()},
            "settings": [nodes, self.undirected, self.dtype, list(columns), names is not None],
        }
        draft = self.draft = Draft(self.folder, KIND, identity)
        arrays: dict[str, tuple[str, Iterable[int]]] = {}
        if names is not None:
            self._names(names)
            nodes = draft.facts["names"]
            arrays |= {NAMES: ("uint8", [draft.sizes[NAMES]]), NAME_ENDS: ("int64", [nodes])}
        for name, value in tables.items():
            shape, kind = self._rows(name, value)
            if nodes is not None and shape[0] != nodes:
                raise GraphError(
                    f"'{name}' has {shape[0]:,} rows, and the graph has {nodes:,} nodes", "give one row per node"
                )
            nodes, arrays[name] = shape[0], (kind, shape)
        self.index = np.dtype(np.int32 if (nodes or 0) <= LARGEST_INT32 else np.int64)
        self._read(edges, columns, edge_attributes, nodes)
        nodes = draft.facts["nodes"] = nodes if nodes is not None else draft.facts["largest"] + 1
        self._sort("edges", "edge_index", POINTERS, nodes)
        count, loops = draft.facts["edge_index"]["count"], draft.facts["edge_index"]["loops"]
        if count == 0:
            raise GraphError("there are no edges", "give at least one")
        self._targets(nodes)
        undirected = self.undirected
        if not undirected:
            self._turn(nodes)
            self._sort("turned", BY_SOURCE, SOURCE_POINTERS, nodes)
            undirected = self._same(count, nodes)
        if not undirected:
            arrays |= {BY_SOURCE: (str(self.index), [count]), SOURCE_POINTERS: ("int64", [nodes + 1])}
        arrays |= {"edge_index": (str(self.index), [2, count]), POINTERS: ("int64", [nodes + 1])}
        for name, (kind, shape) in self._fields.items():
            arrays[name] = (kind, [count, *shape])
        facts: dict[str, Any] = {"nodes": nodes, "edges": count, "undirected": undirected, "loops": loops}
        if "edge_type" in self._fields:
            facts["num_relations"] = 1 + draft.facts["edge_index"]["relations"]
        with bar("writing digests", 1, self.progress):
            draft.close(arrays, **facts)
        for left in (self.folder / "parts").glob("*"):
            left.unlink()
        if (self.folder / "parts").exists():
            (self.folder / "parts").rmdir()

    def _names(self, names: Iterable[str]) -> None:
        """Write the names of the nodes, and keep what finds them."""
        draft = self.draft
        if "names" not in draft.facts:
            end, count = 0, 0
            for part in _batches(names, 1 << 16):
                encoded = [name.encode() for name in part]
                draft.append(NAMES, np.frombuffer(b"".join(encoded), np.uint8))
                ends = end + np.cumsum([len(name) for name in encoded], dtype=np.int64)
                draft.append(NAME_ENDS, ends)
                end, count = int(ends[-1]), count + len(part)
            draft.commit(names=count)
        self.names = Names(draft.map(NAMES, "uint8"), draft.map(NAME_ENDS, "int64"))

    def _rows(self, name: str, value: Any) -> tuple[list[int], str]:
        """Write the rows of one attribute of the nodes; its shape and type."""
        draft, title = self.draft, f"writing {name}"
        done = draft.facts.get(f"rows of {name}")
        begin: dict[str, Any] = {"rows": 0, "shape": None, "dtype": "", "finished": False}
        state = begin if done is None else done
        if not state["finished"]:
            skip, pending, begun = state["rows"], 0, 0
            with bar(title, _length(value), self.progress) as update:
                for part in _parts(value, name, self.memory // 8):
                    begun += len(part)
                    fresh = part[max(len(part) - (begun - skip), 0) :] if begun > skip else part[:0]
                    if not len(fresh):
                        continue
                    if self.dtype is not None and np.issubdtype(fresh.dtype, np.floating) and name == "x":
                        fresh = fresh.astype(self.dtype)
                    if np.issubdtype(fresh.dtype, np.floating) and not np.isfinite(fresh).all():
                        raise GraphError(f"'{name}' holds NaN or infinite values", "clean them first")
                    shape, kind = list(fresh.shape[1:]), str(fresh.dtype)
                    if state["shape"] not in (None, shape) or state["dtype"] not in ("", kind):
                        raise GraphError(
                            f"the parts of '{name}' differ: {state['shape']} of {state['dtype']}, and {shape} of {kind}",
                            "give all rows one shape and type",
                        )
                    state |= {"rows": state["rows"] + len(fresh), "shape": shape, "dtype": kind}
                    draft.append(name, fresh)
                    pending += fresh.nbytes
                    if pending > COMMIT_BYTES:
                        draft.commit(**{f"rows of {name}": dict(state)})
                        pending = 0
                    update(state["rows"], title)
            if state["shape"] is None:
                raise GraphError(f"'{name}' has no rows", "give one row per node")
            draft.commit(**{f"rows of {name}": {**state, "finished": True}})
        return [state["rows"], *state["shape"]], state["dtype"]

    def _read(self, edges: Any, columns: tuple[str, str], attributes: Mapping[str, Any], nodes: int | None) -> None:
        """Put all edges into one file per range of targets."""
        draft = self.draft
        if draft.facts.get("read") is not None:
            self._fields = {name: (kind, shape) for name, kind, shape in draft.facts["fields"]}
            return
        skip, largest, chunks = draft.facts.get("chunks", 0), draft.facts.get("largest", -1), 0
        done = draft.facts.get("edges read", 0)
        self._fields = {name: (kind, shape) for name, kind, shape in draft.facts.get("fields", [])}
        pending = 0
        # an edge is read as two ids of eight bytes, sorted by its range, and for an undirected graph doubled
        size = max(self.memory // 256, 1 << 12)
        with bar("reading edges", _edge_count(edges), self.progress) as update:
            for chunk in _edges(edges, columns, attributes, size, self.names):
                chunks += 1
                if chunks <= skip:
                    continue
                pairs = chunk.pop("pairs")
                low, high = (int(pairs.min()), int(pairs.max())) if pairs.size else (0, -1)
                limit = (nodes if nodes is not None else LARGEST_INT32) - 1
                if low < 0 or high > limit:
                    raise GraphError(
                        f"edges name node {low if low < 0 else high}, but the graph has nodes 0 to {limit:,}",
                        "fix the edge list, or give nodes=",
                    )
                largest = max(largest, high)
                self._fields = {name: (str(each.dtype), list(each.shape[1:])) for name, each in chunk.items()}
                done += pairs.shape[1]
                self._spill("edges", self._records(pairs, chunk))
                pending += pairs.nbytes
                if pending > COMMIT_BYTES:
                    listed = [[name, *field] for name, field in self._fields.items()]
                    draft.commit(chunks=chunks, largest=largest, fields=listed, **{"edges read": done})
                    pending = 0
                update(done, "reading edges")
        listed = [[name, *field] for name, field in self._fields.items()]
        draft.commit(chunks=chunks, largest=largest, fields=listed, read=done)

    @property
    def _record(self) -> np.dtype:
        """An edge with its attributes. Where it is two ids alone, these are in the order of one number of eight bytes."""
        fields: list[Any] = [("source", self.index), ("target", self.index)]
        return np.dtype([*fields, *((name, kind, tuple(shape)) for name, (kind, shape) in self._fields.items())])

    def _records(self, pairs: np.ndarray, attributes: Chunk) -> np.ndarray:
        count = pairs.shape[1]
        times = 2 if self.undirected else 1
        records = np.empty(count * times, self._record)
        records["source"][::times], records["target"][::times] = pairs
        if self.undirected:  # an edge and its reverse stand together, so that of parallel edges the first one stays
            records["source"][1::2], records["target"][1::2] = pairs[1], pairs[0]
        for name, values in attributes.items():
            records[name] = np.repeat(values, times, axis=0) if times > 1 else values
        return records

    def _spill(self, stage: str, records: np.ndarray, key: str = "target") -> None:
        """Append edges to the files of their ranges."""
        number = records[key] // RANGE_NODES
        if len(number) and number.max() <= np.iinfo(np.int16).max:
            number = number.astype(np.int16)  # which numpy sorts without comparing
        order = np.argsort(number, kind="stable")
        records, number = records[order], number[order]
        for each, part in zip(*_split(number, records), strict=True):
            self.draft.append(f"parts/{stage}.{each}", part)

    def _sort(self, stage: str, name: str, pointers: str, nodes: int) -> None:
        """Sort every range and append it: sources to the edges, attributes to their files, and where each node begins."""
        draft = self.draft
        state = draft.facts.get(name, {"next": 0, "count": 0, "loops": 0, "relations": 0})
        last = (nodes - 1) // RANGE_NODES
        key, other = ("target", "source") if stage == "edges" else ("source", "target")
        title = f"sorting edges by {key}"
        if state["next"] == 0:
            draft.append(pointers, np.zeros(1, np.int64))
        with bar(title, last + 1, self.progress) as update:
            for number in range(state["next"], last + 1):
                file, start = f"parts/{stage}.{number}", number * RANGE_NODES
                stop, pending = min(start + RANGE_NODES, nodes), 0
                for low, high, records in self._sorted(file, start, stop, key, other):
                    counts = np.bincount(records[key] - low, minlength=high - low)
                    draft.append(pointers, state["count"] + np.cumsum(counts, dtype=np.int64))
                    draft.append(name, records[other])
                    if stage == "edges":
                        for field in self._fields:
                            draft.append(field, records[field])
                        if "edge_type" in self._fields and len(records):
                            state["relations"] = max(state["relations"], int(records["edge_type"].max()))
                        state["loops"] += int((records["source"] == records["target"]).sum())
                    state["count"] += len(records)
                    pending += records.nbytes
                state["next"] = number + 1
                draft.commit(**{name: dict(state)})
                draft.remove([file] if file in draft.sizes else [])
                update(number + 1, title)

    def _sorted(self, file: str, start: int, stop: int, key: str, other: str) -> Iterator[tuple[int, int, np.ndarray]]:
        """The edges of a range of nodes in order: in pieces, where they are too many to be sorted at once."""
        path, record = self.folder / file, self._record if key == "target" else self._pair
        if file not in self.draft.sizes:
            yield start, stop, np.empty(0, record)
            return
        held = np.memmap(path, record, mode="r")
        most = max(self.memory // (2 * SORTING * max(record.itemsize, 16)), 1)
        if len(held) <= most:
            yield start, stop, self._in_order(np.array(held), key, other)
            return
        counts = np.zeros(stop - start, np.int64)
        for piece in range(0, len(held), most):
            counts += np.bincount(held[key][piece : piece + most] - start, minlength=stop - start)
        low = start
        while low < stop:  # as many nodes as fit; a hub with more edges than that is sorted alone
            total = np.cumsum(counts[low - start :])
            high = low + max(int(np.searchsorted(total, most, side="right")), 1)
            found = []
            for piece in range(0, len(held), most):
                part = held[piece : piece + most]
                found.append(part[(part[key] >= low) & (part[key] < high)])
            yield low, high, self._in_order(np.concatenate(found), key, other)
            low = high

    @property
    def _pair(self) -> np.dtype:
        return np.dtype([("target", self.index), ("source", self.index)])

    def _in_order(self, records: np.ndarray, key: str, other: str) -> np.ndarray:
        """Sorted edges, each once where the graph is undirected."""
        if records.dtype.itemsize == 8 and records.dtype.names == (other, key):
            keys = records.view("<i8")
            keys.sort()
            kept = np.append(True, keys[1:] != keys[:-1]) if self.undirected and len(keys) else None
            return records if kept is None else records[kept]
        columns: list[np.ndarray] = [records[other], records[key]]
        if "edge_type" in (records.dtype.names or ()):
            columns = [records["edge_type"], *columns]
        records = records[np.lexsort(columns)]
        if not self.undirected or not len(records):
            return records
        names = [name for name in ("source", "target", "edge_type") if name in (records.dtype.names or ())]
        differs = np.logical_or.reduce([records[name][1:] != records[name][:-1] for name in names])
        return records[np.append(True, differs)]

    def _targets(self, nodes: int) -> None:
        """Append the target of every edge to its source."""
        draft = self.draft
        if "targets" in draft.facts:
            return
        pointers = draft.map(POINTERS, "int64").numpy()
        for start, stop in _ranges_of(pointers, self.memory // 64):
            counts = np.diff(pointers[start : stop + 1])
            draft.append("edge_index", np.repeat(np.arange(start, stop, dtype=self.index), counts))
        draft.commit(targets=True)

    def _turn(self, nodes: int) -> None:
        """Put all edges into one file per range of sources."""
        draft = self.draft
        if "turned" in draft.facts:
            return
        draft.remove([name for name in draft.sizes if name.startswith("parts/turned.")])
        count = draft.facts["edge_index"]["count"]
        source, target = draft.map("edge_index", str(self.index), [2, count]).numpy()
        size = max(self.memory // 256, 1 << 12)
        with bar("reading edges by source", count, self.progress) as update:
            for start in range(0, count, size):
                records = np.empty(len(source[start : start + size]), self._pair)
                records["source"], records["target"] = source[start : start + size], target[start : start + size]
                self._spill("turned", records, "source")
                update(start, "reading edges by source")
        draft.commit(turned=True)

    def _same(self, count: int, nodes: int) -> bool:
        """Whether the edges that leave each node lead where those come from that enter it."""
        if "same" not in self.draft.facts:
            pairs = [
                (self.draft.map(POINTERS, "int64"), self.draft.map(SOURCE_POINTERS, "int64")),
                (
                    self.draft.map("edge_index", str(self.index), [2, count])[0],
                    self.draft.map(BY_SOURCE, str(self.index)),
                ),
            ]
            size = max(self.memory // 64, 1 << 12)
            typed = "edge_type" in self._fields  # counts as directed, as in memory
            same = not typed and all(
                torch.equal(one[start : start + size], other[start : start + size])
                for one, other in pairs
                for start in range(0, len(one), size)
            )
            self.draft.commit(same=same)
        return bool(self.draft.facts["same"])


class Names:
    """Finds nodes by name: the hashes of all names in order, twelve bytes per node."""

    def __init__(self, names: Tensor, ends: Tensor) -> None:
        self._names, self._ends = names.numpy().tobytes(), ends.numpy()
        starts = np.append(0, self._ends[:-1])
        hashes = np.fromiter(
            (hash(self._names[a:b]) for a, b in zip(starts, self._ends, strict=True)), np.int64, len(self._ends)
        )
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        again = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        again = again[[self._name(self._order[each]) == self._name(self._order[each + 1]) for each in again]]
        twice = [self._name(self._order[each]).decode() for each in again]
        if twice:
            raise GraphError(
                f"{len(twice)} names stand for several nodes: {some(map(repr, twice))}", "make names distinct"
            )

    def _name(self, node: int) -> bytes:
        return self._names[int(self._ends[node - 1]) if node else 0 : int(self._ends[node])]

    def find(self, names: np.ndarray) -> np.ndarray:
        """The nodes of some names."""
        distinct, inverse = np.unique(names.astype(str), return_inverse=True)
        found, unknown = np.empty(len(distinct), np.int64), []
        for place, name in enumerate(distinct.tolist()):
            encoded = name.encode()
            first = int(np.searchsorted(self._hashes, hash(encoded)))
            while first < len(self._hashes) and self._hashes[first] == hash(encoded):
                if self._name(int(self._order[first])) == encoded:
                    found[place] = self._order[first]
                    break
                first += 1
            else:
                unknown.append(name)
        if unknown:
            raise GraphError(
                f"edges name {len(unknown):,} nodes that names= lacks: {some(map(repr, unknown))}", "add them"
            )
        return found[inverse.reshape(-1)]


def _batches(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    batch = []
    for value in values:
        batch.append(value)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _split(number: np.ndarray, records: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """Sorted numbers, each once, and the records of each."""
    if not len(number):
        return [], []
    starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    return number[starts].tolist(), np.split(records, starts[1:])


def _ranges_of(pointers: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of nodes with at most so many edges, or of one node."""
    start, nodes = 0, len(pointers) - 1
    while start < nodes:
        stop = max(int(np.searchsorted(pointers, pointers[start] + most, side="right")) - 1, start + 1)
        yield start, stop
        start = stop


def _described(value: Any) -> str:
    """What tells one source from another, without reading it."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (str, PathLike)):
        path = Path(value)
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        return repr(
            [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()] or value
        )
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} {'' if shape is None else list(shape)} {getattr(value, 'dtype', '')}"


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, (Tensor, np.ndarray, list, tuple)) else None


def _edge_count(edges: Any) -> int | None:
    shape = getattr(edges, "shape", None)
    return int(shape[1]) if shape is not None and len(shape) == 2 and shape[0] == 2 else None


def _parts(value: Any, name: str, memory: int) -> Iterator[np.ndarray]:
    """The rows of an attribute of nodes, some at a time."""
    if isinstance(value, FeatureStore):
        yield from _parts(_Stored(value, name), name, memory)
        return
    if isinstance(value, (str, PathLike)) and str(value).endswith(".npy"):
        value = np.load(value, mmap_mode="r")
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, (list, tuple)) and not any(isinstance(part, (Tensor, np.ndarray)) for part in value):
        value = np.asarray(value)
    if isinstance(value, (np.ndarray, _Stored)):
        if not value.shape:
            raise GraphError(f"'{name}' is a single number", "give one row per node")
        row = max(int(np.prod(value.shape[1:])) * value.dtype.itemsize, 1)
        size = max(memory // row, 1)
        for start in range(0, value.shape[0], size):
            yield np.asarray(value[start : start + size])
        return
    if is_table(value):
        for batch in _table(value, max(memory // 1024, 1024)):
            columns = [np.asarray(column.to_numpy(zero_copy_only=False)) for column in batch.columns]
            yield columns[0] if len(columns) == 1 and name != "x" else np.stack(columns, axis=1)
        return
    for part in value:
        yield np.asarray(part)


class _Stored:
    """A tensor of another ``FeatureStore``, by slices."""

    def __init__(self, store: FeatureStore, name: str) -> None:
        self._store = store
        found = [each for each in store.get_all_tensor_attrs() if each.attr_name == name]
        if len(found) != 1:
            raise GraphError(
                f"the FeatureStore has {len(found)} tensors named '{name}'", "give a store with one group of nodes"
            )
        self._attr = found[0]
        if not self._attr.is_set("group_name"):
            self._attr.group_name = None
        first = self[0:1]
        self.dtype = first.dtype
        self.shape = (int(store.get_tensor_size(self._attr)[0]), *first.shape[1:])

    def __getitem__(self, rows: slice) -> np.ndarray:
        self._attr.index = rows
        return np.asarray(self._store.get_tensor(self._attr))


def is_table(value: Any) -> bool:
    """Whether rows come from a file or from something that gives Arrow batches."""
    return isinstance(value, (str, PathLike)) or hasattr(value, "__arrow_c_stream__")


def _table(value: Any, rows: int) -> Iterator[Any]:
    """A table as Arrow batches, one after another."""
    try:
        import pyarrow
        import pyarrow.dataset
    except ImportError as error:
        raise SettingError("tables need pyarrow", "install gnndelete[tables]") from error
    if isinstance(value, (str, PathLike)):
        path = Path(value)
        if not path.exists():
            raise GraphError(f"there is no file '{path}'", "check the path")
        first = next((file for file in sorted(path.rglob("*")) if file.is_file()), path) if path.is_dir() else path
        kind = {".csv": "csv", ".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc"}.get(first.suffix.lower())
        if kind is None:
            raise GraphError(f"'{path}' is no table that can be read", "give .parquet, .csv or .arrow files")
        yield from pyarrow.dataset.dataset(str(path), format=kind).to_batches(batch_size=rows)
        return
    if hasattr(value, "to_arrow_reader"):  # a DuckDB relation, of which only some rows are in memory
        yield from value.to_arrow_reader(rows)
        return
    for batch in pyarrow.RecordBatchReader.from_stream(value):
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _edges(
    edges: Any, columns: tuple[str, str], attributes: Mapping[str, Any], size: int, names: Names | None
) -> Iterator[Chunk]:
    """Edges with their attributes, some at a time: ``pairs`` holds the ``[2, k]`` ids."""
    find: Callable[[np.ndarray], np.ndarray] = _numbers if names is None else names.find
    if isinstance(edges, GraphStore):
        known = edges.get_all_edge_attrs()
        if len(known) == 0:
            raise GraphError("the GraphStore has no edges", "give one with edges")
        row, column, _ = edges.coo()
        if isinstance(row, dict):
            if len(row) != 1:
                raise GraphError(f"the GraphStore has {len(row)} edge types", "give a store with one")
            row, column = next(iter(row.values())), next(iter(column.values()))
        edges = torch.stack([row, column])
    if is_table(edges):
        for batch in _table(edges, size):
            held = {name: batch.column(name) for name in batch.schema.names}
            chosen = [*columns, *(value for value in attributes.values() if isinstance(value, str))]
            missing = [name for name in chosen if name not in held]
            if missing:
                raise GraphError(
                    f"the table of edges has no column {missing[0]!r} (its columns: {some(held)})",
                    "name them with columns=",
                )
            pairs = np.stack([find(np.asarray(held[name].to_numpy(zero_copy_only=False))) for name in columns])
            values = {
                name: np.asarray(held[column].to_numpy(zero_copy_only=False)) for name, column in attributes.items()
            }
            yield {"pairs": pairs, **{name: _narrow(name, value) for name, value in values.items()}}
        return
    whole = edges if isinstance(edges, (Tensor, np.ndarray)) else None
    if isinstance(edges, (list, tuple)) and len(edges) == 2 and np.ndim(edges[0]) == 1:
        whole = np.stack([np.asarray(row) for row in edges])
    parts: Iterable[Any] = [whole] if whole is not None else edges
    start = 0
    for part in parts:
        array = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
        if array.ndim != 2 or array.shape[0] != 2:
            raise GraphError(f"edges have the shape {list(array.shape)}", "give [2, k] ids: sources, then targets")
        for first in range(0, array.shape[1], size):
            pairs = array[:, first : first + size]
            stop = start + pairs.shape[1]
            values = {name: _narrow(name, _slice(value, name, start, stop)) for name, value in attributes.items()}
            start = stop
            yield {"pairs": np.stack([find(row) for row in pairs]), **values}


def _slice(value: Any, name: str, start: int, stop: int) -> np.ndarray:
    if isinstance(value, str):
        raise GraphError(
            f"'{name}' names a column, and the edges are no table", "give a tensor in the order of the edges"
        )
    found = value[start:stop]
    array = found.detach().cpu().numpy() if isinstance(found, Tensor) else np.asarray(found)
    if len(array) != stop - start:
        raise GraphError(f"'{name}' has fewer entries than there are edges", "give one per edge")
    return array


def _narrow(name: str, values: np.ndarray) -> np.ndarray:
    """Weights and attributes in four bytes; types are checked."""
    if name == "edge_type":
        numbers = _numbers(values)
        if len(numbers) and int(numbers.min()) < 0:
            raise GraphError(f"'edge_type' holds the relation {int(numbers.min())}", "relations are numbers from 0")
        return numbers.astype(np.int64)
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        raise GraphError(f"'{name}' holds NaN or infinite values", "clean them first")
    return values


def _numbers(values: np.ndarray) -> np.ndarray:
    if not np.issubdtype(values.dtype, np.integer):
        raise GraphError(
            f"edges hold values of type {values.dtype}", "give ids from 0, or names= with the names of all nodes"
        )
    return values
