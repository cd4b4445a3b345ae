"""What the cache folder holds of a dataset: one file of plain tensors, written by us and read with ``weights_only``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from gnndelete.datasets.ids import IdMap
from gnndelete.errors import GraphError
from gnndelete.io.files import writing

Content = dict[str, Any]
"""``data``: a graph's attributes; ``names`` of its parts; for many graphs ``slices`` and perhaps a ``split``."""


class GraphSet(InMemoryDataset):
    """Many graphs, as PyG's datasets are; ``split`` holds the original ``train``, ``valid`` and ``test`` positions."""

    def __init__(self, data: Data, slices: dict[str, Tensor], split: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        self.data, self.slices = data, slices
        self.split = split or {}

    def get_idx_split(self) -> dict[str, Tensor]:
        """The same under OGB's name."""
        return self.split


def sparse_features(data: Data) -> Data:
    """The graph with its features as a sparse tensor, so that PyG never writes them out in full."""
    if isinstance(data.x, Tensor) and data.x.layout == torch.strided:
        data.x = data.x.float().to_sparse_coo()
    return data


def normalise(x: Tensor) -> Tensor:
    """Sparse features that sum to one per node where they sum to more, as PyG's ``NormalizeFeatures`` has it.

    >>> normalise(torch.tensor([[1.0, 3.0], [0.0, 0.0]]).to_sparse_coo()).to_dense().tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    x = x.coalesce()
    total = torch.zeros(x.size(0)).index_add_(0, x.indices()[0], x.values()).clamp_(min=1.0)
    return torch.sparse_coo_tensor(
        x.indices(), x.values() / total[x.indices()[0]], x.shape, is_coalesced=True, check_invariants=True
    )


def write_content(path: Path, content: Content) -> None:
    """Write the file completely or not at all; of two processes that write it, the last one stays."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=writing())
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def read_content(path: Path) -> Content:
    """The content of a file in the cache; one that holds anything but tensors, numbers and text is refused unread."""
    try:
        with torch.sparse.check_sparse_tensor_invariants():  # else an index out of place is followed anywhere
            content = torch.load(path, weights_only=True)
        if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
            raise ValueError("it holds no graph")
        if not all(isinstance(key, str) for key in content["data"]):
            raise ValueError("it holds no graph")
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file makes the reader stumble over
        reason = type(error).__name__ if len(str(error)) > 100 else str(error)
        raise GraphError(
            f"'{path}' in the cache folder is damaged or was not written by gnndelete ({reason}), and was not loaded; "
            "delete it, and it is made again"
        ) from error
    return content


def as_graph(content: Content, sparse: bool) -> Data | GraphSet:
    """The graph, or the set of graphs, that a file holds; ``sparse`` leaves sparse features as they are."""
    data = Data.from_dict(content["data"])
    if isinstance(data.x, Tensor) and data.x.layout != torch.strided and not sparse:
        data.x = data.x.to_dense()
    for name, names in content.get("names", {}).items():
        data[name] = IdMap(names)  # not a list, which PyG would walk through whenever the graph is copied
    if "slices" in content:
        return GraphSet(data, content["slices"], content.get("split"))
    return data
