"""Ranks in lists equal a plain count."""

from __future__ import annotations

import pytest
import torch

from gnndelete.metrics.lists import Lists


def plain_rank(score, edge, others, known):
    above = [
        w for w in others if (edge[0], *edge[1:-1], w) not in known and score(edge[0], w) > score(edge[0], edge[-1])
    ]
    return 1 + len(above)


def test_ranks_equal_a_plain_count():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 4, generator=generator)
    known = torch.randint(40, (2, 120), generator=generator)
    true = {pair for u, v in known.t().tolist() for pair in ((u, v), (v, u))}
    lists = Lists(known, 40)
    found = lists.ranks(lambda edges: (z[edges[0]] * z[edges[-1]]).sum(dim=1), known[:, :20])
    others = sorted({v for _, v in true})
    expected = [plain_rank(lambda a, b: float(z[a] @ z[b]), edge, others, true) for edge in known.t()[:20].tolist()]
    assert not lists.decide
    assert found.tolist() == pytest.approx(expected)


def test_triples_are_ranked_among_the_tails_of_their_relation():
    known = torch.tensor([[0, 0, 1], [0, 1, 0], [2, 3, 4]])
    lists = Lists(known, 5)
    assert lists.decide
    assert lists.pool.tolist() == [2, 3, 4]
    # tail 3 stands above tail 2, and (0, 0, 3) is no known triple
    assert lists.ranks(lambda edges: (edges[2] == 3).double(), known[:, :1]).tolist() == [2.5]


def test_an_answer_that_is_no_number_has_no_rank():
    lists = Lists(torch.tensor([[0, 1], [2, 3]]), 4)
    assert lists.ranks(lambda edges: torch.full((edges.size(1),), torch.nan), torch.tensor([[0], [2]])).tolist() == [
        torch.inf
    ]
