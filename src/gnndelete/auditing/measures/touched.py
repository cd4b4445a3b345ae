"""Touched nodes: can what was deleted be told by its nodes, even without asking about it?

A deletion that shrinks, smooths or overwrites rows near it can bring every deleted element to the right score and still
leave a mark on these nodes. A classifier that need not be monotone looks for it: boosted trees, cross-validated on the
deleted elements themselves, which is more than an attacker has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.auditing.queries import with_base
from gnndelete.auditing.samples import compared, node_rows, touched
from gnndelete.graph.edge_table import ends_of
from gnndelete.metrics.marks import (
    EDGE_LIMIT,
    FOLDS,
    PARTNERS,
    Answers,
    class_features,
    edge_features,
    node_features,
    tell_apart,
)
from gnndelete.metrics.ranking import Floats
from gnndelete.metrics.unseen_test import UnseenTest, degrees

#: Elements of each kind that are examined at most, and the fewest of which a classifier can learn anything.
ELEMENT_LIMIT, ELEMENT_MINIMUM = 1_000, 40
#: Where nothing tells the groups, cross-validated AUC scatter below 0.5. A lower one is not taken for what to expect.
LEAST_EXPECTED = 0.45
#: How far the two AUC of a model may be above those it is compared with, as long as they are within their error.
MARK = 0.05
#: Standard errors that a mark must be above.
SURE = 1.96
#: The parts of a cross-validation learn from the same elements, so that their mean is less certain than the elements alone say
#: (Nadeau and Bengio 2003): by the share of what is tested in what is learned from.
LEARNED_TWICE = math.sqrt(1 + FOLDS / (FOLDS - 1))

WHAT = (
    "Boosted trees, cross-validated, try to tell {groups}. 'Ends alone' reads what a model says of the nodes without the pair "
    "being asked: length of their rows, level and spread of their scores with {partners} others, agreement with their "
    "neighbours, degree. 'With the score' also reads the answer about the pair. Deleted elements differ in kind from others in "
    "any model, so only the gap to the retrained model counts, or to the model before the deletion on the same graph."
)


@dataclass(frozen=True)
class Gap:
    """An AUC minus that of the model it is compared with, and the standard error of the difference."""

    value: float
    error: float

    @property
    def marked(self) -> bool:
        """Whether it is above the limit and its own error."""
        return self.value > max(MARK, SURE * self.error)

    @property
    def unclear(self) -> bool:
        """Whether it is above the limit but not above its error."""
        return not self.marked and self.value > MARK


@dataclass(frozen=True, kw_only=True)
class TouchedSection(Section):
    """How well a classifier tells touched from untouched.

    Args:
        ends: The AUC by the nodes alone.
        pairs: The AUC with the score of the element itself; None where nodes are the elements.
        unlink: Both AUC of the model before the deletion on the graph as served.
        against: What ``after`` is compared with: ``"reference"`` or ``"unlink"``.
        ends_gap: The gap of the first AUC; None where there is nothing to compare with.
        pairs_gap: The gap of the second AUC; only a reference shows what to expect of it.
        counts: Elements of each group.
    """

    ends: PerModel[float]
    pairs: PerModel[float] | None = None
    unlink: dict[str, float]
    against: str
    ends_gap: Gap | None = None
    pairs_gap: Gap | None = None
    counts: dict[str, int]

    def tables(self, names: Names) -> Iterable[Table]:
        shown = [("ends alone", self.ends, self.unlink.get("ends"))]
        if self.pairs is not None:
            shown.append(("with the score", self.pairs, self.unlink.get("pairs")))
        rows = tuple((*row(title, values, names), number(unlink)) for title, values, unlink in shown)
        yield Table(("AUC, touched against untouched", *names.values(), "before, as served"), rows)

    def key_rows(self, names: Names) -> Iterable[Row]:
        yield row("Touched nodes, AUC by the ends alone", self.ends, names)


class Touched(Measure):
    """Cross-validated attacks on touched nodes, compared with the reference's and with those on plain cutting."""

    name: ClassVar[str] = "touched"
    title: ClassVar[str] = "Touched nodes"

    def run(self, case: Case) -> TouchedSection:
        first, second, groups = _groups(case)
        if min(first.size(-1), second.size(-1)) < ELEMENT_MINIMUM:
            few = f"{first.size(-1)} and {second.size(-1)} of them are too few for a classifier to learn from"
            raise NotMeasuredError(f"the attack tells {groups}, and {few}")
        subjects = {"after": case.after, **case.references}
        if case.after.model is not None:
            subjects["unlink"] = with_base(case, case.remaining)
        tests: dict[str, dict[str, UnseenTest]] = {}
        for name, subject in subjects.items():
            features = _features(case, subject, torch.cat([first, second], dim=-1))
            if not all(np.isfinite(part).all() for part in features.values()):
                raise NotMeasuredError("a model gives NaN or infinite answers, so that nothing can be compared")
            if name == "unlink" and "reference" in subjects:  # shown beside the reference, which decides
                features = {"ends": features["ends"]}
            tests[name] = {kind: tell_apart(part, first.size(-1), case.seed) for kind, part in features.items()}
        against = "reference" if "reference" in tests else "unlink"
        gaps: dict[str, Any] = {}
        for kind in ("ends", "pairs"):
            known = against in tests and kind in tests[against]
            if known and (kind == "ends" or against == "reference"):
                others = [part[kind] for name, part in tests.items() if name == against or name in case.references]
                value, error = tests["after"][kind].against(*others)
                below = max(LEAST_EXPECTED - (tests["after"][kind].auc - value), 0.0)
                gaps[f"{kind}_gap"] = Gap(value - below, error * LEARNED_TWICE)
        aucs: dict[str, Any] = {
            kind: PerModel(**{name: part[kind].auc for name, part in tests.items() if name in case.subjects})
            for kind in tests["after"]
        }
        after, other = tests["after"]["ends"].auc, tests.get(against, {}).get("ends")
        where = "in the retrained model" if against == "reference" else "before the deletion on the same graph"
        sentence = f"A classifier tells {groups} by their nodes alone with AUC {after:.3f}"
        return TouchedSection(
            **aucs,
            **gaps,
            unlink={kind: test.auc for kind, test in tests.get("unlink", {}).items()},
            against=against,
            counts={"touched": first.size(-1), "untouched": second.size(-1)},
            sentence=f"{sentence}." if other is None else f"{sentence}, {other.auc:.3f} {where}.",
            what=WHAT.format(groups=groups, partners=PARTNERS),
        )


def _groups(case: Case) -> tuple[Tensor, Tensor, str]:
    """Deleted and unseen edges between nodes that remain; else nodes beside the deletion and others of like degree."""
    if not case.task.on_nodes:
        raise NotMeasuredError(
            "the attack reads what a model says of single nodes, and this one answers for whole graphs"
        )
    if case.deleted_edges.size(1):
        deleted, unseen = compared(case)
        deleted = deleted[:, ~torch.isin(ends_of(deleted), case.deletion.nodes.cpu()).any(dim=0)]
        sampled = [case.sample(part, ELEMENT_LIMIT, 31 + place) for place, part in enumerate((deleted, unseen))]
        return sampled[0], sampled[1], "deleted edges from unseen ones"
    if not case.task.pairwise and not case.deletion.nodes.numel() and case.deletion.labels.numel():
        sampled = [case.sample(part, ELEMENT_LIMIT, 31 + place) for place, part in enumerate(compared(case))]
        return sampled[0], sampled[1], "nodes with deleted labels from ones whose labels were never seen"
    near, far = touched(case)
    degree = degrees(case.original).cpu()
    if near.numel():
        far = far[(degree[far] >= degree[near].min()) & (degree[far] <= degree[near].max())]
    sampled = [case.sample(part, ELEMENT_LIMIT, 31 + place) for place, part in enumerate((near, far))]
    return sampled[0], sampled[1], "nodes beside the deletion from others of like degree"


def _features(case: Case, subject: Subject, elements: Tensor) -> dict[str, Floats]:
    """What the classifier reads of each element: of its nodes alone, and with the score of the element."""
    z = node_rows(subject, int(case.original.num_nodes))
    rows = None if z is None else z.double().cpu()
    if not case.task.pairwise:
        return {"ends": _of_classes(case, subject, rows, elements)}

    def scores(pairs: Tensor) -> Tensor:
        return subject.predict(pairs.to(subject.graph.edge_index.device)).detach().double().cpu().view(-1)

    learned = case.task.learned_once(case.remaining).cpu()
    answers = Answers(scores, rows, learned, int(case.original.num_nodes), case.seed)
    if elements.dim() == 2:
        return edge_features(answers, elements)
    relation = [learned[1, :1].expand(elements.numel())] if learned.size(0) == 3 else []
    return {"ends": node_features(answers, torch.stack([elements, *relation]))}


def _of_classes(case: Case, subject: Subject, rows: Tensor | None, nodes: Tensor) -> Floats:
    """What the classifier reads of nodes of a classifier."""
    edges = ends_of(case.remaining.edge_index.cpu())
    edges = case.sample(edges[:, torch.isin(edges, nodes).any(dim=0)], EDGE_LIMIT, 34)
    asked = torch.unique(torch.cat([nodes, edges.flatten()]))
    chances = torch.zeros(int(case.original.num_nodes), case.task.num_classes(case.original), dtype=torch.double)
    found = subject.predict(asked.to(subject.graph.edge_index.device)).detach().double().cpu()
    chances[asked] = case.task.probabilities(found)
    return class_features(chances, rows, nodes, edges, degrees(case.remaining).cpu())
