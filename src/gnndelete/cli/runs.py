"""Run folders: what `train` writes and `delete` builds on, and writing so that an error leaves everything as it was."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import nn
from torch_geometric.data import Data

from gnndelete.cli.construct import build_model
from gnndelete.cli.loading import load_weights
from gnndelete.cli.settings import Layer, Settings, read_yaml
from gnndelete.cli.setup import prepare
from gnndelete.errors import GraphError, ModelError, RunError, SettingError
from gnndelete.graph import fingerprint
from gnndelete.prepared import model_fingerprint
from gnndelete.tasks import Task
from gnndelete.version import __version__

MODEL, SETTINGS, METRICS, STATE, RESULT = "model.safetensors", "settings.yaml", "metrics.json", "state.json", "result.json"


def run_settings(folder: Path) -> Layer:
    """The settings a run was trained with."""
    missing = [name for name in (SETTINGS, MODEL, METRICS) if not (folder / name).is_file()]
    if missing:
        raise SettingError(f"'{folder}' is no finished run: it has no {missing[0]}; make one with gnndelete train --out {folder}")
    return read_yaml(folder / SETTINGS)


def open_run(folder: Path, settings: Settings) -> tuple[nn.Module, Data, Task]:
    """The trained model, its training graph and its task; refused where either is no longer what it was."""
    try:
        metrics = json.loads((folder / METRICS).read_text())
        trained = metrics["base_fingerprint"], metrics["graph_fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(f"'{folder / METRICS}' is damaged ({type(error).__name__}: {error}); train again") from None
    data, task = prepare(settings)
    if fingerprint(data) != trained[1]:
        raise GraphError(f"the graph of the run '{folder}' is not the one it was trained on: its file or its split has changed")
    model = build_model(settings.model, data, settings.task.name, settings.train.seed)
    load_weights(folder / MODEL, model)
    if model_fingerprint(model) != trained[0]:
        raise ModelError(f"'{folder / MODEL}' is not the model that the run's {METRICS} describes; restore it, or train again")
    return model.to(data.edge_index.device), data, task


def versions() -> dict[str, str]:
    """What a result depends on besides its settings."""
    return {
        "gnndelete": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def commit(contents: Mapping[Path, bytes], remove: Iterable[Path] = (), private: Iterable[Path] = ()) -> None:
    """Write all files and remove others, or, on any error and any interrupt, leave every one of them as it was."""
    secret = set(private)
    with ExitStack() as stack:
        undo = stack.enter_context(ExitStack())
        try:
            staging: dict[Path, Path] = {}
            for folder in {path.parent for path in contents}:
                _make(folder, undo)
                temporary = tempfile.TemporaryDirectory(dir=folder, prefix=".writing-", ignore_cleanup_errors=True)
                staging[folder] = Path(stack.enter_context(temporary))
                undo.callback(temporary.cleanup)  # before an emptied folder is taken away again
            for path, content in contents.items():
                _write(staging[path.parent] / path.name, content, 0o600 if path in secret else 0o644)
            for path in [*contents, *remove]:
                if path.exists():
                    saved = staging[path.parent] / f"{path.name}.before"
                    path.rename(saved)
                    undo.callback(saved.replace, path)
                if path in contents:
                    undo.callback(path.unlink, missing_ok=True)
                    (staging[path.parent] / path.name).replace(path)
            undo.pop_all()  # done: nothing to take back
        except OSError as error:
            raise RunError(
                f"could not write to '{next(iter(contents)).parent}' ({error.strerror or error}); earlier files are as they were"
            ) from error


def _make(folder: Path, undo: ExitStack) -> None:
    if folder.is_dir():
        return
    _make(folder.parent, undo)
    folder.mkdir(exist_ok=True)
    undo.callback(folder.rmdir)


def _write(path: Path, content: bytes, mode: int) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(mode)


def to_bytes(values: Any) -> bytes:
    """A result as the JSON file it is kept in."""
    from gnndelete.cli.report import to_json

    return (json.dumps(json.loads(to_json(values)), indent=2, ensure_ascii=False) + "\n").encode()
