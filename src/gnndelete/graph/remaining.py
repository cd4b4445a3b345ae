"""The graph that remains: edges, features, labels and masks without what a checked deletion names. Ids never shift."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, NotYetError
from gnndelete.graph.batch import GraphBatch, cut_graphs
from gnndelete.graph.edge_sets import beside, types_of
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.features import cut_labels, replaced_features
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.labels import unlabelled
from gnndelete.graph.validation import count_nodes, of_edges

if TYPE_CHECKING:
    from gnndelete.graph.deletion import Deletion


def cut(deletion: Deletion, data: Data, table: EdgeTable) -> Data:
    """`Deletion.remaining` for a deletion that was checked on this very graph."""
    keep = kept_edges(deletion, data, table)
    if isinstance(data, HeteroGraph):
        return _cut_types(deletion, data, table, keep)
    result = _with_edges(data, keep)
    _cut_labels(result, deletion, data, table)
    _cut_beside(result, deletion, data, table)
    if deletion.features.size(1):
        result.x = replaced_features(data.x, deletion.features, deletion.fill)
    if deletion.labels.numel():
        cut_labels(result, deletion.labels, data)
    if deletion.nodes.numel():
        _cut_nodes(result, deletion.nodes, data)
    if isinstance(data, GraphBatch) and deletion.graphs.numel():
        cut_graphs(result, deletion.graphs, data)
    return result


def among(data: Data, nodes: Tensor) -> Data:
    """The graph with the edges between these nodes only; nodes and their ids stay."""
    inside = torch.zeros(count_nodes(data), dtype=torch.bool, device=data.edge_index.device)
    inside[nodes.to(inside.device)] = True
    keep = inside[data.edge_index].all(dim=0)
    return data.with_edges(keep) if isinstance(data, HeteroGraph) else _with_edges(data, keep)


def _with_edges(data: Data, keep: Tensor) -> Data:
    """The graph with the edges of a mask only."""
    left = keep.nonzero().flatten()
    result = data.__copy__()
    result.num_nodes = count_nodes(data)
    apart = {name for pairs, others in beside(data).items() for name in (pairs, *others)}
    for name in data.to_dict():
        if not name.startswith("edge_label") and name not in apart and data.is_edge_attr(name):
            result[name] = of_edges(data, name, left)
    return result


def _cut_types(deletion: Deletion, data: HeteroGraph, table: EdgeTable, keep: Tensor) -> HeteroGraph:
    """The same, type by type."""
    result = copy.copy(data.with_edges(keep).hetero)
    for store, own, rows in data.parts(deletion.features[0]):
        entries = deletion.features[:, own] - torch.tensor([[rows.start], [0]])
        result[store._key].x = replaced_features(store.x, entries, deletion.fill[own])
    for store, own, rows in data.parts(deletion.labels):
        cut_labels(result[store._key], deletion.labels[own] - rows.start, store)
    for store, own, rows in data.parts(deletion.nodes):
        _cut_nodes(result[store._key], deletion.nodes[own] - rows.start, store)
    gone = table.both_ways(deletion.edges) if deletion.edges.size(1) else None
    for number, kind in enumerate(data.types.edges):
        source, target = data.types.ends(kind)
        pairs = data.hetero[kind].get("edge_label_index")
        if pairs is None:
            continue
        shift = torch.tensor([[source.start], [target.start]], device=pairs.device)
        cut_off = None if gone is None else gone[:, gone[1] == number][[0, 2]].to(pairs.device)
        stays = _kept_pairs(pairs + shift, cut_off, deletion.nodes, table.num_nodes)
        for name in ("edge_label_index", "edge_label"):
            if isinstance(data.hetero[kind].get(name), Tensor):
                result[kind][name] = data.hetero[kind][name][..., stays]
    return HeteroGraph.of(result, data.types)


def kept_edges(deletion: Deletion, data: Data, table: EdgeTable) -> Tensor:
    """Which edges stay, as a mask."""
    device = data.edge_index.device
    if deletion.edges.size(1):
        keep = table.without(table.both_ways(deletion.edges.to(device)))
    else:
        keep = torch.ones(table.num_edges, dtype=torch.bool, device=device)
    if deletion.nodes.numel():
        dead = torch.zeros(table.num_nodes, dtype=torch.bool, device=device)
        dead.index_fill_(0, deletion.nodes.to(device), True)
        keep &= ~(dead[data.edge_index[0]] | dead[data.edge_index[1]])
    return keep


def refuse_everything(deletion: Deletion, data: Data, table: EdgeTable) -> None:
    """One sentence where a deletion leaves no node, or no edge of a graph that had some."""
    if deletion.nodes.numel() and deletion.nodes.numel() == count_nodes(data):
        raise DeletionError(
            f"the deletion names all {count_nodes(data)} nodes; a model of nothing cannot be kept: retire it"
        )
    suspicious = deletion.nodes.numel() or deletion.edges.size(1) >= table.distinct // 2
    if suspicious and data.edge_index.size(1) and not bool(kept_edges(deletion, data, table).any()):
        raise DeletionError(
            f"the deletion leaves none of the {data.edge_index.size(1)} edges; train a new model without the graph instead"
        )


def _cut_labels(result: Data, deletion: Deletion, data: Data, table: EdgeTable) -> None:
    pairs = data.get("edge_label_index")
    if pairs is None:
        return
    if table.typed:
        raise NotYetError("typed graphs with 'edge_label_index' are not supported by this version; drop that attribute")
    gone = table.both_ways(deletion.edges).to(pairs.device) if deletion.edges.size(1) else None
    keep = _kept_pairs(pairs, gone, deletion.nodes, table.num_nodes)
    for name in ("edge_label_index", "edge_label"):
        if isinstance(data.get(name), Tensor):
            result[name] = data[name][..., keep]


def _cut_beside(result: Data, deletion: Deletion, data: Data, table: EdgeTable) -> None:
    """Take deleted edges, of their type where a set has types, and those of deleted nodes from further sets of edges too."""
    gone = table.both_ways(deletion.edges) if deletion.edges.size(1) else None
    for name, others in beside(data).items():
        pairs = data[name]
        keep = _kept_pairs(pairs, None, deletion.nodes, table.num_nodes)
        if gone is not None:
            kinds = data[types_of(name)] if table.typed and types_of(name) in others else None
            keep &= ~_named(pairs, kinds, gone.to(pairs.device), table)
        result[name] = pairs[:, keep]
        for other in others:
            result[other] = data[other][keep]


def _named(pairs: Tensor, kinds: Tensor | None, gone: Tensor, table: EdgeTable) -> Tensor:
    """Which pairs, of these types, are among the edges ``gone``; without types, those of any."""
    if kinds is None or gone.size(0) == 2:
        return EdgeTable(ends_of(gone), table.num_nodes).contains(pairs)
    most = max(table.num_relations, int(kinds.max()) + 1)
    mine, theirs = (
        (head * table.num_nodes + tail) * most + kind for head, kind, tail in ((pairs[0], kinds, pairs[1]), gone)
    )
    return torch.isin(mine, theirs)


def _kept_pairs(pairs: Tensor, gone: Tensor | None, nodes: Tensor, num_nodes: int) -> Tensor:
    """Which pairs of nodes stay, as a mask: those that a link model is supervised by, say."""
    keep = torch.ones(pairs.size(1), dtype=torch.bool, device=pairs.device)
    if gone is not None:
        keep &= ~EdgeTable(gone, num_nodes).contains(pairs)
    if nodes.numel():
        keep &= ~torch.isin(pairs, nodes.to(pairs.device)).any(dim=0)
    return keep


def _cut_nodes(result: Data, nodes: Tensor, data: Data) -> None:
    count = count_nodes(data)
    for name, value in result.to_dict().items():
        if not isinstance(value, Tensor) or not value.dim() or value.size(0) != count or "edge" in name:
            continue
        if isinstance(data, GraphBatch) and not data.is_node_attr(name):
            continue
        place = nodes.to(value.device)
        if name == "y":  # no mask may exist, and then the label itself must say that it is gone
            result[name] = unlabelled(value, place)
        elif value.dtype == torch.bool:
            result[name] = value.index_fill(0, place, False)
        elif name == "x" or value.is_floating_point():  # features, positions, encodings: whatever describes the node
            result[name] = value.index_fill(0, place, 0) if value.layout == torch.strided else _zero_rows(value, place)


def _zero_rows(value: Tensor, rows: Tensor) -> Tensor:
    entries = value.to_sparse_coo().coalesce()
    keep = ~torch.isin(entries.indices()[0], rows)
    kept = torch.sparse_coo_tensor(
        entries.indices()[:, keep], entries.values()[keep], value.shape, is_coalesced=True, check_invariants=False
    )
    return kept if value.is_sparse else kept.to_sparse(layout=value.layout)
