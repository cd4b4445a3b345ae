"""What every task answers about its elements: learned, deleted, unseen, scored."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gnndelete as gd
from gnndelete.nn.forward import call, evaluating
from gnndelete.tasks import Task
from gnndelete.testing import problem


def deletion_of(task: Task, data: Any) -> gd.Deletion:
    learned = task.learned(data)
    return gd.Deletion(**{f"{task.noun}s": learned[..., :5]})


def output_of(model: nn.Module, data: Any) -> Any:
    with evaluating(model):
        return call(model, data)


@pytest.mark.parametrize("name", ["link", "node", "graph"])
class TestElements:
    def test_deleted_elements_are_learned_ones(self, name: str) -> None:
        _, data, task = problem(name)
        deletion = deletion_of(task, data).check(data)
        elements = task.elements(deletion, data)
        learned = {tuple(e) for e in task.learned(data).view(-1, task.learned(data).size(-1)).t().tolist()}
        assert elements.size(-1)
        assert {tuple(e) for e in elements.view(-1, elements.size(-1)).t().tolist()} <= learned
        assert task.unscored(deletion, data) == ""
        assert torch.equal(task.affected(deletion, data), elements)

    def test_scores_and_losses_agree(self, name: str) -> None:
        model, data, task = problem(name)
        output = output_of(model, data)
        elements = task.learned(data)[..., :7]
        scores = task.scores(partial(task.predict, model, output), data, elements)
        losses = task.losses(model, output, data, elements)
        assert scores.shape == losses.shape == (7,)
        truth = scores.sigmoid() if task.pairwise else scores
        assert torch.allclose(losses, -truth.log(), atol=1e-5)
        assert torch.allclose(task.losses(model, output, data, elements, "mean"), losses.mean())
        held = task.probabilities(task.predict(model, output, elements))
        assert torch.allclose(held.sum(dim=1), torch.ones(7))
        true = task.classes(data, elements)
        assert torch.allclose(held.gather(1, true[:, None]).view(-1), truth, atol=1e-6)

    def test_unseen_elements_do_not_overlap(self, name: str) -> None:
        _, data, task = problem(name)
        for part in ("validation", "test"):
            unseen = task.unseen(data, part)
            elements, classes = task.examples(data, part)
            assert 0 < unseen.size(-1) <= elements.size(-1) == classes.numel()
            assert task.count_overlap(unseen, data) == 0
        learned = task.learned(data)[..., :3]
        assert task.count_overlap(learned, data) == 3
        assert task.overlap_sentence(3, "test").startswith(f"3 of the test {task.noun}s are ")
        assert task.overlap_sentence(0) == ""

    def test_what_scores_are_taken_on_is_named(self, name: str) -> None:
        _, data, task = problem(name)
        found = task.measured_on(data)
        assert found
        assert all(isinstance(value, Tensor) for value in found.values())


def test_edges_of_deleted_nodes_count_where_they_are_asked_for() -> None:
    _, data, task = problem("link")
    deletion = gd.Deletion(nodes=[3]).check(data)
    assert not task.elements(deletion, data).size(1)
    found = task.elements(deletion, data, incident=True)
    assert found.size(1) == int((data.edge_index[0] == 3).sum())
    assert task.title(deletion) == "edges of deleted nodes"
    assert task.blank(deletion)


@pytest.mark.parametrize("name", ["node", "graph"])
def test_a_classifier_has_no_score_for_an_edge(name: str) -> None:
    _, data, task = problem(name)
    deletion = gd.Deletion(edges=data.edge_index[:, :1]).check(data)
    assert not task.elements(deletion, data).numel()
    assert "no score for an edge" in task.unscored(deletion, data)
    assert task.affected(deletion, data).numel()


def test_graphs_outside_training_are_untrained() -> None:
    _, data, task = problem("graph")
    outside = task.unseen(data, "test")[:1]
    assert task.untrained(gd.Deletion(graphs=outside).check(data), data)
    assert not task.untrained(gd.Deletion(graphs=task.learned(data)[:1]).check(data), data)


NOT_SHOWN = "that the model was trained on: compared with these, what is remembered does not show. Hold out"


def served(model: nn.Module, data: Any, task: Task, deletion: gd.Deletion) -> gd.Unlearned:
    return gd.Unlearner(model, data, task=task).delete(deletion)


def warned(unlearned: gd.Unlearned) -> list[str]:
    return [note.text for note in gd.audit(unlearned, attacks=False).verdict.warnings if note.code == "test-overlap"]


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
