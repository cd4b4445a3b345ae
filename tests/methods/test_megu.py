"""MEGU: forgotten nodes lose their class, their neighbours keep theirs, and the operator is gone afterwards."""

from __future__ import annotations

import pytest
import torch

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.errors import ModelError, RunError, SettingError
from gnndelete.methods.base import Context
from gnndelete.methods.megu import MEGU, influenced
from gnndelete.nn.forward import call
from gnndelete.testing import problem


@pytest.fixture(scope="module")
def nodes():
    return problem("node")


def edges_of(data, count):
    return data.edge_index[:, data.edge_index[0] < data.edge_index[1]][:, :count]


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def deletions(data):
    return {
        "nodes": gd.Deletion(nodes=data.train_mask.nonzero().flatten()[::14]),
        "edges": gd.Deletion(edges=edges_of(data, None)[:, ::60]),
    }


@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_the_forgotten_change_and_the_rest_stays(nodes, kind, snapshot):
    model, data, task = nodes
    before = snapshot(model, data)
    deletion = deletions(data)[kind]
    result = gd.Unlearner(model, data, task, MEGU()).delete(deletion)
    forgotten = torch.cat([deletion.nodes, deletion.edges.flatten()]).unique()
    graph = deletion.remaining(data)
    graph.x = data.x
    with torch.no_grad():
        odds = [call(m, graph)[forgotten].softmax(dim=-1) for m in (model, result.model)]
    assert float((odds[0] - odds[1]).abs().mean()) > 0.01
    rest = torch.ones(data.num_nodes, dtype=torch.bool)
    rest[forgotten] = False
    with torch.no_grad():
        accuracy = [
            float((call(m, result.data).argmax(dim=-1) == data.y)[rest].float().mean()) for m in (model, result.model)
        ]
    assert accuracy[1] > accuracy[0] - 0.05
    assert not torch.equal(weights(result.model), weights(model))
    assert snapshot(model, data) == before


def test_the_model_keeps_its_class_and_the_operator_is_gone(nodes):
    model, data, task = nodes
    result = gd.Unlearner(model, data, task, MEGU(epochs=2)).delete(deletions(data)["nodes"])
    assert type(result.model) is type(model)
    assert result.model.state_dict().keys() == model.state_dict().keys()
    assert not any(module._forward_hooks for module in result.model.modules())
    assert result.parameters == weights(model).numel() + 3 * 3 + 3, "the operator was trained too"
    assert result.adapter is None


def test_kappa_drives_the_forgetting(nodes):
    model, data, task = nodes
    kept, gone = (
        gd.Unlearner(model, data, task, MEGU(kappa=kappa)).delete(deletions(data)["nodes"]) for kappa in (0.0, 0.3)
    )
    assert gone.details["confidence_after"] < kept.details["confidence_after"] - 0.03
    for result in (kept, gone):
        rose = result.details["confidence_after"] >= result.details["confidence_before"]
        assert rose == any("Raise it" in note.text for note in result.notes)


def test_forgotten_nodes_stand_alone_with_their_features(nodes):
    model, data, task = nodes
    deletion, seen = deletions(data)["nodes"], []

    def forward(module, graph):
        seen.append(graph)
        return call(module, graph)

    gd.Unlearner(model, data, task, MEGU(epochs=2), forward=forward).delete(deletion)
    seen = seen[3:]  # checks come first: the model gives rows and reads its edges
    assert torch.equal(seen[0].edge_index, data.edge_index), "the original predictions come from the original graph"
    *steps, base, done = seen[1:]  # at last both models are asked on what remains, for their validation scores
    for graph in (base, done):
        assert not graph.x[deletion.nodes].any()
    for graph in steps:
        assert not torch.isin(graph.edge_index, deletion.nodes).any()
        assert torch.equal(graph.x, data.x), "what is to be forgotten must be seen to be forgotten"


@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_neighbours_are_those_whose_propagated_features_change_most(graph, gcn, kind):
    deletion = gd.Deletion(nodes=[9, 20]) if kind == "nodes" else gd.Deletion(edges=[(3, 4), (14, 16)])
    context = Context(Session(gcn, graph, call)).for_deletion(deletion)
    forgotten = torch.cat([deletion.nodes, deletion.edges.flatten()])
    got = set(influenced(context, forgotten).tolist())

    def propagated(data):
        A = torch.eye(data.num_nodes)
        A[data.edge_index[0], data.edge_index[1]] = 1
        scale = A.sum(dim=1).rsqrt()
        P = scale[:, None] * A * scale
        return P @ P @ data.x

    change = (propagated(graph) - propagated(deletion.remaining(graph))).norm(dim=1)
    near = context.session.neighborhood().within(forgotten, 2).tolist()
    near = [node for node in near if node not in forgotten.tolist()]
    mean = change[near].mean()
    assert got == {node for node in near if change[node] >= mean}
    assert 0 < len(got) < len(near)
    graph.x = None
    bare = Context(Session(gcn, graph, call)).for_deletion(deletion)
    assert influenced(bare, forgotten).tolist() == near, "without features all of them are taken"


def test_lonely_nodes_have_nobody_to_hold_the_model(graph, gcn):
    result = gd.Unlearner(gcn, graph, "node", MEGU(epochs=2)).delete(gd.Deletion(nodes=[46]))
    assert result.details["neighbors"] == 0
    assert any("nothing held the model" in note.text for note in result.notes)


def test_the_seed_decides_and_the_global_state_is_left_alone(nodes):
    model, data, task = nodes
    state = torch.random.get_rng_state()
    got = [
        weights(gd.Unlearner(model, data, task, MEGU(), seed=seed).delete(deletions(data)["edges"]).model)
        for seed in (1, 1, 2)
    ]
    assert torch.equal(got[0], got[1])
    assert not torch.equal(got[0], got[2])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_statistics_are_frozen(make_subject, snapshot):
    subject = make_subject("batchnorm-residual")
    before = snapshot(subject.model, subject.data)
    result = subject.unlearner(MEGU(), task="node").delete(subject.deletion)
    for (name, ours), (_, theirs) in zip(result.model.named_buffers(), subject.model.named_buffers(), strict=True):
        assert torch.equal(ours, theirs), name
    assert snapshot(subject.model, subject.data) == before


def test_a_diverged_model_is_not_handed_out(nodes):
    model, data, task = nodes
    with pytest.raises(RunError, match=r"lr.*kappa"):
        gd.Unlearner(model, data, task, MEGU(kappa=1e6, lr=1e6)).delete(deletions(data)["nodes"])


def test_a_validation_score_that_falls_is_told(nodes):
    model, data, task = nodes
    deletion = deletions(data)["nodes"]
    mild, harsh = (gd.Unlearner(model, data, task, method).delete(deletion) for method in (MEGU(), MEGU(kappa=1.0)))
    assert not any("validation score" in note.text for note in mild.notes)
    left = deletion.remaining(data)
    with torch.no_grad():
        right = [call(m, left).argmax(dim=-1) == data.y for m in (model, harsh.model)]
    before, after = (float(hits[left.val_mask].float().mean()) for hits in right)
    assert before - after > 0.1
    assert (harsh.details["validation_before"], harsh.details["validation"]) == pytest.approx((before, after))
    assert f"score fell by {before - after:.3f}, from {before:.3f} to {after:.3f}: " in harsh.notes[-1].text
    assert "Lower 'lr' (now 0.05)" in harsh.notes[-1].text
    unvalidated = data.__copy__()
    del unvalidated.val_mask
    quiet = gd.Unlearner(model, unvalidated, task, MEGU(kappa=1.0)).delete(deletion)
    assert torch.equal(weights(quiet.model), weights(harsh.model))
    assert "validation" not in quiet.details
    assert quiet.notes == harsh.notes[:-1]


def test_why_it_does_not_fit():
    model, data, task = problem("link")
    with pytest.raises(ModelError, match=r"class predictions.*'link'.*'gif'"):
        gd.Unlearner(model, data, task, MEGU())
    with pytest.raises(
        ModelError, match=r"'graph'; use method='gnndelete' or method='retrain'"
    ):  # GIF serves no graphs
        gd.Unlearner(*problem("graph"), MEGU())
    with pytest.raises(ModelError, match="needs a loss"):
        gd.Unlearner(model, data, method=MEGU())
    for wrong in ({"kappa": -1.0}, {"temperature": 0.0}, {"lr": 0.0}, {"epochs": 0}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            MEGU(**wrong).check()
