"""A progress bar on a terminal, and silence elsewhere. Work inside of work has its line in the same display."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
Update = Callable[[int, str], None]
"""Called with how much is done and what is under way."""

# What is on the terminal now: two displays at once would write over each other.
_shown: ContextVar[Progress | None] = ContextVar("shown", default=None)


def track(items: Sequence[T], title: str, show: bool, name: Callable[[T], str] = str) -> Iterator[T]:
    """Go through ``items``; with ``show`` and a terminal, a bar on standard error says which one is under way.

    >>> list(track([1, 2], "counting", show=False))
    [1, 2]
    """
    with bar(title, len(items), show) as update:
        for done, item in enumerate(items):
            update(done, f"{title}: {name(item)}")
            yield item
        update(len(items), title)


@contextmanager
def bar(title: str, total: int, show: bool = True) -> Iterator[Update]:
    """A bar on standard error while the block runs, if that is a terminal; inside another one, a further line of it.

    >>> with bar("counting", total=2, show=False) as update:
    ...     update(1, "one")
    """
    if not show or not sys.stderr.isatty():
        yield lambda done, description: None
        return
    outer = _shown.get()
    if outer is not None:
        line = outer.add_task(title, total=total)
        try:
            yield lambda done, description: outer.update(line, completed=done, description=description)
        finally:
            outer.remove_task(line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task(title, total=total)
        before = _shown.set(shown)
        try:
            yield lambda done, description: shown.update(line, completed=done, description=description)
        finally:
            _shown.reset(before)
