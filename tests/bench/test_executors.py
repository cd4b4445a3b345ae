"""Processes and Ray: killed workers, sweeps that are killed and started again, the same numbers everywhere."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gnndelete.bench import executors
from gnndelete.bench.cells import cells
from gnndelete.bench.executors import Done, Job, _quiet_pool
from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.runner import run
from gnndelete.io.store import Store

from .conftest import Write, environment, lines, numbers


def test_jobs_beside_a_killed_one_are_done_and_it_is_recorded(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One job takes its process with it whenever it runs, another only beside others, as where memory is short."""
    jobs = [Job("cell", cell, tmp_path, "cpu", 1, 2) for cell in cells(small, "cpu")[:3]]
    always, once, flag = jobs[1].digest, jobs[0].digest, str(tmp_path / "seen")

    def perform(job: Any, parent: int) -> Any:
        if job.digest == always or (job.digest == once and not os.path.exists(flag)):
            with open(flag, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return Done(job, {"label": job.cell.label})

    monkeypatch.setattr(executors, "_perform_in_child", perform)
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
    assert "was killed while no other job ran" in failed.row["error"]
    assert "one of 2 processes was killed" in capsys.readouterr().err


SWEEP = ("-m", "gnndelete", "bench", "run")


def _start(file: Path, store: Path, jobs: int) -> subprocess.Popen[bytes]:
    options = ["--store", str(store), "--device", "cpu", "--jobs", str(jobs)]
    return subprocess.Popen(
        [sys.executable, *SWEEP, str(file), *options],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _rows(store: Path) -> int:
    return store.read_bytes().count(b"\n") if store.exists() else 0


def _wait_for_rows(process: subprocess.Popen[bytes], store: Path, count: int) -> None:
    end = time.monotonic() + 300
    while process.poll() is None and _rows(store) < count:
        assert time.monotonic() < end, "no cell was finished in five minutes"
        time.sleep(0.01)


def _wait_for_the_end(group: int) -> None:
    end = time.monotonic() + 60
    while _alive(group):
        assert time.monotonic() < end, "processes stayed behind"
        time.sleep(0.1)


@pytest.mark.slow
def test_killed_before_its_first_cell_it_leaves_no_process(write: Write, tmp_path: Path) -> None:
    store = tmp_path / "out/results.jsonl"
    process = _start(write(train={"epochs": 400, "lr": 0.05}), store, jobs=2)
    end = time.monotonic() + 300
    while not (store.parent / "results.jsonl.lock").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.5)  # the processes are there, and still import
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _wait_for_the_end(process.pid)


@pytest.mark.slow
def test_killed_three_times_at_random(write: Write, tmp_path: Path) -> None:
    file, store = write(train={"epochs": 150, "lr": 0.05}), tmp_path / "out/results.jsonl"
    chance = random.Random()
    killed = 0
    for attempt in range(3):
        before = store.read_bytes() if store.exists() else b""
        process = _start(file, store, jobs=1 + attempt % 2)
        _wait_for_rows(process, store, _rows(store) + chance.randint(0, 1))
        time.sleep(chance.random() * 0.3)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)  # the parent alone: its processes must not write any more
            killed += 1
        process.wait()
        assert (store.read_bytes() if store.exists() else b"").startswith(before)
    assert killed >= 2
    experiment = read(str(file))
    kept = len(Store(store))
    summary = run([experiment], store=store)
    assert (summary.already, summary.done, summary.failed) == (kept, 6 - kept, 0)
    found = [json.dumps(line["key"], sort_keys=True) for line in lines(store)]
    assert len(found) == len(set(found)) == 6  # none twice
    assert set(found) == {json.dumps(cell.key, sort_keys=True) for cell in cells(experiment)}  # none lost
    assert run([experiment], store=store).done == 0
    fresh = tmp_path / "fresh/results.jsonl"
    run([experiment], store=fresh)
    assert numbers(fresh) == numbers(store)


@pytest.mark.slow
def test_asked_to_end_it_keeps_what_is_done(write: Write, tmp_path: Path) -> None:
    file, store = write(train={"epochs": 200, "lr": 0.05}), tmp_path / "out/results.jsonl"
    process = _start(file, store, jobs=2)
    _wait_for_rows(process, store, 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    kept = len(lines(store))
    assert 0 < kept < 6
    _wait_for_the_end(process.pid)  # its processes end as well
    assert run([read(str(file))], store=store).already == kept


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_ctrl_c_while_processes_start_is_one_message(write: Write, tmp_path: Path, seconds: float) -> None:
    store = tmp_path / "out/results.jsonl"
    options = ["--store", str(store), "--device", "cpu", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, *SWEEP, str(write(train={"epochs": 400, "lr": 0.05})), *options],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job would ignore it
    )
    assert process.stderr is not None
    said = process.stderr.readline()  # what there is to do
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said += process.stderr.read()
    assert process.wait(timeout=60) == 130, said
    assert "Traceback" not in said
    assert said.count("topped") == 1
    _wait_for_the_end(process.pid)


@pytest.mark.slow
def test_processes_and_a_ray_cluster_give_the_same_numbers(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = write(measures=["scores", "unseen"])
    stores = {name: tmp_path / name / "results.jsonl" for name in ("processes", "ray")}
    for name, store in stores.items():
        options = ["--store", str(store), "--device", "cpu", "--jobs", "2", "--json"]
        options += ["--ray", "local"] if name == "ray" else []
        done = subprocess.run(
            [sys.executable, *SWEEP, str(file), *options],
            env=environment() | {"RAY_TMPDIR": "/tmp", "RAY_USAGE_STATS_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        values: dict[str, Any] = json.loads(done.stdout)
        assert (values["done"], values["failed"], values["models"]) == (6, 0, 2)
    assert numbers(stores["processes"]) == numbers(stores["ray"])


def test_only_threads_of_the_pool_are_quiet_while_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: heard.append(args.thread.name))

    def stumble() -> None:
        raise OSError("handle is closed")

    def start(name: str) -> None:
        thread = threading.Thread(target=stumble, name=name)
        thread.start()
        thread.join()

    with _quiet_pool():
        start("ExecutorManagerThread")
        start("mine")
    start("QueueFeederThread")
    assert heard == ["mine", "QueueFeederThread"]
