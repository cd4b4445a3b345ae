"""What every task answers about its elements: learned, deleted, unseen, scored."""

from __future__ import annotations

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
        scores = task.scores(model, output, data, elements)
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
        assert task.tests(data)
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
