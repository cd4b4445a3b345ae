"""All options of a run in one schema, and the layers they come from: defaults, a YAML file, ``--set``, options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictFloat, StrictInt, ValidationError

from gnndelete.errors import SettingError, bounded, unknown
from gnndelete.io.yaml import Loader, read_yaml

Whole = Annotated[int, Field(strict=True, ge=0)]
Share = Annotated[float, Field(strict=True, ge=0, lt=1)]
File = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


Id = Annotated[str, Field(strict=True)] | Whole


def _factory(name: str) -> str:
    """A model file gets its full path, so that the run can be used from another folder."""
    path, colon, factory = name.rpartition(":")
    return f"{Path(path).expanduser().absolute()}:{factory}" if colon and path.endswith(".py") else name


def same_file(name: Any, other: Any) -> bool:
    """Whether two names mean a factory in the same model file, which may have moved to another folder."""
    files = [str(each).rpartition(":")[0] for each in (name, other)]
    return all(file.endswith(".py") for file in files) and Path(str(name)).name == Path(str(other)).name


_Neighbors = Literal[-1] | Annotated[int, Field(strict=True, ge=1)]


class Section(BaseModel):
    """A group of settings; a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(Section):
    """The graph and how it is split. The split ``given`` is the one that the graph file brings along.

    With ``none`` nothing is split off: what the model never saw is named by ``validation`` and ``test``, by a split column or
    by masks. ``tombstones`` names what was deleted before and is left out. The options from ``undirected`` on say how tables
    are read, see `from_tables`.
    """

    dataset: str | None = None
    graph: File | None = None
    root: File | None = None
    split: Literal["auto", "random", "given", "none"] = "auto"
    seed: Whole = 0
    val: Share = 0.05
    test: Share = 0.05
    validation: File | None = None
    test_file: File | None = None
    tombstones: File | None = None
    description: File | None = None
    layout: Literal["hetero", "single"] | None = None
    empty: Literal["mean", "zero", "error"] | None = None
    undirected: Annotated[bool, Field(strict=True)] | None = None
    source: str | None = None
    target: str | None = None
    relation: str | None = None
    node_id: str | None = None
    features: list[str] | None = None
    label: str | None = None
    weight: str | None = None
    edge_features: list[str] | None = None
    missing: Literal["error", "zeros"] | None = None
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None

    @property
    def table_options(self) -> dict[str, Any]:
        """The options for reading tables that are set."""
        return {name: value for name in _TABLES if (value := getattr(self, name)) is not None}


class ModelSettings(Section):
    """The model; every further name is an option of its constructor or factory, checked against its signature."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: Annotated[str, AfterValidator(_factory)] = "gcn"
    checkpoint: File | None = None

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class TaskSettings(Section):
    """What the model predicts; ``decoder`` is ``dot``, ``distmult`` or the name of a method of the model.

    The task ``auto`` is ``ranking`` where edges join two node types, else ``link``. Left open, the decoder is ``distmult`` on
    a graph with typed edges, else ``dot``. ``loss`` is that of links, and ``edges`` the name of the edges that are predicted
    where there are several.
    """

    name: Literal["auto", "link", "ranking", "node", "graph"] = "link"
    decoder: str | None = None
    loss: Literal["bce", "bpr"] | None = None
    edges: str | None = None


class TrainSettings(Section):
    """The training schedule, also used by methods that train again; ``fit`` is a function that trains instead."""

    epochs: Whole = 1000
    lr: Annotated[float, Field(strict=True, gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(strict=True, ge=0)] = 0.0
    patience: Annotated[int, Field(strict=True, ge=1)] | None = None
    batch_size: Annotated[int, Field(strict=True, ge=1)] | None = None
    num_neighbors: _Neighbors | list[_Neighbors] | None = None
    seed: Whole = 0
    device: str = "auto"
    fit: Annotated[str, AfterValidator(_factory)] | None = None


#: The part of it that methods take over when they train.
SCHEDULE = ("epochs", "lr", "weight_decay", "patience", "batch_size", "num_neighbors")


class DeletionSettings(Section):
    """What to forget: named in files or in place, or drawn at random."""

    edges_csv: File | None = None
    nodes_csv: File | None = None
    graphs_csv: File | None = None
    edges: list[list[Id]] = Field(default_factory=list)
    nodes: list[Id] = Field(default_factory=list)
    relations: list[Id] = Field(default_factory=list)
    graphs: list[Whole] = Field(default_factory=list)
    features_csv: File | None = None
    labels_csv: File | None = None
    features: list[list[Id]] = Field(default_factory=list)
    labels: list[Id | list[Id]] = Field(default_factory=list)
    fill: float | list[float] = 0.0
    random: Annotated[StrictInt | StrictFloat, Field(gt=0, lt=2**53)] | None = None
    kind: Literal["edges", "nodes", "graphs"] = "edges"
    where: Literal["random", "in", "out", "hubs", "community"] = "random"
    hops: Literal["undirected", "directed"] = "undirected"
    seed: Whole = 0

    @property
    def asks(self) -> bool:
        """Whether anything is to be deleted."""
        return any(getattr(self, name) for name in _SOURCES)


class MethodSettings(Section):
    """The method; every further name is a parameter of its constructor, checked against its signature."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "gnndelete"

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class AuditSettings(Section):
    """What an audit does beyond measuring the result; both train a model."""

    reference: Annotated[bool, Field(strict=True)] = True
    attacks: Annotated[bool, Field(strict=True)] = True


class Settings(Section):
    """One run. A section that is one word is short for its name: ``model: gcn``."""

    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    task: TaskSettings = TaskSettings()
    train: TrainSettings = TrainSettings()
    deletion: DeletionSettings = DeletionSettings()
    method: MethodSettings = MethodSettings()
    audit: AuditSettings = AuditSettings()

    def filled(self, section: Literal["model", "method"], options: Mapping[str, Any]) -> Settings:
        """The settings with all options of the model or the method, defaults included."""
        full = {**getattr(self, section).model_dump(), **options}
        return self.model_copy(update={section: type(getattr(self, section)).model_validate(full)})

    def to_yaml(self, *sections: str, header: str = "", folder: Path | None = None) -> str:
        """The effective settings of all or some sections, without elements and files that are named: these are sensitive.

        With the ``folder`` that the file will be in, paths are written as they are seen from there, see `located`.
        """
        values = self.model_dump(mode="json", include=set(sections) or None)
        if folder is not None:
            whole = folder.resolve()
            values = _with_paths(values, lambda path: os.path.relpath(path, whole))
        for name in set(_TABLES) - self.data.table_options.keys():
            values.get("data", {}).pop(name, None)
        for section, name in _SHOWN_IF_SET:
            if values.get(section, {}).get(name) is None:
                values.get(section, {}).pop(name, None)
        for name in [name for name in _SOURCES if name != "random" and values.get("deletion", {}).get(name)]:
            del values["deletion"][name]
            header += f"# deletion.{name}: left out here, because it says who was deleted\n"
        return header + yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def located(values: Layer, folder: Path) -> Layer:
    """The settings of a file in ``folder`` with full paths of the files that they name.

    A path is seen from the folder or, where nothing is there, from one above it or from the current folder and those above
    it: what moves takes some of its files along. Fingerprints tell whether they are the same.
    """
    folder = folder.resolve()

    def find(path: str) -> str:
        if Path(path).expanduser().is_absolute():
            return path
        there = Path(os.path.normpath(folder / path))
        below = Path(*(part for part in Path(path).parts if part != ".."))
        above = (each / below for each in (*folder.parents, Path.cwd(), *Path.cwd().parents))
        return str(there if there.exists() else next((each for each in above if each.exists()), there))

    return _with_paths(values, find)


def _with_paths(values: Layer, change: Callable[[str], str]) -> Layer:
    """The settings with other paths of files."""
    result = {section: dict(part) if isinstance(part, dict) else part for section, part in values.items()}
    data, model, train = (
        part if isinstance(part := result.get(name), dict) else {} for name in ("data", "model", "train")
    )
    for part, name in (*((data, name) for name in FILES), (model, "checkpoint")):
        if isinstance(part.get(name), str):
            part[name] = change(part[name])
    for part, name in ((model, "name"), (train, "fit")):
        file, colon, factory = str(part.get(name)).rpartition(":")
        if colon and file.endswith(".py"):
            part[name] = f"{change(file)}:{factory}"
    return result


_SHORT = {"data": "dataset", "model": "name", "task": "name", "method": "name"}
_SHOWN_IF_SET = (
    ("data", "validation"),
    ("data", "test_file"),
    ("data", "tombstones"),
    ("task", "edges"),
    ("train", "fit"),
)
#: Settings of the graph that are paths.
FILES = ("graph", "root", "validation", "test_file", "tombstones", "description")
_TABLES = (
    "description", "layout", "empty",
    "undirected", "source", "target", "relation", "node_id", "features", "label", "weight", "edge_features", "missing",
    "delimiter",
)  # fmt: skip
_SOURCES = (
    "edges_csv", "nodes_csv", "features_csv", "labels_csv", "graphs_csv", "edges", "nodes", "features", "labels",
    "relations", "graphs", "random",
)  # fmt: skip

Layer = dict[str, Any]


def resolve(
    base: Layer | None = None,
    config: Path | None = None,
    sets: Iterable[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of all sources, of which later ones win; ``options`` has dotted names, and None means not set."""
    layers = [base or {}]
    if config is not None:
        layers.append(located(read_yaml(config), config.parent))
    layers.append(_together(_assignment(text) for text in sets or ()))
    chosen = {name: value for name, value in (options or {}).items() if value is not None}
    layers.append(_together(_nested(name.split("."), value) for name, value in chosen.items()))
    values: Layer = {}
    for layer in layers:
        values = _merge(values, layer)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingError("; ".join(_sentence(problem) for problem in error.errors()[:3])) from None


def _merge(below: Layer, above: Layer, replacing: bool = True) -> Layer:
    merged = dict(below)
    for section, value in above.items():
        value = {_SHORT[section]: value} if section in _SHORT and isinstance(value, str) else value
        under = merged.get(section)
        if isinstance(value, dict) and isinstance(under, dict):
            value = {**(_still_valid(section, under, value) if replacing else under), **value}
        merged[section] = value
    return merged


def _together(parts: Iterable[Layer]) -> Layer:
    """One layer of several assignments; none of them drops another."""
    layer: Layer = {}
    for part in parts:
        layer = _merge(layer, part, replacing=False)
    return layer


def _still_valid(section: str, below: Layer, above: Layer) -> Layer:
    """The part of a lower layer that an upper one leaves valid: options of one model do not fit another."""
    names = below.get("name", above.get("name")), above.get("name", below.get("name"))
    if section in ("model", "method") and names[0] != names[1] and not same_file(*names):
        return {}
    if section == "data" and any(above.get(name) for name in ("dataset", "graph")):
        dropped = ("dataset", "graph", *(_TABLES if above.get("dataset") else ()))
        return {name: value for name, value in below.items() if name not in dropped}
    if section == "deletion" and any(above.get(name) for name in _SOURCES):
        return {name: value for name, value in below.items() if name not in _SOURCES}
    return below


def _assignment(text: str) -> Layer:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingError(
            f"'--set {bounded(text, 100)}' has no value; write --set section.name=value, such as --set method.lam=0.3"
        )
    try:
        return _nested(name.strip().split("."), yaml.load(value, Loader=Loader))
    except SettingError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        said = getattr(error, "problem", None) or error
        raise SettingError(f"the value in '--set {bounded(text, 100)}' is not YAML ({said})") from None


def _nested(path: list[str], value: Any) -> Layer:
    for name in reversed(path):
        value = {name: value}
    return value


def _sentence(problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"][:2])  # the rest says which of several types it is not
    if problem["type"] == "extra_forbidden":
        section, dot, name = path.rpartition(".")
        known = Settings.model_fields if not dot else Settings.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        return unknown("there is no setting", name, known, prefix=f"{section}{dot}")
    message = problem["msg"]
    return f"'{path}': {message[:1].lower()}{message[1:]} (got {bounded(repr(problem['input']), 200)})"
