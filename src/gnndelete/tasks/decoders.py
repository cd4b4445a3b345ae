"""From node representations to link scores: built-in decoders, a method of the model, or a callable of the user."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import MethodType
from typing import Any

from torch import Tensor, nn

from gnndelete.errors import GraphError, ModelError, SettingError
from gnndelete.tasks.base import representation

Decoder = Callable[[Any, Tensor], Tensor]


def dot(output: Any, edges: Tensor) -> Tensor:
    """The inner product of the two ends of each edge; the relation of a triple is ignored.

    >>> import torch
    >>> dot(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]])).tolist()
    [11.0]
    """
    z = representation(output)
    # index_select, because the gradient of z[…] adds up in random order on several CPU threads
    return (z.index_select(0, edges[0]) * z.index_select(0, edges[-1])).sum(dim=-1)


def distmult(output: Any, relation: Tensor, triples: Tensor) -> Tensor:
    """DistMult: ``sum(h * r * t)`` of head, relation and tail (Yang et al. 2015).

    >>> import torch
    >>> z, relation = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 0.5]])
    >>> distmult(z, relation, torch.tensor([[0], [0], [1]])).tolist()
    [7.0]
    """
    if triples.size(0) != 3:
        raise GraphError(
            "decoder='distmult' scores triples (head, relation, tail), and pairs were given", "name the relation"
        )
    if triples.numel() and int(triples[1].max()) >= relation.size(0):
        raise GraphError(
            f"a triple has the relation {int(triples[1].max())}, and the model has {relation.size(0)}",
            "types start at 0",
        )
    z = representation(output)
    head, tail = z.index_select(0, triples[0]), z.index_select(0, triples[2])
    return (head * relation.index_select(0, triples[1]) * tail).sum(dim=-1)


def relation_weight(model: nn.Module) -> Tensor:
    """The relations of a model for DistMult: its attribute ``relation``, a ``[R, width]`` parameter or an embedding."""
    found = getattr(model, "relation", None)
    weight = getattr(found, "weight", found)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise ModelError(
            f"decoder='distmult' needs '{type(model).__name__}' to have a parameter (or nn.Embedding) 'relation' with one row "
            "per relation, as wide as its output; take rgcn or rgat, decoder='dot', or name a method of the model that decodes"
        )
    return weight


def check_decoder(decoder: str | Decoder) -> None:
    """Refuse what can never decode."""
    if not isinstance(decoder, str) and not callable(decoder):
        raise SettingError(
            f"'decoder' must be 'dot', 'distmult', the name of a method of the model, or a callable (z, edges) -> scores "
            f"(got '{type(decoder).__name__}')"
        )


def bind(decoder: str | Decoder, model: nn.Module) -> Decoder:
    """The decoder as a callable for one model.

    The library works on copies of the user's model. A decoder that is a module, or a method of one, is therefore replaced by
    its counterpart in ``model``, found by its class.
    """
    if decoder == "dot":
        return dot
    if decoder == "distmult":
        relation = relation_weight(model)
        return lambda output, triples: distmult(output, relation, triples)
    if isinstance(decoder, str):
        try:
            method: Decoder = attrgetter(decoder)(model)
        except AttributeError:
            raise ModelError(
                f"decoder='{decoder}' is neither built in ('dot', 'distmult') nor a method of '{type(model).__name__}'; "
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
