"""A `HeteroData` as one typed graph: node types side by side, so that nodes, edges and operator rows have ids across all types.

Nodes of one type are a range of ids; edge types are numbered, those that only run back along another one last. The user
sees a `HeteroData` at both ends; in between everything works on `HeteroGraph`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from gnndelete.errors import GraphError, SettingError, some

EdgeType = tuple[str, str, str]

#: How PyG's ``ToUndirected`` names the way back along a relation.
REVERSE = "rev_"


@dataclass(frozen=True)
class Types:
    """Which ids the nodes of each type have, and which number each edge type."""

    nodes: dict[str, range]
    edges: tuple[EdgeType, ...]
    mirror: tuple[int, ...]  # the edge type with the same edges the other way round; -1: none, itself: both ways in one

    def rows(self, node_type: str) -> range:
        """The ids of a node type, or one sentence that names those there are."""
        if node_type not in self.nodes:
            raise GraphError(f"there is no node type {node_type!r}; the graph has {some(map(repr, self.nodes), 12)}")
        return self.nodes[node_type]

    def number(self, edge_type: Any) -> int:
        """The number of an edge type, also by its relation alone where that is enough; or a sentence that names what there is."""
        if isinstance(edge_type, tuple) and len(edge_type) == 1:
            found = [kind for kind in self.edges if kind[1] == edge_type[0]]
            if len(found) > 1:
                raise GraphError(
                    f"{len(found)} edge types have the relation {edge_type[0]!r}; name one: {some(found, 12)}"
                )
            edge_type = found[0] if found else edge_type[0]
        if edge_type not in self.edges:
            raise GraphError(f"there is no edge type {edge_type!r}; the graph has {some(self.edges, 12)}")
        return self.edges.index(edge_type)

    def ends(self, edge_type: EdgeType) -> tuple[range, range]:
        """The ids that the two ends of an edge type can have."""
        return self.rows(edge_type[0]), self.rows(edge_type[2])

    def ways(self) -> str:
        """Words beside a number of edges: which of them are counted both ways, in one edge type or two.

        >>> kinds = ("a", "has", "b"), ("a", "near", "a"), ("b", "rev_has", "a"), ("a", "saw", "b")
        >>> Types({}, kinds, (2, 1, 0, -1)).ways()
        "of 4 types; counted both ways: 'has', 'near'; one way: 'saw'"
        >>> Types({}, kinds[:3], (2, 1, 0)).ways()
        'of 3 types, counted both ways'
        """
        own = [self.edges.index(kind) for kind in self.own()]
        both = [repr(self.edges[r][1]) for r in own if self.mirror[r] >= 0]
        once = [repr(self.edges[r][1]) for r in own if self.mirror[r] < 0]
        size = f"of {len(self.edges)} type{'s' * (len(self.edges) != 1)}"
        if not both or not once:
            return f"{size}, {'counted both ways' if both else 'directed'}"
        return f"{size}; counted both ways: {some(both, 6)}; one way: {some(once, 6)}"

    def own(self) -> list[EdgeType]:
        """The edge types that are not the way back of another one."""
        return [kind for r, kind in enumerate(self.edges) if not 0 <= self.mirror[r] < r]


class HeteroGraph(Data):
    """All of a `HeteroData` as one typed ``Data``: ``edge_index`` and ``edge_type`` in ids across all types.

    >>> hetero = HeteroData({"author": {"x": torch.ones(2, 1)}, "paper": {"x": torch.ones(3, 4)}})
    >>> hetero["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [2, 0]])
    >>> graph = HeteroGraph.of(hetero)
    >>> graph.num_nodes, graph.edge_index.tolist(), graph.types.nodes["paper"]
    (5, [[0, 1], [4, 2]], range(2, 5))
    """

    @classmethod
    def of(cls, hetero: HeteroData, types: Types | None = None) -> HeteroGraph:
        """The graph of a `HeteroData`, of which it keeps a shallow copy; ``types`` where they are known already."""
        hetero = copy.copy(hetero)
        types = _types(hetero) if types is None else types
        parts, kinds = [], []
        for number, kind in enumerate(types.edges):
            source, target = types.ends(kind)
            edges = hetero[kind].edge_index
            parts.append(edges + torch.tensor([[source.start], [target.start]], device=edges.device))
            kinds.append(torch.full((edges.size(1),), number, device=edges.device))
        result = cls(
            edge_index=torch.cat(parts, dim=1),
            edge_type=torch.cat(kinds),
            num_nodes=sum(map(len, types.nodes.values())),
            num_relations=len(types.edges),
        )
        result.__dict__["_hetero"], result.__dict__["_types"] = hetero, types
        return result

    @property
    def hetero(self) -> HeteroData:
        """The same graph as its user knows it: read-only."""
        return self.__dict__["_hetero"]

    @property
    def types(self) -> Types:
        return self.__dict__["_types"]

    @property
    def names(self) -> TypedNames:
        """What errors call nodes and edge types."""
        return TypedNames(self.types)

    def to(self, device: Any, *args: Any, **kwargs: Any) -> HeteroGraph:
        return HeteroGraph.of(copy.copy(self.hetero).to(device, *args, **kwargs), self.types)

    def edge_subgraph(self, subset: Tensor) -> HeteroGraph:
        """The same nodes with some of the edges only; attributes of edges go along."""
        chosen = torch.zeros(self.edge_index.size(1), dtype=torch.bool, device=self.edge_index.device)
        chosen[subset] = True
        return self.with_edges(chosen)

    def with_edges(self, keep: Tensor) -> HeteroGraph:
        """The graph with the edges of a mask only."""
        result = copy.copy(self.hetero)
        sizes = [self.hetero[kind].edge_index.size(1) for kind in self.types.edges]
        for kind, mask in zip(self.types.edges, keep.split(sizes), strict=True):
            store, places = self.hetero[kind], mask.nonzero().flatten()
            for name, value in store.to_dict().items():
                if name.startswith("edge_label") or not store.is_edge_attr(name):
                    continue
                if isinstance(value, Tensor):
                    dim = self.hetero.__cat_dim__(name, value, store)
                    result[kind][name] = value.index_select(dim, places.to(value.device))
                else:
                    result[kind][name] = [value[place] for place in places.tolist()]
        for name, rows in self.types.nodes.items():
            result[name].num_nodes = len(rows)
        return HeteroGraph.of(result, self.types)

    def with_more(self, triples: Tensor) -> HeteroGraph:
        """The graph with further edges, of types whose edges have no attributes."""
        result = copy.copy(self.hetero)
        for number, kind in enumerate(self.types.edges):
            source, target = self.types.ends(kind)
            own = triples[:, triples[1] == number]
            pairs = torch.stack([own[0] - source.start, own[2] - target.start])
            result[kind].edge_index = torch.cat([self.hetero[kind].edge_index, pairs], dim=1)
        return HeteroGraph.of(result, self.types)

    def poisoned(self, nodes: Tensor) -> HeteroGraph:
        """The graph with NaN in the features of some nodes."""
        result = copy.copy(self.hetero)
        for store, own, rows in self.parts(nodes):
            x = store.get("x")
            if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided:
                result[store._key].x = x.index_fill(0, (nodes[own] - rows.start).to(x.device), float("nan"))
        return HeteroGraph.of(result, self.types)

    def parts(self, nodes: Tensor) -> Iterator[tuple[Any, Tensor, range]]:
        """For each type among the nodes: its store, which of the nodes are its own (a mask), and the ids of the type."""
        for name, rows in self.types.nodes.items():
            own = (nodes >= rows.start) & (nodes < rows.stop)
            if bool(own.any()):
                yield self.hetero[name], own, rows

    def features(self) -> dict[str, Tensor]:
        """The features of every type that has some, by name."""
        found = {name: self.hetero[name].get("x") for name in self.types.nodes}
        return {name: x for name, x in found.items() if isinstance(x, Tensor)}

    def place_nodes(self, node_type: str, ids: Tensor, what: str) -> Tensor:
        """Ids within a type as ids across all types."""
        rows = self.types.rows(node_type)
        outside = ids[(ids < 0) | (ids >= len(rows))].tolist()
        if outside:
            raise GraphError(
                f"{what} names {node_type!r} nodes that are not in the graph: {some(outside)}; ids of {node_type!r} go from 0 "
                f"to {len(rows) - 1}"
            )
        return ids + rows.start

    def place_edges(self, edge_type: Any, pairs: Tensor, what: str) -> Tensor:
        """Pairs of ids within the types of an edge type as triples ``[3, k]`` across all types."""
        number = self.types.number(edge_type)
        if pairs.size(0) != 2:
            raise GraphError(f"{what} gives triples for {edge_type!r}; the type says the relation: give pairs")
        source = self.place_nodes(edge_type[0], pairs[0], what)
        target = self.place_nodes(edge_type[2], pairs[1], what)
        return torch.stack([source, torch.full_like(source, number), target])


class TypedNames:
    """Nodes as messages name them: their type and their number within it."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self.names = self

    @cached_property
    def relations(self) -> list[str]:
        return [relation for _, relation, _ in self._types.edges]

    def __len__(self) -> int:
        return sum(map(len, self._types.nodes.values()))

    def __getitem__(self, node: int) -> str:
        name, rows = next((n, r) for n, r in self._types.nodes.items() if node in r)
        return f"{name} {node - rows.start}"


def side_by_side(data: Any) -> Any:
    """A `HeteroData` as a `HeteroGraph`, and everything else as it is."""
    return HeteroGraph.of(data) if isinstance(data, HeteroData) else data


def seen(data: Any) -> Any:
    """A graph as its user knows it: the `HeteroData` of a `HeteroGraph`, and everything else as it is."""
    return data.hetero if isinstance(data, HeteroGraph) else data


def _types(hetero: HeteroData) -> Types:
    if not hetero.node_types or not hetero.edge_types:
        raise GraphError(
            f"the HeteroData has {len(hetero.node_types)} node types and {len(hetero.edge_types)} edge types; both are needed"
        )
    nodes: dict[str, range] = {}
    start = 0
    for name in dict.fromkeys([*hetero.node_types, *(end for kind in hetero.edge_types for end in kind[::2])]):
        count = hetero[name].num_nodes if name in hetero.node_types else None
        if count is None:
            raise GraphError(
                f"the number of {name!r} nodes is unknown: the type has neither 'x' nor 'num_nodes'; set data[{name!r}].num_nodes"
            )
        nodes[name] = range(start, start + int(count))
        start += int(count)
    for kind in hetero.edge_types:
        _check_edges(hetero, kind, nodes)
    back = {kind: forward for kind in hetero.edge_types if (forward := _forward(hetero, kind)) is not None}
    # numbers follow from names alone, so that they are the same whatever was deleted
    edges = tuple([*(kind for kind in hetero.edge_types if kind not in back), *back])
    mirror = [-1] * len(edges)
    for kind, forward in back.items():
        if _same(hetero[kind].edge_index, hetero[forward].edge_index.flip(0)):
            one, other = edges.index(kind), edges.index(forward)
            mirror[one], mirror[other] = other, one
    for number, kind in enumerate(edges):
        pairs = hetero[kind].edge_index
        if mirror[number] < 0 and kind[0] == kind[2] and pairs.size(1) and _same(pairs, pairs.flip(0)):
            mirror[number] = number
    return Types(nodes, edges, tuple(mirror))


def _check_edges(hetero: HeteroData, kind: EdgeType, nodes: dict[str, range]) -> None:
    edges = hetero[kind].get("edge_index")
    if edges is None:
        held = ", ".join(hetero[kind].keys()) or "nothing"
        raise GraphError(f"the edge type {kind} has no 'edge_index' (it holds {held}); set it to a [2, E] tensor")
    if edges.dim() != 2 or edges.size(0) != 2 or edges.dtype != torch.long:
        raise GraphError(
            f"'edge_index' of {kind} has shape {list(edges.shape)} and dtype {edges.dtype}; it must be [2, E] of torch.long"
        )
    for row, end in zip(edges, (kind[0], kind[2]), strict=True):
        if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < len(nodes[end]):
            worst = int(row.min()) if int(row.min()) < 0 else int(row.max())
            raise GraphError(
                f"'edge_index' of {kind} names {end!r} node {worst}, and these go from 0 to {len(nodes[end]) - 1}; fix it"
            )


def _forward(hetero: HeteroData, kind: EdgeType) -> EdgeType | None:
    """The edge type of which this one is the way back by its name."""
    source, relation, target = kind
    forward = (target, relation.removeprefix(REVERSE), source)
    return forward if relation.startswith(REVERSE) and forward in hetero.edge_types else None


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two edge lists hold the same edges, each as often, in any order."""
    if a.shape != b.shape:
        return False
    base = int(max(a.max(), b.max())) + 1 if a.numel() else 1
    return torch.equal((a[0] * base + a[1]).sort().values, (b[0] * base + b[1]).sort().values)


def one_type(found: list[Any], what: str, way_out: str, known: Any) -> Any:
    """The only type that fits, or one sentence that asks for a choice."""
    if len(found) == 1:
        return found[0]
    raise SettingError(f"{len(found)} {what} could be meant; name one with {way_out}: {some(found or known, 12)}")
