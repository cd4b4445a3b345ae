"""The perturbation runner: change the rows of some nodes, run the model, and see which rows of which sites move.

Every question about what a model depends on is asked here: how far a layer reaches (`receptive_field`), whether the model
reads its edges (`checks`), which rows the embedding of an isolated node gets into (`methods.gnndelete.node_embeddings`).

`run` is one pass that changes rows of the graph's features, of the inputs of layers, or of their outputs, and reads every
site. `dependent_rows` and `moved_rows` compare such passes. All take a working copy and leave it as it was.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import GNNDeleteError, ModelError
from gnndelete.graph.batch import as_user_graph, node_stores
from gnndelete.graph.edge_table import EdgeTable, walk
from gnndelete.graph.hetero import HeteroGraph
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


@dataclass(frozen=True)
class Reading:
    """What one site gave in one run. The output of the model is read as the site of a layer named "" (``output``)."""

    site: Site
    h: Tensor
    output: bool = False


@dataclass(frozen=True)
class Run:
    """All readings of one run, in the order of the model's calls, and what the model returned."""

    readings: list[Reading]
    output: Any


@dataclass(frozen=True)
class Response:
    """Which rows of one site, or of the model's output, move with the changed nodes."""

    site: Site
    output: bool
    moved: Tensor | None  # a mask over all nodes; None where nothing moves

    @property
    def whole(self) -> bool:
        """Whether every row moves."""
        return self.moved is not None and int(self.moved.sum()) == len(self.site.rows)


def run(
    model: nn.Module,
    data: Data,
    forward: Forward,
    layers: Iterable[str],
    *,
    nodes: Tensor | None = None,
    shift: float = 0.0,
    inputs: Iterable[str] = (),
    change: Callable[[Reading], Tensor] | None = None,
    first_only: bool = False,
) -> Run:
    """Run a working copy once and read every node representation behind ``layers`` and in the output of the model.

    ``shift`` is added to the rows of ``nodes`` in the graph's features and in what each layer of ``inputs`` takes; NaN
    survives almost any arithmetic. ``change`` maps what a site gave to what is handed on. ``first_only`` ends the run at
    the first reading.
    """
    rows, readings = all_rows(data), list[Reading]()

    def visit(name: str | None, call: int, output: Any) -> Any:
        for key, h, own in representations(output, rows):
            if not len(own):
                continue
            site = Site(name or "", call, key, h[0].numel(), rows=own)
            readings.append(Reading(site, h.detach(), output=name is None))
            if change is not None:
                output = replaced(output, key, change(readings[-1]))
            if first_only:
                raise Finished
        return output

    handles = []
    if nodes is not None:
        data = _shifted_features(data, nodes, shift)
        for name in inputs:
            module = model.get_submodule(name)
            hook = _input_hook(module, rows, nodes, shift)
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    output = None
    try:
        with (
            unchanged(model),
            eagerly(model),
            evaluating(model),
            sparse_products(model, *(() if first_only else (data,))),  # a matrix pays off over several layers
            listening(model, list(layers), visit),
        ):
            output = visit(None, 0, forward(model, data))
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
    return Run(readings, output)


def dependent_rows(
    model: nn.Module, data: Data, forward: Forward, layers: list[str], inputs: list[str], nodes: Tensor
) -> list[Response]:
    """Which rows behind ``layers`` and in the output depend on ``nodes``, whose rows change before each of ``inputs``.

    NaN shows it in one run. A model may lose NaN on the way (`nan_to_num` between layers, a median as aggregation): then
    some layer hands it on to no further row, and rows that move with a large number count as well.
    """
    every = sorted({*layers, *inputs})
    readings = run(model, data, forward, every, nodes=nodes, shift=float("nan"), inputs=inputs).readings
    found, lost = [], False
    reached = torch.zeros(count_nodes(data), dtype=torch.bool, device=nodes.device).index_fill(0, nodes, True)
    for reading in readings:
        response = _response(reading, torch.isnan(reading.h), reached)
        if reading.output or reading.site.layer in layers:
            found.append(response)
        if not reading.output:
            own = slice(reading.site.rows.start, reading.site.rows.stop)
            before = reached[own].clone()
            if response.moved is not None:
                reached[own] |= response.moved[own].to(reached.device)
            lost = lost or (not bool(before.all()) and torch.equal(before, reached[own]))
    if not lost:
        return found
    also = moved_rows(model, data, forward, layers, inputs, nodes)
    return [_either(*both) for both in zip(found, also, strict=True)] if len(also) == len(found) else found


def moved_rows(
    model: nn.Module, data: Data, forward: Forward, layers: list[str], inputs: list[str], nodes: Tensor
) -> list[Response]:
    """Which rows behind ``layers`` and in the output move when ``nodes`` are moved far to either side."""
    clean = run(model, data, forward, layers).readings
    found = [Response(reading.site, reading.output, None) for reading in clean]
    for shift in (FAR, -FAR):
        other = run(model, data, forward, layers, nodes=nodes, shift=shift, inputs=inputs).readings
        if [reading.h.shape for reading in other] != [reading.h.shape for reading in clean]:
            return []
        for index, (one, two) in enumerate(zip(clean, other, strict=True)):
            moved = ~torch.isclose(one.h, two.h, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
            like = torch.empty(count_nodes(data), dtype=torch.bool)
            found[index] = _either(found[index], _response(one, moved, like))
    return found


def _response(reading: Reading, moved: Tensor, like: Tensor) -> Response:
    mask = torch.zeros_like(like, device=moved.device)
    mask[reading.site.rows.start : reading.site.rows.stop] = moved.flatten(1).any(dim=1)
    return Response(reading.site, reading.output, mask if bool(mask.any()) else None)


def _either(one: Response, other: Response) -> Response:
    if one.moved is None or other.moved is None:
        return other if one.moved is None else one
    return replace(one, moved=one.moved | other.moved)


def _shifted(values: Tensor, rows: Tensor, shift: float) -> Tensor:
    """The tensor with other rows; itself where they are NaN already, which spares a copy of wide features."""
    rows = rows.to(values.device)
    if not rows.numel() or bool(torch.isnan(values[rows]).all()):
        return values
    return values.index_copy(0, rows, values[rows] + shift)


def _shifted_features(data: Data, nodes: Tensor, shift: float) -> Data:
    """A shallow copy of the graph with other features of some nodes; features that are no dense floats stay."""
    result = copy.copy(as_user_graph(data))
    for name, store, mask, start in node_stores(data, nodes):
        x = store.get("x")
        if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided:
            (result if name is None else result[name]).x = _shifted(x, nodes[mask] - start, shift)
    return HeteroGraph.of(result, data.types) if isinstance(data, HeteroGraph) else result


def _input_hook(
    module: nn.Module, rows: Rows, nodes: Tensor, shift: float
) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
    """A pre-hook that shifts the rows of ``nodes`` in every node representation that a layer takes, not in its edges."""
    names = list(inspect.signature(module.forward).parameters)

    def shifted(value: Any, key: Any = None) -> Any:
        if isinstance(value, dict):
            return {key: shifted(item, key) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(shifted(item) for item in value)
        own = rows.of(value, key) if isinstance(value, Tensor) and value.layout == torch.strided else None
        if own is None:
            return value
        return _shifted(value, nodes[(nodes >= own.start) & (nodes < own.stop)] - own.start, shift)

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional = zip([*names, *[""] * len(args)], args, strict=False)
        changed = tuple(value if name.startswith("edge") else shifted(value) for name, value in positional)
        return changed, {name: value if name.startswith("edge") else shifted(value) for name, value in kwargs.items()}

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
