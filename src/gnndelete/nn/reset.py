"""A model as it is before training: its weights drawn again, or made by a function of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.errors import ModelError, some
from gnndelete.io.locks import ProcessLocks
from gnndelete.nn.forward import Forward
from gnndelete.nn.layers import copied
from gnndelete.notes import Note

#: A number that no reset writes: a buffer that still holds it afterwards was not reset.
_UNTOUCHED = 12345.5

#: The random state is that of all threads, so only one at a time may draw from it.
_SEEDING = ProcessLocks(RLock)

_REMEDY = "add that method, or pass build=… (a function that makes a new model)"


def untrained(model: nn.Module, build: Callable[[], nn.Module] | None, seed: int) -> nn.Module:
    """What ``build`` makes from this seed, or else a `fresh` copy; the global random state stays as it is."""
    if build is None:
        return fresh(model, seed)
    with _SEEDING[os.getpid()], torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def fresh(model: nn.Module, seed: int) -> nn.Module:
    """A copy of ``model`` with every trained weight drawn again by ``reset_parameters()``, from ``seed``.

    Frozen weights are given, as features are, and stay (see `frozen`). Weights are drawn on the CPU, so that a seed means
    the same model on every device. The global random state stays as it is.

    >>> from gnndelete.models import build
    >>> model = build("gin", in_channels=4)
    >>> torch.equal(fresh(model, 1).convs[0].nn.weight, fresh(model, 1).convs[0].nn.weight)
    True
    """
    device = next((parameter.device for parameter in model.parameters()), torch.empty(0).device)
    names, result = set(frozen(model)), copied(model).cpu()
    given = {name: value.clone() for name, value in result.named_parameters(remove_duplicate=False) if name in names}
    drawn = {
        f"{path}.{name}".lstrip("."): parameter
        for path, module in result.named_modules()
        if not any(lazy(parameter) for parameter in module.parameters(recurse=False))
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.is_floating_point()
    }
    with torch.no_grad():
        for parameter in drawn.values():
            parameter.fill_(torch.nan)  # what is still NaN afterwards was not reset
    with seeded(seed):
        _reset(result)
    now = dict(result.named_parameters(remove_duplicate=False))  # a reset may replace parameters
    with torch.no_grad():
        for name, value in given.items():
            now[name].requires_grad_(False).copy_(value)
    for name, parameter in drawn.items():
        if name not in given and now.get(name, parameter).isnan().any():
            raise ModelError(
                f"parameter {_title(result, name)} is not set by any reset_parameters(), so the model cannot be trained anew",
                _REMEDY,
            )
    return result.to(device)


def _reset(model: nn.Module) -> None:
    """Reset every module, children first: a model that overrides the initialisation of its parts has the last word."""
    for module in reversed(list(model.modules())):
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()


def frozen(model: nn.Module) -> list[str]:
    """The parameters that training leaves as they are while it moves others; none where all of them are frozen.

    >>> frozen(nn.Sequential(nn.Embedding.from_pretrained(torch.ones(3, 2)), nn.Linear(2, 2)))
    ['0.weight']
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = [name for name, parameter in parameters.items() if not parameter.requires_grad and not lazy(parameter)]
    return names if len(names) < len(parameters) else []


def frozen_notes(model: nn.Module) -> tuple[Note, ...]:
    """A note about frozen parameters, where a model that has any is trained anew."""
    names = frozen(model)
    if not names:
        return ()
    text = (
        f"Frozen parameters were kept as they are ({some(map(repr, names), 3)}). If they were learned from deleted data, pass "
        "build=… that makes a model without them."
    )
    return (Note("frozen-weights-kept", text),)


def refuse_unreset_buffers(model: nn.Module, data: Any, forward: Forward) -> None:
    """Refuse a model of which a `fresh` copy still holds what was learned: training moves a buffer that no reset sets.

    A pass in training mode shows which buffers move. It is needed only where a reset leaves a buffer as it is.
    """
    new = fresh(model, seed=0)
    untouched = _untouched_buffers(model)
    before = {name: value.clone() for name, value in new.named_buffers() if name in untouched}
    if not before:
        return
    try:
        with torch.no_grad(), seeded(0, next(iter(before.values())).device):
            forward(new.train(), data)
    except Exception:  # whatever a user's model raises: the training will report it
        return
    for name, value in new.named_buffers():
        if name in before and not _equal(value, before[name]):
            raise ModelError(
                f"buffer {_title(new, name)} follows what the model is trained on, and no reset_parameters() sets it, so a new "
                "model would start with what the old one has learned",
                _REMEDY,
            )


def _untouched_buffers(model: nn.Module) -> list[str]:
    """The buffers of floats that no reset writes: a mark that is put into them is still there afterwards."""
    marked = copied(model).cpu()
    names = [name for name, value in marked.named_buffers() if value.is_floating_point() and value.numel()]
    for name in names:
        marked.get_buffer(name).fill_(_UNTOUCHED)
    with seeded(0), torch.no_grad():
        _reset(marked)
    return [name for name, value in marked.named_buffers() if name in names and bool((value == _UNTOUCHED).all())]


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.to(one.device).nan_to_num())


def _title(model: nn.Module, name: str) -> str:
    """A parameter or buffer in words, with the module that it belongs to."""
    path, _, last = name.rpartition(".")
    return f"'{last}' of '{path or 'model'}' ({type(model.get_submodule(path)).__name__})"


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """The global random state of the CPU and of ``device`` from ``seed``; restored afterwards. Threads wait for each other."""
    with _SEEDING[os.getpid()]:
        if device is None or device.type == "cpu":
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                yield
            return
        module = torch.get_device_module(device)
        index = module.current_device() if device.index is None else device.index
        with torch.random.fork_rng(devices=[index], device_type=device.type), torch.accelerator.device_index(index):
            torch.default_generator.manual_seed(seed)
            module.manual_seed(seed)
            yield


def lazy(parameter: nn.Parameter) -> bool:
    """Whether a parameter has no shape before the first call."""
    return isinstance(parameter, nn.parameter.UninitializedParameter)
