"""What fresh weights follow for a while: the shape of the remaining graph, or answers of the old model that may be followed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.session import Session
from gnndelete.errors import ModelError
from gnndelete.graph.batch import GraphBatch, as_user_graph
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.node_embeddings import possible_vectors
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key, Rows, entry, representations
from gnndelete.nn.layers import evaluation_view
from gnndelete.training.loop import one_cycle

#: After this share of the epochs nothing is followed any more, and only the remaining graph is learned from.
SILENT_AFTER = 0.6

#: Rounds in which the leading directions of a graph are found.
ROUNDS = 10


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
    """

    def __init__(self, epochs: int, peak: float, guide: Guide | None = None, weight: float = 1.0) -> None:
        self.epochs, self.peak, self.weight = epochs, peak, weight
        self.guide = guide if guide is not None and guide.parts else None
        self._factor = one_cycle(epochs, peak)
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
        weight = self.weight * max(0.0, 1 - epoch / (SILENT_AFTER * self.epochs))
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


class Shape:
    """The shape of the remaining graph: the leading eigenvectors of its normalised adjacency, found by block iteration.

    Nothing of the old model is in it. Vectors of nodes that start from it need a fraction of the epochs.

    Args:
        data: The remaining graph.
        width: The number of vectors.
        seed: Draws the start of the iteration.

    Attributes:
        vectors: ``[num_nodes, width]``; every column has a mean square of 1, and the leading ones come first.
        values: Their eigenvalues.
    """

    def __init__(self, data: Data, width: int, seed: int) -> None:
        count, device = int(data.num_nodes or 0), data.edge_index.device
        width = min(width, count)
        loops = torch.arange(count, device=device)
        edges = torch.cat([data.edge_index, data.edge_index.flip(0), torch.stack([loops, loops])], dim=1)
        degree = torch.bincount(edges[1], minlength=count).float()
        weights = (degree[edges[0]] * degree[edges[1]]).rsqrt()
        adjacency = torch.sparse_coo_tensor(edges, weights, (count, count), check_invariants=False).coalesce()
        drawn = torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).to(device)
        basis = torch.linalg.qr(drawn).Q
        for _ in range(ROUNDS):
            basis = torch.linalg.qr(adjacency @ basis).Q
        values, turn = torch.linalg.eigh(basis.t() @ (adjacency @ basis))
        self.values = values.flip(0).clamp(min=0)
        self.vectors = (basis @ turn).flip(1) * count**0.5

    def rows(self, width: int) -> Tensor:
        """Rows of this width whose inner products are large for nodes that are well connected with each other."""
        rows = self.vectors[:, :width] * self.values[:width].sqrt()
        return torch.nn.functional.pad(rows, (0, width - rows.size(1)))


def shape_of(model: nn.Module, context: Context, seed: int) -> Guide:
    """The shape of the remaining graph, as rows for a fresh model's output; vectors of nodes start from it instead.

    Args:
        model: The fresh model. Its tables with a row per node are changed.
        context: The request.
        seed: Draws the start of the iteration and a rotation.
    """
    data = context.remaining
    with evaluating(model):
        output = context.session.forward(model, data)
    entries = [
        (key, rows, nodes) for key, rows, nodes in _entries(output, data) if nodes is not None and rows.dim() == 2
    ]
    tables = [(table, dict(model.named_parameters())[table.parameter]) for table in possible_vectors(model, data)]
    widths = [rows.size(1) for _, rows, _ in entries] + [values.size(1) for _, values in tables]
    if not widths:
        return Guide(())
    shape = Shape(data, max(widths), seed)
    with torch.no_grad():
        for table, values in tables:
            start = shape.vectors[table.nodes.start : table.nodes.stop, : values.size(1)]
            turned = start @ _rotation(start.size(1), values.size(1), seed).to(start)
            turned = turned * float(values.std()) / float(turned.std().clamp(min=1e-12))
            if turned.size(0) == values.size(0):
                values.copy_(turned)
    if tables:  # these vectors are what rows would have to follow
        return Guide(())
    parts = []
    for key, rows, nodes in entries:
        assert nodes is not None
        targets = shape.rows(rows.size(1))[nodes.start : nodes.stop].to(rows.dtype)
        kept = torch.ones(len(targets), dtype=torch.bool, device=targets.device)
        parts.append(FollowedRows(key, targets, kept, nodes, _type_of(nodes, data)))
    return Guide(tuple(parts))


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


def _rotation(width: int, out: int, seed: int) -> Tensor:
    """A random matrix ``[width, out]`` with orthogonal rows or columns."""
    side = max(width, out)
    square = torch.linalg.qr(torch.randn(side, side, generator=torch.Generator().manual_seed(seed))).Q
    return square[:width, :out]


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
