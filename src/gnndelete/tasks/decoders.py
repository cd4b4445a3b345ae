"""From node representations to link scores: the built-in decoder, a method of the model, or the user's callable."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import MethodType
from typing import Any

from torch import Tensor, nn

from gnndelete.errors import ModelError, NotYetError, SettingError
from gnndelete.tasks.base import representation

Decoder = Callable[[Any, Tensor], Tensor]


def dot(output: Any, edges: Tensor) -> Tensor:
    """The inner product of the two ends of each edge.

    >>> import torch
    >>> dot(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]])).tolist()
    [11.0]
    """
    z = representation(output)
    # index_select, since the gradient of z[…] adds up in any order on several CPU threads: the same seed would differ.
    return (z.index_select(0, edges[0]) * z.index_select(0, edges[1])).sum(dim=-1)


def check_decoder(decoder: str | Decoder) -> None:
    """Refuse, before anything runs, what can never decode."""
    if decoder == "distmult":
        raise NotYetError("decoder='distmult' scores typed edges, which this version does not support yet; use 'dot'")
    if not isinstance(decoder, str) and not callable(decoder):
        raise SettingError(
            f"'decoder' must be 'dot', the name of a method of the model, or a callable (z, edges) -> scores "
            f"(got '{type(decoder).__name__}')"
        )


def bind(decoder: str | Decoder, model: nn.Module) -> Decoder:
    """The decoder as a callable for this very model.

    The library works on copies of the user's model. A decoder that is a module, or a method of one, is therefore
    exchanged for its counterpart in ``model``, found by its class.
    """
    if decoder == "dot":
        return dot
    if isinstance(decoder, str):
        try:
            method: Decoder = attrgetter(decoder)(model)
        except AttributeError:
            raise ModelError(
                f"decoder='{decoder}' is neither built in ('dot') nor a method of '{type(model).__name__}'; "
                "name one of its methods, or pass a callable (z, edges) -> scores"
            ) from None
        return method
    owner = decoder if isinstance(decoder, nn.Module) else getattr(decoder, "__self__", None)
    if not isinstance(owner, nn.Module):
        return decoder
    twins = [module for module in model.modules() if type(module) is type(owner)]
    if not twins or any(twin is owner for twin in twins):
        return decoder
    if len(twins) > 1:
        raise ModelError(
            f"the decoder belongs to a '{type(owner).__name__}', and the model holds {len(twins)} of these; "
            "give its path in the model as a string instead, such as decoder='head.decode'"
        )
    return twins[0] if decoder is owner else MethodType(decoder.__func__, twins[0])  # type: ignore[attr-defined]
