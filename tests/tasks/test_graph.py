"""Graph classification can be named, and says clearly that it is not served yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gnndelete.errors import NotYetError
from gnndelete.tasks import GraphClassification, Task, resolver

CALLS: list[Callable[[Task], object]] = [
    lambda task: task.check(None),
    lambda task: task.loss(None, None, None),  # type: ignore[arg-type]
    lambda task: task.validates(None),
    lambda task: task.validate(None, None, None),  # type: ignore[arg-type]
    lambda task: task.evaluate(None, None, None),  # type: ignore[arg-type]
    lambda task: task.predict(None, None, None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", CALLS)
def test_not_yet(call: Callable[[Task], object]) -> None:
    task = resolver.make("graph")
    assert isinstance(task, GraphClassification)
    with pytest.raises(NotYetError, match="not yet supported"):
        call(task)
