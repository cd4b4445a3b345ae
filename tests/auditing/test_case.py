"""Before an audit: what can stand for a model that was trained without the data, and what cannot."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

import gnndelete as gd
from gnndelete.errors import SettingError

from .conftest import World


def test_a_reference_must_stand_for_training_without_the_data(links: World) -> None:
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(links.data, 60, seed=5))

    def by(method: str | gd.GNNDelete) -> gd.Unlearned:
        return links.unlearner(method).delete(deletion)

    unlearned, retrained = by(gd.GNNDelete(lam=0.3)), by("retrain")
    for itself in (unlearned, unlearned.model, replace(unlearned)):
        with pytest.raises(SettingError, match="the very result under audit"):
            gd.audit(unlearned, itself, attacks=False)
    for base in (links.model, copy.deepcopy(links.model), copy.deepcopy(unlearned.model)):
        with pytest.raises(SettingError, match="weights of the model before the deletion"):
            gd.audit(unlearned, base, attacks=False)
    for method, level in (("unlink", "inference-only"), (gd.GNNDelete(lam=0.1), "approximate")):
        with pytest.raises(SettingError, match=f"level 'retrained' or 'exact'.*got '{level}'"):
            gd.audit(unlearned, by(method), attacks=False)
    with pytest.raises(SettingError, match="same weights, so they are one training"):
        gd.audit(unlearned, [retrained, retrained], attacks=False)
    exact = replace(retrained, assurance="exact")
    assert gd.audit(unlearned, exact, attacks=False).to_dict()["distance"]["available"]


def test_of_several_references_the_mean_is_the_target(links: World) -> None:
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(links.data, 60, seed=5))
    unlearned = links.unlearner("unlink").delete(deletion)
    trained = [links.unlearner("retrain", seed=seed).delete(deletion) for seed in (0, 5)]
    found = gd.audit(unlearned, trained, attacks=False).to_dict()
    test = found["forgetting"]["unseen"]["served"]
    assert (found["references"], len(test["references"])) == (2, 2)
    assert test["reference"]["auc"] == test["references"][0], "the first is shown"
    assert test["gap"] == pytest.approx(test["after"]["auc"] - sum(test["references"]) / 2)
    assert "the mean of 2 retrained models" in found["verdict"]["text"]
    alone = gd.audit(unlearned, trained[0], attacks=False).to_dict()["forgetting"]["unseen"]["served"]
    assert (alone["references"], alone["gap"]) == ([], test["after"]["auc"] - test["references"][0])
