"""White-box measures: sizes of gradients beside those of autograd, and an attack that must not find what is not there."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from gnndelete.metrics.whitebox import gradient_sizes, peers_attack


def test_sizes_are_those_of_autograd():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(40, 6) * torch.logspace(-2, 1, 40)[:, None]

    def losses():
        return nn.functional.softplus(-model(x)).view(-1)

    before = [weight.clone() for weight in model.parameters()]
    with torch.no_grad():
        measured = gradient_sizes(model, losses, directions=64)
    scale = [float(weight.detach().square().mean().sqrt()) for weight in model.parameters()]
    true = []
    for loss in losses():
        parts = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        true.append(sum(float((size * part).square().sum()) for size, part in zip(scale, parts, strict=True)) ** 0.5)
    ratio = measured.log() - torch.tensor(true).log()
    assert ratio.abs().max() < 0.5
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_an_attack_on_nothing_finds_nothing():
    generator = np.random.default_rng(0)
    trained, unseen, deleted = (generator.normal(size=(400, 2)) for _ in range(3))
    found, error = peers_attack(trained, unseen, deleted)
    assert abs(found - 0.5) < 3 * error
