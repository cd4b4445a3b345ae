"""What can be expected of an edge by its surroundings alone; beyond that, a model's score shows what it remembers of the edge.

Unseen true edges show how scores follow from what can be seen of a pair without the edge itself: how connected its ends
and their neighbours are, how many neighbours they share, how alike their features are. Deleted edges are judged by what
they score above or below that, so that a forget set of another kind is not mistaken for one that is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.validation import count_nodes
from gnndelete.metrics.unseen_test import BINS, Strata, UnseenTest, auc, degrees, matched_by, strata, variance

#: Columns are taken in standard deviations of the unseen edges, up to so many: no edge is judged far from where they are.
FARTHEST = 4.0

#: Ridge of the regression, as a share of the number of unseen edges.
RIDGE = 1e-3

#: Unseen edges that each number of the regression needs; with fewer, scores are taken as they are.
ENOUGH = 10

#: Numbers of features, and neighbours, that are looked at together; and columns of features on a CPU: so few stay in its cache.
AT_ONCE = LOOKED_UP = 1 << 24
COLUMNS = 128

#: Parts of the edges of which each is judged by the others when it is asked whether deleted and unseen ones are of a kind; and
#: the AUC above which they are not, beyond chance.
FOLDS, UNLIKE = 5, 0.7

#: Quantiles of the degree within each relation: fewer than elsewhere, since relations divide the edges already.
TYPED_BINS = 3

BEYOND = "Scores were first corrected for what degrees, shared neighbours and features let expect of an edge."
JOINED = (
    "Edges were compared with those of the same relation that, like them, have or lack another edge between their ends."
)


@dataclass(frozen=True)
class Compared:
    """Deleted edges against unseen ones that are like them; ``finely`` says by what beside the degree of their ends."""

    alike: Strata
    deleted: int
    expected: Expected | None = None
    finely: str = ""

    @property
    def share(self) -> float:
        """How many of the deleted edges have unseen ones like them."""
        return self.alike.deleted / max(self.deleted, 1)

    @property
    def told_apart(self) -> float | None:
        """The AUC by which surroundings alone tell deleted edges from unseen ones, where it is more than chance."""
        return None if self.expected is None else self.expected.told_apart()

    def test(self, deleted: Tensor, held: Tensor) -> UnseenTest:
        """The scores that one model gives them."""
        if self.expected is not None:
            deleted, held = self.expected.beyond(torch.cat([deleted, held])).split([len(deleted), len(held)])
        return self.alike.test(deleted, held)


def compare(data: Data, deleted: Tensor, held: Tensor, finely: bool = True) -> Compared:
    """How to compare edges in ``data``, a graph that has none of them, with ``finely`` by their surroundings as well."""
    like, count = alike(data, [deleted], held, finely)[0], deleted.size(1)
    if finely and deleted.size(0) == 3:
        return Compared(like, count, finely=JOINED)
    if not finely or data.get("edge_type") is not None:
        return Compared(like, count)
    expected = Expected(data, torch.cat([deleted.to(held.device), held], dim=1), count)
    return Compared(like, count, expected, BEYOND if expected.fitted else "")


def alike(
    data: Data, parts: Sequence[Tensor], held: Tensor, finely: bool = True, coarser: bool | None = None
) -> list[Strata]:
    """Which edges of each part are compared with which unseen ones: those whose ends are as connected.

    On a typed graph it matters most whether the ends of a triple are joined by another one, which often says the same the
    other way round (``finely``); beside that the surroundings were no help there.
    """
    degree, every = degrees(data), torch.cat([part.to(data.edge_index.device) for part in (*parts, held)], dim=1)
    (places, kinds), bins = matched_by(degree, every), BINS
    if finely and every.size(0) == 3:
        kinds, bins = 2 * kinds + joined(data, every), TYPED_BINS
    sizes = [part.size(1) for part in (*parts, held)]
    *own, (place, kind) = zip(places.cpu().split(sizes), kinds.cpu().split(sizes), strict=True)
    return [strata(mine, place, of_kind, kind, bins, coarser) for mine, of_kind in own]


def joined(data: Data, edges: Tensor) -> Tensor:
    """Whether the ends of pairs or triples are joined by an edge of ``data``, of whatever kind or direction.

    >>> data = Data(edge_index=torch.tensor([[1], [0]]), num_nodes=3)
    >>> joined(data, torch.tensor([[0, 0], [1, 2]])).tolist()
    [True, False]
    """
    ends, nodes = ends_of(edges).to(data.edge_index.device), count_nodes(data)
    keys = [pair.min(dim=0).values * nodes + pair.max(dim=0).values for pair in (ends, data.edge_index)]
    return torch.isin(keys[0], keys[1])


class Expected:
    """The scores to expect of edges by their surroundings in ``data``, a graph that has none of them.

    The first ``deleted`` of the pairs ``edges`` are to be judged, the others are held out: a regression on these is taken
    out of all scores.
    """

    def __init__(self, data: Data, edges: Tensor, deleted: int) -> None:
        columns = surroundings(data, edges)
        spread, middle = torch.std_mean(columns[deleted:], dim=0, correction=0)
        told = spread > 1e-9  # what all unseen edges share says nothing
        columns = ((columns[:, told] - middle[told]) / spread[told]).clamp(-FARTHEST, FARTHEST)
        self._design = torch.cat([columns.new_ones(len(columns), 1), columns, columns**2], dim=1)
        self._deleted = deleted
        self._solve: Tensor | None = None
        held = self._design[deleted:]
        if bool(told.any()) and len(held) >= ENOUGH * held.size(1):
            ridge = RIDGE * len(held) * torch.eye(held.size(1), dtype=held.dtype, device=held.device)
            self._solve = torch.linalg.solve(held.T @ held + ridge, held.T)

    @property
    def fitted(self) -> bool:
        """Whether the surroundings of edges differ, and enough are held out to tell what to expect."""
        return self._solve is not None

    def told_apart(self) -> float | None:
        """The AUC by which surroundings alone tell the two kinds apart, each fifth of the edges judged by the others.

        None where it may be below `UNLIKE`: then they are of one kind, and a regression on the unseen ones speaks for all.
        """
        from sklearn.linear_model import RidgeClassifier  # takes a second, and only audits ask
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        seen = self._design[:, 1:].cpu().numpy()
        kind = torch.arange(len(seen)).lt(self._deleted).numpy()
        sizes = self._deleted, len(seen) - self._deleted
        if not self.fitted or min(sizes) < FOLDS:
            return None
        parts = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        model = RidgeClassifier(alpha=RIDGE * len(seen))
        found = cross_val_predict(model, seen, kind, cv=parts, method="decision_function")
        told = auc(found[kind], found[~kind])
        return told if told - 1.96 * variance(told, *sizes) ** 0.5 > UNLIKE else None

    def beyond(self, scores: Tensor) -> Tensor:
        """By how much each score is above what is to be expected; the scores themselves where too few are held out."""
        if self._solve is None:
            return scores
        scores = scores.to(self._design)
        return scores - self._design @ (self._solve @ scores[self._deleted :])


def surroundings(data: Data, edges: Tensor) -> Tensor:
    """What can be seen of pairs in a graph, whatever the direction of its edges: a row for each pair.

    The columns are the sum and the difference of the ends' degrees and of their neighbours' degrees, the number of shared
    neighbours and what it counts for (Adamic and Adar 2003), whether an edge joins the ends all the same, and the cosines
    of both ends' features, as they are and averaged over the neighbours, where there are features. Counts are on a
    logarithmic scale.

    >>> square = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]]), num_nodes=4)
    >>> surroundings(square, torch.tensor([[0, 0], [2, 1]]))[:, 4].exp().sub(1).round().tolist()
    [2.0, 0.0]
    """
    graph, nodes = data.edge_index, count_nodes(data)
    keys = torch.cat([graph[0] * nodes + graph[1], graph[1] * nodes + graph[0]]).unique()  # both ways, each once
    table = EdgeTable(torch.stack([keys // nodes, keys % nodes]), nodes)
    degree = table.degree.double()
    named, ends = edges.to(graph.device).unique(return_inverse=True)
    owner = torch.repeat_interleave(table.degree[named])
    near = table.neighbors(named)
    columns = []
    for count in (degree[named], torch.zeros_like(degree[named]).index_add_(0, owner, degree[near])):
        one, other = count.add(1).log()[ends]
        columns += [one + other, (one - other).abs()]
    number, weight = _shared(table, named[ends])
    columns += [number.add(1).log(), weight, joined(data, edges).double()]
    x = _features(data.get("x"), nodes)
    if x is not None:
        columns += _alike(x, named, torch.stack([owner, near]), ends)
    return torch.stack(columns, dim=1)


def _features(x: Any, nodes: int) -> Tensor | None:
    """A row of finite numbers for each node, or None: categories are not alike by their numbers, and sparse rows are left out."""
    if not isinstance(x, Tensor) or x.layout != torch.strided or not x.is_floating_point():
        return None
    if x.dim() == 0 or x.size(0) != nodes:
        return None
    if not any(bool(torch.isfinite(x.sum(dtype=kind))) for kind in (x.dtype, torch.double)):  # doubles take far longer
        return None
    return x.reshape(nodes, -1)


def _shared(table: EdgeTable, ends: Tensor) -> Tensor:
    """How many neighbours both ends of each pair have, and the sum over these of 1 / log(degree).

    The neighbours of the less connected end are looked up at the other.
    """
    ends = torch.where(table.degree[ends[0]] <= table.degree[ends[1]], ends, ends.flip(0))
    found = []
    part = table.degree[ends[0]].cumsum(0) // LOOKED_UP
    for one, other in zip(
        *(side.split(part.unique_consecutive(return_counts=True)[1].tolist()) for side in ends), strict=True
    ):
        pair = torch.repeat_interleave(table.degree[one])
        between = table.neighbors(one)
        both = table.contains(torch.stack([other[pair], between]))
        pair, between = pair[both], between[both]
        rare = 1 / table.degree[between].double().clamp(min=2).log()
        sums = torch.zeros(2, one.numel(), dtype=torch.double, device=one.device)
        found.append(sums.index_add_(1, pair, torch.stack([torch.ones_like(rare), rare])))
    return torch.cat(found, dim=1) if found else ends.new_zeros(2, 0).double()


def _alike(x: Tensor, named: Tensor, near: Tensor, ends: Tensor) -> list[Tensor]:
    """The cosines of both ends' features, and of their sums over each end and its neighbours; some columns of x in turn."""
    rows, place = torch.cat([named, near[1]]).unique(return_inverse=True)
    mine, theirs = place.split([named.numel(), near.size(1)])
    first = torch.searchsorted(near[0].contiguous(), torch.arange(named.numel(), device=x.device))
    products = torch.zeros(2, ends.size(1), dtype=torch.double, device=x.device)
    squares = torch.zeros(2, named.numel(), dtype=torch.double, device=x.device)
    together = max(AT_ONCE // max(rows.numel(), ends.size(1), 1), 1)
    for columns in x.split(min(COLUMNS, together) if x.device.type == "cpu" else together, dim=1):
        part = columns.index_select(0, rows).float()
        own = part.index_select(0, mine)
        for i, seen in enumerate((own, own + F.embedding_bag(theirs, part, first, mode="sum"))):
            products[i] += torch.linalg.vecdot(*(seen.index_select(0, end) for end in ends)).double()
            squares[i] += seen.square().sum(dim=1).double()
    sizes = squares.sqrt()
    return list(products / (sizes[:, ends[0]] * sizes[:, ends[1]]).clamp(min=1e-12))
