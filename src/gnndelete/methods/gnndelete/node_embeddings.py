"""Isolated nodes of link models with trained embeddings: all that the embedding knows of them was deleted.

Retraining would leave the embedding of such a node as it was initialised, but for the negatives that were drawn. Nodes that
never had an edge show what that looks like; where there are none, the embedding is set to zero. The rows of isolated nodes
are then computed with these embeddings and set by an operator, whatever lam is: behind the graph layers or, where embeddings
bypass these, behind the model itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from gnndelete.graph.batch import label_edges
from gnndelete.graph.edge_table import ends_of
from gnndelete.methods.base import Context
from gnndelete.nn.hooks import Site
from gnndelete.nn.operator import GivenRows, Operator
from gnndelete.nn.receptive_field import Reading, run
from gnndelete.nn.tables import Vectors, filled, possible_vectors
from gnndelete.notes import Note

#: Of so many nodes without edges the spread of each column is estimated; of fewer, one spread for all columns.
SPREAD_MINIMUM = 8

#: So many edges are scored to see whether scores use embeddings in another way than through the rows of nodes.
SCORED_EDGES = 64


@dataclass(frozen=True)
class IsolatedNodes:
    """Isolated nodes and their rows without what was deleted.

    Attributes:
        nodes: The nodes whose rows are set.
        rows: Their rows at each site.
        bypass: The rows are set behind the model itself, since embeddings bypass the graph layers.
    """

    nodes: Tensor
    rows: dict[Site, Tensor]
    bypass: bool

    def map(self, site: Site, h: Tensor) -> nn.Module | None:
        """The map that sets the rows behind a layer; None where an operator below already gave them."""
        if self.bypass or _close(h.index_select(0, site.local(self.nodes)), self.rows[site], 1e-3):
            return None
        return self._given(site)

    def behind_model(self) -> list[tuple[Site, Operator]]:
        """The operators behind the model itself."""
        if not self.bypass:
            return []
        return [
            (site, Operator(len(site.rows), site.width, [site.local(self.nodes)], [self._given(site)]))
            for site in self.rows
        ]

    def _given(self, site: Site) -> GivenRows:
        rows = self.rows[site].flatten(1)
        equal = _close(rows[:1].expand_as(rows), rows, 1e-5)
        return GivenRows((rows[:1] if equal else rows).clone()).requires_grad_(False)


def isolates(context: Context) -> bool:
    """Whether a deletion may take the last edge of a node: if it names a node, or all edges of one that are left."""
    deletion, table, blocks = context.deletion, context.session.table, context.session.blocks
    if deletion.nodes.numel() or blocks is None or not (table.undirected or table.mirrored):
        return True
    if not deletion.edges.size(1):
        return False
    degree = blocks.edges.degree if blocks.segments is None else blocks.segments.degree
    nodes, lost = ends_of(table.both_ways(deletion.edges.to(table.keys.device)))[1].unique(return_counts=True)
    return bool((lost >= degree[nodes]).any())


def isolated_nodes(
    context: Context, model: nn.Module, sites: tuple[Site, ...]
) -> tuple[IsolatedNodes | None, tuple[Note, ...]]:
    """Nodes that are deleted or lost their last edge, where the model has trained embeddings of them, and a note about them.

    Args:
        context: The request, of a task that learns from edges: to a node classifier the label of an isolated node still
            teaches its embedding.
        model: The working copy of the model.
        sites: Its sites.
    """
    nodes = nodes_without_edges(context)
    tables = context.session.tables
    possible = [
        vectors
        for vectors in possible_vectors(model, context.data)
        if vectors.rows(nodes).numel() and (tables is None or vectors.parameter in tables)
    ]
    if not possible:
        return None, ()
    traces = {vectors: _trace(context, model, sites, vectors, nodes) for vectors in possible}
    found = [vectors for vectors, trace in traces.items() if trace.separate]
    if not found or any(traces[vectors].scored for vectors in found):
        known = [vectors for vectors in possible if vectors in found or vectors.embedding]
        return None, _note(_covered(known, nodes), reset=False)
    nodes, bypass = _covered(found, nodes), any(traces[vectors].bypass for vectors in found)
    generator = torch.Generator().manual_seed(context.seed)
    untrained = partial(untrained_vectors, context=context, nodes=nodes, generator=generator)
    for fill in (untrained, partial(_mean, context=context, nodes=nodes)):
        with filled(model, _fills(model, found, nodes, fill)):
            rows = _rows(context, model, sites, nodes)
        if all(bool(torch.isfinite(part).all()) for part in rows.values()):
            rows = {site: part for site, part in rows.items() if bypass == (site not in sites)}
            return IsolatedNodes(nodes, rows, bypass), _note(nodes, reset=True)
    return None, _note(nodes, reset=False)


def _note(nodes: Tensor, reset: bool) -> tuple[Note, ...]:
    """What the user must know about these nodes."""
    count = nodes.numel()
    if not count:
        return ()
    who = "1 node lost all its edges" if count == 1 else f"{count:,} nodes lost all their edges"
    if reset:
        text = f"{who}. What their trained embeddings knew came from the deleted data, so it was reset."
        return (Note("isolated-nodes", text),)
    text = (
        f"{who}, and their trained embeddings stay: they could not be separated from the rest of the model. Use "
        "method='retrain' to forget them."
    )
    return (Note("isolated-nodes-kept", text),)


def nodes_without_edges(context: Context) -> Tensor:
    """Nodes that are deleted or lost the last edge that could teach them."""
    device = context.data.edge_index.device
    had, has = torch.zeros(2, context.session.table.num_nodes, dtype=torch.bool, device=device)
    for data, marks in ((context.data, had), (context.remaining, has)):
        labels = label_edges(data)
        for edges in (data.edge_index, *([] if labels is None else [ends_of(labels).to(device)])):
            marks[edges[:, edges[0] != edges[1]].flatten()] = True  # a self-loop teaches nothing about others
    deleted = torch.zeros_like(had)
    deleted[context.gone] = True
    return (had & (~has | deleted)).nonzero().flatten()


@dataclass
class Trace:
    """Where NaN in the embeddings of some nodes shows, with their rows mended behind every layer and the model."""

    reached: bool = False  # in their rows behind a layer
    bypass: bool = False  # in their rows of the model's output
    spread: bool = False  # in rows of other nodes
    scored: bool = False  # in scores, though all rows are mended

    @property
    def separate(self) -> bool:
        """Whether the embeddings reach the rows of their nodes and nothing else."""
        return (self.reached or self.bypass) and not self.spread


def _trace(context: Context, model: nn.Module, sites: tuple[Site, ...], vectors: Vectors, nodes: Tensor) -> Trace:
    trace, nodes = Trace(), _covered([vectors], nodes)

    def mend(reading: Reading) -> Tensor:
        if not reading.output and reading.site not in sites:
            return reading.h
        rows, nan = reading.site.local(nodes), torch.isnan(reading.h.flatten(1)).any(dim=1)
        count = int(nan.sum())
        trace.spread |= count != int(nan[rows].sum())
        shows = 0 < rows.numel() == count
        trace.bypass |= shows and reading.output
        trace.reached |= shows and not reading.output
        return reading.h.index_fill(0, rows, 0.0)

    assert context.task is not None
    layers = dict.fromkeys(site.layer for site in sites)
    try:
        nan = _fills(model, [vectors], nodes, lambda of, values: values[of.rows(nodes)] * float("nan"))
        with filled(model, nan):
            output = run(model, context.remaining, context.session.forward, layers, change=mend).output
            edges = _edges_of(context, nodes)
            scores = context.task.predict(model, output, edges) if edges.size(1) else torch.zeros(1)
        trace.scored = bool(torch.isnan(scores).any())
        trace.bypass |= trace.scored and not trace.reached
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a model of the user's that refuses NaN: nothing is known then
        return Trace()
    return trace


def _edges_of(context: Context, nodes: Tensor) -> Tensor:
    """Some deleted edges of these nodes; for a deleted node, some edges that went with it."""
    assert context.task is not None
    for edges in (context.task.elements(context.deletion, context.data), context.task.learned(context.data)):
        found = edges[:, torch.isin(ends_of(edges), nodes.to(edges.device)).any(dim=0)]
        if found.size(1):
            break
    return found[:, :SCORED_EDGES]


def _rows(context: Context, model: nn.Module, sites: tuple[Site, ...], nodes: Tensor) -> dict[Site, Tensor]:
    """The rows of nodes on the remaining graph: at every site, and in the model's output."""
    layers = dict.fromkeys(site.layer for site in sites)
    result: dict[Site, Tensor] = {}
    for reading in run(model, context.remaining, context.session.forward, layers).readings:
        local = reading.site.local(nodes)
        if reading.site in sites or (reading.output and local.numel()):
            result[reading.site] = reading.h.index_select(0, local)
    return result


def untrained_vectors(
    vectors: Vectors, values: Tensor, context: Context, nodes: Tensor, generator: torch.Generator
) -> Tensor:
    """Embeddings like those of nodes that never had an edge; zeros where there are no such nodes."""
    known, count = (
        context.session.untrained_rows(vectors.parameter, vectors.nodes, context.gone),
        vectors.rows(nodes).numel(),
    )
    if not known.size(0):
        return values.new_zeros(count, values.size(1))
    if known.size(0) >= count:
        return known[torch.randperm(known.size(0), generator=generator)[:count].to(known.device)]
    drawn = torch.randn(count, values.size(1), generator=generator).to(known)
    if len(known) < SPREAD_MINIMUM:
        return drawn * known.square().mean().sqrt()
    return known.mean(dim=0) + drawn * known.std(dim=0)


def _mean(vectors: Vectors, values: Tensor, context: Context, nodes: Tensor) -> Tensor:
    """The mean of all embeddings: for models that cannot take zeros."""
    return context.session.parameter(vectors.parameter).mean(dim=0).expand(vectors.rows(nodes).numel(), -1)


def _fills(
    model: nn.Module, found: list[Vectors], nodes: Tensor, fill: Callable[[Vectors, Tensor], Tensor]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Other rows of some nodes, as `filled` takes them."""
    values = {vectors: model.get_parameter(vectors.parameter).data for vectors in found}
    return {of.parameter: (of.rows(nodes), fill(of, values[of])) for of in found}


def _covered(found: list[Vectors], nodes: Tensor) -> Tensor:
    """Those of the nodes that some of the parameters have rows of."""
    return torch.cat([nodes[:0], *(vectors.rows(nodes) + vectors.nodes.start for vectors in found)]).unique()


def _close(one: Tensor, other: Tensor, share: float) -> bool:
    """Whether two tensors differ by no more than a share of their size."""
    return not other.numel() or torch.allclose(one, other, rtol=share, atol=share * float(other.abs().mean()))
