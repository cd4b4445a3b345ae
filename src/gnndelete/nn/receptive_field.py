"""Which rows of a model depend on which nodes: one runner that changes rows and sees what moves, and the sites on top of it.

`run` runs a working copy once, reads every node representation, and can change rows on the way. `dependent_rows` compares
such runs. `probe` finds the sites of a model and how far each sees: it runs the model on a `line` of the graph's nodes, where
the number of a node's place is its distance from the first one, and changes the first node.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch_geometric.data import Data
from torch_geometric.nn import ASAPooling, EdgePooling, PANPooling, SAGPooling, TopKPooling
from torch_geometric.nn.pool import ClusterPooling

from gnndelete.errors import GNNDeleteError, ModelError, bounded, some
from gnndelete.graph.batch import as_user_graph, node_stores
from gnndelete.graph.edge_table import entries
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import further_edge_sets
from gnndelete.graph.validation import count_nodes
from gnndelete.nn.forward import Forward, evaluating, unchanged
from gnndelete.nn.hooks import Finished, Rows, Site, listening, replaced, representations
from gnndelete.nn.layers import Layers, chosen_layers, graph_layers

#: By how much a row is moved where NaN was lost on the way. Activations are flat on one side, so it is moved to both.
FAR = 1e3

#: A relative or absolute difference that is no more than rounding.
ROUNDING = 1e-3

#: Nodes on the line that a model is probed on, and on the short one that shows the order of its rows.
LINE_NODES, SHORT_LINE_NODES = 128, 3

#: So many edges of the graph lend their relation and attributes to every step of the line.
LINE_SAMPLES = 32

#: Messages along a line move every row, or every other one (an even power of the adjacency matrix). Larger gaps are no messages.
LARGEST_GAP = 2

#: Pooling that chooses among all nodes: one node can push another out, which no value that travels along edges shows.
CHOOSERS = (ASAPooling, ClusterPooling, EdgePooling, PANPooling, SAGPooling, TopKPooling)


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
    """Which rows of one site, or of the model's output, move with the changed nodes: a mask over all nodes."""

    site: Site
    output: bool
    moved: Tensor


@dataclass(frozen=True)
class Probe:
    """What the probe of one model on its graph found."""

    sites: tuple[Site, ...]
    layers: list[str]  # those that have sites, in the order of their first call
    hops: int | None  # of the model's output; None if unknown, or if it sees the whole graph
    bounded: bool
    moves_along: bool = False  # whether a change was seen to move along edges that only the probe's graph has

    def is_last(self, site: Site) -> bool:
        """Whether no later site has the same rows."""
        return site is [other for other in self.sites if other.rows == site.rows][-1]


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
    only_first: bool = False,
) -> Run:
    """Run a working copy once, read every node representation behind ``layers`` and in the output; leave no trace in it.

    ``shift`` is added to the rows of ``nodes`` in the graph's features and in what each layer of ``inputs`` takes; NaN
    survives almost any arithmetic. ``change`` maps what a site gave to what is handed on. ``only_first`` ends
    the run at the first site.
    """
    rows, readings = Rows(data), list[Reading]()

    def visit(name: str | None, call: int, output: Any) -> Any:
        for key, h, own in representations(output, rows):
            if not len(own):
                continue
            readings.append(Reading(Site(name or "", call, key, h[0].numel(), rows=own), h.detach(), name is None))
            if only_first:
                raise Finished
            if change is not None:
                output = replaced(output, key, change(readings[-1]))
        return output

    handles = []
    if nodes is not None:
        graph = copy.copy(as_user_graph(data))
        for kind, store, mask, start in node_stores(data, nodes):
            x = store.get("x")
            if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided:
                (graph if kind is None else graph[kind]).x = _shifted(x, nodes[mask] - start, shift)
        data = HeteroGraph.of(graph, data.types) if isinstance(data, HeteroGraph) else graph
        hook = partial(_shifted_inputs, rows, nodes, shift)
        for name in inputs:
            handles.append(model.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True))
    output = None
    try:
        with suppress(Finished), unchanged(model), evaluating(model), listening(model, list(layers), visit):
            output = visit(None, 0, forward(model, data))
    except (GNNDeleteError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        said = bounded(" ".join(str(error).split()), 400)
        raise ModelError(
            f"the model '{type(model).__name__}' does not run on the graph ({type(error).__name__}: {said})",
            "give the graph it was trained on, or forward=lambda model, data: … that calls it",
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return Run(readings, output)


def _shifted(values: Tensor, rows: Tensor, shift: float) -> Tensor:
    """The tensor with other rows; itself where they are NaN already, which spares a copy of wide features."""
    rows = rows.to(values.device)
    if not rows.numel() or bool(torch.isnan(values[rows]).all()):
        return values
    return values.index_copy(0, rows, values[rows] + shift)


def _shifted_inputs(
    rows: Rows, nodes: Tensor, shift: float, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A pre-hook that shifts the rows of ``nodes`` in every node representation that a layer takes, not in its edges."""

    def shifted(value: Any, key: Any = None) -> Any:
        if isinstance(value, dict):
            return {key: shifted(item, key) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(shifted(item) for item in value)
        own = rows.of(value, key) if isinstance(value, Tensor) and value.layout == torch.strided else None
        if own is None:
            return value
        return _shifted(value, nodes[(nodes >= own.start) & (nodes < own.stop)] - own.start, shift)

    names = [*inspect.signature(module.forward).parameters, *[""] * len(args)]
    positional = zip(names, args, strict=False)
    changed = tuple(value if name.startswith("edge") else shifted(value) for name, value in positional)
    return changed, {name: value if name.startswith("edge") else shifted(value) for name, value in kwargs.items()}


def dependent_rows(
    model: nn.Module, data: Data, forward: Forward, layers: list[str], inputs: list[str], nodes: Tensor
) -> list[Response]:
    """Which rows behind ``layers`` and in the output depend on ``nodes``, whose rows change before each of ``inputs``.

    NaN shows it in one run. A model may lose NaN on the way (`nan_to_num` between layers, a median as aggregation): then
    some layer hands it on to no further row, and rows that move with a large number count as well.
    """
    every = sorted({*layers, *inputs})
    found, lost = [], False
    reached = torch.zeros(count_nodes(data), dtype=torch.bool, device=nodes.device).index_fill(0, nodes, True)
    for reading in run(model, data, forward, every, nodes=nodes, shift=float("nan"), inputs=inputs).readings:
        moved = _moved(reading, torch.isnan(reading.h), data)
        if reading.output or reading.site.layer in layers:
            found.append(Response(reading.site, reading.output, moved))
        lost = lost or not (reading.output or bool(reached.all()) or bool((moved & ~reached).any()))
        reached = reached | moved
    if not lost:
        return found
    also = moved_rows(model, data, forward, layers, inputs, nodes)
    if [response.site for response in also] != [response.site for response in found]:
        return found
    return [replace(one, moved=one.moved | other.moved) for one, other in zip(found, also, strict=True)]


def moved_rows(
    model: nn.Module, data: Data, forward: Forward, layers: list[str], inputs: list[str], nodes: Tensor
) -> list[Response]:
    """Which rows behind ``layers`` and in the output move when ``nodes`` are moved far to either side."""
    clean, *others = (
        run(model, data, forward, layers, nodes=nodes, shift=shift, inputs=inputs).readings
        for shift in (0.0, FAR, -FAR)
    )
    found = []
    for reading, *both in zip(clean, *others, strict=False):
        if any(other.h.shape != reading.h.shape for other in both):
            break
        close = [torch.isclose(reading.h, other.h, rtol=ROUNDING, atol=ROUNDING, equal_nan=True) for other in both]
        found.append(Response(reading.site, reading.output, _moved(reading, ~(close[0] & close[1]), data)))
    return found


def _moved(reading: Reading, entries: Tensor, data: Data) -> Tensor:
    """The rows with some of these entries, as a mask over all nodes."""
    mask = torch.zeros(count_nodes(data), dtype=torch.bool, device=data.edge_index.device)
    mask[reading.site.rows.start : reading.site.rows.stop] = entries.flatten(1).any(dim=1)
    return mask


def line(data: Data, length: int = LINE_NODES) -> tuple[Data, Tensor]:
    """The graph with other edges: some of its nodes stand in a line. Also the place of every node there, or -1.

    Each node is joined to the next one both ways, so that every hop of any layer leads one place further. With several node
    types there is a line of each, and an edge type joins a place in one to the next in the other. All steps have the
    relations and attributes of a sample of edges. At least one node is left out, where there are several: whatever moves it
    is no message. The order is random, so that a model that mixes neighbouring numbers is not taken for one that reads edges.
    """
    graph, whole = copy.copy(as_user_graph(data)), range(count_nodes(data))
    types = data.types if isinstance(data, HeteroGraph) else None
    places = torch.full((len(whole),), -1, device=data.edge_index.device)
    lines: dict[Any, Tensor] = {}
    for name, rows in ({None: whole} if types is None else types.nodes).items():
        nodes, batch = torch.arange(len(rows), device=places.device), data.get("batch")
        if isinstance(batch, Tensor) and batch.numel() == len(nodes) > 0:  # no edge leaves a graph: take the largest
            nodes = (batch == torch.bincount(batch).argmax()).nonzero().flatten()
        order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0)).to(places.device)
        lines[name] = nodes[order[: min(length, max(len(nodes) - 1, 1))]]
        places[lines[name] + rows.start] = torch.arange(len(lines[name]), device=places.device)
        (graph if name is None else graph[name]).num_nodes = len(rows)
    if types is None:
        _join(graph, graph, lines[None], lines[None])
        return graph, places
    for kind in types.edges:
        _join(graph, graph[kind], lines[kind[0]], lines[kind[2]])
    return HeteroGraph.of(graph, types), places


def _join(graph: Any, store: Any, source: Tensor, target: Tensor) -> None:
    """Replace the edges of one type by steps between two lines, each with the attributes of a sample of these edges."""
    further = {} if graph is not store else further_edge_sets(graph)
    others = {name for pairs, more in further.items() for name in (pairs, *more, "edge_index")}
    edges, names = store["edge_index"], [name for name in store.keys() if store.is_edge_attr(name)]  # noqa: SIM118
    names = [name for name in names if name not in others and name != "edge_index" and "edge_label" not in name]
    order = (
        store["edge_type"].argsort(stable=True)
        if "edge_type" in names
        else torch.arange(edges.size(1)).to(edges.device)
    )
    count = min(LINE_SAMPLES if names else 1, len(order))
    sample = order[torch.linspace(0, max(len(order) - 1, 0), count, device=edges.device).long()]
    out, back = min(len(source), len(target[1:])), min(len(source[1:]), len(target))
    steps = torch.stack([torch.cat([source[:out], source[1:][:back]]), torch.cat([target[1:][:out], target[:back]])])
    values = {name: entries(graph, name, sample.repeat_interleave(steps.size(1)), store) for name in names}
    for name, value in {**values, "edge_index": steps.repeat(1, count)}.items():
        store[name] = value


def probe(model: nn.Module, data: Data, forward: Forward, layers: Layers = "all") -> Probe:
    """Run a working copy of a model and return every site where an operator can sit, with its true reach."""
    found = graph_layers(model)
    names = found if found and layers in ("all", "last") else chosen_layers(model, layers)
    # parts that `to_hetero` made take all node types, their layers the two ends of an edge type
    traced = [name for name, module in model.named_modules() if isinstance(module, GraphModule)]
    inputs = sorted({*found, *names, *traced})
    try:
        graph, places = line(data)
        first = (places == 0).nonzero().flatten()
        responses = dependent_rows(model, graph, forward, names, inputs, first)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever a user's model has against another graph or NaN: its layers are counted
        places = torch.zeros(count_nodes(data), dtype=torch.long, device=data.edge_index.device)
        readings = run(model, data, forward, names).readings
        responses = [Response(reading.site, reading.output, torch.zeros_like(places).bool()) for reading in readings]
    result = _measured(responses, places, found, isinstance(data, HeteroGraph))
    if not result.sites:
        raise ModelError(
            f"none of the layers {some(names)} of '{type(model).__name__}' gave one row per node of the graph "
            f"({count_nodes(data)} nodes)",
            "where there are other rows beside those of the nodes (a virtual node, copies, steps in time), have a module "
            "return the rows of the nodes alone (an nn.Identity that they pass through) and name it in layers=[…], else give "
            "the graph the model was trained on",
        )
    if not result.bounded and not isinstance(data, HeteroGraph):
        _refuse_other_row_order(model, data, forward, names)
    if any(isinstance(module, CHOOSERS) for module in model.modules()):
        result = replace(result, hops=None, bounded=False)
    if layers == "last":
        sites = tuple(filter(result.is_last, result.sites))
        result = replace(result, sites=sites, layers=list(dict.fromkeys(site.layer for site in sites)))
    return result


def _measured(responses: list[Response], places: Tensor, layers: list[str], typed: bool) -> Probe:
    """The sites and their reach, from the rows that move with the first node of each line.

    Each entry of a call has a reach of its own; only those of node types reach equally far, and so do outputs. Where the line
    ends, or a graph layer handed on nothing, the reach is at least one hop further than that of the layer before.
    """
    sites: list[Site] = []
    hops, bounded, moves_along = None, True, False
    for (output, layer, _), group in groupby(responses, attrgetter("output", "site.layer", "site.call")):
        call, counted = list(group), 1 + max((site.hops for site in sites), default=0)
        idle = layer in layers and not output and not any(bool(places[each.moved].any()) for each in call)
        for found in [call] if typed or output else [[each] for each in call]:
            reached = [places[response.moved].sort().values for response in found]
            gaps = [int(each.diff(prepend=each.new_zeros(1)).max()) for each in reached if len(each)]
            local = not any(bool((each < 0).any()) for each in reached) and max(gaps, default=0) <= LARGEST_GAP
            measured = max((int(each[-1]) for each in reached if len(each)), default=None) if local else None
            if measured is not None:
                lengths = [int(places[each.site.rows.start : each.site.rows.stop].max()) for each in found]
                measured = max(measured, counted - output) if idle or measured >= min(lengths) else measured
            bounded = bounded and local
            moves_along = moves_along or (
                local and any(each.tolist() == list(range(len(each))) for each in reached if len(each) > 1)
            )
            if output:
                hops = measured
                continue
            probed = any(bool(response.moved.any()) for response in found)
            reach = counted if measured is None else measured
            sites += [replace(each.site, hops=reach, bounded=local, probed=probed) for each in found]
    calls = {site.layer: site.call + 1 for site in sites}
    known = tuple(replace(site, calls=calls[site.layer]) for site in sites)
    return Probe(known, list(calls), hops if bounded else None, bounded, moves_along)


def _refuse_other_row_order(model: nn.Module, data: Data, forward: Forward, layers: list[str]) -> None:
    """Refuse layers whose rows are nodes in another order: operators would act on the wrong rows.

    A few edges change few rows of such a layer, and not those of their ends.
    """
    graph, places = line(data, SHORT_LINE_NODES)
    ends = places >= 0
    both = [run(model, each, forward, layers).readings for each in (graph, line(data, 1)[0])]
    wrong = set()
    for one, other in zip(*both, strict=False):
        if one.h.shape != other.h.shape:
            break
        changed = _moved(one, one.h != other.h, data)
        if not one.output and changed.sum() <= ends.sum() and bool((changed & ~ends).any()):
            wrong.add(one.site.layer)
    if wrong:
        raise ModelError(
            f"the rows behind {some(sorted(wrong))} of '{type(model).__name__}' are in another order than the nodes, and "
            "operators would act on the wrong ones",
            "name modules whose rows are in order with layers=[…], or let the model keep that order",
        )


def reads_against_edges(model: nn.Module, data: Data, forward: Forward) -> bool:
    """Whether messages also run against a directed edge, measured on a graph of one edge; True where that is not known."""
    layers = graph_layers(model)
    try:
        single = data.edge_subgraph((data.edge_index[0] != data.edge_index[1]).nonzero()[:1, 0])
        single.num_nodes = count_nodes(data)
        head, tail = single.edge_index
        found = dependent_rows(model, single, forward, layers, layers, tail)
    except Exception:  # whatever a user's model or attribute has against a graph of one edge
        return True
    return not layers or any(bool(each.moved[head]) and not bool(each.moved.all()) for each in found)
