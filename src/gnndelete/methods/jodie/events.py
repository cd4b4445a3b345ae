"""A graph as a stream of events, and t-batches: groups of events that share no node and can be processed at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data, TemporalData

from gnndelete.tasks.supervision import SupervisionCache


def edge_stream(data: Data, generator: torch.Generator) -> TemporalData:
    """The training edges of a graph, each once, as events in a random order at the times 0 to 1; ``msg`` is their sign.

    >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4)
    >>> edge_stream(data, torch.Generator().manual_seed(0)).num_events
    2
    """
    edges = SupervisionCache().of(data).positives
    edges = edges[:, torch.randperm(edges.size(1), generator=generator).to(edges.device)]
    time = torch.arange(edges.size(1), device=edges.device) / edges.size(1)
    return TemporalData(src=edges[0], dst=edges[1], t=time, msg=torch.ones_like(time)[:, None])


def retractions(stream: TemporalData, gone: Tensor, replay: int = 0) -> TemporalData:
    """The events marked in ``gone`` once more, in the same order, as negative events after the end of the stream.

    Each is followed by ``replay`` of the remaining events, spread over the stream: a model that learns from negative events
    alone forgets everything.
    """
    retracted, remaining = gone.nonzero().flatten(), (~gone).nonzero().flatten()
    replay = replay if remaining.numel() else 0
    count = retracted.numel()
    spread = torch.linspace(0, max(remaining.numel() - 1, 0), count * replay, device=gone.device).round().long()
    order = torch.cat([retracted[:, None], remaining[spread].view(count, replay)], dim=1)
    sign = torch.ones(order.shape, device=gone.device)
    sign[:, 0] = -1
    order, sign = order.flatten(), sign.flatten()
    time = 1 + torch.arange(1, order.numel() + 1, device=gone.device) / max(1, stream.num_events)
    return TemporalData(src=stream.src[order], dst=stream.dst[order], t=time, msg=sign[:, None])


def t_batches(stream: TemporalData, nodes: int) -> list[Tensor]:
    """Positions of events by batch: an event comes one batch after the last earlier one that shares a node with it.

    >>> path = TemporalData(src=torch.tensor([0, 2, 1]), dst=torch.tensor([1, 3, 2]), t=torch.arange(3))
    >>> [batch.tolist() for batch in t_batches(path, 4)]
    [[0, 1], [2]]
    """
    free = [0] * nodes  # the first batch in which a node is free
    level = []
    for head, tail in zip(stream.src.tolist(), stream.dst.tolist(), strict=True):
        batch = max(free[head], free[tail])
        free[head] = free[tail] = batch + 1
        level.append(batch)
    found = torch.tensor(level, dtype=torch.long)
    order = torch.argsort(found, stable=True).to(stream.src.device)
    return list(order.split(torch.bincount(found).tolist())) if level else []


def last_partners(stream: TemporalData, remaining: Tensor, nodes: int, undirected: bool) -> Tensor:
    """For each node the target of its last event among the remaining ones, or -1."""
    source, target = stream.src[remaining], stream.dst[remaining]
    if undirected:
        source, target = (
            torch.stack([source, target], dim=1).flatten(),
            torch.stack([target, source], dim=1).flatten(),
        )
    newest = source.new_full((nodes,), -1)
    newest.scatter_reduce_(0, source, torch.arange(source.numel(), device=source.device), "amax")
    partner = target[newest.clamp(min=0)] if target.numel() else newest
    return torch.where(newest >= 0, partner, -1)
