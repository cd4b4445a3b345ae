"""Experiments as data: the schema of a YAML file, and where such files are found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gnndelete.bench.mistakes import sentences
from gnndelete.bench.own import stamped
from gnndelete.bench.repeated import check_apart, check_names
from gnndelete.bench.values import (
    ONCE,
    Amount,
    Batch,
    Count,
    Decay,
    Flag,
    Label,
    Rate,
    Seed,
    Share,
    Text,
    Title,
    many,
    named,
)
from gnndelete.bench.words import measured
from gnndelete.errors import SettingError, unknown
from gnndelete.io.yaml import read_yaml

Kind = Literal["edges", "nodes", "features", "labels", "graphs", "relations"]
Where = Literal["random", "in", "out", "hubs", "community", "anywhere"]
Measure = Literal["scores", "unseen", "mi", "outliers", "time"]
MEASURES: tuple[str, ...] = get_args(Measure)

#: The name of a dataset, or the path of a graph of one's own: where a file is read, with a digest of what lies there.
Dataset = Annotated[str, AfterValidator(stamped)]

#: The lam of a deletion at a fixed lam that is timed, where the method itself calibrates.
TIMED_LAM = 0.5

#: The paper's authors' seeds; ``--seeds N`` takes the first N.
SEEDS = [42, 21, 13, 87, 100]


class Part(BaseModel):
    """A part of an experiment; a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Schedule(Part):
    """How base models, retrained ones and shadow models are trained: the options of `gnndelete.train`."""

    epochs: Count = 1000
    lr: Rate = 1e-3
    weight_decay: Decay = 0.0
    patience: Count | None = None
    validate_every: Count = 10
    batch_size: Batch | None = None


class Split(Part):
    """Shares that are drawn from the seed of a cell; ``given`` takes the split that came with the dataset instead."""

    given: Flag = False
    train: Share | None = None
    val: Share | None = None
    test: Share | None = None

    def effective(self, task: str) -> dict[str, Any]:
        """All that the split of a task depends on."""
        named = {name: getattr(self, name) for name in ("train", "val", "test") if getattr(self, name) is not None}
        if self.given:
            if named:
                raise SettingError(
                    f"'split.{next(iter(named))}' has no part in a split that is given; leave one of them out"
                )
            return {"given": True}
        usual = _SPLITS[task]
        stray = [name for name in named if name not in usual]
        if stray:
            raise SettingError(f"'split.{stray[0]}' is what the other parts leave in a task '{task}'; leave it out")
        whole = {**usual, **named}
        if sum(whole.values()) >= 1:
            parts = " and ".join(f"{name} {share:g}" for name, share in whole.items())
            rest = next(name for name in ("train", "test") if name not in whole)
            raise SettingError(f"'split': {parts} leave nothing for '{rest}'; together they must be below 1")
        return whole


_SPLITS = {
    "link": {"val": 0.05, "test": 0.05},
    "node": {"train": 0.9, "val": 0.05},
    "graph": {"train": 0.8, "val": 0.1},
}


class Forget(Part):
    """What is deleted: every combination of ``where`` and ``amount``, in ``steps`` requests that follow each other.

    ``where`` and ``hops`` are for edges: ``in`` and ``out`` of the test edges' neighbourhood, ``anywhere`` also in graphs
    that were not trained on. Features are those of nodes or, in a task on graphs, of all nodes of ``amount`` graphs.
    """

    kind: Kind = "edges"
    where: Annotated[list[Where], BeforeValidator(many), Field(min_length=1), ONCE] = ["random"]
    amount: Annotated[list[Amount], BeforeValidator(many), Field(min_length=1), ONCE]
    hops: Literal["undirected", "directed"] = "undirected"
    steps: Count = 1

    @model_validator(mode="after")
    def _place(self) -> Forget:
        if self.kind != "edges" and self.where != ["random"]:
            raise ValueError(f"'forget.where' is for edges, and {self.kind} are drawn at random; leave it out")
        return self

    def grid(self) -> list[dict[str, Any]]:
        """Each combination with all that it depends on, and nothing that it does not."""
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
    """Cells that a method is for, where it is not for all: slow ones at one amount, models of their own only once."""

    datasets: Annotated[list[Dataset], ONCE] | None = None
    models: Annotated[list[str], ONCE] | None = None
    where: Annotated[list[Where], ONCE] | None = None
    amount: Annotated[list[Amount], ONCE] | None = None


class MethodSpec(Part):
    """A method; every further name is one of its parameters. ``preset`` names a constructor such as ``paper``."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str
    label: Label = ""
    only: Only = Only()

    @model_validator(mode="after")
    def _training(self) -> MethodSpec:
        """Numbers of training that a method has for itself are held to what `Schedule` takes."""
        numbers = {name: value for name, value in self.parameters.items() if type(value) in (int, float)}
        own = {name: value for name, value in numbers.items() if name in Schedule.model_fields}
        try:
            Schedule.model_validate(own)
        except ValidationError as error:
            said = sentences(error.errors()[:1], {}).replace("': ", f"' of method '{self.title}': ", 1)
            raise ValueError(said) from None
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
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Experiment(Part):
    """A table or a figure: which cells belong to it. ``missing`` says why a dataset may not be here.

    Without ``summary`` its training is too short for its scores and for Retrain's time to answer for a dataset.
    """

    name: str
    title: Title
    about: Text = ""
    published: str | None = None
    task: Literal["link", "node", "graph"]
    datasets: Annotated[list[Dataset], Field(min_length=1), ONCE]
    models: Annotated[list[ModelSpec], BeforeValidator(named), Field(min_length=1)]
    split: Split = Split()
    train: Schedule = Schedule()
    forget: Annotated[list[Forget], BeforeValidator(many), Field(min_length=1)]
    methods: Annotated[list[MethodSpec], BeforeValidator(named), Field(min_length=1)]
    measures: Annotated[list[Measure], Field(min_length=1), ONCE] = ["scores", "unseen"]
    seeds: Annotated[list[Seed], Field(min_length=1), ONCE] = SEEDS
    missing: dict[Dataset, Text] = Field(default_factory=dict)
    summary: Flag = True

    @model_validator(mode="after")
    def _distinct(self) -> Experiment:
        titles = [method.title for method in self.methods]
        for title in titles:
            if titles.count(title) > 1:
                raise ValueError(f"two methods are called '{title}'; give one of them a label of its own")
        if "original" in titles or any(title.startswith("_") for title in titles):
            odd = next(title for title in titles if title == "original" or title.startswith("_"))
            why = (
                "the model before the deletion goes by that name"
                if odd == "original"
                else "figures leave such names out"
            )
            raise ValueError(f"a method is called '{odd}', and {why}; give it another label")
        stray = [name for name in self.missing if name not in self.datasets]
        if stray:
            raise ValueError(f"'missing' names '{stray[0]}', which is none of the datasets")
        asked = [item for part in self.forget for item in part.grid()]
        named = [f"{measured(item['amount'], item['kind'])} ({item['where']})" for item in asked]
        check_apart("forget", list(zip(named, map(json.dumps, asked), strict=True)))  # where 1 is not 1.0
        return self

    @model_validator(mode="after")
    def _restricted(self) -> Experiment:
        """A method that is only for what the experiment does not have would be left out without a word."""
        here: dict[str, list[Any]] = {
            "datasets": self.datasets,
            "models": [model.name for model in self.models],
            "where": [where for part in self.forget for where in part.where],
            "amount": [amount for part in self.forget for amount in part.amount],
        }
        for method in self.methods:
            for what, known in here.items():
                stray = [value for value in getattr(method.only, what) or () if value not in known]
                if stray:
                    raise ValueError(
                        f"'only.{what}' of method '{method.title}' names {stray[0]!r}, which the experiment does not have; "
                        f"it has {', '.join(map(str, dict.fromkeys(known)))}"
                    )
        return self


#: The settings of an experiment and of its parts.
_PARTS = {"": Experiment.model_fields, "forget": Forget.model_fields, "only": Only.model_fields}
_PARTS |= {"train": Schedule.model_fields, "split": Split.model_fields}


def folder() -> Path:
    """Where the experiments that come with the package are: beside ``src`` in a checkout, else inside the package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1] / "experiments"
    return (
        checkout if (package.parents[1] / "pyproject.toml").is_file() and checkout.is_dir() else package / "experiments"
    )


def names() -> list[str]:
    """Every experiment that comes with the package, such as ``paper/link-dblp``.

    >>> "paper/link-dblp" in names()
    True
    """
    root = folder()
    return sorted(str(path.relative_to(root).with_suffix("")) for path in root.glob("*/*.yaml"))


def groups() -> list[str]:
    """The groups of experiments that come with the package.

    >>> groups()
    ['beyond', 'paper']
    """
    return sorted({name.partition("/")[0] for name in names()})


def read(name: str) -> Experiment:
    """An experiment by its name, or from a YAML file of your own.

    >>> read("paper/link-dblp").task
    'link'
    """
    own = name.endswith((".yaml", ".yml"))
    path = Path(name) if own else folder() / f"{name}.yaml"
    if not own and name not in names():
        known = [*groups(), *names()]
        raise SettingError(f"{unknown('there is no experiment', name, known)} (a file of your own ends with .yaml)")
    try:
        values = read_yaml(path, "settings such as title:, task:, datasets:")
        check_names(path)
        return Experiment.model_validate({**values, "name": path.stem if own else name})
    except ValidationError as error:
        raise SettingError(f"the experiment '{path}': {sentences(error.errors(), _PARTS)}") from None


def find(wanted: Iterable[str]) -> list[Experiment]:
    """Experiments by name, by group (``paper``), or from files; each once, in the order asked for. None named: all.

    >>> [experiment.name for experiment in find(["paper/link-dblp", "paper/link-dblp"])]
    ['paper/link-dblp']
    """
    known = names()
    chosen: list[str] = []
    for name in list(wanted) or known:
        group = [other for other in known if other.startswith(f"{name.rstrip('/')}/")]
        chosen += group or [name]
    return [read(name) for name in dict.fromkeys(chosen)]
