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
        known = self._from_the_first_side(known.cpu())
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
        edges, others = self._from_the_first_side(edges.cpu()), self.candidates
        listed = edges.repeat_interleave(others.numel(), dim=1)
        listed[-1] = others.repeat(edges.size(1))
        own, theirs = (scores(part).detach().double().cpu().view(edges.size(1), -1) for part in (edges, listed))
        keys = self._key(listed)
        place = torch.searchsorted(self._known, keys).clamp(max=max(self._known.numel() - 1, 0))
        counted = (self._known[place] != keys).view_as(theirs)
        above = ((theirs > own).double() + (theirs == own).double() / 2) * counted
        ranks = 1 + above.sum(dim=1) * self.pool.numel() / others.numel()
        return torch.where(own.view(-1).isfinite() & theirs.isfinite().all(dim=1), ranks, torch.inf)

    def _from_the_first_side(self, edges: Tensor) -> Tensor:
        if self._sides is None or edges.size(0) == 3:
            return edges
        return torch.where(self._sides[edges[0]] == 1, edges.flip(0), edges)

    def _key(self, edges: Tensor) -> Tensor:
        relation = edges[1] if edges.size(0) == 3 else 0
        return (relation * self.num_nodes + edges[0]) * self.num_nodes + edges[-1]
