"""Propagated features against dense matrices, and how far a change of the graph reaches."""

from __future__ import annotations

import pytest
import torch

import gnndelete as gd
from gnndelete.methods.linear import features
from gnndelete.methods.linear.features import Adjacency, project, propagate, propagate_again, reached


def dense(edge_index, nodes):
    matrix = torch.zeros(nodes, nodes, dtype=torch.float64)
    matrix[edge_index[0], edge_index[1]] = 1
    matrix = ((matrix + matrix.t()) > 0).double()
    return matrix.fill_diagonal_(0)


@pytest.fixture
def messy():
    """One direction only for some edges, parallel copies and self-loops."""
    edges = torch.randint(0, 30, (2, 90), generator=torch.Generator().manual_seed(3))
    return torch.cat([edges, edges[:, :10], torch.tensor([[4, 5], [4, 5]])], dim=1)


def test_p_averages_over_a_simple_undirected_graph(messy):
    x = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a = dense(messy, 30) + torch.eye(30, dtype=torch.float64)
    p = a / a.sum(dim=1, keepdim=True)
    adjacency = Adjacency(messy, 30)
    for power, level in enumerate(propagate(adjacency, x, 3)):
        torch.testing.assert_close(level, torch.linalg.matrix_power(p, power) @ x, atol=1e-14, rtol=0)
    rows = torch.tensor([7, 2, 29])
    torch.testing.assert_close(adjacency.average(x, rows), (p @ x)[rows], atol=1e-14, rtol=0)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_common_neighbors(messy, chunk, monkeypatch):
    monkeypatch.setattr(features, "CHUNK_NEIGHBORS", chunk)
    a = dense(messy, 30)
    pairs = torch.cartesian_prod(torch.arange(30), torch.arange(30)).t()
    assert torch.equal(Adjacency(messy, 30).common_neighbors(pairs), (a @ a).long().flatten())
    assert Adjacency(messy, 30).common_neighbors(pairs[:, :0]).numel() == 0


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("deletion", [{"edges": [(3, 4)]}, {"nodes": [9]}, {"edges": [(20, 22)], "nodes": [30, 47]}])
def test_only_what_is_reached_changes_and_all_of_it_is_recomputed(graph, hops, deletion):
    deletion = gd.Deletion(**deletion)
    remaining = deletion.remaining(graph)
    old, new = Adjacency(graph.edge_index, 48), Adjacency(remaining.edge_index, 48)
    before, fresh = propagate(old, graph.x.double(), hops), propagate(new, remaining.x.double(), hops)
    rows = reached(old, new, deletion.nodes, hops)
    assert torch.equal(rows, reached(new, old, deletion.nodes, hops)), "either way"
    differs = (before[-1] != fresh[-1]).any(dim=1).nonzero().flatten()
    assert set(differs.tolist()) <= set(rows.tolist())
    assert rows.numel() < 30, "the graph is long and thin"
    kept = [level.clone() for level in before]
    for again, level in zip(propagate_again(new, remaining.x.double(), before, rows), fresh, strict=True):
        torch.testing.assert_close(again, level, atol=1e-15, rtol=0)
    assert all(torch.equal(a, b) for a, b in zip(before, kept, strict=True))


def test_wide_features_are_projected_by_the_seed_alone():
    x = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(project(x, 50, seed=1), x.double())
    small = project(x, 8, seed=1)
    assert small.shape == (20, 8)
    assert torch.equal(small[3:5], project(x[3:5], 8, seed=1)) or torch.allclose(small[3:5], project(x[3:5], 8, seed=1))
    assert not torch.allclose(small, project(x, 8, seed=2))
    torch.testing.assert_close(project(x.to_sparse(), 8, seed=1), small)
    assert torch.equal(project(x.to_sparse(), 50, seed=1), x.double())
