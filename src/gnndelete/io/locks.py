"""Locks that are free in a forked child: the thread that held one in the parent is not there to release it."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from functools import cached_property
from threading import RLock
from typing import Any


class ProcessLocks(defaultdict[int, Any]):
    """A re-entrant lock for each process: ``with locks[os.getpid()]``. Pickles and deep copies have locks of their own.

    >>> locks = ProcessLocks(RLock)
    >>> with locks[os.getpid()], locks[os.getpid()]:
    ...     pass
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (RLock,)


def _free_properties() -> None:
    """Free the locks of cached properties: up to Python 3.11 each holds one while it is computed."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "gnndelete"]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    for value in [value for each in classes for value in vars(each).values() if isinstance(value, cached_property)]:
        value.lock = RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork") and sys.version_info < (3, 12):  # not on Windows
    os.register_at_fork(after_in_child=_free_properties)
