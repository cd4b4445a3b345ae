"""Experiment files: the settings of a YAML file, the checks on them, and where the shipped files are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
)

from gnndelete.bench.published import parts
from gnndelete.datasets.registry import ENTRIES, Entry, named
from gnndelete.errors import GraphError, SettingError, some, unknown
from gnndelete.io.yaml import read_yaml
from gnndelete.registry import plain

#: What can be measured in a cell, in the order in which a key lists it.
MEASURES = ("scores", "unseen", "mi", "outliers", "time")

#: The lam at which a deletion is timed where the method would calibrate it.
TIMED_LAM = 0.5

#: The seeds of the paper's authors; ``--seeds N`` takes the first N.
SEEDS = [42, 21, 13, 87, 100]


# Datasets: a name of the catalog, or ``path@digest`` for a graph of the user. The digest is that of its files, so that
# changed files make other cells.


def is_path(dataset: str) -> bool:
    """Whether this is the path of a graph: no name of the catalog has a slash in it.

    >>> is_path("./tables"), is_path("generated:collab?nodes=100")
    (True, False)
    """
    return "/" in dataset or "\\" in dataset


def without_digest(dataset: str) -> str:
    """The name as the experiment file has it.

    >>> without_digest("./tables/mine@0123456789ab"), without_digest("dblp")
    ('./tables/mine', 'dblp')
    """
    return dataset.rpartition("@")[0] if is_path(dataset) else dataset


def with_digest(dataset: str) -> str:
    """A path with the digest of its files; a catalog name unchanged."""
    from gnndelete.datasets.formats import graph_files

    if not is_path(dataset):
        return dataset
    whole = hashlib.sha256()
    for file in graph_files(dataset):
        with file.open("rb") as content:
            whole.update(f"{file.suffix} {hashlib.file_digest(content, 'sha256').hexdigest()} ".encode())
    return f"{dataset}@{whole.hexdigest()[:12]}"


def load_dataset(dataset: str) -> Any:
    """The graph of a name; a graph whose files changed after the experiment was read is refused."""
    from gnndelete import datasets

    if not is_path(dataset):
        return datasets.load(dataset)
    path = without_digest(dataset)
    graph = datasets.load_graph(path).data
    if with_digest(path) != dataset:
        raise GraphError(f"the graph '{path}' has changed since the experiment was read; start again")
    return graph


def describe(dataset: str) -> Entry:
    """The sizes of a dataset, with the parameters in its name applied; a graph of the user is loaded and measured."""
    if is_path(dataset):
        return _measured(dataset)
    entry, parameters = named(dataset)
    sizes: dict[str, Any] = {}
    for name, value in parameters.items():
        name = {"entities": "nodes", "triples": "edges"}.get(name, name)
        if name in ("nodes", "edges", "features", "relations"):
            sizes[name] = value
    if "users" in parameters:
        sizes |= {"nodes": parameters["users"] + parameters["items"], "classes": parameters["genres"]}
    if "neighbors" in parameters:
        sizes["edges"] = 2 * entry.nodes * int(parameters["neighbors"])  # an upper bound
    return replace(entry, **sizes)


@lru_cache
def _measured(dataset: str) -> Entry:
    """The sizes of a graph of the user. Untyped edges count twice, as in the catalog's undirected graphs."""
    from gnndelete.datasets import training_edges
    from gnndelete.graph.validation import count_nodes, count_relations

    data = load_dataset(dataset)
    typed, edges, y = "edge_type" in data, training_edges(data).size(1), data.get("y")
    has_classes = y is not None and not y.is_floating_point() and y.dim() == 1 and y.numel() > 0
    return Entry(
        name=Path(without_digest(dataset)).name,
        nodes=count_nodes(data),
        edges=edges if typed else 2 * edges,
        features=0 if data.get("x") is None else data.x.size(1),
        classes=int(y.max()) + 1 if has_classes else 0,
        relations=count_relations(data) if typed else 0,
        origin="a graph of the user",
    )


# Values.


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _as_named(value: Any) -> Any:
    """A plain word is short for a name without options."""
    return [{"name": item} if isinstance(item, str) else item for item in _as_list(value)]


def _kind(value: str) -> str:
    from gnndelete.graph.kinds import KINDS

    if value not in KINDS:
        raise ValueError(unknown("there is no", value, list(KINDS)))
    return value


def _amount(value: Any) -> Any:
    """An integer counts elements, a float is a share."""
    if not ((type(value) is int and value >= 1) or (type(value) is float and 0 < value <= 1)):
        raise ValueError(f"write a share above 0 and up to 1.0, or a whole number of at least 1 (got {value!r})")
    return value


def _label(value: str) -> str:
    if not value.strip() or value != value.strip() or "," in value:
        raise ValueError(
            f"write a name without commas, and without spaces around it, for tables and --only (got {value!r})"
        )
    return value


Label = Annotated[StrictStr, AfterValidator(_label)]
Count = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]  # numpy's seeds end there
Rate = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, lt=1)]
Amount = Annotated[int | float, BeforeValidator(_amount)]
Dataset = Annotated[StrictStr, AfterValidator(with_digest)]
Where = Literal["random", "in", "out", "hubs", "community", "anywhere"]
Measure = Literal["scores", "unseen", "mi", "outliers", "time"]

#: A list with at least one entry.
FILLED = Field(min_length=1)


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
    """How base models, retrained models and shadow models are trained: options of `gnndelete.train`, and the loss of links."""

    epochs: Count = 1000
    lr: Rate = 1e-3
    weight_decay: Decay = 0.0
    patience: Count | None = None
    validate_every: Count = 10
    batch_size: Count | None = None
    loss: Literal["bce", "bpr"] = "bce"

    def settings(self) -> dict[str, Any]:
        """The settings as they stand in a key; of links, the usual loss is not named."""
        return self.model_dump(exclude={"loss"} if self.loss == "bce" else set())


class Split(Part):
    """Shares that are drawn from the seed of a cell; ``given`` takes the split that came with the dataset instead."""

    given: StrictBool = False
    train: Share | None = None
    val: Share | None = None
    test: Share | None = None

    def shares(self, task: str) -> dict[str, Any]:
        """The split of a task with its defaults filled in, as it stands in a key."""
        named = self.model_dump(exclude_none=True, exclude={"given"})
        rules = TASKS[task]
        if self.given:
            if named:
                raise SettingError(
                    f"'split.{next(iter(named))}' cannot be set for a split that is given; leave one out"
                )
            return {"given": True}
        if rules.rest in named:
            raise SettingError(f"'split.{rules.rest}' is what the other parts leave in a task '{task}'; leave it out")
        shares = {**rules.shares, **named}
        if sum(shares.values()) >= 1:
            written = " and ".join(f"{name} {share:g}" for name, share in shares.items())
            raise SettingError(f"'split': {written} leave nothing for '{rules.rest}'; together they must be below 1")
        return shares


class Forget(Part):
    """What is deleted: every combination of ``where`` and ``amount``, in ``steps`` requests that follow each other.

    ``where`` and ``hops`` are for edges: ``in`` and ``out`` of the neighbourhood of test edges, ``anywhere`` also in
    graphs that were not trained on. Features are those of nodes or, in a task on graphs, of all nodes of ``amount`` graphs.
    """

    kind: Annotated[StrictStr, AfterValidator(_kind)] = "edges"
    where: Annotated[list[Where], BeforeValidator(_as_list), FILLED] = ["random"]
    amount: Annotated[list[Amount], BeforeValidator(_as_list), FILLED]
    hops: Literal["undirected", "directed"] = "undirected"
    steps: Count = 1

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

    datasets: list[Dataset] | None = None
    models: list[StrictStr] | None = None
    where: list[Where] | None = None
    amount: list[Amount] | None = None

    def allows(self, dataset: str, model: str, forget: Mapping[str, Any]) -> bool:
        """Whether a cell of these is one that the method is for."""
        values = {"datasets": dataset, "models": model, "where": forget["where"], "amount": forget["amount"]}
        return all((chosen := getattr(self, what)) is None or value in chosen for what, value in values.items())


class Named(Part):
    """A name; every further setting is one of its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: StrictStr

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class MethodSpec(Named):
    """A method with its parameters. ``preset`` names a constructor such as ``paper``."""

    label: Label = ""
    only: Only = Only()

    @property
    def title(self) -> str:
        return self.label or self.name


class Experiment(Part):
    """A table or a figure: which cells belong to it.

    ``missing`` says why a dataset may be absent. ``summary: false`` is for trainings that are too short for their
    scores, or for the time of Retrain, to count in the summary.
    """

    name: str
    title: StrictStr
    about: StrictStr = ""
    published: StrictStr | None = None
    task: Literal["link", "node", "graph"]
    datasets: Annotated[list[Dataset], FILLED]
    models: Annotated[list[Named], BeforeValidator(_as_named), FILLED]
    split: Split = Split()
    train: Schedule = Schedule()
    forget: Annotated[list[Forget], BeforeValidator(_as_list), FILLED]
    methods: Annotated[list[MethodSpec], BeforeValidator(_as_named), FILLED]
    measures: Annotated[list[Measure], FILLED] = ["scores", "unseen"]
    seeds: Annotated[list[Seed], FILLED] = SEEDS
    missing: dict[Dataset, StrictStr] = Field(default_factory=dict)
    summary: StrictBool = True

    @property
    def forget_sets(self) -> list[dict[str, Any]]:
        """Everything that is deleted, each as it stands in a key."""
        return [item for part in self.forget for item in part.grid()]

    def check(self) -> None:
        """Refuse settings that do not fit each other, and what a task or a dataset has nothing for."""
        self.split.shares(self.task)
        if self.published is not None and self.published not in parts():
            raise SettingError(unknown("'published': no part of the paper is called", self.published, parts()))
        for name in self.missing:
            if name not in self.datasets:
                raise SettingError(f"'missing' names '{name}', which is none of the datasets; leave it out")
        self._check_methods()
        for forget in self.forget:
            self._check_forget(forget)
        for dataset in self.datasets:
            self._check_dataset(dataset, describe(dataset))

    def _check_methods(self) -> None:
        """Refuse titles that are taken, and a method that is only for what the experiment does not have."""
        present: dict[str, list[Any]] = {
            "datasets": self.datasets,
            "models": [model.name for model in self.models],
            "where": [where for part in self.forget for where in part.where],
            "amount": [amount for part in self.forget for amount in part.amount],
        }
        titles = {"original"}  # the model before the deletion
        for method in self.methods:
            if method.title in titles:
                raise SettingError(f"'methods': the name '{method.title}' is taken; give the method another label")
            titles.add(method.title)
            for what, known in present.items():
                for value in getattr(method.only, what) or ():
                    if value not in known:
                        raise SettingError(
                            f"'only.{what}' of method '{method.title}' names {value!r}, which the experiment does not "
                            f"have; it has {', '.join(map(str, dict.fromkeys(known)))}"
                        )

    def _check_forget(self, forget: Forget) -> None:
        rules = TASKS[self.task]
        if forget.kind in rules.lacks:
            raise SettingError(f"'forget.kind': task '{self.task}' has no {forget.kind} to delete; take another kind")
        if forget.kind != "edges" and forget.where != ["random"]:
            raise SettingError(f"'forget.where' is for edges, and {forget.kind} are drawn at random; leave it out")
        if rules.divides != "edges" and {"in", "out"} & set(forget.where):
            raise SettingError(
                f"'forget.where': in and out are relative to test edges, and task '{self.task}' has none; take random"
            )
        if forget.steps > 1 and "time" in self.measures:
            raise SettingError(
                f"'measures': time is that of one request, and 'forget.steps' is {forget.steps}; leave one of them out"
            )

    def _check_dataset(self, dataset: str, entry: Entry) -> None:
        divides, kinds = TASKS[self.task].divides, {forget.kind for forget in self.forget}
        if (entry.graphs > 1) != (divides == "graphs"):
            what = "many graphs" if entry.graphs > 1 else "one graph"
            raise SettingError(f"'{dataset}' is {what}, and the task is '{self.task}'; choose another dataset or task")
        if divides == "nodes" and not entry.classes:
            raise SettingError(
                f"'{dataset}' has no classes of nodes, and the task is '{self.task}'; choose another dataset or task"
            )
        if self.split.given and entry.split_for != self.task:
            others = some(other.name for other in ENTRIES.values() if other.split_for == self.task)
            raise SettingError(
                f"'split.given': '{dataset}' came without a split for task '{self.task}'; leave 'given' out, or take a "
                f"dataset that has one ({others})"
            )
        if "features" in kinds and not entry.features:
            raise SettingError(f"'forget.kind': '{dataset}' has no features of nodes to delete; take another kind")
        if "relations" in kinds and not entry.typed:
            raise SettingError(
                f"'forget.kind': '{dataset}' has no relations to delete; take another kind or a typed dataset"
            )


#: The parts that refuse unknown names.
_PARTS: dict[str, type[Part]] = {"": Experiment, "forget": Forget, "only": Only, "train": Schedule, "split": Split}


def _explain(error: ValidationError) -> str:
    """Unknown settings; if there are none, the settings that are missing and the first three mistakes."""
    found: dict[str, list[str]] = {"extra_forbidden": [], "missing": []}
    for problem in error.errors():
        kind, path = problem["type"], [part for part in problem["loc"] if isinstance(part, str)]
        written = f"'{'.'.join(path)}'"
        if kind == "extra_forbidden":
            *parents, name = path
            known = [field for field in _PARTS[parents[-1] if parents else ""].model_fields if field != "name"]
            said = unknown("there is no setting", name, known, ".".join([*parents, ""]))
        elif kind == "missing":
            said = written
        elif kind == "value_error":
            said = f"{written}: {problem['ctx']['error']}"
        elif kind == "too_short":
            said = f"{written} is an empty list; name at least one"
        else:
            said = f"{written} should be {plain(problem['msg'])} (got {problem['input']!r})"
        found.setdefault(kind if kind in found else "mistake", []).append(said)
    if found["extra_forbidden"]:
        return "; ".join(found["extra_forbidden"][:3])
    lacks = [f"it lacks {', '.join(found['missing'])}"] if found["missing"] else []
    return "; ".join(lacks + found.get("mistake", [])[:3])


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


def read(name: str) -> Experiment:
    """A shipped experiment by its name, or an experiment from a YAML file.

    >>> read("paper/link-dblp").task
    'link'
    """
    is_file = name.endswith((".yaml", ".yml"))
    path = Path(name) if is_file else folder() / f"{name}.yaml"
    if not is_file and name not in names():
        known = [*dict.fromkeys(other.partition("/")[0] for other in names()), *names()]
        raise SettingError(f"{unknown('there is no experiment', name, known)} (a file of your own ends with .yaml)")
    values = read_yaml(path, "settings such as title:, task:, datasets:")
    try:
        experiment = Experiment.model_validate({**values, "name": path.stem if is_file else name})
        experiment.check()
    except ValidationError as error:
        raise SettingError(f"the experiment '{path}': {_explain(error)}") from None
    except (GraphError, SettingError) as error:
        raise SettingError(f"the experiment '{path}': {error}") from None
    return experiment


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
