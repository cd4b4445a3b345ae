"""Lists: the rank of test edges and of deleted ones among everything that a user could be shown instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number, share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.auditing.measures.utility import Skill
from gnndelete.graph.edge_table import ends_of
from gnndelete.metrics.lists import CANDIDATES

#: Edges of each kind that are ranked at most.
EDGE_LIMIT = 400
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
        lists = case.task.lists(case.original, shown=False)
        if lists is None:
            raise NotMeasuredError(f"a list ranks edges, and the task predicts {case.task.noun}s")
        deleted = case.task.elements(case.deletion, case.original).cpu()
        deleted = deleted[:, ~torch.isin(ends_of(deleted), case.deletion.nodes.cpu()).any(dim=0)]
        chosen = {"test": case.task.unseen(case.remaining, "test").cpu(), "deleted": deleted}
        chosen = {name: case.sample(edges, EDGE_LIMIT, 41) for name, edges in chosen.items() if edges.size(1)}
        if not chosen:
            raise NotMeasuredError("there is neither a test edge nor a deleted one to rank")
        ranks = {
            kind: {name: lists.ranks(_scores(subject), edges) for name, subject in case.subjects.items()}
            for kind, edges in chosen.items()
        }
        listed = {
            kind: PerModel(**{name: float((found <= TOP).double().mean()) for name, found in by_model.items()})
            for kind, by_model in ranks.items()
        }
        pool = lists.pool.numel()
        return ListsSection(
            mrr=_mrr(ranks["test"], pool) if "test" in ranks else None,
            hits=listed.get("test", PerModel()),
            deleted=listed.get("deleted"),
            deleted_count=chosen["deleted"].size(1) if "deleted" in chosen else 0,
            decides=lists.decide,
            what=WHAT.format(candidates=number(min(pool, CANDIDATES))),
        )


def _scores(subject: Subject) -> Callable[[Tensor], Tensor]:
    return lambda edges: subject.predict(edges.to(subject.graph.edge_index.device))


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
