"""Retrain: a new model from a new seed on the remaining graph. The reference for every gap."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from gnndelete.errors import ModelError
from gnndelete.methods.base import Assurance, Context, Fit, Method, Outcome, Reason, Weights
from gnndelete.metrics.whitebox import CORRELATION, weight_correlation
from gnndelete.nn.reset import frozen_notes, refuse_unreset_buffers, untrained
from gnndelete.notes import Note
from gnndelete.training.loop import train


class Retrain(Method):
    """Train again from fresh weights without the deleted elements.

    Weights are drawn by ``reset_parameters()`` throughout the model, or by ``build`` of the `Unlearner`. Training is the
    Unlearner's ``fit(model, data, seed)``, else the built-in loop `gnndelete.train` with the options given here.

    Args:
        epochs: Passes over the training data.
        lr: Learning rate of Adam.
        patience: Stop after this many validations without a better score; None trains to the end.
        seed: Seed of the new weights; None takes the one after the seed of the deletion.
        batch_size: Train in batches of this size; None trains on the whole graph at once.
        num_neighbors: Neighbours that are sampled per hop for a batch; None takes all.

    >>> Retrain(epochs=100).settings()["epochs"]
    100
    """

    name: ClassVar[str] = "retrain"
    assurance: ClassVar[Assurance] = "retrained"
    weights: ClassVar[Weights] = "new"
    needs = "a training function"
    summary: ClassVar[str] = "train a new model on the remaining graph"
    node_types: ClassVar[bool] = True
    next_seed: ClassVar[int] = 1  # added to the seed of the deletion where no seed is given

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
            remedy = "pass task=…, or fit=lambda model, data, seed: …"
            reasons.append(Reason("nothing says how to train the model", remedy))
        return reasons + reset_reasons(context) + decoder_reasons(context, context.fit)

    def unlearn(self, context: Context) -> Outcome:
        seed = context.seed + self.next_seed if self.seed is None else self.seed
        model = untrained(context.model, context.build, seed).to(context.data.edge_index.device)
        if context.fit is not None:
            model = context.fit(model, context.remaining, seed) or model
            text = "Trained by the given fit function; epochs, lr and patience of this method played no part."
            if context.build is None:
                text += (
                    " Its first weights are those of reset_parameters(); if your constructor draws others, pass build=."
                )
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
            text = f"Trained by the built-in loop: {result.epochs_run} epochs, best at {result.best_epoch}."
        notes = (Note("training", text), *_not_fresh_notes(context, model), *kept_notes(context))
        return Outcome(model=model, parameters=sum(p.numel() for p in model.parameters()), notes=notes)


def reset_reasons(context: Context) -> list[Reason]:
    """Why the model cannot be brought back to its state before training."""
    if context.build is not None:
        return []
    try:
        refuse_unreset_buffers(context.model, context.data, context.session.forward)
    except ModelError as error:
        return [Reason(error.why, error.remedy or "pass build=lambda: … that makes an untrained model")]
    return []


def decoder_reasons(context: Context, fit: Fit | None) -> list[Reason]:
    """Why training would not reach every weight; a ``fit`` of the user may know how to."""
    decoder = None if context.task is None or fit is not None else context.task.outside_weights(context.model)
    if decoder is None or not any(weight.requires_grad for weight in decoder.parameters()):
        return []
    name = type(decoder).__name__
    why = f"the decoder '{name}' is no part of the model, and its weights would stay as they were learned"
    return [Reason(why, "make it a submodule of the model and name it (decoder='…')")]


def _not_fresh_notes(context: Context, model: nn.Module) -> tuple[Note, ...]:
    """A note where the weights are not what a training from fresh ones gives: ``fit`` may have loaded the old ones."""
    found = weight_correlation(context.model, model)
    if found is None or found <= CORRELATION:
        return ()
    text = (
        f"The weights correlate {found:.2f} with the old ones, and those of two trainings from fresh weights do not: fit seems "
        "to start from weights that it keeps. If these have seen what was deleted, this model knows it still. Let fit train the "
        "model that it is given."
    )
    return (Note("not-fresh", text),)


def kept_notes(context: Context) -> tuple[Note, ...]:
    """Notes on weights that a new training leaves as they are: frozen parameters, and a decoder outside the model."""
    notes = [] if context.build else [*frozen_notes(context.model)]
    decoder = None if context.task is None else context.task.outside_weights(context.model)
    if decoder is not None:
        kept = "was kept as it is" if context.fit is None else "was kept as it is, unless fit trained it again"
        text = (
            f"The decoder '{type(decoder).__name__}' is no part of the model and {kept}; where it was learned from what was "
            "deleted, it still knows that: make it a submodule of the model and name it (decoder='…')."
        )
        notes.append(Note("decoder-kept", text))
    return tuple(notes)
