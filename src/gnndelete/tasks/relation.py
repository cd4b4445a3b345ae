"""Links of one edge type of a `HeteroData`: ids within its two node types, training edges, and non-edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.errors import GraphError, SettingError, some
from gnndelete.graph.hetero import EdgeType, HeteroGraph, one_type
from gnndelete.graph.parsing import edge_list
from gnndelete.tasks.base import representation
from gnndelete.tasks.supervision import LabeledEdges, Supervision


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

    def non_edges(self, data: HeteroGraph, held: list[Tensor], count: int, generator: torch.Generator) -> Tensor:
        """Triples that are neither edges of the graph nor unseen edges; fewer than ``count`` where there are no more."""
        known = torch.cat([data.hetero[self.kind].edge_index.cpu(), *map(self.local, held)], dim=1)
        sampler = self.sampler(known)
        return self.triples(sampler.sample(count if sampler.available else 0, generator))

    def learned(self, data: HeteroGraph) -> Tensor:
        """The edges to learn from: ``edge_label_index`` where the edge type has one, else its edges without self-loops."""
        store = data.hetero[self.kind]
        known, pairs, label = store.edge_index, store.get("edge_label_index"), store.get("edge_label")
        if pairs is not None:
            return pairs if label is None else pairs[:, label.view(-1) > 0]
        edges = known[:, known[0] < known[1]] if self.both else known
        return edges[:, edges[0] != edges[1]] if self.kind[0] == self.kind[2] else edges

    def supervise(self, data: HeteroGraph) -> RelationSupervision:
        """What a model of this edge type is trained on."""
        edges, known = self.learned(data), data.hetero[self.kind].edge_index
        if not edges.size(1):
            raise GraphError(f"the graph has no edges of {self.kind} to learn links from")
        return RelationSupervision(self.triples(edges), self.sampler(torch.cat([known, edges], dim=1)), self)

    def dot(self, output: Any, pairs: Tensor) -> Tensor:
        """The inner product of the two ends, each from the representations of its type."""
        head, tail = representation(output, self.kind[0]), representation(output, self.kind[2])
        return (head.index_select(0, pairs[0]) * tail.index_select(0, pairs[1])).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class RelationSupervision(Supervision):
    """Training triples of one edge type, and a sampler of pairs of its two node types that are no edges."""

    relation: Relation

    def negatives(self, generator: torch.Generator | None = None) -> Tensor:
        return self.relation.triples(super().negatives(generator))
