"""Unlink: weights unchanged, inference on the remaining graph. The control that every other method must beat."""

from __future__ import annotations

from typing import ClassVar

from gnndelete.engine.local import BlockSession
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

    def runs_on_block(self, context: Context) -> bool:
        """Always: only rows near the deletion change.

        Args:
            context: The request.

        Returns:
            Whether the request can be solved on a block.
        """
        return True

    def unlearn(self, context: Context) -> Outcome:
        text = "No weight was changed: whatever the weights remember of the deleted elements is still there."
        notes, near = (Note("weights-kept", text),), context.near
        if isinstance(near.session, BlockSession):
            output = near.session.forward(near.model, near.remaining)
            return Outcome(None, 0, answers=near.session.answers(output), notes=notes)
        return Outcome(working_copy(context.model), 0, notes=notes)
