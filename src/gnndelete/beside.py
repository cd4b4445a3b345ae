"""Edges beside ``edge_index``: further sets of pairs that a graph holds under names of their own (``edge_index_knn``)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph import count_nodes

_NAME = "edge_index"


def beside(data: Data) -> dict[str, list[str]]:
    """Names of further sets of edges of a graph, with those of the values that belong to each: ``edge_weight_knn``.

    >>> data = Data(edge_index=torch.tensor([[0], [1]]), edge_index_knn=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    >>> data.edge_weight_knn = torch.ones(2)
    >>> beside(data)
    {'edge_index_knn': ['edge_weight_knn']}
    """
    found = {}
    for name, value in data.to_dict().items():
        if _NAME not in name or name == _NAME or not isinstance(value, Tensor) or value.dtype != torch.long:
            continue
        if value.dim() != 2 or value.size(0) != 2 or not value.numel():
            continue
        if 0 <= int(value.min()) <= int(value.max()) < count_nodes(data):
            others = (name.replace(_NAME, f"edge_{kind}") for kind in ("weight", "attr", "type"))
            found[name] = [other for other in others if _long(data.get(other), value.size(1))]
    return found


def _long(value: object, size: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == size
