"""Generated graphs: exact counts, heavy tails, structure that can be learnt, and the same for the same seed."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnndelete.datasets import describe, load, split_links
from gnndelete.datasets.generated import community_graph, digits, knowledge_graph, ratings_graph
from gnndelete.errors import SettingError
from gnndelete.models import GCN
from gnndelete.tasks import LinkPrediction
from gnndelete.training.loop import train


def heavy(degree: Tensor) -> bool:
    """A tail that no narrow distribution has: the top percent holds several times its share, a hub ten times the mean."""
    top = degree.float().sort(descending=True).values
    return bool(top[: len(top) // 100].sum() > 0.05 * top.sum() and top[0] > 10 * top.mean())


@settings(max_examples=40)
@given(st.integers(3, 60), st.floats(0.01, 1), st.floats(0, 1), st.integers(1, 80), st.integers(0, 5))
def test_community_graph_counts(nodes: int, fill: float, mixing: float, community: int, seed: int) -> None:
    edges = 2 * max(1, int(fill * (nodes * (nodes - 1) // 4)))
    data = community_graph(nodes, edges, 3, community=community, mixing=mixing, seed=seed)
    assert (data.num_nodes, data.num_edges, data.num_features) == (nodes, edges, 3)
    assert data.is_undirected()
    assert data.is_coalesced() or data.coalesce().num_edges == edges
    assert not data.has_self_loops()
    again = community_graph(nodes, edges, 3, community=community, mixing=mixing, seed=seed)
    assert torch.equal(data.edge_index, again.edge_index)
    assert torch.equal(data.x, again.x)


@settings(max_examples=40)
@given(st.integers(20, 80), st.integers(1, 9), st.floats(0, 1), st.floats(0, 1), st.integers(1, 90), st.integers(0, 5))
def test_knowledge_graph_counts(
    entities: int, relations: int, fill: float, mixing: float, community: int, seed: int
) -> None:
    kinds = torch.tensor([0.48, 0.19, 0.12, 0.11, 0.10]) * entities
    triples = relations + int(fill * max(0, relations * float(kinds.min() - 1) ** 2 / 4 - relations))
    data = knowledge_graph(entities, triples, relations, community=community, mixing=mixing, seed=seed)
    assert (data.num_nodes, data.num_edges) == (entities, triples)
    assert data.edge_type.unique().tolist() == list(range(relations))
    assert torch.cat([data.edge_index, data.edge_type[None]]).unique(dim=1).size(1) == triples
    assert not data.has_self_loops()
    assert int(data.edge_index.max()) < entities
    again = knowledge_graph(entities, triples, relations, community=community, mixing=mixing, seed=seed)
    assert torch.equal(data.edge_index, again.edge_index)
    assert torch.equal(data.edge_type, again.edge_type)


@settings(max_examples=40)
@given(
    st.integers(2, 40), st.integers(6, 60), st.floats(0.01, 1), st.integers(1, 6), st.floats(0, 1), st.integers(0, 5)
)
def test_ratings_graph_counts(users: int, items: int, fill: float, genres: int, mixing: float, seed: int) -> None:
    edges = 2 * max(1, int(fill * (users * items // 4)))
    data = ratings_graph(users, items, edges, genres=genres, mixing=mixing, seed=seed)
    assert (data.num_nodes, data.num_edges) == (users + items, edges)
    assert data.is_undirected()
    assert data.coalesce().num_edges == edges
    user, item = data.edge_index[:, : edges // 2]
    assert int(user.max()) < users <= int(item.min())
    assert data.y[users:].unique().tolist() == list(range(genres))
    assert torch.equal(
        data.edge_index, ratings_graph(users, items, edges, genres=genres, mixing=mixing, seed=seed).edge_index
    )


def test_users_like_their_genre_and_what_is_popular() -> None:
    data = ratings_graph(seed=3)
    user, item = data.edge_index[:, data.edge_index[0] < 600]
    assert float((data.y[user] == data.y[item]).float().mean()) > 0.25  # by chance 1 of 12
    popular = item.bincount()[600:].sort(descending=True).values
    assert popular[:110].sum() > 0.3 * popular.sum()


def test_another_seed_is_another_graph() -> None:
    assert not torch.equal(
        community_graph(99, 400, 3, seed=0).edge_index, community_graph(99, 400, 3, seed=1).edge_index
    )
    one, other = (knowledge_graph(99, 400, 3, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.edge_index, other.edge_index)


def test_heavy_tails_and_communities() -> None:
    data = community_graph(20_000, 200_000, 4, seed=0)
    assert heavy(data.edge_index[0].bincount(minlength=20_000))
    typed = knowledge_graph(9_000, 200_000, 20, seed=0)
    assert heavy(typed.edge_index.reshape(-1).bincount(minlength=9_000))
    sizes = typed.edge_type.bincount().sort(descending=True).values
    assert sizes[0] > 5 * sizes[-1]
    head, tail = typed.node_type[typed.edge_index]
    for relation in range(20):  # one kind to one kind
        chosen = typed.edge_type == relation
        assert head[chosen].unique().numel() == tail[chosen].unique().numel() == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: community_graph(10, 7, 2), "'edges' must be even"),
        (lambda: community_graph(10, 80, 2), "'edges'.*sparse"),
        (lambda: community_graph(0, 2, 2), "'nodes' must be at least 1"),
        (lambda: community_graph(10, 6, 2, mixing=2), "'mixing'"),
        (lambda: community_graph(10, 6, 2, exponent=1), "'exponent'"),
        (lambda: knowledge_graph(100, 3, 5), r"'triples'.*\(5\)"),
        (lambda: knowledge_graph(100, 100_000, 5), "'triples'.*got 100000"),
        (lambda: knowledge_graph(5, 5, 5), "'entities' must be at least 20"),
    ],
)
def test_impossible_sizes(call, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()


@pytest.mark.slow
def test_links_can_be_learnt() -> None:
    """The structure of ``generated:collab``, at a twentieth of its size."""
    split = split_links(community_graph(10_000, 100_000, seed=0), seed=0)
    task = LinkPrediction(
        validation=split.validation,
        test=split.test,
        validation_negatives=split.validation_negatives,
        test_negatives=split.test_negatives,
    )
    result = train(GCN(128, hidden=64, out=32), split.data, task, epochs=60, lr=0.01)
    assert result.best_score is not None
    assert result.best_score > 0.85


@pytest.mark.slow
def test_full_size_in_time() -> None:
    started = time.perf_counter()
    data = community_graph()
    assert (data.num_nodes, data.num_edges, data.num_features) == (235_868, 2_358_104, 128)
    assert time.perf_counter() - started < 30
    started = time.perf_counter()
    data = knowledge_graph()
    assert (data.num_nodes, data.num_edges) == (93_773, 5_088_434)
    assert time.perf_counter() - started < 60
    assert data.edge_type.unique().numel() == 51
    key = (data.edge_type * data.num_nodes + data.edge_index[0]) * data.num_nodes + data.edge_index[1]
    assert bool((key.diff() > 0).all())  # sorted, and so distinct


def test_digits() -> None:
    data = digits()
    entry = describe()[0]
    found = (data.num_nodes, data.num_edges, data.num_features, int(data.y.max()) + 1)
    assert found == (entry.nodes, entry.edges, entry.features, entry.classes)
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert int(data.edge_index[0].bincount().min()) >= 8
    assert torch.equal(data.edge_index, digits().edge_index)
    assert data.x.mean().abs() < 1e-6
    same = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    assert same.float().mean() > 0.95  # images that look alike mostly show the same digit


def test_digits_neighbors() -> None:
    assert digits(neighbors=3).num_edges < digits(neighbors=8).num_edges
    assert load("digits?neighbors=3").num_edges == digits(neighbors=3).num_edges
    with pytest.raises(SettingError, match="'neighbors'"):
        digits(neighbors=0)
