"""The unseen test: can deleted elements be told from elements of the same kind that the model never trained on?

Its statistic is the **unseen AUC**: the AUC of deleted against unseen scores, taken within strata (degree of the ends in
the remaining graph, class, relation) so that a difference in kind is not mistaken for memory. At 0.5 they look alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.edge_table import ends_of
from gnndelete.metrics.ranking import Floats, auc, auc_variance, share_below

Ints = NDArray[np.int64]

#: Quantiles of the degree that make strata of edges. Eight are as fine as 2.5% of DBLP's edges can fill.
DEGREE_QUANTILES = 8

#: Quantiles of the degree within each class of nodes or graphs: fewer, since classes divide the elements already.
CLASS_QUANTILES = 3

#: A stratum counts if it has so many deleted and so many unseen elements. With fewer its AUC is mostly noise.
STRATUM_MINIMUM = 6

#: Smaller requests cannot fill all quantiles. They are divided into fewer, so that no element is left out.
SMALL_REQUEST = 2 * STRATUM_MINIMUM * DEGREE_QUANTILES


@dataclass(frozen=True)
class UnseenTest:
    """Scores of deleted and unseen elements, in strata that hold enough of both.

    Args:
        parts: The (deleted, unseen) scores of each stratum.
        scores: The (deleted, unseen) scores of all elements.

    >>> same = torch.arange(100.0)
    >>> test = unseen_test(same, same, torch.ones(100), torch.ones(100))
    >>> test.auc, test.matched
    (0.5, 1.0)
    """

    parts: tuple[tuple[Floats, Floats], ...]
    scores: tuple[Floats, Floats]

    @property
    def deleted(self) -> int:
        """The number of deleted elements."""
        return self.scores[0].size

    @property
    def unseen(self) -> int:
        """The number of unseen elements."""
        return self.scores[1].size

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

        >>> few, many = (np.zeros(300), np.zeros(6)), (np.zeros(10), np.zeros(5000))
        >>> round(UnseenTest((few, many), (np.zeros(310), np.zeros(5006))).effective_unseen)
        6
        """
        return float(1 / (self.weights**2 @ [1 / unseen.size for _, unseen in self.parts])) if self.parts else 0.0

    @property
    def weights(self) -> Floats:
        """The share of the matched deleted elements in each stratum."""
        counts = np.array([deleted.size for deleted, _ in self.parts], dtype=np.float64)
        return counts / counts.sum()

    @property
    def auc(self) -> float:
        """The unseen AUC: how often a deleted element scores above an unseen one of its stratum."""
        return float(self.weights @ [auc(deleted, unseen) for deleted, unseen in self.parts])

    @property
    def standard_error(self) -> float:
        """The standard error of the AUC if deleted and unseen elements score alike."""
        return float(np.sqrt(self.weights**2 @ np.array([auc_variance(0.5, d.size, u.size) for d, u in self.parts])))

    def against(self, other: UnseenTest) -> tuple[float, float]:
        """Compare two models on the same elements.

        Two models agree on most elements, so the difference is more certain than either AUC. Its error is taken from the
        differences element by element (DeLong, DeLong and Clarke-Pearson 1988).

        Args:
            other: The test of the other model, with the same strata.

        Returns:
            This AUC minus the other, and the standard error of the difference.
        """
        spread = []
        for (deleted, unseen), (deleted2, unseen2) in zip(self.parts, other.parts, strict=True):
            moved = (
                share_below(deleted, unseen) - share_below(deleted2, unseen2),
                share_below(unseen, deleted) - share_below(unseen2, deleted2),
            )
            spread.append(sum(float(part.var(ddof=1)) / part.size if part.size > 1 else 0.25 for part in moved))
        return self.auc - other.auc, float(np.sqrt(self.weights**2 @ np.array(spread)))

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


def unseen_test(deleted: Tensor, unseen: Tensor, *matched_by: Any, **options: Any) -> UnseenTest:
    """The unseen test of one model's scores.

    Args:
        deleted: Scores of the deleted elements.
        unseen: Scores of the unseen elements.
        matched_by: What elements are matched by, as `strata` takes it.
        options: Further arguments of `strata`.

    Returns:
        The test.
    """
    return strata(*matched_by, **options).test(deleted, unseen)


@dataclass(frozen=True)
class Strata:
    """Which deleted elements are compared with which unseen ones, by position. One serves the scores of many models."""

    parts: tuple[tuple[Ints, Ints], ...]

    @property
    def deleted(self) -> int:
        """How many deleted elements have a stratum."""
        return sum(deleted.size for deleted, _ in self.parts)

    def test(self, deleted: Tensor, unseen: Tensor) -> UnseenTest:
        """Put the scores of one model into the strata."""
        scores = _numbers(deleted), _numbers(unseen)
        return UnseenTest(tuple((scores[0][mine], scores[1][theirs]) for mine, theirs in self.parts), scores)


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
        degree_deleted: A number per deleted element, such as `edge_degree`.
        degree_unseen: The same for the unseen elements.
        kind_deleted: Kind of each deleted element (class, or `edge_kind`); only elements of one kind are compared.
        kind_unseen: The same for the unseen elements.
        bins: Number of quantiles within a kind.
        adaptive: Use fewer quantiles where some stay empty, and leave out no kind that has an unseen element. By default
            this is so for requests of fewer than `SMALL_REQUEST` elements.

    Returns:
        The strata.
    """
    degrees = _numbers(degree_deleted), _numbers(degree_unseen)
    adaptive = degrees[0].size < SMALL_REQUEST if adaptive is None else adaptive
    kinds = [
        np.zeros(part.size, dtype=np.int64) if kind is None else kind.detach().cpu().numpy().astype(np.int64)
        for part, kind in zip(degrees, (kind_deleted, kind_unseen), strict=True)
    ]
    members = [(np.flatnonzero(kinds[0] == kind), np.flatnonzero(kinds[1] == kind)) for kind in np.unique(kinds[0])]
    needed = 1 if adaptive else STRATUM_MINIMUM
    parts = [part for pair in members if pair[1].size >= needed for part in _divide(pair, degrees, bins, adaptive)]
    if not parts and kind_deleted is not None:
        parts = [(mine, theirs) for mine, theirs in members if mine.size and theirs.size]
    if not parts and degrees[0].size and degrees[1].size:
        parts = [(np.arange(degrees[0].size), np.arange(degrees[1].size))]
    return Strata(tuple(parts))


def _divide(
    members: tuple[Ints, Ints], degrees: tuple[Floats, Floats], bins: int, adaptive: bool
) -> list[tuple[Ints, Ints]]:
    """The filled quantiles of one kind. With ``adaptive``, as many quantiles as can all be filled, or one."""
    values = [degree[chosen] for degree, chosen in zip(degrees, members, strict=True)]
    for count in range(bins, 1, -1) if adaptive else [bins]:
        edges = np.unique(np.quantile(np.concatenate(values), np.linspace(0, 1, count + 1)[1:-1]))
        bin_of = [np.searchsorted(edges, value, side="right") for value in values]
        pairs = [(members[0][bin_of[0] == one], members[1][bin_of[1] == one]) for one in np.unique(bin_of[0])]
        filled = [pair for pair in pairs if min(pair[0].size, pair[1].size) >= STRATUM_MINIMUM]
        if not adaptive or len(filled) == len(pairs):
            return filled
    return [members]


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

    Args:
        degree: Degrees in a graph that has none of the edges; in the original graph they would count the deleted ones.
        deleted: Deleted edges, ``[2, k]`` or triples ``[3, k]``.
        unseen: Unseen true edges.

    Returns:
        Degree and kind of both, by the names of the parameters of `strata`.
    """
    return {
        "degree_deleted": edge_degree(degree, deleted),
        "degree_unseen": edge_degree(degree, unseen),
        "kind_deleted": edge_kind(degree, deleted),
        "kind_unseen": edge_kind(degree, unseen),
    }


def edge_degree(degree: Tensor, edges: Tensor) -> Tensor:
    """How connected the ends of each edge are: the mean of log(1 + degree)."""
    ends = degree.double()[ends_of(edges).to(degree.device)]
    return (ends + 1).log().mean(dim=0)


def edge_kind(degree: Tensor, edges: Tensor) -> Tensor:
    """What edges must share to be compared: their relation, and the number of isolated ends.

    All that a model knows of an isolated node is what it remembers, so such edges score unlike all others.

    >>> edge_kind(torch.tensor([2, 0, 1]), torch.tensor([[0, 0], [2, 1]])).tolist()
    [0, 1]
    """
    isolated = (degree[ends_of(edges).to(degree.device)] == 0).sum(dim=0)
    return isolated if edges.size(0) == 2 else 3 * edges[1].to(degree.device) + isolated


def _numbers(values: Tensor) -> Floats:
    return np.asarray(values.detach().double().cpu().numpy())


def degrees(data: Data) -> Tensor:
    """The degree of each node; on a typed graph, the number of its triples.

    An edge that is stored in one direction only counts half at each end.

    >>> degrees(Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=4)).tolist()
    [1.0, 1.5, 0.5, 0.0]
    """
    whole = data.get("edge_type") is not None and data.get("reverse_offset") is None
    found = torch.bincount(data.edge_index.flatten(), minlength=int(data.num_nodes or 0)).double()
    return found if whole else found / 2
