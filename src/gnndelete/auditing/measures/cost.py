"""What the deletion cost, and what retraining cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import number, ratio, seconds
from gnndelete.auditing.measures.base import Measure, Names, PerModel, Row, Section, Table, row
from gnndelete.result import Unlearned


@dataclass(frozen=True)
class Spent:
    """Seconds and parameters changed of one deletion."""

    seconds: float
    parameters: int = 0

    @classmethod
    def of(cls, unlearned: Unlearned) -> Spent:
        return cls(unlearned.seconds, unlearned.parameters)


#: What is shown of `Spent`: the field, its title and its format.
_SHOWN: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("seconds", "time", seconds),
    ("parameters", "parameters changed", number),
)


@dataclass(frozen=True, kw_only=True)
class CostSection(Section):
    """The cost of the deletion and of the reference; ``ratio`` is the reference's time over the deletion's."""

    deletion: Spent
    reference: Spent | None = None
    ratio: float | None = None

    def tables(self, names: Names) -> Iterable[Table]:
        sides = [self.deletion, self.reference] if "reference" in names else [self.deletion]
        rows = tuple((title, *(text(getattr(side, key, None)) for side in sides)) for key, title, text in _SHOWN)
        caption = ""
        if self.ratio is not None and "reference" in names:
            caption = f"{names['reference']} took {ratio(self.ratio)} the time of the deletion."
        columns = ("measure", "deletion", *([names["reference"]] if "reference" in names else []))
        yield Table(columns, rows, caption)

    def key_rows(self, names: Names) -> Iterable[Row]:
        spent = PerModel(None, self.deletion, self.reference)
        yield row("Time", spent, names, lambda side: seconds(side and side.seconds))


class Cost(Measure):
    """Seconds and parameters."""

    name: ClassVar[str] = "cost"
    title: ClassVar[str] = "Cost"

    def run(self, case: Case) -> CostSection:
        spent = Spent.of(case.unlearned)
        other = None if case.reference is None or case.reference.seconds <= 0 else Spent.of(case.reference)
        times = None if other is None or not spent.seconds else other.seconds / spent.seconds
        sentence = f"The deletion took {spent.seconds:.3g} s, calibration included."
        if not spent.parameters:
            sentence = f"The deletion took {spent.seconds:.3g} s: it cut the graph and changed no weight."
        if other is not None and times is not None:
            sentence += f" Retraining took {other.seconds:.3g} s on the same kind of device: {times:.0f} times as long."
        return CostSection(deletion=spent, reference=other, ratio=times, sentence=sentence)
