"""Lists: where an element stands among everything that a user could be shown instead.

Users of a recommender or a knowledge graph see the top of a list. There a model can lose half of its worth while its AUROC,
over pairs drawn at random, stays where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number, share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.auditing.measures.utility import Skill
from gnndelete.datasets.negatives import bipartite_sides
from gnndelete.graph.edge_table import ends_of

#: Edges of each kind whose place is found at most, and nodes that each is compared with.
EDGE_LIMIT, CANDIDATES = 400, 500
#: The length of a list as a user sees it.
TOP = 20

WHAT = (
    "Each edge is ranked among the pairs of its first node with {candidates} that its second could be; other known edges are "
    "left out (filtered). Where these are a sample, the rank is estimated."
)


@dataclass(frozen=True, kw_only=True)
class ListsSection(Section):
    """Ranks of test edges and of deleted ones.

    Args:
        mrr: The mean reciprocal rank of test edges, with its error. What users feel where ``decides``.
        hits: The share of test edges in the first `TOP` places.
        deleted: The share of deleted edges there.
        deleted_count: The number of deleted edges that were ranked.
        decides: Whether a loss here counts as a loss of utility: on typed and on bipartite graphs.
    """

    mrr: Skill | None
    hits: PerModel[float]
    deleted: PerModel[float] | None
    deleted_count: int = 0
    decides: bool = False

    def tables(self, names: Names) -> Iterable[Table]:
        rows = []
        if self.mrr is not None:
            rows.append(row("MRR of test edges, filtered", self.mrr.values, names))
            rows.append(row(f"test edges in the top {TOP}", self.hits, names, share))
        if self.deleted is not None:
            rows.append(row(f"deleted edges in the top {TOP}", self.deleted, names, share))
        yield Table(("lists", *names.values()), tuple(rows), self.what)

    def key_rows(self, names: Names) -> Iterable[Row]:
        if self.decides and self.mrr is not None:
            yield row("MRR of test edges, filtered", self.mrr.values, names)
        if self.deleted is not None:
            yield row(f"Deleted edges in the top {TOP} of a list", self.deleted, names, share)


class Lists(Measure):
    """Ranks among all possible answers, of test edges and of deleted ones."""

    name: ClassVar[str] = "lists"
    title: ClassVar[str] = "Lists"

    def run(self, case: Case) -> ListsSection:
        if not case.task.pairwise:
            raise NotMeasuredError(f"a list ranks edges, and the task predicts {case.task.noun}s")
        sides = bipartite_sides(case.original.edge_index, int(case.original.num_nodes))
        deleted = case.task.elements(case.deletion, case.original).cpu()
        deleted = deleted[:, ~torch.isin(ends_of(deleted), case.deletion.nodes.cpu()).any(dim=0)]
        chosen = {"test": case.task.unseen(case.remaining, "test").cpu(), "deleted": deleted}
        chosen = {name: case.sample(edges, EDGE_LIMIT, 41) for name, edges in chosen.items() if edges.size(1)}
        if not chosen:
            raise NotMeasuredError("there is neither a test edge nor a deleted one to rank")
        known = _known(case)
        ranks = {
            kind: {name: _ranks(case, subject, edges, known, sides) for name, subject in case.subjects.items()}
            for kind, edges in chosen.items()
        }
        listed = {
            kind: PerModel(**{name: float((found <= TOP).double().mean()) for name, found in by_model.items()})
            for kind, by_model in ranks.items()
        }
        pool = _pool(case, sides).numel()
        return ListsSection(
            mrr=_mrr(ranks["test"], pool) if "test" in ranks else None,
            hits=listed.get("test", PerModel()),
            deleted=listed.get("deleted"),
            deleted_count=chosen["deleted"].size(1) if "deleted" in chosen else 0,
            decides=sides is not None or case.original.get("edge_type") is not None,
            what=WHAT.format(candidates=number(min(pool, CANDIDATES))),
        )


def _mrr(ranks: dict[str, Tensor], pool: int) -> Skill:
    """Mean reciprocal ranks; their differences between two models have an error of their own."""
    inverse = {name: 1 / found for name, found in ranks.items() if bool(torch.isfinite(found).all())}
    count = next(iter(ranks.values())).numel()
    errors = {
        f"{name}_error": float((inverse["after"] - inverse[name]).std() / count**0.5)
        for name in ("before", "reference")
        if {"after", name} <= set(inverse)
    }
    guessing = float((1 / torch.arange(1, pool + 1)).mean())
    values = PerModel(**{name: float(found.mean()) for name, found in inverse.items()})
    return Skill("mrr", values, guessing, guessing, count, "test edges", **errors)


def _pool(case: Case, sides: Tensor | None) -> Tensor:
    """What the second node of an edge could be."""
    if sides is not None and case.original.get("edge_type") is None:
        return (sides == 1).nonzero().flatten()
    learned = case.task.learned(case.original).cpu()
    return torch.unique(learned[-1])


def _known(case: Case) -> Tensor:
    """Keys of all true edges, in both directions where the graph has both."""
    parts = [case.task.learned(case.original).cpu()]
    parts += [case.task.unseen(case.original, part).cpu() for part in ("validation", "test")]
    edges = torch.cat([part for part in parts if part.size(1)], dim=1)
    return (
        torch.unique(torch.cat([_key(case, edges), _key(case, edges.flip(0))]))
        if edges.size(0) == 2
        else _key(case, edges)
    )


def _key(case: Case, edges: Tensor) -> Tensor:
    nodes = int(case.original.num_nodes)
    relation = edges[1] if edges.size(0) == 3 else 0
    return (relation * nodes + edges[0]) * nodes + edges[-1]


def _ranks(case: Case, subject: Subject, edges: Tensor, known: Tensor, sides: Tensor | None) -> Tensor:
    """The rank of each edge, estimated from a sample of candidates; ties count half."""
    if sides is not None and edges.size(0) == 2:
        edges = torch.where(sides[edges[0]] == 0, edges, edges.flip(0))
    pool = _pool(case, sides)
    candidates = case.sample(pool, CANDIDATES, 42)
    other = edges.repeat_interleave(candidates.numel(), dim=1)
    other[-1] = candidates.repeat(edges.size(1))
    own, scores = (
        subject.predict(part.to(subject.graph.edge_index.device)).detach().double().cpu().view(edges.size(1), -1)
        for part in (edges, other)
    )
    counted = ~torch.isin(_key(case, other), known).view_as(scores)
    above = ((scores > own).double() + (scores == own).double() / 2) * counted
    ranks = 1 + above.sum(dim=1) * pool.numel() / candidates.numel()
    return torch.where(torch.isfinite(own.view(-1)) & torch.isfinite(scores).all(dim=1), ranks, torch.inf)
