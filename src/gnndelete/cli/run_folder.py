"""A run folder: what is in it, and how it is read and written.

``train`` writes ``model.safetensors``, ``settings.yaml`` and ``metrics.json``. ``delete`` adds ``state.json`` (all requests
so far) and the folder ``unlearned``, ``audit`` the folder ``audit``. Files that belong together are written all or none.
This module imports torch only where a function needs it, so that bad settings are refused at once.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnndelete import __version__
from gnndelete.cli.output import to_json
from gnndelete.cli.settings import Layer, Settings, resolve
from gnndelete.errors import AdapterError, DeletionError, GNNDeleteError, GraphError, ModelError, SettingError
from gnndelete.io.files import tidy
from gnndelete.io.yaml import read_yaml

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch_geometric.data import Data

    from gnndelete.datasets import IdMap, NamedGraph
    from gnndelete.graph.deletion import Deletion
    from gnndelete.methods import Method
    from gnndelete.result import Unlearned
    from gnndelete.tasks import Task

MODEL, SETTINGS, METRICS = "model.safetensors", "settings.yaml", "metrics.json"
STATE, RESULT = "state.json", "result.json"

#: The folder of an audit, its report, and its folders for earlier reports and cached references.
AUDIT, AUDIT_JSON, EARLIER, CACHE = "audit", "audit.json", "earlier", "cache"

#: Marks a folder that holds a remaining graph.
REMAINING = "remaining.json"


# Folders that are written to.


def check_folder(folder: Path, option: str = "--out") -> None:
    """Refuse a path that is no folder."""
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"'{folder}' is a file; give {option} a folder")


def check_target(folder: Path, marks: Collection[str], reserved: Iterable[Path], option: str = "--out") -> None:
    """Refuse a folder in which anything but an earlier result of the same kind would be lost.

    One of the files ``marks`` shows that the folder holds such a result. The folders ``reserved`` are never written to.
    """
    check_folder(folder, option)
    names = {METRICS, RESULT} - set(marks)
    if folder.resolve() in [path.resolve() for path in reserved] or any((folder / name).exists() for name in names):
        raise SettingError(f"'{folder}' holds a run, its result or its graph; give {option} another folder")
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / name).exists() for name in marks):
        raise SettingError(f"'{folder}' holds other files and no earlier result; give {option} a new folder")


# The run that was trained.


def run_settings(folder: Path) -> Layer:
    """The settings that a run was trained with. What a killed process left is removed first."""
    tidy(folder)
    missing = [name for name in (SETTINGS, MODEL, METRICS) if not (folder / name).is_file()]
    if missing:
        raise SettingError(
            f"'{folder}' is no finished run: it has no {missing[0]}; make one with gnndelete train --out {folder}"
        )
    return read_yaml(folder / SETTINGS)


def unchanged(folder: Path, settings: Settings) -> None:
    """Refuse settings that would turn a run into another one than was trained.

    Files may have moved: a fingerprint tells whether they still hold the same graph.
    """
    trained = resolve(run_settings(folder))
    for section in ("data", "model", "task"):
        before, now = (getattr(s, section).model_dump(mode="json") for s in (trained, settings))
        for name in {**before, **now}:
            if name not in ("graph", "root", "checkpoint") and before.get(name) != now.get(name):
                raise SettingError(
                    f"'{section}.{name}' is {now.get(name)!r}, but the run '{folder}' was trained with "
                    f"{before.get(name)!r}; leave it out, or train another run"
                )


def open_run(folder: Path, settings: Settings) -> tuple[nn.Module, NamedGraph, Task]:
    """The trained model, its training graph and its task; refused where the model or the graph has changed."""
    from gnndelete.cli.construct import build_model, load_weights, prepare
    from gnndelete.graph.fingerprint import attributes, changed, fingerprint
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
    other = changed(metrics.get("graph_attributes") or {}, attributes(data, labels=task.learns_labels))
    if other:
        raise GraphError(
            f"the graph of the run '{folder}' has other values of {other} than the one it was trained on; restore its file, or "
            "train again"
        )
    if ids_fingerprint(graph) != trained[2]:
        raise GraphError(
            f"the ids of the nodes are not those the run '{folder}' was trained with: some were renamed, or are in "
            "another order; restore them, or a request could delete other nodes than it names"
        )
    model = build_model(settings.model, data, settings.task.name, settings.train.seed)
    load_weights(folder / MODEL, model)
    if model_fingerprint(model) != trained[0]:
        raise ModelError(
            f"'{folder / MODEL}' is not the model that the run's {METRICS} describes; restore it, or train again"
        )
    return model.to(data.edge_index.device), graph, task


def ids_fingerprint(graph: NamedGraph) -> str | None:
    """A stable name of the user's ids; None where nodes only have numbers."""
    return None if graph.ids is None else graph.ids.fingerprint


def versions() -> dict[str, str]:
    """The versions of the software that a result depends on."""
    import torch
    import torch_geometric

    return {
        "gnndelete": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def to_bytes(values: Any) -> bytes:
    """Values as the content of a JSON file."""
    return (json.dumps(json.loads(to_json(values)), indent=2, ensure_ascii=False) + "\n").encode()


# The state: all requests so far, and how they were served.

#: The key of the state that says how, and the settings of a method that a later request takes over.
_SERVED, _SETTINGS_TAKEN_OVER = "served", ("aim", "lam")


def add_method(state: bytes, method: Method) -> bytes:
    """The state with the method of its latest request, and the settings that later requests take over."""
    settings = {name: value for name, value in method.settings().items() if name in _SETTINGS_TAKEN_OVER}
    return (json.dumps({**json.loads(state), _SERVED: {"method": method.name, **settings}}) + "\n").encode()


def take_over(settings: Settings, state: Path) -> tuple[Settings, str]:
    """The settings with the aim and lam of earlier requests where none are set, and a sentence about what differs.

    All requests of a run are solved together: another aim would also apply to what was deleted before.
    """
    earlier = _served(state)
    if not earlier:
        return settings, ""
    method, parameters = settings.method, settings.method.parameters
    if method.name != earlier["method"]:
        return (
            settings,
            f"all requests of this run are now served with '{method.name}', no longer with '{earlier['method']}'",
        )
    taken = {name: earlier[name] for name in _SETTINGS_TAKEN_OVER if name in earlier and name not in parameters}
    if "aim" in parameters:
        taken.pop("lam", None)  # it was set for another aim
    sentences = []
    if taken.get("aim", "retrained") != "retrained":
        sentences.append(f"aim {taken['aim']} as for the earlier requests")
    if taken.get("lam", "auto") != "auto":
        sentences.append(f"lam {taken['lam']:g} as for the earlier requests")
    sentences += [
        f"{name} {parameters[name]} instead of {earlier[name]}, for the earlier requests too"
        for name in _SETTINGS_TAKEN_OVER
        if name in parameters and name in earlier and parameters[name] != earlier[name]
    ]
    return settings.filled("method", taken), "; ".join(sentences)


def _served(state: Path) -> dict[str, Any]:
    try:
        served = json.loads(state.read_text()).get(_SERVED)
    except (OSError, ValueError, AttributeError):  # `Unlearner.load_state` refuses a damaged state
        return {}
    return served if isinstance(served, dict) and "method" in served else {}


# The result of the latest request.

#: What `result.json` must hold for an audit.
_NEEDED = (
    "method", "settings", "assurance", "weights", "seconds", "parameters", "notes", "seed", "counts", "remaining_fingerprint",
)  # fmt: skip


def result_of(out: Path) -> Path | None:
    """The run whose result a folder holds; None where there is none, or the result does not say."""
    try:
        return Path(json.loads((out / RESULT).read_text())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def open_result(run: Path, folder: Path, settings: Settings) -> tuple[Unlearned, dict[str, Any]]:
    """The latest deletion of a run as `Unlearner.delete` returned it, and the values of ``result.json``.

    Refused where the run, its state and the result do not belong to the same deletion.
    """
    from gnndelete.cli.construct import build_function, fit_function
    from gnndelete.graph.deletion import Deletion
    from gnndelete.nn.adapter import CONFIG, TENSORS
    from gnndelete.result import load

    if not (run / STATE).exists():
        raise DeletionError(
            f"nothing was deleted from the run '{run}' yet; do that first, with gnndelete delete {run} --edges FILE"
        )
    values = _result_values(folder)
    model, graph, task = open_run(run, settings)
    history = _history(run, model, graph.data)
    deleted = Deletion()
    for request in history:
        deleted = deleted | request
    remaining = deleted.remaining(graph.data)
    _check_belongs(run, folder, values, graph.data, deleted, remaining)
    if (folder / CONFIG).exists() or (folder / TENSORS).exists():
        unlearned = load(folder, model, remaining, task=task)
    else:
        unlearned = _with_model(folder, values, model, remaining)
    unlearned = replace(
        unlearned,
        history=history,
        task=task,
        original=graph.data,
        fit=fit_function(settings, task.without(deleted.nodes)),
        build=build_function(settings, graph.data),
    )
    return unlearned, values


def _result_values(folder: Path) -> dict[str, Any]:
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
    from gnndelete.unlearner import Unlearner

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


def _check_belongs(
    run: Path, folder: Path, values: dict[str, Any], data: Data, deleted: Deletion, remaining: Data
) -> None:
    """Refuse a result that was made on another graph, or for other requests than the state of the run names."""
    from gnndelete.graph.fingerprint import fingerprint
    from gnndelete.nn.adapter import CONFIG, read_config
    from gnndelete.notes import MEANING

    config = read_config(folder) if (folder / CONFIG).exists() else {}
    of_run, of_remaining = fingerprint(data), fingerprint(remaining)
    for name, facts in ((RESULT, values), (CONFIG, config)):
        made = facts.get("original_fingerprint")
        if made is not None and made != of_run:
            raise AdapterError(
                f"'{folder / name}' was made on another graph ({made[:12]}, that of the run '{run}' is {of_run[:12]}); give "
                "--unlearned a result of this run, or delete again"
            )
        made = facts.get("remaining_fingerprint")
        if (made is not None and made != of_remaining) or facts.get("counts", deleted.counts) != deleted.counts:
            raise AdapterError(
                f"'{folder / name}' was made for another deletion than '{run / STATE}' names ({facts.get('counts')} left "
                f"the graph {str(made)[:12]}, there {deleted.counts} leave {of_remaining[:12]}); give --unlearned the folder "
                "of the latest result, or delete again"
            )
    for name in ("method", "settings", "assurance", "parameters", "seed"):
        if config and config[name] != values[name]:
            raise AdapterError(
                f"'{folder / CONFIG}' says {name} {config[name]!r} and {RESULT} next to it {values[name]!r}: one of them "
                "belongs to another result; restore both, or delete again"
            )
    if values["assurance"] not in MEANING:
        raise AdapterError(f"'{folder / RESULT}' is damaged: no assurance level is called {values['assurance']!r}")


def _with_model(folder: Path, values: dict[str, Any], base: nn.Module, remaining: Data) -> Unlearned:
    """The result of a method that makes no adapter."""
    from gnndelete.cli.construct import load_weights
    from gnndelete.nn.adapter import model_fingerprint
    from gnndelete.nn.layers import working_copy
    from gnndelete.result import Unlearned

    model = working_copy(base)
    if not (folder / MODEL).is_file():
        raise AdapterError(f"'{folder}' holds neither an adapter nor {MODEL}; restore it, or delete again")
    load_weights(folder / MODEL, model)
    made = values.get("model_fingerprint")
    if made is not None and model_fingerprint(model) != made:
        raise AdapterError(f"'{folder / MODEL}' is not the model that {RESULT} describes; restore it, or delete again")
    details = {} if values.get("calibration") is None else {"calibration": values["calibration"]}
    return Unlearned.from_summary(values, model=model, data=remaining, adapter=None, details=details, base=base)


# Reports of an audit: one that no longer describes what is served, or has more than the next one, is moved, not lost.


def move_report(out: Path, name: str) -> tuple[dict[Path, bytes], list[Path]]:
    """The files of the report in ``out`` as they are to be written to ``earlier/name``, and the files to remove."""
    if not (out / AUDIT_JSON).is_file():
        return {}, []
    files = [out / AUDIT_JSON, out / "report.html", out / SETTINGS, *sorted((out / "figures").glob("*.*"))]
    files = [path for path in files if path.is_file()]
    return {out / EARLIER / name / path.relative_to(out): path.read_bytes() for path in files}, files


def report_name(out: Path) -> str:
    """A folder name for the report in ``out``: how many requests it is about."""
    try:
        count: Any = json.loads((out / AUDIT_JSON).read_text())["request"]["requests"]
    except (OSError, ValueError, KeyError, TypeError):
        return "before"
    return f"after-{count}-request{'s' * (count != 1)}"


def missing_parts(out: Path, settings: Settings) -> list[str]:
    """The parts that the report in ``out`` has and one by these settings will not have."""
    try:
        audit = read_yaml(out / SETTINGS).get("audit") if (out / AUDIT_JSON).is_file() else None
    except SettingError:
        return []
    before = audit if isinstance(audit, dict) else {}
    parts = {"reference": "a reference", "attacks": "attacks"}
    return [words for name, words in parts.items() if before.get(name) is True and not getattr(settings.audit, name)]


# The remaining graph, on which the model is to be served after a deletion.


def graph_files(
    folder: Path, graph: NamedGraph, deleted: Tensor, facts: dict[str, Any]
) -> tuple[dict[Path, bytes], list[Path]]:
    """The files of a remaining graph without the names of deleted nodes, and the files of an earlier one to remove.

    A graph with ids is written as `save_graph` does, another one as ``graph.pt``.
    """
    from gnndelete.datasets.formats import CONFIG, GRAPH, IDS, dump_data, graph_contents

    if graph.ids is None:
        files = {GRAPH: dump_data(graph.data)}
    else:
        files = graph_contents(replace(graph, ids=without_names(graph.ids, deleted)))
    contents = {folder / REMAINING: to_bytes(facts), **{folder / name: content for name, content in files.items()}}
    known = [folder / name for name in (REMAINING, GRAPH, CONFIG, IDS)]
    return contents, [path for path in known if path not in contents]


def without_names(ids: IdMap, nodes: Tensor) -> IdMap:
    """The ids without the names of deleted nodes; every node keeps its position.

    >>> import torch
    >>> from gnndelete.datasets import IdMap
    >>> without_names(IdMap(["ann", "bob", "cy"]), torch.tensor([1])).names
    ('ann', 'deleted:1', 'cy')
    """
    if not nodes.numel():
        return ids
    start = "deleted:"
    while any(name.startswith(start) for name in ids.names):
        start = f"_{start}"
    deleted = set(nodes.tolist())
    return type(ids)(f"{start}{node}" if node in deleted else name for node, name in enumerate(ids.names))
