"""The weights and targets of the objective, as a deletion sets them."""

from __future__ import annotations

import pytest
import torch

import gnndelete as gd

STAR = gd.Deletion(edges=[(2, 5), (5, 6), (5, 7), (20, 22)])  # node 5 is in three deleted edges


def solved(model, data, deletion, **settings):
    """The problems that a deletion solves, in order, and its result."""
    problems = []
    method = gd.GNNDelete(**settings, watch=lambda site, problem, apply: problems.append((site.layer, problem, apply)))
    return problems, gd.Unlearner(model, data, method=method).delete(deletion)


def layer_outputs(model, data):
    """What each graph layer of a two-layer stack returns."""
    seen = []
    handles = [conv.register_forward_hook(lambda m, a, out: seen.append(out)) for conv in model.convs]
    with torch.no_grad():
        model.eval()(data.x, data.edge_index)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("lam", [0.3, 1.0])
def test_a_node_in_three_deleted_edges_counts_three_times(graph, gcn, lam):
    problems, _ = solved(gcn, graph, STAR, lam=lam)
    ends = {2: 1, 5: 3, 6: 1, 7: 1, 20: 1, 22: 1}
    for _, problem, _ in (p for p in problems if p[1].a is not None):
        assert problem.rows.tolist() == sorted(ends)
        expected = torch.tensor([lam * ends[row] / 8 for row in sorted(ends)])
        torch.testing.assert_close(problem.a.float(), expected)
        torch.testing.assert_close(problem.b.float(), torch.full((6,), (1 - lam) / 6))  # each row once


def test_both_directions_and_repeats_do_not_count_twice(graph, gcn):
    again = gd.Deletion(edges=[(5, 2), (2, 5), (5, 6), (6, 5), (5, 7), (22, 20), (20, 22)])
    a, b = (gd.Unlearner(gcn, graph).delete(deletion) for deletion in (STAR, again))
    assert torch.equal(a.output(), b.output())


@pytest.mark.parametrize("targets", ["remaining", "original"])
def test_targets_come_from_the_base_model_on_the_graph_that_was_asked_for(graph, gcn, targets):
    problems, unlearned = solved(gcn, graph, STAR, operator="shared", targets=targets)
    base = layer_outputs(gcn, graph if targets == "original" else unlearned.data)
    for h, (_, problem, _) in zip(base, problems, strict=True):
        keep = problem.h[problem.rows] if problem.t is None else problem.t
        torch.testing.assert_close(keep, h[problem.rows])
        torch.testing.assert_close(problem.mu.float(), h.mean(dim=0))
    assert (problems[0][1].t is None) == (targets == "remaining"), "there, first rows are their own targets"


def test_deleted_nodes_are_pulled_away_and_kept_by_nothing(graph, gcn):
    """As they are served: blank. What they would say if presented again has both pulls, weighed by lam."""
    deletion = gd.Deletion(edges=[(20, 22)], nodes=[9, 30])
    full = layer_outputs(gcn, graph)
    for operator in ("ring", "shared"):
        problems, unlearned = solved(gcn, graph, deletion, operator=operator, lam=0.4)
        alive = torch.ones(48, dtype=torch.bool).index_fill(0, torch.tensor([9, 30]), False)
        base = layer_outputs(gcn, unlearned.data)
        seen = 0
        for layer, problem, _ in problems:
            torch.testing.assert_close(problem.mu.float(), base[int(layer[-1])][alive].mean(dim=0))
            if problem.h.size(0) == 48:
                dead = ~alive[problem.rows]
                assert not problem.b[dead].any()
                assert (problem.b[~dead] > 0).all()
                assert not dead.any() or (problem.a[dead] > 0).all()
                seen += int(dead.sum())
                continue
            assert (problem.b > 0).tolist() == [False, False, True, True]
            assert (problem.a > 0).all()
            torch.testing.assert_close(problem.h[2:], full[int(layer[-1])][[9, 30]])
            torch.testing.assert_close((problem.a[2:] / problem.b[2:]).float(), torch.full((2,), 0.4 / 0.6))
            seen += 2
        assert seen == 4


def test_lam_leads_deleted_nodes_from_their_old_self_to_the_mean_when_they_are_presented_again(graph, gcn):
    nodes = [9, 30]
    away = []
    for lam in (0.01, 0.3, 0.9):
        unlearned = gd.Unlearner(gcn, graph, method=gd.GNNDelete(lam=lam)).delete(gd.Deletion(nodes=nodes))
        with torch.no_grad():
            change = unlearned.model(graph.x, graph.edge_index) - gcn(graph.x, graph.edge_index)
        away.append(float(change[nodes].norm()))
    assert away == sorted(away)
    assert away[0] < away[-1] / 10


@pytest.mark.parametrize("lam", [0.5, 1.0])
@pytest.mark.parametrize("nodes", [[9], [9, 10, 30]])
def test_rows_of_deleted_nodes_move_to_the_mean_of_the_others_at_each_layer(graph, gcn, nodes, lam):
    unlearned = gd.Unlearner(gcn, graph, method=gd.GNNDelete(lam=lam)).delete(gd.Deletion(nodes=nodes))
    after = []
    for _, operator in unlearned.adapter.operators:
        operator.register_forward_hook(lambda m, a, out: after.append(out))
    unlearned.output()
    alive = torch.ones(48, dtype=torch.bool).index_fill(0, torch.tensor(nodes), False)
    for h, base in zip(after, layer_outputs(gcn, unlearned.data), strict=True):
        mean = base[alive].mean(dim=0)
        torch.testing.assert_close(h[nodes], mean.expand(len(nodes), -1), rtol=1e-3, atol=1e-3)
        assert not torch.allclose(base[nodes], mean.expand(len(nodes), -1), atol=1e-2)


def test_lam_moves_endpoints_towards_the_mean(graph, gcn, run):
    distance = []
    for lam in (0.0, 0.05, 0.5, 1.0):
        _, unlearned = solved(gcn, graph, STAR, lam=lam)
        out = run(unlearned.model, unlearned.data)
        base = layer_outputs(gcn, unlearned.data)[1]
        distance.append(float((out - base.mean(dim=0))[[2, 5, 6, 7, 20, 22]].square().sum()))
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 0.01 * distance[0]
