"""GradAscent: gradient ascent on the loss of the forgotten elements."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from gnndelete.errors import RunError
from gnndelete.graph.deletion import Deletion
from gnndelete.methods._gradients import descend, known_task, loss_reasons, trainable
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, check_numbers
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note
from gnndelete.tasks import Task


class GradAscent(Method):
    """Raise the loss of the forgotten elements by a few steps of Adam. Nothing protects the rest of the model.

    Link prediction: maximise the loss of the deleted edges and of the edges of deleted nodes, as true edges. Node
    classification: maximise the cross-entropy of the training nodes that are deleted, or whose features or label are. What
    has no loss of its own under the task, such as an edge under node classification, does not fit.

    Messages run over the training graph, with the deleted elements. Gradients are taken in evaluation mode: dropout is off
    and running statistics do not change. All requests so far are climbed together, from the user's weights.

    Args:
        epochs: Number of steps.
        lr: Learning rate of Adam.

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

    def check(self) -> None:
        check_numbers(self, positive=("lr",), whole=("epochs",))

    def unfit(self, context: Context) -> list[Reason]:
        reasons = loss_reasons(context)
        if context.task is not None and (why := context.task.no_loss(context.deletion)):
            others = "method='gif' or method='gnndelete'" if context.task.on_nodes else "method='gnndelete'"
            reasons.append(Reason(why, f"use {others}"))
        return reasons

    def unlearn(self, context: Context) -> Outcome:
        task, data, forward = known_task(context), context.data, context.session.forward
        model = working_copy(context.model)
        weights = trainable(model)
        elements = _forgotten(context, task)
        details: dict[str, Any] = {"forgotten": elements.size(-1)}
        if not elements.size(-1):
            text = "The model was trained on none of the forgotten elements, so there was no loss to climb and no weight changed."
            return Outcome(model=model, parameters=0, notes=(Note("none-trained", text),), details=details)
        optimizer = torch.optim.Adam(weights, lr=self.lr)
        with evaluating(model), torch.enable_grad():
            for epoch in range(self.epochs):
                loss = task.losses(model, forward(model, data), data, elements, "mean")
                if epoch == 0:
                    details["loss_before"] = loss.item()
                descend(-loss, weights, optimizer)
            with torch.no_grad():
                after = task.losses(model, forward(model, data), data, elements, "mean").item()
        if not torch.isfinite(torch.tensor(after)):
            raise RunError(f"the loss of the forgotten elements became {after}; lower 'lr' (now {self.lr})")
        details["loss_after"] = after
        return Outcome(model=model, parameters=sum(p.numel() for p in weights), notes=_notes(details), details=details)


def _forgotten(context: Context, task: Task) -> Tensor:
    """The deleted elements with a loss; of a link task also the edges of deleted nodes. Each once."""
    deletion, data = context.deletion, context.data
    elements = task.elements(deletion, data).to(data.edge_index.device)
    if not task.pairwise:
        return elements
    if deletion.nodes.numel():
        incident = task.elements(Deletion(nodes=deletion.nodes), data, incident=True)
        elements = torch.cat([elements, incident], dim=1) if elements.size(1) else incident
    return torch.unique(elements, dim=1)


def _notes(details: dict[str, Any]) -> tuple[Note, ...]:
    before, after = details["loss_before"], details["loss_after"]
    change = Note(
        "loss-change",
        f"The loss of {details['forgotten']} forgotten elements went from {before:.3g} to {after:.3g}. Nothing protected the "
        "rest of the model: read the test score with it.",
    )
    if after > before:
        return (change,)
    text = (
        "The loss did not rise: where the model is certain beyond 32-bit precision its gradient is zero. Raise 'lr', or use "
        "another method."
    )
    return change, Note("loss-not-risen", text)
