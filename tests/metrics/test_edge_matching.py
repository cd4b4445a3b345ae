"""What an edge's surroundings let expect of its score, and that only what lies beyond counts as remembered."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.metrics import edge_matching
from gnndelete.metrics.edge_matching import (
    MATCHED_BY_RELATION,
    SurroundingsRegression,
    has_other_edge,
    match_edges,
    surroundings,
)
from gnndelete.metrics.ranking import auc


def random_graph(nodes=60, edges=150, seed=0):
    """An undirected graph with features, a self-loop, parallel edges and an isolated node."""
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(nodes - 1, (2, edges), generator=generator)
    once = torch.cat([once, once[:, :3], torch.tensor([[5], [5]])], dim=1)
    x = torch.randn(nodes, 4, generator=generator)
    return Data(x=x, edge_index=torch.cat([once, once.flip(0)], dim=1), num_nodes=nodes)


def random_pairs(count, nodes=60, seed=1):
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("at_once", [1, edge_matching.FEATURE_CHUNK])
def test_columns_are_what_networkx_counts(monkeypatch, directed, at_once):
    monkeypatch.setattr(edge_matching, "FEATURE_CHUNK", at_once)
    monkeypatch.setattr(edge_matching, "LOOKUP_CHUNK", at_once)
    data = random_graph()
    if directed:
        data.edge_index = data.edge_index[:, : data.edge_index.size(1) // 2]
    graph = nx.Graph(data.edge_index.t().tolist())
    graph.add_nodes_from(range(60))
    pairs = random_pairs(40)
    for (u, v), row in zip(pairs.t().tolist(), surroundings(data, pairs).tolist(), strict=True):
        near = {node: set(graph[node]) for node in (u, v)}
        degree = {node: len(graph[node]) for node in graph}
        own = [np.log1p(degree[node]) for node in (u, v)]
        around = [np.log1p(sum(degree[w] for w in near[node])) for node in (u, v)]
        shared = near[u] & near[v]
        rare = sum(1 / np.log(max(degree[w], 2)) for w in shared)
        mean = {node: torch.stack([data.x[node], *(data.x[w] for w in near[node])]).mean(dim=0) for node in (u, v)}
        alike = [float(torch.cosine_similarity(a, b, dim=0)) for a, b in ((data.x[u], data.x[v]), (mean[u], mean[v]))]
        sums = [part for one, other in (own, around) for part in (one + other, abs(one - other))]
        still = float(graph.has_edge(u, v))
        assert row == pytest.approx([*sums, np.log1p(len(shared)), rare, still, *alike], abs=1e-6)


def test_many_features_are_looked_at_in_parts_and_give_the_same_cosines():
    data = random_graph()
    data.x = torch.randn(60, 2 * edge_matching.FEATURE_COLUMNS + 9, generator=torch.Generator().manual_seed(2))
    data.x[data.x < 1.5] = 0  # mostly zero, as words of papers are
    pairs = random_pairs(40)
    both = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1).unique(dim=1)
    sums = (data.x.double(), data.x.double().index_add(0, both[0], data.x.double()[both[1]]))
    alike = [torch.cosine_similarity(x[pairs[0]], x[pairs[1]]) for x in sums]
    assert torch.allclose(surroundings(data, pairs)[:, -2:], torch.stack(alike, dim=1), rtol=0, atol=1e-6)


def test_large_numbers_are_finite_features():
    data = random_graph()
    data.x = torch.full((60, 4), 60000.0, dtype=torch.half)  # their sum is more than a half can hold
    assert surroundings(data, random_pairs(5))[:, -2:].tolist() == [[pytest.approx(1.0)] * 2] * 5


@pytest.mark.parametrize("x", [None, torch.ones(60, 2, dtype=torch.long), torch.full((60, 2), torch.nan)])
def test_features_that_say_nothing_are_no_columns(x):
    data = random_graph()
    data.x = x
    assert surroundings(data, random_pairs(5)).shape == (5, 7)


def test_what_follows_from_the_surroundings_is_taken_out():
    data, pairs = random_graph(), random_pairs(500)
    columns = surroundings(data, pairs)
    scores = 3 + 2 * columns[:, 0] - columns[:, 4] + 0.5 * columns[:, 7]
    judged = SurroundingsRegression(data, pairs, 100)
    beyond = judged.residuals(scores)
    assert judged.fitted
    assert beyond.abs().quantile(0.95) < 0.05 * scores.std()  # but for pairs far from where the unseen ones are
    remembered = scores.clone()
    remembered[:100] += 1
    torch.testing.assert_close(judged.residuals(remembered)[:100] - beyond[:100], torch.ones(100).double())


def test_poorer_surroundings_are_no_forgetting():
    """Deleted edges that score lower only since their ends have few edges look forgotten to a plain comparison."""
    data, pairs = random_graph(nodes=200), random_pairs(1500, nodes=200, seed=3)
    order = surroundings(data, pairs)[:, 0].argsort()
    chosen = torch.rand(1500, generator=torch.Generator().manual_seed(4)) < torch.linspace(0.3, 0, 1500)
    pairs = torch.cat([pairs[:, order[chosen]], pairs[:, order[~chosen]]], dim=1)  # the poorer, the likelier deleted
    noise = torch.randn(1500, generator=torch.Generator().manual_seed(5)).double()
    scores, deleted = surroundings(data, pairs)[:, 0] + noise, int(chosen.sum())
    beyond = SurroundingsRegression(data, pairs, deleted).residuals(scores)
    plain, adjusted = (auc(s[:deleted].numpy(), s[deleted:].numpy()) for s in (scores, beyond))
    assert plain < 0.42
    assert adjusted == pytest.approx(0.5, abs=0.05)


def test_with_few_held_out_edges_scores_stay_as_they_are():
    data, pairs = random_graph(), random_pairs(60)
    judged, scores = SurroundingsRegression(data, pairs, 20), torch.arange(60.0)
    assert not judged.fitted
    assert judged.residuals(scores) is scores


def test_a_graph_without_edges_or_features_tells_nothing():
    data = Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=60)
    assert not SurroundingsRegression(data, random_pairs(100), 50).fitted


def test_triples_are_compared_by_whether_their_ends_are_joined_otherwise():
    """Triples whose inverse is still there score high in any model; deleted ones have it less often than those held out."""
    nodes = 400
    heads, tails = torch.arange(0, nodes, 2), torch.arange(1, nodes, 2)
    inverse = torch.stack([tails, heads])[:, :120]  # the ends of the first 120 pairs are joined the other way round
    data = Data(edge_index=inverse, edge_type=torch.ones(120, dtype=torch.long), num_nodes=nodes)
    triples = torch.stack([heads, torch.zeros_like(heads), tails])
    deleted, held = triples[:, 100:160], torch.cat([triples[:, :100], triples[:, 160:]], dim=1)
    assert int(has_other_edge(data, deleted).sum()) == 20
    noise = torch.rand(2, 200, generator=torch.Generator().manual_seed(0))
    scores = [has_other_edge(data, part) + 0.1 * noise[row, : part.size(1)] for row, part in enumerate((deleted, held))]
    everyone = torch.arange(nodes)
    others = [torch.stack([everyone, (everyone + step) % nodes]) for step in (2, 4, 6)]  # so that degrees say little
    data.edge_index = torch.cat([inverse, *others], dim=1)
    data.edge_type = torch.cat([data.edge_type, torch.full((3 * nodes,), 2)])
    coarse, fine = match_edges(data, deleted, held, by_surroundings=False), match_edges(data, deleted, held)
    assert (coarse.how, fine.how, fine.matched) == ("", MATCHED_BY_RELATION, 1.0)
    assert coarse.test(*scores).auc < 0.45
    assert fine.test(*scores).auc == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, lambda x: x[:, 0]])
def test_sparse_and_flat_features_are_no_obstacle(make):
    data = random_graph()
    plain = surroundings(data, random_pairs(5)).shape[1]
    data.x = make(data.x)
    assert surroundings(data, random_pairs(5)).shape[1] == plain - (0 if data.x.layout == torch.strided else 2)


def test_surroundings_tell_edges_of_hubs_from_others_and_random_ones_from_none() -> None:
    split = gd.datasets.split_links(gd.datasets.load("digits"), seed=0)
    edges = split.data.edge_index[:, split.data.edge_index[0] < split.data.edge_index[1]]
    degree = torch.bincount(split.data.edge_index[0], minlength=split.data.num_nodes)
    ranked = edges[:, degree[edges].sum(dim=0).argsort(stable=True)]
    for chosen, told in (
        (ranked[:, -200:], True),
        (ranked[:, torch.randperm(ranked.size(1), generator=torch.manual_seed(0))[:200]], False),
    ):
        rest = gd.Unlearner(gd.models.GCN(64), split.data, task="link", method="unlink").delete(
            gd.Deletion(edges=chosen)
        )
        found = match_edges(rest.data, chosen, split.test).regression.kind_auc()
        assert (found is not None) == told
        assert found is None or 0.7 < found <= 1
    assert match_edges(rest.data, chosen[:, :3], split.test).regression.kind_auc() is None  # too few to tell
