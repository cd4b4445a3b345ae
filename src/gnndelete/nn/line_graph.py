"""A line of nodes that a model is probed on beside its graph, so that each of its layers spreads along every kind of edge.

On the graph itself a layer may read edges one way alone, or those of one relation, and few nodes have edges where each layer
of such a model wants them. What operators behind the layers may change is walked both ways and along all relations.
"""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.validation import count_nodes

#: Nodes on the line, twice as many as the hops that a probe looks for, and edges of the graph whose attributes each step has.
LENGTH, SAMPLE = 128, 32

#: Edges that a line may have; with very many relations it is shorter.
AT_MOST = 1 << 20


def alike(data: Data, table: EdgeTable) -> bool:
    """Whether every edge of a graph stands both ways and differs from others in nothing: then the graph itself shows all."""
    return table.undirected and not table.typed and not _attributed(data)


def line(data: Data, table: EdgeTable) -> tuple[Data, EdgeTable] | None:
    """Nodes of the graph one after the other, joined both ways and by every relation, and the rest alone; its table.

    However the layers share relations and directions out among them, each hop of theirs leads one node further. What else
    belongs to edges is taken from some of the graph's, each of which stands for every step. The order of the nodes is not
    that of their numbers, so that what mixes neighbouring numbers is not taken for a layer. None where there are no edges, or
    a single node.
    """
    nodes, edges, relations = _nodes(data), data.edge_index, table.num_relations
    if nodes.numel() < 2 or not table.num_edges:
        return None
    count = min(SAMPLE, edges.size(1)) if _attributed(data) else 1
    nodes = nodes[_places(nodes, max(2, min(LENGTH, 1 + AT_MOST // (2 * relations * count))))]
    steps = torch.stack([nodes[:-1], nodes[1:]])
    both = torch.cat([steps, steps.flip(0)], dim=1)
    sample = _places(edges[0], count)
    result = data.edge_subgraph(sample.repeat_interleave(both.size(1)).repeat(relations))
    result.num_nodes = table.num_nodes
    result.edge_index = both.repeat(1, count * relations)
    if table.typed:
        result.edge_type = torch.arange(relations, device=edges.device).repeat_interleave(count * both.size(1))
    return result, EdgeTable(result.edge_index, table.num_nodes, result.get("edge_type"), relations)


def _attributed(data: Data) -> bool:
    """Whether edges have weights or other attributes, by which a layer may choose among them."""
    return any(name not in ("edge_index", "edge_type") and data.is_edge_attr(name) for name in data.keys())  # noqa: SIM118


def _nodes(data: Data) -> Tensor:
    """All nodes, of many graphs those of the largest: a line from one graph to another would join what is apart."""
    batch = data.get("batch")
    if isinstance(batch, Tensor) and batch.numel() == count_nodes(data) > 0:
        return (batch == torch.bincount(batch).argmax()).nonzero().view(-1)
    return torch.arange(count_nodes(data), device=data.edge_index.device)


def _places(values: Tensor, count: int) -> Tensor:
    """The places of some of the values, always the same ones and in no order of theirs."""
    size = values.numel()
    return torch.tensor(Random(0).sample(range(size), min(count, size)), device=values.device)
