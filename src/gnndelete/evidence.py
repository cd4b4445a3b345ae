"""First evidence about a deletion: what is left of the model's use, and how deleted edges rank below remaining ones."""

from __future__ import annotations

from torch import nn
from torch_geometric.data import Data, HeteroData

from gnndelete.errors import GraphError
from gnndelete.graph.batch import collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.validation import check_graph
from gnndelete.nn.forward import Forward, as_seen, call, evaluating
from gnndelete.registry import by_name
from gnndelete.tasks import LinkPrediction, NodeClassification, Task, resolver
from gnndelete.tasks.base import Predict


def evidence(
    model: nn.Module,
    data: Data,
    task: Task,
    deletion: Deletion,
    remaining: Data,
    *,
    seed: int = 0,
    forward: Forward | None = None,
) -> dict[str, float]:
    """`evidence_by` of a model that runs on ``data``: the original graph before a deletion, the remaining one after."""
    with evaluating(model):
        output = (as_seen(forward) or call)(model, data)
        return evidence_by(lambda elements: task.predict(model, output, elements), task, deletion, remaining, seed=seed)


def evidence_by(
    predict: Predict, task: Task, deletion: Deletion, remaining: Data, *, seed: int = 0
) -> dict[str, float]:
    """``test_*`` scores of the task and, for deleted edges of a link task, ``deleted_*``: the paper's E_t and E_d.

    Scores are taken on the test elements that remain, so that they compare before and after; what cannot be measured is
    left out. ``deleted_auroc`` alone proves nothing, since a ruined model can reach it: read it beside the test score.
    """
    task = task.without(deletion.nodes)
    found = {f"test_{name}": value for name, value in _test(predict, remaining, task).items()}
    if isinstance(task, LinkPrediction) and task.scored(deletion.edges).size(1):
        ranks = task.forgetting_by(predict, task.scored(deletion.edges), task.positives(remaining), seed=seed)
        found |= {f"deleted_{name}": value for name, value in ranks.items()}
    return found


def evaluate(
    model: nn.Module, data: Data | HeteroData, task: Task | str, forward: Forward | None = None
) -> dict[str, float]:
    """The task's scores on its test data, in evaluation mode; an error where there is none.

    >>> import gnndelete as gd
    >>> data = gd.datasets.split_nodes(gd.datasets.load("digits"))
    >>> sorted(evaluate(gd.models.GCN(64), data, "node"))
    ['accuracy', 'f1']
    """
    data = collate(data)
    if not isinstance(data, Data):
        check_graph(data)
    known: Task = by_name("task", task, resolver).on(data)
    with evaluating(model):
        return known.evaluate(model, (as_seen(forward) or call)(model, data), data)


def _test(predict: Predict, data: Data, task: Task) -> dict[str, float]:
    if isinstance(task, LinkPrediction) and task.test is None:
        return {}
    if isinstance(task, NodeClassification):
        try:
            if not bool(task.part(data, "test").any()):
                return {}
        except GraphError:  # there is no mask
            return {}
    try:
        return task.evaluate_by(predict, data)
    except GraphError:  # nothing labelled is left to test on
        return {}
