"""Whether what a deletion names is in the graph, and the names that errors give it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, some
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.features import ALL, covered
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.parsing import among, common, distinct
from gnndelete.graph.validation import count_nodes, edge_table

if TYPE_CHECKING:
    from gnndelete.datasets.ids import IdMap
    from gnndelete.graph.deletion import Deletion


def check_edges(edges: Tensor, data: Data, table: EdgeTable, ids: IdMap | None = None) -> Tensor:
    """Edges in the graph's own terms, once each; or one sentence about those that are not there."""
    if not edges.size(1):
        return edges
    if table.typed != (edges.size(0) == 3):
        width = 3 if table.typed else 2
        # what the shape of a tensor cannot tell: two triples one below the other look like three pairs
        other = f", or transpose the tensor if its rows are {'triples' if table.typed else 'pairs'}"
        raise DeletionError(
            (
                "edges are given as pairs, but the graph has 'edge_type': give triples (head, relation, tail)"
                if table.typed
                else "edges are given as triples, but the graph has no 'edge_type': give pairs (source, target)"
            )
            + (other if edges.size(1) == width else "")
        )
    nodes = count_nodes(data)
    where = edges.to(table.keys.device)
    if not table.mirrored and int(edges.max()) < nodes and bool(_as_named(where, table).all()):
        return edges  # so it is with most requests, and one look at the device tells it
    outside = (where[0] >= nodes) | (where[-1] >= nodes)
    if bool(outside.any()):
        outside = outside.cpu()
        raise DeletionError(
            f"edges name nodes that are not in the graph: {some(tuples(edges[:, outside], ids))}; "
            f"ids go from 0 to {nodes - 1}"
        )
    if table.typed and bool((edges[1] >= table.num_relations).any()):
        worst = edges[:, edges[1] >= table.num_relations]
        raise DeletionError(
            f"edges name relations that are not in the graph: {some(tuples(worst, ids))}; "
            f"types go from 0 to {table.num_relations - 1}"
        )
    if table.undirected and bool((where[0] > where[1]).any()):
        where = distinct(torch.stack([where.min(dim=0).values, where.max(dim=0).values]))
        edges = where.cpu()
    elif table.mirrored:
        where = distinct(table.forward(where))
        edges = where.cpu()
    exists = table.contains(where)
    labels = label_table(data)
    if labels is not None:
        exists |= labels.contains(where)
        if table.undirected:
            exists |= labels.contains(where.flip(0))
    if not bool(exists.all()):
        missing = edges[:, ~exists.cpu()]
        hint = "check the ids, or whether they were deleted before"
        if not table.undirected and bool(table.contains(where[:, ~exists].flip(0)).any()):
            hint = "the graph is directed and holds the reverse of some: give (source, target)"
        raise DeletionError(
            f"{missing.size(1)} of the edges to delete do{'es' * (missing.size(1) == 1)} not exist: "
            f"{some(tuples(missing, ids))}; {hint}"
        )
    return edges


def _as_named(edges: Tensor, table: EdgeTable) -> Tensor:
    """Which edges are in the graph, named as it names them: on an undirected one the smaller id first."""
    named = table.contains(edges)
    return named & (edges[0] <= edges[1]) if table.undirected else named


def triples_of(relations: Tensor, data: Data, table: EdgeTable) -> Tensor:
    """Every triple of the relations to delete, in its own direction."""
    named = relations
    if not named.numel():
        return torch.empty(2, 0, dtype=torch.long)
    if not table.typed:
        raise DeletionError("relations= is given, but the graph has no 'edge_type'; name edges= or nodes= instead")
    named = table.forward_types(named)
    kind = data.edge_type
    there = torch.isin(named, kind.cpu())
    if not bool(there.all()):
        raise DeletionError(
            f"relations= names types of which the graph has no edge: {some(relations[~there].tolist())}; types go "
            f"from 0 to {table.num_relations - 1}"
        )
    gone = torch.isin(kind, named.to(kind.device))
    return distinct(table.forward(torch.stack([data.edge_index[0, gone], kind[gone], data.edge_index[1, gone]]).cpu()))


def label_table(data: Data) -> EdgeTable | None:
    """The edges a link model is supervised by, where they are not those that carry messages."""
    edges = label_edges(data)
    if edges is None or (edges.size(0) == 2 and "edge_type" in data):
        return None
    if isinstance(data, HeteroGraph):
        return EdgeTable(edges[[0, 2]], count_nodes(data), edges[1], len(data.types.edges))
    return EdgeTable(edges, count_nodes(data))


def label_edges(data: Data) -> Tensor | None:
    """The true edges among ``edge_label_index``, with their types on a HeteroData; None where the graph names none."""
    if not isinstance(data, HeteroGraph):
        pairs, label = data.get("edge_label_index"), data.get("edge_label")
        return pairs if pairs is None or label is None else pairs[:, label > 0]
    parts = []
    for kind in data.types.edges:
        pairs, label = data.hetero[kind].get("edge_label_index"), data.hetero[kind].get("edge_label")
        if pairs is not None:
            parts.append(data.place_edges(kind, pairs if label is None else pairs[:, label > 0], "edge_label_index"))
    return torch.cat(parts, dim=1) if parts else None


def in_range(name: str, ids: Tensor, data: Data) -> Tensor:
    """The ids of nodes, or one sentence about those that the graph does not have."""
    if name in ("nodes", "features", "labels") and ids.numel():
        nodes = count_nodes(data)
        outside = ids[ids >= nodes].tolist()
        if outside:
            raise DeletionError(
                f"{name}= names nodes that are not in the graph: {some(outside)}; ids go from 0 to {nodes - 1}"
            )
    return ids


def tuples(edges: Tensor, ids: IdMap | None = None) -> list[object]:
    """Edges as a message names them, in the user's own ids where there are some."""
    columns = edges.t().tolist()
    if ids is None or int(ends_of(edges).max() if edges.numel() else 0) >= len(ids):
        return [tuple(column) for column in columns]
    relations = getattr(ids, "relations", None)
    return [
        (ids.names[head], *(relations[m] if relations and m < len(relations) else m for m in middle), ids.names[tail])
        for head, *middle, tail in columns
    ]


def edges_among(chosen: Tensor, data: Data) -> Tensor:
    """All edges between two of the nodes, or one sentence where there are none."""
    inside = torch.zeros(count_nodes(data), dtype=torch.bool, device=data.edge_index.device)
    inside[chosen.to(inside.device)] = True
    among = inside[data.edge_index].all(dim=0)
    if not bool(among.any()):
        raise DeletionError(f"no edge joins two of the {chosen.numel()} nodes; give others, or nodes= to delete them")
    edges = data.edge_index[:, among]
    if "edge_type" in data:
        edges = torch.stack([edges[0], data.edge_type[among], edges[1]])
    elif edge_table(data).undirected:
        edges = edges.sort(dim=0).values
    return edges


def already_deleted(request: Deletion, earlier: Deletion, ids: IdMap | None, inside: Tensor | None) -> list[object]:
    """What of a request an earlier one has deleted, as messages name it."""
    named = request.edges  # a whole relation, or the rest of it: what of it went before is no mistake
    if request.relations.numel() and named.size(0) == 3:
        named = named[:, ~torch.isin(named[1], request.relations)]
    again = [*_relations_again(request, earlier, ids), *tuples(common(named, earlier.edges), ids)]
    own = request.nodes if inside is None else request.nodes[~torch.isin(request.nodes, inside)]
    twice = own[torch.isin(own, earlier.nodes)].tolist()
    again += [f"node {node if ids is None else repr(ids.names[node])}" for node in twice]
    again += [f"graph {graph}" for graph in request.graphs[torch.isin(request.graphs, earlier.graphs)].tolist()]
    if named.size(1) and earlier.nodes.numel():
        gone = torch.isin(ends_of(named), earlier.nodes).any(dim=0)
        again += tuples(named[:, gone], ids)
    entries = request.features[:, covered(request.features, earlier.features)]
    dead = request.feature_nodes[torch.isin(request.feature_nodes, earlier.nodes)]
    labels = request.labels[torch.isin(request.labels, torch.cat([earlier.labels, earlier.nodes]))]
    named_again = [
        ("features" if column == ALL else f"column {column} of the features", node)
        for node, column in entries.t().tolist()
    ]
    named_again += [("features", node) for node in dead.tolist()] + [("label", node) for node in labels.tolist()]
    again += [f"{what} of node {node if ids is None else repr(ids.names[node])}" for what, node in named_again]
    return list(dict.fromkeys(again))


def not_deleted(request: Deletion, earlier: Deletion) -> Deletion:
    """What is left of a checked request without what an earlier one has deleted: `already_deleted` finds nothing in it."""
    edges, nodes, relations = request.edges, request.nodes, request.relations
    gone = torch.isin(ends_of(edges), earlier.nodes).any(dim=0)
    if edges.size(1) and earlier.edges.size(1):
        gone |= among(edges, earlier.edges)
    if relations.numel() and edges.size(0) == 3:
        relations = relations[torch.isin(relations, edges[1, ~gone])]
        gone &= ~torch.isin(edges[1], relations)  # a relation some of whose triples are left is named as a whole
    again = covered(request.features, earlier.features) | torch.isin(request.features[0], earlier.nodes)
    left = {
        "edges": edges[:, ~gone],
        "nodes": nodes[~torch.isin(nodes, earlier.nodes)],
        "labels": request.labels[~torch.isin(request.labels, torch.cat([earlier.labels, earlier.nodes]))],
        "relations": relations,
        "graphs": request.graphs[~torch.isin(request.graphs, earlier.graphs)],
    }
    result = copy.copy(request)
    for name, value in left.items():
        object.__setattr__(result, name, value)
    inside = request._inside
    result._joining(None if inside is None else inside[torch.isin(inside, left["nodes"])])
    return result._filled(request.features[:, ~again], request.fill[~again])


def _relations_again(request: Deletion, earlier: Deletion, ids: IdMap | None) -> list[object]:
    """Relations of which nothing is left to delete: named before, or all their triples went with edges and nodes."""
    if not request.relations.numel() or request.edges.size(0) != 3:
        return []
    gone = torch.zeros(request.edges.size(1), dtype=torch.bool)
    gone |= torch.isin(ends_of(request.edges), earlier.nodes).any(dim=0)
    if earlier.edges.size(1):
        gone |= among(request.edges, earlier.edges)
    left = torch.isin(request.relations, request.edges[1, ~gone])
    names = getattr(ids, "relations", None)
    return [f"relation {r if names is None else repr(names[r])}" for r in request.relations[~left].tolist()]
