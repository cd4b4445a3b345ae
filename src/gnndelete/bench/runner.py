"""The runner: which cells of some experiments are missing, and one run through them that can be stopped and goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from gnndelete.bench.cells import Cell, cells
from gnndelete.bench.dataset_names import load_dataset, without_digest
from gnndelete.bench.executors import executor
from gnndelete.bench.experiment import Experiment
from gnndelete.bench.jobs import UNFIT, failure
from gnndelete.bench.kept import place
from gnndelete.bench.lock import Lock
from gnndelete.bench.provenance import source
from gnndelete.bench.rows import open_store
from gnndelete.bench.sweep import Summary, Sweep
from gnndelete.errors import GraphError, SettingError, unknown, why
from gnndelete.io.files import made, tidy, writing
from gnndelete.io.store import Store

#: Where results go unless something else is said; trained models are kept beside it.
STORE = Path("bench/results.jsonl")
MODELS = "models"


@dataclass(frozen=True)
class Choice:
    """Which cells of some experiments: by the label of their method, their dataset, model and amount. Empty: all."""

    labels: Sequence[str] = ()
    datasets: Sequence[str] = ()
    models: Sequence[str] = ()
    amounts: Sequence[float] = ()

    def check(self, every: Iterable[Cell]) -> None:
        """Refuse a name that no cell has: nothing would be done without a word."""
        seen = [_traits(cell) for cell in every]
        for chosen, known, what in zip(self._all(), zip(*seen, strict=True), _TRAITS, strict=False):
            for value in chosen:
                if value not in known and what == "amount":
                    there = ", ".join(map(str, sorted(set(known))))
                    raise SettingError(f"no cell of these experiments has the amount {value:g}; there are {there}")
                if value not in known:
                    names = sorted({str(name) for name in known})
                    raise SettingError(unknown(f"no cell of these experiments has the {what}", str(value), names))

    def takes(self, cell: Cell) -> bool:
        return all(not chosen or value in chosen for chosen, value in zip(self._all(), _traits(cell), strict=True))

    def __str__(self) -> str:
        parts = zip(_TRAITS, self._all(), strict=True)
        return ", ".join(f"{what} {' or '.join(map(str, chosen))}" for what, chosen in parts if chosen)

    def _all(self) -> tuple[Sequence[Any], ...]:
        return self.labels, self.datasets, self.models, self.amounts


_TRAITS = ("method", "dataset", "model", "amount")


def _traits(cell: Cell) -> tuple[Any, ...]:
    return cell.label, without_digest(cell.key["dataset"]), cell.key["model"]["name"], cell.key["forget"]["amount"]


def wanted(
    experiments: Iterable[Experiment], device: str, seeds: int | None = None, choice: Choice | None = None
) -> list[Cell]:
    """The cells of several experiments, each once."""
    every = [cell for experiment in experiments for cell in cells(experiment, device, seeds)]
    choice = choice or Choice()
    choice.check(every)
    found: dict[str, Cell] = {}
    for cell in every:
        if choice.takes(cell):
            found.setdefault(cell.digest, cell)
    if not found:
        raise SettingError(f"no cell of these experiments has all of that: {choice}; ask for less at a time")
    return list(found.values())


def pending(todo: Iterable[Cell], store: Store, retry_failed: bool = False) -> list[Cell]:
    """The cells without a row; with ``retry_failed`` also those that failed."""
    rows = ((cell, store.get(cell.key)) for cell in todo)
    return [cell for cell, row in rows if row is None or (retry_failed and "error" in row)]


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
    """Do what is missing of some experiments. Stopped at any moment and started again, it goes on where it was.

    ``jobs`` processes (or Ray workers), and no more than there are cells, share the machine; cells that measure times run
    alone, at the end. Trained models are kept in ``models``, beside the store unless said otherwise.
    """
    start = time.perf_counter()
    todo = wanted(experiments, torch.device(device).type, seeds, choice)
    with Lock(store), _terminable():
        rows = open_store(store)
        missing = pending(todo, rows, retry_failed)
        summary = Summary(cells=len(todo), already=len(todo) - len(missing), store=str(store), source=source())
        _look_back(todo, missing, rows, summary)
        missing = _without_absent(missing, experiments, summary)
        folder = models or store.parent / MODELS
        tidy(folder, below=False)
        if missing:
            with _writable(folder, missing):
                sweep = Sweep(rows, folder, device, threads, start, limit_seconds, summary)
                beside = sum(not cell.timed for cell in missing)  # more processes than these would have nothing to do
                sweep.run(missing, executor(min(jobs, max(beside, 1)), ray))
        summary.seconds = time.perf_counter() - start
    return summary


@contextmanager
def _writable(folder: Path, missing: Sequence[Cell]) -> Iterator[None]:
    """Refuse a folder in which models cannot be kept, where one has to be trained: every cell of it would fail."""
    keys = (key for cell in missing for key in (cell.base, cell.shadow) if key is not None)
    with ExitStack() as undo:
        if not all(place(folder, key).is_file() for key in keys):
            try:
                undo.enter_context(made(folder))
                with TemporaryDirectory(dir=folder, prefix=writing()):
                    pass
            except OSError as error:
                raise SettingError(
                    f"the folder of models '{folder}' cannot be written ({why(error)}); give another with --models"
                ) from error
        yield


def _look_back(todo: list[Cell], missing: list[Cell], rows: Store, summary: Summary) -> None:
    """What is known of cells that are not done again: which of them failed, and what their rows come from."""
    again = {cell.digest for cell in missing}
    for cell in todo:
        row = rows.get(cell.key) if cell.digest not in again else None
        if row is None:
            continue
        made_by = source(row)
        if made_by != summary.source:
            summary.other_sources[made_by] = summary.other_sources.get(made_by, 0) + 1
        if row.get("kind") == UNFIT:
            summary.unfit += 1
            summary.unfit_before += 1
        elif "error" in row:
            summary.failed += 1
            summary.failed_before += 1
            summary.failures.append(failure(cell, row))


def _without_absent(missing: list[Cell], experiments: Sequence[Experiment], summary: Summary) -> list[Cell]:
    """Leave out datasets of which an experiment says that they may not be here, where they are not."""
    reasons = {name: reason for experiment in experiments for name, reason in experiment.missing.items()}
    for dataset in dict.fromkeys(cell.key["dataset"] for cell in missing):
        if dataset in reasons:
            try:
                load_dataset(dataset)
            except GraphError:
                summary.skipped[dataset] = f"is not here ({reasons[dataset]})"
    return [cell for cell in missing if cell.key["dataset"] not in summary.skipped]


@contextmanager
def _terminable() -> Iterator[None]:
    """A request to end is met like Ctrl-C: what had finished is kept, processes are ended."""
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
