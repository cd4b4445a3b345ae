"""Retraining: a new model that has never seen what was deleted."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import BatchNorm, GCNConv, GraphNorm

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


class Looked(nn.Module):
    """A frozen table of node vectors before a graph layer."""

    def __init__(self, table, norm=None):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(table, freeze=True)
        self.norm = nn.Identity() if norm is None else norm
        self.conv = GCNConv(table.size(1), 5)

    def forward(self, edge_index, n_id=None):
        return self.conv(self.norm(self.table.weight if n_id is None else self.table(n_id)), edge_index)


class Running(nn.Module):
    """A mean that follows what the model is trained on, as a norm of one's own may keep it."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.full((1,), 2.0))  # a constant

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.mean(dim=0).detach(), 0.1)
        return (x - self.mean) / self.scale


class Reset(Running):
    def reset_parameters(self):
        self.mean.zero_()


@pytest.mark.parametrize("method", [gd.Retrain(epochs=2), gd.GraphEraser(shards=2, epochs=2)], ids=lambda m: m.name)
def test_frozen_weights_are_given_and_stay(graph, method):
    model = Looked(torch.randn(graph.num_nodes, 4))
    unlearned = gd.Unlearner(model, graph, task="node", method=method).delete(DELETION)
    assert any("Frozen parameters were kept as they are ('table.weight')" in note.text for note in unlearned.notes)
    if method.name == "retrain":
        assert torch.equal(unlearned.model.table.weight, model.table.weight)
        assert not unlearned.model.table.weight.requires_grad
        assert not torch.equal(unlearned.model.conv.lin.weight, model.conv.lin.weight)
        build = gd.Unlearner(
            model, graph, task="node", method=method, build=lambda: Looked(torch.zeros(graph.num_nodes, 4))
        )
        found = build.delete(DELETION)
        assert not found.model.table.weight.any()
        assert not any("Frozen" in note.text for note in found.notes)


@pytest.mark.parametrize("method", [gd.Retrain(epochs=2), gd.GraphEraser(shards=2, epochs=2)], ids=lambda m: m.name)
def test_what_a_buffer_has_learned_does_not_pass_for_new(graph, method):
    norms = {"own": Running(4), "resets": Reset(4), "batch": nn.BatchNorm1d(4)}
    models = {name: Looked(torch.randn(graph.num_nodes, 4) + 3, norm) for name, norm in norms.items()}
    for model in models.values():
        gd.train(model, graph, "node", epochs=3)
    with pytest.raises(
        ModelError, match=r"buffer 'mean' of 'norm' \(Running\) follows what the model is trained on.*build="
    ):
        gd.Unlearner(models["own"], graph, task="node", method=method)
    for name in ("resets", "batch"):
        before = {key: value.clone() for key, value in models[name].state_dict().items()}
        gd.Unlearner(models[name], graph, task="node", method=method).delete(DELETION)
        assert all(torch.equal(value, before[key]) for key, value in models[name].state_dict().items())


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), GraphNorm(4), BatchNorm(4)], ids=["torch", "graph", "PyG"])
def test_statistics_that_are_as_they_were_at_first_are_no_reason(graph, norm):
    """Of a model that was never trained, or trained with its norm switched off, a reset changes no buffer."""
    model = Looked(torch.randn(graph.num_nodes, 4), norm)
    assert (
        gd.Unlearner(model, graph, task="node", method=gd.Retrain(epochs=2)).delete(DELETION).assurance == "retrained"
    )


class Pairs(nn.Module):
    """A decoder with a weight for every pair of nodes."""

    def __init__(self, nodes):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(nodes, nodes))

    def forward(self, z, edges):
        return (z[edges[0]] * z[edges[1]]).sum(dim=-1) + self.table[edges[0], edges[1]]

    def reset_parameters(self):
        nn.init.zeros_(self.table)


@pytest.mark.parametrize("method", [gd.Retrain(epochs=2), gd.GraphEraser(shards=2, epochs=2)], ids=lambda m: m.name)
def test_a_decoder_apart_from_the_model_does_not_pass_for_trained_anew(graph, gcn, method):
    decoder = Pairs(graph.num_nodes)
    task = gd.LinkPrediction(decoder=decoder)
    for asked in (task, gd.LinkPrediction(decoder=decoder.forward)):
        with pytest.raises(
            ModelError, match=r"decoder 'Pairs' has weights and is no part of 'Stack'.*make it a submodule"
        ):
            gd.train(gcn, graph, asked, epochs=1)
    with pytest.raises(ModelError, match=r"decoder 'Pairs' is no part of the model.*method='gnndelete'"):
        gd.Unlearner(gcn, graph, task=task, method=method)
    assert gd.Unlearner(gcn, graph, task=task, method=gd.GNNDelete(lam=0.3)).delete(DELETION).parameters
    said = "The decoder 'Pairs' is no part of the model and was kept as it is"
    decoder.requires_grad_(False)
    gd.train(gcn, graph, task, epochs=1)
    assert any(said in note.text for note in gd.Unlearner(gcn, graph, task=task, method=method).delete(DELETION).notes)


def test_a_decoder_within_the_model_is_trained_anew_with_it(graph, gcn):
    gcn.score = Pairs(graph.num_nodes)
    for decoder in ("score", gcn.score, gcn.score.forward):
        task = gd.LinkPrediction(decoder=decoder)
        gd.train(gcn, graph, task, epochs=2)
        found = gd.Unlearner(gcn, graph, task=task, method=gd.Retrain(epochs=2)).delete(DELETION)
        assert not any("decoder" in note.text for note in found.notes)
        assert found.model.score.table[3, 4] <= 0 < gcn.score.table[3, 4]


def test_a_decoder_apart_is_the_affair_of_a_fit_of_ones_own(graph, gcn):
    task = gd.LinkPrediction(decoder=Pairs(graph.num_nodes))
    found = gd.Unlearner(gcn, graph, task=task, method="retrain", fit=lambda model, data, seed: None).delete(DELETION)
    assert any(
        "is no part of the model and was kept as it is, unless fit trained it again" in note.text
        for note in found.notes
    )


def test_a_fit_that_starts_from_the_old_weights_is_told(graph):
    old = gd.models.GCN(graph.num_features, hidden=32, out=16)

    def warm(model, data, seed):
        model.load_state_dict(old.state_dict())
        with torch.no_grad():
            for weight in model.parameters():
                weight += 1e-3 * torch.randn_like(weight)

    def codes(fit):
        found = gd.Unlearner(old, graph, method="retrain", fit=fit).delete(DELETION)
        return {note.code: note.text for note in found.notes}

    assert "correlate 1.00 with the old ones" in codes(warm)["not-fresh"]
    assert "not-fresh" not in codes(lambda model, data, seed: None)
