"""The shadow model: the auditor trains one to learn how such a model answers on what it has trained on and what not."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Shadow, Subject
from gnndelete.auditing.measures.attack import EXAMPLE_MINIMUM
from gnndelete.auditing.measures.base import NotMeasuredError
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import cut, without_labels
from gnndelete.graph.validation import edge_table
from gnndelete.nn.reset import untrained
from gnndelete.training.loop import train

#: The share of the edges, or of the training labels, that is held out from the shadow.
EDGE_SHARE, LABEL_SHARE = 0.1, 1 / 3

LEFT_OUT = "the attacks were left out (attacks=False); they train a shadow model"

KNOWS = (
    "The attacker knows the remaining graph, the architecture and the training procedure, and trains a shadow model on that "
    "graph without {held}. The attack learns from no deleted and no test element. The shadow uses the same nodes as the "
    "audited model, since a model with parameters per node allows no others. So this attacker is stronger than that of "
    "Olatunji et al., whose shadow data share nothing with the target's."
)


def train_shadow(case: Case) -> Shadow:
    """Train a model of the same architecture on the remaining graph with a further part of it held out.

    It is trained by the user's ``fit`` where there is one, else by the built-in loop with the schedule of the retrained
    reference, or the default one. No attacked element is in its data: deleted ones are not in the remaining graph, test ones
    in no training graph. Validation elements only choose the checkpoint.
    """
    started = time.perf_counter()
    try:
        graph, present, absent = _hold_out(case)
        if min(present.size(-1), absent.size(-1)) < EXAMPLE_MINIMUM:
            return _none(
                f"only {absent.size(-1)} training elements could be held out for a shadow model, and it takes at least "
                f"{EXAMPLE_MINIMUM}; a graph of this size cannot be attacked this way"
            )
        model, how = _trained(case, graph)
    except GNNDeleteError as error:
        return _none(f"no shadow model could be trained: {error}")
    subject = Subject.of_model("shadow", model, graph, case.task, case.forward)
    noun = case.task.noun
    held = (
        f"{absent.size(-1)} of its edges" if case.task.pairwise else f"the labels of {absent.size(-1)} training {noun}s"
    )
    return Shadow(subject, present, absent, f"{KNOWS.format(held=held)} {how}", time.perf_counter() - started)


def trained_shadow(case: Case) -> tuple[Shadow, Subject]:
    """The shadow of a case and its model, for an attack; `NotMeasuredError` where there is none."""
    if case.shadow is None or case.shadow.subject is None:
        raise NotMeasuredError(case.shadow.reason if case.shadow else LEFT_OUT)
    return case.shadow, case.shadow.subject


def _hold_out(case: Case) -> tuple[Data, Tensor, Tensor]:
    """The shadow's training graph, what it trains on, and what was held out."""
    task, data = case.task, case.remaining
    learned = task.learned_once(data)
    order = torch.randperm(learned.size(-1), generator=case.generator(7)).to(learned.device)
    count = round((EDGE_SHARE if task.pairwise else LABEL_SHARE) * learned.size(-1))
    absent, present = learned[..., order[:count]], learned[..., order[count:]]
    if task.pairwise:
        return cut(Deletion(edges=absent), data, edge_table(data)) if count else data, present, absent
    if isinstance(data, HeteroGraph):
        return cut(Deletion(labels=absent), data, edge_table(data)), present, absent
    graph = data.__copy__()
    trained = torch.zeros(data.y.size(0), dtype=torch.bool, device=learned.device).index_fill(0, present, True)
    graph.train_mask = trained
    graph.y = without_labels(data.y, absent)  # a fit function of the user may look at labels alone
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


def _none(reason: str) -> Shadow:
    nothing = torch.empty(0, dtype=torch.long)
    return Shadow(None, nothing, nothing, reason=reason)
