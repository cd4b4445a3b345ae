"""Training one shard, and many: here, in processes through joblib, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch_geometric.data import Data

from gnndelete.methods.base import Fit
from gnndelete.nn.forward import Forward
from gnndelete.tasks import Task
from gnndelete.training.loop import train


@dataclass(frozen=True)
class Job:
    """The training of one shard, complete in itself, so that any process can do it."""

    model: nn.Module
    data: Data
    task: Task
    seed: int
    epochs: int
    lr: float
    forward: Forward
    fit: Fit | None
    progress: bool = False

    def run(self) -> nn.Module:
        if self.fit is not None:
            return self.fit(self.model, self.data, self.seed) or self.model
        train(
            self.model,
            self.data,
            self.task,
            epochs=self.epochs,
            lr=self.lr,
            seed=self.seed,
            forward=self.forward,
            progress=self.progress,
        )
        return self.model


def run_all(jobs: Sequence[Job], processes: int, ray_address: str | None) -> list[nn.Module]:
    """Train all shards: one after the other, in that many processes, or on the Ray cluster at an address.

    Threads would share torch's global random state, and dropout with it, so that a seed would no longer fix the result.
    """
    if ray_address is not None and jobs:
        return _on_ray(jobs, ray_address)
    if processes == 1 or len(jobs) < 2:
        return [job.run() for job in jobs]
    from joblib import Parallel, delayed

    return list(Parallel(n_jobs=processes, prefer="processes")(delayed(Job.run)(job) for job in jobs))


def _on_ray(jobs: Sequence[Job], address: str) -> list[nn.Module]:
    import ray

    started = not ray.is_initialized()
    if started:
        ray.init(address=address)
    try:
        remote: Any = ray.remote(Job.run).remote
        return list(ray.get([remote(job) for job in jobs]))
    finally:
        if started:
            ray.shutdown()
