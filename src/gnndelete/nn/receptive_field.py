"""Finding a model's graph layers and their true receptive field by running the model on its own graph.

A NaN is put into one node's row wherever a graph layer takes its input; after each layer, the rows that turned NaN are
exactly those that depend on that node, whatever the layer computes. Their largest distance is the layer's reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

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
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.neighborhood import walk
from gnndelete.graph.remaining import cut, further_edge_sets
from gnndelete.graph.validation import count_nodes
from gnndelete.nn.forward import Forward, eagerly, evaluating
from gnndelete.nn.hooks import Site, listening
from gnndelete.nn.layers import Layers, chosen_layers, gathered_parts, gathering, graph_layers, working_copy
from gnndelete.nn.perturb import Seen, poisoned_run

#: Hops between the hub and the node that is poisoned first.
_NEAR = 4


#: Pooling that chooses among all nodes: one of them can push another out, which no value that travels along edges shows.
CHOOSERS = (ASAPooling, ClusterPooling, EdgePooling, PANPooling, SAGPooling, TopKPooling)


@dataclass(frozen=True)
class Probe:
    """What one run of the model on its graph showed."""

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
    """Run a copy of the model and report every place where an operator can sit, with its true reach."""
    model = gathering(model)
    found = graph_layers(model)
    names = chosen_layers(model, found, layers)
    poisoned = sorted({*found, *names, *gathered_parts(model)})
    asked = _Asked(model, forward, poisoned, names, found)
    other = None if isinstance(data, HeteroGraph) or alike(data, table) else _on_a_line(asked, data, table)
    best = _probed(asked, data, table, both=table.undirected, plainly=other is not None)
    if other is not None and other.sites != best.sites:
        best = _probed(asked, data, table, both=table.undirected)  # a line of its nodes is another thing to the model
    elif other is not None and best.bounded:
        best = _further_of(best, other)
    if not best.sites:
        raise ModelError(
            f"none of the layers {some(names)} of '{type(model).__name__}' gave one row per node of the graph "
            f"({table.num_nodes} nodes), but {_other_shapes(asked, data)}",
            "where there are other rows beside those of the nodes "
            "(a virtual node, copies, steps in time), have a module return the rows of the nodes alone (an nn.Identity that they "
            "pass through) and name it in layers=[…], else give the graph the model was trained on",
        )
    if any(isinstance(module, CHOOSERS) for module in model.modules()):
        best = replace(best, hops=None, bounded=False)
    return replace(best, sites=tuple(filter(best.is_last, best.sites))) if layers == "last" else best


def _other_shapes(asked: _Asked, data: Data) -> str:
    """What the layers gave instead of rows of nodes, in words."""
    found: dict[str, None] = {}

    def visit(name: str, call: int, output: Any) -> None:
        parts = (
            output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
        )
        found.update({str(list(part.shape)): None for part in parts if isinstance(part, Tensor)})

    model = working_copy(asked.model)
    with eagerly(model), evaluating(model), listening(model, asked.names, visit):
        asked.forward(model, data)
    return some(found) or "no tensor at all"


def _on_a_line(asked: _Asked, data: Data, table: EdgeTable) -> Probe | None:
    """What a line of the graph's nodes shows, on which each layer has the edges it wants; None where it shows nothing."""
    try:
        made = line(data, table)
        found = None if made is None else _probed(asked, *made, both=True)
    except Exception:  # whatever a model or an attribute of the user's has against a graph that is not its own
        return None
    return found if found is not None and found.bounded and found.sites else None


def _further_of(own: Probe, other: Probe) -> Probe:
    """The graph and the line each have a word: a line may lack edges that a model finds by what it knows of nodes."""
    sites = []
    for site, further in zip(own.sites, other.sites, strict=True):
        shown = [each.hops for each in (site, further) if each.probed]
        sites.append(replace(site, hops=max(shown, default=site.hops), probed=bool(shown)))
    hops = [reach for reach in (own.hops, other.hops) if reach is not None]
    return replace(own, sites=tuple(sites), hops=max(hops, default=None))


@dataclass(frozen=True)
class _Asked:
    """A model, the layers before which rows are poisoned, those that are looked behind, and its graph layers."""

    model: nn.Module
    forward: Forward
    poisoned: list[str]
    names: list[str]
    layers: list[str]

    def run(self, data: Data, seed: Tensor) -> list[Seen]:
        return poisoned_run(self.model, data, self.forward, self.poisoned, self.names, seed)

    def run_from_data(self, data: Data, seed: Tensor) -> list[Seen]:
        """The same with the seed poisoned in the graph's features alone."""
        return poisoned_run(self.model, data, self.forward, [], self.names, seed)


def _probed(asked: _Asked, data: Data, table: EdgeTable, both: bool, plainly: bool = False) -> Probe:
    """What a graph shows; ``both``: every edge stands both ways.

    ``plainly`` takes distances whichever way edges point and counts nothing that was not seen: no reach comes out too long.
    """
    known = both or plainly
    along, against = (True, True) if known else directions(asked.model, data, asked.forward, asked.poisoned)
    ways = [[table]] if both else [[table], [reverse(table)]]
    every = [own for way in ways for own in way]
    flows = list(zip(ways, reversed(ways), strict=True))
    flows = flows[::-1] if against and not along else flows
    best: Probe | None = None
    for flow, upstream in flows:  # where it is not known which way messages run, keep what reaches further
        walks = [every] if along and against else [flow, every]
        for deep in (False, True):  # four hops off the hub show most models; deeper ones need a deeper node
            runs = []
            for seed in _deep_nodes(flow, upstream, data) if deep else near_nodes(upstream, data):
                seen = asked.run(data, seed)
                runs.append((seed, seen, distances(seen, walks, seed)))
            reaches = furthest([own for _, _, own in runs])
            if all(reach is None or not reach.whole for reach in reaches):
                break
        mixed = [_mixed(asked, data, table, *run) for run in runs]
        mixes = [any(own) for own in zip(*mixed, strict=True)]
        result = _measure(runs[0][1], reaches, mixes, isinstance(data, HeteroGraph), plainly)
        if best is None or _further(result) > _further(best):
            best = result
        first = [site for site in best.sites if site.layer in asked.layers][:1] or best.sites[:1]
        if first and first[0].probed and first[0].hops:
            break
    assert best is not None
    return best


def _further(result: Probe) -> tuple[bool, int]:
    return any(site.probed for site in result.sites), max((site.hops for site in result.sites), default=0)


def near_nodes(upstream: list[EdgeTable], data: Data) -> list[Tensor]:
    """A node some hops upstream of the hub, so that its own messages have a way to go; of every type where there are several."""
    rings = walk(upstream, _hub(upstream[0]), _NEAR)
    found = []
    for rows in _kinds(data):
        own = [ring[(ring >= rows.start) & (ring < rows.stop)] for ring in rings]
        found += [ring for ring in own if ring.numel()][-1:]
    return [ring[:1] for ring in found]


def _hub(table: EdgeTable) -> Tensor:
    """The node with the most edges, where it has any but loops: nothing is shown by a node that has only itself."""
    hub = table.degree.argmax()[None]
    if bool((table.neighbors(hub) != hub).any()):
        return hub
    pairs = table.keys // table.num_relations
    sources = pairs // table.num_nodes
    return torch.bincount(sources[sources != pairs % table.num_nodes], minlength=table.num_nodes).argmax()[None]


def _kinds(data: Data) -> list[range]:
    return list(data.types.nodes.values()) if isinstance(data, HeteroGraph) else [range(count_nodes(data))]


def _deep_nodes(flow: list[EdgeTable], upstream: list[EdgeTable], data: Data) -> list[Tensor]:
    """The start of the longest walk that a sweep along the messages and one back find, in whichever part of the graph."""
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
    kinds = [rows for rows in _kinds(data) if len(rows)]
    return [torch.tensor([rows.start + int(depth[rows.start : rows.stop].argmax())], device=device) for rows in kinds]


def directions(model: nn.Module, data: Data, forward: Forward, poisoned: list[str]) -> tuple[bool, bool]:
    """Whether messages run along a directed edge, and whether they run against it: seen on a graph of one edge.

    Neither is what a model shows that wants more than one edge.
    """
    found = []
    try:
        single = data.edge_subgraph((data.edge_index[0] != data.edge_index[1]).nonzero()[:1, 0])
        single.num_nodes = count_nodes(data)
        for seed, other in (single.edge_index, single.edge_index.flip(0)):
            runs = poisoned_run(model, single, forward, poisoned, poisoned, seed)
            found.append(any(item.moved is not None and bool(item.moved[other]) and not item.whole for item in runs))
    except Exception:  # whatever a model or an attribute of the user's has against a graph of one edge
        return False, False
    return found[0], found[1]


def _mixed(
    asked: _Asked, data: Data, table: EdgeTable, seed: Tensor, seen: list[Seen], reaches: list[Reach | None]
) -> list[bool]:
    """Which outputs mix rows without any edge: all of the graph's, or all of one graph's in a batch.

    Only where every row that a path leads to moved, or one that no row that moved leads to, is a second run, the seed cut
    off, needed. In the second case the rows may also be in another order than the nodes, which is refused.
    """
    whole = any(item.whole for item in seen) or any(reach is not None and reach.whole for reach in reaches)
    apart = not isinstance(data, HeteroGraph) and not all(joined(item, table, seed) for item in seen)
    if not whole and not apart:
        return [False] * len(seen)
    if apart:
        _refuse_reordered(asked, data, table)
    lonely = cut(Deletion(nodes=seed.cpu()), data, table)
    for pairs, others in further_edge_sets(data).items():  # what travels along these is no matter of distance
        for name in (pairs, *others):
            lonely[name] = data[name]
    alone = asked.run(lonely, seed)
    return [item.moved is not None and int(item.moved.sum()) > 1 for item in alone]


def _refuse_reordered(asked: _Asked, data: Data, table: EdgeTable) -> None:
    wrong = reordered(asked.run_from_data, data, table)
    if wrong:
        raise ModelError(
            f"the rows behind {some(wrong)} of '{type(asked.model).__name__}' are in another order than the nodes, and operators "
            "would act on the wrong ones",
            "name modules whose rows are in order with layers=[…], or let the model keep that order",
        )


def _measure(seen: list[Seen], reaches: list[Reach | None], mixed: list[bool], typed: bool, plainly: bool) -> Probe:
    """Sites and their reach. With several node types one layer reaches as far for all of them, and one hop at least.

    Few seeds cannot show how far every type is reached, and a reach that is too short would miss rows that change.
    """
    sites: list[Site] = []
    calls: dict[str, int] = {}
    output_hops, output_bounded = None, True
    for item, reach, mixes in zip(seen, reaches, mixed, strict=True):
        bounded = not mixes and (reach is None or reach.hops is not None)
        measured = reach.hops if reach is not None and bounded else None
        earlier = [site.hops for site in sites if (site.layer, site.call) != (item.layer, item.call)]
        counted = 1 + max(earlier, default=0)
        if typed and bounded:
            beside = zip(seen, reaches, strict=True)
            hops = [r.hops for s, r in beside if (s.layer, s.call) == (item.layer, item.call) and r is not None]
            measured = max((h for h in hops if h is not None), default=measured)
        shown = measured
        vague = typed or (reach is not None and reach.whole and not plainly)
        if measured is not None and vague:  # few rows cannot tell: count as well
            measured = max(measured, counted if item.layer is not None else counted - 1)
        if item.layer is None:
            output_hops, output_bounded = measured, output_bounded and bounded
            continue
        calls[item.layer] = item.call + 1
        sites.append(
            Site(
                item.layer,
                item.call,
                item.key,
                item.width,
                counted if measured is None else measured,
                bounded,
                shown is not None and shown == measured if typed else reach is not None,
                item.rows,
            )
        )
    bounded = output_bounded and all(site.bounded for site in sites)
    found = tuple(replace(site, calls=calls[site.layer]) for site in sites)
    return Probe(found, output_hops if bounded else None, bounded)


#: The most hops that are walked from a node.
DEPTH_LIMIT = 64


@dataclass(frozen=True)
class Reach:
    """How far the rows of one output lie that depend on a node."""

    hops: int | None  # None where no path leads to some of the rows
    whole: bool  # everything that can be reached was: the true reach may be longer


def distances(seen: list[Seen], walks: list[list[EdgeTable]], seed: Tensor) -> list[Reach | None]:
    """For every output the largest distance of a row that depends on the seed, walking only as far as such rows lie."""
    result: list[Reach | None] = [None if item.moved is None else Reach(None, whole=False) for item in seen]
    for tables in walks:
        open_ = {i for i, reach in enumerate(result) if reach is not None and reach.hops is None}
        left = {i: item.moved for i, item in enumerate(seen) if i in open_ and item.moved is not None}
        ring, hops = seed, 0
        known = torch.zeros(tables[0].num_nodes, dtype=torch.bool, device=seed.device)
        while left and ring.numel() and hops <= DEPTH_LIMIT:
            known[ring] = True
            following = torch.cat([table.neighbors(ring) for table in tables])
            following = torch.unique(following[~known[following]])
            for i in [i for i, moved in left.items() if not bool((moved & ~known).any())]:
                result[i] = Reach(hops, whole=not following.numel() and hops > 0)
                del left[i]
            ring, hops = following, hops + 1
    return result


def furthest(runs: list[list[Reach | None]]) -> list[Reach | None]:
    """Of every output the furthest reach from any seed; a row that no path leads to counts as further than all."""
    result: list[Reach | None] = []
    for found in zip(*runs, strict=True):
        known = [reach for reach in found if reach is not None]
        lost = next((reach for reach in known if reach.hops is None), None)
        result.append(lost or max(known, key=lambda reach: (reach.hops, reach.whole), default=None))
    return result


def joined(item: Seen, table: EdgeTable, seed: Tensor) -> bool:
    """Whether a walk along edges, whichever way they point, from the seed over rows that moved comes to all of them."""
    if item.moved is None:
        return True
    left = item.moved.index_fill(0, seed, True)
    tables = [table] if table.undirected else [table, reverse(table)]
    ring = seed
    while ring.numel():
        left[ring] = False
        following = torch.cat([each.neighbors(ring) for each in tables])
        ring = torch.unique(following[left[following]])
    return not bool(left.any())


def reverse(table: EdgeTable) -> EdgeTable:
    key = table.keys // table.num_relations
    return EdgeTable(torch.stack([key % table.num_nodes, key // table.num_nodes]), table.num_nodes)


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


#: Pairs of nodes that are looked for: some may be found in their own rows by chance.
_PAIRS = 4


def reordered(run: Callable[[Data, Tensor], list[Seen]], data: Data, table: EdgeTable) -> list[str]:
    """Names of layers behind which the rows are nodes in another order. ``run`` poisons nodes in the data alone.

    Two nodes with no edge but the one between them move no more than two rows there, and not their own; and with all edges
    they move rows that no edge joins with these two: edges too are numbered otherwise. (A model that looks up other nodes by
    number has edges as the graph has them.)
    """
    left: set[str] | None = None
    displaced: set[str] = set()
    for ends in _pairs(data):
        try:
            single = data.edge_subgraph(table.positions(torch.stack([ends, ends.flip(0)], dim=1)))
            single.num_nodes = count_nodes(data)
            whole, alone = _the_same(run, data, ends), _the_same(run, single, ends)
        except Exception:  # whatever a model or an attribute of the user's has against a graph of one edge
            return []
        found = set()
        for item, own in zip(whole, alone, strict=False):
            rows = torch.empty(0) if own.moved is None else own.moved.nonzero().flatten()
            if item.layer is not None and 0 < rows.numel() <= 2 and not joined(item, table, rows):
                found.add(item.layer)
                displaced |= set() if bool(torch.isin(rows, ends).all()) else {item.layer}
        left = found if left is None else left & found
        if not left:
            return []
    return sorted((left or set()) & displaced)


def _the_same(run: Callable[[Data, Tensor], list[Seen]], data: Data, ends: Tensor) -> list[Seen]:
    """A run with numbers drawn as in every other: a model may shuffle rows on purpose, and not twice alike."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return run(data, ends)


def _pairs(data: Data) -> list[Tensor]:
    """Ends of edges from all over the list of them."""
    edges = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    places = torch.linspace(0, max(edges.size(1) - 1, 0), _PAIRS, device=edges.device).long().unique()
    return list(edges[:, places].t()) if edges.size(1) else []
