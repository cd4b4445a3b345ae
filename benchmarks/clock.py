"""What benchmarks of time share: a clock that waits for the device, medians of repeats that take turns, and plain work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from gnndelete.methods.base import synchronize
from gnndelete.nn.forward import call, evaluating
from gnndelete.tasks import Task

Work = Callable[[], object]


def timed(work: Work, device: torch.device) -> float:
    """Seconds until the device has done it."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def medians(work: Mapping[str, Work], repeats: int, device: torch.device) -> dict[str, float]:
    """The median seconds of each, after one try; they take turns, so that a slow moment hits all of them."""
    for one in work.values():
        one()
    samples: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, one in work.items():
            samples[name].append(timed(one, device))
    return {name: statistics.median(values) for name, values in samples.items()}


def forward_pass(model: nn.Module, data: Any) -> Work:
    """The floor of every deletion."""

    def work() -> None:
        with evaluating(model):
            call(model, data)

    return work


def training_epoch(learner: nn.Module, data: Any, task: Task) -> Work:
    """One step on the whole graph, negatives included."""
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
    generator = torch.Generator(data.edge_index.device).manual_seed(0)

    def work() -> None:
        learner.train()
        optimizer.zero_grad()
        task.loss(learner, call(learner, data), data, generator).backward()
        optimizer.step()

    return work
