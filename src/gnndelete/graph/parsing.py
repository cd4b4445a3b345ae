"""The one parser of ids: what users write as ids, edges or (node, column) cells becomes tensors, or one clear error.

`Names` is the way back: what error messages call nodes and edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnndelete.errors import DeletionError, RequestError, SettingError
from gnndelete.graph.edge_table import ends_of

#: The column of a feature cell that stands for all columns of its node.
ALL_COLUMNS = -1

_DTYPE_WORDS = {"f": "floats", "b": "booleans (a mask: pass mask.nonzero())", "U": "strings", "O": "mixed values"}


@dataclass(frozen=True)
class Names:
    """The user's names of nodes and relations, for error messages; without names, elements go by their ids.

    >>> Names(["ann", "bob"], ["knows"]).edges(torch.tensor([[0], [0], [1]]))
    [('ann', 'knows', 'bob')]
    >>> Names().node(3), Names(["ann", "bob"]).node(1)
    ('3', "'bob'")
    """

    nodes: Sequence[str] | None = None
    relations: Sequence[str] | None = None

    def node(self, node: int) -> str:
        """One node as a message shows it."""
        return str(node) if self.nodes is None else repr(self.nodes[node])

    def relation(self, relation: int) -> str:
        """One relation as a message shows it."""
        return str(relation) if self.relations is None else repr(self.relations[relation])

    def edges(self, edges: Tensor) -> list[object]:
        """Edges as tuples of names; as tuples of ids where a node has no name."""
        columns = edges.t().tolist()
        if self.nodes is None or (edges.numel() and int(ends_of(edges).max()) >= len(self.nodes)):
            return [tuple(column) for column in columns]
        known = self.relations or ()
        return [
            (self.nodes[head], *(known[r] if r < len(known) else r for r in middle), self.nodes[tail])
            for head, *middle, tail in columns
        ]


def as_ids(ids: Any, name: str) -> Tensor:
    """Sorted, distinct ids as a tensor on the CPU.

    >>> as_ids([3, 1, 3], "nodes").tolist()
    [1, 3]
    """
    if ids is None:
        return torch.empty(0, dtype=torch.long)
    if isinstance(ids, (int, np.integer)) and not isinstance(ids, bool):
        ids = [int(ids)]
    array = _integers(ids, name, DeletionError)
    if array.dim() != 1:
        raise DeletionError(f"'{name}' has shape {list(array.shape)}; it must be a flat list of ids")
    return torch.unique(_not_negative(array, name))


def as_edges(edges: Any) -> Tensor:
    """Sorted, distinct edges as a ``[2, k]`` tensor (``[3, k]`` for triples) on the CPU.

    >>> as_edges([(7, 9), (0, 5), (7, 9)]).tolist()
    [[0, 7], [5, 9]]
    """
    if edges is None:
        return torch.empty(2, 0, dtype=torch.long)
    return distinct(_not_negative(_columns(edges, "edges", (2, 3), DeletionError), "edges"))


def as_cells(features: Any) -> Tensor:
    """Cells ``[2, k]`` of (node, column) from node ids, pairs, a ``[2, k]`` tensor or ``{node: columns}``.

    >>> as_cells([5, 3]).tolist(), as_cells({3: [0, 2]}).tolist()
    ([[3, 5], [-1, -1]], [[3, 3], [0, 2]])
    """
    if isinstance(features, Mapping):
        parts = [(as_ids([node], "features"), as_ids(columns, "features")) for node, columns in features.items()]
        if any(not columns.numel() for _, columns in parts):
            raise DeletionError(
                "features= maps a node to no column; give {node: [columns]}, or a list of nodes for all columns"
            )
        cells = [torch.stack([node.expand(columns.numel()), columns]) for node, columns in parts]
        return torch.cat(cells, dim=1) if cells else torch.empty(2, 0, dtype=torch.long)
    if not isinstance(features, (Tensor, np.ndarray, str, bytes, int, np.integer)):
        features = _listed(features, "features", DeletionError)
    if features.ndim < 2 if isinstance(features, (Tensor, np.ndarray)) else not _holds_pairs(features):
        nodes = as_ids(features, "features")
        return torch.stack([nodes, torch.full_like(nodes, ALL_COLUMNS)])
    return _not_negative(_columns(features, "features", (2,), DeletionError), "features")


def ids_in_order(ids: Any, noun: str, count: int) -> Tensor:
    """Ids below ``count`` as a flat tensor, in the order given and on the device given.

    >>> ids_in_order([2, 0], "node", count=3).tolist()
    [2, 0]
    """
    if isinstance(ids, (int, np.integer)) and not isinstance(ids, bool):
        ids = [int(ids)]
    array = _integers(ids, f"{noun}s", SettingError)
    array = array.view(1) if array.dim() == 0 else array
    if array.dim() != 1:
        raise SettingError(f"'{noun}s' has shape {list(array.shape)}; it must be a flat list of ids")
    if array.numel():
        low, high = torch.stack(array.aminmax()).tolist()
        if low < 0 or high >= count:
            raise SettingError(f"there is no {noun} {low if low < 0 else high}; ids go from 0 to {count - 1}")
    return array


def edge_list(edges: Any, name: str) -> Tensor:
    """Edges as a ``[2, k]`` tensor (``[3, k]`` for triples), in the order given and on the device given.

    >>> edge_list([(7, 9), (0, 5)], "edges").tolist()
    [[7, 0], [9, 5]]
    """
    return _columns(edges, name, (2, 3), SettingError)


def distinct(edges: Tensor) -> Tensor:
    """Sorted columns without repeats.

    >>> distinct(torch.tensor([[7, 0, 7], [9, 5, 9]])).tolist()
    [[0, 7], [5, 9]]
    """
    if not edges.numel():
        return edges
    base = int(edges.max()) + 1
    if base ** edges.size(0) > torch.iinfo(torch.long).max:
        return torch.unique(edges, dim=1)
    key = torch.unique(_keys(edges, base))  # one number per column: far cheaper to sort than columns
    rows = []
    for _ in range(edges.size(0) - 1):
        rows.append(key % base)
        key = key // base
    return torch.stack([key, *reversed(rows)])


def is_among(a: Tensor, b: Tensor) -> Tensor:
    """Which columns of ``a`` are also columns of ``b``, as a mask.

    >>> is_among(torch.tensor([[0, 7], [5, 9]]), torch.tensor([[7], [9]])).tolist()
    [False, True]
    """
    if not a.numel() or not b.numel():
        return torch.zeros(a.size(1), dtype=torch.bool, device=a.device)
    base = int(max(a.max(), b.max())) + 1
    return torch.isin(_keys(a, base), _keys(b, base))


def join_edges(a: Tensor, b: Tensor) -> Tensor:
    """The columns of both, each once; pairs and triples cannot be joined."""
    if not a.size(1) or not b.size(1):
        return a if a.size(1) else b
    if a.size(0) != b.size(0):
        raise DeletionError("a deletion of pairs cannot be joined with one of triples; they belong to different graphs")
    return distinct(torch.cat([a, b], dim=1))


def join_ids(a: Tensor, b: Tensor) -> Tensor:
    """The ids of both, each once."""
    return torch.unique(torch.cat([a, b])) if a.numel() and b.numel() else a if a.numel() else b


def _keys(edges: Tensor, base: int) -> Tensor:
    key = edges[0]
    for row in edges[1:]:
        key = key * base + row
    return key


def _columns(values: Any, name: str, widths: Sequence[int], error: type[RequestError]) -> Tensor:
    """Pairs or triples as the columns of a tensor, in the order given; widths (2,) are cells, (2, 3) are edges."""
    shape, form = (
        ("[2, k] (or [3, k] for triples)", "pairs (source, target), or triples")
        if 3 in widths
        else ("[2, k] with nodes and their columns", "node ids or pairs (node, column)")
    )
    if isinstance(values, (Tensor, np.ndarray)):
        array = _integers(values, name, error)
        if array.dim() != 2 or array.size(0) not in widths:
            hint = "; transpose it with .t()" if array.dim() == 2 and array.size(1) in widths else ""
            raise error(f"'{name}' is a tensor of shape {list(array.shape)}; it must be {shape}{hint}")
        return array
    rows = _listed(values, name, error)
    if not rows:
        return torch.empty(2, 0, dtype=torch.long)
    lengths = [_length(row) for row in rows]
    first = lengths[0] if lengths[0] in widths else widths[0]
    wrong = next((row for row, length in zip(rows, lengths, strict=True) if length != first), None)
    if wrong is not None:
        raise error(f"'{name}' must hold {form} throughout; got {wrong!r}")
    array = _integers(rows, name, error)
    if array.dim() != 2:
        raise error(f"'{name}' must hold {form} of ids; got {rows[0]!r}")
    return array.t()


def _length(row: Any) -> int:
    try:
        return 1 if isinstance(row, (str, bytes, dict)) else len(row)
    except TypeError:
        return 1


def _holds_pairs(features: Any) -> bool:
    return isinstance(features, list) and any(isinstance(item, (tuple, list, Tensor, np.ndarray)) for item in features)


def _listed(values: Any, name: str, error: type[RequestError]) -> list[Any]:
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise error(f"'{name}' is a '{type(values).__name__}' ({values!r}); give a list or a tensor of integer ids")
    return list(values)


def _integers(values: Any, name: str, error: type[RequestError]) -> Tensor:
    """Integers of any shape; a tensor stays on its device."""
    if isinstance(values, Tensor):
        if values.numel() and (values.dtype.is_floating_point or values.dtype == torch.bool):
            words = _DTYPE_WORDS["b" if values.dtype == torch.bool else "f"]
            raise error(f"'{name}' holds {words}, for example {values.flatten()[0].item()!r}; ids are integers")
        return values.detach().long()
    values = values if isinstance(values, np.ndarray) else _listed(values, name, error)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as problem:
        raise error(f"'{name}' is not a regular list of ids ({problem}); give integers") from problem
    if not array.size:
        return torch.empty(array.shape, dtype=torch.long)
    if array.dtype.kind not in "iu":
        first = array.flat[0].item() if isinstance(array.flat[0], np.generic) else array.flat[0]
        words = _DTYPE_WORDS.get(array.dtype.kind, str(array.dtype))
        raise error(f"'{name}' holds {words}, for example {first!r}; ids are integers")
    if int(array.max()) > np.iinfo(np.int64).max:
        raise error(f"'{name}' holds the id {int(array.max())}, which is no 64-bit integer; give smaller ids")
    return torch.from_numpy(np.array(array, dtype=np.int64))


def _not_negative(array: Tensor, name: str) -> Tensor:
    """The same ids on the CPU, where a deletion keeps them."""
    if array.numel() and int(array.min()) < 0:
        raise DeletionError(f"'{name}' holds the negative id {int(array.min())}; ids start at 0")
    return array.cpu()
