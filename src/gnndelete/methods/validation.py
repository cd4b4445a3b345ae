"""What an update of the weights costs on validation data, for the methods that can ruin a model without noticing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnndelete.errors import RunError
from gnndelete.methods.base import Context
from gnndelete.metrics.ranking import ranking
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.tasks import LinkPrediction

#: A validation score that falls by more is told.
FALL = 0.1


def saturation(positives: Tensor, negatives: Tensor) -> dict[str, float]:
    """AUROC of link logits, and what becomes of it when 32-bit sigmoids stand in for them: large scores all tie.

    >>> saturation(torch.tensor([300.0, 200.0]), torch.tensor([90.0, 80.0]))
    {'auroc_from_logits': 1.0, 'auroc_from_probabilities': 0.5}
    """
    squashed = [torch.sigmoid(logits.float()) for logits in (positives, negatives)]
    return {
        "auroc_from_logits": ranking(positives, negatives)["auroc"],
        "auroc_from_probabilities": ranking(*squashed)["auroc"],
    }


@torch.no_grad()
def validation(model: nn.Module, context: Context) -> dict[str, float]:
    """Scores on the validation data that remains; nothing where there is none, or where scores overflow."""
    task, data = context.remaining_task, context.remaining
    if task is None or not task.validates(data):
        return {}
    with evaluating(model):
        output = context.session.forward(model, data)
        if not isinstance(task, LinkPrediction):
            try:
                return {"validation": task.validate(model, output, data)}
            except RunError:  # of graphs: their odds are no finite numbers
                return {}
        assert task.validation is not None
        assert task.validation.negatives is not None  # drawn by the task's check
        parts = [task.predict(model, output, edges) for edges in (task.validation.positives, task.validation.negatives)]
    if not all(bool(torch.isfinite(part).all()) and part.numel() for part in parts):
        return {}
    ranks = saturation(*parts)
    return {"validation": ranks["auroc_from_logits"], **ranks}


def ruined(before: float | None, after: float | None) -> bool:
    """Whether a validation score fell by more than `FALL`, or can no longer be taken.

    >>> ruined(0.9, 0.85), ruined(0.9, 0.7), ruined(0.9, None), ruined(None, None)
    (False, True, True, False)
    """
    return before is not None and (after is None or after < before - FALL)


def fall(model: nn.Module, context: Context, remedy: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Validation scores with the user's weights and with those of ``model``, both on what remains, and a note on a deep fall.

    Asked for when a method is done: the user's model runs as a copy, and nothing that was found depends on it.
    """
    before = validation(working_copy(context.model), context).get("validation")
    after = validation(model, context).get("validation")
    scores = {"validation_before": before, "validation": after}
    found = {name: score for name, score in scores.items() if score is not None}
    if before is None or not ruined(before, after):
        return found, ()
    lost = (
        f"is gone ({before:.3f} before, and scores overflow now)"
        if after is None
        else f"fell by {before - after:.3f}, from {before:.3f} to {after:.3f}"
    )
    return found, (f"The validation score {lost}: the new weights cost much of the model's use. {remedy}",)
