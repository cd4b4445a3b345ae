"""Reading files that others wrote: graphs and weights. Nothing in them is ever run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.data.storage import AttrType, GlobalStorage

from gnndelete.errors import GraphError, ModelError, RequestError, some
from gnndelete.graph import check_graph


def load_graph(path: Path) -> tuple[Data, ...]:
    """The graph in a file that ``torch.save`` wrote: one `Data`, or training, validation and test parts of one."""
    found = _load(path, GraphError, "graph")
    parts = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(parts) not in (1, 3) or not all(isinstance(part, Data) for part in parts):
        kinds = some(type(part).__name__ for part in parts)
        raise GraphError(f"'{path}' holds {kinds}; save a Data, or a tuple of three (training, validation, test)")
    try:
        # Anew from its attributes: whatever else was stored with the object stays behind.
        graphs = tuple(Data.from_dict(part.to_dict()) for part in parts)
    except Exception as error:  # an object without its parts, which no program of ours wrote
        raise GraphError(f"the graph '{path}' is damaged ({type(error).__name__}); save it anew") from None
    for graph in graphs:
        check_graph(graph)
    return graphs


def load_weights(path: Path, model: nn.Module) -> None:
    """Put the weights in a ``.safetensors`` file, or in a state dict that ``torch.save`` wrote, into ``model``."""
    state = _safetensors(path) if path.suffix == ".safetensors" else _load(path, ModelError, "checkpoint")
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(name), dict):
            state = state[name]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"'{path}' holds no weights by name; save model.state_dict()")
    own = model.state_dict()
    for what, names in (
        ("lacks", own.keys() - state.keys()),
        ("holds, besides the model's own,", state.keys() - own.keys()),
    ):
        if names:
            raise ModelError(
                f"the checkpoint '{path}' does not fit: it {what} {some(sorted(names))}; check the model's options"
            )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        first = str(error).splitlines()[1:2] or [str(error)]
        raise ModelError(
            f"the checkpoint '{path}' does not fit: {first[0].strip()} Check the model's options"
        ) from None


def dump_weights(model: nn.Module) -> bytes:
    """The weights as a safetensors file."""
    return dump_tensors({name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()})


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ModelError(f"the weights '{path}' cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _load(path: Path, kind: type[RequestError], what: str) -> Any:
    try:
        with _only_graphs(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the unpickler's advice about protocols
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise kind(f"the {what} '{path}' cannot be read ({error.strerror or error})") from None
    except Exception as error:  # a damaged pickle can fail in any way
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        why = (
            f"it holds '{foreign[1]}', and only tensors and graphs are read"
            if foreign
            else "it is damaged or of another kind"
        )
        raise kind(
            f"the {what} '{path}' is refused: {why}; save it anew with torch.save, nothing in it was run"
        ) from None


@contextmanager
def _only_graphs() -> Iterator[None]:
    """Let torch's safe unpickler make tensors and PyG's graphs, and nothing else."""
    serialization = torch.serialization
    before = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    graphs = [Data, GlobalStorage, DataEdgeAttr, DataTensorAttr, EdgeLayout, AttrType]
    try:
        # A graph that was used keeps notes in a defaultdict, which the safe unpickler cannot fill: a dict will do.
        serialization.add_safe_globals([*graphs, (_empty, "collections.defaultdict")])
        yield
    finally:
        serialization.clear_safe_globals()
        serialization.add_safe_globals(before)


def _empty(*_: Any) -> dict[Any, Any]:
    return {}
