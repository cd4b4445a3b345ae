"""The poisoned run: a NaN in one node's row before every graph layer shows which rows depend on that node."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import GNNDeleteError, ModelError
from gnndelete.forward import Forward, evaluating
from gnndelete.hetero import HeteroGraph
from gnndelete.layers import working_copy
from gnndelete.products import sparse_products
from gnndelete.taps import Key, Rows, all_rows, listening, representations


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
    """Run a copy of the model with the seed's row poisoned before every layer of ``poisoned``, and look behind ``names``."""
    rows = all_rows(data)
    copied = working_copy(model)
    modules = dict(copied.named_modules())
    seen: list[Seen] = []

    def visit(name: str | None, call: int, output: Any) -> None:
        if name is None or name in names:
            for key, h, own in representations(output, rows):
                if not len(own):
                    continue
                moved = torch.zeros(len(rows.whole), dtype=torch.bool, device=h.device)
                moved[own.start : own.stop] = torch.isnan(h.reshape(len(own), -1)).any(dim=1)
                seen.append(Seen(name, call, key, h[0].numel(), own, moved if bool(moved.any()) else None))

    handles = [
        modules[n].register_forward_pre_hook(_poison(modules[n], rows, seed), with_kwargs=True) for n in poisoned
    ]
    spoiled = data.poisoned(seed) if isinstance(data, HeteroGraph) else copy.copy(data)
    if isinstance(data.get("x"), Tensor) and data.x.is_floating_point() and data.x.layout == torch.strided:
        spoiled.x = data.x.index_fill(0, seed, float("nan"))
    try:
        with evaluating(copied), sparse_products(copied, spoiled), listening(copied, poisoned, visit):
            output = _called(forward, copied, spoiled)
    finally:
        for handle in handles:
            handle.remove()
    visit(None, 0, output)
    return seen


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


def _poison(module: nn.Module, rows: Rows, seed: Tensor) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
    names = list(inspect.signature(module.forward).parameters)

    def spoil(value: Any, key: Any = None) -> Any:
        if isinstance(value, Tensor):
            own = rows.of(value, key) if value.layout == torch.strided else None
            if own is None or int(seed) not in own:
                return value
            place = seed - own.start
            spoiled = bool(torch.isnan(value[place]).all())  # x often is already: spare its copy
            return value if spoiled else value.index_fill(0, place, float("nan"))
        if isinstance(value, dict):
            return {key: spoil(item, key) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(spoil(item) for item in value)
        return value

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        spoiled = [v if i < len(names) and names[i].startswith("edge") else spoil(v) for i, v in enumerate(args)]
        return tuple(spoiled), {k: v if k.startswith("edge") else spoil(v) for k, v in kwargs.items()}

    return hook
