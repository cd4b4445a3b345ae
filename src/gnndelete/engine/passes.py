"""One pass of a model over a block: each layer is given what it needs, and its other rows come from the cache.

Hooks before every layer cut its arguments down to the rows and edges that it needs; hooks behind it put the computed rows
beside those of the cache. Nothing else of the model is touched.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.graph.hetero import HeteroGraph
from gnndelete.nn.hooks import Site, Visit, entry, replaced

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
    calls: Counter[str] = field(default_factory=Counter)
    part: tuple[int, int] | None = None  # of the call that runs now: computed rows, and rows that are read


class Passes:
    """The passes of a model over blocks.

    Args:
        blocks: The model and its graph.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._now: _Pass | None = None
        self._sites: dict[tuple[str, int], list[Site]] = {}
        for site in blocks.probe.sites:
            self._sites.setdefault((site.layer, site.call), []).append(site)
        self._first = next(iter(self._sites), None)
        last = blocks.probe.sites[-1]
        #: after the last layer only rows that operators may act on are read, unless messages go on behind it
        self._last = (last.layer, last.call) if last.hops == blocks.reach else None
        self.knows_degrees = False
        for module in blocks.model.modules():
            self.knows_degrees |= _use_given_degrees(module, self._normalize)
        for name in blocks.probe.layers:  # before the hooks of any solver, which must read restored rows
            layer = blocks.model.get_submodule(name)
            layer.register_forward_pre_hook(partial(self._before, name), with_kwargs=True)
            layer.register_forward_hook(partial(self._after, name))

    @contextmanager
    def on(
        self,
        block: Block,
        graph: Data,
        rows: int,
        visit: Visit | None,
        layers: list[str] | None,
        record: Record | None,
    ) -> Iterator[None]:
        """A pass over the first rows of a block."""
        shrunk = rows < block.nodes.numel()
        edges, entering = None, None
        if not isinstance(graph, HeteroGraph):
            edges = graph.edge_index
            if self._blocks.narrows and block.levels is not None:
                bounds = torch.tensor(block.levels, device=edges.device)
                entering = torch.searchsorted(edges[1].contiguous(), bounds).tolist()
        lag = block.lag if shrunk else 0
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
        cut = _Cut(now.edges, now.rows, now.entering[hop], min(read, now.rows))
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
        if now.part is not None:
            computed, count = now.part
            boundary = torch.arange(computed, count, device=edge_index.device)
        else:
            count, boundary = now.rows, block.boundary
            if block.levels is not None:
                boundary = torch.arange(min(block.complete, count), count, device=edge_index.device)
            computed = count
        if not boundary.numel():
            return normalize(edge_index, edge_weight, *args, **kw)
        if args:
            args = (count + 1, *args[1:])
        else:
            kw["num_nodes"] = count + 1
        degrees = self._blocks.edges if self._blocks.segments is None else self._blocks.segments
        lacking = (degrees.degree if edge_weight is None else degrees.weighted)[block.nodes[boundary]]
        weight = lacking.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
        outside = torch.stack([torch.full_like(boundary, count), boundary])
        more, norm = normalize(
            torch.cat([edge_index, outside], dim=1), torch.cat([weight, lacking.to(weight.dtype)]), *args, **kw
        )
        inside = (more[0] < count) & (more[1] < computed)
        return more[:, inside], norm[inside]

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
        rows = self._offset(site, block.nodes[:count], h[:count])
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
        entering: How many edges, the first ones, are needed.
        read: How many nodes, the first ones, are read.
    """

    def __init__(self, edges: Tensor, rows: int, entering: int, read: int) -> None:
        self._edges, self._rows, self._entering, self.read = edges, rows, entering, read
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
            return value[:, : self._entering]
        if value.size(0) == self._rows:
            return value[: self.read]
        return value[: self._entering] if value.size(0) == edges.size(1) else value


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


def _use_given_degrees(module: nn.Module, normalize: Callable[..., Any]) -> bool:
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
