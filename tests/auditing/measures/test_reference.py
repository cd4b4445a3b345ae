"""The reference is examined: weights that were continued from the old ones, and memory of its own."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import gnndelete as gd
from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.reference import Reference


def examined(case: Case) -> dict[str, Any]:
    return run_measure(Reference(), case).to_dict()


def beside(case: Case, change: Any) -> Case:
    """The case with the old weights, changed, for a reference."""
    model = copy.deepcopy(case.base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(change(parameter))
    subject = Subject.of_model("reference", model, case.remaining, case.task, case.forward)
    return replace(case, subjects={**case.subjects, "reference": subject})


def test_a_retrained_model_has_nothing_in_common_with_the_old_weights(edge_case: Case) -> None:
    found = examined(edge_case)
    assert abs(found["correlation"]) < 0.2
    assert found["gap"] > found["gap_error"], "plain cutting remembers more"


@pytest.mark.parametrize(
    "change", [lambda p: p + 1e-4 * torch.randn_like(p), lambda p: 1.01 * p], ids=["noise", "scaled"]
)
def test_the_old_weights_in_disguise_are_seen(edge_case: Case, change: Any) -> None:
    found = examined(beside(edge_case, change))
    assert found["correlation"] > 0.99
    assert found["unseen"]["auc"] > 0.55
    assert abs(found["gap"]) < 0.02


def test_without_a_reference_there_is_nothing_to_examine(edge_case: Case) -> None:
    alone = {name: subject for name, subject in edge_case.subjects.items() if name != "reference"}
    assert "no reference" in examined(replace(edge_case, subjects=alone))["reason"]


def test_a_reference_that_has_seen_deleted_nodes_is_found_where_they_are_presented_again(
    node_case: Case, nodes: Any
) -> None:
    assert examined(node_case)["gap"] > examined(node_case)["gap_error"]
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = nodes.fit(gd.models.GCN(48, hidden=64, out=3), nodes.data, 5)
    subject = Subject.of_model("reference", model, node_case.remaining, node_case.task, node_case.forward)
    found = examined(replace(node_case, subjects={**node_case.subjects, "reference": subject}))
    assert found["unseen"]["low"] > 0.53
    assert found["gap"] < max(0.03, found["gap_error"])
    assert abs(found["correlation"]) < 0.3, "the weights are fresh"


def test_a_result_with_new_weights_is_examined_too(edge_case: Case) -> None:
    claims = replace(edge_case.unlearned, weights="new")
    assert examined(replace(edge_case, unlearned=claims))["own"] > 0.99
    assert examined(edge_case)["own"] is None
