"""Forgetting: the paper's ranking of deleted below remaining edges, and the unseen test on every graph one may ask on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import DASH, QUERY_TITLES, label, number, share, verdict_words
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Section, Table, row
from gnndelete.auditing.queries import QUERIES, UNSEEN_PRESENTED, Move, ask, presents_unseen
from gnndelete.auditing.samples import compared
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.validation import edge_table
from gnndelete.metrics.edge_matching import match_edges
from gnndelete.metrics.unseen_test import CLASS_QUANTILES, UnseenTest, degrees, edge_strata, unseen_test

NOT_FINITE = "some answers are not finite"


@dataclass(frozen=True)
class UnseenAUC:
    """The unseen AUC of one model with its 95% interval.

    ``se`` is the standard error if deleted and unseen elements score alike, ``plain_auc`` the AUC without matching,
    ``matched`` the share of deleted elements with an unseen match, ``effective_unseen`` the number of unseen elements that
    would give the same error without strata.
    """

    auc: float
    low: float
    high: float
    se: float
    deleted: int
    unseen: int
    matched: float = 1.0
    plain_auc: float | None = None
    effective_unseen: float | None = None

    @classmethod
    def of(cls, test: UnseenTest, seed: int) -> UnseenAUC:
        low, high = test.interval(seed)
        return cls(
            auc=test.auc,
            low=low,
            high=high,
            se=test.standard_error,
            deleted=test.deleted,
            unseen=test.unseen,
            matched=test.matched,
            plain_auc=test.plain_auc,
            effective_unseen=test.effective_unseen,
        )


def interval(test: UnseenAUC | None) -> str:
    r"""The AUC with its 95% interval, which no line break divides.

    >>> interval(UnseenAUC(0.512, 0.493, 0.531, 0.01, 900, 900))
    '0.512 [0.493,\xa00.531]'
    """
    return DASH if test is None else f"{number(test.auc)} [{number(test.low)},\u00a0{number(test.high)}]"


@dataclass(frozen=True, kw_only=True)
class AdjustedTest(PerModel[UnseenAUC]):
    """The test once more with edges compared by their surroundings, as calibration does.

    Args:
        how: The sentence that says what was adjusted for.
        kind_auc: The AUC by which surroundings alone separate deleted from unseen edges; None where it is not above chance.
        target: The AUC that calibration took for forgotten.
    """

    how: str
    kind_auc: float | None = None
    target: float | None = None


@dataclass(frozen=True, kw_only=True)
class QueryTest(PerModel[UnseenAUC]):
    """The unseen test on one graph.

    Args:
        graph: What the graph is.
        unfair: Why only a reference shows what to expect here; empty where 0.5 is to be expected.
        gap: The AUC minus the reference's, or the mean of several, and ``gap_error`` the half-width of its 95% interval.
        references: The AUC of every reference, where there are several.
        adjusted: The test adjusted for surroundings.
        verdict: The code of the verdict on this test, and ``sentence`` the reason for it.
    """

    graph: str
    unfair: str = ""
    gap: float | None = None
    gap_error: float | None = None
    references: tuple[float, ...] = ()
    adjusted: AdjustedTest | None = None
    verdict: str = ""
    sentence: str = ""

    def table(self, query: str, names: Names) -> Table:
        """The test as a table."""
        rows = [row("AUC [95% interval]", self, names, interval)]
        if self.adjusted is not None:
            rows.append(row("AUC, adjusted for surroundings", self.adjusted, names, interval))
        rows.append(row("standard error", self, names, lambda test: number(test and test.se)))
        rows.append(row("AUC without matching", self, names, lambda test: number(test and test.plain_auc)))
        parts = [f"{verdict_words(self.verdict).capitalize()}." if self.verdict else "", self.graph, self.sentence]
        if self.gap is not None and "reference" in names:
            error = "" if self.gap_error is None else f" ± {number(self.gap_error)}"
            parts.append(f"Gap to {names['reference']}: {self.gap:+.3f}{error}.")
        if self.references:
            parts.append(f"AUC of {len(self.references)} retrained models: {number(list(self.references))}.")
        if self.after is not None:
            parts.append(
                f"{number(self.after.deleted)} deleted against {number(self.after.unseen)} unseen elements, "
                f"{share(self.after.matched)} of the deleted with a match."
            )
        title = f"unseen test, {QUERY_TITLES[query]}"
        return Table((title, *names.values()), tuple(rows), " ".join(part for part in parts if part))


@dataclass(frozen=True, kw_only=True)
class ForgettingSection(Section):
    """The deleted AUROC of the paper, and the unseen test by query; ``not_asked`` has the reason for each missing query."""

    ranking: dict[str, PerModel[float]]
    unseen: dict[str, QueryTest]
    not_asked: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        missing = {name: {"available": False, "reason": reason} for name, reason in values.pop("not_asked").items()}
        measured = {name: {"available": True, **test} for name, test in values["unseen"].items()}
        return values | {"unseen": {name: (missing | measured)[name] for name in QUERIES}}

    def tables(self, names: Names) -> Iterable[Table]:
        if self.ranking:
            rows = tuple(row(label(key), values, names) for key, values in self.ranking.items())
            caption = "The paper's deleted AUROC (E_d). It rewards suppression."
            yield Table(("remaining above deleted", *names.values()), rows, caption)
        for query in QUERIES:
            if query in self.unseen:
                yield self.unseen[query].table(query, names)
            else:
                title = f"unseen test, {QUERY_TITLES[query]}"
                yield Table((title,), ((f"Not measured: {self.not_asked[query]}.",),))

    def key_rows(self, names: Names) -> Iterable[Row]:
        for query, test in self.unseen.items():
            yield row(f"Unseen AUC, {QUERY_TITLES[query]} (0.5: like unseen)", test, names, interval)
            if test.adjusted is not None:
                decides = "" if "reference" in names else " (decides)"
                yield row(f"… adjusted for surroundings{decides}", test.adjusted, names, interval)
        for key, values in list(self.ranking.items())[:1]:
            yield row(f"Deleted {label(key)} (E_d): remaining above deleted", values, names)


class Forgetting(Measure):
    """Can deleted elements be told from elements that the model never trained on?"""

    name: ClassVar[str] = "forgetting"
    title: ClassVar[str] = "Forgetting"

    def run(self, case: Case) -> ForgettingSection:
        reason = why_untestable(case)
        if reason:
            raise NotMeasuredError(reason)
        tests: dict[str, QueryTest] = {}
        reasons: dict[str, str] = {}
        for offset, query in enumerate(QUERIES):
            try:
                tests[query] = _query(case, query, case.seed + offset)
            except NotMeasuredError as missing:
                reasons[query] = str(missing)
        return ForgettingSection(ranking=_ranking(case), unseen=tests, not_asked=reasons)


def why_untestable(case: Case) -> str:
    """Why deleted elements cannot be compared with unseen ones; empty where they can."""
    reason = case.task.unscored(case.deletion, case.original)
    if reason or case.task.unseen(case.remaining, "test").numel():
        return reason
    return case.task.no_unseen("test")


def _ranking(case: Case) -> dict[str, PerModel[float]]:
    """E_d of the paper: remaining edges above as many deleted ones."""
    found: dict[str, dict[str, float]] = {}
    for name, subject in case.subjects.items():
        try:
            values = case.task.rank_deleted(subject.predict, case.deletion, case.remaining, seed=case.seed)
        except GNNDeleteError:  # answers that are not finite rank nothing
            continue
        for key, value in values.items():
            found.setdefault(key, {})[name] = value
    return {key: PerModel(**values) for key, values in found.items()}


def _query(case: Case, query: str, seed: int) -> QueryTest:
    if query == "served" and (reason := case.task.no_served_answer(case.deletion)):
        raise NotMeasuredError(reason)
    if query == "served" and case.task.blank(case.deletion) and _answers_are_one(case):
        raise NotMeasuredError(
            "deleted elements are blank as served and all get one answer; they are presented again below"
        )
    tests: dict[str, UnseenTest] = {}
    reason = NOT_FINITE
    for name, subject in {**case.subjects, **case.references}.items():
        queried = ask(case, query, subject)
        if queried.subject is not None:
            test = measure_unseen(case, queried.subject, queried.move)
            tests |= {name: test} if test is not None else {}
        elif name == "after":
            reason = queried.reason
    if "after" not in tests:
        raise NotMeasuredError(reason)
    unfair = case.task.incomparable(case.deletion, query == "served")
    if query != "served" and not presents_unseen(case):
        unfair = "unseen edges have no attributes and cannot be presented like deleted ones"
    presented = query != "served" and not unfair and case.task.pairwise
    models: dict[str, Any] = {name: UnseenAUC.of(test, seed) for name, test in tests.items() if name in case.subjects}
    found = QueryTest(
        **models,
        graph=f"{QUERIES[query]} {UNSEEN_PRESENTED}" if presented else QUERIES[query],
        unfair=unfair,
    )
    others = [test for name, test in tests.items() if name in case.references]
    if "reference" in tests:
        gap, error = tests["after"].against(*others)
        aucs = tuple(test.auc for test in others) if len(others) > 1 else ()
        found = replace(found, gap=gap, gap_error=1.96 * error, references=aucs)
    if query != "served" or not case.deleted_edges.size(1):
        return found
    return replace(found, adjusted=_adjusted(case, {name: tests[name] for name in models}))


def _answers_are_one(case: Case) -> bool:
    """Whether every deleted element gets the same answer as served, up to rounding: then nothing is told by it."""
    answers = case.after.predict(compared(case)[0]).detach().double().cpu()
    return bool((answers - answers[:1]).abs().max() <= 1e-5 * answers.abs().max()) if answers.numel() else False


def _adjusted(case: Case, tests: dict[str, UnseenTest]) -> AdjustedTest | None:
    """Edges of another kind than the unseen ones score differently in any model, retrained or not."""
    matching = match_edges(case.remaining, *compared(case))
    if not matching.how:
        return None
    found: dict[str, Any] = {
        name: UnseenAUC.of(matching.test(*(torch.from_numpy(part) for part in test.scores)), case.seed)
        for name, test in tests.items()
    }
    kind_auc = None if matching.regression is None else matching.regression.kind_auc()
    target = (case.unlearned.calibration or {}).get("target")
    return AdjustedTest(**found, how=matching.how, kind_auc=kind_auc, target=target)


def adjusted_tests(case: Case, subjects: Mapping[str, Subject]) -> dict[str, UnseenTest]:
    """The unseen test of some models as served, adjusted for surroundings where that applies."""
    tests = {name: test for name, subject in subjects.items() if (test := measure_unseen(case, subject)) is not None}
    matching = match_edges(case.remaining, *compared(case)) if case.deleted_edges.size(1) else None
    if matching is None or not matching.how:
        return tests
    return {name: matching.test(*(torch.from_numpy(part) for part in test.scores)) for name, test in tests.items()}


def measure_unseen(case: Case, subject: Subject, move: Move = lambda elements: elements) -> UnseenTest | None:
    """Deleted against test elements in the answers of one model; None where some are not finite."""
    deleted, unseen = compared(case)
    if case.task.pairwise:
        scores = [subject.predict(move(part)) for part in (deleted, unseen)]
        strata = _edge_strata(case, deleted, unseen) | {"ends": (ends_of(deleted), ends_of(unseen))}
    else:
        true = [case.task.classes(case.original, part).cpu() for part in (deleted, unseen)]
        answers = [subject.predict(move(part)).detach().double().cpu() for part in (deleted, unseen)]
        scores = [answer.gather(1, kind.view(-1, 1)).view(-1) for answer, kind in zip(answers, true, strict=True)]
        size = _size(case)
        strata = {
            "degree_deleted": size[deleted],
            "degree_unseen": size[unseen],
            "kind_deleted": true[0],
            "kind_unseen": true[1],
            "bins": CLASS_QUANTILES,
            "adaptive": True,
        }
    if not all(bool(torch.isfinite(part).all()) for part in scores):
        return None
    return unseen_test(scores[0], scores[1], **strata)


def _edge_strata(case: Case, deleted: Tensor, unseen: Tensor) -> dict[str, Any]:
    """Degrees in the remaining graph, which has neither kind. Edges of deleted nodes have lost an end there."""
    if case.deletion.edges.size(1):
        return edge_strata(degrees(case.remaining).cpu(), deleted, unseen)
    degree = degrees(case.original).cpu()
    itself = 1.0 if deleted.size(0) == 3 or edge_table(case.original).undirected else 0.5
    ends = (degree[ends_of(deleted)] - itself).clamp(min=0)  # without the edge itself, as for unseen ones
    found = {
        "degree_deleted": (ends + 1).log().mean(dim=0),
        "degree_unseen": edge_strata(degree, deleted, unseen)["degree_unseen"],
    }
    if deleted.size(0) == 3:
        found |= {"kind_deleted": deleted[1], "kind_unseen": unseen[1]}
    return found


def _size(case: Case) -> Tensor:
    """What elements of one class are further matched by: the degree of nodes, the size of graphs."""
    return (case.original.sizes if isinstance(case.original, GraphBatch) else degrees(case.original)).cpu()
