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

#: A module of any class says with this attribute that its output is a node representation: attention written by hand, say.
MARK = "gnndelete_layer"

#: ``"all"``, ``"last"`` or the names of modules.
Layers = str | list[str]


def graph_layers(model: nn.Module) -> list[str]:
    """Names of the outermost graph layers: PyG blocks, marked modules, else every MessagePassing not inside another one."""
    found: list[str] = []
    seen: set[nn.Module] = set()  # a module under several names goes by its first, as in named_modules

    def visit(module: nn.Module, name: str) -> None:
        if module in seen:
            return
        seen.add(module)
        if gathers(module):
            found.extend(f"{name}.{part}".lstrip(".") for part in gathers(module))
            return
        if isinstance(module, (*BLOCKS, MessagePassing)) or getattr(module, MARK, False) is True:
            found.append(name)
            return
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}" if name else child_name)

    visit(model, "")
    return found


def working_copy(model: nn.Module) -> nn.Module:
    """A deep copy to work on. Layers that keep a normalised graph from an earlier call forget it: it holds deleted edges."""
    result = copied(model)
    for module in result.modules():
        if kept_graph(module) is not None:
            forget_graph(module)
        if isinstance(module, GraphModule):
            gather(module)
    return result


def copied(model: nn.Module) -> nn.Module:
    """A deep copy. What a layer keeps of an earlier call with gradients (attention, a cached product) is copied without them.

    >>> import torch
    >>> layer = nn.Linear(2, 2)
    >>> layer.last = layer(torch.ones(1, 2))
    >>> copied(layer).last.requires_grad, layer.last.requires_grad
    (False, True)
    """
    try:
        return copy.deepcopy(model, _given(model))
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"the model '{type(model).__name__}' cannot be copied ({error}); let it keep nothing but modules, parameters and "
            "plain values in its attributes"
        ) from error


def _given(model: nn.Module) -> dict[int, object]:
    """What need not, or cannot, be copied piece by piece.

    What PyG knows about a layer's signature never changes, and every module has a dozen dictionaries of hooks, mostly empty:
    to copy these would cost more than the weights of a small model. Tensors with a history are left over from a call.
    """
    given: dict[int, object] = {}
    for module in model.modules():
        if isinstance(module, MessagePassing):
            given[id(module.inspector)] = module.inspector
        given |= {id(v): OrderedDict() for v in vars(module).values() if type(v) is OrderedDict and not v}
        given |= {id(v): v.detach().clone() for v in _tensors(list(vars(module).values())) if not v.is_leaf}
    return given


def _tensors(value: object) -> Iterator[Tensor]:
    """All tensors in lists, tuples and dicts within each other."""
    left, met = [value], set[int]()
    while left:
        part = left.pop()
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, (list, tuple, dict)) and part and id(part) not in met:
            met.add(id(part))
            left.extend(part.values() if isinstance(part, dict) else part)


def gathering(model: nn.Module) -> nn.Module:
    """The model with the modules that `gather` adds: a copy where it adds any."""
    return working_copy(model) if any(isinstance(part, GraphModule) for part in model.modules()) else model


def gathered_parts(model: nn.Module) -> list[str]:
    """Names of the parts of a model that `to_hetero` made: their inputs are node representations by type."""
    return [name for name, module in model.named_modules() if gathers(module)]


def chosen_layers(model: nn.Module, found: list[str], layers: Layers) -> list[str]:
    """The layers that a setting names, among those that were ``found``; or one sentence that says why there are none."""
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
