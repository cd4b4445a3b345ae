"""Experiment files: the settings of a YAML file, the checks on them, and where the shipped files are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gnndelete.bench.dataset_names import describe, identity, with_digest
from gnndelete.bench.published import parts
from gnndelete.bench.words import measured
from gnndelete.datasets.registry import ENTRIES, Entry
from gnndelete.errors import SettingError, some, unknown
from gnndelete.io.yaml import read_yaml

#: What can be measured in a cell, in the order in which a key lists it.
MEASURES = ("scores", "unseen", "mi", "outliers", "time")

#: The lam at which a deletion is timed where the method would calibrate it.
TIMED_LAM = 0.5

#: The seeds of the paper's authors; ``--seeds N`` takes the first N.
SEEDS = [42, 21, 13, 87, 100]

#: The attacker's network and the outlier detector are seeded through numpy, whose seeds stay below this.
SEED_LIMIT = 2**32

_T = TypeVar("_T")


# Values. Each validator accepts a value unchanged or says what to write instead.


def _rule(accepts: Callable[[Any], bool], write: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if not accepts(value):
            raise ValueError(f"write {write} (got {value!r})")
        return value

    return BeforeValidator(check)


def _integer(least: int, most: int) -> BeforeValidator:
    return _rule(
        lambda value: type(value) is int and least <= value <= most, f"a whole number from {least} to {most:,}"
    )


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _check_choice(value: Any, names: Iterable[str]) -> Any:
    if isinstance(value, str) and value not in names:
        raise ValueError(unknown("there is no", value, names))
    if value not in names:
        raise ValueError(f"write one of {', '.join(names)} (got {value!r})")
    return value


def _one_of(*names: str) -> BeforeValidator:
    return BeforeValidator(lambda value: _check_choice(value, names))


def _kind(value: Any) -> Any:
    from gnndelete.graph.kinds import KINDS

    return _check_choice(value, list(KINDS))


def _no_repeats(values: list[_T]) -> list[_T]:
    """Refuse a repeated value. 1 is a number of elements and 1.0 a share, so the two differ."""
    known = []
    for value in values:
        if (type(value), value) in known:
            raise ValueError(f"{value!r} is there twice; leave one of them out")
        known.append((type(value), value))
    return values


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _as_named(value: Any) -> Any:
    """A plain word is short for a name without options."""
    return [{"name": item} if isinstance(item, str) else item for item in _as_list(value)]


def _title(value: str) -> str:
    if not value.strip():
        raise ValueError(f"write what the experiment is (got {value!r})")
    return value


def _label(value: str) -> str:
    """Accept a label that ``--only`` can name: that option separates labels by commas."""
    clean = ", ".join(part for part in (" ".join(part.split()) for part in value.split(",")) if part)
    if not clean:
        raise ValueError(f"write what tables are to call the method (got {value!r}), or leave it out")
    if clean != value:
        raise ValueError(f"write {clean!r}, with single spaces, so that --only can name it (got {value!r})")
    return value


Flag = Annotated[bool, _rule(lambda value: isinstance(value, bool), "true or false")]
Name = Annotated[str, _rule(lambda value: isinstance(value, str), "a name")]
Text = Annotated[str, _rule(lambda value: isinstance(value, str), "text, in quotes where YAML reads something else")]
Title = Annotated[Text, AfterValidator(_title)]
Label = Annotated[Text, AfterValidator(_label)]
Count = Annotated[int, _integer(1, 10**7)]
BatchSize = Annotated[int, _integer(1, 10**9)]
Seed = Annotated[int, _integer(0, 2**63 - 1)]
Rate = Annotated[float, _rule(lambda value: _number(value) and value > 0, "a number above 0, such as 0.001")]
Decay = Annotated[float, _rule(lambda value: _number(value) and value >= 0, "a number from 0 on, such as 0.0005")]
Share = Annotated[
    float, _rule(lambda value: type(value) is float and 0 < value < 1, "a share above 0 and below 1, such as 0.05")
]
Amount = Annotated[
    int | float,
    _rule(
        lambda value: (type(value) is int and value >= 1) or (type(value) is float and 0 < value <= 1),
        "a share above 0 and up to 1.0, such as 0.05, or a whole number of at least 1",
    ),
]
Dataset = Annotated[Name, AfterValidator(with_digest)]
Where = Annotated[str, _one_of("random", "in", "out", "hubs", "community", "anywhere")]

#: For lists of which nothing may be there twice.
NO_REPEATS = AfterValidator(_no_repeats)


# The parts of a file.


@dataclass(frozen=True)
class TaskRules:
    """What an experiment may ask of a task, apart from what the dataset decides."""

    divides: str  # what its split divides: edges, nodes or graphs
    shares: Mapping[str, float]  # the default split
    rest: str  # the part that gets what the shares leave
    lacks: tuple[str, ...]  # kinds of elements that it has nothing of


TASKS = {
    "link": TaskRules("edges", {"val": 0.05, "test": 0.05}, "train", lacks=("labels", "graphs")),
    "node": TaskRules("nodes", {"train": 0.9, "val": 0.05}, "test", lacks=("graphs",)),
    "graph": TaskRules("graphs", {"train": 0.8, "val": 0.1}, "test", lacks=("labels",)),
}


class Part(BaseModel):
    """A part of an experiment file; an unknown name is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Schedule(Part):
    """How base models, retrained models and shadow models are trained: the options of `gnndelete.train`."""

    epochs: Count = 1000
    lr: Rate = 1e-3
    weight_decay: Decay = 0.0
    patience: Count | None = None
    validate_every: Count = 10
    batch_size: BatchSize | None = None


class Split(Part):
    """Shares that are drawn from the seed of a cell; ``given`` takes the split that came with the dataset instead."""

    given: Flag = False
    train: Share | None = None
    val: Share | None = None
    test: Share | None = None

    def shares(self, task: str) -> dict[str, Any]:
        """The split of a task with its defaults filled in, as it stands in a key."""
        named = self.model_dump(exclude_none=True, exclude={"given"})
        rules = TASKS[task]
        if self.given and named:
            _refuse(f"'split.{next(iter(named))}' cannot be set for a split that is given; leave one of them out")
        if self.given:
            return {"given": True}
        if rules.rest in named:
            _refuse(f"'split.{rules.rest}' is what the other parts leave in a task '{task}'; leave it out")
        shares = {**rules.shares, **named}
        if sum(shares.values()) >= 1:
            written = " and ".join(f"{name} {share:g}" for name, share in shares.items())
            _refuse(f"'split': {written} leave nothing for '{rules.rest}'; together they must be below 1")
        return shares


class Forget(Part):
    """What is deleted: every combination of ``where`` and ``amount``, in ``steps`` requests that follow each other.

    ``where`` and ``hops`` are for edges: ``in`` and ``out`` of the neighbourhood of test edges, ``anywhere`` also in
    graphs that were not trained on. Features are those of nodes or, in a task on graphs, of all nodes of ``amount`` graphs.
    """

    kind: Annotated[str, BeforeValidator(_kind)] = "edges"
    where: Annotated[list[Where], BeforeValidator(_as_list), Field(min_length=1), NO_REPEATS] = ["random"]
    amount: Annotated[list[Amount], BeforeValidator(_as_list), Field(min_length=1), NO_REPEATS]
    hops: Annotated[str, _one_of("undirected", "directed")] = "undirected"
    steps: Count = 1

    @model_validator(mode="after")
    def _edges_only(self) -> Forget:
        if self.kind != "edges" and self.where != ["random"]:
            _refuse(f"'forget.where' is for edges, and {self.kind} are drawn at random; leave it out")
        return self

    def grid(self) -> list[dict[str, Any]]:
        """Each combination with all settings that it depends on, and no others."""
        return [
            {
                "kind": self.kind,
                "where": where,
                "amount": amount,
                "hops": self.hops if where in ("in", "out") else "undirected",
                "steps": self.steps,
            }
            for where, amount in product(self.where, self.amount)
        ]


class Only(Part):
    """The cells that a method is for, where it is not for all of them."""

    datasets: Annotated[list[Dataset], NO_REPEATS] | None = None
    models: Annotated[list[Name], NO_REPEATS] | None = None
    where: Annotated[list[Where], NO_REPEATS] | None = None
    amount: Annotated[list[Amount], NO_REPEATS] | None = None

    def allows(self, dataset: str, model: str, forget: Mapping[str, Any]) -> bool:
        """Whether a cell of these is one that the method is for."""
        pairs = ((self.datasets, dataset), (self.models, model), (self.where, forget["where"]))
        return all(chosen is None or value in chosen for chosen, value in (*pairs, (self.amount, forget["amount"])))


class MethodSpec(Part):
    """A method; every further name is one of its parameters. ``preset`` names a constructor such as ``paper``."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: Name
    label: Label = ""
    only: Only = Only()

    @model_validator(mode="after")
    def _training_numbers(self) -> MethodSpec:
        """Hold numbers of training that a method is given to the same rules as those of the schedule."""
        numbers = {name: value for name, value in self.parameters.items() if type(value) in (int, float)}
        try:
            Schedule.model_validate({name: value for name, value in numbers.items() if name in Schedule.model_fields})
        except ValidationError as error:
            problem = error.errors()[0]
            _refuse(f"'{problem['loc'][0]}' of method '{self.title}': {problem['ctx']['error']}")
        return self

    @property
    def title(self) -> str:
        return self.label or self.name

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ModelSpec(Part):
    """A model; every further name is one of its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: Name

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Experiment(Part):
    """A table or a figure: which cells belong to it.

    ``missing`` says why a dataset may be absent. ``summary: false`` is for trainings that are too short for their
    scores, or for the time of Retrain, to count in the summary.
    """

    name: str
    title: Title
    about: Text = ""
    published: Name | None = None
    task: Annotated[str, _one_of(*TASKS)]
    datasets: Annotated[list[Dataset], Field(min_length=1), NO_REPEATS]
    models: Annotated[list[ModelSpec], BeforeValidator(_as_named), Field(min_length=1)]
    split: Split = Split()
    train: Schedule = Schedule()
    forget: Annotated[list[Forget], BeforeValidator(_as_list), Field(min_length=1)]
    methods: Annotated[list[MethodSpec], BeforeValidator(_as_named), Field(min_length=1)]
    measures: Annotated[list[Annotated[str, _one_of(*MEASURES)]], Field(min_length=1), NO_REPEATS] = [
        "scores",
        "unseen",
    ]
    seeds: Annotated[list[Seed], Field(min_length=1), NO_REPEATS] = SEEDS
    missing: dict[Dataset, Text] = Field(default_factory=dict)
    summary: Flag = True

    @property
    def forget_sets(self) -> list[dict[str, Any]]:
        """Everything that is deleted, each as it stands in a key."""
        return [item for part in self.forget for item in part.grid()]

    @model_validator(mode="after")
    def _check_names(self) -> Experiment:
        titles = [method.title for method in self.methods]
        for title in titles:
            if titles.count(title) > 1:
                _refuse(f"two methods are called '{title}'; give one of them another label")
            if title == "original":
                _refuse("a method is called 'original', which is the name of the model before the deletion; relabel it")
            if title.startswith("_"):
                _refuse(f"a method is called '{title}', and figures leave such names out; give it another label")
        for name in self.missing:
            if name not in self.datasets:
                _refuse(f"'missing' names '{name}', which is none of the datasets; leave it out")
        if self.published is not None and self.published not in parts():
            _refuse(unknown("'published': no part of the paper is called", self.published, parts()))
        asked = self.forget_sets
        named = [f"{measured(item['amount'], item['kind'])} ({item['where']})" for item in asked]
        refuse_repeats("forget", list(zip(named, map(json.dumps, asked), strict=True)))  # in JSON 1 is not 1.0
        refuse_repeats("datasets", [(f"'{name}'", identity(name)) for name in self.datasets])
        return self

    @model_validator(mode="after")
    def _check_only(self) -> Experiment:
        """Refuse a method that is only for what the experiment does not have: it would silently get no cell."""
        present: dict[str, list[Any]] = {
            "datasets": self.datasets,
            "models": [model.name for model in self.models],
            "where": [where for part in self.forget for where in part.where],
            "amount": [amount for part in self.forget for amount in part.amount],
        }
        for method in self.methods:
            for what, known in present.items():
                for value in getattr(method.only, what) or ():
                    if value not in known:
                        _refuse(
                            f"'only.{what}' of method '{method.title}' names {value!r}, which the experiment does not "
                            f"have; it has {', '.join(map(str, dict.fromkeys(known)))}"
                        )
        return self

    @model_validator(mode="after")
    def _check_task(self) -> Experiment:
        """Refuse what the task has nothing for."""
        rules = TASKS[self.task]
        self.split.shares(self.task)
        for forget in self.forget:
            near = [where for where in forget.where if where in ("in", "out")]
            if forget.kind in rules.lacks:
                _refuse(f"'forget.kind': task '{self.task}' has no {forget.kind} to delete; take another kind")
            if near and rules.divides != "edges":
                _refuse(
                    f"'forget.where': {near[0]} is relative to test edges, and task '{self.task}' has none; take random"
                )
            if forget.steps > 1 and "time" in self.measures:
                _refuse(
                    f"'measures': time is that of one request, and 'forget.steps' is {forget.steps}; leave one of them out"
                )
        large = [seed for seed in self.seeds if seed >= SEED_LIMIT]
        seeded = [measure for measure in self.measures if measure in ("mi", "outliers")]
        if large and seeded:
            _refuse(
                f"'seeds': {large[0]} is too large for the measure '{seeded[0]}', whose seeds go up to {SEED_LIMIT - 1}; "
                "take another seed, or leave the measure out"
            )
        return self

    @model_validator(mode="after")
    def _check_datasets(self) -> Experiment:
        """Refuse a task or a deletion that a dataset has nothing for."""
        kinds = {forget.kind for forget in self.forget}
        for dataset in self.datasets:
            entry = describe(dataset)
            self._check_dataset(dataset, entry, TASKS[self.task])
            if "features" in kinds and not entry.features:
                _refuse(f"'forget.kind': '{dataset}' has no features of nodes to delete; take another kind")
            if "relations" in kinds and not entry.typed:
                _refuse(f"'forget.kind': '{dataset}' has no relations to delete; take another kind or a typed dataset")
        return self

    def _check_dataset(self, dataset: str, entry: Entry, rules: TaskRules) -> None:
        if (entry.graphs > 1) != (rules.divides == "graphs"):
            what = "many graphs" if entry.graphs > 1 else "one graph"
            _refuse(f"'{dataset}' is {what}, and the task is '{self.task}'; choose another dataset or task")
        if rules.divides == "nodes" and not entry.classes:
            _refuse(
                f"'{dataset}' has no classes of nodes, and the task is '{self.task}'; choose another dataset or task"
            )
        if self.split.given and entry.split_for != self.task:
            others = some(other.name for other in ENTRIES.values() if other.split_for == self.task)
            _refuse(
                f"'split.given': '{dataset}' came without a split for task '{self.task}'; leave 'given' out, or take a "
                f"dataset that has one ({others})"
            )


# What is wrong with a file, in sentences.


def _refuse(sentence: str) -> NoReturn:
    """Refuse a file with a sentence that names the setting itself; other errors are put behind the name of theirs."""
    raise SettingError(sentence)


def refuse_repeats(what: str, entries: Sequence[tuple[str, Any]]) -> None:
    """Refuse two entries of a list, each with how it is written, that mean the same once defaults are filled in."""
    for i, (name, meaning) in enumerate(entries):
        for other, known in entries[:i]:
            if known == meaning:
                same = f"{name} is there twice" if name == other else f"{other} and {name} are the same"
                _refuse(f"'{what}': {same}; leave one of them out")


#: How a setting is written, by its name or, where two have one name, by its path.
_EXAMPLES = {
    "title": "My first deletion",
    "task": "link",
    "datasets": "[digits]",
    "models": "[gcn, {name: gin, hidden: 64}]",
    "split": "{val: 0.05, test: 0.05}",
    "train": "{epochs: 1000, lr: 0.001}",
    "forget": "{amount: 0.05}",
    "methods": "[retrain, {name: gnndelete, label: mine}]",
    "measures": "[scores, unseen]",
    "seeds": "[42, 21]",
    "missing": "{cora: it has to be downloaded}",
    "only": "{models: [gcn]}",
    "methods.only.models": "[gcn]",
    "where": "[random]",
    "amount": "[0.05]",
}

#: The settings of every part that refuses unknown names.
_SETTINGS: dict[str, Iterable[str]] = {
    "": [name for name in Experiment.model_fields if name != "name"],
    "forget": Forget.model_fields,
    "only": Only.model_fields,
    "train": Schedule.model_fields,
    "split": Split.model_fields,
}


def _explain(error: ValidationError) -> str:
    """Unknown settings; if there are none, the settings that are missing and the first three mistakes."""
    problems = [(problem, [part for part in problem["loc"] if isinstance(part, str)]) for problem in error.errors()]
    strangers = [path for problem, path in problems if problem["type"] == "extra_forbidden"]
    if strangers:
        return "; ".join(_unknown_setting(path) for path in strangers[:3])
    missing = [path for problem, path in problems if problem["type"] == "missing"]
    wrong = [_sentence(problem, path) for problem, path in problems if problem["type"] != "missing"]
    if not missing:
        return "; ".join(wrong[:3])
    names = ", ".join(f"'{'.'.join(path)}'" for path in missing)
    examples = ", ".join(f"{top}: {_EXAMPLES[top]}" for top in dict.fromkeys(path[0] for path in missing))
    return "; ".join([f"it lacks {names}; write, for example, {examples}", *wrong[:3]])


def _unknown_setting(path: Sequence[str]) -> str:
    *parts, name = path
    return unknown("there is no setting", name, _SETTINGS[parts[-1] if parts else ""], ".".join([*parts, ""]))


def _sentence(problem: Any, path: Sequence[str]) -> str:
    place = f"'{'.'.join(path)}'"
    if problem["type"] == "value_error":
        reason = problem["ctx"]["error"]
        return f"{place}: {reason}" if path and not isinstance(reason, SettingError) else str(reason)
    if problem["type"] == "too_short":
        return f"{place} is an empty list; name at least one"
    example = _EXAMPLES.get(".".join(path)) or _EXAMPLES.get(path[-1] if path else "", "a name")
    return f"{place}: write, for example, {example} (got {problem['input']!r})"


# Where experiments are found.


def folder() -> Path:
    """The folder of the shipped experiments: ``experiments`` of a checkout, else inside the package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1]
    shipped = checkout if (checkout / "pyproject.toml").is_file() else package
    return shipped / "experiments"


def names() -> list[str]:
    """The names of all shipped experiments.

    >>> "paper/link-dblp" in names()
    True
    """
    root = folder()
    return sorted(str(path.relative_to(root).with_suffix("")) for path in root.glob("*/*.yaml"))


def groups() -> list[str]:
    """The groups of the shipped experiments.

    >>> groups()
    ['beyond', 'paper']
    """
    return sorted({name.partition("/")[0] for name in names()})


def read(name: str) -> Experiment:
    """A shipped experiment by its name, or an experiment from a YAML file.

    >>> read("paper/link-dblp").task
    'link'
    """
    is_file = name.endswith((".yaml", ".yml"))
    path = Path(name) if is_file else folder() / f"{name}.yaml"
    if not is_file and name not in names():
        known = [*groups(), *names()]
        raise SettingError(f"{unknown('there is no experiment', name, known)} (a file of your own ends with .yaml)")
    values = read_yaml(path, "settings such as title:, task:, datasets:")
    try:
        return Experiment.model_validate({**values, "name": path.stem if is_file else name})
    except ValidationError as error:
        raise SettingError(f"the experiment '{path}': {_explain(error)}") from None


def find(wanted: Iterable[str]) -> list[Experiment]:
    """Experiments by name, by group (``paper``) or from files, each once; all shipped ones where none is named.

    >>> [experiment.name for experiment in find(["paper/link-dblp", "paper/link-dblp"])]
    ['paper/link-dblp']
    """
    known = names()
    chosen: list[str] = []
    for name in list(wanted) or known:
        group = [other for other in known if other.startswith(f"{name.rstrip('/')}/")]
        chosen += group or [name]
    return [read(name) for name in dict.fromkeys(chosen)]
