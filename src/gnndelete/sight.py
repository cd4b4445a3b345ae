"""Does a model read the edges it is given? One that keeps edges of its own would go on serving deleted ones."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.batch import GraphBatch
from gnndelete.errors import ModelError
from gnndelete.forward import Forward, evaluating
from gnndelete.graph import count_nodes
from gnndelete.hetero import HeteroGraph
from gnndelete.layers import graph_layers, working_copy
from gnndelete.taps import Finished, all_rows, listening, representations


def refuse_blind(model: nn.Module, data: Data, forward: Forward) -> None:
    """One sentence where the graph layers say the same with and without edges: then no cut would change anything.

    A layer of PyG's own that is handed the edges of the graph themselves needs no further look. Else two nodes with and
    without the edge between them, as far as the first graph layer, tell for most models; a model that knows its nodes by
    number has to run on all of them. Only where nothing differs (rows that are all alike, or a layer that says nothing) are
    all layers compared, over none and all of the edges.
    """
    names, edge = graph_layers(model), _edge(data)
    if not names or not edge.numel() or isinstance(data, HeteroGraph) or _handed_over(model, data, forward, names):
        return
    pair = data.subgraph(data.edge_index[:, edge[0]]) if type(data) is Data else None
    for graph, whole in ((pair, False), (_with_edges(data, edge), False), (data, True)):
        if graph is None:
            continue
        # one copy for two nodes: a model that remembers the first run says the same twice, and is asked again below
        copies = [working_copy(model)] * 2 if graph is pair else [working_copy(model), working_copy(model)]
        both = zip(copies, (graph, _with_edges(graph, edge[:0])), strict=True)
        said = [_said(copied, some, forward, names, whole) for copied, some in both]
        if graph is pair and not all(said):  # two nodes are too few for it
            continue
        if not all(said) or len(said[0]) != len(said[1]) or not all(map(torch.equal, *said)):
            return
    raise ModelError(
        f"'{type(model).__name__}' says the same with and without the edges of the graph, so that deleting some would change "
        "nothing; if it keeps edges of its own (a cache from training, an adjacency matrix), clear it, or let its forward "
        "take them from the graph"
    )


#: What is said of a model that pools nodes that are no longer there.
POOLS = (
    "The model's answer about a graph is the same whether its deleted nodes are pooled or not, so that they still count as "
    "blank ones; take 'alive' in its forward and pool h[alive] by batch[alive] into num_graphs rows."
)


def pools_deleted(model: nn.Module, remaining: Data, nodes: Tensor, forward: Forward) -> bool:
    """Whether what a model says about a graph that lost a node does not depend on the node's being there (``alive``)."""
    if not isinstance(remaining, GraphBatch) or not nodes.numel():
        return False
    nodes = nodes.to(remaining.batch.device)
    left = torch.bincount(remaining.batch[remaining.alive], minlength=remaining.num_graphs)
    within = nodes[left[remaining.batch[nodes]] > 0]  # a graph without any node is gone as a whole
    if not within.numel():
        return False
    graph = remaining.select(remaining.batch[within[:1]])
    other = copy.copy(graph)
    other.alive = torch.ones_like(graph.alive)
    try:
        copied = working_copy(model)
        with evaluating(copied):
            said = [forward(copied, some) for some in (graph, other)]
        return torch.equal(*said)
    except Exception:  # the user's own model: whatever it has against a graph of its own, nothing is known then
        return False


def _handed_over(model: nn.Module, data: Data, forward: Forward, names: list[str]) -> bool:
    """Whether the first graph layer that runs is one of PyG's own, called with the very tensor of the graph's edges.

    The tensor is a new one, which nothing but the graph can know. Nothing past that call is computed, and a copy of the model
    is asked, since others may be using the model itself.
    """
    copied, graph, seen = working_copy(model), copy.copy(data), []
    edges = graph.edge_index = data.edge_index.view(2, -1)

    def before(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        own = type(layer).__module__.startswith("torch_geometric.nn.conv.")
        seen.append(own and any(value is edges for value in (*given, *named.values())))
        raise Finished

    for name in names:
        copied.get_submodule(name).register_forward_pre_hook(before, with_kwargs=True)
    try:
        with evaluating(copied):
            forward(copied, graph)
    except Finished:
        return seen[0]
    except Exception:  # what a model of the user's has against its own graph is told elsewhere
        return False
    return False


def _edge(data: Data) -> Tensor:
    """The place of an edge that joins two nodes; nothing where there is none. One of the first ones does as a rule."""
    for ends in (data.edge_index[:, :1024], data.edge_index):
        found = (ends[0] != ends[1]).nonzero()[:1, 0]
        if found.numel():
            break
    return found


def _with_edges(data: Data, which: Tensor) -> Data:
    part = data.edge_subgraph(which)
    part.num_nodes = count_nodes(data)
    return part


def _said(model: nn.Module, data: Data, forward: Forward, names: list[str], whole: bool) -> list[Tensor]:
    """What the graph layers say, the first one or all; nothing where the model does not run on so few edges."""
    found: list[Tensor] = []
    rows = all_rows(data)

    def visit(name: str, call: int, output: Any) -> None:
        found.extend(value for _, value, _ in representations(output, rows))
        if found and not whole:
            raise Finished

    try:
        with evaluating(model), listening(model, names, visit):
            forward(model, data)
    except Finished:
        pass
    except Exception:  # whatever a model of the user's has against a graph of one edge, it shows that it saw it
        return []
    return found
