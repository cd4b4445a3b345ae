"""Options of a model that follow from its graph: widths, entities, classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch_geometric.data import Data

from gnndelete.errors import GraphError
from gnndelete.graph.validation import count_relations
from gnndelete.models.pooled import Categories
from gnndelete.registry import check_parameters

#: Options that the graph decides; they can be left out of a configuration.
FROM_GRAPH = ("in_channels", "num_classes", "num_nodes", "num_relations", "categories")


def model_factory(kind: Any, task: str) -> Callable[..., Any]:
    """The function that makes a built-in model for a task; models of whole graphs get a pool."""
    from gnndelete.models import pooled

    return partial(pooled, kind) if task == "graph" else kind


def defaults(factory: Callable[..., Any]) -> dict[str, Any]:
    """The default values of a factory that are plain.

    >>> from gnndelete.models import GCN
    >>> defaults(GCN)["hidden"]
    128
    """
    takes = inspect.signature(factory).parameters
    return {name: p.default for name, p in takes.items() if isinstance(p.default, (bool, int, float, str, type(None)))}


def fill_options(
    factory: Callable[..., Any], given: Mapping[str, Any], data: Data, task: str, name: str, builtin: bool = True
) -> dict[str, Any]:
    """All options of a model: those given, those that follow from the graph, and the defaults of its factory.

    Arguments called ``in_channels``, ``num_classes``, ``num_nodes`` and ``num_relations``, and ``out`` of a built-in model
    that classifies, are filled in from the graph where nothing else is given.

    >>> from gnndelete.datasets import load
    >>> from gnndelete.models import GCN
    >>> fill_options(GCN, {"hidden": 8}, load("digits"), "node", "gcn")["out"]
    10
    """
    filled: dict[str, Any] = {"in_channels": data.num_features, "num_nodes": data.num_nodes}
    filled |= {"num_classes": _classes(data), "num_relations": count_relations(data)}
    if isinstance(data.x, torch.Tensor):
        filled["categories"] = Categories.sizes(data.x)
    if builtin and task in ("node", "graph"):
        filled["out"] = _classes(data)
    takes = inspect.signature(factory).parameters
    needs = "in_channels" in takes and takes["in_channels"].default is inspect.Parameter.empty
    if needs and "in_channels" not in given and not data.num_features:
        other = (
            "take --model rgcn or rgat" if "edge_type" in data else "bring one that needs none: --model file.py:factory"
        )
        raise GraphError(
            f"the graph has no node features, and the model '{name}' computes from them; add columns of numbers "
            f"to the table of nodes (data.x), or {other}"
        )
    if builtin and "num_relations" in takes and not filled["num_relations"]:
        raise GraphError(f"the model '{name}' is for typed edges, and the graph has no 'edge_type'; take --model gcn")
    options = defaults(factory) | {name: value for name, value in filled.items() if name in takes} | dict(given)
    return check_parameters(factory, options, f"model '{name}'", "model.")


def _classes(data: Data) -> int | None:
    y = data.get("y")
    return int(y.max()) + 1 if isinstance(y, torch.Tensor) and y.numel() and not y.is_floating_point() else None
