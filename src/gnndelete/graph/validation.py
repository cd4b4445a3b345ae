"""Checks before any work: is the graph usable, and does a deletion fit it?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from gnndelete.errors import DeletionError, GraphError, some
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.hetero import ONE_GRAPH, HeteroGraph
from gnndelete.graph.kinds import KINDS, E, Elements, merge_cells
from gnndelete.graph.parsing import Names, is_among
from gnndelete.graph.remaining import further_edge_sets, remaining_edges
from gnndelete.notes import Note


def check_graph(data: Any) -> None:
    """Refuse data that is no usable graph.

    Args:
        data: A torch_geometric ``Data`` or one of its subclasses here; a ``HeteroData`` must be a `HeteroGraph` by now.

    Raises:
        GraphError: If ``edge_index``, ``edge_type`` or the features are missing or malformed.
    """
    if isinstance(data, HeteroData):
        raise GraphError(
            "data is a HeteroData, which is not accepted here; name nodes and edges by type: Deletion(nodes={…})"
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


def ways(undirected: bool) -> str:
    """Words for a count of edges: PyG counts those of an undirected graph twice.

    >>> ways(True)
    'undirected, counted both ways'
    """
    return "undirected, counted both ways" if undirected else "directed"


def nearly_undirected(table: EdgeTable, deleted: Tensor | None = None, nodes: Tensor | None = None) -> tuple[Note, ...]:
    """A note where few edges without a reverse make a graph directed, with the deleted edges whose reverse stays."""
    count = table.one_way
    if not count:
        return ()
    lack = "edge has" if count == 1 else "edges have"
    text = f"The graph counts as directed, because {count:,} {lack} no reverse while nearly all others have one"
    if deleted is not None and nodes is not None:
        back = deleted.flip(0)
        stays = table.contains(back.to(table.keys.device)).cpu() & ~EdgeTable(deleted, table.num_nodes).contains(back)
        stays &= (deleted[0] != deleted[1]) & ~torch.isin(deleted, nodes).any(dim=0)
        left = int(stays.sum())
        text += f": the reverse of {left:,} deleted edge{'s' * (left != 1)} is still there" if left else ""
    advice = "If its edges have no direction, make it undirected first (torch_geometric.utils.to_undirected)."
    return (Note("nearly-undirected", f"{text}. {advice}"),)


def further_edges_cut(data: Data) -> tuple[Note, ...]:
    """A note on further sets of edges that deleted edges are cut from: their names alone do not prove what they are."""
    names = [f"'{name}'" for name in further_edge_sets(data)]
    if not names:
        return ()
    text = (
        f"Deleted edges and nodes were also cut from {' and '.join(names)}, which were taken for further edges among the nodes. "
        "If they hold something else, choose a name without 'edge_index'."
    )
    return (Note("further-edges-cut", text),)


def _check_matrices(data: Data, nodes: int) -> None:
    """Refuse an adjacency matrix besides ``edge_index``: a model that reads it would still find deleted edges."""
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
                f"'{name}' holds the edges of 'edge_index' a second time, and nothing could be deleted from it; remove it "
                f"(del data.{name}), and let the model make it from edge_index in its forward"
            )


def _holds_edges(matrix: Tensor, edges: Tensor) -> bool:
    """Whether a dense matrix is nonzero, off its diagonal, only for edges; distances and kernels are for all pairs."""
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
    """Refuse features, weights and edge attributes with NaN or infinite values."""
    if isinstance(data, HeteroGraph):
        for store in data.hetero.stores:
            if store._key is not None:  # attributes of the whole graph are not checked
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
    """The number of nodes."""
    count = data.num_nodes
    if count is None:
        raise GraphError("the number of nodes is unknown: data has neither 'x' nor 'num_nodes'; set data.num_nodes")
    return int(count)


def count_relations(data: Data) -> int:
    """The number of relations of a typed graph; ``data.num_relations`` may count relations that have no edge left.

    >>> count_relations(Data(edge_index=torch.tensor([[0], [1]]), edge_type=torch.tensor([2])))
    3
    """
    kind = data.get("edge_type")
    present = int(kind.max()) + 1 if isinstance(kind, Tensor) and kind.numel() else 0
    return max(present, int(data.get("num_relations") or 0))


def edge_table(data: Data) -> EdgeTable:
    """The sorted edge index of a checked graph."""
    kind = data.get("edge_type")
    if kind is None:
        return EdgeTable(data.edge_index, count_nodes(data))
    offset = data.get("reverse_offset")  # relation r + offset holds the reverse edges of relation r
    mirror = [] if offset is None else [*range(offset, 2 * offset), *range(offset)]
    if isinstance(data, HeteroGraph):
        mirror = list(data.types.mirror)
    return EdgeTable(data.edge_index, count_nodes(data), kind, count_relations(data), mirror)


def check_deletion(deletion: E, data: Data, table: EdgeTable, unseen: Mapping[str, Tensor] | None = None) -> E:
    """A deletion in the graph's terms: what it names exists, and is named as the graph names it.

    Args:
        deletion: What a user asks for.
        data: The graph; a ``HeteroData`` as a `HeteroGraph`.
        table: The sorted edges of ``data``.
        unseen: Edges that a model was not trained on, by what they are for (``"validation"``, ``"testing"``). A request
            that names one gets an error that says so.

    Raises:
        DeletionError: If the deletion names nothing, or something that the graph does not have.
    """
    request = across_types(deletion, data)
    if not any(kind.count(request) for kind in KINDS.values()):
        kinds = ", ".join(f"{name}=" for name in KINDS)
        raise DeletionError(f"the deletion names nothing; give at least one of {kinds}")
    checked = request
    try:
        for kind in KINDS.values():
            changes = kind.check(checked, data, table)
            checked = checked.replace(**changes) if changes else checked
    except DeletionError:
        _refuse_unseen(request, table, unseen or {})
        raise
    if checked.nodes.numel():  # features and labels of deleted nodes are deleted with them
        features, labels = (~torch.isin(ids, checked.nodes) for ids in (checked.features[0], checked.labels))
        checked = checked.replace(
            features=checked.features[:, features], fill=checked.fill[features], labels=checked.labels[labels]
        )
    _refuse_everything(checked, data, table)
    return checked


def across_types(deletion: E, data: Data) -> E:
    """A request by type in ids across all types of a HeteroData; on any other graph the request as it is."""
    if not isinstance(data, HeteroGraph):
        if deletion.by_type:
            types = [name[0] if len(name) == 1 else name for name in deletion.by_type]
            raise DeletionError(
                f"the request names types ({some(map(repr, types))}), and the graph is no HeteroData; give plain ids"
            )
        return deletion
    if not deletion.by_type:
        if not deletion.across_types:
            _refuse_plain_ids(deletion, data)
        return deletion
    try:
        parts = [_shifted(name, part, data) for name, part in deletion.by_type.items()]
    except GraphError as error:
        raise DeletionError(error.why, error.remedy) from None
    result = deletion.replace(by_type={}, across_types=True, names=data.names)
    for part in parts:
        for kind in KINDS.values():
            result = result.replace(**kind.join(result, part))
    return result


def _shifted(name: Any, part: Elements, data: HeteroGraph) -> Elements:
    """What one type loses, in ids across all types."""
    if isinstance(name, tuple):
        number = data.types.number(name)
        edges = data.place_edges(name, part.edges, "edges=") if part.edges.size(1) else part.edges
        return Elements(edges=edges, relations=torch.full_like(part.relations, number))
    nodes, labels, owners = (
        data.place_nodes(name, ids, f"{kind}=")
        for kind, ids in (("nodes", part.nodes), ("labels", part.labels), ("features", part.features[0]))
    )
    return Elements(nodes=nodes, labels=labels, **merge_cells(torch.stack([owners, part.features[1]]), part.fill))


def _refuse_plain_ids(deletion: Elements, data: HeteroGraph) -> None:
    kind = next((name for name, kind in KINDS.items() if kind.count(deletion)), None)
    if kind is None:
        return
    if kind == "graphs":
        raise DeletionError(ONE_GRAPH)
    known = data.types.edges if kind in ("edges", "relations") else data.types.nodes
    form = "[edge types]" if kind == "relations" else "{type: …}"
    raise DeletionError(
        f"{kind}= is given in plain ids, and every type of a HeteroData counts its own; give {kind}={form} with types among "
        f"{some(map(repr, known), 12)}"
    )


def unseen_edges(
    edges: Tensor, table: EdgeTable, unseen: Mapping[str, Tensor], learned: Tensor | None = None
) -> dict[str, Tensor]:
    """Which edges of a request are unseen, as a mask for each purpose of unseen edges.

    An edge that is in the graph or among the ``learned`` ones, too, as parallel edges can be, does not count.
    """
    if edges.size(0) != (3 if table.typed else 2) or bool((ends_of(edges) >= table.num_nodes).any()):
        return {}
    known = table.contains(edges.to(table.keys.device)).cpu()
    if learned is not None:
        known |= is_among(edges, _both_ways(learned, table))
    masks = {purpose: is_among(edges, _both_ways(others, table)) & ~known for purpose, others in unseen.items()}
    return {purpose: mask for purpose, mask in masks.items() if bool(mask.any())}


def _both_ways(edges: Tensor, table: EdgeTable) -> Tensor:
    return (torch.cat([edges, edges.flip(0)], dim=1) if table.undirected else edges).cpu()


def _refuse_unseen(deletion: Elements, table: EdgeTable, unseen: Mapping[str, Tensor]) -> None:
    """Refuse edges that a link model validates or is tested with: it has not learned them."""
    names = name_unseen(deletion.edges, unseen_edges(deletion.edges, table, unseen), table, deletion.names)
    if names:
        raise DeletionError(
            f"{len(names)} of the edges to delete {'was' if len(names) == 1 else 'were'} held out from training: {some(names)}",
            "the model was not trained on them, so there is nothing to forget: leave them out here and remove them from your "
            "own data",
        )


def name_unseen(edges: Tensor, found: Mapping[str, Tensor], table: EdgeTable, names: Names) -> list[str]:
    """Unseen edges as messages show them, each once."""
    result: dict[str, None] = {}
    for purpose, mask in found.items():
        chosen = edges[:, mask].sort(dim=0).values if table.undirected else edges[:, mask]
        result |= dict.fromkeys(f"{edge} (for {purpose})" for edge in names.edges(chosen))
    return list(result)


def _refuse_everything(deletion: Elements, data: Data, table: EdgeTable) -> None:
    """Refuse a deletion that leaves no node, or no edge of a graph that had some."""
    if deletion.nodes.numel() and deletion.nodes.numel() == table.num_nodes:
        raise DeletionError(
            f"the deletion names all {table.num_nodes} nodes; no model is left to serve: retire it instead"
        )
    many = deletion.nodes.numel() or deletion.edges.size(1) >= table.distinct // 2
    if many and table.num_edges and not bool(remaining_edges(deletion, data, table).any()):
        raise DeletionError(
            f"the deletion leaves none of the {table.num_edges} edges; train a new model without the graph instead"
        )
