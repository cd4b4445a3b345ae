"""Pooled models: sums and means per graph, deleted nodes left out, integer features, resets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gnndelete.errors import GraphError, SettingError
from gnndelete.models import GCN, Categories, Pooled, build
from gnndelete.nn.reset import fresh

EDGES = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
BATCH = torch.tensor([0, 0, 1, 1, 1])


class Rows(nn.Module):
    """Rows as they are, and whatever else came along."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor | None = None) -> torch.Tensor:
        self.seen = batch
        return x


@pytest.mark.parametrize("pool", ["mean", "add"])
def test_pool_per_graph_without_deleted_nodes(pool: str) -> None:
    model = Pooled(Rows(), 2, 2, pool=pool)
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(2))
        model.head.bias.zero_()
    x = torch.rand(5, 2)
    expected = getattr(x[2:], "mean" if pool == "mean" else "sum")(dim=0)
    assert torch.allclose(model(x, EDGES, BATCH)[1], expected)
    alive = torch.tensor([False, False, True, True, False])
    some = model(x, EDGES, BATCH, alive)
    assert torch.allclose(some[1], getattr(x[2:4], "mean" if pool == "mean" else "sum")(dim=0))
    assert some[0].tolist() == [0, 0]  # nothing of it is left
    assert model(x, EDGES, BATCH, num_graphs=4).shape == (4, 2)
    assert model(x, EDGES).shape == (1, 2)


def test_an_encoder_that_takes_batch_gets_it() -> None:
    model = Pooled(Rows(), 2, 2)
    model(torch.rand(5, 2), EDGES, BATCH)
    assert model.encoder.seen is BATCH


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_a_model_of_given_nodes_is_not_pooled(name: str) -> None:
    with pytest.raises(SettingError, match=r"every node it was made for.*take gcn, gat, gin, gps or graphormer"):
        build(name, 2, pool="mean")


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "gps", "graphormer"])
def test_every_weight_can_be_drawn_anew(name: str) -> None:
    model = build(name, 2, out=3, pool="add", categories=[4, 5], hidden=8)
    x = torch.stack([torch.tensor([3, 0, 1, 2, 0]), torch.tensor([4, 0, 1, 2, 3])], dim=1)
    assert model(x, EDGES, BATCH).shape == (2, 3)
    a, b = fresh(model, 1), fresh(model, 2)
    assert not torch.equal(a.embed.tables[0].weight, b.embed.tables[0].weight)
    assert not torch.equal(a.head.weight, b.head.weight)


def test_categories_are_a_sum_of_embeddings() -> None:
    embed = Categories([4, 5], 3)
    x = torch.tensor([[3, 4], [0, 1]])
    assert torch.allclose(embed(x), embed.tables[0](x[:, 0]) + embed.tables[1](x[:, 1]))
    assert Categories.sizes(x) == [4, 5]
    with pytest.raises(GraphError, match="2 columns"):
        embed(torch.ones(2, 2))


def test_norm_between_layers_is_only_there_when_asked_for() -> None:
    assert not any(isinstance(module, nn.BatchNorm1d) for module in GCN(4).modules())
    assert sum(isinstance(module, nn.BatchNorm1d) for module in GCN(4, num_layers=3, norm=True).modules()) == 2


def test_errors() -> None:
    with pytest.raises(SettingError, match="'mean' or 'add'"):
        build("gcn", 2, pool="max")
    with pytest.raises(SettingError, match="in_channels"):
        Pooled(Rows(), 2, 2, categories=[3])
