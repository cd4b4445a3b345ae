"""The result of a deletion: predictions, first evidence, and words that do not promise too much."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import gnndelete as gd
from gnndelete.errors import AdapterError, GraphError, ModelError, RequestError, SettingError
from gnndelete.notes import MEANING
from gnndelete.testing import problem


@pytest.fixture
def linked(graph, gcn):
    task = gd.LinkPrediction(test=torch.tensor([[1, 10, 30], [3, 12, 32]]))
    return gd.Unlearner(gcn, graph, task=task, method=gd.GNNDelete(lam=0.9), seed=5).delete(
        gd.Deletion(edges=[(3, 4), (20, 22)])
    )


def test_link_predictions_are_scores_on_the_remaining_graph(linked, run):
    z = run(linked.model, linked.data)
    scores = linked.predict([(3, 4), (20, 22), (0, 1)])
    expected = [z[3] @ z[4], z[20] @ z[22], z[0] @ z[1]]
    torch.testing.assert_close(scores, torch.stack(expected))
    assert torch.equal(scores, linked.predict(torch.tensor([[3, 20, 0], [4, 22, 1]])))
    assert not scores.requires_grad


def test_node_predictions_are_probabilities(graph, gcn, run):
    unlearned = gd.Unlearner(gcn, graph, task="node").delete(gd.Deletion(nodes=[9]))
    found = unlearned.predict([0, 9])
    torch.testing.assert_close(found, run(unlearned.model, unlearned.data)[[0, 9]].softmax(dim=-1))
    assert sorted(unlearned.evaluate()) == ["test_accuracy", "test_f1"]


def test_evaluation_ranks_deleted_below_remaining_edges(linked):
    scores = linked.evaluate()
    assert sorted(scores) == ["deleted_auprc", "deleted_auroc", "test_auprc", "test_auroc"]
    assert all(0 <= value <= 1 for value in scores.values())
    assert linked.evaluate() == scores, "the sample of remaining edges comes from the recorded seed"
    assert linked.seed == 5


def test_the_flags_of_the_model_survive_a_prediction(linked):
    linked.model.train()
    linked.model.convs[0].eval()
    before = [module.training for module in linked.model.modules()]
    linked.predict([(0, 1)])
    linked.evaluate()
    assert [module.training for module in linked.model.modules()] == before


def test_without_a_task_the_way_out_is_named(graph, gcn):
    unlearned = gd.Unlearner(gcn, graph).delete(gd.Deletion(nodes=[9]))
    for question in (lambda: unlearned.predict([1]), unlearned.evaluate):
        with pytest.raises(ModelError, match=r"no task is known.*pass task="):
            question()
    assert unlearned.output().shape == (48, 5)


def test_a_result_says_what_it_cost_and_what_it_does_not_give(linked):
    text = str(linked)
    assert "2 edges" in text
    assert "approximate" in text
    assert MEANING["approximate"] in text
    assert f"{linked.parameters:,}" in text
    assert linked.seconds > 0
    assert linked.parameters == linked.adapter.num_parameters == 8**2 + 2 * 5**2
    summary = linked.summary()
    assert summary["counts"] == {"edges": 2}
    made = f"method='gnndelete', assurance='approximate', parameters={linked.parameters}"
    model = type(linked.model).__name__
    assert repr(linked) == f"Unlearned(model={model}, data={linked.data}, counts={{'edges': 2}}, {made})"
    assert repr(linked.adapter) == f"Adapter(model={model}, operators=2, parameters={linked.parameters})"
    assert not any(isinstance(value, torch.Tensor) for value in summary.values())


def test_assurance_is_never_inflated(graph, gcn):
    def served(method):
        return gd.Unlearner(gcn, graph, task="node", method=method).delete(gd.Deletion(edges=[(3, 4)])).assurance

    assert served(gd.GNNDelete()) == "approximate"
    assert served("unlink") == "inference-only"
    assert served(gd.Retrain(epochs=1)) == "retrained"
    assert list(MEANING) == ["retrained", "exact", "certified", "approximate", "inference-only"]


def test_any_model_can_be_evaluated(graph, gcn):
    gcn.train()
    scores = gd.evaluate(gcn, graph, gd.NodeClassification())
    assert sorted(scores) == ["accuracy", "f1"]
    assert gcn.training
    with torch.no_grad():
        predicted = gcn.eval()(graph.x, graph.edge_index).argmax(dim=-1)
    assert scores["accuracy"] == float((predicted == graph.y)[graph.test_mask].double().mean())
    assert gd.evaluate(gcn, graph, "node") == scores == gd.evaluate(gcn, graph, gd.NodeClassification)
    with pytest.raises(SettingError, match="'task' must be one of graph, link, node"):
        gd.evaluate(gcn, graph, "nodes")
    with pytest.raises(GraphError, match="data is a 'LinkSplit'; pass the torch_geometric Data"):
        gd.evaluate(gcn, gd.datasets.split_links(graph), "link")


def test_operators_are_never_stacked(tmp_path):
    model, data, task = problem("node")
    unlearned = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.5)).delete(gd.Deletion(nodes=[3]))
    unlearned.save(tmp_path)
    with pytest.raises(AdapterError, match="already carries one"):
        gd.load(tmp_path, unlearned.model, data=unlearned.data)
    with pytest.raises(ModelError, match="already carries deletion operators"):
        gd.Unlearner(unlearned.model, unlearned.data, task=task)


@pytest.mark.parametrize(
    ("kind", "elements", "message"),
    [
        ("node", [9999], "there is no node 9999"),
        ("node", [-1], "there is no node -1"),
        ("node", [(0, 1)], "flat list"),
        ("node", [0.5], "ids are integers"),
        ("link", [(0, 99999)], "names node 99999"),
    ],
)
def test_predictions_are_only_given_for_what_exists(kind, elements, message):
    model, data, task = problem(kind)
    unlearned = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(nodes=[3]))
    with pytest.raises(RequestError, match=message):
        unlearned.predict(elements)


class AgainAndAgain(nn.Module):
    """One layer, called twice, with dropout: its operators count calls, and its flags matter."""

    def __init__(self):
        super().__init__()
        self.lower, self.conv = nn.Linear(6, 6), GCNConv(6, 6)

    def forward(self, x, edge_index):
        h = self.conv(self.lower(x), edge_index).relu()
        return self.conv(nn.functional.dropout(h, 0.5, self.training), edge_index)


@pytest.mark.parametrize("training", [True, False])
def test_serving_auditing_and_deleting_from_eight_threads_give_what_one_gives(graph, at_once, training):
    torch.manual_seed(0)
    model = AgainAndAgain().train(training)
    method, deletion = gd.GNNDelete(lam=0.4), gd.Deletion(edges=[(3, 4), (20, 22)])
    unlearned = gd.Unlearner(model, graph, task="node", method=method).delete(deletion)
    nodes = torch.arange(48)
    output, predicted = unlearned.output(), unlearned.predict(nodes)
    flags = [module.training for module in unlearned.model.modules()]
    quiet = copy.deepcopy(unlearned.model).eval()
    with unlearned.adapter.disabled():
        base = unlearned.output()
    assert not torch.allclose(base, output)
    ids = torch.tensor([30, 31, 3, 4, 5, 40])
    local = graph.subgraph(ids)
    with torch.no_grad(), gd.rows(quiet, ids):
        batch = quiet(graph.x[ids], local.edge_index)
    evaluated = gd.audit(unlearned, attacks=False).to_dict()["verdict"]

    def work(seed):
        kind = seed % 8
        if kind < 3:
            assert torch.equal(unlearned.output(), output)
            assert torch.equal(unlearned.predict(nodes), predicted)
        elif kind == 3:
            with unlearned.adapter.disabled():
                assert torch.equal(unlearned.output(), base)
        elif kind == 4:
            with torch.no_grad(), gd.rows(quiet, ids):
                assert torch.equal(quiet(graph.x[ids], local.edge_index), batch)
        elif kind == 5:
            assert torch.equal(quiet(unlearned.data.x, unlearned.data.edge_index).detach(), output)
        elif kind == 6:
            again = gd.Unlearner(model, graph, task="node", method=method).delete(deletion)
            assert torch.equal(again.output(), output)
        else:
            assert [module.training for module in unlearned.model.modules()] == flags
            if seed < 24:
                assert gd.audit(unlearned, attacks=False).to_dict()["verdict"] == evaluated

    at_once(work, 12)
    assert [module.training for module in unlearned.model.modules()] == flags
    assert model.training == training
