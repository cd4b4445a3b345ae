"""A process that is killed, a disk that is full, a cell that takes long: what the run makes of it."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gnndelete.bench import executors, kept
from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.jobs import Done, Job
from gnndelete.bench.live import Live
from gnndelete.bench.runner import run
from gnndelete.errors import RunError, StorageError

from .conftest import Write, lines


def test_jobs_beside_a_killed_one_are_done_and_it_is_recorded(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One job takes its process with it whenever it runs, another only beside others, as where memory is short."""
    jobs = [Job("cell", cell, tmp_path, "cpu", 1, 2) for cell in cells(small, "cpu")]
    always, once, flag = jobs[1].digest, jobs[0].digest, str(tmp_path / "seen")

    def perform(job: Any, parent: int) -> Any:
        if job.digest == always or (job.digest == once and not os.path.exists(flag)):
            with open(flag, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return Done(job, {"label": job.cell.label})

    monkeypatch.setattr(executors, "_perform_beside", perform)
    workers = executors.Processes(2)
    try:
        found = list(workers.run(jobs))
    finally:
        workers.close()
    assert sorted(done.job.digest for done in found) == sorted(job.digest for job in jobs), "each of them once"
    (failed,) = [done for done in found if done.failed]
    assert failed.job.digest == always
    assert failed.row["kind"] == "Killed"
    assert failed.row["torch"]
    assert "was killed while nothing ran beside it" in failed.row["error"]
    assert "one of 2 processes was killed" in capsys.readouterr().err


@pytest.mark.parametrize("error", [StorageError("no room"), OSError(errno.ENOSPC, "no room")])
def test_a_full_disk_ends_a_run_and_fails_no_cell(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    train, experiment = kept.fit, read(str(write()))

    def second_is_full(model: Any, made: Any, schedule: Any, seed: int) -> None:
        if seed == 2:
            raise error
        train(model, made, schedule, seed)

    monkeypatch.setattr(kept, "fit", second_is_full)
    with pytest.raises(RunError, match=r"no room; what had finished is kept: see to the room"):
        run([experiment], store=store)
    assert {line["key"]["seed"] for line in lines(store)} == {1}
    monkeypatch.undo()
    summary = run([experiment], store=store)
    assert (summary.already, summary.done, summary.failed) == (3, 3, 0)


def test_a_model_that_cannot_be_kept_ends_the_run(
    small: Experiment, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> None:
        raise StorageError("could not write to 'models' (No space left on device)")

    monkeypatch.setattr(kept, "write", write)
    with pytest.raises(RunError, match="No space left"):
        run([small], store=store)
    assert not store.exists() or not store.read_text()


def test_what_failed_before_is_not_called_done(write: Write, store: Path, capsys: Any) -> None:
    """OUT of an undirected neighbourhood there is nothing here, and MEGU is for classes of nodes."""
    asked = {"forget": {"amount": 0.05, "where": ["random", "out"]}, "methods": ["unlink", "megu"]}
    run([read(str(write(**asked)))], store=store)
    capsys.readouterr()
    summary = run([read(str(write(**asked, seeds=[1, 2, 3])))], store=store)
    said = capsys.readouterr().err.splitlines()[0]
    assert said.startswith("12 cells, 2 done, 4 failed before, 2 to which a method does not apply, 1 model to train")
    assert (summary.failed, summary.failed_before, summary.unfit, summary.unfit_before, summary.left) == (6, 4, 3, 2, 0)


def test_a_long_cell_is_heard_of(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("gnndelete.io.progress.SILENCE", 0.05)
    monkeypatch.setattr("gnndelete.bench.live.SILENCE", 0.05)
    with Live("cells", 2, 1):
        time.sleep(0.5)
    assert "cells: 1 running: 0 of 2 done" in capsys.readouterr().err
