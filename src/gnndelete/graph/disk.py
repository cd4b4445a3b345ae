"""`DiskGraph`: a graph in memory-mapped files, for graphs that do not fit into memory.

Edges are sorted by target and then by source, so those into a node stand together, and the edges into a range of nodes are one
piece of a file. A directed graph has the targets by source as well. Ids take four bytes where that suffices. A `DiskGraph` is a
PyG ``Data`` whose tensors are read from the disk as they are used, so it implements PyG's ``FeatureStore`` and ``GraphStore``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr
from torch_geometric.data.graph_store import EdgeLayout

from gnndelete.errors import AdapterError, NotYetError
from gnndelete.graph.edge_table import EdgeTable, entries, ranges
from gnndelete.io.arrays import Arrays, problems
from gnndelete.io.versions import Count

KIND = "disk graph"

#: Files that are no attributes of the graph.
POINTERS, SOURCE_POINTERS, BY_SOURCE, NAMES, NAME_ENDS = (
    "pointers",
    "source_pointers",
    "by_source",
    "names",
    "name_ends",
)
_INTERNAL = (POINTERS, SOURCE_POINTERS, BY_SOURCE, NAMES, NAME_ENDS)


class DiskGraph(Data):
    """A graph in a folder of memory-mapped files. `build` makes one.

    It is a ``Data``: ``graph.x``, ``graph.y`` and the like are tensors that are read from the disk as they are used, and
    ``graph.edge_index`` holds the edges sorted by target. Writing into a tensor does not reach the files.

    Args:
        folder: The folder that `build` wrote.

    Attributes:
        table: The sorted edges: membership, neighbours and degrees by look-up.

    Raises:
        AdapterError: If there is no finished graph in the folder, or a file is cut off.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/graph"
    >>> graph = DiskGraph.build(folder, edges=[[0, 1], [1, 2]], x=torch.ones(3, 4), undirected=True)
    >>> graph.num_nodes, graph.num_edges, graph.edge_index.tolist()
    (3, 4, [[1, 0, 2, 1], [0, 1, 1, 2]])
    >>> DiskGraph(folder).table.neighbors(torch.tensor([1])).tolist()
    [0, 2]
    """

    table: DiskEdgeTable

    def __init__(self, folder: str | PathLike[str]) -> None:
        arrays = Arrays(Path(folder), KIND)
        _check(arrays)
        tensors = {name: arrays.tensor(name) for name in arrays.files if name not in _INTERNAL}
        super().__init__(**tensors)
        self.num_nodes = int(arrays.facts["nodes"])
        for name in ("num_relations", "reverse_offset"):
            if arrays.facts.get(name):
                self[name] = arrays.facts[name]
        # beside the attributes of the graph, which a `Data` keeps in a store of its own
        self.__dict__["arrays"] = arrays
        self.__dict__["table"] = DiskEdgeTable(arrays, self)

    @classmethod
    def build(
        cls,
        folder: str | PathLike[str],
        edges: Any,
        x: Any = None,
        *,
        nodes: int | None = None,
        undirected: bool = False,
        columns: tuple[str, str] = ("source", "target"),
        edge_attributes: Mapping[str, Any] | None = None,
        node_attributes: Mapping[str, Any] | None = None,
        names: Iterable[str] | None = None,
        dtype: str | None = None,
        memory: int | str = "2GB",
        progress: bool = False,
    ) -> DiskGraph:
        """Write a graph to a folder in bounded memory, and open it. A build that was killed goes on where it stopped.

        Tables (Parquet, CSV and Arrow files, DuckDB relations, data frames) need the extra ``gnndelete[tables]``.

        Args:
            folder: Where to write; it is made.
            edges: A ``[2, E]`` tensor, a ``Data`` or another PyG ``GraphStore``, the path of a Parquet, CSV or Arrow file or
                of a folder of these, a DuckDB relation, a data frame, or parts: an iterable of ``[2, k]`` tensors.
            x: Features of the nodes: a matrix, a ``.npy`` file, parts, a PyG ``FeatureStore``, or a table with a column per
                feature.
            nodes: The number of nodes, where neither ``x`` nor ``names`` tells it.
            undirected: Add the reverse of every edge, and keep each edge once.
            columns: The names of the columns of a table of edges.
            edge_attributes: What else describes edges, by name (``edge_weight``, ``edge_type``, ``edge_attr``): tensors in
                the order of ``edges``, or names of columns of their table.
            node_attributes: What else describes nodes, by name (``y``, ``train_mask``), in the forms of ``x``.
            names: The names of the nodes, in their order; edges may then be given by names.
            dtype: The type in which features are kept, such as ``"float16"``; the default is their own.
            memory: How much memory the build may use.
            progress: Show progress bars.

        Returns:
            The graph.

        Raises:
            GraphError: If the edges or attributes cannot be read or do not fit together.
            SettingError: If the folder holds a graph already.
        """
        from gnndelete.graph.disk_build import Build

        build = Build(Path(folder), memory, progress, undirected, dtype)
        build.run(edges, x, nodes, columns, edge_attributes or {}, node_attributes or {}, names)
        return cls(folder)

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.arrays.folder

    @property
    def digest(self) -> str:
        """A digest of everything that the graph holds."""
        return str(self.arrays.digest)

    @property
    def files_bytes(self) -> int:
        """The size of all files."""
        return sum(map(self.arrays.nbytes, self.arrays.files))

    def verify(self) -> list[str]:
        """Read every byte and compare it with the digests of the manifest.

        Returns:
            What is not as it was written; nothing where all is well.
        """
        return problems(self.folder)

    def columns_into(self, nodes: Tensor) -> Tensor:
        """Find the edges that enter some nodes.

        Args:
            nodes: Ids of nodes, sorted.

        Returns:
            Their columns in ``edge_index``, in its order.
        """
        return self.table.into(nodes)

    def part(self, nodes: Tensor, columns: Tensor) -> Data:
        """Read some nodes and edges into memory.

        Args:
            nodes: Ids of nodes, sorted; both ends of the edges are among them.
            columns: Columns of ``edge_index``.

        Returns:
            The part with its attributes, numbered from 0; ``n_id`` holds the ids of its nodes.
        """
        part = Data(edge_index=torch.searchsorted(nodes, self.edge_index[:, columns].long()))
        part.num_nodes = nodes.numel()
        for name, value in self.to_dict().items():
            if name in ("edge_index", "num_nodes"):
                continue
            if name in self.arrays.files:
                rows = columns if name.startswith("edge_") else nodes
                part[name] = entries(self, name, rows)
            else:
                part[name] = value
        part.n_id = nodes
        return in_full(part)

    def name(self, node: int) -> str:
        """Return the name of a node.

        Args:
            node: Its id.
        """
        ends = self.arrays.tensor(NAME_ENDS)
        start = int(ends[node - 1]) if node else 0
        return bytes(self.arrays.tensor(NAMES)[start : int(ends[node])].tolist()).decode()

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return -1 if key == "edge_index" else 0

    def is_node_attr(self, key: str) -> bool:
        """Return whether an attribute has a row per node.

        Args:
            key: The attribute.
        """
        return key in self.arrays.files and not key.startswith("edge_")

    def is_edge_attr(self, key: str) -> bool:
        """Return whether an attribute has a row per edge.

        Args:
            key: The attribute.
        """
        return key in self.arrays.files and key.startswith("edge_")

    def sample(self, nodes: int, generator: torch.Generator) -> Data:
        """Read a part around a random node into memory: nearby nodes and all edges among them.

        Args:
            nodes: How many nodes, where so many are connected or there are others to start from.
            generator: What random numbers are drawn from.
        """
        found = torch.empty(0, dtype=torch.long)
        ring = found
        while found.numel() < min(nodes, self.num_nodes):
            if not ring.numel():  # another part of the graph
                ring = torch.randint(self.num_nodes, (1,), generator=generator)
                ring = ring if not bool(torch.isin(ring, found)) else ring[:0]
            ring = ring[torch.randperm(ring.numel(), generator=generator)[: nodes - found.numel()]]
            found = torch.cat([found, ring])
            columns = self.table.into(ring)
            columns = columns[torch.randperm(columns.numel(), generator=generator)[: 4 * nodes]]
            near = torch.cat([self.edge_index[0, columns].long(), self.table.neighbors(ring[:nodes])]).unique()
            ring = near[~torch.isin(near, found)]
        found = found.sort().values
        columns = self.table.into(found)
        part = self.part(found, columns[torch.isin(self.edge_index[0, columns].long(), found)])
        del part.n_id
        return part

    # PyG's GraphStore: its samplers compute with eight bytes per id, so what they ask for is read into memory

    def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> bool:
        raise NotYetError("a DiskGraph cannot be changed", "build another one")

    def _remove_edge_index(self, edge_attr: Any) -> bool:
        raise NotYetError("a DiskGraph cannot be changed", "build another one")

    def _get_edge_index(self, edge_attr: Any) -> Any:
        source, target = self.edge_index
        if edge_attr.layout == EdgeLayout.COO:
            return source.long(), target.long()
        if edge_attr.layout == EdgeLayout.CSC:
            return source.long(), self.arrays.tensor(POINTERS)
        pointers, targets = self.table.by_source
        return pointers, targets.long()

    def get_all_edge_attrs(self) -> list[Any]:
        """Return the layout in which PyG's ``GraphStore`` has the edges at hand: sorted by target."""
        size = (self.num_nodes, self.num_nodes)
        return [DataEdgeAttr("csc", size=size)]

    def __copy__(self) -> DiskGraph:
        result = super().__copy__()
        result.__dict__["table"] = self.table
        return result

    def __reduce__(self) -> Any:
        return DiskGraph, (self.folder,)

    def __deepcopy__(self, memo: Any) -> DiskGraph:
        return copy.copy(self)


def in_full(part: Data) -> Data:
    """A part that was read into memory, in the types that models compute with."""
    for name, value in part.to_dict().items():
        if isinstance(value, Tensor) and value.dtype == torch.float16:
            part[name] = value.float()
    if "edge_type" in part:
        part.edge_type = part.edge_type.long()
    return part


class _Facts(BaseModel):
    """What the manifest of a graph says about it."""

    model_config = ConfigDict(strict=True)

    nodes: Count
    edges: Count
    undirected: bool
    loops: Count
    num_relations: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    reverse_offset: Annotated[int, Field(ge=0, lt=2**20)] | None = None


def _check(arrays: Arrays) -> None:
    """Refuse a folder whose arrays are not those of one graph; their numbers are not read."""
    try:
        facts = _Facts.model_validate(arrays.facts)
    except ValidationError:
        raise AdapterError(f"'{arrays.folder}' holds arrays, and its manifest describes no graph") from None
    nodes, edges = facts.nodes, facts.edges
    known = {"edge_index": [2, edges], BY_SOURCE: [edges], POINTERS: [nodes + 1], SOURCE_POINTERS: [nodes + 1]}
    for name in ("edge_index", POINTERS, *arrays.files):
        shape = arrays.files[name].shape if name in arrays.files else None
        rows = edges if name.startswith("edge_") else nodes
        if shape is None or (shape != known.get(name, [rows, *shape[1:]]) and name != NAMES):
            raise AdapterError(f"'{arrays.folder}' is no graph: '{name}' is missing or of another size")


class DiskEdgeTable(EdgeTable):
    """The edges of a `DiskGraph` by binary search within the edges of a node, in the place of a sorted list of all."""

    def __init__(self, arrays: Arrays, graph: DiskGraph) -> None:
        self.num_nodes, self.num_edges = int(arrays.facts["nodes"]), int(arrays.facts["edges"])
        self.edge_index = graph.edge_index
        self.kind = graph.get("edge_type")
        self.typed = self.kind is not None
        self.num_relations = int(arrays.facts.get("num_relations") or 1)
        self._mirror, self.mirrored = None, False
        offset = arrays.facts.get("reverse_offset")
        if offset:
            self._mirror = torch.tensor([*range(offset, 2 * offset), *range(offset)])
            self.mirrored = True
        self.undirected = bool(arrays.facts["undirected"])
        self.loops = int(arrays.facts["loops"])
        self.pointers = arrays.tensor(POINTERS)
        #: Where the edges that leave a node begin, and their targets: those that enter it, where edges run both ways.
        self.by_source = (self.pointers, self.edge_index[0])
        if BY_SOURCE in arrays.files:
            self.by_source = (arrays.tensor(SOURCE_POINTERS), arrays.tensor(BY_SOURCE))
        self.keys = self.order = torch.empty(0, dtype=torch.long)  # only their device is ever asked for

    @property
    def sample(self) -> Tensor:
        """The keys of some edges, spread over all of them."""
        return self.key(self.at(torch.linspace(0, max(self.num_edges - 1, 0), min(1024, self.num_edges)).long()))

    @property
    def one_way(self) -> int:
        """Not counted: every edge would have to be read."""
        return 0

    @property
    def degree(self) -> Tensor:
        """The out-degree of every node."""
        return self.by_source[0].diff()

    def at(self, columns: Tensor) -> Tensor:
        """The pairs or triples at some columns."""
        source, target = self.edge_index[:, columns].long()
        return torch.stack([source, target] if self.kind is None else [source, self.kind[columns].long(), target])

    def into(self, nodes: Tensor) -> Tensor:
        """The columns of the edges that enter some nodes."""
        return ranges(self.pointers[nodes], self.pointers[nodes + 1])

    def _columns(self, edges: Tensor, typed: bool = True) -> tuple[Tensor, Tensor]:
        """The columns that hold edges, and the number of the edge that each one is; ``typed``: of their relation alone."""
        known = ((edges >= 0) & (edges < self.num_nodes))[:: edges.size(0) - 1].all(dim=0)
        source, target = (torch.where(known, row, 0) for row in (edges[0], edges[-1]))
        start, stop = self.pointers[target], self.pointers[target + 1]
        first, last = (self._search(source + more, start, stop) for more in (0, 1))
        last = torch.where(known, last, first)
        columns = ranges(first, last)
        number = torch.repeat_interleave(torch.arange(source.numel()), last - first, output_size=columns.numel())
        if self.kind is not None and typed:
            same = self.kind[columns].long() == edges[1, number]
            columns, number = columns[same], number[same]
        return columns, number

    def _search(self, source: Tensor, start: Tensor, stop: Tensor) -> Tensor:
        """The first column of a piece, sorted by source, that holds no smaller source."""
        low, high = start.clone(), stop.clone()
        while bool((low < high).any()):
            middle = (low + high) // 2
            smaller = self.edge_index[0, middle.clamp(max=self.num_edges - 1)] < source
            inside = low < high
            low = torch.where(inside & smaller, middle + 1, low)
            high = torch.where(inside & ~smaller, middle, high)
        return low

    def contains(self, edges: Tensor) -> Tensor:
        """Which of the given edges exist, as a mask."""
        result = torch.zeros(edges.size(1), dtype=torch.bool)
        result[self._columns(edges)[1]] = True
        return result

    def positions(self, edges: Tensor) -> Tensor:
        """The columns of ``edge_index`` with the given edges, parallel copies included."""
        return self._columns(torch.unique(edges, dim=1))[0]

    def neighbors(self, nodes: Tensor) -> Tensor:
        """The targets of all edges that leave the given nodes, repeats included."""
        pointers, targets = self.by_source
        return targets[ranges(pointers[nodes], pointers[nodes + 1])].long()

    def leaving(self, nodes: Tensor) -> Tensor:
        """The columns of ``edge_index`` with the edges that leave the given nodes."""
        pointers, targets = self.by_source
        start, stop = pointers[nodes], pointers[nodes + 1]
        pairs = torch.stack([nodes.repeat_interleave(stop - start), targets[ranges(start, stop)].long()]).unique(dim=1)
        return self.between(pairs)

    def between(self, pairs: Tensor) -> Tensor:
        """The columns of all edges that join pairs of nodes, of whatever relation."""
        return self._columns(pairs, typed=False)[0]

    def reversed(self, edge_index: Tensor) -> EdgeTable:
        """The table of the same edges in the other direction, for its neighbours alone."""
        result = copy.copy(self)
        result.by_source = (self.pointers, self.edge_index[0])
        return result
