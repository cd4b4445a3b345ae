"""Run folders: what `train` writes and `delete` builds on. What settings alone refuse is refused before torch loads."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnndelete.cli.report import note
from gnndelete.cli.settings import Layer, Settings, resolve
from gnndelete.errors import GraphError, ModelError, SettingError
from gnndelete.io.files import tidy
from gnndelete.io.yaml import read_yaml
from gnndelete.version import __version__

if TYPE_CHECKING:
    from torch import nn

    from gnndelete.datasets import NamedGraph
    from gnndelete.tasks import Task

MODEL, SETTINGS, METRICS, STATE, RESULT = (
    "model.safetensors",
    "settings.yaml",
    "metrics.json",
    "state.json",
    "result.json",
)


def run_settings(folder: Path) -> Layer:
    """The settings a run was trained with; what a killed process left half done in it is put in order first."""
    put_in_order(folder)
    missing = [name for name in (SETTINGS, MODEL, METRICS) if not (folder / name).is_file()]
    if missing:
        raise SettingError(
            f"'{folder}' is no finished run: it has no {missing[0]}; make one with gnndelete train --out {folder}"
        )
    return read_yaml(folder / SETTINGS)


def put_in_order(*folders: Path) -> None:
    """Finish or clear away what a killed process left in some folders, and say so where something was finished."""
    for folder in tidy(*folders):
        note(f"note: '{folder}' was being written by a process that was killed; that was finished now")


def open_run(folder: Path, settings: Settings) -> tuple[nn.Module, NamedGraph, Task]:
    """The trained model, its training graph and its task; refused where either is no longer what it was."""
    from gnndelete.cli.construct import build_model
    from gnndelete.cli.loading import load_weights
    from gnndelete.cli.setup import prepare
    from gnndelete.graph.validation import attributes, changed, fingerprint
    from gnndelete.nn.adapter import model_fingerprint

    try:
        metrics = json.loads((folder / METRICS).read_text())
        trained = metrics["base_fingerprint"], metrics["graph_fingerprint"], metrics.get("ids_fingerprint")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(f"'{folder / METRICS}' is damaged ({type(error).__name__}: {error}); train again") from None
    graph, task = prepare(settings)
    data = graph.data
    if fingerprint(data) != trained[1]:
        raise GraphError(
            f"the graph of the run '{folder}' is not the one it was trained on: its file or its split has changed"
        )
    other = changed(metrics.get("graph_attributes"), attributes(data, labels=settings.task.name != "link"))
    if other:
        raise GraphError(
            f"the graph of the run '{folder}' has other values of {other} than the one it was trained on; restore its file, or "
            "train again"
        )
    if ids_fingerprint(graph) != trained[2]:
        raise GraphError(
            f"the ids of the nodes are not those the run '{folder}' was trained with: some were renamed, or stand in "
            "another order; restore them, a request could mean others than it names"
        )
    model = build_model(settings.model, data, settings.task.name, settings.train.seed)
    load_weights(folder / MODEL, model)
    if model_fingerprint(model) != trained[0]:
        raise ModelError(
            f"'{folder / MODEL}' is not the model that the run's {METRICS} describes; restore it, or train again"
        )
    return model.to(data.edge_index.device), graph, task


def ids_fingerprint(graph: NamedGraph) -> str | None:
    """A stable name of the user's ids, None where nodes have numbers only."""
    return None if graph.ids is None else graph.ids.fingerprint


def versions() -> dict[str, str]:
    """What a result depends on besides its settings."""
    import torch
    import torch_geometric

    return {
        "gnndelete": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def result_of(out: Path) -> Path | None:
    """The run whose result a folder holds; None where there is none, or it does not say."""
    try:
        return Path(json.loads((out / RESULT).read_text())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def to_bytes(values: Any) -> bytes:
    """A result as the JSON file it is kept in."""
    from gnndelete.cli.report import to_json

    return (json.dumps(json.loads(to_json(values)), indent=2, ensure_ascii=False) + "\n").encode()


def unchanged(folder: Path, settings: Settings) -> None:
    """Refuse settings that would make of a run something else than what was trained.

    Files may have moved: whether they hold the same graph is seen by its fingerprint.
    """
    trained = resolve(run_settings(folder))
    for section in ("data", "model", "task"):
        was, now = (getattr(s, section).model_dump(mode="json") for s in (trained, settings))
        for name in {**was, **now}:
            if name not in ("graph", "root", "checkpoint") and was.get(name) != now.get(name):
                raise SettingError(
                    f"'{section}.{name}' is {now.get(name)!r}, but the run '{folder}' was trained with "
                    f"{was.get(name)!r}; leave it out, or train another run"
                )
