"""Lists: where an edge stands among everything that a user could be shown instead.

Users of a recommender or a knowledge graph see the top of a list. There a model can lose half of its worth while its AUROC,
over pairs drawn at random, stays where it was.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Nodes that the second node of an edge is compared with at most.
CANDIDATES = 500

#: The length of a list as a user sees it, and pairs that are scored at once.
LENGTH, CHUNK = 10, 1 << 20


class Lists:
    """The list of each first node: what the second node of its edge could be. Other known edges are left out (filtered).

    Args:
        known: All true edges of every part of the data: pairs ``[2, m]``, or triples ``[3, m]`` (head, relation, tail).
        num_nodes: The number of nodes.
        sides: The part of each node of a bipartite graph, 0 or 1; None for other graphs.
        seed: Draws the candidates.

    Attributes:
        decide: Whether lists are what users see: on typed and on bipartite graphs.
        pool: What the second node of an edge could be, and ``candidates`` a sample of it.

    >>> lists = Lists(torch.tensor([[0, 0, 1], [2, 3, 4]]), 5, sides=torch.tensor([0, 0, 1, 1, 1]))
    >>> lists.ranks(lambda edges: -edges[1].double(), torch.tensor([[0, 1], [3, 4]])).tolist()
    [1.0, 3.0]
    """

    def __init__(self, known: Tensor, num_nodes: int, sides: Tensor | None = None, seed: int = 0) -> None:
        self.num_nodes, self._sides = num_nodes, sides
        self.decide = sides is not None or known.size(0) == 3
        known = self.from_the_first_side(known.cpu())
        both = [known, known.flip(0)] if known.size(0) == 2 and sides is None else [known]
        self._known = torch.unique(self._key(torch.cat(both, dim=1)))
        self.pool = torch.unique(torch.cat(both, dim=1)[-1])
        order = torch.randperm(self.pool.numel(), generator=torch.Generator().manual_seed(seed))
        self.candidates = self.pool[order[:CANDIDATES]]

    def ranks(self, scores: Callable[[Tensor], Tensor], edges: Tensor) -> Tensor:
        """The rank of each edge from 1, estimated where the candidates are a sample. Ties count half.

        Args:
            scores: Gives the scores of edges.
            edges: True edges.

        Returns:
            A rank per edge; infinite where a score is not finite.
        """
        edges, others = self.from_the_first_side(edges.cpu()), self.candidates
        listed = edges.repeat_interleave(others.numel(), dim=1)
        listed[-1] = others.repeat(edges.size(1))
        own, theirs = (scores(part).detach().double().cpu().view(edges.size(1), -1) for part in (edges, listed))
        counted = ~self.is_known(listed).view_as(theirs)
        above = ((theirs > own).double() + (theirs == own).double() / 2) * counted
        ranks = 1 + above.sum(dim=1) * self.pool.numel() / others.numel()
        return torch.where(own.view(-1).isfinite() & theirs.isfinite().all(dim=1), ranks, torch.inf)

    def heads(self, edges: Tensor) -> Tensor:
        """What lists are for: the first nodes of some edges, each once, with the relation of triples ``[1, u]`` or ``[2, u]``.

        Args:
            edges: Edges ``[2, k]`` or triples ``[3, k]``.
        """
        return torch.unique(self.from_the_first_side(edges.cpu())[:-1], dim=1)

    def top(self, scores: Callable[[Tensor], Tensor], heads: Tensor, length: int = LENGTH) -> Tensor:
        """The first places of each list, known edges left out, as users of a recommender see it.

        Args:
            scores: Gives the scores of edges.
            heads: What the lists are for.
            length: Places of a list.

        Returns:
            Nodes ``[u, length]``, the best first.

        >>> lists = Lists(torch.tensor([[0, 0, 1], [2, 3, 4]]), 5, sides=torch.tensor([0, 0, 1, 1, 1]))
        >>> lists.top(lambda edges: edges[1].double(), torch.tensor([[0, 1]]), length=1).tolist()
        [[4], [3]]
        """
        count, found = self.pool.numel(), []
        for part in heads.cpu().split(max(CHUNK // count, 1), dim=1):
            edges = torch.cat([part.repeat_interleave(count, dim=1), self.pool.repeat(part.size(1))[None]])
            given = scores(edges).detach().double().cpu().masked_fill(self.is_known(edges), -torch.inf)
            places = given.view(-1, count).topk(min(length, count), dim=1).indices
            found.append(self.pool[places])
        return torch.cat(found) if found else self.pool.new_empty(0, length)

    def quality(self, listed: Tensor, heads: Tensor, edges: Tensor) -> dict[str, float]:
        """How well lists hold true edges: NDCG, recall and hit ratio of their length, and the MRR of the first hit.

        Args:
            listed: What `top` gave.
            heads: What the lists are for.
            edges: True edges that are not known; those of other heads do not count.

        >>> lists = Lists(torch.tensor([[0, 1], [2, 2]]), 5, sides=torch.tensor([0, 0, 1, 1, 1]))
        >>> lists.quality(torch.tensor([[3, 4], [3, 4]]), torch.tensor([[0, 1]]), torch.tensor([[0, 1], [3, 4]]))["mrr@2"]
        0.75
        """
        from torch_geometric.metrics import LinkPredHitRatio, LinkPredMRR, LinkPredNDCG, LinkPredRecall

        edges, length = self.from_the_first_side(edges.cpu()), listed.size(1)
        every, place = torch.unique(torch.cat([heads.cpu(), edges[:-1]], dim=1), dim=1, return_inverse=True)
        row = torch.full((every.size(1),), -1)
        row[place[: heads.size(1)]] = torch.arange(heads.size(1))
        row = row[place[heads.size(1) :]]
        truth = torch.stack([row, edges[-1]])[:, row >= 0]
        result = {}
        named = {"ndcg": LinkPredNDCG, "recall": LinkPredRecall, "hits": LinkPredHitRatio, "mrr": LinkPredMRR}
        for name, metric in named.items():
            measured = metric(length)
            measured.update(listed, truth)
            result[f"{name}@{length}"] = float(measured.compute())
        return result

    def reach(self, listed: Tensor) -> dict[str, float]:
        """Which items lists show: the share of all items that are in any list, and how popular listed items are.

        Popularity is the mean of the logarithm of one more than the number of known edges of an item.

        Args:
            listed: What `top` gave.

        >>> lists = Lists(torch.tensor([[0, 0, 1], [2, 3, 2]]), 4, sides=torch.tensor([0, 0, 1, 1]))
        >>> found = lists.reach(torch.tensor([[2], [2]]))
        >>> found["coverage@1"], round(found["popularity@1"], 3)
        (0.5, 1.099)
        """
        from torch_geometric.metrics import LinkPredAveragePopularity, LinkPredCoverage

        length, place = listed.size(1), torch.searchsorted(self.pool, listed)
        degree = torch.bincount(self._known % self.num_nodes, minlength=self.num_nodes)[self.pool]
        none = torch.empty(2, 0, dtype=torch.long)
        coverage, popularity = (
            LinkPredCoverage(length, self.pool.numel()),
            LinkPredAveragePopularity(length, (degree + 1).log()),
        )
        for measured in (coverage, popularity):
            measured.update(place, none)
        return {f"coverage@{length}": float(coverage.compute()), f"popularity@{length}": float(popularity.compute())}

    def is_known(self, edges: Tensor) -> Tensor:
        """Which pairs (or triples), the first node of their list first, are known edges.

        Args:
            edges: Pairs ``[2, k]`` or triples ``[3, k]``.
        """
        keys = self._key(edges)
        place = torch.searchsorted(self._known, keys).clamp(max=max(self._known.numel() - 1, 0))
        return self._known[place] == keys if self._known.numel() else torch.zeros_like(keys, dtype=torch.bool)

    def from_the_first_side(self, edges: Tensor) -> Tensor:
        """Edges of a bipartite graph with the node whose list they are in first; others as they are.

        Args:
            edges: Pairs ``[2, k]`` or triples ``[3, k]``.
        """
        if self._sides is None or edges.size(0) == 3:
            return edges
        return torch.where(self._sides[edges[0]] == 1, edges.flip(0), edges)

    def _key(self, edges: Tensor) -> Tensor:
        relation = edges[1] if edges.size(0) == 3 else 0
        return (relation * self.num_nodes + edges[0]) * self.num_nodes + edges[-1]


def ndcg_of_each(listed: Tensor, heads: Tensor, edges: Tensor) -> Tensor:
    """The NDCG of each list by itself, for the error of its mean; 0 for a list without a true edge.

    Args:
        listed: Lists ``[u, k]``, as `Lists.top` gives them.
        heads: What the lists are for.
        edges: True edges, with the node whose list they are in first.

    >>> ndcg_of_each(torch.tensor([[3, 4], [3, 4]]), torch.tensor([[0, 1]]), torch.tensor([[0, 1], [3, 3]])).tolist()
    [1.0, 1.0]
    """
    every, place = torch.unique(torch.cat([heads.cpu(), edges[:-1]], dim=1), dim=1, return_inverse=True)
    rows, length, big = place[: heads.size(1)], listed.size(1), int(max(listed.max(), edges[-1].max())) + 1
    truth = torch.unique(place[heads.size(1) :] * big + edges[-1])
    hits = torch.isin(rows[:, None] * big + listed, truth).double()
    discount = 1 / torch.arange(2, length + 2).double().log2()
    counts = torch.bincount(truth // big, minlength=every.size(1))[rows].clamp(max=length)
    best = torch.cat([torch.ones(1, dtype=torch.double), discount.cumsum(dim=0)])[counts]
    return (hits * discount).sum(dim=1) / best


def overlap(first: Tensor, second: Tensor) -> Tensor:
    """The share of the places of each list that both have, in any order.

    Args:
        first: Lists ``[u, k]``, as `Lists.top` gives them.
        second: Lists of the same heads by another model.

    >>> overlap(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 1], [4, 5]])).tolist()
    [1.0, 0.5]
    """
    return (first[:, :, None] == second[:, None, :]).any(dim=2).double().mean(dim=1)


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's rank correlation of two models' scores of the same elements; ties are broken by position.

    Args:
        first: Scores of one model.
        second: Scores of the other.

    >>> rank_correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0, 90.0]))
    1.0
    """
    ranks = [scores.detach().flatten().cpu().argsort(stable=True).argsort().double() for scores in (first, second)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1].clamp(-1, 1))


def activity_groups(degree: Tensor, groups: int = 3) -> list[Tensor]:
    """Positions of the least active, …, and most active nodes: groups of equal size, by degree.

    Args:
        degree: The number of edges of each node.
        groups: How many groups.

    >>> [part.tolist() for part in activity_groups(torch.tensor([5, 1, 9, 2]), groups=2)]
    [[1, 3], [0, 2]]
    """
    return [part.sort().values for part in degree.argsort(stable=True).tensor_split(groups)]
