"""Messages grouped by receiver and relation: means and sums as a loop would give them, derivatives of any order."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnndelete.models.grouping import Grouping


@st.composite
def messages(draw):
    nodes, relations, edges = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.integers(0, 30))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    index = torch.randint(nodes, (2, edges), generator=generator)
    kind = torch.randint(relations, (edges,), generator=generator)
    return index, kind, torch.randn(nodes, 3, dtype=torch.double, generator=generator)


@given(messages())
def test_one_row_for_every_node_and_relation_that_meet(given_) -> None:
    index, kind, x = given_
    grouping = Grouping(index, kind, x.size(0))
    means, sums = grouping.mean(x), grouping.sum(x[index[0]])
    pairs = sorted(set(zip(kind.tolist(), index[1].tolist(), strict=True)))
    assert [target for _, target in pairs] == grouping.target.tolist()
    assert sum(grouping.per_relation) == len(pairs)
    for row, (relation, target) in enumerate(pairs):
        heard = x[index[0][(kind == relation) & (index[1] == target)]]
        torch.testing.assert_close(means[row], heard.mean(dim=0))
        torch.testing.assert_close(sums[row], heard.sum(dim=0))


@given(messages())
def test_derivatives(given_) -> None:
    index, kind, x = given_
    grouping = Grouping(index, kind, x.size(0))
    assert torch.autograd.gradcheck(grouping.mean, x.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda h: grouping.mean(h).square(), x)
