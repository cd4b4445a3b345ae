"""Checks before any work: is the graph usable, and does a deletion fit it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, GraphError, some
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.hetero import ONE_GRAPH, HeteroGraph
from gnndelete.graph.kinds import KINDS, E, Elements, leaves_edges, merge_cells
from gnndelete.graph.parsing import Names, is_among
from gnndelete.notes import Note


def check_graph(data: Any) -> None:
    """Refuse data that is no usable graph: ``edge_index``, ``edge_type`` or features are missing or malformed.

    An adjacency matrix besides ``edge_index`` is refused, too: a model that reads it would still find deleted edges.
    """
    if isinstance(data, DiskGraph):
        return  # checked while it was built
    if not isinstance(data, Data):
        raise GraphError(f"data is a '{type(data).__name__}'; pass the torch_geometric Data the model was trained on")
    edge_index, kind = data.edge_index, data.get("edge_type")
    if edge_index is None:
        held = "'adj_t'" if "adj_t" in data else f"the attributes: {', '.join(data.keys()) or 'none'}"
        raise GraphError(f"data has no 'edge_index' (it holds {held}); set data.edge_index to a [2, E] tensor")
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.long:
        raise GraphError(
            f"'edge_index' has shape {list(edge_index.shape)} and dtype {edge_index.dtype}; it must be [2, E] of torch.long"
        )
    nodes = count_nodes(data)
    low, high = torch.stack(edge_index.aminmax()).tolist() if edge_index.numel() else (0, -1)
    if low < 0 or high >= nodes:
        raise GraphError(
            f"'edge_index' names node {low if low < 0 else high}, but the graph has nodes 0 to {nodes - 1}; fix the edge list"
        )
    if kind is not None:
        if not isinstance(kind, Tensor) or kind.dtype != torch.long or kind.shape != edge_index.shape[1:]:
            got = f"{list(kind.shape)} of {kind.dtype}" if isinstance(kind, Tensor) else f"a '{type(kind).__name__}'"
            raise GraphError(
                f"'edge_type' must hold one torch.long per edge ({edge_index.size(1)}) and is {got}; give the relation of "
                "each edge as a number from 0"
            )
        if kind.numel() and int(kind.min()) < 0:
            raise GraphError(f"'edge_type' holds the relation {int(kind.min())}; relations are numbers from 0")
    for name, value in data.to_dict().items():
        dense = isinstance(value, Tensor) and value.layout == torch.strided
        if name == "x" or not (isinstance(value, Tensor) or type(value).__name__ == "SparseTensor"):
            continue
        if value.dim() != 2 or value.size(0) != nodes or value.size(1) != nodes or (dense and "edge" in name):
            continue  # two edges of two nodes are a square, too
        if not dense or _holds_edges(value, edge_index):
            raise GraphError(
                f"'{name}' holds the edges of 'edge_index' a second time, and nothing could be deleted from it; remove it "
                f"(del data.{name}), and let the model make it from edge_index in its forward"
            )
    check_finite(data)


def _holds_edges(matrix: Tensor, edges: Tensor) -> bool:
    """Whether a dense matrix is nonzero, off its diagonal, only for edges; distances and kernels are for all pairs."""
    off = (matrix != 0).fill_diagonal_(False)
    total, nodes = int(off.sum()), off.size(0)
    off[edges[0], edges[1]] = False
    off[edges[1], edges[0]] = False
    return 0 < total < nodes * (nodes - 1) and not bool(off.any())


def check_finite(data: Any) -> None:
    """Refuse features, weights and edge attributes with NaN or infinite values."""
    stores = [("", data)]
    if isinstance(data, HeteroGraph):  # attributes of the whole graph are not checked
        stores = [(f" of {store._key!r}", store) for store in data.hetero.stores if store._key is not None]
    for whose, store in stores:
        for name in ("x", "edge_weight", "edge_attr"):
            value = store.get(name)
            if not isinstance(value, Tensor) or not value.is_floating_point():
                continue
            sparse = value.layout != torch.strided
            numbers = (value.coalesce() if value.is_sparse else value).values() if sparse else value
            if bool(torch.isfinite(numbers.sum())) or bool(torch.isfinite(numbers).all()):
                continue
            finite = torch.isfinite(numbers.reshape(numbers.size(0), -1)).all(dim=1)
            where = "" if sparse else f" (first in row {int((~finite).nonzero()[0])})"
            raise GraphError(f"'{name}'{whose} holds NaN or infinite values{where}; clean them first")


def ways(undirected: bool) -> str:
    """Words for a count of edges: PyG counts those of an undirected graph twice.

    >>> ways(True)
    'undirected, counted both ways'
    """
    return "undirected, counted both ways" if undirected else "directed"


def nearly_undirected(table: EdgeTable, deleted: Tensor | None = None, nodes: Tensor | None = None) -> tuple[Note, ...]:
    """A note where few edges without a reverse make a graph directed, with the deleted edges whose reverse stays."""
    count = 0 if table.undirected else table.one_way
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


def further_edges_cut(names: Iterable[str]) -> Note:
    """A note on further sets of edges that deleted edges are cut from: their names alone do not prove what they are."""
    text = (
        f"Deleted edges and nodes were also cut from {' and '.join(map(repr, names))}, which were taken for further edges "
        "among the nodes. If they hold something else, choose a name without 'edge_index'."
    )
    return Note("further-edges-cut", text)


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
    if isinstance(data, DiskGraph):
        return data.table
    kind = data.get("edge_type")
    if kind is None:
        return EdgeTable(data.edge_index, count_nodes(data))
    offset = data.get("reverse_offset")  # relation r + offset holds the reverse edges of relation r
    mirror = [] if offset is None else [*range(offset, 2 * offset), *range(offset)]
    if isinstance(data, HeteroGraph):
        mirror = list(data.types.mirror)
    return EdgeTable(data.edge_index, count_nodes(data), kind, count_relations(data), mirror)


def check_deletion(deletion: E, data: Data, table: EdgeTable, unseen: Callable[[], Mapping[str, Tensor]] = dict) -> E:
    """A deletion in the graph's terms: what it names exists, and is named as the graph names it.

    ``unseen`` gives edges that a model was not trained on, by what they are for (``"validation"``, ``"testing"``). A request
    that names one gets an error that says so.
    """
    if not isinstance(deletion, Elements):
        raise DeletionError(
            f"delete takes a Deletion (got '{type(deletion).__name__}')", "write gnndelete.Deletion(edges=…)"
        )
    request = across_types(deletion, data) if deletion.by_type or isinstance(data, HeteroGraph) else deletion
    if not request.kinds:
        kinds = ", ".join(f"{name}=" for name in KINDS)
        raise DeletionError(f"the deletion names nothing; give at least one of {kinds}")
    checked = request
    try:
        for name, kind in KINDS.items():
            if getattr(checked, name).size(-1):
                checked = checked.replace(**kind.check(checked, data, table))
    except DeletionError:  # a link model has not learned the edges it is validated or tested with
        names = name_unseen(request.edges, unseen_edges(request.edges, table, unseen()), table, request.names)
        if not names:
            raise
        raise DeletionError(
            f"{len(names)} of the edges to delete {'was' if len(names) == 1 else 'were'} held out from training: {some(names)}",
            "the model was not trained on them, so there is nothing to forget: leave them out here and remove them from your "
            "own data",
        ) from None
    if checked.nodes.numel():  # features and labels of deleted nodes are deleted with them
        features, labels = (~torch.isin(ids, checked.nodes) for ids in (checked.features[0], checked.labels))
        checked = checked.replace(
            features=checked.features[:, features],
            fill=checked.fill[features],
            **KINDS["labels"].select(checked, labels),
        )
    if checked.nodes.numel() and checked.nodes.numel() == table.num_nodes:
        raise DeletionError(
            f"the deletion names all {table.num_nodes} nodes; no model is left to serve: retire it instead"
        )
    if checked.nodes.numel():
        is_left = not table.num_edges or leaves_edges(checked, data, table)
    else:
        edges = table.both_ways(checked.edges.to(table.keys.device))
        is_left = not edges.size(1) or table.positions(edges).numel() < table.num_edges
    if not is_left:
        raise DeletionError(
            f"the deletion leaves none of the {table.num_edges} edges; train a new model without the graph instead"
        )
    return checked


def across_types(deletion: E, data: Data) -> E:
    """A request by type in ids across all types of a HeteroData; on any other graph it is refused, and plain ids here."""
    if not isinstance(data, HeteroGraph):
        types = [name[0] if len(name) == 1 else name for name in deletion.by_type]
        raise DeletionError(
            f"the request names types ({some(map(repr, types))}), and the graph is no HeteroData; give plain ids"
        )
    if not deletion.by_type and not deletion.across_types and deletion.kinds:
        kind = deletion.kinds[0].name
        if kind == "graphs":
            raise DeletionError(ONE_GRAPH)
        known = data.types.edges if kind in ("edges", "relations") else data.types.nodes
        form = "[edge types]" if kind == "relations" else "{type: …}"
        raise DeletionError(
            f"{kind}= is given in plain ids, and every type of a HeteroData counts its own; give {kind}={form} with types "
            f"among {some(map(repr, known), 12)}"
        )
    if not deletion.by_type:
        return deletion
    names = data.names if deletion.names.nodes is None else Names(deletion.names.nodes, data.names.relations)
    result = deletion.replace(by_type={}, across_types=True, names=names)
    for name, part in deletion.by_type.items():
        try:
            shifted = _shifted(name, part, data)
        except GraphError as error:
            raise DeletionError(error.why, error.remedy) from None
        for each in shifted.kinds:
            result = result.replace(**each.join(result, shifted))
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
    corrected = data.place_nodes(name, part.new_labels[0], "labels=")
    new_labels = torch.stack([corrected, part.new_labels[1]])
    return Elements(
        nodes=nodes,
        labels=labels,
        new_labels=new_labels,
        **merge_cells(torch.stack([owners, part.features[1]]), part.fill),
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
        known |= is_among(edges, table.both_ways(learned).cpu())
    masks = {purpose: is_among(edges, table.both_ways(others).cpu()) & ~known for purpose, others in unseen.items()}
    return {purpose: mask for purpose, mask in masks.items() if bool(mask.any())}


def name_unseen(edges: Tensor, found: Mapping[str, Tensor], table: EdgeTable, names: Names) -> list[str]:
    """Unseen edges as messages show them, each once."""
    result: dict[str, None] = {}
    for purpose, mask in found.items():
        chosen = edges[:, mask].sort(dim=0).values if table.undirected else edges[:, mask]
        result |= dict.fromkeys(f"{edge} (for {purpose})" for edge in names.edges(chosen))
    return list(result)
