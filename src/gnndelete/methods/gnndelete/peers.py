"""Peers of deleted edges: other edges like them that the model learned, cut for a moment to be asked about in the same way.

Deleted edges may score above unseen ones for two reasons: the model remembers them, or they happen to be likely ones.
Peers are remembered as well, so that the first reason is theirs, too. What deleted edges score beyond their peers is the
second, chance, and training again would leave it as it is.
"""

from __future__ import annotations

from math import sqrt
from statistics import fmean

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.remaining import cut
from gnndelete.graph.validation import count_nodes
from gnndelete.methods.base import Context
from gnndelete.metrics.edge_matching import TYPED_QUANTILES, SurroundingsRegression, has_other_edge
from gnndelete.metrics.unseen_test import (
    DEGREE_QUANTILES,
    SMALL_REQUEST,
    STRATUM_MINIMUM,
    Strata,
    degrees,
    edge_degree,
    edge_strata,
    strata,
)
from gnndelete.nn.sparse import one_more
from gnndelete.tasks import LinkPrediction

#: How often peers are drawn, how many for each deleted edge and at least, and how much of the graph they may be; with fewer
#: than so many for each deleted edge chance would be mostly theirs.
DRAWS, EACH, FEWEST, TENTH, TOO_FEW = 2, 2, 200, 0.1, 0.5

#: So many deleted edges leave chance next to no part: at most 0.002 of the AUC by what follows below, and nobody has to be asked.
#: Where more than this share of what stays was deleted, what stays is no longer the graph that edges were learned in.
MANY, QUARTER = 20_000, 0.25

#: How many of the remaining edges are looked at for each that is drawn.
LOOKED_AT = 12

#: Up to so many times more edges than are looked at, it is quicker to mark these among all than to sort them.
MARKED = 8

#: How much of the difference to peers counts as chance: peers are not quite the same edges, and may be remembered less or more.
#: And how many standard errors of it can be chance at all.
SHARE, ERRORS = 0.5, 2.0


def chance(context: Context, model: nn.Module, task: LinkPrediction, edges: Tensor, held: Tensor) -> float:
    """By how much the AUC of deleted ``edges`` against ``held`` ones lies above 0.5 for no other reason than chance.

    0 where there are too few other edges to tell, or so many deleted ones that it hardly matters.
    """
    if edges.size(1) > MANY:
        return 0.0
    table = context.session.table
    learned, twice = _learned(context, task)
    others = learned.size(1) // (1 + twice)
    if edges.size(1) > QUARTER * others:
        return 0.0
    edges = edges.to(learned.device)
    edges = _connected(context.remaining, edges[:, edges[0] != edges[-1]] if edges.size(0) == 2 else edges)
    wanted = min(max(EACH * edges.size(1), FEWEST), int(TENTH * others))
    if min(wanted, edges.size(1)) < STRATUM_MINIMUM:
        return 0.0
    generator = torch.Generator().manual_seed(context.seed)
    degree, found, drawn = degrees(context.data), [], 0
    for _ in range(DRAWS):
        pool = _some(learned, LOOKED_AT * wanted, generator)
        pool = pool[:, pool[0] < pool[-1] if twice else pool[0] != pool[-1]]
        pool = pool[:, table.contains(pool)]  # a model may be supervised by pairs that are no edges
        peers = _like(edges, pool, degree, wanted)
        difference = _difference(context, model, task, (edges, peers, held))
        if difference is not None:
            found.append(difference)
            drawn += peers.size(1)
    if not found:
        return 0.0
    farthest = ERRORS * sqrt((1 / edges.size(1) + 1 / drawn) / 12)
    return SHARE * min(max(fmean(found), -farthest), farthest)


def _learned(context: Context, task: LinkPrediction) -> tuple[Tensor, bool]:
    """The remaining edges that the model was trained on, and whether each stands there both ways.

    Where there may be copies of one edge (parallel ones, or pairs that a model was supervised by) each is taken once.
    """
    data, table = context.remaining, context.session.table
    learned = task.positives(data)
    if table.typed or (learned is data.edge_index and table.distinct == table.num_edges):
        return learned, table.undirected
    return (learned.sort(dim=0).values if table.undirected else learned).unique(dim=1), False


def _connected(data: Data, edges: Tensor) -> Tensor:
    """The edges of which no end is left alone: what such an end is given is not the model's."""
    joined = torch.bincount(data.edge_index.flatten(), minlength=count_nodes(data)) > 0
    edges = edges.to(joined.device)
    return edges[:, joined[ends_of(edges)].all(dim=0)]


def _some(edges: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Up to ``count`` of the edges in random order, without looking at all of them."""
    if not edges.size(1) or not count:
        return edges[:, :0]
    places = torch.randint(edges.size(1), (count,), generator=generator)
    if edges.size(1) <= MARKED * count:  # as `unique` would give them, sooner
        places = torch.zeros(edges.size(1), dtype=torch.bool).index_fill_(0, places, True).nonzero().view(-1)
    else:
        places = places.unique()
    return edges[:, places[torch.randperm(places.numel(), generator=generator)].to(edges.device)]


def _like(edges: Tensor, pool: Tensor, degree: Tensor, wanted: int) -> Tensor:
    """About ``wanted`` edges of the pool, the first ones, spread over relations and the degrees of ends as ``edges`` are.

    >>> degree, pool = torch.tensor([1, 1, 9, 9, 9]), torch.tensor([[0, 2, 2, 3], [1, 3, 4, 4]])
    >>> _like(torch.tensor([[2, 3], [4, 4]]), pool, degree, wanted=2).tolist()
    [[2, 2], [3, 4]]
    """
    mine = edge_degree(degree, edges)
    theirs = edge_degree(degree, pool)
    within = (theirs >= mine.min()) & (theirs <= mine.max())
    pool, theirs = pool[:, within], theirs[within]
    inner = torch.linspace(0, 1, DEGREE_QUANTILES + 1, dtype=mine.dtype, device=mine.device)[1:-1]
    bounds = torch.quantile(mine, inner).unique()
    places = [
        torch.bucketize(value, bounds, right=True) + (DEGREE_QUANTILES * part[1] if part.size(0) == 3 else 0)
        for value, part in ((mine, edges), (theirs, pool))
    ]
    order = torch.argsort(places[1], stable=True)
    place = places[1][order]
    share = torch.bincount(places[0], minlength=int(place.max()) + 1 if place.numel() else 0) / mine.numel()
    rank = torch.arange(place.numel(), device=place.device) - torch.searchsorted(place, place)
    return pool[:, order[rank < (share * wanted).ceil()[place]]]


def _difference(
    context: Context, model: nn.Module, task: LinkPrediction, parts: tuple[Tensor, Tensor, Tensor]
) -> float | None:
    """The AUC of deleted edges minus that of their peers, against the same unseen ones, on the graph that has none of them."""
    graph = cut(context.deletion | Deletion(edges=parts[1].cpu()), context.data, context.session.table)
    mine, peers, unseen = (_connected(graph, part) for part in parts)
    if min(mine.size(1), peers.size(1), unseen.size(1)) < STRATUM_MINIMUM or peers.size(1) < TOO_FEW * mine.size(1):
        return None
    every, sizes = torch.cat([mine, peers, unseen], dim=1), [mine.size(1), peers.size(1), unseen.size(1)]
    with one_more(model, graph):
        output = context.session.forward(model, graph)
    scores = task.predict(model, output, every)
    if not bool(torch.isfinite(scores).all()):
        return None
    if every.size(0) == 2:
        scores = SurroundingsRegression(graph, every, mine.size(1) + peers.size(1)).residuals(scores)
    *own, rest = scores.cpu().split(sizes)
    adaptive = context.deletion.edges.size(1) < SMALL_REQUEST
    deleted, others = (_strata(graph, part, unseen, adaptive) for part in (mine, peers))
    return deleted.test(own[0], rest).auc - others.test(own[1], rest).auc


def _strata(data: Data, edges: Tensor, unseen: Tensor, adaptive: bool) -> Strata:
    found, bins = edge_strata(degrees(data), edges, unseen), DEGREE_QUANTILES
    if edges.size(0) == 3:
        bins = TYPED_QUANTILES
        for name, part in (("kind_deleted", edges), ("kind_unseen", unseen)):
            found[name] = 2 * found[name] + has_other_edge(data, part)
    return strata(**found, bins=bins, adaptive=adaptive)
