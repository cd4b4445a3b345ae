"""Experiments as data: the schema of a YAML file, and where such files are found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gnndelete.bench.repeated import check_names
from gnndelete.errors import SettingError, unknown
from gnndelete.yamlfile import read_yaml

Kind = Literal["edges", "nodes", "features", "labels", "graphs", "relations"]
Where = Literal["random", "in", "out", "hubs", "community", "anywhere"]
Measure = Literal["scores", "heldout", "mi", "outliers", "time"]
MEASURES: tuple[str, ...] = get_args(Measure)

#: The paper's authors' seeds; ``--seeds N`` takes the first N.
SEEDS = [42, 21, 13, 87, 100]


def _many(value: Any) -> Any:
    """One value where a list of them may stand."""
    return value if isinstance(value, list) else [value]


def _named(value: Any) -> Any:
    """A plain word is short for a name without options."""
    return [{"name": item} if isinstance(item, str) else item for item in _many(value)]


def _words(value: Any) -> Any:
    """A title that says something."""
    if isinstance(value, str) and not value.strip():
        raise ValueError(f"it must say what the experiment is (got {value!r})")
    return value


Share = Annotated[float, Field(strict=True, gt=0, lt=1)]


def _amount(value: Any) -> Any:
    """A share or a number, refused in one sentence where it is neither."""
    whole, share = type(value) is int and value >= 1, type(value) is float and 0 < value <= 1
    if not (whole or share):
        raise ValueError(f"an amount is a share above 0 and up to 1.0, or a whole number of at least 1 (got {value!r})")
    return value


Amount = Annotated[int | float, BeforeValidator(_amount)]


class Part(BaseModel):
    """A part of an experiment; a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Schedule(Part):
    """How base models, retrained ones and shadow models are trained: the options of `gnndelete.train`."""

    epochs: Annotated[int, Field(strict=True, ge=1)] = 1000
    lr: Annotated[float, Field(strict=True, gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(strict=True, ge=0)] = 0.0
    patience: Annotated[int, Field(strict=True, ge=1)] | None = None
    validate_every: Annotated[int, Field(strict=True, ge=1)] = 10
    batch_size: Annotated[int, Field(strict=True, ge=1)] | None = None


class Split(Part):
    """Shares that are drawn from the seed of a cell; ``given`` takes the split that came with the dataset instead."""

    given: Annotated[bool, Field(strict=True)] = False
    train: Share | None = None
    val: Share | None = None
    test: Share | None = None

    def effective(self, task: str) -> dict[str, Any]:
        """All that the split of a task depends on."""
        if self.given:
            return {"given": True}
        usual = _SPLITS[task]
        named = {name: getattr(self, name) for name in ("train", "val", "test") if getattr(self, name) is not None}
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
    where: Annotated[list[Where], BeforeValidator(_many), Field(min_length=1)] = ["random"]
    amount: Annotated[list[Amount], BeforeValidator(_many), Field(min_length=1)]
    hops: Literal["undirected", "directed"] = "undirected"
    steps: Annotated[int, Field(strict=True, ge=1)] = 1

    @model_validator(mode="after")
    def _place(self) -> Forget:
        if self.kind != "edges" and self.where != ["random"]:
            raise ValueError(f"'where' is for edges; {self.kind} are drawn at random")
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

    datasets: list[str] | None = None
    models: list[str] | None = None
    where: list[Where] | None = None
    amount: list[Amount] | None = None


class MethodSpec(Part):
    """A method; every further name is one of its parameters. ``preset`` names a constructor such as ``paper``."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str
    label: str = ""
    only: Only = Only()

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
    title: Annotated[str, BeforeValidator(_words)]
    about: str = ""
    published: str | None = None
    task: Literal["link", "node", "graph"]
    datasets: Annotated[list[str], Field(min_length=1)]
    models: Annotated[list[ModelSpec], BeforeValidator(_named), Field(min_length=1)]
    split: Split = Split()
    train: Schedule = Schedule()
    forget: Annotated[list[Forget], BeforeValidator(_many), Field(min_length=1)]
    methods: Annotated[list[MethodSpec], BeforeValidator(_named), Field(min_length=1)]
    measures: Annotated[list[Measure], Field(min_length=1)] = ["scores", "heldout"]
    seeds: Annotated[list[Annotated[int, Field(strict=True, ge=0, lt=2**63)]], Field(min_length=1)] = SEEDS
    missing: dict[str, str] = Field(default_factory=dict)
    summary: Annotated[bool, Field(strict=True)] = True

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
        for what, values in (("seeds", self.seeds), ("datasets", self.datasets), ("models", self.models)):
            again = [value for i, value in enumerate(values) if value in values[:i]]
            if again:
                shown = again[0].name if isinstance(again[0], ModelSpec) else again[0]
                raise ValueError(f"'{what}' names {shown!r} twice; leave one of them out")
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
        raise SettingError(f"the experiment '{path}': {_sentences(error.errors())}") from None


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


#: Lists that are filled in where they are left out.
_OPEN = ("seeds", "measures", "where")

_PARTS: dict[str, type[Part]] = {"forget": Forget, "only": Only, "train": Schedule, "split": Split}


def _sentences(problems: Sequence[Any]) -> str:
    """What is missing, all of it, then the first few mistakes."""
    missing = [
        ".".join(part for part in problem["loc"] if isinstance(part, str))
        for problem in problems
        if problem["type"] == "missing"
    ]
    said = [f"it lacks {', '.join(f'{name!r}' for name in missing)}"] if missing else []
    said += [_sentence(problem) for problem in problems if problem["type"] != "missing"][:3]
    return "; ".join(said)


def _sentence(problem: Any) -> str:
    names = [
        str(part)
        for part in problem["loc"]
        if isinstance(part, str) and not part.startswith(("constrained", "int", "float"))
    ]
    place = ".".join(names)
    if problem["type"] == "extra_forbidden":
        *above, name = names
        known = _PARTS[above[-1]].model_fields if above else Experiment.model_fields
        return unknown("there is no setting", name, known, prefix="".join(f"{part}." for part in above))
    if problem["type"] == "literal_error" and isinstance(problem["input"], str):
        return unknown(f"'{place}': there is no", problem["input"], re.findall("'([^']+)'", problem["ctx"]["expected"]))
    if problem["type"] == "too_short":
        rest = ", or leave it out" if names[-1] in _OPEN else ""
        return f"'{place}' is an empty list; name at least one{rest}"
    said = problem["msg"].removeprefix("Value error, ")
    got = "" if problem["type"] == "value_error" else f" (got {problem['input']!r})"
    return f"'{place}': {said[:1].lower()}{said[1:]}{got}" if place else f"{said}{got}"
