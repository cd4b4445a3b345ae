"""Ranks in lists equal a plain count."""

from __future__ import annotations

import math

import pytest
import torch

from gnndelete.metrics.lists import Lists, activity_groups, overlap, rank_correlation


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


def bipartite(seed: int = 0) -> tuple[Lists, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lists of 12 users over 30 items, their true edges, edges that are not known, and a table of scores."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(12, 30, generator=generator)
    true = (torch.rand(12, 30, generator=generator) < 0.4).nonzero().t() + torch.tensor([[0], [12]])
    order = torch.randperm(true.size(1), generator=generator)
    known, test = true[:, order[20:]], true[:, order[:20]]
    sides = torch.arange(42).ge(12).long()
    both = torch.cat([known, known.flip(0)], dim=1)
    return Lists(both, 42, sides), known, test, scores


def test_the_first_places_equal_a_plain_sort():
    lists, known, test, scores = bipartite()
    heads = lists.heads(test.flip(0))
    listed = lists.top(lambda edges: scores[edges[0], edges[1] - 12], heads, 5)
    seen = set(zip(*known.tolist(), strict=True))
    for user, row in zip(heads[0].tolist(), listed.tolist(), strict=True):
        items = [item for item in lists.pool.tolist() if (user, item) not in seen]
        assert row == sorted(items, key=lambda item: -scores[user, item - 12])[:5]


def test_quality_equals_its_definition():
    lists, _, test, scores = bipartite(1)
    heads = lists.heads(test)
    listed = lists.top(lambda edges: scores[edges[0], edges[1] - 12], heads, 5)
    found = lists.quality(listed, heads, test.flip(0))
    expected = {"ndcg@5": 0.0, "recall@5": 0.0, "hits@5": 0.0, "mrr@5": 0.0}
    for user, row in zip(heads[0].tolist(), listed.tolist(), strict=True):
        wanted = set(test[1, test[0] == user].tolist())
        hits = [place for place, item in enumerate(row) if item in wanted]
        best = sum(1 / math.log2(place + 2) for place in range(min(5, len(wanted))))
        expected["ndcg@5"] += sum(1 / math.log2(place + 2) for place in hits) / best
        expected["recall@5"] += len(hits) / len(wanted)
        expected["hits@5"] += bool(hits)
        expected["mrr@5"] += 1 / (hits[0] + 1) if hits else 0
    assert found == pytest.approx({name: value / heads.size(1) for name, value in expected.items()}, abs=1e-6)


def test_lists_of_triples_are_those_of_head_and_relation():
    known = torch.tensor([[0, 0, 1], [0, 1, 0], [2, 3, 4]])
    lists = Lists(known, 5)
    heads = lists.heads(known)
    assert heads.tolist() == [[0, 0, 1], [0, 1, 0]]
    listed = lists.top(lambda edges: -edges[2].double(), heads, 2)
    assert listed.tolist() == [[3, 4], [2, 4], [2, 3]]


def test_overlap_correlation_and_groups():
    assert overlap(torch.tensor([[1, 2, 3]]), torch.tensor([[3, 9, 1]])).tolist() == pytest.approx([2 / 3])
    assert rank_correlation(torch.arange(9.0), -torch.arange(9.0)) == pytest.approx(-1)
    groups = activity_groups(torch.tensor([3, 1, 2, 9, 8, 7, 5]))
    assert [part.tolist() for part in groups] == [[0, 1, 2], [5, 6], [3, 4]]
