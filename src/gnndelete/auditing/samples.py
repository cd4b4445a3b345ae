"""Which elements and nodes are compared: deleted, unseen, remaining and random elements; touched and untouched nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.queries import ask
from gnndelete.errors import ModelError
from gnndelete.graph.edge_table import Neighborhood, ends_of
from gnndelete.graph.validation import edge_table
from gnndelete.tasks.base import representation

#: The random offset of samples of remaining and of random elements.
_REMAINING, _RANDOM = 0, 7


def samples(case: Case, limit: int) -> dict[str, Tensor]:
    """Up to ``limit`` elements of each group, in random order; groups without any are left out.

    ``deleted`` are what the task has a score for: where it has none, the elements that lost something.
    """
    task, deletion = case.task, case.deletion
    groups = {"deleted": task.affected(deletion, case.original).cpu()}
    groups["unseen"] = task.unseen(case.remaining, "test").cpu()
    if task.pairwise:
        left = task.learned_once(case.remaining)
        groups["remaining"] = case.sample(left, limit, _REMAINING)
        random = task.random_elements(case.original, limit, case.seed + _RANDOM, case.sample(left, limit, _RANDOM))
        groups["random"] = random[:, ~torch.isin(ends_of(random), deletion.nodes).any(dim=0)]
    else:
        groups["remaining"] = task.learned(case.remaining).cpu()
        for name in ("unseen", "remaining"):
            groups[name] = groups[name][~torch.isin(groups[name], groups["deleted"])]
    return {
        name: case.sample(elements, limit, offset)
        for offset, (name, elements) in enumerate(groups.items())
        if elements.size(-1)
    }


def answers(case: Case, subject: Subject, elements: Tensor) -> Tensor:
    """Logits of edges, or the probability of the true class; in double precision on the CPU."""
    return case.task.scores(subject.predict, case.original, elements).detach().double().cpu()


def compared(case: Case) -> tuple[Tensor, Tensor]:
    """The deleted elements that were trained on, and the test elements they are compared with."""
    deleted = case.task.elements(case.deletion, case.original, incident=True).cpu()
    return deleted, case.task.unseen(case.remaining, "test", case.deletion).cpu()


@dataclass(frozen=True)
class Deleted:
    """What stands for what was deleted, and each model on the graph where it is asked about that.

    A model that answers on no other graph than its own is missing from ``subjects``; ``reason`` says why.
    """

    title: str
    graph: str  # "served", or "old_id" where deleted elements have nothing left in the graph as served
    subjects: dict[str, Subject]
    reason: str = ""


def deleted(case: Case) -> Deleted:
    """Which models are asked about deleted elements: presented again where nothing is left of them as served."""
    title = case.task.title(case.deletion)
    if not case.task.blank(case.deletion):
        return Deleted(title, "served", case.subjects)
    queried = {name: ask(case, "old_id", subject) for name, subject in case.subjects.items()}
    found = {name: answer.subject for name, answer in queried.items() if answer.subject is not None}
    reason = next((answer.reason for answer in queried.values() if answer.subject is None), "")
    return Deleted(title, "old_id", found, reason)


def rings(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Ring 0 (the nodes that the deletion names), ring 1 (their neighbours in the original graph) and all other nodes."""
    table = edge_table(case.original)
    near = Neighborhood(table, case.original.edge_index).rings(case.deletion.named_nodes, 1)
    elsewhere = torch.ones(table.num_nodes, dtype=torch.bool)
    for ring in near:
        elsewhere[ring.cpu()] = False
    return near[0].cpu(), near[1].cpu(), elsewhere.nonzero().flatten()


def touched(case: Case) -> tuple[Tensor, Tensor]:
    """Nodes that lost an edge, features or a label, and the others. Deleted nodes are in neither."""
    table, nodes = edge_table(case.original), case.deletion.nodes
    neighbors = Neighborhood(table, case.original.edge_index).rings(nodes, 1)[1]
    lost = torch.zeros(table.num_nodes, dtype=torch.bool)
    lost[case.deletion.named_nodes] = True
    lost[neighbors.cpu()] = True
    left = torch.ones_like(lost).index_fill(0, nodes, False)
    return (lost & left).nonzero().flatten(), (~lost & left).nonzero().flatten()


def node_rows(subject: Subject, num_nodes: int) -> Tensor | None:
    """One finite row per node of what the model returned; None where it keeps no model or returns something else."""
    if subject.output is None:
        return None
    try:
        z = representation(subject.output)
    except ModelError:
        return None
    if z.dim() < 2 or z.size(0) != num_nodes or not bool(torch.isfinite(z).all()):
        return None
    return z.detach().flatten(1)
