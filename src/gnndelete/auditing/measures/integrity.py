"""Whether what is served can be trusted: no deleted element in its graph, answers that follow from it, an honest test set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number, share
from gnndelete.auditing.measures.base import Measure, Names, Section, Table
from gnndelete.auditing.queries import with_base
from gnndelete.auditing.samples import node_rows, rings
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.batch import node_stores
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import edge_table

#: Deleted pairs that are asked about at most, and the fewest whose consistency can be judged.
PAIR_LIMIT, PAIR_MINIMUM = 2000, 20
#: How many nodes most like an end stand in for it, and among how many they are looked for.
LIKE, LIKE_LIMIT = 3, 4000


@dataclass(frozen=True)
class Movement:
    """How far answers are from the base model's on the same graph.

    A map of representations moves a deleted pair and the pairs beside it, and moves them alike. An answer that was written
    over moves the deleted pair alone, or beside it something that has nothing to do with it.

    Args:
        deleted: The mean change of deleted pairs.
        neighbors: That of pairs that share one end with them, with a random other end, whichever end it is.
        elsewhere: That of pairs of random nodes.
        spread: Of the base model's scores, as the unit.
        consistency: How far the change of a deleted pair is that of its two ends, seen where each is asked with the nodes most
            like the other: the cosine of both, 1 where they agree. None where the model has no rows.
    """

    deleted: float
    neighbors: float
    elsewhere: float
    spread: float
    consistency: float | None = None


@dataclass(frozen=True)
class Reading:
    """How far answers at the nodes of the deletion change between the original graph and the one as served."""

    base: float
    after: float


@dataclass(frozen=True, kw_only=True)
class IntegritySection(Section):
    """Checks of what is served.

    Args:
        still_there: Deleted elements that the served graph still holds.
        movement: How far scores of deleted pairs and of pairs next to them moved; None for other tasks.
        reading: How far the base model and the served one read the graph that they are given; None where none is kept.
        beside: The share of answers about deleted and test elements that are not those of the model beside them; None where
            there is one of both alone.
        overlap: Test elements that the model was trained on.
        overlap_sentence: What that means; empty where there are none.
    """

    still_there: int = 0
    movement: Movement | None = None
    reading: Reading | None = None
    beside: float | None = None
    overlap: int = 0
    overlap_sentence: str = ""

    def tables(self, names: Names) -> Iterable[Table]:
        rows = [("deleted elements in the served graph", number(self.still_there))]
        if self.movement is not None:
            rows.append(("mean change of deleted pairs, on the same graph", number(self.movement.deleted)))
            rows.append(("mean change of pairs that share a node with them", number(self.movement.neighbors)))
            rows.append(("mean change of other pairs", number(self.movement.elsewhere)))
            if self.movement.consistency is not None:
                rows.append(("deleted pairs change as their ends do (cosine)", number(self.movement.consistency)))
        if self.reading is not None:
            rows.append(
                ("answers at the deletion, original against served graph: base model", number(self.reading.base))
            )
            rows.append(("the same for the served model", number(self.reading.after)))
        if self.beside is not None:
            rows.append(("answers that are not the model's", share(self.beside)))
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
            reading=_reading(case),
            beside=_beside_model(case),
            overlap=overlap,
            overlap_sentence=case.task.overlap_sentence(overlap, "test"),
        )


def _movement(case: Case) -> Movement | None:
    if not case.deleted_edges.size(1):
        return None
    base = with_base(case, case.after.graph)

    def change(edges: Tensor) -> Tensor:
        return _answers(case.after, edges) - _answers(base, edges)

    pairs = case.sample(case.deleted_edges.cpu(), PAIR_LIMIT, 11)
    learned = case.task.learned_once(case.remaining).cpu()
    drawn = [
        learned[:, torch.randint(learned.size(1), (pairs.size(1),), generator=case.generator(n))] for n in (12, 14)
    ]
    swapped = (torch.stack([*pairs[:-1], drawn[0][-1]]), torch.stack([drawn[0][0], *pairs[1:]]))
    elsewhere = torch.stack([*drawn[0][:-1], drawn[1][-1]])
    moved = [change(part) for part in (pairs, *swapped, elsewhere)]
    if not all(bool(torch.isfinite(part).all()) for part in moved):
        return None
    deleted, *neighbors, others = (float(part.abs().mean()) for part in moved)
    beside = torch.cat([_answers(base, part) for part in (pairs, *swapped)])
    spread = float(beside.std()) if beside.numel() > 1 else 1.0
    return Movement(deleted, max(neighbors), others, spread, _consistency(case, base, pairs, moved[0], change))


def _consistency(
    case: Case, base: Subject, pairs: Tensor, moved: Tensor, change: Callable[[Tensor], Tensor]
) -> float | None:
    """The cosine of the changes of pairs and of what their ends show, each with the nodes most like the other end."""
    z = node_rows(base, int(case.original.num_nodes))
    if z is None or pairs.size(0) == 3 or pairs.size(1) < PAIR_MINIMUM:
        return None
    z = z.double().cpu()
    others = torch.ones(z.size(0), dtype=torch.bool).index_fill(0, case.deletion.named_nodes.cpu(), False)
    others = case.sample(others.nonzero().flatten(), LIKE_LIMIT, 15)
    if others.numel() < LIKE:
        return None
    expected = torch.zeros_like(moved)
    for end in (0, 1):
        like = others[torch.cdist(z[pairs[end]], z[others]).topk(LIKE, largest=False).indices]
        asked = pairs.repeat_interleave(LIKE, dim=1)
        asked[end] = like.flatten()
        expected += change(asked).view(-1, LIKE).mean(dim=1)
    return float(torch.nn.functional.cosine_similarity(moved, expected, dim=0))


def _reading(case: Case) -> Reading | None:
    """Nodes of the deletion and their neighbours, asked on both graphs: a model that keeps the old one inside changes nowhere."""
    after = case.after
    if after.model is None or not case.task.on_nodes or torch.equal(*_edges(case)):
        return None
    try:
        elsewhere = Subject.of_model("after", after.model, case.original, case.task, case.forward)
        base = with_base(case, after.graph)
        changes = []
        for ring, nodes in enumerate(rings(case)[:2]):
            nodes = case.sample(nodes[~torch.isin(nodes, case.deletion.nodes.cpu())], PAIR_LIMIT, 16 + ring)
            asked = _beside(case, nodes)
            sides = ((case.subjects["before"], base), (elsewhere, after))
            changes.append([float((_answers(a, asked) - _answers(b, asked)).abs().mean()) for a, b in sides])
    except (GNNDeleteError, IndexError, RuntimeError):  # a model that cannot run on the original graph any more
        return None
    known = [pair for pair in changes if all(math.isfinite(part) for part in pair)]
    if not known:
        return None
    # the ring where the served model changes most against the base model
    return Reading(*max(known, key=lambda pair: pair[1] / max(pair[0], 1e-12)))


def _beside_model(case: Case) -> float | None:
    """How many answers as served are not what the model gives, where a result has answers and a model."""
    after = case.after
    if after.model is None or case.unlearned.predictor is None:
        return None
    model = Subject.of_model("after", after.model, after.graph, case.task, case.forward)
    parts = (case.task.affected(case.deletion, case.original).cpu(), case.task.unseen(case.remaining, "test").cpu())
    elements = torch.cat([case.sample(part, PAIR_LIMIT, 19) for part in parts], dim=-1)
    served, known = (_answers(subject, elements).view(elements.size(-1), -1) for subject in (after, model))
    differs = (served - known).abs().amax(dim=1) > 1e-3 * (1e-12 + known.abs().amax(dim=1))
    return float(differs.double().mean())


def _edges(case: Case) -> tuple[Tensor, Tensor]:
    """Edges of both graphs; the same where nothing was cut."""
    return case.original.edge_index.cpu(), case.after.graph.edge_index.cpu()


def _beside(case: Case, nodes: Tensor) -> Tensor:
    """The nodes, or for a task about pairs each with a random other end."""
    if not case.task.pairwise:
        return nodes
    learned = case.task.learned_once(case.remaining).cpu()
    drawn = learned[:, torch.randint(learned.size(1), (nodes.numel(),), generator=case.generator(18))]
    return torch.stack([nodes, *drawn[1:]])


def _answers(subject: Subject, elements: Tensor) -> Tensor:
    return subject.predict(elements.to(subject.graph.edge_index.device)).detach().double().cpu()


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
