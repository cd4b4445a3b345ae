"""What a deletion takes from nodes that stay: feature values, with what is put in their place, and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, some
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.labels import unlabelled
from gnndelete.graph.parsing import as_edges, as_ids

#: Stands for all columns of a node.
ALL = -1

MASKS = ("train_mask", "val_mask", "test_mask")


def as_features(features: Any, fill: Any) -> tuple[Tensor, Tensor]:
    """Entries ``[2, k]`` of (node, column), `ALL` for every column, and the value that replaces each of them ``[k]``.

    >>> as_features([5, 3], 0.0)
    (tensor([[ 3,  5],
            [-1, -1]]), tensor([0., 0.], dtype=torch.float64))
    >>> as_features({3: [0, 2]}, [1.0, 1.5, 2.0])[1].tolist()
    [1.0, 2.0]
    """
    if features is None:
        if not (isinstance(fill, float) and fill == 0) and bool(_fill(fill).any()):
            raise DeletionError(
                "fill= says what replaces features, and features= names none; name some, or leave it out"
            )
        return torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    values = _fill(fill)
    entries = _entries(features)
    whole = entries[1] == ALL
    if not values.dim():
        return merged(entries, values.expand(entries.size(1)))
    if not bool(whole.all()) and int(entries[1].max()) >= values.numel():
        raise DeletionError(
            f"fill= has {values.numel()} values, one per column, and features= names column {int(entries[1].max())}; "
            "give as many values as 'x' has columns, or one number"
        )
    # every column of a whole row has a value of its own: NaN marks the row, to be compared with the width of 'x'
    nodes = entries[0, whole]
    every = torch.arange(values.numel()).repeat(nodes.numel())
    spread = torch.stack([nodes.repeat_interleave(values.numel()), every])
    single = entries[:, ~whole]
    found = torch.cat([entries[:, whole], spread, single], dim=1)
    nan = torch.full((nodes.numel(),), float("nan"), dtype=torch.float64)
    return merged(found, torch.cat([nan, values[spread[1]], values[single[1]]]))


def _fill(fill: Any) -> Tensor:
    try:
        values = torch.as_tensor(fill, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise DeletionError(f"'fill' must be a number, or one number per column (got {fill!r})") from None
    if values.dim() > 1 or not values.numel() or not bool(torch.isfinite(values).all()):
        raise DeletionError(
            f"'fill' must be a finite number, or one per column (got shape {list(values.shape)}: {fill!r})"
        )
    return values + 0.0  # -0.0 and 0.0 are one value


def _entries(features: Any) -> Tensor:
    if isinstance(features, Mapping):
        parts = [(as_ids("features", [node]), as_ids("features", columns)) for node, columns in features.items()]
        if any(not columns.numel() for _, columns in parts):
            raise DeletionError(
                "features= maps a node to no column; give {node: [columns]}, or a list of nodes for all columns"
            )
        each = [torch.stack([node.expand(columns.numel()), columns]) for node, columns in parts]
        return torch.cat(each, dim=1) if each else torch.empty(2, 0, dtype=torch.long)
    if not isinstance(features, (Tensor, np.ndarray, str, bytes, int, np.integer)):
        try:
            features = list(features)
        except TypeError:
            raise DeletionError(f"'features' must hold node ids or pairs (node, column) (got {features!r})") from None
    flat = features.ndim < 2 if isinstance(features, (Tensor, np.ndarray)) else not _holds_pairs(features)
    if flat:
        nodes = as_ids("features", features)
        return torch.stack([nodes, torch.full_like(nodes, ALL)])
    try:
        pairs = as_edges(features)
    except DeletionError as error:
        said = str(error).replace("'edges'", "it").replace("(source, target), or triples", "(node, column)")
        raise DeletionError(f"features= takes node ids, or pairs (node, column) throughout: {said}") from None
    if pairs.size(0) != 2:
        raise DeletionError(
            f"features= is given as {list(pairs.shape)}; it must be node ids, or [2, k] with nodes and their columns"
        )
    return pairs


def _holds_pairs(features: Any) -> bool:
    return isinstance(features, list) and any(isinstance(item, (tuple, list, Tensor, np.ndarray)) for item in features)


def merged(entries: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted entries without repeats; a column of its own counts beside a whole row only where its value differs."""
    if not entries.size(1):
        return entries, values.double()
    order = np.lexsort((entries[1].numpy(), entries[0].numpy()))
    entries, values = entries[:, order], values[order].double()
    if entries.size(1) < 2:
        return entries, values
    same = (entries[:, 1:] == entries[:, :-1]).all(dim=0)
    other = same & (values[1:] != values[:-1]) & ~(values[1:].isnan() & values[:-1].isnan())
    if bool(other.any()):
        place = int(other.nonzero()[0])
        node, column = entries[:, place].tolist()
        what = f"node {node}" if column == ALL else f"column {column} of node {node}"
        raise DeletionError(
            f"the features of {what} are to be replaced by {values[place]:g} and by {values[place + 1]:g}; give one value"
        )
    first = torch.cat([torch.ones(1, dtype=torch.bool), ~same])
    entries, values = entries[:, first], values[first]
    row = _row_value(entries, values)
    keep = (entries[1] == ALL) | (row != values)  # NaN differs from everything, as it should
    return entries[:, keep], values[keep]


def _row_value(entries: Tensor, values: Tensor) -> Tensor:
    """What the whole row of each entry's node is replaced by; NaN where no whole row is named."""
    whole = entries[1] == ALL
    nodes, given = entries[0, whole], values[whole]
    result = torch.full_like(values, float("nan"))
    if nodes.numel():
        place = torch.searchsorted(nodes, entries[0]).clamp(max=nodes.numel() - 1)
        found = nodes[place] == entries[0]
        result[found] = given[place[found]]
    return result


def covered(entries: Tensor, earlier: Tensor) -> Tensor:
    """Which entries are already among ``earlier`` ones, themselves or with their whole row."""
    if not entries.size(1) or not earlier.size(1):
        return torch.zeros(entries.size(1), dtype=torch.bool)
    rows = torch.isin(entries[0], earlier[0, earlier[1] == ALL])
    base = int(torch.cat([entries[1], earlier[1]]).max()) + 2
    return rows | torch.isin(entries[0] * base + entries[1], earlier[0] * base + earlier[1])


def check_features(
    entries: Tensor, values: Tensor, data: Data, names: Sequence[str] | None = None, node_type: str | None = None
) -> tuple[Tensor, Tensor]:
    """The entries in the terms of the graph's own 'x': a row whose columns are all named alike is a whole row."""
    if not entries.size(1):
        return entries, values
    if isinstance(data, HeteroGraph):
        parts = []
        for store, own, rows in data.parts(entries[0]):
            shift = torch.tensor([[rows.start], [0]])
            local, fill = check_features(entries[:, own] - shift, values[own], store, None, store._key)
            parts.append((local + shift, fill))
        return torch.cat([part for part, _ in parts], dim=1), torch.cat([fill for _, fill in parts])
    x, nodes = data.get("x"), int(data.num_nodes or 0)
    if not isinstance(x, Tensor) or not x.dim() or x.size(0) != nodes:
        held = "no 'x'" if x is None else f"an 'x' that is no tensor with {nodes} rows"
        whose = "the graph" if node_type is None else repr(node_type)
        raise DeletionError(
            f"features= is given and {whose} has {held}; name the nodes themselves (nodes=), or their edges"
        )
    width = x.size(1) if x.dim() > 1 else 1
    outside = entries[1] >= width
    if bool(outside.any()):
        wrong = [(node if names is None else names[node], column) for node, column in entries[:, outside].t().tolist()]
        of = "" if node_type is None else f" of {node_type!r}"
        raise DeletionError(
            f"features= names columns that 'x'{of} does not have: {some(wrong)}; they go from 0 to {width - 1}"
        )
    single = entries[1] != ALL
    count = torch.bincount(entries[0, single], minlength=nodes)
    marked = ~single & values.isnan()
    if bool((count[entries[0, marked]] != width).any()):
        given = int(count[entries[0, marked]].min())
        raise DeletionError(
            f"fill= has {given} values, one per column, and 'x' has {width} columns; give {width}, or one"
        )
    if not x.is_floating_point() and bool((values[~marked] != values[~marked].round()).any()):
        raise DeletionError(
            f"fill= holds fractions and 'x' is {x.dtype}; give whole numbers, or make 'x' a float tensor"
        )
    entries, values = entries[:, ~marked], values[~marked]
    return _whole_rows(entries, values, count, width)


def _whole_rows(entries: Tensor, values: Tensor, count: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Rows of which every column is named, as whole rows where one value replaces all of it."""
    full = (entries[1] != ALL) & (count[entries[0]] == width)
    if not bool(full.any()):
        return entries, values
    rows = values[full].view(-1, width)  # sorted by node and column
    alike = (rows == rows[:, :1]).all(dim=1)
    drop = full.clone()
    drop[full] = alike.repeat_interleave(width)
    nodes = entries[0, full].view(-1, width)[alike, 0]
    whole = torch.stack([nodes, torch.full_like(nodes, ALL)])
    # a row named as a whole before has only columns of another value left: all of them are named, so it says nothing
    rest = ~drop & ~((entries[1] == ALL) & (count[entries[0]] == width))
    return merged(torch.cat([entries[:, rest], whole], dim=1), torch.cat([values[rest], rows[alike, 0]]))


def replaced_features(x: Tensor, entries: Tensor, values: Tensor) -> Tensor:
    """A copy of ``x``, dense or sparse, with the values of the entries in their places.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> replaced_features(x, torch.tensor([[0, 1], [-1, 0]]), torch.tensor([0.0, 9.0]).double()).tolist()
    [[0.0, 0.0], [9.0, 4.0]]
    """
    entries, values = entries.to(x.device), values.to(x.device, x.dtype)
    whole = entries[1] == ALL
    if x.layout != torch.strided:
        return _replaced_sparse(x, entries, values, whole)
    result = x.clone()
    table = result if x.dim() > 1 else result.unsqueeze(1)
    shape = [-1] + [1] * (table.dim() - 1)
    table[entries[0, whole]] = values[whole].view(shape).expand(-1, *table.shape[1:])
    table[entries[0, ~whole], entries[1, ~whole]] = values[~whole].view(shape[:-1]).expand(-1, *table.shape[2:])
    return result


def _replaced_sparse(x: Tensor, entries: Tensor, values: Tensor, whole: Tensor) -> Tensor:
    width = x.size(1)
    every = torch.arange(width, device=x.device)
    filled = whole & (values != 0)  # a zero is stored nowhere, not even to tell where something was
    rows = torch.stack([entries[0, filled].repeat_interleave(width), every.repeat(int(filled.sum()))])
    put = torch.cat([rows, entries[:, ~whole]], dim=1)
    with_values = torch.cat([values[filled].repeat_interleave(width), values[~whole]])
    single = entries[0, ~whole] * width + entries[1, ~whole]
    keep = torch.ones(put.size(1), dtype=torch.bool, device=x.device)
    keep[: rows.size(1)] = ~torch.isin(rows[0] * width + rows[1], single)  # a column of its own goes first
    keep &= with_values != 0
    old = x.to_sparse_coo().coalesce()
    stays = ~torch.isin(old.indices()[0], entries[0, whole])
    stays &= ~torch.isin(old.indices()[0] * width + old.indices()[1], single)
    result = torch.sparse_coo_tensor(
        torch.cat([old.indices()[:, stays], put[:, keep]], dim=1),
        torch.cat([old.values()[stays], with_values[keep]]),
        x.shape,
        check_invariants=False,
    ).coalesce()
    return result if x.is_sparse else result.to_sparse(layout=x.layout)


def check_labels(nodes: Tensor, data: Data, names: Sequence[str] | None = None, node_type: str | None = None) -> None:
    """Refuse labels that the graph does not have; ``names`` are the user's ids of the nodes."""
    if not nodes.numel():
        return
    if isinstance(data, HeteroGraph):
        for store, own, kind in data.parts(nodes):
            check_labels(nodes[own] - kind.start, store, None, store._key)
        return
    y, count = data.get("y"), int(data.num_nodes or 0)
    if isinstance(y, Tensor) and "ptr" in data and y.dim() and y.size(0) == data.ptr.numel() - 1 != count:
        raise DeletionError(
            "labels= names nodes, and 'y' holds one label per graph; to forget what a graph has taught, its label too, name "
            "it in graphs="
        )
    if not isinstance(y, Tensor) or not y.dim() or y.size(0) != count:
        held = "no 'y'" if y is None else f"a 'y' that is no tensor with {count} rows"
        whose = "the graph" if node_type is None else repr(node_type)
        raise DeletionError(f"labels= is given and {whose} has {held}; there is no label of a node to forget")
    rows = y[nodes.to(y.device)].flatten(1) if y.dim() > 1 else y[nodes.to(y.device)].unsqueeze(1)
    empty = (rows.isnan() if rows.is_floating_point() else rows < 0).all(dim=1).cpu()
    if bool(empty.any()):
        bare = [node if names is None else repr(names[node]) for node in nodes[empty].tolist()]
        of = "nodes" if node_type is None else f"{node_type!r} nodes"
        raise DeletionError(f"labels are to be forgotten of {of} without a label: {some(bare)}; leave them out")


def cut_labels(result: Data, nodes: Tensor, data: Data) -> None:
    """Labels become -1 (NaN where they are floats), and their nodes leave the three parts of the data."""
    y = data.y
    result.y = unlabelled(y, nodes)
    for name in MASKS:
        mask = data.get(name)
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() and mask.size(0) == y.size(0):
            result[name] = mask.index_fill(0, nodes.to(mask.device), False)
