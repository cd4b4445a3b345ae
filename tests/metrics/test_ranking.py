"""The one AUC, and filtered ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from gnndelete.errors import GraphError, RunError
from gnndelete.metrics.ranking import auc, filtered_ranks, filtered_scores, share_below


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_the_auc_is_scikit_learns_for_arrays_and_tensors(high: list[int], low: list[int]) -> None:
    arrays = np.array(high, dtype=float), np.array(low, dtype=float)
    expected = roc_auc_score([1] * len(high) + [0] * len(low), high + low)
    assert auc(*arrays) == pytest.approx(expected, abs=1e-12)
    assert auc(*(torch.tensor(part).float() for part in (high, low))) == auc(*arrays)
    assert share_below(*arrays).mean() == pytest.approx(expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_not_finite_are_refused_whoever_asks(bad: float) -> None:
    for make in (np.array, torch.tensor):
        with pytest.raises(RunError, match="1 of 3 scores are not finite"):
            auc(make([bad, 1.0]), make([0.0]))


def test_nothing_ranks_above_nothing() -> None:
    with pytest.raises(GraphError, match="elements of both kinds"):
        auc(np.zeros(0), np.zeros(3))


def test_filtered_ranks_leave_out_what_is_known() -> None:
    z = torch.tensor([[4.0], [3.0], [2.0], [1.0]])
    relation = torch.tensor([[1.0]])
    known = torch.tensor([[0, 1, 2], [0, 0, 0], [3, 3, 3]])
    ranks = filtered_ranks(z, relation, torch.tensor([[2], [0], [3]]), known)
    assert ranks.tolist() == [[1.0], [4.0]]  # heads 0 and 1 are true as well; among tails 0, 1 and 2 stand above 3
    scores = filtered_scores(z, relation, torch.tensor([[2], [0], [3]]), known)
    assert scores["mrr"] == pytest.approx((1 + 1 / 4) / 2)
    assert scores["hits@1"] == 0.5
    assert scores["hits@10"] == 1.0


@given(st.integers(2, 8), st.integers(1, 20), st.integers(0, 1000))
def test_filtered_ranks_are_what_a_plain_loop_gives(nodes: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, relation = torch.randn(nodes, 3, generator=generator), torch.randn(3, 3, generator=generator)
    known = torch.stack([torch.randint(high, (count,), generator=generator) for high in (nodes, 3, nodes)])
    true = {tuple(triple) for triple in known.t().tolist()}
    asked = known[:, :5]
    ranks = filtered_ranks(z, relation, asked, known, chunk=2)
    for place, (head, kind, tail) in enumerate(asked.t().tolist()):
        own = float((z[head] * relation[kind] * z[tail]).sum())
        for end in (0, 1):
            above = 0.0
            for node in range(nodes):
                other = (node, kind, tail) if end == 0 else (head, kind, node)
                if other in true:
                    continue
                above += float((z[other[0]] * relation[kind] * z[other[2]]).sum()) > own
            assert ranks[end, place] == 1 + above
