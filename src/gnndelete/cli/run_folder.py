"""A run folder: the trained model, and a version for every request that was served.

    base/            model.safetensors, settings.yaml, metrics.json: what ``train`` or ``adopt`` wrote
    versions/0001/   the adapter or the model after a request, result.json, settings.yaml, state.json (all requests so far)
    audit/0001/      the report about a version
    prepared/        what `delete --prepare` computed once: rows of the graph before any deletion, private

Every folder has a ``manifest.json``; `gnndelete.io.versions` has the rules. A run folder is data: opening it runs nothing.
This module imports torch only where a function needs it, so that bad settings are refused at once.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnndelete import __version__
from gnndelete.cli.output import note, plain, to_json
from gnndelete.cli.settings import FILES, Layer, Settings, located, resolve, same_file
from gnndelete.errors import AdapterError, DeletionError, GraphError, SettingError
from gnndelete.io.code import require_trust
from gnndelete.io.files import STAGING_PREFIX, commit, was_begun
from gnndelete.io.versions import LOCK, MANIFEST, Manifest, Versions, folder_problems, locked
from gnndelete.io.yaml import read_yaml

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch_geometric.data import Data

    from gnndelete.datasets import NamedGraph
    from gnndelete.graph.deletion import Deletion
    from gnndelete.result import Unlearned
    from gnndelete.tasks import Task

MODEL, SETTINGS, METRICS = "model.safetensors", "settings.yaml", "metrics.json"
TABLES, DESCRIPTION, TOMBSTONES = "tables.json", "graph.toml", "tombstones.json"
STATE, RESULT, AUDIT, CACHE, PREPARED = "state.json", "result.json", "audit", "cache", "prepared"

#: Files of a version that name elements or rows: only their owner reads them.
PRIVATE = frozenset({STATE, "adapter_model.safetensors"})

#: Marks a folder that holds a remaining graph.
REMAINING = "remaining.json"


def open_run(folder: Path) -> Versions:
    """The versions of a run, refused where it is unfinished, or where the base or the latest version has changed."""
    run = Versions(folder)
    if not run.chain:
        raise SettingError(
            f"'{folder}' is no finished run; make one with gnndelete train or gnndelete adopt, --out {folder}"
        )
    run.check(*{0, run.latest.version})
    return run


@contextmanager
def writing(folder: Path) -> Iterator[Versions]:
    """A run that nobody else writes to for the length of a block."""
    if not (folder / "base").is_dir():
        open_run(folder)  # says that it is no run
    with locked(folder, lambda: note(f"waiting for another command that writes to {plain(str(folder))}")):
        run = open_run(folder)
        run.repair()
        yield run


def check_folder(folder: Path, mark: str, reserved: Iterable[Path] = (), option: str = "--out") -> None:
    """Refuse a folder in which anything but an earlier result of the same kind, with a file ``mark``, would be lost."""
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"'{folder}' is a file; give {option} a folder")
    if folder.resolve() in [path.resolve() for path in reserved] or (folder / "base").exists():
        raise SettingError(f"'{folder}' holds a run, its result or its graph; give {option} another folder")
    names = os.listdir(folder) if folder.is_dir() else []
    others = [name for name in names if name != LOCK and not name.startswith(STAGING_PREFIX)]
    if others and not (folder / mark).exists() and not was_begun(folder, mark):
        raise SettingError(f"'{folder}' holds other files and no earlier result; give {option} a new folder")


def provenance() -> dict[str, Any]:
    """What the manifest of every version says about the software and who uses it."""
    import torch
    import torch_geometric

    software = {"gnndelete": __version__, "torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    try:
        actor = getpass.getuser()
    except (OSError, KeyError):  # a container without users
        actor = str(os.getuid())
    return {"software": {**software, "python": platform.python_version()}, "actor": actor}


def to_bytes(values: Any) -> bytes:
    """Values as the content of a JSON file."""
    return (json.dumps(json.loads(to_json(values)), indent=2, ensure_ascii=False) + "\n").encode()


# Settings, and the code that they may name.


def run_settings(run: Versions, *layers: Any, trust: bool = False) -> Settings:
    """The settings of a run with the layers of `resolve` above them: a file, ``--set`` and options.

    They must not turn the run into another one than was trained. Files may have moved: fingerprints tell whether they hold
    the same. A model class of the user's own is used only if these layers name it, or if it is trusted.
    """
    stored: Layer = read_yaml(run.folder(0) / SETTINGS)
    if stored.keys() - {"data", "model", "task", "train"}:
        raise AdapterError(f"'{run.folder(0) / SETTINGS}' holds more than train wrote", "restore it from a backup")
    stored = located(stored, run.folder(0))
    trained, given, settings = resolve(stored), resolve(None, *layers), resolve(stored, *layers)
    for section in ("data", "model", "task"):
        before, now = (getattr(s, section).model_dump(mode="json") for s in (trained, settings))
        for name in {**before, **now}:
            moved = name in (*FILES, "checkpoint") or same_file(before.get(name), now.get(name))
            if not moved and before.get(name) != now.get(name):
                raise SettingError(
                    f"'{section}.{name}' is {now.get(name)!r}, but the run '{run.root}' was trained with "
                    f"{before.get(name)!r}; leave it out, or train another run"
                )
    require_trust(settings.model.name, trust or "name" in given.model.model_fields_set)
    if settings.train.fit is not None:
        require_trust(settings.train.fit, trust or "fit" in given.train.model_fields_set)
    return settings


def take_over(settings: Settings, latest: Manifest) -> tuple[Settings, str]:
    """The settings with the aim and lam of earlier requests where none are set, and a sentence about what differs.

    All requests of a run are solved together: another aim would also apply to what was deleted before.
    """
    earlier = latest.facts
    if "method" not in earlier:
        return settings, ""
    method, parameters = settings.method, settings.method.parameters
    if method.name != earlier["method"]:
        changed = f"all requests of this run are now served with '{method.name}', no longer with '{earlier['method']}'"
        return settings, changed
    names = [name for name in TAKEN_OVER if name in earlier]
    taken: dict[str, Any] = {name: earlier[name] for name in names if name not in parameters}
    if "aim" in parameters:
        taken.pop("lam", None)  # it was set for another aim
    sentences = []
    if taken.get("aim", "retrained") != "retrained":
        sentences.append(f"aim {taken['aim']} as for the earlier requests")
    if taken.get("lam", "auto") != "auto":
        sentences.append(f"lam {taken['lam']:g} as for the earlier requests")
    sentences += [
        f"{name} {parameters[name]} instead of {earlier[name]}, for the earlier requests too"
        for name in names
        if name in parameters and parameters[name] != earlier[name]
    ]
    return settings.filled("method", taken), "; ".join(sentences)


#: The settings of a method that a later request takes over.
TAKEN_OVER = ("aim", "lam")


# The model, the graph and the requests.


def open_model(run: Versions, settings: Settings) -> tuple[nn.Module, NamedGraph, Task]:
    """The trained model, its training graph and its task; refused where the graph has changed."""
    from gnndelete.cli.construct import build_model, prepare
    from gnndelete.graph.fingerprint import attributes, changed, fingerprint
    from gnndelete.training.weights import load_weights

    trained, source = run.chain[0], settings.data.graph
    if source is not None and not source.exists():
        raise GraphError(
            f"the graph of the run '{run.root}' is not at '{source}'; restore it, or say where it is: --set data.graph=PATH"
        )
    graph, task = prepare(settings)
    data = graph.data
    if fingerprint(data) != trained.graph:
        raise GraphError(
            f"the graph of the run '{run.root}' is not the one it was trained on: its file or its split has changed; restore it, "
            "or make a new run of the graph as it is now"
        )
    before = {
        name.removeprefix("data."): str(value) for name, value in trained.facts.items() if name.startswith("data.")
    }
    other = changed(before, attributes(data, labels=task.learns_labels))
    if other:
        raise GraphError(
            f"the graph of the run '{run.root}' has other values of {other} than the one it was trained on; restore its file, or "
            "train again"
        )
    if ids_fingerprint(graph) != trained.facts.get("ids"):
        raise GraphError(
            f"the ids of the nodes are not those the run '{run.root}' was trained with: some were renamed, or are in "
            "another order; restore them, or a request could delete other nodes than it names"
        )
    model = build_model(settings.model, graph, settings.task.name, settings.train.seed)
    load_weights(run.folder(0) / MODEL, model)
    return model.to(data.edge_index.device), graph, task


def report_digest(folder: Path) -> str | None:
    """The digest of the audit in a folder; None where there is none."""
    return Manifest.read(folder).digest if (folder / MANIFEST).exists() else None


def is_whole(file: Path) -> bool:
    """Whether a file is as it was written; its name ends with its digest."""
    with file.open("rb") as opened:
        return file.stem.rpartition("-")[2] == hashlib.file_digest(opened, "sha256").hexdigest()


def ids_fingerprint(graph: NamedGraph) -> str | None:
    """A stable name of the user's ids; None where nodes only have numbers."""
    return None if graph.ids is None else graph.ids.fingerprint


def tables_of(graph: NamedGraph) -> dict[str, Any]:
    """What was understood of the user's tables, and how each column became numbers, as plain values."""
    encodings = {name: [each.to_dict() for each in part] for name, part in graph.encodings.items()}
    return {"tables": None if graph.tables is None else graph.tables.to_dict(), "encodings": encodings}


def graph_facts(data: Data, task: Task, graph: NamedGraph) -> dict[str, Any]:
    """What the manifest of a trained model says about its graph, beside its fingerprint."""
    from gnndelete.graph.fingerprint import attributes

    found = {f"data.{name}": value for name, value in attributes(data, labels=task.learns_labels).items()}
    return {**found, "ids": ids_fingerprint(graph)}


def require_state(run: Versions) -> None:
    """Refuse a run that has no requests, or whose requests were erased."""
    if run.latest.kind == "close":
        raise DeletionError(
            f"the run '{run.root}' is closed: what was deleted stays deleted, and the ids that a further request or an audit "
            "needs were erased; train another run on the remaining graph"
        )
    if not run.latest.requests:
        raise DeletionError(
            f"nothing was deleted from the run '{run.root}' yet; do that first, with gnndelete delete {run.root} --edges FILE"
        )


def served_before(run: Versions, request_id: str) -> int | None:
    """The version of a request that is in force under this name."""
    found = None
    for manifest in run.chain:
        found = None if manifest.facts.get("dropped") else found
        if manifest.kind == "delete" and manifest.request_id == request_id:
            found = manifest.version
    return found


def union(history: Iterable[Deletion]) -> Deletion:
    """All requests as one."""
    from gnndelete.graph.deletion import Deletion

    return reduce(or_, history, Deletion())


def open_result(run: Versions, folder: Path, settings: Settings) -> tuple[Unlearned, NamedGraph]:
    """The latest deletion of a run as `Unlearner.delete` returned it, with its files from a folder that has a copy of them.

    And the graph that the model was trained on.
    """
    from gnndelete.cli.construct import build_function, fit_function
    from gnndelete.graph.batch import as_user_graph, collate
    from gnndelete.graph.fingerprint import fingerprint
    from gnndelete.nn.adapter import CONFIG
    from gnndelete.nn.layers import working_copy
    from gnndelete.result import Unlearned, load
    from gnndelete.training.loop import as_fitting
    from gnndelete.training.weights import load_weights
    from gnndelete.unlearner import Unlearner

    require_state(run)
    if not (folder / RESULT).is_file():
        raise DeletionError(f"'{folder}' holds no result of a deletion (no {RESULT}); give --unlearned a copy of one")
    files = {name: digest for name, digest in run.latest.files.items() if name != STATE}
    problems = folder_problems(folder, files)
    if folder != run.folder() and problems:
        raise AdapterError(
            f"'{folder}' does not hold the latest result of the run '{run.root}' ({problems[0]})",
            f"give --unlearned a copy of {run.folder()}",
        )
    model, graph, task = open_model(run, settings)
    history = Unlearner(model, graph.data, method="unlink").load_state(run.folder() / STATE).history
    deleted = union(history)
    remaining = deleted.remaining(graph.data)
    if fingerprint(collate(remaining)) != run.latest.remaining or deleted.counts != run.latest.counts:
        raise AdapterError(
            f"'{run.folder() / STATE}' names other requests than {MANIFEST}", "restore both from a backup"
        )
    if CONFIG in run.latest.files:
        unlearned = load(folder, model, remaining, task=task)
    else:
        whole = working_copy(model)
        load_weights(folder / MODEL, whole)
        values = json.loads((folder / RESULT).read_bytes())
        details = {} if values.get("calibration") is None else {"calibration": values["calibration"]}
        try:
            unlearned = Unlearned.from_summary(
                values, model=whole, data=remaining, adapter=None, details=details, base=model
            )
        except (KeyError, TypeError, ValueError) as error:
            raise AdapterError(f"'{folder / RESULT}' is damaged ({error})", "restore it, or delete again") from None
    unlearned = replace(
        unlearned,
        history=history,
        task=task,
        original=as_user_graph(graph.data),
        fit=as_fitting(fit_function(settings, task.without(deleted.nodes))),
        build=build_function(settings, graph),
    )
    return unlearned, graph


# Copies for those who serve the model: the result, and the graph that it is to be served on.


def export_result(run: Versions, out: Path) -> None:
    """Write a copy of the latest version, without the list of requests, to a folder of the user's."""
    contents = {
        out / name: (run.folder() / name).read_bytes() for name in (*run.latest.files, MANIFEST) if name != STATE
    }
    known = {name for manifest in run.chain[1:] for name in manifest.files}
    private = [out / name for name in PRIVATE]
    commit(contents, remove=[out / name for name in known if out / name not in contents], private=private)


def export_graph(folder: Path, graph: NamedGraph, deleted: Tensor, values: Mapping[str, Any]) -> None:
    """Write a remaining graph as `save_graph` does, without the names of deleted nodes."""
    from gnndelete.datasets.formats import graph_contents
    from gnndelete.datasets.ids import without_names

    if graph.ids is not None:
        graph = replace(graph, ids=without_names(graph.ids, deleted))
    contents = {folder / name: content for name, content in graph_contents(graph).items()}
    commit(contents | {folder / REMAINING: to_bytes(values)})
