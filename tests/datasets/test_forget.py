"""Forget sets: where they are drawn from, how many, and that a seed means the same set."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, is_undirected, k_hop_subgraph, to_undirected

import gnndelete as gd
from gnndelete.datasets import communities, load
from gnndelete.datasets.forget import edge_pool, forget_edges, forget_nodes, training_edges
from gnndelete.errors import DeletionError, SettingError


@st.composite
def graphs(draw):
    nodes = draw(st.integers(4, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    edges = torch.randint(nodes, (2, draw(st.integers(1, 50))), generator=generator)
    if draw(st.booleans()):
        edges = to_undirected(edges, num_nodes=nodes)
    test = torch.randint(nodes, (2, 2), generator=generator)
    return Data(edge_index=edges, num_nodes=nodes), test


@given(graphs())
def test_training_edges_are_each_edge_once(case):
    data, _ = case
    pairs = {tuple(pair) for pair in data.edge_index.t().tolist()}
    if is_undirected(coalesce(data.edge_index), num_nodes=data.num_nodes):
        expected = sorted((u, v) for u, v in pairs if u < v)
    else:
        expected = sorted((u, v) for u, v in pairs if u != v)
    assert [tuple(pair) for pair in training_edges(data).t().tolist()] == expected


@given(graphs(), st.sampled_from(["undirected", "directed"]), st.integers(0, 3))
def test_the_pool_has_both_ends_near_a_test_edge(case, hops, reach):
    data, test = case
    edges = data.edge_index
    if hops == "undirected":
        edges = to_undirected(edges, num_nodes=data.num_nodes)
    elif is_undirected(coalesce(edges), num_nodes=data.num_nodes):
        edges = edges[:, edges[0] < edges[1]]
    near = set(k_hop_subgraph(test.flatten(), reach, edges, num_nodes=data.num_nodes)[0].tolist())
    expected = [u in near and v in near for u, v in training_edges(data).t().tolist()]
    assert edge_pool(data, test, hops, reach).tolist() == expected


@pytest.mark.parametrize("where", ["random", "in", "out"])
def test_a_draw_is_a_set_of_edges_from_its_pool(graph, where):
    test = torch.tensor([[0, 1], [3, 5]])
    drawn = forget_edges(graph, 6, where, test=test, seed=3)
    assert torch.equal(drawn, forget_edges(graph, 6, where, test=test, seed=3))
    assert not torch.equal(drawn, forget_edges(graph, 6, where, test=test, seed=4))
    assert gd.Deletion(edges=drawn).check(graph).counts == {"edges": 6}
    pairs = [tuple(pair) for pair in training_edges(graph).t().tolist()]
    inside = edge_pool(graph, test)[[pairs.index(tuple(pair)) for pair in drawn.t().tolist()]]
    if where != "random":
        assert (inside if where == "in" else ~inside).all()


def test_shares_and_numbers(graph):
    total = training_edges(graph).size(1)
    assert forget_edges(graph, 0.1).size(1) == round(0.1 * total)
    assert forget_edges(graph, total).size(1) == total
    for amount in (0, -1, total + 1, 0.0, 1e-9):
        with pytest.raises(SettingError, match=f"between 1 and {total} .got {amount!r}"):
            forget_edges(graph, amount)


def test_bad_requests(graph):
    with pytest.raises(SettingError, match=r"'where' must be .*'near'"):
        forget_edges(graph, 2, "near")
    with pytest.raises(SettingError, match="pass test="):
        forget_edges(graph, 2, "in")
    with pytest.raises(DeletionError, match=r"only \d+ edges are IN with hops='undirected', and 40 are asked for"):
        forget_edges(graph, 40, "in", test=torch.tensor([[0], [1]]))


def test_nodes_come_from_the_training_nodes(graph):
    drawn = forget_nodes(graph, 7, seed=1)
    assert drawn.unique().numel() == 7
    assert graph.train_mask[drawn].all()
    assert torch.equal(drawn, forget_nodes(graph, 7, seed=1))
    assert not torch.equal(drawn, forget_nodes(graph, 7, seed=2))
    del graph.train_mask
    assert forget_nodes(graph, 48).tolist() == list(range(48))
    with pytest.raises(SettingError, match="between 1 and 48"):
        forget_nodes(graph, 49)


def test_hubs_and_communities():
    data = load("digits")
    degree = torch.bincount(data.edge_index[0])
    hubs = forget_edges(data, 50, "hubs", seed=1)
    usual = forget_edges(data, 50, "random", seed=1)
    assert degree[hubs].sum() > 1.5 * degree[usual].sum()
    label = communities(data, seed=1)
    assert torch.equal(label, communities(data, seed=1))
    assert 1 < int(label.max()) + 1 < data.num_nodes / 4
    together = forget_edges(data, 50, "community", seed=1)
    assert torch.equal(label[together[0]], label[together[1]])
    assert label[together[0]].unique().numel() < label[usual[0]].unique().numel()
