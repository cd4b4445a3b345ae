"""Without a reference, edges of another kind than the test edges are judged by what their surroundings let expect."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

import gnndelete as gd
from gnndelete.auditing.judging import judge, judged, title
from gnndelete.auditing.report.tables import key_numbers
from gnndelete.metrics.edge_matching import ADJUSTED


@pytest.fixture(scope="module")
def poor():
    """Edges between the least connected nodes, deleted from a model that was trained without them: nothing to remember."""
    split = gd.datasets.split_links(gd.datasets.load("digits"), val=0.05, test=0.1, seed=0)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    once = split.data.edge_index[:, split.data.edge_index[0] < split.data.edge_index[1]]
    degree = torch.bincount(split.data.edge_index[0], minlength=split.data.num_nodes)
    rank = degree[once].double().add(1).log().sum(dim=0) + torch.rand(once.size(1), generator=torch.manual_seed(0))
    deletion = gd.Deletion(edges=once[:, rank.argsort()[:500]])
    torch.manual_seed(0)
    model = gd.models.GCN(64, hidden=16, out=8)

    def fit(model, data, seed):
        gd.train(model, data, task, epochs=40, lr=0.01, seed=seed, validate_every=40)
        return model

    fit(model, split.data, 0)
    return gd.Unlearner(model, split.data, task=task, method="retrain", fit=fit).delete(deletion)


def test_the_surroundings_decide_without_a_reference_and_are_shown(poor):
    report = gd.audit(poor, attacks=False).to_dict()
    test = report["forgetting"]["unseen"]["served"]
    assert test["finely"]["how"] == ADJUSTED
    assert test["finely"]["reference"] is None
    assert abs(test["finely"]["after"]["auc"] - 0.5) < abs(test["after"]["auc"] - 0.5)
    assert test["sentence"].endswith(ADJUSTED)
    assert f"AUC {test['finely']['after']['auc']:.3f}" in test["sentence"]
    assert "… corrected for surroundings (decides)" in [row[0] for row in key_numbers(report).rows]
    assert "finely" not in report["forgetting"]["unseen"]["old_id"]


def test_a_request_without_edges_has_nothing_to_compare_so(links):
    report = gd.audit(links.unlearner("unlink").delete(gd.Deletion(nodes=[1, 2])), attacks=False).to_dict()
    assert "finely" not in report["forgetting"]["unseen"]["served"]


def figures(auc):
    return {"auc": auc, "low": auc - 0.02, "high": auc + 0.02, "se": 0.01, "deleted": 900}


def test_a_reference_goes_before_the_surroundings():
    test = {"after": figures(0.42), "finely": {"how": ADJUSTED, "after": figures(0.5)}, "reference": None}
    assert judged(test)["auc"] == 0.5
    assert judge(test)[0] == "indistinguishable"
    assert "never saw" in title(test)
    beside = test | {"reference": figures(0.5), "gap": -0.08, "gap_error": 0.01}
    assert judged(beside)["auc"] == 0.42
    word, sentence = judge(beside)
    assert word == "over-forgotten"
    assert ADJUSTED not in sentence


def test_a_retrained_model_is_not_accused_without_a_reference(poor, monkeypatch):
    def far_off(test):
        return "under-forgotten", "Deleted elements score above matched unseen ones."

    monkeypatch.setattr(sys.modules["gnndelete.auditing.entry"], "judge", far_off)
    report = gd.audit(poor, attacks=False).to_dict()
    assert report["verdict"]["word"] == "undecided"
    assert "But it was trained again" in report["verdict"]["sentence"]
    other = replace(poor, assurance="approximate")
    assert gd.audit(other, attacks=False).to_dict()["verdict"]["word"] == "under-forgotten"


def test_edges_of_another_kind_are_judged_by_a_reference_alone_unless_they_are_far_off():
    def found(auc, told_apart, **more):
        return {
            "after": figures(0.5),
            "finely": {"how": ADJUSTED, "told_apart": told_apart, "after": figures(auc)},
            **more,
        }

    assert judge(found(0.6, None, reference=None))[0] == "under-forgotten"
    for auc in (0.4, 0.5, 0.6):
        word, sentence = judge(found(auc, 0.84, reference=None))
        assert word == "undecided"
        assert "of another kind than unseen ones (surroundings alone tell them apart, AUC 0.84)" in sentence
        assert f"AUC {auc:.3f}" in sentence
    assert judge(found(0.88, 0.84, reference=None))[0] == "under-forgotten"
    assert judge(found(0.12, 0.84, reference=None))[0] == "over-forgotten"
    beside = {"reference": figures(0.5), "gap": 0.0, "gap_error": 0.01}
    assert judge(found(0.6, 0.84, **beside))[0] == "indistinguishable"
