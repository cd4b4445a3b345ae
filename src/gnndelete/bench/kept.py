"""Trained models that cells share, kept on disk beside the store under a digest of everything they depend on."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gnndelete.bench.cells import digest
from gnndelete.bench.material import Material, build_model, material
from gnndelete.bench.provenance import source
from gnndelete.io.files import write
from gnndelete.training.loop import train


@dataclass(frozen=True)
class Base:
    """A trained model, how long its training took, and the state of the source that did it (None where it was not said)."""

    model: nn.Module
    seconds: float
    source: str | None


def place(folder: Path, key: Mapping[str, Any]) -> Path:
    return folder / f"{digest(key)}.pt"


def base_model(key: Mapping[str, Any], folder: Path, device: torch.device) -> Base:
    """The trained model of a base key: from disk, else trained and kept. The last few stay in memory."""
    return _base(json.dumps(key, sort_keys=True), folder, str(device))


@lru_cache(maxsize=3)
def _base(text: str, folder: Path, device: str) -> Base:
    key = json.loads(text)
    made = material(key, torch.device(device))
    model = build_model(key, made.data)
    seconds, trained_by = once(place(folder, key), model, lambda: fit(model, made, key["train"], key["seed"]))
    return Base(model.eval(), seconds, trained_by)


def fit(model: nn.Module, made: Material, schedule: Mapping[str, Any], seed: int) -> None:
    train(model, made.data, made.task, seed=seed, **schedule)


def once(path: Path, model: nn.Module, work: Callable[[], object]) -> tuple[float, str | None]:
    """Put kept weights into ``model``, or do the ``work`` that trains it and keep them; its seconds, and by which source."""
    kept = _read(path)
    if kept is not None:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        try:
            seconds = float(kept["seconds"])
            model.load_state_dict(kept["state"])
            return seconds, kept.get("source")
        except (RuntimeError, KeyError, TypeError, ValueError, AttributeError):  # a file of something else: train again
            model.load_state_dict(before)  # from where training begins, not from the parts that did fit
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    buffer = io.BytesIO()
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    torch.save({"state": state, "seconds": seconds, "source": source()}, buffer)
    write(path, buffer.getvalue())
    return seconds, source()


def _read(path: Path) -> dict[str, Any] | None:
    """What a file holds; None where there is none, or a damaged one."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch stumbles over a damaged file in many ways
        return None
    return found if isinstance(found, dict) else None
