"""Weights in files: safetensors, and state dicts that ``torch.save`` wrote."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from gnndelete.datasets.formats import load_pickle
from gnndelete.errors import ModelError, some
from gnndelete.nn.forward import WRAPPERS


def load_weights(path: Path, model: nn.Module) -> None:
    """Put the weights in a ``.safetensors`` file, or in a state dict that ``torch.save`` wrote, into ``model``."""
    state = _safetensors(path) if path.suffix == ".safetensors" else load_pickle(path, ModelError, "checkpoint")
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(name), dict):
            state = state[name]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"'{path}' holds no weights by name; save model.state_dict()")
    needed = model.state_dict()
    state = _unwrapped(state, needed)
    for what, names in (
        ("lacks", needed.keys() - state.keys()),
        ("also holds", state.keys() - needed.keys()),
    ):
        if names:
            raise ModelError(
                f"the checkpoint '{path}' does not fit: it {what} {some(sorted(names))}; check the model's options"
            )
    shapes = {name: (tuple(state[name].shape), tuple(value.shape)) for name, value in needed.items()}
    wrong = [
        f"'{name}' is {_shape(found)} there and {_shape(wanted)} in the model"
        for name, (found, wanted) in shapes.items()
        if found != wanted
    ]
    if wrong:
        raise ModelError(
            f"the checkpoint '{path}' does not fit: {some(wrong, 3)}",
            "set the model's options as they were when it was trained, or give the tables that it was trained on",
        )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        first = str(error).splitlines()[1:2] or [str(error)]
        raise ModelError(
            f"the checkpoint '{path}' does not fit: {first[0].strip()} Check the model's options"
        ) from None


def _shape(sizes: tuple[int, ...]) -> str:
    return " × ".join(map(str, sizes)) or "one number"


def _unwrapped(state: dict[str, Tensor], needed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights without the prefixes that ``DataParallel`` and ``torch.compile`` add to all names."""
    for prefix in WRAPPERS * 2:  # in either order
        if (
            state
            and all(name.startswith(prefix) for name in state)
            and not any(name.startswith(prefix) for name in needed)
        ):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    within = next((name for name in state if name.partition(".")[2] in needed and name not in needed), None)
    prefix = "" if within is None else within.partition(".")[0] + "."
    if prefix and all(prefix + name in state for name in needed):  # of a module that holds the model, as Lightning's do
        return {name: state[prefix + name] for name in needed}
    return state


def dump_weights(model: nn.Module, facts: dict[str, str] | None = None) -> bytes:
    """The weights as the content of a safetensors file, with metadata."""
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    return dump_tensors(weights, facts)


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ModelError(f"the weights '{path}' cannot be read ({getattr(error, 'strerror', None) or error})") from None
