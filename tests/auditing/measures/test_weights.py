"""Whose weights: what a planted fraud keeps of the old model is named, and a retraining has nothing of it."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import gnndelete as gd
from gnndelete.datasets import split_links
from gnndelete.datasets.generated import community_graph
from gnndelete.training.loop import LoopFit, train

EPOCHS = 60


class Both(nn.Module):
    """Vectors of nodes, features and a batch norm: everything that a fraud could keep."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(200, 16)
        self.conv1 = gd.models.GCN(32, 16, 16).convs[0]
        self.norm = nn.BatchNorm1d(16)
        self.conv2 = gd.models.GCN(16, 16, 16).convs[0]

    def forward(self, x, edge_index):
        h = self.conv1(torch.cat([x, self.embedding.weight], dim=1), edge_index)
        return self.conv2(self.norm(h).relu(), edge_index)


@pytest.fixture(scope="module")
def retrained():
    """A deletion by Retrain, with its base model."""
    split = split_links(community_graph(200, 800, 16, classes=4, community=50, seed=0), seed=0, test=0.2)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = Both()
    train(model, split.data, task, epochs=EPOCHS, lr=0.01)
    deletion = gd.Deletion(edges=task.learned_once(split.data)[:, :60])
    fit = LoopFit(task, {"epochs": EPOCHS, "lr": 0.01})
    results = [
        gd.Unlearner(model, split.data, task=task, method=gd.Retrain(seed=seed), fit=fit).delete(deletion)
        for seed in (1, 2)
    ]
    return results


def planted(result, change):
    """A result called regrow whose model was changed."""
    model = copy.deepcopy(result.model)
    with torch.no_grad():
        change(model, result.base)
    return replace(result, model=model, method="regrow", assurance="approximate", details={})


def copies_a_layer(model, base):
    model.conv2.load_state_dict(base.conv2.state_dict())


def keeps_untouched_vectors(model, base):
    model.embedding.weight[100:] = base.embedding.weight[100:]


def continues_from_a_layer(model, base):
    model.conv1.lin.weight.copy_(base.conv1.lin.weight + 0.3 * base.conv1.lin.weight.std() * torch.randn(16, 32))


def keeps_running_means(model, base):
    model.norm.running_mean.copy_(base.norm.running_mean)


FRAUDS = {
    copies_a_layer: "conv2",
    keeps_untouched_vectors: "embedding.weight",
    continues_from_a_layer: "conv1.lin.weight",
    keeps_running_means: "norm.running_mean",
}


@pytest.mark.parametrize("fraud", FRAUDS, ids=lambda fraud: fraud.__name__)
def test_a_planted_regrow_is_called_out_by_the_audit(retrained, fraud):
    audit = gd.audit(planted(retrained[0], fraud), reference=retrained[1], attacks=False)
    assert audit.sections["weights"].old[0].name.startswith(FRAUDS[fraud])
    if fraud is not keeps_running_means:  # which ruins the model as well
        assert audit.verdict.code == "under-forgotten"
        assert audit.verdict.rule == "weights-not-new"
        assert FRAUDS[fraud] in audit.verdict.text


def test_a_retraining_has_nothing_of_the_old_weights(retrained):
    section = gd.audit(retrained[0], reference=retrained[1], attacks=False).sections["weights"]
    assert section.old == []
    assert {"embedding.weight", "conv1.lin.weight", "norm.running_mean"} <= {found.name for found in section.tensors}
    alone = gd.audit(retrained[0], attacks=False).sections["weights"]
    assert alone.old == []


def test_the_seed_of_the_old_model_alone_is_no_fraud(retrained):
    result = retrained[0]
    torch.manual_seed(1)
    base = Both()
    train(base, result.original, result.task, epochs=5, lr=0.001)
    again = gd.Unlearner(
        base, result.original, task=result.task, method=gd.Retrain(epochs=5, lr=0.001, seed=1), build=Both
    )
    audit = gd.audit(again.delete(result.deletion), attacks=False)
    assert max(found.correlation or 0 for found in audit.sections["weights"].tensors) > 0.9
    assert audit.sections["weights"].old == []


def test_old_weights_that_are_called_old_are_not_compared(retrained):
    result = retrained[0]
    unlinked = gd.Unlearner(result.base, result.original, task=result.task, method="unlink").delete(result.deletion)
    section = gd.audit(unlinked, attacks=False).to_dict()["weights"]
    assert not section["available"]
