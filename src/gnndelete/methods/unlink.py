"""Unlink: weights unchanged, inference on the remaining graph. The control that every other method must beat."""

from __future__ import annotations

from typing import ClassVar

from gnndelete.methods.base import Assurance, Context, Method, Outcome
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note


class Unlink(Method):
    """Cut the elements out of the graph and keep the model (UtU, WWW 2024).

    >>> Unlink().assurance
    'inference-only'
    """

    name: ClassVar[str] = "unlink"
    assurance: ClassVar[Assurance] = "inference-only"
    summary: ClassVar[str] = "cut the elements out of the graph, keep every weight"
    node_types: ClassVar[bool] = True

    def unlearn(self, context: Context) -> Outcome:
        text = "No weight was changed: whatever the weights remember of the deleted elements is still there."
        return Outcome(model=working_copy(context.model), parameters=0, notes=(Note("weights-kept", text),))
