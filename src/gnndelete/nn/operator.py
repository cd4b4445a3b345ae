"""The deletion operator DEL and the hook by which it acts behind a layer of any model.

The operators of a layer are a submodule of that layer, named ``gnndelete``; a hook function of this module applies them.
Base weights, classes and ``forward`` stay as they are, and copies and pickles of the model carry the operators along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.errors import ModelError
from gnndelete.nn.hooks import Key, entry, replaced

#: Name of the submodule that holds a layer's operators, and so the prefix of all their keys in a checkpoint.
PREFIX = "gnndelete"


class LinearMap(nn.Module):
    """h -> h W, the paper's operator; it starts as the identity.

    >>> LinearMap(2)(torch.tensor([[1.0, 2.0]])).tolist()
    [[1.0, 2.0]]
    """

    def __init__(self, width: int, weight: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(width) if weight is None else weight)

    def forward(self, h: Tensor) -> Tensor:
        return (h.to(self.weight.dtype) @ self.weight).to(h.dtype)


class GivenRows(nn.Module):
    """h -> rows that are known beforehand, whatever h is: one for each row of its group, or one for all of them.

    >>> GivenRows(torch.tensor([[3.0, 4.0]]))(torch.zeros(2, 2)).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self, h: Tensor, members: Tensor | None = None) -> Tensor:
        """``members``: which rows of the group these are, where they are not all of them."""
        if self.values.size(0) == 1:
            return self.values.expand_as(h)
        return self.values if members is None else self.values.index_select(0, members)


class Operator(nn.Module):
    """DEL behind one call of one layer: groups of rows, each with a map of its own; all other rows pass untouched."""

    rows: Tensor

    def __init__(self, num_rows: int, width: int, rows: list[Tensor], maps: list[nn.Module]) -> None:
        super().__init__()
        self.num_rows = num_rows
        self.width = width
        self.sizes = [group.numel() for group in rows]
        self.register_buffer("rows", torch.cat(rows))
        self.maps = nn.ModuleList(maps)

    def forward(self, h: Tensor, ids: Tensor | None = None) -> Tensor:
        """Replace the operator's rows of ``h``; ``ids`` says which rows these are where ``h`` is a sampled batch."""
        places, members = self._places(h, ids)
        sizes = self.sizes if members is None else [member.numel() for member in members]
        if not places.numel():
            return h
        rows = h.index_select(0, places).flatten(1)
        parts = rows.split(sizes) if len(sizes) > 1 else [rows]
        mapped = []
        for index, (apply, part) in enumerate(zip(self.maps, parts, strict=True)):
            given = isinstance(apply, GivenRows)
            mapped.append(apply(part, None if members is None else members[index]) if given else apply(part))
        joined = torch.cat(mapped) if len(mapped) > 1 else mapped[0]
        return h.index_copy(0, places, joined.reshape(-1, *h.shape[1:]).to(h.dtype))

    def _places(self, h: Tensor, ids: Tensor | None) -> tuple[Tensor, list[Tensor] | None]:
        """Where the operator's rows stand in ``h``, and which of each group they are: None where all are there."""
        if ids is None:
            return self.rows, None
        ids, places, members = ids.to(h.device), [], []
        for group in self.rows.split(self.sizes):
            if not group.numel():
                places.append(group)
                members.append(group)
                continue
            found = torch.searchsorted(group, ids).clamp_(max=group.numel() - 1)
            there = (group[found] == ids).nonzero().flatten()
            places.append(there)
            members.append(found[there])
        return torch.cat(places), members


class LayerOperators(nn.Module):
    """All operators of one layer: one per call in a forward pass and per entry of its output."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.enabled = True
        self.places: list[tuple[int, Key]] = []
        self.operators = nn.ModuleList()
        self.calls = 1  # how often the layer is called in one forward pass
        self.count = 0
        self.ids: Tensor | dict[str, Tensor] | None = None  # by node type where there are several

    def add(self, call: int, key: Key, operator: Operator) -> None:
        self.places.append((call, key))
        self.operators.append(operator)

    def act(self, output: Any) -> Any:
        call = 0
        if self.calls > 1:  # a single call keeps no state, so that compiled models have none to guard
            call = self.count % self.calls
            self.count += 1
        if not self.enabled:
            return output
        for (place, key), operator in zip(self.places, self.operators, strict=True):
            if place == call and isinstance(operator, Operator):
                h = entry(output, key)
                output = replaced(output, key, operator(h, self._ids(h, key, operator.num_rows)))
        return output

    def _ids(self, h: Tensor, key: Key, num_rows: int) -> Tensor | None:
        ids = self.ids
        if isinstance(ids, dict):
            if key not in ids:
                raise ModelError(
                    f"layer '{self.name}' gives rows of {key!r}, and gnndelete.rows was given ids of {', '.join(ids)}; pass "
                    "those of every node type of the batch"
                )
            ids = ids[str(key)]
        if ids is None:
            if h.size(0) != num_rows:
                raise ModelError(
                    f"layer '{self.name}' got {h.size(0)} rows, but its deletion operator was made for {num_rows} nodes; "
                    "wrap a sampled batch in `with gnndelete.rows(model, batch.n_id):`, and for another graph delete again there"
                )
            return None
        if h.size(0) > ids.numel():
            raise ModelError(
                f"layer '{self.name}' got {h.size(0)} rows, but gnndelete.rows was given {ids.numel()} ids; "
                "pass the ids of all rows of the batch (batch.n_id)"
            )
        return ids[: h.size(0)]  # layers that trim a batch keep its first rows


def act_after(layer: nn.Module, _: Any, output: Any) -> Any:
    """The forward hook of every layer with operators."""
    return getattr(layer, PREFIX).act(output)


def start_pass(model: nn.Module, _: Any) -> None:
    """The forward pre-hook of a model with repeated layers: a new pass counts its calls from 0 again."""
    for operators in layer_operators(model):
        operators.count = 0


def attach(model: nn.Module, layer: str, call: int, key: Key, operator: Operator, calls: int = 1) -> None:
    """Put an operator behind one call of a layer (in place; work on a copy of the user's model)."""
    module = model.get_submodule(layer)
    if not isinstance(module._modules.get(PREFIX), LayerOperators):
        module.add_module(PREFIX, LayerOperators(layer))
        module.register_forward_hook(act_after)
    operators = getattr(module, PREFIX)
    operators.calls = calls
    operators.add(call, key, operator)
    operators.train(module.training)
    if calls > 1 and start_pass not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(start_pass)


def detach(model: nn.Module) -> None:
    """Take all operators off again; afterwards the base checkpoint loads strictly."""
    for module in list(model.modules()):
        if isinstance(module._modules.get(PREFIX), LayerOperators):
            del module._modules[PREFIX]
            _drop(module._forward_hooks, act_after)
    _drop(model._forward_pre_hooks, start_pass)


def _drop(hooks: dict[int, Any], function: Any) -> None:
    for key in [key for key, hook in hooks.items() if hook is function]:
        del hooks[key]


def layer_operators(model: nn.Module) -> list[LayerOperators]:
    """The operators of every layer that has any."""
    return [module for module in model.modules() if isinstance(module, LayerOperators)]


@contextmanager
def rows(model: nn.Module, ids: Tensor | Mapping[str, Tensor]) -> Iterator[None]:
    """Say which nodes the rows of a sampled batch are, so that the operators act on the right ones.

    With several node types ``ids`` is a dict by type, such as ``batch.n_id_dict``.

    >>> with rows(nn.Linear(1, 1), torch.tensor([4, 2])):  # a model without operators needs none, and may have it
    ...     pass
    """
    given = {kind: _row_ids(part) for kind, part in ids.items()} if isinstance(ids, Mapping) else _row_ids(ids)
    found = layer_operators(model)
    before = [operators.ids for operators in found]
    for operators in found:
        operators.ids = given
    try:
        yield
    finally:
        for operators, old in zip(found, before, strict=True):
            operators.ids = old


def _row_ids(ids: Any) -> Tensor:
    given = torch.as_tensor(ids)
    takes = "gnndelete.rows takes a flat list of node ids from 0, one per row of the batch"
    if given.dim() != 1 or given.is_floating_point() or given.dtype == torch.bool:
        raise ModelError(f"{takes} (got {given.dtype} of shape {list(given.shape)})")
    if bool((given < 0).any()):
        raise ModelError(f"{takes} (got {int(given.min())}); nodes that the model has not seen have ids past its own")
    return given.long()


@contextmanager
def disabled(model: nn.Module) -> Iterator[None]:
    """The base model's behaviour for the length of a block. This brings the deleted data back into the answers."""
    found = layer_operators(model)
    before = [operators.enabled for operators in found]
    for operators in found:
        operators.enabled = False
    try:
        yield
    finally:
        for operators, old in zip(found, before, strict=True):
            operators.enabled = old
