"""Forget sets: which training edges, nodes or graphs an experiment deletes, by a stated rule and a seed."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, SettingError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import Hops, Neighborhood, ends_of
from gnndelete.graph.parsing import distinct
from gnndelete.graph.validation import count_nodes, edge_table

Where = Literal["random", "in", "out", "hubs", "community"]
_WHERE = ("random", "in", "out", "hubs", "community")


def training_edges(data: Data, relation: int | None = None) -> Tensor:
    """List the distinct edges of a graph in a fixed order, without self-loops.

    Args:
        data: The graph; of many graphs with a ``train_mask``, only the training graphs count.
        relation: Keep the edges of one relation type.

    Returns:
        ``[2, k]``, on an undirected graph each edge once with the smaller id first; ``[3, k]`` triples on a typed graph.

    Raises:
        SettingError: If no edge has the relation, or the graph has no relation types.

    >>> training_edges(Data(edge_index=torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2]]), num_nodes=3)).tolist()
    [[0, 1], [1, 2]]
    """
    edges, kind = data.edge_index, data.get("edge_type")
    trained = _training_graphs(data)
    if trained is not None:  # of many graphs only training graphs have something to forget
        inside = trained[data.batch[edges[0]]]
        edges, kind = edges[:, inside], kind if kind is None else kind[inside]
    if kind is not None:
        keep = edges[0] != edges[1]
        if relation is not None:
            keep &= kind == relation
            if not bool(keep.any()):
                raise SettingError(f"no edge has the relation {relation!r}; types go from 0 to {int(kind.max())}")
        found = torch.stack([edges[0], kind, edges[1]])[:, keep]
        back = data.get("reverse_offset")
        return distinct(found if back is None else found[:, found[1] < back])
    if relation is not None:
        raise SettingError(f"relation={relation!r}, but the graph has no 'edge_type'; leave it out")
    keep = edges[0] < edges[1] if edge_table(data).undirected else edges[0] != edges[1]
    return distinct(edges[:, keep])


def edge_pool(
    data: Data, test: Tensor, hops: Hops = "undirected", reach: int = 2, relation: int | None = None
) -> Tensor:
    """Find the training edges in the enclosing subgraph of the test edges: both ends within ``reach`` hops of one.

    Args:
        data: The training graph.
        test: The test edges ``[2, k]``.
        hops: How distance is counted; ``"directed"`` is what the paper's authors computed.
        reach: The number of hops.
        relation: Look at the edges of one relation type.

    Returns:
        A mask over ``training_edges(data, relation)``.
    """
    near = Neighborhood(edge_table(data), data.edge_index, hops)
    inside = torch.zeros(count_nodes(data), dtype=torch.bool, device=data.edge_index.device)
    inside[near.within(ends_of(test).flatten().unique().to(inside.device), reach)] = True
    edges = training_edges(data, relation)
    return inside[edges[0]] & inside[edges[-1]]


def forget_edges(
    data: Data,
    amount: float | int,
    where: Where = "random",
    *,
    test: Tensor | None = None,
    hops: Hops = "undirected",
    relation: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Draw edges to delete.

    Args:
        data: The training graph.
        amount: A share of the training edges (a float up to 1.0) or a number of them (an int).
        where: ``"in"`` draws inside, ``"out"`` outside the 2-hop enclosing subgraph of the test edges. ``"hubs"`` takes the
            edges whose ends have the highest degrees, ``"community"`` whole communities one after the other.
        test: The test edges, for ``"in"`` and ``"out"``.
        hops: How distance from the test edges is counted, see `edge_pool`.
        relation: Draw from one relation type.
        seed: Draws the edges.

    Returns:
        ``[2, k]`` edges, ``[3, k]`` on a typed graph.

    Raises:
        DeletionError: If there are fewer such edges than asked for.
        SettingError: If an argument has a bad value, or ``test`` is missing.

    >>> ring = torch.arange(6)
    >>> ends = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    >>> forget_edges(Data(edge_index=ends, num_nodes=6), 2, seed=1).shape
    torch.Size([2, 2])
    """
    if where not in _WHERE:
        raise SettingError(f"'where' must be one of {', '.join(map(repr, _WHERE))} (got {where!r})")
    edges = training_edges(data, relation)
    count = share(amount, edges.size(1), "edges")
    if where in ("in", "out"):
        if test is None:
            raise SettingError(f"where={where!r} is relative to the test edges; pass test= the [2, k] test edges")
        inside = edge_pool(data, test, hops, relation=relation)
        edges = edges[:, inside if where == "in" else ~inside]
    elif where == "community":
        label = communities(data, seed)
        edges = edges[:, label[edges[0]] == label[edges[-1]]]
    if count > edges.size(1):
        pool = f"{where.upper()} with hops={hops!r}" if where in ("in", "out") else "inside communities"
        raise DeletionError(f"only {edges.size(1)} edges are {pool}, and {count} are asked for; ask for fewer")
    order = _shuffled(edges.size(1), seed).to(edges.device)
    if where == "hubs":
        degree = edge_table(data).degree
        order = order[torch.argsort(degree[edges[0, order]] + degree[edges[-1, order]], descending=True, stable=True)]
    elif where == "community":
        turn = _shuffled(int(label.max()) + 1, seed).to(edges.device)
        order = order[torch.argsort(turn[label[edges[0, order]]], stable=True)]
    return edges[:, order[:count].sort().values]


def forget_nodes(data: Data, amount: float | int, *, seed: int = 0) -> Tensor:
    """Draw nodes to delete, or nodes whose features or labels are to be deleted.

    Args:
        data: The graph. Where it has a ``train_mask``, only training nodes are drawn.
        amount: A share of these nodes (a float up to 1.0) or a number of them (an int).
        seed: Draws the nodes.

    Returns:
        The sorted ids.

    Raises:
        SettingError: If the amount is not between 1 and the number of nodes.

    >>> forget_nodes(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=10), 0.3, seed=1).numel()
    3
    """
    mask = data.get("train_mask")
    trained = _training_graphs(data)
    if trained is not None:
        pool = data.nodes_of(trained.nonzero().flatten()).cpu()
    elif mask is None or mask.size(0) != count_nodes(data):
        pool = torch.arange(count_nodes(data))
    else:
        pool = mask.nonzero().flatten().cpu()
    return _sample(pool, amount, "nodes", seed)


def forget_graphs(graphs: Sized | Any, amount: float | int, *, seed: int = 0) -> Tensor:
    """Draw whole graphs to delete.

    Args:
        graphs: The graphs. Of a `GraphBatch` with a ``train_mask`` only training graphs are drawn.
        amount: A share of them (a float up to 1.0) or a number of them (an int).
        seed: Draws the graphs.

    Returns:
        Their sorted positions.

    Raises:
        SettingError: If the amount is not between 1 and the number of graphs.

    >>> forget_graphs(range(10), 3, seed=1).numel()
    3
    """
    trained = _training_graphs(graphs)
    count = graphs.num_graphs if isinstance(graphs, GraphBatch) else len(graphs)
    return _sample(
        torch.arange(count) if trained is None else trained.nonzero().flatten().cpu(), amount, "graphs", seed
    )


def _training_graphs(data: Any) -> Tensor | None:
    mask = data.get("train_mask") if isinstance(data, GraphBatch) else None
    return mask if isinstance(mask, Tensor) and mask.size(0) == data.num_graphs else None


def share(amount: float | int, total: int, what: str) -> int:
    """A share (a float up to 1.0) or a number (an int) of ``total`` as a number."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise SettingError(f"the number of {what} to forget must be a share or a number (got {amount!r})")
    if isinstance(amount, float) and amount > 1 and not amount.is_integer():
        raise SettingError(
            f"the number of {what} to forget must be a share up to 1.0 or a whole number (got {amount!r})"
        )
    count = round(amount * total) if isinstance(amount, float) and amount <= 1 else int(amount)
    if not 0 < count <= total:
        shown = f"{amount!r}" if count == amount else f"{amount!r}, that is {count}"
        raise SettingError(f"the number of {what} to forget must be between 1 and {total} (got {shown})")
    return count


def _shuffled(total: int, seed: int) -> Tensor:
    return torch.randperm(total, generator=torch.Generator().manual_seed(seed))


def _sample(pool: Tensor, amount: float | int, what: str, seed: int) -> Tensor:
    return pool[_shuffled(pool.numel(), seed)[: share(amount, pool.numel(), what)].sort().values]


def communities(data: Data, seed: int = 0, rounds: int = 10) -> Tensor:
    """Find communities by label propagation.

    In each round about half of the nodes take over the most common label among their neighbours.

    Args:
        data: The graph.
        seed: Draws which nodes move and breaks ties.
        rounds: Number of rounds.

    Returns:
        One label per node, from 0.

    >>> two = torch.tensor([[0, 1, 0, 2, 1, 2, 3, 4, 3, 5, 4, 5], [1, 0, 2, 0, 2, 1, 4, 3, 5, 3, 5, 4]])
    >>> label = communities(Data(edge_index=two, num_nodes=6))
    >>> bool(label[0] == label[1] == label[2]), bool(label[0] == label[3])
    (True, False)
    """
    nodes = count_nodes(data)
    device = data.edge_index.device
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    label = torch.arange(nodes, device=device)
    for _ in range(rounds):
        vote, count = torch.unique(target * nodes + label[source], return_counts=True)
        tie = torch.rand(vote.numel(), generator=generator).to(device)
        voter = vote // nodes
        order = torch.argsort(voter * (int(count.max()) + 2) + count + tie.double())  # by node, its winner last
        last = torch.cat([voter[1:] != voter[:-1], torch.ones(1, dtype=torch.bool, device=device)])
        winner = label.clone()
        winner[voter[last]] = (vote % nodes)[order[last]]
        moves = torch.rand(nodes, generator=generator).to(device) < 0.5  # all at once would swap labels for ever
        label = torch.where(moves, winner, label)
    return torch.unique(label, return_inverse=True)[1]
