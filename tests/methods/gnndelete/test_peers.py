"""Peers of deleted edges: what deleted ones score beyond them is chance, and no lam is spent on it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.graph.remaining import cut
from gnndelete.methods.gnndelete import peers
from gnndelete.methods.gnndelete.peers import ERRORS, SHARE, _like, _some, chance
from gnndelete.metrics.unseen_test import degrees, edge_degree
from gnndelete.testing import community_graph


class Given(nn.Module):
    """Answers with a vector of each node that no training has seen: it remembers no edge, and some score high by chance."""

    def __init__(self, vectors):
        super().__init__()
        self.vectors = nn.Parameter(vectors, requires_grad=False)

    def forward(self, x, edge_index):
        return self.vectors


@pytest.fixture(scope="module")
def split():
    graph = community_graph(500, 5000, 8, classes=5, community=100, seed=4)
    return gd.datasets.split_links(graph, seed=0, val=0.1, test=0.1)


def context_of(data, split, edges, seed=0):
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    vectors = torch.randn(500, 6, generator=torch.Generator().manual_seed(1))
    unlearner = gd.Unlearner(Given(vectors), data, task=task, method=gd.Unlink(), seed=seed)
    return unlearner._context.for_deletion(gd.Deletion(edges=edges).check(data)), task


def pairs_of(data):
    return data.edge_index[:, data.edge_index[0] < data.edge_index[1]]


def chance_of(split, edges, seed=0, data=None):
    context, task = context_of(split.data if data is None else data, split, edges, seed)
    with torch.no_grad():
        return chance(context, context.model, task, context.deletion.edges, task.validation.positives)


@pytest.fixture
def asked(monkeypatch):
    """The peers of every draw."""
    seen = []
    whole = peers._difference
    monkeypatch.setattr(peers, "_difference", lambda *args: seen.append(args[3][1]) or whole(*args))
    return seen


def test_likely_edges_are_told_from_remembered_ones(split):
    """A model that remembers nothing: what the likeliest edges score above unseen ones is chance, and within bounds."""
    context, _ = context_of(split.data, split, pairs_of(split.data)[:, :1])
    vectors, pairs = context.model.vectors, pairs_of(split.data)
    order = (vectors[pairs[0]] * vectors[pairs[1]]).sum(dim=1).argsort()
    likely, unlikely = (chance_of(split, pairs[:, part]) for part in (order[-100:], order[:100]))
    drawn = 2 * 200
    bound = SHARE * ERRORS * ((1 / 100 + 1 / drawn) / 12) ** 0.5
    assert likely == pytest.approx(bound, rel=0.05), "further from 0 than chance goes, so as far as that"
    assert unlikely == pytest.approx(-bound, rel=0.05)
    generator = torch.Generator().manual_seed(2)
    any_edges = [
        chance_of(split, pairs[:, torch.randperm(pairs.size(1), generator=generator)[:100]], seed) for seed in range(8)
    ]
    assert abs(sum(any_edges) / 8) < bound / 2
    assert chance_of(split, pairs[:, order[-100:]]) == likely, "the same request gives the same answer"


def test_peers_are_as_connected_as_the_deleted_edges(split):
    degree, pairs = degrees(split.data), pairs_of(split.data)
    value = edge_degree(degree, pairs)
    well = value.argsort()[-600:]
    edges, pool = pairs[:, well[::3]], torch.cat([pairs[:, well[1::3]], pairs[:, well[2::3]], pairs[:, :300]], dim=1)
    found = _like(edges, pool, degree, 100)
    assert 90 <= found.size(1) <= 108
    quantiles = torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=value.dtype)
    theirs, mine = (torch.quantile(edge_degree(degree, part), quantiles) for part in (found, edges))
    assert torch.allclose(theirs, mine, atol=0.05)
    assert value.median() < mine[0], "others are less connected"


def test_peers_of_triples_are_of_their_relations():
    pool = torch.stack([torch.arange(40), torch.arange(40) % 4, torch.arange(40).flip(0)])
    found = _like(pool[:, [1, 5]], pool, torch.ones(40, dtype=torch.long), wanted=6)
    assert set(found[1].tolist()) == {1}
    assert found.size(1) == 6


def test_some_edges_are_drawn_once_each():
    edges = torch.arange(200).view(2, 100)
    found = _some(edges, 80, torch.Generator().manual_seed(0))
    assert found.size(1) == found.unique(dim=1).size(1)
    assert torch.isin(found[0], edges[0]).all()
    assert _some(edges[:, :0], 80, torch.Generator()).size() == (2, 0)
    assert _some(edges, 0, torch.Generator()).size() == (2, 0)


@pytest.mark.parametrize("named", ["both ways", "up", "down", "twice"])
def test_peers_are_edges_of_the_graph_that_stay(split, asked, named):
    """Neither deleted nor held out, each once, in whatever direction and beside whatever pairs the model was supervised."""
    data = split.data.clone()
    pairs = pairs_of(data)
    ways = {"both ways": [pairs, pairs.flip(0)], "up": [pairs], "down": [pairs.flip(0)], "twice": [pairs, pairs]}
    data.edge_label_index = torch.cat([*ways[named], split.test], dim=1)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    edges = pairs[:, ::20]
    unlearner = gd.Unlearner(gd.models.GCN(8, hidden=8, out=4), data, task=task)
    before = data.edge_index.clone()
    unlearner.delete(gd.Deletion(edges=edges))
    assert torch.equal(data.edge_index, before)
    assert len(asked) == peers.DRAWS
    keys = {tuple(pair) for pair in pairs.t().tolist()} - {tuple(pair) for pair in edges.t().tolist()}
    for drawn in asked:
        assert {tuple(pair) for pair in drawn.t().tolist()} <= keys
        assert drawn.unique(dim=1).size(1) == drawn.size(1) >= edges.size(1)


def test_parallel_edges_are_one_peer(split, asked):
    data = split.data.clone()
    data.edge_index = data.edge_index.repeat(1, 3)
    chance_of(split, pairs_of(split.data)[:, ::20], data=data)
    assert len(asked) == peers.DRAWS
    assert all(drawn.unique(dim=1).size(1) == drawn.size(1) for drawn in asked)


def test_ends_without_an_edge_of_their_own_are_not_left_alone(split, asked):
    """All edges run from the first half of the nodes to the second, one way."""
    pairs = pairs_of(split.data)
    data = Data(x=split.data.x, edge_index=torch.stack([pairs[0] // 2, 250 + pairs[1] // 2]).unique(dim=1))
    held = gd.datasets.split_links(data, seed=0, val=0.1, test=0.1)
    chance_of(held, held.data.edge_index[:, ::20])
    assert len(asked) == peers.DRAWS
    assert all(drawn.size(1) >= held.data.edge_index[:, ::20].size(1) for drawn in asked)


def test_loops_have_no_peers(split):
    data = split.data.clone()
    data.edge_index = torch.cat([data.edge_index, torch.arange(300).expand(2, 300)], dim=1)
    assert chance_of(split, torch.arange(50).expand(2, 50), data=data) == 0


@pytest.mark.parametrize("share", [0.25, 0.6, 0.9])
def test_where_most_edges_go_too_few_are_left_to_tell(split, share):
    pairs = pairs_of(split.data)
    assert chance_of(split, pairs[:, : int(share * pairs.size(1))]) == 0


@pytest.mark.parametrize("count", [1, 5])
def test_a_handful_of_edges_shows_nothing_of_chance(split, count):
    assert chance_of(split, pairs_of(split.data)[:, :count]) == 0


def test_nobody_is_asked_where_many_edges_go(split, monkeypatch):
    monkeypatch.setattr(peers, "_difference", lambda *args: 0.02)
    edges = pairs_of(split.data)[:, :100]
    assert chance_of(split, edges) == 0.01
    monkeypatch.setattr(peers, "MANY", 99)
    assert chance_of(split, edges) == 0


def test_where_hardly_an_edge_is_left_there_are_no_peers():
    pairs = torch.tensor([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 3), (2, 4)]).t()
    data = Data(x=torch.eye(6), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    task = gd.LinkPrediction(validation=torch.tensor([(0, 3), (1, 4)]).t())
    unlearner = gd.Unlearner(gd.models.GCN(6), data, task=task)
    assert unlearner.delete(gd.Deletion(edges=[(0, 1), (1, 2)])).calibration["target"] == 0.5


def test_the_aim_moves_by_chance_and_the_result_says_so(split, monkeypatch):
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    model = gd.models.GCN(8, hidden=8, out=4)
    edges = pairs_of(split.data)[:, ::20]
    for by_chance, word in ((0.02, "score lower"), (-0.02, "score higher")):
        monkeypatch.setattr("gnndelete.methods.gnndelete.forgetting_score.chance", lambda *args, said=by_chance: said)
        found = gd.Unlearner(model, split.data, task=task).delete(gd.Deletion(edges=edges)).calibration
        assert found["target"] == 0.5 + by_chance
        assert word in found["sentence"]
        assert f"The aim was {0.5 + by_chance:.3f} and not 0.5: " in found["sentence"]


def test_peers_are_cut_beside_all_of_a_mixed_request(split, monkeypatch):
    """Whole rows of features, single columns and what replaces them: the graph that peers are asked on lost these as well."""
    graphs = []
    monkeypatch.setattr(peers, "cut", lambda *args: graphs.append(cut(*args)) or graphs[-1])
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    request = gd.Deletion(edges=pairs_of(split.data)[:, ::20], features=[(5, 1)], fill=2.5) | gd.Deletion(features=[6])
    unlearned = gd.Unlearner(gd.models.GCN(8, hidden=8, out=4), split.data, task=task).delete(request)
    assert len(graphs) == peers.DRAWS
    for graph in graphs:
        assert graph.x[5, 1] == 2.5
        assert not graph.x[6].any()
        assert torch.equal(graph.x, unlearned.data.x)
        assert graph.num_edges < unlearned.data.num_edges
