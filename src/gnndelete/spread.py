"""Graphs that a model is probed on in place of its own, so that each of its layers spreads along every edge.

On the graph itself a layer may read edges one way alone, or those of one relation; few nodes have edges where each layer of
such a model wants them. What operators behind the layers may change is walked both ways and along all relations.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.adjacency import EdgeTable
from gnndelete.graph import count_nodes

#: Edges that a graph may grow to when each stands for every relation: of a larger one a part around the hub is taken.
AT_MOST = 1 << 20


def both_ways(data: Data) -> Data:
    """The graph with the reverse of every edge beside it, for a model whose messages run along edges and against them."""
    edges = data.edge_index
    result = data.edge_subgraph(torch.arange(edges.size(1), device=edges.device).repeat(2))
    result.num_nodes = count_nodes(data)
    result.edge_index = torch.cat([edges, edges.flip(0)], dim=1)
    return result


def reads_apart(model: nn.Module, layers: Iterable[str]) -> bool:
    """Whether some graph layer is not told of relations, so that it may be given the edges of one of them alone."""
    return any("edge_type" not in inspect.signature(model.get_submodule(name).forward).parameters for name in layers)


def every_relation(data: Data, table: EdgeTable) -> tuple[Data, EdgeTable]:
    """A typed graph, or the part around its hub, in which every edge stands both ways and for every relation; its table."""
    edges, count = data.edge_index, table.num_relations
    chosen = _around(edges, table.num_nodes, AT_MOST // (2 * count))
    result = data.edge_subgraph(chosen.repeat(2 * count))
    result.num_nodes = table.num_nodes
    both = torch.cat([edges[:, chosen], edges[:, chosen].flip(0)], dim=1)
    result.edge_index = both.repeat(1, count)
    result.edge_type = torch.arange(count, device=edges.device).repeat_interleave(both.size(1))
    return result, EdgeTable(result.edge_index, table.num_nodes, result.edge_type, count)


def _around(edges: Tensor, nodes: int, limit: int) -> Tensor:
    """The places of all edges, or of as many as lie between the nodes up to some hops from the hub; one hop at least."""
    near = torch.zeros(nodes, dtype=torch.bool, device=edges.device)
    near[torch.bincount(edges[:, edges[0] != edges[1]].flatten(), minlength=nodes).argmax()] = True
    chosen = torch.arange(edges.size(1), device=edges.device)
    if chosen.numel() <= limit:
        return chosen
    chosen = near[edges].any(dim=0).nonzero().view(-1)
    while chosen.numel() < limit:
        near[edges[:, near[edges].any(dim=0)].flatten()] = True
        wider = near[edges].all(dim=0).nonzero().view(-1)
        if wider.numel() > limit or wider.numel() == chosen.numel():
            break
        chosen = wider
    return chosen
