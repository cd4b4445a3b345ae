"""Graphs that need no download: images of digits from scikit-learn, and seeded random graphs of any size.

The random graphs have power-law degrees, and communities that make links learnable; they are made in seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

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
    """Make an undirected graph with communities; the defaults have the size of OGB-Collab.

    Args:
        nodes: Number of nodes.
        edges: Number of edges, counted in both directions.
        features: Number of feature columns.
        classes: Number of classes.
        community: Average size of a community.
        mixing: Share of edges that leave their community.
        exponent: Exponent of the power law of expected degrees.
        noise: Standard deviation of features around the centre of their community.
        seed: Draws the graph.

    Returns:
        The graph with ``x``, ``edge_index`` and ``y``.

    Raises:
        SettingError: If there is no such graph.

    >>> data = community_graph(200, 1_000, 8, seed=1)
    >>> data.num_nodes, data.num_edges, data.is_undirected(), data.has_self_loops()
    (200, 1000, True, False)
    """
    _check_community_graph(**locals())
    rng = np.random.default_rng(seed)
    groups = max(1, nodes // community)
    group = np.sort(rng.integers(0, groups, nodes))
    weight = rng.pareto(exponent - 1, nodes) + 1
    weight = np.minimum(weight, weight.mean() * np.sqrt(nodes))  # no hub may expect more than sqrt(n) mean degrees
    first = np.searchsorted(group, np.arange(groups + 1))

    found = np.empty(0, dtype=np.int64)
    while found.size < edges // 2:
        total = np.cumsum(weight)
        below = np.concatenate([[0.0], total])
        count = int((edges // 2 - found.size) * 1.2) + 16
        source = np.searchsorted(total, rng.random(count) * total[-1])
        inside = rng.random(count) >= mixing
        low = np.where(inside, below[first[group[source]]], 0.0)
        high = np.where(inside, below[first[group[source] + 1]], total[-1])
        target = np.searchsorted(total, low + rng.random(count) * (high - low))
        ok = (source != target) & (target < nodes)
        pair = np.minimum(source, target)[ok] * nodes + np.maximum(source, target)[ok]
        fresh = rng.permutation(_fresh(pair, found))  # sorted: shuffled before it is cut to size
        found = np.sort(np.concatenate([found, fresh[: edges // 2 - found.size]]))
        if fresh.size < count // 2:
            mixing, weight = _loosened(mixing, weight)
    head, tail = torch.from_numpy(found // nodes), torch.from_numpy(found % nodes)
    centre = rng.standard_normal((groups, features), dtype=np.float32)
    x = centre[group] + noise * rng.standard_normal((nodes, features), dtype=np.float32)
    return Data(
        x=torch.from_numpy(x),
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        y=torch.from_numpy(group % classes),
    )


def _check_community_graph(*, nodes: int, edges: int, noise: float, **common: Any) -> None:
    """Refuse parameters that `community_graph` can make no graph of."""
    _check_common(nodes=nodes, **common)
    if edges % 2 or not 0 < edges // 2 <= nodes * (nodes - 1) // 4:
        raise SettingError(
            f"'edges' must be even, positive and leave the graph sparse, at most {nodes * (nodes - 1) // 4 * 2:,} for "
            f"{nodes:,} nodes (got {edges})"
        )
    if not np.isfinite(noise):
        raise SettingError(f"'noise' must be a finite number (got {noise})")


#: Shares of the five kinds of entities, similar to functions, proteins, diseases, drugs and side effects of BioKG.
_KINDS = (0.48, 0.19, 0.12, 0.11, 0.10)


def knowledge_graph(
    entities: int = 93_773,
    triples: int = 5_088_434,
    relations: int = 51,
    *,
    community: int = 1_000,
    mixing: float = 0.1,
    exponent: float = 2.5,
    seed: int = 0,
) -> Data:
    """Make a directed graph with typed edges; the defaults have the size of OGB-BioKG.

    Entities are of five kinds (``node_type``). A relation joins one kind to one kind, within half of the communities.
    Sizes of relations fall off like frequencies of words.

    Args:
        entities: Number of nodes.
        triples: Number of distinct triples.
        relations: Number of relation types; each has at least one triple.
        community: Average size of a community.
        mixing: Share of triples that leave their community.
        exponent: Exponent of the power law of expected degrees.
        seed: Draws the graph.

    Returns:
        The graph with ``edge_index``, ``edge_type`` and ``node_type``.

    Raises:
        SettingError: If there is no such graph.

    >>> data = knowledge_graph(300, 2_000, 7, community=60, seed=1)
    >>> data.num_nodes, data.num_edges, int(data.edge_type.max()) + 1, data.has_self_loops()
    (300, 2000, 7, False)
    """
    _check_knowledge_graph(**locals())
    rng = np.random.default_rng(seed)
    kinds, groups = len(_KINDS), max(1, entities // community)
    size = _kind_sizes(entities)
    kind = np.repeat(np.arange(kinds), size)
    joins = _joins(relations)
    room = size[joins].prod(axis=0)
    group = rng.integers(0, groups, entities)
    group = group[np.lexsort((group, kind))]
    first = np.searchsorted(kind * groups + group, np.arange(kinds * groups + 1))  # where kind k, community c begins
    weight = rng.pareto(exponent - 1, entities) + 1
    weight = np.minimum(weight, weight.mean() * np.sqrt(entities) / 4)
    below = np.concatenate([[0.0], np.cumsum(weight)])
    active = rng.random((relations, groups)).argsort(axis=1)[:, : (groups + 1) // 2]  # a relation's communities
    share = room**0.5 / (1 + rng.permutation(relations)) ** 0.7

    def within(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """An entity of each range, by weight where a range is not empty."""
        drawn = below[low] + rng.random(low.size) * (below[high] - below[low])
        return np.clip(np.searchsorted(below, drawn, side="right") - 1, low, np.maximum(high - 1, low))

    found, edges_of = np.empty(0, dtype=np.int64), np.arange(relations + 1) * entities**2
    while found.size < triples:
        # Every relation gets a triple before any gets its share.
        relation = np.flatnonzero(np.diff(np.searchsorted(found, edges_of)) == 0)
        if not relation.size:
            relation = rng.choice(relations, int((triples - found.size) * 1.3) + 64, p=share / share.sum())
        home = joins[:, relation] * groups + active[relation, rng.integers(0, active.shape[1], relation.size)]
        low, high = first[home], first[home + 1]
        leaves = (rng.random(relation.size) < mixing) | (low >= high).any(axis=0)
        low = np.where(leaves, first[joins[:, relation] * groups], low)
        high = np.where(leaves, first[(joins[:, relation] + 1) * groups], high)
        head, tail = within(low[0], high[0]), within(low[1], high[1])
        key = ((relation * entities + head) * entities + tail)[head != tail]
        fresh = rng.permutation(_fresh(key, found))
        found = np.sort(np.concatenate([found, fresh[: triples - found.size]]))
        if fresh.size < relation.size // 2:
            mixing, weight = _loosened(mixing, weight)
            below = np.concatenate([[0.0], np.cumsum(weight)])
    pair = found % entities**2
    return Data(
        edge_index=torch.from_numpy(np.stack([pair // entities, pair % entities])),
        edge_type=torch.from_numpy(found // entities**2),
        node_type=torch.from_numpy(kind),
        num_nodes=entities,
    )


def _check_knowledge_graph(*, entities: int, triples: int, relations: int, **common: Any) -> None:
    """Refuse parameters that `knowledge_graph` can make no graph of."""
    _check_common(entities=entities, relations=relations, **common)
    size = _kind_sizes(entities)
    if size.min() < 2:
        raise SettingError(f"'entities' must be at least 20, for five kinds of them (got {entities})")
    rooms = size[_joins(len(_KINDS) ** 2)].prod(axis=0).tolist()  # of all pairs of kinds, which then come again
    rounds, rest = divmod(relations, len(rooms))
    most = (rounds * sum(rooms) + sum(rooms[:rest])) // 4
    if not relations <= triples <= most:
        raise SettingError(
            f"'triples' must lie between the number of relations ({relations}) and a quarter of what {entities:,} entities "
            f"leave room for ({most:,}; got {triples})"
        )


def _kind_sizes(entities: int) -> np.ndarray:
    """How many entities are of each kind."""
    ends = [bisect_right(range(entities), end, key=lambda i: (i + 0.5) / entities) for end in np.cumsum(_KINDS[:-1])]
    return np.diff([0, *ends, entities])


def _joins(relations: int) -> np.ndarray:
    """The kinds that each relation joins: all pairs of kinds, one after the other."""
    order, kinds = np.arange(relations), len(_KINDS)
    return np.stack([order % kinds, (2 * order + order // kinds) % kinds])


def ratings_graph(
    users: int = 600,
    items: int = 1_100,
    edges: int = 68_000,
    *,
    genres: int = 12,
    focus: float = 0.3,
    mixing: float = 0.15,
    exponent: float = 2.5,
    seed: int = 0,
) -> Data:
    """Make an undirected bipartite graph of users and the items they like; the defaults have the size of MovieLens 100k.

    Each item has a genre and a popularity, each user an activity and shares of genres. A user likes items of each genre by
    these shares, popular ones first.

    Args:
        users: Number of users; they are the first nodes.
        items: Number of items.
        edges: Number of edges, counted in both directions.
        genres: Number of genres.
        focus: How evenly a user likes genres (the parameter of a Dirichlet distribution): small for one favourite.
        mixing: Share of edges that taste plays no part in.
        exponent: Exponent of the power laws of activity and popularity.
        seed: Draws the graph.

    Returns:
        The graph with ``edge_index``, ``node_type`` (0 for users) and ``y``, the genre of an item and the favourite of a user.

    Raises:
        SettingError: If there is no such graph.

    >>> data = ratings_graph(50, 80, 1_000, genres=4, seed=1)
    >>> data.num_nodes, data.num_edges, data.is_undirected(), data.node_type.bincount().tolist()
    (130, 1000, True, [50, 80])
    """
    _check_ratings_graph(**locals())
    rng = np.random.default_rng(seed)
    genre = np.sort(np.append(np.arange(genres), rng.integers(0, genres, items - genres)))
    taste = rng.dirichlet(np.full(genres, focus), users)
    weights = [rng.pareto(exponent - 1, count) + 1 for count in (users, items)]
    active, weight = (np.minimum(w, w.mean() * np.sqrt(w.size) / 3) for w in weights)
    first = np.searchsorted(genre, np.arange(genres + 1))
    below_taste = np.cumsum(taste, axis=1) + np.arange(users)[:, None]

    found = np.empty(0, dtype=np.int64)
    while found.size < edges // 2:
        below = np.concatenate([[0.0], np.cumsum(weight)])
        count = int((edges // 2 - found.size) * 1.2) + 16
        user = rng.choice(users, count, p=active / active.sum())
        liked = np.searchsorted(below_taste.ravel(), user + rng.random(count)) - user * genres
        liked = np.clip(liked, 0, genres - 1)
        by_taste = rng.random(count) >= mixing
        low = np.where(by_taste, below[first[liked]], 0.0)
        high = np.where(by_taste, below[first[liked + 1]], below[-1])
        item = np.searchsorted(below, low + rng.random(count) * (high - low), side="right") - 1
        fresh = rng.permutation(_fresh(user * items + np.clip(item, 0, items - 1), found))
        found = np.sort(np.concatenate([found, fresh[: edges // 2 - found.size]]))
        if fresh.size < count // 2:
            mixing, weight = _loosened(mixing, weight)
            active = active**0.8
    head, tail = torch.from_numpy(found // items), torch.from_numpy(found % items + users)
    return Data(
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        y=torch.from_numpy(np.concatenate([taste.argmax(axis=1), genre])),
        node_type=torch.arange(users + items).ge(users).long(),
        num_nodes=users + items,
    )


def _check_ratings_graph(*, users: int, items: int, edges: int, genres: int, focus: float, **common: Any) -> None:
    """Refuse parameters that `ratings_graph` can make no graph of."""
    _check_common(users=users, items=items, genres=genres, **common)
    if genres > items:
        raise SettingError(f"'genres' must be at most the number of items, {items} (got {genres})")
    if not 0 < focus < np.inf:
        raise SettingError(f"'focus' must be above 0 and finite (got {focus})")
    if edges % 2 or not 0 < edges // 2 <= users * items // 4:
        raise SettingError(
            f"'edges' must be even, positive and at most {users * items // 4 * 2:,}, a quarter of all pairs of {users:,} users "
            f"and {items:,} items in both directions (got {edges})"
        )


def _loosened(mixing: float, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """Communities and hubs are full: let more edges leave their community and let hubs weigh less."""
    return min(1.0, 2 * mixing + 0.05), weight**0.8


def _fresh(drawn: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Sorted distinct values of ``drawn`` that are not in the sorted ``found``."""
    # By sorting: np.unique hashes integers, and its hash table is several times slower on millions of them.
    drawn = np.sort(drawn)
    keep = np.ones(drawn.size, dtype=bool)
    keep[1:] = drawn[1:] != drawn[:-1]
    drawn = drawn[keep]
    if not found.size:
        return drawn
    position = np.minimum(np.searchsorted(found, drawn), found.size - 1)
    return drawn[found[position] != drawn]


def _check_common(*, mixing: float, exponent: float, seed: int, **counts: float) -> None:
    for name, value in counts.items():
        if value < 1:
            raise SettingError(f"'{name}' must be at least 1 (got {value})")
    if not 0 <= mixing <= 1:
        raise SettingError(f"'mixing' must lie between 0 and 1 (got {mixing})")
    if not 1 < exponent < np.inf:
        raise SettingError(f"'exponent' must be above 1 and finite (got {exponent})")
    if seed < 0:
        raise SettingError(f"'seed' must be at least 0 (got {seed})")


#: Images of digits in scikit-learn.
_IMAGES = 1_797

#: Neighbours to search for beyond the wanted ones, so that ties are broken by id and not by the search tree.
_SPARE = 16


def digits(neighbors: int = 8) -> Data:
    """Make a graph of scikit-learn's images of digits: each is linked to those that look most like it.

    Args:
        neighbors: How many nearest images (Euclidean distance) each image is linked to, in both directions.

    Returns:
        1,797 nodes with 64 pixels, scaled to zero mean and unit variance, and ten classes.

    Raises:
        SettingError: If there are not that many neighbours.

    >>> data = digits()
    >>> data.num_nodes, data.num_features, int(data.y.max()) + 1, data.is_undirected(), data.has_self_loops()
    (1797, 64, 10, True, False)
    """
    _check_digits(neighbors)
    from sklearn.datasets import load_digits
    from sklearn.neighbors import KDTree

    pixels, labels = load_digits(return_X_y=True)
    count = len(pixels)
    # Pixels are whole numbers, so equal distances are exactly equal on every machine.
    distance, found = KDTree(pixels).query(pixels, k=neighbors + 1 + _SPARE)
    distance[found == np.arange(count)[:, None]] = np.inf
    nearest = np.take_along_axis(found, np.lexsort((found, distance)), axis=1)[:, :neighbors]
    head = torch.arange(count).repeat_interleave(neighbors)
    edge_index = to_undirected(torch.stack([head, torch.from_numpy(nearest).reshape(-1)]), num_nodes=count)

    x = torch.from_numpy(pixels)
    x = (x - x.mean(dim=0)) / x.std(dim=0, correction=0).clamp(min=1e-9)
    return Data(x=x.float(), edge_index=edge_index, y=torch.from_numpy(labels).long())


def _check_digits(neighbors: int) -> None:
    most = _IMAGES - _SPARE - 1
    if not 1 <= neighbors <= most:
        raise SettingError(f"'neighbors' must lie between 1 and {most} (got {neighbors})")


#: Functions that make graphs, by the names of their datasets.
MAKERS: dict[str, Callable[..., Data]] = {
    "digits": digits,
    "generated:collab": community_graph,
    "generated:biokg": knowledge_graph,
    "generated:ratings": ratings_graph,
}

#: Functions that refuse parameters of which no graph can be made.
CHECKS: dict[str, Callable[..., None]] = {
    "digits": _check_digits,
    "generated:collab": _check_community_graph,
    "generated:biokg": _check_knowledge_graph,
    "generated:ratings": _check_ratings_graph,
}
