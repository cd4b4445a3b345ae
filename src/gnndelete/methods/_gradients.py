"""Shared by the methods that follow gradients of the loss: whether they fit, weights as one vector, and the damage done."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gnndelete.errors import RequestError, RunError
from gnndelete.methods.base import Context, Reason
from gnndelete.metrics.ranking import ranking
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note
from gnndelete.tasks import Task

#: A note is made where the validation score falls by more than this.
FALL = 0.1


def loss_reasons(context: Context) -> list[Reason]:
    """Why a method that follows gradients of the task's loss cannot serve this context."""
    reasons = []
    if context.task is None:
        reasons.append(Reason("it needs a loss, and no task says which", "pass task='link', task='node' or a Task"))
    else:
        try:
            context.task.check(context.data)
        except RequestError as error:
            reasons.append(Reason(error.why, error.remedy or "give the task's data with the graph"))
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
    """All entries of some tensors as one vector, detached from the graph of gradients."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


@torch.no_grad()
def assign(weights: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Write a vector that `flat` made back into the weights, in place."""
    for parameter, part in zip(weights, vector.split([p.numel() for p in weights]), strict=True):
        parameter.copy_(part.view_as(parameter))


def descend(loss: Tensor, weights: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """One optimizer step. Only ``weights`` receive gradients: other tensors of the user that took part get none."""
    gradients = torch.autograd.grad(loss, list(weights), allow_unused=True, materialize_grads=True)
    for parameter, gradient in zip(weights, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    for parameter in weights:
        parameter.grad = None


def saturation(positives: Tensor, negatives: Tensor) -> dict[str, float]:
    """AUROC of link logits, and AUROC of their 32-bit sigmoids, where all large scores tie.

    >>> saturation(torch.tensor([300.0, 200.0]), torch.tensor([90.0, 80.0]))
    {'auroc_from_logits': 1.0, 'auroc_from_probabilities': 0.5}
    """
    squashed = [torch.sigmoid(logits.float()) for logits in (positives, negatives)]
    return {
        "auroc_from_logits": ranking(positives, negatives)["auroc"],
        "auroc_from_probabilities": ranking(*squashed)["auroc"],
    }


@torch.no_grad()
def validation_scores(model: nn.Module, context: Context) -> dict[str, float]:
    """Scores on the validation data that remains; empty where there is none, or where scores overflow."""
    task, data = context.remaining_task, context.remaining
    if task is None or not task.validates(data):
        return {}
    with evaluating(model):
        output = context.session.forward(model, data)
        if not task.pairwise:
            try:
                return {"validation": task.validate(model, output, data)}
            except RunError:  # the odds of graphs are not finite
                return {}
        edges, true = task.examples(data, "validation")
        logits = task.predict(model, output, edges)
    parts = logits[true == 1], logits[true == 0]
    if not all(bool(torch.isfinite(part).all()) and part.numel() for part in parts):
        return {}
    ranks = saturation(*parts)
    return {"validation": ranks["auroc_from_logits"], **ranks}


def has_fallen(before: float | None, after: float | None) -> bool:
    """Whether a validation score fell by more than `FALL`, or can no longer be computed.

    >>> has_fallen(0.9, 0.85), has_fallen(0.9, 0.7), has_fallen(0.9, None), has_fallen(None, None)
    (False, True, True, False)
    """
    return before is not None and (after is None or after < before - FALL)


def validation_change(model: nn.Module, context: Context, remedy: str) -> tuple[dict[str, float], tuple[Note, ...]]:
    """Validation scores of the user's weights and of ``model`` on what remains, and a note where they fell far."""
    before = validation_scores(working_copy(context.model), context).get("validation")
    after = validation_scores(model, context).get("validation")
    scores = {"validation_before": before, "validation": after}
    found = {name: score for name, score in scores.items() if score is not None}
    if before is None or not has_fallen(before, after):
        return found, ()
    lost = (
        f"is gone ({before:.3f} before, and scores overflow now)"
        if after is None
        else f"fell by {before - after:.3f}, from {before:.3f} to {after:.3f}"
    )
    text = f"The validation score {lost}: the new weights cost much of the model's use. {remedy}"
    return found, (Note("validation-fell", text),)
