"""Which sizes and rates a model can be made with."""

from __future__ import annotations

from numbers import Real
from operator import index
from typing import Any

from gnndelete.errors import SettingError


def _whole(size: Any) -> bool:
    try:
        index(size)
    except TypeError:
        return False
    return True


def check_sizes(dropout: Any = 0.0, **sizes: Any) -> None:
    """Refuse widths and counts that are no whole numbers from 1, and a dropout that is no share.

    >>> check_sizes(dropout=0.5, hidden=128)
    >>> check_sizes(hidden=0)
    Traceback (most recent call last):
    gnndelete.errors.SettingError: 'hidden' must be a whole number of at least 1 (got 0)
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not _whole(size) or size < 1:
            raise SettingError(f"'{name}' must be a whole number of at least 1 (got {size!r})")
    if isinstance(dropout, bool) or not isinstance(dropout, Real) or not 0 <= float(dropout) < 1:
        raise SettingError(f"'dropout' must be a number from 0 to below 1 (got {dropout!r})")
