"""One shard of a graph: its induced subgraph, the task on it, and whether a model can run there."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.errors import GraphError
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.validation import count_nodes
from gnndelete.methods.base import Context
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.tasks import LinkPrediction, Task
from gnndelete.tasks.edges import LabeledEdges
from gnndelete.tasks.supervision import SupervisionCache, false_triples


def induced(data: Data, nodes: Tensor) -> Data:
    """The subgraph of ``nodes`` and of the edges among them. Its ids are positions in ``nodes``: a shard costs its own size.

    ``n_id`` says which nodes they are, as in a sampled batch: a model with a vector per node looks its own up by it.

    >>> path = Data(x=torch.arange(4.0)[:, None], edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> part = induced(path, torch.tensor([3, 1, 2]))
    >>> part.edge_index.tolist(), part.x.flatten().tolist()
    ([[1, 2], [2, 0]], [3.0, 1.0, 2.0])
    """
    place = places(nodes, count_nodes(data))
    kept = (place[data.edge_index] >= 0).all(dim=0).nonzero().flatten()
    part = copy.copy(data)
    part.num_nodes = nodes.numel()
    for name, value in data.to_dict().items():
        if name == "edge_label":
            continue  # goes with 'edge_label_index'
        if name == "edge_label_index":
            inside = (place[value] >= 0).all(dim=0)
            part[name] = place[value[:, inside]]
            if isinstance(data.get("edge_label"), Tensor):
                part.edge_label = data.edge_label[inside]
        elif data.is_edge_attr(name):
            part[name] = _pick(value, data.__cat_dim__(name, value), kept)
        elif data.is_node_attr(name):
            part[name] = _pick(value, data.__cat_dim__(name, value), nodes)
    part.edge_index = place[part.edge_index]
    if data.get("n_id") is None:
        part.n_id = nodes
    return part


def places(nodes: Tensor, total: int) -> Tensor:
    """For each of ``total`` ids its position in ``nodes``, or -1."""
    place = torch.full((total,), -1, device=nodes.device)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    return place


def _pick(value: Any, dim: int, index: Tensor) -> Any:
    if not isinstance(value, Tensor):
        return [value[i] for i in index.tolist()]
    if value.layout == torch.strided or value.is_sparse:
        return value.index_select(dim, index)
    return value.to_sparse_coo().index_select(dim, index).to_sparse(layout=value.layout)


def shard_task(task: Task, part: Data, nodes: Tensor, total: int, generator: torch.Generator) -> Task:
    """The task inside a shard. Links are validated on the unseen edges among its nodes, with non-edges among them too."""
    if not isinstance(task, LinkPrediction):
        return task  # the masks came along with the nodes
    local = copy.copy(task)
    local.validation = local.test = None
    if task.validation is None:
        return local
    place, width = places(nodes, total), task.validation.positives.size(0)
    validation, hidden = _local(task.validation, place, width), _local(task.test, place, width)
    if not validation.size(1):
        return local
    with suppress(GraphError):  # where nearly every pair of the shard is an edge, it trains without validation
        local.validation = LabeledEdges(validation, _false(part, validation, hidden, generator))
    return local


def _false(part: Data, validation: Tensor, hidden: Tensor, generator: torch.Generator) -> Tensor:
    """A non-edge of the shard for each of its unseen edges; of typed edges a false triple of the same relation."""
    held = torch.cat([validation, hidden], dim=1)
    if part.get("edge_type") is not None:
        return false_triples(part, validation.cpu(), held.cpu(), generator).to(validation.device)
    supervision = SupervisionCache().of(part)
    known = torch.cat([part.edge_index, supervision.positives, held], dim=1)
    sampler = NegativeSampler(known, part.num_nodes, undirected=supervision.sampler.undirected)
    return sampler.sample(validation.size(1), generator, distinct=True)


def _local(edges: LabeledEdges | None, place: Tensor, width: int) -> Tensor:
    """The edges, or triples, among a shard's nodes, with its ids."""
    if edges is None:
        return place.new_empty(width, 0)
    moved = edges.positives.to(place.device, copy=True)
    moved[[0, -1]] = place[ends_of(moved)]
    return moved[:, (moved >= 0).all(dim=0)]


def can_learn(task: Task, part: Data) -> bool:
    """Whether there is anything to train on in this shard: a labelled node, or an edge and a pair that is none."""
    if not isinstance(task, LinkPrediction):
        try:
            task.check(part)
        except GraphError:
            return False
        return True
    try:
        return SupervisionCache().of(part).sampler.available > 0
    except GraphError:
        return False


def indivisible(context: Context, shards: int) -> str | None:
    """Why the model cannot run on a shard, if so: it knows nodes by their place, and there places are others."""
    data = context.data
    few = max(2, count_nodes(data) // shards)
    nodes = torch.unique(data.edge_index[:, :few])[:few] if data.edge_index.size(1) else torch.arange(few)
    model, outputs = working_copy(context.model), []
    try:
        with evaluating(model):
            for order in (nodes, nodes.flip(0)):
                outputs.append(context.session.forward(model, induced(data, order.to(data.edge_index.device))))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return f"the model does not run on a part of the graph ({error})"
    one, two = outputs
    if not isinstance(one, Tensor):
        return None
    if one.size(0) != nodes.numel():
        return f"the model returns {one.size(0)} rows for a part of the graph with {nodes.numel()} nodes"
    if not torch.allclose(one, two.flip(0), rtol=1e-3, atol=1e-4 * float(one.abs().max())):
        return "the model tells nodes apart by their place in the graph, and in a shard places are others"
    if context.task is not None and context.task.by_number(
        model, one, induced(data, nodes.to(one.device)), count_nodes(data)
    ):
        return "the decoder tells nodes apart by their number, and in a shard numbers are others"
    return None
