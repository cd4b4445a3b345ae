"""Retrain: a new model from a new seed on the remaining graph. The reference for every gap."""

from __future__ import annotations

from typing import ClassVar

from gnndelete.errors import ModelError
from gnndelete.methods.base import Assurance, Context, Fit, Method, Outcome, Reason
from gnndelete.nn.reset import carried, kept_note, untrained
from gnndelete.training.loop import train


class Retrain(Method):
    """Train again from fresh weights without the deleted elements.

    Weights are drawn anew by ``reset_parameters()`` throughout the model, or by ``build`` of the `Unlearner`. Training is
    the Unlearner's ``fit(model, data, seed)``, else the built-in loop with the options given here.
    """

    name: ClassVar[str] = "retrain"
    assurance: ClassVar[Assurance] = "retrained"
    needs = "a training function"
    summary: ClassVar[str] = "train a new model on the remaining graph"
    node_types: ClassVar[bool] = True
    next_seed: ClassVar[int] = 1  # which seed after that of the deletion it takes, where it is given none

    def __init__(
        self,
        epochs: int = 1000,
        lr: float = 1e-3,
        patience: int | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        num_neighbors: int | list[int] | None = None,
    ) -> None:
        self.epochs = epochs
        self.lr = lr
        self.patience = patience
        self.seed = seed
        self.batch_size = batch_size
        self.num_neighbors = num_neighbors

    def unfit(self, context: Context) -> list[Reason]:
        reasons = []
        if context.fit is None and context.task is None:
            reasons.append(
                Reason("nothing says how to train the model", "pass task=…, or fit=lambda model, data, seed: …")
            )
        return reasons + not_anew(context) + not_trained(context, context.fit)

    def unlearn(self, context: Context) -> Outcome:
        seed = context.seed + self.next_seed if self.seed is None else self.seed
        device = context.data.edge_index.device
        model = untrained(context.model, context.build, seed).to(device)
        kept = (*(() if context.build else kept_note(context.model)), *apart_note(context))
        if context.fit is not None:
            model = context.fit(model, context.remaining, seed) or model
            notes = ("Trained by the given fit function; epochs, lr and patience of this method played no part.",)
        else:
            assert context.remaining_task is not None
            result = train(
                model,
                context.remaining,
                context.remaining_task,
                epochs=self.epochs,
                lr=self.lr,
                patience=self.patience,
                seed=seed,
                progress=context.progress,
                forward=context.session.forward,
                batch_size=self.batch_size,
                num_neighbors=self.num_neighbors,
            )
            notes = (f"Trained by the built-in loop: {result.epochs_run} epochs, best at {result.best_epoch}.",)
        return Outcome(model=model, parameters=sum(p.numel() for p in model.parameters()), notes=(*notes, *kept))


def not_anew(context: Context) -> list[Reason]:
    """Why the model cannot be made as it was before training."""
    if context.build is not None:
        return []
    try:
        why = carried(context.model, context.data, context.session.forward)
    except ModelError as error:
        why = str(error)
    return [] if why is None else [Reason(why, "pass build=lambda: … that makes an untrained model")]


def not_trained(context: Context, fit: Fit | None) -> list[Reason]:
    """Why training, unless the user's own ``fit`` knows better, would not reach all that is to be learned."""
    other = None if context.task is None or fit is not None else context.task.apart(context.model)
    if other is None or not any(weight.requires_grad for weight in other.parameters()):
        return []
    why = (
        f"the decoder '{type(other).__name__}' is no part of the model, and its weights would stay as they were learned"
    )
    return [Reason(why, "make it a submodule of the model and name it (decoder='…')")]


def apart_note(context: Context) -> tuple[str, ...]:
    """What to say of weights outside of the model where it is trained anew."""
    other = None if context.task is None else context.task.apart(context.model)
    if other is None:
        return ()
    kept = "was kept as it is" if context.fit is None else "was kept as it is, unless fit trained it anew"
    return (
        f"The decoder '{type(other).__name__}' is no part of the model and {kept}; where it was learned from what was "
        "deleted, it still knows that: make it a submodule of the model and name it (decoder='…').",
    )
