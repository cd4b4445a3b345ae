"""What a verb returns, and how it and every error are printed for people or, with ``--json``, for programs."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, Signals
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from gnndelete.errors import AppliedError, GNNDeleteError
from gnndelete.io.signals import Stopped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@dataclass(frozen=True)
class Report:
    """The result of a verb: plain values for programs, and a function that shows them to people."""

    values: dict[str, Any]
    show: Callable[[Console], None]
    exit_code: int = 0

    def print(self, as_json: bool) -> None:
        if as_json:
            _put(self.values)
        else:
            from rich.console import Console

            self.show(Console(highlight=False))
        sys.stdout.flush()


@dataclass(frozen=True)
class Failure:
    """An error in one sentence; ``trace`` is set for errors that gnndelete does not raise on purpose."""

    kind: str
    message: str
    exit_code: int
    trace: str = ""
    applied: bool = False

    def print(self, as_json: bool) -> None:
        message = _from_here(_CONTROL.sub(" ", self.message))
        message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
        sys.stderr.write(self.trace)
        note(f"[bold red]error:[/] {plain(message)}")
        if as_json:
            error = {"kind": self.kind, "message": message, "exit_code": self.exit_code, "applied": self.applied}
            _put({"error": error})
            sys.stdout.flush()


def _from_here(message: str) -> str:
    """A message with paths as the user sees them: those below the current folder are relative."""
    here = Path.cwd()
    return message if here == here.parent else message.replace(f"'{here}{os.sep}", "'")


#: What a message must not hold, since ids and file names are in it, and how long it may be.
_CONTROL, _LONGEST = re.compile(r"[\x00-\x1f\x7f-\x9f]+"), 4000


#: Packages of the extra [serve].
_OF_SERVE = frozenset(
    {"alembic", "cryptography", "fastapi", "prometheus_client", "psycopg", "rfc8785", "sqlalchemy", "uvicorn"}
)


def failure(error: BaseException) -> Failure:
    """An exception as a failure with its exit code: 2 for a bad request, 1 for a failed run, 130 or 143 if stopped."""
    if (stop := _stop_behind(error)) is not None:
        number = stop.number if isinstance(stop, Stopped) else SIGINT
        said = f"stopped by {Signals(number).name}; earlier results are intact and nothing was half written"
        return Failure("Interrupted", said, 128 + number)
    if isinstance(error, GNNDeleteError):
        return Failure(type(error).__name__, str(error), error.exit_code, applied=isinstance(error, AppliedError))
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in _OF_SERVE:
        said = f"the service needs the package '{error.name}'; run: pip install 'gnndelete[serve]'"
        return Failure("SettingError", said, 2)
    if isinstance(error, OSError):
        where = f" ('{error.filename}')" if error.filename else ""
        return Failure(type(error).__name__, f"{error.strerror or error}{where}; earlier results are intact", 1)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Failure("OutOfMemory", "memory ran out; use a smaller graph or model, or another device", 1)
    trace = "".join(traceback.format_exception(error))
    return Failure(type(error).__name__, f"unexpected {type(error).__name__}: {error}", 1, trace)


def _stop_behind(error: BaseException | None) -> BaseException | None:
    """The signal that an error comes from; an import that is stopped may raise an error of its own."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, Stopped)):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error


def note(text: str) -> None:
    """One line on standard error, in rich markup."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(text)


def prose(console: Console, lines: Iterable[str]) -> None:
    """Print sentences, wrapped on a terminal, one per line elsewhere so that they can be searched."""
    for line in lines:
        words = wrap(line, console.width, break_long_words=False, break_on_hyphens=False)
        console.print("\n".join(words) if console.is_terminal else line, markup=False, soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table with the names of its rows first; numbers stand to the right."""
    from rich.table import Table

    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    made = Table(show_header=any(columns))
    for place, name in enumerate(columns):
        numbers = all(row[place][:1] in "0123456789" for row in cells)
        made.add_column(name, justify="right" if numbers else "left", no_wrap=numbers or not place)
    for row in cells:
        made.add_row(*row)
    return made


def score_title(name: str) -> str:
    """The key of a score as people write it.

    >>> score_title("test_auroc")
    'test AUROC'
    """
    return name.replace("_", " ").replace("auroc", "AUROC").replace("auprc", "AUPRC").replace("ndcg", "NDCG")


def plain(text: str) -> str:
    """Text with rich markup escaped, so that it is shown as it is."""
    from rich.markup import escape

    return escape(text)


def to_json(values: Any) -> str:
    """Strict JSON: numbers that are not finite become null, other objects become text.

    >>> to_json({"a": float("nan"), "b": (1, 2)})
    '{"a": null, "b": [1, 2]}'
    """
    return json.dumps(_finite(values), default=str, allow_nan=False, ensure_ascii=False)


def _put(values: Any) -> None:
    text = to_json(values)
    plain = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    print(json.dumps(json.loads(text)) if plain else text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
