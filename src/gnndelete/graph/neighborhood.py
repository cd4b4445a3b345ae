"""Rings around a deletion and the neighbourhoods S^l of the paper; the cost follows the neighbourhood, not the graph."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from gnndelete.errors import SettingError
from gnndelete.graph.edge_table import EdgeTable

Hops = Literal["undirected", "directed"]

#: Up to this many edges (on an accelerator), one pass over all edges per hop is faster than walking from node to node.
FEW_EDGES, FEW_ON_DEVICE = 1 << 14, 1 << 20


class Neighborhood:
    """Finds the nodes within some hops of others.

    Args:
        table: The sorted edges of the graph.
        edge_index: The same edges.
        hops: ``"undirected"`` walks every edge both ways and covers whatever a message-passing model can change.
            ``"directed"`` is what the paper's authors computed, to reproduce their tables: on an undirected graph only
            edges u < v, walked from the higher to the lower id; on a directed graph every edge, from target to source.

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
            elif table.mirrored:  # reverse triples are left out
                edges = table.edges(table.keys)
                edge_index = edges[:, ~table.runs_back(edges)][[0, 2]]
            ways = [edge_index.flip(0)]
        else:
            ways = [edge_index] if table.undirected else [edge_index, edge_index.flip(0)]
        few = FEW_EDGES if edge_index.device.type == "cpu" else FEW_ON_DEVICE
        self._few = torch.cat(ways, dim=1) if table.num_edges <= few else None
        if self._few is None:
            known = [table] if hops == "undirected" else []
            self._tables = [*known, *(EdgeTable(way, table.num_nodes) for way in ways[len(known) :])]

    def rings(self, seeds: Tensor, hops: int) -> list[Tensor]:
        """The rings 0 to ``hops``: ring k holds the sorted ids at distance k from the nearest seed, ring 0 the seeds."""
        return walk(self._tables, seeds, hops) if self._few is None else spread(self._few, self.num_nodes, seeds, hops)

    def within(self, seeds: Tensor, hops: int) -> Tensor:
        """All nodes at distance at most ``hops``, sorted: S^l of the paper."""
        return torch.cat(self.rings(seeds, hops)).sort().values


def walk(tables: list[EdgeTable], seeds: Tensor, hops: int) -> list[Tensor]:
    """Breadth-first rings over the union of edge tables; the last rings may be empty."""
    nodes, device = tables[0].num_nodes, tables[0].keys.device
    visited = torch.zeros(nodes, dtype=torch.bool, device=device)

    def visit(found: Tensor) -> Tensor:
        """Mark nodes as visited; return those that were not before, sorted, each once."""
        nonlocal visited
        if device.type == "cpu" and found.numel() * 8 < nodes:
            ring = torch.unique(found[~visited[found]])
            visited[ring] = True
            return ring
        now = visited.index_fill(0, found, True)  # cheaper than sorting, unless few nodes of a large graph are found
        ring = (now ^ visited).nonzero().flatten()
        visited = now
        return ring

    rings = [visit(seeds.to(device))]
    for _ in range(hops):
        found = [table.neighbors(rings[-1]) for table in tables] if rings[-1].numel() else []
        rings.append(visit(found[0] if len(found) == 1 else torch.cat(found)) if found else rings[-1])
    return rings


def spread(edges: Tensor, nodes: int, seeds: Tensor, hops: int) -> list[Tensor]:
    """The rings of `walk`, from all edges in every hop; the device is waited for once."""
    source, target = edges
    far = torch.ones(nodes + 1, dtype=torch.bool, device=edges.device).index_fill_(0, seeds.to(edges.device), False)
    beyond = [far]
    for _ in range(hops):
        found = target.masked_fill(far[source], nodes)  # sources that are still far lead past the last node
        far = far.index_fill(0, found, False)
        beyond.append(far)
    steps = torch.stack(beyond)[:, :-1]
    nearest_first = steps.sum(dim=0).sort(stable=True).indices
    left = [nodes, *steps.sum(dim=1).tolist()]
    return [nearest_first[nodes - more : nodes - fewer] for more, fewer in pairwise(left)]
