"""Rings and neighbourhoods S^l by walking a sorted edge table: the cost follows the neighbourhood, not the graph."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from gnndelete.errors import SettingError
from gnndelete.graph.edge_table import EdgeTable

Hops = Literal["undirected", "directed"]

#: So few edges are looked at all at once: on them a walk spends its time on starting one small piece of work after another.
FEW_EDGES, FEW_ON_DEVICE = 1 << 14, 1 << 20


class Neighborhood:
    """Who is within how many hops of whom.

    ``hops="undirected"`` walks every edge both ways and covers whatever a message-passing model can change.
    ``hops="directed"`` is what the paper's authors computed: on an undirected graph only edges u < v, walked from the
    higher to the lower id; on a directed graph every edge, walked from target to source. It exists to reproduce their tables.

    >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> near = Neighborhood(EdgeTable(path, 4), path)
    >>> [ring.tolist() for ring in near.rings(torch.tensor([0]), 2)]
    [[0], [1], [2]]
    """

    def __init__(self, table: EdgeTable, edge_index: Tensor, hops: Hops = "undirected") -> None:
        if hops not in ("undirected", "directed"):
            raise SettingError(f"'hops' must be 'undirected' or 'directed' (got {hops!r})")
        self.num_nodes = table.num_nodes
        self.hops = hops
        if hops == "directed":
            if table.undirected:
                edge_index = edge_index[:, edge_index[0] < edge_index[1]]
            elif table.mirrored:  # a triple's own direction is not that of its reverse
                edges = table.edges(table.keys)
                edge_index = edges[:, ~table.runs_back(edges)][[0, 2]]
            ways = [edge_index.flip(0)]
        else:
            ways = [edge_index] if table.undirected else [edge_index, edge_index.flip(0)]
        few = FEW_EDGES if edge_index.device.type == "cpu" else FEW_ON_DEVICE
        self._few = torch.cat(ways, dim=1) if table.num_edges <= few else None
        if self._few is None:
            own = [table] if hops == "undirected" else []
            self._tables = [*own, *(EdgeTable(way, table.num_nodes) for way in ways[len(own) :])]

    def rings(self, seeds: Tensor, hops: int) -> list[Tensor]:
        """Ring k is the sorted ids of the nodes at distance k from the nearest seed; ring 0 the seeds themselves."""
        return walk(self._tables, seeds, hops) if self._few is None else spread(self._few, self.num_nodes, seeds, hops)

    def within(self, seeds: Tensor, hops: int) -> Tensor:
        """All nodes at distance at most ``hops``, sorted: S^l of the paper."""
        return torch.cat(self.rings(seeds, hops)).sort().values


def walk(tables: list[EdgeTable], seeds: Tensor, hops: int) -> list[Tensor]:
    """Breadth-first rings over the union of edge tables; empty rings at the end are kept so that indices are distances."""
    nodes, device = tables[0].num_nodes, tables[0].keys.device
    seen = torch.zeros(nodes, dtype=torch.bool, device=device)

    def unseen(found: Tensor) -> Tensor:
        """Those not seen before, sorted, each once; from now on they are."""
        nonlocal seen
        if device.type == "cpu" and found.numel() * 8 < nodes:
            ring = torch.unique(found[~seen[found]])
            seen[ring] = True
            return ring
        now = seen.index_fill(0, found, True)  # a mask is cheaper than sorting, but for a small part of a large graph
        ring = (now ^ seen).nonzero().flatten()
        seen = now
        return ring

    rings = [unseen(seeds.to(device))]
    for _ in range(hops):
        found = [table.neighbors(rings[-1]) for table in tables] if rings[-1].numel() else []
        rings.append(unseen(found[0] if len(found) == 1 else torch.cat(found)) if found else rings[-1])
    return rings


def spread(edges: Tensor, nodes: int, seeds: Tensor, hops: int) -> list[Tensor]:
    """The rings of `walk`, by all edges in every step: less to start, and one wait for the device in all."""
    source, target = edges
    far = torch.ones(nodes + 1, dtype=torch.bool, device=edges.device).index_fill_(0, seeds.to(edges.device), False)
    beyond = [far]
    for _ in range(hops):
        found = target.masked_fill(far[source], nodes)  # past the last node: nobody
        far = far.index_fill(0, found, False)
        beyond.append(far)
    steps = torch.stack(beyond)[:, :-1]
    nearest_first = steps.sum(dim=0).sort(stable=True).indices
    left = [nodes, *steps.sum(dim=1).tolist()]
    return [nearest_first[nodes - more : nodes - fewer] for more, fewer in pairwise(left)]
