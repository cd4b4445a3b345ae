"""Regrow: fast retraining, else masked distillation, each judged on validation data; at the end Retrain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, ClassVar

import torch
from torch import nn

from gnndelete.errors import SettingError
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, Weights, check_numbers
from gnndelete.methods.regrow.acceptance import Check, Judge, Measured, share_deleted
from gnndelete.methods.regrow.teacher import SILENT_AFTER, Course, GraphGuide, Guide, graph_guide, old_answers
from gnndelete.methods.retrain import Retrain, decoder_reasons, kept_notes, reset_reasons
from gnndelete.nn.reset import untrained
from gnndelete.nn.tables import possible_vectors
from gnndelete.notes import Note
from gnndelete.training.loop import LoopFit, takes_course, usual_epochs, usual_rate

#: A request that takes more of what the model learned from is retrained. At 20% regrown weights were like retrained ones on
#: Planetoid Cora; more was never tried.
LARGEST_SHARE = 0.25

#: The epochs of an attempt: a share of those of Retrain, within a fewest and a most number of steps.
FAST_LINKS, FAST_CLASSES, DISTILLED = (0.07, 16, 70), (0.1, 16, 100), (0.04, 8, 40)

#: The peak learning rate times the steps of an attempt: for links, for links by vectors of nodes, and for classes. Chosen on
#: Planetoid Cora and CiteSeer with GCN, GAT, SAGE and GIN; for classes on Cora with GCN.
LINK_TRAVEL, VECTOR_TRAVEL, CLASS_TRAVEL = 0.18, 0.3, 0.5

#: The largest factor of the usual learning rate, and that rate where nothing tells it.
LARGEST_FACTOR, UNKNOWN_RATE = 20.0, 0.005

#: Added to the seed of the deletion where no seed is given: far from any seed that the old model may have been drawn from.
NEW_SEED = 104_729

#: The share of rows that no deleted element touches and that are masked all the same.
DECOYS = 0.5


#: How many directions of the old model's answers are followed where it has a vector per node.
TABLE_RANK = 8


@dataclass(frozen=True)
class Attempt:
    """One way that was tried.

    Args:
        step: ``"fast"``, ``"distilled"`` or ``"retrain"``.
        epochs: Epochs that it trained.
        peak: Peak of the learning rate as a multiple of the usual one.
        checks: What was checked.
        rows: How many answers of the old model were followed.
        guide: What of the remaining graph was followed: ``"features"``, ``"walks"``, or empty.
    """

    step: str
    epochs: int
    peak: float
    checks: tuple[Check, ...]
    rows: int = 0
    guide: str = ""

    @property
    def failed(self) -> list[Check]:
        """The checks that were not passed."""
        return [check for check in self.checks if not check.passed]

    def to_dict(self) -> dict[str, Any]:
        """The attempt as plain values."""
        checks = [check.to_dict() for check in self.checks]
        values = {name: getattr(self, name) for name in ("step", "epochs", "peak", "rows", "guide")}
        return {**values, "checks": checks}


class Regrow(Method):
    """New weights, drawn afresh and trained on the remaining graph, at a few percent of the epochs of a retraining.

    Three ways are tried in this order, and each is judged on validation data alone.

    1. *Fast retraining*: few epochs with a high, falling learning rate. For links the rows of the model first follow what the
       remaining graph says itself in closed form: features averaged over it, or random walks on it. Vectors of nodes start
       from the walks. Nothing of the old model goes in, so that the level is ``retrained``. It is taken where its validation
       score is that of the old model.
    2. *Distillation*: in the first epochs the model also follows what the old model answers about rows that no deleted element
       touches; half of these are masked as well, so that those of the deletion do not stand out. The level is ``approximate``.
       It is taken where deleted elements look as in step 1: as served, presented again, and to an attack with the weights.
    3. `Retrain`, with all its epochs.

    Training is the Unlearner's ``fit``, which must take the keyword arguments ``epochs`` and ``extra_loss`` and should take
    ``schedule``; else the built-in loop. ``details["regrow"]`` holds every attempt with its checks.

    Args:
        epochs: Epochs of a full retraining; a ``fit`` with a default for its ``epochs`` takes precedence.
        lr: Learning rate of a full retraining; None takes 0.001, or what a ``fit`` does.
        patience: As in `Retrain`, for a full retraining.
        seed: Seed of the new weights; None takes one far from the seed of the deletion.
        batch_size: As in `Retrain`.
        num_neighbors: As in `Retrain`.
        short: Epochs of each attempt; None takes 7 (classes: 10) and 4% of ``epochs``.
        peak: The peak learning rate, as a multiple of ``lr``; None takes what the number of steps asks for.
        distill: Whether step 2 is tried.
        weight: How strongly a guide is followed in the first epoch.
        rank: How many directions of the old model's answers are followed; None takes all, or 8 for a model with a vector per
            node.

    >>> Regrow(epochs=500).settings()["epochs"]
    500
    """

    name: ClassVar[str] = "regrow"
    assurance: ClassVar[Assurance] = "approximate"
    weights: ClassVar[Weights] = "new"
    needs = "a training function"
    summary: ClassVar[str] = "new weights at a few percent of a retraining"
    node_types: ClassVar[bool] = True

    def __init__(
        self,
        epochs: int = 1000,
        lr: float | None = None,
        patience: int | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        num_neighbors: int | list[int] | None = None,
        short: int | None = None,
        peak: float | None = None,
        distill: bool = True,
        weight: float = 3.0,
        rank: int | None = None,
    ) -> None:
        self.epochs = epochs
        self.lr = lr
        self.patience = patience
        self.seed = seed
        self.batch_size = batch_size
        self.num_neighbors = num_neighbors
        self.short = short
        self.peak = peak
        self.distill = distill
        self.weight = weight
        self.rank = rank

    def check(self) -> None:
        given = [name for name in ("lr", "peak", "short", "rank") if getattr(self, name) is not None]
        check_numbers(self, positive=("weight", *(name for name in given if name in ("lr", "peak"))))
        check_numbers(self, whole=("epochs", *(name for name in given if name in ("short", "rank"))))
        if not isinstance(self.distill, bool):
            raise SettingError(f"'distill' must be True or False (got {self.distill!r})")

    def unfit(self, context: Context) -> list[Reason]:
        reasons = []
        if context.task is None:
            reasons.append(Reason("no task says how new weights are judged", "pass task=…"))
        elif not _validates(context):
            why = "there is no validation data to judge new weights on"
            reasons.append(Reason(why, "give the task validation data, or use method='retrain'"))
        if context.fit is not None and not {"epochs", "extra_loss"} <= takes_course(context.fit):
            why = "'fit' cannot be asked for fewer epochs or for an addition to its loss"
            remedy = "let it take them: def fit(model, data, seed, epochs=…, schedule=None, extra_loss=None)"
            reasons.append(Reason(why, remedy))
        return reasons + reset_reasons(context) + decoder_reasons(context, context.fit)

    def unlearn(self, context: Context) -> Outcome:
        growth = _Growth(self, context)
        share = share_deleted(context)
        if share > LARGEST_SHARE:
            why = f"the request takes {share:.0%} of what the model learned from, more than {LARGEST_SHARE:.0%}"
            return growth.retrain("large-request", why)
        fast = growth.fast()
        if not growth.attempts[-1].failed:
            return growth.outcome(fast, "retrained", _fast_note(growth.attempts[-1], growth.usual))
        failed = growth.attempts[-1].failed
        if not self.distill:
            return growth.retrain("checks-failed", _failed(failed))
        if growth.judge.missing:
            return growth.retrain("checks-failed", f"{_failed(failed)}; {growth.judge.missing}")
        distilled = growth.distilled()
        if distilled is None:
            return growth.retrain("no-teacher", "no rows are left that the old model may answer about")
        if not growth.attempts[-1].failed:
            return growth.outcome(distilled, "approximate", growth.distilled_note())
        return growth.retrain("checks-failed", _failed(growth.attempts[-1].failed))

    def same_step(self, context: Context, details: Mapping[str, Any]) -> nn.Module | None:
        if details.get("regrow", {}).get("taken") != "distilled":
            return None
        return _Growth(self, context).repeat()


class _Growth:
    """One request on its way: fresh weights, attempts and what was measured of them."""

    def __init__(self, method: Regrow, context: Context) -> None:
        self.method, self.context = method, context
        self.seed = context.seed + NEW_SEED if method.seed is None else method.seed
        self.judge = Judge(context)
        self.attempts: list[Attempt] = []
        self.clean: Measured | None = None
        names = ("epochs", "lr", "patience", "batch_size", "num_neighbors")
        self.full = {name: getattr(method, name) for name in names if getattr(method, name) is not None}
        options = {**self.full, "forward": context.session.forward, "progress": context.progress}
        assert context.remaining_task is not None
        self.fit: Callable[..., Any] = context.fit or LoopFit(context.remaining_task, options)
        self.usual = usual_epochs(self.fit) or method.epochs
        self.probed = 0  # epochs that only measured the step size
        self.has_vectors = bool(possible_vectors(context.model, context.data))

    def course(self, share: float, fewest: int, most: int, guide: Guide, silent: float) -> Course:
        """A training of some share of the usual epochs; the longer it is, the lower is the peak of its learning rate."""
        task, method = self.context.remaining_task, self.method
        assert task is not None
        learned = task.learned_once(self.context.remaining).size(-1)
        steps = 1 if method.batch_size is None else max(ceil(learned / method.batch_size), 1)
        epochs = method.short or max(ceil(min(max(round(share * self.usual), fewest), most) / steps), 1)
        travel = CLASS_TRAVEL if not task.pairwise else VECTOR_TRAVEL if self.has_vectors else LINK_TRAVEL
        factor = min(max(travel / (epochs * steps * self.rate), 1), LARGEST_FACTOR)
        return Course(min(epochs, self.usual), method.peak or factor, guide, method.weight, silent)

    @cached_property
    def rate(self) -> float:
        """How far a step moves a weight. Where no learning rate is known, one epoch of the user's training shows it."""
        known = self.method.lr or usual_rate(self.fit)
        takes = takes_course(self.fit)
        if known is not None or "schedule" not in takes or self.method.peak is not None:
            return known or UNKNOWN_RATE
        model = self._fresh()
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        self.probed = 1
        trained = self._train(model, Course(1, 1.0, steady=True))
        moved = torch.cat(
            [
                (weight.detach() - before[name]).abs().flatten()
                for name, weight in trained.named_parameters()
                if name in before
            ]
        )
        moved = moved[moved > 0]
        return float(moved.median()) if moved.numel() else UNKNOWN_RATE

    def fast(self) -> nn.Module:
        """Train on the remaining graph alone."""
        model, task = self._fresh(), self.context.remaining_task
        assert task is not None
        found = graph_guide(model, self.context, self.seed) if task.pairwise else GraphGuide(Guide(()))
        course = self.course(*(FAST_LINKS if task.pairwise else FAST_CLASSES), found.guide, silent=1.0)
        model = self._train(model, course)
        self.clean = self.judge.measure(model)
        checks = tuple(self.judge.checks(self.clean, None))
        self.attempts.append(Attempt("fast", course.epochs, course.peak, checks, guide=found.source))
        return model

    def distilled(self) -> nn.Module | None:
        """Train with answers of the old model; None where there are none that may be followed."""
        model, course, rows = self._distilled()
        if model is None or course is None:
            return None
        checks = tuple(self.judge.checks(self.judge.measure(model), self.clean))
        self.attempts.append(Attempt("distilled", course.epochs, course.peak, checks, rows))
        return model

    def _distilled(self) -> tuple[nn.Module | None, Course | None, int]:
        model, task = self._fresh(), self.context.remaining_task
        assert task is not None
        if task.pairwise:
            graph_guide(model, self.context, self.seed)  # vectors of nodes start from the graph here as well
        rank = self.method.rank or (TABLE_RANK if self.has_vectors else None)
        guide = old_answers(self.context, DECOYS, rank, 0, self.seed)
        if not guide.parts:
            return None, None, 0
        course = self.course(*DISTILLED, guide, silent=SILENT_AFTER)
        return self._train(model, course), course, guide.count

    def _fresh(self) -> nn.Module:
        device = self.context.data.edge_index.device
        return untrained(self.context.model, self.context.build, self.seed).to(device)

    def _train(self, model: nn.Module, course: Course) -> nn.Module:
        trained = self.fit(model, self.context.remaining, self.seed, **course.options(takes_course(self.fit)))
        return trained if isinstance(trained, nn.Module) else model

    def repeat(self) -> nn.Module | None:
        """The distillation alone, whatever its checks would say."""
        return self._distilled()[0]

    def outcome(self, model: nn.Module, level: Assurance, note: Note) -> Outcome:
        """The result, with everything that was tried."""
        checked = Note("regrow-checks", " ".join(_sentence(attempt) for attempt in self.attempts))
        parameters = sum(weight.numel() for weight in model.parameters())
        notes = (note, checked, *kept_notes(self.context))
        return Outcome(model, parameters, assurance=level, notes=notes, details={"regrow": self.details()})

    def retrain(self, code: str, why: str) -> Outcome:
        """Train with all epochs, and say why."""
        full = Retrain(**self.full, seed=self.seed).unlearn(self.context)
        assert full.model is not None
        self.attempts.append(Attempt("retrain", self.usual, 1.0, ()))
        tried = " ".join(_sentence(attempt) for attempt in self.attempts[:-1])
        note = Note(f"regrow-{code}", f"The model was retrained with all its epochs: {why}. {tried}".rstrip())
        return Outcome(
            full.model,
            full.parameters,
            assurance="retrained",
            notes=(note, *full.notes),
            details={"regrow": {**self.details(), "reason": code}},
        )

    def distilled_note(self) -> Note:
        """What was done, and what it does not promise."""
        attempt = self.attempts[-1]
        silent = round(SILENT_AFTER * attempt.epochs)
        text = (
            f"New weights, drawn afresh and trained on the remaining graph for {attempt.epochs} epochs. "
            f"In the first {silent} they also followed what the old model answers about {attempt.rows:,} rows that no "
            "deleted element touches. No old weight is in them and nothing can be taken off. What those answers owe to the "
            "deleted elements may have been passed on; that was measured, not bounded."
        )
        return Note("regrow-distilled", text)

    def details(self) -> dict[str, Any]:
        """What was tried, in plain values."""
        spent = self.probed + sum(attempt.epochs for attempt in self.attempts)
        return {
            "taken": self.attempts[-1].step,
            "epochs": spent,
            "usual_epochs": self.usual,
            "share": spent / self.usual,
            "deleted_share": share_deleted(self.context),
            "attempts": [attempt.to_dict() for attempt in self.attempts],
        }


def _validates(context: Context) -> bool:
    task = context.remaining_task
    return task is not None and task.validates(context.remaining)


def _failed(checks: list[Check]) -> str:
    return f"new weights did not pass {', '.join(check.code for check in checks)}"


def _sentence(attempt: Attempt) -> str:
    title = {"fast": "Fast retraining", "distilled": "Distillation"}[attempt.step]
    return f"{title}: {'; '.join(map(str, attempt.checks))}."


def _fast_note(attempt: Attempt, usual: int) -> Note:
    text = (
        f"New weights, drawn afresh and trained on the remaining graph alone, for {attempt.epochs} epochs instead of {usual} "
        f"and at up to {attempt.peak:g} times the learning rate. Nothing of the old model is in them."
    )
    return Note("regrow-fast", text)
