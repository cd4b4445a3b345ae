"""From settings to objects: the graph, the task and the device, the model and its weights, the method."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.cli.settings import SCHEDULE, DataSettings, ModelSettings, Settings
from gnndelete.datasets import NamedGraph, load, load_graph, split_graphs, split_links, split_nodes
from gnndelete.datasets.formats import is_tables, load_saved
from gnndelete.datasets.splits import keep_edges
from gnndelete.datasets.tombstones import Tombstones
from gnndelete.errors import DeletionError, GraphError, ModelError, NotYetError, SettingError, some, unknown
from gnndelete.graph.batch import GraphBatch, as_user_graph, collate, with_split
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import in_words
from gnndelete.graph.parsing import is_among
from gnndelete.graph.validation import edge_table
from gnndelete.io.code import load_module, running
from gnndelete.methods import Method
from gnndelete.methods import resolver as methods
from gnndelete.methods.base import Fit
from gnndelete.models import fill_options, model_factory
from gnndelete.models import resolver as models
from gnndelete.registry import check_parameters
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, RankingPrediction, Task
from gnndelete.tasks.supervision import Relation
from gnndelete.training import loop
from gnndelete.training.loop import find_device
from gnndelete.training.weights import load_weights


def prepare(settings: Settings) -> tuple[NamedGraph, Task]:
    """The graph to train on, on the chosen device and with the user's names where it has any, and the task.

    A ``HeteroData`` comes as the typed graph that the library works on.
    """
    parts, deleted = _load(settings.data), Deletion()
    if settings.data.tombstones is not None:
        stripped = [find_tombstones(settings.data.tombstones).strip(part) for part in parts]
        parts, deleted = tuple(part for part, _ in stripped), stripped[0][1]
    settings, options = _with_task(settings, parts[0]), settings.data
    many, wanted = isinstance(parts[0].data, GraphBatch), settings.task.name == "graph"
    if many != wanted:
        holds = "many graphs; use --task graph" if many else "one graph; use a dataset of graphs such as proteins"
        raise GraphError(f"'{options.dataset or options.graph}' holds {holds}, or another task")
    split = {"graph": _split_graphs, "node": _split_nodes}.get(settings.task.name, _split_links)
    data, task = split(parts, settings)
    device = find_device(settings.train.device, "train.device")
    return replace(parts[0], data=data.to(device)), task.without(deleted.nodes)


def find_tombstones(path: Path) -> Tombstones:
    """What was deleted: from a file, or from the home of a service."""
    if not path.is_dir():
        return Tombstones.load(path)
    from gnndelete.service.lifecycle import open_service

    return open_service(path).tombstones("default")


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
        graph = load_graph(path, **tables)
        return (replace(graph, data=collate(graph.data)),)
    if tables:
        names = some(f"'data.{name}'" for name in tables)
        raise SettingError(f"{names} says how tables are read, and --graph names none; leave it out")
    if settings.dataset is None:
        raise SettingError(
            "there is no graph to work on; give --dataset NAME (see 'gnndelete ls datasets') or --graph PATH"
        )
    return (NamedGraph(collate(load(settings.dataset, settings.root))),)


def _with_task(settings: Settings, graph: NamedGraph) -> Settings:
    """The settings with the task that the tables suggest, where it is ``auto``."""
    if settings.task.name != "auto":
        return settings
    edges = () if graph.tables is None else graph.tables.edges
    of_kind = [each for each in edges if settings.task.edges in (None, each.name)]
    ranks = len(of_kind) == 1 and of_kind[0].source_type != of_kind[0].target_type and not graph.relations
    name: Any = "graph" if isinstance(graph.data, GraphBatch) else "ranking" if ranks else "link"
    return settings.model_copy(update={"task": settings.task.model_copy(update={"name": name})})


def with_layout(settings: Settings) -> Settings:
    """The settings with the layout of tables that the model's ``forward`` asks for, where none is set.

    A class whose ``forward`` takes ``edge_index`` reads one ``Data``; one that takes ``edge_index_dict``, a ``HeteroData``.
    """
    data = settings.data
    if data.graph is None or data.layout is not None or not data.graph.exists() or not is_tables(data.graph):
        return settings
    forward = getattr(find_factory(settings.model.name), "forward", None)
    takes = set() if forward is None else set(inspect.signature(forward).parameters)
    if "edge_index" in takes:
        return settings.model_copy(update={"data": data.model_copy(update={"layout": "single"})})
    if "edge_index_dict" in takes:
        return settings.model_copy(update={"data": data.model_copy(update={"layout": "hetero"})})
    return settings


def _split_graphs(parts: tuple[NamedGraph, ...], settings: Settings) -> tuple[Data, Task]:
    options, data = settings.data, parts[0].data
    _refuse_files(options, "whole graphs")
    if options.split == "random" or (options.split == "auto" and "train_mask" not in data):
        ids = range(data.num_graphs)
        data = with_split(data, split_graphs(ids, options.seed, 1 - options.val - options.test, options.val))
    task = GraphClassification()
    task.check(data)
    return data, task


def _refuse_files(options: DataSettings, noun: str) -> None:
    if options.validation is not None or options.test_file is not None:
        raise NotYetError(
            f"--validation and --test name edges or nodes, and the task is about {noun}; mark them in masks"
        )


def _split_links(parts: tuple[NamedGraph, ...], settings: Settings) -> tuple[Data, Task]:
    """The graph that the model was trained on, and the task with what it never saw."""
    options, graph, data = settings.data, parts[0], parts[0].data
    typed, drawn = "edge_type" in data and not isinstance(data, HeteroGraph), options.split == "random"
    kind = _predicted(graph, settings)
    named = _unseen_of_files(graph, settings, kind) or _unseen_of_column(graph, kind)
    held: dict[str, Any]
    if len(parts) == 3:
        if drawn or named:
            raise GraphError(f"'{options.graph}' is already split in three parts; leave data.split at auto")
        held = {"validation": parts[1].data, "test": parts[2].data}
    elif named:
        data, held = _without(data, list(named.values()), kind), named
    elif not drawn and "validation" in data and "test" in data:  # a dataset that brings them, such as ogbl-collab
        held = {name: data[name] for name in _PARTS if name in data}
        data = Data.from_dict({name: value for name, value in data.to_dict().items() if name not in held})
    elif options.split == "none" or (options.split == "given" and not (typed and "val_mask" in data)):
        held = {}
    elif isinstance(data, HeteroGraph):
        held = _drawn_edges(data, kind, options)
        data = _without(data, list(held.values()), kind)
    else:
        given = typed and options.split == "given"
        split = split_links(data, seed=options.seed, val=options.val, test=options.test, given=given)
        data, held = split.data, {name: getattr(split, name) for name in _PARTS}
    decoder = settings.task.decoder or ("distmult" if typed else "dot")
    make = RankingPrediction if settings.task.name == "ranking" else LinkPrediction
    loss: Any = {} if settings.task.loss is None else {"loss": settings.task.loss}
    task = make(decoder=decoder, seed=options.seed, edge_type=kind, **loss, **held)
    task.how_to_name_unseen = WAY_OUT
    return data, task.on(data)


_PARTS = ("validation", "test", "validation_negatives", "test_negatives")

#: How to say on the command line what the model never saw.
WAY_OUT = "name those it never saw with gnndelete adopt --validation FILE --test FILE, or in a split column"


def _predicted(graph: NamedGraph, settings: Settings) -> tuple[str, str, str] | None:
    """The edge type of a HeteroData that the task is about; None on other graphs."""
    wanted = settings.task.edges
    if not isinstance(graph.data, HeteroGraph):
        if wanted is not None:
            raise SettingError(f"--predict names the edges '{wanted}', and there is one kind; leave it out")
        return None
    known = {kind[1]: kind for kind in graph.data.types.forward()}
    if wanted is None and len(known) > 1:
        raise SettingError(
            f"the tables hold {len(known)} kinds of edges ({some(known, 12)}); say which ones the model predicts, such as "
            f"--predict {next(iter(known))}"
        )
    if wanted is not None and wanted not in known:
        raise SettingError(unknown("there are no edges called", wanted, known))
    return next(iter(known.values())) if wanted is None else known[wanted]


def _unseen_of_files(graph: NamedGraph, settings: Settings, kind: Any) -> dict[str, Tensor]:
    """The edges in the files of ``--validation`` and ``--test``, by part; on a HeteroData pairs of one edge type."""
    options, found = settings.data, {}
    for part, path in (("validation", options.validation), ("test", options.test_file)):
        if path is None:
            continue
        if any(unseen for unseen in graph.unseen.values()):
            raise SettingError(
                f"--{'test' if part == 'test' else part} names a file, and the tables have a split column; use one"
            )
        named = _elements_of(path, graph, part)
        edges = named.edges if kind is None else named.by_type[kind].edges if kind in named.by_type else named.edges
        if not edges.size(1):
            raise GraphError(
                f"'{path}' names {some(in_words(named.counts)) or 'nothing'}, and the model predicts edges; give these"
            )
        found[part] = edges
    if len(found) == 2 and (again := int(is_among(found["test"], found["validation"]).sum())):
        raise GraphError(f"{again:,} edges are in the files of --validation and of --test; keep each in one of them")
    return found


def _elements_of(path: Path, graph: NamedGraph, part: str) -> Deletion:
    """What a file of ``--validation`` or ``--test`` names, in the ids of the tables."""
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    try:
        return Deletion.from_csv(path, graph=graph)
    except DeletionError as error:
        raise GraphError(error.why.replace("the request file", f"the {part} file"), error.remedy) from None


def _unseen_of_column(graph: NamedGraph, kind: Any) -> dict[str, Tensor]:
    """The edges that a split column marks, by part."""
    by_part: dict[str, list[Tensor]] = {}
    for of_kind, parts in graph.unseen.items():
        for part, edges in parts.items():
            if kind in (None, of_kind):
                by_part.setdefault(part, []).append(edges)
    return {part: torch.cat(edges, dim=1) for part, edges in by_part.items()}


def _drawn_edges(data: HeteroGraph, kind: Any, options: DataSettings) -> dict[str, Tensor]:
    """Validation and test edges of one edge type, drawn at random."""
    pairs = Relation.of(data, kind).learned(data)
    pairs = torch.unique(pairs, dim=1)
    order = torch.randperm(pairs.size(1), generator=torch.Generator().manual_seed(options.seed))
    count, most = int(options.val * order.numel()), int((options.val + options.test) * order.numel())
    return {"validation": pairs[:, order[:count]], "test": pairs[:, order[count:most]]}


def _without(data: Data, held: list[Tensor], kind: Any) -> Data:
    """The graph without edges that are held out, where it has them, in both directions."""
    edges, table = torch.cat(held, dim=1), edge_table(data)
    if isinstance(data, HeteroGraph):
        edges = data.place_edges(kind, edges, "validation and test edges")
    edges = edges[:, table.contains(edges) | (table.undirected & table.contains(edges.flip(0)))]
    keep = torch.ones(data.edge_index.size(1), dtype=torch.bool)
    if edges.size(1):
        keep[table.positions(table.both_ways(edges))] = False
    if not bool(keep.any()):
        raise GraphError(
            "the validation and test edges are all edges there are; name fewer, since the model learned from others"
        )
    return data.with_edges(keep) if isinstance(data, HeteroGraph) else keep_edges(data, keep, int(data.num_nodes or 0))


def _split_nodes(parts: tuple[NamedGraph, ...], settings: Settings) -> tuple[Data, Task]:
    options = settings.data
    if len(parts) == 3:
        raise GraphError(
            f"'{options.graph}' holds three parts, which is a split of links; give one Data with masks for --task node"
        )
    data, task = _with_masks(parts[0], options), NodeClassification()
    marked = "train_mask" in data or isinstance(data, HeteroGraph)
    if options.split == "random" or (options.split == "auto" and not (options.graph and marked)):
        if options.val + options.test >= 1:
            raise SettingError(
                f"data.val ({options.val}) and data.test ({options.test}) leave nothing to train on; lower them"
            )
        data = split_nodes(data, seed=options.seed, train=1 - options.val - options.test, val=options.val)
    found = task.on(data)
    found.check(data)
    return data, found


def _with_masks(graph: NamedGraph, options: DataSettings) -> Data:
    """The graph with masks of the nodes that the files of ``--validation`` and ``--test`` name."""
    files = {"val_mask": options.validation, "test_mask": options.test_file}
    if all(path is None for path in files.values()):
        return graph.data
    if isinstance(graph.data, HeteroGraph):
        _refuse_files(options, "nodes of a HeteroData")
    data = copy.copy(graph.data)
    for name, path in files.items():
        if path is not None:
            named = _elements_of(path, graph, name.removesuffix("_mask"))
            if not named.nodes.numel():
                raise GraphError(
                    f"'{path}' names {some(in_words(named.counts))}, and the task is about nodes; give these"
                )
            data[name] = torch.zeros(int(data.num_nodes or 0), dtype=torch.bool).index_fill(0, named.nodes, True)
    if "train_mask" in data:
        gone = torch.stack([data[name] for name in files if name in data]).any(dim=0)
        data.train_mask = data.train_mask & ~gone
    return data


def graph_sizes(graph: NamedGraph) -> dict[str, Any]:
    """What a factory may ask of the graph by the names of its arguments, beside `FROM_GRAPH`.

    ``num_users`` or ``num_user`` is the number of nodes of the type ``user``; ``metadata``, ``num_nodes_dict`` and
    ``in_channels_dict`` are those of a ``HeteroData``, and ``data`` is the graph itself.
    """
    data, counts = graph.data, {}
    if graph.ids is not None:
        counts = {name: len(rows) for name, rows in graph.ids.types.items()}
    found: dict[str, Any] = {"data": as_user_graph(data)}
    if isinstance(data, HeteroGraph):
        counts = {name: len(rows) for name, rows in data.types.nodes.items()}
        widths = {name: x.size(1) for name, x in data.features().items()}
        found |= {"metadata": data.hetero.metadata(), "num_nodes_dict": counts, "in_channels_dict": widths}
    return found | {f"num_{name}{plural}": count for name, count in counts.items() for plural in ("", "s")}


def model_options(settings: ModelSettings, graph: NamedGraph, task: str) -> dict[str, Any]:
    """All options of the model of a run: those that were set, defaults, and sizes that the graph gives."""
    factory, builtin = _factory(settings.name, task), ":" not in settings.name
    sizes = {} if builtin else graph_sizes(graph)
    return fill_options(factory, settings.options, graph.data, task, settings.name, builtin, sizes)


def build_model(settings: ModelSettings, graph: NamedGraph, task: str, seed: int) -> nn.Module:
    """An untrained model with weights drawn from ``seed``."""
    options = model_options(settings, graph, task)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        with running(
            f"the model '{settings.name}' cannot be made", "correct it, or set its options by --set model.NAME=…"
        ):
            model = _factory(settings.name, task)(**options)
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"'{settings.name}' returned a '{type(model).__name__}'; a factory must return a torch.nn.Module"
        )
    return model


def start_model(settings: Settings, graph: NamedGraph) -> nn.Module:
    """The model that training starts from, on the device of the graph: new weights, or those of the checkpoint."""
    model = build_model(settings.model, graph, settings.task.name, settings.train.seed)
    if settings.model.checkpoint is not None:
        load_weights(settings.model.checkpoint, model)
    return model.to(graph.data.edge_index.device)


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


def find_fit(name: str) -> Callable[..., Any]:
    """The function that ``file.py:function`` or ``package.module:function`` names, which trains a model as it was trained."""
    path, colon, attribute = name.rpartition(":")
    found = getattr(load_module(path), attribute, None) if colon else None
    if found is None or not callable(found):
        what = "names no function" if not colon else "is not in it" if found is None else "is no function"
        raise SettingError(
            f"--fit '{name}': '{attribute}' {what}; give file.py:function, where function(model, data, seed) trains"
        )
    try:
        inspect.signature(found).bind(None, None, None)
    except TypeError:
        raise SettingError(
            f"--fit '{name}' does not take what it is called with, function(model, data, seed); give it these three arguments"
        ) from None

    @wraps(found)
    def fit(*arguments: Any, **options: Any) -> Any:
        with running(f"--fit '{name}' failed", "correct it; it trains the model in place, or returns it"):
            return found(*arguments, **options)

    return fit


def fit_function(settings: Settings, task: Task, method: Method | None = None, progress: bool = True) -> Fit:
    """A function that trains: the user's own, else by the schedule of the run and what parameters of ``method`` set instead."""
    if settings.train.fit is not None:
        return find_fit(settings.train.fit)
    schedule = settings.train.model_dump(include=set(SCHEDULE))
    schedule |= {name: getattr(method, name) for name in schedule if hasattr(method, name)}
    return loop.LoopFit(task, {**schedule, "progress": progress})


def build_function(
    settings: Settings, graph: NamedGraph, seed: Callable[[], int] = torch.initial_seed
) -> Callable[[], nn.Module] | None:
    """A function that makes the model of the run again; None for built-in models, whose weights can be reset."""
    if ":" not in settings.model.name:
        return None
    return lambda: build_model(settings.model, graph, settings.task.name, seed())
