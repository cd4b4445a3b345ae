"""One run through cells that are missing: models, and the cells that start from them right after; each is kept once done."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gnndelete.bench.cells import Cell, digest
from gnndelete.bench.cost import Cost
from gnndelete.bench.executors import Executor, Here
from gnndelete.bench.jobs import UNFIT, Done, Job, Kind, failure, kept_under
from gnndelete.bench.kept import place
from gnndelete.bench.live import Live, announce
from gnndelete.errors import RunError
from gnndelete.io.store import Store

#: A piece of work before it has a worker.
Task = tuple[Kind, Cell]

#: Models that a cell may need, the second kind trained from the first.
MODELS: tuple[Kind, ...] = ("model", "shadow")


@dataclass
class Summary:
    """What a run did. ``left`` cells were not started, because time was up; to ``unfit`` ones the method does not apply.

    ``failed`` and ``unfit`` count all such cells among those asked for, ``failed_before`` and ``unfit_before`` those of them
    that an earlier run left in the store. ``other_sources`` says how many rows that were there already come from another
    state of the source.
    """

    cells: int = 0
    already: int = 0
    done: int = 0
    failed: int = 0
    failed_before: int = 0
    unfit: int = 0
    unfit_before: int = 0
    left: int = 0
    models: int = 0
    seconds: float = 0.0
    store: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    source: str = ""
    other_sources: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class Sweep:
    """Does cells with the models they need. Cells follow their models at once: a run that is stopped leaves rows, not models."""

    def __init__(
        self,
        rows: Store,
        folder: Path,
        device: str,
        threads: int | None,
        start: float,
        limit: float | None,
        summary: Summary,
    ) -> None:
        self._rows, self._folder, self._device, self._threads = rows, folder.absolute(), device, threads
        self._end = None if limit is None else start + limit
        self._summary = summary
        self._cost = Cost(rows)
        self._broken: set[str] = set()  # cells whose model could not be trained, or whose dataset is not here

    def run(self, missing: list[Cell], workers: Executor) -> None:
        """All cells; those that measure times come last, alone, and nothing runs beside their models either."""
        missing = _in_turn(missing)
        together, alone = ([cell for cell in missing if cell.timed is flag] for flag in (False, True))
        models = sum(kind != "cell" for kind, _ in self._tasks(missing))
        announce(self._summary, len(missing), models, self._cost.total(missing))
        try:
            self._through(together, workers)
        finally:
            workers.close()
        self._through(alone, Here())
        summary = self._summary
        ended = summary.failed - summary.failed_before + summary.unfit - summary.unfit_before
        absent = sum(cell.key["dataset"] in summary.skipped for cell in missing)
        summary.left = len(missing) - summary.done - ended - absent

    def _through(self, missing: list[Cell], workers: Executor) -> None:
        tasks = self._tasks(missing)
        expected = {digest(kept_under(*task)): self._expected(*task) for task in tasks}
        with Live("cells", len(tasks), workers.jobs, expected) as live:
            for wave in _waves(list(self._groups(missing, workers.jobs))):
                for done in workers.run(self._jobs(wave, workers)):
                    self._finish(done, missing, live)

    def _tasks(self, chosen: Iterable[Cell]) -> list[Task]:
        """What there is to do for some cells: base models and shadow models that are not kept yet, then the cells."""
        cells = list(chosen)
        models: dict[str, Task] = {}
        for kind in MODELS:
            for cell in cells:
                key = kept_under(kind, cell)
                if key and not place(self._folder, key).is_file():
                    models.setdefault(digest(key), (kind, cell))
        measured: list[Task] = [("cell", cell) for cell in cells]
        return [*models.values(), *measured]

    def _groups(self, missing: list[Cell], width: int) -> Iterator[list[Task]]:
        """Cells whose models are there, then those of so many models at a time as there are workers."""
        users: dict[str, list[Cell]] = defaultdict(list)
        ready = []
        for cell in missing:
            if len(self._tasks([cell])) == 1:
                ready.append(cell)
            else:
                users[digest(cell.base)].append(cell)
        yield self._tasks(ready)
        shared = list(users.values())
        for first in range(0, len(shared), width):
            yield self._tasks(cell for cells in shared[first : first + width] for cell in cells)

    def _jobs(self, wave: Iterable[Task], workers: Executor) -> Iterator[Job]:
        """Jobs as they are asked for; none any more once time is up, and none whose model could not be trained."""
        threads = self._threads or max(1, torch.get_num_threads() // workers.jobs)
        for kind, cell in wave:
            if self._end is not None and time.perf_counter() >= self._end:
                return
            if cell.digest not in self._broken:
                yield Job(kind, cell, self._folder, self._device, threads, workers.jobs)

    def _finish(self, done: Done, missing: list[Cell], live: Live) -> None:
        """Keep what came of a job, on disk before anything is said about it. A full disk ends the run, and fails no cell."""
        job, lost = done.job, []
        if done.full:
            raise RunError(
                f"{done.row['error']}; what had finished is kept: see to the room there, and the same command goes on"
            )
        if done.absent:
            lost = self._left_out(done, missing)
        elif job.kind == "cell":
            self._keep(job.cell, done.row)
        elif not done.failed:
            self._summary.models += 1
        else:
            for cell in missing:
                if cell.digest not in self._broken and kept_under(job.kind, cell) == job.key:
                    self._broken.add(cell.digest)
                    self._keep(cell, _blamed(done, cell))
                    lost.append(cell.digest)
        live.finished(done, lost)

    def _left_out(self, done: Done, missing: list[Cell]) -> list[str]:
        """The other cells of a dataset that is not here. None is recorded: the same command does them once it is."""
        dataset = done.job.cell.key["dataset"]
        self._summary.skipped[dataset] = done.row["error"].removeprefix(f"dataset '{dataset}' ")
        lost = {cell.digest for cell in missing if cell.key["dataset"] == dataset} - self._broken
        self._broken |= lost
        return sorted(lost - {done.job.digest})

    def _keep(self, cell: Cell, row: dict[str, Any]) -> None:
        self._rows.add(cell.key, row)
        if row.get("kind") == UNFIT:
            self._summary.unfit += 1
        elif "error" in row:
            self._summary.failed += 1
            self._summary.failures.append(failure(cell, row))
        else:
            self._summary.done += 1

    def _expected(self, kind: Kind, cell: Cell) -> float | None:
        return self._cost.of(cell.key) if kind == "cell" else self._cost.training(cell.key)


def _waves(groups: list[list[Task]]) -> Iterator[list[Task]]:
    """Tasks that can run beside each other: a group's models, its shadow models and its cells, each in a wave of their own.

    One group begins per wave, so that the models of the next are trained while the last cells of one are measured.

    >>> a, b = [("model", 1), ("cell", 1)], [("model", 2), ("cell", 2)]
    >>> list(_waves([a, b]))
    [[('model', 1)], [('cell', 1), ('model', 2)], [('cell', 2)]]
    """
    waiting = deque([[task for task in group if task[0] == kind] for kind in (*MODELS, "cell")] for group in groups)
    active: list[list[list[Task]]] = []
    while waiting or active:
        if waiting:
            active.append([stage for stage in waiting.popleft() if stage])
        active = [stages for stages in active if stages]
        if active:
            yield [task for stages in active for task in stages.pop(0)]


def _blamed(done: Done, cell: Cell) -> dict[str, Any]:
    """The row of a cell whose model could not be trained."""
    what = "base model" if done.job.kind == "model" else "shadow model"
    return {**done.row, "label": cell.label, "error": f"its {what} could not be trained: {done.row['error']}"}


def _in_turn(missing: list[Cell]) -> list[Cell]:
    """Cells that share a graph, and those that share a model, after each other."""
    places: dict[str, int] = {}
    for cell in missing:
        for name in (_graph(cell), digest(cell.base)):
            places.setdefault(name, len(places))
    return sorted(missing, key=lambda cell: (places[_graph(cell)], places[digest(cell.base)]))


def _graph(cell: Cell) -> str:
    return digest({key: cell.key[key] for key in ("dataset", "split", "seed")})
