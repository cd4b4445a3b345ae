"""Controls: they ruin the model, and say so."""

from __future__ import annotations

import pytest
import torch

import gnndelete as gd
from gnndelete.methods import CONTROLS, Method, Retrain, RetrainAgain, ZeroedEndpoints
from gnndelete.testing import problem


@pytest.mark.parametrize("kind", CONTROLS, ids=lambda kind: kind.name)
def test_a_control_changes_answers_near_the_deletion_and_says_so(kind: type[Method]) -> None:
    model, data, task = problem("link")
    edges = data.edge_index[:, :5]
    plain = gd.Unlearner(model, data, task, "unlink").delete(gd.Deletion(edges=edges))
    result = gd.Unlearner(model, data, task, kind()).delete(gd.Deletion(edges=edges))
    assert not torch.allclose(result.predict(edges), plain.predict(edges))
    assert [note.code for note in result.notes if note.code == "control"] == ["control"]


def test_zeroed_endpoints_score_zero() -> None:
    model, data, task = problem("link")
    edges = data.edge_index[:, :5]
    result = gd.Unlearner(model, data, task, ZeroedEndpoints()).delete(gd.Deletion(edges=edges))
    assert torch.equal(result.predict(edges), torch.zeros(5))


def test_retraining_again_takes_another_seed() -> None:
    assert RetrainAgain.next_seed != Retrain.next_seed
