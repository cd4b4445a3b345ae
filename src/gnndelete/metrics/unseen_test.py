"""The unseen test: can deleted elements be told from elements of the same kind that the model never trained on?

Its statistic is the AUC of deleted against unseen scores, taken within strata (endpoint degree in the remaining graph,
class, relation), so that a difference in kind is not mistaken for memory. At 0.5 they cannot be told apart.
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

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Quantiles of the degree that make the strata, and how many of each kind a stratum needs to count.
BINS, LEAST = 8, 6

#: Requests of fewer elements cannot be trusted to fill all quantiles: they are divided into fewer, so that no one is left out.
FEW = 2 * LEAST * BINS


@dataclass(frozen=True)
class UnseenTest:
    """Scores of deleted and unseen elements in strata that hold enough of both kinds.

    >>> same = torch.arange(100.0)
    >>> test = unseen_test(same, same, torch.ones(100), torch.ones(100))
    >>> test.auc, test.matched
    (0.5, 1.0)
    """

    parts: tuple[tuple[Floats, Floats], ...]  # (deleted, unseen) scores of each stratum, in the order they were given
    scores: tuple[Floats, Floats]  # of all elements

    @property
    def deleted(self) -> int:
        return self.scores[0].size

    @property
    def unseen(self) -> int:
        return self.scores[1].size

    @property
    def plain_auc(self) -> float:
        """The AUC of all at once, without strata."""
        return auc(*self.scores) if self.deleted and self.unseen else 0.5

    @property
    def matched(self) -> float:
        """The share of deleted elements that found a stratum."""
        return sum(low.size for low, _ in self.parts) / max(self.deleted, 1)

    @property
    def beside(self) -> float:
        """To how many unseen elements those of the strata amount, for the error of the AUC.

        To all of them where strata are filled alike, to few where most deleted elements have few beside them.

        >>> few, many = (np.zeros(300), np.zeros(6)), (np.zeros(10), np.zeros(5000))
        >>> round(UnseenTest((few, many), (np.zeros(310), np.zeros(5006))).beside)
        6
        """
        return float(1 / (self.weights**2 @ [1 / held.size for _, held in self.parts])) if self.parts else 0.0

    @property
    def weights(self) -> Floats:
        counts = np.array([deleted.size for deleted, _ in self.parts], dtype=np.float64)
        return counts / counts.sum()

    @property
    def auc(self) -> float:
        """How often a deleted element scores above a unseen one of its stratum; ties count half."""
        return float(self.weights @ [auc(deleted, held) for deleted, held in self.parts])

    @property
    def standard_error(self) -> float:
        """Of the AUC, were both kinds alike."""
        return float(np.sqrt(self.weights**2 @ np.array([variance(0.5, d.size, h.size) for d, h in self.parts])))

    def against(self, other: UnseenTest) -> tuple[float, float]:
        """This AUC minus that of another model on the same elements, and the standard error of the difference.

        What both models make of one element goes together, so that the difference is surer than either AUC: its error is
        taken from the differences element by element (DeLong, DeLong and Clarke-Pearson 1988).
        """
        spread = []
        for (deleted, held), (others, unseen) in zip(self.parts, other.parts, strict=True):
            placed = _placed(deleted, held) - _placed(others, unseen), _placed(held, deleted) - _placed(unseen, others)
            spread.append(sum(float(part.var(ddof=1)) / part.size if part.size > 1 else 0.25 for part in placed))
        return self.auc - other.auc, float(np.sqrt(self.weights**2 @ np.array(spread)))

    def interval(self, seed: int, level: float = 0.95, draws: int = 1000) -> tuple[float, float]:
        """A bootstrap interval of the AUC: both kinds are drawn again within their strata.

        Drawing a few elements again shows little of how others would have scored, none at all for a single one: the
        interval is never narrower than `variance` says, taken nearer to 0.5 as if four more lay there.
        """
        generator = np.random.default_rng(seed)
        total = np.zeros(draws)
        for weight, (deleted, held) in zip(self.weights, self.parts, strict=True):
            total += weight * _resampled(deleted, held, draws, generator)
        low, high = np.quantile(total, [(1 - level) / 2, (1 + level) / 2])
        nearer = [variance((auc(d, h) * d.size + 2) / (d.size + 4), d.size, h.size) for d, h in self.parts]
        half = NormalDist().inv_cdf((1 + level) / 2) * float(np.sqrt(self.weights**2 @ np.array(nearer)))
        return max(min(float(low), self.auc - half), 0.0), min(max(float(high), self.auc + half), 1.0)


def unseen_test(
    deleted: Tensor,
    held: Tensor,
    degree_deleted: Tensor,
    degree_held: Tensor,
    kind_deleted: Tensor | None = None,
    kind_held: Tensor | None = None,
    bins: int = BINS,
    coarser: bool | None = None,
) -> UnseenTest:
    """Put scores into strata: quantiles of the degree of all of them, within each kind (class, or `edge_kind`) if given.

    A stratum counts if it has enough of both; ``coarser`` divides a kind into so many only as can all be filled, and leaves
    out none that has a unseen element, as for requests of fewer than `FEW` elements. A request too small to fill any
    stratum is compared with all unseen elements of its kinds, or else with all at once.
    """
    return strata(degree_deleted, degree_held, kind_deleted, kind_held, bins, coarser).test(deleted, held)


@dataclass(frozen=True)
class Strata:
    """Which elements are compared with which, by their positions: found once, for the scores of any number of models."""

    parts: tuple[tuple[Ints, Ints], ...]

    @property
    def deleted(self) -> int:
        """How many deleted elements have unseen ones beside them."""
        return sum(mine.size for mine, _ in self.parts)

    def test(self, deleted: Tensor, held: Tensor) -> UnseenTest:
        """The scores of one model, put into the strata."""
        scores = _numbers(deleted), _numbers(held)
        return UnseenTest(tuple((scores[0][mine], scores[1][theirs]) for mine, theirs in self.parts), scores)


def strata(
    degree_deleted: Tensor,
    degree_held: Tensor,
    kind_deleted: Tensor | None = None,
    kind_held: Tensor | None = None,
    bins: int = BINS,
    coarser: bool | None = None,
) -> Strata:
    """The strata of `unseen`."""
    degrees = _numbers(degree_deleted), _numbers(degree_held)
    coarser = degrees[0].size < FEW if coarser is None else coarser
    kinds = [
        np.zeros(part.size, dtype=np.int64) if kind is None else kind.detach().cpu().numpy().astype(np.int64)
        for part, kind in zip(degrees, (kind_deleted, kind_held), strict=True)
    ]
    members = [(np.flatnonzero(kinds[0] == kind), np.flatnonzero(kinds[1] == kind)) for kind in np.unique(kinds[0])]
    least = 1 if coarser else LEAST  # unseen elements of a kind
    parts = [part for own in members if own[1].size >= least for part in _divided(own, degrees, bins, coarser)]
    if not parts and kind_deleted is not None:
        parts = [(mine, theirs) for mine, theirs in members if mine.size and theirs.size]
    if not parts and degrees[0].size and degrees[1].size:
        parts = [(np.arange(degrees[0].size), np.arange(degrees[1].size))]
    return Strata(tuple(parts))


def _divided(
    members: tuple[Ints, Ints], degrees: tuple[Floats, Floats], bins: int, coarser: bool
) -> list[tuple[Ints, Ints]]:
    """The quantiles of one kind that have enough of both; with ``coarser`` so few of them that all have, or it undivided."""
    values = [degree[chosen] for degree, chosen in zip(degrees, members, strict=True)]
    for count in range(bins, 1, -1) if coarser else [bins]:
        edges = np.unique(np.quantile(np.concatenate(values), np.linspace(0, 1, count + 1)[1:-1]))
        places = [np.searchsorted(edges, value, side="right") for value in values]
        pairs = [(members[0][places[0] == here], members[1][places[1] == here]) for here in np.unique(places[0])]
        filled = [pair for pair in pairs if min(pair[0].size, pair[1].size) >= LEAST]
        if not coarser or len(filled) == len(pairs):
            return filled
    return [members]


def auc(deleted: Floats, held: Floats) -> float:
    """The probability that a deleted score lies above a unseen one; ties count half.

    >>> auc(np.array([3.0, 1.0]), np.array([0.0, 2.0, 1.0]))
    0.75
    """
    return float(_placed(np.sort(deleted), held).mean())  # sorted ones are found faster


def _placed(scores: Floats, others: Floats) -> Floats:
    """For each score, the share of the others that lie below it."""
    others = np.sort(others)
    below = np.searchsorted(others, scores, side="left") + np.searchsorted(others, scores, side="right")
    return np.asarray(below / (2 * others.size))


def variance(value: float, deleted: int, held: int) -> float:
    """Of an AUC of so many elements of both kinds around its true value (Hanley and McNeil 1982).

    >>> round(variance(0.5, 1, 10), 6) == (1 + 10 + 1) / (12 * 1 * 10), variance(0.9, 50, 50) < variance(0.5, 50, 50)
    (True, True)
    """
    first, second = value / (2 - value), 2 * value**2 / (1 + value)
    spread = (deleted - 1) * (first - value**2) + (held - 1) * (second - value**2)
    return (value * (1 - value) + spread) / (deleted * held)


def _resampled(deleted: Floats, held: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """The AUC of `draws` samples with replacement: counts per element instead of copies of elements."""
    held = np.sort(held)
    left, right = np.searchsorted(held, deleted, side="left"), np.searchsorted(held, deleted, side="right")
    result = np.empty(draws)
    block = max(1, 2_000_000 // max(deleted.size, held.size))
    for start in range(0, draws, block):
        size = min(block, draws - start)
        ours = generator.multinomial(deleted.size, np.full(deleted.size, 1 / deleted.size), size)
        theirs = generator.multinomial(held.size, np.full(held.size, 1 / held.size), size)
        below = np.concatenate([np.zeros((size, 1), dtype=theirs.dtype), theirs.cumsum(axis=1)], axis=1)
        counted = (ours * (below[:, left] + below[:, right])).sum(axis=1)
        result[start : start + size] = counted / (2 * deleted.size * held.size)
    return result


def edge_degree(degree: Tensor, edges: Tensor) -> Tensor:
    """How connected the ends of each edge are: the geometric mean of their degrees, on a logarithmic scale."""
    ends = degree.double()[ends_of(edges).to(degree.device)]
    return (ends + 1).log().mean(dim=0)


def edge_strata(degree: Tensor, deleted: Tensor, held: Tensor) -> dict[str, Any]:
    """What deleted and unseen edges are matched by, from the degrees in a graph that has neither: `unseen` takes it."""
    found = {}
    for name, edges in (("deleted", deleted), ("held", held)):
        found[f"degree_{name}"], found[f"kind_{name}"] = matched_by(degree, edges)
    return found


def matched_by(degree: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """What edges are matched by: how connected their ends are, and what they must share with others to be compared at all."""
    return edge_degree(degree, edges), edge_kind(degree, edges)


def edge_kind(degree: Tensor, edges: Tensor) -> Tensor:
    """What edges must share to be compared: their relation, and how many of their ends have no edge at all.

    Of an end that is left alone a model knows only what it remembers; such edges score unlike all others.

    >>> edge_kind(torch.tensor([2, 0, 1]), torch.tensor([[0, 0], [2, 1]])).tolist()
    [0, 1]
    """
    alone = (degree[ends_of(edges).to(degree.device)] == 0).sum(dim=0)
    return alone if edges.size(0) == 2 else 3 * edges[1].to(degree.device) + alone


def _numbers(values: Tensor) -> Floats:
    return np.asarray(values.detach().double().cpu().numpy())


def degrees(data: Data) -> Tensor:
    """How many edges each node has; on a typed graph, in how many triples it stands.

    An edge that stands there one way alone counts half at each end: it is an edge, whichever way it goes.

    >>> degrees(Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=4)).tolist()
    [1.0, 1.5, 0.5, 0.0]
    """
    whole = data.get("edge_type") is not None and data.get("reverse_offset") is None
    found = torch.bincount(data.edge_index.flatten(), minlength=int(data.num_nodes or 0)).double()
    return found if whole else found / 2
