"""Signals that ask a process to end: raised where it can stop, ignored once what it did cannot be undone."""

from __future__ import annotations

import signal
import threading


class Stopped(BaseException):
    """A signal that ends the process, such as SIGTERM."""

    def __init__(self, number: int) -> None:
        self.number = number


#: Signals that ask the process to end.
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)]


def catch_signals() -> None:
    """Raise `Stopped` where the process is asked to end."""

    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    for each in SIGNALS:
        if each != signal.SIGINT and signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, stop)


def hold_signals() -> None:
    """Ignore Ctrl-C and the like until the process ends: what was done cannot be undone, only reported."""
    if threading.current_thread() is threading.main_thread():
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
