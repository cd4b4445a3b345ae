"""What decides a verdict: `RULES`, one table that is read from top to bottom.

A rule looks at what the measures found and has an opinion or none. It *decides* (the first one that applies), *withdraws* a
good verdict, or *warns*. To add a rule, write a function and add a line to the table.

The codes of a verdict: ``ruined`` (judged first: a ruined model forgets everything, and that is worth nothing),
``under-forgotten``, ``over-forgotten``, ``indistinguishable`` (no difference seen) and ``undecided``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import label, sentence
from gnndelete.auditing.measures.base import PerModel, Section, Unmeasured
from gnndelete.auditing.measures.distance import DistanceSection
from gnndelete.auditing.measures.forgetting import ForgettingSection, QueryTest, UnseenAUC
from gnndelete.auditing.measures.integrity import IntegritySection
from gnndelete.auditing.measures.membership import MembershipSection
from gnndelete.auditing.measures.trend import TrendSection
from gnndelete.auditing.measures.utility import Skill, UtilitySection
from gnndelete.metrics.ranking import auc_variance
from gnndelete.notes import Note

#: Standard errors of a 95% interval.
Z95 = 1.96
#: Differences of the unseen AUC below this are called none.
TOLERANCE = 0.03
#: A test whose interval is wider than this on one side decides nothing.
RESOLUTION = 0.15
#: Fewer deleted elements than this decide nothing, whatever their scores.
DELETED_MINIMUM = 12
#: A smaller share of deleted elements with an unseen match is pointed out.
MATCHED_SHARE = 0.8
#: How far the AUC of an attack, which matches nothing, may be off without taking a good verdict away.
ATTACK_TOLERANCE = 0.1
#: Bits beyond sampling by which scores of deleted elements may differ from the reference's, although their ranks agree.
SPREAD_BITS = 0.1
#: And how many times further than scores of other elements: two trainings differ anyway.
SPREAD_FACTOR = 3.0
#: Bits beyond sampling by which scores of other elements may differ from the reference's before the reference is doubted.
REFERENCE_BITS = 0.2
#: A model that keeps less than this share of its skill above chance is ruined; near the deletion, less than the second.
SKILL_KEPT, SKILL_KEPT_NEAR = 0.75, 0.4
#: Skill above chance that a model must have had before its loss can be judged, and the smallest loss that can.
SKILL_MINIMUM = 0.02
#: A loss near the deletion that is worth a warning.
NEAR_LOSS = 0.05
#: Movement of deleted pairs, in spreads of the scores, below which nothing was moved at all.
MOVED = 0.02
#: The least share of that movement that pairs next to them must show.
MOVED_NEIGHBORS = 0.02

TITLES = {
    "ruined": "The model is ruined",
    "under-forgotten": "Under-forgotten: the deleted data can still be recognised",
    "over-forgotten": "Over-forgotten: the deleted data stand out by low scores",
    "undecided": "Undecided",
}
#: The graphs on which deleted elements may be asked about, in sentences.
QUERY_WORDS = {
    "served": "as served",
    "old_id": "presented again under their old ids",
    "new_id": "presented again under new ids",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict of an audit.

    Args:
        code: ``"ruined"``, ``"under-forgotten"``, ``"over-forgotten"``, ``"indistinguishable"`` or ``"undecided"``.
        title: One line for people.
        text: The reason.
        rule: The code of the rule that decided.
        warnings: What else a reader must know; each has the code of its rule.
        by_query: The code of the unseen test on each graph; None where it could not be asked.
        doubts: The graphs whose own verdict contradicts ``indistinguishable``.
    """

    code: str
    title: str
    text: str
    rule: str = ""
    warnings: tuple[Note, ...] = ()
    by_query: dict[str, str | None] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.code


@dataclass(frozen=True)
class Opinion:
    """What a rule says. A warning has no code of a verdict."""

    text: str
    code: str = ""


@dataclass(frozen=True)
class Findings:
    """What the measures found, for the rules; None for a section that was not measured."""

    utility: UtilitySection | None = None
    forgetting: ForgettingSection | None = None
    membership: MembershipSection | None = None
    trend: TrendSection | None = None
    distance: DistanceSection | None = None
    integrity: IntegritySection | None = None
    untested: str = ""  # why forgetting was not measured
    blank: bool = False  # nothing of the deleted elements is left as served, so that they are judged presented again
    adapter: bool = False
    num_classes: int = 2
    code: str = ""  # the verdict, for rules that warn

    @classmethod
    def of(cls, case: Case, sections: Mapping[str, Section]) -> Findings:
        missing = sections.get("forgetting")
        return cls(
            utility=_measured(sections, "utility", UtilitySection),
            forgetting=_measured(sections, "forgetting", ForgettingSection),
            membership=_measured(sections, "membership", MembershipSection),
            trend=_measured(sections, "trend", TrendSection),
            distance=_measured(sections, "distance", DistanceSection),
            integrity=_measured(sections, "integrity", IntegritySection),
            untested=missing.reason if isinstance(missing, Unmeasured) else "",
            blank=case.task.blank(case.deletion),
            adapter=case.unlearned.adapter is not None,
            num_classes=case.task.num_classes(case.original),
        )

    @property
    def headline(self) -> str | None:
        """The graph whose unseen test decides."""
        order = ("old_id", "served") if self.blank else ("served", "old_id")
        return next((name for name in order if self.forgetting and name in self.forgetting.unseen), None)


S = TypeVar("S", bound=Section)


def _measured(sections: Mapping[str, Section], name: str, kind: type[S]) -> S | None:
    section = sections.get(name)
    return section if isinstance(section, kind) else None


def judge_tests(case: Case, sections: Mapping[str, Section]) -> dict[str, Section]:
    """The same sections, where each unseen test has its own verdict."""
    forgetting = sections.get("forgetting")
    if not isinstance(forgetting, ForgettingSection):
        return dict(sections)
    retrained = case.unlearned.assurance == "retrained" and case.reference is None
    judged = {}
    for name, test in forgetting.unseen.items():
        opinion = judge(test)
        if retrained and opinion.code.endswith("-forgotten"):
            opinion = Opinion(f"{opinion.text} {_RETRAINED}", "undecided")
        judged[name] = replace(test, verdict=opinion.code, sentence=opinion.text)
    return {**sections, "forgetting": replace(forgetting, unseen=judged)}


_RETRAINED = (
    "But this model was retrained. Either the deleted elements are of another kind than the unseen ones, or the training began "
    "from something that knew them. A reference would decide."
)


def decide(found: Findings) -> Verdict:
    """Apply the table of rules."""
    rule, opinion = next(_opinions("decides", found))
    objections = _opinions("withdraws", found) if opinion.code == "indistinguishable" else iter(())
    for objecting, objection in islice(objections, 1):
        rule, opinion = objecting, Opinion(f"{opinion.text} But {objection.text}.", objection.code)
    code = opinion.code
    found = replace(found, code=code)
    warnings = [
        Note(warning.code, sentence(remark.text))
        for warning, remark in _opinions("warns", found)
        if code != "ruined" and warning.code != rule.code
    ]
    tests = found.forgetting.unseen if found.forgetting else {}
    by_query = (
        {name: tests[name].verdict if name in tests else None for name in QUERY_WORDS} if found.forgetting else {}
    )
    doubts = tuple(
        name
        for name in ("served", "old_id")
        if code == "indistinguishable" and by_query.get(name) in ("under-forgotten", "over-forgotten")
    )
    title = TITLES.get(code) or _good_title(tests, found.headline, doubts)
    return Verdict(code, title, opinion.text, rule.code, tuple(warnings), by_query, doubts)


def _opinions(effect: str, found: Findings) -> Iterator[tuple[Rule, Opinion]]:
    """The rules of one effect that apply, in the order of the table."""
    for rule in RULES:
        opinion = rule.check(found) if rule.effect == effect else None
        if opinion is not None:
            yield rule, opinion


def _good_title(tests: Mapping[str, QueryTest], query: str | None, doubts: tuple[str, ...]) -> str:
    assert query is not None
    claim = title(tests[query])
    if not doubts:
        return claim
    return f"{claim}, {QUERY_WORDS[query]}; but not {' or '.join(QUERY_WORDS[name] for name in doubts)}"


# The rules that decide ----------------------------------------------------------------------------------------------------


def model_ruined(found: Findings) -> Opinion | None:
    """Too much skill is lost, beyond chance."""
    for sign in _ruin_signs(found):
        if sign.sure:
            return Opinion(f"{sentence(sign.fact)[:-1]}: whatever it forgets, it no longer does its task.", "ruined")
    return None


def graph_holds_deleted(found: Findings) -> Opinion | None:
    """The served graph still has deleted elements."""
    count = found.integrity.still_there if found.integrity else 0
    if not count:
        return None
    return Opinion(f"The graph it is served on still holds {count:,} of the deleted elements.", "under-forgotten")


def only_scores_moved(found: Findings) -> Opinion | None:
    """Deleted pairs answer differently from the base model on the same graph, and pairs next to them do not."""
    moved = found.integrity.movement if found.integrity else None
    if moved is None or moved.deleted <= MOVED * moved.spread or moved.neighbors >= MOVED_NEIGHBORS * moved.deleted:
        return None
    text = (
        f"Only the reported scores of the deleted pairs were moved (by {moved.deleted:.3g} on average, pairs next to them by "
        f"{moved.neighbors:.3g}): what the model knows about their ends is unchanged."
    )
    return Opinion(text, "under-forgotten")


def by_unseen_test(found: Findings) -> Opinion | None:
    """The unseen test on the graph that counts: as served, or presented again where nothing is left as served."""
    if found.forgetting is None:
        return Opinion(f"Forgetting could not be tested: {found.untested}.", "undecided")
    if found.headline is None:
        return Opinion("No graph could be asked about the deleted elements.", "undecided")
    test = found.forgetting.unseen[found.headline]
    return Opinion(test.sentence, test.verdict)


# The rules that withdraw a good verdict -------------------------------------------------------------------------------------


def membership_differs(found: Findings) -> Opinion | None:
    """The membership attack tells deleted from test elements better or worse than it should.

    With a reference it should do as well as there. Without one it should not tell at all, but it compares elements of any
    kind, so that the tests can only be said to disagree.
    """
    section = found.membership
    if section is None or section.counts["deleted"] < DELETED_MINIMUM:
        return None
    reference = None if section.reference is None else section.reference.auc
    if reference is None and section.carry_messages:
        return None
    after, sizes = section.after.auc, (section.counts["deleted"], section.counts["test"])
    variance = auc_variance(after, *sizes) + (0.0 if reference is None else auc_variance(reference, *sizes))
    off = after - (0.5 if reference is None else reference)
    if abs(off) <= max(ATTACK_TOLERANCE, Z95 * math.sqrt(variance)):
        return None
    target = "0.5 if it could not tell" if reference is None else f"{reference:.3f} for the retrained model"
    text = f"the membership attack tells them from test elements with AUC {after:.3f}, against {target}"
    return Opinion(text, "undecided" if reference is None else "under-forgotten" if off > 0 else "over-forgotten")


def scores_spread_differently(found: Findings) -> Opinion | None:
    """Ranks agree with the reference's, but the distribution of scores does not."""
    deleted, others = _bits_beyond_sampling(found.distance)
    if found.distance is None or deleted <= max(SPREAD_BITS, SPREAD_FACTOR * others):
        return None
    part = found.distance.js["deleted"]
    text = (
        f"their scores are distributed differently than in the retrained model: {part.after:.2f} bits apart, of which sampling "
        f"explains {part.floor:.2f}; other elements are at most {others:.2f} bits beyond sampling"
    )
    return Opinion(text, "undecided")


def perhaps_ruined(found: Findings) -> Opinion | None:
    """Skill is lost, but the test elements are too few to be sure."""
    signs = _ruin_signs(found)
    if not signs or any(sign.sure for sign in signs):
        return None
    return Opinion(f"{signs[0].fact}; {signs[0].few} too few to say whether the model is ruined", "undecided")


# The rules that warn --------------------------------------------------------------------------------------------------------


def other_graph(found: Findings, query: str) -> Opinion | None:
    """The unseen test on another graph contradicts the verdict."""
    test = found.forgetting.unseen.get(query) if found.forgetting else None
    if test is None or test.verdict in ("indistinguishable", "undecided", found.code):
        return None
    text = f"Deleted elements {QUERY_WORDS[query]} are {test.verdict}. {test.sentence}"
    if found.adapter and query == "new_id":
        text += " This is to be expected: operators know rows, and the weights are unchanged."
    return Opinion(text)


def loss_near_deletion(found: Findings) -> Opinion | None:
    """The score has fallen around the deletion."""
    near = found.utility.near if found.utility else None
    if near is None or near.values.after is None:
        return None
    base = _lower(near.values)
    if base is None or base[1] - near.values.after <= NEAR_LOSS:
        return None
    return Opinion(
        f"The model got worse near the deletion: {label(near.metric)} {near.values.after:.3f} on {near.count:,} {near.what}, "
        f"{base[1]:.3f} before or retrained."
    )


def one_kind_differs(found: Findings) -> Opinion | None:
    """Deleted edges of one kind rank otherwise than in the retrained model, which the average over all hides."""
    test = found.forgetting.unseen.get("served") if found.forgetting else None
    for kind in test.kinds if test else ():
        sizes = kind.deleted, kind.unseen
        if kind.after is None or kind.reference is None or min(sizes) < DELETED_MINIMUM:
            continue
        error = Z95 * math.sqrt(auc_variance(kind.after, *sizes) + auc_variance(kind.reference, *sizes))
        if abs(kind.after - kind.reference) > max(ATTACK_TOLERANCE, error):
            return Opinion(
                f"Where {kind.kind} ({sizes[0]:,} of the deleted edges) the AUC is {kind.after:.3f}, and {kind.reference:.3f} "
                "for the retrained model: this kind is not forgotten as by retraining."
            )
    return None


def rankings_disagree(found: Findings) -> Opinion | None:
    """The comparisons with remaining and with unseen edges contradict each other."""
    ranking = found.forgetting.ranking.get("auroc") if found.forgetting else None
    if ranking is None or ranking.after is None or ranking.reference is None:
        return None
    off = ranking.after - ranking.reference  # above: deleted edges rank lower among remaining ones than they do there
    if not (off < -ATTACK_TOLERANCE if found.code == "over-forgotten" else off > ATTACK_TOLERANCE):
        return None
    if found.code not in ("over-forgotten", "under-forgotten"):
        return None
    return Opinion(
        f"Among remaining edges the deleted ones rank {'higher' if off < 0 else 'lower'} than in the retrained model (AUROC "
        f"{ranking.after:.3f}, there {ranking.reference:.3f}). The two comparisons contradict each other, and the unseen edges "
        "may be unlike the deleted ones."
    )


def trend_differs(found: Findings) -> Opinion | None:
    """The trend attack finds deleted edges much better, or worse, than in the retrained model."""
    section = found.trend
    if section is None or section.reference is None:
        return None
    after, reference = section.after.auc, section.reference.auc
    if abs(after - reference) <= ATTACK_TOLERANCE:
        return None
    return Opinion(
        f"The trend attack finds deleted edges with AUC {after:.3f}, against {reference:.3f} for the retrained model."
    )


def reference_differs(found: Findings) -> Opinion | None:
    """The reference answers differently about elements that nobody deleted."""
    others = _bits_beyond_sampling(found.distance)[1]
    if others <= REFERENCE_BITS:
        return None
    return Opinion(
        f"The reference also answers differently about elements that were not deleted ({others:.2f} bits beyond sampling). Two "
        "trainings of this model may differ so much by chance (another seed would show it), they were trained differently, or "
        "the deletion changed much else. A comparison with it says less."
    )


def trained_on_test(found: Findings) -> Opinion | None:
    """The model was trained on test elements."""
    text = found.integrity.overlap_sentence if found.integrity else ""
    return Opinion(text) if text else None


@dataclass(frozen=True)
class Rule:
    """One line of the table: the code of its note, what it does, and the function that has the opinion."""

    code: str
    effect: Literal["decides", "withdraws", "warns"]
    check: Callable[[Findings], Opinion | None]


RULES = (
    # The first of these that applies gives the verdict.
    Rule("model-ruined", "decides", model_ruined),  # ruined
    Rule("graph-holds-deleted", "decides", graph_holds_deleted),  # under-forgotten
    Rule("only-scores-moved", "decides", only_scores_moved),  # under-forgotten
    Rule("unseen-test", "decides", by_unseen_test),  # under-, over-forgotten, indistinguishable or undecided
    # Each of these takes "indistinguishable" away.
    Rule(
        "membership-differs", "withdraws", membership_differs
    ),  # under- or over-forgotten; undecided without reference
    Rule("scores-spread-differently", "withdraws", scores_spread_differently),  # undecided
    Rule("perhaps-ruined", "withdraws", perhaps_ruined),  # undecided
    # Each of these adds a warning, unless the model is ruined.
    Rule("served-differs", "warns", partial(other_graph, query="served")),
    Rule("old-id-differs", "warns", partial(other_graph, query="old_id")),
    Rule("new-id-differs", "warns", partial(other_graph, query="new_id")),
    Rule("loss-near-deletion", "warns", loss_near_deletion),
    Rule("perhaps-ruined", "warns", perhaps_ruined),
    Rule("one-kind-differs", "warns", one_kind_differs),
    Rule("rankings-disagree", "warns", rankings_disagree),
    Rule("trend-differs", "warns", trend_differs),
    Rule("reference-differs", "warns", reference_differs),
    Rule("test-overlap", "warns", trained_on_test),
)


# One unseen test ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """An AUC minus its target, and the half-width of its 95% interval towards no difference and away from it."""

    off: float
    towards: float
    away: float

    @classmethod
    def of(cls, test: QueryTest) -> Difference:
        """The difference to the reference's AUC with its error; without a reference, to 0.5 with the interval of the AUC.

        >>> Difference.of(QueryTest(graph="", after=UnseenAUC(0.6, 0.52, 0.7, 0.04, 900, 900)))
        Difference(off=0.1, towards=0.08, away=0.1)
        """
        if test.gap is not None and test.gap_error is not None:
            return cls(test.gap, test.gap_error, test.gap_error)
        after = judged_auc(test)
        kind = (_kind_auc(test) or 0.5) - 0.5  # a model that knows only the surroundings could be this far off
        off, below, above = (
            round(value, 9)
            for value in (
                after.auc - 0.5,
                math.hypot(after.auc - after.low, kind),
                math.hypot(after.high - after.auc, kind),
            )
        )
        return cls(off, below, above) if off > 0 else cls(off, above, below)

    @property
    def clear(self) -> bool:
        """Whether 0 lies outside the interval."""
        return abs(self.off) > self.towards

    @property
    def largest(self) -> float:
        """The largest true difference that the test could have missed."""
        return max(abs(self.off) + self.away, self.towards - abs(self.off), TOLERANCE)


def judged_auc(test: QueryTest) -> UnseenAUC:
    """The AUC that decides: without a reference the one adjusted for surroundings, where there is one.

    The reference answers about the same edges, so with it nothing has to be adjusted.
    """
    adjusted = test.adjusted.after if test.reference is None and test.adjusted is not None else None
    after = adjusted or test.after
    assert after is not None
    return after


def _kind_auc(test: QueryTest) -> float | None:
    """How well surroundings alone separate deleted from unseen edges, where that matters: without a reference."""
    return test.adjusted.kind_auc if test.reference is None and test.adjusted is not None else None


def judge(test: QueryTest) -> Opinion:
    """The verdict on one unseen test: by the reference's AUC where there is one, else by 0.5.

    >>> judge(QueryTest(graph="", after=UnseenAUC(0.62, 0.6, 0.64, 0.01, 900, 900))).code
    'under-forgotten'
    """
    after, reference = judged_auc(test), test.reference
    adjusted = test.adjusted if reference is None else None
    if reference is None:
        figures = f"AUC {_interval(after)}, against 0.5 for unseen data."
    else:
        assert test.gap is not None
        gap = f"{test.gap:+.3f} ± {test.gap_error:.3f}"
        figures = f"AUC {_interval(after)}, against {_interval(reference)} for the retrained model: {gap}."
    if after.matched < MATCHED_SHARE:
        figures += (
            f" Only {100 * after.matched:.1f}% of the deleted elements have unseen ones of their kind and were tested."
        )
    figures += f" {adjusted.how}" if adjusted is not None else ""

    if reference is None and test.unfair:
        return Opinion(f"Only a reference could decide this, because {test.unfair}: {figures}", "undecided")
    found = Difference.of(test)
    count = round(after.deleted * after.matched)
    if count < DELETED_MINIMUM:
        return Opinion(f"{_too_few(after, count)} too few to decide: {figures}", "undecided")
    # 0.5 has no error of its own, but an AUC that is truly 0.5 scatters around it by the standard error
    noise = Z95 * after.se if reference is None else 0.0
    if found.clear and abs(found.off) > max(TOLERANCE, noise):
        code, where, rank = (
            ("under-forgotten", "above", "higher") if found.off > 0 else ("over-forgotten", "below", "lower")
        )
        if reference is not None:
            text = f"Among matched unseen elements, deleted ones rank {rank} than in the retrained model"
            return Opinion(f"{text}: {figures}", code)
        text = f"Deleted elements score {where} matched unseen ones"
        target = adjusted.target if adjusted is not None else None
        if target is not None and abs(after.auc - target) <= max(TOLERANCE, noise):
            text += (
                f", but calibration took part of that for chance and aimed at {target:.3f}; a reference would decide"
            )
            return Opinion(f"{text}: {figures}", "undecided")
        return Opinion(f"{text}: {figures}", code)
    kind = _kind_auc(test)
    if kind is not None:
        text = (
            f"Deleted edges are of another kind than unseen ones (surroundings alone separate them, AUC {kind:.2f}), so a "
            "retrained model may be as far from 0.5; a reference would decide"
        )
        return Opinion(f"{text}: {figures}", "undecided")
    if max(found.towards, noise) > RESOLUTION:
        return Opinion(f"{_too_few(after, count)} too few to decide: {figures}", "undecided")
    if found.clear:
        text = f"The difference ({found.off:+.3f}) is below {TOLERANCE:g}, the smallest that counts"
    else:
        like = "like matched unseen ones" if reference is None else "as in the retrained model"
        text = f"Deleted elements score {like}, as far as this test can see"
    return Opinion(f"{text}: {figures}", "indistinguishable")


def title(test: QueryTest) -> str:
    """What the headline may claim of a test that saw no difference: from what, and how much it could have missed."""
    found = Difference.of(test)
    other = "data the model never saw" if test.reference is None else "a model trained without the data"
    if found.clear:
        return f"Next to no difference (below {TOLERANCE:g}) from {other}"
    return f"No difference seen from {other} (could have missed up to ±{found.largest:.2f})"


def _too_few(after: UnseenAUC, count: int) -> str:
    """Which side limits a test: ``count`` deleted elements were compared, with unseen ones of their kind.

    >>> _too_few(UnseenAUC(0.5, 0.4, 0.6, 0.05, 446, 5000, effective_unseen=7.2), 400)
    '7 unseen elements of the kind of the deleted ones are'
    """
    unseen = round(after.unseen if after.effective_unseen is None else after.effective_unseen)
    if count < DELETED_MINIMUM <= after.deleted:
        return f"Unseen elements of the kind of the deleted ones ({unseen:,}, for {count:,} of {after.deleted:,}) are"
    if unseen >= count:
        return "1 deleted element is" if count == 1 else f"{count:,} deleted elements are"
    kind = " of the kind of the deleted ones" if unseen < after.unseen else ""
    return f"1 unseen element{kind} is" if unseen == 1 else f"{unseen:,} unseen elements{kind} are"


def _interval(test: UnseenAUC) -> str:
    return f"{test.auc:.3f} (95% interval {test.low:.3f} to {test.high:.3f})"


# Ruin -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sign:
    """A sign of ruin: the fact, whether it is more than chance, and what there is too little of to be sure."""

    fact: str
    sure: bool
    few: str = ""


def _ruin_signs(found: Findings) -> list[_Sign]:
    """Skill lost on all test elements, one answer for all of them, and skill lost near the deletion."""
    if found.utility is None:
        return []
    metric, values = next(iter(found.utility.metrics.items()))
    if values.before is None:
        return []
    tested = found.utility.tested
    if values.after is None or (tested is not None and tested.values.after is None):
        return [_Sign("its answers are not finite", True)]
    if tested is None:  # a task without test elements of its own has a score, but no error
        chance = 0.5 if metric in ("auroc", "auprc") else 1 / found.num_classes
        tested = Skill(metric, values, chance, chance, 0, "")
    signs = (_lost_skill(metric, values, tested), _one_answer(tested), _lost_skill_near(found.utility.near))
    return [sign for sign in signs if sign is not None]


def _lost_skill(metric: str, values: PerModel[float], tested: Skill) -> _Sign | None:
    base, after = _lower(values), values.after
    if base is None or after is None or not _lost(after, base[1], tested, SKILL_KEPT):
        return None
    where = "before the deletion" if base[0] == "before" else "for the retrained model"
    sure = base[1] - after > Z95 * tested.error(base[0])
    return _Sign(
        f"its test {label(metric)} is {after:.3f}, {base[1]:.3f} {where}", sure, f"{tested.count:,} test elements are"
    )


def _one_answer(tested: Skill) -> _Sign | None:
    """All test elements get one class, which neither the truth nor another model gives them."""
    outside = tested.minority or {}
    others = [outside[name] for name in ("before", "reference") if name in outside]
    if outside.get("after") != 0 or not outside["true"] or not others or not min(others):
        return None
    least = min(others)
    few = f"{least:,} that had another class before {'are' if least > 1 else 'is'}"
    return _Sign(f"it gives all {tested.count:,} test elements the same class", least > Z95 * math.sqrt(least), few)


def _lost_skill_near(near: Skill | None) -> _Sign | None:
    if near is None:
        return None
    base, after = _lower(near.values), near.values.after
    if base is None or after is None or not _lost(after, base[1], near, SKILL_KEPT_NEAR):
        return None
    both = near.values.before is not None and near.values.reference is not None
    fact = (
        f"around the deletion its {label(near.metric)} is {after:.3f} on {near.count:,} {near.what}, {base[1]:.3f} before the "
        f"deletion{' or after retraining' if both else ''}"
    )
    return _Sign(fact, base[1] - after > Z95 * near.error(base[0]), "these are")


def _lower(values: PerModel[float]) -> tuple[str, float] | None:
    """The model whose score is to be kept, before the deletion or the retrained one, whichever is lower."""
    known = [(name, value) for name in ("before", "reference") if (value := values.get(name)) is not None]
    return min(known, key=lambda pair: pair[1]) if known else None


def _lost(after: float, base: float, skill: Skill, share: float) -> bool:
    """Less than a share of the skill is kept: above one answer for all, or above guessing where there was no more."""
    chance = next((value for value in (skill.constant, skill.chance) if base - value > SKILL_MINIMUM), None)
    return chance is not None and after - chance < share * (base - chance) and base - after > SKILL_MINIMUM


def _bits_beyond_sampling(distance: DistanceSection | None) -> tuple[float, float]:
    """Bits between a model and the reference beyond sampling: of deleted elements, and the most of any others."""
    over = {group: max(part.after - part.floor, 0.0) for group, part in (distance.js if distance else {}).items()}
    return over.pop("deleted", 0.0), max(over.values(), default=0.0)
