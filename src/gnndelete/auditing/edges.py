"""The edges that a link model learns from, each once: an undirected graph lists them both ways."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.forget import training_edges
from gnndelete.graph.parsing import distinct
from gnndelete.graph.validation import edge_table
from gnndelete.tasks import LinkPrediction, Task
from gnndelete.tasks.supervision import positives


def link_edges(data: Data) -> Tensor:
    """The edges a link model learns from, each once, without self-loops; triples where they are typed.

    >>> link_edges(Data(edge_index=torch.tensor([[0, 1, 1, 1], [1, 0, 1, 1]]), num_nodes=2)).tolist()
    [[0], [1]]
    """
    if data.get("edge_label_index") is None:
        return training_edges(data)
    edges = positives(data)
    if edge_table(data).undirected:
        edges = edges.sort(dim=0).values
    return distinct(edges[:, edges[0] != edges[1]])


def edges_once(task: Task, data: Data) -> Tensor:
    """`link_edges`; of a HeteroData those of the edge type that the task is about."""
    if not isinstance(task, LinkPrediction) or task.relation is None:
        return link_edges(data)
    edges = task.learned(data)
    if task.relation.both:
        low, high = edges[[0, 2]].sort(dim=0).values
        edges = torch.stack([low, edges[1], high])
    return distinct(edges)


def edges_from(near: Tensor, task: Task, data: Data) -> Tensor:
    """The edges, each once, that leave a marked node; of an undirected graph those that touch one, which then comes first.

    >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> edges_from(torch.tensor([False, True, True]), LinkPrediction(), data).tolist()
    [[1, 1], [0, 2]]
    """
    edges = edges_once(task, data).to(near.device)
    if edges.size(0) == 2 and edge_table(data).undirected:
        edges = torch.where(near[edges[0]], edges, edges.flip(0))
    return edges[:, near[edges[0]]]
