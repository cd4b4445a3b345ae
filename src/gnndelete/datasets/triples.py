"""Typed edges: splitting (head, relation, tail) triples, and false triples that keep their relation."""

from __future__ import annotations

import torch
from torch import Tensor

from gnndelete.adjacency import EdgeTable
from gnndelete.errors import GraphError


class TripleCorrupter:
    """Turns true triples into false ones by another head (or tail) that occurs with the same relation; built once per graph.

    >>> corrupter = TripleCorrupter(torch.tensor([[0, 1], [2, 3]]), edge_type=torch.tensor([0, 0]), num_nodes=4)
    >>> corrupter.corrupt(torch.tensor([[0], [0], [2]]), torch.Generator().manual_seed(0)).tolist()
    [[1], [0], [2]]
    """

    def __init__(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int, tries: int = 20) -> None:
        self._table = EdgeTable(edge_index, num_nodes, edge_type)
        self._tries = tries
        order = torch.argsort(edge_type, stable=True)
        self._members = edge_index[:, order]
        self._start = torch.searchsorted(
            edge_type[order], torch.arange(self._table.num_relations + 1, device=order.device)
        )

    def corrupt(self, triples: Tensor, generator: torch.Generator | None = None, end: int = 0) -> Tensor:
        """False triples, one for each true one; ``end`` 0 replaces heads, 1 tails. Never a true triple of the graph."""
        result = triples.clone()
        open_ = torch.arange(triples.size(1), device=triples.device)
        row = 0 if end == 0 else 2
        for attempt in range(self._tries * 10):
            relation = triples[1, open_]
            low, high = self._start[relation], self._start[relation + 1]
            lot = torch.rand(open_.numel(), generator=generator, dtype=torch.float64).to(triples.device)
            if attempt < self._tries:
                entity = self._members[end, low + (lot * (high - low)).long()]
            else:  # the relation knows too few entities: any other will do
                entity = (lot * self._table.num_nodes).long()
            result[row, open_] = entity
            open_ = open_[self._table.contains(result[:, open_])]
            if not open_.numel():
                return result
        raise GraphError(
            f"no false triple could be found for {open_.numel()} true ones, for example "
            f"{tuple(triples[:, open_[0]].tolist())}: nearly every entity has that relation; leave it out"
        )
