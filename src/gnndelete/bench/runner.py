"""The runner: which cells are missing, the models they share, then the cells; every one is on disk as soon as it is done."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from gnndelete.bench.cells import Cell, cells, digest
from gnndelete.bench.cost import Cost
from gnndelete.bench.executors import Executor, Here, executor
from gnndelete.bench.experiment import Experiment
from gnndelete.bench.jobs import UNFIT, Done, Job, Kind
from gnndelete.bench.kept import place
from gnndelete.bench.live import Live, announce
from gnndelete.bench.lock import Lock
from gnndelete.bench.provenance import source
from gnndelete.bench.rows import open_store
from gnndelete.errors import GraphError, SettingError, unknown, why
from gnndelete.store import Store

#: Where results go unless something else is said; trained models are kept beside it.
STORE = Path("bench/results.jsonl")
MODELS = "models"


@dataclass
class Summary:
    """What a run did. ``left`` cells were not started, because time was up; to ``unfit`` ones the method does not apply.

    ``failed`` counts all failures among the cells asked for, ``failed_before`` those of them that an earlier run left in
    the store. ``other_sources`` says how many rows that were there already come from another state of the source.
    """

    cells: int = 0
    already: int = 0
    done: int = 0
    failed: int = 0
    failed_before: int = 0
    unfit: int = 0
    left: int = 0
    models: int = 0
    seconds: float = 0.0
    store: str = ""
    failures: list[dict[str, str]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    source: str = ""
    other_sources: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


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
                if value not in known:
                    names = sorted({str(name) for name in known})
                    raise SettingError(unknown(f"no cell of these experiments has the {what}", str(value), names))

    def takes(self, cell: Cell) -> bool:
        return all(not chosen or value in chosen for chosen, value in zip(self._all(), _traits(cell), strict=True))

    def _all(self) -> tuple[Sequence[Any], ...]:
        return self.labels, self.datasets, self.models, self.amounts


_TRAITS = ("method", "dataset", "model", "amount")


def _traits(cell: Cell) -> tuple[Any, ...]:
    return cell.label, cell.key["dataset"], cell.key["model"]["name"], cell.key["forget"]["amount"]


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

    ``jobs`` processes (or Ray workers) share the machine; cells that measure times run alone, at the end. Trained models
    are kept in ``models``, beside the store unless said otherwise.
    """
    start = time.perf_counter()
    todo = wanted(experiments, torch.device(device).type, seeds, choice)
    with Lock(store), _terminable():
        rows = open_store(store)
        missing = pending(todo, rows, retry_failed)
        summary = Summary(cells=len(todo), already=len(todo) - len(missing), store=str(store), source=source())
        _look_back(todo, missing, rows, summary)
        missing = _without_absent(missing, experiments, summary)
        if missing:
            _check_folder(models or store.parent / MODELS, missing)
            sweep = _Sweep(rows, models or store.parent / MODELS, device, threads, start, limit_seconds, summary)
            sweep.run(_in_turn(missing), executor(jobs, ray))
        summary.seconds = time.perf_counter() - start
    return summary


def _check_folder(folder: Path, missing: Sequence[Cell]) -> None:
    """Refuse a folder in which models cannot be kept, where one has to be trained: every cell of it would fail."""
    keys = (key for cell in missing for key in (cell.base, cell.shadow) if key is not None)
    if all(place(folder, key).is_file() for key in keys):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".writing-"):
            pass
    except OSError as error:
        raise SettingError(
            f"the folder of models '{folder}' cannot be written ({why(error)}); give another with --models"
        ) from error


class _Sweep:
    """One run through cells that are missing."""

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

    def run(self, missing: list[Cell], workers: Executor) -> None:
        count = len(missing)
        announce(self._summary.cells, self._summary.already, self._untrained(missing), self._cost.total(missing))
        try:
            missing = self._models("model", missing, workers)
            missing = self._models("shadow", missing, workers)
            together, alone = ([cell for cell in missing if cell.alone is flag] for flag in (False, True))
            self._cells(together, workers)
        finally:
            workers.close()
        self._cells(alone, Here())
        failed = self._summary.failed - self._summary.failed_before
        self._summary.left = count - self._summary.done - failed - self._summary.unfit

    def _untrained(self, missing: list[Cell]) -> int:
        """How many base and shadow models are not kept yet."""
        keys = [key for cell in missing for key in (cell.base, cell.shadow) if key is not None]
        return sum(not path.is_file() for path in {place(self._folder, key) for key in keys})

    def _models(self, kind: Kind, missing: list[Cell], workers: Executor) -> list[Cell]:
        """Train and keep the models that are not there yet; the cells whose model could be trained."""
        users: dict[str, list[Cell]] = defaultdict(list)
        keys = {}
        for cell in missing:
            key = cell.base if kind == "model" else cell.shadow
            if key is not None and not place(self._folder, key).is_file():
                users[digest(key)].append(cell)
                keys[digest(key)] = cell
        broken: set[str] = set()
        with Live(f"{kind}s", len(keys), workers.jobs) as live:
            for done in workers.run(self._jobs(kind, keys.values(), workers)):
                self._summary.models += not done.failed
                if done.failed:
                    for cell in users[done.job.digest]:
                        broken.add(cell.digest)
                        self._keep(cell, _blamed(done, cell))
                live.finished(done)
        return [cell for cell in missing if cell.digest not in broken]

    def _cells(self, missing: list[Cell], workers: Executor) -> None:
        expected = {cell.digest: self._cost.of(cell.key) for cell in missing}
        with Live("cells", len(missing), workers.jobs, expected) as live:
            for done in workers.run(self._jobs("cell", missing, workers)):
                self._keep(done.job.cell, done.row)  # on disk before anything is said about it
                live.finished(done)

    def _keep(self, cell: Cell, row: dict[str, Any]) -> None:
        self._rows.add(cell.key, row)
        if row.get("kind") == UNFIT:
            self._summary.unfit += 1
        elif "error" in row:
            self._summary.failed += 1
            self._summary.failures.append({"cell": str(cell), "error": row["error"]})
        else:
            self._summary.done += 1

    def _jobs(self, kind: Kind, chosen: Iterable[Cell], workers: Executor) -> Iterator[Job]:
        """Jobs as they are asked for; none any more once time is up."""
        threads = self._threads or max(1, torch.get_num_threads() // workers.jobs)
        for cell in chosen:
            if self._end is not None and time.perf_counter() >= self._end:
                return
            yield Job(kind, cell, self._folder, self._device, threads, workers.jobs)


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
        if "error" in row and row.get("kind") != UNFIT:
            summary.failed += 1
            summary.failed_before += 1
            summary.failures.append({"cell": str(cell), "error": row["error"]})


def _blamed(done: Done, cell: Cell) -> dict[str, Any]:
    """The row of a cell whose model could not be trained."""
    what = "base model" if done.job.kind == "model" else "shadow model"
    return {**done.row, "label": cell.label, "error": f"its {what} could not be trained: {done.row['error']}"}


def _in_turn(missing: list[Cell]) -> list[Cell]:
    """Cells that share a graph, and those that share a model, after each other."""
    places: dict[str, int] = {}
    for cell in missing:
        for name in (digest({key: cell.key[key] for key in ("dataset", "split", "seed")}), digest(cell.base)):
            places.setdefault(name, len(places))

    def turn(cell: Cell) -> tuple[int, int]:
        graph = digest({key: cell.key[key] for key in ("dataset", "split", "seed")})
        return places[graph], places[digest(cell.base)]

    return sorted(missing, key=turn)


def _without_absent(missing: list[Cell], experiments: Sequence[Experiment], summary: Summary) -> list[Cell]:
    """Leave out datasets of which an experiment says that they may not be here, where they are not."""
    from gnndelete.datasets import load

    reasons = {name: reason for experiment in experiments for name, reason in experiment.missing.items()}
    for dataset in dict.fromkeys(cell.key["dataset"] for cell in missing):
        if dataset in reasons:
            try:
                load(dataset)
            except GraphError:
                summary.skipped[dataset] = reasons[dataset]
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
