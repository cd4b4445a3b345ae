"""``gnndelete bench``: the experiments that come with the package, listed, run and reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from gnndelete.cli.bench_report import report
from gnndelete.cli.report import Report

_VERBS: dict[str, Callable[..., Report]] = {"report": report}


def group(**looks: Any) -> typer.Typer:
    """The verbs of ``gnndelete bench``."""
    made = typer.Typer(help="The paper's experiments, and ours: list them, run them, report them.", **looks)
    made.callback()(lambda: None)  # with one verb alone typer would take the group for that verb
    for verb, function in _VERBS.items():
        made.command(verb)(function)
    return made
