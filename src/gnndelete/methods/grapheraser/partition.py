"""Balanced partitions of a graph's nodes into shards (Chen et al. 2022): BLPA, BEKM, METIS, and at random.

All of them run on the CPU, so that a seed means the same shards on every machine; nothing is larger than n x shards.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import torch
from torch import Tensor

from gnndelete.graph.edge_table import EdgeTable


def capacity(nodes: int, shards: int) -> int:
    """The most nodes a shard may hold: a little more than its even share.

    >>> capacity(1000, 10)
    105
    """
    return ceil(nodes / shards + 0.005 * (nodes - nodes / shards))


def at_random(nodes: int, shards: int, generator: torch.Generator) -> Tensor:
    """Shards of nearly equal size that know nothing of the graph.

    >>> torch.bincount(at_random(10, 3, torch.Generator().manual_seed(0))).tolist()
    [4, 3, 3]
    """
    shard = torch.empty(nodes, dtype=torch.long)
    shard[torch.randperm(nodes, generator=generator)] = torch.arange(nodes) % shards
    return shard


def blpa(edge_index: Tensor, nodes: int, shards: int, generator: torch.Generator, rounds: int = 100) -> Tensor:
    """Balanced label propagation: nodes move to the shard of most of their neighbours while it has room.

    Votes are counted once per round. Who has most votes goes first; who finds no room queues until others have left. Of
    all rounds the shards that cut the fewest edges are returned.
    """
    room_for, shard = capacity(nodes, shards), at_random(nodes, shards, generator)
    head, tail = _simple(edge_index, nodes)
    best, fewest = shard, head.numel() + 1
    for _ in range(rounds):
        cut = int((shard[head] != shard[tail]).sum())
        if cut < fewest:
            best, fewest = shard.clone(), cut
        votes = torch.bincount(head * shards + shard[tail], minlength=nodes * shards).view(nodes, shards)
        most, target = votes.max(dim=1)
        movers = (most > votes.gather(1, shard[:, None]).squeeze(1)).nonzero().flatten()
        # by descending votes; ties in a random order, so that ids mean nothing
        movers = movers[torch.randperm(movers.numel(), generator=generator)]
        movers = movers[torch.argsort(most[movers], descending=True, stable=True)]
        if not _move(shard, movers, target[movers], room_for, shards):
            break
    cut = int((shard[head] != shard[tail]).sum())
    return shard if cut < fewest else best


def _move(shard: Tensor, movers: Tensor, target: Tensor, room_for: int, shards: int) -> int:
    """Serve the queues of all shards, in place: each round of departures makes room for those who wait. How many moved."""
    queues = [movers[target == s] for s in range(shards)]
    size, moved = torch.bincount(shard, minlength=shards), 0
    while True:
        room = (room_for - size).tolist()
        served = [queue[: max(0, free)] for queue, free in zip(queues, room, strict=True)]
        if not any(part.numel() for part in served):
            return moved
        for s, part in enumerate(served):
            shard[part] = s
            queues[s] = queues[s][part.numel() :]
            moved += part.numel()
        size = torch.bincount(shard, minlength=shards)


def bekm(embedding: Tensor, shards: int, generator: torch.Generator, rounds: int = 20) -> Tensor:
    """Balanced k-means on node embeddings: the closest pairs of node and centroid are joined first, while there is room."""
    points = embedding.detach().to("cpu", torch.float64).flatten(1)
    centroids = points[torch.randperm(points.size(0), generator=generator)[:shards]]
    shard = torch.full((points.size(0),), -1)
    for _ in range(rounds):
        found = closest_with_room(torch.cdist(points, centroids), capacity(points.size(0), shards))
        if torch.equal(found, shard):
            break
        shard = found
        count = torch.bincount(shard, minlength=shards)[:, None]
        means = torch.zeros_like(centroids).index_add_(0, shard, points) / count.clamp(min=1)
        centroids = torch.where(count > 0, means, centroids)
    return shard


def closest_with_room(distance: Tensor, room_for: int) -> Tensor:
    """Go through all (row, column) pairs by ascending distance and join a free row to a column with room.

    Until the next column is full, every row goes to its nearest open one: at most one sort per column, not one per pair.

    >>> closest_with_room(torch.tensor([[0.0, 9.0], [1.0, 3.0], [2.0, 8.0]]), room_for=2).tolist()
    [0, 0, 1]
    """
    rows, columns = distance.shape
    distance = distance.clone()
    found = torch.full((rows,), -1)
    room = torch.full((columns,), room_for)
    while bool((found < 0).any()):
        free = (found < 0).nonzero().flatten()
        near, wanted = distance[free].min(dim=1)
        order = torch.argsort(near, stable=True)
        free, wanted = free[order], wanted[order]
        end, full = free.numel(), None
        for column in range(columns):
            turns = (wanted == column).nonzero().flatten()
            if turns.numel() >= int(room[column]) and room[column] > 0 and int(turns[room[column] - 1]) < end:
                end, full = int(turns[room[column] - 1]) + 1, column
        found[free[:end]] = wanted[:end]
        room -= torch.bincount(wanted[:end], minlength=columns)
        if full is not None:
            distance[:, full] = torch.inf
    return found


def metis(edge_index: Tensor, nodes: int, shards: int, seed: int) -> Tensor:
    """METIS' k-way partition, with what exceeds a shard's capacity moved to where there is room."""
    import pymetis

    head, tail = _simple(edge_index, nodes)
    degree = torch.bincount(head, minlength=nodes)
    _, parts = pymetis.part_graph(
        shards,
        adjacency=[part.tolist() for part in tail.split(degree.tolist())],  # the form that every version takes
        options=pymetis.Options(seed=seed % 2**31),
        recursive=False,
    )
    shard = torch.as_tensor(np.asarray(parts), dtype=torch.long)
    inside = torch.bincount(head[shard[head] == shard[tail]], minlength=nodes)
    room_for = capacity(nodes, shards)
    order = torch.argsort(shard * (nodes + 1) + (nodes - inside), stable=True)  # by shard, the best connected first
    size = torch.bincount(shard, minlength=shards)
    rank = torch.arange(nodes) - (size.cumsum(0) - size)[shard[order]]
    homeless = order[rank >= room_for]
    free = torch.repeat_interleave(torch.arange(shards), (room_for - size).clamp(min=0))
    shard[homeless] = free[: homeless.numel()]
    return shard


def _simple(edge_index: Tensor, nodes: int) -> Tensor:
    """Both directions of every edge once, without self-loops, sorted by their first node."""
    edges = edge_index.cpu()
    edges = torch.cat([edges, edges.flip(0)], dim=1)[:, (edges[0] != edges[1]).repeat(2)]
    table = EdgeTable(edges, nodes)
    return table.edges(torch.unique_consecutive(table.keys))
