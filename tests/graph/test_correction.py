"""A label or a feature that was wrong is forgotten, and the right one is learned."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.errors import DeletionError


def accounts(seed: int = 0, wrong: int = 12) -> tuple[Data, torch.Tensor, torch.Tensor]:
    """Accounts of two kinds, honest (0) and fraud (1), that trade with their own kind; some were labelled wrongly."""
    generator = torch.Generator().manual_seed(seed)
    count = 300
    kind = (torch.arange(count) % 3 == 0).long()
    pairs = torch.randint(count, (2, 6000), generator=generator)
    likely = torch.where(kind[pairs[0]] == kind[pairs[1]], 0.4, 0.1)
    pairs = torch.unique(pairs[:, torch.rand(6000, generator=generator) < likely], dim=1)
    pairs = pairs[:, pairs[0] < pairs[1]]
    x = torch.randn(count, 8, generator=generator) + kind[:, None]
    train = torch.rand(count, generator=generator) < 0.6
    data = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=kind.clone(), train_mask=train)
    data.val_mask = ~train & (torch.rand(count, generator=generator) < 0.5)
    data.test_mask = ~train & ~data.val_mask
    honest = (train & (kind == 0)).nonzero().flatten()[:wrong]
    data.y[honest] = 1
    return data, honest, torch.zeros_like(honest)


def fit(model, data, seed):  # type: ignore[no-untyped-def]
    gd.train(model, data, "node", epochs=80, lr=0.02, seed=seed, validate_every=80)
    return model


def test_a_corrected_label_is_in_the_remaining_graph_and_trained_on() -> None:
    data, nodes, right = accounts()
    deletion = gd.Deletion(labels=nodes, replace=right)
    remaining = deletion.remaining(data)
    assert bool((remaining.y[nodes] == 0).all())
    assert torch.equal(remaining.train_mask, data.train_mask)
    forgotten = gd.Deletion(labels=nodes[:1]) | gd.Deletion(labels=nodes[1:2], replace=0)
    remaining = forgotten.remaining(data)
    assert remaining.y[nodes[:2]].tolist() == [-1, 0]
    assert remaining.train_mask[nodes[:2]].tolist() == [False, True]
    assert gd.Deletion.from_lists(forgotten.to_lists()) == forgotten
    assert forgotten != gd.Deletion(labels=nodes[:2])


@pytest.mark.parametrize("count", [12, 1])
def test_the_new_label_is_learned_like_by_retraining(count: int) -> None:
    data, nodes, right = accounts()
    torch.manual_seed(0)
    model = fit(gd.models.GCN(8, hidden=32, out=2), data, 0)
    deletion = gd.Deletion(labels=nodes[:count], replace=right[:count])
    unlearned = gd.Unlearner(model, data, task="node").delete(deletion)
    retrained = gd.Unlearner(model, data, task="node", method="retrain", fit=fit).delete(deletion)
    before = gd.Unlearner(model, data, task="node", method="unlink").delete(deletion)
    scores = {
        name: each.evaluate() for name, each in (("after", unlearned), ("retrain", retrained), ("before", before))
    }
    assert scores["after"]["corrected_accuracy"] >= scores["retrain"]["corrected_accuracy"] - 0.1
    assert scores["after"]["corrected_accuracy"] >= scores["before"]["corrected_accuracy"]
    assert scores["after"]["test_accuracy"] >= scores["before"]["test_accuracy"] - 0.03
    assert "corrected label" in unlearned.calibration["sentence"]


def test_a_fixed_lam_pulls_to_the_new_class_alone() -> None:
    data, nodes, right = accounts()
    torch.manual_seed(0)
    model = fit(gd.models.GCN(8, hidden=32, out=2), data, 0)
    unlearned = gd.Unlearner(model, data, task="node", method=gd.GNNDelete(lam=0.9)).delete(
        gd.Deletion(labels=nodes, replace=right)
    )
    before, after = gd.Unlearner(model, data, task="node", method="unlink").delete(gd.Deletion(labels=nodes)), unlearned
    others = torch.ones(300, dtype=torch.bool).index_fill(0, nodes, False)
    assert torch.equal(before.output()[others], after.output()[others])
    assert after.predict(nodes)[:, 0].mean() > before.predict(nodes)[:, 0].mean()


def test_features_are_replaced_cell_by_cell() -> None:
    data, _, _ = accounts()
    remaining = gd.Deletion(features=[(8, 1), (3, 0)], replace=[7.0, 5.0]).remaining(data)
    assert remaining.x[8, 1] == 7.0
    assert remaining.x[3, 0] == 5.0
    assert torch.equal(remaining.x[4], data.x[4])


def test_names_of_nodes_and_types() -> None:
    ids = gd.datasets.IdMap(["a", "b", "c"])
    assert gd.Deletion(labels=["c", "a"], replace=[1, 0], ids=ids).new_labels.tolist() == [[0, 2], [0, 1]]
    typed = gd.Deletion(labels={"account": [2]}, replace={"account": [1]})
    assert typed.by_type["account"].new_labels.tolist() == [[2], [1]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"replace": 1}, "neither labels= nor features= is given"),
        ({"labels": [1], "features": [2], "replace": 1}, "both labels= and features= are given"),
        ({"labels": [1, 2], "replace": [0, 1, 1]}, "3 classes for 2 labels"),
        ({"labels": [1, 1], "replace": [0, 1]}, "is to be replaced by 0, 1"),
        ({"labels": [1], "replace": [-1]}, "replace"),
        ({"features": [(1, 0)], "replace": [1.0, 2.0]}, "2 numbers for 1 pairs"),
        ({"features": [1, 2], "replace": [1.0, 2.0]}, "name pairs"),
        ({"features": [(1, 0)], "fill": 2.0, "replace": [1.0]}, "leave out fill="),
    ],
)
def test_what_cannot_be_replaced(arguments: dict, said: str) -> None:
    with pytest.raises(DeletionError, match=said):
        gd.Deletion(**arguments)


def test_a_class_must_be_there_and_another_one() -> None:
    data, nodes, _ = accounts()
    with pytest.raises(DeletionError, match="names the class 7, and 'y' has the classes 0 to 1"):
        gd.Deletion(labels=nodes[:1], replace=7).check(data)
    with pytest.raises(DeletionError, match="what they are already"):
        gd.Deletion(labels=nodes[:1], replace=1).check(data)
