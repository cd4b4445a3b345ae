"""Structured logs: one JSON object a line, with codes and numbers and no ids of customers.

Every line has ``at``, ``level`` and ``event``. A line of the level ``error`` has a ``code``, the class of the error, and a
``place``, the line of our code that it came from: enough to look it up, and nothing that its text may name.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

_lock = threading.Lock()

_PACKAGE = Path(__file__).parents[1]


class Log:
    """Writes lines.

    Args:
        stream: Where to; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def __call__(self, event: str, **values: Any) -> None:
        """Write a line about an event; values are codes, numbers and the numbers that the service gives to requests."""
        level = "error" if "code" in values else "info"
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "event": event, **values}
        text = json.dumps(line, default=str) + "\n"
        with _lock:
            stream = self._stream or sys.stderr
            stream.write(text)
            stream.flush()


def quiet(event: str, **values: Any) -> None:
    """A log that keeps nothing, for tests."""


def error(problem: BaseException) -> dict[str, str]:
    """What a log says about an error.

    >>> error(MemoryError())["code"]
    'memory-error'
    """
    return {"code": error_code(problem), "place": _place(problem)}


def _place(problem: BaseException) -> str:
    """The innermost line of this package in a traceback; of other packages where there is none."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""


def error_code(error: BaseException) -> str:
    """A stable name for an error: its class. Its text may name elements, so it is never stored.

    >>> error_code(MemoryError()), error_code(OSError())
    ('memory-error', 'os-error')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", type(error).__name__).lower()
