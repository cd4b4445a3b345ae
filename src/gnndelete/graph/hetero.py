"""A `HeteroData` as one typed graph: node types side by side, so that nodes and edges have ids across all types.

The nodes of one type are a range of ids. Edge types are numbered; those that are the reverse of another one come last.
Users hand in a `HeteroData` and get one back; everything in between works on `HeteroGraph`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from gnndelete.errors import DeletionError, GraphError, SettingError, some
from gnndelete.graph.edge_table import entries
from gnndelete.graph.parsing import Names, short

EdgeType = tuple[str, str, str]
TypeName = str | tuple[str, ...]  # a node type, an edge type, or only the relation of one: (relation,)
Kinds = dict[str, Any]

#: How PyG's ``ToUndirected`` begins the name of a reverse relation.
REVERSE = "rev_"

ONE_GRAPH = "graphs= names graphs of a set, and a HeteroData is one graph; name nodes= or edges= by type instead"


@dataclass(frozen=True)
class Types:
    """The ids of every node type and the number of every edge type."""

    nodes: dict[str, range]
    edges: tuple[EdgeType, ...]
    mirror: tuple[int, ...]  # the edge type that holds the reverse edges; -1: none, itself: both directions in one type

    def rows(self, node_type: str) -> range:
        """The ids of a node type; an unknown type is refused."""
        if node_type not in self.nodes:
            raise GraphError(
                f"there is no node type {short(node_type)}; the graph has {some(map(repr, self.nodes), 12)}"
            )
        return self.nodes[node_type]

    def number(self, edge_type: Any) -> int:
        """The number of an edge type; ``(relation,)`` is enough where one edge type has that relation."""
        if isinstance(edge_type, tuple) and len(edge_type) == 1:
            found = [kind for kind in self.edges if kind[1] == edge_type[0]]
            if len(found) > 1:
                raise GraphError(
                    f"{len(found)} edge types have the relation {edge_type[0]!r}; name one: {some(found, 12)}"
                )
            edge_type = found[0] if found else edge_type[0]
        if edge_type not in self.edges:
            raise GraphError(f"there is no edge type {short(edge_type)}; the graph has {some(self.edges, 12)}")
        return self.edges.index(edge_type)

    def ends(self, edge_type: EdgeType) -> tuple[range, range]:
        """The ids that sources and targets of an edge type can have."""
        return self.rows(edge_type[0]), self.rows(edge_type[2])

    def starts(self, edge_type: EdgeType, device: torch.device | None = None) -> Tensor:
        """The first ids of sources and targets, as a column: added to pairs, it makes their ids count across types."""
        return torch.tensor([[rows.start] for rows in self.ends(edge_type)], device=device)

    def ways(self) -> str:
        """Words for a count of edges: which edge types are counted in both directions.

        >>> kinds = ("a", "has", "b"), ("a", "near", "a"), ("b", "rev_has", "a"), ("a", "saw", "b")
        >>> Types({}, kinds, (2, 1, 0, -1)).ways()
        "of 4 types; counted both ways: 'has', 'near'; one way: 'saw'"
        """
        forward = [self.edges.index(kind) for kind in self.forward()]
        both = [repr(self.edges[r][1]) for r in forward if self.mirror[r] >= 0]
        once = [repr(self.edges[r][1]) for r in forward if self.mirror[r] < 0]
        size = f"of {len(self.edges)} type{'s' * (len(self.edges) != 1)}"
        if not both or not once:
            return f"{size}, {'counted both ways' if both else 'directed'}"
        return f"{size}; counted both ways: {some(both, 6)}; one way: {some(once, 6)}"

    def forward(self) -> list[EdgeType]:
        """The edge types that are not the reverse of another one."""
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
        """The graph of a `HeteroData`, which is copied shallowly; ``types`` where they are known already."""
        hetero = copy.copy(hetero)
        types = _types(hetero) if types is None else types
        parts, kinds = [], []
        for number, kind in enumerate(types.edges):
            edges = hetero[kind].edge_index
            parts.append(edges + types.starts(kind, edges.device))
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
        """The user's form of the graph; do not change it."""
        return self.__dict__["_hetero"]

    @property
    def types(self) -> Types:
        """The node types and edge types."""
        return self.__dict__["_types"]

    @property
    def names(self) -> Names:
        """What messages call nodes and relations."""
        return Names(_NodeNames(self.types.nodes), [relation for _, relation, _ in self.types.edges])

    def to(self, device: Any, *args: Any, **kwargs: Any) -> HeteroGraph:
        """The graph on another device."""
        return HeteroGraph.of(copy.copy(self.hetero).to(device, *args, **kwargs), self.types)

    def edge_subgraph(self, subset: Tensor) -> HeteroGraph:
        """The same nodes with the chosen edges and their attributes."""
        chosen = torch.zeros(self.edge_index.size(1), dtype=torch.bool, device=self.edge_index.device)
        chosen[subset] = True
        return self.with_edges(chosen)

    def with_edges(self, mask: Tensor) -> HeteroGraph:
        """The same nodes with the edges of a mask and their attributes."""
        result = copy.copy(self.hetero)
        sizes = [self.hetero[kind].edge_index.size(1) for kind in self.types.edges]
        for kind, part in zip(self.types.edges, mask.split(sizes), strict=True):
            store, positions = self.hetero[kind], part.nonzero().flatten()
            for name in store.to_dict():
                if not name.startswith("edge_label") and store.is_edge_attr(name):
                    result[kind][name] = entries(self.hetero, name, positions, store)
        for name, rows in self.types.nodes.items():
            result[name].num_nodes = len(rows)
        return HeteroGraph.of(result, self.types)

    def with_more(self, triples: Tensor) -> HeteroGraph:
        """The graph with further edges, of types whose edges have no attributes."""
        result = copy.copy(self.hetero)
        for number, kind in enumerate(self.types.edges):
            pairs = triples[:, triples[1] == number][[0, 2]] - self.types.starts(kind, triples.device)
            result[kind].edge_index = torch.cat([self.hetero[kind].edge_index, pairs], dim=1)
        return HeteroGraph.of(result, self.types)

    def features(self) -> dict[str, Tensor]:
        """The features of every node type that has any."""
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


class _NodeNames(Sequence[str]):
    """Nodes as messages name them: their type and their id within it."""

    def __init__(self, types: Mapping[str, range]) -> None:
        self._types = types

    def __len__(self) -> int:
        return sum(map(len, self._types.values()))

    def __getitem__(self, node: Any) -> Any:
        return next(f"{name} {node - rows.start}" for name, rows in self._types.items() if node in rows)


def split_by_type(arguments: Kinds, fill: Any = 0.0) -> dict[TypeName, Kinds] | None:
    """What each type loses, where the kinds are given by type; None for a request in plain ids.

    >>> split_by_type({"nodes": {"paper": [3]}, "labels": {"paper": [4]}})
    {'paper': {'nodes': [3], 'labels': [4]}}
    """
    typed = [kind for kind, value in arguments.items() if _is_typed(kind, value)]
    plain = [kind for kind in arguments if kind not in typed]
    if not typed:
        return None
    if "graphs" in plain:
        raise DeletionError(ONE_GRAPH)
    if plain:
        raise DeletionError(
            f"{typed[0]}= is given by type and {plain[0]}= is not; give all of them by type, as in {plain[0]}={{…: …}}"
        )
    result: dict[TypeName, Kinds] = {}
    for kind in typed:
        for name, part in _parts(kind, arguments[kind]):
            by_edge_type = kind in ("edges", "relations")
            names = name if by_edge_type and isinstance(name, tuple) else (name,)
            widths = {"edges": (3,), "relations": (1, 3)}.get(kind, (1,))
            if len(names) not in widths or not all(isinstance(each, str) for each in names):
                form = "an edge type is (source type, relation, target type)" if by_edge_type else "a string is needed"
                raise DeletionError(
                    f"{kind}= names the {'edge' if by_edge_type else 'node'} type {short(name)}; {form}"
                )
            if _is_typed(kind, part):
                raise DeletionError(f"{kind}= holds a dict of types within a dict of types; give {{type: ids}}")
            result.setdefault(name, {})[kind] = part
    losing = [name for name, kinds in result.items() if "features" in kinds]
    for name in fill if isinstance(fill, Mapping) else ():
        if name not in losing:
            known = f"those of {some(map(repr, losing), 12)}" if losing else "none"
            raise DeletionError(
                f"fill= replaces features of {short(name)}, and features= names {known}; name the same types"
            )
    for name in losing:
        result[name]["fill"] = fill.get(name, 0.0) if isinstance(fill, Mapping) else fill
    return result


def _parts(kind: str, value: Any) -> list[tuple[Any, Any]]:
    """What each type loses; an edge type that is named by ``relations`` has one relation, number 0."""
    if kind != "relations":
        return list(value.items())
    if isinstance(value, str) or (isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str)):
        value = [value]
    return [(tuple(name) if isinstance(name, (tuple, list)) else (name,), [0]) for name in value]


def _is_typed(kind: str, value: Any) -> bool:
    if kind == "relations":
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        return isinstance(first, (str, tuple, list))
    if not isinstance(value, Mapping) or not value:
        return False
    return kind in ("edges", "nodes", "labels") or (kind == "features" and isinstance(next(iter(value)), (str, tuple)))


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
    for source, relation, target in hetero.edge_types:
        kind = (source, relation, target)
        edges = hetero[kind].get("edge_index")
        if edges is None or edges.dim() != 2 or edges.size(0) != 2 or edges.dtype != torch.long:
            held = ", ".join(hetero[kind].keys()) if edges is None else f"{list(edges.shape)} of {edges.dtype}"
            raise GraphError(
                f"the edge type {kind} has no 'edge_index' that is [2, E] of torch.long (it holds {held or 'nothing'}); set it"
            )
        for row, end in zip(edges, (source, target), strict=True):
            outside = row[(row < 0) | (row >= len(nodes[end]))]
            if outside.numel():
                raise GraphError(
                    f"'edge_index' of {kind} names {end!r} node {int(outside[0])}, and these go from 0 to "
                    f"{len(nodes[end]) - 1}; fix it"
                )
    forward = {kind: (kind[2], kind[1].removeprefix(REVERSE), kind[0]) for kind in hetero.edge_types}
    back = [kind for kind in hetero.edge_types if kind[1].startswith(REVERSE) and forward[kind] in forward]
    # numbers depend on names only, so that deletions do not change them
    edge_types = (*(kind for kind in hetero.edge_types if kind not in back), *back)
    mirror = [-1] * len(edge_types)
    for kind in back:
        if _same(hetero[kind].edge_index, hetero[forward[kind]].edge_index.flip(0)):
            one, other = edge_types.index(kind), edge_types.index(forward[kind])
            mirror[one], mirror[other] = other, one
    for number, kind in enumerate(edge_types):
        pairs = hetero[kind].edge_index
        if mirror[number] < 0 and kind[0] == kind[2] and pairs.size(1) and _same(pairs, pairs.flip(0)):
            mirror[number] = number
    return Types(nodes, edge_types, tuple(mirror))


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two edge lists hold the same edges, each as often, in any order."""
    if a.shape != b.shape:
        return False
    base = int(max(a.max(), b.max())) + 1 if a.numel() else 1
    return torch.equal((a[0] * base + a[1]).sort().values, (b[0] * base + b[1]).sort().values)


def one_type(found: list[Any], what: str, way_out: str, known: Any) -> Any:
    """The only type that fits; otherwise an error that asks for a choice."""
    if len(found) == 1:
        return found[0]
    raise SettingError(f"{len(found)} {what} could be meant; name one with {way_out}: {some(found or known, 12)}")
