"""What ``delete`` wrote, taken up again: the adapter or the model, with what was deleted, if all of it belongs together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.assurance import MEANING
from gnndelete.cli.construct import build_model
from gnndelete.cli.loading import load_weights
from gnndelete.cli.runs import MODEL, RESULT, STATE, open_run
from gnndelete.cli.settings import Settings
from gnndelete.errors import AdapterError, DeletionError, GNNDeleteError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.validation import fingerprint
from gnndelete.nn.adapter import CONFIG, TENSORS, model_fingerprint, read_config
from gnndelete.nn.layers import working_copy
from gnndelete.result import Unlearned, load
from gnndelete.training.loop import train
from gnndelete.unlearner import Unlearner

_NEEDED = (
    "method",
    "settings",
    "assurance",
    "seconds",
    "parameters",
    "notes",
    "seed",
    "counts",
    "remaining_fingerprint",
)


def open_result(run: Path, folder: Path, settings: Settings) -> tuple[Unlearned, dict[str, Any]]:
    """The latest deletion of a run as `Unlearner.delete` gave it back, and the values beside it.

    Refused where the run, the state that says what was deleted, and the result are not of the same deletion.
    """
    if not (run / STATE).exists():
        raise DeletionError(
            f"nothing was deleted from the run '{run}' yet; do that first, with gnndelete delete {run} --edges FILE"
        )
    values = _values(folder)
    model, graph, task = open_run(run, settings)
    history = _history(run, model, graph.data)
    gone = Deletion()
    for request in history:
        gone = gone | request
    left = gone.remaining(graph.data)
    _belongs(run, folder, values, graph.data, gone, left)
    if (folder / CONFIG).exists() or (folder / TENSORS).exists():
        unlearned = load(folder, model, left, task=task)
    else:
        unlearned = _with_model(folder, values, model, left)
    again = _build(settings, graph.data) if ":" in settings.model.name else None
    rest = {"history": history, "task": task, "original": graph.data, "fit": schedule_fit(settings, task, gone.nodes)}
    return replace(unlearned, build=again, **rest), values


def schedule_fit(settings: Settings, task: Any, gone: torch.Tensor) -> Callable[[nn.Module, Data, int], nn.Module]:
    """Training by the run's own schedule, on what the task has left."""
    schedule = settings.train.model_dump(include={"epochs", "lr", "weight_decay", "patience"})
    left = task.without(gone)

    def fit(model: nn.Module, data: Data, seed: int) -> nn.Module:
        train(model, data, left, seed=seed, progress=True, **schedule)
        return model

    return fit


def _values(folder: Path) -> dict[str, Any]:
    file = folder / RESULT
    if not file.is_file():
        raise DeletionError(
            f"'{folder}' holds no result of a deletion (no {RESULT}); give --unlearned the folder that 'delete' wrote to"
        )
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        missing = [name for name in _NEEDED if name not in values]
    except (OSError, ValueError, TypeError) as error:
        raise AdapterError(
            f"'{file}' is damaged ({type(error).__name__}: {error}); restore it, or delete again"
        ) from None
    if missing or not isinstance(values, dict):
        raise AdapterError(f"'{file}' is damaged: it lacks '{missing[0]}'; restore it, or delete again")
    return values


def _history(run: Path, model: nn.Module, data: Data) -> tuple[Deletion, ...]:
    try:
        history = Unlearner(model, data, method="unlink").load_state(run / STATE).history
    except GNNDeleteError as error:
        raise AdapterError(
            f"'{run / STATE}' does not say what was deleted from this run: {error}; restore it, or start over with "
            f"gnndelete delete {run} --fresh"
        ) from None
    if not history:
        raise DeletionError(f"'{run / STATE}' names no request: nothing was deleted from the run '{run}' yet")
    return history


def _belongs(run: Path, folder: Path, values: dict[str, Any], data: Data, gone: Deletion, left: Data) -> None:
    """Refuse a result that was made on another graph, or for other requests than the state of the run names."""
    config = read_config(folder) if (folder / CONFIG).exists() else {}
    for name, found in ((RESULT, values), (CONFIG, config)):
        made, own = found.get("original_fingerprint"), fingerprint(data)
        if made is not None and made != own:
            raise AdapterError(
                f"'{folder / name}' was made on another graph ({made[:12]}, that of the run '{run}' is {own[:12]}); give "
                "--unlearned a result of this run, or delete again"
            )
        made, own = found.get("remaining_fingerprint"), fingerprint(left)
        if (made is not None and made != own) or found.get("counts", gone.counts) != gone.counts:
            raise AdapterError(
                f"'{folder / name}' was made for another deletion than '{run / STATE}' names ({found.get('counts')} left "
                f"the graph {str(made)[:12]}, there {gone.counts} leave {own[:12]}); give --unlearned the folder of the "
                "latest result, or delete again"
            )
    for name in ("method", "settings", "assurance", "parameters", "seed"):
        if config and config[name] != values[name]:
            raise AdapterError(
                f"'{folder / CONFIG}' says {name} {config[name]!r} and {RESULT} beside it {values[name]!r}: one of them is of "
                "another result; restore both, or delete again"
            )
    if values["assurance"] not in MEANING:
        raise AdapterError(f"'{folder / RESULT}' is damaged: no assurance level is called {values['assurance']!r}")


def _with_model(folder: Path, values: dict[str, Any], base: nn.Module, left: Data) -> Unlearned:
    """The result of a method that makes no adapter."""
    model = working_copy(base)
    if not (folder / MODEL).is_file():
        raise AdapterError(f"'{folder}' holds neither an adapter nor {MODEL}; restore it, or delete again")
    load_weights(folder / MODEL, model)
    made = values.get("model_fingerprint")
    if made is not None and model_fingerprint(model) != made:
        raise AdapterError(f"'{folder / MODEL}' is not the model that {RESULT} describes; restore it, or delete again")
    details = {} if values.get("calibration") is None else {"calibration": values["calibration"]}
    return Unlearned.from_summary(values, model=model, data=left, adapter=None, details=details, base=base)


def _build(settings: Settings, data: Data) -> Callable[[], nn.Module]:
    """A model of the user's may only be able to be made again; its weights come from the random state it is called in."""

    def build() -> nn.Module:
        return build_model(settings.model, data, settings.task.name, torch.initial_seed())

    return build
