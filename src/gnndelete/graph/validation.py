"""What gnndelete asks of a graph: the checks before any work, and a fingerprint that tells one graph from another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from gnndelete.errors import GraphError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.hetero import HeteroGraph


def check_graph(data: Any) -> None:
    """Raise one sentence that names the fault if ``data`` is not a graph that can be worked on."""
    if isinstance(data, HeteroData):
        raise GraphError(
            "data is a HeteroData, which this takes no part of; name nodes and edges by type: Deletion(nodes={…})"
        )
    if not isinstance(data, Data):
        raise GraphError(f"data is a '{type(data).__name__}'; pass the torch_geometric Data the model was trained on")
    edge_index = data.edge_index
    if edge_index is None:
        held = "'adj_t'" if "adj_t" in data else f"the attributes: {', '.join(data.keys()) or 'none'}"
        raise GraphError(f"data has no 'edge_index' (it holds {held}); set data.edge_index to a [2, E] tensor")
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.long:
        raise GraphError(
            f"'edge_index' has shape {list(edge_index.shape)} and dtype {edge_index.dtype}; it must be [2, E] of torch.long"
        )
    nodes = count_nodes(data)
    if edge_index.numel() and (int(edge_index.max()) >= nodes or int(edge_index.min()) < 0):
        worst = int(edge_index.max()) if int(edge_index.max()) >= nodes else int(edge_index.min())
        raise GraphError(
            f"'edge_index' names node {worst}, but the graph has nodes 0 to {nodes - 1}; fix the edge list"
        )
    _check_types(data)
    _check_matrices(data, nodes)
    check_finite(data)


def of_edges(data: Data, name: str, places: Tensor) -> Any:
    """What an attribute of edges holds for some of them: entries of a tensor along its own dimension, or of a list."""
    value = data[name]
    if isinstance(value, Tensor):
        return value.index_select(data.__cat_dim__(name, value), places)
    return [value[place] for place in places.tolist()]


def ways(undirected: bool) -> str:
    """Words beside a number of edges: PyG counts those of an undirected graph twice.

    >>> ways(True)
    'undirected, counted both ways'
    """
    return "undirected, counted both ways" if undirected else "directed"


def nearly_undirected(table: EdgeTable, deleted: Tensor | None = None, nodes: Tensor | None = None) -> tuple[str, ...]:
    """A sentence where few edges make a graph directed that may not be meant so; with those deleted whose reverse stays."""
    count = table.one_way
    if not count:
        return ()
    lack = "edge has" if count == 1 else "edges have"
    said = f"The graph counts as directed, since {count:,} {lack} no reverse while nearly all others have one"
    if deleted is not None and nodes is not None:
        back = deleted.flip(0)
        stays = table.contains(back.to(table.keys.device)).cpu() & ~EdgeTable(deleted, table.num_nodes).contains(back)
        stays &= (deleted[0] != deleted[1]) & ~torch.isin(deleted, nodes).any(dim=0)
        left = int(stays.sum())
        said += f": of {left:,} deleted edge{'s' * (left != 1)} the reverse is still there" if left else ""
    return (f"{said}. If its edges have no direction, make it undirected first (torch_geometric.utils.to_undirected).",)


def _check_matrices(data: Data, nodes: int) -> None:
    """Refuse the edges a second time: a model that reads the matrix would go on seeing what was cut from the list."""
    for name, value in data.to_dict().items():
        sparse = isinstance(value, Tensor) and value.layout != torch.strided
        if not (isinstance(value, Tensor) or type(value).__name__ == "SparseTensor") or name == "x":
            continue
        if list(_sizes(value)) != [nodes, nodes]:
            continue
        dense = isinstance(value, Tensor) and not sparse
        if dense and "edge" in name:
            continue  # two edges of two nodes are a square, too
        if not dense or _holds_edges(value, data.edge_index):
            raise GraphError(
                f"'{name}' holds the edges a second time, beside 'edge_index', and nothing could be deleted from it; remove it "
                "(del data." + name + "), and let the model make it from edge_index in its forward"
            )


def _holds_edges(matrix: Tensor, edges: Tensor) -> bool:
    """Whether a dense matrix has entries other than zero for edges alone, beside its diagonal, and not for every pair of nodes.

    Distances and kernels have them for all.
    """
    off = (matrix != 0).fill_diagonal_(False)
    total, nodes = int(off.sum()), off.size(0)
    off[edges[0], edges[1]] = False
    off[edges[1], edges[0]] = False
    return 0 < total < nodes * (nodes - 1) and not bool(off.any())


def _sizes(value: Any) -> Iterable[int]:
    return value.shape if isinstance(value, Tensor) else value.sizes()


def _check_types(data: Data) -> None:
    kind = data.get("edge_type")
    if kind is None:
        return
    if not isinstance(kind, Tensor) or kind.dtype != torch.long or kind.shape != data.edge_index.shape[1:]:
        got = f"{list(kind.shape)} of {kind.dtype}" if isinstance(kind, Tensor) else f"a '{type(kind).__name__}'"
        raise GraphError(
            f"'edge_type' must hold one torch.long per edge ({data.edge_index.size(1)}) and is {got}; give the relation of "
            "each edge as a number from 0"
        )
    if kind.numel() and int(kind.min()) < 0:
        raise GraphError(f"'edge_type' holds the relation {int(kind.min())}; relations are numbers from 0")


def check_finite(data: Any) -> None:
    """Refuse features, weights and edge attributes that are no numbers."""
    if isinstance(data, HeteroGraph):
        for store in data.hetero.stores:
            if store._key is not None:  # what describes the whole graph is the user's own affair
                _check_store(store, f" of {store._key!r}")
        return
    _check_store(data)


def _check_store(data: Any, of: str = "") -> None:
    for name in ("x", "edge_weight", "edge_attr"):
        value = data.get(name)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        dense = (
            value if value.layout == torch.strided else value.coalesce().values() if value.is_sparse else value.values()
        )
        if not bool(torch.isfinite(dense.sum())) and not bool(torch.isfinite(dense).all()):
            bad = ""
            if value.layout == torch.strided:
                row = int((~torch.isfinite(dense.reshape(dense.size(0), -1)).all(dim=1)).nonzero()[0])
                bad = f" (first in row {row})"
            raise GraphError(f"'{name}'{of} holds NaN or infinite values{bad}; clean them first")


def count_nodes(data: Data) -> int:
    """Number of nodes; the graph must say it, or its edges do."""
    count = data.num_nodes
    if count is None:
        raise GraphError("the number of nodes is unknown: data has neither 'x' nor 'num_nodes'; set data.num_nodes")
    return int(count)


def count_relations(data: Data) -> int:
    """Number of relations of a typed graph; ``data.num_relations`` also counts those of which no edge is left.

    >>> count_relations(Data(edge_index=torch.tensor([[0], [1]]), edge_type=torch.tensor([2])))
    3
    """
    kind, told = data.get("edge_type"), data.get("num_relations")
    present = int(kind.max()) + 1 if isinstance(kind, Tensor) and kind.numel() else 0
    return max(present, int(told) if told is not None else 0)


def edge_table(data: Data) -> EdgeTable:
    """The sorted edge index of a checked graph."""
    kind = data.get("edge_type")
    if kind is None:
        return EdgeTable(data.edge_index, count_nodes(data))
    reverse, mirror = data.get("reverse_offset"), data.types.mirror if isinstance(data, HeteroGraph) else None
    return EdgeTable(data.edge_index, count_nodes(data), kind, count_relations(data), reverse, mirror)


def tensor_digest(named: dict[str, Tensor]) -> str:
    """A stable SHA-256 over names, shapes, types and contents, whatever the device.

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
    """A stable name of a graph's nodes, features and edges; the order of the edges does not matter."""
    table = edge_table(data)
    named = {"edges": table.keys, "nodes": torch.tensor(table.num_nodes)}
    if table.typed:  # the same number means another triple where there are more relations, or where some run back
        named["relations"] = torch.tensor([table.num_relations, table.reverse or 0])
    if isinstance(data, HeteroGraph):  # a name is a tensor of no bytes: only that it is there counts
        named |= {f"type {name!r} {rows}": torch.empty(0) for name, rows in data.types.nodes.items()}
        named |= {f"type {kind!r} {number}": torch.empty(0) for number, kind in enumerate(data.types.edges)}
        for name, x in data.features().items():
            named |= _described(f"x of {name!r}", x)
    elif isinstance(data.get("x"), Tensor):
        named |= _described("x", data.x)
    if isinstance(data, GraphBatch):
        named["ptr"] = data.ptr
    return tensor_digest(named)


def _described(name: str, x: Tensor) -> dict[str, Tensor]:
    if x.layout == torch.strided:
        return {name: x}
    entries = x.to_sparse_coo().coalesce()
    return {f"{name}.indices": entries.indices(), f"{name}.values": entries.values()}


#: Attributes that `fingerprint` looks at, or that say how a model is trained; and those that only a task reads.
_APART = ("x", "edge_index", "edge_type", "edge_label", "edge_label_index", "ptr", "batch")
_LABELS = ("y", "train_mask", "val_mask", "test_mask")


def attributes(data: Data, labels: bool = False) -> dict[str, str]:
    """A stable name of whatever else describes edges and nodes: weights, positions, with ``labels`` those and the masks.

    They stand apart from `fingerprint`, since a graph that is served may go without what its model does not read.

    >>> data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.tensor([0.5, 1.0]), num_nodes=3)
    >>> turned = Data(edge_index=data.edge_index.flip(1), edge_weight=data.edge_weight.flip(0), num_nodes=3)
    >>> attributes(data) == attributes(turned), list(attributes(data))
    (True, ['edge_weight'])
    """
    if isinstance(data, HeteroGraph):
        stores = [(f" of {name!r}", data.hetero[name]) for name in (*data.types.nodes, *data.types.edges)]
    else:
        stores = [("", data)]
    found = {}
    for whose, store in stores:
        for name, value in store.items():
            if name in _APART or not isinstance(value, Tensor) or not value.dim() or (name in _LABELS and not labels):
                continue
            if store.is_edge_attr(name) and value.layout == torch.strided:
                if value.size(0) == store.edge_index.size(1):  # not pairs of nodes, as an index has them
                    found[name + whose] = tensor_digest({name: value[_in_order(store.edge_index, value)]})
            elif name in _LABELS or (value.is_floating_point() and store.is_node_attr(name)):
                found[name + whose] = tensor_digest(_described(name, value))
    return found


def _in_order(edges: Tensor, value: Tensor) -> Tensor:
    """The order of an edge attribute by its edges, and of parallel ones by what they hold."""
    source, target = edges.detach().cpu().numpy()
    order = np.lexsort((target, source))
    same = (source[order][1:] == source[order][:-1]) & (target[order][1:] == target[order][:-1])
    if same.any():
        parallel = np.append(same, False) | np.insert(same, 0, False)
        places = order[parallel]
        held = value.detach().cpu()[torch.from_numpy(places)].reshape(len(places), -1).double().numpy().T
        order[parallel] = places[np.lexsort((*held[::-1], target[places], source[places]))]
    return torch.from_numpy(order).to(value.device)


def changed(saved: Mapping[str, str] | None, own: Mapping[str, str]) -> str:
    """Which attributes of a graph are others than those written down, as words; files of before wrote none down."""
    return ", ".join(repr(name) for name, digest in own.items() if (saved or {}).get(name, digest) != digest)
