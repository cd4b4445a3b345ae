"""What is left of the model's use: the task's scores on test data, retained elements, and the deletion's surroundings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.edges import edges_from
from gnndelete.auditing.loss import classes, pairs, tested
from gnndelete.auditing.rings import rings
from gnndelete.auditing.samples import answers, samples, touched_graphs
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.edge_table import ends_of
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification

#: Retained elements that are asked, and how many test elements the surroundings need to have a score of their own.
RETAINED, NEAR = 5000, 30


def utility(case: Case) -> dict[str, Any]:
    """Every score of the task before, after and of the reference, on the test elements that remain."""
    scores = {name: _scores(case, subject) for name, subject in case.subjects.items()}
    if not any(scores.values()):
        return {
            "available": False,
            "reason": "there is no test data to measure on; give the task some (test=…, test_mask)",
        }
    names = dict.fromkeys(name for found in scores.values() for name in found)
    metrics = {name: {key: scores.get(key, {}).get(name) for key in ("before", "after", "reference")} for name in names}
    return {
        "available": True,
        "metrics": metrics,
        "tested": tested(case, next(iter(metrics))),
        "retained": _retained(case),
        "near": _near(case),
    }


def _scores(case: Case, subject: Subject) -> dict[str, float]:
    try:
        return case.task.evaluate_by(subject.predict, case.remaining)
    except GNNDeleteError:  # nothing to test on, or answers that are no numbers: then there is no score
        return {}


def _retained(case: Case) -> dict[str, Any]:
    """How the probability of what stays has moved: of remaining edges, or of the true class of remaining training nodes."""
    elements = samples(case, RETAINED).get("remaining")
    if elements is None:
        return {"available": False, "reason": "nothing of that kind remains"}
    link = isinstance(case.task, LinkPrediction)
    found = {name: answers(case, subject, elements) for name, subject in case.subjects.items()}
    chance = {name: value.sigmoid() if link else value for name, value in found.items()}
    if not all(bool(torch.isfinite(value).all()) for value in chance.values()):
        return {"available": False, "reason": "some answers are no finite numbers"}
    change = chance["after"] - chance["before"]
    other = chance["reference"] - chance["before"] if "reference" in chance else None
    return {
        "available": True,
        "count": change.numel(),
        "share_fell": float((change < 0).double().mean()),
        "mean_change": float(change.mean()),
        "median_change": float(change.median()),
        "worst": float(change.min()),
        "reference_share_fell": None if other is None else float((other < 0).double().mean()),
        "reference_mean_change": None if other is None else float(other.mean()),
    }


def _near(case: Case) -> dict[str, Any]:
    """The same score on test elements that touch the deletion alone: damage there hardly shows in the score of all."""
    near = torch.zeros(case.original.num_nodes, dtype=torch.bool)
    for ring in rings(case)[: 1 if isinstance(case.task, LinkPrediction) else 2]:
        near[ring] = True
    near[case.deletion.nodes] = False
    if isinstance(case.task, LinkPrediction):
        return _near_links(case, near)
    if isinstance(case.task, NodeClassification):
        return _near_nodes(case, near)
    if isinstance(case.task, GraphClassification):
        return _near_graphs(case, case.task)
    return {"available": False, "reason": f"not defined for the task '{case.task.name}'"}


def _near_links(case: Case, near: Tensor) -> dict[str, Any]:
    task = case.task
    assert isinstance(task, LinkPrediction)
    if task.test is None or task.test.negatives is None:
        return {"available": False, "reason": "there are no test edges"}
    true, false = (
        part.cpu()[:, near[ends_of(part.cpu())].any(dim=0)] for part in (task.test.positives, task.test.negatives)
    )
    what = "test edges that touch the deletion"
    if min(true.size(1), false.size(1)) < NEAR:  # then what stays at the same nodes tells as much
        true = edges_from(near, task, case.remaining)[:, :RETAINED]
        what = "remaining edges that touch the deletion"
        # the same near ends with any other node: a model that says the same of all of them has no skill left there
        other = task.random_targets(case.remaining, true.size(1), case.generator(13))
        false = torch.stack([*true[:-1], other])
    if not true.size(1) or not false.size(1):
        return {"available": False, "reason": "no test edge and no remaining edge touches the deletion"}
    return {"available": True, "count": true.size(1), "what": what, **pairs(case, true, false)}


def _near_nodes(case: Case, near: Tensor) -> dict[str, Any]:
    task = case.task
    assert isinstance(task, NodeClassification)
    try:
        tested = task.part(case.remaining, "test").cpu()
    except GNNDeleteError:
        return {"available": False, "reason": "there are no test nodes"}
    nodes = (tested & near).nonzero().flatten()
    if nodes.numel() < NEAR:
        return {"available": False, "reason": f"only {nodes.numel()} test nodes are within a hop of the deletion"}
    what = "test nodes within a hop of the deletion"
    return {"available": True, "count": nodes.numel(), "what": what, **classes(case, nodes)}


def _near_graphs(case: Case, task: GraphClassification) -> dict[str, Any]:
    try:
        tested = task.part(case.remaining, "test").cpu()
    except GNNDeleteError:
        return {"available": False, "reason": "there are no test graphs"}
    graphs = (tested & touched_graphs(case)).nonzero().flatten()
    if graphs.numel() < NEAR:
        return {"available": False, "reason": f"only {graphs.numel()} test graphs lost an edge or a node"}
    what = "test graphs that lost an edge or a node"
    return {"available": True, "count": graphs.numel(), "what": what, **classes(case, graphs)}
