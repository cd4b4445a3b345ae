"""Forget sets: which training edges or nodes an experiment deletes, by a stated rule and a seed."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, SettingError
from gnndelete.graph import count_nodes, edge_table
from gnndelete.neighborhood import Hops, Neighborhood

Where = Literal["random", "in", "out"]


def edge_pool(data: Data, test: Tensor, hops: Hops = "undirected", reach: int = 2) -> Tensor:
    """Which training edges lie IN the enclosing subgraph of the test edges: both ends within ``reach`` hops of one.

    Returns a mask over ``training_edges(data)``. ``hops="directed"`` is what the paper's authors computed.
    """
    table = edge_table(data)
    near = Neighborhood(table, data.edge_index, hops)
    inside = torch.zeros(count_nodes(data), dtype=torch.bool, device=data.edge_index.device)
    inside[near.within(test.flatten().unique(), reach)] = True
    edges = training_edges(data)
    return inside[edges[0]] & inside[edges[1]]


def training_edges(data: Data) -> Tensor:
    """The distinct edges of a graph in a fixed order: once each, smaller id first, where it is undirected; no self-loops.

    >>> training_edges(Data(edge_index=torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2]]), num_nodes=3)).tolist()
    [[0, 1], [1, 2]]
    """
    edges = data.edge_index
    edges = edges[:, edges[0] < edges[1]] if edge_table(data).undirected else edges[:, edges[0] != edges[1]]
    return torch.unique(edges, dim=1)


def forget_edges(
    data: Data,
    amount: float | int,
    where: Where = "random",
    *,
    test: Tensor | None = None,
    hops: Hops = "undirected",
    seed: int = 0,
) -> Tensor:
    """Draw edges to delete: a share of the training edges (a float below 1) or a number of them (an int).

    ``where="in"`` draws inside, ``"out"`` outside the 2-hop enclosing subgraph of the ``test`` edges.

    >>> ring = torch.arange(6)
    >>> data = Data(edge_index=torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])]), num_nodes=6)
    >>> forget_edges(data, 2, seed=1).shape
    torch.Size([2, 2])
    """
    if where not in ("random", "in", "out"):
        raise SettingError(f"'where' must be 'random', 'in' or 'out' (got {where!r})")
    edges = training_edges(data)
    count = _count(amount, edges.size(1), "edges")
    if where != "random":
        if test is None:
            raise SettingError(f"where={where!r} is relative to the test edges; pass test= the [2, k] test edges")
        inside = edge_pool(data, test.to(edges.device), hops)
        edges = edges[:, inside if where == "in" else ~inside]
    if count > edges.size(1):
        raise DeletionError(
            f"only {edges.size(1)} edges are {where.upper()} with hops={hops!r}, and {count} are asked for; ask for fewer"
        )
    return edges[:, _draw(edges.size(1), count, seed).to(edges.device)]


def forget_nodes(data: Data, amount: float | int, *, seed: int = 0) -> Tensor:
    """Draw nodes to delete, from the training nodes where the graph has a ``train_mask``; ids, not positions."""
    mask = data.get("train_mask")
    pool = torch.arange(count_nodes(data)) if mask is None else mask.nonzero().flatten().cpu()
    return pool[_draw(pool.numel(), _count(amount, pool.numel(), "nodes"), seed)]


def _count(amount: float | int, total: int, what: str) -> int:
    count = round(amount * total) if isinstance(amount, float) and amount < 1 else int(amount)
    if not 0 < count <= total:
        raise SettingError(
            f"the number of {what} to forget must be between 1 and {total} (got {amount!r}, that is {count})"
        )
    return count


def _draw(total: int, count: int, seed: int) -> Tensor:
    return torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].sort().values
