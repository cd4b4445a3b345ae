"""The deletion operator DEL and the hook by which it acts behind a layer of any model.

The operators of a layer are a submodule of that layer, named ``gnndelete``; one forward hook of this module applies them.
Base weights, classes and ``forward`` stay as they are. Copies and pickles of the model carry the operators along.

An operator on a *table*, a parameter with a row per node, replaces rows of it in the model that it is attached to, and keeps
the rows before: the model then reads them wherever it reads the table, whole, by ids or in batches.

Threads may share a model: which rows a batch holds, whether operators are off, and how often a layer was called are kept in
context variables and never on the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gnndelete.errors import ModelError
from gnndelete.nn.hooks import Key, Site, entry, replaced

#: Name of the submodule that holds a layer's operators, and so the prefix of all their keys in a checkpoint.
PREFIX = "gnndelete"

Ids = Tensor | dict[str, Tensor]  # by node type where there are several

#: In blocks of `rows` and `disabled` of this thread: the ids of the rows of a batch, and what is off, by `LayerOperators.key`.
_IDS: ContextVar[Mapping[str, Ids]] = ContextVar("gnndelete_rows")
_DISABLED: ContextVar[frozenset[str]] = ContextVar("gnndelete_disabled")

#: In blocks of `disabled` of this thread: the tables as they were, by `LayerOperators.key` and name.
_TABLES: ContextVar[Mapping[tuple[str, str], Tensor]] = ContextVar("gnndelete_tables")

#: How often each layer was called in the forward pass of this thread.
_CALLS: ContextVar[WeakKeyDictionary[LayerOperators, int]] = ContextVar("gnndelete_calls")


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


class RowMap(nn.Module):
    """A map with values of its own for each row of its group: ``forward(h, members)``.

    ``members`` are the positions in the group of the rows of h, where only part of the group is there.
    """

    def take(self, members: Tensor) -> RowMap:
        """The map of some of the rows, in another order."""
        raise NotImplementedError


class AddedRows(RowMap):
    """h -> h + a row of its own for each row of its group.

    >>> AddedRows(torch.tensor([[3.0, 4.0]]))(torch.ones(1, 2)).tolist()
    [[4.0, 5.0]]
    """

    def __init__(self, offsets: Tensor) -> None:
        super().__init__()
        self.offsets = nn.Parameter(offsets)

    def forward(self, h: Tensor, members: Tensor | None = None) -> Tensor:
        return h + (self.offsets if members is None else self.offsets.index_select(0, members)).to(h.dtype)

    def take(self, members: Tensor) -> AddedRows:
        """The map of some of the rows."""
        return AddedRows(self.offsets.detach()[members])


class GivenRows(RowMap):
    """h -> fixed rows, whatever h is: one for each row of its group, or one for all of them.

    >>> GivenRows(torch.tensor([[3.0, 4.0]]))(torch.zeros(2, 2)).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self, h: Tensor, members: Tensor | None = None) -> Tensor:
        """``members`` are the positions in the group, where only part of the group is there."""
        if self.values.size(0) == 1:
            return self.values.expand_as(h)
        return self.values if members is None else self.values.index_select(0, members)

    def take(self, members: Tensor) -> GivenRows:
        """The map of some of the rows."""
        return self if self.values.size(0) == 1 else GivenRows(self.values.detach()[members]).requires_grad_(False)


class Operator(nn.Module):
    """DEL at one site: groups of rows, each with its own map; all other rows pass unchanged."""

    rows: Tensor

    def __init__(self, num_rows: int, width: int, rows: list[Tensor], maps: list[nn.Module]) -> None:
        super().__init__()
        self.num_rows = num_rows
        self.width = width
        self.sizes = [group.numel() for group in rows]
        self.register_buffer("rows", torch.cat(rows))
        self.maps = nn.ModuleList(maps)

    def forward(self, h: Tensor, ids: Tensor | None = None) -> Tensor:
        """Replace the operator's rows of ``h``; ``ids`` names the nodes of the rows where ``h`` is a sampled batch."""
        if ids is None:
            positions, members, sizes = self.rows, None, self.sizes
        else:
            positions, members = self._find(ids.to(h.device))
            sizes = [member.numel() for member in members]
        if not positions.numel():
            return h
        rows = h.index_select(0, positions).flatten(1)
        parts = rows.split(sizes) if len(sizes) > 1 else [rows]
        mapped = []
        for index, (apply, part) in enumerate(zip(self.maps, parts, strict=True)):
            if isinstance(apply, RowMap):
                mapped.append(apply(part, None if members is None else members[index]))
            else:
                mapped.append(apply(part))
        changed = torch.cat(mapped) if len(mapped) > 1 else mapped[0]
        return h.index_copy(0, positions, changed.reshape(-1, *h.shape[1:]).to(h.dtype))

    def on(self, num_rows: int, ids: Tensor) -> Operator:
        """The same operator in other numbers of rows, of which ``ids`` names each; the rows of a group are sorted."""
        rows, maps = [], []
        for group, apply in zip(self.rows.split(self.sizes), self.maps, strict=True):
            found, order = ids[group].sort()
            rows.append(found)
            maps.append(apply.take(order) if isinstance(apply, RowMap) else apply)
        return Operator(num_rows, self.width, rows, maps)

    def _find(self, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Where the operator's rows stand among ``ids``, and which members of each group they are."""
        positions, members = [], []
        for group in self.rows.split(self.sizes):
            if not group.numel():
                positions.append(group)
                members.append(group)
                continue
            found = torch.searchsorted(group, ids).clamp_(max=group.numel() - 1)
            present = (group[found] == ids).nonzero().flatten()
            positions.append(present)
            members.append(found[present])
        return torch.cat(positions), members


class LayerOperators(nn.Module):
    """All operators of one layer: one for each site, that is per call in a forward pass and per entry of the output."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.key = uuid4().hex  # that of its copies, too
        self.sites: list[Site] = []
        self.operators = nn.ModuleList()
        self.before: dict[str, Tensor] = {}  # of each table with an operator, the rows that it replaced
        self.calls = 1  # how often the layer is called in one forward pass
        #: whether a block of any thread ever held it: until then, compiled models need not read a context variable
        self.in_blocks = False

    def act(self, output: Any) -> Any:
        """The layer's output with the rows of the operators of this call replaced."""
        call = 0
        if self.calls > 1:
            counts = _counts()
            call = counts.get(self, 0) % self.calls
            counts[self] = call + 1
        if self.in_blocks and self.key in _DISABLED.get(()):
            return output
        ids = _IDS.get({}).get(self.key) if self.in_blocks else None
        for site, operator in zip(self.sites, self.operators, strict=True):
            if site.call == call and not site.table and isinstance(operator, Operator):
                h = entry(output, site.key)
                output = replaced(output, site.key, operator(h, self._batch_ids(ids, h, site.key, operator.num_rows)))
        return output

    def _batch_ids(self, ids: Ids | None, h: Tensor, key: Key, num_rows: int) -> Tensor | None:
        """The nodes of the rows of ``h`` in a sampled batch; None where ``h`` has all rows."""
        if isinstance(ids, dict):
            if key not in ids:
                raise ModelError(
                    f"layer '{self.name}' gives rows of {key!r}, and gnndelete.rows was given ids of {', '.join(ids)}; pass "
                    "the ids of every node type in the batch"
                )
            ids = ids[str(key)]
        if ids is None:
            if h.size(0) != num_rows:
                raise ModelError(
                    f"layer '{self.name}' got {h.size(0)} rows, but its deletion operator was made for {num_rows} nodes; "
                    "wrap a sampled batch in `with gnndelete.rows(model, batch.n_id):`, and for another graph delete again there"
                )
            return None
        if h.size(0) > ids.numel() and h.size(0) == num_rows:
            raise ModelError(
                f"layer '{self.name}' ran on all {num_rows} nodes, but gnndelete.rows was given {ids.numel()} ids: the model "
                "reads a table of all nodes; have its forward take the rows of the batch from it (self.table(n_id)), or leave "
                "gnndelete.rows out"
            )
        if h.size(0) > ids.numel():
            raise ModelError(
                f"layer '{self.name}' got {h.size(0)} rows, but gnndelete.rows was given {ids.numel()} ids; "
                "pass the ids of all rows of the batch (batch.n_id)"
            )
        return ids[: h.size(0)]  # layers that trim a batch keep its first rows

    def base_tables(self, module: nn.Module) -> dict[str, Tensor]:
        """The tables of ``module``, which holds these operators, as they were before."""
        found = {}
        for site, operator in zip(self.sites, self.operators, strict=True):
            if site.table and isinstance(operator, Operator):
                name, now = str(site.key), module._parameters[str(site.key)]
                assert now is not None
                before = self.before[name].to(now)
                found[name] = now.detach().index_copy(0, operator.rows.to(now.device), before)
        return found


class Shadowed(dict[str, nn.Parameter | None]):
    """The parameters of a module whose tables a thread may read as they were before."""

    key = ""

    def __getitem__(self, name: str) -> Any:
        found = _TABLES.get({}).get((self.key, name))
        return super().__getitem__(name) if found is None else found


def act_after(layer: nn.Module, _: Any, output: Any) -> Any:
    """The forward hook of every layer with operators."""
    return getattr(layer, PREFIX).act(output)


def start_pass(model: nn.Module, _: Any) -> None:
    """The forward pre-hook of a model with repeated layers: a new pass counts the calls from 0 again."""
    counts = _counts()
    for operators in layer_operators(model):
        counts[operators] = 0


def _counts() -> WeakKeyDictionary[LayerOperators, int]:
    try:
        return _CALLS.get()
    except LookupError:
        _CALLS.set(WeakKeyDictionary())
        return _CALLS.get()


def attach(model: nn.Module, site: Site, operator: Operator) -> None:
    """Put an operator at a site of ``model`` (in place, so give a copy of the user's model). A table takes one operator."""
    module = model.get_submodule(site.layer)
    if not isinstance(module._modules.get(PREFIX), LayerOperators):
        module.add_module(PREFIX, LayerOperators(site.layer))
    operators = getattr(module, PREFIX)
    if site.table:
        table = module.get_parameter(str(site.key))
        operators.before[str(site.key)] = table.detach().index_select(0, operator.rows)
        _put(module, str(site.key), operator(table.detach()))
        operators.sites.append(site)
        operators.operators.append(operator)
        return
    if act_after not in module._forward_hooks.values():
        module.register_forward_hook(act_after)
    operators.calls = site.calls
    operators.sites.append(site)
    operators.operators.append(operator)
    operators.train(module.training)
    if site.calls > 1 and start_pass not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(start_pass)


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    """Give a module another parameter in the place of one, which other models may share."""
    learns = bool(module.get_parameter(name).requires_grad)
    module._parameters[name] = nn.Parameter(value, requires_grad=learns)


def detach(model: nn.Module) -> None:
    """Remove all operators; afterwards the base checkpoint loads strictly."""
    layers = [module for module in model.modules() if isinstance(module._modules.get(PREFIX), LayerOperators)]
    for layer in layers:
        for name, value in getattr(layer, PREFIX).base_tables(layer).items():
            _put(layer, name, value)
        del layer._modules[PREFIX]
    for hooks in (model._forward_pre_hooks, *(layer._forward_hooks for layer in layers)):
        for key in [key for key, hook in hooks.items() if hook in (act_after, start_pass)]:
            del hooks[key]


def base_tables(model: nn.Module) -> dict[str, Tensor]:
    """The tables of a model with operators on them as they were before, by the names of the parameters."""
    return {
        f"{path}.{name}".lstrip("."): value
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module._modules.get(PREFIX), LayerOperators)
        for name, value in getattr(module, PREFIX).base_tables(module).items()
    }


def layer_operators(model: nn.Module) -> list[LayerOperators]:
    """The operators of every layer that has any."""
    return [module for module in model.modules() if isinstance(module, LayerOperators)]


@contextmanager
def rows(model: nn.Module, ids: Tensor | Mapping[str, Tensor]) -> Iterator[None]:
    """Say which nodes the rows of a sampled batch are, so that the operators act on the right rows, in this thread.

    Args:
        model: An unlearned model. A model without operators may be given too; nothing happens then.
        ids: The node id of every row of the batch, such as ``batch.n_id``; with several node types a dict by type, such as
            ``batch.n_id_dict``.

    Raises:
        ModelError: If ``ids`` is no flat list of node ids from 0.

    >>> with rows(nn.Linear(1, 1), torch.tensor([4, 2])):
    ...     pass
    """
    checked = {kind: _row_ids(part) for kind, part in ids.items()} if isinstance(ids, Mapping) else _row_ids(ids)
    token = _IDS.set({**_IDS.get({}), **dict.fromkeys(_keys_in_blocks(model), checked)})
    try:
        yield
    finally:
        _IDS.reset(token)


def _keys_in_blocks(model: nn.Module) -> list[str]:
    """The keys of the operators of a model, which from now on ask whether they are in a block."""
    found = layer_operators(model)
    for operators in found:
        operators.in_blocks = True
    return [operators.key for operators in found]


def _row_ids(ids: Any) -> Tensor:
    found = torch.as_tensor(ids)
    takes = "gnndelete.rows takes a flat list of node ids from 0, one per row of the batch"
    if found.dim() != 1 or found.is_floating_point() or found.dtype == torch.bool:
        raise ModelError(f"{takes} (got {found.dtype} of shape {list(found.shape)})")
    if bool((found < 0).any()):
        raise ModelError(
            f"{takes} (got {int(found.min())}); give nodes that the model does not know ids above all others"
        )
    return found.long()


@contextmanager
def disabled(model: nn.Module) -> Iterator[None]:
    """The base model's behaviour for the length of a block, in this thread. The deleted data is back in these answers."""
    token = _DISABLED.set(_DISABLED.get(frozenset()).union(_keys_in_blocks(model)))
    shadows = _TABLES.set({**_TABLES.get({}), **_shadowed(model)})
    try:
        yield
    finally:
        _DISABLED.reset(token)
        _TABLES.reset(shadows)


def _shadowed(model: nn.Module) -> dict[tuple[str, str], Tensor]:
    """The tables of a model as they were before, for one thread, whose modules from now on ask whether they are in a block."""
    result: dict[tuple[str, str], Tensor] = {}
    for module in model.modules():
        operators = module._modules.get(PREFIX)
        if isinstance(operators, LayerOperators) and operators.before:
            found = operators.base_tables(module)
            result |= {(operators.key, name): nn.Parameter(value, requires_grad=False) for name, value in found.items()}
            if not isinstance(module._parameters, Shadowed):
                shadowed = Shadowed(module._parameters)
                shadowed.key, module.__dict__["_parameters"] = operators.key, shadowed
    return result
