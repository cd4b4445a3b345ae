"""Keyed hashes of what was deleted, by which training, adoption and import find it again and leave it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnndelete.service.crypto import keyed
from gnndelete.service.elements import Elements


@dataclass(frozen=True)
class Tombstones:
    """Hashes of deleted elements, with their key.

    Args:
        key: The key of the hashes.
        tenant: Whose elements they are.
        hashes: The hashes.
    """

    key: bytes
    tenant: str
    hashes: frozenset[str]

    def among(self, elements: Elements) -> int:
        """How many nodes and edges of a graph were deleted."""
        return sum(keyed(self.key, self.tenant, *parts) in self.hashes for parts in _all(elements))


def _all(elements: Elements) -> Iterator[tuple[str, ...]]:
    table = elements.table
    yield from (("node", elements.name(row)) for row in range(table.num_nodes))
    for ends in table.edges(table.keys).t().tolist():
        first, *relation, last = ends
        names = [elements.name(first), elements.name(last)]
        if table.undirected and first > last:
            continue
        yield ("edge", *(sorted(names) if table.undirected else names), *map(str, relation))
