"""Digests that tell one graph, or one set of tensors, from another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import MASKS
from gnndelete.graph.validation import edge_table


def tensor_digest(named: dict[str, Tensor]) -> str:
    """A SHA-256 digest over names, shapes, types and contents; the same on every device.

    >>> tensor_digest({"a": torch.zeros(2)}) == tensor_digest({"a": torch.zeros(2)})
    True
    """
    digest = hashlib.sha256()
    for name in sorted(named):
        value = named[name].detach()
        value = value.cpu().contiguous()
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    return digest.hexdigest()


def fingerprint(data: Data) -> str:
    """A digest of a graph's nodes, features and edges; the order of the edges does not matter."""
    if isinstance(data, DiskGraph):
        return data.digest  # of all files
    table = edge_table(data)
    named = {"edges": table.keys, "nodes": torch.tensor(table.num_nodes)}
    if table.typed:  # the same key means another triple where there are more relations, or reverse ones
        named["relations"] = torch.tensor([table.num_relations, data.get("reverse_offset") or 0])
    if isinstance(data, HeteroGraph):  # only the names count
        named |= {f"type {name!r} {rows}": torch.empty(0) for name, rows in data.types.nodes.items()}
        named |= {f"type {kind!r} {number}": torch.empty(0) for number, kind in enumerate(data.types.edges)}
        for name, x in data.features().items():
            named |= _tensors(f"x of {name!r}", x)
    elif isinstance(data.get("x"), Tensor):
        named |= _tensors("x", data.x)
    if isinstance(data, GraphBatch):
        named["ptr"] = data.ptr
    return tensor_digest(named)


def _tensors(name: str, x: Tensor) -> dict[str, Tensor]:
    if x.layout == torch.strided:
        return {name: x}
    entries = x.to_sparse_coo().coalesce()
    return {f"{name}.indices": entries.indices(), f"{name}.values": entries.values()}


#: Attributes that `fingerprint` covers, or that only say how a link model is trained.
_COVERED = ("x", "edge_index", "edge_type", "edge_label", "edge_label_index", "ptr", "batch")
#: Attributes that only a task reads.
_LABELS = ("y", *MASKS)


def attributes(data: Data, labels: bool = False) -> dict[str, str]:
    """Digests of what else describes edges and nodes, such as weights and positions; with ``labels``, labels and masks too.

    They are not part of `fingerprint`, because a served graph may lack attributes that its model does not read.

    >>> data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.tensor([0.5, 1.0]), num_nodes=3)
    >>> turned = Data(edge_index=data.edge_index.flip(1), edge_weight=data.edge_weight.flip(0), num_nodes=3)
    >>> attributes(data) == attributes(turned), list(attributes(data))
    (True, ['edge_weight'])
    """
    if isinstance(data, DiskGraph):
        return {}  # they are part of `fingerprint`
    if isinstance(data, HeteroGraph):
        stores = [(f" of {name!r}", data.hetero[name]) for name in (*data.types.nodes, *data.types.edges)]
    else:
        stores = [("", data)]
    found = {}
    for whose, store in stores:
        for name, value in store.items():
            if name in _COVERED or not isinstance(value, Tensor) or not value.dim() or (name in _LABELS and not labels):
                continue
            if store.is_edge_attr(name) and value.layout == torch.strided:
                if value.size(0) == store.edge_index.size(1):  # not pairs of nodes, as an index has them
                    found[name + whose] = tensor_digest({name: value[_edge_order(store.edge_index, value)]})
            elif name in _LABELS or (value.is_floating_point() and store.is_node_attr(name)):
                found[name + whose] = tensor_digest(_tensors(name, value))
    return found


def _edge_order(edges: Tensor, value: Tensor) -> Tensor:
    """A canonical order of edges: by source and target, parallel edges by the value of their attribute."""
    source, target = edges.detach().cpu().numpy()
    order = np.lexsort((target, source))
    same = (source[order][1:] == source[order][:-1]) & (target[order][1:] == target[order][:-1])
    if same.any():
        parallel = np.append(same, False) | np.insert(same, 0, False)
        chosen = order[parallel]
        values = value.detach().cpu()[torch.from_numpy(chosen)].reshape(len(chosen), -1).double().numpy().T
        order[parallel] = chosen[np.lexsort((*values[::-1], target[chosen], source[chosen]))]
    return torch.from_numpy(order).to(value.device)


def changed(saved: Mapping[str, str], current: Mapping[str, str]) -> str:
    """The names of attributes whose digests differ from the saved ones, as text; attributes that were not saved are left out.

    >>> changed({"edge_weight": "ab"}, {"edge_weight": "cd", "pos": "ef"})
    "'edge_weight'"
    """
    return ", ".join(repr(name) for name, digest in current.items() if saved.get(name, digest) != digest)
