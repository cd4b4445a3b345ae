"""The perturbation runner: change the rows of some nodes, run the model, and see which rows of which sites move.

Every question about what a model depends on is asked here: how far a layer reaches (`receptive_field`), whether the model
reads its edges (`checks`), which rows a node's embedding gets into (`methods.gnndelete.node_embeddings`).

`run` is one pass that changes rows of the graph's features, of the inputs of layers, or of their outputs, and reads every
site. `dependent_rows` compares such passes. All of them take a working copy of the model and leave it as it was.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import GNNDeleteError, ModelError
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.hetero import HeteroGraph, as_user_graph, node_stores
from gnndelete.graph.neighborhood import walk
from gnndelete.graph.validation import count_nodes
from gnndelete.nn.forward import Forward, eagerly, evaluating, unchanged
from gnndelete.nn.hooks import Finished, Rows, Site, all_rows, listening, replaced, representations
from gnndelete.nn.sparse import sparse_products

#: By how much a row is moved where NaN was lost on the way. Activations are flat on one side, so it is moved to both.
FAR = 1e3

#: A relative or absolute difference that is no more than rounding.
ROUNDING = 1e-3

#: The most hops that are walked from a node.
DEPTH_LIMIT = 64

#: Hops between the best connected node and the node that is changed first.
NEAR_HOPS = 4

#: Maps rows of a tensor to others.
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Reading:
    """What one site, or the model's output (``site`` is None), gave in one run; ``rows`` are the nodes of its rows."""

    site: Site | None
    h: Tensor
    rows: range


@dataclass(frozen=True)
class Response:
    """Which rows of one site, or of the model's output (``site`` is None), move with the changed nodes."""

    site: Site | None
    rows: range
    moved: Tensor | None  # a mask over all nodes; None where nothing moves

    @property
    def whole(self) -> bool:
        """Whether every row moves."""
        return self.moved is not None and int(self.moved.sum()) == len(self.rows)


def to_nan(rows: Tensor) -> Tensor:
    """The change that survives almost any arithmetic."""
    return torch.full_like(rows, float("nan"))


def run(
    model: nn.Module,
    data: Data,
    forward: Forward,
    layers: Iterable[str],
    *,
    nodes: Tensor | None = None,
    change: Change | None = None,
    inputs: Iterable[str] = (),
    outputs: Callable[[Site | None, Tensor], Tensor] | None = None,
    first_only: bool = False,
) -> list[Reading]:
    """Run a working copy once and read every node representation behind ``layers`` and in the output of the model.

    ``change`` is applied to the rows of ``nodes`` in the graph's features and in what each layer of ``inputs`` takes.
    ``outputs`` maps what a layer gave to what is handed on. ``first_only`` ends the run at the first reading.
    """
    rows, readings = all_rows(data), list[Reading]()

    def visit(name: str | None, call: int, output: Any) -> Any:
        for key, h, own in representations(output, rows):
            if not len(own):
                continue
            site = None if name is None else Site(name, call, key, h[0].numel(), rows=own)
            readings.append(Reading(site, h.detach(), own))
            if outputs is not None:
                output = replaced(output, key, outputs(site, h))
            if first_only:
                raise Finished
        return output

    handles = []
    if change is not None and nodes is not None:
        data = _changed_features(data, nodes, change)
        for name in inputs:
            module = model.get_submodule(name)
            hook = _input_hook(module, rows, nodes, change)
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        with (
            unchanged(model),
            eagerly(model),
            evaluating(model),
            sparse_products(model, *(() if first_only else (data,))),  # a matrix pays off over several layers
            listening(model, list(layers), visit),
        ):
            visit(None, 0, forward(model, data))
    except (GNNDeleteError, torch.OutOfMemoryError):
        raise
    except Finished:
        pass
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise ModelError(
            f"the model '{type(model).__name__}' does not run on the graph ({type(error).__name__}: {error})",
            "give the graph it was trained on, or forward=lambda model, data: … that calls it",
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return readings


def dependent_rows(
    model: nn.Module, data: Data, forward: Forward, layers: list[str], inputs: list[str], nodes: Tensor
) -> list[Response]:
    """Which rows behind ``layers`` and in the output depend on ``nodes``, whose rows change before each of ``inputs``.

    NaN shows it in one run. A model may lose NaN on the way (`nan_to_num` between layers, a median as aggregation). Then
    no layer hands it on to further rows, and rows that move with a large number count as well.
    """
    total = count_nodes(data)
    readings = run(model, data, forward, sorted({*layers, *inputs}), nodes=nodes, change=to_nan, inputs=inputs)
    found = [_response(reading, torch.isnan(reading.h), total) for reading in readings]
    lost = _stops_spreading(found, nodes, total)
    found = [response for response in found if response.site is None or response.site.layer in layers]
    if not lost:
        return found
    also = moved_rows(model, data, forward, layers, inputs, nodes)
    if [response.rows for response in also] != [response.rows for response in found]:
        return found
    return [_either(one, other) for one, other in zip(found, also, strict=True)]


def moved_rows(
    model: nn.Module, data: Data, forward: Forward, layers: list[str], inputs: list[str], nodes: Tensor
) -> list[Response]:
    """Which rows behind ``layers`` and in the output move when ``nodes`` are moved far to either side."""
    total, clean = count_nodes(data), run(model, data, forward, layers)
    found = [Response(reading.site, reading.rows, None) for reading in clean]
    for distance in (FAR, -FAR):
        change = partial(torch.add, distance)
        other = run(model, data, forward, layers, nodes=nodes, change=change, inputs=inputs)
        if [reading.h.shape for reading in other] != [reading.h.shape for reading in clean]:
            return []
        for index, (one, two) in enumerate(zip(clean, other, strict=True)):
            moved = ~torch.isclose(one.h, two.h, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
            found[index] = _either(found[index], _response(one, moved, total))
    return found


def _response(reading: Reading, moved: Tensor, total: int) -> Response:
    mask = torch.zeros(total, dtype=torch.bool, device=moved.device)
    mask[reading.rows.start : reading.rows.stop] = moved.flatten(1).any(dim=1)
    return Response(reading.site, reading.rows, mask if bool(mask.any()) else None)


def _either(one: Response, other: Response) -> Response:
    if one.moved is None or other.moved is None:
        return other if one.moved is None else one
    return Response(one.site, one.rows, one.moved | other.moved)


def _stops_spreading(found: list[Response], nodes: Tensor, total: int) -> bool:
    """Whether NaN reaches no further row behind some layer, though there are further rows."""
    reached = torch.zeros(total, dtype=torch.bool, device=nodes.device).index_fill(0, nodes, True)
    for response in found:
        if response.site is None:
            continue
        own = slice(response.rows.start, response.rows.stop)
        further = ~reached[own]
        moved = torch.zeros_like(further) if response.moved is None else response.moved[own].to(further.device)
        if bool(further.any()) and not bool((moved & further).any()):
            return True
        reached[own] |= moved
    return False


def _changed_features(data: Data, nodes: Tensor, change: Change) -> Data:
    """A shallow copy of the graph with other features of some nodes; features that are no dense floats stay."""

    def changed(x: Any, rows: Tensor) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.layout != torch.strided:
            return x
        return x.index_copy(0, rows.to(x.device), change(x[rows.to(x.device)]))

    result = copy.copy(as_user_graph(data))
    for name, store, mask, start in node_stores(data, nodes):
        if store.get("x") is not None:
            (result if name is None else result[name]).x = changed(store.x, nodes[mask] - start)
    return HeteroGraph.of(result, data.types) if isinstance(data, HeteroGraph) else result


def _input_hook(
    module: nn.Module, rows: Rows, nodes: Tensor, change: Change
) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
    """A pre-hook that changes the rows of ``nodes`` in every node representation that a layer takes, not in its edges."""
    names = list(inspect.signature(module.forward).parameters)

    def changed(value: Any, key: Any = None) -> Any:
        if isinstance(value, dict):
            return {key: changed(item, key) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(changed(item) for item in value)
        own = rows.of(value, key) if isinstance(value, Tensor) and value.layout == torch.strided else None
        if own is None:
            return value
        local = nodes[(nodes >= own.start) & (nodes < own.stop)] - own.start
        if not local.numel() or (change is to_nan and bool(torch.isnan(value[local]).all())):  # spares a copy of x
            return value
        return value.index_copy(0, local, change(value[local]))

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named = {name: value if name.startswith("edge") else changed(value) for name, value in kwargs.items()}
        skipped = [index < len(names) and names[index].startswith("edge") for index in range(len(args))]
        return tuple(v if skip else changed(v) for v, skip in zip(args, skipped, strict=True)), named

    return hook


def near_nodes(upstream: list[EdgeTable], data: Data) -> list[Tensor]:
    """A node some hops upstream of the best connected one, so that its messages have a way to go; one of every type."""
    table = upstream[0]
    hub = table.degree.argmax()[None]
    if not bool((table.neighbors(hub) != hub).any()):  # a node that has only loops shows nothing
        pairs = table.keys // table.num_relations
        sources = pairs // table.num_nodes
        hub = torch.bincount(sources[sources != pairs % table.num_nodes], minlength=table.num_nodes).argmax()[None]
    rings = walk(upstream, hub, NEAR_HOPS)
    found = []
    for rows in node_ranges(data):
        own = [ring[(ring >= rows.start) & (ring < rows.stop)] for ring in rings]
        found += [ring[:1] for ring in own if ring.numel()][-1:]
    return found


def node_ranges(data: Data) -> list[range]:
    """The ids of every node type; without types, of all nodes."""
    return list(data.types.nodes.values()) if isinstance(data, HeteroGraph) else [range(count_nodes(data))]


def connected(response: Response, table: EdgeTable, nodes: Tensor) -> bool:
    """Whether a walk from ``nodes`` over rows that moved, along edges or against them, comes to all of these rows."""
    if response.moved is None:
        return True
    left = response.moved.index_fill(0, nodes, True)
    tables = [table] if table.undirected else [table, reverse(table)]
    ring = nodes
    while ring.numel():
        left[ring] = False
        following = torch.cat([each.neighbors(ring) for each in tables])
        ring = torch.unique(following[left[following]])
    return not bool(left.any())


def reverse(table: EdgeTable) -> EdgeTable:
    """The table of the same edges turned around, without their types."""
    key = table.keys // table.num_relations
    return EdgeTable(torch.stack([key % table.num_nodes, key // table.num_nodes]), table.num_nodes)
