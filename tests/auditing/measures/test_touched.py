"""Touched nodes: a shrunken row is found though every score is right, and plain cutting and retraining leave no mark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import gnndelete as gd
from gnndelete.auditing.case import Case
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.touched import Gap, Touched
from gnndelete.nn.forward import evaluating
from gnndelete.testing import problem


def touched(case: Case) -> dict[str, Any]:
    return run_measure(Touched(), case).to_dict()


def answering_by(case: Case, z: torch.Tensor) -> Case:
    """The same case where the model under audit has other rows."""
    model, task = case.after.model, case.task

    def predict(edges: torch.Tensor) -> torch.Tensor:
        with evaluating(model):
            return task.predict(model, z, edges)

    return replace(case, subjects={**case.subjects, "after": replace(case.after, output=z, predict=predict)})


def test_a_gap_counts_above_the_limit_and_its_error() -> None:
    assert Gap(0.1, 0.01).marked
    assert not Gap(0.04, 0.001).marked
    assert Gap(0.08, 0.06).unclear
    assert not Gap(0.04, 0.06).unclear


def test_shrunken_ends_are_found_by_the_ends_alone(edge_case: Case) -> None:
    z = edge_case.after.output.clone()
    z[edge_case.deletion.edges.unique()] *= 0.4
    found = touched(answering_by(edge_case, z))
    assert found["against"] == "reference"
    assert found["ends_gap"]["value"] > 0.2
    assert found["ends"]["after"] > found["unlink"]["ends"] + 0.2
    assert found["counts"]["touched"] == 60


def test_the_same_model_has_no_gap(edge_case: Case) -> None:
    same = replace(edge_case, subjects={**edge_case.subjects, "after": edge_case.subjects["reference"]})
    found = touched(same)
    assert found["ends_gap"]["value"] == found["pairs_gap"]["value"] == 0.0
    alone = {name: subject for name, subject in edge_case.subjects.items() if name != "reference"}
    found = touched(replace(edge_case, subjects=alone, reference=None))
    assert (found["against"], found["ends_gap"]["value"], found["pairs_gap"]) == ("unlink", 0.0, None)


def test_nodes_beside_deleted_ones_are_compared_with_others_of_like_degree(nodes: Any) -> None:
    node_case = nodes.case(
        "unlink", gd.Deletion(nodes=gd.datasets.forget_nodes(nodes.data, 12, seed=5)), reference=True
    )
    found = touched(node_case)
    assert found["pairs"] is None
    assert min(found["counts"].values()) >= 40
    z = node_case.after.output.clone()
    gone = node_case.deletion.nodes
    source, target = node_case.original.edge_index
    beside = target[torch.isin(source, gone)].unique()
    z[beside] *= 0.2
    assert touched(answering_by(node_case, z))["ends_gap"]["value"] > 0.15


def test_few_elements_and_whole_graphs_are_named(links: Any) -> None:
    few = links.case("unlink", gd.Deletion(edges=gd.datasets.forget_edges(links.data, 8, seed=5)))
    assert "8 and" in touched(few)["reason"]
    model, data, task = problem("graph")
    graphs = task.part(data, "train").nonzero().flatten()[:5]
    unlearned = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(graphs=graphs))
    assert "whole graphs" in gd.audit(unlearned, attacks=False).to_dict()["touched"]["reason"]


@pytest.mark.parametrize("lam", [0.9])
def test_a_large_lam_leaves_a_mark(links: Any, lam: float) -> None:
    edges = gd.Deletion(edges=gd.datasets.forget_edges(links.data, 60, seed=5))
    assert touched(links.case(gd.GNNDelete(lam=lam), edges))["ends_gap"]["value"] > 0.15
