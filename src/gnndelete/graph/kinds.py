"""The kinds of elements a deletion can name, one class each: how they are parsed, checked, joined, cut, counted and worded.

To add a kind, add a field to `Elements`, write a subclass of `Kind` and list it in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, some
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.hetero import HeteroGraph, TypeName, label_edges, node_stores
from gnndelete.graph.parsing import (
    ALL_COLUMNS,
    Names,
    as_cells,
    as_edges,
    as_ids,
    distinct,
    is_among,
    join_edges,
    join_ids,
)

#: Masks that say which nodes or graphs a model is trained, chosen and measured on.
MASKS = ("train_mask", "val_mask", "test_mask")

Changes = dict[str, Any]  # fields of `Elements` and their new values
E = TypeVar("E", bound="Elements")


def _ids() -> Tensor:
    return torch.empty(0, dtype=torch.long)


def _pairs() -> Tensor:
    return torch.empty(2, 0, dtype=torch.long)


@dataclass(frozen=True, eq=False)
class Elements:
    """Sorted, distinct elements of every kind, on the CPU, and what is known about them."""

    edges: Tensor = field(default_factory=_pairs)  # [2, k] pairs, or [3, k] triples (head, relation, tail)
    nodes: Tensor = field(default_factory=_ids)
    features: Tensor = field(default_factory=_pairs)  # [2, k] cells (node, column); `ALL_COLUMNS` for the whole row
    labels: Tensor = field(default_factory=_ids)
    relations: Tensor = field(default_factory=_ids)
    graphs: Tensor = field(default_factory=_ids)
    fill: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))  # one value per feature cell
    inside_graphs: Tensor = field(default_factory=_ids)  # nodes that are not named, but belong to a deleted graph
    names: Names = Names()  # noqa: RUF009 (frozen)
    by_type: Mapping[TypeName, Elements] = field(default_factory=dict)  # on a HeteroData: what each type loses
    across_types: bool = False  # whether ids count across all types of a HeteroData

    def replace(self: E, **changes: Any) -> E:
        """A copy with other values of some fields, which are taken as they are: sorted and distinct."""
        result = object.__new__(type(self))
        Elements.__init__(result, **{each.name: getattr(self, each.name) for each in fields(Elements)} | changes)
        return result


class Kind:
    """One kind of element that is named by one id; subclasses say what is different about theirs."""

    name: str

    def parse(self, value: Any, fill: Any = 0.0) -> Changes:
        """What a user wrote, as sorted tensors."""
        return {self.name: as_ids(value, self.name)}

    def join(self, a: Elements, b: Elements) -> Changes:
        """The elements of both, each once."""
        return {self.name: join_ids(getattr(a, self.name), getattr(b, self.name))}

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """What changes when the elements are put in the graph's terms; elements that the graph does not have are refused."""
        _require_nodes(self.name, getattr(deletion, self.name), table)
        return {}

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        """Take the elements out of ``result``, a shallow copy of ``data`` that has lost the edges already."""

    def deleted(self, request: Elements, earlier: Elements) -> Tensor:
        """Which elements of a checked request an earlier one has deleted, as a mask."""
        return torch.isin(getattr(request, self.name), getattr(earlier, self.name))

    def select(self, deletion: Elements, mask: Tensor) -> Changes:
        """The elements of a mask."""
        return {self.name: getattr(deletion, self.name)[..., mask]}

    def count(self, deletion: Elements) -> int:
        """How many elements were named."""
        return int(getattr(deletion, self.name).size(-1))

    def words(self, count: int) -> str:
        """A count of elements in words."""
        return f"{count:,} {self.name if count > 1 else self.name.removesuffix('s')}"

    def describe(self, deletion: Elements) -> list[object]:
        """Every element as messages show it."""
        return [f"{self.name.removesuffix('s')} {each}" for each in getattr(deletion, self.name).tolist()]


class Edges(Kind):
    name = "edges"

    def parse(self, value: Any, fill: Any = 0.0) -> Changes:
        return {"edges": as_edges(value)}

    def join(self, a: Elements, b: Elements) -> Changes:
        return {"edges": join_edges(a.edges, b.edges)}

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """On an undirected graph an edge is named once, smaller id first; a reverse triple by its forward one."""
        edges = deletion.edges
        if not edges.size(1):
            return {}
        self._check_width(edges, table)
        on_device = edges.to(table.keys.device)
        if not table.mirrored and int(edges.max()) < table.num_nodes:
            found = table.contains(on_device)
            if bool((found & (on_device[0] <= on_device[1]) if table.undirected else found).all()):
                return {}  # the usual request, for which the device is waited for once
        self._check_range(deletion, on_device, table)
        if table.undirected:
            on_device = distinct(torch.stack([on_device.min(dim=0).values, on_device.max(dim=0).values]))
        elif table.mirrored:
            on_device = distinct(table.forward(on_device))
        self._check_existence(on_device, deletion.names, data, table)
        return {"edges": on_device.cpu()}

    def _check_width(self, edges: Tensor, table: EdgeTable) -> None:
        width = 3 if table.typed else 2
        if edges.size(0) == width:
            return
        text = (
            "edges are given as pairs, but the graph has 'edge_type': give triples (head, relation, tail)"
            if table.typed
            else "edges are given as triples, but the graph has no 'edge_type': give pairs (source, target)"
        )
        if edges.size(1) == width:  # a transposed tensor of two triples looks like three pairs
            text += f", or transpose the tensor if its rows are {'triples' if table.typed else 'pairs'}"
        raise DeletionError(text)

    def _check_range(self, deletion: Elements, on_device: Tensor, table: EdgeTable) -> None:
        edges, names = deletion.edges, deletion.names
        outside = (ends_of(on_device) >= table.num_nodes).any(dim=0).cpu()
        if bool(outside.any()):
            raise DeletionError(
                f"edges name nodes that are not in the graph: {some(names.edges(edges[:, outside]))}; "
                f"ids go from 0 to {table.num_nodes - 1}"
            )
        unknown = edges[1] >= table.num_relations if table.typed else outside
        if bool(unknown.any()):
            raise DeletionError(
                f"edges name relations that are not in the graph: {some(names.edges(edges[:, unknown]))}; "
                f"types go from 0 to {table.num_relations - 1}"
            )

    def _check_existence(self, edges: Tensor, names: Names, data: Data, table: EdgeTable) -> None:
        exists = table.contains(edges)
        labels = _label_table(data, table)
        if labels is not None:  # edges that only supervise a link model can be deleted, too
            exists |= labels.contains(edges)
            if table.undirected:
                exists |= labels.contains(edges.flip(0))
        if bool(exists.all()):
            return
        missing = edges[:, ~exists]
        hint = "check the ids, or whether they were deleted before: only edges that the model was trained on can be deleted"
        if not table.undirected and bool(table.contains(missing.flip(0)).any()):
            hint = "the graph is directed and holds the reverse of some: give (source, target)"
        raise DeletionError(
            f"{missing.size(1)} of the edges to delete do{'es' * (missing.size(1) == 1)} not exist: "
            f"{some(names.edges(missing.cpu()))}; {hint}"
        )

    def deleted(self, request: Elements, earlier: Elements) -> Tensor:
        """Triples of a relation count as deleted once all of them are: a relation may be named after some of its triples."""
        edges = request.edges
        gone = torch.isin(ends_of(edges), earlier.nodes).any(dim=0) | is_among(edges, earlier.edges)
        if request.relations.numel() and edges.size(0) == 3:
            left = request.relations[torch.isin(request.relations, edges[1, ~gone])]
            gone &= ~torch.isin(edges[1], left)
        return gone

    def describe(self, deletion: Elements) -> list[object]:
        """The edges, without those that are part of a named relation."""
        edges = deletion.edges
        if deletion.relations.numel() and edges.size(0) == 3:
            edges = edges[:, ~torch.isin(edges[1], deletion.relations)]
        return deletion.names.edges(edges)


class Nodes(Kind):
    name = "nodes"

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        """Zero what describes a deleted node, take it out of every mask and remove its label."""
        for key, store, mask, start in node_stores(data, deletion.nodes):
            rest = result if key is None else result[key]
            rows, count = deletion.nodes[mask] - start, store.num_nodes
            for name, value in rest.to_dict().items():
                if not isinstance(value, Tensor) or not value.dim() or value.size(0) != count or "edge" in name:
                    continue
                if not isinstance(data, GraphBatch) or data.is_node_attr(name):
                    rest[name] = _erased(name, value, rows.to(value.device))

    def select(self, deletion: Elements, mask: Tensor) -> Changes:
        nodes, inside = deletion.nodes[mask], deletion.inside_graphs
        return {"nodes": nodes, "inside_graphs": inside[torch.isin(inside, nodes)]}

    def join(self, a: Elements, b: Elements) -> Changes:
        return {
            "nodes": join_ids(a.nodes, b.nodes),
            "inside_graphs": join_ids(a.inside_graphs, b.inside_graphs),
        }

    def count(self, deletion: Elements) -> int:
        """How many nodes were named, without those that belong to a deleted graph."""
        return int(deletion.nodes.numel() - deletion.inside_graphs.numel())

    def describe(self, deletion: Elements) -> list[object]:
        named = deletion.nodes[~torch.isin(deletion.nodes, deletion.inside_graphs)]
        return [f"node {deletion.names.node(node)}" for node in named.tolist()]


class Features(Kind):
    name = "features"

    def parse(self, value: Any, fill: Any = 0.0) -> Changes:
        """Cells and the value that replaces each of them.

        A whole row with one value per column is listed column by column, with NaN for the row itself: `check` compares
        the number of values with the width of ``x``.
        """
        if value is None:
            if not (isinstance(fill, float) and fill == 0) and bool(_fill_values(fill).any()):
                raise DeletionError("fill= replaces features, and features= names none; name some, or leave fill= out")
            return {}
        cells, values = as_cells(value), _fill_values(fill)
        if not values.dim():
            return merge_cells(cells, values.expand(cells.size(1)))
        whole = cells[1] == ALL_COLUMNS
        nodes, single, width = cells[0, whole], cells[:, ~whole], values.numel()
        if single.size(1) and int(single[1].max()) >= width:
            raise DeletionError(
                f"fill= has {width} values, one per column, and features= names column {int(single[1].max())}; "
                "give as many values as 'x' has columns, or one number"
            )
        columns = torch.cat([torch.arange(width).repeat(nodes.numel()), single[1]])
        listed = torch.stack([torch.cat([nodes.repeat_interleave(width), single[0]]), columns])
        rows = torch.full((nodes.numel(),), float("nan"), dtype=torch.float64)
        return merge_cells(torch.cat([cells[:, whole], listed], dim=1), torch.cat([rows, values[columns]]))

    def join(self, a: Elements, b: Elements) -> Changes:
        if not a.features.size(1) or not b.features.size(1):
            source = a if a.features.size(1) else b
            return {"features": source.features, "fill": source.fill}
        return merge_cells(torch.cat([a.features, b.features], dim=1), torch.cat([a.fill, b.fill]))

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """A row whose columns are all replaced by one value becomes a whole row."""
        cells, values = deletion.features, deletion.fill
        if not cells.size(1):
            return {}
        _require_nodes("features", cells[0], table)
        checked = []
        for key, store, mask, _ in node_stores(data, cells[0]):
            width = self._check_store(key, store, cells[:, mask], values[mask], deletion.names)
            checked.append(_whole_rows(cells[:, mask], values[mask], width))
        return merge_cells(torch.cat([part for part, _ in checked], dim=1), torch.cat([value for _, value in checked]))

    def _check_store(self, key: str | None, store: Any, cells: Tensor, values: Tensor, names: Names) -> int:
        """The number of columns of ``x``."""
        x, count = store.get("x"), int(store.num_nodes or 0)
        if not isinstance(x, Tensor) or not x.dim() or x.size(0) != count:
            problem = "no 'x'" if x is None else f"an 'x' that is no tensor with {count} rows"
            raise DeletionError(
                f"features= is given and {'the graph' if key is None else repr(key)} has {problem}; name the nodes themselves "
                "(nodes=), or their edges"
            )
        width = x.size(1) if x.dim() > 1 else 1
        outside = cells[:, cells[1] >= width]
        if outside.size(1):
            wrong = [(n if names.nodes is None else names.nodes[n], column) for n, column in outside.t().tolist()]
            whose = "" if key is None else f" of {key!r}"
            raise DeletionError(
                f"features= names columns that 'x'{whose} does not have: {some(wrong)}; they go from 0 to {width - 1}"
            )
        marked = cells[0, values.isnan()]
        listed = torch.bincount(cells[0, cells[1] != ALL_COLUMNS], minlength=int(cells[0].max()) + 1)[marked]
        if bool((listed != width).any()):
            raise DeletionError(
                f"fill= has {int(listed.min())} values, one per column, and 'x' has {width} columns; give {width}, or one"
            )
        numbers = values[~values.isnan()]
        if not x.is_floating_point() and bool((numbers != numbers.round()).any()):
            raise DeletionError(
                f"fill= holds fractions and 'x' is {x.dtype}; give whole numbers, or make 'x' a float tensor"
            )
        return width

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        for key, _, mask, start in node_stores(data, deletion.features[0]):
            rest = result if key is None else result[key]
            cells = deletion.features[:, mask] - torch.tensor([[start], [0]])
            rest.x = replace_cells(rest.x, cells, deletion.fill[mask])

    def deleted(self, request: Elements, earlier: Elements) -> Tensor:
        cells, before = request.features, earlier.features
        whole_rows = before[0, before[1] == ALL_COLUMNS]
        gone = torch.isin(cells[0], torch.cat([whole_rows, earlier.nodes]))
        return gone | is_among(cells + 1, before + 1)  # `ALL_COLUMNS` is negative

    def select(self, deletion: Elements, mask: Tensor) -> Changes:
        return {"features": deletion.features[:, mask], "fill": deletion.fill[mask]}

    def count(self, deletion: Elements) -> int:
        """How many nodes lose features."""
        return int(torch.unique(deletion.features[0]).numel()) if deletion.features.size(1) else 0

    def words(self, count: int) -> str:
        return f"features of {count:,} node{'s' * (count > 1)}"

    def describe(self, deletion: Elements) -> list[object]:
        return [
            f"{'' if column == ALL_COLUMNS else f'column {column} of the '}features of node {deletion.names.node(node)}"
            for node, column in deletion.features.t().tolist()
        ]


class Labels(Kind):
    name = "labels"

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        _require_nodes("labels", deletion.labels, table)
        for key, store, mask, start in node_stores(data, deletion.labels):
            self._check_store(key, store, deletion.labels[mask] - start, Names() if key else deletion.names)
        return {}

    def _check_store(self, key: str | None, store: Any, nodes: Tensor, names: Names) -> None:
        y, count = store.get("y"), int(store.num_nodes or 0)
        if (
            isinstance(store, GraphBatch)
            and isinstance(y, Tensor)
            and y.dim()
            and y.size(0) == store.num_graphs != count
        ):
            raise DeletionError(
                "labels= names nodes, and 'y' holds one label per graph; name the graph in graphs= to forget it with its label"
            )
        if not isinstance(y, Tensor) or not y.dim() or y.size(0) != count:
            problem = "no 'y'" if y is None else f"a 'y' that is no tensor with {count} rows"
            raise DeletionError(
                f"labels= is given and {'the graph' if key is None else repr(key)} has {problem}; "
                "there is no label of a node to forget"
            )
        rows = y[nodes.to(y.device)].reshape(nodes.numel(), -1)
        empty = (rows.isnan() if rows.is_floating_point() else rows < 0).all(dim=1).cpu()
        if bool(empty.any()):
            unlabelled = [names.node(node) for node in nodes[empty].tolist()]
            whose = "nodes" if key is None else f"{key!r} nodes"
            raise DeletionError(
                f"labels are to be forgotten of {whose} without a label: {some(unlabelled)}; leave them out"
            )

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        """Remove labels, and their nodes from the training, validation and test masks."""
        for key, _, chosen, start in node_stores(data, deletion.labels):
            rest = result if key is None else result[key]
            rows, count = deletion.labels[chosen] - start, rest.y.size(0)
            rest.y = without_labels(rest.y, rows)
            for name in MASKS:
                mask = rest.get(name)
                if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() and mask.size(0) == count:
                    rest[name] = mask.index_fill(0, rows.to(mask.device), False)

    def deleted(self, request: Elements, earlier: Elements) -> Tensor:
        return torch.isin(request.labels, torch.cat([earlier.labels, earlier.nodes]))

    def describe(self, deletion: Elements) -> list[object]:
        return [f"label of node {deletion.names.node(node)}" for node in deletion.labels.tolist()]


class Relations(Kind):
    name = "relations"

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """A relation adds all its triples to the edges; a reverse relation is named by its forward one."""
        if not deletion.relations.numel():
            return {}
        if not table.typed:
            raise DeletionError("relations= is given, but the graph has no 'edge_type'; name edges= or nodes= instead")
        named, kind = deletion.relations, data.edge_type
        known = named.clamp(max=table.num_relations - 1)
        relations = table.forward(torch.stack([torch.zeros_like(known), known, torch.zeros_like(known)]))[1]
        present = torch.isin(relations, kind.cpu()) & (named < table.num_relations)
        if not bool(present.all()):
            raise DeletionError(
                f"relations= names types of which the graph has no edge: {some(deletion.relations[~present].tolist())}; "
                f"types go from 0 to {table.num_relations - 1}"
            )
        gone = torch.isin(kind, relations.to(kind.device))
        triples = torch.stack([data.edge_index[0, gone], kind[gone], data.edge_index[1, gone]]).cpu()
        edges = join_edges(deletion.edges, distinct(table.forward(triples)))
        return {"edges": edges, "relations": torch.unique(relations)}

    def deleted(self, request: Elements, earlier: Elements) -> Tensor:
        """A relation is deleted if none of its triples is left."""
        if request.edges.size(0) != 3:
            return torch.zeros_like(request.relations, dtype=torch.bool)
        left = request.edges[1, ~KINDS["edges"].deleted(request, earlier)]
        return ~torch.isin(request.relations, left)

    def describe(self, deletion: Elements) -> list[object]:
        return [f"relation {deletion.names.relation(relation)}" for relation in deletion.relations.tolist()]


class Graphs(Kind):
    name = "graphs"

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """A deleted graph takes all its nodes along, and a graph that loses its last node is deleted."""
        graphs, nodes = deletion.graphs, deletion.nodes
        if not isinstance(data, GraphBatch):
            if graphs.numel():
                raise DeletionError(
                    "graphs= names whole graphs, and the data is one graph; give the Unlearner a list of graphs, or use nodes="
                )
            return {}
        outside = graphs[graphs >= data.num_graphs].tolist()
        if outside:
            raise DeletionError(
                f"graphs= names graphs that are not there: {some(outside)}; ids go from 0 to {data.num_graphs - 1}"
            )
        if nodes.numel():
            lost = torch.bincount(data.batch[nodes.to(data.batch.device)], minlength=data.num_graphs)
            emptied = ((lost == data.sizes) & (lost > 0)).nonzero().flatten().cpu()
            graphs = torch.unique(torch.cat([graphs, emptied]))
        inside = data.nodes_of(graphs).cpu()
        return {"graphs": graphs, "nodes": torch.unique(torch.cat([nodes, inside])), "inside_graphs": inside}

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        """Erase what describes a deleted graph; its nodes are erased already."""
        if not isinstance(data, GraphBatch) or not deletion.graphs.numel():
            return
        gone = set(deletion.graphs.tolist())
        for name, value in result.to_dict().items():
            if not data.is_graph_attr(name):
                continue
            if isinstance(value, Tensor):
                result[name] = _erased(name, value, deletion.graphs.to(value.device))
            else:
                result[name] = [None if graph in gone else entry for graph, entry in enumerate(value)]


#: Every kind by its name, in the order in which they are checked, cut and reported.
KINDS: dict[str, Kind] = {kind.name: kind for kind in (Edges(), Nodes(), Features(), Labels(), Relations(), Graphs())}


def in_words(counts: Mapping[str, int]) -> list[str]:
    """Counts of elements by kind, each in words.

    >>> in_words({"edges": 1, "features": 1200})
    ['1 edge', 'features of 1,200 nodes']
    """
    return [KINDS[name].words(count) for name, count in counts.items()]


def without_labels(y: Tensor, rows: Tensor) -> Tensor:
    """Labels with some of them removed: -1, or NaN for floats; types that can hold neither become integers.

    >>> without_labels(torch.tensor([True, False]), torch.tensor([0])).tolist()
    [-1, 0]
    """
    if not y.is_floating_point() and not y.dtype.is_signed:
        y = y.long()
    return y.index_fill(0, rows.to(y.device), float("nan") if y.is_floating_point() else -1)


def merge_cells(cells: Tensor, values: Tensor) -> Changes:
    """Sorted feature cells without repeats; a column is dropped where its whole row is replaced by the same value."""
    if not cells.size(1):
        return {"features": cells, "fill": values.double()}
    order = np.lexsort((cells[1].numpy(), cells[0].numpy()))
    cells, values = cells[:, order], values[order].double()
    repeated = (cells[:, 1:] == cells[:, :-1]).all(dim=0)
    equal = (values[1:] == values[:-1]) | (values[1:].isnan() & values[:-1].isnan())
    if bool((repeated & ~equal).any()):
        first = int((repeated & ~equal).nonzero()[0])
        node, column = cells[:, first].tolist()
        what = f"node {node}" if column == ALL_COLUMNS else f"column {column} of node {node}"
        raise DeletionError(
            f"the features of {what} are to be replaced by {values[first]:g} and by {values[first + 1]:g}; give one value"
        )
    keep = torch.cat([torch.ones(1, dtype=torch.bool), ~repeated])
    cells, values = cells[:, keep], values[keep]
    rows = (cells[1] == ALL_COLUMNS).nonzero().flatten()
    if rows.numel():  # the whole row of a node comes before its columns
        row = rows[(torch.searchsorted(rows, torch.arange(cells.size(1)), right=True) - 1).clamp(min=0)]
        keep = (cells[1] == ALL_COLUMNS) | (cells[0] != cells[0, row]) | (values != values[row])
        cells, values = cells[:, keep], values[keep]
    return {"features": cells, "fill": values}


def replace_cells(x: Tensor, cells: Tensor, values: Tensor) -> Tensor:
    """A copy of ``x``, dense or sparse, with new values in some cells; a column counts more than its whole row.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> replace_cells(x, torch.tensor([[0, 1], [-1, 0]]), torch.tensor([0.0, 9.0]).double()).tolist()
    [[0.0, 0.0], [9.0, 4.0]]
    """
    cells, values = cells.to(x.device), values.to(x.device, x.dtype)
    whole = cells[1] == ALL_COLUMNS
    if x.layout != torch.strided:
        return _replace_sparse_cells(x, cells, values, whole)
    result = x.clone()
    table = result if x.dim() > 1 else result.unsqueeze(1)
    shape = [-1] + [1] * (table.dim() - 1)
    table[cells[0, whole]] = values[whole].view(shape).expand(-1, *table.shape[1:])
    table[cells[0, ~whole], cells[1, ~whole]] = values[~whole].view(shape[:-1]).expand(-1, *table.shape[2:])
    return result


def _replace_sparse_cells(x: Tensor, cells: Tensor, values: Tensor, whole: Tensor) -> Tensor:
    """No zero is stored, so that stored entries do not show where something was deleted."""
    width, old = x.size(1), x.to_sparse_coo().coalesce()
    single, rows = cells[:, ~whole], cells[0, whole & (values != 0)]
    in_rows = torch.stack([rows.repeat_interleave(width), torch.arange(width, device=x.device).repeat(rows.numel())])
    by_rows = ~is_among(in_rows, single)
    stays = ~torch.isin(old.indices()[0], cells[0, whole]) & ~is_among(old.indices(), single)
    stored = values[~whole] != 0
    indices = torch.cat([old.indices()[:, stays], in_rows[:, by_rows], single[:, stored]], dim=1)
    filled = values[whole & (values != 0)].repeat_interleave(width)[by_rows]
    entries = torch.cat([old.values()[stays], filled, values[~whole][stored]])
    result = torch.sparse_coo_tensor(indices, entries, x.shape, check_invariants=False).coalesce()
    return result if x.is_sparse else result.to_sparse(layout=x.layout)


def _whole_rows(cells: Tensor, values: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The cells with one cell for a row whose columns are all replaced by one value, and without NaN marks."""
    cells, values = cells[:, ~values.isnan()], values[~values.isnan()]
    single = cells[1] != ALL_COLUMNS
    if not bool(single.any()):
        return cells, values
    nodes, position, count = torch.unique(cells[0, single], return_inverse=True, return_counts=True)
    low, high = (
        values.new_zeros(nodes.numel()).scatter_reduce(0, position, values[single], how, include_self=False)
        for how in ("amin", "amax")
    )
    uniform = (count == width) & (low == high)
    replaced = torch.isin(cells[0], nodes[uniform])
    rows = torch.stack([nodes[uniform], torch.full_like(nodes[uniform], ALL_COLUMNS)])
    return torch.cat([cells[:, ~replaced], rows], dim=1), torch.cat([values[~replaced], low[uniform]])


def _fill_values(fill: Any) -> Tensor:
    try:
        values = torch.as_tensor(fill, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise DeletionError(f"'fill' must be a number, or one number per column (got {fill!r})") from None
    if values.dim() > 1 or not values.numel() or not bool(torch.isfinite(values).all()):
        raise DeletionError(
            f"'fill' must be a finite number, or one per column (got shape {list(values.shape)}: {fill!r})"
        )
    return values + 0.0  # -0.0 and 0.0 are one value


def _erased(name: str, value: Tensor, rows: Tensor) -> Tensor:
    """An attribute without what it says about some rows; integers may be indices and stay."""
    if name == "y":
        return without_labels(value, rows)
    if value.dtype == torch.bool:
        return value.index_fill(0, rows, False)
    if name != "x" and not value.is_floating_point():
        return value
    if value.layout == torch.strided:
        return value.index_fill(0, rows, 0)
    cells = torch.stack([rows, torch.full_like(rows, ALL_COLUMNS)])
    return replace_cells(value, cells, torch.zeros(rows.numel()))


def _label_table(data: Data, table: EdgeTable) -> EdgeTable | None:
    """The edges that supervise a link model, where the graph lists them besides those that carry messages."""
    edges = label_edges(data)
    if edges is None or (edges.size(0) == 2 and "edge_type" in data):
        return None
    if isinstance(data, HeteroGraph):
        return EdgeTable(edges[[0, 2]], table.num_nodes, edges[1], len(data.types.edges))
    return EdgeTable(edges, table.num_nodes)


def _require_nodes(name: str, nodes: Tensor, table: EdgeTable) -> None:
    outside = nodes[nodes >= table.num_nodes].tolist()
    if outside:
        raise DeletionError(
            f"{name}= names nodes that are not in the graph: {some(outside)}; ids go from 0 to {table.num_nodes - 1}"
        )
