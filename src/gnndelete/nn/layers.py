"""A model's graph layers by name, and copies of a model to work on."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator

from torch import Tensor, nn
from torch.fx import GraphModule
from torch_geometric.nn import GPSConv, HeteroConv, MessagePassing
from torch_geometric.nn.models import DeepGCNLayer

from gnndelete.errors import ModelError, SettingError, some
from gnndelete.nn.forward import forget_graph, kept_graph
from gnndelete.nn.to_hetero import gather, gathers

#: Blocks whose output, not that of the layers inside, is the node representation.
BLOCKS = (GPSConv, HeteroConv, DeepGCNLayer)

#: With this attribute set to True a module of any class says that its output is a node representation.
MARK = "gnndelete_layer"

#: ``"all"``, ``"last"`` or the names of modules.
Layers = str | list[str]


def graph_layers(model: nn.Module) -> list[str]:
    """Names of the outermost graph layers: PyG blocks, marked modules, else every MessagePassing not inside another one.

    A module with several names goes by its first.
    """
    found: list[str] = []
    visited: set[nn.Module] = set()
    left = [("", model)]
    while left:
        name, module = left.pop()
        if module in visited:
            continue
        visited.add(module)
        if isinstance(module, GraphModule) and (parts := gathers(module)):
            found += [f"{name}.{part}".lstrip(".") for part in parts]
        elif isinstance(module, (*BLOCKS, MessagePassing)) or getattr(module, MARK, False) is True:
            found.append(name)
        else:
            children = [(f"{name}.{part}".lstrip("."), child) for part, child in module.named_children()]
            left += reversed(children)
    return found


def working_copy(model: nn.Module) -> nn.Module:
    """A deep copy to work on. Layers that keep a normalised graph from an earlier call forget it: it holds deleted edges.

    Args:
        model: Any model; it is not changed.

    Returns:
        The copy.

    Raises:
        ModelError: If the model cannot be copied.
    """
    result = copied(model)
    for module in result.modules():
        if kept_graph(module) is not None:
            forget_graph(module)
        if isinstance(module, GraphModule):
            gather(module)
    return result


def copied(model: nn.Module) -> nn.Module:
    """A deep copy. Tensors with gradients that a layer keeps from an earlier call are copied without their history.

    >>> import torch
    >>> layer = nn.Linear(2, 2)
    >>> layer.last = layer(torch.ones(1, 2))
    >>> copied(layer).last.requires_grad, layer.last.requires_grad
    (False, True)
    """
    known: dict[int, object] = {}  # what need not, or cannot, be copied piece by piece
    for module in model.modules():
        if isinstance(module, MessagePassing):
            known[id(module.inspector)] = module.inspector  # what PyG knows about a signature never changes
        # a module has a dozen dicts of hooks, mostly empty: to copy them costs more than the weights of a small model
        known |= {id(v): OrderedDict() for v in vars(module).values() if type(v) is OrderedDict and not v}
        known |= {id(v): v.detach().clone() for v in _tensors(vars(module)) if not v.is_leaf}
    try:
        return copy.deepcopy(model, known)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"the model '{type(model).__name__}' cannot be copied ({error})",
            "let it keep nothing but modules, parameters and plain values in its attributes",
        ) from error


def _tensors(value: object) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    left, visited = [value], set[int]()
    while left:
        part = left.pop()
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, (list, tuple, dict)) and part and id(part) not in visited:
            visited.add(id(part))
            left.extend(part.values() if isinstance(part, dict) else part)


def gathered_parts(model: nn.Module) -> list[str]:
    """Names of the parts of a model that `to_hetero` made: their inputs are node representations by type."""
    return [name for name, module in model.named_modules() if isinstance(module, GraphModule) and gathers(module)]


def chosen_layers(model: nn.Module, found: list[str], layers: Layers) -> list[str]:
    """The layers that a setting names, where the model has the graph layers ``found``; an error where there are none."""
    available = [name for name, _ in model.named_modules() if name]
    if isinstance(layers, str):
        if layers not in ("all", "last"):
            raise SettingError(
                f"'layers' must be 'all', 'last' or a list of module names (got {layers!r}); modules: {some(available, 10)}"
            )
        if not found:
            raise ModelError(
                f"'{type(model).__name__}' has no graph layers (no MessagePassing, GPSConv, HeteroConv or {MARK} = True)",
                "name the modules whose outputs are node representations with layers=[…]: "
                f"{some(available, 10) or 'it has no submodules'}",
            )
        return found
    unknown = [name for name in layers if name not in available and name != ""]
    if unknown or not layers:
        raise SettingError(
            f"'layers' names no module of the model: {some(unknown) or 'the list is empty'}; modules: {some(available, 10)}"
        )
    return list(layers)
