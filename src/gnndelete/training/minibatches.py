"""Training on parts of one graph: sampled neighbourhoods of a few nodes at a time, and whether a model allows that."""

from __future__ import annotations

import copy
import inspect
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.datasets.sampling import NeighborSampler
from gnndelete.errors import ModelError, SettingError
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.nn.forward import Forward, call, evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.nn.receptive_field import probe, reads_against_edges
from gnndelete.tasks import Task
from gnndelete.tasks.base import representation

#: Default number of neighbours of each node that are sampled at every hop.
DEFAULT_NEIGHBORS = 10

#: Neighbours per hop of the small part of the graph on which a model is tested.
PROBE_NEIGHBORS = [3] * 7

#: Attributes that describe the whole graph, or that every batch gets new.
_WHOLE_GRAPH = ("edge_index", "num_nodes", "edge_label", "edge_label_index", "adj_t", "ptr")


class Neighborhoods:
    """Sampled neighbourhoods of nodes of one graph, as deep as the model reaches. Each is a graph with ``n_id``.

    ``num_neighbors`` is the number of neighbours of a node that are sampled at each hop (-1: all). One number holds for as
    many hops as the model has, which are measured on a small part of the graph; a list has one number per hop. Edges are
    also followed against their direction where the model passes messages both ways.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        forward: Forward,
        num_neighbors: int | list[int] | None = None,
        seed: int = 0,
    ) -> None:
        self.data, self.forward, self.seed = data, forward, seed
        nodes, keys = count_nodes(data), [key for key in data.to_dict() if key not in _WHOLE_GRAPH]
        self._per_node = [key for key in keys if data.is_node_attr(key) and _is_rows(data[key], nodes)]
        self._per_edge = [key for key in keys if key not in self._per_node and data.is_edge_attr(key)]
        self._other = [key for key in keys if key not in (*self._per_node, *self._per_edge)]
        undirected = edge_table(data).undirected
        self._sampler = NeighborSampler(data, PROBE_NEIGHBORS, both_ways=not undirected, generator=_generator(seed))
        part = self.around(_hub(data))
        _check_rows(model, part, nodes, forward)
        hops = _reach(model, part, forward, needed=not isinstance(num_neighbors, list))
        both_ways = not undirected and reads_against_edges(working_copy(model), part, forward)
        count = DEFAULT_NEIGHBORS if num_neighbors is None else num_neighbors
        fanout = count if isinstance(count, list) else [count] * max(hops, 1)
        self._sampler = NeighborSampler(data, fanout, both_ways=both_ways, generator=_generator(seed))
        self._whole_fits = True

    def around(self, nodes: Tensor) -> Data:
        """The sampled neighbourhood of distinct nodes, whose rows come first."""
        data, out = self.data, self._sampler.sample(nodes.cpu())
        device = data.edge_index.device
        node, edge = out.node.to(device), out.edge.to(device)
        batch = Data(edge_index=torch.stack([out.row, out.col]).to(device), num_nodes=out.node.numel())
        for key in self._other:
            batch[key] = data[key]
        for key in self._per_node:
            batch[key] = data[key].index_select(0, node)
        for key in self._per_edge:
            batch[key] = _select_edges(data, key, edge)
        if "n_id" not in self._per_node:  # a part of a part has the ids of the whole
            batch.n_id = node
        return batch

    def validate(self, model: nn.Module, task: Task, data: Data, batch_size: int) -> float:
        """The validation score: from one pass over the whole graph or, where memory does not suffice, from batches."""
        if self._whole_fits:
            try:
                return task.validate(model, self.forward(model, data), data)
            except torch.OutOfMemoryError:
                self._whole_fits = False
        same = copy.copy(self)
        same._sampler = copy.copy(self._sampler)
        same._sampler.generator = _generator(self.seed)  # the same neighbours each time, so that scores compare

        def predict(elements: Tensor) -> Tensor:
            parts = []
            for chunk in elements.split(batch_size, dim=-1):
                nodes, local = task.local(chunk.to(data.edge_index.device))
                parts.append(task.predict(model, self.forward(model, same.around(nodes)), local))
            return torch.cat(parts)

        return task.validate_by(predict, data)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _hub(data: Data) -> Tensor:
    return torch.bincount(data.edge_index.flatten(), minlength=count_nodes(data)).argmax()[None]


def _is_rows(value: Any, nodes: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == nodes


def _select_edges(data: Data, key: str, edges: Tensor) -> Any:
    value = data[key]
    if isinstance(value, Tensor):
        return value.index_select(data.__cat_dim__(key, value), edges)
    return [value[edge] for edge in edges.tolist()]


def _check_rows(model: nn.Module, part: Data, nodes: int, forward: Forward) -> None:
    """Refuse a model that cannot identify the nodes of a batch."""
    name = f"'{type(model).__name__}'"
    takes_ids = "n_id" in inspect.signature(model.forward).parameters
    tables = [key for key, value in chain(model.named_parameters(), model.named_buffers()) if _is_rows(value, nodes)]
    remedy = "give its forward an argument n_id, by which it takes the rows of a batch, or leave 'batch_size' out"
    subject = f"{name} holds one row for each of the {nodes} nodes ('{tables[0]}')" if tables else name
    order = torch.arange(part.num_nodes).flip(0).to(part.edge_index.device)
    with evaluating(model):
        try:
            output = representation(forward(model, part))
            fits = output.size(0) == part.num_nodes
            if fits and tables and not takes_ids and forward is call:  # a table by position would give other rows
                other = representation(forward(model, _renumbered(part, order)))
                fits = torch.allclose(output, other[order], rtol=1e-3, atol=1e-4, equal_nan=True)
        except ModelError:
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            raise ModelError(f"{subject} and does not run on a part of the graph ({error}); {remedy}") from error
    if not fits:
        raise ModelError(f"{subject} and cannot tell which nodes a part of the graph holds; {remedy}")


def _renumbered(part: Data, order: Tensor) -> Data:
    result = copy.copy(part)
    for key, value in part.to_dict().items():
        if key != "edge_index" and _is_rows(value, part.num_nodes) and part.is_node_attr(key):
            result[key] = value[order]
    result.edge_index = order[part.edge_index]  # the order is its own inverse
    return result


def _reach(model: nn.Module, part: Data, forward: Forward, needed: bool) -> int:
    """How many hops the model reaches; an error where it has no limit, or where it is needed and unknown."""
    try:
        found = probe(working_copy(model), part, forward)
    except (ModelError, SettingError) as error:
        if not needed:
            return 0
        raise ModelError(
            f"how far '{type(model).__name__}' reaches could not be measured ({error}); give num_neighbors=[…], one per hop"
        ) from error
    if not found.bounded:
        raise ModelError(
            f"in layers of '{type(model).__name__}' every node depends on every other, and a batch holds only a few; leave "
            "'batch_size' out, or use a model with message-passing layers only"
        )
    return found.hops or max(site.hops for site in found.sites)
