"""What methods that follow gradients share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gnndelete.methods._gradients import assign, flat, has_fallen, saturation, trainable


def test_saturation_agrees_where_nothing_saturates():
    high, low = torch.tensor([1.0, 2.0, 0.1]), torch.tensor([0.5, -1.0])
    ranks = saturation(high, low)
    assert ranks["auroc_from_logits"] == ranks["auroc_from_probabilities"] == pytest.approx(5 / 6)


def test_weights_go_to_a_vector_and_back():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model[0].bias.requires_grad_(False)
    weights = trainable(model)
    vector = flat(weights)
    assert vector.numel() == sum(weight.numel() for weight in weights) == 6 + 2 + 1
    assign(weights, torch.zeros_like(vector))
    assert not flat(weights).any()
    assign(weights, vector)
    assert torch.equal(flat(weights), vector)


def test_a_score_that_is_gone_has_fallen():
    assert has_fallen(0.9, None)
    assert not has_fallen(None, 0.1)
