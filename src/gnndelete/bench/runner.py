"""The runner: which cells of experiments are missing, and a run through them that can be stopped and resumed."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gnndelete.bench.cells import Cell, cells, digest
from gnndelete.bench.dataset_names import load_dataset, without_digest
from gnndelete.bench.display import Display, display
from gnndelete.bench.executors import (
    ABSENT,
    DISK_FULL,
    UNFIT,
    Done,
    Executor,
    Here,
    Job,
    Kind,
    executor,
    import_ray,
    key_of,
)
from gnndelete.bench.experiment import Experiment
from gnndelete.bench.listing import Cost
from gnndelete.bench.material import model_file
from gnndelete.bench.provenance import source
from gnndelete.bench.results_file import locked, open_store
from gnndelete.bench.words import counted, span
from gnndelete.errors import GraphError, RunError, SettingError, unknown, why
from gnndelete.io.files import require_writable, tidy
from gnndelete.io.store import Store

#: Where results go by default; trained models are next to them.
STORE = Path("bench/results.jsonl")
MODELS = "models"

#: What a cell may need, in the order in which it has to be made.
_STAGES: tuple[Kind, ...] = ("model", "shadow", "cell")


@dataclass(frozen=True)
class Choice:
    """Which cells of the experiments are wanted, by label of the method, dataset, model and amount. Empty: all."""

    labels: Sequence[str] = ()
    datasets: Sequence[str] = ()
    models: Sequence[str] = ()
    amounts: Sequence[float] = ()

    def select(self, every: Sequence[Cell]) -> list[Cell]:
        """The chosen cells; a name that no cell has, and a choice that leaves no cell, are refused."""
        traits = [_traits(cell) for cell in every]
        chosen = self._by_trait()
        for what, values in chosen.items():
            known = {trait[what] for trait in traits}
            for value in values:
                if value not in known:
                    names = [str(name) for name in sorted(known)]
                    raise SettingError(unknown(f"no cell of these experiments has the {what}", f"{value}", names))
        found = [
            cell
            for cell, trait in zip(every, traits, strict=True)
            if all(not values or trait[what] in values for what, values in chosen.items())
        ]
        if not found:
            asked = ", ".join(f"{what} {' or '.join(map(str, values))}" for what, values in chosen.items() if values)
            raise SettingError(f"no cell of these experiments has all of that: {asked}", "ask for less at a time")
        return found

    def _by_trait(self) -> dict[str, Sequence[Any]]:
        return {"method": self.labels, "dataset": self.datasets, "model": self.models, "amount": self.amounts}


def _traits(cell: Cell) -> dict[str, Any]:
    return {
        "method": cell.label,
        "dataset": without_digest(cell.key["dataset"]),
        "model": cell.key["model"]["name"],
        "amount": cell.key["forget"]["amount"],
    }


def wanted(
    experiments: Iterable[Experiment], device: str, seeds: int | None = None, choice: Choice | None = None
) -> list[Cell]:
    """The chosen cells of several experiments, each once."""
    every = [cell for experiment in experiments for cell in cells(experiment, device, seeds)]
    found: dict[str, Cell] = {}
    for cell in (choice or Choice()).select(every):
        found.setdefault(cell.digest, cell)
    return list(found.values())


@dataclass
class Summary:
    """What a run did.

    Attributes:
        cells: Cells that were asked for.
        already: Those of them that had a row before.
        done: Cells finished in this run.
        failed: Failed cells among all that were asked for; ``failed_before`` are those of an earlier run.
        unfit: Cells whose method does not apply; ``unfit_before`` are those of an earlier run.
        left: Cells that were not started because time was up.
        models: Models that were trained.
        seconds: How long the run took.
        store: The results file.
        failures: Which cells failed and why.
        skipped: Why a dataset was left out, by its name.
        source: The state of the source that ran.
        other_sources: How many of the rows that were there come from another state of the source.
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

    def count(self, cell: Cell, row: dict[str, Any]) -> None:
        """Count the row of a cell."""
        if row.get("kind") == UNFIT:
            self.unfit += 1
        elif "error" in row:
            self.failed += 1
            where = {"where": row["where"]} if row.get("where") else {}
            self.failures.append({"cell": str(cell), "error": row["error"], **where})
        else:
            self.done += 1


def run(
    experiments: Sequence[Experiment],
    *,
    store: Path = STORE,
    device: str = "cpu",
    seeds: int | None = None,
    jobs: int = 1,
    ray: str | None = None,
    choice: Choice | None = None,
    limit_seconds: float | None = None,
    retry_failed: bool = False,
    threads: int | None = None,
    models: Path | None = None,
) -> Summary:
    """Run the missing cells of experiments. A run that was stopped, at any moment, is resumed by the same call.

    Args:
        experiments: What `gnndelete.bench.experiment.find` returns.
        store: The results file.
        device: ``"cpu"`` or ``"cuda"``.
        seeds: Take the first so many seeds of every experiment.
        jobs: Processes or Ray workers at a time. Cells that measure times run alone, at the end.
        ray: The address of a Ray cluster; ``"local"`` starts one.
        choice: Which cells; all by default.
        limit_seconds: Start nothing new after so many seconds.
        retry_failed: Run failed cells again, too.
        threads: Threads of a job; by default the jobs share those of torch.
        models: The folder of trained models, by default next to the store.

    Returns:
        What was done, what failed and what is left.

    Raises:
        SettingError: If an option or a file cannot be used; nothing was run then.
        RunError: If the disk is full or a Ray worker is lost. Finished cells are stored.
    """
    start = time.perf_counter()
    every = wanted(experiments, torch.device(device).type, seeds, choice)
    if ray is not None:
        import_ray()
    folder = (models or store.parent / MODELS).absolute()
    with locked(store), _interruptible():
        rows = open_store(store)
        summary = Summary(cells=len(every), store=str(store), source=source())
        missing = _look_back(every, rows, retry_failed, summary)
        missing = _without_absent(missing, experiments, summary)
        tidy(folder, below=False)
        if missing:
            sweep = _Sweep(
                rows, folder, device, threads, summary, None if limit_seconds is None else start + limit_seconds
            )
            sweep.run(_in_turn(missing), jobs, ray)
        summary.seconds = time.perf_counter() - start
    return summary


def _look_back(every: list[Cell], rows: Store, retry_failed: bool, summary: Summary) -> list[Cell]:
    """The cells to run; rows that are there are counted, with the source they come from."""
    missing = []
    for cell in every:
        row = rows.get(cell.key)
        if row is None or (retry_failed and "error" in row):
            missing.append(cell)
            continue
        summary.already += 1
        summary.count(cell, row)
        if source(row) != summary.source:
            summary.other_sources[source(row)] = summary.other_sources.get(source(row), 0) + 1
    summary.done, summary.failed_before, summary.unfit_before = 0, summary.failed, summary.unfit
    return missing


def _without_absent(missing: list[Cell], experiments: Sequence[Experiment], summary: Summary) -> list[Cell]:
    """Leave out datasets that an experiment declares as ones that may be absent, where they are."""
    reasons = {name: reason for experiment in experiments for name, reason in experiment.missing.items()}
    for dataset in dict.fromkeys(cell.key["dataset"] for cell in missing):
        if dataset in reasons:
            try:
                load_dataset(dataset)
            except GraphError:
                summary.skipped[dataset] = f"dataset '{dataset}' is not here ({reasons[dataset]})"
    return [cell for cell in missing if cell.key["dataset"] not in summary.skipped]


def _in_turn(missing: list[Cell]) -> list[Cell]:
    """Cells that share a graph, and those that share a model, one after the other: graphs and models are cached."""
    first: dict[str, int] = {}
    for cell in missing:
        for name in (_graph(cell), digest(cell.base)):
            first.setdefault(name, len(first))
    return sorted(missing, key=lambda cell: (first[_graph(cell)], first[digest(cell.base)]))


def _graph(cell: Cell) -> str:
    return digest({name: cell.key[name] for name in ("dataset", "split", "seed")})


@contextmanager
def _interruptible() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: finished cells are stored, processes are ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Sweep:
    """Runs cells with the models they need. Cells follow their models at once, so a stopped run leaves rows."""

    def __init__(
        self, rows: Store, folder: Path, device: str, threads: int | None, summary: Summary, end: float | None
    ) -> None:
        self._rows, self._folder, self._device, self._threads = rows, folder, device, threads
        self._summary, self._end, self._cost = summary, end, Cost(rows)
        self._lost: set[str] = set()  # digests of cells whose model could not be trained, or whose dataset is absent

    def run(self, missing: list[Cell], jobs: int, ray: str | None) -> None:
        """Run all cells. Those that measure times come last, alone, and so do their models."""
        untimed, timed = ([cell for cell in missing if cell.timed is flag] for flag in (False, True))
        models = [job for kind in _STAGES[:-1] for job in self._needed(kind, missing)]
        if models:
            self._check_folder()
        workers = executor(min(jobs, max(len(untimed), 1)), ray)
        self._announce(missing, len(models))
        try:
            self._work(untimed, workers)
        finally:
            workers.close()
        self._work(timed, Here())
        summary = self._summary
        ended = summary.done + summary.failed - summary.failed_before + summary.unfit - summary.unfit_before
        absent = sum(cell.key["dataset"] in summary.skipped for cell in missing)
        summary.left = len(missing) - ended - absent

    def _check_folder(self) -> None:
        """Refuse a folder in which models cannot be stored before any is trained."""
        try:
            require_writable(self._folder)
        except RunError as error:
            reason = why(error.__cause__ or error)
            raise SettingError(
                f"the folder of models '{self._folder}' cannot be written ({reason})", "give another with --models"
            ) from error

    def _announce(self, missing: list[Cell], models: int) -> None:
        """The first line of a run: what there is to do, and how long it should take."""
        summary, (seconds, unknown_cells) = self._summary, self._cost.total(missing)
        parts = [f"{summary.already - summary.failed_before - summary.unfit_before} done"]
        parts += [f"{summary.failed_before} failed before"] if summary.failed_before else []
        parts += [f"{summary.unfit_before} to which a method does not apply"] if summary.unfit_before else []
        line = f"{counted(summary.cells, 'cell')}, {', '.join(parts)}, {counted(models, 'model')} to train"
        if unknown_cells < len(missing):
            line += f"; {'over ' if unknown_cells else ''}{span(seconds)} of work, by cells of the same kind"
        print(line, file=sys.stderr, flush=True)

    def _work(self, missing: list[Cell], workers: Executor) -> None:
        expected = {
            digest(key_of(kind, cell)): (self._cost.of if kind == "cell" else self._cost.training)(cell.key)
            for kind in _STAGES
            for cell in self._needed(kind, missing)
        }
        with display(workers.jobs, expected) as shown:
            for group in self._groups(missing, workers.jobs):
                for kind in _STAGES:
                    for done in workers.run(self._jobs(kind, self._needed(kind, group), workers)):
                        self._finish(done, missing, shown)

    def _needed(self, kind: Kind, chosen: Iterable[Cell]) -> list[Cell]:
        """For every model of a kind that has to be trained, one of the cells that need it; cells are all needed."""
        if kind == "cell":
            return list(chosen)
        keys = ((key, cell) for cell in chosen if (key := key_of(kind, cell)))
        return list({digest(key): cell for key, cell in keys if not model_file(self._folder, key).is_file()}.values())

    def _groups(self, missing: list[Cell], width: int) -> Iterator[list[Cell]]:
        """Cells whose models are there, then those of as many base models at a time as there are workers."""
        by_base: dict[str, list[Cell]] = defaultdict(list)
        ready = []
        for cell in missing:
            if any(self._needed(kind, [cell]) for kind in _STAGES[:-1]):
                by_base[digest(cell.base)].append(cell)
            else:
                ready.append(cell)
        yield ready
        groups = list(by_base.values())
        for first in range(0, len(groups), width):
            yield [cell for group in groups[first : first + width] for cell in group]

    def _jobs(self, kind: Kind, chosen: Iterable[Cell], workers: Executor) -> Iterator[Job]:
        """Jobs as workers ask for them; none after the time is up, and none whose model could not be trained."""
        threads = self._threads or max(1, torch.get_num_threads() // workers.jobs)
        for cell in chosen:
            if self._end is not None and time.perf_counter() >= self._end:
                return
            if cell.digest not in self._lost:
                yield Job(kind, cell, self._folder, self._device, threads, workers.jobs)

    def _finish(self, done: Done, missing: list[Cell], shown: Display) -> None:
        """Store what came of a job before it is shown. A full disk ends the run and fails no cell."""
        job, lost = done.job, []
        if done.kind == DISK_FULL:
            raise RunError(
                f"{done.row['error']}; finished cells are stored: make room on the disk, and resume with the same command"
            )
        if done.kind == ABSENT:  # no row: the same command runs these cells once the dataset is there
            dataset = job.cell.key["dataset"]
            self._summary.skipped[dataset] = done.row["error"]
            lost = [cell for cell in missing if cell.key["dataset"] == dataset]
        elif job.kind == "cell":
            self._store(job.cell, done.row)
        elif not done.failed:
            self._summary.models += 1
        else:
            lost = [cell for cell in missing if key_of(job.kind, cell) == job.key and cell.digest not in self._lost]
            what = "base model" if job.kind == "model" else "shadow model"
            error = f"its {what} could not be trained: {done.row['error']}"
            for cell in lost:
                self._store(cell, {**done.row, "label": cell.label, "error": error})
        self._lost |= {cell.digest for cell in lost}
        shown.finished(done, [cell.digest for cell in lost])

    def _store(self, cell: Cell, row: dict[str, Any]) -> None:
        self._rows.add(cell.key, row)
        self._summary.count(cell, row)
