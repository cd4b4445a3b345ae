"""The edges of a link task: validation and test edges as users pass them, and what a model is trained on.

A graph's training edges and the sampler of its non-edges are computed once per graph and cached.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import HeteroData

from gnndelete.datasets.forget import training_edges
from gnndelete.datasets.negatives import NegativeSampler, TripleCorrupter, triples
from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.hetero import one_type
from gnndelete.graph.parsing import distinct, edge_list
from gnndelete.graph.validation import edge_table


@dataclass(frozen=True, eq=False)
class LabeledEdges:
    """True edges, and pairs known not to be edges (``None``: to be drawn)."""

    positives: Tensor
    negatives: Tensor | None = None

    def without(self, nodes: Tensor) -> LabeledEdges | None:
        """The edges that name none of the given nodes; None where no true edge is left."""

        def left(edges: Tensor) -> Tensor:
            return edges[:, ~torch.isin(ends_of(edges), nodes.to(edges.device)).any(dim=0)]

        positives = left(self.positives)
        return (
            LabeledEdges(positives, None if self.negatives is None else left(self.negatives))
            if positives.size(1)
            else None
        )


def labeled_edges(value: Any, negatives: Any, name: str, edge_type: Any = None) -> LabeledEdges | None:
    """Read ``validation=`` or ``test=`` and its negatives; None where there are no edges."""
    if isinstance(value, HeteroData):
        kinds = [kind for kind in value.edge_types if "edge_label_index" in value[kind] and edge_type in (None, kind)]
        value = value[
            one_type(kinds, f"edge types of '{name}' with 'edge_label_index'", "edge_type=", value.edge_types)
        ]
    elif isinstance(value, Mapping) and len(value) == 1 and edge_type in (None, *value):
        value = next(iter(value.values()))
    if value is None:
        if negatives is not None:
            raise SettingError(f"'{name}_negatives' was given without '{name}'", "pass the true edges too")
        return None
    edges, label = value, None
    if hasattr(value, "edge_label_index"):
        edges, label = value.edge_label_index, getattr(value, "edge_label", None)
        if edges is None or label is None:
            why = f"'{name}' is a graph without 'edge_label_index' and 'edge_label'"
            raise SettingError(why, "pass a [2, k] tensor")
    elif isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(part, Tensor) for part in value):
        edges, label = value
    edges = edge_list(edges, name)
    known = None if negatives is None else edge_list(negatives, f"{name}_negatives")
    if label is not None:
        if label.numel() != edges.size(1):
            why = f"'{name}' has {edges.size(1)} edges and {label.numel()} labels"
            raise SettingError(why, "give one label per edge")
        true = label.view(-1) > 0
        if known is not None and not bool(true.all()):
            why = f"'{name}' holds edges labelled 0 and '{name}_negatives' was given too"
            raise SettingError(why, "pass one of them")
        if not bool(true.all()):
            known = edges[:, ~true]
        edges = edges[:, true]
    return LabeledEdges(edges, known) if edges.size(1) else None


def check_width(edges: Tensor, typed: bool, name: str) -> None:
    """Refuse pairs on a typed graph and triples on a plain one."""
    if edges.size(0) != (3 if typed else 2):
        if typed:
            raise GraphError(
                f"'{name}' holds pairs, and the graph has 'edge_type'", "give triples (head, relation, tail)"
            )
        raise GraphError(f"'{name}' holds triples, and the graph has no 'edge_type'", "give pairs (source, target)")


def check_range(edges: Tensor, num_nodes: int, name: str, output: bool = False) -> None:
    """Refuse node ids that the graph, or the model's ``output``, has no row for."""
    if not edges.numel():
        return
    low, high = torch.stack(ends_of(edges).aminmax()).tolist()  # one synchronisation with the device
    if low < 0 or high >= num_nodes:
        wrong = high if high >= num_nodes else low
        if output:
            raise GraphError(
                f"'{name}' names node {wrong}, and the model returned {num_nodes} rows, from 0 to {num_nodes - 1}",
                "it must return one row for every node of the graph, and edges must name nodes of the graph",
            )
        raise GraphError(f"'{name}' names node {wrong}, and the graph has the nodes 0 to {num_nodes - 1}")


@dataclass(frozen=True, eq=False)
class Supervision:
    """Training edges (each once, as u < v, where the graph is undirected), and a sampler of non-edges."""

    positives: Tensor
    sampler: NegativeSampler

    def negatives(self, generator: torch.Generator | None = None) -> Tensor:
        """As many non-edges as there are training edges."""
        return self.false(self.positives, generator)

    def false(self, true: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One non-edge for each of the given edges."""
        return self.sampler.sample(true.size(1), generator)


@dataclass(frozen=True, eq=False)
class TripleSupervision(Supervision):
    """Training triples ``[3, k]``. A false triple has the same relation and another head or, for every other one, tail."""

    corrupter: TripleCorrupter

    def false(self, true: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return corrupted(self.corrupter, true, generator)


@dataclass(frozen=True, eq=False)
class DrawnSupervision(Supervision):
    """The training edges of one batch, with non-edges that are drawn already."""

    drawn: Tensor

    def negatives(self, generator: torch.Generator | None = None) -> Tensor:
        return self.drawn


class SupervisionCache:
    """One `Supervision` per edge list, dropped together with it; copies of the cache start empty."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def of(self, data: Any, supervise: Callable[[Any], Supervision] | None = None) -> Supervision:
        """The supervision of this graph, computed again where its edges were replaced or changed in place."""
        known, state, alive = self._known.get(data.edge_index, (None, [], []))
        if known is None or state != _state(data) or any(ref() is None for ref in alive):
            known = (supervise or _supervise)(data)
            self.give(data, known)
        return known

    def give(self, data: Any, supervision: Supervision) -> None:
        """Set the supervision of a graph or batch."""
        self._known[data.edge_index] = supervision, _state(data), [weakref.ref(source) for source in _sources(data)]

    def __reduce__(self) -> tuple[type[SupervisionCache], tuple[()]]:
        return SupervisionCache, ()


def positives(data: Any) -> Tensor:
    """The edges a link model was trained on; triples ``[3, k]`` where they are typed."""
    if data.get("edge_type") is not None:
        return triples(data)
    pairs, label = data.get("edge_label_index"), data.get("edge_label")
    if pairs is None:
        return data.edge_index
    return pairs if label is None else pairs[:, label.view(-1) > 0]


def distinct_positives(data: Any) -> Tensor:
    """The edges a link model was trained on, each once, without self-loops; triples where they are typed.

    >>> from torch_geometric.data import Data
    >>> distinct_positives(Data(edge_index=torch.tensor([[0, 1, 1, 1], [1, 0, 1, 1]]), num_nodes=2)).tolist()
    [[0], [1]]
    """
    if data.get("edge_label_index") is None:
        return training_edges(data)
    edges = positives(data)
    if edge_table(data).undirected:
        edges = edges.sort(dim=0).values
    return distinct(edges[:, edges[0] != edges[1]])


def false_triples(data: Any, true: Tensor, held: Tensor, generator: torch.Generator) -> Tensor:
    """One false triple with another head for each of ``true``, never one of the graph or of ``held``; on the CPU."""
    graph = triples(data).cpu()
    return TripleCorrupter(graph[[0, 2]], graph[1], data.num_nodes, known=held).corrupt(true, generator)


def corrupted(corrupter: TripleCorrupter, true: Tensor, generator: torch.Generator | None) -> Tensor:
    """False triples: every other one has another tail, the rest another head."""
    result = torch.empty_like(true)
    for end in (0, 1):
        result[:, end::2] = corrupter.corrupt(true[:, end::2], generator, end)
    return result


def _supervise(data: Any) -> Supervision:
    edges, num_nodes = data.edge_index, data.num_nodes
    if data.get("edge_type") is not None:
        known = triples(data)
        positives = known[:, known[0] != known[2]]
        if not positives.size(1):
            raise GraphError("the graph has no triples to learn links from", "it needs 'edge_index' and 'edge_type'")
        sampler = NegativeSampler(edges, num_nodes)
        return TripleSupervision(positives, sampler, TripleCorrupter(known[[0, 2]], known[1], num_nodes))
    if "edge_label_index" in data:
        positives = data.edge_label_index.clone()
        if "edge_label" in data:
            positives = positives[:, data.edge_label.view(-1) > 0]
        undirected = EdgeTable(edges, num_nodes).undirected
        sampler = NegativeSampler(torch.cat([edges, positives], dim=1), num_nodes, undirected=undirected)
    else:
        sampler = NegativeSampler(edges, num_nodes)
        positives = edges[:, edges[0] < edges[1] if sampler.undirected else edges[0] != edges[1]]
    if not positives.size(1):
        raise GraphError("the graph has no edges to learn links from", "it needs 'edge_index' or 'edge_label_index'")
    return Supervision(positives, sampler)


def _sources(data: Any) -> list[Tensor]:
    names = ("edge_type", "edge_label_index", "edge_label")
    return [data.edge_index, *(data[key] for key in names if isinstance(data.get(key), Tensor))]


def _state(data: Any) -> list[tuple[int, int]]:
    return [(id(source), _version(source)) for source in _sources(data)]


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
