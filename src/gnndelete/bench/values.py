"""Values of an experiment's settings: each is taken as it is, or refused with what to write instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

_T = TypeVar("_T")

#: More epochs than this would run for years.
_MOST = 10**7


def _rule(fits: Callable[[Any], bool], write: str) -> BeforeValidator:
    """Refuse a value that does not fit, and say what to write."""

    def check(value: Any) -> Any:
        if not fits(value):
            raise ValueError(f"write {write} (got {value!r})")
        return value

    return BeforeValidator(check)


def _whole(least: int, most: int) -> BeforeValidator:
    return _rule(
        lambda value: type(value) is int and least <= value <= most, f"a whole number from {least} to {most:,}"
    )


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _share(value: Any) -> bool:
    return type(value) is float and 0 < value < 1


def _amount(value: Any) -> bool:
    return (type(value) is int and value >= 1) or (type(value) is float and 0 < value <= 1)


Flag = Annotated[bool, _rule(lambda value: isinstance(value, bool), "true or false")]
Text = Annotated[
    str, _rule(lambda value: isinstance(value, str), "words, in quotes where they would be read as something else")
]
Count = Annotated[int, _whole(1, _MOST)]
Batch = Annotated[int, _whole(1, 10**9)]
Seed = Annotated[int, _whole(0, 2**63 - 1)]
Rate = Annotated[float, _rule(lambda value: _number(value) and value > 0, "a number above 0, such as 0.001")]
Decay = Annotated[float, _rule(lambda value: _number(value) and value >= 0, "a number from 0 on, such as 0.0005")]
Share = Annotated[float, _rule(_share, "a share above 0 and below 1, such as 0.05")]
Amount = Annotated[
    int | float, _rule(_amount, "a share above 0 and up to 1.0, such as 0.05, or a whole number of at least 1")
]


def _title(value: str) -> str:
    if not value.strip():
        raise ValueError(f"write what the experiment is (got {value!r})")
    return value


def _label(value: str) -> str:
    """A label that ``--only``, which has commas between labels, can name."""
    parts = [" ".join(part.split()) for part in value.split(",")]
    said = ", ".join(part for part in parts if part)
    if not said:
        raise ValueError(f"write what tables are to call the method (got {value!r}), or leave it out")
    if said != value:
        raise ValueError(f"write {said!r}, with single spaces, so that --only can name it (got {value!r})")
    return value


Title = Annotated[Text, AfterValidator(_title)]
Label = Annotated[Text, AfterValidator(_label)]


def _once(values: list[_T]) -> list[_T]:
    """Refuse a value that is there twice; 1 (a number) is not 1.0 (a share)."""
    seen = [(type(value), value) for value in values]
    for i, (_, value) in enumerate(seen):
        if seen[i] in seen[:i]:
            raise PydanticCustomError("twice", "names {value} twice; leave one of them out", {"value": repr(value)})
    return values


#: For a list in which nothing is to be there twice.
ONCE = AfterValidator(_once)


def many(value: Any) -> Any:
    """One value where a list of them may stand."""
    return value if isinstance(value, list) else [value]


def named(value: Any) -> Any:
    """A plain word is short for a name without options."""
    return [{"name": item} if isinstance(item, str) else item for item in many(value)]
