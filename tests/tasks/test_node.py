"""Node classification, and the task that is only announced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data

from gnndelete.errors import GraphError, ModelError, NotYetError, SettingError
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, resolver

MODEL, TASK = nn.Identity(), NodeClassification()


def graph(**changes: Any) -> Data:
    """Six nodes, one of them unlabelled: two to train on, two to validate, one to test."""
    mask = torch.tensor([0, 0, 1, 1, 2, 2])
    parts = {f"{name}_mask": mask == index for index, name in enumerate(("train", "val", "test"))}
    base = {"x": torch.zeros(6, 2), "y": torch.tensor([0, 1, 1, 0, 2, -1]), **parts}
    return Data(**(base | {"edge_index": torch.tensor([[0], [1]])} | changes))


def test_loss_uses_labelled_training_nodes() -> None:
    logits = torch.randn(6, 3)
    assert torch.equal(TASK.loss(MODEL, logits, graph()), F.cross_entropy(logits[:2], torch.tensor([0, 1])))
    rest = graph(train_mask=None)
    assert torch.equal(TASK.loss(MODEL, logits, rest), F.cross_entropy(logits[:2], torch.tensor([0, 1])))
    bare = graph(train_mask=None, val_mask=None, test_mask=None)
    assert torch.equal(TASK.loss(MODEL, logits, bare), F.cross_entropy(logits[:5], bare.y[:5]))


def test_scores() -> None:
    logits = F.one_hot(torch.tensor([0, 0, 1, 1, 2, 0]), 3).float()
    assert TASK.validate(MODEL, logits, graph()) == 0.5
    assert TASK.evaluate(MODEL, logits, graph()) == {"accuracy": 1.0, "f1": 1.0}
    everywhere = torch.ones(6, dtype=torch.bool)
    scores = TASK.evaluate(MODEL, logits, graph(test_mask=everywhere))
    assert scores["accuracy"] == pytest.approx(3 / 5)
    assert scores["f1"] == pytest.approx((0.5 + 0.5 + 1) / 3)


def test_predict_gives_probabilities() -> None:
    logits = torch.randn(6, 3)
    found = TASK.predict(MODEL, logits, [4, 0])
    assert torch.allclose(found.sum(dim=1), torch.ones(2))
    assert torch.equal(found[1], logits[0].softmax(dim=0))
    assert torch.allclose(TASK.predict(MODEL, logits.log_softmax(dim=1), [4, 0]), found)
    assert TASK.predict(MODEL, logits, []).shape == (0, 3)


@pytest.mark.parametrize("task", [TASK, GraphClassification(), LinkPrediction()], ids=lambda task: task.name)
def test_what_is_no_id_is_answered_in_one_sentence(task: Any) -> None:
    asked = [("a", "b")] if task.name == "link" else ["a"]
    with pytest.raises(SettingError, match=r"holds strings.*, for example 'a'; ids are integers"):
        task.predict(MODEL, torch.randn(6, 3), asked)


def test_validation_is_optional() -> None:
    assert TASK.validates(graph())
    assert not TASK.validates(graph(val_mask=None))
    assert not TASK.validates(graph(val_mask=torch.zeros(6, dtype=torch.bool)))
    with pytest.raises(GraphError, match="val_mask"):
        TASK.validate(MODEL, torch.randn(6, 3), graph(val_mask=None))


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"y": None}, GraphError, "'y'"),
        ({"y": torch.zeros(5, dtype=torch.long)}, GraphError, "5 entries.*6 nodes"),
        ({"y": torch.rand(6, 3)}, NotYetError, "several labels"),
        ({"train_mask": torch.tensor([0, 1])}, GraphError, "'train_mask' must be a bool"),
        ({"val_mask": torch.ones(6, 10, dtype=torch.bool)}, GraphError, "several splits"),
        ({"y": torch.full((6,), -1)}, GraphError, "no labelled node"),
    ],
)
def test_check_names_what_is_wrong(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        TASK.check(graph(**changes))


def test_column_labels_are_accepted() -> None:
    column = graph(y=torch.tensor([[0], [1], [1], [0], [2], [-1]]))
    TASK.check(column)
    output = torch.randn(6, 3)
    flat = graph(y=column.y.view(-1))
    assert torch.equal(TASK.loss(MODEL, output, column), TASK.loss(MODEL, output, flat))


def test_model_must_fit() -> None:
    with pytest.raises(ModelError, match=r"\[5, 3\]"):
        TASK.loss(MODEL, torch.randn(5, 3), graph())
    with pytest.raises(ModelError, match=r"class 2.*2 columns"):
        TASK.loss(MODEL, torch.randn(6, 2), graph())


def test_by_name() -> None:
    assert isinstance(resolver.make("Node"), NodeClassification)
    assert {kind.name for kind in resolver} == {"link", "ranking", "node", "graph"}


@pytest.mark.parametrize("task", [NodeClassification(), GraphClassification()], ids=lambda task: task.name)
def test_probabilities_of_a_model_are_given_as_they_are(task: Any) -> None:
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)) * 5
    own, asked = logits.softmax(dim=-1), [4, 7]
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert torch.equal(task.predict(MODEL, own.to(dtype), asked), own[asked].to(dtype))
    for other in (logits, logits.log_softmax(dim=-1)):
        assert torch.allclose(task.predict(MODEL, other, asked), own[asked])
    moved = own.clone()
    moved[0] = torch.tensor([0.3, 0.9, -0.2])  # a row that an operator moved
    assert torch.equal(task.predict(MODEL, moved, asked), own[asked])
    assert torch.allclose(task.predict(MODEL, moved, [0]), torch.tensor([[0.25, 0.75, 0.0]]))
    mixed = own.clone()
    mixed[:4, 0] += 0.01  # so many rows that are no distributions: then these are logits, whatever was asked about
    assert torch.equal(task.predict(MODEL, mixed, asked), own[asked].softmax(dim=-1))
    assert [note.code for note in task.remarks(torch.nn.Identity(), (own, "more"))] == ["output-probabilities"]
    for output in (logits, mixed, logits.log_softmax(dim=-1), {"logits": own}, own[:, :1]):
        assert task.remarks(torch.nn.Identity(), output) == ()
