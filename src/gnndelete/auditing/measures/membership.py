"""The membership attack with a shadow model (Olatunji et al. 2021): was this edge, node or graph among the training data?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number, seconds
from gnndelete.auditing.measures.attack import QUESTION_LIMIT, QUESTION_MINIMUM, Attack, AttackResult, trained_shadow
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.graph.edge_table import ends_of
from gnndelete.metrics.ranking import Floats

#: An attack with a lower AUC on its own shadow proves little.
WEAK_ATTACK = 0.53
#: Below this AUC deleted elements stand out by too low answers.
SUPPRESSED = 0.4

EDGE_INPUT = (
    "Input: the logarithms of [1-p,\u00a0p] in double precision, where p is the probability of the edge; p itself rounds to 1 "
    "for certain edges. Present: edges the shadow was trained on. Absent: edges held out from it."
)
CLASS_INPUT = (
    "Input: the logarithms of the class probabilities, largest first, and the log-odds of the true label, which the attacker is "
    "assumed to know. Present: {noun}s the shadow was trained on. Absent: training {noun}s whose labels were held out from it."
)
ON_SERVED = "Each model is asked on the graph it is served on: the original one before, the remaining one after."
ON_ORIGINAL = "Every model is asked on the original graph, where what was deleted is presented again under its old ids."
CARRY_MESSAGES = (
    "Edges of deleted nodes carry messages there and test edges do not. Even a model that never saw them answers above 0.5, so "
    "compare with the retrained model."
)


@dataclass(frozen=True, kw_only=True)
class AttackSection(Section):
    """What an attack found on each model; ``counts`` are the elements it was asked about.

    ``references`` has the AUC on each of several references.
    """

    before: AttackResult | None = None
    after: AttackResult
    reference: AttackResult | None = None
    references: tuple[float, ...] = ()
    counts: dict[str, int]

    @property
    def expected(self) -> float | None:
        """The AUC on the reference, or the mean on several; None without one."""
        if self.references:
            return sum(self.references) / len(self.references)
        return None if self.reference is None else self.reference.auc

    @property
    def results(self) -> PerModel[AttackResult]:
        """The result of each model."""
        return PerModel(self.before, self.after, self.reference)

    def result_rows(self, names: Names) -> tuple[Row, ...]:
        """AUC and mean answer of every model."""
        return (
            row("AUC", self.results, names, lambda result: number(result and result.auc)),
            row("mean presence probability", self.results, names, lambda result: number(result and result.mean)),
        )


@dataclass(frozen=True)
class ShadowQuality:
    """How well an attack does on its own shadow model, and how the shadow was made."""

    auc: float
    seconds: float
    what: str


@dataclass(frozen=True, kw_only=True)
class MembershipSection(AttackSection):
    """The attack on deleted against test elements.

    Args:
        form: What is attacked: ``"edge"``, ``"node"`` or ``"graph"``.
        elements: The attacked elements in words.
        carry_messages: Whether the attacked edges carry messages that test edges do not, so that 0.5 is not to be expected.
        shadow: The attack on its own shadow model.
        mi_ratio: The paper's: mean presence probability of deleted elements before over after; above 1 where less is left.
        mi_ratio_reference: The same for the reference.
    """

    form: str
    elements: str
    carry_messages: bool
    shadow: ShadowQuality
    mi_ratio: float | None = None
    mi_ratio_reference: float | None = None

    def tables(self, names: Names) -> Iterable[Table]:
        yield Table(("attack on deleted elements", *names.values()), self.result_rows(names))
        rows: list[Row] = [("form of the attack", self.form), ("MI ratio, before to after", number(self.mi_ratio))]
        if "reference" in names:
            rows.append((f"MI ratio, before to {names['reference']}", number(self.mi_ratio_reference)))
        rows.append(("AUC on the shadow model itself", number(self.shadow.auc)))
        rows.append(("time for the shadow model", seconds(self.shadow.seconds)))
        yield Table(("shadow attack", "value"), tuple(rows), self.shadow.what)

    def key_rows(self, names: Names) -> Iterable[Row]:
        yield row("Membership attack, AUC", self.results, names, lambda result: number(result and result.auc))
        if self.mi_ratio is not None:
            yield row("MI ratio, before to after", PerModel(None, self.mi_ratio, self.mi_ratio_reference), names)


@dataclass(frozen=True)
class _Question:
    """Deleted against test elements, and whether models are asked on the original graph."""

    deleted: Tensor
    test: Tensor
    on_original: bool
    elements: str


class Membership(Measure):
    """Train the attack on the shadow's answers and ask it about deleted and test elements, model by model."""

    name: ClassVar[str] = "membership"
    title: ClassVar[str] = "Membership attack"
    attack: ClassVar[bool] = True

    def run(self, case: Case) -> MembershipSection:
        question, shadow, subject = _question(case), *trained_shadow(case)
        present, absent = (_features(case, subject, part) for part in (shadow.present, shadow.absent))
        attack = Attack(present, absent, case.seed)
        found: dict[str, Any] = {}
        for name, subject in {**case.subjects, **case.references}.items():
            model = _on_original(case, subject) if question.on_original else subject
            if model is not None:
                parts = (attack.presence(_features(case, model, part)) for part in (question.deleted, question.test))
                found[name] = AttackResult.of(*parts)
        if "after" not in found:
            raise NotMeasuredError(
                f"method '{case.unlearned.method}' keeps no model, and deleted {case.task.noun}s can only be presented again to "
                "a model; use a method that keeps yours"
            )
        carry = case.task.pairwise and question.on_original
        used = EDGE_INPUT if case.task.pairwise else CLASS_INPUT.format(noun=case.task.noun)
        where = ON_SERVED if not question.on_original else f"{ON_ORIGINAL} {CARRY_MESSAGES}" if carry else ON_ORIGINAL
        section = MembershipSection(
            **several(case, found),
            form=case.task.noun,
            elements=question.elements,
            carry_messages=carry,
            counts={"deleted": question.deleted.size(-1), "test": question.test.size(-1)},
            shadow=ShadowQuality(attack.quality, shadow.seconds, f"{shadow.what} {used} {where}"),
            mi_ratio=_ratio(found.get("before"), found["after"]),
            mi_ratio_reference=_ratio(found.get("before"), found.get("reference")),
        )
        return replace(section, sentence=_sentence(section))


def several(case: Case, found: Mapping[str, AttackResult]) -> dict[str, Any]:
    """What an attack found, as fields of its section: of further references the AUC alone."""
    aucs = tuple(result.auc for name, result in found.items() if name in case.references)
    shown = {name: result for name, result in found.items() if name in case.subjects}
    return {**shown, "references": aucs if len(aucs) > 1 else ()}


def _question(case: Case) -> _Question:
    """Which elements are asked about."""
    deletion, task = case.deletion, case.task
    test = task.unseen(case.remaining, "test")
    reason = task.unscored(deletion, case.original)
    if reason or not test.numel():
        raise NotMeasuredError(reason or task.no_unseen("test"))
    on_original = not task.pairwise
    deleted = task.elements(deletion, case.original).cpu()
    title = task.title(deletion)
    if task.pairwise:
        deleted = deleted[:, ~torch.isin(ends_of(deleted), deletion.nodes).any(dim=0)]  # no end is blank as served
        if not deleted.size(1):
            edges = task.learned_once(case.original).cpu()
            deleted = edges[:, torch.isin(ends_of(edges), deletion.nodes).any(dim=0)]
            on_original, title = True, "edges of deleted nodes"
    if not deleted.size(-1):
        raise NotMeasuredError(f"the model was trained on none of the {title}")
    deleted, test = case.sample(deleted, QUESTION_LIMIT, 11), case.sample(test.cpu(), QUESTION_LIMIT, 12)
    return _Question(deleted, test, on_original, title)


def _on_original(case: Case, subject: Subject) -> Subject | None:
    """The same model on the original graph; None where there is no model to put there."""
    if subject.graph is case.original:
        return subject
    if subject.model is None:
        return None
    return Subject.of_model(subject.name, subject.model, case.original, case.task, case.forward)


def _features(case: Case, subject: Subject, elements: Tensor) -> Floats:
    """What the attacker reads off the answers, in double precision and in logarithms, so that certain answers still differ."""
    answers = subject.predict(elements.to(subject.graph.edge_index.device)).detach().double().cpu()
    if case.task.pairwise:
        features = torch.nn.functional.logsigmoid(torch.stack([-answers, answers], dim=1))
    else:
        chances = answers.clamp(min=1e-30)
        true = case.task.classes(case.original, elements).cpu().view(-1, 1)
        # 1 - p as the sum of the other classes keeps the digits that the difference would lose
        rest = chances.scatter(1, true, 0.0).sum(dim=1, keepdim=True).clamp(min=1e-30)
        odds = chances.gather(1, true).log() - rest.log()
        features = torch.cat([chances.sort(dim=1, descending=True).values.log(), odds], dim=1)
    return features.numpy()


def _ratio(before: AttackResult | None, after: AttackResult | None) -> float | None:
    if before is None or after is None or not after.mean > 0:
        return None
    return before.mean / after.mean


def _sentence(section: MembershipSection) -> str:
    after, elements, deleted = section.after, section.elements, section.counts["deleted"]
    parts = [f"The attack tells {elements} from test elements with AUC {after.auc:.3f} after the deletion"]
    parts += [f"{section.before.auc:.3f} before it"] if section.before else []
    parts += [f"{section.reference.auc:.3f} for the retrained model"] if section.reference else []
    text = ", ".join(parts) + " (0.5: it cannot tell)."
    if section.mi_ratio is not None:
        retrained = "" if section.mi_ratio_reference is None else f", retrained {section.mi_ratio_reference:.2f}"
        text += f" MI ratio {section.mi_ratio:.2f}{retrained} (above 1: less is left)."
    if after.same:
        text += (
            f" After the deletion every element gets the same answer ({after.mean:.3f}), so this AUC measures nothing."
        )
    if after.auc < SUPPRESSED:
        text += " An AUC well below 0.5 means that deleted elements are suppressed, and can be recognised by that."
    if deleted < QUESTION_MINIMUM:
        text += f" {deleted} {elements} are an anecdote, not a measurement."
    if section.shadow.auc < WEAK_ATTACK:
        text += f" The attack hardly works on its own shadow (AUC {section.shadow.auc:.3f}), so it proves little."
    return text
