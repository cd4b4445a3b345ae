"""GradAscent: climb the loss of what must be forgotten. Also what every method here that follows a loss must know first."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndelete.errors import RunError, SettingError
from gnndelete.graph.edge_table import ends_of
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.methods.gradients import descend, known_task, loss_reasons, trainable
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task
from gnndelete.tasks.supervision import SupervisionCache


class GradAscent(Method):
    """Raise the loss of the forgotten elements by a few steps of Adam; nothing holds the rest in place.

    Link prediction: minimise ``-BCE(score, 1)`` over the deleted edges and the edges of deleted nodes; features have no loss
    there, so their deletion does not fit. Node classification: maximise the cross-entropy of the training nodes that are
    deleted, or whose features or label are; an edge has no loss there, so edge deletions do not fit.
    Messages run over the training graph, the deleted elements included. Gradients are taken in evaluation mode: dropout
    is off and running statistics stay as they are. All requests so far are climbed together, from the user's weights.

    >>> GradAscent().settings()
    {'epochs': 10, 'lr': 0.001}
    """

    name: ClassVar[str] = "gradascent"
    assurance: ClassVar[Assurance] = "approximate"
    needs = "a loss"
    summary: ClassVar[str] = "climb the loss of the forgotten elements for a few steps"

    def __init__(self, epochs: int = 10, lr: float = 1e-3) -> None:
        self.epochs = epochs
        self.lr = lr
        if epochs < 1 or not lr > 0:
            raise SettingError(f"'epochs' must be at least 1 and 'lr' positive (got {epochs!r} and {lr!r})")

    def unfit(self, context: Context) -> list[Reason]:
        reasons = loss_reasons(context)
        if isinstance(context.task, NodeClassification) and context.deletion.edges.size(1):
            reasons.append(
                Reason("an edge has no loss of its own under node classification", "use method='gif' or method='megu'")
            )
        if (
            isinstance(context.task, GraphClassification)
            and len(context.deletion)
            and not context.deletion.graphs.numel()
        ):
            reasons.append(
                Reason("an edge or a node has no loss of its own under graph classification", "use method='gnndelete'")
            )
        if isinstance(context.task, LinkPrediction) and context.deletion.features.size(1):
            reasons.append(
                Reason(
                    "features have no loss of their own under link prediction", "use method='gif' or method='gnndelete'"
                )
            )
        return reasons

    def unlearn(self, context: Context) -> Outcome:
        task = known_task(context)
        model = working_copy(context.model)
        weights = trainable(model)
        elements = _forgotten(context, task)
        details: dict[str, Any] = {"forgotten": elements.size(-1)}
        if not elements.size(-1):
            note = "None of the forgotten elements was trained on, so there was no loss to climb and no weight was changed."
            return Outcome(model=model, parameters=0, notes=(note,), details=details)
        optimizer = torch.optim.Adam(weights, lr=self.lr)
        with evaluating(model), torch.enable_grad():
            for epoch in range(self.epochs):
                loss = _loss(task, model, context.session.forward(model, context.data), context.data, elements)
                if epoch == 0:
                    details["loss_before"] = loss.item()
                descend(-loss, weights, optimizer)
            with torch.no_grad():
                after = _loss(task, model, context.session.forward(model, context.data), context.data, elements).item()
        if not torch.isfinite(torch.tensor(after)):
            raise RunError(f"the loss of the forgotten elements became {after}; lower 'lr' (now {self.lr})")
        details["loss_after"] = after
        notes = [
            f"The loss of {elements.size(-1)} forgotten elements went from {details['loss_before']:.3g} to {after:.3g}. "
            "Nothing held the rest of the model in place: read the test score beside it."
        ]
        if after <= details["loss_before"]:
            notes.append(
                "The loss did not rise: where the model is certain beyond 32-bit precision its gradient is zero. Raise 'lr', or "
                "use another method."
            )
        return Outcome(model=model, parameters=sum(p.numel() for p in weights), notes=tuple(notes), details=details)


def _forgotten(context: Context, task: Task) -> Tensor:
    """Forgotten pairs ``[2, k]`` (triples ``[3, k]``) of a link task, or forgotten training nodes or graphs ``[k]``."""
    deletion, device = context.deletion, context.data.edge_index.device
    nodes = deletion.nodes.to(device)
    if isinstance(task, GraphClassification):
        graphs = deletion.graphs.to(device)
        return graphs[task.part(context.data, "train")[graphs]]
    if isinstance(task, NodeClassification):
        nodes = torch.cat([deletion.nodes, deletion.features[0], deletion.labels]).unique().to(device)
        return nodes[task.part(context.data, "train")[nodes]]
    pairs = deletion.edges.to(device)
    if nodes.numel():
        positives = SupervisionCache().of(context.data).positives
        theirs = positives[:, torch.isin(ends_of(positives), nodes).any(dim=0)]
        pairs = torch.cat([pairs, theirs], dim=1) if pairs.size(1) else theirs
    return torch.unique(pairs, dim=1)


def _loss(task: Task, model: nn.Module, output: Any, data: Any, elements: Tensor) -> Tensor:
    if isinstance(task, LinkPrediction):
        logits = task.score(model, output, elements)
        return F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))
    if isinstance(task, GraphClassification):
        return task.losses(model, output, data, elements, "mean")
    assert isinstance(task, NodeClassification)
    return F.cross_entropy(task.logits(output, data)[elements], task.labels(data)[elements])
