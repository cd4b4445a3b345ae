"""Graph classification: parts, losses for one column and several, scores, predictions, and what is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import nn
from torch_geometric.data import Data

from gnndelete.errors import GraphError, ModelError, NotYetError, SettingError
from gnndelete.graph.batch import collate
from gnndelete.tasks import GraphClassification, resolver

EDGE = torch.tensor([[0, 1], [1, 0]])


def batch(labels, **parts):
    data = collate([Data(x=torch.ones(2, 1), edge_index=EDGE, y=torch.as_tensor(y).view(1, -1)) for y in labels])
    return collate(data, parts) if parts else data


def test_by_name():
    assert isinstance(resolver.make("graph"), GraphClassification)


def test_parts_by_masks_by_ids_and_by_default():
    data = batch([0, 1, 0, 1, 0, 1], train=[0, 1], validation=[2, 3], test=[4])
    ids = GraphClassification(train=[0, 1], validation=[2, 3], test=[4])
    for task, graphs in ((GraphClassification(), data), (ids, batch([0, 1, 0, 1, 0, 1]))):
        found = [task.part(graphs, part).nonzero().flatten().tolist() for part in ("train", "val", "test")]
        assert found == [[0, 1], [2, 3], [4]]
        assert task.part(graphs.select([3, 4]), "val").tolist() == [True, False]
    assert GraphClassification(validation=[2, 3], test=[4]).part(batch([0] * 6), "train").tolist() == [
        True, True, False, False, False, True,
    ]  # fmt: skip


def test_unlabelled_graphs_are_in_no_part():
    for labels in ([0, 1, -1], [0.0, 1.0, float("nan")]):
        data = batch(labels, train=[0, 1, 2])
        assert GraphClassification().part(data, "train").tolist() == [True, True, False]
        assert GraphClassification().labels(data).tolist() == [0, 1, -1]


def test_one_column_is_two_classes():
    data, task = batch([0.0, 1.0, 1.0, float("nan")], train=[0, 1, 3], test=[0, 1, 2]), GraphClassification()
    one = torch.tensor([[-1.0], [2.0], [0.5], [9.0]])
    two = torch.cat([torch.zeros_like(one), one], dim=1)
    assert torch.allclose(task.loss(nn.Identity(), one, data), task.loss(nn.Identity(), two, data))
    expected = F.binary_cross_entropy_with_logits(one[:2, 0], torch.tensor([0.0, 1.0]))
    assert torch.allclose(task.loss(nn.Identity(), one, data), expected)
    chances = task.predict(nn.Identity(), one, [2, 0])
    assert torch.allclose(chances, task.predict(nn.Identity(), two, [2, 0]))
    assert task.predict(nn.Identity(), two, []).shape == (0, 2)
    assert torch.allclose(chances.sum(dim=1), torch.ones(2))
    assert task.evaluate(nn.Identity(), one, data)["auroc"] == 1.0


def test_auroc_is_that_of_the_logits_even_where_probabilities_saturate():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (60,), generator=generator)
    logits = 40 + 10 * torch.randn(60, 1, generator=generator) + y.view(-1, 1)
    found = GraphClassification(test=range(60), train=[0]).evaluate(nn.Identity(), logits, batch(y.tolist()))
    assert found["auroc"] == pytest.approx(roc_auc_score(y.numpy(), logits.view(-1).numpy()))


def test_validation_score_by_metric():
    data = batch([0, 1, 0, 1], validation=[0, 1, 2, 3])
    logits = torch.tensor([[3.0], [4.0], [1.0], [5.0]])  # all above 0: every guess is 1, and the order is perfect
    scores = {
        m: GraphClassification(metric=m).validate(nn.Identity(), logits, data) for m in ("auto", "auroc", "accuracy")
    }
    assert scores == {"auto": 1.0, "auroc": 1.0, "accuracy": 0.5}
    several = batch([0, 1, 2], validation=[0, 1, 2])
    assert GraphClassification().validate(nn.Identity(), torch.eye(3), several) == 1.0


def test_batches_hold_every_training_graph_once_and_follow_the_seed():
    data, task = batch([0, 1] * 10, train=range(17), test=range(17, 20)), GraphClassification()

    def epoch(seed, size):
        generator = torch.Generator().manual_seed(seed)
        return [part.graph_id.tolist() for part in task.batches(data, size, generator)]

    assert sorted(graph for part in epoch(0, 8) for graph in part) == list(range(17))
    assert min(len(part) for part in epoch(0, 8)) > 1
    assert epoch(0, 8) == epoch(0, 8) != epoch(1, 8)
    assert epoch(0, None) == [list(range(17))]


def test_refusals():
    task, data = GraphClassification(), batch([0, 1])
    with pytest.raises(GraphError, match="many graphs"):
        task.check(Data(x=torch.ones(2, 1), edge_index=EDGE, y=torch.tensor([0, 1])))
    with pytest.raises(NotYetError, match="one column"):
        task.check(batch([[0, 1], [1, 1]]))
    with pytest.raises(NotYetError, match="regression"):
        task.check(batch([0.5, 1.0]))
    with pytest.raises(GraphError, match="needs 'y'"):
        task.check(collate([Data(x=torch.ones(2, 1), edge_index=EDGE)] * 2))
    with pytest.raises(GraphError, match="left to train on"):
        task.check(batch([-1, -1]))
    wrong = batch([0, 1])
    wrong.train_mask = torch.ones(4, dtype=torch.bool)
    with pytest.raises(GraphError, match=r"one entry per graph, \[2\]"):
        task.check(wrong)
    with pytest.raises(ModelError, match="pool the nodes"):
        task.loss(nn.Identity(), torch.ones(4, 2), data)
    with pytest.raises(ModelError, match="class 3"):
        task.loss(nn.Identity(), torch.ones(2, 2), batch([0, 3]))
    with pytest.raises(GraphError, match="test"):
        task.evaluate(nn.Identity(), torch.ones(2, 2), data)
    with pytest.raises(SettingError, match="no graph 2"):
        task.predict(nn.Identity(), torch.ones(2, 2), [2])
    with pytest.raises(SettingError, match="metric"):
        GraphClassification(metric="f1")  # type: ignore[arg-type]
