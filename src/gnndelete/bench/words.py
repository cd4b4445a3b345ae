"""Numbers of things and spans of time, as people write them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "cell"), counted(1200, "cell")
    ('1 cell', '1,200 cells')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def measured(amount: int | float, nouns: str) -> str:
    """How much of something: a number of things, or a share of all.

    >>> measured(1, "relations"), measured(1000, "nodes"), measured(0.025, "edges")
    ('1 relation', '1,000 nodes', '2.5% of edges')
    """
    return counted(amount, nouns.removesuffix("s")) if isinstance(amount, int) else f"{100 * amount:g}% of {nouns}"


def span(seconds: float) -> str:
    """A span of time.

    >>> span(42.0), span(90.0), span(7200.0)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
