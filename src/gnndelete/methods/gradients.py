"""What the methods that follow gradients of the task's loss share: whether they fit, and weights as one vector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gnndelete.errors import RequestError
from gnndelete.methods.base import Context, Reason
from gnndelete.tasks import Task


def loss_reasons(context: Context) -> list[Reason]:
    """Why a method that follows gradients of the task's loss cannot serve this context."""
    reasons = []
    if context.task is None:
        reasons.append(Reason("it needs a loss, and no task says which", "pass task='link', task='node' or a Task"))
    else:
        try:
            context.task.check(context.data)
        except RequestError as error:
            why, _, remedy = str(error).partition("; ")
            reasons.append(Reason(why, remedy or "give the task's data with the graph"))
    if not trainable(context.model):
        why = f"'{type(context.model).__name__}' has no parameter that requires a gradient"
        reasons.append(Reason(why, "call requires_grad_(True) on what may change, or use method='unlink'"))
    return reasons


def known_task(context: Context) -> Task:
    """The task of a context that `loss_reasons` found nothing against."""
    assert context.task is not None
    return context.task


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The weights that may change: those that require a gradient."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All entries of some tensors as one vector that no gradient flows through."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


@torch.no_grad()
def assign(weights: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Write a vector that `flat` made back into the weights, each in its own memory and type."""
    for parameter, part in zip(weights, vector.split([p.numel() for p in weights]), strict=True):
        parameter.copy_(part.view_as(parameter))


def descend(loss: Tensor, weights: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """One step down. Gradients go to ``weights`` alone: whatever of the user's took part in ``loss`` gets none."""
    gradients = torch.autograd.grad(loss, list(weights), allow_unused=True, materialize_grads=True)
    for parameter, gradient in zip(weights, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    for parameter in weights:
        parameter.grad = None
