"""Seeded graphs of any size: power-law degrees, communities that make links and labels learnable, made in seconds."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

from gnndelete.errors import SettingError


def community_graph(
    nodes: int = 235_868,
    edges: int = 2_358_104,
    features: int = 128,
    *,
    classes: int = 10,
    community: int = 100,
    mixing: float = 0.1,
    exponent: float = 2.5,
    noise: float = 1.0,
    seed: int = 0,
) -> Data:
    """An undirected graph with exactly ``edges`` directed edges (both directions counted); the defaults are OGB-Collab's size.

    Nodes live in communities of about ``community`` members; a share ``mixing`` of the edges leaves them. A node's
    expected degree follows a power law with ``exponent``; its features are its community's centre plus ``noise``.

    >>> data = community_graph(200, 1_000, 8, seed=1)
    >>> data.num_nodes, data.num_edges, data.is_undirected(), data.has_self_loops()
    (200, 1000, True, False)
    """
    if edges % 2 or not 0 < edges // 2 <= nodes * (nodes - 1) // 4:
        raise SettingError(f"'edges' must be even, positive and leave the graph sparse (got {edges} for {nodes} nodes)")
    rng = np.random.default_rng(seed)
    groups = max(1, nodes // community)
    group = np.sort(rng.integers(0, groups, nodes))
    weight = rng.pareto(exponent - 1, nodes) + 1
    np.minimum(
        weight, weight.mean() * np.sqrt(nodes), out=weight
    )  # no hub may own more than about sqrt(n) expected edges
    total = np.cumsum(weight)
    first = np.searchsorted(group, np.arange(groups + 1))
    below = np.concatenate([[0.0], total])

    found = np.empty(0, dtype=np.int64)
    while found.size < edges // 2:
        count = int((edges // 2 - found.size) * 1.2) + 16
        source = np.searchsorted(total, rng.random(count) * total[-1])
        inside = rng.random(count) >= mixing
        low = np.where(inside, below[first[group[source]]], 0.0)
        high = np.where(inside, below[first[group[source] + 1]], total[-1])
        target = np.searchsorted(total, low + rng.random(count) * (high - low))
        ok = (source != target) & (target < nodes)
        pair = np.minimum(source, target)[ok] * nodes + np.maximum(source, target)[ok]
        fresh = np.setdiff1d(pair, found)  # distinct and sorted: shuffle before cutting to size
        found = np.concatenate([found, rng.permutation(fresh)[: edges // 2 - found.size]])
    found.sort()
    head, tail = torch.from_numpy(found // nodes), torch.from_numpy(found % nodes)
    centre = rng.standard_normal((groups, features), dtype=np.float32)
    x = centre[group] + noise * rng.standard_normal((nodes, features), dtype=np.float32)
    return Data(
        x=torch.from_numpy(x),
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        y=torch.from_numpy(group % classes),
    )
