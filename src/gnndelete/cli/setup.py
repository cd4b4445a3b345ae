"""What a run works on, made from its settings: the training graph, the task with its unseen data, the device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch_geometric.data import Data

from gnndelete.cli.settings import DataSettings, Settings
from gnndelete.datasets import NamedGraph, load, load_graph, split_graphs, split_links, split_nodes
from gnndelete.datasets.formats import load_saved
from gnndelete.datasets.tables import SUFFIXES
from gnndelete.errors import GraphError, SettingError, some
from gnndelete.graph.batch import GraphBatch, collate, with_split
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task


def prepare(settings: Settings) -> tuple[NamedGraph, Task]:
    """The graph to train on, on the chosen device and with the user's names where it has any, and the task."""
    found = _found(settings.data)
    graphs = tuple(part.data for part in found)
    if settings.task.name == "graph":
        data, task = _graphs(graphs, settings)
    elif settings.task.name == "link":
        data, task = _links(graphs, settings)
    else:
        data, task = _nodes(graphs, settings)
    return replace(found[0], data=data.to(device(settings))), task


def device(settings: Settings) -> torch.device:
    """The device of a run; one that is not here is an error, not a surprise later."""
    return device_here(settings.train.device, "train.device")


def device_here(name: str, setting: str) -> torch.device:
    """A device by its name; ``setting`` is what the user calls the place where the name was given."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return accelerator or torch.device("cpu")
    try:
        chosen = torch.device(name)
    except RuntimeError:
        raise SettingError(f"'{setting}' must be auto, cpu or cuda (got '{name}')") from None
    here = (
        accelerator is not None
        and chosen.type == accelerator.type
        and (chosen.index or 0) < torch.accelerator.device_count()
    )
    if chosen.type != "cpu" and not here:
        raise SettingError(f"'{setting}' is '{name}', and torch finds no such device here; use auto or cpu")
    return chosen


def _found(settings: DataSettings) -> tuple[NamedGraph, ...]:
    """The graph, or the training, validation and test parts of one."""
    if settings.dataset is not None and settings.graph is not None:
        raise SettingError(
            f"both a dataset ('{settings.dataset}') and a graph file ('{settings.graph}') are given; give one"
        )
    path, tables = settings.graph, settings.table_options
    if path is not None:
        pickled = path.is_file() and not path.name.lower().endswith(SUFFIXES)
        if pickled and not tables:
            return tuple(NamedGraph(collate(part)) for part in load_saved(path))
        return (load_graph(path, **tables),)
    if tables:
        raise SettingError(f"{_settings(tables)} says how tables are read, and --graph names none; leave it out")
    if settings.dataset is None:
        raise SettingError(
            "there is no graph to work on; give --dataset NAME (see 'gnndelete ls datasets') or --graph PATH"
        )
    return (NamedGraph(collate(load(settings.dataset, settings.root))),)


def _settings(names: Iterable[str]) -> str:
    return some(f"'data.{name}'" for name in names)


def _graphs(graphs: tuple[Data, ...], settings: Settings) -> tuple[Data, Task]:
    given, data = settings.data, graphs[0]
    if not isinstance(data, GraphBatch):
        raise GraphError(
            f"'{given.dataset or given.graph}' is one graph, and --task graph needs many; choose a dataset of graphs, such as "
            "proteins, or another task"
        )
    if given.split == "random" or (given.split == "auto" and "train_mask" not in data):
        split = split_graphs(range(data.num_graphs), given.seed, train=1 - given.val - given.test, val=given.val)
        data = with_split(data, split)
    task = GraphClassification()
    task.check(data)
    return data, task


def _links(graphs: tuple[Data, ...], settings: Settings) -> tuple[Data, Task]:
    given = settings.data
    if isinstance(graphs[0], GraphBatch):
        raise GraphError(f"'{given.dataset or given.graph}' holds many graphs; use --task graph")
    typed = "edge_type" in graphs[0]
    decoder = settings.task.decoder or ("distmult" if typed else "dot")
    if len(graphs) == 3 and given.split != "random":
        return graphs[0], LinkPrediction(validation=graphs[1], test=graphs[2], decoder=decoder, seed=given.seed)
    if given.split != "random" and "validation" in graphs[0] and "test" in graphs[0]:
        return _own_parts(graphs[0], settings)
    if given.split == "given" and not (typed and "val_mask" in graphs[0]):
        return graphs[0], LinkPrediction(decoder=decoder, seed=given.seed)
    if len(graphs) == 3:
        raise GraphError(f"'{given.graph}' is already split in three parts; leave data.split at auto")
    split = split_links(
        graphs[0], seed=given.seed, val=given.val, test=given.test, given=typed and given.split == "given"
    )
    task = LinkPrediction(
        validation=split.validation,
        test=split.test,
        decoder=decoder,
        validation_negatives=split.validation_negatives,
        test_negatives=split.test_negatives,
        seed=given.seed,
    )
    return split.data, task


def _own_parts(data: Data, settings: Settings) -> tuple[Data, Task]:
    """A dataset that is the graph of its training edges, with the unseen ones beside it."""
    names = ("validation", "test", "validation_negatives", "test_negatives")
    parts = {name: data[name] for name in names if name in data}
    task = LinkPrediction(decoder=settings.task.decoder or "dot", seed=settings.data.seed, **parts)
    return Data.from_dict({name: value for name, value in data.to_dict().items() if name not in parts}), task


def _nodes(graphs: tuple[Data, ...], settings: Settings) -> tuple[Data, Task]:
    given = settings.data
    if isinstance(graphs[0], GraphBatch):
        raise GraphError(f"'{given.dataset or given.graph}' holds many graphs; use --task graph")
    if len(graphs) == 3:
        raise GraphError(
            f"'{given.graph}' holds three parts, which is a split of links; give one Data with masks for --task node"
        )
    data, task = graphs[0], NodeClassification()
    if given.split == "random" or (given.split == "auto" and not (given.graph and "train_mask" in data)):
        if given.val + given.test >= 1:
            raise SettingError(
                f"data.val ({given.val}) and data.test ({given.test}) leave nothing to train on; lower them"
            )
        data = split_nodes(data, seed=given.seed, train=1 - given.val - given.test, val=given.val)
    task.check(data)
    return data, task
