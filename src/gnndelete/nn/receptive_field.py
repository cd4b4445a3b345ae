"""A model's sites and their true receptive field, found by running the model on its own graph.

The row of one node becomes NaN wherever a graph layer takes its input. The rows that are NaN behind a layer are those that
depend on that node, whatever the layer computes. Their largest distance from the node is the layer's reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import ASAPooling, EdgePooling, PANPooling, SAGPooling, TopKPooling
from torch_geometric.nn.pool import ClusterPooling

from gnndelete.errors import ModelError, some
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable, walk
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import cut, further_edge_sets
from gnndelete.graph.validation import count_nodes
from gnndelete.nn.checks import refuse_other_row_order
from gnndelete.nn.forward import Forward
from gnndelete.nn.hooks import Site
from gnndelete.nn.layers import Layers, chosen_layers, gathered_parts, graph_layers
from gnndelete.nn.perturb import DEPTH_LIMIT, Response, connected, dependent_rows, near_nodes, node_ranges, reverse

#: Pooling that chooses among all nodes: one node can push another out, which no value that travels along edges shows.
CHOOSERS = (ASAPooling, ClusterPooling, EdgePooling, PANPooling, SAGPooling, TopKPooling)

#: Nodes on the line that a model with several kinds of edges is probed on: twice the hops that a probe looks for.
LINE_NODES = 2 * DEPTH_LIMIT

#: So many edges of the graph lend their attributes to every step of the line.
LINE_SAMPLES = 32

#: The most edges of a line; with very many relations it has fewer nodes.
LINE_EDGES = 1 << 20


@dataclass(frozen=True)
class Probe:
    """What the probe of one model on its graph found."""

    sites: tuple[Site, ...]
    hops: int | None  # of the model's output; None if unknown, or if it sees the whole graph
    bounded: bool

    @property
    def layers(self) -> list[str]:
        """Names of the layers that have sites, in the order of their first call."""
        return list(dict.fromkeys(site.layer for site in self.sites))

    def is_last(self, site: Site) -> bool:
        """Whether no later site has the same rows."""
        return site is [other for other in self.sites if other.rows == site.rows][-1]


def probe(model: nn.Module, data: Data, table: EdgeTable, forward: Forward, layers: Layers = "all") -> Probe:
    """Run a working copy of a model and return every site where an operator can sit, with its true reach."""
    found = graph_layers(model)
    names = chosen_layers(model, found, layers)
    trial = _Trial(model, forward, names, sorted({*found, *names, *gathered_parts(model)}), found)
    on_line = None if isinstance(data, HeteroGraph) or _uniform(data, table) else _probe_line(trial, data, table)
    result = _probe_graph(trial, data, table, table.undirected, lower_bound=on_line is not None)
    if on_line is not None and on_line.sites != result.sites:  # a line of its nodes is another thing to the model
        result = _probe_graph(trial, data, table, table.undirected)
    elif on_line is not None and result.bounded:
        result = _further_of(result, on_line)
    if not result.sites:
        raise ModelError(
            f"none of the layers {some(names)} of '{type(model).__name__}' gave one row per node of the graph "
            f"({table.num_nodes} nodes)",
            "where there are other rows beside those of the nodes (a virtual node, copies, steps in time), have a module "
            "return the rows of the nodes alone (an nn.Identity that they pass through) and name it in layers=[…], else give "
            "the graph the model was trained on",
        )
    if any(isinstance(module, CHOOSERS) for module in model.modules()):
        result = replace(result, hops=None, bounded=False)
    return replace(result, sites=tuple(filter(result.is_last, result.sites))) if layers == "last" else result


@dataclass(frozen=True)
class _Trial:
    """A working copy, the layers that are read, those whose inputs are changed, and its graph layers."""

    model: nn.Module
    forward: Forward
    names: list[str]
    inputs: list[str]
    layers: list[str]

    def run(self, data: Data, node: Tensor) -> list[Response]:
        return dependent_rows(self.model, data, self.forward, self.names, self.inputs, node)


@dataclass(frozen=True)
class _Reach:
    """How far the rows of one output lie that depend on a node."""

    hops: int | None  # None where no path leads to some of the rows
    whole: bool  # all rows that can be reached were reached: the true reach may be longer


def _probe_graph(trial: _Trial, data: Data, table: EdgeTable, mirrored: bool, lower_bound: bool = False) -> Probe:
    """The reach that a graph shows; ``mirrored``: every edge stands both ways.

    With ``lower_bound`` distances are walked whichever way edges point, and nothing is counted that was not measured, so
    that no reach comes out too long.
    """
    along, against = True, True
    if not mirrored and not lower_bound:
        along, against = directions(trial.model, data, trial.forward, trial.inputs)
    tables = [table] if mirrored else [table, reverse(table)]
    flows = [([one], [other]) for one, other in zip(tables, reversed(tables), strict=True)]
    best: Probe | None = None
    for flow, upstream in reversed(flows) if against and not along else flows:
        walks = [tables] if along and against else [flow, tables]
        for deep in (False, True):  # a node near the hub shows most models; deeper models need a deeper node
            nodes = _deep_nodes(flow, upstream, data) if deep else near_nodes(upstream, data)
            runs = [(node, trial.run(data, node)) for node in nodes]
            reaches = _furthest([_distances(responses, walks, node) for node, responses in runs])
            if not any(reach is not None and reach.whole for reach in reaches):
                break
        mixed = [_mixes_without_edges(trial, data, table, node, responses, reaches) for node, responses in runs]
        result = _measure(runs[0][1], reaches, [any(each) for each in zip(*mixed, strict=True)], data, lower_bound)
        if best is None or _extent(result) > _extent(best):  # which way messages run may not be known: the further one
            best = result
        first = next((site for site in best.sites if site.layer in trial.layers), next(iter(best.sites), None))
        if first is not None and first.probed and first.hops:
            break
    assert best is not None
    return best


def _extent(result: Probe) -> tuple[bool, int]:
    return any(site.probed for site in result.sites), max((site.hops for site in result.sites), default=0)


def _measure(
    responses: list[Response], reaches: list[_Reach | None], mixed: list[bool], data: Data, lower_bound: bool
) -> Probe:
    """The sites and their reach.

    With several node types a layer reaches equally far for all of them, and at least one hop further than the layer before:
    few nodes cannot show how far every type is reached, and too short a reach would miss rows that change.
    """
    typed = isinstance(data, HeteroGraph)
    sites: list[Site] = []
    output_hops, output_bounded = None, True
    for response, reach, mixes in zip(responses, reaches, mixed, strict=True):
        site = response.site
        bounded = not mixes and (reach is None or reach.hops is not None)
        measured = reach.hops if reach is not None and bounded else None
        if typed and bounded:
            measured = max(_hops_of_call(response, responses, reaches), default=measured)
        earlier = [s.hops for s in sites if response.output or (s.layer, s.call) != (site.layer, site.call)]
        counted = 1 + max(earlier, default=0)
        hops = measured
        if hops is not None and (typed or (reach is not None and reach.whole and not lower_bound)):
            hops = max(hops, counted - response.output)  # few rows cannot tell: count as well
        if response.output:
            output_hops, output_bounded = hops, output_bounded and bounded
            continue
        probed = measured is not None and measured == hops if typed else reach is not None
        sites.append(replace(site, hops=counted if hops is None else hops, bounded=bounded, probed=probed))
    calls = {site.layer: site.call + 1 for site in sites}
    bounded = output_bounded and all(site.bounded for site in sites)
    found = tuple(replace(site, calls=calls[site.layer]) for site in sites)
    return Probe(found, output_hops if bounded else None, bounded)


def _hops_of_call(response: Response, responses: list[Response], reaches: list[_Reach | None]) -> list[int]:
    """What was measured at all entries of one call of a layer, or of the output."""
    call = response.output, response.site.layer, response.site.call
    found = zip(responses, reaches, strict=True)
    same = [reach for other, reach in found if (other.output, other.site.layer, other.site.call) == call]
    return [reach.hops for reach in same if reach is not None and reach.hops is not None]


def _distances(responses: list[Response], walks: list[list[EdgeTable]], node: Tensor) -> list[_Reach | None]:
    """For every output the largest distance of a row that moves with the node, walking no further than such rows lie."""
    result: list[_Reach | None] = [None if each.moved is None else _Reach(None, whole=False) for each in responses]
    for tables in walks:
        left = {
            index: response.moved
            for index, (response, reach) in enumerate(zip(responses, result, strict=True))
            if response.moved is not None and reach is not None and reach.hops is None
        }
        ring, hops = node, 0
        known = torch.zeros(tables[0].num_nodes, dtype=torch.bool, device=node.device)
        while left and ring.numel() and hops <= DEPTH_LIMIT:
            known[ring] = True
            following = torch.cat([table.neighbors(ring) for table in tables])
            following = torch.unique(following[~known[following]])
            for index in [index for index, moved in left.items() if not bool((moved & ~known).any())]:
                result[index] = _Reach(hops, whole=not following.numel() and hops > 0)
                del left[index]
            ring, hops = following, hops + 1
    return result


def _furthest(runs: list[list[_Reach | None]]) -> list[_Reach | None]:
    """For every output the furthest reach from any node; a row that no path leads to counts as further than all."""
    result: list[_Reach | None] = []
    for found in zip(*runs, strict=True):
        known = [reach for reach in found if reach is not None]
        unbounded = next((reach for reach in known if reach.hops is None), None)
        result.append(unbounded or max(known, key=lambda reach: (reach.hops, reach.whole), default=None))
    return result


def _deep_nodes(flow: list[EdgeTable], upstream: list[EdgeTable], data: Data) -> list[Tensor]:
    """The start of the longest walk that a sweep along the messages and one back find in any part of the graph."""
    table, device = flow[0], flow[0].keys.device
    keys = (table.keys // table.num_relations).cpu()
    ends = (keys // table.num_nodes).numpy(), (keys % table.num_nodes).numpy()
    links = coo_matrix((keys.new_ones(keys.numel()).numpy(), ends), (table.num_nodes, table.num_nodes))
    _, part = connected_components(links, directed=False)
    depth = table.degree.cpu().numpy()
    for tables in (flow, upstream):
        order = np.lexsort((depth, part))  # the last of each part has the highest degree, then is the furthest off
        starts = order[np.append(np.flatnonzero(np.diff(part[order])), table.num_nodes - 1)]
        depth = np.full(table.num_nodes, -1)
        for hops, ring in enumerate(walk(tables, torch.from_numpy(starts).to(device), DEPTH_LIMIT)):
            depth[ring.cpu().numpy()] = hops
    types = [rows for rows in node_ranges(data) if len(rows)]
    return [torch.tensor([rows.start + int(depth[rows.start : rows.stop].argmax())], device=device) for rows in types]


def directions(model: nn.Module, data: Data, forward: Forward, layers: list[str]) -> tuple[bool, bool]:
    """Whether messages run along a directed edge, and whether they run against it: measured on a graph of one edge.

    Both are False for a model that does not run on one edge.
    """
    found = []
    try:
        single = data.edge_subgraph((data.edge_index[0] != data.edge_index[1]).nonzero()[:1, 0])
        single.num_nodes = count_nodes(data)
        for node, other in (single.edge_index, single.edge_index.flip(0)):
            responses = dependent_rows(model, single, forward, layers, layers, node)
            found.append(any(r.moved is not None and bool(r.moved[other]) and not r.whole for r in responses))
    except Exception:  # whatever a user's model or attribute has against a graph of one edge
        return False, False
    return found[0], found[1]


def _mixes_without_edges(
    trial: _Trial,
    data: Data,
    table: EdgeTable,
    node: Tensor,
    responses: list[Response],
    reaches: list[_Reach | None],
) -> list[bool]:
    """Which outputs mix rows without any edge: all rows of the graph, or all rows of one graph in a batch.

    A second run, with the node cut off, is needed where every row that a path leads to moved, or a row that no path leads
    to. In the second case the rows may also be in another order than the nodes, which is refused.
    """
    whole = any(response.whole for response in responses) or any(r is not None and r.whole for r in reaches)
    unconnected = not isinstance(data, HeteroGraph) and not all(connected(each, table, node) for each in responses)
    if not whole and not unconnected:
        return [False] * len(responses)
    if unconnected:
        refuse_other_row_order(trial.model, data, table, trial.forward, trial.names)
    isolated = cut(Deletion(nodes=node.cpu()), data, table)
    for pairs, others in further_edge_sets(data).items():  # these edges are no matter of distance
        for name in (pairs, *others):
            isolated[name] = data[name]
    return [each.moved is not None and int(each.moved.sum()) > 1 for each in trial.run(isolated, node)]


def _further_of(on_graph: Probe, on_line: Probe) -> Probe:
    """The longer reach of the two: a line may lack edges that a model chooses by what it knows of nodes."""
    sites = []
    for site, other in zip(on_graph.sites, on_line.sites, strict=True):
        shown = [each.hops for each in (site, other) if each.probed]
        sites.append(replace(site, hops=max(shown, default=site.hops), probed=bool(shown)))
    hops = [reach for reach in (on_graph.hops, on_line.hops) if reach is not None]
    return replace(on_graph, sites=tuple(sites), hops=max(hops, default=None))


def _probe_line(trial: _Trial, data: Data, table: EdgeTable) -> Probe | None:
    """What a line of the graph's nodes shows; None where the model does not run on it or no bound is found."""
    try:
        made = line(data, table)
        found = None if made is None else _probe_graph(trial, *made, mirrored=True)
    except Exception:  # whatever a user's model or attribute has against another graph
        return None
    return found if found is not None and found.bounded and found.sites else None


def line(data: Data, table: EdgeTable) -> tuple[Data, EdgeTable] | None:
    """Nodes of the graph one after the other, joined both ways and by every relation; and the table of these edges.

    On the graph itself a layer may read edges of one direction or relation only, and few nodes have the edges that every
    layer of such a model needs. On the line each hop of any layer leads one node further. Every step has the attributes of
    a sample of the graph's edges. The order of the nodes is random, so that a model that mixes neighbouring numbers is not
    taken for one that reads edges. None where there are no edges, or a single node.
    """
    nodes, edges, relations = _nodes_of_one_graph(data), data.edge_index, table.num_relations
    if nodes.numel() < 2 or not table.num_edges:
        return None
    count = min(LINE_SAMPLES, edges.size(1)) if _has_edge_attributes(data) else 1
    nodes = nodes[_sample(nodes.numel(), max(2, min(LINE_NODES, 1 + LINE_EDGES // (2 * relations * count))), nodes)]
    steps = torch.stack([nodes[:-1], nodes[1:]])
    both = torch.cat([steps, steps.flip(0)], dim=1)
    sample = _sample(edges.size(1), count, nodes)
    result = data.edge_subgraph(sample.repeat_interleave(both.size(1)).repeat(relations))
    result.num_nodes = table.num_nodes
    result.edge_index = both.repeat(1, count * relations)
    if table.typed:
        result.edge_type = torch.arange(relations, device=edges.device).repeat_interleave(count * both.size(1))
    return result, EdgeTable(result.edge_index, table.num_nodes, result.get("edge_type"), relations)


def _uniform(data: Data, table: EdgeTable) -> bool:
    """Whether every edge stands both ways and no type or attribute makes a difference: then the graph itself shows all."""
    return table.undirected and not table.typed and not _has_edge_attributes(data)


def _has_edge_attributes(data: Data) -> bool:
    return any(name not in ("edge_index", "edge_type") and data.is_edge_attr(name) for name in data.keys())  # noqa: SIM118


def _nodes_of_one_graph(data: Data) -> Tensor:
    """All nodes; in a batch those of the largest graph, since a line must not join two graphs."""
    batch = data.get("batch")
    if isinstance(batch, Tensor) and batch.numel() == count_nodes(data) > 0:
        return (batch == torch.bincount(batch).argmax()).nonzero().view(-1)
    return torch.arange(count_nodes(data), device=data.edge_index.device)


def _sample(size: int, count: int, like: Tensor) -> Tensor:
    """Random positions, always the same ones for one size."""
    return torch.tensor(Random(0).sample(range(size), min(count, size)), device=like.device)
