"""Counts, amounts and durations in words."""

from __future__ import annotations

import re


def counted(number: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "cell"), counted(1200, "cell")
    ('1 cell', '1,200 cells')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def measured(amount: int | float, nouns: str) -> str:
    """Return an amount: an integer counts elements, a float is a share of all.

    >>> measured(1, "relations"), measured(1000, "nodes"), measured(0.025, "edges")
    ('1 relation', '1,000 nodes', '2.5% of edges')
    """
    return counted(amount, nouns.removesuffix("s")) if isinstance(amount, int) else f"{100 * amount:g}% of {nouns}"


def full_memory(message: str) -> str:
    """Return an error of full GPU memory without its list of other processes; any other text unchanged.

    >>> full_memory("its model: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 139.80 GiB")
    'its model: CUDA out of memory. Tried to allocate 1.00 GiB; run it with fewer --jobs'
    >>> full_memory("no room")
    'no room'
    """
    found = re.match(r".*out of memory\. Tried to allocate [\d.]+ \w+", message)
    return f"{found[0]}; run it with fewer --jobs" if found else message


def span(seconds: float) -> str:
    """Return a duration.

    >>> span(42.0), span(90.0), span(7200.0)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
