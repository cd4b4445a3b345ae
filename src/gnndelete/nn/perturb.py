"""The poisoned run: a NaN in one node's row before every graph layer shows which rows depend on that node."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import GNNDeleteError, ModelError
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.nn.forward import Forward, eagerly, evaluating
from gnndelete.nn.hooks import Key, Rows, all_rows, listening, representations
from gnndelete.nn.layers import working_copy
from gnndelete.nn.sparse import sparse_products


@dataclass(frozen=True)
class Seen:
    """One output during a poisoned run: which rows depend on the seed (None where the poison was lost)."""

    layer: str | None  # None for the model's own output
    call: int
    key: Key
    width: int
    rows: range  # which nodes its rows are
    moved: Tensor | None  # over all nodes

    @property
    def whole(self) -> bool:
        """Whether every row depends on the seed."""
        return self.moved is not None and int(self.moved.sum()) == len(self.rows)


def poisoned_run(
    model: nn.Module, data: Data, forward: Forward, poisoned: list[str], names: list[str], seed: Tensor
) -> list[Seen]:
    """Run a copy of the model with the seed's row poisoned before every layer of ``poisoned``, and look behind ``names``.

    Where rows that had turned NaN behind one layer are numbers again before another, something between them may have
    swallowed it, or that other layer begins anew from the features; where a layer hands it on to no further row, its
    aggregation may have (a median). Then rows also count that move with the seed's.
    """
    seen, outputs, lost = _run(model, data, forward, poisoned, names, seed, _nan)
    if not lost:
        return seen
    moved = [torch.zeros_like(output, dtype=torch.bool) for output in outputs]
    clean = _run(model, data, forward, poisoned, names, seed, None)[1]
    for change in (_FAR, -_FAR):  # one of them may end in the flat part of an activation
        other = _run(model, data, forward, poisoned, names, seed, partial(torch.add, change))[1]
        if [output.shape for output in other] != [output.shape for output in clean]:
            return seen
        for mask, before, after in zip(moved, clean, other, strict=True):
            mask |= ~torch.isclose(before, after, rtol=_NEAR, atol=_NEAR, equal_nan=True)
    nodes = len(all_rows(data).whole)
    return [_also(item, mask, nodes) for item, mask in zip(seen, moved, strict=True)]


#: By how much a row is moved where NaN was swallowed, and what is no more than rounding.
_FAR, _NEAR = 1e3, 1e-3

_Change = Callable[[Tensor], Tensor]


def _nan(rows: Tensor) -> Tensor:
    return torch.full_like(rows, float("nan"))


def _also(item: Seen, mask: Tensor, nodes: int) -> Seen:
    """An output of which further rows depend on the seed."""
    every = torch.zeros(nodes, dtype=torch.bool, device=mask.device) if item.moved is None else item.moved.clone()
    every[item.rows.start : item.rows.stop] |= mask.reshape(len(item.rows), -1).any(dim=1)
    return replace(item, moved=every if bool(every.any()) else None)


def _run(
    model: nn.Module,
    data: Data,
    forward: Forward,
    poisoned: list[str],
    names: list[str],
    seed: Tensor,
    change: _Change | None,
) -> tuple[list[Seen], list[Tensor], bool]:
    """What is seen behind layers with the seed's row changed before them, the outputs, and whether NaN may have been lost."""
    rows = all_rows(data)
    copied = working_copy(model)
    modules = dict(copied.named_modules())
    seen: list[Seen] = []
    outputs: list[Tensor] = []
    spread = torch.zeros(len(rows.whole), dtype=torch.bool, device=seed.device)
    lost = torch.zeros((), dtype=torch.bool, device=seed.device)

    def visit(name: str | None, call: int, output: Any) -> None:
        for key, h, own in representations(output, rows):
            if not len(own) or (name is not None and name not in names and change is not _nan):
                continue
            moved = torch.zeros(len(rows.whole), dtype=torch.bool, device=h.device)
            moved[own.start : own.stop] = torch.isnan(h.reshape(len(own), -1)).any(dim=1)
            if name is not None:
                spread.logical_or_(moved.to(spread.device))
                if name in given:
                    rest = ~given[name][own.start : own.stop]
                    lost.logical_or_(rest.any() & ~(moved.to(spread.device)[own.start : own.stop] & rest).any())
            if name is None or name in names:
                seen.append(Seen(name, call, key, h[0].numel(), own, moved if bool(moved.any()) else None))
                outputs.append(h.detach())

    given: dict[str, Tensor] = {}

    def fed(name: str, inside: Tensor) -> None:
        """A layer is given these rows as NaN."""
        given[name] = inside.index_fill(0, seed, True)
        lost.logical_or_((spread & ~given[name]).any())

    handles = []
    if change is not None:
        for name in poisoned:
            watch = partial(fed, name) if change is _nan else None
            spoil = _poison(modules[name], rows, seed, change, watch)
            handles.append(modules[name].register_forward_pre_hook(spoil, with_kwargs=True))
    spoiled = data.poisoned(seed) if isinstance(data, HeteroGraph) and change is _nan else copy.copy(data)
    if change is not None and not isinstance(data, HeteroGraph):
        x = data.get("x")
        if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided:
            spoiled.x = x.index_copy(0, seed, change(x[seed]))
    try:
        with (
            eagerly(copied),
            evaluating(copied),
            sparse_products(copied, spoiled),
            listening(copied, sorted({*poisoned, *names}), visit),
        ):
            output = _called(forward, copied, spoiled)
    finally:
        for handle in handles:
            handle.remove()
    visit(None, 0, output)
    return seen, outputs, change is _nan and bool(lost)


def _called(forward: Forward, model: nn.Module, data: Data) -> Any:
    try:
        return forward(model, data)
    except GNNDeleteError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise ModelError(
            f"the model '{type(model).__name__}' does not run on the graph ({type(error).__name__}: {error}); give the graph "
            "it was trained on, or forward=lambda model, data: … that calls it"
        ) from error


def _poison(
    module: nn.Module, rows: Rows, seed: Tensor, change: _Change, watch: Callable[[Tensor], None] | None
) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
    names = list(inspect.signature(module.forward).parameters)

    def spoil(value: Any, inside: Tensor, key: Any = None) -> Any:
        if isinstance(value, Tensor):
            own = rows.of(value, key) if value.layout == torch.strided else None
            if own is None:
                return value
            if watch is not None and value.is_floating_point():
                inside[own.start : own.stop] |= torch.isnan(value.reshape(len(own), -1)).any(dim=1).to(inside.device)
            if int(seed) not in own:
                return value
            place = seed - own.start
            spoiled = change is _nan and bool(torch.isnan(value[place]).all())  # x often is already: spare its copy
            return value if spoiled else value.index_copy(0, place, change(value[place]))
        if isinstance(value, dict):
            return {key: spoil(item, inside, key) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(spoil(item, inside) for item in value)
        return value

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        inside = torch.zeros(len(rows.whole), dtype=torch.bool, device=seed.device)
        spoiled = [
            v if i < len(names) and names[i].startswith("edge") else spoil(v, inside) for i, v in enumerate(args)
        ]
        named = {k: v if k.startswith("edge") else spoil(v, inside) for k, v in kwargs.items()}
        if watch is not None:
            watch(inside)
        return tuple(spoiled), named

    return hook
