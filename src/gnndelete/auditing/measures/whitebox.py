"""The attack with the weights: what somebody who has new weights can still measure of what was deleted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number
from gnndelete.auditing.measures.attack import train_alike
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, Row, Section, Table
from gnndelete.auditing.measures.forgetting import measure_unseen, why_untestable
from gnndelete.auditing.queries import ask, with_base
from gnndelete.auditing.samples import compared, deleted
from gnndelete.engine.session import Session
from gnndelete.errors import GNNDeleteError
from gnndelete.methods import resolver as methods
from gnndelete.methods.base import Context
from gnndelete.metrics.ranking import Floats, auc, auc_variance
from gnndelete.metrics.whitebox import ATTACK_MINIMUM, ATTACKED, peers_attack, white_box
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import copied

#: Training steps on deleted and unseen elements alike, after which latent memory would be back first, and their step size.
STEPS, STEP_SIZE = 10, 0.003

WHAT = (
    "Deleted against test elements, each measured with the weights: its loss, the size of its gradient, and an attack that "
    f"learns from both on training elements and one half of the test elements. Then the AUC after {STEPS} training steps on "
    "deleted and test elements alike, where latent memory comes back first. The last two attackers also kept the old model: its "
    "answers, or its weights. They can tell deleted elements from others after a retraining too, so only the difference counts."
)
LEAK = (
    "The same step, with the same fresh weights, was made from the retrained model, which never saw the deleted elements, in "
    "place of the old one. What the unseen AUC is lower there was passed on by the old model's answers."
)
TITLES = {"before": "old weights", "after": "after", "reference": "Retrain", "second": "second Retrain"}


@dataclass(frozen=True)
class WhiteBoxResult:
    """What attackers with the weights of one model achieve: AUCs of deleted against test elements.

    Args:
        loss: By the loss alone, low losses first.
        gradient: By the size of the gradient alone, small ones first.
        attack: By an attack that learns from both.
        relearned: By the scores after a few training steps on deleted and test elements alike.
        old_answers: By how much lower the answers are than those of the old model.
        old_weights: By an attack that learns from loss and gradient of both models.
    """

    loss: float
    gradient: float
    attack: float
    relearned: float
    old_answers: float | None = None
    old_weights: float | None = None


@dataclass(frozen=True)
class Leak:
    """The step that made the result, once more from the retrained model.

    Args:
        result: The unseen AUC of the result.
        from_reference: That of the same step from the retrained model.
        gap: The first minus the second, with the half-width of its 95% interval in ``gap_error``.
        graph: The query: ``"served"`` or ``"old_id"``.
    """

    result: float
    from_reference: float
    gap: float
    gap_error: float
    graph: str


@dataclass(frozen=True, kw_only=True)
class WhiteBoxSection(Section):
    """The attacks on every model, by its name; ``second`` is a second retraining, which shows the noise between two.

    Args:
        models: What was found by model: ``before``, ``after``, ``reference`` and ``second``.
        graph: On which graph: ``"served"``, or ``"old_id"`` for presented again.
        counts: The elements of each kind.
        error: The standard error of an AUC if deleted and test elements are alike.
        leaks: What the old model's answers passed on, by query; empty where none were followed.
        no_leak: Why that was not measured.
    """

    models: dict[str, WhiteBoxResult]
    graph: str
    counts: dict[str, int]
    error: float
    leaks: tuple[Leak, ...] = ()
    no_leak: str = ""

    @property
    def expected(self) -> float:
        """The AUC of the attack that a retraining has; at least 0.5."""
        return max([0.5, *(self.models[name].attack for name in ("reference", "second") if name in self.models)])

    def tables(self, names: Names) -> Iterable[Table]:
        rows = {
            "by the loss": "loss",
            "by the size of the gradient": "gradient",
            "attack on both": "attack",
            f"after {STEPS} training steps": "relearned",
            "with the old answers as well": "old_answers",
            "with the old weights as well": "old_weights",
        }
        where = "as served" if self.graph == "served" else "presented again"
        yield Table(
            (f"AUC with the weights, {where}", *(TITLES[name] for name in self.models)),
            tuple(
                (title, *(number(getattr(found, key)) for found in self.models.values())) for title, key in rows.items()
            ),
        )
        if self.leaks:
            cells = tuple(
                (
                    "as served" if leak.graph == "served" else "presented again",
                    number(leak.result),
                    number(leak.from_reference),
                    f"{leak.gap:+.3f} ± {leak.gap_error:.3f}",
                )
                for leak in self.leaks
            )
            yield Table(("unseen AUC of the same step", "from the old model", "from Retrain", "passed on"), cells, LEAK)
        elif self.no_leak:
            yield Table(("what the old answers passed on",), ((f"Not measured: {self.no_leak}.",),))

    def key_rows(self, names: Names) -> Iterable[Row]:
        yield (
            "Attack with the weights, AUC",
            *(number(self.models[n].attack if n in self.models else None) for n in names),
        )


class WhiteBox(Measure):
    """Attack new weights, and beside them the old ones, those of Retrain and of a second retraining."""

    name: ClassVar[str] = "white_box"
    title: ClassVar[str] = "Attack with the weights"
    attack: ClassVar[bool] = True

    def run(self, case: Case) -> WhiteBoxSection:
        if case.unlearned.weights != "new":
            raise NotMeasuredError("the old weights are in the result, and whoever has it has what they learned")
        if (reason := why_untestable(case)) or case.after.model is None:
            raise NotMeasuredError(reason or f"method '{case.unlearned.method}' keeps no model to attack")
        shown = deleted(case)
        if "after" not in shown.subjects:
            raise NotMeasuredError(shown.reason)
        subjects = {"before": with_base(case, shown.subjects["after"].graph)}
        subjects |= {name: shown.subjects[name] for name in ("after", "reference") if name in shown.subjects}
        subjects |= _second(case, subjects["after"])
        attackers = _Attackers(case)
        models = {name: attackers.results(subject, subjects["before"]) for name, subject in subjects.items()}
        leaks, why = _leaks(case)
        section = WhiteBoxSection(
            models=models,
            graph=shown.graph,
            counts=attackers.counts,
            error=attackers.error,
            leaks=leaks,
            no_leak=why,
            what=WHAT,
        )
        return replace(section, sentence=_sentence(section))


class _Attackers:
    """The elements that are attacked, and what is measured of them in one model."""

    def __init__(self, case: Case) -> None:
        self.case, task = case, case.task
        gone, unseen = compared(case)
        learned = task.learned_once(case.remaining).cpu()
        self.kinds = [case.sample(part, ATTACKED, 31 + k).cpu() for k, part in enumerate((learned, unseen, gone))]
        self.sizes = [part.size(-1) for part in self.kinds]
        self.counts = dict(zip(("trained", "test", "deleted"), self.sizes, strict=True))
        if min(self.sizes) < ATTACK_MINIMUM:
            raise NotMeasuredError(
                f"an attack with the weights takes at least {ATTACK_MINIMUM} elements of each kind (there are "
                f"{', '.join(f'{count} {name}' for name, count in self.counts.items())})"
            )
        self.error = math.sqrt(auc_variance(0.5, self.sizes[2], self.sizes[1]))
        self.seed = case.seed
        self._old: tuple[list[Floats], list[Floats]] | None = None

    def results(self, subject: Subject, old: Subject) -> WhiteBoxResult:
        """The attacks on one model, alone and beside the old one."""
        rows, scores = self._rows(subject), self._scores(subject)
        if self._old is None:
            self._old = self._rows(old), self._scores(old)
        both = [np.concatenate(parts, axis=1) for parts in zip(rows, self._old[0], strict=True)]
        gap = [before - after for before, after in zip(self._old[1], scores, strict=True)]
        kept = subject is not old
        return WhiteBoxResult(
            loss=auc(-rows[2][:, 0], -rows[1][:, 0]),
            gradient=auc(-rows[2][:, 1], -rows[1][:, 1]),
            attack=self._attack(rows),
            relearned=self._relearned(subject),
            old_answers=auc(gap[2], gap[1]) if kept else None,
            old_weights=self._attack(both) if kept else None,
        )

    def _attack(self, rows: list[Floats]) -> float:
        trained, unseen, gone = rows
        return peers_attack(trained, unseen, gone, self.seed)[0]

    def _rows(self, subject: Subject) -> list[Floats]:
        assert subject.model is not None
        elements = torch.cat(self.kinds, dim=-1)
        with evaluating(subject.model):
            found = white_box(subject.model, self._losses(subject.model, subject, elements), self.seed)
        return np.split(found, np.cumsum(self.sizes)[:-1])

    def _scores(self, subject: Subject, model: nn.Module | None = None) -> list[Floats]:
        """Scores by kind in units of their spread, so that those of two models can be subtracted."""
        asked = subject if model is None else self._subject(subject, model)
        elements = torch.cat(self.kinds, dim=-1).to(asked.graph.edge_index.device)
        scores = self.case.task.scores(asked.predict, self.case.original, elements).detach().double().cpu()
        scores = ((scores - scores.mean()) / scores.std()).nan_to_num()
        return np.split(scores.numpy(), np.cumsum(self.sizes)[:-1])

    def _subject(self, subject: Subject, model: nn.Module) -> Subject:
        return Subject.of_model(subject.name, model, subject.graph, self.case.task, self.case.forward)

    def _losses(self, model: nn.Module, subject: Subject, elements: Tensor) -> Callable[[], Tensor]:
        task, graph = self.case.task, subject.graph
        elements = elements.to(graph.edge_index.device)
        classes = task.classes(self.case.original, elements)

        def losses() -> Tensor:
            return task.losses(model, self.case.forward(model, graph), graph, elements, classes=classes)

        return losses

    def _relearned(self, subject: Subject) -> float:
        assert subject.model is not None
        model = copied(subject.model).eval()
        losses = self._losses(model, subject, torch.cat(self.kinds[1:], dim=-1))
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.Adam(weights, lr=STEP_SIZE)
        with torch.enable_grad():
            for _ in range(STEPS):
                optimizer.zero_grad()
                losses().mean().backward()
                optimizer.step()
        _, unseen, gone = self._scores(subject, model)
        return auc(gone, unseen)


def _second(case: Case, after: Subject) -> dict[str, Subject]:
    """A second retraining, given or trained; none where there is no reference to put it beside, or it cannot be trained."""
    if case.reference is None:
        return {}
    model = next((subject.model for subject in case.more_references if subject.model is not None), None)
    try:
        model = model or train_alike(case, case.remaining, case.seed + 4)[0]
    except GNNDeleteError:
        return {}
    return {"second": Subject.of_model("second", model, after.graph, case.task, case.forward)}


def _leaks(case: Case) -> tuple[tuple[Leak, ...], str]:
    """The step that made the result, once more from the reference; why not, where that cannot be done."""
    result, reference = case.unlearned, case.reference
    if result.assurance in ("retrained", "exact"):
        return (), "nothing of the old model went into the result"
    if reference is None or reference.model is None:
        return (), "it takes the same deletion by Retrain as the reference"
    try:
        method = methods.make(result.method, result.settings)
        session = Session(reference.model, case.original, case.forward)
        context = Context(session, task=result.task, fit=case.fit, build=case.build, seed=result.seed)
        model = method.same_step(context.for_deletion(case.deletion), result.details)
    except (GNNDeleteError, KeyError, TypeError) as error:
        return (), f"the step could not be made from the reference ({error})"
    if model is None:
        return (), f"method '{result.method}' does not say how its step is made from another model"
    other = Subject.of_model("reference", model, case.remaining, case.task, case.forward)
    found = []
    for query in ("served", "old_id"):
        if query == "served" and (case.task.blank(case.deletion) or case.task.no_served_answer(case.deletion)):
            continue
        tests = []
        for subject in (case.after, other):
            asked = ask(case, query, subject)
            tests.append(None if asked.subject is None else measure_unseen(case, asked.subject, asked.move))
        mine, theirs = tests
        if mine is not None and theirs is not None:
            gap, spread = mine.against(theirs)
            found.append(Leak(mine.auc, theirs.auc, gap, 1.96 * spread, query))
    return tuple(found), "" if found else "no answer about deleted elements is finite"


def _sentence(section: WhiteBoxSection) -> str:
    models = section.models
    others = [
        f"{models[name].attack:.3f} for {TITLES[name]}" for name in ("before", "reference", "second") if name in models
    ]
    text = (
        f"With the weights, deleted elements can be told from test elements with AUC {models['after'].attack:.3f} "
        f"({', '.join(others)}; 0.5: not at all)."
    )
    for leak in section.leaks[:1]:
        text += f" The old model's answers passed on {leak.gap:+.3f} ± {leak.gap_error:.3f} of unseen AUC."
    return text
