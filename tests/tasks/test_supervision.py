"""Training edges and non-edges, on typed graphs: triples throughout, negatives of the same relation that are never true."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data

from gnndelete import LinkPrediction
from gnndelete.datasets import split_links, triples, with_reverse
from gnndelete.errors import GraphError, ModelError, NotYetError, SettingError
from gnndelete.tasks.supervision import SupervisionCache, positives


class Typed(nn.Module):
    """Nothing but relations."""

    def __init__(self, relations: int = 3, width: int = 4) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.randn(relations, width, generator=torch.Generator().manual_seed(0)))


@st.composite
def graphs(draw):
    nodes, relations = draw(st.integers(12, 30)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    count = draw(st.integers(20, 60))
    edges = torch.randint(nodes, (2, count), generator=generator)
    return Data(edge_index=edges, edge_type=torch.randint(relations, (count,), generator=generator), num_nodes=nodes)


def columns(edges: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(column) for column in edges.t().tolist()}


@given(graphs(), st.integers(0, 20))
def test_training_negatives_are_false_and_keep_their_relation(data: Data, seed: int) -> None:
    supervision = SupervisionCache().of(data)
    false = supervision.negatives(torch.Generator().manual_seed(seed))
    true = supervision.positives
    assert not columns(false) & columns(triples(data))
    assert torch.equal(false[1], true[1])
    changed = false != true
    assert not bool((changed[0] & changed[2]).any())
    assert bool((true[0] != true[2]).all())  # self-loops are not trained on, as elsewhere
    again = supervision.negatives(torch.Generator().manual_seed(seed))
    assert torch.equal(false, again)


@given(graphs(), st.integers(0, 20))
def test_evaluation_is_filtered(data: Data, seed: int) -> None:
    split = split_links(data, seed=seed, val=0.2, test=0.2)
    task = LinkPrediction(validation=split.validation, test=split.test, decoder="distmult", seed=seed)
    task.check(split.data)
    for part in (task.validation, task.test):
        assert not columns(part.negatives) & columns(triples(data))
        assert torch.equal(part.negatives[1], part.positives[1])
    if split.test.size(1) and split.validation.size(1):
        scores = task.evaluate(Typed(), torch.randn(data.num_nodes, 4), split.data)
        assert scores.keys() == {"auroc", "auprc"}


def test_without_nodes_looks_at_the_ends_alone() -> None:
    task = LinkPrediction(validation=[(0, 1, 2), (3, 1, 4)], test=[(1, 0, 2)])
    kept = task.without(torch.tensor([1]))
    assert kept.validation is not None
    assert columns(kept.validation.positives) == {(0, 1, 2), (3, 1, 4)}  # relation 1 is not node 1
    assert kept.test is None


def test_training_triples_are_those_without_reverses() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [2, 3]]), edge_type=torch.tensor([1, 0]), num_nodes=4)
    both = with_reverse(data)
    assert torch.equal(positives(both), positives(data))
    assert torch.equal(SupervisionCache().of(both).positives, triples(data))


def test_another_edge_type_is_noticed() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [2, 3]]), edge_type=torch.tensor([1, 0]), num_nodes=4)
    cache = SupervisionCache()
    assert cache.of(data) is cache.of(data)
    before = cache.of(data)
    data.edge_type = torch.tensor([0, 0])
    assert cache.of(data) is not before
    assert cache.of(data).positives[1].tolist() == [0, 0]


def test_errors() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [2, 3]]), edge_type=torch.tensor([1, 0]), num_nodes=4)
    z = torch.randn(4, 4)
    with pytest.raises(GraphError, match=r"'test' holds pairs.*triples"):
        LinkPrediction(test=[(0, 1)]).check(data)
    with pytest.raises(GraphError, match=r"'validation' names node 9.*0 to 3"):
        LinkPrediction(validation=[(0, 0, 9)]).check(data)
    with pytest.raises(ModelError, match="'relation'"):
        LinkPrediction(decoder="distmult").predict(nn.Identity(), z, [(0, 0, 1)])
    with pytest.raises(GraphError, match="pairs were given"):
        LinkPrediction(decoder="distmult").predict(Typed(), z, [(0, 1)])
    with pytest.raises(GraphError, match=r"relation 7.*has 3"):
        LinkPrediction(decoder="distmult").predict(Typed(), z, [(0, 7, 1)])
    with pytest.raises(SettingError, match=r"\[2, k\] \(or \[3, k\] for triples\)"):
        LinkPrediction(test=torch.zeros(4, 4, dtype=torch.long))
    labelled = data.__copy__()
    labelled.edge_label_index = data.edge_index
    with pytest.raises(NotYetError, match="edge_label_index"):
        LinkPrediction().check(labelled)
    with pytest.raises(GraphError, match="no triples to learn"):
        SupervisionCache().of(Data(edge_index=torch.tensor([[0], [0]]), edge_type=torch.tensor([0]), num_nodes=2))
