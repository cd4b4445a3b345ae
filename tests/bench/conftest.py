"""A small experiment in a file, and what a store holds, line by line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnndelete.bench.experiment import Experiment, read

#: 2 seeds, 1 model, 1 forget set, 3 methods.
SMALL: dict[str, Any] = {
    "title": "A small one",
    "task": "link",
    "datasets": ["generated:collab?nodes=300&edges=2400&features=8"],
    "models": [{"name": "gcn", "hidden": 8, "out": 4}],
    "train": {"epochs": 10, "lr": 0.05},
    "forget": {"amount": 0.05},
    "methods": ["retrain", "unlink", {"label": "fixed", "name": "gnndelete", "lam": 0.5}],
    "seeds": [1, 2],
}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the small experiment, with changes, and give back its file."""

    def file(name: str = "small", **changes: Any) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**SMALL, **changes}))
        return path

    return file


@pytest.fixture
def small(write: Write) -> Experiment:
    return read(str(write()))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "out" / "results.jsonl"


def lines(store: Path) -> list[dict[str, Any]]:
    """Every line of a store, which must be whole."""
    text = store.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def numbers(store: Path) -> dict[str, dict[str, Any]]:
    """What must not depend on the machine, the hour or the way a store came about."""
    kept = ("scores", "before", "lam", "parameters", "calibration", "counts", "error")
    return {
        json.dumps(line["key"], sort_keys=True): {name: line["row"].get(name) for name in kept} for line in lines(store)
    }


def environment() -> dict[str, str]:
    """For a process that runs this source."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1"}
