"""Cells: the smallest pieces of an experiment. The key of a cell holds every setting that its numbers depend on."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from gnndelete.bench.experiment import MEASURES, TASKS, Experiment, MethodSpec, Named, describe
from gnndelete.bench.names import counted, measured
from gnndelete.datasets.registry import ENTRIES, Entry
from gnndelete.errors import RequestError, SettingError, some, unknown
from gnndelete.methods import CONTROLS, GNNDelete, Method, RetrainAgain
from gnndelete.methods import resolver as methods
from gnndelete.models import FROM_GRAPH, defaults, model_factory
from gnndelete.models import resolver as models
from gnndelete.nn.layers import graph_layers
from gnndelete.registry import check_parameters

#: Raised when the meaning of a row changes; rows of another format are other cells.
FORMAT = 1

#: Settings that are in no key at this value: what a method did before it got them, or what no file can set.
ADDED_SETTINGS: dict[str, dict[str, Any]] = {"gnndelete": {"inputs": "remaining", "watch": None}}

#: The version of the search for lam by task and aim, where it is not the first; ``"embeddings"``: links scored by trained
#: embeddings of nodes. It is part of a key, so that rows of an older search are computed again: raise it with every change
#: to `gnndelete.methods.gnndelete` or `gnndelete.metrics` that changes numbers.
#: 2 leaves out unseen edges that the deletion moves, and budget that buys next to nothing; for nodes, strata are adaptive.
#: 3 adjusts scores of edges for their surroundings, and resets embeddings of isolated nodes. 4 and 5 had peers, 5 and 6 not.
VERSIONS: dict[tuple[str, str], int] = {
    ("link", "retrained"): 5,
    ("link", "nonexistent"): 2,
    ("node", "retrained"): 2,
    ("node", "nonexistent"): 2,
    ("embeddings", "retrained"): 6,
}

#: The parts of a key that the base model depends on.
_BASE = ("format", "device", "dataset", "task", "split", "model", "train", "seed")


@dataclass(frozen=True)
class Cell:
    """One dataset, model, schedule, split, forget set, method, list of measures and seed.

    ``label`` is what tables call the method. It is no part of the key.
    """

    label: str
    key: dict[str, Any]

    @cached_property
    def digest(self) -> str:
        return digest(self.key)

    @property
    def base(self) -> dict[str, Any]:
        """The key of the trained model that the cell starts from."""
        return {name: self.key[name] for name in _BASE}

    @property
    def shadow(self) -> dict[str, Any] | None:
        """The key of the attacker's shadow model, where the cell needs one; all methods share it."""
        return {**self.base, "forget": self.key["forget"], "shadow": 1} if "mi" in self.key["measures"] else None

    @property
    def timed(self) -> bool:
        """Whether it measures times, so that nothing else may run at the same time."""
        return "time" in self.key["measures"]

    def __str__(self) -> str:
        return f"{title(self.key)}: {self.label}"


def title(key: Mapping[str, Any]) -> str:
    """What a key is about, in a few words."""
    options = unusual_options(key["model"], key["task"])
    words = [key["dataset"], key["model"]["name"], f"({options})" if options else ""]
    if "forget" in key:
        forget = key["forget"]
        words += [
            measured(forget["amount"], forget["kind"]),
            forget["where"].upper() if forget["where"] != "random" else "",
            f"in {forget['steps']} steps" if forget["steps"] > 1 else "",
        ]
    return " ".join([*filter(None, words), f"seed {key['seed']}"])


def unusual_options(model: Mapping[str, Any], task: str) -> str:
    """The options of a model that differ from its defaults.

    >>> unusual_options({"name": "gin", "hidden": 32, "num_layers": 2}, "link")
    'hidden 32'
    """
    kind = models.lookup_dict.get(model["name"])
    usual = {"name": model["name"], **(defaults(model_factory(kind, task)) if kind else {})}
    unusual = {name: value for name, value in model.items() if name not in usual or usual[name] != value}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in unusual.items())


def digest(key: Mapping[str, Any]) -> str:
    """A short name of a key, the same in every process.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def cells(experiment: Experiment, device: str = "cpu", seeds: int | None = None) -> list[Cell]:
    """Every cell of an experiment, once; ``seeds`` takes the first so many. What could not run is refused.

    >>> from gnndelete.bench.experiment import read
    >>> len(cells(read("paper/lambda"), seeds=1))
    8
    """
    try:
        found = _cells(experiment, device, seeds)
        for cell in _distinct(found, "dataset", "model", "task"):
            _check_model(cell.key)
        for cell in _distinct(found, "dataset", "forget", "task", "split"):
            _check_amount(cell.key)
        for cell in _distinct(found, "model", "method", "task"):
            _check_layers(cell)
    except RequestError as error:
        raise SettingError(f"the experiment '{experiment.name}': {error}") from None
    return found


def _cells(experiment: Experiment, device: str, seeds: int | None) -> list[Cell]:
    task, schedule = experiment.task, experiment.train.settings()
    found: dict[str, Cell] = {}
    fixed = {"task": task, "split": experiment.split.shares(task), "train": schedule}
    measures = [name for name in MEASURES if name in experiment.measures]
    variants = []
    for model in experiment.models:
        embeddings = _has_node_embeddings(model.name, task)
        keys = [(spec, _method_key(spec, schedule, task, embeddings)) for spec in experiment.methods]
        variants.append((_model_key(model, task), keys))
    for dataset in experiment.datasets:
        for seed in experiment.seeds[:seeds]:
            for model_key, method_keys in variants:
                base = {
                    "format": FORMAT,
                    "device": device,
                    "dataset": dataset,
                    **fixed,
                    "model": model_key,
                    "seed": seed,
                }
                for forget in experiment.forget_sets:
                    for spec, method in method_keys:
                        if spec.only.allows(dataset, model_key["name"], forget):
                            cell = Cell(spec.title, {**base, "forget": forget, "method": method, "measures": measures})
                            if found.setdefault(cell.digest, cell) is not cell:
                                raise SettingError(
                                    f"two entries are the same, defaults filled in: '{found[cell.digest]}' and '{cell}'; "
                                    "leave one of them out, or give each method different cells with 'only'"
                                )
    labels = {cell.label for cell in found.values()}
    for spec in experiment.methods:
        if spec.title not in labels:
            raise SettingError(f"'only' of method '{spec.title}' leaves it no cell; no cell has all of that")
    return list(found.values())


def make_method(key: Mapping[str, Any]) -> Method:
    """The method of a cell, from the settings in its key.

    >>> make_method({"name": "gnndelete", "lam": 0.2}).lam
    0.2
    """
    kind = _method_class(key["name"])
    takes = inspect.signature(kind).parameters
    method = kind(**{name: value for name, value in key.items() if name in takes})
    method.check()
    return method


def _method_class(name: str) -> type[Method]:
    controls: tuple[type[Method], ...] = (*CONTROLS, RetrainAgain)
    known = {**methods.lookup_dict, **{control.name: control for control in controls}}
    if name not in known:
        raise SettingError(unknown("there is no method", name, sorted(known)))
    return known[name]


def _method_key(spec: MethodSpec, schedule: Mapping[str, Any], task: str, embeddings: bool) -> dict[str, Any]:
    """The name and all effective settings; a method that trains takes the schedule where its own settings are silent."""
    kind, given = _method_class(spec.name), spec.options
    takes = inspect.signature(kind).parameters
    preset = None if "preset" in takes else given.pop("preset", None)
    if kind.needs == "a training function":
        given = {name: value for name, value in schedule.items() if name in takes} | given
    given = check_parameters(kind, given, f"method '{spec.name}'", "methods.")
    if preset is not None and preset not in kind.presets:
        raise SettingError(unknown(f"method '{spec.name}' has no preset", str(preset), kind.presets))
    make: Any = getattr(kind, preset) if preset is not None else kind
    method = make(**given)
    method.check()
    version, added = search_version(method, task, embeddings), ADDED_SETTINGS.get(kind.name, {})
    settings = {name: value for name, value in method.settings().items() if name not in added or added[name] != value}
    if isinstance(method, GNNDelete) and method.operator == "auto":  # what it comes to
        corrects_rows = embeddings and task == "link" and method.resets_embeddings
        settings["operator"] = "auto" if corrects_rows else "ring"
    return {"name": kind.name, **settings, **({"rule": version} if version > 1 else {})}


def search_version(method: Method, task: str, embeddings: bool = False) -> int:
    """The version of what a method decides by itself: 1 where nothing is searched.

    >>> search_version(GNNDelete(lam=0.5), "link"), search_version(GNNDelete(), "link") > 1
    (1, True)
    """
    if not isinstance(method, GNNDelete):
        return 1
    if embeddings and task == "link" and method.resets_embeddings:
        return VERSIONS["embeddings", method.aim]
    return VERSIONS.get((task, method.aim), 1) if method.lam == "auto" else 1


def search_rule(method: Mapping[str, Any], task: str, model: str) -> int:
    """The version of the search for lam that a timed cell of GNNDelete measures, also where its own lam is fixed."""
    searching = make_method({**method, "lam": "auto", "inputs": "remaining"})
    return search_version(searching, task, _has_node_embeddings(model, task))


def _has_node_embeddings(name: str, task: str) -> bool:
    """Whether a model trains a vector per node: then it takes the number of nodes."""
    return "num_nodes" in inspect.signature(model_factory(_model_class(name), task)).parameters


def _model_class(name: str) -> Any:
    if name not in models.lookup_dict:
        raise SettingError(unknown("there is no model", name, sorted(models.lookup_dict)))
    return models.lookup_dict[name]


def _model_key(spec: Named, task: str) -> dict[str, Any]:
    """The name and all options but those that the graph decides."""
    kind = _model_class(spec.name)
    factory = model_factory(kind, task)
    takes = inspect.signature(factory).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    for name in spec.options:
        if name not in takes and not open_ended:
            raise SettingError(unknown(f"model '{spec.name}' has no option", name, takes, prefix="models."))
    of_kind = inspect.signature(kind).parameters
    sizes = {name: 1 for name, parameter in of_kind.items() if parameter.default is parameter.empty}
    given = {name: value for name, value in spec.options.items() if name in of_kind}
    check_parameters(kind, sizes | given, f"model '{spec.name}'", "models.")
    from_graph = (*FROM_GRAPH, *(() if task == "link" else ("out",)))
    plain = {name: value for name, value in defaults(factory).items() if name not in from_graph}
    return {"name": spec.name, **plain, **spec.options}


# Whether cells can run, as far as names and sizes tell.


def _distinct(found: Iterable[Cell], *names: str) -> Iterable[Cell]:
    """One cell for every combination of these parts of a key."""
    return {json.dumps([cell.key[name] for name in names]): cell for cell in found}.values()


def _check_model(key: Mapping[str, Any]) -> None:
    """Refuse a model that a dataset cannot feed, and options of which no model can be made."""
    dataset, model, task = key["dataset"], key["model"], key["task"]
    entry, name = describe(dataset), model["name"]
    takes = inspect.signature(models.lookup_dict[name]).parameters
    if "num_relations" in takes and not entry.typed:
        typed = some(other.name for other in ENTRIES.values() if other.typed)
        raise SettingError(
            f"'models': '{name}' is for typed edges, and those of '{dataset}' have no types; take another model (gcn, say) "
            f"or a typed dataset ({typed})"
        )
    needs_features = "in_channels" in takes and takes["in_channels"].default is inspect.Parameter.empty
    if needs_features and "in_channels" not in model and not entry.features:
        other = "rgcn or rgat" if entry.typed else "a dataset with features"
        raise SettingError(
            f"'models': '{name}' computes from features of nodes, and '{dataset}' has none; take {other}"
        )
    if TASKS[task].divides == "graphs" and "num_nodes" in takes:
        raise SettingError(
            f"'models': '{name}' has a trained vector for every node, and new graphs bring new nodes; take gcn, gat or gin"
        )
    options = unusual_options(model, task)
    if options:
        try:
            _small_model(model, task)
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise SettingError(f"'models': no '{name}' with {options} can be made: {reason}") from None


def _check_amount(key: Mapping[str, Any]) -> None:
    dataset, forget = key["dataset"], key["forget"]
    kind, amount, steps = forget["kind"], forget["amount"], forget["steps"]
    noun, most = kind.removesuffix("s"), _available(describe(dataset), kind, key["task"], key["split"])
    count = amount if isinstance(amount, int) else round(amount * most)
    asked = measured(amount, kind) + ("" if isinstance(amount, int) else f" ({count:,})")
    there = f"there {'is' if most == 1 else 'are'} at most {counted(most, noun)} to learn from in '{dataset}'"
    if count > most or (kind in ("edges", "nodes") and count == most):
        rest = ", and a deletion has to leave some" if count == most else ""
        raise SettingError(f"'forget.amount': {asked} cannot be deleted: {there}{rest}; ask for fewer")
    if count < 1:
        raise SettingError(f"'forget.amount': {asked} is less than one: {there}; ask for more, or for a whole number")
    if steps > count:
        raise SettingError(f"'forget.steps': {asked} cannot be deleted in {steps} steps; ask for fewer steps")


def _available(entry: Entry, kind: str, task: str, split: Mapping[str, Any]) -> int:
    """An upper bound of how many elements of a kind a training graph has."""
    divides = TASKS[task].divides
    what = "graphs" if kind == "features" and divides == "graphs" else kind
    what = "nodes" if what in ("features", "labels") else what
    edges = entry.edges if entry.typed else entry.edges // 2  # untyped graphs of the catalog are undirected
    total = {"relations": entry.relations, "edges": edges, "graphs": entry.graphs, "nodes": entry.nodes}[what]
    if what != divides or split.get("given"):
        return total
    if "train" in split:
        return int(split["train"] * total)
    return total - sum(int(split[part] * total) for part in ("val", "test"))


def _check_layers(cell: Cell) -> None:
    names, model = cell.key["method"].get("layers"), cell.key["model"]
    if not isinstance(names, list):
        return
    small = _small_model(model, cell.key["task"])
    known = {name for name, _ in small.named_modules()}
    for name in names:
        if name not in known:
            raise SettingError(
                f"'layers' of method '{cell.label}': the model '{model['name']}' has no module '{name}'; take all, last or "
                f"names among {some(graph_layers(small), 10)}, or keep the method to other models with only: {{models: […]}}"
            )


def _small_model(model: Mapping[str, Any], task: str) -> nn.Module:
    """The model of a key, made for a graph of one node."""
    factory = model_factory(models.lookup_dict[model["name"]], task)
    sizes = {"in_channels": 1, "num_nodes": 1, "num_relations": 1, "out": 2}
    takes = inspect.signature(factory).parameters
    options = {name: size for name, size in sizes.items() if name in takes} | defaults(factory)
    with torch.random.fork_rng(devices=[]):
        made: nn.Module = factory(**options | {name: value for name, value in model.items() if name != "name"})
    return made
