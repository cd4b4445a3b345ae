"""The time of the service, which tests and simulations can set."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

#: Names a file that holds the seconds by which the clock of a process is ahead.
SHIFT_VARIABLE = "GNNDELETE_CLOCK_SHIFT"

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class Clock:
    """Seconds since 1970, ahead of the system's by a shift.

    Args:
        shift: The shift in seconds.

    >>> clock = Clock()
    >>> before = clock.now()
    >>> clock.advance(DAY)
    >>> clock.now() - before >= DAY
    True
    """

    def __init__(self, shift: float = 0.0) -> None:
        self._shift = shift

    def now(self) -> float:
        """The time in seconds since 1970."""
        return time.time() + self._shift

    def advance(self, seconds: float) -> None:
        """Set the clock ahead, or back by a negative number."""
        self._shift += seconds


class FileClock(Clock):
    """A clock whose shift is read from a file, so that several processes follow it.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def now(self) -> float:
        """The time in seconds since 1970."""
        try:
            return time.time() + float(self._path.read_text())
        except (OSError, ValueError):  # it is being written
            return time.time()


def system_clock() -> Clock:
    """The clock of this process."""
    path = os.environ.get(SHIFT_VARIABLE)
    return FileClock(Path(path)) if path else Clock()


def iso(seconds: float | None) -> str | None:
    """A time as people and receipts write it.

    >>> iso(0)
    '1970-01-01T00:00:00.000Z'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
