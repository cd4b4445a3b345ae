"""What an audit is about: one deletion, the models that are asked about it, and the graphs they answer on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.auditing.edges import edges_once
from gnndelete.graph.deletion import Deletion
from gnndelete.methods.base import Fit
from gnndelete.nn.forward import Forward, evaluating
from gnndelete.result import Unlearned
from gnndelete.tasks import LinkPrediction, Task
from gnndelete.tasks.base import Predict
from gnndelete.tasks.supervision import positives


@dataclass(frozen=True)
class Subject:
    """One model that answers on one graph. ``output`` is what its forward pass gave; None where it keeps no model."""

    name: str  # "before", "after" or "reference"
    predict: Predict  # link scores (logits) of [2, k] edges, class probabilities of nodes
    graph: Data
    model: nn.Module | None = None
    output: Any = None

    @classmethod
    def of_model(cls, name: str, model: nn.Module, graph: Data, task: Task, forward: Forward) -> Subject:
        """Run the model once; every question after that only asks the task's decoder."""
        with evaluating(model):
            output = forward(model, graph)

        def predict(elements: Any) -> Tensor:
            with evaluating(model):
                return task.predict(model, output, elements)

        return cls(name, predict, graph, model, output)


@dataclass(frozen=True)
class Case:
    """One deletion under audit. ``task`` no longer names deleted nodes; ``subjects`` answer on the graph they are served on."""

    unlearned: Unlearned
    reference: Unlearned | None
    deletion: Deletion
    original: Data
    remaining: Data
    task: Task
    base: nn.Module
    subjects: dict[
        str, Subject
    ]  # "before" on `original`, "after" and (where given) "reference" on what they are served on
    forward: Forward
    fit: Fit | None = None
    build: Callable[[], nn.Module] | None = None
    seed: int = 0
    progress: bool = False

    @property
    def after(self) -> Subject:
        return self.subjects["after"]

    @property
    def asked_nodes(self) -> Tensor:
        """Nodes of which a classifier is to forget something: themselves, their features or their label; each once."""
        return torch.cat([self.deletion.nodes, self.deletion.features[0], self.deletion.labels]).unique()

    @property
    def asked_edges(self) -> Tensor:
        """The deleted edges that the task has a score for: of a HeteroData, those of the edge type it is about."""
        return self.task.scored(self.deletion.edges) if isinstance(self.task, LinkPrediction) else self.deletion.edges

    @property
    def blank(self) -> bool:
        """Whether deleted elements have nothing left in the graph as served, so that they are asked about presented again.

        Of a deleted node or graph neither features nor edges are left there, and a node without its features is no longer
        what was learned. A deleted edge still has its two ends.
        """
        deletion = self.deletion
        if self.task.name == "graph":
            return bool(deletion.graphs.numel())
        gone = bool(deletion.nodes.numel() or deletion.features.size(1))
        return gone and (self.task.name == "node" or not self.asked_edges.size(1))

    def learned_edges(self, data: Data) -> Tensor:
        """The edges that a link model learns from."""
        return self.task.positives(data) if isinstance(self.task, LinkPrediction) else positives(data)

    def generator(self, offset: int = 0) -> torch.Generator:
        """Every random choice of the audit comes from its seed."""
        return torch.Generator().manual_seed(self.seed + offset)

    def some_remaining(self, count: int, offset: int = 0) -> Tensor:
        """A sample of the edges that are left, each once: of an undirected edge one direction alone."""
        edges = edges_once(self.task, self.remaining)
        pick = torch.randperm(edges.size(1), generator=self.generator(offset))[:count]
        return edges[:, pick.to(edges.device)]
