"""What a cell works on, made from its key: the graph with its split, the task, an untrained model, what is deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.bench.dataset_names import load_dataset
from gnndelete.datasets import forget_edges, forget_graphs, forget_nodes, split_graphs, split_links, split_nodes
from gnndelete.datasets.forget import edge_pool, share
from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.batch import GraphBatch, collate, with_split
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.validation import count_relations
from gnndelete.models import resolver as models
from gnndelete.models.from_graph import fill_options, model_factory
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task

_HELD_OUT = ("validation", "test", "validation_negatives", "test_negatives")


@dataclass(frozen=True)
class Material:
    """A training graph on its device, and the task with its unseen data."""

    data: Data
    task: Task


def material(key: Mapping[str, Any], device: torch.device) -> Material:
    """The graph and the task of a key. The last few are kept, since cells that share one follow each other."""
    parts = json.dumps([key["dataset"], key["task"], key["split"], key["seed"]])
    return _material(parts, str(device))


@lru_cache(maxsize=2)
def _material(parts: str, device: str) -> Material:
    dataset, task, split, seed = json.loads(parts)
    data = _loaded(dataset)
    if isinstance(data, GraphBatch) != (task == "graph"):
        what = "many graphs" if isinstance(data, GraphBatch) else "one graph"
        raise GraphError(f"'{dataset}' is {what}, and the task is '{task}'; choose another dataset or task")
    made = {"link": _links, "node": _nodes, "graph": _graphs}[task](data, dict(split), seed)
    return Material(made.data.to(device), made.task)


@lru_cache(maxsize=1)
def _loaded(dataset: str) -> Any:
    return collate(load_dataset(dataset))


def _links(data: Data, split: dict[str, Any], seed: int) -> Material:
    decoder, given = "distmult" if "edge_type" in data else "dot", split.pop("given", False)
    if given and "validation" in data:  # the graph of its training edges, with the unseen ones beside it
        parts = {name: data[name] for name in _HELD_OUT if name in data}
        rest = Data.from_dict({name: value for name, value in data.to_dict().items() if name not in parts})
        return Material(rest, LinkPrediction(decoder=decoder, seed=seed, **parts))
    made = split_links(data, seed=seed, given=given, **split)
    parts = {name: getattr(made, name) for name in _HELD_OUT}
    return Material(made.data, LinkPrediction(decoder=decoder, seed=seed, **parts))


def _nodes(data: Data, split: dict[str, Any], seed: int) -> Material:
    return Material(data if split.pop("given", False) else split_nodes(data, seed=seed, **split), NodeClassification())


def _graphs(data: GraphBatch, split: dict[str, Any], seed: int) -> Material:
    if not split.pop("given", False):
        data = with_split(data, split_graphs(range(data.num_graphs), seed, **split))
    return Material(data, GraphClassification())


def build_model(key: Mapping[str, Any], data: Data) -> nn.Module:
    """The untrained model of a key, with weights drawn from its seed, on the device of the graph."""
    options = {name: value for name, value in key["model"].items() if name != "name"}
    name, task = key["model"]["name"], key["task"]
    factory = model_factory(models.lookup(name), task)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key["seed"])
        model: nn.Module = factory(**fill_options(factory, options, data, task, name))
    return model.to(data.edge_index.device)


def requests(key: Mapping[str, Any], made: Material) -> list[Deletion]:
    """What is deleted: one request, or as many as there are steps, which together are the one."""
    forget, seed = key["forget"], key["seed"]
    elements, name = _drawn(forget, made, seed)
    order = torch.randperm(elements.size(-1), generator=torch.Generator().manual_seed(seed))
    steps = forget["steps"]
    if steps == 1:
        return [_deletion(name, elements, made)]
    if steps > order.numel():
        raise SettingError(f"{order.numel()} {name} cannot be deleted in {steps} steps; ask for fewer")
    return [_deletion(name, elements[..., part.sort().values], made) for part in order.tensor_split(steps)]


def all_inside(key: Mapping[str, Any], made: Material) -> str:
    """What to say where the edges IN are all there are, as on small and dense graphs; else nothing."""
    forget, test = key["forget"], made.task.test if isinstance(made.task, LinkPrediction) else None
    if forget["kind"] != "edges" or forget["where"] != "in" or test is None:
        return ""
    inside = bool(edge_pool(made.data, test.positives, forget["hops"]).all())
    return "All training edges are IN (within two hops of test edges), so this equals where: random." if inside else ""


def _drawn(forget: Mapping[str, Any], made: Material, seed: int) -> tuple[Tensor, str]:
    """The elements on the CPU, and the word that `Deletion` has for them."""
    kind, amount, data = forget["kind"], forget["amount"], made.data
    if kind == "edges":
        where, test = forget["where"], None
        if where == "anywhere":
            data, where = data.__copy__(), "random"
            del data["train_mask"]  # then edges are drawn from all graphs
        if isinstance(made.task, LinkPrediction) and made.task.test is not None:
            test = made.task.test.positives
        elif where in ("in", "out"):
            raise SettingError(f"where: {where} is relative to test edges, and the task has none; take random")
        return forget_edges(data, amount, where, test=test, hops=forget["hops"], seed=seed).cpu(), "edges"
    if kind == "graphs" or (kind == "features" and isinstance(data, GraphBatch)):
        return forget_graphs(data, amount, seed=seed), kind
    if kind == "relations":
        total = count_relations(data)
        count = share(amount, total, "relations")
        return torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].sort().values, kind
    return forget_nodes(data, amount, seed=seed), kind


def _deletion(name: str, elements: Tensor, made: Material) -> Deletion:
    if name == "features" and isinstance(made.data, GraphBatch):
        elements = made.data.nodes_of(elements.to(made.data.ptr.device)).cpu()
    return Deletion(**{name: elements})
