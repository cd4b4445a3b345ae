"""Edges beside ``edge_index``: further sets of pairs that a graph holds under names of their own (``edge_index_knn``)."""

from __future__ import annotations

import re

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.validation import count_nodes

#: A set by its name: ``edge_index`` and words before or behind it. (A ``hyperedge_index`` holds no pairs of nodes.)
_SET = re.compile(r"((?:.+_)?)edge_index((?:_.+)?)")


def beside(data: Data) -> dict[str, list[str]]:
    """Names of further sets of edges of a graph, with those of the values that belong to each: ``edge_weight_knn``.

    >>> data = Data(edge_index=torch.tensor([[0], [1]]), edge_index_knn=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    >>> data.edge_weight_knn = torch.ones(2)
    >>> beside(data)
    {'edge_index_knn': ['edge_weight_knn']}
    """
    found, held = {}, data.to_dict()
    for name, value in held.items():
        words = _SET.fullmatch(name)
        if words is None or name == "edge_index" or not isinstance(value, Tensor) or value.dtype != torch.long:
            continue
        if value.dim() != 2 or value.size(0) != 2 or not value.numel():
            continue
        if 0 <= int(value.min()) <= int(value.max()) < count_nodes(data):
            own = re.compile(f"{re.escape(words[1])}edge_.+{re.escape(words[2])}")
            others = [other for other in held if other not in (name, "edge_index") and own.fullmatch(other)]
            found[name] = [other for other in others if _long(held[other], value.size(1))]
    return found


def types_of(name: str) -> str:
    """What the types of a further set of edges are called.

    >>> types_of("train_edge_index")
    'train_edge_type'
    """
    return name.replace("edge_index", "edge_type")


def cut_too(data: Data) -> tuple[str, ...]:
    """A note on the further sets that what is deleted is cut from: a name alone does not make one."""
    names = [f"'{name}'" for name in beside(data)]
    if not names:
        return ()
    return (
        f"Deleted edges and nodes were also cut from {' and '.join(names)}, taken for further edges among the nodes; give it "
        "another name, without edge_index, where it holds something else.",
    )


def _long(value: object, size: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == size
