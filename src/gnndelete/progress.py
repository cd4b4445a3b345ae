"""A progress bar on a terminal, and silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def track(items: Sequence[T], title: str, show: bool, name: Callable[[T], str] = str) -> Iterator[T]:
    """Go through ``items``; with ``show`` and a terminal, a bar on standard error says which one is under way.

    >>> list(track([1, 2], "counting", show=False))
    [1, 2]
    """
    if not show or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=len(items))
        for item in items:
            bar.update(task, description=f"{title}: {name(item)}")
            yield item
            bar.advance(task)
