"""Provenance of a row: versions, commit, hardware and time."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gnndelete import __version__


def provenance(device: torch.device, jobs: int, threads: int) -> dict[str, Any]:
    """Return what is stored with every row. It is not part of the key: a cell is the same on every machine."""
    return {
        "version": __version__,
        "git": _git(),
        "hardware": {**_hardware(device), "jobs": jobs, "job_threads": threads},
        "torch": torch.__version__.split("+")[0],
        "finished": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def source(row: Mapping[str, Any] | None = None) -> str:
    """Return the short commit that a row was made with, else its version; without a row, those of this checkout.

    >>> source({"git": "0123456789abcdef0123", "version": "1.0"}), source({"git": None, "version": "1.0"})
    ('0123456789ab', 'version 1.0')
    """
    git, version = (_git(), __version__) if row is None else (row.get("git"), row.get("version"))
    if not git:
        return f"version {version or 'unknown'}"
    commit, dash, dirty = str(git).partition("-")
    return f"{commit[:12]}{dash}{dirty}"


def _hardware(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {"device": device.type, "name": name, "cpus": os.cpu_count(), "threads": torch.get_num_threads()}


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@cache
def _git() -> str | None:
    """Return the commit of this checkout, with ``-dirty`` if files differ from it; None outside of a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
