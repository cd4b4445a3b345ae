"""From settings to objects: the graph, the task and the device, the model and its weights, the method."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.cli.settings import SCHEDULE, DataSettings, ModelSettings, Settings
from gnndelete.datasets import NamedGraph, load, load_graph, split_graphs, split_links, split_nodes
from gnndelete.datasets.formats import is_tables, load_saved
from gnndelete.errors import GraphError, ModelError, SettingError, some, unknown
from gnndelete.graph.batch import GraphBatch, collate, with_split
from gnndelete.io.code import load_module
from gnndelete.methods import Method
from gnndelete.methods import resolver as methods
from gnndelete.methods.base import Fit
from gnndelete.models import fill_options, model_factory
from gnndelete.models import resolver as models
from gnndelete.registry import check_parameters
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task
from gnndelete.training import loop
from gnndelete.training.loop import find_device
from gnndelete.training.weights import load_weights


def prepare(settings: Settings) -> tuple[NamedGraph, Task]:
    """The graph to train on, on the chosen device and with the user's names where it has any, and the task."""
    parts = _load(settings.data)
    graphs, options = tuple(part.data for part in parts), settings.data
    many, wanted = isinstance(graphs[0], GraphBatch), settings.task.name == "graph"
    if many != wanted:
        holds = "many graphs; use --task graph" if many else "one graph; use a dataset of graphs such as proteins"
        raise GraphError(f"'{options.dataset or options.graph}' holds {holds}, or another task")
    split = {"graph": _split_graphs, "link": _split_links, "node": _split_nodes}[settings.task.name]
    data, task = split(graphs, settings)
    return replace(parts[0], data=data.to(find_device(settings.train.device, "train.device"))), task


def _load(settings: DataSettings) -> tuple[NamedGraph, ...]:
    """The graph, or its training, validation and test parts."""
    if settings.dataset is not None and settings.graph is not None:
        raise SettingError(
            f"both a dataset ('{settings.dataset}') and a graph file ('{settings.graph}') are given; give one"
        )
    path, tables = settings.graph, settings.table_options
    if path is not None:
        pickled = path.is_file() and not is_tables(path)
        if pickled and not tables:
            return tuple(NamedGraph(collate(part)) for part in load_saved(path))
        return (load_graph(path, **tables),)
    if tables:
        names = some(f"'data.{name}'" for name in tables)
        raise SettingError(f"{names} says how tables are read, and --graph names none; leave it out")
    if settings.dataset is None:
        raise SettingError(
            "there is no graph to work on; give --dataset NAME (see 'gnndelete ls datasets') or --graph PATH"
        )
    return (NamedGraph(collate(load(settings.dataset, settings.root))),)


def _split_graphs(graphs: tuple[Data, ...], settings: Settings) -> tuple[Data, Task]:
    options, data = settings.data, graphs[0]
    if options.split == "random" or (options.split == "auto" and "train_mask" not in data):
        ids = range(data.num_graphs)
        data = with_split(data, split_graphs(ids, options.seed, 1 - options.val - options.test, options.val))
    task = GraphClassification()
    task.check(data)
    return data, task


def _split_links(graphs: tuple[Data, ...], settings: Settings) -> tuple[Data, Task]:
    options, data = settings.data, graphs[0]
    typed, drawn = "edge_type" in data, options.split == "random"
    decoder = settings.task.decoder or ("distmult" if typed else "dot")
    if len(graphs) == 3:
        if drawn:
            raise GraphError(f"'{options.graph}' is already split in three parts; leave data.split at auto")
        parts: dict[str, Any] = {"validation": graphs[1], "test": graphs[2]}
    elif not drawn and "validation" in data and "test" in data:  # a dataset that brings them, such as ogbl-collab
        parts = {name: data[name] for name in _PARTS if name in data}
        data = Data.from_dict({name: value for name, value in data.to_dict().items() if name not in parts})
    elif options.split == "given" and not (typed and "val_mask" in data):
        parts = {}
    else:
        given = typed and options.split == "given"
        split = split_links(data, seed=options.seed, val=options.val, test=options.test, given=given)
        data, parts = split.data, {name: getattr(split, name) for name in _PARTS}
    return data, LinkPrediction(decoder=decoder, seed=options.seed, loss=settings.task.loss, **parts)


_PARTS = ("validation", "test", "validation_negatives", "test_negatives")


def _split_nodes(graphs: tuple[Data, ...], settings: Settings) -> tuple[Data, Task]:
    options = settings.data
    if len(graphs) == 3:
        raise GraphError(
            f"'{options.graph}' holds three parts, which is a split of links; give one Data with masks for --task node"
        )
    data, task = graphs[0], NodeClassification()
    if options.split == "random" or (options.split == "auto" and not (options.graph and "train_mask" in data)):
        if options.val + options.test >= 1:
            raise SettingError(
                f"data.val ({options.val}) and data.test ({options.test}) leave nothing to train on; lower them"
            )
        data = split_nodes(data, seed=options.seed, train=1 - options.val - options.test, val=options.val)
    task.check(data)
    return data, task


def model_options(settings: ModelSettings, data: Data, task: str) -> dict[str, Any]:
    """All options of the model of a run: those that were set, defaults, and sizes that the graph gives."""
    factory, builtin = _factory(settings.name, task), ":" not in settings.name
    return fill_options(factory, settings.options, data, task, settings.name, builtin)


def build_model(settings: ModelSettings, data: Data, task: str, seed: int) -> nn.Module:
    """An untrained model with weights drawn from ``seed``."""
    options = model_options(settings, data, task)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = _factory(settings.name, task)(**options)
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"'{settings.name}' returned a '{type(model).__name__}'; a factory must return a torch.nn.Module"
        )
    return model


def start_model(settings: Settings, data: Data) -> nn.Module:
    """The model that training starts from, on the device of the graph: new weights, or those of the checkpoint."""
    model = build_model(settings.model, data, settings.task.name, settings.train.seed)
    if settings.model.checkpoint is not None:
        load_weights(settings.model.checkpoint, model)
    return model.to(data.edge_index.device)


def _factory(name: str, task: str) -> Any:
    """The class or function that makes the model; a built-in model gets a pooling layer for whole graphs."""
    found: Any = find_factory(name)
    return found if ":" in name else model_factory(found, task)


@cache
def find_factory(name: str) -> Callable[..., Any]:
    """The class of a built-in model, or what ``file.py:factory`` or ``package.module:factory`` names."""
    path, colon, attribute = name.rpartition(":")
    if not colon:
        try:
            return models.lookup(name)
        except (KeyError, TypeError):
            sentence = unknown("there is no model", name, sorted(models.lookup_dict))
            raise SettingError(
                f"{sentence} (a model of your own is named file.py:factory or package.module:factory)"
            ) from None
    factory = getattr(load_module(path), attribute, None)
    if isinstance(factory, nn.Module) or not callable(factory):
        what = "is not in it" if factory is None else f"is a '{type(factory).__name__}'"
        raise SettingError(f"'{attribute}' of model '{name}' {what}; name a class or function that makes a model")
    return factory


def build_method(settings: Settings) -> Method:
    """The method of a run. One that trains takes the schedule of the run where its parameters do not set another."""
    try:
        kind = methods.lookup(settings.method.name)
    except (KeyError, TypeError):
        raise SettingError(unknown("there is no method", settings.method.name, sorted(methods.lookup_dict))) from None
    parameters = settings.method.parameters
    if kind.needs == "a training function":
        schedule = settings.train.model_dump(include=set(SCHEDULE))
        takes = inspect.signature(kind).parameters
        parameters = {name: value for name, value in schedule.items() if name in takes} | parameters
    method = kind(**check_parameters(kind, parameters, f"method '{kind.name}'", "method."))
    method.check()
    return method


def fit_function(settings: Settings, task: Task, method: Method | None = None, progress: bool = True) -> Fit:
    """A function that trains by the schedule of the run, with what the parameters of ``method`` set instead."""
    schedule = settings.train.model_dump(include=set(SCHEDULE))
    schedule |= {name: getattr(method, name) for name in schedule if hasattr(method, name)}
    return loop.LoopFit(task, {**schedule, "progress": progress})


def build_function(
    settings: Settings, data: Data, seed: Callable[[], int] = torch.initial_seed
) -> Callable[[], nn.Module] | None:
    """A function that makes the model of the run again; None for built-in models, whose weights can be reset."""
    if ":" not in settings.model.name:
        return None
    return lambda: build_model(settings.model, data, settings.task.name, seed())
