"""Whether what is served can be trusted: no deleted element in its graph, answers that follow from it, an honest test set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import number
from gnndelete.auditing.measures.base import Measure, Names, Section, Table
from gnndelete.auditing.queries import with_base
from gnndelete.graph.batch import node_stores
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import edge_table

#: Deleted pairs that are asked about.
PAIR_LIMIT = 2000


@dataclass(frozen=True)
class Movement:
    """How far answers are from the base model's on the same graph.

    A pair next to a deleted one shares an end with it; the other end is a random node. A map of representations moves both,
    an answer that was written over moves the deleted pair alone.
    """

    deleted: float
    neighbors: float
    spread: float  # of the base model's scores, as the unit


@dataclass(frozen=True, kw_only=True)
class IntegritySection(Section):
    """Checks of what is served.

    Args:
        still_there: Deleted elements that the served graph still holds.
        movement: How far scores of deleted pairs and of pairs next to them moved; None for other tasks.
        overlap: Test elements that the model was trained on.
        overlap_sentence: What that means; empty where there are none.
    """

    still_there: int = 0
    movement: Movement | None = None
    overlap: int = 0
    overlap_sentence: str = ""

    def tables(self, names: Names) -> Iterable[Table]:
        rows = [("deleted elements in the served graph", number(self.still_there))]
        if self.movement is not None:
            rows.append(("mean change of deleted pairs, on the same graph", number(self.movement.deleted)))
            rows.append(("mean change of pairs that share a node with them", number(self.movement.neighbors)))
        rows.append(("test elements that the model was trained on", number(self.overlap)))
        yield Table(("check", "value"), tuple(rows))


class Integrity(Measure):
    """Checks that the other measures depend on."""

    name: ClassVar[str] = "integrity"
    title: ClassVar[str] = "Checks of what is served"

    def run(self, case: Case) -> IntegritySection:
        test = case.task.unseen(case.remaining, "test")
        overlap = case.task.count_overlap(test, case.original) if test.numel() else 0
        return IntegritySection(
            still_there=still_there(case),
            movement=_movement(case),
            overlap=overlap,
            overlap_sentence=case.task.overlap_sentence(overlap, "test"),
        )


def _movement(case: Case) -> Movement | None:
    if not case.deleted_edges.size(1):
        return None
    pairs = case.sample(case.deleted_edges.cpu(), PAIR_LIMIT, 11)
    other = case.task.random_targets(case.original, pairs.size(1), case.generator(12))
    neighbors = torch.stack([*pairs[:-1], other])
    base = with_base(case, case.after.graph)
    moved = [case.after.predict(part).double().cpu() - base.predict(part).double().cpu() for part in (pairs, neighbors)]
    if not all(bool(torch.isfinite(part).all()) for part in moved):
        return None
    spread = float(base.predict(neighbors).double().std()) if neighbors.size(1) > 1 else 1.0
    deleted, around = (float(part.abs().mean()) for part in moved)
    return Movement(deleted, around, spread)


def still_there(case: Case) -> int:
    """How many deleted elements the graph that the model is served on still holds."""
    graph, deletion = case.after.graph, case.deletion
    if graph is case.remaining:
        return 0
    labels = _other_rows(graph, case.remaining, "y", deletion.labels)  # labels are no part of a graph's fingerprint
    if fingerprint(graph) == fingerprint(case.remaining):
        return labels
    table = edge_table(graph)
    there = int(table.contains(deletion.edges.to(table.keys.device)).sum()) if deletion.edges.size(1) else 0
    features = _other_rows(graph, case.remaining, "x", deletion.feature_nodes)
    return there + deletion.nodes.numel() + features + labels


def _other_rows(graph: Data, remaining: Data, name: str, nodes: Tensor) -> int:
    """How many of the nodes have another row here than in what remains."""
    if isinstance(graph, HeteroGraph) and isinstance(remaining, HeteroGraph):
        return sum(
            _other_rows(store, remaining.hetero[kind], name, nodes[mask] - start)
            for kind, store, mask, start in node_stores(graph, nodes)
        )
    if not nodes.numel() or graph.get(name) is None:
        return 0
    rows = [data[name].index_select(0, nodes.to(data[name].device)).cpu() for data in (graph, remaining)]
    a, b = (part.to_dense() if part.layout != torch.strided else part for part in rows)
    same = (a == b) | (a.isnan() & b.isnan() if a.is_floating_point() else torch.zeros_like(a, dtype=torch.bool))
    return int((~same.flatten(1).all(dim=1) if same.dim() > 1 else ~same).sum())
