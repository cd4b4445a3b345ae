"""Scores of a model before and after a deletion, by the same measure and on the same samples."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.deletion import Deletion
from gnndelete.errors import GraphError
from gnndelete.forward import call, evaluating
from gnndelete.tasks import LinkPrediction, Task


def scores(
    model: nn.Module, data: Data, task: Task, deletion: Deletion, remaining: Data, seed: int
) -> dict[str, float]:
    """Test scores, and for deleted edges how they rank below ``remaining`` ones; empty where nothing is held out.

    ``data`` is the graph to run on: the original one before, the remaining one after a deletion. Both are scored on the
    test elements that remain, so that their scores compare.
    """
    with evaluating(model):
        output = call(model, data)
        found = {f"test_{name}": value for name, value in _test(model, output, remaining, task).items()}
        if isinstance(task, LinkPrediction) and deletion.edges.size(1):
            ranks = task.forgetting(model, output, deletion.edges, positives(remaining), seed=seed)
            found |= {f"deleted_{name}": value for name, value in ranks.items()}
    return found


def held_out_scores(model: nn.Module, data: Data, task: Task) -> dict[str, float]:
    """The test scores alone, by their own names."""
    with evaluating(model):
        return _test(model, call(model, data), data, task)


def positives(data: Data) -> Tensor:
    """The edges a link model was trained on."""
    pairs, label = data.get("edge_label_index"), data.get("edge_label")
    if pairs is None:
        return data.edge_index
    return pairs if label is None else pairs[:, label.view(-1) > 0]


def _test(model: nn.Module, output: Any, data: Data, task: Task) -> dict[str, float]:
    if isinstance(task, LinkPrediction) and task.test is None:
        return {}
    if not isinstance(task, LinkPrediction):
        mask = data.get("test_mask")
        if mask is None or not bool(mask.any()):
            return {}
    try:
        return task.evaluate(model, output, data)
    except GraphError:  # nothing labelled is left to test on
        return {}
