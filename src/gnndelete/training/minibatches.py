"""Training on parts of one graph: the sampled neighbourhood of a few nodes at a time, and whether a model allows that."""

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
from gnndelete.nn.layers import graph_layers
from gnndelete.nn.receptive_field import directions, probe
from gnndelete.tasks import Task
from gnndelete.tasks.base import representation

#: How many neighbours of each node are taken at every hop unless told.
NEIGHBORS = 10

#: The part of the graph that a model is tried on: so many neighbours, over so many hops.
_TRIED = [3] * 7


class Neighborhoods:
    """Sampled neighbourhoods of nodes of one graph, as deep as the model's layers reach, each a graph that knows its ``n_id``.

    ``num_neighbors`` is how many neighbours of a node are taken at each hop (-1: all): one number for as many hops as the
    model has, which are measured on a small part of the graph, or a list with one number per hop. Edges are followed
    against their direction too where the model passes messages both ways.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        forward: Forward,
        num_neighbors: int | list[int] | None = None,
        seed: int = 0,
        task: Task | None = None,
    ) -> None:
        self.data, self.forward, self.seed = data, forward, seed
        nodes, kept = count_nodes(data), [key for key in data.to_dict() if key not in _DROPPED]
        self._per_node = [key for key in kept if data.is_node_attr(key) and _is_rows(data[key], nodes)]
        self._per_edge = [key for key in kept if key not in self._per_node and data.is_edge_attr(key)]
        self._other = [key for key in kept if key not in (*self._per_node, *self._per_edge)]
        undirected = edge_table(data).undirected
        self._sampler = NeighborSampler(data, _TRIED, both_ways=not undirected, generator=_generator(seed))
        part = self.around(_hub(data))
        _check_rows(model, part, nodes, forward, task)
        hops = _reach(model, part, forward, needed=not isinstance(num_neighbors, list))
        both_ways = not undirected and _against(model, part, forward)
        count = NEIGHBORS if num_neighbors is None else num_neighbors
        fanout = count if isinstance(count, list) else [count] * max(hops, 1)
        self._sampler = NeighborSampler(data, fanout, both_ways=both_ways, generator=_generator(seed))
        self._whole_fits = True

    def around(self, nodes: Tensor) -> Data:
        """The neighbourhood of distinct nodes, whose rows come first."""
        data, out = self.data, self._sampler.sample(nodes.cpu())
        device = data.edge_index.device
        node, edge = out.node.to(device), out.edge.to(device)
        batch = Data(edge_index=torch.stack([out.row, out.col]).to(device), num_nodes=out.node.numel())
        for key in self._other:
            batch[key] = data[key]
        for key in self._per_node:
            batch[key] = data[key].index_select(0, node)
        for key in self._per_edge:
            batch[key] = _taken(data, key, edge)
        if "n_id" not in self._per_node:  # a part of a part keeps the ids of the whole
            batch.n_id = node
        return batch

    def validate(self, model: nn.Module, task: Task, data: Data, batch_size: int) -> float:
        """The validation score: of one pass over the whole graph without gradients or, where that does not fit, by batches."""
        if self._whole_fits:
            try:
                return task.validate(model, self.forward(model, data), data)
            except torch.OutOfMemoryError:
                self._whole_fits = False
        same = copy.copy(self)
        same._sampler = copy.copy(self._sampler)
        same._sampler._generator = _generator(self.seed)  # the same neighbours each time, so that scores compare

        def predict(elements: Tensor) -> Tensor:
            parts = []
            for asked in elements.split(batch_size, dim=-1):
                nodes, local = task.local(asked.to(data.edge_index.device))
                parts.append(task.predict(model, self.forward(model, same.around(nodes)), local))
            return torch.cat(parts)

        return task.validate_by(predict, data)


#: Attributes that speak of the whole graph, or that a batch has anew.
_DROPPED = ("edge_index", "num_nodes", "edge_label", "edge_label_index", "adj_t", "ptr")


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _hub(data: Data) -> Tensor:
    return torch.bincount(data.edge_index.flatten(), minlength=count_nodes(data)).argmax()[None]


def _is_rows(value: Any, nodes: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == nodes


def _taken(data: Data, key: str, places: Tensor) -> Any:
    value = data[key]
    if isinstance(value, Tensor):
        return value.index_select(data.__cat_dim__(key, value), places)
    return [value[place] for place in places.tolist()]


def _check_rows(model: nn.Module, part: Data, nodes: int, forward: Forward, task: Task | None) -> None:
    """Refuse a model that cannot say which nodes the rows of a batch are, and a decoder that knows nodes by their numbers."""
    said = f"'{type(model).__name__}'"
    known = "n_id" in inspect.signature(model.forward).parameters
    held = [name for name, value in chain(model.named_parameters(), model.named_buffers()) if _is_rows(value, nodes)]
    remedy = "give its forward an argument n_id, by which it takes the rows of a batch, or leave 'batch_size' out"
    own = f"{said} holds one row for each of the {nodes} nodes ('{held[0]}')" if held else said
    order = torch.arange(part.num_nodes).flip(0).to(part.edge_index.device)
    with evaluating(model):
        try:
            said_of_part = forward(model, part)
            output = representation(said_of_part)
            fits = output.size(0) == part.num_nodes
            if fits and held and not known and forward is call:  # rows by their place would follow another order
                other = representation(forward(model, _renumbered(part, order)))
                fits = torch.allclose(output, other[order], rtol=1e-3, atol=1e-4, equal_nan=True)
        except ModelError:
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            raise ModelError(f"{own} and does not run on a part of the graph ({error}); {remedy}") from error
    if not fits:
        raise ModelError(f"{own} and cannot tell which nodes a part of the graph holds; {remedy}")
    if task is not None and task.by_number(model, said_of_part, part, nodes):
        raise ModelError(
            f"the decoder of {said} knows nodes by their number, and those of a part of the graph are others; let forward put "
            "what it needs to know of a node into its row, or leave 'batch_size' out"
        )


def _renumbered(part: Data, order: Tensor) -> Data:
    result = copy.copy(part)
    for key, value in part.to_dict().items():
        if key != "edge_index" and _is_rows(value, part.num_nodes) and part.is_node_attr(key):
            result[key] = value[order]
    result.edge_index = order[part.edge_index]  # the order is its own inverse
    return result


def _reach(model: nn.Module, part: Data, forward: Forward, needed: bool) -> int:
    """How many hops the model's output reaches; an error where it sees all nodes, or where that is needed and unknown."""
    try:
        found = probe(model, part, edge_table(part), forward)
    except (ModelError, SettingError) as error:
        if not needed:
            return 0
        raise ModelError(
            f"how far '{type(model).__name__}' reaches could not be measured ({error}); give num_neighbors=[…], one per hop"
        ) from error
    if not found.bounded:
        raise ModelError(
            f"layers of '{type(model).__name__}' let every node see every other, and a batch would show them only itself; leave "
            "'batch_size' out, or take a model of message-passing layers alone"
        )
    return found.hops or max(site.hops for site in found.sites)


def _against(model: nn.Module, part: Data, forward: Forward) -> bool:
    layers = graph_layers(model)
    # a model without layers that could be watched may run either way: more edges do no harm
    return not layers or not part.num_edges or directions(model, part, forward, layers)[1]
