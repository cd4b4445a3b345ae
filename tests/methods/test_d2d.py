"""D2D: the published sigma, the weights it keeps, and a noise that is called what it is."""

from __future__ import annotations

import math

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.datasets import load, split_links
from gnndelete.errors import ModelError, SettingError
from gnndelete.methods.d2d import D2D
from gnndelete.nn.forward import call
from gnndelete.testing import problem
from gnndelete.training.loop import train


@pytest.fixture(scope="module")
def links():
    return problem("link")


@pytest.fixture(scope="module")
def digits():
    split = split_links(load("digits"))
    return split.data, gd.LinkPrediction(validation=split.validation, test=split.test)


def edges_of(data, count):
    return data.edge_index[:, data.edge_index[0] < data.edge_index[1]][:, :count]


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def kept(unlearner):
    return unlearner._context.memory["d2d"].weights


def test_sigma_is_the_formula():
    n = round(105_734 * 0.9 * 0.975)  # the directed training edges of DBLP without 2.5%
    assert D2D("paper").constants(n).sigma() == pytest.approx(982, rel=0.01)
    got = D2D().constants(1000)
    gamma = (3.95 - 0.05) / (3.95 + 0.05)
    log = math.log(1000**2)
    want = (4 * math.sqrt(2) * 1.05 * gamma**25) / (
        0.05 * 1000 * (1 - gamma**25) * (math.sqrt(log + 5) - math.sqrt(log))
    )
    assert got.sigma() == pytest.approx(want)
    assert (got.L, got.M, got.delta) == (1.05, 3.95, 1e-6)


def test_what_is_given_is_not_overridden():
    given = {"m": 0.1, "L": 3.0, "M": 7.0, "epsilon": 2.0, "delta": 1e-3, "iterations": 4}
    for preset in ("reference", "paper"):
        constants = D2D(preset, **given).constants(50)
        assert {name: getattr(constants, name) for name in given} == given
        assert D2D(**D2D(preset, **given).settings()).settings() == D2D(preset, **given).settings()


@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_reference_keeps_the_model(digits, kind):
    data, task = digits
    torch.manual_seed(0)
    model = gd.models.build(kind, data.num_features)
    train(model, data, task, epochs=40)
    deletion = gd.Deletion(edges=edges_of(data, 220))
    before = gd.Unlearner(model, data, task, "unlink").delete(deletion).evaluate()["test_auroc"]
    result = gd.Unlearner(model, data, task, D2D()).delete(deletion)
    assert before > 0.9
    assert abs(result.evaluate()["test_auroc"] - before) < 0.1
    assert result.details["n"] == data.edge_index.size(1) - 440
    assert result.details["validation"] > result.details["validation_before"] - 0.1
    assert result.details["sigma"] < result.details["weight_rms"]
    assert any("no guarantee holds" in note.text for note in result.notes)
    assert not any("destroys" in note.text for note in result.notes)
    if kind == "gin":
        assert result.details["halvings"] > 0, "sums make GIN's loss far less smooth than M"


def test_published_weights_are_the_kept_ones_plus_that_noise(links, snapshot):
    model, data, task = links
    before = snapshot(model, data)
    unlearner = gd.Unlearner(model, data, task, D2D())
    result = unlearner.delete(gd.Deletion(edges=edges_of(data, 3)))
    noise = weights(result.model) - kept(unlearner)
    assert float(noise.std()) == pytest.approx(result.details["sigma"], rel=0.2)
    assert not torch.equal(kept(unlearner), weights(model)), "it did descend"
    assert snapshot(model, data) == before
    assert result.parameters == noise.numel()


def test_it_descends_on_the_regularised_loss_of_what_remains(links):
    model, data, task = links
    deletion = gd.Deletion(edges=edges_of(data, 20))
    seen = []

    def forward(module, graph):
        seen.append(graph)
        return call(module, graph)

    unlearner = gd.Unlearner(model, data, task, D2D(m=0.2, center="zero"), forward=forward, seed=5)
    rest = unlearner.delete(deletion).data
    seen = seen[3:]  # runs that check whether the model gives rows and reads its edges come first
    assert seen
    assert all(graph.edge_index.size(1) == rest.edge_index.size(1) for graph in seen)

    def objective(vector):
        copied = gd.models.GCN(8, hidden=8, out=4)
        torch.nn.utils.vector_to_parameters(vector, copied.parameters())
        loss = task.loss(copied, call(copied, rest), rest, torch.Generator().manual_seed(5))
        return (loss + 0.1 * vector.square().sum()).item()

    assert objective(kept(unlearner)) < objective(weights(model))
    assert kept(unlearner).norm() < weights(model).norm()


def test_weights_are_projected(links):
    model, data, task = links
    unlearner = gd.Unlearner(model, data, task, D2D(radius=1.0, center="zero"))
    assert unlearner.delete(gd.Deletion(edges=edges_of(data, 3))).details["radius"] == 1
    assert float(kept(unlearner).norm()) <= 1 + 1e-5


def test_the_next_request_starts_from_the_weights_without_noise(links):
    model, data, task = links
    parts = [gd.Deletion(edges=edges_of(data, 6)[:, part]) for part in (slice(0, 3), slice(3, 6))]
    unlearner = gd.Unlearner(model, data, task, D2D(iterations=3))
    first = unlearner.delete(parts[0])
    clean = kept(unlearner)
    second = unlearner.delete(parts[1])
    assert torch.equal(unlearner._context.memory["d2d"].start, clean)
    noise = [weights(first.model) - clean, weights(second.model) - kept(unlearner)]
    assert not torch.allclose(noise[0], noise[1]), "two requests must not share their noise"
    again = unlearner.compact()
    assert torch.equal(weights(again.model), weights(second.model)), "the same request is not descended on twice"
    assert len(unlearner.history) == 2


def test_lost_memory_is_said(links, tmp_path):
    model, data, task = links
    unlearner = gd.Unlearner(model, data, task, D2D(iterations=2))
    for part in (slice(0, 3), slice(3, 6)):
        unlearner.delete(gd.Deletion(edges=edges_of(data, 6)[:, part]))
    unlearner.save_state(tmp_path / "state.json")
    restored = gd.Unlearner(model, data, task, D2D(iterations=2)).load_state(tmp_path / "state.json").compact()
    assert any("started from the base model" in note.text for note in restored.notes)
    assert not any("started from the base model" in note.text for note in unlearner.compact().notes)


def test_an_interruption_leaves_memory_and_model_whole(links, snapshot):
    model, data, task = links
    calls = []

    def forward(module, graph):
        calls.append(1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return call(module, graph)

    stop = -1
    unlearner = gd.Unlearner(model, data, task, D2D(iterations=3), forward=forward)
    unlearner._context.session.require_reading_edges()
    calls.clear()
    unlearner.delete(gd.Deletion(edges=edges_of(data, 3)))
    memory, before, once = dict(unlearner._context.memory), snapshot(model, data), len(calls)
    for late in (2, once):
        calls.clear()
        stop = late
        with pytest.raises(KeyboardInterrupt):
            unlearner.delete(gd.Deletion(edges=edges_of(data, 6)[:, 3:]))
        assert unlearner._context.memory == memory
        assert snapshot(model, data) == before
        assert len(unlearner.history) == 1


def test_the_seed_decides(links):
    model, data, task = links
    got = [
        weights(gd.Unlearner(model, data, task, D2D(iterations=2), seed=seed).delete(gd.Deletion(nodes=[3])).model)
        for seed in (1, 1, 2)
    ]
    assert torch.equal(got[0], got[1])
    assert not torch.allclose(got[0], got[2])


def test_the_papers_half_comes_from_saturated_probabilities():
    generator = torch.Generator().manual_seed(0)
    once = torch.unique(torch.randint(40, (2, 120), generator=generator).sort(dim=0).values, dim=1)
    once = once[:, once[0] != once[1]]
    x = torch.rand(40, 6, generator=generator) / 100  # row-normalised features are small: the noisy biases rule
    data = Data(x=x, edge_index=torch.cat([once[:, 10:], once[:, 10:].flip(0)], dim=1))
    torch.manual_seed(0)
    model = gd.models.GCN(6, hidden=8, out=4)
    unlearner = gd.Unlearner(model, data, gd.LinkPrediction(validation=once[:, :10]), D2D("paper"))
    result = unlearner.delete(gd.Deletion(edges=edges_of(data, 2)))
    assert result.details["auroc_from_probabilities"] == 0.5
    assert abs(result.details["auroc_from_logits"] - 0.5) > 0.02
    assert any("artefact" in note.text for note in result.notes)
    assert any("destroys the weights" in note.text and "sigma" in note.text for note in result.notes)


@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_node_classification(kind):
    model, data, task = problem("node")
    gone = data.train_mask.nonzero().flatten()[:4]
    deletion = gd.Deletion(nodes=gone) if kind == "nodes" else gd.Deletion(edges=edges_of(data, 4))
    result = gd.Unlearner(model, data, task, D2D()).delete(deletion)
    assert result.details["n"] == int(data.train_mask.sum()) - (4 if kind == "nodes" else 0)
    assert any("destroys the weights" in note.text for note in result.notes), (
        "a few dozen nodes are too few for this noise"
    )
    assert set(result.details) >= {"sigma", "gamma", "weight_rms", "validation", "validation_before"}


def test_frozen_buffers(make_subject):
    subject = make_subject("batchnorm-residual")
    result = subject.unlearner(D2D(iterations=2), task="node").delete(subject.deletion)
    for (name, ours), (_, theirs) in zip(result.model.named_buffers(), subject.model.named_buffers(), strict=True):
        assert torch.equal(ours, theirs), name


def test_what_does_not_fit(links):
    model, data, _ = links
    with pytest.raises(ModelError, match="needs a loss"):
        gd.Unlearner(model, data, method=D2D())
    for wrong in ({"preset": "best"}, {"m": 0.0}, {"m": 3.0}, {"delta": 1.5}, {"iterations": 0}, {"radius": -1.0}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            D2D(**wrong).check()


def test_a_graph_classifier_that_overflows_is_handed_back_with_a_note():
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graphs = [Data(x=torch.randn(3, 4), edge_index=edges, y=torch.tensor([n % 2])) for n in range(40)]
    split = gd.datasets.split_graphs(graphs, seed=0)
    model = gd.models.build("gcn", 4, hidden=32, num_layers=8, out=2, pool="mean")
    task = gd.GraphClassification(train=split.train, validation=split.validation, test=split.test)
    unlearned = gd.Unlearner(model, graphs, task=task, method=D2D("paper", m=1e-9)).delete(
        gd.Deletion(graphs=split.train[:1])
    )
    assert "validation" not in unlearned.details
    assert unlearned.details["validation_before"] >= 0
    assert any("noise" in note.text for note in unlearned.notes)
