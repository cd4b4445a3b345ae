"""Calling the user's model on a graph: arguments are the attributes of ``data`` with the same names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gnndelete.errors import ModelError

Forward = Callable[[nn.Module, Any], Any]

_WHOLE = ("data", "batch", "graph", "g")


def call(model: nn.Module, data: Any) -> Any:
    """Run ``model`` on ``data``: each argument of ``forward`` is the attribute of ``data`` with its name.

    A model whose ``forward`` takes the whole graph (``forward(self, data)``) gets it; one that hides its arguments
    behind ``*args`` gets ``x`` and ``edge_index``.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCNConv
    >>> data = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> call(GCNConv(4, 2), data).shape
    torch.Size([3, 2])
    """
    parameters = inspect.signature(model.forward).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not named:
        return model(data.x, data.edge_index)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for index, parameter in enumerate(named):
        found, value = _lookup(data, parameter.name)
        if parameter.name == "batch" and index == 0:  # the whole batch of graphs, not the vector of that name
            found = False
        if not found and parameter.name in _WHOLE and index == 0 and parameter.default is parameter.empty:
            found, value = True, data
        if not found:
            if parameter.default is parameter.empty:
                raise ModelError(
                    f"forward of '{type(model).__name__}' needs the argument '{parameter.name}', and the graph has no "
                    f"attribute of that name (it has: {', '.join(data.keys())}); pass forward=lambda model, data: …, or, as "
                    "from the command line, wrap the model in one whose forward has the graph's names"
                )
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            keywords[parameter.name] = value
    return model(*positional, **keywords)


def _lookup(data: Any, name: str) -> tuple[bool, Any]:
    if name in data and data[name] is not None:
        return True, data[name]
    if name == "num_nodes" or (name == "num_graphs" and hasattr(data, "num_graphs")):
        return True, getattr(data, name)
    if name in ("x_dict", "edge_index_dict", "edge_attr_dict") and hasattr(data, "node_types"):
        return True, getattr(data, name)
    return False, None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its own training flag back afterwards."""
    flags = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in flags.items():
            module.training = training
