"""A model as it is before training: its weights drawn anew, or made by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.errors import ModelError, some
from gnndelete.nn.forward import Forward
from gnndelete.nn.layers import copied


def untrained(model: nn.Module, build: Callable[[], nn.Module] | None, seed: int) -> nn.Module:
    """What ``build`` makes from this seed, or a `fresh` copy; the global random state is as before afterwards."""
    if build is None:
        return fresh(model, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def fresh(model: nn.Module, seed: int) -> nn.Module:
    """A copy of ``model`` with every weight that is trained drawn anew by ``reset_parameters()``, from ``seed``.

    Frozen weights are given, as features are, and stay (see `frozen`). Weights are drawn on the CPU, so that a seed means
    the same model everywhere; the global random state is left alone.

    >>> from gnndelete.models import build
    >>> model = build("gin", in_channels=4)
    >>> torch.equal(fresh(model, 1).convs[0].nn.weight, fresh(model, 1).convs[0].nn.weight)
    True
    """
    where = next((parameter.device for parameter in model.parameters()), torch.empty(0).device)
    kept = set(frozen(model))
    anew = copied(model).cpu()
    given = {name: value.clone() for name, value in anew.named_parameters(remove_duplicate=False) if name in kept}
    drawn = {
        f"{path}.{name}".lstrip("."): parameter
        for path, module in anew.named_modules()
        if not any(lazy(parameter) for parameter in module.parameters(recurse=False))
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.is_floating_point()
    }
    with torch.no_grad():
        for parameter in drawn.values():
            parameter.fill_(torch.nan)  # whatever is still not a number afterwards was not reset
    with seeded(seed):
        _reset(anew)
    now = dict(anew.named_parameters(remove_duplicate=False))  # a reset may put others in their place
    with torch.no_grad():
        for name, value in given.items():
            now[name].requires_grad_(False).copy_(value)
    for name, parameter in drawn.items():
        if name not in given and now.get(name, parameter).isnan().any():
            raise ModelError(
                f"parameter {_owned(anew, name)} is not set by any "
                "reset_parameters(), so the model cannot be trained anew; add that method, or pass build=… (a function "
                "that makes a new model)"
            )
    return anew.to(where)


def _reset(model: nn.Module) -> None:
    """Children first: a model that overrides the initialisation of its parts has the last word."""
    for module in reversed(list(model.modules())):
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()


def frozen(model: nn.Module) -> list[str]:
    """The parameters that training leaves alone, while it moves others; none where all of them are frozen.

    >>> frozen(nn.Sequential(nn.Embedding.from_pretrained(torch.ones(3, 2)), nn.Linear(2, 2)))
    ['0.weight']
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = [name for name, parameter in parameters.items() if not parameter.requires_grad and not lazy(parameter)]
    return names if len(names) < len(parameters) else []


def kept_note(model: nn.Module) -> tuple[str, ...]:
    """What to say of frozen parameters where a model is trained anew."""
    names = frozen(model)
    if not names:
        return ()
    return (
        f"Frozen parameters were taken as given and kept ({some(map(repr, names), 3)}); where these were learned from what was "
        "deleted, pass build=… that makes a model without them.",
    )


def carried(model: nn.Module, data: Any, forward: Forward) -> str | None:
    """Why a `fresh` copy would still hold what was learned: a buffer that training moves and nothing resets.

    Only a pass in training mode shows which these are. Most models have no buffer that a reset leaves as it is, and need none.
    """
    anew = fresh(model, seed=0)
    before = dict(anew.named_buffers())
    same = [name for name in _left_alone(model) if name in before]
    if not same:
        return None
    before = {name: value.clone() for name, value in before.items() if name in same}
    try:
        with torch.no_grad(), seeded(0, next((value.device for value in before.values()), None)):
            forward(anew.train(), data)
    except Exception:  # whatever a model of the user's raises; training will say it
        return None
    moved = [name for name, value in anew.named_buffers() if name in same and not _equal(value, before[name])]
    if not moved:
        return None
    return (
        f"buffer {_owned(anew, moved[0])} follows what the model is trained on, and no reset_parameters() sets it, so that a "
        "new model would begin with what the old one has learned; add that method, or pass build=… (a function that makes a "
        "new model)"
    )


def _left_alone(model: nn.Module) -> list[str]:
    """The buffers of numbers that no reset writes: what is put into them before is there afterwards."""
    copy = copied(model).cpu()
    marked = {name: value for name, value in copy.named_buffers() if value.is_floating_point() and value.numel()}
    for value in marked.values():
        value.fill_(_MARK)
    with seeded(0), torch.no_grad():
        _reset(copy)
    now = dict(copy.named_buffers())
    return [name for name in marked if name in now and bool((now[name] == _MARK).all())]


#: A number that no reset writes.
_MARK = 12345.5


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.to(one.device).nan_to_num())


def _owned(model: nn.Module, name: str) -> str:
    """A parameter or buffer, and the module that it belongs to."""
    path, _, last = name.rpartition(".")
    return f"'{last}' of '{path or 'model'}' ({type(model.get_submodule(path)).__name__})"


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Global random state of the CPU and of ``device`` from ``seed``, and back to what it was afterwards."""
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
