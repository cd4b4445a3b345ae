"""Matching deleted edges with unseen ones: strata, and a regression of scores on the surroundings of an edge.

Some edges score high in any model: their ends are well connected, share neighbours or have similar features. A request may
name such edges more often than the validation edges are of that sort. So a regression on unseen edges predicts the score of
an edge from its surroundings, and edges are compared by what they score beyond the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.validation import count_nodes
from gnndelete.metrics.ranking import auc, auc_variance
from gnndelete.metrics.unseen_test import DEGREE_QUANTILES, Strata, UnseenTest, degrees, edge_strata, strata

#: Predictors are clipped at so many standard deviations of the unseen edges: no extrapolation far from them.
CLIP = 4.0

#: Ridge of the regression, as a share of the number of unseen edges: keeps collinear predictors from blowing up.
RIDGE = 1e-3

#: Unseen edges that the regression needs for each coefficient; with fewer, scores are not adjusted.
EDGES_PER_COEFFICIENT = 10

#: Neighbours looked up at once, and numbers of features held at once; bounds memory on large graphs.
LOOKUP_CHUNK = FEATURE_CHUNK = 1 << 24

#: Columns of features held at once: so few stay in the cache of a CPU.
FEATURE_COLUMNS = 128

#: Folds of the cross-validation that asks whether deleted and unseen edges are of one kind, and the AUC above which they
#: are not.
FOLDS, OTHER_KIND_AUC = 5, 0.7

#: Quantiles of the degree within each relation: fewer than on a plain graph, since relations divide the edges already.
TYPED_QUANTILES = 3

ADJUSTED = "Scores are adjusted for degree, shared neighbours and feature similarity."
MATCHED_BY_RELATION = (
    "Edges are compared within their relation, and apart by whether another edge joins the same two nodes."
)


@dataclass(frozen=True)
class Matching:
    """How deleted elements are compared with unseen ones.

    Attributes:
        strata: The positions of deleted and of unseen elements in each stratum.
        deleted: The number of deleted elements.
        regression: What scores are adjusted by.
        how: The sentence that says how they are compared, beyond strata of degree.
    """

    strata: Strata
    deleted: int
    regression: SurroundingsRegression | None = None
    how: str = ""

    @property
    def matched(self) -> float:
        """The share of deleted elements that have unseen ones to be compared with."""
        return sum(mine.size for mine, _ in self.strata) / max(self.deleted, 1)

    def test(self, deleted: Tensor, unseen: Tensor) -> UnseenTest:
        """The unseen test of one model's scores."""
        if self.regression is not None:
            scores = self.regression.residuals(torch.cat([deleted, unseen]))
            deleted, unseen = scores.split([len(deleted), len(unseen)])
        return UnseenTest(self.strata, deleted, unseen)


def match_edges(data: Data, deleted: Tensor, unseen: Tensor, by_surroundings: bool = True) -> Matching:
    """Match deleted edges with unseen ones.

    On a typed graph, whether another triple joins the same two nodes matters most (it is often the inverse), and the
    regression was no help: there triples are compared within that, too.

    Args:
        data: A graph that has none of the edges.
        deleted: Deleted edges, ``[2, k]`` or triples ``[3, k]``.
        unseen: Unseen true edges.
        by_surroundings: Match by surroundings as well, not by the degree of the ends alone.

    Returns:
        The matching, for the scores of any model.
    """
    device, count = data.edge_index.device, deleted.size(1)
    found = edge_strata(degrees(data), deleted.to(device), unseen.to(device))
    if by_surroundings and deleted.size(0) == 3:
        for name, edges in (("kind_deleted", deleted), ("kind_unseen", unseen)):
            found[name] = 2 * found[name] + has_other_edge(data, edges)
        return Matching(strata(**found, bins=TYPED_QUANTILES), count, how=MATCHED_BY_RELATION)
    divided = strata(**found, bins=DEGREE_QUANTILES)
    if not by_surroundings or data.get("edge_type") is not None:
        return Matching(divided, count)
    regression = SurroundingsRegression(data, torch.cat([deleted.to(unseen.device), unseen], dim=1), count)
    return Matching(divided, count, regression, ADJUSTED if regression.fitted else "")


def has_other_edge(data: Data, edges: Tensor) -> Tensor:
    """Whether an edge of ``data``, of any relation or direction, joins the ends of each pair or triple.

    >>> data = Data(edge_index=torch.tensor([[1], [0]]), num_nodes=3)
    >>> has_other_edge(data, torch.tensor([[0, 0], [1, 2]])).tolist()
    [True, False]
    """
    ends, nodes = ends_of(edges).to(data.edge_index.device), count_nodes(data)
    keys = [pair.min(dim=0).values * nodes + pair.max(dim=0).values for pair in (ends, data.edge_index)]
    return torch.isin(keys[0], keys[1])


class SurroundingsRegression:
    """Ridge regression of scores on the surroundings of edges, fitted on unseen edges.

    Args:
        data: A graph that has none of the edges.
        edges: Pairs ``[2, k]``, the deleted ones first.
        deleted: The number of deleted edges; the others are unseen.

    Attributes:
        fitted: Whether there are enough unseen edges, and their surroundings differ.
    """

    def __init__(self, data: Data, edges: Tensor, deleted: int) -> None:
        columns = surroundings(data, edges)
        spread, middle = torch.std_mean(columns[deleted:], dim=0, correction=0)
        varies = spread > 1e-9
        columns = ((columns[:, varies] - middle[varies]) / spread[varies]).clamp(-CLIP, CLIP)
        self._design = torch.cat([columns.new_ones(len(columns), 1), columns, columns**2], dim=1)
        self._deleted = deleted
        self._solve: Tensor | None = None
        unseen = self._design[deleted:]
        self.fitted = bool(varies.any()) and len(unseen) >= EDGES_PER_COEFFICIENT * unseen.size(1)
        if self.fitted:
            ridge = RIDGE * len(unseen) * torch.eye(unseen.size(1), dtype=unseen.dtype, device=unseen.device)
            self._solve = torch.linalg.solve(unseen.T @ unseen + ridge, unseen.T)

    def residuals(self, scores: Tensor) -> Tensor:
        """What each score is above its prediction; the scores themselves where nothing could be fitted."""
        if self._solve is None:
            return scores
        scores = scores.to(self._design)
        return scores - self._design @ (self._solve @ scores[self._deleted :])

    def kind_auc(self) -> float | None:
        """The cross-validated AUC by which surroundings separate deleted from unseen edges.

        None where it may be below `OTHER_KIND_AUC`: then both are of one kind, and a regression on the unseen edges speaks
        for all.
        """
        from sklearn.linear_model import RidgeClassifier  # takes a second to import, and only audits ask
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        columns = self._design[:, 1:].cpu().numpy()
        is_deleted = torch.arange(len(columns)).lt(self._deleted).numpy()
        sizes = self._deleted, len(columns) - self._deleted
        if not self.fitted or min(sizes) < FOLDS:
            return None
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        model = RidgeClassifier(alpha=RIDGE * len(columns))
        found = cross_val_predict(model, columns, is_deleted, cv=folds, method="decision_function")
        value = auc(found[is_deleted], found[~is_deleted])
        return value if value - 1.96 * auc_variance(value, *sizes) ** 0.5 > OTHER_KIND_AUC else None


def surroundings(data: Data, edges: Tensor) -> Tensor:
    """The surroundings of pairs in a graph, whatever the direction of its edges: a row per pair.

    The columns are: sum and difference of the ends' degrees; the same of their neighbours' degrees; the number of shared
    neighbours, and its weight by rarity (Adamic and Adar 2003); whether another edge joins the ends; and, where there are
    features, the cosine of the ends' features, and of these summed over each end and its neighbours. Counts are logarithms.

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
    number, weight = _shared_neighbors(table, named[ends])
    columns += [number.add(1).log(), weight, table.contains(named[ends]).double()]
    columns += _cosines(data.get("x"), nodes, named, torch.stack([owner, near]), ends)
    return torch.stack(columns, dim=1)


def _shared_neighbors(table: EdgeTable, ends: Tensor) -> Tensor:
    """The number of neighbours that both ends of each pair share, and the sum over these of 1 / log(degree).

    The neighbours of the end with fewer are looked up at the other.
    """
    ends = torch.where(table.degree[ends[0]] <= table.degree[ends[1]], ends, ends.flip(0))
    found = []
    part = table.degree[ends[0]].cumsum(0) // LOOKUP_CHUNK
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


def _cosines(x: Any, nodes: int, named: Tensor, near: Tensor, ends: Tensor) -> list[Tensor]:
    """The cosine of the ends' features, and of their sums over each end and its neighbours; columns of x in chunks.

    Only finite dense floating-point features count: integers are categories.
    """
    is_dense = isinstance(x, Tensor) and x.layout == torch.strided and x.is_floating_point() and x.dim() > 0
    if not is_dense or x.size(0) != nodes:
        return []
    rows, position = torch.cat([named, near[1]]).unique(return_inverse=True)
    mine, theirs = position.split([named.numel(), near.size(1)])
    first = torch.searchsorted(near[0].contiguous(), torch.arange(named.numel(), device=x.device))
    products = torch.zeros(2, ends.size(1), dtype=torch.double, device=x.device)
    squares = torch.zeros(2, named.numel(), dtype=torch.double, device=x.device)
    together = max(FEATURE_CHUNK // max(rows.numel(), ends.size(1), 1), 1)
    for columns in x.reshape(nodes, -1).split(min(FEATURE_COLUMNS, together), dim=1):
        part = columns.index_select(0, rows).float()
        single = part.index_select(0, mine)
        for i, row in enumerate((single, single + F.embedding_bag(theirs, part, first, mode="sum"))):
            products[i] += torch.linalg.vecdot(*(row.index_select(0, end) for end in ends)).double()
            squares[i] += row.square().sum(dim=1).double()
    sizes = squares.sqrt()
    cosines = products / (sizes[:, ends[0]] * sizes[:, ends[1]]).clamp(min=1e-12)
    return list(cosines) if bool(torch.isfinite(cosines).all()) else []
