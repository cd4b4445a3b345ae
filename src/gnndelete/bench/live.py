"""How a run is going: a bar on a terminal, one line per cell elsewhere; both say when it is expected to end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from types import TracebackType

from gnndelete.bench.jobs import Done
from gnndelete.bench.words import counted, span
from gnndelete.progress import bar

#: Scores that a line shows where it has them.
_SHOWN = ("test_auroc", "test_accuracy", "deleted_auroc", "heldout_auc", "mi_ratio", "regular_share")


def announce(cells: int, done: int, left: int, models: int, cost: tuple[float, int]) -> None:
    """The first line of a run, before any process has started: what there is to do, and what it took before."""
    seconds, unknown = cost
    known = left > unknown
    took = f"; {'over ' if unknown else ''}{span(seconds)} of work, by cells of the same kind" if known else ""
    line = f"{counted(cells, 'cell')}, {done} done, {counted(models, 'model')} to train{took}"
    print(line, file=sys.stderr, flush=True)


class Live:
    """Follows jobs. ``expected`` are the seconds of each by digest, as far as they are known."""

    def __init__(self, what: str, total: int, workers: int, expected: Mapping[str, float | None] | None = None) -> None:
        self._what, self._total, self._workers = what, total, workers
        self._left = dict(expected or {})
        self._done = self._failed = 0
        self._start = time.perf_counter()
        self._stack = ExitStack()

    def __enter__(self) -> Live:
        self._update = self._stack.enter_context(bar(self._what, max(self._total, 1), show=self._total > 0))
        self._update(0, self._says())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def finished(self, done: Done, lost: Sequence[str] = ()) -> None:
        """A job is done; with a model that could not be trained some cells are ``lost``."""
        self._done += 1 + len(lost)
        for digest in lost:
            self._left.pop(digest, None)
        self._failed += done.failed and not done.unfit
        self._left.pop(done.job.digest, None)
        self._update(self._done, self._says())
        if done.failed and not done.unfit:
            self._line(f"{done.job}: FAILED: {done.row['error']}")
        elif not sys.stderr.isatty():
            self._line(f"{done.job}: {done.row['error']}" if done.unfit else f"{done.job}  {_figures(done)}")

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
