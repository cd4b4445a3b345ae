"""Does a model read the edges it is given? One that keeps edges of its own would go on serving deleted ones."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from gnndelete.errors import ModelError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.hetero import HeteroGraph, seen
from gnndelete.graph.neighborhood import walk
from gnndelete.graph.remaining import further_edge_sets
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.nn.forward import Forward, evaluating, read_by_name
from gnndelete.nn.hooks import Finished, all_rows, listening, representations
from gnndelete.nn.layers import gathering, graph_layers, working_copy
from gnndelete.nn.receptive_field import DEPTH_LIMIT, near_nodes, reverse


def refuse_blind(model: nn.Module, data: Data, forward: Forward) -> None:
    """One sentence where the graph layers say the same with and without edges: then no cut would change anything.

    A layer of PyG's own that is handed the edges of the graph themselves needs no further look. Else two nodes with and
    without the edge between them, as far as the first graph layer, tell for most models; a model that knows its nodes by
    number has to run on all of them. Only where nothing differs (rows that are all alike, or a layer that says nothing) are
    all layers compared, over none and all of the edges.

    Of a model without graph layers the output is compared. One that works row by row has no edges to forget, so that its
    rows must also be seen to move with those of their neighbours.
    """
    names, edge = graph_layers(gathering(model)), _edge(data)
    if not edge.numel() or (names and _handed_over(model, data, forward, names)):
        return
    pair = data.subgraph(data.edge_index[:, edge[0]]) if type(data) is Data else None
    single = _with_edges(data, edge) if names else None
    for graph, whole in ((pair, False), (single, False), (data, True)):
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
    if not names and not _knows_neighbours(model, data, forward, said[0]):
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


def made_before(model: nn.Module, data: Data, forward: Forward) -> tuple[str, ...]:
    """A note where a model is handed numbers per node that may have been made from the graph as it was; else nothing.

    What PyG calls features, positions and labels is taken for given.
    """
    nodes, names = count_nodes(data), []
    for name, value in read_by_name(model, data, forward).items():
        parts = list(value.values()) if isinstance(value, dict) else [value]
        sizes = [len(rows) for rows in data.types.nodes.values()] if isinstance(data, HeteroGraph) else [nodes]
        numbers = [
            v for v in parts if isinstance(v, Tensor) and v.dim() and v.is_floating_point() and v.size(0) in sizes
        ]
        if numbers and name.removesuffix("_dict") not in ("x", "pos", "y") and "edge" not in name:
            names.append(repr(name))
    read = " and ".join(names)
    if not names:
        return ()
    return (
        f"The model reads {read} from the graph: what was made of deleted edges or features before (propagated features, "
        "positional encodings) is still in there. Where that is so, make it in forward from the graph that is given there.",
    )


def _handed_over(model: nn.Module, data: Data, forward: Forward, names: list[str]) -> bool:
    """Whether the first graph layer that runs is one of PyG's own, called with the very tensors of the graph's edges.

    The tensors are new ones, which nothing but the graph can know. Nothing past that call is computed, and a copy of the model
    is asked, since others may be using the model itself.
    """
    copied, graph, found = working_copy(model), copy.copy(seen(data)), []
    stores = graph.edge_stores
    for store in stores:
        store.edge_index = store.edge_index.view(2, -1)
    edges = [store.edge_index for store in stores]

    def before(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        own = type(layer).__module__.startswith("torch_geometric.nn.conv.")
        every = [
            v for value in (*given, *named.values()) for v in (value.values() if isinstance(value, dict) else [value])
        ]
        found.append(own and any(value is own_edges for value in every for own_edges in edges))
        raise Finished

    inside = [module for module in copied.modules() if isinstance(module, MessagePassing)]
    for module in {*(copied.get_submodule(name) for name in names), *inside}:
        module.register_forward_pre_hook(before, with_kwargs=True)
    try:
        with evaluating(copied):
            forward(copied, graph)
    except Finished:
        return found[0]
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
    """The graph with some of its edges; with none of them it has none of further sets either, since these are cut, too."""
    part = data.edge_subgraph(which)
    part.num_nodes = count_nodes(data)
    if not which.numel() and not isinstance(data, HeteroGraph):
        for pairs, others in further_edge_sets(data).items():
            part[pairs] = data[pairs][:, :0]
            for name in others:
                part[name] = data[name][:0]
    return part


def _said(model: nn.Module, data: Data, forward: Forward, names: list[str], whole: bool) -> list[Tensor]:
    """What the graph layers say, the first one or all; without any the model; nothing where it does not run on so few edges."""
    found: list[Tensor] = []
    rows = all_rows(data)

    def visit(name: str, call: int, output: Any) -> None:
        found.extend(value for _, value, _ in representations(output, rows))
        if found and not whole:
            raise Finished

    try:
        with evaluating(model), listening(model, names, visit):
            output = forward(model, data)
        if not names:
            visit("", 0, output)
    except Finished:
        pass
    except Exception:  # whatever a model of the user's has against a graph of one edge, it shows that it saw it
        return []
    return found


#: By how much a row is moved to see which others move with it, and what is no more than rounding.
_FAR, _NEAR = 1e3, 1e-4


def _knows_neighbours(model: nn.Module, data: Data, forward: Forward, said: list[Tensor]) -> bool:
    """Whether rows of a model that is given no edges depend on those of other nodes as far as some number of hops.

    So do those of a model that has the edges from elsewhere. All of the furthest ring has to move and nothing behind it: where
    rows are mixed over the whole graph, or over groups of nodes, there need be no edges.
    """
    x, rows = data.get("x"), all_rows(data)
    if isinstance(data, HeteroGraph) or not isinstance(x, Tensor) or not x.is_floating_point() or x.is_sparse:
        return False
    table = edge_table(data)
    along, against = [table], [reverse(table)]
    flows = [(along, along)] if table.undirected else [(along + against,) * 2, (along, against), (against, along)]
    for flow, upstream in flows:
        seed = near_nodes(upstream, data)[0]
        moved = torch.zeros(len(rows.whole), dtype=torch.bool, device=x.device)
        for change in (_FAR, -_FAR):  # one of them may end in the flat part of an activation
            graph = copy.copy(data)
            graph.x = x.index_copy(0, seed, x[seed] + change)
            for before, after in zip(said, _said(working_copy(model), graph, forward, [], True), strict=False):
                moved |= ~torch.isclose(before, after, rtol=_NEAR, atol=_NEAR, equal_nan=True).flatten(1).all(dim=1)
        rings = [ring for ring in walk(flow, seed, DEPTH_LIMIT) if ring.numel()]
        hops = max((k for k, ring in enumerate(rings) if bool(moved[ring].any())), default=0)
        inside = int(moved[torch.cat(rings)].sum()) == int(moved.sum())
        if inside and 0 < hops < len(rings) - 1 and bool(moved[rings[hops]].all()):
            return True
    return False
