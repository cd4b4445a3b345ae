"""Whose weights a result has: new ones have nothing in common with the old ones, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import number
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, Section, Table
from gnndelete.errors import ModelError
from gnndelete.metrics.whitebox import CORRELATION, ENTRY_MINIMUM, matrix_correlation
from gnndelete.nn.reset import frozen, untrained

#: A larger correlation than this is none of two fresh trainings, where there is no other fresh training to compare with.
CORRELATION_ALONE = 0.9

#: Rows of a table whose cosine with the old row is larger are the old rows; shorter rows are alike by chance.
ALIKE, ROW_WIDTH = 0.9, 8

#: A larger share of such rows is none of two fresh trainings.
ROW_SHARE = 0.01

WHAT = (
    "Two trainings from fresh weights have nothing in common entry by entry. So a matrix that correlates with the old one, a row "
    "of a table that points where the old row did, or a tensor that is equal to the old one was taken from the old model. "
    "Frozen parameters are inputs, as features are, and are left out."
)


@dataclass(frozen=True)
class TensorFound:
    """One parameter or buffer beside the old one of the same name.

    Args:
        name: Its name in the model.
        equal: Whether it is equal to the old one, entry by entry, and no fresh model has it.
        correlation: Of a matrix with the old one; None for anything else.
        usual: The same for a model that is known to be fresh; None without one.
        rows: The share of its rows that point where the old rows did; None where they are too few or too short.
        usual_rows: The same for a model that is known to be fresh.
    """

    name: str
    equal: bool
    correlation: float | None = None
    usual: float | None = None
    rows: float | None = None
    usual_rows: float | None = None

    @property
    def old(self) -> str:
        """Why this tensor is the old one, in words; empty where nothing says so."""
        if self.equal:
            return f"'{self.name}' is equal to the old one"
        if self.rows is not None and self.rows > (self.usual_rows or 0.0) + ROW_SHARE:
            return f"{self.rows:.0%} of the rows of '{self.name}' point where the old rows did"
        if self.correlation is None:
            return ""
        bound = CORRELATION_ALONE if self.usual is None else max(self.usual, 0.0) + CORRELATION
        usual = "" if self.usual is None else f" ({self.usual:.2f} in a fresh training)"
        return f"'{self.name}' correlates {self.correlation:.2f} with the old one{usual}" * (self.correlation > bound)


@dataclass(frozen=True, kw_only=True)
class WeightsSection(Section):
    """Whether weights that are called new have anything of the old ones.

    Args:
        tensors: Every parameter and buffer that can be compared.
        compared_with: The model that is known to be fresh: ``"reference"``, ``"shadow"``, or empty.
    """

    tensors: tuple[TensorFound, ...]
    compared_with: str = ""

    @property
    def old(self) -> list[TensorFound]:
        """The tensors that were taken from the old model."""
        return [found for found in self.tensors if found.old]

    def tables(self, names: Names) -> Iterable[Table]:
        columns = ("parameter or buffer", "correlation", "of a fresh training", "old rows", "finding")
        yield Table(
            columns,
            tuple(
                (
                    found.name,
                    number(found.correlation),
                    number(found.usual),
                    "–" if found.rows is None else f"{found.rows:.1%}",
                    "old" if found.old else "new",
                )
                for found in self.tensors
            ),
        )


class WeightsMeasure(Measure):
    """Compare every parameter and buffer of a result with new weights with those of the model before."""

    name: ClassVar[str] = "weights"
    title: ClassVar[str] = "Whose weights"

    def run(self, case: Case) -> WeightsSection:
        model = case.after.model
        if case.unlearned.weights != "new":
            raise NotMeasuredError("the result says itself that it has the weights of the model before the deletion")
        if model is None:
            raise NotMeasuredError(f"method '{case.unlearned.method}' keeps no model whose weights could be read")
        source, other = fresh_model(case)
        tensors = tuple(_compare(case.base, model, other, _starts(case)))
        if not tensors:
            raise NotMeasuredError(
                "the result has no parameter of the names and shapes of the model before the deletion"
            )
        section = WeightsSection(tensors=tensors, compared_with=source, what=WHAT)
        old = [found.old for found in section.old]
        sentence = f"None of {len(tensors)} parameters and buffers is an old one."
        if old:
            more = f", and {len(old) - 3} more" if len(old) > 3 else ""
            sentence = f"The result says that its weights are new, and {'; '.join(old[:3])}{more}."
        return WeightsSection(**{**vars(section), "sentence": sentence})


def fresh_model(case: Case) -> tuple[str, nn.Module | None]:
    """A model that is known to be trained from fresh weights: the auditor's shadow, else the reference."""
    if case.shadow is not None and case.shadow.subject is not None:
        return "shadow", case.shadow.subject.model
    reference = case.subjects.get("reference")
    return ("", None) if reference is None or reference.model is None else ("reference", reference.model)


def _starts(case: Case) -> list[nn.Module]:
    """Untrained models from the seeds that the result may have been drawn from.

    If the old model came from one of these, any training from it has much in common with the old weights.
    """
    seed, given = case.unlearned.seed, case.unlearned.settings.get("seed")
    seeds = {given} if isinstance(given, int) else {seed, seed + 1}
    try:
        return [untrained(case.base, case.build, each) for each in sorted(seeds)]
    except ModelError:
        return []


def _compare(
    base: nn.Module, model: nn.Module, other: nn.Module | None, starts: list[nn.Module]
) -> Iterator[TensorFound]:
    old, given = _tensors(base), set(frozen(base))
    fresh = [_tensors(each) for each in ([] if other is None else [other])]
    untouched = [_tensors(each) for each in starts]
    matrices = sum(value.dim() >= 2 and value.numel() >= ENTRY_MINIMUM for value in old.values())
    for name, value in _tensors(model).items():
        before = old.get(name)
        if name in given or before is None or before.shape != value.shape or not value.is_floating_point():
            continue
        others = [each[name] for each in fresh if name in each and each[name].shape == value.shape]
        begun = [each[name] for each in untouched if name in each and each[name].shape == value.shape]
        rows = value.dim() == 2 and value.size(0) > 1 and value.size(1) >= ROW_WIDTH
        # one matrix alone is a convex model, of which any two trainings agree, unless they are vectors of nodes
        comparable = value.dim() >= 2 and value.numel() >= ENTRY_MINIMUM and (matrices > 1 or rows)
        alike = [matrix_correlation(before, each) for each in begun] if comparable else []
        drawn_again = max(alike, default=0.0) > CORRELATION  # the old model came from the same seed
        compared = [*others, *(begun if drawn_again else [])]
        yield TensorFound(
            name,
            equal=bool(before.numel())
            and torch.equal(value, before)
            and not any(torch.equal(each, before) for each in (*others, *begun)),
            correlation=matrix_correlation(before, value) if comparable else None,
            usual=max((matrix_correlation(before, each) for each in compared), default=None) if comparable else None,
            rows=_old_rows(before, value) if rows and comparable else None,
            usual_rows=max((_old_rows(before, each) for each in compared), default=None)
            if rows and comparable
            else None,
        )


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def _old_rows(before: Tensor, after: Tensor) -> float:
    """The share of rows that point where the old ones did, beyond what all rows have in common."""
    first, second = ((rows - rows.mean(dim=0)).double() for rows in (before, after))
    return float((nn.functional.cosine_similarity(first, second) > ALIKE).double().mean())
