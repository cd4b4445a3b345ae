"""Regrow on every task and kind of graph: new weights throughout, from no storage and with no value of the old ones."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.auditing.case import open_case
from gnndelete.auditing.measures.weights import WeightsMeasure
from gnndelete.methods.regrow.acceptance import Check, Judge
from tests import typed
from tests.hetero import Convs, make_hetero

EPOCHS = 30


def nodes(kind):
    data = gd.datasets.split_nodes(gd.datasets.load("digits"), train=0.6, val=0.2)
    model = gd.models.GCN(data.num_features, hidden=16, out=10, norm=True)
    chosen = data.train_mask.nonzero().flatten()[:60]
    return model, data, gd.NodeClassification(), gd.Deletion(**{kind: chosen})


def graphs():
    generator = torch.Generator().manual_seed(0)
    made = []
    for k in range(80):
        pairs = torch.randint(6, (2, 8), generator=generator)
        x = torch.randn(6, 4, generator=generator) + k % 2
        made.append(Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=torch.tensor([k % 2])))
    for k, each in enumerate(made):
        each.train_mask, each.val_mask = (torch.tensor([k % 4 < 2]), torch.tensor([k % 4 == 2]))
        each.test_mask = torch.tensor([k % 4 == 3])
    data = made
    model = gd.models.build("gin", 4, hidden=8, out=2, num_layers=2, pool="mean")
    return model, data, gd.GraphClassification(), gd.Deletion(graphs=range(6))


def triples():
    model, data, task = typed.problem("rgcn")
    chosen = task.learned_once(data)[:, :40]
    return model, data, task, gd.Deletion(edges=chosen)


def hetero():
    data = make_hetero()
    task = gd.NodeClassification(node_type="paper")
    return Convs(data), data, task, gd.Deletion(nodes={"paper": [0, 2]}, labels={"paper": [1, 5]})


PROBLEMS = {
    "nodes": lambda: nodes("nodes"),
    "labels": lambda: nodes("labels"),
    "features": lambda: nodes("features"),
    "graphs": graphs,
    "triples": triples,
    "hetero": hetero,
}


@pytest.mark.parametrize("step", ["fast", "distilled"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_new_weights_on_every_task_and_graph(name, step, monkeypatch):
    failed = [Check("utility", 0.5, 0.9, 0.01, passed=False)]
    enough = step == "fast"
    monkeypatch.setattr(Judge, "checks", lambda self, model, clean: [] if enough or clean else failed)
    monkeypatch.setattr("gnndelete.methods.regrow.method.LARGEST_SHARE", 1.0)
    torch.manual_seed(0)
    model, data, task, deletion = PROBLEMS[name]()
    gd.train(model, data, task, epochs=EPOCHS, lr=0.01)
    unlearner = gd.Unlearner(model, data, task=task, method=gd.Regrow(epochs=EPOCHS, lr=0.01))
    unlearned = unlearner.delete(deletion)
    found = unlearned.details["regrow"]
    if found["taken"] == "retrain":
        assert found["reason"] == "checks-failed", (
            "forgetting cannot be measured there, so that distillation is not tried"
        )
        assert step == "distilled"
    else:
        assert found["taken"] == step
    assert unlearned.weights == "new"
    old = model.state_dict()
    assert not {v.untyped_storage().data_ptr() for v in unlearned.model.state_dict().values()} & {
        v.untyped_storage().data_ptr() for v in old.values()
    }
    assert WeightsMeasure().run(open_case(unlearned)).old == []
