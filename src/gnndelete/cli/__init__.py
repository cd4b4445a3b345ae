"""The command line: ``gnndelete VERB``. One file per verb; each returns a `Report`, and only this file prints it.

Nothing heavy is imported here: torch and the like come in when a verb runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gnndelete.cli import delete, demo, inspect, ls, train
from gnndelete.cli.report import Failure, Report, failure
from gnndelete.version import __version__

app = typer.Typer(
    name="gnndelete",
    help="Make trained graph neural networks forget edges and nodes, and show what was achieved.",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("inspect")(inspect.inspect)
app.command("train")(train.train)
app.command("delete")(delete.delete)
app.command("ls")(ls.ls)

# The parser's own error; its home differs between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gnndelete {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Make trained graph neural networks forget edges and nodes, and show what was achieved."""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, 2 for a bad request or option, 1 for a failure, 130 if stopped.

    With ``--json`` exactly one object goes to standard output; whatever else a verb prints goes to standard error.
    """
    arguments = list(arguments) or ["--help"]
    as_json = "--json" in arguments and "--help" not in arguments
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        outcome = _outcome(arguments)
    if isinstance(outcome, int):  # --help, --version
        return outcome
    outcome.print(as_json)
    return outcome.exit_code


def _outcome(arguments: list[str]) -> Report | Failure | int:
    try:
        result: Any = app(arguments, standalone_mode=False, prog_name="gnndelete")
    except (KeyboardInterrupt, typer.Abort):
        return failure(KeyboardInterrupt())
    except _UsageError as error:
        return Failure("UsageError", str(getattr(error, "format_message", error.__str__)()), 2)
    except Exception as error:
        return failure(error)
    if isinstance(result, Report):
        return result
    return failure(KeyboardInterrupt()) if result == 130 else int(result or 0)
