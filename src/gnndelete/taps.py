"""Listening to a model's layers while it runs: which tensors of an output are node representations, and hooks that see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

#: An entry of a layer's output: None for a plain tensor, a position in a tuple, or a name in a dict.
Key = None | int | str

Visit = Callable[[str, int, Any], Any]


def representations(output: Any, num_rows: int) -> list[tuple[Key, Tensor]]:
    """The entries of a layer's output that hold one row per node: the tensor itself, a tuple's first, every one of a dict.

    >>> import torch
    >>> [key for key, _ in representations((torch.ones(3, 2), torch.ones(9)), num_rows=3)]
    [0]
    """
    if _is_representation(output, num_rows):
        return [(None, output)]
    if isinstance(output, dict):
        return [(key, value) for key, value in output.items() if _is_representation(value, num_rows)]
    if isinstance(output, (tuple, list)):
        found: list[tuple[Key, Tensor]] = [(i, v) for i, v in enumerate(output) if _is_representation(v, num_rows)]
        return found[:1]
    return []


def _is_representation(value: Any, num_rows: int) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2 and value.size(0) == num_rows


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

    modules = dict(model.named_modules())
    handles = [modules[name].register_forward_hook(hook(name)) for name in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Finished(Exception):  # noqa: N818  (control flow, never seen by a user)
    """Raised by a visitor that has seen all it needs, to spare the rest of the forward pass."""
