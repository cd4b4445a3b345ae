"""One pass of a model over a block: each layer is given what it needs, and its other rows come from the cache.

Hooks before every layer cut its arguments down to the rows and edges that it needs; hooks behind it put the computed rows
beside those of the cache. Nothing else of the model is touched.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MeanAggregation

from gnndelete.engine.incoming import edge_weight
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.nn.hooks import Finished, Site, Visit, entry, replaced

if TYPE_CHECKING:
    from gnndelete.engine.blocks import Block, Blocks


class Record(dict[Site, tuple[Tensor, Tensor]]):
    """The computed rows of every site, before and after the operators of a request."""


@dataclass
class _Pass:
    """What is known while one pass runs."""

    block: Block
    rows: int  # the nodes that the model runs on: the first ones of the block
    edges: Tensor | None  # their edges; None where typed
    entering: list[int] | None  # how many edges, the first ones, enter the nodes of each level
    visit: Visit | None
    layers: frozenset[str]
    record: Record | None
    lag: int  # by how many hops fewer the rows of all layers change than operators act
    unchanged: dict[Site, Tensor] | None = None  # takes what edges from changed rows gave before the request
    calls: Counter[str] = field(default_factory=Counter)
    part: tuple[int, int] | None = None  # of the call that runs now: computed rows, and rows that are read


@dataclass
class _Outer:
    """The outermost rows of a block that adds up messages, of whose edges only those from changed rows are there.

    Attributes:
        share: The share of the edges into each row that is there.
        lacking: What is missing of their degrees.
        lacking_weight: The same, by weight.
        before: What the edges that are there gave at each site before the request.
    """

    share: Tensor
    lacking: Tensor
    lacking_weight: Tensor
    before: dict[Site, Tensor] = field(default_factory=dict)


class Passes:
    """The passes of a model over blocks.

    Args:
        blocks: The model and its graph.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._now: _Pass | None = None
        self._outer: WeakKeyDictionary[Block, _Outer] = WeakKeyDictionary()
        self._sites: dict[tuple[str, int], list[Site]] = {}
        for site in blocks.probe.sites:
            self._sites.setdefault((site.layer, site.call), []).append(site)
        self._first = next(iter(self._sites), None)
        last = blocks.probe.sites[-1]
        #: after the last layer only rows that operators may act on are read, unless messages go on behind it
        self._last = (last.layer, last.call) if last.hops == blocks.reach else None
        self._outermost = sum(site.hops == blocks.reach for site in blocks.probe.sites)
        self.knows_degrees = False
        for module in blocks.model.modules():
            self.knows_degrees |= use_given_degrees(module, self._normalize)
        for name in blocks.probe.layers:  # before the hooks of any solver, which must read restored rows
            layer = blocks.model.get_submodule(name)
            layer.register_forward_pre_hook(partial(self._before, name), with_kwargs=True)
            layer.register_forward_hook(partial(self._after, name))
            for module in layer.modules() if blocks.sums else ():
                if type(module) is MeanAggregation:
                    module.register_forward_hook(self._true_mean)

    def measure(self, block: Block) -> None:
        """What the edges into the outermost rows of a block give before the request, once."""
        if block in self._outer or block.levels is None or block.complete == block.levels[-1]:
            return
        blocks, data = self._blocks, block.data
        degrees = blocks.edges if blocks.segments is None else blocks.segments
        outer, weight = block.nodes[block.complete :], edge_weight(data)
        entering = int(torch.searchsorted(data.edge_index[1].contiguous(), block.complete))
        rows = data.edge_index[1, entering:] - block.complete
        there = torch.zeros(outer.numel(), device=rows.device)
        there.index_add_(0, rows, torch.ones_like(rows, dtype=there.dtype))
        total = degrees.degree[outer]
        lacking = lacking_weight = total - there
        if weight is not None:
            lacking_weight = degrees.weighted[outer].index_add(0, rows, -weight[entering:].to(degrees.weighted.dtype))
        found = self._outer[block] = _Outer(there / total.clamp(min=1), lacking, lacking_weight)
        with self.on(block, data, outer.numel() + block.complete, 0, None, None, None):
            assert self._now is not None
            self._now.unchanged = found.before
            with suppress(Finished), torch.no_grad():
                blocks.session.forward(blocks.model, data)

    @contextmanager
    def on(
        self,
        block: Block,
        graph: Data,
        rows: int,
        lag: int,
        visit: Visit | None,
        layers: list[str] | None,
        record: Record | None,
    ) -> Iterator[None]:
        """A pass over the first rows of a block."""
        edges, entering = None, None
        if not isinstance(graph, HeteroGraph):
            edges = graph.edge_index
            if self._blocks.narrows and block.levels is not None:
                bounds = torch.tensor(block.levels, device=edges.device)
                entering = torch.searchsorted(edges[1].contiguous(), bounds).tolist()
        before = self._now
        self._now = _Pass(block, rows, edges, entering, visit, frozenset(layers or ()), record, lag)
        try:
            yield
        finally:
            self._now = before

    def count(self, block: Block, site: Site, lag: int = 0) -> int:
        """How many rows, the first ones, a pass must compute at a site; the first layer reads no operator's rows."""
        assert block.levels is not None
        if not self._blocks.narrows:
            return block.levels[-1]
        lag = block.lag if (site.layer, site.call) == self._first else lag
        return block.levels[max(site.hops - lag, 0)]

    # Before a layer

    def _before(self, name: str, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        """The arguments of a call with the rows and edges that it needs; None where all are needed."""
        now = self._now
        if now is None:
            return None
        now.part = None
        sites = self._sites.get((name, now.calls[name]), [])
        if now.entering is None or now.edges is None or not sites or now.rows == now.edges.size(1):
            return None
        levels = now.block.levels
        assert levels is not None
        hop = max(max(site.hops for site in sites) - self._lag(now, name), 0)
        count, read = levels[hop], levels[hop + 1] if hop + 1 < len(levels) else now.rows
        start = 0
        if now.unchanged is not None:  # rows of lower layers are known, and only messages to the outermost rows are not
            is_last = hop + 1 == len(levels)
            start = now.entering[-2] if is_last else now.entering[hop]
            start = 0 if is_last and self.knows_degrees else start  # sources need theirs
            count, read = (count, read) if is_last else (1, 1)
        cut = _Cut(now.edges, now.rows, slice(start, now.entering[hop]), min(read, now.rows))
        args, kwargs = cut(args), {key: cut(value) for key, value in kwargs.items()}
        if not cut.found or cut.failed:
            return None
        now.part = count, cut.read
        if name in self._blocks.reads.pairs:
            if args and isinstance(args[0], Tensor):
                args = ((args[0], args[0][:count]), *args[1:])
            elif isinstance(kwargs.get("x"), Tensor):
                kwargs["x"] = (kwargs["x"], kwargs["x"][:count])
        return args, kwargs

    def _lag(self, now: _Pass, name: str) -> int:
        return now.block.lag if (name, now.calls[name]) == self._first else now.lag

    def _normalize(
        self, normalize: Callable[..., Any], edge_index: Any, edge_weight: Any = None, *args: Any, **kw: Any
    ) -> Any:
        """``gcn_norm`` with the degrees of the whole graph: an edge from outside stands for all that a node lacks."""
        now = self._now
        if now is None or not isinstance(edge_index, Tensor):
            return normalize(edge_index, edge_weight, *args, **kw)
        block = now.block
        computed, count = now.part or (now.rows, now.rows)
        complete = computed if block.levels is None else min(block.complete, computed)
        boundary = torch.arange(complete, count, device=edge_index.device)
        if block.levels is None:
            boundary = block.boundary
        if not boundary.numel():
            return normalize(edge_index, edge_weight, *args, **kw)
        degrees = self._blocks.edges if self._blocks.segments is None else self._blocks.segments
        lacking = (degrees.degree if edge_weight is None else degrees.weighted)[block.nodes[boundary]]
        if (outer := self._outer.get(block)) is not None and computed > complete:  # some of their edges are there
            lacking = outer.lacking if edge_weight is None else outer.lacking_weight
        return given_norm(normalize, edge_index, edge_weight, args, kw, boundary, lacking, count, computed)

    def _true_mean(self, _: nn.Module, __: Any, output: Any) -> Any:
        """The mean over all edges into the outermost rows, from those that are there."""
        now = self._now
        outer = None if now is None else self._outer.get(now.block)
        if now is None or outer is None or not isinstance(output, Tensor):
            return None
        complete, count = now.block.complete, now.part[0] if now.part else now.rows
        if count <= complete or output.dim() < 2 or output.size(-2) != count:
            return None
        share = torch.ones(count, 1, dtype=output.dtype, device=output.device)
        share[complete:, 0] = outer.share
        return output * share

    # Behind a layer

    def _after(self, name: str, _: nn.Module, __: Any, output: Any) -> Any:
        """The computed rows beside those of the cache, after whoever visits the layer."""
        now = self._now
        if now is None:
            return None
        call, now.part = now.calls[name], None
        now.calls[name] += 1
        sites = self._sites.get((name, call), [])
        computed = {}
        for site in sites:
            h = entry(output, site.key)
            restored, computed[site] = self._restored(now, site, h)
            output = replaced(output, site.key, restored)
        before = {site: entry(output, site.key) for site in sites}
        if now.visit is not None and name in now.layers:
            visited = now.visit(name, call, output)
            output = output if visited is None else visited
        for site in sites:
            h = entry(output, site.key)
            if now.record is not None:
                numbers = computed[site]
                now.record[site] = before[site].index_select(0, numbers), h.index_select(0, numbers)
            output = replaced(output, site.key, self._widened(now, site, h))
        return output

    def _restored(self, now: _Pass, site: Site, h: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that operators may act on, and the numbers of those that were computed here."""
        blocks, block = self._blocks, now.block
        if block.levels is None:
            here = blocks.local_rows(block, site.rows)
            ids = block.nodes[here.start : here.stop] - site.rows.start
            numbers = block.computed[(block.computed >= here.start) & (block.computed < here.stop)] - here.start
            rows = self._offset(site, ids[numbers], h.index_select(0, numbers))
            return blocks.rows(site, ids).to(h.dtype).index_copy(0, numbers, rows), numbers
        count = min(self.count(block, site, now.lag), now.rows)
        seen = min(block.levels[site.hops] if blocks.narrows else block.levels[-1], now.rows)
        complete = min(block.complete, count) if blocks.sums else count
        if now.unchanged is not None:
            if count > complete:
                now.unchanged[site] = h[complete:count].clone()
                if len(now.unchanged) == self._outermost:
                    raise Finished
            return blocks.rows(site, block.nodes[:seen]).to(h.dtype), block.computed[:count]
        rows = self._offset(site, block.nodes[:complete], h[:complete])
        outer = self._outer.get(block)
        if count > complete and outer is not None:
            known = blocks.rows(site, block.nodes[complete:count]).to(h.dtype)
            rows = torch.cat([rows, known + (h[complete:count] - outer.before[site])])
        if seen > count:
            rows = torch.cat([rows, blocks.rows(site, block.nodes[count:seen]).to(h.dtype)])
        return rows, block.computed[:count]

    def _offset(self, site: Site, ids: Tensor, rows: Tensor) -> Tensor:
        """Rows with what the operators of earlier segments add to them."""
        state = self._blocks.segments
        return rows if state is None else rows + state.offsets[site].read(ids).to(rows.dtype)

    def _widened(self, now: _Pass, site: Site, h: Tensor) -> Tensor:
        """The rows of all nodes that the model runs on."""
        seen, block = h.size(0), now.block
        if block.levels is None or seen >= now.rows:
            return h
        shape = (now.rows, *h.shape[1:])
        if (site.layer, site.call) == self._last:
            result = blank_rows(shape, h, self._blocks.blank)
        else:
            result = empty_rows(shape, h)
            self._blocks.rows(site, block.nodes[seen : now.rows], result[seen:])
        result[:seen] = h
        return result


class _Cut:
    """Cuts the arguments of a call down to their first rows and edges.

    Args:
        edges: The edges that the model was given.
        rows: The nodes that it runs on.
        needed: The edges that are needed.
        read: How many nodes, the first ones, are read.
    """

    def __init__(self, edges: Tensor, rows: int, needed: slice, read: int) -> None:
        self._edges, self._rows, self._needed, self.read = edges, rows, needed, read
        self.found = self.failed = False

    def __call__(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(self(item) for item in value)
        if not isinstance(value, Tensor) or not value.dim():
            return value
        edges = self._edges
        if value.shape == edges.shape and not value.is_floating_point():
            self.found |= value.data_ptr() == edges.data_ptr()
            self.failed |= value.data_ptr() != edges.data_ptr()  # the model made other edges of them
            return value[:, self._needed]
        if value.size(0) == self._rows:
            return value[: self.read]
        return value[self._needed] if value.size(0) == edges.size(1) else value


def blank_rows(shape: tuple[int, ...], like: Tensor, value: float = 0.0) -> Tensor:
    """Rows that nothing reads. On a processor their memory is not even touched."""
    if value == 0 and like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.zeros(shape, dtype=np.float32 if like.dtype == torch.float32 else np.float64))
    return torch.full(shape, value, dtype=like.dtype, device=like.device)


def empty_rows(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Rows to be written. On a processor numpy asks for large pages of memory, which is twice as fast."""
    if like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.empty(shape, dtype=np.float32 if like.dtype == torch.float32 else np.float64))
    return like.new_empty(shape)


def given_norm(
    normalize: Callable[..., Any],
    edge_index: Tensor,
    edge_weight: Tensor | None,
    args: tuple[Any, ...],
    kw: dict[str, Any],
    boundary: Tensor,
    lacking: Tensor,
    count: int,
    computed: int,
) -> tuple[Tensor, Tensor]:
    """``gcn_norm`` on ``count`` nodes, of which those of ``boundary`` lack some of their degree; edges into the first alone."""
    if args:
        args = (count + 1, *args[1:])
    else:
        kw = {**kw, "num_nodes": count + 1}
    weight = lacking.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
    outside = torch.stack([torch.full_like(boundary, count), boundary])
    more, norm = normalize(
        torch.cat([edge_index, outside], dim=1), torch.cat([weight, lacking.to(weight.dtype)]), *args, **kw
    )
    inside = (more[0] < count) & (more[1] < computed)
    return more[:, inside], norm[inside]


def use_given_degrees(module: nn.Module, normalize: Callable[..., Any]) -> bool:
    """Let a layer whose ``forward`` calls PyG's ``gcn_norm`` call ``normalize`` with it instead; whether it does."""
    forward: Any = getattr(type(module), "forward", None)
    code = getattr(forward, "__code__", None)
    if code is None or "gcn_norm" not in code.co_names or "forward" in vars(module):
        return False
    known = forward.__globals__.get("gcn_norm")
    if known is None:
        return False

    def given(*args: Any, **kwargs: Any) -> Any:
        return normalize(known, *args, **kwargs)

    function = types.FunctionType(
        code, {**forward.__globals__, "gcn_norm": given}, forward.__name__, forward.__defaults__, forward.__closure__
    )
    function.__kwdefaults__ = forward.__kwdefaults__
    module.forward = types.MethodType(function, module)
    return True
