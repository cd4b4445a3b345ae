"""The edges of a link task: validation and test edges as users pass them, and what a model is trained on.

A graph's training edges and the sampler of its non-edges are computed once per graph and cached.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import HeteroData

from gnndelete.datasets.forget import training_edges
from gnndelete.datasets.negatives import BipartiteSampler, NegativeSampler, TripleCorrupter, pair_sampler, triples
from gnndelete.errors import GraphError, SettingError, some
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.hetero import EdgeType, HeteroGraph, one_type
from gnndelete.graph.parsing import distinct, edge_list
from gnndelete.graph.validation import edge_table
from gnndelete.tasks.base import representation


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
        negatives = None if self.negatives is None else left(self.negatives)
        return LabeledEdges(positives, negatives) if positives.size(1) else None


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
        if not bool(true.all()):
            if known is not None:
                why = f"'{name}' holds edges labelled 0 and '{name}_negatives' was given too"
                raise SettingError(why, "pass one of them")
            known = edges[:, ~true]
        edges = edges[:, true]
    return LabeledEdges(edges, known) if edges.size(1) else None


@dataclass(frozen=True)
class Relation:
    """One edge type of a graph. It converts pairs of ids within its two node types to triples across all types, and back."""

    kind: EdgeType
    number: int
    source: range
    target: range
    both: bool  # the graph lists every edge with its reverse, as an undirected graph does

    @classmethod
    def of(cls, data: HeteroGraph, kind: EdgeType | None) -> Relation:
        """The edge type that is named, else the only possible one."""
        if kind is None:
            labelled = [name for name in data.types.edges if "edge_label_index" in data.hetero[name]]
            kind = one_type(labelled or data.types.forward(), "edge types", "edge_type=", data.types.edges)
        number = data.types.number(kind)
        return cls(kind, number, *data.types.ends(kind), data.types.mirror[number] == number)

    def local(self, triples: Tensor) -> Tensor:
        """Pairs of ids within the two types."""
        if triples.size(0) == 2:
            raise GraphError(
                "edges are given as pairs across all types", f"name them by their type: {{{self.kind}: pairs}}"
            )
        if triples.numel() and bool((triples[1] != self.number).any()):
            raise GraphError(f"edges of another type than {self.kind} are given, and the task scores only these")
        return torch.stack([triples[0] - self.source.start, triples[2] - self.target.start])

    def triples(self, pairs: Tensor) -> Tensor:
        """Triples across all types."""
        number = torch.full_like(pairs[0], self.number)
        return torch.stack([pairs[0] + self.source.start, number, pairs[1] + self.target.start])

    def placed(self, part: LabeledEdges | None, data: HeteroGraph, name: str) -> LabeledEdges | None:
        """Validation or test edges across all types, after checking that the graph has their ends."""
        if part is None:
            return None
        true = data.place_edges(self.kind, part.positives, name)
        false = part.negatives
        return LabeledEdges(true, None if false is None else data.place_edges(self.kind, false, f"{name}_negatives"))

    def pairs(self, elements: Any) -> Tensor:
        """Pairs that a user asks about, given as such or in a dict by edge type."""
        if isinstance(elements, Mapping):
            if list(elements) != [self.kind]:
                raise SettingError(f"the task scores edges of {self.kind} (got {some(map(repr, elements))})")
            elements = elements[self.kind]
        return edge_list(elements, "edges")

    def sampler(self, pairs: Tensor) -> NegativeSampler:
        """A sampler of pairs of the two types that are not among these."""
        if self.kind[0] == self.kind[2]:
            return NegativeSampler(pairs, len(self.source), undirected=self.both)
        return NegativeSampler(pairs, len(self.source), targets=len(self.target))

    def learned(self, data: HeteroGraph) -> Tensor:
        """The edges to learn from: ``edge_label_index`` where the edge type has one, else its edges without self-loops."""
        store = data.hetero[self.kind]
        known, pairs, label = store.edge_index, store.get("edge_label_index"), store.get("edge_label")
        if pairs is not None:
            return pairs if label is None else pairs[:, label.view(-1) > 0]
        edges = known[:, known[0] < known[1]] if self.both else known
        return edges[:, edges[0] != edges[1]] if self.kind[0] == self.kind[2] else edges

    def dot(self, output: Any, pairs: Tensor) -> Tensor:
        """The inner product of the two ends, each from the representations of its type."""
        head, tail = representation(output, self.kind[0]), representation(output, self.kind[2])
        return (head.index_select(0, pairs[0]) * tail.index_select(0, pairs[1])).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Supervision:
    """Training edges (each once, as u < v, where the graph is undirected), and how false ones are drawn for them.

    On a typed graph both are triples. A false triple has another head or, for every other one, another tail. With ``paired``
    every non-edge has an end of its true edge: the user on a bipartite graph, either end in turn on another undirected one.
    """

    positives: Tensor
    known: Tensor  # edges that are never drawn
    num_nodes: int
    undirected: bool = False
    paired: bool = False
    corrupter: TripleCorrupter | None = None
    relation: Relation | None = None
    drawn: Tensor | None = None  # the non-edges of one batch

    @cached_property
    def sampler(self) -> NegativeSampler | BipartiteSampler:
        """Draws pairs that are no edges."""
        if self.relation is not None:
            return self.relation.sampler(self.known)
        return pair_sampler(self.known, self.num_nodes, self.undirected)

    def negatives(self, generator: torch.Generator | None = None) -> Tensor:
        """As many non-edges as there are training edges."""
        return self.false(self.positives, generator) if self.drawn is None else self.drawn

    def false(self, true: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One non-edge for each of the given edges."""
        if self.corrupter is not None:
            result = torch.empty_like(true)
            for end in (0, 1):
                result[:, end::2] = self.corrupter.corrupt(true[:, end::2], generator, end)
            return result
        if self.paired:
            pairs = self.sampler.beside(self._ends(true), generator)
        else:
            pairs = self.sampler.sample(true.size(1), generator)
        return pairs if self.relation is None else self.relation.triples(pairs)

    def _ends(self, true: Tensor) -> Tensor:
        """The two ends of true edges; the first is the one that a paired non-edge shares."""
        pairs = true if self.relation is None else self.relation.local(true)
        if not self.undirected or isinstance(self.sampler, BipartiteSampler):
            return pairs
        turned = pairs.clone()
        turned[:, 1::2] = pairs[:, 1::2].flip(0)
        return turned


class SupervisionCache:
    """One `Supervision` per edge list, dropped together with it; copies of the cache start empty."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def of(self, data: Any, relation: Relation | None = None, paired: bool = False) -> Supervision:
        """The supervision of this graph, computed again where its edges were replaced or changed in place."""
        known, sources = self._known.get(data.edge_index, (None, []))
        now = [(id(tensor), _version(tensor)) for tensor in _sources(data)]
        if known is None or [(id(ref()), version) for ref, version in sources] != now:
            known = supervise(data, relation, paired)
            self.give(data, known)
        return known

    def give(self, data: Any, supervision: Supervision) -> None:
        """Set the supervision of a graph or batch."""
        sources = [(weakref.ref(tensor), _version(tensor)) for tensor in _sources(data)]
        self._known[data.edge_index] = supervision, sources

    def __reduce__(self) -> tuple[type[SupervisionCache], tuple[()]]:
        return SupervisionCache, ()


def _sources(data: Any) -> list[Tensor]:
    """The tensors that training edges come from."""
    names = ("edge_index", "edge_type", "edge_label_index", "edge_label")
    return [value for name in names if isinstance(value := data.get(name), Tensor)]


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place."""
    return 0 if tensor.is_inference() else tensor._version


def supervise(data: Any, relation: Relation | None = None, paired: bool = False) -> Supervision:
    """What a link model of this graph, or of one edge type of it, is trained on."""
    known, num_nodes = data.edge_index.detach(), data.num_nodes  # not the tensor itself, which is the key of the cache
    if relation is not None:
        edges = relation.learned(data)
        if not edges.size(1):
            raise GraphError(f"the graph has no edges of {relation.kind} to learn links from")
        known = torch.cat([data.hetero[relation.kind].edge_index, edges], dim=1)
        triple = relation.triples(edges)
        return Supervision(triple, known, num_nodes, relation.both, paired, relation=relation)
    typed, corrupter = data.get("edge_type") is not None, None
    undirected = not typed and EdgeTable(known, num_nodes).undirected
    if typed:
        edges = triples(data)
        corrupter = TripleCorrupter(edges[[0, 2]], edges[1], num_nodes)
        edges = edges[:, edges[0] != edges[2]]
    elif "edge_label_index" in data:
        edges = positives(data).clone()
        known = torch.cat([known, edges], dim=1)
    else:
        edges = known[:, known[0] < known[1] if undirected else known[0] != known[1]]
    if not edges.size(1):
        what = "triples" if corrupter is not None else "edges"
        raise GraphError(f"the graph has no {what} to learn links from", "it needs 'edge_index' or 'edge_label_index'")
    return Supervision(edges, known, num_nodes, undirected, paired, corrupter)


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
