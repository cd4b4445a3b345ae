"""The shadow model: what an attacker trains to learn how a model answers on what it has seen and on what it has not."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.edges import link_edges
from gnndelete.auditing.measures.attack import LEAST
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import without_labels
from gnndelete.graph.remaining import cut
from gnndelete.graph.validation import edge_table
from gnndelete.nn.reset import untrained
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task
from gnndelete.training.loop import train

#: What the shadow never sees: a tenth of the edges, or the labels of a third of the training nodes.
EDGES, NODES = 0.1, 1 / 3

KNOWS = (
    "The attacker knows the remaining graph, the architecture and the training procedure, and trains a shadow model on that "
    "graph, without {held}. No deleted and no test element is among what the attack learns from. But the shadow's nodes are "
    "the target's own (a model with parameters of single nodes allows no others), so this attacker is stronger than that of "
    "Olatunji et al., whose shadow data share nothing with the target's."
)


@dataclass(frozen=True)
class Shadow:
    """A trained shadow, and the elements it has seen (``present``) and never seen (``absent``).

    Where none could be trained ``subject`` is None and ``reason`` says why.
    """

    subject: Subject | None  # answers on the graph the shadow was trained on
    present: Tensor  # edges [2, k], each once, or nodes [k]
    absent: Tensor
    task: Task
    what: str = ""
    seconds: float = 0.0
    reason: str = ""


def train_shadow(case: Case) -> Shadow:
    """Train a model of the same architecture on the remaining graph with a further part of it held out.

    It is trained by the user's ``fit`` where there is one, else by the built-in loop with the schedule of the retrained
    reference, or the default one. Shadow data are disjoint from every attacked element: deleted ones are not in the
    remaining graph, test ones not in any training graph. Validation elements choose the checkpoint and nothing else.
    """
    started = time.perf_counter()
    task = case.task
    try:
        if isinstance(task, LinkPrediction):
            graph, present, absent = _without_edges(case)
            held = f"{absent.size(-1)} of its edges"
        elif isinstance(task, NodeClassification):
            graph, present, absent = _without_labels(case, task)
            held = f"the labels of {absent.size(-1)} of its training nodes"
        elif isinstance(task, GraphClassification):
            graph, present, absent = _without_labels(case, task)
            held = f"the labels of {absent.size(-1)} of its training graphs"
        else:
            return _none(task, f"a '{task.name}' task has no elements that a shadow model could hold out")
        if min(present.size(-1), absent.size(-1)) < LEAST:
            return _none(
                task,
                f"only {absent.size(-1)} training elements could be held out for a shadow model, and it takes at least "
                f"{LEAST}; a graph of this size cannot be attacked this way",
            )
        model, how = _trained(case, graph)
    except GNNDeleteError as error:
        return _none(task, f"no shadow model could be trained: {error}")
    subject = Subject.of_model("shadow", model, graph, task, case.forward)
    what = f"{KNOWS.format(held=held)} {how}"
    return Shadow(subject, present, absent, task, what, time.perf_counter() - started)


def _without_edges(case: Case) -> tuple[Data, Tensor, Tensor]:
    task = case.task
    typed = isinstance(task, LinkPrediction) and task.relation is not None
    edges = case.learned_edges(case.remaining) if typed else link_edges(case.remaining)
    order = torch.randperm(edges.size(1), generator=case.generator(7)).to(edges.device)
    count = round(EDGES * edges.size(1))
    absent, present = edges[:, order[:count]], edges[:, order[count:]]
    gone = Deletion(edges=absent)
    graph = cut(gone, case.remaining, edge_table(case.remaining)) if typed else gone.remaining(case.remaining)
    return graph if count else case.remaining, present, absent


def _without_labels(case: Case, task: NodeClassification | GraphClassification) -> tuple[Data, Tensor, Tensor]:
    trained = task.part(case.remaining, "train")
    nodes = trained.nonzero().flatten()
    order = torch.randperm(nodes.numel(), generator=case.generator(7)).to(nodes.device)
    count = round(NODES * nodes.numel())
    absent, present = nodes[order[:count]], nodes[order[count:]]
    if isinstance(case.remaining, HeteroGraph):
        return cut(Deletion(labels=absent), case.remaining, edge_table(case.remaining)), present, absent
    graph = case.remaining.__copy__()
    graph.train_mask = trained.index_fill(0, absent, False)
    graph.y = without_labels(case.remaining.y, absent)  # a fit function of the user may look at labels alone
    return graph, present, absent


def _trained(case: Case, graph: Data) -> tuple[nn.Module, str]:
    seed = case.seed + 2  # Retrain takes the next one after the seed
    model = untrained(case.base, case.build, seed).to(graph.edge_index.device)
    if case.fit is not None:
        return case.fit(model, graph, seed) or model, "The shadow was trained by the given fit function."
    schedule = {}
    if case.reference is not None and case.reference.method == "retrain":
        taken = ("epochs", "lr", "patience", "batch_size", "num_neighbors")
        schedule = {name: value for name, value in case.reference.settings.items() if name in taken}
    run = train(model, graph, case.task, seed=seed, progress=case.progress, forward=case.forward, **schedule)
    source = "with the schedule of the retrained reference" if schedule else "with its default schedule"
    return model, f"The shadow was trained by the built-in loop {source}: {run.epochs_run} epochs."


def _none(task: Task, reason: str) -> Shadow:
    nothing = torch.empty(0, dtype=torch.long)
    return Shadow(None, nothing, nothing, task, reason=reason)
