"""GradAscent: the loss of what must be forgotten rises, and nothing of the user's moves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import gnndelete as gd
from gnndelete.errors import GraphError, ModelError, SettingError
from gnndelete.methods.gradascent import GradAscent
from gnndelete.nn.forward import call
from gnndelete.testing import problem


@pytest.fixture(scope="module")
def links():
    return problem("link")


@pytest.fixture(scope="module")
def nodes():
    return problem("node")


def edges_of(data, count):
    return data.edge_index[:, data.edge_index[0] < data.edge_index[1]][:, :count]


def serve(trained, deletion, method=None, **options):
    model, data, task = trained
    return gd.Unlearner(model, data, task, method or GradAscent(), **options).delete(deletion)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_the_forgotten_edges_loss_rises_and_the_users_model_stays(links, snapshot):
    model, data, task = links
    before = snapshot(model, data)
    gone = edges_of(data, 12)
    result = serve(links, gd.Deletion(edges=gone), GradAscent(epochs=20, lr=1e-2))

    def loss(of):
        scores = task.score(of, call(of, data), gone)
        return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores)).item()

    assert result.details["loss_before"] == pytest.approx(loss(model), rel=1e-4)
    assert result.details["loss_after"] == pytest.approx(loss(result.model), rel=1e-4)
    assert loss(result.model) > loss(model) + 0.1
    assert snapshot(model, data) == before
    assert type(result.model) is type(model)
    assert result.parameters == weights(model).numel()
    assert result.assurance == "approximate"
    assert all(p.grad is None for p in result.model.parameters())


def test_the_loss_is_that_of_the_deletion_and_no_other(links):
    _, data, _ = links
    a, b = (serve(links, gd.Deletion(edges=edges_of(data, 12)[:, part])).model for part in (slice(0, 6), slice(6, 12)))
    assert not torch.equal(weights(a), weights(b))


def test_messages_run_over_the_training_graph(links):
    _, data, _ = links
    seen = []

    def forward(model, graph):
        seen.append(graph.edge_index.size(1))
        return call(model, graph)

    serve(links, gd.Deletion(edges=edges_of(data, 3)), GradAscent(epochs=2), forward=forward)
    assert seen[3:] == [data.edge_index.size(1)] * 3  # checks come first: it gives rows and reads its edges


def test_a_nodes_edges_are_forgotten_with_it(links):
    _, data, _ = links
    once = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    incident = (once == 3).any(dim=0)
    result = serve(links, gd.Deletion(nodes=[3]))
    assert result.details["forgotten"] == int(incident.sum()) > 0
    again = serve(links, gd.Deletion(nodes=[3], edges=once[:, incident][:, :1]))
    assert again.details["forgotten"] == result.details["forgotten"], "an edge named twice counts once"


def test_forgotten_training_nodes_lose_their_class(nodes):
    model, data, _ = nodes
    train, other = data.train_mask.nonzero().flatten(), data.test_mask.nonzero().flatten()
    result = serve(nodes, gd.Deletion(nodes=torch.cat([train[:5], other[:2]])), GradAscent(lr=1e-2))
    assert result.details["forgotten"] == 5
    with torch.no_grad():
        losses = [F.cross_entropy(call(m, data)[train[:5]], data.y[train[:5]]) for m in (model, result.model)]
    assert losses[1] > losses[0]


def test_a_node_that_was_not_trained_on_has_nothing_to_climb(nodes):
    model, data, _ = nodes
    result = serve(nodes, gd.Deletion(nodes=data.test_mask.nonzero().flatten()[:1]))
    assert torch.equal(weights(result.model), weights(model))
    assert result.parameters == 0
    assert any(note.code == "none-trained" for note in result.notes)


def test_dropout_is_off_and_statistics_are_frozen(make_subject, snapshot):
    subject = make_subject("batchnorm-residual")
    before = snapshot(subject.model, subject.data)
    deletion = gd.Deletion(nodes=[0, 1, 4])
    first, second = (subject.unlearner(GradAscent(lr=1e-2), task="node").delete(deletion).model for _ in range(2))
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(subject.model))
    for (name, ours), (_, theirs) in zip(first.named_buffers(), subject.model.named_buffers(), strict=True):
        assert torch.equal(ours, theirs), name
    assert [m.training for m in first.modules()] == [m.training for m in subject.model.modules()]
    assert snapshot(subject.model, subject.data) == before


def test_frozen_weights_stay_frozen(nodes):
    model, data, task = nodes
    model.convs[0].requires_grad_(False)
    try:
        result = serve((model, data, task), gd.Deletion(nodes=data.train_mask.nonzero().flatten()[:3]))
        assert torch.equal(result.model.convs[0].lin.weight, model.convs[0].lin.weight)
        assert not torch.equal(result.model.convs[1].lin.weight, model.convs[1].lin.weight)
        assert result.parameters == sum(p.numel() for p in model.convs[1].parameters())
        model.requires_grad_(False)
        with pytest.raises(ModelError, match=r"no parameter that requires a gradient.*unlink"):
            gd.Unlearner(model, data, task, GradAscent())
    finally:
        model.requires_grad_(True)


def test_a_decoder_that_closes_over_the_users_model_gives_it_no_gradient(links):
    model, data, _ = links
    scale = torch.nn.Parameter(torch.ones(()))
    task = gd.LinkPrediction(decoder=lambda z, e: scale * (z[e[0]] * z[e[1]]).sum(dim=-1))
    serve((model, data, task), gd.Deletion(edges=edges_of(data, 3)))
    assert scale.grad is None


def test_a_sequence_equals_one_request(links):
    model, data, task = links
    parts = [gd.Deletion(edges=edges_of(data, 8)[:, part]) for part in (slice(0, 3), slice(3, 8))]
    unlearner = gd.Unlearner(model, data, task, GradAscent())
    unlearner.delete(parts[0])
    assert torch.equal(weights(unlearner.delete(parts[1]).model), weights(serve(links, parts[0] | parts[1]).model))


def test_a_saturated_loss_is_called_so(links):
    model, data, _ = links
    task = gd.LinkPrediction(decoder=lambda z, e: (z[e[0]] * z[e[1]]).sum(dim=-1) * 1e-30 + 500)
    result = serve((model, data, task), gd.Deletion(edges=edges_of(data, 3)))
    assert any("did not rise" in note.text for note in result.notes)


def test_why_it_does_not_fit(nodes):
    model, data, task = nodes
    with pytest.raises(ModelError, match=r"needs a loss.*task="):
        gd.Unlearner(model, data, method=GradAscent())
    with pytest.raises(ModelError, match=r"no loss of its own.*'gif'"):
        serve(nodes, gd.Deletion(edges=edges_of(data, 1)))
    bare = data.__copy__()
    del bare.y
    with pytest.raises(GraphError, match="needs 'y'"):
        gd.Unlearner(model, bare, task, GradAscent())


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"lr": 0.0}, {"lr": -1.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        GradAscent(**wrong).check()
