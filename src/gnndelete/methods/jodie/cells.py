"""JODIE's equations: two recurrent cells that move the embeddings of both ends of an event, a drift, and a prediction.

PyG's `TemporalData` carries the stream. Its `TGNMemory` does not fit: it has one GRU for both roles, no drift with time, and
stores messages per node in Python. So the cells are those of torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import TemporalData

from gnndelete.methods.jodie.events import t_batches

#: t-batches between two steps of the optimizer; gradients reach back this far.
BATCHES_PER_STEP = 4


@dataclass
class Memory:
    """What is known of every node at some time: its embedding in both roles, when and with whom its last event was."""

    user: Tensor
    item: Tensor
    time: Tensor
    last: Tensor  # -1: none yet

    def copy(self) -> Memory:
        return Memory(*(getattr(self, field.name).clone() for field in fields(self)))


class Coevolution(nn.Module):
    """u(t) = σ(W1 u⁻ + W2 i⁻ + W3 f + W4 Δ), mirrored for i; û = (1 + wΔ) * u; j̃ = linear[û, ū, i⁻, ī].

    Every node has both roles. ``static`` are the embeddings ū, ī that never change; the features f of an event are its
    sign and the static embedding of the other end.
    """

    def __init__(self, dim: int, static: int) -> None:
        super().__init__()
        self.user_cell = nn.RNNCell(dim + static + 2, dim)
        self.item_cell = nn.RNNCell(dim + static + 2, dim)
        self.drift = nn.Parameter(torch.zeros(dim))
        self.guess = nn.Linear(2 * (dim + static), dim + static)
        self.register_buffer("start", F.normalize(torch.rand(2, dim), dim=1))

    def blank(self, nodes: int) -> Memory:
        """Before any event: all nodes share one embedding per role."""
        start: Any = self.start
        user, item = (row.expand(nodes, -1).clone() for row in start)
        return Memory(user, item, user.new_zeros(nodes), torch.full((nodes,), -1, device=user.device))

    def expected(self, memory: Memory, static: Tensor, users: Tensor, elapsed: Tensor) -> Tensor:
        """j̃: what the next partner of each user should look like after the time ``elapsed``."""
        user = memory.user.index_select(0, users) * (1 + elapsed[:, None] * self.drift)
        last = memory.last[users]
        known = (last >= 0)[:, None]
        before = torch.cat([memory.item.index_select(0, last.clamp(min=0)), static[last.clamp(min=0)]], dim=1) * known
        return self.guess(torch.cat([user, static[users], before], dim=1))

    def gap(self, memory: Memory, static: Tensor, edges: Tensor, now: float) -> Tensor:
        """|j̃(u) − [ī, i]|² of pairs (u, i): what training makes small."""
        guess = self.expected(memory, static, edges[0], now - memory.time[edges[0]])
        return (guess - torch.cat([static[edges[1]], memory.item[edges[1]]], dim=1)).square().sum(dim=1)

    def distance(self, memory: Memory, static: Tensor, edges: Tensor, now: float) -> Tensor:
        """`gap` less |j̃(u)|².

        That term is the same for all partners of u: it changes no ranking of theirs, and would only compare users.
        """
        guess = self.expected(memory, static, edges[0], now - memory.time[edges[0]])
        partner = torch.cat([static[edges[1]], memory.item[edges[1]]], dim=1)
        return (partner * (partner - 2 * guess)).sum(dim=1)

    def event(
        self, memory: Memory, static: Tensor, event: TemporalData, lam: tuple[float, float], margin: float
    ) -> tuple[Memory, Tensor]:
        """The memory after events that share no node, and their loss; a negative event pushes its end ``margin`` away."""
        head, tail, sign = event.src, event.dst, event.msg
        user, item = memory.user.index_select(0, head), memory.item.index_select(0, tail)
        waited_user, waited_item = event.t - memory.time[head], event.t - memory.time[tail]
        guess = self.expected(memory, static, head, waited_user)
        gap = (guess - torch.cat([static[tail], item.detach()], dim=1)).square().sum(dim=1)
        new_user = F.normalize(
            self.user_cell(torch.cat([item, static[tail], sign, waited_user[:, None]], dim=1), user), dim=1
        )
        new_item = F.normalize(
            self.item_cell(torch.cat([user, static[head], sign, waited_item[:, None]], dim=1), item), dim=1
        )
        loss = torch.where(sign[:, 0] > 0, gap, F.relu(margin - gap)).sum()
        loss = loss + lam[0] * (new_user - user.detach()).square().sum()
        loss = loss + lam[1] * (new_item - item.detach()).square().sum()
        time, last = memory.time.clone(), memory.last.clone()
        time[head] = time[tail] = event.t
        last[head] = tail
        after = Memory(memory.user.index_copy(0, head, new_user), memory.item.index_copy(0, tail, new_item), time, last)
        return after, loss

    def run(
        self,
        memory: Memory,
        static: Tensor,
        stream: TemporalData,
        batches: list[Tensor],
        undirected: bool,
        optimizer: torch.optim.Optimizer | None = None,
        lam: tuple[float, float] = (0.0, 0.0),
        margin: float = 0.0,
    ) -> None:
        """Go through the t-batches of a stream, change ``memory`` in place and, with an optimizer, learn on the way."""
        for begin in range(0, len(batches), BATCHES_PER_STEP):
            window = [_both(stream[batch], undirected) for batch in batches[begin : begin + BATCHES_PER_STEP]]
            active = torch.unique(torch.cat([torch.cat([event.src, event.dst]) for event in window]))
            names = torch.unique(torch.cat([active, memory.last[active].clamp(min=0)]))  # and their last partners
            position = torch.full_like(memory.last, -1)
            position[names] = torch.arange(names.numel(), device=names.device)
            last = memory.last[names]
            local = Memory(
                memory.user[names], memory.item[names], memory.time[names], torch.where(last >= 0, position[last], -1)
            )
            total = torch.zeros((), device=names.device)
            with torch.set_grad_enabled(optimizer is not None):
                for event in window:
                    event.src, event.dst = position[event.src], position[event.dst]
                    local, loss = self.event(local, static[names], event, lam, margin)
                    total = total + loss
            if optimizer is not None:
                optimizer.zero_grad()
                (total / sum(event.num_events for event in window)).backward()
                optimizer.step()
            rows = position[active]  # the last partners outside the window stay as they are
            memory.user[active], memory.item[active] = local.user[rows].detach(), local.item[rows].detach()
            memory.time[active], last = local.time[rows], local.last[rows]
            memory.last[active] = torch.where(last >= 0, names[last.clamp(min=0)], -1)

    def learn(
        self, static: Tensor, stream: TemporalData, undirected: bool, epochs: int, lr: float, lam: tuple[float, float]
    ) -> Memory:
        """Train on a stream from its beginning, ``epochs`` times; the memory at its end, by the final weights."""
        batches = t_batches(stream, static.size(0))
        optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        for _ in range(epochs):
            self.run(self.blank(static.size(0)), static, stream, batches, undirected, optimizer, lam)
        memory = self.blank(static.size(0))
        self.run(memory, static, stream, batches, undirected)
        return memory


def _both(event: TemporalData, undirected: bool) -> TemporalData:
    """On an undirected graph each end is user and item at once."""
    if not undirected:
        return event
    return TemporalData(
        src=torch.cat([event.src, event.dst]),
        dst=torch.cat([event.dst, event.src]),
        t=event.t.repeat(2),
        msg=event.msg.repeat(2, 1),
    )
