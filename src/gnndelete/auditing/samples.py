"""The elements whose scores are set side by side (deleted, unseen, remaining, random), and what a model answers on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.queries import ask
from gnndelete.auditing.rings import some
from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.errors import GraphError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification
from gnndelete.tasks.graph import graph_labels
from gnndelete.tasks.overlap import edges_learned, members_learned, overlap_sentence
from gnndelete.tasks.supervision import false_triples, positives

AXES = {"link": "score (logit)", "node": "probability of the true class", "graph": "probability of the true class"}


def samples(case: Case, limit: int) -> dict[str, Tensor]:
    """Up to ``limit`` elements of each group, in random order; groups without any are left out.

    Link tasks: ``[2, k]`` pairs, or ``[3, k]`` triples. Node tasks: labelled nodes; those deleted, or without their features
    or label, or else the nodes at deleted edges. Graph tasks: labelled graphs; the deleted ones, or those that lost an
    edge or a node.
    """
    if isinstance(case.task, LinkPrediction):
        found = _pairs(case, limit)
    elif isinstance(case.task, NodeClassification):
        found = _nodes(case)
    elif isinstance(case.task, GraphClassification):
        found = _graphs(case, case.task)
    else:
        return {}
    return {
        name: some(elements, limit, case.generator(index))
        for index, (name, elements) in enumerate(found.items())
        if elements.size(-1)
    }


def answers(case: Case, subject: Subject, elements: Tensor) -> Tensor:
    """Logits of pairs, or the probability that nodes have the class they have; in double precision on the CPU."""
    result = subject.predict(elements).detach().double().cpu()
    if isinstance(case.task, LinkPrediction):
        return result.view(-1)
    true = labels(case)[elements.cpu()]
    return result.gather(1, true[:, None]).view(-1)


def labels(case: Case) -> Tensor:
    """The classes before the deletion: a deleted node's own is gone from the remaining graph."""
    if isinstance(case.task, GraphClassification):
        return graph_labels(case.original).cpu()
    if isinstance(case.task, NodeClassification):
        return case.task.labels(case.original).cpu()
    return case.original.y.view(-1).long().cpu()


@dataclass(frozen=True)
class Deleted:
    """What stands for what was deleted, in words, and each model on the graph where it is asked about that.

    A model that answers on no other graph than its own is missing from ``subjects``; ``reason`` says why.
    """

    what: str
    graph: str  # "served", or "old_id" where deleted elements are blank in the graph as served
    subjects: dict[str, Subject]
    reason: str = ""


def deleted(case: Case) -> Deleted:
    """Who is asked about deleted elements, and where: presented again if every one of them is the same blank as served."""
    if not case.blank:
        return Deleted(_words(case), "served", case.subjects)
    asked = {name: ask(case, "old_id", subject) for name, subject in case.subjects.items()}
    found = {name: answer.subject for name, answer in asked.items() if answer.subject is not None}
    reason = next((answer.reason for answer in asked.values() if answer.subject is None), "")
    return Deleted(_words(case), "old_id", found, reason)


def _words(case: Case) -> str:
    """What the group "deleted" of `samples` holds."""
    deletion = case.deletion
    if isinstance(case.task, LinkPrediction):
        return "deleted edges" if case.asked_edges.size(1) else "edges of deleted nodes"
    if isinstance(case.task, GraphClassification):
        return "deleted graphs" if deletion.graphs.numel() else "graphs that lost an edge or a node"
    parts = {
        "deleted nodes": deletion.nodes.numel(),
        "nodes that lost features": deletion.features.size(1),
        "nodes that lost their label": deletion.labels.numel(),
    }
    return " and ".join(words for words, count in parts.items() if count) or "nodes at deleted edges"


def deleted_pairs(case: Case) -> Tensor:
    """The deleted edges; where only nodes were deleted, the edges that went with them."""
    if case.asked_edges.size(1) or not case.deletion.nodes.numel():
        return case.asked_edges
    edges = case.learned_edges(case.original)
    gone = torch.isin(ends_of(edges), case.deletion.nodes.to(edges.device)).any(dim=0)
    once = edges[0] < edges[1] if edge_table(case.original).undirected else edges[0] != edges[-1]
    return edges[:, gone & once]


def tested_on_learned(case: Case) -> str:
    """What is said where test elements were trained on; nothing where none were."""
    task, count = case.task, 0
    if isinstance(task, LinkPrediction):
        count = 0 if task.test is None else edges_learned(task.test.positives, edge_table(case.original))
    elif isinstance(task, (NodeClassification, GraphClassification)):
        try:
            tested = task.part(case.remaining, "test").nonzero().flatten()
        except GraphError:  # no part of that name
            return ""
        count = members_learned(tested, task, case.original)
    return overlap_sentence(count, task, "test")


def _pairs(case: Case, limit: int) -> dict[str, Tensor]:
    task = case.task
    assert isinstance(task, LinkPrediction)
    free = _free(case, task, limit)
    return {
        "deleted": deleted_pairs(case),
        "unseen": free[:, :0] if task.test is None else task.test.positives,
        "remaining": case.some_remaining(limit),
        "random": free[:, ~torch.isin(ends_of(free), case.deletion.nodes).any(dim=0)],
    }


def _free(case: Case, task: LinkPrediction, limit: int) -> Tensor:
    """Random pairs that are no edges of any part; on a typed graph, remaining triples with another head of their relation."""
    data = case.original
    held = [part.positives.cpu() for part in (task.validation, task.test) if part]
    if task.relation is not None:
        return task.relation.non_edges(data, held, limit, case.generator(7))
    if data.get("edge_type") is not None:
        some_true = case.some_remaining(limit, offset=7).cpu()
        known = torch.cat(held, dim=1) if held else some_true[:, :0]
        try:
            return false_triples(data, some_true, known, case.generator(7))
        except GraphError:  # nearly every triple of a relation is true
            return some_true[:, :0]
    edges = torch.cat([data.edge_index.cpu(), positives(data).cpu(), *held], dim=1)
    sampler = NegativeSampler(edges, count_nodes(data), undirected=edge_table(data).undirected)
    return sampler.sample(limit, case.generator(7)) if sampler.available else edges[:, :0]


def _nodes(case: Case) -> dict[str, Tensor]:
    labelled = labels(case) >= 0
    gone = torch.zeros_like(labelled)
    gone[case.asked_nodes if case.asked_nodes.numel() else ends_of(case.deletion.edges).flatten()] = True
    assert isinstance(case.task, NodeClassification)
    kept = case.task.part(case.remaining, "train").cpu()
    try:
        test = case.task.part(case.remaining, "test").cpu()
    except GraphError:  # no part of that name
        test = torch.zeros_like(labelled)
    parts = {"deleted": gone, "unseen": test & ~gone, "remaining": kept & ~gone}
    return {name: (part & labelled).nonzero().flatten() for name, part in parts.items()}


def touched_graphs(case: Case) -> Tensor:
    """A mask of the graphs that lost an edge, a node or everything."""
    data = case.original
    assert isinstance(data, GraphBatch)
    named = torch.cat([ends_of(case.deletion.edges).flatten(), case.deletion.nodes])
    mask = torch.zeros(data.num_graphs, dtype=torch.bool)
    mask[data.batch.cpu()[named]] = True
    return mask


def _graphs(case: Case, task: GraphClassification) -> dict[str, Tensor]:
    gone = touched_graphs(case)
    if case.deletion.graphs.numel():
        gone = torch.zeros_like(gone).index_fill(0, case.deletion.graphs, True)
    parts = {"deleted": gone & (labels(case) >= 0)}
    for name, part in (("unseen", "test"), ("remaining", "train")):
        try:
            parts[name] = task.part(case.remaining, part).cpu() & ~gone
        except GraphError:  # no part of that name
            continue
    return {name: part.nonzero().flatten() for name, part in parts.items()}
