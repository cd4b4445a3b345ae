"""Reading graphs that ``torch.save`` wrote. Such files are pickles: only tensors and PyG's graphs are made, nothing is run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.data.storage import AttrType, GlobalStorage

from gnndelete.errors import GraphError, RequestError, some
from gnndelete.graph.validation import check_graph


def load_saved(path: Path) -> tuple[Data, ...]:
    """The graph in a file that ``torch.save`` wrote: one `Data`, or training, validation and test parts of one."""
    found = load_pickle(path, GraphError, "graph")
    parts = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(parts) not in (1, 3) or not all(isinstance(part, Data) for part in parts):
        kinds = some(type(part).__name__ for part in parts) or "nothing"
        raise GraphError(f"'{path}' holds {kinds}; save a Data, or a tuple of three (training, validation, test)")
    try:
        # Anew from its attributes: whatever else was stored with the object stays behind.
        graphs = tuple(Data.from_dict(part.to_dict()) for part in parts)
        for graph in graphs:
            check_graph(graph)
    except RequestError:
        raise
    except Exception as error:  # an object without its parts, which no program of ours wrote
        raise GraphError(f"the graph '{path}' is damaged ({type(error).__name__}); save it anew") from None
    return graphs


def load_pickle(path: Path, kind: type[RequestError], what: str) -> Any:
    """What a file of ``torch.save`` holds, as long as it is made of tensors, plain values and graphs."""
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
        way = "torch.save(model.state_dict(), …)" if what == "checkpoint" else "torch.save"
        raise kind(f"the {what} '{path}' is refused: {why}; save it anew with {way}, nothing in it was run") from None


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
