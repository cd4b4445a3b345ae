"""Ways to do jobs: one after the other here, in processes through joblib, or on a Ray cluster. All give the same numbers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import resource_tracker
from typing import Any, Protocol

from gnndelete.bench.jobs import Done, Job, killed, perform
from gnndelete.errors import RunError, SettingError


class Executor(Protocol):
    """Does jobs, several at a time, and hands each back as soon as it is done; takes the next when there is room."""

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
        """All of them; where a process is killed, the jobs that were under way are done one at a time before it goes on.

        The system ends processes when memory runs out. Which of them had asked for too much is seen when each has all of it:
        a job that is killed once more has failed, and the others are not held up by it.
        """
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        source, under_way = iter(jobs), dict[str, Job]()
        while True:
            try:
                yield from self._beside(source, under_way)
                return
            except TerminatedWorkerError:
                said = f"one of {self.jobs} processes was killed, perhaps for want of memory"
                print(f"{said}; what was under way is done again, one at a time", file=sys.stderr, flush=True)
            for job in list(under_way.values()):
                try:
                    yield from self._beside(iter([job]), under_way)
                except TerminatedWorkerError:
                    under_way.pop(job.digest, None)
                    yield killed(job, "its process was killed while nothing ran beside it; it may want more memory")

    def _beside(self, source: Iterator[Job], under_way: dict[str, Job]) -> Iterator[Done]:
        """Jobs as they end, in processes; those that are under way are listed meanwhile."""
        from joblib import Parallel, delayed

        parent = os.getpid()

        def work() -> Iterator[Any]:
            for job in source:
                under_way[job.digest] = job
                yield delayed(_perform_beside)(job, parent)

        parallel = Parallel(
            n_jobs=self.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs", max_nbytes=None
        )
        results: Any = None
        try:
            with _deaf_children():
                results = parallel(work())
            for done in results:
                under_way.pop(done.job.digest, None)
                yield done
        finally:
            if results is not None:  # an interruption ends the processes as well
                with _quiet_pool():
                    results.close()

    def close(self) -> None:
        from joblib.externals.loky import get_reusable_executor

        with _quiet_pool():
            get_reusable_executor(reuse=True).shutdown(wait=True)


@contextmanager
def _quiet_pool() -> Iterator[None]:
    """Threads of the pool may stumble over the end that is brought about in here, and print where; others are heard as ever."""
    before = threading.excepthook

    def heard(args: threading.ExceptHookArgs) -> None:
        if args.thread is None or args.thread.name not in ("ExecutorManagerThread", "QueueFeederThread"):
            before(args)

    threading.excepthook = heard
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes that start in here do not hear Ctrl-C, which a terminal sends to all of them: the parent ends them itself.

    It would meet some while they still import, and each would print where. The parent hears it when this is over.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _perform_beside(job: Job, parent: int) -> Done:
    _end_with_parent(parent)
    return perform(job)


@cache
def _end_with_parent(parent: int) -> None:
    """A process whose parent was killed ends too, at once: it would keep memory of the device, and nobody takes its results.

    The parent says who it is: it may be gone by the time this process has imported what it needs.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Ray:
    """On a Ray cluster: ``local`` starts one on this machine, anything else is the address of a running one."""

    def __init__(self, address: str, jobs: int) -> None:
        try:
            import ray
        except ImportError:
            raise SettingError(
                "--ray needs the package 'ray'; pip install gnndelete[ray], or use --jobs alone"
            ) from None
        self._ray: Any = ray
        self._remote: Callable[[Job], Any] | None = None
        self.jobs = jobs
        # what the workers need to find code and data; on another machine these paths must exist as well
        passed = ("GNNDELETE_DATA", "GNNDELETE_CACHE", "PYTHONPATH", "OMP_NUM_THREADS")
        env = {"env_vars": {name: os.environ[name] for name in passed if name in os.environ}}
        options: dict[str, Any] = {"runtime_env": env, "log_to_driver": False, "logging_level": "ERROR"}
        try:
            if address == "local":
                ray.init(num_cpus=jobs, include_dashboard=False, **options)
            else:
                ray.init(address=address, **options)
        except Exception as error:
            said = str(error).strip().splitlines()
            raise RunError(
                f"no Ray cluster at '{address}' ({said[0] if said else type(error).__name__}); start one, or give --ray local"
            ) from error

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        ray, source = self._ray, iter(jobs)
        waiting: dict[Any, Job] = {}
        tried: set[str] = set()
        try:
            while True:
                while len(waiting) < self.jobs and (job := next(source, None)) is not None:
                    waiting[self._start(job)] = job
                if not waiting:
                    return
                ready, _ = ray.wait(list(waiting), num_returns=1)
                job = waiting.pop(ready[0])
                try:
                    done = ray.get(ready[0])
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                    if job.digest not in tried:  # once more: what ran beside it may have been at fault
                        tried.add(job.digest)
                        waiting[self._start(job)] = job
                        continue
                    done = killed(
                        job, f"its Ray worker was killed twice ({type(error).__name__}); it may want more memory"
                    )
                except ray.exceptions.RayError as error:
                    raise RunError(
                        f"a Ray worker failed at {job} ({type(error).__name__}); what had finished is kept, so start again"
                    ) from error
                yield done
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)

    def _start(self, job: Job) -> Any:
        if self._remote is None:
            gpus = self._ray.cluster_resources().get("GPU", 0) if job.device.startswith("cuda") else 0
            share = min(1.0, gpus / self.jobs) if gpus else 0
            self._remote = self._ray.remote(num_cpus=1, num_gpus=share, max_retries=0)(perform).remote
        return self._remote(job)

    def close(self) -> None:
        self._ray.shutdown()


def executor(jobs: int, ray: str | None) -> Executor:
    """The way to do jobs that the options ask for.

    >>> executor(1, None).jobs
    1
    """
    if jobs < 1:
        raise SettingError(f"'jobs' must be at least 1 (got {jobs})")
    if ray is not None:
        return Ray(ray, jobs)
    return Here() if jobs == 1 else Processes(jobs)
