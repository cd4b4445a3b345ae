"""Finding a model's graph layers and their true receptive field by running the model on its own graph.

A NaN is put into one node's row wherever a graph layer takes its input; after each layer, the rows that turned NaN are
exactly those that depend on that node, whatever the layer computes. Their largest distance is the layer's reach.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GPSConv, HeteroConv, MessagePassing
from torch_geometric.nn.models import DeepGCNLayer

from gnndelete.adjacency import EdgeTable
from gnndelete.cutting import cut
from gnndelete.deletion import Deletion
from gnndelete.errors import GNNDeleteError, ModelError, SettingError, some
from gnndelete.forward import Forward, evaluating
from gnndelete.graph import count_nodes
from gnndelete.neighborhood import walk
from gnndelete.taps import Key, listening, representations

#: Blocks whose output, not that of the layers inside, is the node representation.
BLOCKS = (GPSConv, HeteroConv, DeepGCNLayer)

#: A module of any class says with this attribute that its output is a node representation: attention written by hand, say.
MARK = "gnndelete_layer"

#: Hops between the hub and the node that is poisoned first, and the most that a search for a deeper one goes.
_NEAR, DEPTH_LIMIT = 4, 64

#: ``"all"``, ``"last"`` or the names of modules.
Layers = str | list[str]


@dataclass(frozen=True)
class Site:
    """A place where an operator can sit: one entry of the output of one call of one layer."""

    layer: str
    call: int
    key: Key
    width: int
    hops: int  # rows up to this distance from a deleted element may change by here
    bounded: bool  # False where every node sees every other, so that distance bounds nothing
    probed: bool  # False where the reach could only be counted

    @property
    def title(self) -> str:
        name = self.layer or "(the model itself)"
        return (
            name + (f" [call {self.call}]" if self.call else "") + (f" [{self.key!r}]" if self.key is not None else "")
        )


@dataclass(frozen=True)
class Probe:
    """What one run of the model on its graph showed."""

    sites: tuple[Site, ...]
    calls: dict[str, int]
    hops: int | None  # of the model's output; None if unknown, or if it sees the whole graph
    bounded: bool


def graph_layers(model: nn.Module) -> list[str]:
    """Names of the outermost graph layers: PyG blocks, marked modules, else every MessagePassing not inside another one."""
    found: list[str] = []
    seen: set[nn.Module] = set()  # a module under several names goes by its first, as in named_modules

    def visit(module: nn.Module, name: str) -> None:
        if module in seen:
            return
        seen.add(module)
        if isinstance(module, (*BLOCKS, MessagePassing)) or getattr(module, MARK, False) is True:
            found.append(name)
            return
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}" if name else child_name)

    visit(model, "")
    return found


def working_copy(model: nn.Module) -> nn.Module:
    """A deep copy to work on. Layers that keep a normalised graph from an earlier call forget it: it holds deleted edges."""
    # what PyG knows about a layer's signature never changes, and copying it costs more than copying the weights
    shared = {id(m.inspector): m.inspector for m in model.modules() if isinstance(m, MessagePassing)}
    try:
        result = copy.deepcopy(model, shared)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"the model '{type(model).__name__}' cannot be copied ({error}); remove tensors with gradients from its attributes"
        ) from error
    for module in result.modules():
        if getattr(module, "cached", None) is True:
            module.cached = False  # type: ignore[assignment]
            for name in [name for name in vars(module) if name.startswith("_cached")]:
                setattr(module, name, None)
    return result


def probe(model: nn.Module, data: Data, table: EdgeTable, forward: Forward, layers: Layers = "all") -> Probe:
    """Run a copy of the model and report every place where an operator can sit, with its true reach."""
    found = graph_layers(model)
    names = _chosen(model, found, layers)
    poisoned = sorted({*found, *names})
    flows = [[table]] if table.undirected else [[table], [_reverse(table)]]
    against = len(flows) == 2 and _runs_against(model, data, forward, poisoned)
    best: Probe | None = None
    for index, flow in enumerate(flows):  # on a directed graph messages may run either way: keep what reaches further
        upstream = flows[-1 - index]
        for deep in (False, True):  # four hops off the hub show most models; deeper ones need a deeper node
            seed = _deep_node(flow, upstream) if deep else _near_node(upstream)
            seen = _run(model, data, forward, poisoned, names, seed)
            walks = [flow] if len(flows) == 1 else [[*flows[0], *flows[1]]]
            walks = walks if against or len(flows) == 1 else [flow, *walks]
            reaches = _reaches(seen, walks, seed)
            if all(reach is None or not reach.whole for reach in reaches):
                break
        result = _measure(seen, reaches, _mixed(model, data, table, forward, poisoned, names, seed, seen, reaches))
        if best is None or _further(result) > _further(best):
            best = result
        if best.sites and best.sites[0].probed and best.sites[0].hops:
            break
    assert best is not None
    if not best.sites:
        raise ModelError(
            f"none of the layers {some(names)} of '{type(model).__name__}' gave one row per node of the graph "
            f"({table.num_nodes} nodes); is this the graph the model was trained on?"
        )
    return replace(best, sites=best.sites[-1:]) if layers == "last" else best


def _further(result: Probe) -> tuple[bool, int]:
    return any(site.probed for site in result.sites), max((site.hops for site in result.sites), default=0)


def _chosen(model: nn.Module, found: list[str], layers: Layers) -> list[str]:
    available = [name for name, _ in model.named_modules() if name]
    if isinstance(layers, str):
        if layers not in ("all", "last"):
            raise SettingError(
                f"'layers' must be 'all', 'last' or a list of module names (got {layers!r}); modules: {some(available, 10)}"
            )
        if not found:
            raise ModelError(
                f"'{type(model).__name__}' has no graph layers (no MessagePassing, GPSConv, HeteroConv or {MARK} = True); name "
                "the modules whose outputs are node representations with layers=[…]: "
                f"{some(available, 10) or 'it has no submodules'}"
            )
        return found
    unknown = [name for name in layers if name not in available and name != ""]
    if unknown or not layers:
        raise SettingError(
            f"'layers' names no module of the model: {some(unknown) or 'the list is empty'}; modules: {some(available, 10)}"
        )
    return list(layers)


def _reverse(table: EdgeTable) -> EdgeTable:
    key = table.keys // table.num_relations
    return EdgeTable(torch.stack([key % table.num_nodes, key // table.num_nodes]), table.num_nodes)


def _near_node(upstream: list[EdgeTable]) -> Tensor:
    """A node some hops upstream of the hub, so that its own messages have a way to go."""
    return [ring for ring in walk(upstream, upstream[0].degree.argmax()[None], _NEAR) if ring.numel()][-1][:1]


def _deep_node(flow: list[EdgeTable], upstream: list[EdgeTable]) -> Tensor:
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
    return torch.tensor([int(depth.argmax())], device=device)


@dataclass(frozen=True)
class _Seen:
    """One output during a poisoned run: which rows depend on the seed (None where the poison was lost)."""

    layer: str | None  # None for the model's own output
    call: int
    key: Key
    width: int
    moved: Tensor | None


def _run(
    model: nn.Module, data: Data, forward: Forward, poisoned: list[str], names: list[str], seed: Tensor
) -> list[_Seen]:
    nodes = count_nodes(data)
    copied = working_copy(model)
    modules = dict(copied.named_modules())
    seen: list[_Seen] = []

    def visit(name: str | None, call: int, output: Any) -> None:
        if name is None or name in names:
            for key, h in representations(output, nodes):
                moved = torch.isnan(h.reshape(nodes, -1)).any(dim=1)
                seen.append(_Seen(name, call, key, h[0].numel(), moved if bool(moved.any()) else None))

    handles = [
        modules[n].register_forward_pre_hook(_poison(modules[n], nodes, seed), with_kwargs=True) for n in poisoned
    ]
    spoiled = copy.copy(data)
    if isinstance(data.get("x"), Tensor) and data.x.is_floating_point() and data.x.layout == torch.strided:
        spoiled.x = data.x.index_fill(0, seed, float("nan"))
    try:
        with evaluating(copied), listening(copied, poisoned, visit):
            output = _forward(forward, copied, spoiled)
    finally:
        for handle in handles:
            handle.remove()
    visit(None, 0, output)
    return seen


def _forward(forward: Forward, model: nn.Module, data: Data) -> Any:
    try:
        return forward(model, data)
    except GNNDeleteError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise ModelError(
            f"the model '{type(model).__name__}' does not run on the graph ({type(error).__name__}: {error}); give the graph "
            "it was trained on, or forward=lambda model, data: … that calls it"
        ) from error


def _runs_against(model: nn.Module, data: Data, forward: Forward, poisoned: list[str]) -> bool:
    """Whether messages run both ways along a directed edge, as with reverse relations: seen on a graph of one edge.

    Such a model reaches by one step whom a walk along the edges meets, if at all, by a long way round.
    """
    single = data.edge_subgraph((data.edge_index[0] != data.edge_index[1]).nonzero()[:1, 0])
    single.num_nodes = count_nodes(data)
    try:
        for seed, other in (single.edge_index, single.edge_index.flip(0)):
            moved = [item.moved for item in _run(model, single, forward, poisoned, poisoned, seed)]
            if not any(rows is not None and bool(rows[other].any() and not rows.all()) for rows in moved):
                return False
    except ModelError:  # a model that wants more than one edge: then the way along the edges is what counts
        return False
    return True


def _mixed(
    model: nn.Module,
    data: Data,
    table: EdgeTable,
    forward: Forward,
    poisoned: list[str],
    names: list[str],
    seed: Tensor,
    seen: list[_Seen],
    reaches: list[_Reach | None],
) -> list[bool]:
    """Which outputs mix rows without any edge: all of the graph's, or all of one graph's in a batch.

    Only where every row that a path leads to moved is a second run, the seed cut off, needed.
    """
    if not any(item.moved is not None and bool(item.moved.all()) for item in seen) and not any(
        reach is not None and reach.whole for reach in reaches
    ):
        return [False] * len(seen)
    alone = _run(model, cut(Deletion(nodes=seed.cpu()), data, table), forward, poisoned, names, seed)
    return [item.moved is not None and int(item.moved.sum()) > 1 for item in alone]


@dataclass(frozen=True)
class _Reach:
    hops: int | None  # None where no path leads to some of the rows
    whole: bool  # everything that can be reached was: the true reach may be longer


def _reaches(seen: list[_Seen], walks: list[list[EdgeTable]], seed: Tensor) -> list[_Reach | None]:
    """For every output the largest distance of a row that depends on the seed, walking only as far as such rows lie."""
    result: list[_Reach | None] = [None if item.moved is None else _Reach(None, whole=False) for item in seen]
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
                result[i] = _Reach(hops, whole=not following.numel() and hops > 0)
                del left[i]
            ring, hops = following, hops + 1
    return result


def _measure(seen: list[_Seen], reaches: list[_Reach | None], mixed: list[bool]) -> Probe:
    sites: list[Site] = []
    calls: dict[str, int] = {}
    output_hops, output_bounded = None, True
    for item, reach, mixes in zip(seen, reaches, mixed, strict=True):
        bounded = not mixes and (reach is None or reach.hops is not None)
        measured = reach.hops if reach is not None and bounded else None
        counted = 1 + max((site.hops for site in sites), default=0)
        if measured is not None and reach is not None and reach.whole:  # the graph is too small to tell: count as well
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
                reach is not None,
            )
        )
    bounded = output_bounded and all(site.bounded for site in sites)
    return Probe(tuple(sites), calls, output_hops if bounded else None, bounded)


def _poison(module: nn.Module, nodes: int, seed: Tensor) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
    names = list(inspect.signature(module.forward).parameters)

    def spoil(value: Any) -> Any:
        if isinstance(value, Tensor):
            fits = (
                value.is_floating_point()
                and value.dim() >= 2
                and value.size(0) == nodes
                and value.layout == torch.strided
            )
            spoiled = not fits or bool(torch.isnan(value[seed]).all())  # x often is already: spare its copy
            return value if spoiled else value.index_fill(0, seed, float("nan"))
        if isinstance(value, dict):
            return {key: spoil(item) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(spoil(item) for item in value)
        return value

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        spoiled = [v if i < len(names) and names[i].startswith("edge") else spoil(v) for i, v in enumerate(args)]
        return tuple(spoiled), {k: v if k.startswith("edge") else spoil(v) for k, v in kwargs.items()}

    return hook
