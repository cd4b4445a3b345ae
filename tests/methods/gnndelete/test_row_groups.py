"""Which rows share a map."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete.nn.operator import LinearMap

STAR = gd.Deletion(edges=[(2, 5), (5, 6), (5, 7), (20, 22)])  # node 5 is in three deleted edges


def solved(model, data, deletion, **settings):
    """The problems that a deletion solves, in order, and its result."""
    problems = []
    method = gd.GNNDelete(**settings, watch=lambda site, problem, apply: problems.append((site.layer, problem, apply)))
    return problems, gd.Unlearner(model, data, method=method).delete(deletion)


def within(deletion, hops, data):
    seeds = torch.cat([deletion.edges.flatten(), deletion.nodes])
    return k_hop_subgraph(seeds, hops, data.edge_index, num_nodes=data.num_nodes)[0].sort().values


def test_one_operator_per_ring(graph, gcn):
    problems, unlearned = solved(gcn, graph, STAR)
    assert [layer for layer, *_ in problems] == ["convs.0", "convs.1", "convs.1"], "outer rings rest at the first layer"
    ring = within(STAR, 0, graph)
    near = within(STAR, 2, graph)
    assert problems[1][1].rows.tolist() == ring.tolist()
    outer = problems[2][1]
    assert outer.rows.tolist() == near[~torch.isin(near, ring)].tolist()
    assert outer.a is None, "nothing pulls them"
    assert float(outer.b.sum()) == pytest.approx(1)
    assert [operator.sizes for _, operator in unlearned.adapter.operators] == [[6], [6, outer.rows.numel()]]


@pytest.mark.parametrize("settings", [{"operator": "shared"}, {"operator": lambda width: LinearMap(width)}])
def test_one_shared_operator(graph, gcn, settings):
    if callable(settings["operator"]):
        settings |= {"solver": "gradient", "epochs": 2}
    problems, _ = solved(gcn, graph, STAR, lam=0.25, **settings)
    assert [layer for layer, *_ in problems] == ["convs.0", "convs.1"]
    for hops, (_, problem, _) in enumerate(problems, start=1):
        assert problem.rows.tolist() == within(STAR, hops, graph).tolist()
        assert (float(problem.a.sum()), float(problem.b.sum())) == pytest.approx((0.25, 0.75))
        assert problem.b.unique().numel() == 1
