"""The verdict on one test: what counts as a difference, what is too few, and how much could have been missed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnndelete.auditing import judging
from gnndelete.auditing.judging import FEW, TOLERANCE, attacked, judge, title
from gnndelete.auditing.report import html as page
from gnndelete.auditing.verdict import verdict


def side(auc, half=0.04, **rest):
    return {"auc": auc, "low": auc - half, "high": auc + half, "se": half / 1.96, "deleted": 300, "matched": 1.0} | rest


def beside(after, reference, error):
    return {"after": after, "reference": reference, "gap": after["auc"] - reference["auc"], "gap_error": error}


def attack(after, reference=None, deleted=41, elements="deleted training nodes"):
    return {
        "available": True,
        "elements": elements,
        "counts": {"deleted": deleted, "test": 1000},
        "after": {"auc": after},
        "reference": reference and {"auc": reference},
    }


@given(st.floats(0.1, 0.9), st.floats(0.1, 0.9), st.floats(0.005, 0.1), st.floats(0.005, 0.1), st.floats(0, 1))
def test_intervals_that_do_not_meet_are_a_difference_and_one_within_tolerance_is_none(a, b, one, two, share):
    after, reference = side(a, one), side(b, two)
    error = share * (one + two)  # the error of a difference is at most the sum of both
    word, _ = judge(beside(after, reference, error))
    if abs(a - b) > max(one + two, TOLERANCE):
        assert word == ("under-forgotten" if a > b else "over-forgotten")
    if abs(a - b) <= TOLERANCE:
        assert word in ("indistinguishable", "undecided")


def test_a_reference_is_the_target_and_named_in_the_sentence():
    word, sentence = judge(beside(side(0.10), side(0.19), 0.05))
    assert word == "over-forgotten"
    assert "deleted ones rank lower than in the retrained model" in sentence
    assert "-0.090 ± 0.050" in sentence
    assert judge({"after": side(0.10), "reference": None})[0] == "over-forgotten"


def test_the_title_says_how_much_could_have_been_missed():
    test = {"after": side(0.52, 0.05), "reference": None}
    assert judge(test)[0] == "indistinguishable"
    assert title(test) == "No difference seen from data the model never saw (could have missed up to ±0.07)"
    large = beside(side(0.51, 0.002), side(0.5, 0.002), 0.003)
    assert judge(large)[0] == "indistinguishable"
    assert title(large) == "Next to no difference (below 0.03) from a model trained without the data"


@pytest.mark.parametrize("deleted", [1, 4, FEW - 1])
def test_so_few_decide_nothing_whatever_they_score(deleted):
    word, sentence = judge({"after": side(0.02, 0.01, deleted=deleted), "reference": None})
    assert word == "undecided"
    assert sentence.startswith(f"{deleted} deleted element{'s are' if deleted > 1 else ' is'} too few")


def test_without_a_reference_what_calibration_took_for_chance_is_not_called_remembered():
    found = {"after": side(0.58, 0.03), "reference": None}
    assert judge(found)[0] == "under-forgotten"
    fine = {"how": "By surroundings.", "told_apart": None, "after": side(0.58, 0.03)}
    word, sentence = judge(found | {"finely": fine | {"aimed": 0.55}})
    assert word == "undecided"
    assert "aimed at 0.550; a reference would tell" in sentence
    assert judge(found | {"finely": fine | {"aimed": 0.51}})[0] == "under-forgotten"
    assert judge(found | {"finely": fine | {"aimed": None}})[0] == "under-forgotten"


def test_it_is_said_which_are_too_few():
    vague = {"after": side(0.5, 0.2, deleted=446, unseen=9), "reference": None}
    assert judge(vague)[1].startswith("9 unseen elements are too few to tell")
    vague["after"]["unseen"] = 5000
    assert judge(vague)[1].startswith("446 deleted elements are too few to tell")
    vague["after"]["beside"] = 6.4  # most of the 5,000 are beside few of the deleted ones
    assert judge(vague)[1].startswith("6 unseen elements of the kind of the deleted ones are too few to tell")
    vague["after"] |= {"matched": 0.02, "beside": 40.0}
    said = "Unseen elements of the kind of the deleted ones (40, for 9 of 446) are too few to tell"
    assert judge(vague)[1].startswith(said)


def test_a_low_share_with_a_match_stands_beside_the_verdict():
    assert "Only 41.5% of the deleted" in judge({"after": side(0.5, matched=0.415), "reference": None})[1]
    assert "Only" not in judge({"after": side(0.5, matched=0.95), "reference": None})[1]


def test_the_membership_attack_speaks_against_a_good_verdict():
    assert attacked(attack(0.202))[0] == "undecided"
    assert attacked(attack(0.202, 0.5))[0] == "over-forgotten"
    assert attacked(attack(0.8, 0.5))[0] == "under-forgotten"
    assert attacked(attack(0.202, 0.19)) is None
    assert attacked(attack(0.55)) is None
    assert attacked(attack(0.1, deleted=4)) is None
    assert attacked(attack(0.8, elements="edges of deleted nodes")) is None
    assert attacked({"available": False, "reason": "left out"}) is None


NOT_MEASURED = {"available": False, "reason": "left out"}


def whole(
    served, old_id, new_id, membership=NOT_MEASURED, adapter=True, distance=NOT_MEASURED, trend=NOT_MEASURED, kinds=()
):
    """The verdict on deleted edges whose tests gave these AUCs, without a reference."""
    tests = {}
    for name, value in (("served", served), ("old_id", old_id), ("new_id", new_id)):
        test = {"available": True, "after": side(value), "reference": None}
        test["verdict"], test["sentence"] = judge(test)
        tests[name] = test
    tests["served"]["kinds"] = list(kinds)
    case = SimpleNamespace(
        blank=False,
        unlearned=SimpleNamespace(adapter=object() if adapter else None),
    )
    forgetting = {"available": True, "unseen": tests}
    return verdict(case, NOT_MEASURED, forgetting, membership, trend, distance, 0, None)


def test_another_graph_that_speaks_against_it_takes_the_tick_away_and_is_named():
    found = whole(0.5, 0.4, 0.5)
    assert (found["word"], found["doubts"]) == ("indistinguishable", ["old_id"])
    assert found["title"].endswith("as served; but not presented again under their old ids")
    assert page.text({"verdict": found}).startswith("[≈]")
    assert page.text({"verdict": whole(0.5, 0.5, 0.5)}).startswith("[✓]")


def test_new_ids_that_show_an_adapter_are_expected_and_no_failure_of_the_verdict():
    found = whole(0.5, 0.5, 0.9)
    assert (found["word"], found["doubts"]) == ("indistinguishable", [])
    assert page.text({"verdict": found}).startswith("[✓]")
    assert "to be expected" in found["warnings"][0]
    assert "to be expected" not in whole(0.5, 0.5, 0.9, adapter=False)["warnings"][0]


def test_two_comparisons_that_point_opposite_ways_are_told():
    ranking = {"auroc": {"before": 0.5, "after": 0.62, "reference": 0.87}}
    assert "opposite ways" in judging.opposite("over-forgotten", ranking)
    assert judging.opposite("under-forgotten", ranking) is None
    ranking["auroc"]["after"] = 0.99
    assert "rank lower" in judging.opposite("under-forgotten", ranking)
    assert judging.opposite("over-forgotten", ranking) is None
    for nothing in ({}, {"auroc": {"after": 0.6, "reference": None}}):
        assert judging.opposite("over-forgotten", nothing) is None


def test_an_attack_that_tells_takes_the_word_away_and_is_named():
    found = whole(0.5, 0.5, 0.5, attack(0.2))
    assert found["word"] == "undecided"
    assert "But the membership attack tells them" in found["sentence"]
    assert whole(0.8, 0.5, 0.5, attack(0.2))["word"] == "under-forgotten"


def kind(after, reference=None, deleted=90, unseen=80, words="an end has no edge left"):
    return {"kind": words, "deleted": deleted, "unseen": unseen, "after": after, "reference": reference}


def test_one_kind_of_edges_that_stands_out_is_not_hidden_by_the_others():
    assert "(90 of the deleted edges) the AUC is 0.990, and 0.600" in judging.apart(
        {"kinds": [kind(0.5, 0.5), kind(0.99, 0.6)]}
    )
    assert judging.apart({"kinds": [kind(0.3, 0.6)]}) is not None
    for harmless in (kind(0.62, 0.6), kind(0.99), kind(0.99, 0.6, deleted=FEW - 1), kind(None, unseen=0)):
        assert judging.apart({"kinds": [harmless]}) is None
    assert judging.apart({}) is None


def test_such_a_kind_is_warned_of():
    found = whole(0.5, 0.5, 0.5, kinds=[kind(0.99, 0.6)])
    assert found["word"] == "indistinguishable"
    assert found["warnings"][0].startswith("Where an end has no edge left")


def apart(deleted, others):
    """Bits between a model's scores and the reference's, beyond what sampling gives."""
    parts = {"deleted": deleted, "unseen": others, "remaining": others / 2}
    return {"available": True, "js": {name: {"after": value + 0.02, "floor": 0.02} for name, value in parts.items()}}


def test_scores_that_are_spread_otherwise_take_the_tick_away_though_ranks_agree():
    found = whole(0.5, 0.5, 0.5, distance=apart(0.3, 0.01))
    assert found["word"] == "undecided"
    assert "But their scores are spread otherwise than the retrained model's: 0.32 bits apart" in found["sentence"]
    for other in (
        apart(0.3, 0.15),
        apart(0.05, 0.0),
        NOT_MEASURED,
    ):  # two trainings that differ anyway; little; unknown
        assert whole(0.5, 0.5, 0.5, distance=other)["word"] == "indistinguishable"


def test_a_trend_that_tells_and_a_reference_of_another_kind_are_warned_of():
    told = {"available": True, "after": {"auc": 0.92}, "reference": {"auc": 0.5}}
    assert any("trend attack" in said for said in whole(0.5, 0.5, 0.5, trend=told)["warnings"])
    assert any("trained differently" in said for said in whole(0.5, 0.5, 0.5, distance=apart(0.7, 0.6))["warnings"])
    close = {**told, "reference": {"auc": 0.9}}
    assert not whole(0.5, 0.5, 0.5, trend=close, distance=apart(0.05, 0.05))["warnings"]
