"""Deleted features and labels, by themselves and mixed with edges and nodes: what every model and method makes of them."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

import gnndelete as gd
from gnndelete import Deletion
from gnndelete.engine.session import Session
from gnndelete.errors import GNNDeleteError
from gnndelete.methods import CONTROLS, resolver
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.calibration import ACTIONS, as_retrained
from gnndelete.methods.gnndelete.forgetting_score import Trial
from gnndelete.nn.forward import call
from gnndelete.testing import problem

from ..conftest import MODELS, OUT, build_subject, make_graph

EDGES = [(3, 4), (5, 7), (20, 22)]


PARTS = (
    Deletion(edges=EDGES),
    Deletion(nodes=[9, 30]),
    Deletion(features=[(node, 2) for node in (0, 14, 15, 33, 44)], fill=0.5),
    Deletion(labels=[36]),
)


MIXED = PARTS[0] | PARTS[1] | PARTS[2] | PARTS[3]


def test_the_parts_of_a_mixed_request_in_any_order_equal_all_of_it(subject, run):
    task = "node" if subject.case.name != "dicts" else None  # that model's output is no table of classes
    options = dict(method=subject.method(lam=0.2), task=task)
    whole = subject.unlearner(**options).delete(MIXED)
    expected = run(whole.model, whole.data)
    base = run(subject.base(), subject.data)
    assert not torch.allclose(expected, base)
    for order in (PARTS, PARTS[::-1], (PARTS[2], PARTS[0], PARTS[3], PARTS[1])):
        unlearner = subject.unlearner(**options)
        for part in order:
            last = unlearner.delete(part)
        assert torch.equal(run(last.model, last.data), expected)
        assert last.deletion == whole.deletion
    assert whole.summary()["counts"] == {"edges": 3, "nodes": 2, "features": 5, "labels": 1}


@pytest.mark.parametrize("method", ["gnndelete", "unlink", "retrain", "gif", "megu"])
def test_a_mixed_request_by_other_methods_does_not_depend_on_the_order(method):
    model, data, task = problem("node")
    edges = data.edge_index[:, [0, 50, 90]]
    free = [node for node in range(120) if node not in edges and data.train_mask[node]]
    parts = (
        Deletion(edges=edges),
        Deletion(nodes=free[:2]),
        Deletion(features=[(node, 2) for node in free[2:7]]),
        Deletion(labels=free[7:8]),
    )

    def served(order):
        fit = lambda m, d, seed: gd.train(m, d, task, epochs=5, lr=0.01, seed=seed) and None  # noqa: E731
        unlearner = gd.Unlearner(model, data, task=task, method=method, fit=fit)
        for part in order:
            unlearned = unlearner.delete(part)
        return unlearned.predict(torch.arange(120))

    first = served(parts)
    assert torch.equal(served(parts[::-1]), first)
    assert torch.equal(served([parts[0] | parts[1] | parts[2] | parts[3]]), first)


def test_without_a_weight_of_forgetting_nothing_but_the_graph_changes(subject, run):
    for deletion in (*PARTS, MIXED):
        zero = subject.unlearner(subject.method(lam=0.0)).delete(deletion)
        assert torch.equal(run(zero.model, zero.data), run(subject.base(), deletion.remaining(subject.data)))


def test_a_sequence_goes_on_after_a_restart(graph, gcn, tmp_path):
    unlearner = gd.Unlearner(gcn, graph, task="node")
    for part in PARTS:
        unlearner.delete(part)
    unlearner.save_state(tmp_path / "state.json")
    assert json.loads((tmp_path / "state.json").read_text())["requests"][2]["fill"] == [0.5] * 5
    again = gd.Unlearner(gcn, graph, task="node").load_state(tmp_path / "state.json")
    assert again.history == unlearner.history
    assert torch.equal(again.compact().output(), unlearner.compact().output())


def test_an_adapter_of_labels_alone_comes_back_from_disk(graph, gcn, tmp_path):
    unlearned = gd.Unlearner(gcn, graph, task="node", method=gd.GNNDelete(lam=0.3)).delete(Deletion(labels=[0, 1, 4]))
    unlearned.save(tmp_path)
    back = gd.load(tmp_path, gcn, data=unlearned.data, task="node")
    assert torch.equal(back.output(), unlearned.output())
    assert "3 labels" in (tmp_path / "README.md").read_text()
    mixed = gd.Unlearner(gcn, graph, task="node", method="unlink").delete(MIXED)
    assert "3 edges, 2 nodes, features of 5 nodes, 1 label forgotten" in str(mixed)


def problems(graph, gcn, deletion, task="node", **settings):
    found = []
    method = gd.GNNDelete(watch=lambda site, problem, _: found.append((site.layer, problem)), **settings)
    return found, gd.Unlearner(gcn, graph, task=task, method=method).delete(deletion)


def layers(model, data):
    seen = []
    handles = [conv.register_forward_hook(lambda m, a, out: seen.append(out)) for conv in model.convs]
    with torch.no_grad():
        model.eval()(data.x, data.edge_index)
    for handle in handles:
        handle.remove()
    return seen


def test_nodes_without_features_stay_as_served_and_are_pulled_as_presented(graph, gcn):
    nodes, lam = [9, 30], 0.4
    found, unlearned = problems(graph, gcn, Deletion(features=nodes), lam=lam)
    served, old = layers(gcn, unlearned.data), layers(gcn, graph)
    inner = [(layer, p) for layer, p in found if p.h.size(0) == 4]
    assert [layer for layer, _ in inner] == ["convs.0", "convs.1"]
    for (layer, p), h, before in zip(inner, served, old, strict=True):
        torch.testing.assert_close(p.h[2:], before[nodes])
        torch.testing.assert_close(p.a.float(), torch.tensor([0, 0, lam / 4, lam / 4]))
        assert (p.b[:2] > 0).all()
        torch.testing.assert_close(p.b[2:].float(), torch.full((2,), (1 - lam) / 4))
        torch.testing.assert_close(p.mu.float(), h.mean(dim=0))
        if layer == "convs.1":
            torch.testing.assert_close(p.t, torch.cat([h[nodes], before[nodes]]))


def test_a_label_is_forgotten_behind_the_last_layer_and_nowhere_else(graph, gcn):
    found, unlearned = problems(graph, gcn, Deletion(labels=[0, 12]), lam=0.3)
    assert [layer for layer, _ in found] == ["convs.1"]
    assert found[0][1].rows.tolist() == [0, 12]
    with torch.no_grad():
        base = gcn.eval()(graph.x, graph.edge_index)
    others = torch.ones(48, dtype=torch.bool).index_fill(0, torch.tensor([0, 12]), False)
    after = unlearned.output()
    assert torch.equal(after[others], base[others])
    assert not torch.isclose(after[[0, 12]], base[[0, 12]]).all()


@pytest.mark.parametrize(
    ("deletion", "words"),
    [
        (Deletion(labels=range(0, 40, 3)), "The labels were taken from training; no weight"),
        (Deletion(features=range(0, 40, 3)), "The features were taken from the graph; no weight"),
        (Deletion(nodes=range(0, 40, 3)), "The elements left the graph; no weight"),
    ],
    ids=["labels", "features", "nodes"],
)
def test_words_say_what_was_done_to_the_graph(deletion, words, tmp_path):
    """Without an operator nothing else was done. Labels and features leave nodes and edges where they were."""
    model, data, task = problem("node")
    unlearned = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0)).delete(deletion)
    assert unlearned.assurance_meaning.startswith(words)
    unlearned.save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert words in card
    assert ("the graph was cut" in card) == bool(deletion.nodes.numel())
    calibrated = str(gd.Unlearner(model, data, task=task).delete(deletion))
    assert ("graph cut" in calibrated or "Cutting" in calibrated) == bool(deletion.nodes.numel()), calibrated


@pytest.mark.parametrize("kind", ["labels", "features"])
def test_a_strength_that_was_searched_names_what_lam_0_does(kind):
    for auc in (0.5, 0.6, 0.9, 0.4):
        for kept in (0.0, 0.5) if kind == "features" else (0.0,):
            slope = 0.1 if auc == 0.9 else 1.0

            def measure(lam, auc=auc, slope=slope):
                return Trial(lam, auc=auc - slope * lam, se=0.01, utility=0.9)

            sentence = as_retrained(measure, kept, action=ACTIONS[frozenset([kind])]).sentence
            assert kind in sentence
            assert "cut" not in sentence.lower()


def test_a_link_model_has_learned_no_labels(graph, gcn):
    unlearned = gd.Unlearner(gcn, graph, task="link").delete(Deletion(labels=[0, 12]))
    assert unlearned.assurance == "inference-only"
    assert any("labels play no part" in note.text for note in unlearned.notes)
    assert not unlearned.adapter.operators


@pytest.mark.parametrize("lam", ["auto", 0.3])
def test_labels_that_were_never_trained_on_get_no_operator(graph, gcn, lam):
    def deleted(*labels, **rest):
        return gd.Unlearner(gcn, graph, task="node", method=gd.GNNDelete(lam=lam)).delete(
            Deletion(labels=labels, **rest)
        )

    said = "The model was trained on none of these labels"
    tested, trained = graph.test_mask.nonzero().flatten().tolist(), graph.train_mask.nonzero().flatten().tolist()
    unlearned = deleted(*tested[:4])
    assert (unlearned.assurance, unlearned.parameters) == ("inference-only", 0)
    assert any(said in note.text for note in unlearned.notes)
    assert bool((unlearned.data.y[tested[:4]] == -1).all())
    for other in (deleted(*tested[:4], trained[0]), deleted(trained[0])):
        assert not any(said in note.text for note in other.notes)
        assert other.parameters or lam == "auto"


KINDS = {"columns": PARTS[2], "mixed": MIXED}


#: Models that are not served, and the reason.
REASONS = {"dicts": "the model returned a 'dict', and a tensor of node representations is needed"}


@pytest.mark.parametrize("task", ["link", "node"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_models_by_kinds_by_tasks(case, kind, task):
    subject, told, deletion = build_subject(case), REASONS.get(case.name), KINDS[kind]
    asked = torch.tensor([[0, 7], [12, 40]]) if task == "link" else torch.arange(48)

    def serve():
        unlearned = subject.unlearner(subject.method(lam=0.2), task=task).delete(deletion)
        return unlearned, unlearned.predict(asked)

    if told is not None:
        with pytest.raises(GNNDeleteError, match=told):
            serve()
        return
    unlearned, answers = serve()
    assert torch.isfinite(answers).all()
    assert answers.shape == ((2,) if task == "link" else (48, answers.size(1)))
    assert answers.size(-1) >= OUT or task == "link"
    remaining = deletion.remaining(subject.data)
    assert all(torch.equal(unlearned.data[name], remaining[name]) for name in ("x", "y", "edge_index", "train_mask"))


#: Methods that decline a kind, and why.
DECLINED = {
    ("gradascent", "node", "edges"): "an edge has no loss of its own",
    ("gradascent", "node", "mixed"): "an edge has no loss of its own",
    ("gradascent", "link", "features"): "features have no loss of their own",
    ("gradascent", "link", "mixed"): "features have no loss of their own",
    ("jodie", "link", "features"): "a feature of a node is none",
    ("jodie", "link", "mixed"): "a feature of a node is none",
    **{
        ("jodie", "node", kind): "predicts links and no classes"
        for kind in ("edges", "nodes", "features", "labels", "mixed")
    },
    **{
        ("megu", "link", kind): "class predictions of nodes"
        for kind in ("edges", "nodes", "features", "labels", "mixed")
    },
}


@pytest.mark.parametrize("task", ["link", "node"])
def test_methods_by_kinds_serve_or_say_why_not(task):
    """What they serve is run by the contract test of every method; here only their reasons."""
    model, data, how = problem(task)
    first = Deletion(edges=data.edge_index[:, [0]])
    kinds = {
        "edges": first,
        "nodes": Deletion(nodes=[3]),
        "features": Deletion(features=[5]),
        "labels": Deletion(labels=[7]),
    }
    kinds["mixed"] = first | kinds["nodes"] | kinds["features"] | kinds["labels"]
    session = Session(model, data, call)
    methods = {name: kind() for name, kind in resolver.lookup_dict.items()} | {c.name: c() for c in CONTROLS}
    for name in ("grapheditor", "certunlearn"):
        methods[name] = type(methods[name])(own_model=True)
    for (name, method), (kind, deletion) in itertools.product(methods.items(), kinds.items()):
        reasons = method.unfit(Context(session, task=how).for_deletion(deletion.check(session.data)))
        told = DECLINED.get((name, task, kind))
        assert bool(reasons) == bool(told), (name, task, kind, reasons)
        assert told is None or any(told in r.why and r.remedy for r in reasons)


@pytest.mark.parametrize("name", ["gnndelete", "gif", "gradascent", "megu", "d2d"])
def test_a_node_classifier_with_one_column_is_refused_in_words(name):
    data = make_graph()
    data.y = data.y % 2
    model = gd.models.GCN(data.num_features, hidden=8, out=1)
    unlearner = gd.Unlearner(model, data, task="node", method=name)
    with pytest.raises(GNNDeleteError, match="'y' holds class 1 and the model returns 1 columns"):
        unlearner.delete(Deletion(nodes=[0, 1, 4, 5, 8]))
