"""How a run is going: a bar on a terminal, one line per cell elsewhere; both say when it should end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event, Lock, Thread

from gnndelete.bench.executors import ABSENT, UNFIT, Done
from gnndelete.io.progress import SILENCE, Update, bar

#: Scores that the line of a cell shows if it has them.
_SHOWN_SCORES = ("test_auroc", "test_accuracy", "deleted_auroc", "unseen_auc", "mi_ratio", "regular_share")


class Display:
    """Follows jobs. ``expected`` has the seconds of every job by its digest, None where nothing is known."""

    def __init__(self, workers: int, expected: Mapping[str, float | None], update: Update) -> None:
        self._workers, self._left, self._update = workers, dict(expected), update
        self._total, self._done, self._failed = len(expected), 0, 0
        self._start, self._lock = time.perf_counter(), Lock()

    def finished(self, done: Done, lost: Iterable[str] = ()) -> None:
        """Show that a job is done; ``lost`` are the cells that cannot be done because their model has failed."""
        with self._lock:
            for digest in (done.job.digest, *lost):
                self._left.pop(digest, None)
            self._done = self._total - len(self._left)
            failed = done.failed and done.kind not in (UNFIT, ABSENT)
            self._failed += failed
            if failed:
                self._print_line(f"{done.job}: FAILED: {done.row['error']}")
            elif not sys.stderr.isatty():
                text = f": {done.row['error']}" if done.failed else f"  {_numbers(done)}"
                self._print_line(f"{done.job}{text}")
        self.refresh()

    def refresh(self) -> None:
        """Draw the bar again; where there is no terminal, print a line if there was none for a while."""
        with self._lock:
            running = min(self._workers, self._total - self._done)
            failed = f", {self._failed} failed" if self._failed else ""
            end = self._expected_end()
            self._update(self._done, f"cells: {running} running{failed}{f', done by {end:%H:%M}' if end else ''}")

    def _print_line(self, text: str) -> None:
        end = self._expected_end()
        clock = f"  (done by {end:%H:%M:%S})" if end and self._done < self._total else ""
        print(f"[{self._done}/{self._total}] {text}{clock}", file=sys.stderr, flush=True)

    def _expected_end(self) -> datetime | None:
        """By the times of earlier cells of the same kind, if all that are left have one; else by the pace of this run."""
        known = [seconds for seconds in self._left.values() if seconds is not None]
        if self._left and len(known) == len(self._left):
            rest = sum(known) / self._workers
        elif self._done:
            rest = (time.perf_counter() - self._start) / self._done * (self._total - self._done)
        else:
            return None
        return datetime.now().astimezone() + timedelta(seconds=rest)


@contextmanager
def display(workers: int, expected: Mapping[str, float | None]) -> Iterator[Display]:
    """Show progress on standard error while the block runs. A long cell is silent, so a thread refreshes the display."""
    with bar("cells", max(len(expected), 1), show=bool(expected)) as update:
        shown, over = Display(workers, expected, update), Event()

        def refresh() -> None:
            while not over.wait(SILENCE / 2):
                shown.refresh()

        shown.refresh()
        if expected and not sys.stderr.isatty():
            Thread(target=refresh, daemon=True).start()
        try:
            yield shown
        finally:
            over.set()


def _numbers(done: Done) -> str:
    scores = done.row.get("scores", {})
    parts = [f"{name} {scores[name]:.3f}" for name in _SHOWN_SCORES if scores.get(name) is not None]
    return ", ".join([*parts, f"{done.row['seconds']:.3g} s"])
