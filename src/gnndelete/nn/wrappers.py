"""What torch puts around a model, for speed or for several devices: the model within, and names without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

#: What ``DataParallel`` and ``torch.compile`` put before the names of the model within.
WRAPPERS = ("module.", "_orig_mod.")
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def within(model: nn.Module) -> nn.Module | None:
    """The model that is wrapped by torch; None where it is no wrapper.

    >>> within(nn.DataParallel(nn.Linear(1, 1))), within(nn.Linear(1, 1))
    (Linear(in_features=1, out_features=1, bias=True), None)
    """
    inner = model._modules.get("_orig_mod") or (model.module if isinstance(model, _PARALLEL) else None)
    return inner if isinstance(inner, nn.Module) else None


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, whatever torch has put around it."""
    while (inner := within(model)) is not None:
        model = inner
    return model


@contextmanager
def eagerly(model: nn.Module) -> Iterator[None]:
    """Run what is compiled of a model as it was written, for passes that watch its layers: these compile badly, if at all."""
    with ExitStack() as stack:
        if any("_orig_mod" in module._modules for module in model.modules()):
            stack.enter_context(torch.compiler.set_stance("force_eager"))  # loads the compiler, which costs seconds
        yield


def bare(model: nn.Module, name: str) -> str:
    """The name of a module or weight of ``model`` as it is without wrappers.

    >>> bare(nn.Sequential(nn.DataParallel(nn.Linear(1, 1))), "0.module.weight")
    '0.weight'
    """
    kept: list[str] = []
    module: nn.Module | None = model
    for part in name.split("."):
        inner = None if module is None else module._modules.get(part)
        if inner is None or module is None or within(module) is not inner:
            kept.append(part)
        module = inner
    return ".".join(kept)
