"""The results file: one JSON line per finished cell with where it comes from, checked when it is read; one writer at a time."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from gnndelete import __version__
from gnndelete.bench.cells import Cell
from gnndelete.errors import SettingError, why
from gnndelete.io.files import ensure_folder
from gnndelete.io.store import Store

try:
    import fcntl
except ImportError:  # Windows: nothing guards against a second writer there
    fcntl = None  # type: ignore[assignment]

#: The kinds of error of a row that is no result, and of one whose method does not apply.
BROKEN, UNFIT = "BrokenRow", "Unfit"


# What a line has to hold.

#: The parts that every key has.
_KEY = {
    **dict.fromkeys(("device", "dataset", "task"), str),
    **dict.fromkeys(("model", "train", "forget", "method"), dict),
    **dict.fromkeys(("format", "seed"), int),
    "measures": list,
}

_Numbers = dict[str, float | None]


class _Row(BaseModel):
    """The numbers of a finished cell; null stands for what could not be measured."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    scores: _Numbers
    before: _Numbers | None = None
    seconds_of: _Numbers | None = None
    steps: list[_Numbers] | None = None
    seconds: float | None = None
    train_seconds: float | None = None
    wall_seconds: float | None = None
    parameters: float | None = None
    peak_mb: float | None = None
    lam: float | None = None
    hardware: dict[str, Any] | None = None
    notes: list[dict[str, Any]] | None = None


def open_store(path: str | PathLike[str]) -> Store:
    """The rows of a file. A row with something else where a number belongs counts as failed; its error names the line.

    A line whose key is that of no cell is refused: no experiment would ever find it.
    """

    def read(key: Any, row: dict[str, Any], line: int) -> dict[str, Any]:
        lacks = [name for name, kind in _KEY.items() if not (isinstance(key, dict) and isinstance(key.get(name), kind))]
        if lacks:
            raise SettingError(
                f"line {line} of the store '{path}' is no result: its key has no '{lacks[0]}'",
                f"remove or repair line {line}, or give another file",
            )
        return check_row(row, line)

    return Store(path, read)


def check_row(row: dict[str, Any], line: int) -> dict[str, Any]:
    """The row, or the failure that stands for it where it is no result.

    >>> check_row({"scores": {"test_auroc": 0.9}}, 3)
    {'scores': {'test_auroc': 0.9}}
    >>> check_row({"scores": {"test_auroc": "abc"}}, 3)["error"]
    "line 3 of the store is no result: it has 'abc' for 'scores.test_auroc'; repair the line, or run with --retry-failed"
    """
    if "error" in row:
        return row
    try:
        _Row.model_validate(row)
        return row
    except ValidationError as error:
        problem = error.errors()[0]
    path, found = ".".join(map(str, problem["loc"])), repr(problem["input"])[:40]
    flaw = f"it has no '{path}'" if problem["type"] == "missing" else f"it has {found} for '{path}'"
    remedy = "repair the line, or run with --retry-failed"
    return {**row, "error": f"line {line} of the store is no result: {flaw}; {remedy}", "kind": BROKEN}


def broken(cells: Iterable[Cell], store: Store) -> list[dict[str, str]]:
    """The cells whose row is no result, each once, and what is wrong with it."""
    found = {str(cell): row["error"] for cell in cells if (row := store.get(cell.key)) and row.get("kind") == BROKEN}
    return [{"cell": cell, "error": error} for cell, error in found.items()]


# Where a row comes from: versions, commit, hardware and time.


def provenance(device: torch.device, jobs: int, threads: int) -> dict[str, Any]:
    """What is stored with every row. It is not part of the key: a cell is the same on every machine."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    hardware = {"device": device.type, "name": name, "cpus": os.cpu_count(), "threads": torch.get_num_threads()}
    return {
        "version": __version__,
        "git": _git(),
        "hardware": {**hardware, "jobs": jobs, "job_threads": threads},
        "torch": torch.__version__.split("+")[0],
        "finished": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def source(row: Mapping[str, Any] | None = None) -> str:
    """The short commit that a row was made with, else its version; without a row, those of this checkout.

    >>> source({"git": "0123456789abcdef0123", "version": "1.0"}), source({"git": None, "version": "1.0"})
    ('0123456789ab', 'version 1.0')
    """
    git, version = (_git(), __version__) if row is None else (row.get("git"), row.get("version"))
    if not git:
        return f"version {version or 'unknown'}"
    commit, dash, dirty = str(git).partition("-")
    return f"{commit[:12]}{dash}{dirty}"


@cache
def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def _git() -> str | None:
    """The commit of this checkout, with ``-dirty`` if files differ from it; None outside of a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


# One writer at a time.


def lock_file(store: Path) -> Path:
    """The file that a process holds locked while it writes a store."""
    return store.with_name(f"{store.name}.lock")


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Keep other processes from writing a store. The operating system frees the lock however its holder ends.

    The lock file names the holder and is removed in the end, with a folder that was made for it and stayed empty.
    """
    if not store.name or store.is_dir():
        raise SettingError(f"the store '{store}' is a folder; give a file, such as {store / 'results.jsonl'}")
    path = lock_file(store)
    with ExitStack() as stack:
        try:
            stack.enter_context(ensure_folder(path.parent))
            file = stack.enter_context(path.open("a+"))
        except OSError as error:
            raise SettingError(f"the store '{store}' cannot be written ({why(error)}); give another file") from error
        file.seek(0)
        if not _take(file.fileno(), path):
            holder = file.read().strip() or "another process"
            raise SettingError(
                f"{holder} is writing to this store ('{path}' is locked); wait for it, or give another --store"
            )
        stack.callback(path.unlink, missing_ok=True)  # before the file is closed, which frees the lock
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _take(file: int, path: Path) -> bool:
    """Lock the file. Its last holder may have removed it since it was opened: then the lock is worth nothing."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
