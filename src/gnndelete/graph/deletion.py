"""`Deletion`: what must be forgotten, checked against the graph, and the graph that remains without it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, some
from gnndelete.graph.batch import GraphBatch, check_graphs, taken_along
from gnndelete.graph.by_type import TypeName, place, refuse_plain, refuse_types, split_by_type
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.existing import already_deleted, check_edges, edges_among, in_range, triples_of
from gnndelete.graph.features import as_features, check_features, check_labels, merged
from gnndelete.graph.hetero import HeteroGraph, seen, side_by_side
from gnndelete.graph.parsing import as_edges, as_ids, join_edges, join_ids, once, read_csv
from gnndelete.graph.remaining import cut, refuse_everything
from gnndelete.graph.validation import check_graph, edge_table

if TYPE_CHECKING:
    from gnndelete.datasets.ids import IdMap

Edges = Tensor | Iterable[Any]
Ids = Tensor | Iterable[int] | int
Features = Tensor | Iterable[Any] | Mapping[int, Ids] | int
Fill = float | Sequence[float] | Tensor
Kind = Literal["nodes", "features", "labels"]

_ID_KINDS = ("nodes", "labels", "relations", "graphs")  # kinds that are named by one id each


@dataclass(frozen=True, eq=False, repr=False)
class Deletion:
    """An immutable set of elements to forget: any mix of edges, nodes, features, labels, relation types and graphs.

    A list of edges holds pairs (triples ``(head, relation, tail)`` on typed graphs), a tensor is ``[2, k]`` (``[3, k]``).
    ``features`` are node ids (all their columns), pairs (node, column), a ``[2, k]`` tensor of these, or ``{node:
    [columns]}``; ``fill`` replaces them, one number or one per column. Order and repeats do not matter. On a
    ``HeteroData`` every kind is a dict by type, ``edges={("author", "writes", "paper"): pairs}, nodes={"paper": ids}``, and
    ``relations`` a list of edge types, or of their relations where these are enough to tell.

    >>> a = Deletion(edges=[(7, 9), (0, 5), (0, 5)])
    >>> a
    Deletion(edges=2)
    >>> (a | Deletion(nodes=[3])).counts
    {'edges': 2, 'nodes': 1}
    >>> a == Deletion(edges=torch.tensor([[0, 7], [5, 9]]))
    True
    >>> Deletion(features={3: [0, 2], 8: [1]}, labels=[3])
    Deletion(features=2, labels=1)
    """

    edges: Tensor
    nodes: Tensor
    features: Tensor  # [2, k] of (node, column); column -1: all of them
    labels: Tensor
    relations: Tensor
    graphs: Tensor
    fill: ClassVar[Tensor]  # [k], a value for every entry of `features`; no kind of its own, so no field
    _ids: ClassVar[IdMap | None] = None  # the names of a request in the user's own ids, for errors
    _inside: ClassVar[Tensor | None] = None  # those of the nodes that are not named but go with a deleted graph
    by_type: ClassVar[Mapping[TypeName, Deletion]] = {}  # what each type of a HeteroData loses, in its own ids
    _placed: ClassVar[bool] = False  # whether ids already go across all types of a HeteroData

    def __init__(
        self,
        edges: Edges | Mapping[TypeName, Edges] | None = None,
        nodes: Ids | Mapping[TypeName, Ids] | None = None,
        features: Features | Mapping[TypeName, Features] | None = None,
        labels: Ids | Mapping[TypeName, Ids] | None = None,
        relations: Ids | Sequence[TypeName] | TypeName | None = None,
        graphs: Ids | None = None,
        fill: Fill | Mapping[TypeName, Fill] = 0.0,
    ) -> None:
        given = {"edges": edges, "nodes": nodes, "features": features, "labels": labels, "relations": relations}
        types = split_by_type({**given, "graphs": graphs, "fill": fill})
        if types is not None:
            object.__setattr__(self, "by_type", {name: Deletion(**kinds) for name, kinds in types.items()})
            edges = nodes = features = labels = relations = None
            fill = 0.0 if isinstance(fill, Mapping) or any("features" in kinds for kinds in types.values()) else fill
        object.__setattr__(self, "edges", as_edges(edges))
        ids = {"nodes": nodes, "labels": labels, "relations": relations, "graphs": graphs}
        for name, value in ids.items():
            object.__setattr__(self, name, as_ids(name, value))
        self._filled(*as_features(features, fill))

    @classmethod
    def from_csv(
        cls,
        path: str | PathLike[str],
        ids: IdMap | None = None,
        relations: Sequence[str] | None = None,
        *,
        kind: Kind | None = None,
        fill: Fill = 0.0,
        columns: Sequence[str] | None = None,
    ) -> Deletion:
        """Read a request: columns ``source,target`` (``source,relation,target``) name edges, a column ``node`` names nodes.

        Columns ``node,column`` name features. With ``kind`` a file of nodes names their ``"features"`` or ``"labels"``.
        Without a header, two columns are edges, three are triples, one is nodes. Cells are numbers, or with the ``ids``
        (and ``relations``) of a `NamedGraph` what these are called there; ``columns`` are its ``features``.
        """
        found, rows = read_csv(path, ids, relations, kind, columns)
        ids = None if ids is None else ids.calling(relations)
        whole = found == "edges" or (found == "features" and len(rows[0]) == 2)
        named: dict[str, Any] = {found: rows if whole else [row[0] for row in rows]}
        return cls(**named, fill=fill)._named(ids)

    @classmethod
    def of_subgraph(cls, data: Data, nodes: Ids) -> Deletion:
        """All edges among ``nodes``: who is in the group, and its members' other edges, stay.

        To forget the members too, with whatever touches them, is ``Deletion(nodes=nodes)``.

        >>> triangle = Data(edge_index=torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]]), num_nodes=4)
        >>> Deletion.of_subgraph(triangle, [0, 1, 2])
        Deletion(edges=3)
        """
        check_graph(data)
        edges = edges_among(in_range("nodes", as_ids("nodes", nodes), data), data)
        return cls(edges=edges)

    @classmethod
    def _sorted(cls, **kinds: Tensor) -> Deletion:
        """A deletion of tensors that are sorted and distinct already: sorting again costs more than anything else here."""
        result = cls.__new__(cls)
        for name, value in kinds.items():
            object.__setattr__(result, name, value)
        return result

    def _named(self, ids: IdMap | None) -> Deletion:
        object.__setattr__(self, "_ids", ids)
        return self

    def _joining(self, *inside: Tensor | None) -> Deletion:
        known = [part for part in inside if part is not None]
        object.__setattr__(self, "_inside", torch.unique(torch.cat(known)) if known else None)
        return self

    def _with_graphs(self, data: Data) -> Deletion:
        """A deleted graph takes all its nodes along, and a graph that loses its last node is deleted."""
        check_graphs(self.graphs, data)
        if not isinstance(data, GraphBatch):
            return self
        graphs, inside = taken_along(self.nodes, self.graphs, data)
        result = copy.copy(self)
        object.__setattr__(result, "graphs", graphs)
        object.__setattr__(result, "nodes", torch.unique(torch.cat([self.nodes, inside])))
        return result._joining(inside)

    def _filled(self, entries: Tensor, values: Tensor) -> Deletion:
        object.__setattr__(self, "features", entries)
        object.__setattr__(self, "fill", values)
        return self

    @property
    def counts(self) -> dict[str, int]:
        """How many elements of each kind are named, kinds without any left out; of features, how many nodes lose some."""
        sizes = {field.name: getattr(self, field.name).size(-1) for field in fields(self)}
        sizes["nodes"] -= 0 if self._inside is None else self._inside.numel()
        sizes["features"] = self.feature_nodes.numel()
        for part in self.by_type.values():
            sizes = {name: size + part.counts.get(name, 0) for name, size in sizes.items()}
        return {name: size for name, size in sizes.items() if size}

    @property
    def feature_nodes(self) -> Tensor:
        """The nodes that lose features, each once."""
        return once(self.features[0])

    @property
    def named_nodes(self) -> Tensor:
        """Every node the request names, by itself, its features, its label or an edge, each once: ring 0."""
        return torch.unique(torch.cat([ends_of(self.edges).flatten(), self.nodes, self.features[0], self.labels]))

    def to_lists(self) -> dict[str, Any]:
        """The request as plain lists, for a file; sensitive, since it names everything."""
        if self.by_type:
            return {"by_type": [[name, part.to_lists()] for name, part in self.by_type.items()]}
        found = {name: getattr(self, name).tolist() for name in self.counts}
        found |= {"placed": True} if self._placed else {}
        return found | ({"fill": self.fill.tolist()} if "features" in found else {})

    @classmethod
    def from_lists(cls, lists: Mapping[str, Any]) -> Deletion:
        """What `to_lists` gave.

        >>> a = Deletion(features=[(3, 1), (8, 0)], fill=0.5, edges=[(0, 1)])
        >>> Deletion.from_lists(a.to_lists()) == a
        True
        """
        if "by_type" in lists:
            parts = [(tuple(name) if isinstance(name, list) else name, part) for name, part in lists["by_type"]]
            return cls()._typed({name: cls.from_lists(part) for name, part in parts})
        plain = {name: value for name, value in lists.items() if name not in ("features", "fill", "placed")}
        if "edges" in plain:
            plain["edges"] = torch.tensor(plain["edges"], dtype=torch.long)
        entries = torch.tensor(lists.get("features", [[], []]), dtype=torch.long)
        values = torch.tensor(lists.get("fill", []), dtype=torch.float64)
        if entries.dim() != 2 or entries.size(0) != 2 or values.numel() != entries.size(1):
            raise DeletionError(f"features= as lists are nodes, columns and as many values (got {list(entries.shape)})")
        return cls(**plain)._filled(*merged(entries, values))._across(bool(lists.get("placed")))

    @property
    def fingerprint(self) -> str:
        """A stable name of this set of elements, the same in any order and on any machine."""
        digest = hashlib.sha256()
        for field in fields(self):
            value = getattr(self, field.name)
            if value.size(-1):
                digest.update(f"{field.name}{tuple(value.shape)}".encode())
                digest.update(value.contiguous().numpy().astype("<i8").tobytes())
        digest.update(self.fill.contiguous().numpy().astype("<f8").tobytes())
        for name, part in sorted(self.by_type.items(), key=repr):
            digest.update(f"{name!r}{part.fingerprint}".encode() if len(part) else b"")
        return digest.hexdigest()

    def __or__(self, other: Deletion) -> Deletion:
        if not isinstance(other, Deletion):
            return NotImplemented
        if (self.by_type and other._placed) or (other.by_type and self._placed):
            raise DeletionError("a request by type cannot be joined with one that was checked; check both, or neither")
        features = merged(torch.cat([self.features, other.features], dim=1), torch.cat([self.fill, other.fill]))
        types = dict(self.by_type)
        for name, part in other.by_type.items():
            types[name] = types[name] | part if name in types else part
        return (
            Deletion._sorted(
                edges=join_edges(self.edges, other.edges),
                **{name: join_ids(getattr(self, name), getattr(other, name)) for name in _ID_KINDS},
            )
            ._filled(*features)
            ._named(self._ids if self._ids is not None else other._ids)
            ._joining(self._inside, other._inside)
            ._typed(types)
            ._across(self._placed or other._placed)
        )

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deletion) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Deletion({', '.join(f'{name}={count}' for name, count in self.counts.items())})"

    def check(self, data: Data, table: EdgeTable | None = None) -> Deletion:
        """The same request in the graph's own terms, or one sentence that says what does not fit.

        On an undirected graph an edge is named once, smaller id first, whichever direction was given. Features and labels
        of deleted nodes go with these.
        """
        if not len(self):
            raise DeletionError(
                "the deletion names nothing; give at least one of edges=, nodes=, features=, labels=, relations=, graphs="
            )
        data = side_by_side(data)
        if table is None:
            check_graph(data)
            table = edge_table(data)
        asked = self._in_place(data)
        names = None if asked._ids is None else asked._ids.names
        in_range("features", asked.features[0], data)
        checked = (
            Deletion._sorted(
                edges=join_edges(
                    check_edges(asked.edges, data, table, asked._ids), triples_of(asked.relations, data, table)
                ),
                **{name: in_range(name, getattr(asked, name), data) for name in _ID_KINDS if name != "relations"},
                relations=once(table.forward_types(asked.relations)),
            )
            ._filled(*check_features(asked.features, asked.fill, data, names))
            ._named(asked._ids)
            ._with_graphs(data)
            ._across(asked._placed)
        )
        check_labels(checked.labels, data, names)
        checked = checked._without_deleted_nodes() if checked.nodes.numel() else checked
        refuse_everything(checked, data, table)
        return checked

    def _in_place(self, data: Data) -> Deletion:
        """On a HeteroData: the request in ids across all types; on any other graph the request as it is."""
        if not isinstance(data, HeteroGraph):
            if self.by_type:
                refuse_types(self.by_type)
            return self
        if not self.by_type and not self._placed:
            refuse_plain(data, self.counts)
        if not self.by_type:
            return self
        kinds, *features = place(self.by_type, data)
        names: Any = data.names
        return Deletion(**kinds)._filled(*merged(*features))._named(names)._across(True)

    def _typed(self, by_type: Mapping[TypeName, Deletion]) -> Deletion:
        object.__setattr__(self, "by_type", by_type)
        return self

    def _across(self, placed: bool) -> Deletion:
        object.__setattr__(self, "_placed", placed)
        return self

    def _without_deleted_nodes(self) -> Deletion:
        """Features and labels of nodes that are themselves deleted go with them, and are not named twice."""
        alive = ~torch.isin(self.features[0], self.nodes)
        object.__setattr__(self, "labels", self.labels[~torch.isin(self.labels, self.nodes)])
        return self._filled(self.features[:, alive], self.fill[alive])

    def remaining(self, data: Data, table: EdgeTable | None = None) -> Data:
        """The graph without the deletion, as a new object; ``data`` is not touched and ids never shift.

        Undirected edges go in both directions with all parallel copies, their attributes and their places among the
        training labels; a deleted node loses its edges, its features (zero), its label (-1, or NaN) and its place in every mask.
        Deleted features become their ``fill``, deleted labels -1 (or NaN), without a place in the three masks.

        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> Deletion(edges=[(1, 0)]).remaining(data).edge_index.tolist()
        [[1, 2], [2, 1]]
        """
        graph = side_by_side(data)
        if table is None:
            check_graph(graph)
            table = edge_table(graph)
        left = cut(self.check(graph, table), graph, table)
        return left if graph is data else seen(left)

    def without(self, earlier: Deletion) -> Deletion:
        """This request, after making sure that nothing in it was deleted by ``earlier``, the history so far."""
        again = already_deleted(self, earlier, self._ids, self._inside)
        if again:
            raise DeletionError(
                f"already deleted by an earlier request: {some(again)}; leave them out, earlier requests stay in force"
            )
        return self
