"""A line of nodes that a model is probed on in place of its graph, so that each of its layers spreads along every edge.

On the graph itself a layer may read edges one way alone, or those of one relation, and few nodes have edges where each layer
of such a model wants them. What operators behind the layers may change is walked both ways and along all relations.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.adjacency import EdgeTable
from gnndelete.graph import count_nodes

#: Nodes on the line: twice as many as the hops that a probe looks for, and no number that a matrix is likely to have rows.
LENGTH = 131

#: Edges of the graph whose attributes each step of the line has, and edges that it has at most: fewer steps with many relations.
SAMPLE, AT_MOST = 32, 1 << 20


def lines(data: Data, table: EdgeTable) -> list[tuple[Data, EdgeTable]]:
    """Lines to probe a model on, with their tables: one without the other nodes, which takes no time, and one among them.

    A model that has a vector for each node by its number runs on all of them alone. Where an index that does not fit would end
    the process instead of raising an error, as on accelerators, nothing smaller than the graph is tried. Of a graph
    without edges, or with a single node, there is none.
    """
    nodes = _nodes(data)
    if nodes.numel() < 2 or not table.num_edges:
        return []
    count = min(SAMPLE, data.num_edges) if _attributed(data) else 1
    nodes = nodes[: max(2, min(LENGTH, 1 + AT_MOST // (2 * table.num_relations * count)))]
    made = [_line(data, table, nodes, count)]
    if data.edge_index.device.type == "cpu" and "batch" not in data and nodes.numel() < table.num_nodes:
        made.insert(0, _alone(*made[0], nodes))
    return made


def _line(data: Data, table: EdgeTable, nodes: Tensor, count: int) -> tuple[Data, EdgeTable]:
    """Nodes one after the other, joined both ways and by every relation, and the rest without an edge.

    However the layers share relations and directions out among them, each hop of theirs leads one node further. What else
    belongs to edges is taken from ``count`` of the graph's, each of which stands for every step.
    """
    edges, relations = data.edge_index, table.num_relations
    steps = torch.stack([nodes[:-1], nodes[1:]])
    both = torch.cat([steps, steps.flip(0)], dim=1)
    sample = torch.arange(count, device=edges.device) * edges.size(1) // count
    result = data.edge_subgraph(sample.repeat_interleave(both.size(1)).repeat(relations))
    result.num_nodes = table.num_nodes
    result.edge_index = both.repeat(1, count * relations)
    if table.typed:
        result.edge_type = torch.arange(relations, device=edges.device).repeat_interleave(count * both.size(1))
    return result, EdgeTable(result.edge_index, table.num_nodes, result.get("edge_type"), relations)


def _alone(data: Data, table: EdgeTable, nodes: Tensor) -> tuple[Data, EdgeTable]:
    """The line without the other nodes; ``n_id`` says which it has, for models that look them up."""
    result = data.subgraph(nodes)
    result.n_id = nodes
    return result, EdgeTable(result.edge_index, nodes.numel(), result.get("edge_type"), table.num_relations)


def _attributed(data: Data) -> bool:
    """Whether edges have weights or other attributes, by which a layer may choose among them."""
    return any(name not in ("edge_index", "edge_type") and data.is_edge_attr(name) for name in data.keys())  # noqa: SIM118


def _nodes(data: Data) -> Tensor:
    """All nodes, of many graphs those of the largest: a line from one graph to another would join what is apart."""
    batch = data.get("batch")
    if isinstance(batch, Tensor) and batch.numel() == count_nodes(data) > 0:
        return (batch == torch.bincount(batch).argmax()).nonzero().view(-1)
    return torch.arange(count_nodes(data), device=data.edge_index.device)
