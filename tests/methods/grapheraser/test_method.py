"""GraphEraser: what was deleted is in no training set, and only the shards that held it are trained again."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.errors import ModelError, SettingError
from gnndelete.methods.grapheraser.method import GraphEraser, mixing_weights
from gnndelete.methods.grapheraser.shards import induced

SHARDS = 5


def cross_entropy(alpha, scores, target, logits):
    """Of the mixed logits of links, or of the mixed probabilities of true classes."""
    mixed = scores.double() @ alpha.double()
    if logits:
        return float(torch.nn.functional.binary_cross_entropy_with_logits(mixed, target.double()))
    return float(-mixed.clamp(min=1e-12).log().mean())


@pytest.fixture(scope="module")
def split():
    data = community_graph(150, 1_200, 8, community=30, classes=4, seed=3)
    data.n_id = torch.arange(150)
    split = gd.datasets.split_links(data, seed=1)
    split.data.train_mask = torch.arange(150) % 4 < 2
    split.data.val_mask = torch.arange(150) % 4 == 2
    split.data.test_mask = torch.arange(150) % 4 == 3
    return split


@pytest.fixture(scope="module")
def data(split):
    return split.data


@pytest.fixture
def model():
    torch.manual_seed(0)
    return gd.models.GCN(8, hidden=16, out=4)


def link(split):
    return gd.LinkPrediction(validation=split.validation, test=split.test)


class Recorder:
    """A training function that writes down what it was given and moves the weights by something that depends on it."""

    def __init__(self, fail_at=None):
        self.seen, self.fail_at = [], fail_at

    def __call__(self, model, data, seed):
        if len(self.seen) == self.fail_at:
            raise KeyboardInterrupt
        self.seen.append(data)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 1e-3 * (data.edge_index.size(1) + data.x.sum())

    def edges(self):
        return {tuple(data.n_id[pair].tolist()) for data in self.seen for pair in data.edge_index.t()}

    def nodes(self):
        return {node for data in self.seen for node in data.n_id.tolist()}


def eraser(**settings):
    return GraphEraser(**{"shards": SHARDS, "partition": "blpa", "epochs": 3, "use_fit": True, **settings})


def weights(unlearner):
    return [
        None if shard.model is None else {name: value.clone() for name, value in shard.model.state_dict().items()}
        for shard in unlearner._context.memory["grapheraser"].shards
    ]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def edge(place, data, inside):
    """An edge within a shard, or between two."""
    head, tail = data.edge_index
    chosen = ((place[head] == place[tail]) == inside) & (head < tail)
    return tuple(data.edge_index[:, chosen.nonzero()[0, 0]].tolist())


@pytest.mark.parametrize("task", ["link", "node"])
def test_one_edge_retrains_one_shard_and_leaves_the_others_bit_identical(task, data, model, snapshot):
    before, fit = snapshot(model, data), Recorder()
    unlearner = gd.Unlearner(model, data, task=task, method=eraser(), fit=fit)
    first = unlearner.delete(gd.Deletion(nodes=[7]))
    place, old = unlearner._context.memory["grapheraser"].shard_of, weights(unlearner)
    assert first.details["retrained"] == [int(place[7])]
    assert first.details["prepared"] == SHARDS - 1
    assert len(fit.seen) == SHARDS

    gone = edge(place, data, inside=True)
    second = unlearner.delete(gd.Deletion(edges=[gone]))
    (touched,) = second.details["retrained"]
    assert touched == int(place[gone[0]])
    assert len(fit.seen) == SHARDS + 1
    assert second.details["prepare_seconds"] == 0.0
    now = weights(unlearner)
    assert [s for s in range(SHARDS) if not same(old[s], now[s])] == [touched]
    assert snapshot(model, data) == before


def test_nothing_is_retrained_for_an_edge_between_shards(data, model):
    unlearner = gd.Unlearner(model, data, task="link", method=eraser())
    unlearner.delete(gd.Deletion(nodes=[7]))
    place, old = unlearner._context.memory["grapheraser"].shard_of, weights(unlearner)
    unlearned = unlearner.delete(gd.Deletion(edges=[edge(place, data, inside=False)]))
    assert unlearned.details["retrained"] == []
    assert unlearned.parameters == SHARDS, "the weights of the mixture alone"
    assert all(same(a, b) for a, b in zip(old, weights(unlearner), strict=True))


@pytest.mark.parametrize("options", [{}, {"partition": "random"}, {"partition": "bekm"}, {"repartition": True}])
def test_the_deleted_elements_are_in_no_training_set(options, data, model):
    fit = Recorder()
    edges = data.edge_index[:, data.edge_index[0] < data.edge_index[1]][:, ::40]
    deletion = gd.Deletion(edges=edges, nodes=[3, 99])
    gd.Unlearner(model, data, task="node", method=eraser(**options), fit=fit).delete(deletion)
    trained = fit.edges()
    for head, tail in edges.t().tolist():
        assert (head, tail) not in trained
        assert (tail, head) not in trained
    assert not {3, 99} & fit.nodes()
    assert fit.nodes() == set(range(150)) - {3, 99}, "everything else is in exactly one shard"
    assert sum(part.num_nodes for part in fit.seen) == 148
    assert trained < {tuple(pair) for pair in deletion.remaining(data).edge_index.t().tolist()}


def test_the_built_in_loop_sees_no_deleted_element_either(split, model, monkeypatch):
    seen = []

    def watched(model, data, task, **options):
        seen.append((data, task))
        return gd.train(model, data, task, **options)

    monkeypatch.setattr("gnndelete.methods.grapheraser.shards.train", watched)
    node = int(split.validation[0, 0])
    gd.Unlearner(model, split.data, task=link(split), method=eraser()).delete(gd.Deletion(nodes=[node]))
    true = {tuple(pair) for pair in split.validation.t().tolist()}
    for part, task in seen:
        assert node not in part.n_id.tolist()
        if task.validation is not None:
            assert {tuple(pair) for pair in part.n_id[task.validation.positives].t().tolist()} <= true
            assert task.validation.negatives.shape == task.validation.positives.shape
    assert any(task.validation is not None for _, task in seen), "shards validate on unseen edges of their own"


def test_a_random_partition_equals_training_without_the_elements(data, model):
    """The claim 'exact': the same shards as if the remaining graph were all there ever was."""
    method, other = eraser(partition="random"), gd.Deletion(nodes=[0])
    step = gd.Unlearner(model, data, task="link", method=method)
    step.delete(other)
    place = step._context.memory["grapheraser"].shard_of
    gone = gd.Deletion(edges=[edge(place, other.remaining(data), inside=True)])
    after = step.delete(gone)
    assert len(after.details["retrained"]) == 1
    never = gd.Unlearner(model, gone.remaining(data), task="link", method=method)
    clean = never.delete(other)
    assert after.assurance == "exact"
    assert all(same(a, b) for a, b in zip(weights(step), weights(never), strict=True))
    assert torch.equal(after.predict(data.edge_index), clean.predict(data.edge_index))


@pytest.mark.parametrize(
    ("options", "assurance"),
    [({}, "approximate"), ({"partition": "random"}, "exact"), ({"repartition": True}, "retrained")],
)
def test_it_promises_what_the_partition_allows(options, assurance, data, model):
    unlearned = gd.Unlearner(model, data, task="link", method=eraser(**options)).delete(gd.Deletion(nodes=[5]))
    assert unlearned.assurance == assurance
    assert ("partition was made with them" in " ".join(map(str, unlearned.notes))) == (assurance == "approximate")
    assert unlearned.model is None
    assert "your model takes no part" in unlearned.notes[0].text


def test_an_interruption_leaves_the_shards_whole(data, model):
    fit = Recorder(fail_at=SHARDS)
    unlearner = gd.Unlearner(model, data, task="node", method=eraser(), fit=fit)
    unlearner.delete(gd.Deletion(nodes=[7]))
    kept, old = unlearner._context.memory["grapheraser"], weights(unlearner)
    with pytest.raises(KeyboardInterrupt):
        unlearner.delete(gd.Deletion(nodes=[8]))
    assert unlearner._context.memory["grapheraser"] is kept
    assert all(same(a, b) for a, b in zip(old, weights(unlearner), strict=True))
    fit.fail_at = None
    again = unlearner.delete(gd.Deletion(nodes=[8]))
    assert again.details["retrained"] == [int(kept.shard_of[8])]


def test_a_sequence_equals_one_request(data, model):
    one, two = gd.Deletion(nodes=[7]), gd.Deletion(edges=[tuple(data.edge_index[:, 50].tolist())])
    step, whole = (gd.Unlearner(model, data, task="node", method=eraser(), seed=4) for _ in range(2))
    step.delete(one)
    assert torch.equal(step.delete(two).predict([1, 2]), whole.delete(one | two).predict([1, 2]))


def test_it_learns_both_tasks(split):
    torch.manual_seed(0)
    data, model = split.data, gd.models.GCN(8, hidden=32, out=4)
    request = gd.Deletion(nodes=[7])
    settings = {"epochs": 60, "lr": 1e-2}
    links = gd.Unlearner(model, data, task=link(split), method=eraser(**settings)).delete(request)
    assert links.evaluate()["test_auroc"] > 0.75
    nodes = gd.Unlearner(model, data, task="node", method=eraser(**settings)).delete(request)
    assert nodes.evaluate()["test_accuracy"] > 0.5
    found = nodes.predict(torch.arange(150))
    assert found.shape == (150, 4)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(150))
    assert sum(nodes.details["alpha"].values()) == pytest.approx(1)


def test_processes_give_what_one_process_gives(data, model):
    first, second = (
        gd.Unlearner(model, data, task="node", method=eraser(shards=3, jobs=jobs)).delete(gd.Deletion(nodes=[7]))
        for jobs in (1, 2)
    )
    torch.testing.assert_close(first.predict([1, 2, 3]), second.predict([1, 2, 3]))


@pytest.mark.parametrize("running", [False, True])
def test_ray_is_asked_only_at_an_address(running, data, model, monkeypatch):
    calls = []
    ray = SimpleNamespace(
        is_initialized=lambda: running,
        init=lambda address: calls.append(address),
        remote=lambda function: SimpleNamespace(remote=function),
        get=lambda found: found,
        shutdown=lambda: calls.append("shutdown"),
        __spec__=SimpleNamespace(),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    request = gd.Deletion(nodes=[7])
    plain = gd.Unlearner(model, data, task="node", method=eraser()).delete(request)
    assert not calls
    far = gd.Unlearner(model, data, task="node", method=eraser(ray="ray://head:10001")).delete(request)
    assert torch.equal(plain.predict([1]), far.predict([1]))
    assert set(calls) == (set() if running else {"ray://head:10001", "shutdown"})


def test_a_real_ray_cluster_trains_the_shards(data, model):
    pytest.importorskip("ray")
    unlearned = gd.Unlearner(model, data, task="node", method=eraser(ray="local")).delete(gd.Deletion(nodes=[7]))
    assert unlearned.predict([1]).shape == (1, 4)


@given(st.integers(1, 8), st.integers(1, 30), st.integers(0, 10_000), st.sampled_from(["link", "node"]))
def test_learned_weights_form_a_simplex_and_beat_equal_ones(shards, samples, seed, kind):
    generator = torch.Generator().manual_seed(seed)
    evidence = torch.randn(samples, shards, generator=generator) * 3
    evidence = evidence if kind == "link" else evidence.sigmoid()
    target = (torch.rand(samples, generator=generator) < 0.5).float()
    alpha = mixing_weights(evidence, target, kind == "link")
    assert bool((alpha >= 0).all())
    assert float(alpha.sum()) == pytest.approx(1)
    equal = torch.full((shards,), 1 / shards, dtype=torch.double)
    learned = cross_entropy(alpha, evidence, target, kind == "link")
    assert learned <= cross_entropy(equal, evidence, target, kind == "link") + 1e-12
    for one in torch.eye(shards, dtype=torch.double):  # convex: no corner is better either
        assert learned <= cross_entropy(one, evidence, target, kind == "link") + 1e-4


def test_shards_without_anything_to_learn_have_no_say(graph, gcn):
    unlearned = gd.Unlearner(gcn, graph, task="link", method=eraser(shards=16, partition="random")).delete(
        gd.Deletion(edges=[(3, 4)])
    )
    assert len(unlearned.details["alpha"]) < 16
    assert any("nothing to train on" in note.text for note in unlearned.notes)
    assert bool(torch.isfinite(unlearned.predict([(3, 4), (0, 1)])).all())


def test_a_shard_keeps_every_attribute_of_its_nodes_and_edges(graph):
    graph.edge_label_index, graph.edge_label = torch.tensor([[0, 4, 1], [1, 5, 9]]), torch.tensor([1.0, 0.0, 1.0])
    nodes = torch.tensor([5, 4, 1, 0])
    part = induced(graph, nodes)
    assert part.num_nodes == 4
    for name in ("x", "y", "train_mask"):
        assert torch.equal(part[name], graph[name][nodes])
    found = {
        (*nodes[pair].tolist(), *attr) for pair, attr in zip(part.edge_index.t(), part.edge_attr.tolist(), strict=True)
    }
    whole = zip(graph.edge_index.t().tolist(), graph.edge_attr.tolist(), strict=True)
    assert found == {(*pair, *attr) for pair, attr in whole if set(pair) <= {0, 1, 4, 5}}
    assert nodes[part.edge_label_index].tolist() == [[0, 4], [1, 5]]
    assert part.edge_label.tolist() == [1.0, 0.0]


class Tabled(nn.Module):
    """Knows nodes by a table of vectors: by their place in the graph, or by ``n_id``."""

    def __init__(self, by_place):
        super().__init__()
        self.nodes, self.conv, self.by_place = nn.Embedding(150, 4), GCNConv(4, 4), by_place

    def reset_parameters(self):
        self.nodes.reset_parameters()
        self.conv.reset_parameters()

    def forward(self, n_id, edge_index):
        return self.conv(self.nodes(torch.arange(n_id.numel()) if self.by_place else n_id), edge_index)


def test_why_it_does_not_fit(data, model, make_subject, monkeypatch):
    def refused(match, model=model, data=data, task="link", **settings):
        with pytest.raises(ModelError, match=match):
            gd.Unlearner(model, data, task=task, method=eraser(**settings))

    refused("answers are mixed; pass task", task=None)
    refused("151 shards .* 150 nodes; ask for fewer", shards=151)
    refused("position in the graph.*n_id", model=Tabled(by_place=True))
    assert gd.Unlearner(Tabled(by_place=False), data, task="link", method=eraser())
    subject = make_subject("embedding")
    refused("returns 48 rows for a part.*n_id", model=subject.model, data=subject.data)
    bare = Data(edge_index=data.edge_index, n_id=data.n_id)
    refused("needs features", model=Tabled(by_place=False), data=bare, partition="bekm", repartition=True)

    monkeypatch.setattr("gnndelete.methods.grapheraser.method.find_spec", lambda name: None)
    refused(r"pip install gnndelete\[shards\]", partition="metis")
    refused(r"pip install gnndelete\[ray\]", ray="auto")
    broken = gd.models.GCN(8)
    broken.scale = nn.Parameter(torch.ones(3))
    refused(r"'scale'.*build=", model=broken)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"shards": 0}, "'shards'"),
        ({"partition": "louvain"}, "'partition' must be 'blpa'"),
        ({"aggregation": "vote"}, "'aggregation'"),
        ({"epochs": 0}, "'epochs'"),
        ({"lr": 0}, "'lr'"),
        ({"jobs": 0}, "'jobs'"),
    ],
)
def test_settings_are_checked(settings, match):
    with pytest.raises(SettingError, match=match):
        GraphEraser(**settings).check()
