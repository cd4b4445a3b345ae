"""Runs one command line in a child of multiprocessing's fork server, which has imported everything already."""

from __future__ import annotations

import os

from gnndelete.cli import run
from gnndelete.io.signals import catch_signals


def become(arguments: list[str], out: str, err: str, variables: dict[str, str]) -> None:
    """Run the command line in this process, and end it."""
    os.environ.update(variables)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    catch_signals()
    os._exit(run(arguments))


if "child" in globals():  # set by whoever starts it
    become(**globals()["child"])
