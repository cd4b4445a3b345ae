"""What a link model is trained on: a graph's positive edges and a sampler of its negatives, kept once per graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gnndelete.datasets.forget import training_edges
from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.datasets.typed_edges import TripleCorrupter, triples
from gnndelete.errors import GraphError
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.parsing import distinct
from gnndelete.graph.validation import edge_table


@dataclass(frozen=True, eq=False)
class Supervision:
    """Positive edges (each once, as u < v, where the graph is undirected) and the sampler of as many negatives."""

    positives: Tensor
    sampler: NegativeSampler

    def negatives(self, generator: torch.Generator | None = None) -> Tensor:
        """As many pairs that are no edges."""
        return self.false(self.positives, generator)

    def false(self, true: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A negative for each of some edges."""
        return self.sampler.sample(true.size(1), generator)


@dataclass(frozen=True, eq=False)
class TripleSupervision(Supervision):
    """Positive triples ``[3, k]`` and, for each, a false one of the same relation: half with another head, half another tail."""

    corrupter: TripleCorrupter

    def false(self, true: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return corrupted(self.corrupter, true, generator)


@dataclass(frozen=True, eq=False)
class DrawnSupervision(Supervision):
    """Positive edges whose negatives were drawn before: those of one batch."""

    drawn: Tensor

    def negatives(self, generator: torch.Generator | None = None) -> Tensor:
        return self.drawn


class SupervisionCache:
    """One `Supervision` per edge list, forgotten together with it; copies of the cache start empty."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def of(self, data: Any, supervise: Callable[[Any], Supervision] | None = None) -> Supervision:
        """The supervision of this graph, made anew where its edges were exchanged or changed in place."""
        known, seen, alive = self._known.get(data.edge_index, (None, [], []))
        if known is None or seen != _state(data) or any(ref() is None for ref in alive):
            known = (supervise or _supervise)(data)
            self.give(data, known)
        return known

    def give(self, data: Any, supervision: Supervision) -> None:
        """From now on this is the supervision of this graph, or batch."""
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
    """One false triple for each of ``true``, another head in each; never one of the graph or of ``held``, on the CPU."""
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
            raise GraphError("the graph has no triples to learn links from; it needs 'edge_index' and 'edge_type'")
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
        raise GraphError("the graph has no edges to learn links from; it needs 'edge_index' or 'edge_label_index'")
    return Supervision(positives, sampler)


def _sources(data: Any) -> list[Tensor]:
    names = ("edge_type", "edge_label_index", "edge_label")
    return [data.edge_index, *(data[key] for key in names if isinstance(data.get(key), Tensor))]


def _state(data: Any) -> list[tuple[int, int]]:
    return [(id(source), _version(source)) for source in _sources(data)]


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
