"""What a measure is: it examines a case and returns a section of the report, or says why it cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, TypeVar

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import number

T = TypeVar("T")

#: The models of an audit that have a column in its tables, with the words for them; the reference only where there is one.
Names = Mapping[str, str]

Row = tuple[str, ...]


class NotMeasuredError(Exception):
    """Raised by a measure that does not apply. Its text is the reason that the report gives."""


@dataclass(frozen=True)
class PerModel(Generic[T]):
    """One value for each model under audit; None for a model that was not measured."""

    before: T | None = None
    after: T | None = None
    reference: T | None = None

    def get(self, name: str) -> T | None:
        """The value of the model ``"before"``, ``"after"`` or ``"reference"``."""
        value: T | None = getattr(self, name)
        return value


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; the first cell of a row names it."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""


def row(title: str, values: PerModel[Any], names: Names, text: Callable[[Any], str] = number) -> Row:
    """One row of a table: the same value of every model.

    >>> row("AUROC", PerModel(0.965, 0.964), {"before": "before", "after": "after"})
    ('AUROC', '0.965', '0.964')
    """
    return (title, *(text(values.get(name)) for name in names))


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one measure found. A subclass adds its values as fields and says how they are shown.

    Args:
        sentence: The finding in one or two sentences.
        what: How it was measured.
    """

    sentence: str = ""
    what: str = ""

    def tables(self, names: Names) -> Iterable[Table]:
        """The tables of the section.

        Args:
            names: The models that have a column, with their headings.
        """
        return ()

    def key_rows(self, names: Names) -> Iterable[Row]:
        """The rows that this section adds to the key numbers on top of the report.

        Args:
            names: The models that have a column, with their headings.
        """
        return ()

    def to_dict(self) -> dict[str, Any]:
        """The section as plain values, for JSON."""
        return {"available": True, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Unmeasured(Section):
    """In place of a section: why there is none."""

    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"available": False, "reason": self.reason}


class Measure(ABC):
    """One measurement of an audit. Write a subclass and register it by an entry point of the group ``gnndelete.measures``.

    Attributes:
        name: The key of the section in ``Audit.to_dict()``.
        title: The heading of the section in the report; empty for one that only feeds a figure.
        attack: Whether it needs the shadow model, so that ``audit(attacks=False)`` leaves it out.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    attack: ClassVar[bool] = False

    @abstractmethod
    def run(self, case: Case) -> Section:
        """Measure one deletion.

        Args:
            case: The deletion, its models and its graphs.

        Returns:
            What was found.

        Raises:
            NotMeasuredError: If the measure does not apply to this case; the text says why.
        """
