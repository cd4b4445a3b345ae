"""Checks of a user's model: does it read the edges, are its rows in the order of the nodes, does it pool deleted nodes?

The first two take a working copy of the model and leave it as it was.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import ModelError, some
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import EdgeTable, walk
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import further_edge_sets
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.nn.forward import Forward, evaluating, read_by_name
from gnndelete.nn.layers import graph_layers, working_copy
from gnndelete.nn.perturb import (
    DEPTH_LIMIT,
    Response,
    connected,
    dependent_rows,
    moved_rows,
    near_nodes,
    reverse,
    run,
)
from gnndelete.notes import Note

#: So many edges are looked at to see whether rows are in another order: one may be in its own rows by chance.
ORDER_SAMPLES = 4


def refuse_blind(model: nn.Module, data: Data, forward: Forward) -> None:
    """Refuse a model that says the same with and without edges: it would go on serving deleted ones.

    Two nodes with and without the edge between them decide for most models. A model that knows its nodes by number runs on
    its own graph. The outputs of all graph layers are compared; of a model without graph layers its own output. Such a
    model is served where its rows do not depend on those of their neighbours (an MLP): it has no edges to forget.
    """
    joins = data.edge_index[0] != data.edge_index[1]
    if not bool(joins.any()):
        return
    layers = graph_layers(model)
    ends = data.edge_index[:, joins.nonzero()[0, 0]] if type(data) is Data else None
    if ends is not None and _reads_edges(model, data, forward, layers, ends=ends, first_only=True, default=False):
        return
    # rows that are all equal, or a first layer that gives nothing, hide that the edges are read: then all layers decide
    for first_only in (True, False):
        if _reads_edges(model, data, forward, layers, first_only=first_only):
            return
    if layers or _depends_on_neighbors(model, data, forward):
        raise ModelError(
            f"'{type(model).__name__}' says the same with and without the edges of the graph, so that deleting edges would "
            "change nothing",
            "if it keeps its own edges (a cache from training, an adjacency matrix), clear them, or let its forward take "
            "the edges from the graph",
        )


def _reads_edges(
    model: nn.Module,
    data: Data,
    forward: Forward,
    layers: list[str],
    ends: Tensor | None = None,
    first_only: bool = False,
    default: bool = True,
) -> bool:
    """Whether the model says something else without edges, on the whole graph or on two nodes of it (``ends``).

    ``default`` is the answer where the model does not run without edges, or gives no rows.
    """
    try:
        graph = data if ends is None else data.subgraph(ends)
        graphs = (graph, _without_edges(graph))
        both = [run(model, each, forward, layers, first_only=first_only).readings for each in graphs]
    except Exception:  # whatever a user's model or attribute has against another graph
        return default
    with_edges, without = ([r.h for r in readings if not (layers and r.output)] for readings in both)
    if not with_edges or not without:
        return default
    return len(with_edges) != len(without) or not all(map(torch.equal, with_edges, without))


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
    """Whether rows move with those of nodes up to some number of hops away, and with no others.

    All rows of the furthest ring have to move: a model that mixes the whole graph, or groups of nodes, needs no edges.
    """
    x = data.get("x")
    if isinstance(data, HeteroGraph) or not isinstance(x, Tensor) or not x.is_floating_point() or x.is_sparse:
        return False
    table = edge_table(data)
    along, against = [table], [reverse(table)]
    flows = [(along, along)] if table.undirected else [(along + against,) * 2, (along, against), (against, along)]
    for flow, upstream in flows:
        node = near_nodes(upstream, data)[0]
        for response in moved_rows(model, data, forward, [], [], node):
            if response.moved is None:
                continue
            rings = [ring for ring in walk(flow, node, DEPTH_LIMIT) if ring.numel()]
            hops = max((k for k, ring in enumerate(rings) if bool(response.moved[ring].any())), default=0)
            inside = int(response.moved[torch.cat(rings)].sum()) == int(response.moved.sum())
            if inside and 0 < hops < len(rings) - 1 and bool(response.moved[rings[hops]].all()):
                return True
    return False


def refuse_other_row_order(model: nn.Module, data: Data, table: EdgeTable, forward: Forward, layers: list[str]) -> None:
    """Refuse layers whose rows are nodes in another order: operators would act on the wrong rows.

    Two nodes with only the edge between them move at most two rows of such a layer, and not their own. With all edges they
    move rows that no edge joins with these two, since the edges are renumbered too. (A model that only looks up other nodes
    by number uses the edges as the graph has them.)
    """
    edges = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    samples = torch.linspace(0, max(edges.size(1) - 1, 0), ORDER_SAMPLES, device=edges.device).long().unique()
    suspects, displaced = set(layers), set[str]()
    for ends in edges[:, samples].t() if edges.size(1) else ():
        try:
            single = data.edge_subgraph(table.positions(torch.stack([ends, ends.flip(0)], dim=1)))
            single.num_nodes = count_nodes(data)
            whole, lone = (_seeded_response(model, graph, forward, layers, ends) for graph in (data, single))
        except Exception:  # whatever a user's model has against a graph of one edge
            return
        found = set()
        for everywhere, here in zip(whole, lone, strict=False):
            rows = torch.empty(0) if here.moved is None else here.moved.nonzero().flatten()
            if not here.output and 0 < rows.numel() <= 2 and not connected(everywhere, table, rows):
                found.add(here.site.layer)
                displaced |= set() if bool(torch.isin(rows, ends).all()) else {here.site.layer}
        suspects &= found
    if wrong := sorted(suspects & displaced):
        raise ModelError(
            f"the rows behind {some(wrong)} of '{type(model).__name__}' are in another order than the nodes, and operators "
            "would act on the wrong ones",
            "name modules whose rows are in order with layers=[…], or let the model keep that order",
        )


def _seeded_response(
    model: nn.Module, data: Data, forward: Forward, layers: list[str], nodes: Tensor
) -> list[Response]:
    """The response to nodes that change in the graph alone; with a fixed seed, since a model may shuffle rows on purpose."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return dependent_rows(model, data, forward, layers, [], nodes)


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
    for name, value in read_by_name(model, data, forward).items():
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
