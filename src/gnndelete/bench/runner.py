"""The runner: which cells of experiments are missing, what they would take, and a run through them that can be resumed."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from gnndelete.bench.cells import Cell, cells, digest
from gnndelete.bench.executors import ABSENT, DISK_FULL, Done, Executor, Here, Job, Kind, executor, import_ray, key_of
from gnndelete.bench.experiment import Experiment, load_dataset, without_digest
from gnndelete.bench.material import model_file
from gnndelete.bench.names import counted, span
from gnndelete.bench.results_file import UNFIT, locked, open_store, source
from gnndelete.errors import GraphError, RunError, SettingError, unknown, why
from gnndelete.io.files import require_writable, tidy
from gnndelete.io.progress import Update, bar
from gnndelete.io.store import Store

#: Where results go by default; trained models are next to them.
STORE = Path("bench/results.jsonl")
MODELS = "models"

#: What a cell may need, in the order in which it has to be made.
_STAGES: tuple[Kind, ...] = ("model", "shadow", "cell")

#: Scores that the line of a cell shows if it has them.
_SHOWN_SCORES = ("test_auroc", "test_accuracy", "deleted_auroc", "unseen_auc", "mi_ratio", "regular_share")


@dataclass(frozen=True)
class Choice:
    """Which cells of the experiments are wanted, by label of the method, dataset, model and amount. Empty: all."""

    labels: Sequence[str] = ()
    datasets: Sequence[str] = ()
    models: Sequence[str] = ()
    amounts: Sequence[float] = ()

    def select(self, every: Sequence[Cell]) -> list[Cell]:
        """The chosen cells; a name that no cell has, and a choice that leaves no cell, are refused."""
        traits = {
            "method": (self.labels, [cell.label for cell in every]),
            "dataset": (self.datasets, [without_digest(cell.key["dataset"]) for cell in every]),
            "model": (self.models, [cell.key["model"]["name"] for cell in every]),
            "amount": (self.amounts, [cell.key["forget"]["amount"] for cell in every]),
        }
        found = set(range(len(every)))
        for what, (wanted, present) in traits.items():
            for value in wanted:
                if value not in present:
                    known = [str(name) for name in sorted(set(present))]
                    raise SettingError(unknown(f"no cell of these experiments has the {what}", f"{value}", known))
            found -= {i for i, value in enumerate(present) if wanted and value not in wanted}
        if not found:
            asked = ", ".join(
                f"{what} {' or '.join(map(str, wanted))}" for what, (wanted, _) in traits.items() if wanted
            )
            raise SettingError(f"no cell of these experiments has all of that: {asked}", "ask for less at a time")
        return [every[i] for i in sorted(found)]


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
    """What a run did."""

    cells: int = 0  # that were asked for
    already: int = 0  # those of them that had a row before
    done: int = 0  # in this run
    failed: int = 0  # of all that were asked for
    failed_before: int = 0  # those of an earlier run
    unfit: int = 0  # whose method does not apply
    unfit_before: int = 0
    left: int = 0  # not started because time was up
    models: int = 0  # trained
    seconds: float = 0.0
    store: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)  # which cells failed and why
    skipped: dict[str, str] = field(default_factory=dict)  # why a dataset was left out
    source: str = ""  # the state of the source that ran
    other_sources: dict[str, int] = field(default_factory=dict)  # rows that come from another state of the source

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
            end = None if limit_seconds is None else start + limit_seconds
            _Sweep(rows, folder, device, threads, summary, end).run(_in_turn(missing), jobs, ray)
        summary.seconds = time.perf_counter() - start
    return summary


def _look_back(every: list[Cell], rows: Store, retry_failed: bool, summary: Summary) -> list[Cell]:
    """The cells to run; rows that are there are counted, with the source they come from."""
    missing, sources = [], Counter[str]()
    for cell in every:
        row = rows.get(cell.key)
        if row is None or (retry_failed and "error" in row):
            missing.append(cell)
        else:
            summary.already += 1
            summary.count(cell, row)
            sources[source(row)] += 1
    summary.other_sources = {name: count for name, count in sources.items() if name != summary.source}
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

    def shares(cell: Cell) -> tuple[str, str]:
        return digest({name: cell.key[name] for name in ("dataset", "split", "seed")}), digest(cell.base)

    first: dict[str, int] = {}
    for cell in missing:
        for name in shares(cell):
            first.setdefault(name, len(first))
    return sorted(missing, key=lambda cell: [first[name] for name in shares(cell)])


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
        self._summary, self._end = summary, end
        self._lost: set[str] = set()  # digests of cells whose model could not be trained, or whose dataset is absent

    def run(self, missing: list[Cell], jobs: int, ray: str | None) -> None:
        """Run all cells. Those that measure times come last, alone, and so do their models."""
        summary = self._summary
        summary.left = len(missing)
        untimed, timed = ([cell for cell in missing if cell.timed is flag] for flag in (False, True))
        models = sum(len(self._needed(kind, missing)) for kind in _STAGES[:-1])
        if models:
            self._check_folder()
        workers = executor(min(jobs, max(len(untimed), 1)), ray)
        parts = [f"{summary.already - summary.failed_before - summary.unfit_before} done"]
        parts += [f"{summary.failed_before} failed before"] if summary.failed_before else []
        parts += [f"{summary.unfit_before} to which a method does not apply"] if summary.unfit_before else []
        line = f"{counted(summary.cells, 'cell')}, {', '.join(parts)}, {counted(models, 'model')} to train"
        print(line, file=sys.stderr, flush=True)
        try:
            self._work(untimed, workers)
        finally:
            workers.close()
        self._work(timed, Here())

    def _check_folder(self) -> None:
        """Refuse a folder in which models cannot be stored before any is trained."""
        try:
            require_writable(self._folder)
        except RunError as error:
            reason = why(error.__cause__ or error)
            raise SettingError(
                f"the folder of models '{self._folder}' cannot be written ({reason})", "give another with --models"
            ) from error

    def _work(self, missing: list[Cell], workers: Executor) -> None:
        left = {digest(key_of(kind, cell)) for kind in _STAGES for cell in self._needed(kind, missing)}
        total, failed = len(left), 0
        with bar("cells", max(total, 1), show=bool(missing)) as update:
            for group in self._groups(missing, workers.jobs):
                for kind in _STAGES:
                    for done in workers.run(self._jobs(kind, self._needed(kind, group), workers)):
                        left -= {done.job.digest, *self._finish(done, missing)}
                        failed += done.failed and done.kind not in (UNFIT, ABSENT)
                        _show(done, total - len(left), total, failed, update)

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

    def _finish(self, done: Done, missing: list[Cell]) -> set[str]:
        """Store what came of a job; the digests of cells that are lost with it. A full disk ends the run, and fails no cell."""
        job, lost = done.job, []
        if done.kind == DISK_FULL:
            raise RunError(
                f"{done.row['error']}; finished cells are stored: make room on the disk, and resume with the same command"
            )
        if done.kind == ABSENT:  # no row: the same command runs these cells once the dataset is there
            dataset = job.cell.key["dataset"]
            self._summary.skipped[dataset] = done.row["error"]
            lost = [cell for cell in missing if cell.key["dataset"] == dataset and cell.digest not in self._lost]
            self._summary.left -= len(lost)
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
        found = {cell.digest for cell in lost}
        self._lost |= found
        return found

    def _store(self, cell: Cell, row: dict[str, Any]) -> None:
        self._rows.add(cell.key, row)
        self._summary.count(cell, row)
        self._summary.left -= 1


def _show(done: Done, ended: int, total: int, failed: int, update: Update) -> None:
    """Move the bar; failures, and all jobs where there is no terminal, have a line."""
    row, text = done.row, ""
    if done.failed and done.kind not in (UNFIT, ABSENT):
        text = f": FAILED: {row['error']}"
    elif not sys.stderr.isatty():
        scores = row.get("scores", {})
        numbers = [f"{name} {scores[name]:.3f}" for name in _SHOWN_SCORES if scores.get(name) is not None]
        text = f": {row['error']}" if done.failed else "  " + ", ".join([*numbers, f"{row['seconds']:.3g} s"])
    if text:
        print(f"[{ended}/{total}] {done.job}{text}", file=sys.stderr, flush=True)
    update(ended, f"cells, {failed} failed" if failed else "cells")


# What there is to do.


class Cost:
    """Expected seconds of a cell: the mean of finished ones with the same method, dataset and, if there are any, model."""

    def __init__(self, store: Store) -> None:
        self._cells: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._trainings: dict[str, float] = {}
        for key, row in store.items():
            if "error" in row or row.get("wall_seconds") is None:
                continue
            for kind in _kinds(key):
                self._cells[kind].append(row["wall_seconds"])
            if row.get("train_seconds") is not None:
                self._trainings[_training(key)] = row["train_seconds"]

    def of(self, key: Mapping[str, Any]) -> float | None:
        """Expected seconds of a cell without its base model; None if no cell like it has finished."""
        return next((mean(self._cells[kind]) for kind in _kinds(key) if kind in self._cells), None)

    def total(self, cells: Iterable[Cell]) -> tuple[float, int]:
        """Expected seconds of all cells and their base models, and the number of cells without an expectation."""
        expected = [(cell, self.of(cell.key)) for cell in cells]
        bases = {digest(cell.base): self._trainings.get(_training(cell.key), 0.0) for cell, _ in expected}
        seconds = sum(known for _, known in expected if known is not None)
        return seconds + sum(bases.values()), sum(known is None for _, known in expected)


def _kinds(key: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """What a cell has in common with others that take about as long, the closest first."""
    common = (key["device"], key["train"]["epochs"], key["method"]["name"], tuple(key["measures"]), key["dataset"])
    return [(*common, key["model"]["name"]), common]


def _training(key: Mapping[str, Any]) -> str:
    return digest({name: key[name] for name in ("device", "dataset", "task", "model", "train")})


def listing(experiments: Iterable[Experiment], store: Path, device: str, seeds: int | None) -> list[dict[str, Any]]:
    """One entry per experiment: its cells, how many are done, failed, unfit and missing, and the expected seconds.

    ``not_here`` counts the missing cells whose dataset the experiment declares as one that may be absent.
    """
    rows = open_store(store)
    cost = Cost(rows)
    found = []
    for experiment in experiments:
        every = cells(experiment, torch.device(device).type, seeds)
        stored = [row for cell in every if (row := rows.get(cell.key)) is not None]
        missing = [cell for cell in every if rows.get(cell.key) is None]
        errors = [row.get("kind") for row in stored if "error" in row]
        unfit = errors.count(UNFIT)
        seconds, unknown = cost.total(missing)
        words = "unknown" if unknown == len(missing) else f"> {span(seconds)}" if unknown else span(seconds)
        found.append(
            {
                "name": experiment.name,
                "title": experiment.title,
                "cells": len(every),
                "done": len(stored) - len(errors),
                "failed": len(errors) - unfit,
                "unfit": unfit,
                "missing": len(missing),
                "not_here": sum(cell.key["dataset"] in experiment.missing for cell in missing),
                "expected_seconds": seconds if len(missing) > unknown else None if missing else 0.0,
                "unknown": unknown,
                "cost": words if missing else "-",
                "datasets": experiment.datasets,
                "absent": experiment.missing,
            }
        )
    return found
