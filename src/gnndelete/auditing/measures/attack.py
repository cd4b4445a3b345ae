"""The attacker's tools: a shadow model to learn from, a small network that learns, and what it achieves."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_curve
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Shadow, Subject
from gnndelete.auditing.measures.base import NotMeasuredError
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import cut, without_labels
from gnndelete.graph.validation import edge_table
from gnndelete.metrics.ranking import Floats, auc
from gnndelete.nn.reset import untrained
from gnndelete.training.loop import train

#: Examples of each kind that an attack learns from at most.
EXAMPLE_LIMIT = 2_000
#: Elements of each kind that an attack is asked about at most.
QUESTION_LIMIT = 5_000
#: The fewest examples of each kind from which a classifier can learn anything.
EXAMPLE_MINIMUM = 10
#: With fewer deleted elements the answer of an attack is called an anecdote.
QUESTION_MINIMUM = 5
#: Points of a ROC curve that a report keeps.
ROC_POINTS = 101
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
    nothing = torch.empty(0, dtype=torch.long)
    try:
        graph, present, absent = _hold_out(case)
        if min(present.size(-1), absent.size(-1)) < EXAMPLE_MINIMUM:
            why = (
                f"only {absent.size(-1)} training elements could be held out for a shadow model, and it takes at least "
                f"{EXAMPLE_MINIMUM}; a graph of this size cannot be attacked this way"
            )
            return Shadow(None, nothing, nothing, reason=why)
        model, how = train_alike(case, graph, case.seed + 2)  # Retrain takes the next one after the seed
    except GNNDeleteError as error:
        return Shadow(None, nothing, nothing, reason=f"no shadow model could be trained: {error}")
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


def train_alike(case: Case, graph: Data, seed: int) -> tuple[nn.Module, str]:
    """A model of the same architecture, trained like the reference on another graph, and how it was trained.

    Args:
        case: The case.
        graph: What it is trained on.
        seed: Of its weights and its training.
    """
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


class Attack:
    """A small network that learns to tell two kinds of elements apart: inputs, 100, 50, one probability.

    As in Olatunji et al. (2021): Adam, step 0.01, batches of 32, at most 100 epochs. Their two output units are one
    logistic unit here, which is the same function. Inputs are standardised by the training examples. A fifth of the examples
    is held back to measure the attack itself (``quality``). The last ``bits`` columns are 0 or 1 and stay as they are.

    >>> generator = np.random.default_rng(0)
    >>> attack = Attack(generator.normal(2, 1, (200, 1)), generator.normal(0, 1, (200, 1)), seed=0)
    >>> attack.quality > 0.8
    True
    """

    def __init__(self, present: Floats, absent: Floats, seed: int, bits: int = 0) -> None:
        generator = np.random.default_rng(seed)
        count = min(len(present), len(absent), EXAMPLE_LIMIT)
        kinds = [generator.permutation(kind)[:count] for kind in (present, absent)]
        held_back = max(1, count // 5)
        examples = np.concatenate([kind[held_back:] for kind in kinds])
        self._bits = bits
        self._scaler = StandardScaler().fit(examples[:, : examples.shape[1] - bits])
        self._network = MLPClassifier(
            hidden_layer_sizes=(100, 50),
            learning_rate_init=0.01,
            batch_size=min(32, len(examples)),
            max_iter=100,
            alpha=0.3,  # without it two seeds of the same attack differ by more than two models do
            early_stopping=len(examples) >= 400,  # a tenth of fewer examples is too small to stop by
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 100 epochs are the attack as published
            self._network.fit(self._inputs(examples), np.repeat([1, 0], count - held_back))
        self.quality = auc(*(self.presence(kind[:held_back]) for kind in kinds))

    def presence(self, features: Floats) -> Floats:
        """The probability that each element was among the training data."""
        # equal answers are asked once: rows of one matrix product may be rounded in different ways
        questions, which = np.unique(self._inputs(features), axis=0, return_inverse=True)
        return np.asarray(self._network.predict_proba(questions)[which, 1], dtype=np.float64)

    def _inputs(self, features: Floats) -> Floats:
        width = features.shape[1] - self._bits
        scaled = self._scaler.transform(np.nan_to_num(features[:, :width]))
        return np.concatenate([scaled, features[:, width:]], axis=1)


@dataclass(frozen=True)
class AttackResult:
    """What an attack achieved on one model.

    Args:
        auc: Deleted against other elements.
        mean: The mean answer on the deleted elements.
        roc: The curve: ``fpr`` and ``tpr``.
        same: Whether every element got the same answer, so that the AUC is 0.5 whatever the model knows.
    """

    auc: float
    mean: float
    roc: dict[str, list[float]]
    same: bool = False

    @classmethod
    def of(cls, deleted: Floats, others: Floats) -> AttackResult:
        """From the answers on deleted and on other elements.

        >>> AttackResult.of(np.array([0.9, 0.4]), np.array([0.4, 0.1])).roc["tpr"][-1]
        1.0
        """
        every = np.concatenate([deleted, others])
        fpr, tpr, _ = roc_curve(np.repeat([1, 0], [len(deleted), len(others)]), every)
        if len(fpr) > ROC_POINTS:
            grid = np.linspace(0, 1, ROC_POINTS)
            fpr, tpr = grid, np.interp(grid, fpr, tpr)
            tpr[0] = 0.0  # where the curve starts with a step, the point at its foot
        return cls(
            auc=auc(deleted, others),
            mean=float(np.mean(deleted)),
            roc={"fpr": np.round(fpr, 4).tolist(), "tpr": np.round(tpr, 4).tolist()},
            same=bool(np.ptp(every) <= 1e-12 * np.max(every)),  # up to the last digits of a sum
        )
