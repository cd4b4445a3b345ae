"""Run folders: what `train` writes and `delete` builds on, and writing so that an error leaves everything as it was."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import nn

from gnndelete.cli.construct import build_model
from gnndelete.cli.loading import load_weights
from gnndelete.cli.settings import Layer, Settings, resolve
from gnndelete.cli.setup import prepare
from gnndelete.datasets import NamedGraph
from gnndelete.errors import GraphError, ModelError, RunError, SettingError
from gnndelete.graph import fingerprint
from gnndelete.prepared import model_fingerprint
from gnndelete.tasks import Task
from gnndelete.version import __version__
from gnndelete.yamlfile import read_yaml

MODEL, SETTINGS, METRICS, STATE, RESULT = (
    "model.safetensors",
    "settings.yaml",
    "metrics.json",
    "state.json",
    "result.json",
)


def run_settings(folder: Path) -> Layer:
    """The settings a run was trained with."""
    missing = [name for name in (SETTINGS, MODEL, METRICS) if not (folder / name).is_file()]
    if missing:
        raise SettingError(
            f"'{folder}' is no finished run: it has no {missing[0]}; make one with gnndelete train --out {folder}"
        )
    return read_yaml(folder / SETTINGS)


def open_run(folder: Path, settings: Settings) -> tuple[nn.Module, NamedGraph, Task]:
    """The trained model, its training graph and its task; refused where either is no longer what it was."""
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
    return {
        "gnndelete": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def commit(contents: Mapping[Path, bytes], remove: Iterable[Path] = (), private: Collection[Path] = ()) -> None:
    """Write all files and remove others, or, on any error and any interrupt, leave every one of them as it was.

    Each file is exchanged in one step, so that even a process that is killed leaves no half-written one.
    """
    undo, where = ExitStack(), Path()
    staging: dict[Path, Any] = {}
    remove = [path for path in remove if path.exists()]
    try:
        for folder in {path.parent for path in (*contents, *remove)}:
            where = folder
            _make(folder, undo)
            staging[folder] = tempfile.TemporaryDirectory(dir=folder, prefix=".writing-", ignore_cleanup_errors=True)
            undo.callback(staging[folder].cleanup)
        for path, content in contents.items():
            where = path.parent
            _write(Path(staging[path.parent].name) / path.name, content, 0o600 if path in private else 0o644)
        for path in [*contents, *remove]:
            where = path.parent
            new = Path(staging[path.parent].name) / path.name
            old = new.with_name(f"{path.name}.before")
            undo.callback(_put_back, path, _keep(path, old))
            if path in contents:
                new.replace(path)
            else:
                path.unlink()
    except BaseException as error:
        undo.close()
        if isinstance(error, OSError):
            raise RunError(
                f"could not write to '{where}' ({error.strerror or error}); earlier files are as they were"
            ) from error
        raise
    for temporary in staging.values():
        temporary.cleanup()


def writable(*folders: Path) -> None:
    """Refuse folders that could not be written to, before any work is done; none of them is made."""
    for folder in folders:
        there = folder.absolute()
        while not there.exists():
            there = there.parent
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError as error:
            raise RunError(f"could not write to '{folder}' ({error.strerror or error}); nothing was done") from error


def _keep(path: Path, copy: Path) -> Path | None:
    """A second name of an existing file, which survives that its first one is given to another."""
    if not path.exists():
        return None
    try:
        os.link(path, copy)
    except OSError:  # a file system without hard links
        shutil.copy2(path, copy)
    return copy


def _put_back(path: Path, copy: Path | None) -> None:
    if copy is None:
        path.unlink(missing_ok=True)
    else:
        copy.replace(path)


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
