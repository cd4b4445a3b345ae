"""Checks of a user's model: does it read the edges, does it pool deleted nodes, does it read what was made from the graph?"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import ModelError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import further_edge_sets
from gnndelete.graph.validation import count_nodes
from gnndelete.nn.forward import Forward, arguments, call, evaluating
from gnndelete.nn.layers import graph_layers, working_copy
from gnndelete.nn.receptive_field import line, moved_rows, run
from gnndelete.notes import Note


def refuse_blind(model: nn.Module, data: Data, forward: Forward) -> None:
    """Refuse a model that says the same with and without edges: it would go on serving deleted ones.

    The outputs of all graph layers are compared; of a model without graph layers its own output. Such a model is served where
    its rows do not depend on those of their neighbours (an MLP): it has no edges to forget.
    """
    joins = data.edge_index[0] != data.edge_index[1]
    layers = graph_layers(model)
    if not bool(joins.any()) or _reads_edges(model, data, forward, layers):
        return
    if layers or _depends_on_neighbors(model, data, forward):
        raise ModelError(
            f"'{type(model).__name__}' says the same with and without the edges of the graph, so that deleting edges would "
            "change nothing",
            "if it keeps its own edges (a cache from training, an adjacency matrix), clear them, or let its forward take "
            "the edges from the graph",
        )


def _reads_edges(model: nn.Module, data: Data, forward: Forward, layers: list[str]) -> bool:
    """Whether the model says something else without edges: on a line of nodes or, where that shows nothing, on its graph.

    Also where it does not run without edges, or gives no rows: then nothing is known.
    """

    def rows(graph: Data) -> list[Tensor]:
        return [reading.h for reading in run(model, graph, forward, layers).readings if not (layers and reading.output)]

    try:
        blank, joined = _without_edges(data), line(data)[0]
        # the first layer shows it as a rule: the others need not run then
        one, other = (run(model, graph, forward, layers, only_first=True).readings[0].h for graph in (blank, joined))
        if not torch.equal(one, other):
            return True
        without = rows(blank)
        for graph in (joined, data):
            found = rows(graph)
            if not found or len(found) != len(without) or not all(map(torch.equal, found, without)):
                return True
    except Exception:  # whatever a user's model or attribute has against another graph
        return True
    return False


def _without_edges(data: Data) -> Data:
    """The nodes of a graph; further sets of edges are cut too, as a deletion does."""
    result = data.edge_subgraph(data.edge_index.new_empty(0))
    result.num_nodes = count_nodes(data)
    if not isinstance(data, HeteroGraph):
        for pairs, others in further_edge_sets(data).items():
            result[pairs] = data[pairs][:, :0]
            for name in others:
                result[name] = data[name][:0]
    return result


def _depends_on_neighbors(model: nn.Module, data: Data, forward: Forward) -> bool:
    """Whether further rows move with the ends of a few edges, and not all rows of their graph: those need no edges."""
    if isinstance(data, HeteroGraph):
        return False
    edges = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    by_degree = edges[:, torch.bincount(edges.flatten())[edges].sum(dim=0).argsort()]
    graph = data.get("batch", torch.zeros(count_nodes(data), device=edges.device))
    for node in by_degree[:, [0, edges.size(1) // 2, -1]].unique().split(1):
        for response in moved_rows(model, data, forward, [], [], node):
            others = response.moved.index_fill(0, node, False)
            if bool(others.any()) and int(others.sum()) < int((graph == graph[node]).sum()) - 1:
                return True
    return False


def pools_deleted(model: nn.Module, remaining: Data, nodes: Tensor, forward: Forward) -> bool:
    """Whether a model says the same about a graph that lost a node, be the node ``alive`` or not."""
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
            return torch.equal(forward(copied, graph), forward(copied, other))
    except Exception:  # whatever a user's model has against a single graph: nothing is known then
        return False


#: The note about a model that pools deleted nodes.
POOLS_DELETED = Note(
    "deleted-nodes-pooled",
    "The model's answer about a graph is the same whether its deleted nodes are pooled or not, so they still count as blank "
    "nodes. Take 'alive' in its forward and pool h[alive] by batch[alive] into num_graphs rows.",
)


def note_precomputed(model: nn.Module, data: Data, forward: Forward) -> tuple[Note, ...]:
    """A note where a model reads floats per node that may have been computed from the graph before the deletion.

    Features, positions and labels are given, not computed.
    """
    sizes = [len(rows) for rows in data.types.nodes.values()] if isinstance(data, HeteroGraph) else [count_nodes(data)]
    names = []
    for argument, value in arguments(model, data) if forward is call else ():
        name = argument.name
        parts = list(value.values()) if isinstance(value, dict) else [value]
        floats = [v for v in parts if isinstance(v, Tensor) and v.dim() and v.is_floating_point()]
        per_node = any(value.size(0) in sizes for value in floats)
        if per_node and name.removesuffix("_dict") not in ("x", "pos", "y") and "edge" not in name:
            names.append(repr(name))
    if not names:
        return ()
    return (
        Note(
            "made-from-graph",
            f"The model reads {' and '.join(names)} from the graph. If these were computed from deleted edges or features "
            "(propagated features, positional encodings), they still hold them. Compute them in forward, from the graph "
            "that is given there.",
        ),
    )
