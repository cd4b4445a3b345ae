"""What a cell works on, made from its key: the graph and its split, the task, the trained model, what is deleted."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.bench.cells import digest
from gnndelete.bench.experiment import TASKS, load_dataset
from gnndelete.bench.results_file import source
from gnndelete.datasets import forget_edges, forget_graphs, forget_nodes, split_graphs, split_links, split_nodes
from gnndelete.datasets.forget import edge_pool, share
from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.batch import GraphBatch, collate, with_split
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.validation import count_relations
from gnndelete.io.files import write
from gnndelete.models import fill_options, model_factory
from gnndelete.models import resolver as models
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task
from gnndelete.training.loop import train

#: Parts of a link task that a dataset may come with.
_GIVEN_PARTS = ("validation", "test", "validation_negatives", "test_negatives")


@dataclass(frozen=True)
class Material:
    """A training graph on its device, and the task with its validation and test data."""

    data: Data
    task: Task
    test_edges: Tensor | None = None


def load_material(key: Mapping[str, Any], device: torch.device) -> Material:
    """The graph and the task of a key. The last two are cached: cells that share one follow each other."""
    parts = json.dumps([key["dataset"], key["task"], key["split"], key["seed"], key["train"].get("loss", "bce")])
    return _load_material(parts, str(device))


@lru_cache(maxsize=2)
def _load_material(parts: str, device: str) -> Material:
    dataset, task, split, seed, loss = json.loads(parts)
    data = _load_graph(dataset)
    many = isinstance(data, GraphBatch)
    if many != (TASKS[task].divides == "graphs"):
        what = "many graphs" if many else "one graph"
        raise GraphError(f"'{dataset}' is {what}, and the task is '{task}'", "choose another dataset or task")
    made = _SPLITTERS[task](data, dict(split), seed)
    if isinstance(made.task, LinkPrediction):
        made.task.paired = loss == "bpr"
    return Material(made.data.to(device), made.task, made.test_edges)


@lru_cache(maxsize=1)
def _load_graph(dataset: str) -> Any:
    return collate(load_dataset(dataset))


def _split_links(data: Data, split: dict[str, Any], seed: int) -> Material:
    given = split.pop("given", False)
    if given and "validation" in data:  # the graph has its training edges only, and the other parts as attributes
        parts = {name: data[name] for name in _GIVEN_PARTS if name in data}
        graph = Data.from_dict({name: value for name, value in data.to_dict().items() if name not in parts})
    else:
        made = split_links(data, seed=seed, given=given, **split)
        graph, parts = made.data, {name: getattr(made, name) for name in _GIVEN_PARTS}
    task = LinkPrediction(decoder="distmult" if "edge_type" in data else "dot", seed=seed, **parts)
    return Material(graph, task, None if task.test is None else task.test.positives)


def _split_nodes(data: Data, split: dict[str, Any], seed: int) -> Material:
    graph = data if split.pop("given", False) else split_nodes(data, seed=seed, **split)
    return Material(graph, NodeClassification())


def _split_graphs(data: GraphBatch, split: dict[str, Any], seed: int) -> Material:
    if not split.pop("given", False):
        data = with_split(data, split_graphs(range(data.num_graphs), seed, **split))
    return Material(data, GraphClassification())


#: How the graph of a task is split, by the name of the task.
_SPLITTERS: dict[str, Callable[[Any, dict[str, Any], int], Material]] = {
    "link": _split_links,
    "node": _split_nodes,
    "graph": _split_graphs,
}


# Models.


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, the seconds of its training, and the state of the source that trained it (None if unknown)."""

    model: nn.Module
    seconds: float
    source: str | None


def build_model(key: Mapping[str, Any], data: Data) -> nn.Module:
    """The untrained model of a key, with weights drawn from its seed, on the device of the graph."""
    options = {name: value for name, value in key["model"].items() if name != "name"}
    name, task = key["model"]["name"], key["task"]
    factory = model_factory(models.lookup(name), task)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key["seed"])
        model: nn.Module = factory(**fill_options(factory, options, data, task, name))
    return model.to(data.edge_index.device)


def base_model(key: Mapping[str, Any], folder: Path, device: torch.device) -> TrainedModel:
    """The trained model of a base key: from its file, or trained and written there. The last three are cached."""
    return _base_model(json.dumps(key, sort_keys=True), folder, str(device))


@lru_cache(maxsize=3)
def _base_model(text: str, folder: Path, device: str) -> TrainedModel:
    key = json.loads(text)
    material = load_material(key, torch.device(device))
    model = build_model(key, material.data)
    path = model_file(folder, key)
    seconds, trained_by = train_once(path, model, lambda: fit(model, material, key["train"], key["seed"]))
    return TrainedModel(model.eval(), seconds, trained_by)


def fit(model: nn.Module, material: Material, schedule: Mapping[str, Any], seed: int) -> None:
    """Train a base model."""
    train(model, material.data, material.task, seed=seed, **loop_options(schedule))


def loop_options(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `gnndelete.train` in a schedule; the loss is the task's."""
    return {name: value for name, value in schedule.items() if name != "loss"}


def model_file(folder: Path, key: Mapping[str, Any]) -> Path:
    """Where the weights of a trained model are."""
    return folder / f"{digest(key)}.pt"


def train_once(path: Path, model: nn.Module, work: Callable[[], object]) -> tuple[float, str | None]:
    """Load the weights of a file into a model, or do the ``work`` that trains it and write them.

    Returns:
        The seconds of the training, and the state of the source that did it.
    """
    if path.is_file():
        before = {name: value.clone() for name, value in model.state_dict().items()}
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            model.load_state_dict(saved["state"])
            return float(saved["seconds"]), saved.get("source")
        except Exception:  # torch reports a damaged file in many ways
            model.load_state_dict(before)  # some of its tensors may have been loaded
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    buffer = io.BytesIO()
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    torch.save({"state": state, "seconds": seconds, "source": source()}, buffer)
    write(path, buffer.getvalue())
    return seconds, source()


# What is deleted.


def requests(key: Mapping[str, Any], material: Material) -> list[Deletion]:
    """What is deleted: one request, or as many as there are steps, with the same elements in total."""
    forget, seed = key["forget"], key["seed"]
    kind, steps = forget["kind"], forget["steps"]
    elements = _draw(forget, material, seed)
    if steps == 1:
        return [_deletion(kind, elements, material)]
    order = torch.randperm(elements.size(-1), generator=torch.Generator().manual_seed(seed))
    if steps > order.numel():
        raise SettingError(f"{order.numel()} {kind} cannot be deleted in {steps} steps", "ask for fewer")
    return [_deletion(kind, elements[..., part.sort().values], material) for part in order.tensor_split(steps)]


def all_edges_inside(key: Mapping[str, Any], material: Material) -> bool:
    """Whether ``where: in`` draws from all training edges, as on small and dense graphs."""
    forget = key["forget"]
    if forget["kind"] != "edges" or forget["where"] != "in" or material.test_edges is None:
        return False
    return bool(edge_pool(material.data, material.test_edges, forget["hops"]).all())


def _draw(forget: Mapping[str, Any], material: Material, seed: int) -> Tensor:
    """The elements that are deleted, on the CPU; graphs stand for the features of all their nodes."""
    kind, amount, data = forget["kind"], forget["amount"], material.data
    if kind == "edges":
        where = forget["where"]
        if where == "anywhere":
            data, where = data.__copy__(), "random"
            del data["train_mask"]  # then edges are drawn from all graphs
        test = material.test_edges if where in ("in", "out") else None
        return forget_edges(data, amount, where, test=test, hops=forget["hops"], seed=seed).cpu()
    if kind == "graphs" or (kind == "features" and isinstance(data, GraphBatch)):
        return forget_graphs(data, amount, seed=seed)
    if kind == "relations":
        total = count_relations(data)
        count = share(amount, total, "relations")
        return torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].sort().values
    return forget_nodes(data, amount, seed=seed)


def _deletion(kind: str, elements: Tensor, material: Material) -> Deletion:
    if kind == "features" and isinstance(material.data, GraphBatch):
        elements = material.data.nodes_of(elements.to(material.data.ptr.device)).cpu()
    wanted: dict[str, Any] = {kind: elements}
    return Deletion(**wanted)
