"""Times of one cell beside each other in one process: a forward pass, a training epoch, the deletion itself."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

import torch

from gnndelete.bench.experiment import TIMED_LAM
from gnndelete.methods import GNNDelete, Method
from gnndelete.methods.base import synchronize
from gnndelete.nn.forward import call, evaluating

if TYPE_CHECKING:
    from gnndelete.bench.measure import Setting

REPEATS = 7


def seconds_of(setting: Setting, method: Method, repeats: int = REPEATS) -> dict[str, float]:
    """Medians of repeats that take turns, so that a slow moment of the machine hits all of them.

    ``forward`` is the base model on the original graph, ``epoch`` one full-batch step of its training. ``delete`` is
    everything from a trained model and a graph to the result of the method, ``further`` the same request where the
    edges, neighbourhoods and receptive field are already known. For GNNDelete ``delete`` is at a fixed lam and
    ``calibrated`` with the search for it. A method that trains is timed elsewhere, once.
    """
    work: dict[str, Callable[[], object]] = {"forward": lambda: _forward(setting), "epoch": _epoch(setting)}
    if isinstance(method, GNNDelete):
        fixed = _with_lam(method, TIMED_LAM if method.lam == "auto" else method.lam)
        warm = setting.unlearner(fixed)

        def further() -> None:
            warm._requests.clear()  # the same request again, as if it were the first after the graph became known
            warm.delete(setting.requests[0])

        work |= {"delete": lambda: setting.unlearner(fixed).delete(setting.requests[0]), "further": further}
        if method.inputs == "remaining":  # enclosing edges have no search for lam
            search = _with_lam(method, "auto")
            work["calibrated"] = lambda: setting.unlearner(search).delete(setting.requests[0])
    elif method.needs != "a training function":
        work["delete"] = lambda: setting.unlearner(method).delete(setting.requests[0])
    device = setting.data.edge_index.device
    for one in work.values():  # the first call also pays for what the device sets up
        _timed(one, device)
    samples: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, one in work.items():
            samples[name].append(_timed(one, device))
    return {name: median(values) for name, values in samples.items()}


def _timed(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def _with_lam(method: GNNDelete, lam: object) -> GNNDelete:
    return GNNDelete(**{**method.settings(), "lam": lam})


def _forward(setting: Setting) -> None:
    with evaluating(setting.model):
        call(setting.model, setting.data)


def _epoch(setting: Setting) -> Callable[[], None]:
    learner = copy.deepcopy(setting.model).train()
    optimizer = torch.optim.Adam(learner.parameters(), lr=setting.key["train"]["lr"])
    generator = torch.Generator(setting.data.edge_index.device).manual_seed(setting.key["seed"])
    size = setting.key["train"]["batch_size"]

    def epoch() -> None:
        for batch in setting.task.batches(setting.data, size, generator):
            optimizer.zero_grad()
            setting.task.loss(learner, call(learner, batch), batch, generator).backward()
            optimizer.step()

    return epoch
