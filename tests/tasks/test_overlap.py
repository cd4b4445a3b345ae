"""Unseen elements that were trained on: calibration and audits point them out, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gnndelete as gd
from gnndelete.tasks import Task
from gnndelete.testing import problem

NOT_SHOWN = "that the model was trained on: compared with these, what is remembered does not show. Hold out"


def served(model: nn.Module, data: Any, task: Task, deletion: gd.Deletion) -> gd.Unlearned:
    return gd.Unlearner(model, data, task=task).delete(deletion)


def warned(unlearned: gd.Unlearned) -> list[str]:
    found = gd.audit(unlearned, attacks=False).to_dict()["verdict"]["warnings"]
    return [warning for warning in found if NOT_SHOWN in warning]


def test_nodes_in_two_parts() -> None:
    model, data, task = problem("node")
    train = data.train_mask.nonzero().flatten()
    deletion = gd.Deletion(nodes=train[:20])
    apart = served(model, data, task, deletion)
    assert NOT_SHOWN not in apart.calibration["sentence"]
    assert not warned(apart)
    data = data.clone()
    data.val_mask[train[15:30]] = True  # five of these are deleted, and no longer held out for anything
    data.test_mask[train[18:26]] = True
    both = served(model, data, task, deletion)
    assert f" 10 of the unseen nodes are among the nodes {NOT_SHOWN} nodes" in both.calibration["sentence"]
    assert warned(both) == [f"6 of the test nodes are among the nodes {NOT_SHOWN} nodes that are not."]


def test_graphs_in_two_parts() -> None:
    model, graphs, _ = problem("graph")
    deletion = gd.Deletion(graphs=[0, 1, 2])
    for train, held, test in ((range(12), 0, 0), (range(16), 4, 2)):
        task = gd.GraphClassification(
            train=list(train), validation=list(range(12, 18)), test=[*range(18, 24), *train[3 : 3 + test]]
        )
        found = served(model, graphs, task, deletion)
        assert (
            f" {held} of the unseen graphs are among the graphs {NOT_SHOWN}" in found.calibration["sentence"]
        ) == bool(held)
        assert bool(warned(found)) == bool(test)
    assert warned(found)[0].startswith("2 of the test graphs are among the graphs")


def test_edges_in_two_parts() -> None:
    model, data, task = problem("link")
    deletion = gd.Deletion(edges=data.edge_index[:, :30])
    assert not warned(served(model, data, task, deletion))
    leaked = gd.LinkPrediction(
        validation=task.validation.positives, test=torch.cat([task.test.positives, data.edge_index[:, 40:45]], dim=1)
    )
    assert warned(served(model, data, leaked, deletion))[0].startswith("5 of the test edges are in the graph that")


@pytest.mark.parametrize("masks", [("val_mask",), ("test_mask",), ()])
def test_without_a_training_part_nothing_overlaps(masks: tuple[str, ...]) -> None:
    model, data, task = problem("node")
    data = data.clone()
    for mask in ("train_mask", *masks):
        del data[mask]
    found = served(model, data, task, gd.Deletion(nodes=[3, 5, 8]))
    assert NOT_SHOWN not in str(found)
    assert not warned(found)
