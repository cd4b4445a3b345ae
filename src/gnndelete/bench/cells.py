"""Cells: the smallest pieces of an experiment, each described by a key that holds everything its numbers depend on."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gnndelete.bench.experiment import MEASURES, Experiment, MethodSpec, ModelSpec
from gnndelete.bench.fitting import check_fit
from gnndelete.bench.repeated import check_apart, written
from gnndelete.bench.sound import about, check_sound
from gnndelete.bench.words import measured
from gnndelete.errors import SettingError, unknown
from gnndelete.methods import CONTROLS, Method, RetrainAgain
from gnndelete.methods import resolver as methods
from gnndelete.models import resolver as models
from gnndelete.models.from_graph import FROM_GRAPH, defaults, model_factory
from gnndelete.parameters import check_parameters

#: Changes when what a row means does; rows of another format are other cells.
FORMAT = 1

#: Settings that methods did not have when rows were first kept, and what they did then: that is no part of a key.
LATER: dict[str, dict[str, Any]] = {"gnndelete": {"inputs": "remaining"}}

#: What the base model of a cell depends on.
_BASE = ("format", "device", "dataset", "task", "split", "model", "train", "seed")


@dataclass(frozen=True)
class Cell:
    """One (dataset, model, schedule, split, forget set, method, measures, seed); ``label`` is what a table calls the method."""

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
        """The key of the attacker's shadow model, where the cell needs one: all methods are attacked by the same."""
        return {**self.base, "forget": self.key["forget"], "shadow": 1} if "mi" in self.key["measures"] else None

    @property
    def alone(self) -> bool:
        """Whether nothing else may run beside it."""
        return "time" in self.key["measures"]

    def __str__(self) -> str:
        return f"{title(self.key)}: {self.label}"


def title(key: Mapping[str, Any]) -> str:
    """What a key is about, in a few words; of a model's options those that are not its defaults."""
    given = unusual(key["model"], key["task"])
    words = [key["dataset"], key["model"]["name"], *((f"({given})",) if given else ())]
    if "forget" in key:
        forget = key["forget"]
        where = forget["where"].upper() if forget["where"] != "random" else ""
        steps = f"in {forget['steps']} steps" if forget["steps"] > 1 else ""
        words += [word for word in (measured(forget["amount"], forget["kind"]), where, steps) if word]
    return " ".join([*words, f"seed {key['seed']}"])


def unusual(model: Mapping[str, Any], task: str) -> str:
    """The options of a model in which it is not the usual one of its name.

    >>> unusual({"name": "gin", "hidden": 32, "num_layers": 2}, "link")
    'hidden 32'
    """
    kind = models.lookup_dict.get(model["name"])
    usual = {"name": model["name"], **(defaults(model_factory(kind, task)) if kind else {})}
    given = [name for name, value in model.items() if name not in usual or usual[name] != value]
    return ", ".join(f"{name.replace('_', ' ')} {model[name]}" for name in given)


def digest(key: Mapping[str, Any]) -> str:
    """A short name of a key, the same in every process.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def cells(experiment: Experiment, device: str = "cpu", seeds: int | None = None) -> list[Cell]:
    """Every cell of an experiment, each once; ``seeds`` takes the first so many.

    >>> from gnndelete.bench.experiment import read
    >>> len(cells(read("paper/lambda"), seeds=1))
    7
    """
    check_sound(experiment)
    schedule = experiment.train.model_dump()
    with about(experiment):
        split = experiment.split.effective(experiment.task)
        models = [(model, _model_key(model, experiment.task)) for model in experiment.models]
        check_apart("models", [(written(model.model_dump()), key) for model, key in models])
        chosen = {
            vectors: [(spec, _method_key(spec, schedule, experiment.task, vectors)) for spec in experiment.methods]
            for vectors in (False, True)
        }
    measured = [name for name in MEASURES if name in experiment.measures]
    forget_sets = [item for part in experiment.forget for item in part.grid()]
    found: dict[str, Cell] = {}
    used: set[str] = set()
    for dataset in experiment.datasets:
        for seed in experiment.seeds[:seeds]:
            for model, model_key in models:
                base = {
                    "format": FORMAT,
                    "device": device,
                    "dataset": dataset,
                    "task": experiment.task,
                    "split": split,
                    "model": model_key,
                    "train": schedule,
                    "seed": seed,
                }
                for forget in forget_sets:
                    for spec, method in chosen[_has_vectors(model.name, experiment.task)]:
                        if _wanted(spec, dataset, model, forget):
                            key = {**base, "forget": forget, "method": method, "measures": measured}
                            cell = Cell(spec.title, key)
                            _check_alone(experiment, found.setdefault(cell.digest, cell), cell)
                            used.add(spec.title)
    idle = [spec.title for spec in experiment.methods if spec.title not in used]
    if idle:
        raise SettingError(
            f"the experiment '{experiment.name}': 'only' of method '{idle[0]}' leaves it no cell; no cell has all of that"
        )
    with about(experiment):
        check_fit(found.values())
    return list(found.values())


def _check_alone(experiment: Experiment, first: Cell, cell: Cell) -> None:
    """Refuse two methods with one cell: it would have the label of the first, and the second would have no row."""
    if first is not cell:
        raise SettingError(
            f"the experiment '{experiment.name}': methods '{first.label}' and '{cell.label}' have the same settings, defaults "
            "filled in; leave one of them out, or give each cells of its own with 'only'"
        )


def make_method(key: Mapping[str, Any]) -> Method:
    """The method of a cell, from the settings in its key.

    >>> make_method({"name": "gnndelete", "lam": 0.2}).lam
    0.2
    """
    kind = _method_class(key["name"])
    takes = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in key.items() if name in takes})


def _wanted(spec: MethodSpec, dataset: str, model: ModelSpec, forget: Mapping[str, Any]) -> bool:
    only = spec.only
    pairs = ((only.datasets, dataset), (only.models, model.name), (only.where, forget["where"]))
    return all(allowed is None or value in allowed for allowed, value in (*pairs, (only.amount, forget["amount"])))


def _method_class(name: str) -> type[Method]:
    controls: tuple[type[Method], ...] = (*CONTROLS, RetrainAgain)
    known = {**methods.lookup_dict, **{control.name: control for control in controls}}
    if name not in known:
        raise SettingError(unknown("there is no method", name, sorted(known)))
    return known[name]


def _method_key(spec: MethodSpec, schedule: Mapping[str, Any], task: str, vectors: bool) -> dict[str, Any]:
    """The name and all effective settings; a method that trains takes the schedule where nothing else is said.

    The rule by which a method decides for itself is there too, from its second version on. Settings that came `LATER`
    are left out at the value they had before.
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
    rule, later = method.rule(task, vectors), LATER.get(kind.name, {})
    settings = {name: value for name, value in method.settings().items() if name not in later or later[name] != value}
    return {"name": kind.name, **settings, **({"rule": rule} if rule > 1 else {})}


def _has_vectors(name: str, task: str) -> bool:
    """Whether a model trains a vector per node: then it has to know how many there are."""
    return "num_nodes" in inspect.signature(model_factory(models.lookup_dict[name], task)).parameters


def search_rule(method: Mapping[str, Any], task: str, model: str) -> int:
    """The rule of the search for lam that a cell of GNNDelete takes the time of, also where its own lam is fixed."""
    searching = make_method({**method, "lam": "auto", "inputs": "remaining"})
    return searching.rule(task, _has_vectors(model, task))


def _model_key(spec: ModelSpec, task: str) -> dict[str, Any]:
    """The name and all options but those that the graph decides."""
    if spec.name not in models.lookup_dict:
        raise SettingError(unknown("there is no model", spec.name, sorted(models.lookup_dict)))
    factory = model_factory(models.lookup_dict[spec.name], task)
    takes = inspect.signature(factory).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    for name in spec.options:
        if name not in takes and not open_ended:
            raise SettingError(unknown(f"model '{spec.name}' has no option", name, takes, prefix="models."))
    own = inspect.signature(models.lookup_dict[spec.name]).parameters
    sizes = {name: 1 for name, parameter in own.items() if parameter.default is parameter.empty}
    given = {name: value for name, value in spec.options.items() if name in own}
    check_parameters(models.lookup_dict[spec.name], sizes | given, f"model '{spec.name}'", "models.")
    decided = (*FROM_GRAPH, *(("out",) if task in ("node", "graph") else ()))
    plain = {name: value for name, value in defaults(factory).items() if name not in decided}
    return {"name": spec.name, **plain, **spec.options}
