"""What fresh weights follow for a while: what the remaining graph says itself, or permitted answers of the old model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.session import Session
from gnndelete.errors import ModelError
from gnndelete.graph.batch import GraphBatch, as_user_graph
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.methods.base import Context
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key, Rows, entry, replaced, representations
from gnndelete.nn.layers import evaluation_view
from gnndelete.nn.reset import seeded
from gnndelete.nn.tables import possible_vectors
from gnndelete.training.loop import one_cycle

#: After this share of the epochs the old model is followed no more, and only the remaining graph is learned from.
SILENT_AFTER = 0.6

#: Random walks from each node, their steps, and how many meetings are counted at most on a large graph. Rounds in which the
#: leading directions are found, and directions beyond those wanted.
WALKS, STEPS, MEETINGS, ROUNDS, SPARE = 20, 20, 10_000_000, 5, 8

#: Hops over which features are averaged, and the share of entries that are not zero above which features are dense.
HOPS, DENSE = 2, 0.5

#: The spread of the entries of a table at its start. Far smaller ones take many epochs to grow.
TABLE_SIZE = 0.1

#: Rows are followed if their validation score is so much better than that of a model that has learned nothing.
BETTER = 0.02


@dataclass(frozen=True)
class FollowedRows:
    """Rows to follow at one entry of the model's output.

    Args:
        key: The entry.
        targets: The rows.
        kept: Which of them may be followed, as a mask.
        nodes: The nodes that they are; None for rows of graphs.
        node_type: The type of these nodes, on a typed graph.
    """

    key: Key
    targets: Tensor
    kept: Tensor
    nodes: range | None
    node_type: str | None = None

    def ids(self, batch: Any) -> Tensor | None:
        """The ids of the rows of a batch; None where it is the whole graph."""
        graph = as_user_graph(batch)
        store = graph[self.node_type] if isinstance(graph, HeteroData) and self.node_type is not None else graph
        found = None if store is None else store.get("graph_id" if self.nodes is None else "n_id")
        return found if isinstance(found, Tensor) else None


@dataclass(frozen=True)
class Guide:
    """Rows that a model in training is pulled to.

    Args:
        parts: The rows, by entry of the model's output; empty where it returns none that belong to nodes or graphs.
    """

    parts: tuple[FollowedRows, ...]

    @property
    def count(self) -> int:
        """How many rows are followed."""
        return sum(int(part.kept.sum()) for part in self.parts)

    def distance(self, output: Any, batch: Any) -> Tensor:
        """The mean squared distance of a model's rows to the guide's, as a share of the guide's variance.

        Args:
            output: What the model returned.
            batch: The graph that it ran on, or a batch with ``n_id``.

        Raises:
            ModelError: If the rows are not those of the batch.
        """
        found = []
        for part in self.parts:
            rows, targets, kept = entry(output, part.key), part.targets, part.kept
            ids = part.ids(batch)
            if ids is not None:
                targets, kept = targets[ids], kept[ids]
            if rows.shape != targets.shape:
                raise ModelError(
                    f"extra_loss got {list(rows.shape)} rows where {list(targets.shape)} were expected",
                    "call extra_loss(model, output, batch) with the batch that gave the output, with n_id, the ids of its nodes",
                )
            scale = part.targets[part.kept].var(dim=0).mean().clamp(min=torch.finfo(targets.dtype).tiny)
            found.append((rows[kept] - targets[kept]).square().mean() / scale if bool(kept.any()) else rows.sum() * 0)
        return torch.stack(found).mean()


class Course:
    """One short training: epochs, factors of the learning rate, and a guide that falls silent.

    Args:
        epochs: Its length.
        peak: The largest factor of the learning rate.
        guide: What is followed at first; None for nothing.
        weight: The weight of the guide in the first epoch.
        silent: The share of the epochs after which it is followed no more.
        steady: Keep the largest factor throughout.
    """

    def __init__(
        self,
        epochs: int,
        peak: float,
        guide: Guide | None = None,
        weight: float = 1.0,
        silent: float = SILENT_AFTER,
        steady: bool = False,
    ) -> None:
        self.epochs, self.peak, self.weight, self.silent = epochs, peak, weight, silent
        self.guide = guide if guide is not None and guide.parts else None
        self._factor = (lambda epoch: peak) if steady else one_cycle(epochs, peak)
        self._epoch: int | None = None  # known where the training asks for a schedule
        self._calls = 0

    def schedule(self, epoch: int) -> float:
        """The factor of the learning rate in an epoch, counted from 0."""
        self._epoch = epoch
        return self._factor(epoch)

    def extra_loss(self, model: nn.Module, output: Any, batch: Any = None) -> Tensor | float:
        """What is added to the loss of a step. Without a schedule, each call counts as an epoch.

        Args:
            model: The model in training.
            output: What it returned.
            batch: The graph or batch that it ran on; None for the whole graph.
        """
        epoch = self._calls if self._epoch is None else self._epoch
        self._calls += 1
        weight = self.weight * max(0.0, 1 - epoch / (self.silent * self.epochs))
        if self.guide is None or not weight:
            return 0.0
        return weight * self.guide.distance(output, {} if batch is None else batch)

    def options(self, takes: Iterable[str]) -> dict[str, Any]:
        """The keyword arguments for a ``fit`` that takes some of them."""
        every = {
            "epochs": self.epochs,
            "schedule": self.schedule,
            "extra_loss": self.extra_loss if self.guide else None,
        }
        return {name: every[name] for name in takes}


def old_answers(context: Context, decoys: float, rank: int | None, hops: int, seed: int) -> Guide:
    """Rows of the old model on the remaining graph, without those that a deleted element touches.

    Args:
        context: The request.
        decoys: The share of all other rows that is left out as well, so that those of the deletion do not stand out.
        rank: Keep so many leading directions of the rows; None keeps all.
        hops: Also leave out rows within so many hops of what the deletion touches.
        seed: Draws the decoys.
    """
    model, data = evaluation_view(context.model), context.remaining
    with evaluating(model):
        output = context.session.forward(model, data)
    touched = touched_nodes(context.deletion, context.data, context.session, hops)
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for key, rows, nodes in _entries(output, data):
        if nodes is None:
            taken = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
            taken[data.batch[touched]] = True
            taken[context.deletion.graphs.to(taken.device)] = True
        else:
            taken = touched[nodes.start : nodes.stop]
        kept = ~taken & (torch.rand(len(rows), generator=generator) >= decoys).to(taken.device)
        if int(kept.sum()) > 1:
            parts.append(FollowedRows(key, leading(rows, kept, rank), kept, nodes, _type_of(nodes, data)))
    return Guide(tuple(parts))


class Walks:
    """Vectors of nodes in closed form: nodes that short random walks on the remaining graph join point the same way.

    They are the leading eigenvectors of the positive pointwise mutual information of the nodes on a walk (Qiu et al. 2018, what
    DeepWalk learns), counted on sampled walks. Nothing of the old model is in them.

    Args:
        data: The remaining graph.
        width: The largest number of columns that is asked for.
        seed: Draws the walks and the start of the iteration.
    """

    def __init__(self, data: Data, width: int, seed: int) -> None:
        count, edges = int(data.num_nodes or 0), torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1).cpu()
        generator = torch.Generator().manual_seed(seed)
        pairs, counts = _met(edges, count, generator)
        total = torch.zeros(count).index_add_(0, pairs[0], counts)
        weights = (counts * total.sum() / (total[pairs[0]] * total[pairs[1]])).log().clamp(min=0)
        matrix = torch.sparse_coo_tensor(pairs, weights, (count, count), check_invariants=False).coalesce()
        found = min(width, count)
        basis = torch.linalg.qr(torch.randn(count, min(found + SPARE, count), generator=generator)).Q
        for _ in range(ROUNDS):
            basis = torch.linalg.qr(matrix @ basis).Q
        values, turn = torch.linalg.eigh(basis.t() @ (matrix @ basis))
        vectors = (basis @ turn).flip(1)[:, :found] * values.flip(0)[:found].clamp(min=0).sqrt()
        self._vectors = F.pad(vectors, (0, width - found))

    def rows(self, width: int) -> Tensor:
        """A row per node, of unit length; zeros for a node without edges.

        Args:
            width: The number of columns.
        """
        return F.normalize(self._vectors[:, :width])


def _met(edges: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The pairs of nodes that are on one walk, in both orders, and how often."""
    column = edges[1][edges[0].argsort()]
    degree = torch.bincount(edges[0], minlength=count)
    first = degree.cumsum(0) - degree
    walkers = degree.nonzero().flatten().repeat(max(1, min(WALKS, MEETINGS // (2 * STEPS * max(count, 1)))))
    if not walkers.numel():
        return edges, torch.ones(edges.size(1))
    here, met = walkers, []
    for _ in range(STEPS):
        chosen = (torch.rand(here.numel(), generator=generator) * degree[here]).long().clamp(max=degree[here] - 1)
        here = column[first[here] + chosen]
        met += [walkers * count + here, here * count + walkers]
    keys, counts = torch.cat(met).unique(return_counts=True)
    return torch.stack([keys // count, keys % count]), counts.float()


def feature_directions(data: Data, width: int, seed: int) -> Tensor | None:
    """The leading directions of features that are averaged over two hops of a graph; None without features of numbers.

    Args:
        data: The remaining graph.
        width: The number of columns.
        seed: Draws the start of the iteration.
    """
    x, count = data.get("x"), int(data.num_nodes or 0)
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() != 2 or x.size(0) != count or x.is_sparse:
        return None
    loops = torch.arange(count, device=x.device).expand(2, -1)
    edges = torch.cat([data.edge_index, data.edge_index.flip(0), loops], dim=1)
    degree = torch.bincount(edges[1], minlength=count).float()
    weights = (degree[edges[0]] * degree[edges[1]]).rsqrt()
    adjacency = torch.sparse_coo_tensor(edges, weights, (count, count), check_invariants=False).coalesce()
    x = x.float() * rarity(x)
    for _ in range(HOPS):
        x = adjacency @ x
    x = F.normalize(x)
    x = x - x.mean(dim=0)
    found = min(width, *x.shape)
    with seeded(seed, x.device):
        left, values, _ = torch.svd_lowrank(x, q=found, niter=4)
    return F.pad(left * values.sqrt(), (0, width - found))


def rarity(x: Tensor) -> Tensor:
    """The weight of each column: how rarely it is not zero, as for words; one over its spread where none is rare.

    >>> rarity(torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))  # ln 2 and ln 4
    tensor([0.6931, 1.3863])
    """
    share = (x != 0).float().mean(dim=0)
    if float(share.mean()) > DENSE:
        return 1 / x.float().std(dim=0).clamp(min=1e-6)
    return -share.clamp(min=1 / len(x)).log()


@dataclass(frozen=True)
class GraphGuide:
    """What the remaining graph alone says about rows of nodes.

    Args:
        guide: The rows to follow.
        source: Where they are from: ``"features"``, ``"walks"``, or empty.
        score: Their own validation score.
    """

    guide: Guide
    source: str = ""
    score: float | None = None


def graph_guide(model: nn.Module, context: Context, seed: int) -> GraphGuide:
    """Rows for a fresh model, from the remaining graph alone; tables with a vector per node start from them as well.

    Features that are averaged over the graph, or walks on it, whichever has the better validation score.

    Args:
        model: The fresh model. Its tables with a row per node are changed.
        context: The request.
        seed: Draws walks and a rotation.
    """
    data, task = context.remaining, context.remaining_task
    assert task is not None
    with evaluating(model):
        output = context.session.forward(model, data)
    entries = [
        (key, rows, nodes) for key, rows, nodes in _entries(output, data) if nodes is not None and rows.dim() == 2
    ]
    tables = [(table, dict(model.named_parameters())[table.parameter]) for table in possible_vectors(model, data)]
    widths = [rows.size(1) for _, rows, _ in entries]
    walks = Walks(data, max([*widths, *(values.size(1) for _, values in tables), 1]), seed)
    with torch.no_grad():
        for table, values in tables:
            start = walks.rows(values.size(1))[table.nodes.start : table.nodes.stop] @ _rotation(values.size(1), seed)
            values.copy_(start * (TABLE_SIZE / float(start.std().clamp(min=1e-12))))
    best = GraphGuide(Guide(()))
    if not entries:
        return best
    view = task.validation_view(data)
    with evaluating(model):
        nothing_learned = task.validate(model, output, view)
    candidates = {"features": feature_directions(data, max(widths), seed), "walks": walks.rows(max(widths))}
    for source, rows in candidates.items():
        if rows is None:
            continue
        rows, parts, answer = rows / rows.std().clamp(min=1e-12), [], output
        for key, old, nodes in entries:
            targets = rows[nodes.start : nodes.stop, : old.size(1)].to(old)
            kept = targets.any(dim=1)  # not of nodes without edges, or without features
            parts.append(FollowedRows(key, targets, kept, nodes, _type_of(nodes, data)))
            answer = replaced(answer, key, targets)
        with evaluating(model):
            score = task.validate(model, answer, view)
        if score > max(best.score or 0.0, nothing_learned + BETTER):
            best = GraphGuide(Guide(tuple(parts)), source, score)
    return best


def touched_nodes(deletion: Deletion, data: Data, session: Session, hops: int = 0) -> Tensor:
    """Which nodes a deleted element touches, as a mask: named ones, and the other ends of edges that deleted nodes lost.

    Args:
        deletion: What is deleted.
        data: The graph before it.
        session: The session of the graph.
        hops: Also nodes within so many hops of these.
    """
    device = data.edge_index.device
    touched = torch.zeros(session.table.num_nodes, dtype=torch.bool, device=device)
    if deletion.nodes.numel():
        gone = touched.index_fill(0, deletion.nodes.to(device), True)
        touched[data.edge_index[:, gone[data.edge_index].any(dim=0)].flatten()] = True
    touched[deletion.named_nodes.to(device)] = True
    if hops:
        touched[session.neighborhood().within(touched.nonzero().flatten(), hops)] = True
    return touched


def leading(rows: Tensor, kept: Tensor, rank: int | None) -> Tensor:
    """Rows without the directions beyond the leading ones of those that are kept.

    >>> rows = torch.tensor([[2.0, 0.1], [-2.0, -0.1], [1.0, -0.1], [-1.0, 0.1]])
    >>> leading(rows, torch.ones(4, dtype=torch.bool), 1)[:, 0].round(decimals=1).tolist()
    [2.0, -2.0, 1.0, -1.0]
    """
    if rank is None or rank >= rows.size(1):
        return rows
    mean = rows[kept].mean(dim=0)
    centred = (rows - mean).double()
    directions = torch.linalg.eigh(centred[kept].t() @ centred[kept]).eigenvectors[:, -rank:]
    return mean + (centred @ directions @ directions.t()).to(rows.dtype)


def _rotation(width: int, seed: int) -> Tensor:
    """A random rotation."""
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed))).Q


def _entries(output: Any, data: Data) -> list[tuple[Key, Tensor, range | None]]:
    """The entries of a model's output with a row per node, or per graph of a batch."""
    found: list[tuple[Key, Tensor, range | None]] = list(representations(output, Rows(data)))
    if found or not isinstance(data, GraphBatch):
        return found
    entries: list[tuple[Key, Any]] = [(None, output)]
    if isinstance(output, (tuple, list)):
        entries = list(enumerate(output))
    for key, value in entries:
        if isinstance(value, Tensor) and value.dim() == 2 and value.size(0) == data.num_graphs:
            return [(key, value, None)]
    return []


def _type_of(nodes: range | None, data: Data) -> str | None:
    if nodes is None or not isinstance(data, HeteroGraph):
        return None
    return next((name for name, rows in data.types.nodes.items() if rows == nodes), None)
