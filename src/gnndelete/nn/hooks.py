"""Listening to a model's layers while it runs: which tensors of an output are node representations, and hooks that see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import count_nodes

#: An entry of a layer's output: None for a plain tensor, a position in a tuple, or a name in a dict.
Key = None | int | str

Visit = Callable[[str, int, Any], Any]


def all_rows(data: Data) -> Rows:
    """Where the rows of a tensor can stand among the nodes of a graph: all of them, or those of one node type."""
    whole = range(count_nodes(data))
    return Rows(whole, data.types.nodes if isinstance(data, HeteroGraph) else {})


@dataclass(frozen=True)
class Rows:
    """Which nodes the rows of a tensor are.

    >>> import torch
    >>> rows = Rows(range(5), {"author": range(0, 2), "paper": range(2, 5)})
    >>> rows.of(torch.ones(3, 8)), rows.of(torch.ones(2, 8), "author"), rows.of(torch.ones(4, 8))
    (range(2, 5), range(0, 2), None)
    """

    whole: range
    types: dict[str, range]

    def of(self, value: Any, key: Any = None) -> range | None:
        """The nodes that the rows of a floating-point matrix are, by the name it goes by or by their number."""
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() < 2:
            return None
        if key in self.types:
            return self.types[key] if value.size(0) == len(self.types[key]) else None
        if value.size(0) == len(self.whole):
            return self.whole
        fitting = [rows for rows in self.types.values() if len(rows) == value.size(0)]
        return fitting[0] if len(fitting) == 1 else None  # of two types of one size nothing tells which it is


def representations(output: Any, rows: Rows) -> list[tuple[Key, Tensor, range]]:
    """The entries of a layer's output that hold one row per node: the tensor itself, a tuple's first, every one of a dict.

    With several node types an entry of a dict holds the rows of the type it is named by.

    >>> import torch
    >>> [key for key, _, _ in representations((torch.ones(3, 2), torch.ones(9)), Rows(range(3), {}))]
    [0]
    """
    entries: list[tuple[Key, Any]] = [(None, output)]
    if isinstance(output, dict):
        entries = list(output.items())
    elif isinstance(output, (tuple, list)):
        entries = list(enumerate(output))
    found = [(key, value, own) for key, value in entries if (own := rows.of(value, key)) is not None]
    return found if isinstance(output, dict) else found[:1]


def entry(output: Any, key: Key) -> Tensor:
    """The tensor at ``key`` of a layer's output."""
    return output if key is None else output[key]


def replaced(output: Any, key: Key, value: Tensor) -> Any:
    """The same output with another tensor at ``key``; the output itself is not changed."""
    if key is None:
        return value
    if isinstance(output, dict):
        return type(output)({**output, key: value})
    items = list(output)
    items[int(key)] = value
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*items)
    return type(output)(items)


@contextmanager
def listening(model: nn.Module, names: list[str], visit: Visit) -> Iterator[None]:
    """Call ``visit(name, call, output)`` after every call of the named modules; what it returns replaces the output.

    ``call`` counts the calls of one module from 0; hooks are gone afterwards, whatever happened.
    """
    calls: Counter[str] = Counter()

    def hook(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def after(_: nn.Module, __: Any, output: Any) -> Any:
            calls[name] += 1
            return visit(name, calls[name] - 1, output)

        return after

    handles = [model.get_submodule(name).register_forward_hook(hook(name)) for name in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Finished(Exception):  # noqa: N818  (control flow, never seen by a user)
    """Raised by a visitor that has seen all it needs, to spare the rest of the forward pass."""
