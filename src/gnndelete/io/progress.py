"""A progress bar on a terminal, and now and then a line elsewhere. Work inside of work has its line in the same display."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
Update = Callable[[int, str], None]
"""Called with how much is done and what is under way."""

#: Seconds without a word where standard error is no terminal.
SILENCE = 10.0

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
    """A bar on standard error while the block runs, inside another one a further line of it.

    Where that is no terminal, a line now and then shows in a log that long work goes on.

    >>> with bar("counting", total=2, show=False) as update:
    ...     update(1, "one")
    """
    if not show:
        yield lambda done, description: None
        return
    if not sys.stderr.isatty():
        yield _lines(total)
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


def _lines(total: int) -> Update:
    last = time.monotonic()

    def update(done: int, description: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SILENCE:
            last = time.monotonic()
            print(f"{description}: {done:,} of {total:,} done", file=sys.stderr, flush=True)

    return update
