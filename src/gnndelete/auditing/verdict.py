"""What decides a verdict: `RULES`, one table that is read from top to bottom.

A rule looks at what the measures found and has an opinion or none. It *decides* (the first one that applies), *withdraws* a
good verdict, or *warns*. To add a rule, write a function and add a line to the table.

The codes of a verdict: ``ruined`` (judged first: a ruined model forgets everything, and that is worth nothing),
``under-forgotten``, ``over-forgotten``, ``indistinguishable`` (no difference seen), ``marked`` (scores are right, and the nodes
of the deletion can be told by other means) and ``undecided``. Where suppression was asked for (``aim="nonexistent"``):
``suppressed`` or ``missed``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import close, label, sentence, share
from gnndelete.auditing.measures.base import Section, Unmeasured
from gnndelete.auditing.measures.distance import DistanceSection
from gnndelete.auditing.measures.forgetting import ForgettingSection, QueryTest, UnseenAUC
from gnndelete.auditing.measures.integrity import IntegritySection
from gnndelete.auditing.measures.lists import TOP, ListsSection
from gnndelete.auditing.measures.membership import AttackSection, MembershipSection
from gnndelete.auditing.measures.reference import ReferenceSection
from gnndelete.auditing.measures.touched import TouchedSection
from gnndelete.auditing.measures.trend import TrendSection
from gnndelete.auditing.measures.users import UsersSection
from gnndelete.auditing.measures.utility import Skill, UtilitySection
from gnndelete.auditing.measures.weights import WeightsSection
from gnndelete.auditing.measures.whitebox import WhiteBoxSection
from gnndelete.metrics.ranking import auc_variance
from gnndelete.metrics.unseen_test import spread_of_trainings
from gnndelete.metrics.whitebox import CORRELATION
from gnndelete.notes import Note

#: Standard errors of a 95% interval, and those beyond which a difference is called one: several tests look at each result,
#: and of a hundred that were trained again few should be called different.
Z95, SURE = 1.96, 2.58
#: Differences of the unseen AUC below this are called none.
TOLERANCE = 0.03
#: A test whose interval is wider than this on one side decides nothing.
RESOLUTION = 0.15
#: Fewer deleted elements than this decide nothing, whatever their scores.
DELETED_MINIMUM = 12
#: A smaller share of deleted elements with an unseen match is pointed out.
MATCHED_SHARE = 0.8
#: How far the AUC of an attack may be from the reference's without taking a good verdict away; without a reference from 0.5,
#: since it matches nothing.
ATTACK_TOLERANCE, ALONE_TOLERANCE = 0.05, 0.1
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
#: A loss near the deletion that is worth a warning, and a loss on all test elements that the title tells.
NEAR_LOSS, TITLE_LOSS = 0.05, 0.02
#: A loss of the NDCG of one group of users that is worth a warning.
GROUP_LOSS = 0.01
#: Movement of deleted pairs, in spreads of the scores, below which nothing was moved at all.
MOVED = 0.02
#: The least share of that movement that pairs next to them must show, and the largest that any other pairs may show for the
#: change to count as local.
MOVED_NEIGHBORS, MOVED_ELSEWHERE = 0.02, 0.5
#: The least consistency of a local change; an answer from a list beside noise has 0.
CONSISTENCY = 0.25
#: A model that reads its graph less than this share of what the base model does keeps another one inside.
READING = 0.02
#: Verdicts that another measure can take away.
GOOD = ("indistinguishable", "suppressed")

TITLES = {
    "ruined": "The model is ruined",
    "under-forgotten": "Under-forgotten: the deleted data can still be recognised",
    "over-forgotten": "Over-forgotten: the deleted data stand out by low scores",
    "marked": "Marked: the nodes of the deletion can be recognised, whatever the deleted data score",
    "suppressed": "Suppressed, as asked for: the deleted data score lower than data the model never saw",
    "missed": "Missed its aim: the deleted data are not suppressed",
    "undecided": "Undecided",
}
#: The graphs on which deleted elements may be asked about, in sentences.
QUERY_WORDS = {
    "served": "as served",
    "old_id": "presented again under their old ids",
    "new_id": "presented again under new ids",
}
_CLAIM_BY_PAIRS = "No difference seen from a model trained without the data, in what it says of deleted nodes"
_RETRAINED = (
    "But this model was retrained. Either the deleted elements are of another kind than the unseen ones, or the training began "
    "from something that knew them. A reference would decide."
)


@dataclass(frozen=True)
class Verdict:
    """The verdict of an audit.

    Args:
        code: ``"ruined"``, ``"under-forgotten"``, ``"over-forgotten"``, ``"indistinguishable"``, ``"marked"``,
            ``"undecided"``; with ``aim="nonexistent"`` also ``"suppressed"`` or ``"missed"``.
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


S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Findings:
    """What the rules look at: the sections of the measures, and a few facts about the deletion."""

    sections: Mapping[str, Section] = field(default_factory=dict)
    adapter: bool = False
    aim: str | None = None
    code: str = ""  # the verdict, for rules that warn

    def get(self, kind: type[S]) -> S | None:
        """The section of a kind; None where it was not measured."""
        return next((section for section in self.sections.values() if isinstance(section, kind)), None)

    @property
    def tests(self) -> Mapping[str, QueryTest]:
        """The unseen test on each graph."""
        section = self.get(ForgettingSection)
        return section.unseen if section else {}

    @property
    def headline(self) -> str | None:
        """The graph whose unseen test decides: as served, where that can be judged."""
        fair = [name for name, test in self.tests.items() if test.reference is not None or not test.unfair]
        order = [name for name in ("served", "old_id") if name in fair] + [*self.tests]
        return order[0] if order else None


def judge_tests(case: Case, sections: Mapping[str, Section]) -> dict[str, Section]:
    """The same sections, where each unseen test has its own verdict."""
    forgetting = sections.get("forgetting")
    if not isinstance(forgetting, ForgettingSection):
        return dict(sections)
    retrained = case.unlearned.assurance == "retrained" and case.reference is None
    judged = {}
    for name, test in forgetting.unseen.items():
        opinion = judge_suppression(test) if case.unlearned.aim == "nonexistent" else judge(test)
        if retrained and opinion.code.endswith("-forgotten"):
            opinion = Opinion(f"{opinion.text} {_RETRAINED}", "undecided")
        judged[name] = replace(test, verdict=opinion.code, sentence=opinion.text)
    return {**sections, "forgetting": replace(forgetting, unseen=judged)}


def decide(found: Findings) -> Verdict:
    """Apply the table of rules."""
    rule, opinion = next(_opinions("decides", found))
    found = replace(found, code=opinion.code)
    open_test = opinion.code == "undecided" and rule.code == "unseen-test"
    if opinion.code in GOOD or open_test:
        objections = _opinions("withdraws", found)
        if open_test:  # what the test leaves open, a mark on the nodes decides
            objections = (each for each in objections if each[1].code == "marked")
        objecting, objection = next(objections, (rule, None))
        if objection is not None:
            rule, opinion = objecting, Opinion(f"{opinion.text} But {objection.text}.", objection.code)
    code = opinion.code
    found = replace(found, code=code)
    warnings = tuple(
        Note(warning.code, sentence(remark.text))
        for warning, remark in _opinions("warns", found)
        if code != "ruined" and warning.code != rule.code
    )
    by_query = {name: found.tests[name].verdict if name in found.tests else None for name in QUERY_WORDS if found.tests}
    doubts = tuple(
        name
        for name in ("served", "old_id")
        if code in GOOD and by_query.get(name) in ("under-forgotten", "over-forgotten", "missed")
    )
    return Verdict(code, _title(found, rule, doubts), opinion.text, rule.code, warnings, by_query, doubts)


def _opinions(effect: str, found: Findings) -> Iterator[tuple[Rule, Opinion]]:
    """The rules of one effect that apply, in the order of the table."""
    for rule in RULES:
        opinion = rule.check(found) if rule.effect == effect else None
        if opinion is not None:
            yield rule, opinion


def _title(found: Findings, rule: Rule, doubts: tuple[str, ...]) -> str:
    """The claim, the question it answers, and what it cost."""
    claim = TITLES.get(found.code) or (claimed(found.tests[found.headline]) if found.headline else _CLAIM_BY_PAIRS)
    if found.headline is not None and found.code != "undecided" and rule.code == "unseen-test":
        claim += f", {QUERY_WORDS[found.headline]}"
    if doubts:
        claim += f"; but not {' or '.join(QUERY_WORDS[name] for name in doubts)}"
    loss = next(iter(_losses(found)), "") if found.code in GOOD else ""
    return f"{claim}, at a cost: {loss}" if loss else claim


def _losses(found: Findings) -> Iterator[str]:
    """Losses of utility beside a good verdict that a user feels."""
    for skill in _felt(found):
        if skill.lowest is None or skill.values.after is None:
            continue
        name, base = skill.lowest
        loss = base - skill.values.after
        if loss > max(TITLE_LOSS, Z95 * skill.error(name)):
            yield f"{label(skill.metric)} {close(skill.values.after, base)[0]}, {close(skill.values.after, base)[1]} before"


def _felt(found: Findings) -> list[Skill]:
    """The scores that users feel: the task's first one, and the rank in lists on typed and bipartite graphs."""
    utility, lists = found.get(UtilitySection), found.get(ListsSection)
    skills = [utility.tested] if utility is not None else []
    return skills + ([lists.mrr] if lists is not None and lists.decides and lists.mrr is not None else [])


# The rules that decide ----------------------------------------------------------------------------------------------------


def model_ruined(found: Findings) -> Opinion | None:
    """Too much skill is lost, beyond chance."""
    sign = next((sign for sign in _ruin_signs(found) if sign.sure), None)
    if sign is None:
        return None
    return Opinion(f"{sentence(sign.fact)[:-1]}: whatever it forgets, it no longer does its task.", "ruined")


def graph_holds_deleted(found: Findings) -> Opinion | None:
    """The served graph still has deleted elements."""
    checks = found.get(IntegritySection)
    if checks is None or not checks.still_there:
        return None
    text = f"The graph it is served on still holds {checks.still_there:,} of the deleted elements."
    return Opinion(text, "under-forgotten")


def keeps_old_graph(found: Findings) -> Opinion | None:
    """At the deletion the base model answers differently on the two graphs, and the served model does not."""
    checks = found.get(IntegritySection)
    reading = checks and checks.reading
    if not reading or reading.base <= 1e-6 or reading.after >= READING * reading.base:
        return None
    text = (
        "The served model does not read the graph it is given: its answers at the deletion are the same with the deleted "
        f"elements and without them (mean change {reading.after:.2g}, base model {reading.base:.2g}). It may keep the old graph."
    )
    return Opinion(text, "under-forgotten")


def only_scores_moved(found: Findings) -> Opinion | None:
    """Deleted pairs answer differently from the base model on the same graph, and what is beside them does not follow."""
    checks = found.get(IntegritySection)
    moved = checks and checks.movement
    if not moved or moved.deleted <= MOVED * moved.spread or moved.elsewhere >= MOVED_ELSEWHERE * moved.deleted:
        return None
    text = f"Only the reported scores of the deleted pairs were moved (by {moved.deleted:.3g} on average"
    if moved.neighbors < MOVED_NEIGHBORS * moved.deleted:
        return Opinion(
            f"{text}, pairs next to them by {moved.neighbors:.3g}): what the model knows about their ends is unchanged.",
            "under-forgotten",
        )
    if moved.consistency is not None and moved.consistency < CONSISTENCY:
        return Opinion(
            f"{text}), and not as their ends were: asked with nodes like the other end, these changed otherwise (cosine "
            f"{moved.consistency:.2f}). Such answers come from a list and not from the model.",
            "under-forgotten",
        )
    return None


def answers_beside_model(found: Findings) -> Opinion | None:
    """What is answered does not come from the model that is said to be served."""
    checks = found.get(IntegritySection)
    if checks is None or not checks.beside:
        return None
    text = (
        f"{share(checks.beside)} of the answers about deleted and test elements do not come from the model: it gives others on "
        "the same graph. What the model knows is not what is shown."
    )
    return Opinion(text, "under-forgotten")


def weights_continued(found: Findings) -> Opinion | None:
    """The result says that its weights are new, and they were continued from the old ones."""
    section = found.get(ReferenceSection)
    if found.get(WeightsSection) is not None:  # which looks at every tensor
        return None
    if section is None or section.own is None or section.own <= CORRELATION + max(section.usual or 0.0, 0.0):
        return None
    text = (
        f"The result says that its weights are new, and they correlate {section.own:.2f} with those from before the deletion. "
        "Fresh weights do not: these were continued from weights that had seen the deleted data."
    )
    return Opinion(text, "under-forgotten")


def weights_not_new(found: Findings) -> Opinion | None:
    """The result says that its weights are new, and some of them are those from before the deletion."""
    section = found.get(WeightsSection)
    if section is None or not section.old:
        return None
    return Opinion(
        f"{section.sentence} What these learned from the deleted elements is still in them.", "under-forgotten"
    )


def reference_not_fresh(found: Findings) -> Opinion | None:
    """The reference was continued from the weights before the deletion, or remembers as much as they do."""
    section = found.get(ReferenceSection)
    if section is None:
        return None
    usual = section.usual or 0.0
    if section.correlation is not None and section.correlation > max(CORRELATION, usual + CORRELATION):
        text = (
            f"The reference does not stand for training without the data: its weights correlate {section.correlation:.2f} with "
            "those from before the deletion, and those of a fresh training do not. Train it from fresh weights, or leave it out."
        )
        return Opinion(text, "undecided")
    if section.unseen is None or section.gap is None or section.gap_error is None:
        return None
    above = section.unseen.low - 0.5
    if above > TOLERANCE and section.gap < max(TOLERANCE, section.gap_error):
        text = (
            "The reference does not stand for training without the data: deleted elements score above unseen ones in it "
            f"(AUC {_interval(section.unseen)}), as much as in the old weights on the same graph. It has seen them, or they are "
            "of another kind than the unseen ones. Another training would show it."
        )
        return Opinion(text, "undecided")
    return None


def by_former_pairs(found: Findings) -> Opinion | None:
    """Nothing is known to be unseen; but nodes were deleted, and the reference ranks their former partners, too."""
    section = found.get(UsersSection)
    if found.headline is not None or found.aim == "nonexistent" or section is None:
        return None
    judged = [(query, pairs) for query, pairs in section.former.items() if pairs.gap_error is not None]
    if not judged:
        return None
    query, pairs = max(judged, key=lambda each: abs(each[1].gap or 0.0))
    gap, half = pairs.gap or 0.0, Z95 * (pairs.gap_error or 0.0)
    code, rank = ("under-forgotten", "higher") if gap > 0 else ("over-forgotten", "lower")
    if abs(gap) <= max(TOLERANCE, half):
        code, rank = (
            ("indistinguishable", "as high") if half <= RESOLUTION else ("undecided", "as high, as far as so few show,")
        )
    than = "than" if code.endswith("forgotten") else "as"
    return Opinion(
        f"Former partners of deleted nodes, {QUERY_WORDS[query]}, rank {rank} {than} in the retrained model: AUC "
        f"{pairs.values.after:.3f}, against {pairs.values.reference:.3f}: {gap:+.3f} ± {half:.3f}. Nothing else could be tested, "
        "since nothing is known that the model was not trained on.",
        code,
    )


def by_unseen_test(found: Findings) -> Opinion:
    """The unseen test on the graph that counts: as served, or presented again where nothing is left as served."""
    if found.headline is not None:
        test = found.tests[found.headline]
        return Opinion(test.sentence, test.verdict)
    missing = found.sections.get("forgetting")
    if isinstance(missing, Unmeasured):
        return Opinion(f"Forgetting could not be tested: {missing.reason}.", "undecided")
    return Opinion("No graph could be asked about the deleted elements.", "undecided")


# The rules that withdraw a good verdict -------------------------------------------------------------------------------------


def still_listed(found: Findings) -> Opinion | None:
    """Suppression was asked for, and deleted edges are at the top of lists as often as they should not be."""
    section = found.get(ListsSection)
    if found.code != "suppressed" or section is None or section.deleted is None or section.deleted.after is None:
        return None
    after, reference, count = section.deleted.after, section.deleted.reference, section.deleted_count
    expected = section.hits.after if reference is None else reference
    if expected is None or after - expected <= Z95 * math.sqrt(2 * max(after * (1 - after), 0.05) / count):
        return None
    other = "test edges" if reference is None else "the retrained model"
    return Opinion(f"{after:.1%} of them are in the top {TOP} of a list, and {expected:.1%} for {other}", "missed")


def nodes_marked(found: Findings) -> Opinion | None:
    """A classifier tells the nodes of the deletion, or the deleted pairs, better than it should."""
    section = found.get(TouchedSection)
    if section is None or found.code == "suppressed":
        return None
    other = "in the retrained model" if section.against == "reference" else "before the deletion on the same graph"
    unclear = None
    for gap, words, values in (
        (section.ends_gap, "their nodes alone", section.ends),
        (section.pairs_gap, "their nodes and scores", section.pairs),
    ):
        after = values.after if values is not None else None
        if gap is None or after is None:
            continue
        text = f"a classifier tells deleted elements by {words} with AUC {after:.3f}, {after - gap.value:.3f} {other}"
        if gap.marked:
            return Opinion(text, "marked")
        if gap.unclear:
            error = (
                f"{gap.value:+.3f} ± {1.96 * gap.error:.3f}, and there are too few elements to tell this from chance"
            )
            unclear = unclear or Opinion(f"{text}: {error}", "undecided")
    return unclear


def trend_differs(found: Findings) -> Opinion | None:
    """The trend attack finds deleted edges better than in the retrained model."""
    section = found.get(TrendSection)
    if section is None or section.expected is None or found.code == "suppressed":
        return None
    after, reference = section.after.auc, section.expected
    error = _attack_error(section, section.counts["deleted"], section.counts["non_edges"])
    if after - reference <= max(ATTACK_TOLERANCE, error):
        return None
    text = f"the trend attack finds deleted edges with AUC {after:.3f}, against {reference:.3f} for the retrained model"
    return Opinion(text, "marked")


def _attack_error(section: AttackSection, deleted: int, others: int) -> float:
    """Beyond which an attack does better than on the references: by elements, or by the spread of trainings."""
    variance = auc_variance(section.after.auc, deleted, others)
    if section.expected is not None:
        variance += auc_variance(section.expected, deleted, others)
    return SURE * max(math.sqrt(variance), spread_of_trainings(section.references))


def weights_remember(found: Findings) -> Opinion | None:
    """An attack with new weights finds deleted elements better than in a retraining."""
    section = found.get(WhiteBoxSection)
    if section is None or section.counts["deleted"] < DELETED_MINIMUM:
        return None
    alone = "reference" not in section.models
    after, expected = section.models["after"].attack, section.expected
    tolerance = ALONE_TOLERANCE if alone else ATTACK_TOLERANCE
    if after - expected <= max(tolerance, Z95 * section.error * (1 if alone else math.sqrt(2))):
        return None
    text = f"an attack with the weights finds deleted elements with AUC {after:.3f}, where {expected:.3f} is to be expected"
    return Opinion(text, "undecided" if alone else "under-forgotten")


def old_answers_passed_on(found: Findings) -> Opinion | None:
    """The same step from a model that never saw the deleted elements leaves less of them."""
    section = found.get(WhiteBoxSection)
    leak = max(section.leaks, key=lambda leak: leak.gap, default=None) if section is not None else None
    if leak is None or leak.gap <= max(ATTACK_TOLERANCE, leak.gap_error):
        return None
    text = (
        f"the same step from the retrained model gives an unseen AUC of {leak.from_reference:.3f} {QUERY_WORDS[leak.graph]}, "
        f"against {leak.result:.3f}: the old model's answers passed on what they knew"
    )
    return Opinion(text, "under-forgotten")


def no_better_than_chance(found: Findings) -> Opinion | None:
    """The model was at chance before the deletion, so that nothing it answers means much."""
    section = found.get(UtilitySection)
    if section is None or section.tested.values.before is None or section.tested.count == 0:
        return None
    skill, before = section.tested, section.tested.values.before
    chance = max(skill.chance, skill.constant)
    if before - chance > max(
        SKILL_MINIMUM, Z95 * math.sqrt(auc_variance(0.5, skill.count // 2 or 1, skill.count // 2 or 1))
    ):
        return None
    text = (
        f"the model was no better than chance before the deletion ({label(skill.metric)} {before:.3f}, and {chance:.3f} by one "
        "answer for all): utility cannot be judged. Test data that its training never contrasts may be the cause"
    )
    return Opinion(text, "undecided")


def membership_differs(found: Findings) -> Opinion | None:
    """The membership attack tells deleted from test elements better or worse than it should.

    With a reference it should do as well as there. Without one it should not tell at all, but it compares elements of any
    kind, so that the tests can only be said to disagree.
    """
    section = found.get(MembershipSection)
    if section is None or section.counts["deleted"] < DELETED_MINIMUM:
        return None
    reference, after = section.expected, section.after.auc
    if reference is None and section.carry_messages:
        return None
    off = after - (0.5 if reference is None else reference)
    tolerance = ALONE_TOLERANCE if reference is None else ATTACK_TOLERANCE
    error = _attack_error(section, section.counts["deleted"], section.counts["test"])
    if found.code == "suppressed" or abs(off) <= max(tolerance, error):
        return None
    target = "0.5 if it could not tell" if reference is None else f"{reference:.3f} for the retrained model"
    text = f"the membership attack tells them from test elements with AUC {after:.3f}, against {target}"
    return Opinion(text, "undecided" if reference is None else "under-forgotten" if off > 0 else "over-forgotten")


def scores_spread_differently(found: Findings) -> Opinion | None:
    """Ranks agree with the reference's, but the distribution of scores does not."""
    section = found.get(DistanceSection)
    if found.code == "suppressed" or section is None:
        return None
    if section.beyond_sampling[0] <= max(SPREAD_BITS, SPREAD_FACTOR * section.beyond_sampling[1]):
        return None
    part, others = section.js["deleted"], section.beyond_sampling[1]
    text = (
        f"their scores are distributed differently than in the retrained model: {part.after:.2f} bits apart, of which sampling "
        f"explains {part.floor:.2f}; other elements are at most {others:.2f} bits beyond sampling"
    )
    return Opinion(text, "undecided")


def perhaps_ruined(found: Findings) -> Opinion | None:
    """Skill is lost, but the test elements are too few to be sure."""
    sign = next(iter(_ruin_signs(found)), None)
    if sign is None or sign.sure:
        return None
    return Opinion(f"{sign.fact}; {sign.count:,} elements are too few to say whether the model is ruined", "undecided")


# The rules that warn --------------------------------------------------------------------------------------------------------


def other_graph(found: Findings, query: str) -> Opinion | None:
    """The unseen test on another graph contradicts the verdict."""
    test = found.tests.get(query)
    if test is None or test.verdict in (*GOOD, "undecided", found.code):
        return None
    text = f"Deleted elements {QUERY_WORDS[query]} are {test.verdict}. {test.sentence}"
    if found.adapter and query == "new_id":
        text += " This is to be expected: operators know rows, and the weights are unchanged."
    return Opinion(text)


def loss_near_deletion(found: Findings) -> Opinion | None:
    """The score has fallen around the deletion."""
    section = found.get(UtilitySection)
    near = section and section.near
    if not near or near.values.after is None or near.lowest is None:
        return None
    base = near.lowest[1]
    if base - near.values.after <= NEAR_LOSS:
        return None
    return Opinion(
        f"The model got worse near the deletion: {label(near.metric)} {near.values.after:.3f} on {near.count:,} {near.what}, "
        f"{base:.3f} before or retrained."
    )


def group_loses(found: Findings) -> Opinion | None:
    """The lists of one group of users got worse, which the mean of all may hide."""
    section, lost = found.get(UsersSection), []
    for name, skill in section.groups.items() if section is not None else ():
        if skill.lowest is None or skill.values.after is None:
            continue
        model, base = skill.lowest
        if base - skill.values.after > max(GROUP_LOSS, Z95 * skill.error(model)):
            lost.append(
                f"{name} users {skill.values.after:.3f}, {base:.3f} before or retrained ({skill.count:,} users)"
            )
    return Opinion(f"Lists got worse for a group: NDCG of {'; '.join(lost)}.") if lost else None


def reference_differs(found: Findings) -> Opinion | None:
    """The reference answers differently about elements that nobody deleted."""
    section = found.get(DistanceSection)
    if section is None or section.beyond_sampling[1] <= REFERENCE_BITS:
        return None
    return Opinion(
        f"The reference also answers differently about elements that were not deleted ({section.beyond_sampling[1]:.2f} bits "
        "beyond sampling). Two trainings of this model may differ so much by chance (another seed would show it), they were "
        "trained differently, or the deletion changed much else. A comparison with it says less."
    )


def trained_on_test(found: Findings) -> Opinion | None:
    """The model was trained on test elements."""
    checks = found.get(IntegritySection)
    return Opinion(checks.overlap_sentence) if checks and checks.overlap_sentence else None


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
    Rule("keeps-old-graph", "decides", keeps_old_graph),  # under-forgotten
    Rule("only-scores-moved", "decides", only_scores_moved),  # under-forgotten
    Rule("answers-beside-model", "decides", answers_beside_model),  # under-forgotten
    Rule("weights-continued", "decides", weights_continued),  # under-forgotten
    Rule("weights-not-new", "decides", weights_not_new),  # under-forgotten
    Rule("reference-not-fresh", "decides", reference_not_fresh),  # undecided
    Rule("former-pairs", "decides", by_former_pairs),  # under- or over-forgotten, no difference seen, or undecided
    Rule("unseen-test", "decides", by_unseen_test),  # all others
    # Each of these takes a good verdict away.
    Rule("still-listed", "withdraws", still_listed),  # missed
    Rule("nodes-marked", "withdraws", nodes_marked),  # marked, or undecided
    Rule("trend-differs", "withdraws", trend_differs),  # marked
    Rule("weights-remember", "withdraws", weights_remember),  # under-forgotten, or undecided
    Rule("old-answers-passed-on", "withdraws", old_answers_passed_on),  # under-forgotten
    Rule("membership-differs", "withdraws", membership_differs),  # under- or over-forgotten; or undecided
    Rule("scores-spread-differently", "withdraws", scores_spread_differently),  # undecided
    Rule("perhaps-ruined", "withdraws", perhaps_ruined),  # undecided
    Rule("no-better-than-chance", "withdraws", no_better_than_chance),  # undecided
    # Each of these adds a warning, unless the model is ruined.
    Rule("served-differs", "warns", partial(other_graph, query="served")),
    Rule("old-id-differs", "warns", partial(other_graph, query="old_id")),
    Rule("new-id-differs", "warns", partial(other_graph, query="new_id")),
    Rule("loss-near-deletion", "warns", loss_near_deletion),
    Rule("group-loses", "warns", group_loses),
    Rule("perhaps-ruined", "warns", perhaps_ruined),
    Rule("no-better-than-chance", "warns", no_better_than_chance),
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
        halves = [round(math.hypot(half, kind), 9) for half in (after.auc - after.low, after.high - after.auc)]
        below, above = halves if after.auc > 0.5 else halves[::-1]
        return cls(round(after.auc - 0.5, 9), below, above)

    @property
    def clear(self) -> bool:
        """Whether 0 lies outside the interval."""
        return abs(self.off) > self.towards

    @property
    def largest(self) -> float:
        """The largest true difference that the test could have missed."""
        return max(abs(self.off) + self.away, self.towards - abs(self.off), TOLERANCE)

    def beyond(self, noise: float) -> bool:
        """Whether it is above what counts and above this error."""
        return abs(self.off) > max(TOLERANCE, noise)


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
    after, reference, found = judged_auc(test), test.reference, Difference.of(test)
    code, text = _judged(test, after, found)
    figures = f"AUC {_interval(after)}, against 0.5 for unseen data."
    if reference is not None:
        gap = f"{test.gap:+.3f} ± {test.gap_error:.3f}"
        figures = f"AUC {_interval(after)}, against {_interval(reference)} for the retrained model: {gap}."
        if test.references:
            mean = sum(test.references) / len(test.references)
            figures = f"AUC {_interval(after)}, against {mean:.3f}, the mean of {len(test.references)} retrained models: {gap}."
    if after.matched < MATCHED_SHARE:
        figures += (
            f" Only {100 * after.matched:.1f}% of the deleted elements have unseen ones of their kind and were tested."
        )
    if reference is None and test.adjusted is not None:
        figures += f" {test.adjusted.how}"
    return Opinion(f"{text}: {figures}", code)


def _judged(test: QueryTest, after: UnseenAUC, found: Difference) -> tuple[str, str]:
    """The code of the verdict on one test, and its reason."""
    alone, kind = test.reference is None, _kind_auc(test)
    count = round(after.deleted * after.matched)
    unseen = round(after.unseen if after.effective_unseen is None else after.effective_unseen)
    few = f"{count:,} deleted and {unseen:,} unseen elements of their kind are too few to decide"
    # 0.5 has no error of its own, but an AUC that is truly 0.5 scatters around it by the standard error
    noise = Z95 * after.se if alone else 0.0
    sure = max(found.towards, noise) * (SURE / Z95 if kind is None else 1.0)  # that of another kind is no error
    target = test.adjusted.target if alone and test.adjusted is not None else None
    if alone and test.unfair:
        return "undecided", f"Only a reference could decide this, because {test.unfair}"
    if count < DELETED_MINIMUM:
        return "undecided", few
    if found.beyond(sure):
        code, side = ("under-forgotten", "above") if found.off > 0 else ("over-forgotten", "below")
        if not alone:
            rank = "higher" if found.off > 0 else "lower"
            return code, f"Among matched unseen elements, deleted ones rank {rank} than in the retrained model"
        text = f"Deleted elements score {side} matched unseen ones"
        if target is not None and abs(after.auc - target) <= max(TOLERANCE, sure):
            why = f"calibration took part of that for chance and aimed at {target:.3f}; a reference would decide"
            return "undecided", f"{text}, but {why}"
        return code, text
    if kind is not None:
        return "undecided", (
            f"Deleted edges are of another kind than unseen ones (surroundings alone separate them, AUC {kind:.2f}), so a "
            "retrained model may be as far from 0.5; a reference would decide"
        )
    if max(found.towards, noise) > RESOLUTION:
        return "undecided", few
    if found.clear and found.beyond(noise):
        chance = "chance makes such a difference once in twenty times"
        return (
            "undecided",
            f"Deleted elements score {'higher' if found.off > 0 else 'lower'} than expected, but {chance}",
        )
    if found.clear:
        size, least = close(abs(found.off), TOLERANCE)
        sign = "+" if found.off > 0 else "-"
        return "indistinguishable", f"The difference ({sign}{size}) is below {least}, the smallest that counts"
    like = "like matched unseen ones" if alone else "as in the retrained model"
    return "indistinguishable", f"Deleted elements score {like}, as far as this test can see"


def judge_suppression(test: QueryTest) -> Opinion:
    """The verdict on one unseen test where the deleted elements were to score low, as if they did not exist.

    >>> judge_suppression(QueryTest(graph="", after=UnseenAUC(0.62, 0.6, 0.64, 0.01, 900, 900))).code
    'missed'
    """
    after = test.after
    assert after is not None
    figures = f"AUC {_interval(after)}, below 0.5 where they score lower"
    if round(after.deleted * after.matched) < DELETED_MINIMUM:
        return Opinion(f"Too few deleted elements to decide whether they are suppressed: {figures}.", "undecided")
    if after.auc < 0.5 - TOLERANCE and after.high < 0.5:
        return Opinion(
            f"Deleted elements score below matched unseen ones, which was asked for: {figures}.", "suppressed"
        )
    return Opinion(
        f"Deleted elements were to be suppressed, and score like matched unseen ones or above: {figures}.", "missed"
    )


def claimed(test: QueryTest) -> str:
    """What may be claimed of a test that saw no difference."""
    found = Difference.of(test)
    other = "data the model never saw" if test.reference is None else "a model trained without the data"
    if found.clear:
        return f"Next to no difference (below {TOLERANCE:g}) from {other}"
    return f"No difference seen from {other} (could have missed up to ±{found.largest:.2f})"


def _interval(test: UnseenAUC) -> str:
    return f"{test.auc:.3f} (95% interval {test.low:.3f} to {test.high:.3f})"


# Ruin -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sign:
    """A sign of ruin: the fact, whether it is more than chance, and how many elements show it."""

    fact: str
    sure: bool
    count: int = 0


def _ruin_signs(found: Findings) -> Iterator[_Sign]:
    """Skill lost on all test elements, and skill lost near the deletion."""
    section = found.get(UtilitySection)
    if section is None or section.tested.values.before is None:
        return
    if section.tested.values.after is None:
        yield _Sign("its answers are not finite", True)
        return
    skills = [(skill, SKILL_KEPT, "") for skill in _felt(found)]
    skills += [(section.near, SKILL_KEPT_NEAR, "around the deletion ")] if section.near is not None else []
    for skill, kept, where in skills:
        if skill.lowest is None or skill.values.after is None:
            continue
        name, base = skill.lowest
        after, loss = skill.values.after, base - skill.values.after
        chance = next((value for value in (skill.constant, skill.chance) if base - value > SKILL_MINIMUM), None)
        if chance is None or after - chance >= kept * (base - chance) or loss <= SKILL_MINIMUM:
            continue
        other = "before the deletion" if name == "before" else "for the retrained model"
        fact = f"{where}its {label(skill.metric)} is {after:.3f} on {skill.count:,} {skill.what}, {base:.3f} {other}"
        yield _Sign(fact, loss > Z95 * skill.error(name), skill.count)
