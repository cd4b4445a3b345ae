"""Decoders: inner products and DistMult."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gnndelete import LinkPrediction


class Typed(nn.Module):
    """Nothing but relations."""

    def __init__(self, relations: int = 3, width: int = 4) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.randn(relations, width, generator=torch.Generator().manual_seed(0)))


def test_distmult_is_the_sum_of_products() -> None:
    model, z = Typed(), torch.randn(5, 4)
    task = LinkPrediction(decoder="distmult")
    asked = [(0, 2, 1), (3, 0, 4)]
    expected = [(z[h] * model.relation[r] * z[t]).sum().item() for h, r, t in asked]
    assert task.predict(model, z, asked).tolist() == pytest.approx(expected)
    assert task.predict(model, z, torch.tensor(asked).t()).tolist() == pytest.approx(expected)
    embedded = nn.Module()
    embedded.relation = nn.Embedding.from_pretrained(model.relation.detach())
    assert task.predict(embedded, z, asked).tolist() == pytest.approx(expected)


def test_dot_does_not_ask_for_the_relation() -> None:
    z = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert LinkPrediction().predict(nn.Identity(), z, [(0, 1, 1), (0, 0, 1)]).tolist() == [11.0, 11.0]
