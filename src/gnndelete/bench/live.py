"""How a run is going: a bar on a terminal, one line per cell elsewhere; both say when it is expected to end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from threading import Event, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING

from gnndelete.bench.jobs import Done
from gnndelete.bench.words import counted, span
from gnndelete.io.progress import SILENCE, bar

if TYPE_CHECKING:
    from gnndelete.bench.sweep import Summary

#: Scores that a line shows where it has them.
_SHOWN = ("test_auroc", "test_accuracy", "deleted_auroc", "unseen_auc", "mi_ratio", "regular_share")


def announce(summary: Summary, left: int, models: int, cost: tuple[float, int]) -> None:
    """The first line of a run, before any process has started: what there is to do, and what it took before."""
    seconds, unknown = cost
    done = summary.already - summary.failed_before - summary.unfit_before
    before = {"failed before": summary.failed_before, "to which a method does not apply": summary.unfit_before}
    there = ", ".join([f"{done} done", *(f"{count} {what}" for what, count in before.items() if count)])
    known = left > unknown
    took = f"; {'over ' if unknown else ''}{span(seconds)} of work, by cells of the same kind" if known else ""
    line = f"{counted(summary.cells, 'cell')}, {there}, {counted(models, 'model')} to train{took}"
    print(line, file=sys.stderr, flush=True)


class Live:
    """Follows jobs. ``expected`` are the seconds of each by digest, as far as they are known."""

    def __init__(self, what: str, total: int, workers: int, expected: Mapping[str, float | None] | None = None) -> None:
        self._what, self._total, self._workers = what, total, workers
        self._left = dict(expected or {})
        self._done = self._failed = 0
        self._start = time.perf_counter()
        self._stack = ExitStack()
        self._over, self._turn = Event(), Lock()

    def __enter__(self) -> Live:
        self._update = self._stack.enter_context(bar(self._what, max(self._total, 1), show=self._total > 0))
        self._update(0, self._says())
        if self._total and not sys.stderr.isatty():  # where it is one, the bar is drawn again and again
            Thread(target=self._beat, daemon=True).start()
            self._stack.callback(self._over.set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _beat(self) -> None:
        """A long cell says nothing of itself: now and then a line shows that the run goes on."""
        while not self._over.wait(SILENCE / 2):
            with self._turn:
                self._update(self._done, self._says())

    def finished(self, done: Done, lost: Sequence[str] = ()) -> None:
        """A job is done; with a model that could not be trained some cells are ``lost``."""
        with self._turn:
            self._finished(done, lost)

    def _finished(self, done: Done, lost: Sequence[str]) -> None:
        self._done += 1 + len(lost)
        for digest in lost:
            self._left.pop(digest, None)
        passed_over = done.unfit or done.absent
        self._failed += done.failed and not passed_over
        self._left.pop(done.job.digest, None)
        if done.failed and not passed_over:
            self._line(f"{done.job}: FAILED: {done.row['error']}")
        elif not sys.stderr.isatty():
            self._line(f"{done.job}: {done.row['error']}" if passed_over else f"{done.job}  {_figures(done)}")
        self._update(self._done, self._says())

    def _line(self, text: str) -> None:
        end = self._end()
        clock = f"  (done by {end:%H:%M:%S})" if end and self._done < self._total else ""
        print(f"[{self._done}/{self._total}] {text}{clock}", file=sys.stderr, flush=True)

    def _says(self) -> str:
        running = min(self._workers, self._total - self._done)
        failed = f", {self._failed} failed" if self._failed else ""
        end = self._end()
        clock = f", done by {end:%H:%M}" if end else ""
        return f"{self._what}: {running} running{failed}{clock}"

    def _end(self) -> datetime | None:
        """By what such cells took before, where that is known of all that are left; else by how it went so far."""
        known = [seconds for seconds in self._left.values() if seconds is not None]
        if self._left and len(known) == len(self._left):
            rest = sum(known) / self._workers
        elif self._done:
            rest = (time.perf_counter() - self._start) / self._done * (self._total - self._done)
        else:
            return None
        return datetime.now().astimezone() + timedelta(seconds=rest)


def _figures(done: Done) -> str:
    scores = done.row.get("scores", {})
    parts = [f"{name} {scores[name]:.3f}" for name in _SHOWN if scores.get(name) is not None]
    return ", ".join([*parts, f"{done.row['seconds']:.3g} s"])
