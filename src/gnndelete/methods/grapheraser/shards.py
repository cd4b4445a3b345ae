"""One shard of a graph: its induced subgraph, whether a model can run there, and its training, also in many processes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.graph.edge_table import entries
from gnndelete.graph.validation import count_nodes
from gnndelete.methods.base import Context, Fit
from gnndelete.nn.forward import Forward, evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.tasks import Task
from gnndelete.training.loop import train


def induced(data: Data, nodes: Tensor) -> Data:
    """The subgraph of ``nodes`` and of the edges among them. Its ids are positions in ``nodes``, so it costs its own size.

    ``n_id`` holds the ids in the whole graph, as in a sampled batch: a model with a vector per node looks it up by these.

    >>> path = Data(x=torch.arange(4.0)[:, None], edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> part = induced(path, torch.tensor([3, 1, 2]))
    >>> part.edge_index.tolist(), part.x.flatten().tolist()
    ([[1, 2], [2, 0]], [3.0, 1.0, 2.0])
    """
    position = positions(nodes, count_nodes(data))
    kept = (position[data.edge_index] >= 0).all(dim=0).nonzero().flatten()
    part = copy.copy(data)
    part.num_nodes = nodes.numel()
    for name in data.to_dict():
        if data.is_edge_attr(name) and not name.startswith("edge_label"):
            part[name] = entries(data, name, kept)
        elif data.is_node_attr(name):
            part[name] = entries(data, name, nodes)
    part.edge_index = position[part.edge_index]
    if "edge_label_index" in data:
        inside = (position[data.edge_label_index] >= 0).all(dim=0)
        part.edge_label_index = position[data.edge_label_index[:, inside]]
        if isinstance(data.get("edge_label"), Tensor):
            part.edge_label = data.edge_label[inside]
    if data.get("n_id") is None:
        part.n_id = nodes
    return part


def positions(nodes: Tensor, total: int) -> Tensor:
    """For each of ``total`` ids its position in ``nodes``, or -1."""
    position = torch.full((total,), -1, device=nodes.device)
    position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    return position


def indivisible(context: Context, shards: int) -> str | None:
    """Why the model cannot run on a shard: it identifies nodes by their position, and a shard has other positions."""
    data = context.data
    few = max(2, count_nodes(data) // shards)
    nodes = torch.unique(data.edge_index[:, :few])[:few] if data.edge_index.size(1) else torch.arange(few)
    model, outputs = working_copy(context.model), []
    try:
        with evaluating(model):
            for order in (nodes, nodes.flip(0)):
                outputs.append(context.session.forward(model, induced(data, order.to(data.edge_index.device))))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return f"the model does not run on a part of the graph ({error})"
    one, two = outputs
    if not isinstance(one, Tensor):
        return None
    if one.size(0) != nodes.numel():
        return f"the model returns {one.size(0)} rows for a part of the graph with {nodes.numel()} nodes"
    if not torch.allclose(one, two.flip(0), rtol=1e-3, atol=1e-4 * float(one.abs().max())):
        return "the model identifies nodes by their position in the graph, and a shard has other positions"
    return None


@dataclass(frozen=True)
class Job:
    """The training of one shard, with all it needs, so that any process can run it."""

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
        options: dict[str, Any] = {"epochs": self.epochs, "lr": self.lr, "seed": self.seed}
        train(self.model, self.data, self.task, **options, forward=self.forward, progress=self.progress)
        return self.model


def run_all(jobs: Sequence[Job], processes: int, ray_address: str | None) -> list[nn.Module]:
    """Train all shards: one after the other, in that many processes, or on the Ray cluster at an address.

    Not in threads: these share torch's global random state, so a seed would no longer fix dropout.
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
