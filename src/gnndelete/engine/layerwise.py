"""Layer-wise preparation: the rows of every layer of a graph on disk, each layer computed once, block of nodes by block.

For a layer and a range of nodes, the model runs on these nodes and what they read. Layers below are not computed: their
rows are in a file already and stand in for their ``forward``. The rows of the layer at hand are appended to its file, and
the pass ends there. A preparation that was killed goes on behind the last block that reached the disk.

A part of the graph in memory shows first how the model is run on blocks (`engine.trial`), and that layers computed like this
have the rows of a pass over that whole part.
"""

from __future__ import annotations

import bisect
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnndelete.engine.blocks import Block, Blocks, Reads
from gnndelete.engine.cache import Cache
from gnndelete.engine.incoming import edges_of
from gnndelete.engine.passes import given_norm, use_given_degrees
from gnndelete.engine.trial import close
from gnndelete.errors import AdapterError
from gnndelete.graph.disk import DiskGraph
from gnndelete.io.arrays import MANIFEST, Arrays, Draft, in_bytes, release
from gnndelete.io.progress import bar
from gnndelete.nn.hooks import Finished, Key, Site, entry
from gnndelete.nn.layers import working_copy

KIND = "folder of layer rows"

#: Bytes that a block takes per edge besides the rows, and copies of the widest rows that are held at once.
EDGE_BYTES, COPIES = 96, 6

#: The share that one block may take, by this estimate, of the ``memory`` that the process does not hold already.
BLOCK_SHARE = 0.25


@dataclass(frozen=True)
class Step:
    """What one round over all nodes computes: the rows of a site, or an entry of the model's output.

    Attributes:
        site: The site; None for the output.
        key: The entry of the output.
        shape: The numbers of one row.
        dtype: Their type.
    """

    site: Site | None
    key: Key
    shape: tuple[int, ...]
    dtype: torch.dtype


class Layerwise:
    """Computes rows of one layer on a range of nodes, from the rows of the layers below.

    Args:
        session: The model and its graph.
        reads: How the model is given a block.
        edges: The edges of the graph by their target.
    """

    def __init__(self, session: Any, reads: Reads, edges: Any) -> None:
        probe = session.probe("all")
        # every layer runs on the whole block, and of its rows those of the range are kept
        self._reads = replace(reads, sums=False, narrow=False, lags=False, first_only=frozenset())
        self._blocks = Blocks(session, probe, Cache({}, {}, {}), self._reads, edges)
        self._session, self._edges = session, edges
        self._model = working_copy(session.model, share=True).eval()
        for module in self._model.modules():
            use_given_degrees(module, self._normalize)
        self._sites = {(site.layer, site.call): site for site in probe.sites}
        for name in probe.layers:
            layer: Any = self._model.get_submodule(name)
            layer.forward = partial(self._layer, name, layer.forward)
        self._block: Block | None = None
        self._known: Mapping[Site, Tensor] = {}
        self._step: Step | None = None
        self._calls: Counter[str] = Counter()
        self._rows: Tensor | None = None

    def block(self, nodes: range) -> Block:
        """The nodes of a range, and all that one call of a layer reads for them."""
        return self._blocks.around([torch.arange(nodes.start, nodes.stop)])

    def compute(self, step: Step, block: Block, known: Mapping[Site, Tensor]) -> Tensor:
        """The rows of a step for the nodes whose rows the block computes."""
        self._block, self._step, self._known, self._rows = block, step, known, None
        self._calls.clear()
        output = None
        try:
            with torch.no_grad():
                output = self._session.forward(self._model, block.data)
        except Finished:
            pass
        finally:
            self._block, self._known = None, {}
        rows = entry(output, step.key) if self._rows is None else self._rows
        return rows[: block.computed.numel()]

    def _layer(self, name: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """In the place of a layer's ``forward``: its rows where they are known."""
        assert self._block is not None
        assert self._step is not None
        site = self._sites.get((name, self._calls[name]))
        self._calls[name] += 1
        if site is not None and site in self._known:
            return self._known[site].index_select(0, self._block.nodes)
        output = forward(*args, **kwargs)
        if site is not None and site == self._step.site:
            self._rows = output
            raise Finished
        return output

    def _normalize(
        self, normalize: Callable[..., Any], edge_index: Any, edge_weight: Any = None, *args: Any, **kw: Any
    ) -> Any:
        """``gcn_norm`` with the degrees of the whole graph."""
        block = self._block
        assert block is not None
        if not isinstance(edge_index, Tensor) or not block.boundary.numel():
            return normalize(edge_index, edge_weight, *args, **kw)
        degree = self._edges.degree if edge_weight is None else self._edges.weighted
        count = block.nodes.numel()
        lacking = degree[block.nodes[block.boundary]]
        return given_norm(normalize, edge_index, edge_weight, args, kw, block.boundary, lacking, count, count)


def steps(sample: Cache) -> list[Step]:
    """What must be computed, in order, by what a part of the graph has shown."""
    found = [Step(site, None, tuple(rows.shape[1:]), rows.dtype) for site, rows in sample.rows.items()]
    for key, rows in sample.output.items():
        if not any(rows is known for known in sample.rows.values()):
            found.append(Step(None, key, tuple(rows.shape[1:]), rows.dtype))
    return found


def unfit(sample: Blocks) -> str:
    """Why the model cannot be prepared layer by layer; nothing where it can: tried on a part of the graph in memory."""
    if any(site.key is not None for site in sample.cache.rows):
        return "a graph layer returns several values"
    layerwise = Layerwise(sample.session, sample.reads, sample.edges)
    count = sample.session.table.num_nodes
    known: dict[Site, Tensor] = {}
    for step in steps(sample.cache):
        cuts = [0, count // 3, count // 2, count]
        parts = [range(*pair) for pair in pairwise(cuts) if pair[0] < pair[1]]
        rows = torch.cat([layerwise.compute(step, layerwise.block(part), known) for part in parts])
        right = sample.cache.output[step.key] if step.site is None else sample.cache.rows[step.site]
        if not close(rows, right):
            name = "the output" if step.site is None else f"the layer '{step.site.title}'"
            return f"computed layer by layer, {name} has other rows than in one pass"
        if step.site is not None:
            known[step.site] = rows
    return ""


def prepare(
    session: Any, sample: Blocks, folder: Path, identity: Mapping[str, str], memory: int | str, progress: bool
) -> Cache:
    """Compute the rows of every layer of a graph on disk, or open them where they are computed already.

    Args:
        session: The model and the graph.
        sample: The model on a part of the graph.
        folder: Where the rows are kept.
        identity: Digests of the model and the graph.
        memory: How much memory the process may come to use.
        progress: Show a progress bar.

    Returns:
        The rows, which are read from the disk as they are used.

    Raises:
        AdapterError: If the folder holds the rows of another model or graph.
    """
    todo = steps(sample.cache)
    if not (folder / MANIFEST).exists():
        _write(session, sample, todo, Draft(folder, KIND, identity), in_bytes(memory), progress)
    arrays = Arrays(folder, KIND)
    if arrays.identity != dict(identity):
        raise AdapterError(f"'{folder}' holds the rows of another model or graph", "give another folder")
    sites = {site: site for site in session.probe("all").sites}
    rows, output, sums = {}, {}, {}
    for number, step in enumerate(todo):
        value = arrays.tensor(f"rows{number}")
        if step.site is None:
            output[step.key] = value
        else:
            rows[sites[step.site]] = value
            sums[sites[step.site]] = torch.tensor(arrays.facts[f"sum{number}"], dtype=torch.float64)
    for key, value in sample.cache.output.items():
        same = [site for site, known in sample.cache.rows.items() if known is value]
        if same:
            output[key] = rows[same[0]]
    return Cache(rows, {key: output[key] for key in sample.cache.output}, sums)


def _write(session: Any, sample: Blocks, todo: list[Step], draft: Draft, memory: int, progress: bool) -> None:
    graph: DiskGraph = session.data
    nodes, edges = session.table.num_nodes, edges_of(session)
    layerwise = Layerwise(session, sample.reads, edges)
    pointers = session.table.pointers
    features = graph.get("x")
    width = max(math.prod(step.shape) for step in todo)
    width = max(width, features.size(1) if isinstance(features, Tensor) and features.dim() > 1 else 1)
    per_edge, per_node = EDGE_BYTES + 4 * COPIES * width, 4 * COPIES * width
    budget = max(memory - _held(), memory / 2) * BLOCK_SHARE
    known: dict[Site, Tensor] = {}
    files = {f"rows{number}": (_name(step.dtype), (nodes, *step.shape)) for number, step in enumerate(todo)}
    with bar("preparing", len(todo) * nodes, progress) as update:
        for number, step in enumerate(todo):
            name, row_bytes = f"rows{number}", math.prod(step.shape) * step.dtype.itemsize
            start = draft.sizes.get(name, 0) // row_bytes
            total = torch.tensor(draft.facts.get(f"sum{number}", [0.0] * math.prod(step.shape)), dtype=torch.float64)
            what = f"preparing layer {number + 1} of {len(todo)}"
            while start < nodes:
                update(number * nodes + start, what)
                limit = int(pointers[start]) * per_edge + start * per_node + budget

                def cost(node: int) -> int:
                    return int(pointers[node]) * per_edge + node * per_node

                stop = max(bisect.bisect_right(range(nodes + 1), limit, lo=start, key=cost) - 1, start + 1)
                block = layerwise.block(range(start, stop))
                while stop - start > 1 and block.data.num_edges * per_edge > 2 * budget:  # layers of several hops
                    stop = start + (stop - start) // 2
                    block = layerwise.block(range(start, stop))
                rows = layerwise.compute(step, block, known)
                total += rows.flatten(1).sum(dim=0, dtype=torch.float64)
                draft.append(name, rows.numpy())
                draft.commit(**{f"sum{number}": total.tolist()})
                start = stop
                del block, rows
                for mapped in (graph.edge_index, features, *known.values()):
                    if isinstance(mapped, Tensor):
                        release(mapped)
            if step.site is not None:
                known[step.site] = draft.map(name, *files[name])
        update(len(todo) * nodes, "preparing: reading every file once for its digest")
        facts = {key: value for key, value in draft.facts.items() if key.startswith("sum")}
        draft.close(files, **facts)


def _held() -> int:
    """The bytes that this process holds, where the system tells them."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
