"""JODIE: the graph as a stream of events whose deletion is one more event; the dynamic-embedding comparison.

Two recurrent cells move the embeddings of both ends of an event, a drift moves them between events, and a linear layer
predicts the next partner. PyG's `TemporalData` carries the stream. Its `TGNMemory` does not fit: it has one GRU for both
roles, no drift with time, and stores messages per node in Python. So the cells are those of torch.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data, TemporalData

from gnndelete.errors import SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.parsing import edge_list
from gnndelete.graph.validation import count_nodes
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, check_numbers, synchronize
from gnndelete.notes import Note
from gnndelete.tasks.base import Predict
from gnndelete.tasks.supervision import SupervisionCache

#: t-batches between two steps of the optimizer; gradients reach back this far.
BATCHES_PER_STEP = 4

#: How many remaining events are learned again with each one that is retracted.
REPLAYED_EVENTS = 8

#: Wider features are projected to this many columns at random.
MAX_FEATURES = 512

#: Pairs from which typical distances of edges and non-edges are estimated.
SAMPLED_PAIRS = 2000

NOTES = (
    Note(
        "construction",
        "Our construction: the paper does not say how the graph became a stream. Training edges came in a seeded order, "
        "deletions after them as negative events.",
    ),
    Note("other-model", "Answers come from a model that JODIE trains; yours takes no part in them."),
    Note(
        "weights-trained-on-deleted",
        "The deleted edges were trained on before they were retracted: its weights may still remember them.",
    ),
)


@dataclass(frozen=True)
class Trained:
    """The embeddings of the original stream, from which every request starts."""

    model: Coevolution
    memory: Memory
    static: Tensor
    stream: TemporalData
    undirected: bool
    margin: float  # the mean distance of pairs that are no edges


class JODIE(Method):
    """Embeddings that co-evolve along a stream of events (Kumar et al., KDD 2019), with deletions as negative events.

    The paper does not say how a graph becomes a stream; this is our construction. Training edges come once each in a seeded
    order; on an undirected graph both ends are user and item at once. Static embeddings are the features (random vectors
    where there are none). Deleted edges follow as events of the opposite sign: they change the embeddings of their ends, and
    one pass of training pushes the ends away from each other. All requests so far are replayed from the same trained
    stream, so a sequence equals one big request.

    A score is minus the squared distance between the expected and the actual partner, averaged over both directions of an
    undirected edge, shifted and scaled to a logit by the distances of remaining edges and of non-edges.

    Args:
        dim: Size of the dynamic embeddings.
        epochs: Passes over the stream.
        lr: Learning rate of Adam.
        lam_u: Penalty on changes of user embeddings.
        lam_i: Penalty on changes of item embeddings.

    >>> JODIE(dim=64).settings()["dim"]
    64
    """

    name: ClassVar[str] = "jodie"
    keeps_model: ClassVar[bool] = False
    assurance: ClassVar[Assurance] = "approximate"
    summary: ClassVar[str] = "embed the nodes along a stream of edges and append deletions to it (link prediction)"

    def __init__(
        self, dim: int = 128, epochs: int = 20, lr: float = 1e-3, lam_u: float = 1.0, lam_i: float = 1.0
    ) -> None:
        self.dim = dim
        self.epochs = epochs
        self.lr = lr
        self.lam_u = lam_u
        self.lam_i = lam_i

    def check(self) -> None:
        check_numbers(self, positive=("lr",), whole=("dim", "epochs"))
        if self.lam_u < 0 or self.lam_i < 0:
            raise SettingError(f"'lam_u' and 'lam_i' must not be negative (got {self.lam_u!r} and {self.lam_i!r})")

    def unfit(self, context: Context) -> list[Reason]:
        reasons = []
        if context.task is not None and not context.task.pairwise:
            why = "JODIE predicts links and no classes"
            reasons.append(Reason(why, "pass task='link', or choose method='retrain'"))
        if context.deletion.features.size(1):
            why = "JODIE forgets by retracting events, and a feature of a node is none"
            reasons.append(Reason(why, "delete the node itself, or choose method='retrain'"))
        if context.data.get("edge_type") is not None:
            why = "JODIE's events have no types and the graph has 'edge_type'"
            reasons.append(Reason(why, "choose another method"))
        return reasons

    def unlearn(self, context: Context) -> Outcome:
        began = time.perf_counter()
        trained: Trained | None = context.memory.get(self.name)
        if trained is None:
            trained = self._prepare(context)
            synchronize(context.data.edge_index.device)
        prepared = time.perf_counter()
        gone = _gone(trained.stream, context.deletion, context.session.table.num_nodes, trained.undirected)
        forgetful = self._retract(trained, gone, context.deletion.nodes)
        predict = _predictor(forgetful, context.remaining, context.seed)
        synchronize(context.data.edge_index.device)
        outcome = Outcome(
            model=None,
            parameters=sum(p.numel() for p in trained.model.parameters()),
            predict=predict,
            notes=NOTES,
            details={
                "prepare_seconds": prepared - began,
                "unlearn_seconds": time.perf_counter() - prepared,
                "events": trained.stream.num_events,
                "retracted": int(gone.sum()),
            },
        )
        context.memory[self.name] = trained  # last: an interruption changes nothing
        return outcome

    def _prepare(self, context: Context) -> Trained:
        """Train on the original graph's stream."""
        data, generator = context.data, torch.Generator().manual_seed(context.seed)
        static, stream = _static(data, generator), edge_stream(data, generator)
        undirected = SupervisionCache().of(data).undirected
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(context.seed)
            model = Coevolution(self.dim, static.size(1)).to(static.device)
        memory = model.learn(static, stream, undirected, self.epochs, self.lr, (self.lam_u, self.lam_i))
        negatives = SupervisionCache().of(data).sampler.sample(SAMPLED_PAIRS, generator)
        with torch.no_grad():
            margin = float(model.gap(memory, static, negatives, float(memory.time.max())).mean())
        return Trained(model, memory, static, stream, undirected, margin)

    def _retract(self, trained: Trained, gone: Tensor, nodes: Tensor) -> Trained:
        """The trained stream followed by negative events; deleted nodes are as if they never had an event."""
        model, memory = copy.deepcopy(trained.model), trained.memory.copy()
        events = retractions(trained.stream, gone, replay=REPLAYED_EVENTS)
        count, where = trained.static.size(0), nodes.to(trained.static.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.lr)
        model.run(
            memory,
            trained.static,
            events,
            t_batches(events, count),
            trained.undirected,
            optimizer,
            (self.lam_u, self.lam_i),
            trained.margin,
        )
        blank = model.blank(count)
        memory.last = last_partners(trained.stream, ~gone, count, trained.undirected)
        for name in ("user", "item", "time"):
            getattr(memory, name)[where] = getattr(blank, name)[where]
        return replace(trained, model=model, memory=memory, static=trained.static.index_fill(0, where, 0))


def _static(data: Data, generator: torch.Generator) -> Tensor:
    """Embeddings that never change, as rows of length 1: the features, or random vectors where there are none."""
    device, x = data.edge_index.device, data.get("x")
    if x is None:
        return F.normalize(torch.randn(count_nodes(data), MAX_FEATURES // 4, generator=generator), dim=1).to(device)
    x = x.float()
    if x.size(1) > MAX_FEATURES:
        x = x @ (torch.randn(x.size(1), MAX_FEATURES, generator=generator) / MAX_FEATURES**0.5).to(device)
    x = x if x.layout == torch.strided else x.to_dense()
    return F.normalize(x - x.mean(dim=0), dim=1)  # the mean of all nodes carries no information about edges


def _gone(stream: TemporalData, deletion: Deletion, nodes: int, undirected: bool) -> Tensor:
    """Which events of the stream are deleted: the edges named, and all edges of the nodes named."""
    pairs = torch.stack([stream.src, stream.dst])
    gone = torch.isin(pairs, deletion.nodes.to(pairs.device)).any(dim=0)
    if deletion.edges.size(1):
        edges = deletion.edges.to(pairs.device)
        gone |= EdgeTable(torch.cat([edges, edges.flip(0)], dim=1) if undirected else edges, nodes).contains(pairs)
    return gone


@torch.no_grad()
def _distance(trained: Trained, edges: Tensor) -> Tensor:
    now = float(trained.memory.time.max())

    def one_way(pairs: Tensor) -> Tensor:
        return trained.model.distance(trained.memory, trained.static, pairs, now)

    return (one_way(edges) + one_way(edges.flip(0))) / 2 if trained.undirected else one_way(edges)


def _predictor(trained: Trained, remaining: Data, seed: int) -> Predict:
    """Distances as logits: zero halfway between what edges and non-edges have on average."""
    generator = torch.Generator().manual_seed(seed)
    supervision = SupervisionCache().of(remaining)
    pick = torch.randperm(supervision.positives.size(1), generator=generator)[:SAMPLED_PAIRS]
    near = _distance(trained, supervision.positives[:, pick.to(supervision.positives.device)])
    far = _distance(trained, supervision.sampler.sample(near.numel(), generator))
    middle = (near.mean() + far.mean()) / 2
    scale = torch.cat([near - near.mean(), far - far.mean()]).square().mean().sqrt().clamp(min=1e-6)

    def predict(edges: object) -> Tensor:
        return (middle - _distance(trained, edge_list(edges, "edges").to(near.device))) / scale

    return predict


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
