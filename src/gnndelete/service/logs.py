"""Structured logs: one JSON object a line, with codes and numbers and no ids of customers."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

_lock = threading.Lock()


class Log:
    """Writes lines.

    Args:
        stream: Where to; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def __call__(self, event: str, **values: Any) -> None:
        """Write a line about an event; values are codes, numbers and the numbers that the service gives to requests."""
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **values}
        text = json.dumps(line, default=str) + "\n"
        with _lock:
            stream = self._stream or sys.stderr
            stream.write(text)
            stream.flush()


def quiet(event: str, **values: Any) -> None:
    """A log that keeps nothing, for tests."""


def error_code(error: BaseException) -> str:
    """A stable name for an error: its class. Its text may name elements, so it is never stored.

    >>> error_code(MemoryError())
    'memory-error'
    """
    name = type(error).__name__
    return "".join(
        f"-{letter.lower()}" if letter.isupper() and place else letter.lower() for place, letter in enumerate(name)
    )
