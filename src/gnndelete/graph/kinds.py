"""The kinds of elements a deletion can name, one class each: how they are parsed, checked, joined, cut, counted and worded.

To add a kind, add a field to `Elements`, write a subclass of `Kind` and list it in `KINDS`. `cut` makes the graph that remains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, NotYetError, some
from gnndelete.graph.batch import GraphBatch, label_edges, node_stores
from gnndelete.graph.edge_table import EdgeTable, ends_of, entries
from gnndelete.graph.hetero import HeteroGraph, TypeName
from gnndelete.graph.parsing import (
    ALL_COLUMNS,
    Names,
    as_cells,
    as_edges,
    as_fill,
    as_ids,
    as_new_labels,
    as_replacement,
    distinct,
    is_among,
    join_edges,
    join_new_labels,
)

if TYPE_CHECKING:
    from gnndelete.datasets.ids import IdMap

#: Masks that say which nodes or graphs a model is trained, chosen and measured on.
MASKS = ("train_mask", "val_mask", "test_mask")

#: A further set of edges is called ``edge_index`` with a prefix or a suffix. (A ``hyperedge_index`` holds no pairs of nodes.)
_EDGE_SET = re.compile(r"((?:.+_)?)edge_index((?:_.+)?)")

Changes = dict[str, Any]  # fields of `Elements` and their new values
E = TypeVar("E", bound="Elements")

_NO_IDS = torch.empty(0, dtype=torch.long)
_NO_PAIRS = torch.empty(2, 0, dtype=torch.long)
_NO_VALUES = torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Elements:
    """Sorted, distinct elements of every kind, on the CPU, and what is known about them."""

    edges: Tensor = _NO_PAIRS  # [2, k] pairs, or [3, k] triples (head, relation, tail)
    nodes: Tensor = _NO_IDS
    features: Tensor = _NO_PAIRS  # [2, k] cells (node, column); `ALL_COLUMNS` for the whole row
    labels: Tensor = _NO_IDS
    relations: Tensor = _NO_IDS
    graphs: Tensor = _NO_IDS
    fill: Tensor = _NO_VALUES  # one value per feature cell
    new_labels: Tensor = _NO_PAIRS  # [2, k]: a node of ``labels``, and the class that replaces its label
    inside_graphs: Tensor = _NO_IDS  # nodes that are not named, but belong to a deleted graph
    names: Names = Names()  # noqa: RUF009 (frozen)
    by_type: Mapping[TypeName, Any] = field(default_factory=dict)  # on a HeteroData: what each type loses
    across_types: bool = False  # whether ids count across all types of a HeteroData

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of which elements are named."""
        return [kind for name, kind in KINDS.items() if getattr(self, name).size(-1)]

    @property
    def counts(self) -> dict[str, int]:
        """How many elements of each kind are named, without empty kinds; for features, how many nodes lose some."""
        found = dict.fromkeys(KINDS, 0)
        for part in (self, *self.by_type.values()):
            for kind in part.kinds:
                found[kind.name] += kind.count(part)
        return {name: count for name, count in found.items() if count}

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of some fields, which are taken as they are: sorted and distinct."""
        result = object.__new__(type(self))
        Elements.__init__(result, **{each.name: getattr(self, each.name) for each in fields(Elements)} | changes)
        return result


class Kind:
    """One kind of element that is named by one id; subclasses say what is different about theirs."""

    name: str
    of_nodes = False  # whether elements are named by nodes, which may have names

    def parse(self, value: Any, fill: Any, ids: IdMap | None, new: Any = None) -> Changes:
        """What a user wrote, as sorted tensors; names are looked up in ``ids``. ``new`` is what replaces the elements."""
        return {self.name: as_ids(value, self.name, ids if self.of_nodes else None)}

    def join(self, a: Elements, b: Elements) -> Changes:
        """The elements of both, each once."""
        return {self.name: torch.unique(torch.cat([getattr(a, self.name), getattr(b, self.name)]))}

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """What changes when the elements are put in the graph's terms; elements that the graph does not have are refused."""
        raise NotImplementedError

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

    def parse(self, value: Any, fill: Any, ids: IdMap | None, new: Any = None) -> Changes:
        return {"edges": as_edges(value, ids)}

    def join(self, a: Elements, b: Elements) -> Changes:
        return {"edges": join_edges(a.edges, b.edges)}

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """On an undirected graph an edge is named once, smaller id first; a reverse triple by its forward one."""
        edges, names = deletion.edges, deletion.names
        width = 3 if table.typed else 2
        if edges.size(0) != width:
            given, known, form = ("triples", "has no", "pairs (source, target)")
            if table.typed:
                given, known, form = ("pairs", "has an", "triples (head, relation, tail)")
            hint = ", or transpose the tensor" if edges.size(1) == width else ""  # two triples look like three pairs
            raise DeletionError(f"edges are given as {given}, but the graph {known} 'edge_type': give {form}{hint}")
        for outside, what, last in (
            ((ends_of(edges) >= table.num_nodes).any(dim=0), "nodes", table.num_nodes - 1),
            ((edges[1] >= table.num_relations) & table.typed, "relations", table.num_relations - 1),
        ):
            if bool(outside.any()):
                wrong = some(names.edges(edges[:, outside]))
                raise DeletionError(f"edges name {what} that are not in the graph: {wrong}; they go from 0 to {last}")
        if table.undirected and bool((edges[0] > edges[1]).any()):
            edges = table.edges(table.key(edges.sort(dim=0).values).unique())
        elif table.mirrored:
            edges = distinct(table.forward(edges))
        exists = table.contains(edges.to(table.keys.device)).cpu()
        labels = None if bool(exists.all()) else label_edges(data)
        if labels is not None and labels.size(0) == edges.size(0):  # those only supervise a link model
            exists |= is_among(edges, labels.cpu())
            exists |= is_among(edges.flip(0), labels.cpu()) & table.undirected
        if not bool(exists.all()):
            missing = edges[:, ~exists]
            hint = "check the ids, or whether they were deleted before: only edges that the model was trained on can be deleted"
            if not table.undirected and bool(table.contains(missing.flip(0).to(table.keys.device)).any()):
                hint = "the graph is directed and holds the reverse of some: give (source, target)"
            raise DeletionError(
                f"{missing.size(1)} of the edges to delete do{'es' * (missing.size(1) == 1)} not exist: "
                f"{some(names.edges(missing))}; {hint}"
            )
        return {"edges": edges}

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
    of_nodes = True

    def join(self, a: Elements, b: Elements) -> Changes:
        inside = torch.unique(torch.cat([a.inside_graphs, b.inside_graphs]))
        return {**super().join(a, b), "inside_graphs": inside}

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        """In a set of graphs, a graph that loses its last node is deleted."""
        nodes, graphs = deletion.nodes, deletion.graphs
        require_nodes(self.name, nodes, table.num_nodes)
        if not isinstance(data, GraphBatch):
            return {}
        lost = torch.bincount(data.batch[nodes.to(data.batch.device)], minlength=data.num_graphs)
        emptied = ((lost == data.sizes) & (lost > 0)).nonzero().flatten().cpu()
        return {"graphs": torch.unique(torch.cat([graphs, emptied]))}

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        """Zero what describes a deleted node, take it out of every mask and remove its label."""
        for _, rest, mask, start in node_stores(result, deletion.nodes):
            rows, count = deletion.nodes[mask] - start, rest.num_nodes
            for name, value in rest.to_dict().items():
                if not isinstance(value, Tensor) or not value.dim() or value.size(0) != count or "edge" in name:
                    continue
                if not isinstance(data, GraphBatch) or data.is_node_attr(name):
                    rest[name] = _erased(name, value, rows.to(value.device))

    def select(self, deletion: Elements, mask: Tensor) -> Changes:
        nodes, inside = deletion.nodes[mask], deletion.inside_graphs
        return {"nodes": nodes, "inside_graphs": inside[torch.isin(inside, nodes)]}

    def count(self, deletion: Elements) -> int:
        """How many nodes were named, without those that belong to a deleted graph."""
        return int(deletion.nodes.numel() - deletion.inside_graphs.numel())

    def describe(self, deletion: Elements) -> list[object]:
        named = deletion.nodes[~torch.isin(deletion.nodes, deletion.inside_graphs)]
        return [f"node {deletion.names.node(node)}" for node in named.tolist()]


class Features(Kind):
    name = "features"

    def parse(self, value: Any, fill: Any, ids: IdMap | None, new: Any = None) -> Changes:
        """Cells and the value that replaces each of them.

        With one value per column, a whole row is listed column by column. The number of values stands for each node as a
        cell below `ALL_COLUMNS`, with NaN as its value: `check` compares it with the width of ``x``.
        """
        cells, values = as_cells(value, ids), as_fill(fill)
        if new is not None:
            return merge_cells(cells, as_replacement(new, cells))
        if not values.dim():
            return merge_cells(cells, values.expand(cells.size(1)))
        whole, width = cells[1] == ALL_COLUMNS, values.numel()
        rows, single = cells[:, whole], cells[:, ~whole]
        if single.size(1) and int(single[1].max()) >= width:
            raise DeletionError(
                f"fill= has {width} values, one per column, and features= names column {int(single[1].max())}; "
                "give as many values as 'x' has columns, or one number"
            )
        columns = torch.cat([torch.arange(width).repeat(rows.size(1)), single[1]])
        owners = torch.cat([rows[0].repeat_interleave(width), single[0]])
        nodes = torch.unique(cells[0])
        given = torch.stack([nodes, torch.full_like(nodes, ALL_COLUMNS - width)])
        return merge_cells(
            torch.cat([given, torch.stack([owners, columns])], dim=1),
            torch.cat([torch.full(nodes.shape, float("nan"), dtype=torch.float64), values[columns]]),
        )

    def join(self, a: Elements, b: Elements) -> Changes:
        return merge_cells(torch.cat([a.features, b.features], dim=1), torch.cat([a.fill, b.fill]))

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        cells, values, names = deletion.features, deletion.fill, deletion.names
        require_nodes(self.name, cells[0], table.num_nodes)
        for key, store, mask, _ in node_stores(data, cells[0]):
            whose, x, named = "" if key is None else f" of {key!r}", store.get("x"), cells[:, mask]
            if not isinstance(x, Tensor) or not x.dim() or x.size(0) != store.num_nodes:
                raise DeletionError(
                    f"features are to be deleted, and {repr(key) if key else 'the graph'} has none (no 'x' with a row per node); "
                    "name the nodes themselves, or their edges"
                )
            width = x.size(1) if x.dim() > 1 else 1
            given = ALL_COLUMNS - named[1, values[mask].isnan()]
            if bool((given != width).any()):
                raise DeletionError(
                    f"fill= has {int(given[given != width][0])} values, one per column, and 'x' has {width} columns; "
                    f"give {width}, or one"
                )
            outside = named[:, named[1] >= width]
            if outside.size(1):
                wrong = [f"({names.node(node)}, {column})" for node, column in outside.t().tolist()]
                raise DeletionError(
                    f"features= names columns that 'x'{whose} does not have: {some(wrong)}; they go from 0 to {width - 1}"
                )
            numbers = values[mask & ~values.isnan()]
            held = numbers.to(x.dtype).double()
            unfit = numbers[held.isinf() | ((held != numbers) & (not x.is_floating_point()))]
            if unfit.numel():
                raise DeletionError(f"fill= holds {unfit[0]:g}, which 'x' of {x.dtype} cannot hold; give another value")
        return {"features": cells[:, ~values.isnan()], "fill": values[~values.isnan()]}

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        for _, rest, mask, start in node_stores(result, deletion.features[0]):
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
        return int(torch.unique(deletion.features[0]).numel())

    def words(self, count: int) -> str:
        return f"features of {count:,} node{'s' * (count > 1)}"

    def describe(self, deletion: Elements) -> list[object]:
        return [
            f"{'' if column == ALL_COLUMNS else f'column {column} of the '}features of node {deletion.names.node(node)}"
            for node, column in deletion.features.t().tolist()
        ]


class Labels(Kind):
    name = "labels"
    of_nodes = True

    def parse(self, value: Any, fill: Any, ids: IdMap | None, new: Any = None) -> Changes:
        parsed = super().parse(value, fill, ids)
        return parsed if new is None else {**parsed, "new_labels": as_new_labels(value, new, ids)}

    def join(self, a: Elements, b: Elements) -> Changes:
        return {**super().join(a, b), "new_labels": join_new_labels(torch.cat([a.new_labels, b.new_labels], dim=1))}

    def select(self, deletion: Elements, mask: Tensor) -> Changes:
        labels, new = deletion.labels[mask], deletion.new_labels
        return {"labels": labels, "new_labels": new[:, torch.isin(new[0], labels)]}

    def check(self, deletion: Elements, data: Data, table: EdgeTable) -> Changes:
        require_nodes(self.name, deletion.labels, table.num_nodes)
        for key, store, mask, start in node_stores(data, deletion.labels):
            nodes, y = deletion.labels[mask] - start, store.get("y")
            if not isinstance(y, Tensor) or not y.dim() or y.size(0) != store.num_nodes:
                if isinstance(data, GraphBatch) and y is not None:
                    raise DeletionError(
                        "labels= names nodes, and 'y' holds one label per graph; name the graph in graphs= to forget its label"
                    )
                raise DeletionError(
                    f"labels are to be forgotten, and {repr(key) if key else 'the graph'} has none (no 'y' with a row per node); "
                    "name the nodes themselves, or their edges"
                )
            rows = y[nodes.to(y.device)].reshape(nodes.numel(), -1)
            empty = (rows.isnan() if rows.is_floating_point() else rows < 0).all(dim=1).cpu()
            if bool(empty.any()):
                unlabelled = nodes[empty].tolist()
                raise DeletionError(
                    f"labels are to be forgotten of {f'{key!r} ' if key else ''}nodes without a label: "
                    f"{some(unlabelled if key else map(deletion.names.node, unlabelled))}; leave them out"
                )
            self._check_new(deletion, y, start)
        return {}

    def _check_new(self, deletion: Elements, y: Tensor, start: int) -> None:
        """Refuse a new label that the graph has no class for, or that the node has already."""
        new = deletion.new_labels
        new = new[:, (new[0] >= start) & (new[0] < start + y.size(0))]
        if not new.size(1):
            return
        if y.dim() > 1 or y.is_floating_point():
            raise DeletionError(
                f"replace= gives classes, and 'y' is {y.dtype} of shape {list(y.shape)}; forget the labels alone"
            )
        largest, same = int(y.max()), y[(new[0] - start).to(y.device)].cpu() == new[1]
        if int(new[1].max()) > largest:
            raise DeletionError(
                f"replace= names the class {int(new[1].max())}, and 'y' has the classes 0 to {largest}; give one of these"
            )
        if bool(same.any()):
            named = map(deletion.names.node, new[0, same].tolist())
            raise DeletionError(f"labels are to be replaced by what they are already: {some(named)}; leave them out")

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        """Remove labels, and their nodes from the training, validation and test masks."""
        for _, rest, chosen, start in node_stores(result, deletion.labels):
            rows, count = deletion.labels[chosen] - start, rest.y.size(0)
            rest.y = without_labels(rest.y, rows)
            new = deletion.new_labels[:, torch.isin(deletion.new_labels[0], deletion.labels[chosen])]
            if new.size(1):
                rest.y = rest.y.index_copy(0, (new[0] - start).to(rest.y.device), new[1].to(rest.y))
                rows = rows[~torch.isin(rows + start, new[0])]  # a corrected label is trained on like any other
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
        if not table.typed:
            raise DeletionError("relations= is given, but the graph has no 'edge_type'; name edges= or nodes= instead")
        named, kind = deletion.relations, data.edge_type
        known = named.clamp(max=table.num_relations - 1)
        relations = table.forward(torch.stack([torch.zeros_like(known), known, torch.zeros_like(known)]))[1]
        present = torch.isin(relations, kind.cpu()) & (named < table.num_relations)
        if not bool(present.all()):
            raise DeletionError(
                f"relations= names types of which the graph has no edge: {some(named[~present].tolist())}; "
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
        """A deleted graph takes all its nodes along."""
        graphs = deletion.graphs
        if not isinstance(data, GraphBatch):
            raise DeletionError(
                "graphs= names whole graphs, and the data is one graph; give the Unlearner a list of graphs, or use nodes="
            )
        outside = graphs[graphs >= data.num_graphs].tolist()
        if outside:
            raise DeletionError(
                f"graphs= names graphs that are not there: {some(outside)}; ids go from 0 to {data.num_graphs - 1}"
            )
        inside = data.nodes_of(graphs).cpu()
        return {"nodes": torch.unique(torch.cat([deletion.nodes, inside])), "inside_graphs": inside}

    def cut(self, result: Any, deletion: Elements, data: Data) -> None:
        """Erase what describes a deleted graph; its nodes are erased already."""
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


def cut(deletion: Elements, data: Data, table: EdgeTable) -> Data:
    """The graph without a deletion that was checked on this very graph; ids never shift."""
    result = with_edges(data, remaining_edges(deletion, data, table))
    _cut_pairs(result, deletion, data, table)
    for kind in deletion.kinds:
        kind.cut(result, deletion, data)
    return result


def remaining_edges(deletion: Elements, data: Data, table: EdgeTable) -> Tensor:
    """Which edges stay, as a mask."""
    device = data.edge_index.device
    mask = torch.ones(table.num_edges, dtype=torch.bool, device=device)
    if deletion.edges.size(1):
        mask[table.positions(table.both_ways(deletion.edges.to(device)))] = False
    if deletion.nodes.numel():
        dead = torch.zeros(table.num_nodes, dtype=torch.bool, device=device)
        dead.index_fill_(0, deletion.nodes.to(device), True)
        mask &= ~(dead[data.edge_index[0]] | dead[data.edge_index[1]])
    return mask


def leaves_edges(deletion: Elements, data: Data, table: EdgeTable) -> bool:
    """Whether any edge stays. A sample of the edges shows it as a rule; only where it does not are all looked at."""
    nodes = deletion.nodes.to(table.keys.device)
    stays = ~torch.isin(ends_of(table.edges(table.sample)), nodes).any(dim=0)
    if deletion.edges.size(1):
        stays &= ~torch.isin(table.sample, table.key(table.both_ways(deletion.edges.to(table.keys.device))))
    return bool(stays.any()) or bool(remaining_edges(deletion, data, table).any())


def with_edges(data: Data, mask: Tensor) -> Data:
    """A shallow copy with the edges of a mask and their attributes; all nodes and their ids stay."""
    if isinstance(data, HeteroGraph):
        return data.with_edges(mask)
    positions = mask.nonzero().flatten()
    result = data.__copy__()
    result.num_nodes = int(data.num_nodes or 0)
    further = {name for pairs, others in further_edge_sets(data).items() for name in (pairs, *others)}
    for name in data.to_dict():
        if not name.startswith("edge_label") and name not in further and data.is_edge_attr(name):
            result[name] = entries(data, name, positions)
    return result


#: Tensors of a graph that are about edges but no attributes of them.
_STRUCTURE = ("edge_index", "edge_type", "edge_label_index", "edge_label")


def can_take_edges(data: Data) -> bool:
    """Whether edges can be put into a graph as they are: its own have no attributes, which new ones would lack."""
    stores = data.hetero.edge_stores if isinstance(data, HeteroGraph) else [data]
    return not any(
        key not in _STRUCTURE and isinstance(value, Tensor) and store.is_edge_attr(key)
        for store in stores
        for key, value in store.to_dict().items()
    )


def with_more_edges(data: Data, table: EdgeTable, edges: Tensor) -> Data:
    """A shallow copy with further edges, in both directions where the graph has both; see `can_take_edges`."""
    both = table.both_ways(edges.to(data.edge_index.device))
    if isinstance(data, HeteroGraph):
        return data.with_more(both)
    result = data.__copy__()
    result.edge_index = torch.cat([data.edge_index, ends_of(both)], dim=1)
    if both.size(0) == 3:
        result.edge_type = torch.cat([data.edge_type, both[1]])
    return result


def among(data: Data, nodes: Tensor) -> Data:
    """The graph with only the edges between the given nodes; all nodes and their ids stay."""
    inside = torch.zeros(int(data.num_nodes or 0), dtype=torch.bool, device=data.edge_index.device)
    inside[nodes.to(inside.device)] = True
    return with_edges(data, inside[data.edge_index].all(dim=0))


def further_edge_sets(data: Data) -> dict[str, list[str]]:
    """Pairs of nodes besides ``edge_index``, by name, each with the names of its attributes: ``edge_weight_knn``.

    >>> data = Data(edge_index=torch.tensor([[0], [1]]), edge_index_knn=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    >>> data.edge_weight_knn = torch.ones(2)
    >>> further_edge_sets(data)
    {'edge_index_knn': ['edge_weight_knn']}
    """
    found, tensors = {}, {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}
    for name, pairs in tensors.items():
        match = _EDGE_SET.fullmatch(name)
        if name == "edge_index" or match is None or pairs.dtype != torch.long or not pairs.numel():
            continue
        if pairs.dim() != 2 or pairs.size(0) != 2 or int(pairs.min()) < 0 or int(pairs.max()) >= (data.num_nodes or 0):
            continue
        pattern = re.compile(f"{re.escape(match[1])}edge_.+{re.escape(match[2])}")
        others = [other for other in tensors if other not in (name, "edge_index") and pattern.fullmatch(other)]
        found[name] = [each for each in others if tensors[each].dim() and tensors[each].size(0) == pairs.size(1)]
    return found


def _cut_pairs(result: Any, deletion: Elements, data: Data, table: EdgeTable) -> None:
    """Cut the pairs that supervise a link model, and further sets of edges, with their attributes.

    Where a further set of edges has types, it loses only the deleted types of an edge.
    """
    gone = table.both_ways(deletion.edges) if deletion.edges.size(1) else deletion.edges
    sets: list[tuple[Any, str, list[str], Tensor | int, Tensor]] = []  # store, name, attributes, first ids, lost edges
    if isinstance(data, HeteroGraph):
        for number, kind in enumerate(data.types.edges):
            lost = gone[:, gone[1] == number]
            sets.append((result.hetero[kind], "edge_label_index", ["edge_label"], data.types.starts(kind), lost))
    elif table.typed and "edge_label_index" in data:
        raise NotYetError("typed graphs with 'edge_label_index' are not supported by this version; drop that attribute")
    else:
        further = {"edge_label_index": ["edge_label"], **further_edge_sets(data)}
        sets = [(result, name, others, 0, gone) for name, others in further.items()]
    for store, name, others, start, lost in sets:
        pairs, types = store.get(name), name.replace("edge_index", "edge_type")
        if pairs is None:
            continue
        named = pairs.cpu() + start
        stays = ~torch.isin(named, deletion.nodes).any(dim=0)
        if lost.size(0) == 3 and types in others:
            named = torch.stack([named[0], store[types].cpu(), named[1]])
        stays &= ~is_among(named, lost if named.size(0) == 3 else ends_of(lost))
        store[name] = pairs[:, stays.to(pairs.device)]
        for other in others:
            if isinstance(store.get(other), Tensor):
                store[other] = store[other][stays.to(pairs.device)]


def without_labels(y: Tensor, rows: Tensor) -> Tensor:
    """Labels with some of them removed: -1, or NaN for floats; types that can hold neither become integers.

    >>> without_labels(torch.tensor([True, False]), torch.tensor([0])).tolist()
    [-1, 0]
    """
    if not y.is_floating_point() and not y.dtype.is_signed:
        y = y.long()
    return y.index_fill(0, rows.to(y.device), float("nan") if y.is_floating_point() else -1)


def merge_cells(cells: Tensor, values: Tensor) -> Changes:
    """Sorted feature cells without repeats, and their values; two values for one cell are refused."""
    order = np.lexsort((cells[1].numpy(), cells[0].numpy()))
    cells, values = cells[:, order], values[order].double()
    repeated = (cells[:, 1:] == cells[:, :-1]).all(dim=0)
    equal = (values[1:] == values[:-1]) | (values[1:].isnan() & values[:-1].isnan())
    for first in (repeated & ~equal).nonzero().flatten().tolist():
        node, column = cells[:, first].tolist()
        what = f"node {node}" if column == ALL_COLUMNS else f"column {column} of node {node}"
        raise DeletionError(
            f"the features of {what} are to be replaced by {values[first]:g} and by {values[first + 1]:g}; give one value"
        )
    keep = torch.cat([torch.ones(min(cells.size(1), 1), dtype=torch.bool), ~repeated])
    return {"features": cells[:, keep], "fill": values[keep]}


def replace_cells(x: Tensor, cells: Tensor, values: Tensor) -> Tensor:
    """A copy of ``x``, dense or sparse, with new values in some cells; a column counts more than its whole row.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> replace_cells(x, torch.tensor([[0, 1], [-1, 0]]), torch.tensor([0.0, 9.0]).double()).tolist()
    [[0.0, 0.0], [9.0, 4.0]]
    """
    cells, values = cells.to(x.device), values.to(x.device, x.dtype)
    if x.layout != torch.strided:  # no zero is stored, so that stored entries do not show where something was deleted
        old = x.to_sparse_coo().coalesce()
        rows, local = torch.unique(cells[0], return_inverse=True)
        table = old.index_select(0, rows).to_dense()
        new = replace_cells(table, torch.stack([local, cells[1]]), values).to_sparse_coo().coalesce()
        stays = ~torch.isin(old.indices()[0], rows)
        indices = torch.cat([old.indices()[:, stays], torch.stack([rows[new.indices()[0]], new.indices()[1]])], dim=1)
        entries = torch.cat([old.values()[stays], new.values()])
        result = torch.sparse_coo_tensor(indices, entries, x.shape, check_invariants=False).coalesce()
        return result if x.is_sparse else result.to_sparse(layout=x.layout)
    whole = cells[1] == ALL_COLUMNS
    result = x.clone()
    table = result if x.dim() > 1 else result.unsqueeze(1)
    shape = [-1] + [1] * (table.dim() - 1)
    table[cells[0, whole]] = values[whole].view(shape).expand(-1, *table.shape[1:])
    table[cells[0, ~whole], cells[1, ~whole]] = values[~whole].view(shape[:-1]).expand(-1, *table.shape[2:])
    return result


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


def require_nodes(name: str, nodes: Tensor, count: int) -> None:
    """Refuse nodes that are not in the graph."""
    outside = nodes[nodes >= count].tolist()
    if outside:
        raise DeletionError(
            f"{name}= names nodes that are not in the graph: {some(outside)}; ids go from 0 to {count - 1}"
        )
