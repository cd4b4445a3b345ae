"""Batches of one graph: with all neighbours they say what the whole graph says, and models that cannot be divided are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, SAGEConv

import gnndelete as gd
from gnndelete.errors import ModelError, SettingError
from gnndelete.nn.forward import call, evaluating
from gnndelete.training.minibatches import Neighborhoods

TYPED = "generated:biokg?entities=300&triples=900&relations=4&community=50"
PLAIN = "generated:collab?nodes=300&edges=900&features=8&community=30"


def typed(name: str = "rgcn", **options: object) -> tuple[nn.Module, gd.datasets.LinkSplit, gd.LinkPrediction]:
    split = gd.datasets.split_links(gd.datasets.load(TYPED), seed=0)
    torch.manual_seed(0)
    sizes = {"embedding": 16, "hidden": 16, "out": 8}
    model = gd.models.build(name, num_nodes=300, num_relations=4, **sizes, **options)
    return model, split, gd.LinkPrediction(validation=split.validation, test=split.test, decoder="distmult")


def plain(name: str = "gcn", **options: object) -> tuple[nn.Module, Data]:
    torch.manual_seed(0)
    return gd.models.build(name, 8, **options), gd.datasets.split_nodes(gd.datasets.load(PLAIN))


class Table(nn.Module):
    """A row of its own for every node, and nothing to say which rows a batch has."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.rows, self.conv = nn.Parameter(torch.randn(nodes, 8)), GCNConv(8, 8)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x + self.rows[: x.size(0)], edge_index)


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
@pytest.mark.parametrize("reverse", [True, False])
def test_all_neighbours_of_typed_seeds_say_what_the_whole_graph_says(name: str, reverse: bool) -> None:
    model, split, _ = typed(name, reverse=reverse)
    parts = Neighborhoods(model, split.data, call, num_neighbors=-1)
    seeds = torch.randperm(300, generator=torch.Generator().manual_seed(1))[:10]
    with evaluating(model):
        whole, batch = call(model, split.data), parts.around(seeds)
        assert batch.num_nodes < 300
        torch.testing.assert_close(call(model, batch)[:10], whole[seeds], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", [*(plain(name)[0] for name in ("gcn", "gat", "gin")), APPNP(3, 0.1)], ids=repr)
def test_all_neighbours_of_plain_seeds_say_what_the_whole_graph_says(model: nn.Module) -> None:
    data, seeds = plain()[1], torch.tensor([7, 3, 250])
    with evaluating(model):
        part = call(model, Neighborhoods(model, data, call, num_neighbors=-1).around(seeds))
        torch.testing.assert_close(part[:3], call(model, data)[seeds], rtol=1e-4, atol=1e-5)


def test_an_epoch_covers_every_triple_once_and_its_negatives_are_false() -> None:
    model, split, task = typed()
    data = split.data
    parts, generator = Neighborhoods(model, data, call, seed=3), torch.Generator().manual_seed(0)
    found, false = [], []
    for batch in task.batches(data, 64, generator, parts.around):
        links = task._supervision.of(batch)
        for store, edges in ((found, links.positives), (false, links.negatives())):
            store.append(torch.stack([batch.n_id[edges[0]], edges[1], batch.n_id[edges[2]]]))
    known = gd.datasets.triples(data).t().tolist()
    assert sorted(torch.cat(found, dim=1).t().tolist()) == sorted(known)
    drawn = torch.cat(false, dim=1).t().tolist()
    assert len(drawn) == len(known)
    assert not {tuple(t) for t in drawn} & {tuple(t) for t in known}


def test_with_all_neighbours_the_loss_of_one_batch_of_everything_is_that_of_the_whole_graph() -> None:
    model, split, task = typed()
    parts = Neighborhoods(model, split.data, call, num_neighbors=-1)
    (batch,) = task.batches(split.data, 10_000, torch.Generator().manual_seed(0), parts.around)
    with evaluating(model):
        part = task.loss(model, call(model, batch), batch)
        whole = task.loss(model, call(model, split.data), split.data, torch.Generator().manual_seed(0))
    torch.testing.assert_close(part, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_training_by_batches_learns(name: str) -> None:
    model, split, task = typed(name)
    generator = torch.Generator

    def loss() -> float:
        with evaluating(model):
            return float(task.loss(model, call(model, split.data), split.data, generator().manual_seed(5)))

    before, state = loss(), torch.random.get_rng_state()
    result = gd.train(model, split.data, task, epochs=4, lr=0.01, batch_size=200, validate_every=2)
    assert loss() < before - 0.05
    assert result.best_score is not None
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_seed_means_the_same_model() -> None:
    def trained(seed: int) -> torch.Tensor:
        model, split, task = typed()
        gd.train(model, split.data, task, epochs=2, lr=0.01, batch_size=150, num_neighbors=[3, 2], seed=seed)
        return model.entity.detach()

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


def test_nodes_by_batches() -> None:
    model, data = plain(out=10)
    before = gd.evaluate(model, data, gd.NodeClassification())["accuracy"]
    gd.train(model, data, "node", epochs=8, lr=0.02, batch_size=50)
    assert gd.evaluate(model, data, gd.NodeClassification())["accuracy"] > before + 0.1


def test_the_graph_is_left_as_it_was_and_attributes_go_along() -> None:
    _, data = plain()
    data.edge_weight, data.name = torch.arange(data.num_edges).float(), "as it is"
    keys = dict(data.to_dict())
    batch = Neighborhoods(GCNConv(8, 8), data, call).around(torch.tensor([5, 9]))
    assert batch.n_id[:2].tolist() == [5, 9]
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.edge_weight.long()])
    assert batch.name == "as it is"
    assert data.to_dict().keys() == keys.keys()
    assert all(data[key] is value for key, value in keys.items())


@pytest.mark.parametrize("task", ["link", "node"])
def test_validation_by_batches_where_the_whole_graph_does_not_fit(task: str) -> None:
    model, data = plain(out=10)
    whole_runs = []

    def forward(model: nn.Module, part: Data) -> torch.Tensor:
        if part.num_nodes == 300 and not model.training and part.edge_index.size(1) == data.num_edges:
            whole_runs.append(1)
            raise torch.OutOfMemoryError("no room")
        return model(part.x, part.edge_index)

    if task == "link":
        split = gd.datasets.split_links(data, seed=0)
        data, chosen = (
            split.data,
            gd.LinkPrediction(validation=split.validation, validation_negatives=split.validation_negatives),
        )
    else:
        chosen = gd.NodeClassification()
    options = {"epochs": 2, "validate_every": 1, "batch_size": 40, "num_neighbors": -1}
    result = gd.train(model, data, chosen, forward=forward, **options)
    assert whole_runs == [1]  # tried once
    with evaluating(model):
        assert result.best_score == pytest.approx(chosen.validate(model, call(model, data), data), abs=1e-3)


def test_models_that_cannot_be_divided_are_refused() -> None:
    _, data = plain()
    with pytest.raises(ModelError, match=r"one row for each of the 300 nodes \('rows'\).*n_id"):
        gd.train(Table(300), data, "node", batch_size=20)
    with pytest.raises(ModelError, match=r"every node depends on every other.*batch_size"):
        gd.train(plain("gps", hidden=8, out=10)[0], data, "node", batch_size=20)
    with pytest.raises(ModelError, match=r"could not be measured.*num_neighbors"):
        gd.train(nn.Sequential(nn.Linear(8, 10)), data, "node", batch_size=20, forward=lambda m, d: m(d.x))
    with pytest.raises(SettingError, match=r"num_neighbors.*batch_size"):
        gd.train(plain(out=10)[0], data, "node", num_neighbors=3)
    with pytest.raises(SettingError, match="num_neighbors"):
        gd.train(plain(out=10)[0], data, "node", batch_size=20, num_neighbors=0)


def test_a_width_that_happens_to_be_the_number_of_nodes_is_no_table() -> None:
    data = gd.datasets.load("generated:collab?nodes=64&edges=200&features=8&community=16")
    model = gd.models.build("gcn", 8, hidden=64, out=10)
    assert any(parameter.size(0) == 64 for parameter in model.parameters())
    assert Neighborhoods(model, data, call).around(torch.tensor([0])).num_nodes > 0


def test_a_model_that_reads_against_the_edges_sees_them_in_a_batch():
    torch.manual_seed(0)
    edges = torch.randint(0, 60, (2, 150))
    data = Data(x=torch.randn(60, 4), edge_index=edges[:, edges[0] != edges[1]].unique(dim=1))

    class Back(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(4, 2, flow="target_to_source")

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    model = Back().eval()
    batch = Neighborhoods(model, data, call, -1).around(torch.arange(10))
    with torch.no_grad():
        torch.testing.assert_close(call(model, batch)[:10], call(model, data)[:10])
