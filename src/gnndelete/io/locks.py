"""Locks that are free again in a forked child: the thread that held one in the parent is not there to release it."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from threading import RLock
from weakref import WeakSet

_LOCKS: WeakSet[ForkSafeLock] = WeakSet()


class ForkSafeLock(type(RLock())):  # type: ignore[misc]
    """A re-entrant lock for ``with``. Copies, pickles and forked children have a free one of their own."""

    def __init__(self) -> None:
        _LOCKS.add(self)

    def __reduce__(self) -> tuple[type[ForkSafeLock], tuple[()]]:
        return type(self), ()


def _free_all() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()
    if sys.version_info >= (3, 12):
        return
    # up to Python 3.11 a cached property holds a lock while it is computed
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "gnndelete"]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    for value in [value for each in classes for value in vars(each).values() if isinstance(value, cached_property)]:
        value.lock = RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_free_all)
