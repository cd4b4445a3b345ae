"""The command line: ``gnndelete VERB``. One file per verb; each returns a `Report`, and only this file prints it.

Nothing heavy is imported here: torch and the like come in when a verb runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import typer

from gnndelete import __version__
from gnndelete.cli.adopt import adopt as _adopt
from gnndelete.cli.audit import audit as _audit
from gnndelete.cli.bench import group as _bench
from gnndelete.cli.close import close as _close
from gnndelete.cli.compare import compare as _compare
from gnndelete.cli.delete import delete as _delete
from gnndelete.cli.demo import demo as _demo
from gnndelete.cli.export import export as _export
from gnndelete.cli.inspect import inspect as _inspect
from gnndelete.cli.ls import ls as _ls
from gnndelete.cli.options import UsageError, Verb, Verbs
from gnndelete.cli.output import Failure, Report, failure, note
from gnndelete.cli.serve import serve as _serve
from gnndelete.cli.serve import worker as _worker
from gnndelete.cli.service import group as _service
from gnndelete.cli.status import status as _status
from gnndelete.cli.train import train as _train
from gnndelete.cli.verify import verify as _verify
from gnndelete.io.signals import SIGNALS, Stopped, catch_signals, hold_signals

_LOOKS: dict[str, Any] = {"add_completion": False, "rich_markup_mode": "rich", "pretty_exceptions_enable": False}
_VERBS: dict[str, Callable[..., Report]] = {
    "demo": _demo,
    "inspect": _inspect,
    "train": _train,
    "adopt": _adopt,
    "delete": _delete,
    "audit": _audit,
    "compare": _compare,
    "ls": _ls,
    "status": _status,
    "close": _close,
    "export": _export,
    "verify": _verify,
    "serve": _serve,
    "worker": _worker,
}

app = typer.Typer(
    help="Make trained graph neural networks forget, and show what was achieved.",
    epilog="gnndelete --version shows the version.",
    cls=Verbs,
    **_LOOKS,
)
for _name, _verb in _VERBS.items():
    app.command(_name, cls=Verb)(_verb)
app.add_typer(_service(**_LOOKS), name="service")
app.add_typer(_bench(**_LOOKS), name="bench")


def main() -> None:
    """Entry point of the console script."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character shows another one
            stream.reconfigure(errors="replace")
        elif stream is None:  # the caller has closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    catch_signals()
    code = _run(sys.argv[1:])
    hold_signals()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # `run` has told; when Python ends, it must not fail on it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, 2 for a bad request or option, 1 for a failure, 130 if stopped.

    With ``--json`` exactly one object goes to standard output; whatever else a verb prints goes to standard error.
    """
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        return _run(arguments)
    finally:
        if threading.current_thread() is threading.main_thread():
            for each, handler in handlers.items():
                signal.signal(each, handler)


def _run(arguments: Sequence[str]) -> int:
    arguments = list(arguments)
    if arguments in ([], ["bench"], ["service"], ["service", "key"]):  # without a verb, list the verbs
        arguments.append("--help")
    if arguments == ["--version"]:  # not an option of typer, for which it would load pydantic on every --help
        print(f"gnndelete {__version__}")
        return 0
    as_json = "--json" in arguments and "--help" not in arguments
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        outcome = _outcome(arguments)
    if isinstance(outcome, int):  # --help
        return outcome
    try:
        outcome.print(as_json)
    except (OSError, ValueError, SystemExit) as error:  # standard output is full or closed; rich exits on a broken pipe
        applied = isinstance(outcome, Report) and bool(outcome.values.get("applied"))
        with contextlib.suppress(OSError, ValueError):
            note(f"note: the outcome could not be printed ({error})" + ("; the request was applied" if applied else ""))
        return 0 if applied else outcome.exit_code or 1
    return outcome.exit_code


def _outcome(arguments: list[str]) -> Report | Failure | int:
    try:
        result: Any = _parser(arguments)
    except typer.Abort:
        return failure(KeyboardInterrupt())
    except UsageError as error:
        return Failure("UsageError", str(getattr(error, "format_message", error.__str__)()), 2)
    except (Exception, KeyboardInterrupt, Stopped) as error:
        return failure(error)
    if isinstance(result, Report):
        return result
    return failure(KeyboardInterrupt()) if result == 130 else int(result or 0)


def _parser(arguments: list[str]) -> Any:
    if len(arguments) == 2 and arguments[0] in _VERBS and arguments[1] == "--help":
        # Without the group, for which typer would load pydantic: that takes half of the time.
        verb = typer.Typer(**_LOOKS)
        verb.command(cls=Verb)(_VERBS[arguments[0]])
        return verb(["--help"], standalone_mode=False, prog_name=f"gnndelete {arguments[0]}")
    return app(arguments, standalone_mode=False, prog_name="gnndelete")
