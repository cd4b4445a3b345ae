"""The reference: does it stand for training without the deleted elements?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, Section, Table
from gnndelete.auditing.measures.forgetting import UnseenAUC, adjusted_tests, why_untestable
from gnndelete.auditing.queries import ask, with_base
from gnndelete.metrics.whitebox import weight_correlation

WHAT = (
    "Two trainings from fresh weights have nothing in common entry by entry, so a correlation with the weights from before the "
    "deletion shows a reference that was continued from them. One that never saw the deleted elements knows no more of them than "
    "of unseen ones, and less than the old weights do."
)


@dataclass(frozen=True, kw_only=True)
class ReferenceSection(Section):
    """What speaks for and against the reference.

    Args:
        correlation: Of its weights with those from before the deletion; None where there are too few to compare. Of several
            references, here and below, the one that stands out most.
        own: The same of the result, where it says that its weights are new.
        usual: The same for the shadow model, which is fresh; None without one.
        unseen: Its own unseen AUC, adjusted for surroundings where that applies.
        gap: The unseen AUC of the base model on the same graph minus its own, and ``gap_error`` its 95% half-width.
    """

    correlation: float | None = None
    own: float | None = None
    usual: float | None = None
    unseen: UnseenAUC | None = None
    gap: float | None = None
    gap_error: float | None = None

    def tables(self, names: Names) -> Iterable[Table]:
        rows = [("correlation of its weights with those before the deletion", number(self.correlation))]
        if self.own is not None:
            rows.append(("the same for the result, which says that its weights are new", number(self.own)))
        rows.append(("the same for the shadow model", number(self.usual)))
        if self.unseen is not None:
            rows.append(("its own unseen AUC", number(self.unseen.auc)))
            rows.append(("that of the old weights above it", number(self.gap)))
        yield Table(("the reference", "value"), tuple(rows))


class Reference(Measure):
    """Weights and memory of the reference."""

    name: ClassVar[str] = "examined"
    title: ClassVar[str] = "The reference"

    def run(self, case: Case) -> ReferenceSection:
        if not case.references and case.unlearned.weights != "new":
            raise NotMeasuredError("there is no reference to examine")
        correlation = _highest(case, case.references.values())
        own = _highest(case, [case.after]) if case.unlearned.weights == "new" else None
        shadow = case.shadow.subject if case.shadow is not None else None
        usual = None if shadow is None else _highest(case, [shadow])
        said = [("the reference", correlation)] if case.references else []
        said += [("the result, which says that they are new,", own)] if own is not None else []
        words = [f"of {whose} {'none could be compared' if value is None else f'{value:.2f}'}" for whose, value in said]
        section = ReferenceSection(
            correlation=correlation,
            own=own,
            usual=usual,
            what=WHAT,
            sentence=f"Correlation of weights with those from before the deletion: {'; '.join(words)}."
            if words
            else "",
        )
        if not case.references or why_untestable(case):
            return section
        subjects = {**case.references, "unlink": with_base(case, case.remaining)}
        if case.task.blank(case.deletion):  # nothing is left of the deleted elements as served
            asked = {name: ask(case, "old_id", subject).subject for name, subject in subjects.items()}
            subjects = {name: subject for name, subject in asked.items() if subject is not None}
        tests = adjusted_tests(case, subjects)
        unlink = tests.pop("unlink", None)
        if unlink is None or not tests:
            return section
        worst = max(tests.values(), key=lambda test: test.auc)
        gap, error = unlink.against(worst)
        found = {"unseen": UnseenAUC.of(worst, case.seed), "gap": gap, "gap_error": 1.96 * error}
        return ReferenceSection(**{**vars(section), **found})


def _highest(case: Case, subjects: Iterable[Subject]) -> float | None:
    """The highest correlation of weights with those of the base model."""
    models = [subject.model for subject in subjects if subject.model is not None]
    found = [value for model in models if (value := weight_correlation(case.base, model)) is not None]
    return max(found, default=None)
