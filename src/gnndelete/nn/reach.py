"""How far from a poisoned node the rows lie that moved with it, and whether edges lead from one of them to the next."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnndelete.graph.edge_table import EdgeTable
from gnndelete.nn.perturb import Seen

#: The most hops that are walked from a node.
DEPTH_LIMIT = 64


@dataclass(frozen=True)
class Reach:
    """How far the rows of one output lie that depend on a node."""

    hops: int | None  # None where no path leads to some of the rows
    whole: bool  # everything that can be reached was: the true reach may be longer


def distances(seen: list[Seen], walks: list[list[EdgeTable]], seed: Tensor) -> list[Reach | None]:
    """For every output the largest distance of a row that depends on the seed, walking only as far as such rows lie."""
    result: list[Reach | None] = [None if item.moved is None else Reach(None, whole=False) for item in seen]
    for tables in walks:
        open_ = {i for i, reach in enumerate(result) if reach is not None and reach.hops is None}
        left = {i: item.moved for i, item in enumerate(seen) if i in open_ and item.moved is not None}
        ring, hops = seed, 0
        known = torch.zeros(tables[0].num_nodes, dtype=torch.bool, device=seed.device)
        while left and ring.numel() and hops <= DEPTH_LIMIT:
            known[ring] = True
            following = torch.cat([table.neighbors(ring) for table in tables])
            following = torch.unique(following[~known[following]])
            for i in [i for i, moved in left.items() if not bool((moved & ~known).any())]:
                result[i] = Reach(hops, whole=not following.numel() and hops > 0)
                del left[i]
            ring, hops = following, hops + 1
    return result


def furthest(runs: list[list[Reach | None]]) -> list[Reach | None]:
    """Of every output the furthest reach from any seed; a row that no path leads to counts as further than all."""
    result: list[Reach | None] = []
    for found in zip(*runs, strict=True):
        known = [reach for reach in found if reach is not None]
        lost = next((reach for reach in known if reach.hops is None), None)
        result.append(lost or max(known, key=lambda reach: (reach.hops, reach.whole), default=None))
    return result


def joined(item: Seen, table: EdgeTable, seed: Tensor) -> bool:
    """Whether a walk along edges, whichever way they point, from the seed over rows that moved comes to all of them."""
    if item.moved is None:
        return True
    left = item.moved.index_fill(0, seed, True)
    tables = [table] if table.undirected else [table, reverse(table)]
    ring = seed
    while ring.numel():
        left[ring] = False
        following = torch.cat([each.neighbors(ring) for each in tables])
        ring = torch.unique(following[left[following]])
    return not bool(left.any())


def reverse(table: EdgeTable) -> EdgeTable:
    key = table.keys // table.num_relations
    return EdgeTable(torch.stack([key % table.num_nodes, key // table.num_nodes]), table.num_nodes)
