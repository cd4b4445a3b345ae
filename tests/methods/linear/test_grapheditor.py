"""GraphEditor: after every request the model equals one that was fitted without the deleted elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.errors import GraphError, RunError
from gnndelete.methods import Context
from gnndelete.methods.linear import grapheditor
from gnndelete.methods.linear.grapheditor import GraphEditor
from gnndelete.methods.linear.rows import alive_nodes, training_rows
from gnndelete.nn.forward import call

SEQUENCE = [gd.Deletion(edges=[(3, 4)]), gd.Deletion(nodes=[9]), gd.Deletion(edges=[(20, 22), (43, 45)], nodes=[30])]
PAIRS = torch.cartesian_prod(torch.arange(48), torch.arange(48)).t()


def whole(requests):
    union = gd.Deletion()
    for request in requests:
        union = union | request
    return union


def widened(graph, width):
    graph.x = torch.randn(48, width, generator=torch.Generator().manual_seed(1))
    return graph


def unlearner(model, data, task="link", **options):
    return gd.Unlearner(model, data, task=task, method=GraphEditor(own_model=True, **options))


def fresh(data, deletion, task, lam=0.1, hops=2):
    """A ridge regression on the remaining graph with dense matrices and nothing of the library but the training rows."""
    rest = deletion.remaining(data)
    a = np.zeros((48, 48))
    a[rest.edge_index[0], rest.edge_index[1]] = 1
    p = (a + np.eye(48)) / (a + np.eye(48)).sum(axis=1, keepdims=True)
    levels = [np.linalg.matrix_power(p, k) @ rest.x.double().numpy() for k in range(hops + 1)]
    levels = [h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12) for h in levels]
    known = {"link": gd.LinkPrediction(), "node": gd.NodeClassification()}[task]
    context = Context(Session(gd.models.GCN(rest.x.size(1)), rest, call), task=known)
    rows = training_rows(context, rest, alive_nodes(context, deletion.nodes))
    (u, v), target = rows.ends.numpy(), rows.target.numpy()
    if task == "node":
        features, y, query = np.hstack(levels), np.eye(5)[target], np.hstack(levels)
        phi = features[u]
    else:
        common = a @ a

        def pair(i, j):
            return np.hstack([levels[-1][i] * levels[-1][j], common[i, j][:, None]])

        phi, y, query = pair(u, v), target[:, None].astype(float), pair(*PAIRS.numpy())
    weight = np.linalg.solve(phi.T @ phi + lam * np.eye(phi.shape[1]), phi.T @ y)
    return torch.from_numpy(query @ weight)


def answers(unlearned, task):
    return unlearned.predict(torch.arange(48)) if task == "node" else unlearned.predict(PAIRS)


@pytest.mark.parametrize("task", ["link", "node"])
@pytest.mark.parametrize(("width", "path"), [(2, "solve"), (60, "update")])
def test_it_equals_a_fresh_fit_after_every_request(graph, task, width, path):
    graph = widened(graph, width)
    editor = unlearner(gd.models.GCN(width), graph, task)
    paths = set()
    for count, request in enumerate(SEQUENCE, start=1):
        unlearned = editor.delete(request)
        paths.add(unlearned.details["path"])
        expected = fresh(graph, whole(SEQUENCE[:count]), task)
        expected = expected.softmax(dim=-1) if task == "node" else expected.flatten()
        torch.testing.assert_close(answers(unlearned, task), expected, atol=1e-9, rtol=0)
        assert unlearned.assurance == "exact"
        assert unlearned.model is None
    assert path in paths
    assert paths == {path} or (width, task) == (2, "node")  # a line's single edge touches few training nodes


@pytest.mark.parametrize("task", ["link", "node"])
def test_both_paths_and_any_order_agree(graph, task):
    graph = widened(graph, 60)
    model = gd.models.GCN(60)

    def after(requests):
        editor = unlearner(model, graph, task)
        return [editor.delete(request) for request in requests][-1]

    one, three, other = after([whole(SEQUENCE)]), after(SEQUENCE), after(SEQUENCE[::-1])
    torch.testing.assert_close(answers(three, task), answers(one, task), atol=1e-9, rtol=0)
    torch.testing.assert_close(answers(three, task), answers(other, task), atol=1e-9, rtol=0)
    again = after(SEQUENCE)
    assert torch.equal(answers(three, task), answers(again, task)), "nothing is random but the seed"
    assert not torch.allclose(answers(three, task), answers(after(SEQUENCE[:2]), task), atol=1e-6)


def test_many_small_updates_do_not_drift(graph):
    graph = widened(graph, 60)
    editor = unlearner(gd.models.GCN(60), graph, lam=1e-3)
    edges = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]][:, 5:30]
    results = [editor.delete(gd.Deletion(edges=edges[:, i : i + 1])) for i in range(edges.size(1))]
    assert {result.details["path"] for result in results} == {"update"}
    expected = fresh(graph, gd.Deletion(edges=edges), "link", lam=1e-3).flatten()
    torch.testing.assert_close(results[-1].predict(PAIRS), expected, atol=1e-8, rtol=0)


def test_rounding_that_shows_ends_in_a_fresh_solve(graph, monkeypatch):
    monkeypatch.setattr(grapheditor, "MAX_DRIFT", 0.0)
    graph = widened(graph, 60)
    unlearned = unlearner(gd.models.GCN(60), graph).delete(SEQUENCE[0])
    assert unlearned.details["path"] == "solve"
    torch.testing.assert_close(unlearned.predict(PAIRS), fresh(graph, SEQUENCE[0], "link").flatten())


def test_a_request_that_fails_leaves_the_sequence_whole(graph, monkeypatch):
    graph = widened(graph, 60)
    editor = unlearner(gd.models.GCN(60), graph)
    editor.delete(SEQUENCE[0])
    (state,) = editor._context.memory.values()

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(grapheditor._Ridge, "updated", fail)
        with pytest.raises(KeyboardInterrupt):
            editor.delete(SEQUENCE[1])
    assert list(editor._context.memory.values()) == [state]
    expected = fresh(graph, SEQUENCE[0] | SEQUENCE[2], "link").flatten()
    torch.testing.assert_close(editor.delete(SEQUENCE[2]).predict(PAIRS), expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(editor.compact().predict(PAIRS), expected, atol=1e-9, rtol=0)


def test_an_interrupted_request_whose_state_was_kept_does_no_harm(graph):
    """The memory may be a request ahead of the sequence: the next one is computed from what really remains."""
    graph = widened(graph, 60)
    editor = unlearner(gd.models.GCN(60), graph)
    editor.delete(SEQUENCE[1])
    editor._remember([])
    expected = fresh(graph, SEQUENCE[0], "link").flatten()
    torch.testing.assert_close(editor.delete(SEQUENCE[0]).predict(PAIRS), expected, atol=1e-9, rtol=0)


def test_nothing_deleted_is_left_in_memory(graph):
    editor = unlearner(gd.models.GCN(6), graph)
    unlearned = editor.delete(gd.Deletion(nodes=[9], edges=[(3, 4)]))
    (state,) = editor._context.memory.values()
    assert not any(level[9].any() for level in state.levels)
    assert not torch.isin(state.rows.ends, 9).any()
    assert state.adjacency.degree[9] == 0
    assert not bool(state.adjacency.table.contains(torch.tensor([[3], [4]])).any())
    assert float(unlearned.predict([(9, 10)])) == 0


def test_the_user_is_left_alone_and_told(graph, gcn, snapshot):
    before = snapshot(gcn, graph)
    unlearned = unlearner(gcn, graph).delete(SEQUENCE[0])
    assert snapshot(gcn, graph) == before
    said = " ".join(map(str, unlearned.notes))
    for part in ("model of its own", "'Stack' play no part", "fine-tuning is left out", "Edge weights", "Exact"):
        assert part in said
    assert unlearned.parameters == 7
    assert unlearned.predict([(0, 1), (5, 9)]).shape == (2,)
    assert unlearner(gcn, graph, "node").delete(SEQUENCE[0]).predict([0, 1]).sum(dim=1).tolist() == pytest.approx(
        [1, 1]
    )
    with pytest.raises(GraphError, match="names node 48"):
        unlearned.predict([(0, 48)])


def test_wide_sparse_and_directed_graphs(graph):
    graph = widened(graph, 60)
    narrow = unlearner(gd.models.GCN(60), graph, dim=8).delete(SEQUENCE[1])
    assert narrow.parameters == 9
    assert any("random map to 8 columns" in note.text for note in narrow.notes)
    sparse = graph.__copy__()
    sparse.x = graph.x.to_sparse()
    torch.testing.assert_close(
        unlearner(gd.models.GCN(60), sparse, dim=8).delete(SEQUENCE[1]).predict(PAIRS), narrow.predict(PAIRS)
    )
    directed = graph.__copy__()
    for name in ("edge_weight", "edge_attr"):
        del directed[name]
    directed.edge_index = graph.edge_index[:, : graph.edge_index.size(1) // 2]
    unlearned = unlearner(gd.models.GCN(60), directed).delete(SEQUENCE[0])
    assert any("both directions" in note.text for note in unlearned.notes)
    assert torch.isfinite(unlearned.predict(PAIRS)).all()


def test_nothing_left_to_learn_from(graph):
    with pytest.raises(GraphError, match="no labelled training node is left"):
        unlearner(gd.models.GCN(6, out=5), graph, "node").delete(
            gd.Deletion(nodes=graph.train_mask.nonzero().flatten())
        )
    graph.x *= 0
    assert unlearner(gd.models.GCN(6), graph).delete(SEQUENCE[0]).predict(PAIRS).isfinite().all()
    graph.x = torch.randn(48, 1, generator=torch.Generator().manual_seed(0)).expand(48, 60).contiguous()
    with pytest.raises(RunError, match="raise lam="):
        unlearner(gd.models.GCN(60), graph, lam=1e-30).delete(SEQUENCE[0])


def test_digits():
    data = gd.datasets.load("digits")
    split, nodes = gd.datasets.split_links(data, seed=1), gd.datasets.split_nodes(data, seed=1)
    edges = split.data.edge_index[:, split.data.edge_index[0] < split.data.edge_index[1]]
    request = gd.Deletion(edges=edges[:, ::40], nodes=[])
    task = gd.LinkPrediction(validation=split.validation, test=split.test, test_negatives=split.test_negatives)
    assert unlearner(gd.models.GCN(64), split.data, task).delete(request).evaluate()["test_auroc"] > 0.98
    assert unlearner(gd.models.GCN(64), nodes, "node").delete(request).evaluate()["test_accuracy"] > 0.95


def test_features_come_back_with_a_request_that_was_not_served(graph, gcn, monkeypatch):
    """What fails after the weights were edited is not in the history, and must not stay in what is remembered."""
    graph = widened(graph, 6)
    edited = unlearner(gcn, graph)
    edited.delete(SEQUENCE[0])
    with monkeypatch.context() as broken:
        broken.setattr(gd.Unlearned, "from_outcome", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            edited.delete(gd.Deletion(features=[5, 6, 7]))
    assert len(edited.history) == 1
    found = edited.delete(gd.Deletion(edges=[(20, 22)]))
    anew = unlearner(gcn, graph)
    anew.delete(SEQUENCE[0])
    torch.testing.assert_close(found.predict(PAIRS), anew.delete(gd.Deletion(edges=[(20, 22)])).predict(PAIRS))
    union = SEQUENCE[0] | gd.Deletion(edges=[(20, 22)])
    torch.testing.assert_close(found.predict(PAIRS).double(), fresh(graph, union, "link").flatten())
