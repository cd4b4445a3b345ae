"""Models made by PyG's `to_hetero`: a module in their traced code that gives the rows of all node types of a layer.

`to_hetero` turns one layer into a module per edge type and adds up what arrives at each node type by plain functions, so
no module gives the representation of a node type. `gather` inserts one that hands on a dict by node type.
"""

from __future__ import annotations

import operator
from functools import partial

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch_geometric.nn import MessagePassing

_SUFFIX = "_by_type"
_AGGREGATIONS = (torch.add, torch.max, torch.min, torch.mul, torch.div)

EdgeType = tuple[str, str, str]


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
