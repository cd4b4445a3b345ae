"""Filtered ranks of triples under DistMult: where the true head or tail stands among all entities that make no true triple."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnndelete.graph.edge_table import EdgeTable, ranges
from gnndelete.tasks.base import representation


def filtered_scores(output: Any, relation: Tensor, triples: Tensor, known: Tensor) -> dict[str, float]:
    """Mean reciprocal rank and Hits@1, 3, 10 over both ends; ``known`` holds every true triple, of all parts.

    >>> z, known = torch.tensor([[2.0], [1.0]]), torch.tensor([[0], [0], [1]])
    >>> filtered_scores(z, torch.ones(1, 1), known, known)["hits@1"]
    0.5
    """
    ranks = filtered_ranks(output, relation, triples, known).flatten()
    found = {"mrr": float((1 / ranks).mean())}
    return found | {f"hits@{count}": float((ranks <= count).double().mean()) for count in (1, 3, 10)}


@torch.no_grad()
def filtered_ranks(output: Any, relation: Tensor, triples: Tensor, known: Tensor, chunk: int = 256) -> Tensor:
    """``[2, k]`` ranks, from 1: of the true head among all heads, and of the true tail among all tails; ties count half.

    Entities that make another known triple are left out, so that a model is not blamed for being right. Scores of
    ``chunk`` triples against all entities are held at once.
    """
    z = representation(output).double()
    weight, count = relation.double().to(z.device), z.size(0)
    triples = triples.to(z.device)
    known = torch.cat([known.to(z.device), triples], dim=1)
    result = []
    for end, other in ((0, 2), (2, 0)):
        # sorted by the end that stays and the relation: all true answers to a question stand together
        asked = known[other] * weight.size(0) + known[1]
        table = EdgeTable(torch.stack([asked, known[end]]), max(count * weight.size(0), 1))
        parts = []
        for block in triples.split(chunk, dim=1):
            scores = (z[block[other]] * weight[block[1]]) @ z.t()
            own = scores.gather(1, block[end].view(-1, 1))
            parts.append(1 + _above(scores, own) - _known_above(scores, own, block, end, other, table, weight.size(0)))
        result.append(torch.cat(parts) if parts else z.new_empty(0))
    return torch.stack(result)


def _above(scores: Tensor, own: Tensor) -> Tensor:
    """How many stand above, ties half; the element itself is one of its own ties."""
    return (scores > own).sum(dim=1) + (scores == own).sum(dim=1) / 2


def _known_above(
    scores: Tensor, own: Tensor, block: Tensor, end: int, other: int, table: EdgeTable, relations: int
) -> Tensor:
    """What of `_above` are true answers, which do not count, the element itself among them."""
    question = block[other] * relations + block[1]
    base = table.num_nodes
    keys = torch.unique_consecutive(table.keys)
    start, stop = torch.searchsorted(keys, question * base), torch.searchsorted(keys, (question + 1) * base)
    row = torch.repeat_interleave(torch.arange(question.numel(), device=keys.device), stop - start)
    true = scores[row, keys[ranges(start, stop)] % base]
    mine = own.view(-1)[row]
    share = (true > mine).double() + (true == mine).double() / 2
    counted = torch.zeros(question.numel(), dtype=torch.double, device=keys.device).index_add_(0, row, share)
    return counted
