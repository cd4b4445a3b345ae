"""Retraining: a new model that has never seen what was deleted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gnndelete as gd
from gnndelete.errors import ModelError, SettingError

DELETION = gd.Deletion(edges=[(3, 4)], nodes=[9])


def test_it_trains_on_the_remaining_graph_alone(graph, gcn, snapshot):
    before = snapshot(gcn, graph)
    seen = []

    def fit(model, data, seed):
        seen.append((model, data, seed))

    unlearned = gd.Unlearner(gcn, graph, method="retrain", fit=fit, seed=11).delete(DELETION)
    ((model, data, seed),) = seen
    assert unlearned.model is model
    assert model is not gcn
    assert type(model) is type(gcn)
    assert seed == 12, "a seed of its own"
    rest = DELETION.remaining(graph)
    assert torch.equal(data.edge_index, rest.edge_index)
    assert not data.x[9].any()
    assert not data.train_mask[9]
    assert snapshot(gcn, graph) == before


def test_its_weights_are_drawn_anew_from_the_seed(graph, gcn):
    def fresh(seed):
        method = gd.Retrain(epochs=1, lr=1e-12, seed=seed)
        return gd.Unlearner(gcn, graph, task="node", method=method).delete(DELETION).model.convs[0].lin.weight

    assert torch.equal(fresh(1), fresh(1))
    assert not torch.allclose(fresh(1), fresh(2))
    assert not torch.allclose(fresh(1), gcn.convs[0].lin.weight)


def test_fit_and_build_may_hand_over_another_model(graph, gcn):
    other = gd.models.GCN(6, out=5)
    built = gd.models.GCN(6, out=5)
    got = []
    unlearner = gd.Unlearner(
        gcn, graph, method="retrain", fit=lambda model, data, seed: got.append(model) or other, build=lambda: built
    )
    assert unlearner.delete(DELETION).model is other
    assert got == [built]


def test_what_fit_may_return(graph, gcn):
    def deleted(fit):
        return gd.Unlearner(gcn, graph, method="retrain", fit=fit).delete(DELETION)

    trained = deleted(lambda model, data, seed: gd.train(model, data, "node", epochs=1, seed=seed))
    assert type(trained.model) is type(gcn)
    with pytest.raises(ModelError, match=r"fit\(model, data, seed\) returned a 'float'; return the trained model"):
        deleted(lambda model, data, seed: 0.0)
    with pytest.raises(SettingError, match=r"called as fit\(model, data, seed\)"):
        deleted(lambda model, data: None)


def test_the_built_in_loop_learns(graph):
    graph.x[:, :5] = nn.functional.one_hot(graph.y, 5).float() * 3
    model = gd.models.GIN(6, hidden=32, out=5)
    unlearned = gd.Unlearner(model, graph, task="node", method=gd.Retrain(epochs=200, lr=1e-2)).delete(DELETION)
    train = unlearned.data.train_mask.nonzero().flatten()
    assert float((unlearned.predict(train).argmax(dim=-1) == graph.y[train]).float().mean()) > 0.9
    assert unlearned.parameters == sum(p.numel() for p in model.parameters())
    assert unlearned.adapter is None


def test_why_it_does_not_fit(graph, gcn):
    with pytest.raises(ModelError, match="nothing says how to train"):
        gd.Unlearner(gcn, graph, method="retrain")
    gcn.scale = nn.Parameter(torch.ones(3))
    with pytest.raises(ModelError, match=r"'scale'.*reset_parameters.*build="):
        gd.Unlearner(gcn, graph, task="node", method="retrain")
    assert gd.Unlearner(gcn, graph, task="node", method="retrain", build=lambda: gd.models.GCN(6))
