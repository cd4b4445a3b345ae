"""Users of a recommender: what it still says of deleted ones, and whether the lists of others suffer, group by group.

A deletion can be right on the mean of all users and still take the lists of one group apart: light users have few edges that
hold their rows in place, heavy users touch everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import QUERY_TITLES, number, share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.auditing.measures.utility import Skill
from gnndelete.auditing.queries import QueriedModel, ask
from gnndelete.graph.edge_table import Neighborhood, ends_of
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import edge_table
from gnndelete.metrics.lists import LENGTH, Lists, activity_groups, ndcg_of_each, overlap
from gnndelete.metrics.ranking import auc
from gnndelete.metrics.unseen_test import UnseenTest

#: Pairs of users and items that are scored for lists at most, and partners that a deleted user never had for each former one.
PAIRS, OTHERS = 1_000_000, 20
#: Users of a group, or of the neighbourhood, without which nothing is said of it.
FEWEST = 10
#: The names of the groups, by the number of their edges.
GROUPS = ("light", "medium", "heavy")

WHAT = (
    "The former partners of each deleted user (or item) are ranked for it among others that it never had: 0.5 means that the "
    "model knows nothing of them. Groups are thirds of the other users by their number of edges. Lists leave out known edges."
)


@dataclass(frozen=True)
class FormerPartners:
    """The AUC of former partners among others, for deleted nodes.

    Args:
        values: The mean over former pairs, within each deleted node, of each model.
        nodes: The number of deleted nodes.
        pairs: The number of former pairs.
        gap: The AUC minus the reference's.
        gap_error: The standard error of that; None where deleted nodes are too few to tell.
    """

    values: PerModel[float]
    nodes: int
    pairs: int
    gap: float | None = None
    gap_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class UsersSection(Section):
    """What is said of deleted users and to the others.

    Args:
        former: The former partners of deleted nodes, on each graph that can be asked.
        groups: NDCG of the lists of each group of other users.
        kept: The share of lists that is that of the reference (else of the model before), ``"near"`` the deletion and ``"far"``.
        kept_with: The model that lists are compared with.
    """

    former: dict[str, FormerPartners] = field(default_factory=dict)
    groups: dict[str, Skill] = field(default_factory=dict)
    kept: dict[str, PerModel[float]] = field(default_factory=dict)
    kept_with: str = "before"

    def tables(self, names: Names) -> Iterable[Table]:
        rows = [row(self.title_of(query), found.values, names) for query, found in self.former.items()]
        rows += [row(f"NDCG@{LENGTH} of {name} users", skill.values, names) for name, skill in self.groups.items()]
        other = names.get(self.kept_with, self.kept_with)
        titles = {"near": "near the deletion", "far": "elsewhere"}
        rows += [row(f"lists as {other} {titles[where]}", found, names, share) for where, found in self.kept.items()]
        if rows:
            yield Table(("users", *names.values()), tuple(rows), self.what)

    def title_of(self, query: str) -> str:
        """What the former partners on one graph are called."""
        return f"Former pairs of deleted nodes, AUC {QUERY_TITLES[query]} ({number(self.former[query].pairs)})"

    def key_rows(self, names: Names) -> Iterable[Row]:
        for query, found in self.former.items():
            yield row(self.title_of(query), found.values, names)


class Users(Measure):
    """What a recommender says of deleted users, and to each group of the others."""

    name: ClassVar[str] = "users"
    title: ClassVar[str] = "Users"

    def run(self, case: Case) -> UsersSection:
        lists = case.task.lists(case.remaining, test=False)
        if lists is None or ("edge_type" in case.remaining and not isinstance(case.remaining, HeteroGraph)):
            raise NotMeasuredError("it is about the two sides of a bipartite graph, such as users and items")
        groups, kept = _groups(case, lists), _kept(case, lists)
        former = _former(case) if case.deletion.nodes.numel() else {}
        if not (groups or kept or former):
            raise NotMeasuredError("too few users have test edges or remain near the deletion")
        return UsersSection(former=former, groups=groups, kept=kept, kept_with=_other(case), what=WHAT)


def _other(case: Case) -> str:
    """The model that others are compared with."""
    return "reference" if case.reference is not None else "before"


def _scores(subject: Subject, edges: Tensor) -> Tensor:
    return subject.predict(edges.to(subject.graph.edge_index.device)).detach().double().cpu().view(-1)


def _former(case: Case) -> dict[str, FormerPartners]:
    """How each model ranks the former partners of deleted nodes for them, on the graphs that it can be asked on."""
    lists = case.task.lists(case.original)
    assert lists is not None
    learned = lists.from_the_first_side(case.task.learned_once(case.original).cpu())
    gone = torch.zeros(int(case.original.num_nodes or 0), dtype=torch.bool).index_fill(
        0, case.deletion.nodes.cpu(), True
    )
    former = learned[:, gone[learned[0]] | gone[learned[-1]]]
    former = case.sample(former, PAIRS // OTHERS, 51)
    if not former.size(1):
        return {}
    by_second = gone[former[-1]] & ~gone[former[0]]  # an item was deleted: its partners are users
    others = former.repeat_interleave(OTHERS, dim=1)
    turned = by_second.repeat_interleave(OTHERS)
    for end, chosen in ((-1, ~turned), (0, turned)):
        pool = torch.unique(learned[end])
        drawn = torch.randint(pool.numel(), (int(chosen.sum()),), generator=case.generator(52 + end))
        others[end, chosen] = pool[drawn]
    never = ~lists.is_known(others)
    others, turned = others[:, never], turned[never]
    owners = [torch.where(each, pairs[-1], pairs[0]).numpy() for each, pairs in ((by_second, former), (turned, others))]
    strata = [(np.flatnonzero(owners[0] == node), np.flatnonzero(owners[1] == node)) for node in np.unique(owners[0])]
    strata = [(mine, theirs) for mine, theirs in strata if theirs.size]
    if not strata:
        return {}
    found = {}
    for query in ("served", "old_id"):
        tests = {}
        for name, subject in case.subjects.items():
            asked = QueriedModel(subject) if name == "before" else ask(case, query, subject)
            if asked.subject is None:
                continue
            scores = [_scores(asked.subject, asked.move(pairs)) for pairs in (former, others)]
            if all(bool(torch.isfinite(part).all()) for part in scores):
                tests[name] = UnseenTest(strata, scores[0], scores[1])
        if "after" in tests:
            gap = _gap(tests["after"], tests["reference"]) if "reference" in tests else (None, None)
            values = PerModel(**{name: test.auc for name, test in tests.items()})
            found[query] = FormerPartners(values, len(strata), former.size(1), *gap)
    return found


def _gap(after: UnseenTest, reference: UnseenTest) -> tuple[float, float | None]:
    """The difference of two AUC, and its error over deleted nodes: all pairs of a node share its row."""
    gap, count = after.auc - reference.auc, len(after.parts)
    if count < FEWEST:
        return gap, None
    each = np.array([auc(*mine) - auc(*theirs) for mine, theirs in zip(after.parts, reference.parts, strict=True)])
    return gap, float(np.sqrt((after.weights**2 * (each - gap) ** 2).sum() * count / (count - 1)))


def _groups(case: Case, lists: Lists) -> dict[str, Skill]:
    """NDCG of the lists of light, medium and heavy users that have test edges."""
    test = case.task.unseen(case.remaining, "test").cpu()
    if not test.size(1):
        return {}
    heads = case.sample(lists.heads(test), PAIRS // max(lists.pool.numel(), 1), 54)
    degree = torch.bincount(ends_of(case.task.learned_once(case.remaining).cpu()).flatten(), minlength=lists.num_nodes)
    found = {}
    for name, group in zip(GROUPS, activity_groups(degree[heads[0]]), strict=True):
        chosen = heads[:, group]
        if chosen.size(1) < FEWEST:
            continue
        each = {
            model: ndcg_of_each(lists.top(partial(_scores, subject), chosen), chosen, lists.from_the_first_side(test))
            for model, subject in case.subjects.items()
        }
        errors = {
            f"{model}_error": float((each["after"] - each[model]).std() / chosen.size(1) ** 0.5)
            for model in ("before", "reference")
            if model in each
        }
        values = PerModel(**{model: float(part.mean()) for model, part in each.items()})
        found[name] = Skill(f"ndcg@{LENGTH}", values, 0.0, 0.0, chosen.size(1), f"{name} users", **errors)
    return found


def _kept(case: Case, lists: Lists) -> dict[str, PerModel[float]]:
    """How much of the lists of users near the deletion, and of all others, is as in another model."""
    table = edge_table(case.original)
    rings = Neighborhood(table, case.original.edge_index).rings(case.deletion.named_nodes, 2)
    near = torch.zeros(lists.num_nodes, dtype=torch.bool).index_fill(0, torch.cat(rings).cpu(), True)
    heads = lists.heads(case.task.learned_once(case.remaining).cpu())
    found, other = {}, _other(case)
    for place, (where, chosen) in enumerate((("near", near[heads[0]]), ("far", ~near[heads[0]]))):
        some_heads = case.sample(heads[:, chosen], PAIRS // max(2 * lists.pool.numel(), 1), 55 + place)
        if some_heads.size(1) < FEWEST:
            continue
        tops = {name: lists.top(partial(_scores, subject), some_heads) for name, subject in case.subjects.items()}
        values = {name: float(overlap(top, tops[other]).mean()) for name, top in tops.items() if name != other}
        found[where] = PerModel(**values)
    return found
