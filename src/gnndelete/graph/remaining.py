"""The graph that remains: edges, features, labels and masks without what a checked deletion names. Ids never shift."""

from __future__ import annotations

import copy
import re

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import NotYetError
from gnndelete.graph.edge_table import EdgeTable, ends_of, entries
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import KINDS, Elements

#: A further set of edges is called ``edge_index`` with a prefix or a suffix. (A ``hyperedge_index`` holds no pairs of nodes.)
_EDGE_SET = re.compile(r"((?:.+_)?)edge_index((?:_.+)?)")


def cut(deletion: Elements, data: Data, table: EdgeTable) -> Data:
    """The graph without a deletion that was checked on this very graph."""
    mask = remaining_edges(deletion, data, table)
    if isinstance(data, HeteroGraph):
        hetero = copy.copy(data.with_edges(mask).hetero)
        _cut_typed_label_pairs(hetero, deletion, data, table)
        for kind in KINDS.values():
            kind.cut(hetero, deletion, data)
        return HeteroGraph.of(hetero, data.types)
    result = _with_edges(data, mask)
    _cut_label_pairs(result, deletion, data, table)
    _cut_further_edges(result, deletion, data, table)
    for kind in KINDS.values():
        kind.cut(result, deletion, data)
    return result


def remaining_edges(deletion: Elements, data: Data, table: EdgeTable) -> Tensor:
    """Which edges stay, as a mask."""
    device = data.edge_index.device
    if deletion.edges.size(1):
        mask = table.without(table.both_ways(deletion.edges.to(device)))
    else:
        mask = torch.ones(table.num_edges, dtype=torch.bool, device=device)
    if deletion.nodes.numel():
        dead = torch.zeros(table.num_nodes, dtype=torch.bool, device=device)
        dead.index_fill_(0, deletion.nodes.to(device), True)
        mask &= ~(dead[data.edge_index[0]] | dead[data.edge_index[1]])
    return mask


def among(data: Data, nodes: Tensor) -> Data:
    """The graph with only the edges between the given nodes; all nodes and their ids stay."""
    inside = torch.zeros(int(data.num_nodes or 0), dtype=torch.bool, device=data.edge_index.device)
    inside[nodes.to(inside.device)] = True
    mask = inside[data.edge_index].all(dim=0)
    return data.with_edges(mask) if isinstance(data, HeteroGraph) else _with_edges(data, mask)


def further_edge_sets(data: Data) -> dict[str, list[str]]:
    """Pairs of nodes besides ``edge_index``, by name, each with the names of its attributes: ``edge_weight_knn``.

    >>> data = Data(edge_index=torch.tensor([[0], [1]]), edge_index_knn=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    >>> data.edge_weight_knn = torch.ones(2)
    >>> further_edge_sets(data)
    {'edge_index_knn': ['edge_weight_knn']}
    """
    found, values = {}, data.to_dict()
    for name, value in values.items():
        match = _EDGE_SET.fullmatch(name)
        if match is None or name == "edge_index" or not _is_pairs(value, int(data.num_nodes or 0)):
            continue
        pattern = re.compile(f"{re.escape(match[1])}edge_.+{re.escape(match[2])}")
        found[name] = [
            other
            for other, held in values.items()
            if other not in (name, "edge_index") and pattern.fullmatch(other) and _has_rows(held, value.size(1))
        ]
    return found


def _is_pairs(value: object, num_nodes: int) -> bool:
    if not isinstance(value, Tensor) or value.dtype != torch.long or value.dim() != 2 or value.size(0) != 2:
        return False
    return bool(value.numel()) and 0 <= int(value.min()) <= int(value.max()) < num_nodes


def _has_rows(value: object, count: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == count


def _with_edges(data: Data, mask: Tensor) -> Data:
    """The graph with the edges of a mask and their attributes."""
    positions = mask.nonzero().flatten()
    result = data.__copy__()
    result.num_nodes = int(data.num_nodes or 0)
    further = {name for pairs, others in further_edge_sets(data).items() for name in (pairs, *others)}
    for name in data.to_dict():
        if not name.startswith("edge_label") and name not in further and data.is_edge_attr(name):
            result[name] = entries(data, name, positions)
    return result


def _cut_label_pairs(result: Data, deletion: Elements, data: Data, table: EdgeTable) -> None:
    pairs = data.get("edge_label_index")
    if pairs is None:
        return
    if table.typed:
        raise NotYetError("typed graphs with 'edge_label_index' are not supported by this version; drop that attribute")
    gone = table.both_ways(deletion.edges).to(pairs.device) if deletion.edges.size(1) else None
    mask = _remaining_pairs(pairs, gone, deletion.nodes, table.num_nodes)
    for name in ("edge_label_index", "edge_label"):
        if isinstance(data.get(name), Tensor):
            result[name] = data[name][..., mask]


def _cut_typed_label_pairs(result: Data, deletion: Elements, data: HeteroGraph, table: EdgeTable) -> None:
    gone = table.both_ways(deletion.edges) if deletion.edges.size(1) else None
    for number, kind in enumerate(data.types.edges):
        store = data.hetero[kind]
        pairs = store.get("edge_label_index")
        if pairs is None:
            continue
        source, target = data.types.ends(kind)
        shift = torch.tensor([[source.start], [target.start]], device=pairs.device)
        of_kind = None if gone is None else gone[:, gone[1] == number][[0, 2]].to(pairs.device)
        mask = _remaining_pairs(pairs + shift, of_kind, deletion.nodes, table.num_nodes)
        for name in ("edge_label_index", "edge_label"):
            if isinstance(store.get(name), Tensor):
                result[kind][name] = store[name][..., mask]


def _cut_further_edges(result: Data, deletion: Elements, data: Data, table: EdgeTable) -> None:
    """Where a further set of edges has types, it loses only the deleted types of an edge."""
    gone = table.both_ways(deletion.edges) if deletion.edges.size(1) else None
    for name, others in further_edge_sets(data).items():
        pairs, types = data[name], name.replace("edge_index", "edge_type")
        mask = _remaining_pairs(pairs, None, deletion.nodes, table.num_nodes)
        if gone is not None:
            kinds = data[types] if table.typed and types in others else None
            mask &= ~_is_deleted(pairs, kinds, gone.to(pairs.device), table)
        result[name] = pairs[:, mask]
        for other in others:
            result[other] = data[other][mask]


def _is_deleted(pairs: Tensor, kinds: Tensor | None, gone: Tensor, table: EdgeTable) -> Tensor:
    """Which pairs are among the edges ``gone``: with types, those of the same type."""
    if kinds is None or gone.size(0) == 2:
        return EdgeTable(ends_of(gone), table.num_nodes).contains(pairs)
    count = max(table.num_relations, int(kinds.max()) + 1)
    return EdgeTable(ends_of(gone), table.num_nodes, gone[1], count).contains(torch.stack([pairs[0], kinds, pairs[1]]))


def _remaining_pairs(pairs: Tensor, gone: Tensor | None, nodes: Tensor, num_nodes: int) -> Tensor:
    """Which pairs of nodes stay, as a mask."""
    mask = torch.ones(pairs.size(1), dtype=torch.bool, device=pairs.device)
    if gone is not None:
        mask &= ~EdgeTable(gone, num_nodes).contains(pairs)
    if nodes.numel():
        mask &= ~torch.isin(pairs, nodes.to(pairs.device)).any(dim=0)
    return mask
