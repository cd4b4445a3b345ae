"""`Deletion`: what must be forgotten, checked against the graph, and the graph that remains without it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, some
from gnndelete.graph.batch import as_user_graph, collate
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.hetero import TypeName, split_by_type
from gnndelete.graph.kinds import KINDS, Elements, cut, merge_cells, require_nodes
from gnndelete.graph.parsing import Names, as_ids, require_names
from gnndelete.graph.validation import check_deletion, check_graph, count_nodes, edge_table

if TYPE_CHECKING:
    from gnndelete.datasets.ids import IdMap
    from gnndelete.datasets.tables import NamedGraph

Edges = Tensor | Iterable[Any]
Ids = Tensor | Iterable[int] | int
Features = Tensor | Iterable[Any] | Mapping[int, Ids] | int
Fill = float | Sequence[float] | Tensor


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Deletion(Elements):
    """An immutable set of elements to forget: any mix of edges, nodes, features, labels, relation types and graphs.

    Order and repeats do not matter; ``a | b`` is the union. On a ``HeteroData``, every argument is a dict by type:
    ``edges={("author", "writes", "paper"): pairs}, nodes={"paper": ids}``.

    Args:
        edges: Pairs ``(source, target)``, on typed graphs triples ``(head, relation, tail)``: a list, a ``[2, k]``
            (``[3, k]``) tensor, or a DataFrame with one row per edge.
        nodes: Ids of nodes. They lose their edges, features and labels.
        features: Node ids (all columns), pairs ``(node, column)``, a ``[2, k]`` tensor of these, or ``{node: [columns]}``.
        labels: Ids of nodes whose labels are forgotten.
        relations: Numbers of relation types, all of whose edges are forgotten. On a ``HeteroData`` a list of edge types, or
            of their relations where these are unique.
        graphs: Ids of whole graphs, where the data is a set of graphs.
        fill: What replaces deleted features: one number, or one per column of ``x``.
        replace: What is right instead: the classes of ``labels``, one for all or one for each in the order given, or the numbers
            of ``features``, in the order of its pairs. The old value is forgotten and the new one learned.
        ids: The names of the nodes (an `IdMap`), where nodes are given by name, such as ``"user:4711"``; those of several
            node types by type: ``nodes={"user": ["u-1453"]}``.

    Raises:
        DeletionError: If an argument is not what it should be. Whether the graph has these elements is checked by `check`.

    >>> a = Deletion(edges=[(7, 9), (0, 5), (0, 5)])
    >>> a
    Deletion(edges=2)
    >>> (a | Deletion(nodes=[3])).counts
    {'edges': 2, 'nodes': 1}
    >>> a == Deletion(edges=torch.tensor([[0, 7], [5, 9]]))
    True
    >>> Deletion(features={3: [0, 2], 8: [1]}, labels=[3])
    Deletion(features=2, labels=1)
    >>> from gnndelete.datasets import IdMap
    >>> Deletion(labels=[8, 3], replace=[0, 1]).new_labels.tolist()
    [[3, 8], [1, 0]]
    >>> Deletion(nodes=["user:4711"], ids=IdMap(["item:7", "user:4711"])) == Deletion(nodes=[1])
    True
    """

    def __init__(
        self,
        edges: Edges | Mapping[TypeName, Edges] | None = None,
        nodes: Ids | Mapping[TypeName, Ids] | None = None,
        features: Features | Mapping[TypeName, Features] | None = None,
        labels: Ids | Mapping[TypeName, Ids] | None = None,
        relations: Ids | Sequence[TypeName] | TypeName | None = None,
        graphs: Ids | None = None,
        fill: Fill | Mapping[TypeName, Fill] = 0.0,
        replace: Any = None,
        ids: IdMap | None = None,
    ) -> None:
        require_names(ids)
        if replace is not None:
            _check_replaced(labels, features, fill)
        values = dict(zip(KINDS, (edges, nodes, features, labels, relations, graphs), strict=True))
        values = {name: value for name, value in values.items() if value is not None}
        if features is None and not (isinstance(fill, (int, float)) and fill == 0):
            raise DeletionError("fill= replaces features, and features= names none; name some, or leave fill= out")
        types = split_by_type(values, fill) if values and (ids is None or ids.types) else None
        new = {} if replace is None else {"labels" if labels is not None else "features": replace}
        names = Names(None if ids is None else ids.names)
        if types is not None:
            new_of = (
                {name: {kind: each[name] for kind, each in new.items() if name in each} for name in types}
                if new
                else {}
            )
            parts = {name: _part(kinds, _of_type(ids, name), new_of.get(name, {})) for name, kinds in types.items()}
            if ids is not None and ids.types and ids.joined:  # of one Data, where ids count across all types
                joined = reduce(or_, parts.values())
                super().__init__(
                    **{each.name: getattr(joined, each.name) for each in fields(Elements)} | {"names": names}
                )
            else:
                super().__init__(by_type=parts, names=names)
            return
        if ids is not None and ids.types and not ids.joined and values:
            kind = next(iter(values))
            raise DeletionError(
                f"{kind}= is given without types, and every type of a HeteroData counts its own ids; give {kind}={{type: …}} "
                f"with types among {some(map(repr, ids.types), 12)}"
            )
        parsed: dict[str, Any] = {}
        for name, value in values.items():
            parsed |= KINDS[name].parse(value, fill, ids, new.get(name))
        super().__init__(**parsed, names=names)

    @classmethod
    def from_csv(
        cls,
        source: Any,
        ids: IdMap | None = None,
        relations: Sequence[str] | None = None,
        *,
        graph: NamedGraph | None = None,
        kind: Literal["nodes", "features", "labels"] | None = None,
        fill: Fill = 0.0,
    ) -> Deletion:
        """Read a deletion from a CSV file, a JSON, Parquet or Arrow file, an open file or a data frame.

        Columns ``source,target`` (or ``source,relation,target``) name edges, a column ``node`` names nodes, and columns
        ``node,column`` name features. With ``graph=`` the columns may also be called as in the tables of the graph, such as
        ``user_id,item_id``; others are ignored. Without a header, two columns are edges, three are triples and one is nodes.

        Args:
            source: The path of a file, an open file, or a data frame.
            ids: The names of the nodes. Without it and without ``graph``, cells are numbers.
            relations: The names of the relation types.
            graph: The graph as it was read from tables: its ids, and the names of its relations and columns.
            kind: What a request of nodes names: the nodes themselves, their ``"features"`` or their ``"labels"``.
            fill: What replaces deleted features.

        Raises:
            DeletionError: If the request cannot be read. Every bad row is named.
        """
        from gnndelete.datasets.requests import Names as Known
        from gnndelete.datasets.requests import read_request

        require_names(ids)
        known = Known(ids, relations or ()) if graph is None else Known.of(graph)
        found, rows = read_request(source, known, kind)

        def listed(part: Any) -> Any:
            whole = found == "edges" or (found == "features" and len(part[0]) == 2)
            return part if whole else [row[0] for row in part]

        elements: dict[str, Any] = {found: listed(rows)}
        if isinstance(rows, dict):
            elements = {found: {name: listed(part) for name, part in rows.items()}}
        first = rows if isinstance(rows, list) else next(iter(rows.values()))
        if found == "labels" and len(first[0]) == 2:
            new = {name: [row[1] for row in part] for name, part in rows.items()} if isinstance(rows, dict) else None
            elements["replace"] = new or [row[1] for row in first]
        return cls(**elements, fill=fill).with_names(known.ids, known.relations)

    @classmethod
    def of_subgraph(cls, data: Data, nodes: Ids) -> Deletion:
        """Name all edges among some nodes; the nodes and their other edges stay.

        To forget the nodes too, use ``Deletion(nodes=nodes)``.

        Args:
            data: The graph.
            nodes: Ids of the nodes.

        Raises:
            DeletionError: If no edge joins two of the nodes.

        >>> triangle = Data(edge_index=torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]]), num_nodes=4)
        >>> Deletion.of_subgraph(triangle, [0, 1, 2])
        Deletion(edges=3)
        """
        check_graph(data)
        chosen = as_ids(nodes, "nodes")
        require_nodes("nodes", chosen, count_nodes(data))
        inside = torch.zeros(count_nodes(data), dtype=torch.bool, device=data.edge_index.device)
        inside[chosen.to(inside.device)] = True
        mask = inside[data.edge_index].all(dim=0)
        if not bool(mask.any()):
            raise DeletionError(
                f"no edge joins two of the {chosen.numel()} nodes; give others, or nodes= to delete them"
            )
        edges = data.edge_index[:, mask]
        if "edge_type" in data:
            edges = torch.stack([edges[0], data.edge_type[mask], edges[1]])
        elif edge_table(data).undirected:
            edges = edges.sort(dim=0).values
        return cls(edges=edges)

    def with_names(self, ids: IdMap | None, relations: Sequence[str] | None = None) -> Deletion:
        """Return the same deletion, whose errors use the user's names.

        Args:
            ids: The names of the nodes; without them nothing changes.
            relations: The names of the relation types.
        """
        return self if ids is None else self.replace(names=Names(ids.names, relations or None))

    @property
    def feature_nodes(self) -> Tensor:
        """The nodes that lose features, each once."""
        return torch.unique(self.features[0])

    @property
    def named_nodes(self) -> Tensor:
        """Every node that the request names by itself, its features, its label or an edge, each once: ring 0."""
        return torch.unique(torch.cat([ends_of(self.edges).flatten(), self.nodes, self.features[0], self.labels]))

    def to_lists(self) -> dict[str, Any]:
        """Return the deletion as plain lists, for a file. The file is sensitive: it names everything."""
        if self.by_type:
            return {"by_type": [[name, part.to_lists()] for name, part in self.by_type.items()]}
        found = {name: getattr(self, name).tolist() for name in self.counts}
        if "features" in found:
            found["fill"] = self.fill.tolist()
        if self.new_labels.size(1):
            found["new_labels"] = self.new_labels.tolist()
        return found | ({"across_types": True} if self.across_types else {})

    @classmethod
    def from_lists(cls, lists: Mapping[str, Any]) -> Deletion:
        """Read what `to_lists` gave.

        Args:
            lists: The plain lists.

        Raises:
            DeletionError: If the lists are malformed.

        >>> a = Deletion(features=[(3, 1), (8, 0)], fill=0.5, edges=[(0, 1)])
        >>> Deletion.from_lists(a.to_lists()) == a
        True
        """
        if "by_type" in lists:
            parts = [(tuple(name) if isinstance(name, list) else name, part) for name, part in lists["by_type"]]
            return cls().replace(by_type={name: cls.from_lists(part) for name, part in parts})
        kinds = {name: lists[name] for name in KINDS if name in lists and name != "features"}
        if "edges" in kinds:
            kinds["edges"] = torch.tensor(kinds["edges"])
        cells = torch.tensor(lists.get("features", [[], []]), dtype=torch.long)
        values = torch.tensor(lists.get("fill", []), dtype=torch.float64)
        if cells.shape != (2, values.numel()):
            raise DeletionError(f"features= as lists are nodes, columns and as many values (got {list(cells.shape)})")
        new = torch.tensor(lists.get("new_labels", [[], []]), dtype=torch.long)
        return cls(**kinds).replace(
            **merge_cells(cells, values), new_labels=new, across_types=bool(lists.get("across_types"))
        )

    @property
    def fingerprint(self) -> str:
        """A digest of the elements, the same in any order and on any machine."""
        digest = hashlib.sha256()
        for name in KINDS:
            value = getattr(self, name)
            if value.size(-1):
                digest.update(f"{name}{tuple(value.shape)}".encode())
                digest.update(value.contiguous().numpy().astype("<i8").tobytes())
        digest.update(self.fill.contiguous().numpy().astype("<f8").tobytes())
        if self.new_labels.size(1):
            digest.update(b"new_labels" + self.new_labels.contiguous().numpy().astype("<i8").tobytes())
        for type_name, part in sorted(self.by_type.items(), key=repr):
            digest.update(f"{type_name!r}{part.fingerprint}".encode() if len(part) else b"")
        return digest.hexdigest()

    def __or__(self, other: Deletion) -> Deletion:
        if not isinstance(other, Deletion):
            return NotImplemented
        if (self.by_type and other.across_types) or (other.by_type and self.across_types):
            raise DeletionError("a request by type cannot be joined with a checked one; check both, or neither")
        types: dict[TypeName, Deletion] = dict(self.by_type)
        for name, part in other.by_type.items():
            types[name] = types[name] | part if name in types else part
        changes: dict[str, Any] = {}
        for kind in dict.fromkeys([*self.kinds, *other.kinds]):
            changes |= kind.join(self, other)
        names = self.names if self.names.nodes is not None else other.names
        return self.replace(**changes, names=names, by_type=types, across_types=self.across_types or other.across_types)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deletion) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Deletion({', '.join(f'{name}={count}' for name, count in self.counts.items())})"

    def check(self, data: Data, table: EdgeTable | None = None) -> Deletion:
        """Return the same deletion in the graph's terms.

        On an undirected graph an edge is named once, smaller id first. Features and labels of deleted nodes are left out.

        Args:
            data: The graph.
            table: The sorted edges of ``data``, where they are known already; ``data`` is then taken as checked.

        Raises:
            DeletionError: If the deletion names nothing, everything, or something that the graph does not have.
            GraphError: If the graph is malformed.
        """
        data = collate(data)
        if table is None:
            check_graph(data)
            table = edge_table(data)
        return check_deletion(self, data, table)

    def remaining(self, data: Data, table: EdgeTable | None = None) -> Data:
        """Return the graph without the deletion; ``data`` is not touched and ids never shift.

        Undirected edges go in both directions, with parallel copies, attributes and their entries in ``edge_label_index``. A
        deleted node loses its edges, its features (zero), its label (-1, or NaN) and its entry in every mask. Deleted
        features become their ``fill``; deleted labels become -1 (or NaN) and leave the training, validation and test masks.

        Args:
            data: The graph.
            table: The sorted edges of ``data``, where they are known already.

        Raises:
            DeletionError: If the deletion does not fit the graph, as in `check`.

        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> Deletion(edges=[(1, 0)]).remaining(data).edge_index.tolist()
        [[1, 2], [2, 1]]
        """
        graph = collate(data)
        if table is None:
            check_graph(graph)
            table = edge_table(graph)
        return as_user_graph(cut(self.check(graph, table), graph, table))

    def already_deleted(self, earlier: Deletion) -> list[object]:
        """Return what an earlier request has deleted, as messages show it.

        Args:
            earlier: All earlier requests together, checked on the same graph as this one.
        """
        again = self._select(earlier, deleted=True)
        return list(dict.fromkeys(element for kind in again.kinds for element in kind.describe(again)))

    def not_deleted(self, earlier: Deletion) -> Deletion:
        """Return what is left of this request after an earlier one.

        Args:
            earlier: All earlier requests together, checked on the same graph as this one.
        """
        return self._select(earlier, deleted=False)

    def _select(self, earlier: Deletion, deleted: bool) -> Deletion:
        changes: dict[str, Any] = {}
        for kind in self.kinds:
            mask = kind.deleted(self, earlier)
            changes |= kind.select(self, mask if deleted else ~mask)
        return self.replace(**changes)

    def require_new(self, earlier: Deletion) -> Deletion:
        """Return this request, after making sure that nothing in it was deleted before.

        Args:
            earlier: All earlier requests together, checked on the same graph as this one.

        Raises:
            DeletionError: If something was deleted before.
        """
        again = self.already_deleted(earlier)
        if again:
            raise DeletionError(
                f"already deleted by an earlier request: {some(again)}",
                "leave them out, earlier requests stay in force",
            )
        return self


def _of_type(ids: Any, name: TypeName) -> Any:
    """The names of the nodes of a type; of an edge type those of its two ends."""
    if ids is None or not ids.types or (isinstance(name, tuple) and len(name) != 3):
        return None
    return (ids.of(name[0]), ids.of(name[2])) if isinstance(name, tuple) else ids.of(name)


def _check_replaced(labels: Any, features: Any, fill: Any) -> None:
    """Refuse ``replace=`` where it is not clear what it replaces."""
    if (labels is None) == (features is None):
        what = "neither labels= nor features= is given" if labels is None else "both labels= and features= are given"
        raise DeletionError(
            f"replace= says what is right instead, and {what}; give one of them, and join two deletions by |"
        )
    if features is not None and not (isinstance(fill, (int, float)) and fill == 0):
        raise DeletionError(
            "replace= and fill= are both given; replace= has a number for each pair of features=, leave out fill="
        )


def _part(kinds: dict[str, Any], ids: Any, new: Mapping[str, Any]) -> Deletion:
    """What one type loses."""
    fill = kinds.get("fill", 0.0)
    parsed: dict[str, Any] = {}
    for name in KINDS:
        if name in kinds:
            parsed |= KINDS[name].parse(kinds[name], fill, ids, new.get(name))
    return Deletion().replace(**parsed)


#: The deletion that names nothing.
NOTHING = Deletion()
