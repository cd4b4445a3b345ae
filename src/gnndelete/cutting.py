"""The graph that remains: edges, features, labels and masks without what a checked deletion names. Ids never shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.adjacency import EdgeTable
from gnndelete.attributes import cut_labels, replaced_features
from gnndelete.batch import GraphBatch, cut_graphs
from gnndelete.errors import NotYetError
from gnndelete.graph import count_nodes

if TYPE_CHECKING:
    from gnndelete.deletion import Deletion


def cut(deletion: Deletion, data: Data, table: EdgeTable) -> Data:
    """`Deletion.remaining` for a deletion that was checked on this very graph."""
    keep = kept_edges(deletion, data, table)
    result = data.__copy__()
    result.num_nodes = count_nodes(data)
    for name, value in data.to_dict().items():
        if name.startswith("edge_label") or not data.is_edge_attr(name):
            continue
        if isinstance(value, Tensor):
            dim = data.__cat_dim__(name, value)
            result[name] = value.index_select(dim, keep.nonzero().flatten())
        else:
            result[name] = [item for item, kept in zip(value, keep.tolist(), strict=True) if kept]
    _cut_labels(result, deletion, data, table)
    if deletion.features.size(1):
        result.x = replaced_features(data.x, deletion.features, deletion.fill)
    if deletion.labels.numel():
        cut_labels(result, deletion.labels, data)
    if deletion.nodes.numel():
        _cut_nodes(result, deletion.nodes, data)
    if isinstance(data, GraphBatch) and deletion.graphs.numel():
        cut_graphs(result, deletion.graphs, data)
    return result


def kept_edges(deletion: Deletion, data: Data, table: EdgeTable) -> Tensor:
    """Which edges stay, as a mask."""
    keep = torch.ones(data.edge_index.size(1), dtype=torch.bool, device=data.edge_index.device)
    if deletion.edges.size(1):
        keep[table.positions(table.both_ways(deletion.edges).to(keep.device))] = False
    if deletion.nodes.numel():
        dead = torch.zeros(table.num_nodes, dtype=torch.bool, device=keep.device)
        dead[deletion.nodes.to(keep.device)] = True
        keep &= ~(dead[data.edge_index[0]] | dead[data.edge_index[1]])
    return keep


def _cut_labels(result: Data, deletion: Deletion, data: Data, table: EdgeTable) -> None:
    pairs = data.get("edge_label_index")
    if pairs is None:
        return
    if table.typed:
        raise NotYetError("typed graphs with 'edge_label_index' are not supported by this version; drop that attribute")
    keep = torch.ones(pairs.size(1), dtype=torch.bool, device=pairs.device)
    if deletion.edges.size(1):
        keep &= ~EdgeTable(table.both_ways(deletion.edges).to(pairs.device), table.num_nodes).contains(pairs)
    if deletion.nodes.numel():
        keep &= ~torch.isin(pairs, deletion.nodes.to(pairs.device)).any(dim=0)
    for name in ("edge_label_index", "edge_label"):
        if isinstance(data.get(name), Tensor):
            result[name] = data[name][..., keep]


def _cut_nodes(result: Data, nodes: Tensor, data: Data) -> None:
    count = count_nodes(data)
    for name, value in result.to_dict().items():
        if not isinstance(value, Tensor) or not value.dim() or value.size(0) != count or "edge" in name:
            continue
        if isinstance(data, GraphBatch) and not data.is_node_attr(name):
            continue
        place = nodes.to(value.device)
        if value.dtype == torch.bool:
            result[name] = value.index_fill(0, place, False)
        elif name == "y":  # no mask may exist, and then the label itself must say that it is gone
            result[name] = value.index_fill(0, place, float("nan") if value.is_floating_point() else -1)
        elif name == "x" or value.is_floating_point():  # features, positions, encodings: whatever describes the node
            result[name] = value.index_fill(0, place, 0) if value.layout == torch.strided else _zero_rows(value, place)


def _zero_rows(value: Tensor, rows: Tensor) -> Tensor:
    entries = value.to_sparse_coo().coalesce()
    keep = ~torch.isin(entries.indices()[0], rows)
    kept = torch.sparse_coo_tensor(
        entries.indices()[:, keep], entries.values()[keep], value.shape, is_coalesced=True, check_invariants=False
    )
    return kept if value.is_sparse else kept.to_sparse(layout=value.layout)
