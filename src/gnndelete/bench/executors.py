"""Jobs, and the ways to run them: in this process, in processes through joblib, or on a Ray cluster.

A job is made of plain values, so that any process can do it, and it never raises: an error becomes a row.
"""

from __future__ import annotations

import errno
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import resource_tracker
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal, Protocol

import torch

from gnndelete.bench.cells import Cell, digest, title
from gnndelete.bench.results_file import UNFIT, provenance
from gnndelete.errors import AbsentError, GNNDeleteError, RunError, SettingError, StorageError, UnfitError

Kind = Literal["model", "shadow", "cell"]

#: The kinds of error in rows that are handled in a special way: the disk is full, and the dataset is absent, which are no
#: fault of the cell; the process was killed from outside.
DISK_FULL, ABSENT, KILLED = StorageError.__name__, AbsentError.__name__, "Killed"

#: Packages in which errors surface; the code of a method's author is outside of them.
_PACKAGES = ("gnndelete", "torch", "torch_geometric")


@dataclass(frozen=True)
class Job:
    """A base model or a shadow model to train and store, or a cell to measure."""

    kind: Kind
    cell: Cell  # for a model, one of the cells that need it
    models: Path
    device: str
    threads: int
    jobs: int

    @property
    def key(self) -> dict[str, Any]:
        return key_of(self.kind, self.cell)

    @property
    def digest(self) -> str:
        return digest(self.key)

    def __str__(self) -> str:
        return str(self.cell) if self.kind == "cell" else f"{title(self.key)}: {self.kind}"


def key_of(kind: Kind, cell: Cell) -> dict[str, Any]:
    """The key of a cell, or of the model that it needs; empty if it needs no such model."""
    return cell.key if kind == "cell" else cell.base if kind == "model" else cell.shadow or {}


@dataclass(frozen=True)
class Done:
    """The row of a finished job; a failed one has an error and its kind."""

    job: Job
    row: dict[str, Any]

    @property
    def failed(self) -> bool:
        return "error" in self.row

    @property
    def kind(self) -> str | None:
        """The kind of the error."""
        return self.row.get("kind")


def perform(job: Job) -> Done:
    """Do a job. Whatever it raises is recorded: a cell that fails says nothing about the others."""
    from gnndelete.bench.material import base_model
    from gnndelete.bench.measure import measure, train_shadow_of

    start, before, device = time.perf_counter(), torch.get_num_threads(), torch.device(job.device)
    torch.set_num_threads(job.threads)
    try:
        if job.kind == "model":
            found: dict[str, Any] = {"seconds": base_model(job.cell.base, job.models, device).seconds}
        elif job.kind == "shadow":
            found = {"seconds": train_shadow_of(job.cell, job.models, device)}
        else:
            found = measure(job.cell, job.models, device)
    except Exception as error:
        found = _failure(error)
    finally:
        torch.set_num_threads(before)
    return _done(job, {**found, "wall_seconds": time.perf_counter() - start})


def _done(job: Job, found: dict[str, Any]) -> Done:
    row = {"label": job.cell.label, **found, **provenance(torch.device(job.device), job.jobs, job.threads)}
    return Done(job, finite(row))


def _killed(job: Job, reason: str) -> Done:
    """The row of a job that ended with its process."""
    return _done(job, {"error": f"{reason}; it may need more memory", "kind": KILLED})


def _failure(error: Exception) -> dict[str, Any]:
    """The error in one line and its kind; for an error that was not raised on purpose also where it came from."""
    kind, text = type(error).__name__, (str(error).strip().splitlines() or [""])[0]
    if full := re.match(r".*out of memory\. Tried to allocate [\d.]+ \w+", text):  # a list of processes follows
        text = f"{full[0]}; run it with fewer --jobs"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return {"error": text, "kind": DISK_FULL}
    if isinstance(error, (GNNDeleteError, torch.OutOfMemoryError)):
        return {"error": text or kind, "kind": UNFIT if isinstance(error, UnfitError) else kind}
    return {"error": f"{kind}: {text}" if text else kind, "kind": kind, "where": _where(error)}


def _where(error: Exception) -> list[str]:
    """The innermost three places of an error, and the innermost one of the user's code if that is further out."""
    places = [(_without_root(Path(frame.filename)), frame) for frame in extract_tb(error.__traceback__)]
    users = [index for index, (path, _) in enumerate(places) if path.parts[0] not in _PACKAGES][-1:]
    shown = sorted({*users, *range(max(0, len(places) - 3), len(places))})
    return [f"{path.as_posix()}:{frame.lineno} {frame.name}" for path, frame in (places[index] for index in shown)]


def _without_root(path: Path) -> Path:
    """A file relative to the folder of its package, so that rows hold no paths of somebody's machine."""
    top = path.parent
    while top != top.parent and (top / "__init__.py").is_file():
        top = top.parent
    return path.relative_to(top)


def finite(value: Any) -> Any:
    """Plain JSON values: null for a number that is not finite.

    >>> finite({"a": [float("nan"), 1.0]})
    {'a': [None, 1.0]}
    """
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Executor(Protocol):
    """Runs jobs, several at a time, and returns each as soon as it is done; takes the next one when a worker is free."""

    jobs: int

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]: ...

    def close(self) -> None: ...


class Here:
    """In this process, one job after the other."""

    jobs = 1

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        return map(perform, jobs)

    def close(self) -> None:
        return


class Processes:
    """In processes of this machine."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Run all jobs. If a process is killed, the jobs under way are run again one at a time.

        The system kills processes when memory runs out. A job that is killed again while it has all memory has failed;
        the others are not held up by it.
        """
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        source, under_way = iter(jobs), dict[str, Job]()
        while True:
            try:
                yield from self._parallel(source, under_way)
                return
            except TerminatedWorkerError:
                said = f"one of {self.jobs} processes was killed, perhaps because memory ran out"
                print(f"{said}; the jobs under way are run again, one at a time", file=sys.stderr, flush=True)
            for job in list(under_way.values()):
                try:
                    yield from self._parallel(iter([job]), under_way)
                except TerminatedWorkerError:
                    under_way.pop(job.digest, None)
                    yield _killed(job, "its process was killed while no other job ran")

    def _parallel(self, source: Iterator[Job], under_way: dict[str, Job]) -> Iterator[Done]:
        """Jobs as they end. ``under_way`` holds those that have begun."""
        from joblib import Parallel, delayed

        parent = os.getpid()

        def work() -> Iterator[Any]:
            for job in source:
                under_way[job.digest] = job
                yield delayed(_perform_in_child)(job, parent)

        parallel = Parallel(
            n_jobs=self.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs", max_nbytes=None
        )
        results: Any = None
        try:
            with _children_ignore_interrupts():
                results = parallel(work())
            for done in results:
                under_way.pop(done.job.digest, None)
                yield done
        finally:
            if results is not None:  # after an interruption this ends the processes
                with _quiet_pool():
                    results.close()

    def close(self) -> None:
        from joblib.externals.loky import get_reusable_executor

        with _quiet_pool():
            get_reusable_executor(reuse=True).shutdown(wait=True)


@contextmanager
def _quiet_pool() -> Iterator[None]:
    """Hide tracebacks that threads of the pool print while it is shut down; other threads print as usual."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.thread is None or args.thread.name not in ("ExecutorManagerThread", "QueueFeederThread"):
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def _children_ignore_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to all of them: the parent ends them itself.

    Otherwise each of them would print a traceback while it still imports.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _perform_in_child(job: Job, parent: int) -> Done:
    _end_with_parent(parent)
    return perform(job)


@cache
def _end_with_parent(parent: int) -> None:
    """End this process as soon as its parent is gone: nobody takes its results, and it would hold memory of the device.

    The parent passes its id, because it may be gone by the time this process has imported what it needs.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def import_ray() -> Any:
    """The package ``ray``, or an error that says how to get it."""
    try:
        import ray
    except ImportError:
        raise SettingError("--ray needs the package 'ray'", "pip install gnndelete[ray], or use --jobs alone") from None
    return ray


class Ray:
    """On a Ray cluster: ``local`` starts one on this machine, anything else is the address of a running one.

    Not through joblib, whose backend for Ray returns nothing before all jobs are done.
    """

    def __init__(self, address: str, jobs: int) -> None:
        self._ray, self.jobs = import_ray(), jobs
        self._remote: Callable[[Job], Any] | None = None
        # what the workers need to find code and data; on another machine these paths must exist as well
        passed = ("GNNDELETE_DATA", "GNNDELETE_CACHE", "PYTHONPATH", "OMP_NUM_THREADS")
        env = {"env_vars": {name: os.environ[name] for name in passed if name in os.environ}}
        where = {"num_cpus": jobs, "include_dashboard": False} if address == "local" else {"address": address}
        try:
            self._ray.init(runtime_env=env, log_to_driver=False, logging_level="ERROR", **where)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise RunError(f"no Ray cluster at '{address}' ({reason})", "start one, or give --ray local") from error

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Run all jobs; one whose worker is killed is run again once: another job may have used up the memory."""
        errors, source = self._ray.exceptions, iter(jobs)
        waiting: dict[Any, Job] = {}
        retried: set[str] = set()
        try:
            while True:
                while len(waiting) < self.jobs and (job := next(source, None)) is not None:
                    waiting[self._start(job)] = job
                if not waiting:
                    return
                (ready,), _ = self._ray.wait(list(waiting), num_returns=1)
                job = waiting.pop(ready)
                try:
                    yield self._ray.get(ready)
                except (errors.WorkerCrashedError, errors.OutOfMemoryError):
                    if job.digest in retried:
                        yield _killed(job, "its Ray worker was killed twice")
                    else:
                        retried.add(job.digest)
                        waiting[self._start(job)] = job
                except errors.RayError as error:
                    raise RunError(
                        f"a Ray worker failed at {job} ({type(error).__name__}); finished cells are stored, so start again"
                    ) from error
        finally:
            for reference in waiting:
                self._ray.cancel(reference, force=True)

    def _start(self, job: Job) -> Any:
        if self._remote is None:
            gpus = self._ray.cluster_resources().get("GPU", 0) if job.device.startswith("cuda") else 0
            share = min(1.0, gpus / self.jobs)
            self._remote = self._ray.remote(num_cpus=1, num_gpus=share, max_retries=0)(perform).remote
        return self._remote(job)

    def close(self) -> None:
        self._ray.shutdown()


def executor(jobs: int, ray: str | None) -> Executor:
    """The executor that the options ask for."""
    if ray is not None:
        return Ray(ray, jobs)
    return Here() if jobs == 1 else Processes(jobs)
