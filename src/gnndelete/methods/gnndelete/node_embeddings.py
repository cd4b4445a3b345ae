"""Nodes that are deleted or lose their last edge: what a link model's trained vectors know of them came from what was deleted.

Training again would leave the vector of such a node as it began, but for what negatives that are drawn make of it. Nodes that
never had an edge show what that looks like; where there are none, the vector is blank. Rows are given as they would be with
such vectors, whatever lam is: behind the graph layers or, where vectors go past these to the model's output, there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.hetero import label_edges
from gnndelete.methods.base import Context
from gnndelete.nn.hooks import Site, all_rows, entry, listening, replaced, representations
from gnndelete.nn.operator import GivenRows, Operator
from gnndelete.tasks import LinkPrediction

Filling = Callable[["Vectors", Tensor], Tensor]

#: Of so many nodes without edges the spread of each column is known; of fewer only the size of their numbers.
ENOUGH = 8

#: Of so many edges it is asked whether their answers know vectors by another way than the rows of nodes.
ASKED = 64


@dataclass(frozen=True)
class Alone:
    """Such nodes, and their rows at every site with untrained vectors; ``past``: at the output of the model alone.

    ``stays`` counts nodes of which trained vectors know something that could not be taken back.
    """

    nodes: Tensor
    rows: dict[Site, Tensor] = field(default_factory=dict)
    past: bool = False
    stays: int = 0

    def already(self, site: Site, h: Tensor) -> bool:
        """Whether the rows are so without an operator: behind the first layer they follow from what was given there."""
        return _alike(h.index_select(0, site.local(self.nodes)), self.rows[site], 1e-3)

    def map(self, site: Site) -> GivenRows:
        """The map to these rows; a single one where they are all alike."""
        rows = self.rows[site].flatten(1)
        alike = _alike(rows[:1].expand_as(rows), rows, 1e-5)
        return GivenRows((rows[:1] if alike else rows).clone()).requires_grad_(False)

    def outside(self) -> list[tuple[Site, Operator]]:
        """The operators behind the model itself."""
        if not self.past:
            return []
        found = [(site, site.local(self.nodes)) for site in self.rows]
        return [(site, Operator(len(site.rows), site.width, [rows], [self.map(site)])) for site, rows in found]

    @property
    def note(self) -> tuple[str, ...]:
        count = self.nodes.numel() or self.stays
        if not count:
            return ()
        who, whom = (
            ("1 node lost all its edges", "it") if count == 1 else (f"{count:,} nodes lost all their edges", "them")
        )
        if self.stays:
            return (
                f"{who}, and what the model's trained vectors know of {whom} stays: it could not be told "
                "from the rest of the model. method='retrain' forgets it.",
            )
        return (
            f"{who}: what the model's trained vectors knew of {whom} came from what was deleted and counts no more.",
        )


@dataclass(frozen=True)
class Vectors:
    """A parameter with one row per node, or per node of one type; ``table``: an embedding's, which are nothing else."""

    parameter: str
    nodes: range
    table: bool = False

    def mine(self, nodes: Tensor) -> Tensor:
        """Those of the nodes that it has rows of."""
        return self.rows(nodes) + self.nodes.start

    def rows(self, nodes: Tensor) -> Tensor:
        return _local(nodes, self.nodes)


def left_alone(context: Context, model: nn.Module, sites: tuple[Site, ...]) -> Alone:
    """Nodes deleted or left without an edge, where ``model`` (a working copy) has trained vectors that say much of them."""
    none = context.gone[:0]
    # a link model learns vectors from edges; to a node classifier a label still teaches one
    possible = possible_vectors(model, context.data) if isinstance(context.task, LinkPrediction) else []
    nodes, never = _without_edges(context) if possible else (none, none)
    possible = [vectors for vectors in possible if vectors.mine(nodes).numel()]
    if not possible:
        return Alone(none)
    traces = {vectors: _trace(context, model, sites, vectors, nodes) for vectors in possible}
    found = [vectors for vectors, trace in traces.items() if trace.single]
    if not found or any(traces[vectors].lost for vectors in found):
        known = [vectors for vectors in possible if vectors in found or vectors.table]
        return Alone(none, stays=_of(known, nodes).numel())
    nodes, past = _of(found, nodes), any(traces[vectors].past for vectors in found)
    for filling in _fillings(nodes, never, context.seed):
        with _filled(model, found, nodes, filling):
            rows = _rows(context, model, sites, nodes)
        if all(bool(torch.isfinite(part).all()) for part in rows.values()):
            given = {site: part for site, part in rows.items() if past == (site not in sites)}
            return Alone(nodes, given, past)
    return Alone(none, stays=nodes.numel())


def _of(found: Iterable[Vectors], nodes: Tensor) -> Tensor:
    return torch.cat([nodes[:0], *(vectors.mine(nodes) for vectors in found)]).unique()


def _alike(one: Tensor, other: Tensor, share: float) -> bool:
    """Whether two tensors differ by no more than a share of their size; empty ones are."""
    return not other.numel() or torch.allclose(one, other, rtol=share, atol=share * float(other.abs().mean()))


def possible_vectors(model: nn.Module, data: Data) -> list[Vectors]:
    """Parameters whose shape would do. What is frozen while others learn was given, not trained: it is like a feature."""
    places = all_rows(data)
    parameters = dict(model.named_parameters())
    some_learn = any(value.requires_grad for value in parameters.values())
    tables = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    return [
        Vectors(name, nodes, name in tables)
        for name, value in parameters.items()
        for nodes in dict.fromkeys([places.whole, *places.types.values()])
        if value.dim() == 2 and value.size(0) == len(nodes) > 0 and (value.requires_grad or not some_learn)
    ]


def _without_edges(context: Context) -> tuple[Tensor, Tensor]:
    """Nodes that lost the last edge that could teach them, deleted ones with them, and nodes that never had one."""
    device = context.data.edge_index.device
    had, has = torch.zeros(2, context.session.table.num_nodes, dtype=torch.bool, device=device)
    for data, marks in ((context.data, had), (context.remaining, has)):
        labels = label_edges(data)
        for edges in (data.edge_index, *([] if labels is None else [ends_of(labels).to(device)])):
            marks[edges[:, edges[0] != edges[1]].flatten()] = True  # a loop teaches nothing about others
    gone = torch.zeros_like(had)
    gone[context.gone] = True
    return (had & (~has | gone)).nonzero().flatten(), (~had & ~gone).nonzero().flatten()


@dataclass
class _Trace:
    """Where NaN in a parameter's rows of some nodes shows, when their rows behind every graph layer are mended."""

    reached: bool = False  # in their rows behind a layer
    past: bool = False  # in their rows of the model's output all the same
    spread: bool = False  # in rows of other nodes
    lost: bool = False  # in answers, though the rows of the output are mended as well

    @property
    def single(self) -> bool:
        return (self.reached or self.past) and not self.spread

    def mended(self, h: Tensor, own: Tensor) -> tuple[Tensor, bool]:
        poisoned = torch.isnan(h.flatten(1)).any(dim=1)
        count = int(poisoned.sum())
        self.spread |= count != int(poisoned[own].sum())
        return h.index_fill(0, own, 0.0), 0 < own.numel() == count


def _trace(context: Context, model: nn.Module, sites: tuple[Site, ...], vectors: Vectors, nodes: Tensor) -> _Trace:
    trace, mine, places = _Trace(), vectors.mine(nodes), all_rows(context.data)

    def visit(name: str, call: int, output: Any) -> Any:
        for site in sites:
            if (site.layer, site.call) == (name, call):
                h, shows = trace.mended(entry(output, site.key), site.local(mine))
                trace.reached |= shows
                output = replaced(output, site.key, h)
        for key, h, own in representations(output, places) if name == "" else ():
            h, shows = trace.mended(h, _local(mine, own))
            trace.past |= shows
            output = replaced(output, key, h)
        return output

    touching = _touching(context, mine)
    try:
        with _filled(model, [vectors], nodes, lambda of, values: values[of.rows(nodes)] * float("nan")):
            with listening(model, _watched(sites), visit):
                output = context.session.forward(model, context.remaining)
            assert isinstance(context.task, LinkPrediction)
            asked = context.task.scored(touching)
            scores = context.task.predict(model, output, asked) if asked.size(1) else torch.zeros(1)
        trace.lost = bool(torch.isnan(scores).any())
        trace.past |= trace.lost and not trace.reached
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a model of the user's that refuses NaN: nothing is known then
        return _Trace()
    return trace


def _touching(context: Context, nodes: Tensor) -> Tensor:
    """Some deleted edges of these nodes; what a deleted node had goes with it, and the request does not name it."""
    edges = context.deletion.edges
    found = edges[:, torch.isin(ends_of(edges), nodes.cpu()).any(dim=0)]
    if not found.size(1):
        pairs = context.data.edge_index
        places = torch.isin(pairs, nodes).any(dim=0).nonzero().view(-1)[:ASKED]
        kinds = [context.data.edge_type[places]] if context.session.table.typed else []
        found = torch.stack([pairs[0, places], *kinds, pairs[1, places]]).cpu()
    return found[:, :ASKED]


def _rows(context: Context, model: nn.Module, sites: tuple[Site, ...], nodes: Tensor) -> dict[Site, Tensor]:
    """The rows of nodes on the remaining graph: at every site, and in the model's output."""
    result: dict[Site, Tensor] = {}
    places = all_rows(context.data)

    def visit(name: str, call: int, output: Any) -> None:
        for site in sites:
            if (site.layer, site.call) == (name, call):
                result[site] = entry(output, site.key).index_select(0, site.local(nodes))
        for key, h, own in representations(output, places) if name == "" else ():
            if (local := _local(nodes, own)).numel():
                site = Site("", 0, key, h[0].numel(), 0, bounded=True, probed=True, rows=own)
                result[site] = h.index_select(0, local)

    with listening(model, _watched(sites), visit):
        context.session.forward(model, context.remaining)
    return result


def _watched(sites: tuple[Site, ...]) -> list[str]:
    """The layers of the sites, and the model itself, which may be one of them."""
    return list(dict.fromkeys([*(site.layer for site in sites), ""]))


def _local(nodes: Tensor, own: range) -> Tensor:
    """The rows of those of the nodes that are among ``own``."""
    return nodes[(nodes >= own.start) & (nodes < own.stop)] - own.start


def _fillings(nodes: Tensor, never: Tensor, seed: int) -> list[Filling]:
    """Untrained vectors: like those that no edge ever trained, or zeros where there are none; else the mean of all."""
    generator = torch.Generator().manual_seed(seed)

    def untrained(vectors: Vectors, values: Tensor) -> Tensor:
        known, count = values[vectors.rows(never)], vectors.rows(nodes).numel()
        if not known.size(0):
            return values.new_zeros(count, values.size(1))
        if known.size(0) >= count:
            return known[torch.randperm(known.size(0), generator=generator)[:count].to(known.device)]
        drawn = torch.randn(count, values.size(1), generator=generator).to(known)
        return (
            known.mean(dim=0) + drawn * known.std(dim=0)
            if len(known) >= ENOUGH
            else drawn * known.square().mean().sqrt()
        )

    def mean(vectors: Vectors, values: Tensor) -> Tensor:
        return values.mean(dim=0).expand(vectors.rows(nodes).numel(), -1)

    return [untrained, mean]


@contextmanager
def _filled(model: nn.Module, found: list[Vectors], nodes: Tensor, filling: Filling) -> Iterator[None]:
    """The model with other values in the rows of some nodes, for the length of a block."""
    parameters = dict(model.named_parameters())
    before = [(parameters[vectors.parameter], parameters[vectors.parameter].data) for vectors in found]
    try:
        for vectors, (parameter, values) in zip(found, before, strict=True):
            parameter.data = parameter.data.index_copy(0, vectors.rows(nodes), filling(vectors, values))
        yield
    finally:
        for parameter, values in reversed(before):
            parameter.data = values
