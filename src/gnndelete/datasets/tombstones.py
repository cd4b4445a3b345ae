"""Tombstones: keyed hashes of what was deleted, by which training, adoption and import find it again and leave it out."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from gnndelete.datasets.ids import without_names
from gnndelete.datasets.tables import NamedGraph
from gnndelete.errors import GraphError
from gnndelete.graph.batch import as_user_graph, collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import edge_table
from gnndelete.io.files import write

_FORMAT = "gnndelete-tombstones-1"


def keyed(key: bytes, *parts: str) -> str:
    """A keyed hash of some texts: without the key nobody can try out what they were.

    >>> keyed(b"k", "a", "bc") == keyed(b"k", "ab", "c")
    False
    """
    return hmac.digest(key, json.dumps(parts, ensure_ascii=False).encode(errors="surrogatepass"), hashlib.sha256).hex()


def tombstone(key: bytes, tenant: str, kind: str, *parts: str) -> str:
    """The tombstone of one element: its kind, and a keyed hash of its names."""
    return f"{kind}:{keyed(key, tenant, kind, *parts)}"


class Names:
    """What the elements of a graph are called: by the names of its user, the same in every graph that holds them.

    Args:
        graph: The graph.
        data: The graph as the library holds it.
        table: Its edges.
    """

    def __init__(self, graph: NamedGraph, data: Any, table: EdgeTable) -> None:
        self.graph, self.data, self.table = graph, data, table

    def node(self, row: int) -> str:
        """The name of a node; with its type where names belong to types."""
        ids = self.graph.ids
        if ids is None:
            return str(row)
        kind = next((kind for kind, rows in ids.types.items() if row in rows), None)
        return ids.names[row] if kind is None else f"{kind}:{ids.names[row]}"

    def relation(self, number: int) -> str:
        """The name of a relation or an edge type."""
        if isinstance(self.data, HeteroGraph):
            return "/".join(self.data.types.edges[number])
        return self.graph.relations[number] if number < len(self.graph.relations) else str(number)

    def column(self, number: int) -> str:
        """The name of a feature."""
        names = self.graph.features
        return names[number] if isinstance(names, tuple) and number < len(names) else str(number)

    def edges(self, edges: torch.Tensor) -> Iterator[tuple[str, ...]]:
        """Edges: ``edge`` where direction does not matter, else ``arc``."""
        for ends in edges.t().tolist():
            first, *kinds, last = ends
            names, relations = [self.node(first), self.node(last)], map(self.relation, kinds)
            yield ("edge", *sorted(names), *relations) if self.table.undirected else ("arc", *names, *relations)

    def texts(self, deletion: Deletion) -> Iterator[tuple[str, ...]]:
        """Every element of a checked deletion: its kind and its names."""
        yield from (("node", self.node(row)) for row in deletion.nodes.tolist())
        yield from (("label", self.node(row)) for row in deletion.labels.tolist())
        yield from (("feature", self.node(row), self.column(column)) for row, column in deletion.features.t().tolist())
        yield from (("relation", self.relation(number)) for number in deletion.relations.tolist())
        yield from (("graph", str(number)) for number in deletion.graphs.tolist())
        yield from self.edges(deletion.edges)


@dataclass(frozen=True)
class Tombstones:
    """What was deleted, as keyed hashes. They are **sensitive**: whoever holds the key can try out names.

    Args:
        key: The key of the hashes.
        tenant: Whose elements they are.
        hashes: The hashes, each after the kind of its element.

    >>> from torch_geometric.data import Data
    >>> from gnndelete.datasets import IdMap, NamedGraph
    >>> stones = Tombstones(b"key", "shop", frozenset({tombstone(b"key", "shop", "node", "ann")}))
    >>> people = NamedGraph(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3), IdMap(["ann", "bob", "cy"]))
    >>> left, deleted = stones.strip(people)
    >>> left.data.edge_index.tolist(), left.ids.names, deleted.counts
    ([[1], [2]], ('deleted:0', 'bob', 'cy'), {'nodes': 1})
    """

    key: bytes
    tenant: str
    hashes: frozenset[str]

    def find(self, graph: NamedGraph) -> Deletion:
        """What a graph holds that was deleted."""
        data = collate(graph.data)
        table = edge_table(data)
        names, kinds = Names(graph, data, table), {each.partition(":")[0] for each in self.hashes}
        nodes = range(table.num_nodes)
        found: dict[str, Any] = {}
        if "node" in kinds:
            found["nodes"] = self._among(nodes, lambda row: [("node", names.node(row))])
        if "label" in kinds and data.get("y") is not None:
            found["labels"] = self._among(nodes, lambda row: [("label", names.node(row))])
        if "feature" in kinds and isinstance(x := data.get("x"), torch.Tensor) and x.dim() == 2:
            cells = ((row, column) for row in nodes for column in range(x.size(1)))
            found["features"] = self._among(
                cells, lambda cell: [("feature", names.node(cell[0]), names.column(cell[1]))]
            )
        if "relation" in kinds and (graph.relations or isinstance(data, HeteroGraph)):
            count = len(data.types.edges) if isinstance(data, HeteroGraph) else len(graph.relations)
            found["relations"] = self._among(range(count), lambda number: [("relation", names.relation(number))])
        if kinds & {"edge", "arc"}:
            columns = table.edges(table.keys).t().tolist()
            found["edges"] = self._among(map(tuple, columns), lambda ends: _forms(names, ends))
        named = {kind: elements for kind, elements in found.items() if elements}
        if not named:
            return Deletion()
        return Deletion(**named).replace(across_types=isinstance(data, HeteroGraph)).check(data, table)

    def strip(self, graph: NamedGraph) -> tuple[NamedGraph, Deletion]:
        """A graph without what was deleted, and what that was. Rows stay where they are; deleted nodes lose their names."""
        deletion = self.find(graph)
        if not len(deletion):
            return graph, deletion
        kept = deletion.remaining(as_user_graph(collate(graph.data)))
        data = collate(kept) if isinstance(graph.data, HeteroGraph) else kept
        ids = None if graph.ids is None else without_names(graph.ids, deletion.nodes)
        return replace(graph, data=data, ids=ids), deletion

    def _among(self, elements: Iterable[Any], forms: Callable[[Any], list[tuple[str, ...]]]) -> list[Any]:
        return [
            each
            for each in elements
            if any(tombstone(self.key, self.tenant, *form) in self.hashes for form in forms(each))
        ]

    def save(self, path: str | PathLike[str]) -> None:
        """Write them to a file that only its owner reads."""
        values = {"format": _FORMAT, "tenant": self.tenant, "key": self.key.hex(), "hashes": sorted(self.hashes)}
        write(Path(path), json.dumps(values, indent=0).encode(), private=True)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Tombstones:
        """Read what `save` wrote.

        Raises:
            GraphError: If the file cannot be read or is damaged.
        """
        try:
            values = json.loads(Path(path).read_bytes())
            if values["format"] != _FORMAT:
                raise ValueError("it has another format")
            return cls(bytes.fromhex(values["key"]), str(values["tenant"]), frozenset(map(str, values["hashes"])))
        except FileNotFoundError:
            raise GraphError(
                f"there is no file '{path}'; write the tombstones of a service with gnndelete service tombstones"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GraphError(f"'{path}' holds no tombstones ({error}); write them again") from None


def _forms(names: Names, ends: tuple[int, ...]) -> list[tuple[str, ...]]:
    """What an edge may have been called where it was deleted: in a directed graph, or in one where direction does not matter."""
    first, *kinds, last = ends
    pair, relations = [names.node(first), names.node(last)], [*map(names.relation, kinds)]
    forms: list[tuple[str, ...]] = [("edge", *sorted(pair), *relations), ("arc", *pair, *relations)]
    return [*forms, ("arc", *reversed(pair), *relations)] if names.table.undirected else forms
