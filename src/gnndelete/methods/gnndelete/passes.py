"""The base model's forward pass that gives the targets, and the saving of its first layer in the pass that solves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.methods.base import Context
from gnndelete.nn.hooks import Finished, Site, entry, listening

#: Rows that are summed in their own precision, and numbers of which a copy in double precision costs nothing.
BLOCK_ROWS, SMALL = 1024, 1 << 21


@dataclass
class BasePass:
    """What the base model said: rows to keep and the mean of all rows per site, and the first layer's whole output."""

    keep: dict[Site, Tensor] = field(default_factory=dict)
    mean: dict[Site, Tensor] = field(default_factory=dict)
    first: Any = None  # None where it cannot be reused
    output: Any = None  # of the whole model on the remaining graph; None where the pass ended before it


def base_pass(
    context: Context,
    model: nn.Module,
    sites: tuple[Site, ...],
    targets: str,
    rows: Callable[[Site], Tensor],
    whole: bool = False,
    reuse: bool = True,
    look: Callable[[Site, Tensor], None] | None = None,
) -> BasePass:
    """Run the base model once on the graph that sets the targets, keeping only the rows that operators will need.

    On the remaining graph the first layer's output is also what the solving pass starts from, so it is kept whole and
    computed once; its rows are their own targets. ``whole`` runs the pass to its end for the output there. Without
    ``reuse`` the solving pass runs on another graph. ``look`` is shown what stands at each site.
    """
    result = BasePass()
    first = sites[0]
    remaining = targets == "remaining"
    starts = remaining and reuse
    unchanged: list[tuple[Tensor, int]] = []

    def visit(name: str, call: int, output: Any) -> None:
        here = [site for site in sites if (site.layer, site.call) == (name, call)]
        for site in here:
            h = entry(output, site.key)
            if look is not None:
                look(site, h)
            result.mean[site] = _mean(h, site.local(context.gone).to(h.device))
            if not starts or site is not first:
                result.keep[site] = h.index_select(0, rows(site))
        if starts and first in here:
            given = [entry(output, site.key) for site in here]
            if not any(h.is_inference() for h in given):  # inference tensors do not tell whether they were written to
                result.first = output
                unchanged.extend((h, h._version) for h in given)
        if sites[-1] in here and not (whole and remaining):
            raise Finished

    try:
        with listening(model, list(dict.fromkeys(site.layer for site in sites)), visit):
            result.output = context.session.forward(model, context.remaining if remaining else context.data)
    except Finished:
        pass
    if any(h._version != version for h, version in unchanged):  # the model wrote into its layer's output (relu_, +=)
        result.first = None
    return result


def presented_rows(context: Context, model: nn.Module, sites: tuple[Site, ...], nodes: Tensor) -> dict[Site, Tensor]:
    """What the base model says of deleted nodes where they still are: their rows of every site on the original graph."""
    result: dict[Site, Tensor] = {}

    def visit(name: str, call: int, output: Any) -> None:
        for site in sites:
            if (site.layer, site.call) == (name, call):
                result[site] = entry(output, site.key).index_select(0, site.local(nodes))
        if (sites[-1].layer, sites[-1].call) == (name, call):
            raise Finished

    try:
        with listening(model, list(dict.fromkeys(site.layer for site in sites)), visit):
            context.session.forward(model, context.data)
    except Finished:
        pass
    return result


def _mean(h: Tensor, dead: Tensor) -> Tensor:
    """The expectation of a random node's representation: the mean over all nodes that are left.

    Blocks of rows are summed as they are and added up in double precision: one look at every row, and no second copy.
    """
    rows = h.flatten(1)
    whole = rows.size(0) // BLOCK_ROWS * BLOCK_ROWS if rows.numel() > SMALL else 0
    total = rows[whole:].sum(dim=0, dtype=torch.float64)
    if whole:
        total += rows[:whole].unflatten(0, (-1, BLOCK_ROWS)).sum(dim=1).double().sum(dim=0)
    if dead.numel():
        total -= rows[dead].double().sum(dim=0)
    return total / max(h.size(0) - dead.numel(), 1)


@contextmanager
def first_output_given(model: nn.Module, site: Site, output: Any) -> Iterator[None]:
    """Let the first call of the first layer return what is already known instead of computing it again."""
    layer = model.get_submodule(site.layer)
    if output is None or site.call != 0 or layer._forward_hooks:  # a hook already there would act on it a second time
        yield
        return
    compute, own = layer.forward, vars(layer).get("forward")
    given = [output]

    def forward(*args: Any, **kwargs: Any) -> Any:
        return given.pop() if given else compute(*args, **kwargs)

    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward
        if own is not None:
            layer.forward = own
