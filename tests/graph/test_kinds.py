"""Features, labels and subgraphs, alone and mixed with edges and nodes: what remains, what is solved, and who serves them."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete import Deletion
from gnndelete.engine.session import Session
from gnndelete.errors import DeletionError, GNNDeleteError
from gnndelete.methods import CONTROLS, resolver
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.calibration import Trial, as_retrained, cut_action
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


# What is named


@pytest.mark.parametrize(
    "form",
    [
        {3: [0, 2], 8: 1},
        {8: torch.tensor([1]), 3: (2, 0, 2)},
        [(8, 1), (3, 2), (3, 0), (8, 1)],
        ((3, 0), (3, 2), (8, 1)),
        iter([[3, 0], [3, 2], [8, 1]]),
        torch.tensor([[3, 8, 3], [0, 1, 2]]),
        torch.tensor([[3, 8, 3], [0, 1, 2]], dtype=torch.int32).numpy(),
    ],
    ids=["mapping", "mapping of others", "pairs", "tuple", "iterator", "tensor", "array"],
)
def test_every_form_of_some_columns_is_the_same_request(form):
    made = Deletion(features=form)
    assert made == Deletion(features=[(3, 0), (3, 2), (8, 1)])
    assert made.counts == {"features": 2}, "nodes that lose features"
    assert made.feature_nodes.tolist() == [3, 8]


def test_all_columns(graph):
    whole = Deletion(features=[5, 3])
    assert whole == Deletion(features=torch.tensor([3, 5])) == Deletion(features=range(3, 6, 2))
    assert whole | Deletion(features=[(3, 1)]) == whole, "a column goes with its row"
    listed = Deletion(features=[(node, column) for node in (3, 5) for column in range(6)])
    assert listed != whole
    assert listed.check(graph) == whole.check(graph), "the graph says that these are all"


def test_fill_is_part_of_the_request():
    assert Deletion(features=[3]) != Deletion(features=[3], fill=1.0)
    assert Deletion(features=[3]) == Deletion(features=[3], fill=-0.0)
    with pytest.raises(DeletionError, match=r"column 1 of node 3 .* 0 and by 2; give one value"):
        Deletion(features=[(3, 1)]) | Deletion(features=[(3, 1)], fill=2)
    both = Deletion(features=[3]) | Deletion(features=[(3, 1)], fill=2.0)
    assert both == Deletion(features=[(3, 1)], fill=2.0) | Deletion(features=[3])
    x = both.remaining(make_graph()).x[3]
    assert x.tolist() == [0, 2, 0, 0, 0, 0], "the column that was named by itself has its own value"


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo, torch.sparse_csr])
def test_features_that_remain(graph, layout):
    before = graph.x.clone()
    graph.x = graph.x if layout == torch.strided else graph.x.to_sparse(layout=layout)
    means = before.mean(dim=0)
    for deletion, rows in {
        Deletion(features=[7, 9]): {7: torch.zeros(6), 9: torch.zeros(6)},
        Deletion(features=[7], fill=2.5): {7: torch.full((6,), 2.5)},
        Deletion(features=[7], fill=means): {7: means},
        Deletion(features={7: [1, 4]}, fill=means): {7: torch.where(torch.arange(6) % 3 == 1, means, before[7])},
    }.items():
        rest = deletion.remaining(graph)
        assert rest.x.layout == layout
        expected = before.clone()
        for node, row in rows.items():
            expected[node] = row
        torch.testing.assert_close(rest.x.to_dense(), expected)
        assert torch.equal(graph.x.to_dense(), before)
        assert torch.equal(rest.edge_index, graph.edge_index)
        assert torch.equal(rest.y, graph.y)
    gone = Deletion(features=[7]).remaining(graph).x
    if layout != torch.strided:
        assert 7 not in gone.to_sparse_coo().coalesce().indices()[0], "not even a stored zero tells where it was"


def test_whole_number_features(graph):
    graph.x = (10 * graph.x).long()
    assert Deletion(features=[(3, 1)], fill=4.0).remaining(graph).x[3, 1] == 4
    with pytest.raises(DeletionError, match=r"fill= holds fractions and 'x' is torch\.int64"):
        Deletion(features=[3], fill=0.5).check(graph)


def test_labels_that_remain(graph):
    rest = Deletion(labels=[0, 2]).remaining(graph)
    assert rest.y[[0, 2]].tolist() == [-1, -1]
    others = torch.ones(48, dtype=torch.bool).index_fill(0, torch.tensor([0, 2]), False)
    assert torch.equal(rest.y[others], graph.y[others])
    for name in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(rest[name], graph[name] & others)
    assert torch.equal(rest.x, graph.x)
    graph.y = torch.rand(48, 2)
    assert Deletion(labels=[4]).remaining(graph).y[4].isnan().all()


def test_features_and_labels_of_deleted_nodes_go_with_them(graph):
    both = Deletion(nodes=[9], features=[9, 10], labels=[9, 10]).check(graph)
    assert both == Deletion(nodes=[9], features=[10], labels=[10]).check(graph)
    assert both.remaining(graph).x[9].tolist() == [0.0] * 6


def test_a_subgraph_is_the_edges_among_its_nodes(graph):
    triangle = Deletion.of_subgraph(graph, [43, 44, 45])
    assert triangle == Deletion(edges=[(43, 44), (44, 45), (43, 45)])
    assert Deletion.of_subgraph(graph, [0, 1, 2, 3]) == Deletion(edges=[(0, 1), (1, 2), (2, 3), (0, 2)])
    with pytest.raises(DeletionError, match="no edge joins two of the 2 nodes"):
        Deletion.of_subgraph(graph, [0, 40])
    typed = Data(edge_index=torch.tensor([[0, 1, 0], [1, 0, 2]]), edge_type=torch.tensor([1, 0, 0]), num_nodes=3)
    assert Deletion.of_subgraph(typed, [0, 1]) == Deletion(edges=[(0, 1, 1), (1, 0, 0)])


MALFORMED = {
    "ids and pairs": (dict(features=[3, (4, 1)]), "pairs (node, column) throughout"),
    "triples": (dict(features=[(3, 4, 1)]), "(3, 4, 1)"),
    "a text": (dict(features="3"), "features"),
    "no columns": (dict(features={3: []}), "no column"),
    "floats": (dict(features=[0.5]), "features"),
    "negative column": (dict(features=[(3, -1)]), "-1"),
    "nan": (dict(features=[3], fill=float("nan")), "fill"),
    "a word": (dict(features=[3], fill="mean"), "'mean'"),
    "a table": (dict(features=[3], fill=[[1.0]]), "[1, 1]"),
    "fill alone": (dict(nodes=[3], fill=1.0), "features= names none"),
    "short fill": (dict(features=[(3, 5)], fill=[1.0, 2.0]), "2 values"),
}
UNFITTING = {
    "no such node": (dict(features=[48]), "48"),
    "no such column": (dict(features=[(3, 6)]), "(3, 6)"),
    "a fill of another width": (dict(features=[3], fill=[1.0, 2.0]), "'x' has 6 columns"),
    "too long a fill": (dict(features=[3], fill=[1.0] * 7), "columns that 'x' does not have"),
    "no such label": (dict(labels=[48]), "48"),
}


@pytest.mark.parametrize("name", [*MALFORMED, *UNFITTING])
def test_requests_that_make_no_sense(graph, name):
    with pytest.raises(DeletionError) as caught:
        Deletion(**(MALFORMED | UNFITTING)[name][0]).check(graph)
    text = str(caught.value)
    assert (MALFORMED | UNFITTING)[name][1] in text
    assert "\n" not in text
    assert len(text) < 320


def test_graphs_without_features_or_labels(graph):
    graph.num_nodes = 48
    graph.y[5] = -1
    with pytest.raises(DeletionError, match="nodes without a label: 5; leave them out"):
        Deletion(labels=[4, 5]).check(graph)
    del graph.x, graph.y
    with pytest.raises(DeletionError, match=r"the graph has no 'x'.*nodes="):
        Deletion(features=[4]).check(graph)
    with pytest.raises(DeletionError, match="the graph has no 'y'"):
        Deletion(labels=[4]).check(graph)


# Sequences


def test_what_is_already_gone_is_refused():
    earlier = Deletion(nodes=[9], features=[(3, 1), (4, 0)], labels=[5]) | Deletion(features=[7])
    for again, words in (
        (Deletion(features=[(3, 1)]), "request: column 1 of the features of node 3;"),
        (Deletion(features=[(3, 0), (3, 1)], fill=[2.0, 3.0]), "request: column 1 of the features of node 3;"),
        (Deletion(features=[(7, 2)]), "request: column 2 of the features of node 7;"),
        (Deletion(features=[7]), "request: features of node 7;"),
        (Deletion(features=[9]), "request: features of node 9;"),
        (Deletion(labels=[5, 6]), "label of node 5"),
        (Deletion(labels=[9]), "label of node 9"),
    ):
        with pytest.raises(DeletionError, match=f"already deleted.*{words}"):
            again.require_new(earlier)
    for fine in (
        Deletion(features=[3]),
        Deletion(features=[(3, 0), (4, 1)]),
        Deletion(labels=[3, 7]),
        Deletion(nodes=[3]),
    ):
        assert fine.require_new(earlier) == fine


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
    assert torch.equal(again.current().output(), unlearner.current().output())


def test_an_adapter_of_labels_alone_comes_back_from_disk(graph, gcn, tmp_path):
    unlearned = gd.Unlearner(gcn, graph, task="node", method=gd.GNNDelete(lam=0.3)).delete(Deletion(labels=[0, 1, 4]))
    unlearned.save(tmp_path)
    back = gd.load(tmp_path, gcn, data=unlearned.data, task="node")
    assert torch.equal(back.output(), unlearned.output())
    assert "3 labels" in (tmp_path / "README.md").read_text()
    mixed = gd.Unlearner(gcn, graph, task="node", method="unlink").delete(MIXED)
    assert "3 edges, 2 nodes, features of 5 nodes, 1 label forgotten" in str(mixed)


# What GNNDelete solves


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

            sentence = as_retrained(measure, kept, action=cut_action({kind: 60})).sentence
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


# Models of every make; the table of kinds and tasks is in test_table.py

KINDS = {"columns": PARTS[2], "mixed": MIXED}
#: Models that are not served, and what the user is told.
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


# Labels of any type


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.long])
@pytest.mark.parametrize("masks", [True, False], ids=["masks", "no masks"])
def test_labels_of_any_type_are_gone_from_training(dtype, masks):
    data = make_graph()
    data.y = (data.y % 2).to(dtype)
    if not masks:
        del data.train_mask, data.val_mask, data.test_mask
    task = gd.NodeClassification()
    request = Deletion(labels=[0, 1, 4], nodes=[8, 9])
    rest = request.remaining(data)
    assert rest.y[[0, 1, 4, 8, 9]].tolist() == [-1] * 5
    assert not task.part(rest, "train")[[0, 1, 4, 8, 9]].any()
    others = torch.ones(data.num_nodes, dtype=torch.bool).index_fill(0, torch.tensor([0, 1, 4, 8, 9]), False)
    assert torch.equal(rest.y[others].long(), data.y[others].long())
    model = gd.models.GCN(data.num_features, hidden=8, out=2)
    for name in ("gradascent", "gif", "megu", "d2d", "grapheraser", "gnndelete", "retrain"):
        method = resolver.make(name, {"epochs": 2} if name in ("retrain", "grapheraser") else {})
        unlearned = gd.Unlearner(model, data, task=task, method=method).delete(request)
        assert unlearned.predict([20, 21]).shape == (2, 2)


def test_labels_of_deleted_graphs_are_gone_whatever_their_type():
    graphs = [make_graph(seed) for seed in range(4)]
    for index, graph in enumerate(graphs):
        graph.y = torch.tensor([index % 2 == 0])
        del graph.train_mask, graph.val_mask, graph.test_mask
    unlearned = gd.Unlearner(
        gd.models.build("gcn", graphs[0].num_features, out=2, pool="mean"), graphs, task="graph", method="unlink"
    ).delete(Deletion(graphs=[2]))
    assert unlearned.data.y.tolist() == [1, 0, -1, 0]


@pytest.mark.parametrize("name", ["gnndelete", "gif", "gradascent", "megu", "d2d"])
def test_a_node_classifier_with_one_column_is_refused_in_words(name):
    data = make_graph()
    data.y = data.y % 2
    model = gd.models.GCN(data.num_features, hidden=8, out=1)
    unlearner = gd.Unlearner(model, data, task="node", method=name)
    with pytest.raises(GNNDeleteError, match="'y' holds class 1 and the model returns 1 columns"):
        unlearner.delete(Deletion(nodes=[0, 1, 4, 5, 8]))
