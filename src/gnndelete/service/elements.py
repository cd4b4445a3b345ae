"""What a request names: from JSON to a checked deletion, and to the keyed hashes by which elements are known later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gnndelete.datasets import NamedGraph
from gnndelete.datasets.tombstones import Names, tombstone
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.deletion import NOTHING, Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.validation import check_deletion
from gnndelete.service.errors import ServiceError
from gnndelete.tasks import Task

KINDS = ("edges", "nodes", "features", "labels", "relations", "graphs")

#: With more elements than this, a refusal does not say which of them it is about.
_LOCATED = 200


@dataclass(frozen=True)
class Asked:
    """What the caller named, as it came in."""

    elements: dict[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many elements are named."""
        parts = [
            part
            for value in self.elements.values()
            for part in (value.values() if isinstance(value, dict) else [value])
        ]
        return sum(len(part) for part in parts)


class Elements:
    """The elements of one graph, by the names of its user.

    Args:
        graph: The graph and its names.
        data: The graph as the library holds it.
        table: Its edges.
        task: What the model was trained for.
    """

    def __init__(self, graph: NamedGraph, data: Any, table: EdgeTable, task: Task) -> None:
        self.graph, self.data, self.table, self.task = graph, data, table, task
        self.names = Names(graph, data, table)

    def deletion(self, asked: Asked) -> Deletion:
        """The deletion of what was named; a refusal names no id."""
        if not asked.count:
            raise ServiceError(
                "empty-request", "the request names nothing to delete", f"give {' or '.join(KINDS)}", 422
            )
        try:
            return self._checked(self._parsed(asked.elements))
        except GNNDeleteError:
            positions = self._positions(asked) if asked.count <= _LOCATED else {}
            raise ServiceError(
                "unknown-elements",
                "the model has not learned all elements that the request names, or they are malformed",
                "leave out those that are not in its training graph",
                422,
                positions=positions,
            ) from None

    def still_there(self, asked: Asked) -> Deletion:
        """The deletion of what the graph still has of what was named; empty where nothing is left."""
        try:
            return self._checked(self._parsed(asked.elements))
        except GNNDeleteError:
            bad = self._positions(asked)
        left = {
            kind: value
            if isinstance(value, dict)
            else [each for place, each in enumerate(value) if place not in bad.get(kind, ())]
            for kind, value in asked.elements.items()
        }
        return self._checked(self._parsed(left)) if Asked(left).count else NOTHING

    def _checked(self, deletion: Deletion) -> Deletion:
        return check_deletion(deletion, self.data, self.table, self.task.unseen_edges)

    def _parsed(self, elements: dict[str, Any]) -> Deletion:
        values = {kind: self._of_kind(kind, value) for kind, value in elements.items() if value}
        try:
            return Deletion(**values, ids=self.graph.ids)
        except GNNDeleteError:
            raise
        except (
            TypeError,
            ValueError,
            KeyError,
            OverflowError,
            RuntimeError,
        ) as error:  # nested in a way that no graph has
            raise ServiceError("malformed", f"the elements are malformed ({type(error).__name__})", "", 422) from None

    def _of_kind(self, kind: str, value: Any) -> Any:
        if isinstance(value, dict):
            typed = {tuple(name.split("/")) if "/" in name else name: part for name, part in value.items()}
            return {name: self._listed(kind, part) for name, part in typed.items()}
        return self._listed(kind, value)

    def _listed(self, kind: str, value: list[Any]) -> list[Any]:
        relations = {name: number for number, name in enumerate(self.graph.relations)}
        if kind == "relations":
            return [relations.get(each, each) for each in value]
        if kind == "edges" and relations:
            return [
                (each[0], relations.get(each[1], each[1]), each[2]) if len(each) == 3 else tuple(each) for each in value
            ]
        return [tuple(each) if isinstance(each, list) else each for each in value]

    def _positions(self, asked: Asked) -> dict[str, list[int]]:
        """Which elements are the wrong ones, by their position in the request."""
        found: dict[str, list[int]] = {}
        for kind, value in asked.elements.items():
            if isinstance(value, dict):
                continue
            for position, each in enumerate(value):
                try:
                    self._checked(self._parsed({kind: [each]}))
                except GNNDeleteError:
                    found.setdefault(kind, []).append(position)
        return found

    def hashes(self, deletion: Deletion, key: bytes, tenant: str) -> list[str]:
        """Keyed hashes of the elements of a checked deletion."""
        return list(dict.fromkeys(tombstone(key, tenant, *text) for text in self.names.texts(deletion)))


def raw_hashes(asked: Asked, key: bytes, tenant: str, undirected: bool) -> list[str] | None:
    """Keyed hashes of nodes and pairs by the very texts of a request; None where it names anything else.

    Names of deleted elements are no longer in a regrown graph: these hashes still find their tombstones.
    """
    if asked.elements.keys() - {"nodes", "edges"} or any(isinstance(part, dict) for part in asked.elements.values()):
        return None
    found = [tombstone(key, tenant, "node", str(node)) for node in asked.elements.get("nodes", ())]
    for edge in asked.elements.get("edges", ()):
        if not isinstance(edge, (list, tuple)) or len(edge) != 2:
            return None
        names = list(map(str, edge))
        form = ("edge", *sorted(names)) if undirected else ("arc", *names)
        found.append(tombstone(key, tenant, *form))
    return list(dict.fromkeys(found))


def together(deletions: Sequence[Deletion]) -> Deletion:
    """Several deletions as one."""
    whole = deletions[0]
    for each in deletions[1:]:
        whole = whole | each
    return whole
