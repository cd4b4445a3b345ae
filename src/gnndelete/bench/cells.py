"""Cells: the smallest pieces of an experiment. The key of a cell holds every setting that its numbers depend on."""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from gnndelete.bench.dataset_names import describe
from gnndelete.bench.experiment import MEASURES, TASKS, Experiment, MethodSpec, ModelSpec, refuse_repeats
from gnndelete.bench.search_rules import search_version
from gnndelete.bench.words import counted, measured
from gnndelete.datasets.registry import ENTRIES, Entry
from gnndelete.errors import RequestError, SettingError, some, unknown
from gnndelete.methods import CONTROLS, Method, RetrainAgain
from gnndelete.methods import resolver as methods
from gnndelete.models import resolver as models
from gnndelete.models.from_graph import FROM_GRAPH, defaults, model_factory
from gnndelete.nn.layers import graph_layers
from gnndelete.registry import check_parameters

#: Raised when the meaning of a row changes; rows of another format are other cells.
FORMAT = 1

#: Settings that methods got after rows were first stored, with what they did before: at that value they are in no key.
ADDED_SETTINGS: dict[str, dict[str, Any]] = {"gnndelete": {"inputs": "remaining"}}

#: The parts of a key that the base model depends on.
_BASE = ("format", "device", "dataset", "task", "split", "model", "train", "seed")

#: Larger models are refused: 10^10 weights are 40 GB.
LAYER_LIMIT, WEIGHT_LIMIT = 1_000, 10**10

#: A model that cannot be built without memory for its weights is built with it, up to this many weights.
BUILD_LIMIT = 10**8


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
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _unusual(model, task).items())


def _unusual(model: Mapping[str, Any], task: str) -> dict[str, Any]:
    kind = models.lookup_dict.get(model["name"])
    usual = {"name": model["name"], **(defaults(model_factory(kind, task)) if kind else {})}
    return {name: value for name, value in model.items() if name not in usual or usual[name] != value}


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
        _refuse_unfit(found)
    except RequestError as error:
        raise SettingError(f"the experiment '{experiment.name}': {error}") from None
    return found


def _cells(experiment: Experiment, device: str, seeds: int | None) -> list[Cell]:
    task, schedule = experiment.task, experiment.train.model_dump()
    model_keys = [(spec, _model_key(spec, task)) for spec in experiment.models]
    refuse_repeats("models", [(_as_yaml(spec.model_dump()), key) for spec, key in model_keys])
    method_keys = {
        embeddings: [(spec, _method_key(spec, schedule, task, embeddings)) for spec in experiment.methods]
        for embeddings in (False, True)
    }
    found: dict[str, Cell] = {}
    for dataset in experiment.datasets:
        for seed in experiment.seeds[:seeds]:
            for model, model_key in model_keys:
                base = {
                    "format": FORMAT,
                    "device": device,
                    "dataset": dataset,
                    "task": task,
                    "split": experiment.split.shares(task),
                    "model": model_key,
                    "train": schedule,
                    "seed": seed,
                }
                for forget in experiment.forget_sets:
                    for spec, method in method_keys[_has_node_embeddings(model.name, task)]:
                        if spec.only.allows(dataset, model.name, forget):
                            measures = [name for name in MEASURES if name in experiment.measures]
                            cell = Cell(spec.title, {**base, "forget": forget, "method": method, "measures": measures})
                            _add(found, cell)
    labels = {cell.label for cell in found.values()}
    for spec in experiment.methods:
        if spec.title not in labels:
            raise SettingError(f"'only' of method '{spec.title}' leaves it no cell; no cell has all of that")
    return list(found.values())


def _add(found: dict[str, Cell], cell: Cell) -> None:
    """Add a cell; two methods with the same cell are refused, since the second would have no row."""
    first = found.setdefault(cell.digest, cell)
    if first is not cell:
        raise SettingError(
            f"methods '{first.label}' and '{cell.label}' have the same settings, defaults filled in; leave one of them "
            "out, or give each different cells with 'only'"
        )


def _as_yaml(values: Mapping[str, Any]) -> str:
    """Settings as a line of YAML."""
    if list(values) == ["name"]:
        return str(values["name"])
    return json.dumps(values, ensure_ascii=False, default=str).replace('"', "")


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
    """The name and all effective settings; a method that trains takes the schedule where its own settings are silent.

    From its second version on, the version of the search for lam is part of the key.
    """
    kind, given = _method_class(spec.name), spec.parameters
    takes = inspect.signature(kind).parameters
    preset = None if "preset" in takes else given.pop("preset", None)
    if kind.needs == "a training function":
        given = {name: value for name, value in schedule.items() if name in takes} | given
    given = check_parameters(kind, given, f"method '{spec.name}'", "methods.")
    make: Any = kind
    if preset is not None:
        if not kind.presets:
            raise SettingError(f"method '{spec.name}' has no presets; leave 'preset' out (got {preset!r})")
        if preset not in kind.presets:
            raise SettingError(unknown(f"method '{spec.name}' has no preset", str(preset), kind.presets))
        make = getattr(kind, preset)
    method = make(**given)
    method.check()
    rule, added = search_version(method, task, embeddings), ADDED_SETTINGS.get(kind.name, {})
    settings = {name: value for name, value in method.settings().items() if name not in added or added[name] != value}
    return {"name": kind.name, **settings, **({"rule": rule} if rule > 1 else {})}


def _has_node_embeddings(name: str, task: str) -> bool:
    """Whether a model trains a vector per node: then it takes the number of nodes."""
    return "num_nodes" in inspect.signature(model_factory(models.lookup_dict[name], task)).parameters


def search_rule(method: Mapping[str, Any], task: str, model: str) -> int:
    """The version of the search for lam that a timed cell of GNNDelete measures, also where its own lam is fixed."""
    searching = make_method({**method, "lam": "auto", "inputs": "remaining"})
    return search_version(searching, task, _has_node_embeddings(model, task))


def _model_key(spec: ModelSpec, task: str) -> dict[str, Any]:
    """The name and all options but those that the graph decides."""
    if spec.name not in models.lookup_dict:
        raise SettingError(unknown("there is no model", spec.name, sorted(models.lookup_dict)))
    kind = models.lookup_dict[spec.name]
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


def _refuse_unfit(found: Iterable[Cell]) -> None:
    """Refuse models that a dataset cannot feed, more than it has to delete, and layers that a model does not have."""
    every = list(found)
    for cell in _distinct(every, "dataset", "model", "task"):
        _check_model(cell.key)
    for cell in _distinct(every, "dataset", "forget", "task", "split"):
        _check_amount(cell.key)
    for cell in _distinct(every, "model", "method", "task"):
        _check_layers(cell)


def _distinct(found: Iterable[Cell], *names: str) -> Iterable[Cell]:
    """One cell for every combination of these parts of a key."""
    return {json.dumps([cell.key[name] for name in names]): cell for cell in found}.values()


def _check_model(key: Mapping[str, Any]) -> None:
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
    _check_options(dataset, entry, model, task)


def _check_options(dataset: str, entry: Entry, model: Mapping[str, Any], task: str) -> None:
    """Refuse options of which no model can be made, and a model that no device has room for."""
    options = _unusual(model, task)
    if not options:
        return
    what = f"'{model['name']}' with {', '.join(f'{name} {value!r}' for name, value in options.items())}"
    layers = options.get("num_layers", 0)
    if isinstance(layers, int) and layers > LAYER_LIMIT:
        raise SettingError(f"'models': a {what} has more than {LAYER_LIMIT:,} layers; take fewer")
    try:
        weights = _count_weights(entry, model, task)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SettingError(f"'models': no {what} can be made: {reason}") from None
    if weights > WEIGHT_LIMIT:
        raise SettingError(
            f"'models': a {what} has {weights:,} weights or more on '{dataset}', and the most is {WEIGHT_LIMIT:,}; take a "
            "smaller one"
        )


def _count_weights(entry: Entry, model: Mapping[str, Any], task: str) -> int:
    """The number of weights of a model on a graph.

    Some layers look at the random numbers that they draw and cannot be built without memory. Then the same model without
    options that are words is counted, and the model itself is built where it is small.
    """
    sizes = {"in_channels": entry.features, "num_nodes": entry.nodes, "num_relations": max(entry.relations, 1)}
    sizes |= {"out": entry.classes} if entry.classes and task != "link" else {}
    plain = {name: value for name, value in model.items() if name == "name" or not isinstance(value, str)}
    try:
        return _parameters(_skeleton(model, task, sizes))
    except Exception:
        if plain == model:
            raise
    weights = _parameters(_skeleton(plain, task, sizes))
    if weights <= BUILD_LIMIT:
        _skeleton(model, task, {"out": sizes.get("out", 2)}, "cpu")
    return weights


def _parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _check_amount(key: Mapping[str, Any]) -> None:
    dataset, forget = key["dataset"], key["forget"]
    kind, amount, steps = forget["kind"], forget["amount"], forget["steps"]
    noun, most = kind.removesuffix("s"), _available(describe(dataset), kind, key["task"], key["split"])
    count = amount if isinstance(amount, int) else round(amount * most)
    if count > most:
        raise SettingError(
            f"'forget.amount': {counted(amount, noun)} are more than there are to learn from in '{dataset}' (at most "
            f"{most:,}); ask for fewer, or for a share such as 0.05"
        )
    if kind in ("edges", "nodes") and count == most:
        raise SettingError(
            f"'forget.amount': {amount:,} is all there is to learn from in '{dataset}' (at most {counted(most, noun)}), and "
            "a deletion has to leave some of it; ask for fewer"
        )
    if count < 1:
        raise SettingError(
            f"'forget.amount': a share of {amount} is not one {noun} of '{dataset}' (at most {counted(most, noun)}); ask for "
            "more, or for a whole number"
        )
    if steps > count:
        few = counted(count, noun) if isinstance(amount, int) else f"{measured(amount, kind)} ({count:,})"
        raise SettingError(
            f"'forget.steps': {few} cannot be deleted in {steps} steps; ask for fewer steps, or delete more"
        )


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
    # typed graphs may have a few loops, which are neither split off nor deleted
    totals = range(max(total - 99, 0) if entry.typed else total, total + 1)
    return max(size - sum(int(split[part] * size) for part in ("val", "test")) for size in totals)


def _check_layers(cell: Cell) -> None:
    names, model = cell.key["method"].get("layers"), cell.key["model"]
    if not isinstance(names, list):
        return
    skeleton = _skeleton(model, cell.key["task"])
    known = {name for name, _ in skeleton.named_modules()}
    for name in names:
        if name not in known:
            raise SettingError(
                f"'layers' of method '{cell.label}': the model '{model['name']}' has no module '{name}'; take all, last or "
                f"names among {some(graph_layers(skeleton), 10)}, or keep the method to other models with only: {{models: […]}}"
            )


def _skeleton(
    model: Mapping[str, Any], task: str, sizes: Mapping[str, int] | None = None, device: str = "meta"
) -> nn.Module:
    """The model of a key without memory for its weights; what the graph decides is small unless ``sizes`` say otherwise."""
    factory = model_factory(models.lookup_dict[model["name"]], task)
    takes = inspect.signature(factory).parameters
    from_graph = {"in_channels": 1, "num_nodes": 1, "num_relations": 1, "out": 2}
    options = {name: size for name, size in from_graph.items() if name in takes} | defaults(factory)
    options |= {name: size for name, size in (sizes or {}).items() if name in takes}
    options |= {name: value for name, value in model.items() if name != "name"}
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about tensors without elements
        made: nn.Module = factory(**options)
    return made
