"""A progress bar on a terminal, or a line from time to time in a log; nested work adds lines to one display."""

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
"""Called with the number of finished items and a description of the current one."""

#: Seconds between lines where standard error is no terminal.
SILENCE = 10.0

# The display on the terminal: two displays at once would overwrite each other.
_shown: ContextVar[Progress | None] = ContextVar("shown", default=None)


def track(items: Sequence[T], title: str, show: bool, name: Callable[[T], str] = str) -> Iterator[T]:
    """Go through ``items``; with ``show``, a bar on standard error names the current one.

    >>> list(track([1, 2], "counting", show=False))
    [1, 2]
    """
    with bar(title, len(items), show) as update:
        for done, item in enumerate(items):
            update(done, f"{title}: {name(item)}")
            yield item
        update(len(items), title)


@contextmanager
def bar(title: str, total: int | None, show: bool = True) -> Iterator[Update]:
    """Show a bar on standard error while the block runs; inside another bar, one more line of its display.

    Where standard error is no terminal, a line from time to time shows in a log that the work goes on. ``total`` is None where
    nobody knows it yet.

    >>> with bar("counting", total=2, show=False) as update:
    ...     update(1, "one")
    """
    if not show:
        yield lambda done, description: None
        return
    if not sys.stderr.isatty():
        last = time.monotonic()

        def log(done: int, description: str) -> None:
            nonlocal last
            if time.monotonic() - last >= SILENCE:
                last = time.monotonic()
                whole = "" if total is None else f" of {total:,}"
                print(f"{description}: {done:,}{whole} done", file=sys.stderr, flush=True)

        yield log
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
