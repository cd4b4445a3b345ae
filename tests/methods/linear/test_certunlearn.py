"""CertUnlearn: the Newton step, the budget it spends, and what is claimed for it."""

from __future__ import annotations

import math

import pytest
import torch

import gnndelete as gd
from gnndelete.errors import RunError, SettingError
from gnndelete.methods.linear import certunlearn
from gnndelete.methods.linear.certunlearn import CertUnlearn, standardised

PAIRS = torch.cartesian_prod(torch.arange(48), torch.arange(48)).t()


@pytest.fixture(scope="module")
def digits():
    return gd.datasets.split_nodes(gd.datasets.load("digits"), seed=1)


def unlearner(model, data, task="node", seed=0, **options):
    return gd.Unlearner(model, data, task=task, method=CertUnlearn(own_model=True, **options), seed=seed)


def state(unlearner):
    (found,) = unlearner._context.memory.values()
    return found


def every(data, step, offset=0):
    return data.edge_index[:, data.edge_index[0] < data.edge_index[1]][:, offset::step]


def dense_z(data, deleted=()):
    """P^2 X on a graph by dense matrices, the statistics over the nodes that are there."""
    n = data.num_nodes
    alive = torch.ones(n, dtype=torch.bool)
    alive[list(deleted)] = False
    x = data.x.double()
    varies = x[alive].amax(dim=0) > x[alive].amin(dim=0)
    x = (x - x[alive].mean(dim=0)) / x[alive].std(dim=0, correction=0)
    x[~alive], x[:, ~varies] = 0, 0
    x = x / x.norm(dim=1).max()
    a = torch.eye(n, dtype=torch.float64)
    a[data.edge_index[0], data.edge_index[1]] = 1
    p = a / a.sum(dim=1, keepdim=True)
    return p @ p @ x


def test_the_budget():
    assert CertUnlearn().budget == pytest.approx(0.1 / math.sqrt(2 * math.log(15_000)))
    assert CertUnlearn(alpha=0.3, epsilon=2, delta=0.01).budget == pytest.approx(0.6 / math.sqrt(2 * math.log(150)))
    for wrong in ({"alpha": 0}, {"epsilon": -1}, {"delta": 0}, {"delta": 1.0}):
        with pytest.raises(SettingError, match=f"'{next(iter(wrong))}'"):
            CertUnlearn(**wrong).check()


@pytest.mark.parametrize("task", ["node", "link"])
@pytest.mark.parametrize("kind", ["edges", "nodes"])
def test_the_step_lowers_the_gradient_a_hundred_times_and_stays_below_its_bound(digits, task, kind):
    request = gd.Deletion(edges=every(digits, 400)) if kind == "edges" else gd.Deletion(nodes=[5, 100, 999])
    certified = unlearner(gd.models.GCN(64), digits, task)
    unlearned = certified.delete(request)
    details = unlearned.details
    assert not details["retrained"]
    assert details["gradient_after"] * 100 < details["gradient_before"]
    assert details["gradient_after"] <= details["spent"] * (1 + 1e-6) + 1e-12
    assert 0 < details["spent"] <= details["budget"]
    # the gradient again, from the definition: dense features of the remaining graph, autograd, the noise of the fit
    now = state(certified)
    z = dense_z(unlearned.data, request.nodes.tolist())
    rows = now.objective.rows
    z = z[rows.ends[0]] if task == "node" else z[rows.ends[0]] * z[rows.ends[1]]
    w = now.weight.clone().requires_grad_()
    y = 2.0 * torch.nn.functional.one_hot(rows.target, 10) - 1 if task == "node" else rows.target[:, None].double()
    mean = -torch.nn.functional.logsigmoid(y * (z @ w)).sum() / len(rows) + 0.005 * w.square().sum()
    mean = mean + (now.noise * w).sum() / len(rows)
    (slope,) = torch.autograd.grad(mean, w)
    assert float(slope.norm()) * len(rows) == pytest.approx(details["gradient_after"], rel=1e-3, abs=1e-10)


@pytest.mark.parametrize("deletion", [gd.Deletion(edges=[(3, 4)]), gd.Deletion(nodes=[9], edges=[(20, 22)])])
def test_features_are_those_of_the_remaining_graph(graph, deletion):
    graph.x[9] = 40.0  # an outlier rules the statistics for as long as it is there
    certified = unlearner(gd.models.GCN(6, out=5), graph)
    unlearned = certified.delete(deletion)
    expected = dense_z(unlearned.data, deletion.nodes.tolist())
    torch.testing.assert_close(state(certified).objective.nodes, expected, atol=1e-14, rtol=0)
    if deletion.nodes.numel():
        assert not state(certified).objective.nodes[9].any()
        other = graph.__copy__()
        other.x = graph.x.index_fill(0, torch.tensor([9]), -7.0)
        again = unlearner(gd.models.GCN(6, out=5), other)
        again.delete(deletion)
        assert torch.equal(state(again).objective.nodes, state(certified).objective.nodes), (
            "a deleted node leaves nothing"
        )


def test_standardisation_survives_constant_columns():
    x = torch.tensor([[1e8 / 3, 2.0], [1e8 / 3, 4.0]], dtype=torch.float64)
    assert standardised(x, torch.ones(2, dtype=torch.bool)).tolist() == [[0.0, -1.0], [0.0, 1.0]]


def test_spending_adds_up_until_the_model_is_trained_again(digits):
    certified = unlearner(gd.models.GCN(64), digits, alpha=1e-4)
    budget, spent, noise, levels = CertUnlearn(alpha=1e-4).budget, 0.0, None, []
    for index in range(30):
        unlearned = certified.delete(gd.Deletion(edges=every(digits, 240, offset=index)))
        details = unlearned.details
        levels.append(unlearned.assurance)
        if details["retrained"]:
            break
        assert spent < details["spent"] <= budget
        assert details["requests_since_fit"] == index + 1
        spent, noise = details["spent"], state(certified).noise
    assert levels[0] == "certified"
    assert levels[-1] == "retrained"
    assert len(levels) > 2, "several requests fit into this budget"
    assert details["would_have_spent"] > budget
    assert details["spent"] < budget / 100
    assert details["requests_since_fit"] == 0
    assert not torch.allclose(state(certified).noise, noise), "fresh noise"
    assert any("trained again" in note.text for note in unlearned.notes)
    after = certified.delete(gd.Deletion(edges=every(digits, 240, offset=100)))
    assert after.assurance == "certified", "and spending starts anew"


def test_a_request_that_is_too_large_is_not_stepped(digits):
    edges = every(digits, 2)
    small = unlearner(gd.models.GCN(64), digits, alpha=1e-3).delete(gd.Deletion(edges=edges[:, :3]))
    large = unlearner(gd.models.GCN(64), digits, alpha=1e-3).delete(gd.Deletion(edges=edges))
    assert (small.details["retrained"], large.details["retrained"]) == (False, True)
    assert large.assurance == "retrained"
    assert large.details["gradient_after"] < 1e-8


def test_retraining_is_a_fit_of_the_remaining_graph(graph):
    """With hardly any noise and so hardly any budget the weights are those of the remaining graph."""
    request = gd.Deletion(nodes=[9])
    certified = unlearner(gd.models.GCN(6, out=5), graph, alpha=1e-6)
    assert certified.delete(request).details["retrained"]
    now = state(certified)
    z = dense_z(request.remaining(graph), [9])[now.objective.rows.ends[0]]
    y = 2.0 * torch.nn.functional.one_hot(now.objective.rows.target, 5).double() - 1
    slope = z.t() @ (-y * torch.sigmoid(-y * (z @ now.weight))) + 0.01 * len(y) * now.weight
    assert float(slope.norm()) == pytest.approx(float(now.noise.norm()), rel=1e-3)
    with pytest.raises(RunError, match=r"did not converge.*raise"):
        unlearner(gd.models.GCN(6, out=5), graph, alpha=1e-30).delete(request)


def test_links_claim_no_certificate(graph):
    unlearned = unlearner(gd.models.GCN(6), graph, "link").delete(gd.Deletion(edges=[(3, 4)]))
    assert not unlearned.details["retrained"]
    assert unlearned.assurance == "approximate"
    assert any("Our construction" in note.text for note in unlearned.notes)
    assert not any("Certified" in note.text for note in unlearned.notes)
    nodes = unlearner(gd.models.GCN(6, out=5), graph, alpha=10.0).delete(gd.Deletion(edges=[(3, 4)]))
    assert nodes.assurance == "certified"
    (claim,) = [note for note in nodes.notes if note.text.startswith("Certified")]
    assert "epsilon=1, delta=0.0001" in claim.text
    assert "keep the seed secret" in claim.text


def test_a_failed_request_spends_nothing(graph, monkeypatch):
    certified = unlearner(gd.models.GCN(6, out=5), graph, alpha=10.0)
    certified.delete(gd.Deletion(edges=[(3, 4)]))
    before = state(certified)
    with monkeypatch.context() as patch:
        patch.setattr(certunlearn.CertUnlearn, "_notes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            certified.delete(gd.Deletion(edges=[(5, 7)]))
    assert state(certified) is before
    assert certified.delete(gd.Deletion(edges=[(5, 7)])).details["requests_since_fit"] == 2


def test_the_same_seed_gives_the_same_model_and_the_user_is_left_alone(graph, gcn, snapshot):
    before = snapshot(gcn, graph)

    def scores(seed):
        return unlearner(gcn, graph, "link", seed=seed).delete(gd.Deletion(edges=[(3, 4)], nodes=[9])).predict(PAIRS)

    assert torch.equal(scores(1), scores(1))
    assert not torch.allclose(scores(1), scores(2))
    assert snapshot(gcn, graph) == before
    unlearned = unlearner(gcn, graph).delete(gd.Deletion(nodes=[9]))
    assert unlearned.model is None
    assert unlearned.predict([0, 1]).sum(dim=1).tolist() == pytest.approx([1, 1])
    assert any("'Stack' play no part" in note.text for note in unlearned.notes)


def test_digits(digits):
    split = gd.datasets.split_links(digits, seed=1)
    task = gd.LinkPrediction(validation=split.validation, test=split.test, test_negatives=split.test_negatives)
    request = gd.Deletion(edges=every(split.data, 40), nodes=[7])
    assert unlearner(gd.models.GCN(64), split.data, task).delete(request).evaluate()["test_auroc"] > 0.95
    assert unlearner(gd.models.GCN(64), digits).delete(gd.Deletion(nodes=[7])).evaluate()["test_accuracy"] > 0.9
