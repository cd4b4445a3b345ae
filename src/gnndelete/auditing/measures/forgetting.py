"""Forgetting: the paper's ranking of deleted below remaining edges, and the unseen test on every graph one may ask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.queries import BOTH, SENTENCES, ask, fair
from gnndelete.auditing.samples import deleted_pairs, labels
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.validation import edge_table
from gnndelete.metrics.edge_matching import match_edges
from gnndelete.metrics.unseen_test import CLASS_QUANTILES, UnseenTest, degrees, edge_degree, edge_strata, unseen_test
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification

NO_EDGE_SCORE = (
    "a node classifier has no score for an edge, so deleted edges cannot be compared with unseen ones; the trend attack "
    "looks for what they leave behind"
)
NO_FEATURE_SCORE = (
    "a link model scores pairs of nodes, and features are none, so deleted ones cannot be compared with unseen ones; the "
    "distance to a retrained reference says how far its answers are from theirs"
)
NO_OTHER_SCORE = (
    "the task scores edges of one type, and none of that type is deleted; audit with a task about the deleted type"
)
NO_LINK_LABEL = "a link model learns from no labels, so there is nothing of them that it could have kept"


CONNECTED, LEFT_ALONE = "both ends have edges left", "an end has no edge left"

EMPTY = "a deleted graph is empty in what is served, and every empty graph gets the same answer; it is presented again below"
NO_PART_SCORE = (
    "a graph classifier has no score for an edge or a node within a graph, so none can be compared with unseen ones"
)


def forgetting(case: Case) -> dict[str, Any]:
    """The section as a whole; unavailable where the task has no score for what was deleted, or nothing was held out."""
    reason = missing(case)
    if reason:
        return {"available": False, "reason": reason}
    return {
        "available": True,
        "ranking": _ranking(case),
        "unseen": {name: _query(case, name, number) for number, name in enumerate(SENTENCES)},
    }


def attacked(case: Case) -> tuple[Tensor, Tensor]:
    """What was deleted and was trained on, and the test elements it is compared with."""
    if isinstance(case.task, LinkPrediction):
        assert case.task.test is not None
        return deleted_pairs(case).cpu(), case.task.test.positives.cpu()
    assert isinstance(case.task, (NodeClassification, GraphClassification))
    learned = case.task.part(case.original, "train").cpu()
    unseen = case.task.part(case.remaining, "test").nonzero().flatten().cpu()
    if not isinstance(case.task, NodeClassification):
        return case.deletion.graphs[learned[case.deletion.graphs]], unseen
    nodes = case.asked_nodes
    return nodes[learned[nodes]], unseen[~torch.isin(unseen, nodes)]


def missing(case: Case) -> str:
    """Why deleted elements cannot be compared with unseen ones; empty where they can."""
    task = case.task
    if isinstance(task, LinkPrediction):
        if case.deletion.edges.size(1) and not case.asked_edges.size(1):
            return NO_OTHER_SCORE
        if not case.deletion.edges.size(1) and not case.deletion.nodes.numel():
            return NO_FEATURE_SCORE if case.deletion.features.size(1) else NO_LINK_LABEL
        return "" if task.test is not None else "there are no test edges to compare with; give LinkPrediction test=…"
    if isinstance(task, GraphClassification):
        return _missing_graphs(case, task)
    if not isinstance(task, NodeClassification):
        return f"the task '{task.name}' has no score for what was deleted"
    if not case.asked_nodes.numel():
        return NO_EDGE_SCORE
    try:
        tested = bool(task.part(case.remaining, "test").any())
    except GNNDeleteError:
        tested = False
    if not tested:
        return "there are no test nodes to compare with; mark some in 'test_mask'"
    return "" if attacked(case)[0].numel() else "the model was trained on the label of none of the nodes"


def _missing_graphs(case: Case, task: GraphClassification) -> str:
    if not case.deletion.graphs.numel():
        return NO_PART_SCORE
    try:
        tested = bool(task.part(case.remaining, "test").any())
    except GNNDeleteError:
        tested = False
    if not tested:
        return "there are no test graphs to compare with; mark some in 'test_mask'"
    return "" if attacked(case)[0].numel() else "the model was trained on the label of none of the deleted graphs"


def _ranking(case: Case) -> dict[str, Any]:
    """E_d of the paper: remaining edges (label 1) against as many deleted ones (label 0)."""
    empty: dict[str, Any] = {name: dict.fromkeys(("before", "after", "reference")) for name in ("auroc", "auprc")}
    task = case.task
    if not isinstance(task, LinkPrediction) or not case.asked_edges.size(1):
        return empty
    for key, subject in case.subjects.items():
        try:
            remaining = case.learned_edges(case.remaining)
            found = task.forgetting_by(subject.predict, case.asked_edges, remaining, seed=case.seed)
        except GNNDeleteError:  # answers that are no numbers rank nothing
            continue
        for name, value in found.items():
            empty[name][key] = value
    return empty


def _query(case: Case, name: str, number: int) -> dict[str, Any]:
    if name == "served" and isinstance(case.task, GraphClassification):
        return {"available": False, "reason": EMPTY}
    found: dict[str, Any] = {"before": None, "after": None, "reference": None}
    tests: dict[str, UnseenTest] = {}
    reason = ""
    for key, subject in case.subjects.items():
        asked = ask(case, name, subject)
        if asked.subject is None:
            reason = reason if key != "after" else asked.reason
            continue
        test = measure_unseen(case, asked.subject, asked.move)
        if test is not None:
            tests[key], found[key] = test, _figures(test, case.seed + number)
    if found["after"] is None:
        return {"available": False, "reason": reason or "some answers are no finite numbers"}
    gap, error = tests["after"].against(tests["reference"]) if "reference" in tests else (None, None)
    unfair = _unfair(case, name)
    added = f" {BOTH}" if name != "served" and not unfair and isinstance(case.task, LinkPrediction) else ""
    beside = {"gap": gap, "gap_error": None if error is None else 1.96 * error}
    further = {"kinds": _kinds(case, tests), **_finely(case, tests)} if name == "served" else {}
    return {"available": True, "graph": SENTENCES[name] + added, "unfair": unfair, **found, **beside, **further}


def _finely(case: Case, tests: dict[str, UnseenTest]) -> dict[str, Any]:
    """The test once more with edges compared by their surroundings, as calibration does; nothing where these tell nothing.

    Edges of another kind than the unseen ones score otherwise in any model, also in one that was trained again.
    """
    if not isinstance(case.task, LinkPrediction) or not case.deletion.edges.size(1):
        return {}
    alike = match_edges(case.remaining, *attacked(case))
    if not alike.how:
        return {}
    scores = {key: [torch.from_numpy(part) for part in test.scores] for key, test in tests.items()}
    found = {key: _figures(alike.test(*parts), case.seed) for key, parts in scores.items()}
    aimed = {"aimed": (case.unlearned.calibration or {}).get("target")}  # what the method itself took for forgotten
    apart = {"told_apart": alike.kind_auc}
    return {"finely": {"how": alike.how, **apart, **aimed, "before": None, "reference": None, **found}}


def _kinds(case: Case, tests: dict[str, UnseenTest]) -> list[dict[str, Any]]:
    """The AUC of edges apart that have lost an end's last edge: an average over all can hide that these stand out.

    Empty where all deleted edges are of one kind.
    """
    if not isinstance(case.task, LinkPrediction) or not case.deletion.edges.size(1):
        return []
    strata = _edge_strata(case, *attacked(case))
    alone = [strata[f"kind_{part}"] % 3 > 0 for part in ("deleted", "unseen")]  # `edge_kind` counts up to two ends
    if bool(alone[0].all()) or not bool(alone[0].any()):
        return []
    found = []
    for kind, words in ((False, CONNECTED), (True, LEFT_ALONE)):
        own = [part == kind for part in alone]
        chosen = {name: values[own[name.endswith("unseen")]] for name, values in strata.items()}
        row: dict[str, Any] = {"kind": words, "deleted": int(own[0].sum()), "unseen": int(own[1].sum())}
        for key, test in tests.items():
            scores = [torch.from_numpy(part)[mask] for part, mask in zip(test.scores, own, strict=True)]
            row[key] = unseen_test(scores[0], scores[1], **chosen).auc if row["unseen"] else None
        found.append(row)
    return found


def _unfair(case: Case, name: str) -> str:
    """Why deleted and unseen elements are not asked alike, so that only a reference tells what to expect; or nothing."""
    deletion = case.deletion
    if isinstance(case.task, NodeClassification):
        if name == "served" and deletion.nodes.numel():
            return "deleted nodes have neither edges nor features left in this graph"
        if name == "served" and deletion.features.size(1):
            return "nodes without their features are no match for unseen ones here"
        if deletion.features.size(1):
            return "the labels of nodes that lost features are still learned, by a model trained again as well"
        return ""
    if name == "served":
        return "" if deletion.edges.size(1) else "deleted nodes have neither edges nor features left in this graph"
    return "" if fair(case) else "unseen edges have no attributes with which to be presented beside deleted ones"


def measure_unseen(case: Case, subject: Subject, move: Any = lambda elements: elements) -> UnseenTest | None:
    """Deleted against test elements in one subject's answers; None where some are no finite numbers."""
    deleted, unseen = attacked(case)
    if isinstance(case.task, LinkPrediction):
        scores = [subject.predict(move(part)) for part in (deleted, unseen)]
        strata: dict[str, Any] = _edge_strata(case, deleted, unseen)
    else:
        true = labels(case)
        scores = [_true_class(subject, move(part), true[part]) for part in (deleted, unseen)]
        strata = _strata(_extent(case), true, deleted, unseen)
    if not all(bool(torch.isfinite(part).all()) for part in scores):
        return None
    return unseen_test(scores[0], scores[1], **strata)


def _figures(test: UnseenTest, seed: int) -> dict[str, Any]:
    low, high = test.interval(seed)
    return {
        "auc": test.auc,
        "low": low,
        "high": high,
        "se": test.standard_error,
        "plain_auc": test.plain_auc,
        "deleted": test.deleted,
        "unseen": test.unseen,
        "matched": test.matched,
        "beside": test.effective_unseen,
    }


def _edge_strata(case: Case, deleted: Tensor, unseen: Tensor) -> dict[str, Any]:
    """Degrees in the remaining graph, where neither kind is; edges of deleted nodes have lost their own end there."""
    if case.deletion.edges.size(1):
        return edge_strata(degrees(case.remaining).cpu(), deleted, unseen)
    degree = degrees(case.original).cpu()
    itself = 1.0 if deleted.size(0) == 3 or edge_table(case.original).undirected else 0.5
    ends = (degree[ends_of(deleted)] - itself).clamp(min=0)  # without the edge itself, as for those held out
    found: dict[str, Any] = {
        "degree_deleted": (ends + 1).log().mean(dim=0),
        "degree_unseen": edge_degree(degree, unseen),
    }
    if deleted.size(0) == 3:
        found |= {"kind_deleted": deleted[1], "kind_unseen": unseen[1]}
    return found


def _extent(case: Case) -> Tensor:
    """What elements of one class are further matched by: the degree of nodes, the size of graphs."""
    return (case.original.sizes if isinstance(case.original, GraphBatch) else degrees(case.original)).cpu()


def _strata(degree: Tensor, true: Tensor, deleted: Tensor, unseen: Tensor) -> dict[str, Any]:
    return {
        "degree_deleted": degree[deleted],
        "degree_unseen": degree[unseen],
        "kind_deleted": true[deleted],
        "kind_unseen": true[unseen],
        "bins": CLASS_QUANTILES,
        "adaptive": True,
    }


def _true_class(subject: Subject, nodes: Tensor, true: Tensor) -> Tensor:
    return subject.predict(nodes).detach().double().cpu().gather(1, true.view(-1, 1)).view(-1)
