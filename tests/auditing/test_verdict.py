"""The verdict on one test: what counts as a difference, what is too few, and how much could have been missed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gnndelete as gd
from gnndelete.auditing import verdict as rules
from gnndelete.auditing.entry import Audit, Done, Request
from gnndelete.auditing.measures import PerModel, Unmeasured
from gnndelete.auditing.measures.attack import AttackResult
from gnndelete.auditing.measures.distance import DistanceSection, Divergence
from gnndelete.auditing.measures.forgetting import (
    AdjustedTest,
    ForgettingSection,
    QueryTest,
    UnseenAUC,
)
from gnndelete.auditing.measures.integrity import IntegritySection, Movement, Reading
from gnndelete.auditing.measures.lists import ListsSection
from gnndelete.auditing.measures.membership import MembershipSection, ShadowQuality
from gnndelete.auditing.measures.reference import ReferenceSection
from gnndelete.auditing.measures.touched import Gap, TouchedSection
from gnndelete.auditing.measures.trend import TrendSection
from gnndelete.auditing.measures.utility import Skill, UtilitySection
from gnndelete.auditing.report.text import key_numbers, sign
from gnndelete.auditing.verdict import (
    DELETED_MINIMUM,
    SURE,
    TOLERANCE,
    Z95,
    Findings,
    claimed,
    decide,
    judge,
    judge_suppression,
    judged_auc,
)
from gnndelete.metrics.edge_matching import ADJUSTED


def side(auc, half=0.04, deleted=300, unseen=1000, **rest):
    return UnseenAUC(auc, auc - half, auc + half, half / 1.96, deleted, unseen, **rest)


def alone(after, **rest):
    return QueryTest(graph="", after=after, **rest)


def beside(after, reference, error, **rest):
    return alone(after, reference=reference, gap=after.auc - reference.auc, gap_error=error, **rest)


def result(auc):
    return None if auc is None else AttackResult(auc, 0.5, {"fpr": [0, 1], "tpr": [0, 1]})


def attack(after, reference=None, deleted=41, carry_messages=False):
    return MembershipSection(
        after=result(after),
        reference=result(reference),
        counts={"deleted": deleted, "test": 1000},
        form="node",
        elements="deleted nodes",
        carry_messages=carry_messages,
        shadow=ShadowQuality(0.6, 1.0, ""),
    )


def findings(adapter=False, code="", **sections):
    measured = {name: section for name, section in sections.items() if section is not None}
    return Findings(measured, adapter=adapter, code=code)


def attacked(section):
    opinion = rules.membership_differs(findings(membership=section))
    return None if opinion is None else opinion.code


@given(st.floats(0.1, 0.9), st.floats(0.1, 0.9), st.floats(0.005, 0.1), st.floats(0.005, 0.1), st.floats(0, 1))
def test_intervals_that_do_not_meet_are_a_difference_and_one_within_tolerance_is_none(a, b, one, two, share):
    after, reference = side(a, one), side(b, two)
    error = share * (one + two)  # the error of a difference is at most the sum of both
    word = judge(beside(after, reference, error)).code
    if abs(a - b) > max(SURE / Z95 * (one + two), TOLERANCE):
        assert word == ("under-forgotten" if a > b else "over-forgotten")
    if abs(a - b) <= TOLERANCE:
        assert word in ("indistinguishable", "undecided")


def test_a_reference_is_the_target_and_named_in_the_sentence():
    opinion = judge(beside(side(0.10), side(0.19), 0.05))
    assert opinion.code == "over-forgotten"
    assert "deleted ones rank lower than in the retrained model" in opinion.text
    assert "-0.090 ± 0.050" in opinion.text
    assert judge(alone(side(0.10))).code == "over-forgotten"


def test_the_title_says_how_much_could_have_been_missed():
    test = alone(side(0.52, 0.05))
    assert judge(test).code == "indistinguishable"
    assert claimed(test) == "No difference seen from data the model never saw (could have missed up to ±0.07)"
    large = beside(side(0.51, 0.002), side(0.5, 0.002), 0.003)
    assert judge(large).code == "indistinguishable"
    assert claimed(large) == "Next to no difference (below 0.03) from a model trained without the data"


@pytest.mark.parametrize("deleted", [1, 4, DELETED_MINIMUM - 1])
def test_so_few_decide_nothing_whatever_they_score(deleted):
    opinion = judge(alone(side(0.02, 0.01, deleted=deleted)))
    assert opinion.code == "undecided"
    assert opinion.text.startswith(f"{deleted} deleted and 1,000 unseen elements of their kind are too few to decide")


def test_without_a_reference_what_calibration_took_for_chance_is_not_called_remembered():
    after = side(0.58, 0.03)
    assert judge(alone(after)).code == "under-forgotten"

    def aimed(target):
        return judge(alone(after, adjusted=AdjustedTest(how="By surroundings.", after=after, target=target)))

    assert aimed(0.55).code == "undecided"
    assert "aimed at 0.550; a reference would decide" in aimed(0.55).text
    assert aimed(0.51).code == "under-forgotten"
    assert aimed(None).code == "under-forgotten"


def test_it_is_said_which_are_too_few():
    def said(**changes):
        return judge(alone(side(0.5, 0.2, **{"deleted": 446, "unseen": 5000, **changes}))).text

    assert said(unseen=9).startswith("446 deleted and 9 unseen elements of their kind are too few to decide")
    # most of the 5,000 are in strata with few of the deleted ones
    few = said(matched=0.02, effective_unseen=6.4)
    assert few.startswith("9 deleted and 6 unseen elements of their kind are too few to decide")


def test_a_low_share_with_a_match_stands_beside_the_verdict():
    assert "Only 41.5% of the deleted" in judge(alone(side(0.5, matched=0.415))).text
    assert "Only" not in judge(alone(side(0.5, matched=0.95))).text


def test_the_membership_attack_speaks_against_a_good_verdict():
    assert attacked(attack(0.202)) == "undecided"
    assert attacked(attack(0.202, 0.5)) == "over-forgotten"
    assert attacked(attack(0.8, 0.5)) == "under-forgotten"
    assert attacked(attack(0.202, 0.19)) is None
    assert attacked(attack(0.55)) is None
    assert attacked(attack(0.1, deleted=4)) is None
    assert attacked(attack(0.8, carry_messages=True)) is None
    assert attacked(None) is None


def whole(served, old_id, new_id, adapter=True, **sections):
    """The verdict on deleted edges whose tests gave these AUCs, without a reference."""
    tests = {}
    for name, value in (("served", served), ("old_id", old_id), ("new_id", new_id)):
        opinion = judge(alone(side(value)))
        tests[name] = alone(side(value), verdict=opinion.code, sentence=opinion.text)
    forgetting = ForgettingSection(ranking={}, unseen=tests, not_asked={})
    return decide(findings(forgetting=forgetting, adapter=adapter, **sections))


def signed(verdict):
    request = Request({"edges": 1}, 1, "link", "link prediction", 2, 1, 0)
    return sign(Audit(verdict, {}, request, Done("unlink", "GCN", {}, "inference-only", "")))[0]


def test_another_graph_that_speaks_against_it_takes_the_tick_away_and_is_named():
    found = whole(0.5, 0.4, 0.5)
    assert (found.code, found.doubts) == ("indistinguishable", ("old_id",))
    assert found.title.endswith(", as served; but not presented again under their old ids")
    assert signed(found) == "≈"
    assert signed(whole(0.5, 0.5, 0.5)) == "✓"


def test_new_ids_that_show_an_adapter_are_expected_and_no_failure_of_the_verdict():
    found = whole(0.5, 0.5, 0.9)
    assert (found.code, found.doubts) == ("indistinguishable", ())
    assert signed(found) == "✓"
    assert [note.code for note in found.warnings] == ["new-id-differs"]
    assert "to be expected" in found.warnings[0].text
    assert "to be expected" not in whole(0.5, 0.5, 0.9, adapter=False).warnings[0].text


def test_an_attack_that_tells_takes_the_word_away_and_is_named():
    found = whole(0.5, 0.5, 0.5, membership=attack(0.2))
    assert (found.code, found.rule) == ("undecided", "membership-differs")
    assert "But the membership attack tells them" in found.text
    assert whole(0.8, 0.5, 0.5, membership=attack(0.2)).code == "under-forgotten"


def apart(deleted, others):
    """Bits between a model's scores and the reference's, beyond what sampling gives."""
    parts = {"deleted": deleted, "unseen": others, "remaining": others / 2}
    js = {name: Divergence(after=value + 0.02, floor=0.02) for name, value in parts.items()}
    return DistanceSection(js=js, left_out={})


def test_scores_that_are_spread_otherwise_take_the_tick_away_though_ranks_agree():
    found = whole(0.5, 0.5, 0.5, distance=apart(0.3, 0.01))
    assert found.code == "undecided"
    assert "But their scores are distributed differently than in the retrained model: 0.32 bits apart" in found.text
    # two trainings that differ anyway; little; unknown
    for other in (apart(0.3, 0.15), apart(0.05, 0.0), None):
        assert whole(0.5, 0.5, 0.5, distance=other).code == "indistinguishable"


def trend(after, reference):
    counts = {"deleted": 410, "non_edges": 2000}
    found = {"after": result(after), "reference": result(reference)}
    return TrendSection(**found, counts=counts, without_bits=PerModel(), shadow={"auc": 0.6, "without_bits": 0.5})


def test_a_trend_that_tells_takes_the_tick_away_and_a_reference_of_another_kind_is_warned_of():
    found = whole(0.5, 0.5, 0.5, trend=trend(0.92, 0.5))
    assert (found.code, found.rule) == ("marked", "trend-differs")
    assert whole(0.5, 0.5, 0.5, trend=trend(0.92, 0.9)).code == "indistinguishable"
    far = whole(0.5, 0.5, 0.5, distance=apart(0.7, 0.6))
    assert [note.code for note in far.warnings] == ["reference-differs"]


def touched(ends, pairs=0.0, error=0.01, against="reference"):
    gaps = {"ends_gap": Gap(ends, error), "pairs_gap": Gap(pairs, error)}
    aucs = {"ends": PerModel(None, 0.5 + ends), "pairs": PerModel(None, 0.5 + pairs)}
    return TouchedSection(**aucs, **gaps, unlink={}, against=against, counts={"touched": 300, "untouched": 300})


def test_a_mark_on_the_nodes_takes_the_tick_away():
    def code(*gaps, **rest):
        return whole(0.5, 0.5, 0.5, touched=touched(*gaps, **rest)).code

    assert code(0.2) == code(0.0, 0.2) == "marked"
    assert code(0.04, 0.04) == code(-0.2, -0.2) == "indistinguishable"
    assert code(0.08, error=0.06) == "undecided", "above the limit, and not above its error"
    assert "by their nodes alone with AUC 0.700" in whole(0.5, 0.5, 0.5, touched=touched(0.2)).text
    assert whole(0.8, 0.5, 0.5, touched=touched(0.2)).code == "under-forgotten"
    assert whole(0.545, 0.5, 0.5).code == "undecided"
    assert whole(0.545, 0.5, 0.5, touched=touched(0.2)).code == "marked", "the mark decides what the test leaves open"
    assert whole(0.545, 0.5, 0.5, touched=touched(0.08, error=0.06)).code == "undecided"


def moved(deleted, neighbors, elsewhere=0.01, consistency=0.9):
    return IntegritySection(movement=Movement(deleted, neighbors, elsewhere, 1.0, consistency))


def test_answers_that_do_not_follow_from_their_ends_are_called():
    def rule(section):
        return whole(0.5, 0.5, 0.5, integrity=section).rule

    assert rule(moved(1.0, 0.001)) == "only-scores-moved"
    assert rule(moved(1.0, 0.3, consistency=0.02)) == "only-scores-moved"
    assert rule(moved(1.0, 0.3)) == "unseen-test"
    assert rule(moved(1.0, 0.9, elsewhere=0.9, consistency=0.0)) == "unseen-test", "another training moves everything"
    assert rule(moved(0.01, 0.0)) == "unseen-test", "nothing was moved"


def test_a_model_that_keeps_the_old_graph_is_called():
    assert whole(0.5, 0.5, 0.5, integrity=IntegritySection(reading=Reading(0.3, 0.0))).rule == "keeps-old-graph"
    assert whole(0.5, 0.5, 0.5, integrity=IntegritySection(reading=Reading(0.3, 0.1))).rule == "unseen-test"
    assert whole(0.5, 0.5, 0.5, integrity=IntegritySection(reading=Reading(0.0, 0.0))).rule == "unseen-test"


def test_a_reference_that_was_continued_or_remembers_decides_nothing():
    def rule(**values):
        return whole(0.5, 0.5, 0.5, examined=ReferenceSection(**values)).rule

    assert rule(correlation=0.99) == "reference-not-fresh"
    assert rule(correlation=0.05) == "unseen-test"
    assert rule(correlation=0.95, usual=0.9) == "unseen-test", "any two trainings of this model agree"
    assert rule(unseen=side(0.63), gap=0.0, gap_error=0.02) == "reference-not-fresh"
    assert rule(unseen=side(0.63), gap=0.2, gap_error=0.02) == "unseen-test"
    assert rule(unseen=side(0.52), gap=0.0, gap_error=0.02) == "unseen-test"


def test_a_difference_that_chance_makes_once_in_twenty_times_decides_nothing():
    assert judge(beside(side(0.56), side(0.5), 0.04)).code == "under-forgotten"
    assert judge(beside(side(0.55), side(0.5), 0.045)).code == "undecided"
    assert "once in twenty times" in judge(beside(side(0.55), side(0.5), 0.045)).text
    assert judge(beside(side(0.55), side(0.5), 0.055)).code == "indistinguishable"


def test_a_difference_at_the_threshold_is_told_with_one_digit_more():
    assert "difference (+0.0297) is below 0.0300" in judge(beside(side(0.5297, 0.01), side(0.5, 0.01), 0.01)).text
    assert "difference (-0.020) is below 0.030" in judge(beside(side(0.48, 0.01), side(0.5, 0.01), 0.01)).text


def test_a_result_that_says_its_weights_are_new_is_examined():
    def found(own, usual=None):
        return whole(0.5, 0.5, 0.5, examined=ReferenceSection(own=own, usual=usual))

    assert (found(0.97).rule, found(0.97).code) == ("weights-continued", "under-forgotten")
    assert found(0.1).rule == found(None).rule == found(0.97, usual=0.9).rule == "unseen-test"


def test_answers_that_are_not_those_of_the_model_are_called():
    assert whole(0.5, 0.5, 0.5, integrity=IntegritySection(beside=0.4)).rule == "answers-beside-model"
    assert whole(0.5, 0.5, 0.5, integrity=IntegritySection(beside=0.0)).rule == "unseen-test"


def test_the_headline_is_that_of_the_answers_as_served_where_these_can_be_judged():
    def headline(**served):
        return findings(
            forgetting=ForgettingSection(
                ranking={}, unseen={"served": alone(side(0.5), **served), "old_id": alone(side(0.4))}, not_asked={}
            )
        ).headline

    assert headline() == "served"
    assert headline(unfair="they are blank") == "old_id"
    assert headline(unfair="they are blank", reference=side(0.5), gap=0.0, gap_error=0.01) == "served"


def test_several_references_say_how_much_trainings_differ():
    def code(after, reference, *others):
        section = replace(attack(after, reference, deleted=1000), references=(reference, *others))
        return attacked(section)

    assert code(0.62, 0.5, 0.51, 0.5) == "under-forgotten"
    assert code(0.62, 0.5, 0.42, 0.56) is None


def lists(deleted, reference=None, decides=True, before=0.4, after=0.4):
    mrr = Skill("mrr", PerModel(before, after), 0.01, 0.01, 400, "test edges", before_error=0.01)
    hits = PerModel(0.4, 0.4)
    return ListsSection(
        mrr=mrr, hits=hits, deleted=PerModel(None, deleted, reference), deleted_count=400, decides=decides
    )


def test_suppression_is_judged_where_it_was_asked_for():
    def verdict(auc, **sections):
        opinion = judge_suppression(alone(side(auc)))
        test = alone(side(auc), verdict=opinion.code, sentence=opinion.text)
        forgetting = ForgettingSection(ranking={}, unseen={"served": test}, not_asked={})
        return decide(findings(forgetting=forgetting, **sections))

    assert verdict(0.2).code == "suppressed"
    assert verdict(0.2, touched=touched(0.4)).code == "suppressed", "it can be recognised, as was said"
    assert verdict(0.5).code == verdict(0.69).code == "missed"
    assert verdict(0.2, lists=lists(0.44, 0.24)).rule == "still-listed"
    assert verdict(0.2, lists=lists(0.24, 0.24)).code == "suppressed"
    assert judge_suppression(alone(side(0.2, deleted=5))).code == "undecided"


def test_what_users_feel_is_in_the_title_or_ruin():
    assert (
        "at a cost: MRR 0.350, 0.400 before" in whole(0.5, 0.5, 0.5, lists=lists(0.1, after=0.35), utility=fine()).title
    )
    assert whole(0.5, 0.5, 0.5, lists=lists(0.1, after=0.2), utility=fine()).code == "ruined"
    assert "cost" not in whole(0.5, 0.5, 0.5, lists=lists(0.1, decides=False, after=0.2), utility=fine()).title


def fine(before=0.9, count=2000):
    values = PerModel(before, before)
    return UtilitySection(metrics={"auroc": values}, tested=Skill("auroc", values, 0.5, 0.5, count, "test elements"))


def test_a_model_at_chance_is_told_and_gets_no_tick():
    found = whole(0.5, 0.5, 0.5, utility=fine(0.505))
    assert (found.code, found.rule) == ("undecided", "no-better-than-chance")
    assert whole(0.5, 0.5, 0.5, utility=fine(0.6)).code == "indistinguishable"
    assert [note.code for note in whole(0.8, 0.5, 0.5, utility=fine(0.5)).warnings][-1] == "no-better-than-chance"


def test_every_rule_has_an_effect_and_the_last_that_decides_always_applies():
    assert [rule.code for rule in rules.RULES if rule.effect == "decides"][-1] == "unseen-test"
    assert rules.by_unseen_test(Findings()).code == "undecided"
    assert (
        decide(findings(forgetting=Unmeasured(reason="there is no test data"))).text
        == "Forgetting could not be tested: there is no test data."
    )


@pytest.fixture(scope="module")
def poor():
    """Edges between the least connected nodes, deleted from a model that was trained without them: nothing to remember."""
    split = gd.datasets.split_links(gd.datasets.load("digits"), val=0.05, test=0.1, seed=0)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    once = split.data.edge_index[:, split.data.edge_index[0] < split.data.edge_index[1]]
    degree = torch.bincount(split.data.edge_index[0], minlength=split.data.num_nodes)
    rank = degree[once].double().add(1).log().sum(dim=0) + torch.rand(once.size(1), generator=torch.manual_seed(0))
    deletion = gd.Deletion(edges=once[:, rank.argsort()[:500]])
    torch.manual_seed(0)
    model = gd.models.GCN(64, hidden=16, out=8)

    def fit(model, data, seed):
        gd.train(model, data, task, epochs=40, lr=0.01, seed=seed, validate_every=40)
        return model

    fit(model, split.data, 0)
    return gd.Unlearner(model, split.data, task=task, method="retrain", fit=fit).delete(deletion)


def test_the_surroundings_decide_without_a_reference_and_are_shown(poor):
    audit = gd.audit(poor, attacks=False)
    test = audit.to_dict()["forgetting"]["unseen"]["served"]
    assert test["adjusted"]["how"] == ADJUSTED
    assert test["adjusted"]["reference"] is None
    assert abs(test["adjusted"]["after"]["auc"] - 0.5) < abs(test["after"]["auc"] - 0.5)
    assert test["sentence"].endswith(ADJUSTED)
    assert f"AUC {test['adjusted']['after']['auc']:.3f}" in test["sentence"]
    assert "… adjusted for surroundings (decides)" in [row[0] for row in key_numbers(audit).rows]
    assert audit.to_dict()["forgetting"]["unseen"]["old_id"]["adjusted"] is None


def test_a_request_without_edges_has_nothing_to_compare_so(links):
    report = gd.audit(links.unlearner("unlink").delete(gd.Deletion(nodes=[1, 2])), attacks=False).to_dict()
    assert report["forgetting"]["unseen"]["served"]["adjusted"] is None


def test_a_reference_goes_before_the_surroundings():
    after, adjusted = side(0.42, 0.02), AdjustedTest(how=ADJUSTED, after=side(0.5, 0.02))
    test = alone(after, adjusted=adjusted)
    assert judged_auc(test).auc == 0.5
    assert judge(test).code == "indistinguishable"
    assert "never saw" in claimed(test)
    compared = beside(after, side(0.5, 0.02), 0.01, adjusted=adjusted)
    assert judged_auc(compared).auc == 0.42
    assert judge(compared).code == "over-forgotten"
    assert ADJUSTED not in judge(compared).text


def test_a_retrained_model_is_not_accused_without_a_reference(poor, monkeypatch):
    far_off = rules.Opinion("Deleted elements score above matched unseen ones.", "under-forgotten")
    monkeypatch.setattr(rules, "judge", lambda test: far_off)
    found = gd.audit(poor, attacks=False).verdict
    assert found.code == "undecided"
    assert "But this model was retrained" in found.text
    assert gd.audit(replace(poor, assurance="approximate"), attacks=False).verdict.code == "under-forgotten"


def test_edges_of_another_kind_are_judged_by_a_reference_alone_unless_they_are_far_off():
    def found(auc, kind_auc):
        return judge(
            alone(side(0.5, 0.02), adjusted=AdjustedTest(how=ADJUSTED, kind_auc=kind_auc, after=side(auc, 0.02)))
        )

    assert found(0.6, None).code == "under-forgotten"
    for auc in (0.4, 0.5, 0.6):
        assert found(auc, 0.84).code == "undecided"
        assert "of another kind than unseen ones (surroundings alone separate them, AUC 0.84)" in found(auc, 0.84).text
        assert f"AUC {auc:.3f}" in found(auc, 0.84).text
    assert found(0.88, 0.84).code == "under-forgotten"
    assert found(0.12, 0.84).code == "over-forgotten"
    adjusted = AdjustedTest(how=ADJUSTED, kind_auc=0.84, after=side(0.6, 0.02))
    assert judge(beside(side(0.5, 0.02), side(0.5, 0.02), 0.01, adjusted=adjusted)).code == "indistinguishable"


def ruined(section):
    """Why the model is ruined, or else why it may be."""
    sure, perhaps = (check(findings(utility=section)) for check in (rules.model_ruined, rules.perhaps_ruined))
    return sure.text if sure else "", perhaps.text if perhaps else ""


def with_scores(before, after, constant, error=0.0):
    values = PerModel(before, after)
    tested = Skill("accuracy", values, 0.5, constant, 400, "test elements", before_error=error)
    return UtilitySection(metrics={"accuracy": values}, tested=tested)


def test_skill_is_what_one_answer_for_all_does_not_reach():
    assert "0.925" in ruined(with_scores(0.97, 0.925, constant=0.92))[0]
    assert ruined(with_scores(0.97, 0.925, constant=0.5)) == ("", "")
    assert ruined(with_scores(0.95, 0.94, constant=0.92)) == ("", ""), "a hundredth is no ruin"
    # a model that was no better than one answer for all can still get much worse
    assert "0.300" in ruined(with_scores(0.925, 0.3, constant=0.92))[0]
    assert ruined(with_scores(0.925, 0.9, constant=0.92)) == ("", "")


def test_a_loss_within_its_error_is_no_ruin_and_is_told():
    assert ruined(with_scores(0.9, 0.6, 0.5, error=0.15))[0]
    sure, perhaps = ruined(with_scores(0.9, 0.6, 0.5, error=0.16))
    assert sure == ""
    assert perhaps == (
        "its accuracy is 0.600 on 400 test elements, 0.900 before the deletion; 400 elements are too few to say whether the "
        "model is ruined"
    )
