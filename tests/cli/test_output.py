"""Failures and their exit codes."""

from __future__ import annotations

import signal

import pytest

from gnndelete.cli.output import failure
from gnndelete.io.signals import Stopped


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (Stopped(signal.SIGTERM), 143)])
def test_an_error_that_a_signal_caused_counts_as_the_signal(stop: BaseException, code: int) -> None:
    """An import that Ctrl-C stops may raise an ImportError."""
    error = ImportError("partly initialised")
    error.__context__ = stop
    assert failure(error).exit_code == failure(stop).exit_code == code
    assert failure(ImportError("no module")).exit_code == 1
