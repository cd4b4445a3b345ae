"""Typed links: splits without leaks, and negatives that are false and keep their relation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gnndelete.datasets import TripleCorrupter, forget_edges, split_links, training_edges
from gnndelete.errors import GraphError, SettingError


@st.composite
def typed_graphs(draw):
    nodes, relations = draw(st.integers(12, 30)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    count = draw(st.integers(20, 60))
    return Data(
        edge_index=torch.randint(nodes, (2, count), generator=generator),
        edge_type=torch.randint(relations, (count,), generator=generator),
        edge_attr=torch.arange(count).float(),
        num_nodes=nodes,
    )


def triples(data: Data) -> list[tuple[int, ...]]:
    return list(zip(data.edge_index[0].tolist(), data.edge_type.tolist(), data.edge_index[1].tolist(), strict=True))


def columns(edges: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(column) for column in edges.t().tolist()]


@given(typed_graphs(), st.integers(0, 50))
def test_typed_links_are_split_without_leaks(data, seed):
    split = split_links(data, seed=seed, val=0.2, test=0.2)
    kept, held = set(triples(split.data)), [*columns(split.validation), *columns(split.test)]
    assert not kept & set(held)
    assert len(held) == len(set(held))
    assert kept | set(held) == set(triples(data))
    assert split.data.edge_attr.size(0) == split.data.edge_type.size(0) == split.data.num_edges
    false = [*columns(split.validation_negatives), *columns(split.test_negatives)]
    assert len(false) == len(held)
    assert not set(false) & set(triples(data))
    assert [t[1] for t in false] == [t[1] for t in held]
    again = split_links(data, seed=seed, val=0.2, test=0.2)
    assert torch.equal(split.test, again.test)
    assert torch.equal(split.test_negatives, again.test_negatives)


def test_the_split_a_graph_came_with_is_taken():
    data = Data(
        edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), edge_type=torch.tensor([0, 1, 0, 1]), num_nodes=9
    )
    data.train_mask = torch.tensor([True, True, False, False])
    data.val_mask = torch.tensor([False, False, True, False])
    data.test_mask = torch.tensor([False, False, False, True])
    split = split_links(data, given=True)
    assert columns(split.validation) == [(2, 0, 3)]
    assert columns(split.test) == [(3, 1, 4)]
    assert triples(split.data) == [(0, 0, 1), (1, 1, 2)]
    assert "val_mask" not in split.data


@pytest.mark.parametrize("end", [0, 1])
def test_only_the_asked_end_changes(end):
    edges = torch.tensor([[0, 1, 2], [5, 6, 7]])
    true = torch.tensor([[0, 1, 2], [0, 0, 0], [5, 6, 7]])
    false = TripleCorrupter(edges, torch.zeros(3, dtype=torch.long), 8).corrupt(
        true, torch.Generator().manual_seed(1), end
    )
    same = 2 if end == 0 else 0
    assert torch.equal(false[same], true[same])
    assert not torch.equal(false[2 - same], true[2 - same])


def test_a_relation_that_everyone_has_is_refused():
    everyone = torch.arange(3)
    edges = torch.stack([everyone.repeat_interleave(3), everyone.repeat(3)])
    corrupter = TripleCorrupter(edges, torch.zeros(9, dtype=torch.long), 3)
    with pytest.raises(GraphError, match="every entity"):
        corrupter.corrupt(torch.tensor([[0], [0], [1]]))


def test_forget_sets_of_one_relation():
    generator = torch.Generator().manual_seed(0)
    data = Data(edge_index=torch.randint(20, (2, 80), generator=generator), num_nodes=20)
    data.edge_type = torch.arange(80) % 3
    chosen = forget_edges(data, 5, relation=1, seed=2)
    assert chosen.shape == (3, 5)
    assert set(chosen[1].tolist()) == {1}
    assert set(columns(chosen)) <= set(triples(data))
    assert training_edges(data).size(0) == 3
    with pytest.raises(SettingError, match="relation 9"):
        forget_edges(data, 5, relation=9)
    with pytest.raises(SettingError, match="no 'edge_type'"):
        forget_edges(Data(edge_index=data.edge_index, num_nodes=20), 5, relation=1)
