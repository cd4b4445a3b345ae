"""A model's graph layers by name, also in models that `to_hetero` made, and copies of a model to work on."""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch_geometric.nn import GPSConv, HeteroConv, MessagePassing
from torch_geometric.nn.models import DeepGCNLayer

from gnndelete.errors import ModelError, SettingError, some
from gnndelete.nn.forward import caching_layers, forget_graph

#: Blocks whose output, not that of the layers inside, is the node representation.
BLOCKS = (GPSConv, HeteroConv, DeepGCNLayer)

#: With this attribute set to True a module of any class says that its output is a node representation.
MARK = "gnndelete_layer"

#: By what `to_hetero` adds up messages of several edge types, and how the names of modules end that are inserted after it.
_AGGREGATIONS = (torch.add, torch.max, torch.min, torch.mul, torch.div)
_SUFFIX = "_by_type"

EdgeType = tuple[str, str, str]

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


def working_copy(model: nn.Module, share: bool = False) -> nn.Module:
    """A deep copy to work on. Layers that keep a normalised graph from an earlier call forget it: it holds deleted edges.

    With ``share`` all tensors are those of the model.
    """
    result = copied(model, share)
    for layer in caching_layers(result):
        forget_graph(layer)
    for module in result.modules():
        if isinstance(module, GraphModule):
            gather(module)
    return result


def evaluation_view(model: nn.Module) -> nn.Module:
    """The model in evaluation mode: itself, or a copy that shares its weights where one of its flags had to be changed.

    Other threads may use the model meanwhile, so nothing is written into it.
    """
    if not caching_layers(model) and not any(module.training for module in model.modules()):
        return model
    result = copied(model, share=True).eval()
    for layer in caching_layers(result):
        forget_graph(layer)
    return result


def copied(model: nn.Module, share: bool = False) -> nn.Module:
    """A deep copy. Tensors with gradients that a layer keeps from an earlier call are copied without their history.

    With ``share`` all tensors are those of the model.

    >>> import torch
    >>> layer = nn.Linear(2, 2)
    >>> layer.last = layer(torch.ones(1, 2))
    >>> copied(layer).last.requires_grad, layer.last.requires_grad
    (False, True)
    >>> copied(layer, share=True).weight is layer.weight
    True
    """
    known: dict[int, object] = {}  # what need not, or cannot, be copied piece by piece
    for module in model.modules():
        if isinstance(module, MessagePassing):
            known[id(module.inspector)] = module.inspector  # what PyG knows about a signature never changes
        # a module has a dozen dicts of hooks, mostly empty: to copy them costs more than the weights of a small model
        known |= {id(v): OrderedDict() for v in vars(module).values() if type(v) is OrderedDict and not v}
    left: list[Any] = [vars(module) for module in model.modules()]
    visited = set[int]()
    while left:  # tensors may be in nested lists, tuples and dicts
        part = left.pop()
        visited.add(id(part))
        for value in part.values() if isinstance(part, dict) else part:
            if isinstance(value, Tensor) and (share or not value.is_leaf):
                known[id(value)] = value if share else value.detach().clone()
            elif isinstance(value, (list, tuple, dict)) and value and id(value) not in visited:
                left.append(value)
    try:
        return copy.deepcopy(model, known)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"the model '{type(model).__name__}' cannot be copied ({error})",
            "let it keep nothing but modules, parameters and plain values in its attributes",
        ) from error


def chosen_layers(model: nn.Module, layers: Layers) -> list[str]:
    """The layers that a setting names in a model; an error where it names none, as in one without graph layers."""
    available = [name for name, _ in model.named_modules() if name]
    if layers in ("all", "last"):
        raise ModelError(
            f"'{type(model).__name__}' has no graph layers (no MessagePassing, GPSConv, HeteroConv or {MARK} = True)",
            "name modules that return one row per node, [nodes, width], with layers=[…]; it has: "
            f"{some(available, 10) or 'it has no submodules'}",
        )
    if isinstance(layers, str):
        raise SettingError(
            f"'layers' must be 'all', 'last' or a list of module names (got {layers!r}); modules: {some(available, 10)}"
        )
    unknown = [name for name in layers if name not in available and name != ""]
    if unknown or not layers:
        raise SettingError(
            f"'layers' names no module of the model: {some(unknown) or 'the list is empty'}; modules: {some(available, 10)}"
        )
    return list(layers)


# PyG's `to_hetero` turns one layer into a module per edge type and adds up what arrives at each node type by plain functions, so
# no module gives the representation of a node type. `gather` inserts one that hands on a dict by node type.


class ByType(nn.Module):
    """Hands on the representations of all node types behind one layer, for operators to act on."""

    def forward(self, h: dict[str, Tensor]) -> dict[str, Tensor]:
        return h


def gathers(module: nn.Module) -> list[str]:
    """Names of the modules that `gather` has put directly into this module."""
    return [name for name, child in module.named_children() if isinstance(child, ByType)]


def gather(module: GraphModule) -> None:
    """Pass the outputs of every layer of a traced model through one module, as a dict by node type (in place)."""
    types = _edge_types(module)
    if not types or gathers(module):
        return
    for layer, ends in _layers(module, types):
        name = layer.name.rsplit("__", 1)[0] + _SUFFIX
        module.add_module(name, ByType())
        last = max(ends.values(), key=list(module.graph.nodes).index)
        with module.graph.inserting_after(last):
            whole = module.graph.call_module(name, (dict(ends),))
        for kind, node in reversed(ends.items()):
            with module.graph.inserting_after(whole):
                part = module.graph.call_function(operator.getitem, (whole, kind))
            node.replace_all_uses_with(part, delete_user_cb=partial(operator.is_not, whole))
    module.graph.lint()
    module.recompile()


def _edge_types(module: GraphModule) -> dict[str, EdgeType]:
    """The edge types that the traced model takes out of its dicts, by the names of their modules."""
    found = [n.args[1] for n in module.graph.nodes if n.op == "call_method" and n.target == "get" and len(n.args) > 1]
    kinds = [key for key in found if isinstance(key, tuple) and len(key) == 3]
    return {_module_name(kind): kind for kind in kinds}


def _module_name(kind: tuple[object, ...]) -> str:
    return "__".join(map(str, kind)).replace(" ", "_").replace("-", "_").replace(":", "_")


def _layers(module: GraphModule, types: dict[str, EdgeType]) -> list[tuple[Node, dict[str, Node]]]:
    """Every call of a layer: its first node in the trace and, for each node type, the node that holds what arrived there."""
    result: list[tuple[Node, dict[str, Node]]] = []
    owner: dict[Node, str] = {}  # the node type of each output of the layer that is being read
    layer, open_ = "", set[str]()
    for node in module.graph.nodes:
        path, _, key = str(node.target).rpartition(".")
        if node.op == "call_module" and key in types and isinstance(module.get_submodule(node.target), MessagePassing):
            if not owner or key in open_ or path != layer:
                owner, layer, open_ = {}, path, set()
                result.append((node, {}))
            open_.add(key)
            owner[node] = types[key][2]
        elif node.op == "call_function" and node.target in _AGGREGATIONS and _kinds(node, owner) == 1:
            owner[node] = next(owner[arg] for arg in node.all_input_nodes)
        else:
            owner = {}
            continue
        result[-1][1][owner[node]] = node  # the last one of a type holds the sum
    return result


def _kinds(node: Node, owner: dict[Node, str]) -> int:
    """How many node types the inputs of a node have; 0 where one of them is no output of the layer."""
    if not all(arg in owner for arg in node.all_input_nodes):
        return 0
    return len({owner[arg] for arg in node.all_input_nodes})
