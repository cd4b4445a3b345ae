"""JODIE: the graph as a stream of events whose deletion is one more event; the dynamic-embedding comparison."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data, TemporalData

from gnndelete.errors import SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.parsing import edge_list
from gnndelete.graph.validation import count_nodes
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, synchronize
from gnndelete.methods.jodie.cells import Coevolution, Memory
from gnndelete.methods.jodie.events import edge_stream, last_partners, retractions, t_batches
from gnndelete.notes import Note
from gnndelete.tasks.base import Predict
from gnndelete.tasks.supervision import SupervisionCache

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
        for name in ("dim", "epochs"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise SettingError(f"'{name}' must be a whole number of at least 1 (got {value!r})")
        if not self.lr > 0 or self.lam_u < 0 or self.lam_i < 0:
            got = f"{self.lr!r}, {self.lam_u!r} and {self.lam_i!r}"
            raise SettingError(f"'lr' must be positive, 'lam_u' and 'lam_i' not negative (got {got})")

    def unfit(self, context: Context) -> list[Reason]:
        reasons = []
        if context.task is not None and not context.task.pairwise:
            reasons.append(
                Reason("JODIE predicts links and no classes", "pass task='link', or choose method='retrain'")
            )
        if context.deletion.features.size(1):
            reasons.append(
                Reason(
                    "JODIE forgets by retracting events, and a feature of a node is none",
                    "delete the node itself, or choose method='retrain'",
                )
            )
        if context.data.get("edge_type") is not None:
            reasons.append(
                Reason("JODIE's events have no types and the graph has 'edge_type'", "choose another method")
            )
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
        undirected = SupervisionCache().of(data).sampler.undirected
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(context.seed)
            model = Coevolution(self.dim, static.size(1)).to(static.device)
        memory = model.learn(static, stream, undirected, self.epochs, self.lr, (self.lam_u, self.lam_i))
        trained = Trained(model, memory, static, stream, undirected, 0.0)
        negatives = SupervisionCache().of(data).sampler.sample(SAMPLED_PAIRS, generator)
        return replace(trained, margin=float(_margin(trained, negatives)))

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
def _margin(trained: Trained, negatives: Tensor) -> Tensor:
    now = float(trained.memory.time.max())
    return trained.model.gap(trained.memory, trained.static, negatives, now).mean()


@torch.no_grad()
def _distance(trained: Trained, edges: Tensor) -> Tensor:
    def one_way(pairs: Tensor) -> Tensor:
        now = float(trained.memory.time.max())
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
