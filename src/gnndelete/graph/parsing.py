"""The one parser of ids: whatever users give as ids, edges, cells or values becomes a tensor, or one clear error.

`Names` is the way back: what error messages call nodes and edges.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gnndelete.errors import DeletionError, RequestError, SettingError, bounded, some
from gnndelete.graph.edge_table import ends_of

if TYPE_CHECKING:
    from gnndelete.datasets.ids import IdMap

#: The column of a feature cell that stands for all columns of its node.
ALL_COLUMNS = -1


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


def require_names(ids: Any) -> None:
    """Refuse what is given as the names of the nodes and is no `IdMap`."""
    if ids is not None and not callable(getattr(ids, "to_int", None)):
        raise DeletionError(f"ids= is a '{type(ids).__name__}'; give an IdMap: gnndelete.datasets.IdMap(names)")


def as_ids(values: Any, name: str, ids: IdMap | None = None) -> Tensor:
    """Sorted, distinct ids as a tensor on the CPU.

    >>> as_ids([3, 1, 3], "nodes").tolist()
    [1, 3]
    """
    return torch.unique(_not_negative(_flat(values, name, DeletionError, ids), name))


def as_new_labels(nodes: Any, classes: Any, ids: IdMap | None = None) -> Tensor:
    """The classes that replace the labels of nodes, as sorted, distinct pairs ``[2, k]`` of node and class on the CPU.

    >>> as_new_labels([8, 3], [0, 1]).tolist(), as_new_labels([8, 3], 1).tolist()
    ([[3, 8], [1, 0]], [[3, 8], [1, 1]])
    """
    rows = _not_negative(_flat(nodes, "labels", DeletionError, ids), "labels")
    given = _not_negative(_flat(classes, "replace", DeletionError), "replace")
    if given.numel() not in (1, rows.numel()):
        raise DeletionError(
            f"replace= has {given.numel()} classes for {rows.numel()} labels; give one for each, or one for all"
        )
    return join_new_labels(torch.stack([rows, given.expand(rows.numel())]))


def join_new_labels(pairs: Tensor) -> Tensor:
    """Pairs of node and class, each once; two classes for one node are refused."""
    found = distinct(pairs)
    again = found[0, 1:][found[0, 1:] == found[0, :-1]]
    if again.numel():
        node = int(again[0])
        classes = found[1, found[0] == node].tolist()
        raise DeletionError(f"the label of node {node} is to be replaced by {some(classes)}; give one class")
    return found


def as_edges(edges: Any, ids: IdMap | tuple[IdMap, IdMap] | None = None) -> Tensor:
    """Sorted, distinct edges as a ``[2, k]`` tensor (``[3, k]`` for triples) on the CPU.

    >>> as_edges([(7, 9), (0, 5), (7, 9)]).tolist()
    [[0, 7], [5, 9]]
    """
    return distinct(_not_negative(edge_list(edges, "edges", error=DeletionError, ids=ids), "edges"))


def as_cells(features: Any, ids: IdMap | None = None) -> Tensor:
    """Cells ``[2, k]`` of (node, column) from node ids, pairs, a ``[2, k]`` tensor or ``{node: columns}``.

    >>> as_cells([5, 3]).tolist(), as_cells({3: [0, 2]}).tolist()
    ([[3, 5], [-1, -1]], [[3, 3], [0, 2]])
    """
    if isinstance(features, Mapping):
        nodes = _flat(list(features), "features", DeletionError, ids)
        columns = [_flat(part, "features", DeletionError) for part in features.values()]
        if not all(part.numel() for part in columns):
            raise DeletionError(
                "features= maps a node to no column; give {node: [columns]}, or a list of nodes for all columns"
            )
        owners = nodes.repeat_interleave(torch.tensor([part.numel() for part in columns], dtype=torch.long))
        return _not_negative(torch.stack([owners, torch.cat([nodes[:0], *columns])]), "features")
    if not isinstance(features, (Tensor, np.ndarray, str, int, np.integer)):
        features = _listed(features, "features", DeletionError)
    pairs = (_dim(features) or 0) > 1
    if isinstance(features, list):
        pairs = any(isinstance(each, (tuple, list)) or _dim(each) == 1 for each in features)
    if pairs:
        return _not_negative(edge_list(features, "features", (2,), DeletionError, ids), "features")
    nodes = as_ids(features, "features", ids)
    return torch.stack([nodes, torch.full_like(nodes, ALL_COLUMNS)])


def as_fill(fill: Any) -> Tensor:
    """One value, or one per column, as finite doubles on the CPU.

    >>> as_fill([0.5, -0.0]).tolist()
    [0.5, 0.0]
    """
    if isinstance(fill, (Tensor, np.ndarray)):
        usable = _dim(fill) in (0, 1) and not any(
            word in str(fill.dtype) for word in ("bool", "complex", "<U", "object")
        )
    else:
        values = fill if isinstance(fill, (list, tuple)) else [fill]
        usable = all(isinstance(each, Real) and not isinstance(each, bool) for each in values)
    try:
        found = (
            torch.as_tensor(fill, dtype=torch.float64).detach().cpu() + 0.0 if usable else None
        )  # -0.0 and 0.0 are one
    except (OverflowError, RuntimeError, TypeError):
        found = None
    if found is None or not found.numel() or not bool(torch.isfinite(found).all()):
        raise DeletionError(f"'fill' must be a finite number, or one number per column (got {short(fill)})")
    return found


def as_replacement(values: Any, cells: Tensor) -> Tensor:
    """The numbers that replace feature cells ``[2, k]``, in the order of these.

    >>> as_replacement([0.5, 2], torch.tensor([[3, 8], [0, 1]])).tolist()
    [0.5, 2.0]
    """
    found, count = as_fill(values), cells.size(1)
    if found.numel() > 1 and bool((cells[1] == ALL_COLUMNS).any()):
        raise DeletionError("replace= has several numbers, and features= names whole nodes; name pairs (node, column)")
    if found.numel() not in (1, count):
        raise DeletionError(
            f"replace= has {found.numel()} numbers for {count} pairs of features=; give one for each pair (node, column), or one "
            "for all"
        )
    return found.view(-1).expand(count)


def ids_in_order(values: Any, noun: str, count: int) -> Tensor:
    """Ids below ``count`` as a flat tensor, in the order given and on the device given.

    >>> ids_in_order([2, 0], "node", count=3).tolist()
    [2, 0]
    """
    array = _flat(values, f"{noun}s", SettingError)
    if array.numel():
        low, high = torch.stack(array.aminmax()).tolist()
        if low < 0 or high >= count:
            raise SettingError(f"there is no {noun} {low if low < 0 else high}; ids go from 0 to {count - 1}")
    return array


def edge_list(
    edges: Any,
    name: str,
    widths: tuple[int, ...] = (2, 3),
    error: type[RequestError] = SettingError,
    ids: IdMap | tuple[IdMap, IdMap] | None = None,
) -> Tensor:
    """Edges as a ``[2, k]`` tensor (``[3, k]`` for triples), in the order given and on the device given.

    With ``widths`` (2,), pairs are cells (node, column). With ``ids``, for both ends or for each one, everything but a tensor
    gives the names of nodes.

    >>> edge_list([(7, 9), (0, 5)], "edges").tolist()
    [[7, 0], [9, 5]]
    """
    shape, form = "[2, k] with nodes and their columns", "node ids or pairs (node, column)"
    if 3 in widths:
        shape, form = "[2, k] (or [3, k] for triples)", "pairs (source, target), or triples"
    named = ids is not None and isinstance(edges, np.ndarray)
    array = None if named else _tensor(edges, name, error)
    if array is not None:
        if array.dim() != 2 or array.size(0) not in widths:
            hint = "; transpose it with .t()" if array.dim() == 2 and array.size(1) in widths else ""
            raise error(f"'{name}' is a tensor of shape {list(array.shape)}; it must be {shape}{hint}")
        return array
    rows = _listed(edges.T if isinstance(edges, np.ndarray) else edges, name, error)
    if not rows:
        return torch.empty(2, 0, dtype=torch.long)
    if set(map(type, rows)) - {tuple, list}:
        rows = [row.tolist() if _dim(row) == 1 else row for row in rows]
    width = len(rows[0]) if isinstance(rows[0], (tuple, list)) and len(rows[0]) in widths else widths[0]
    for wrong in (row for row in rows if not isinstance(row, (tuple, list)) or len(row) != width):
        raise error(f"'{name}' must hold {form} throughout; got {short(wrong)}")
    if ids is None:
        return _flat(list(chain.from_iterable(rows)), name, error).view(-1, width).t()
    source, target = ids if isinstance(ids, tuple) else (ids, ids)
    known = {0: source, width - 1: target} if 3 in widths else {0: source}
    columns = enumerate(zip(*rows, strict=True))
    return torch.stack([_flat(list(column), name, error, known.get(at)) for at, column in columns])


def _flat(values: Any, name: str, error: type[RequestError], ids: IdMap | None = None) -> Tensor:
    """Integers as a flat tensor, in the order given. With ``ids``, everything but a tensor holds names, also numbers."""
    if ids is not None and not isinstance(values, Tensor):
        return _look_up([values] if isinstance(values, (str, int, np.integer)) else values, name, error, ids)
    if type(values) is int or isinstance(values, np.integer):
        values = [values]
    array = _tensor(values, name, error)
    if array is not None:
        if array.dim() > 1:
            raise error(f"'{name}' has shape {list(array.shape)}; it must be a flat list of ids")
        return array.view(-1)
    items = _listed(values, name, error)
    if set(map(type, items)) - {int}:
        items = [each.item() if isinstance(each, np.generic) or _dim(each) == 0 else each for each in items]
        for wrong in (each for each in items if type(each) is not int):
            raise error(f"'{name}' holds {_words(type(wrong))}, for example {short(wrong)}; ids are integers")
    try:
        return torch.from_numpy(np.array(items, dtype=np.int64))
    except OverflowError:
        large = short(max(items, key=abs))
        raise error(f"'{name}' holds the id {large}, which is no 64-bit integer; give smaller ids") from None


def _look_up(values: Any, name: str, error: type[RequestError], ids: IdMap) -> Tensor:
    """The nodes of names; a number is the name that it has as text."""
    items = [each.item() if isinstance(each, np.generic) else each for each in _listed(values, name, error)]
    for wrong in (each for each in items if type(each) not in (str, int)):
        raise error(
            f"'{name}' holds {_words(type(wrong))}, for example {short(wrong)}; with ids= give the names of nodes"
        )
    return ids.to_int([str(each) for each in items])


def _tensor(values: Any, name: str, error: type[RequestError]) -> Tensor | None:
    """The integers of a tensor, which stays on its device, or of an array; None for anything else, texts among them."""
    is_array = isinstance(values, np.ndarray)
    if not isinstance(values, Tensor) and (not is_array or values.dtype.kind in "OUST"):
        return None
    if _dim(values) is None:
        raise error(f"'{name}' is {short(values)}; give a plain tensor or a list of integers")
    kind = str(values.dtype).removeprefix("torch.")
    if "int" not in kind and (values.size if is_array else values.numel()):
        first = values.flat[0] if is_array else values.flatten()[0]
        raise error(f"'{name}' holds {_words(kind)}, for example {first.item()!r}; ids are integers")
    array = torch.from_numpy(values.astype(np.int64)) if is_array else values.detach().long()
    if kind == "uint64" and bool((array < 0).any()):
        large = int(array.min()) + 2**64
        raise error(f"'{name}' holds the id {large}, which is no 64-bit integer; give smaller ids")
    return array


def _dim(value: Any) -> int | None:
    """The number of dimensions of a plain tensor or array; None for anything else."""
    if isinstance(value, Tensor):
        plain = not value.is_nested and value.layout == torch.strided and not value.is_quantized and not value.is_meta
        return value.dim() if plain else None
    return value.ndim if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) else None


def _listed(values: Any, name: str, error: type[RequestError]) -> list[Any]:
    """The items of anything that can be gone through; of a table with columns (a DataFrame, say) its rows."""
    try:
        if hasattr(values, "to_numpy"):
            values = values.to_numpy()
        if isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray):
            return values.tolist()
        if isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping, np.ma.MaskedArray)):
            return list(values)
    except Exception as raised:  # a generator, or an object of the user's own
        said = bounded(" ".join(str(raised).split()), 200)
        raise error(
            f"'{name}' cannot be gone through ({type(raised).__name__}: {said}); give a list of ids"
        ) from raised
    raise error(f"'{name}' is a '{type(values).__name__}' ({short(values)}); give a list or a tensor of integer ids")


def _words(kind: Any) -> str:
    """Words for a wrong type of ids."""
    name = kind if isinstance(kind, str) else kind.__name__
    words = {
        "bool": "booleans (a mask: pass mask.nonzero())",
        "str": "strings (for names pass ids=, such as ids=graph.ids)",
        "list": "lists (ids come in a flat list)",
        "tuple": "tuples (ids come in a flat list)",
    }
    return "floats" if "float" in name else words.get(name, f"values of type '{name}'")


def short(value: Any) -> str:
    """A value as a message shows it, in bounded length."""
    if isinstance(value, (Tensor, np.ndarray)) and _dim(value) != 0:
        layout = f" ({value.layout}, on {value.device})" if isinstance(value, Tensor) else ""
        return f"a '{type(value).__name__}' of {value.dtype}{layout}"
    shown = reprlib.Repr()
    shown.maxstring, shown.maxother, shown.maxlevel = 80, 80, 2
    try:
        return " ".join(shown.repr(value).split())
    except ValueError:
        return "an integer of thousands of digits"


def _not_negative(array: Tensor, name: str) -> Tensor:
    """The same ids on the CPU, where a deletion keeps them."""
    if array.numel() and int(array.min()) < 0:
        raise DeletionError(f"'{name}' holds the negative id {int(array.min())}; ids start at 0")
    return array.cpu()


def distinct(edges: Tensor) -> Tensor:
    """Sorted columns without repeats.

    >>> distinct(torch.tensor([[7, 0, 7], [9, 5, 9]])).tolist()
    [[0, 7], [5, 9]]
    """
    if not edges.numel():
        return edges
    bases = (edges.max(dim=1).values + 1).tolist()
    if prod(bases) > torch.iinfo(torch.long).max:
        return torch.unique(edges, dim=1)
    key = torch.unique(_keys(edges, bases))  # one number per column: far cheaper to sort than columns
    rows = []
    for base in reversed(bases[1:]):
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
    bases = (torch.maximum(a.max(dim=1).values, b.max(dim=1).values) + 1).tolist()
    key, known = _keys(a, bases), _keys(b, bases).sort().values
    return known[torch.searchsorted(known, key).clamp_(max=known.numel() - 1)] == key


def join_edges(a: Tensor, b: Tensor) -> Tensor:
    """The columns of both, each once; pairs and triples cannot be joined."""
    if not a.size(1) or not b.size(1):
        return a if a.size(1) else b
    if a.size(0) != b.size(0):
        raise DeletionError("a deletion of pairs cannot be joined with one of triples; they belong to different graphs")
    return distinct(torch.cat([a, b], dim=1))


def _keys(edges: Tensor, bases: Sequence[int]) -> Tensor:
    """One number per column, in the order of the columns."""
    key = edges[0]
    for row, base in zip(edges[1:], bases[1:], strict=True):
        key = key * base + row
    return key
