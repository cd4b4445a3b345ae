"""The unseen test: can deleted elements be told from elements of the same kind that the model never trained on?

Its statistic is the **unseen AUC**: the AUC of deleted against unseen scores, taken within strata (degree of the ends in
the remaining graph, class, relation) so that a difference in kind is not mistaken for memory. At 0.5 they look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.edge_table import ends_of
from gnndelete.metrics.ranking import Floats, auc, auc_variance, share_below

#: The positions of deleted and of unseen elements in each stratum. They serve the scores of many models.
Strata = list[tuple[NDArray[np.int64], NDArray[np.int64]]]

#: Quantiles of the degree that make strata of edges. Eight are as fine as 2.5% of DBLP's edges can fill.
DEGREE_QUANTILES = 8

#: Quantiles of the degree within each class of nodes or graphs: fewer, since classes divide the elements already.
CLASS_QUANTILES = 3

#: A stratum counts if it has so many deleted and so many unseen elements. With fewer its AUC is mostly noise.
STRATUM_MINIMUM = 6

#: Smaller requests cannot fill all quantiles. They are divided into fewer, so that no element is left out.
SMALL_REQUEST = 2 * STRATUM_MINIMUM * DEGREE_QUANTILES


class UnseenTest:
    """The unseen test of one model's scores.

    Args:
        strata: The positions of deleted and of unseen elements in each stratum.
        deleted: Scores of the deleted elements.
        unseen: Scores of the unseen elements.
        ends: The nodes of the deleted and of the unseen elements ``[2, k]``, where these are pairs: what a model says of one
            pair it says in part of all that share a node.

    Attributes:
        scores: The (deleted, unseen) scores of all elements, and ``parts`` those of each stratum.
        weights: The share of the matched deleted elements in each stratum.
        auc: The unseen AUC: how often a deleted element scores above an unseen one of its stratum.
        standard_error: The standard error of the AUC if deleted and unseen elements score alike.

    >>> same = torch.arange(100.0)
    >>> test = unseen_test(same, same, torch.ones(100), torch.ones(100))
    >>> test.auc, test.matched
    (0.5, 1.0)
    """

    def __init__(
        self, strata: Strata, deleted: Tensor, unseen: Tensor, ends: tuple[Tensor, Tensor] | None = None
    ) -> None:
        self._ends = None if ends is None else torch.cat([part.cpu() for part in ends], dim=1).numpy()
        high, low = (part.detach().double().cpu().numpy() for part in (deleted, unseen))
        self.strata = strata
        self.scores: tuple[Floats, Floats] = high, low
        self.parts: list[tuple[Floats, Floats]] = [(high[mine], low[theirs]) for mine, theirs in strata]
        self.deleted, self.unseen = high.size, low.size
        counts = np.array([mine.size for mine, _ in strata], dtype=np.float64)
        self.weights = counts / counts.sum()
        self.auc = float(self.weights @ [auc(*part) for part in self.parts])
        variances = np.array([auc_variance(0.5, mine.size, theirs.size) for mine, theirs in strata])
        self.standard_error = float(np.sqrt(self.weights**2 @ variances))

    @property
    def plain_auc(self) -> float:
        """The AUC of all elements at once, without strata."""
        return auc(*self.scores) if self.deleted and self.unseen else 0.5

    @property
    def matched(self) -> float:
        """The share of deleted elements that have a stratum."""
        return sum(deleted.size for deleted, _ in self.parts) / max(self.deleted, 1)

    @property
    def effective_unseen(self) -> float:
        """The number of unseen elements that would give the same error without strata.

        It is small where most deleted elements share a stratum with few unseen ones.

        >>> few, many = (np.arange(300), np.arange(6)), (np.arange(300, 310), np.arange(6, 5006))
        >>> round(UnseenTest([few, many], torch.zeros(310), torch.zeros(5006)).effective_unseen)
        6
        """
        return float(1 / (self.weights**2 @ [1 / unseen.size for _, unseen in self.parts])) if self.parts else 0.0

    def against(self, *others: UnseenTest) -> tuple[float, float]:
        """Compare this model with one other or with the mean of several, on the same elements.

        Two models agree on most elements, so the difference is more certain than either AUC. Its error is the largest of
        three: from the differences element by element (DeLong, DeLong and Clarke-Pearson 1988); of pairs, from the sums at
        each node (Fafchamps and Gubert 2007); and by how much several others differ, which were trained alike.

        Args:
            others: The tests of the other models, with the same strata.

        Returns:
            This AUC minus the mean of the others, and the standard error of the difference.
        """
        variance = []
        shares = [np.zeros(self.deleted), np.zeros(self.unseen)]  # of each element in the difference
        for weight, places, (deleted, unseen), *parts in zip(
            self.weights, self.strata, self.parts, *(other.parts for other in others), strict=True
        ):
            moved = (
                share_below(deleted, unseen) - np.mean([share_below(*part) for part in parts], axis=0),
                np.mean([share_below(low, high) for high, low in parts], axis=0) - share_below(unseen, deleted),
            )
            variance.append(sum(float(part.var(ddof=1)) / part.size if part.size > 1 else 0.25 for part in moved))
            for share, place, part in zip(shares, places, moved, strict=True):
                share[place] += weight * (part - part.mean()) / part.size
        aucs = [other.auc for other in others]
        by_elements = float(np.sqrt(self.weights**2 @ np.array(variance)))
        errors = by_elements, self._error_by_nodes(np.concatenate(shares)), spread_of_trainings(aucs)
        return self.auc - float(np.mean(aucs)), max(errors)

    def _error_by_nodes(self, shares: Floats) -> float:
        """The error of a sum over pairs, of which those that share a node may err alike; 0 where elements are no pairs."""
        if self._ends is None:
            return 0.0
        _, named = np.unique(self._ends, return_inverse=True)
        sums = np.bincount(named.ravel(), np.tile(shares, 2))
        return float(np.sqrt(max(np.sum(sums**2) - np.sum(shares**2), 0.0)))

    def interval(self, seed: int, level: float = 0.95, draws: int = 1000) -> tuple[float, float]:
        """A bootstrap interval of the AUC, resampled within strata.

        A bootstrap of a few elements is too narrow, and of one element it is a point. So the interval is never narrower
        than the normal one with Hanley and McNeil's variance, taken at an AUC shrunk towards 0.5 by four more elements.

        Args:
            seed: Seed of the resampling.
            level: Coverage.
            draws: Number of resamples.

        Returns:
            The lower and the upper bound.
        """
        generator = np.random.default_rng(seed)
        total = np.zeros(draws)
        for weight, (deleted, unseen) in zip(self.weights, self.parts, strict=True):
            total += weight * _resampled(deleted, unseen, draws, generator)
        low, high = np.quantile(total, [(1 - level) / 2, (1 + level) / 2])
        shrunk = [auc_variance((auc(d, u) * d.size + 2) / (d.size + 4), d.size, u.size) for d, u in self.parts]
        half = NormalDist().inv_cdf((1 + level) / 2) * float(np.sqrt(self.weights**2 @ np.array(shrunk)))
        return max(min(float(low), self.auc - half), 0.0), min(max(float(high), self.auc + half), 1.0)


def spread_of_trainings(values: Sequence[float]) -> float:
    """The standard error of a value of one more training minus the mean of these; 0 where one cannot show any.

    >>> round(spread_of_trainings([0.49, 0.51, 0.50]), 4), spread_of_trainings([0.5])
    (0.0115, 0.0)
    """
    if len(values) < 2:
        return 0.0
    return float(np.std(values, ddof=1) * np.sqrt(1 + 1 / len(values)))


def unseen_test(
    deleted: Tensor,
    unseen: Tensor,
    *matched_by: Any,
    ends: tuple[Tensor, Tensor] | None = None,
    **options: Any,
) -> UnseenTest:
    """The unseen test of one model's scores.

    Args:
        deleted: Scores of the deleted elements.
        unseen: Scores of the unseen elements.
        matched_by: What elements are matched by, as `strata` takes it.
        ends: The nodes of both, where they are pairs.
        options: Further arguments of `strata`.

    Returns:
        The test.
    """
    return UnseenTest(strata(*matched_by, **options), deleted, unseen, ends)


def strata(
    degree_deleted: Tensor,
    degree_unseen: Tensor,
    kind_deleted: Tensor | None = None,
    kind_unseen: Tensor | None = None,
    bins: int = DEGREE_QUANTILES,
    adaptive: bool | None = None,
) -> Strata:
    """Divide elements into strata: quantiles of the degree, within each kind.

    A stratum counts if it has enough of both. A request that fills no stratum is compared with all unseen elements of its
    kinds, or else with all unseen elements.

    Args:
        degree_deleted: A number per deleted element.
        degree_unseen: The same for the unseen elements.
        kind_deleted: Kind of each deleted element (class, or relation); only elements of one kind are compared.
        kind_unseen: The same for the unseen elements.
        bins: Number of quantiles within a kind.
        adaptive: Use fewer quantiles where some stay empty, and leave out no kind that has an unseen element. By default
            this is so for requests of fewer than `SMALL_REQUEST` elements.

    Returns:
        The positions of deleted and of unseen elements in each stratum.
    """
    degrees = [degree.detach().double().cpu().numpy() for degree in (degree_deleted, degree_unseen)]
    adaptive = degrees[0].size < SMALL_REQUEST if adaptive is None else adaptive
    kinds = [
        np.zeros(part.size, dtype=np.int64) if kind is None else kind.detach().cpu().numpy().astype(np.int64)
        for part, kind in zip(degrees, (kind_deleted, kind_unseen), strict=True)
    ]
    members = [(np.flatnonzero(kinds[0] == kind), np.flatnonzero(kinds[1] == kind)) for kind in np.unique(kinds[0])]
    parts: Strata = []
    for mine, theirs in members:
        if theirs.size >= (1 if adaptive else STRATUM_MINIMUM):
            parts += _divide(mine, theirs, degrees[0][mine], degrees[1][theirs], bins, adaptive)
    if not parts and kind_deleted is not None:
        parts = [(mine, theirs) for mine, theirs in members if mine.size and theirs.size]
    if not parts and degrees[0].size and degrees[1].size:
        parts = [(np.arange(degrees[0].size), np.arange(degrees[1].size))]
    return parts


def _divide(mine: Any, theirs: Any, degree: Floats, other_degree: Floats, bins: int, adaptive: bool) -> Strata:
    """The filled quantiles of one kind. With ``adaptive``, as many quantiles as can all be filled, or one."""
    for count in range(bins, 1, -1) if adaptive else [bins]:
        edges = np.unique(np.quantile(np.concatenate([degree, other_degree]), np.linspace(0, 1, count + 1)[1:-1]))
        quantile, other = (np.searchsorted(edges, value, side="right") for value in (degree, other_degree))
        pairs = [(mine[quantile == one], theirs[other == one]) for one in np.unique(quantile)]
        filled = [pair for pair in pairs if min(pair[0].size, pair[1].size) >= STRATUM_MINIMUM]
        if not adaptive or len(filled) == len(pairs):
            return filled
    return [(mine, theirs)]


def _resampled(deleted: Floats, unseen: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """The AUC of ``draws`` samples with replacement, from counts per element instead of copies of elements."""
    unseen = np.sort(unseen)
    left, right = np.searchsorted(unseen, deleted, side="left"), np.searchsorted(unseen, deleted, side="right")
    result = np.empty(draws)
    block = max(1, 2_000_000 // max(deleted.size, unseen.size))
    for start in range(0, draws, block):
        size = min(block, draws - start)
        ours = generator.multinomial(deleted.size, np.full(deleted.size, 1 / deleted.size), size)
        theirs = generator.multinomial(unseen.size, np.full(unseen.size, 1 / unseen.size), size)
        below = np.concatenate([np.zeros((size, 1), dtype=theirs.dtype), theirs.cumsum(axis=1)], axis=1)
        counted = (ours * (below[:, left] + below[:, right])).sum(axis=1)
        result[start : start + size] = counted / (2 * deleted.size * unseen.size)
    return result


def edge_strata(degree: Tensor, deleted: Tensor, unseen: Tensor) -> dict[str, Any]:
    """What edges are matched by, as arguments of `strata`.

    The degree of an edge is the mean of log(1 + degree) over its ends. Edges of one kind have the same relation and as many
    isolated ends: all that a model knows of an isolated node is what it remembers, so such edges score unlike all others.

    Args:
        degree: Degrees in a graph that has none of the edges; in the original graph they would count the deleted ones.
        deleted: Deleted edges, ``[2, k]`` or triples ``[3, k]``.
        unseen: Unseen true edges.

    Returns:
        Degree and kind of both, by the names of the parameters of `strata`.

    >>> edge_strata(torch.tensor([2, 0, 1]), torch.tensor([[0], [2]]), torch.tensor([[0], [1]]))["kind_unseen"].tolist()
    [1]
    """
    found = {}
    for name, edges in (("deleted", deleted), ("unseen", unseen)):
        ends = degree[ends_of(edges).to(degree.device)].double()
        isolated = (ends == 0).sum(dim=0)
        found[f"degree_{name}"] = (ends + 1).log().mean(dim=0)
        found[f"kind_{name}"] = isolated if edges.size(0) == 2 else 3 * edges[1].to(degree.device) + isolated
    return found


def degrees(data: Data) -> Tensor:
    """The degree of each node; on a typed graph, the number of its triples.

    An edge that is stored in one direction only counts half at each end.

    >>> degrees(Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=4)).tolist()
    [1.0, 1.5, 0.5, 0.0]
    """
    whole = data.get("edge_type") is not None and data.get("reverse_offset") is None
    found = torch.bincount(data.edge_index.flatten(), minlength=int(data.num_nodes or 0)).double()
    return found if whole else found / 2
