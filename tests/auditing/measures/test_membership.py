"""The membership attack: it finds what a model remembers, and nothing in a model that never saw it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import gnndelete as gd
from gnndelete.auditing.case import Case, Shadow, Subject
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.attack import ROC_POINTS, Attack, AttackResult, train_shadow
from gnndelete.auditing.measures.membership import Membership
from gnndelete.metrics.ranking import auc


def membership(case: Case, shadow: Shadow) -> dict[str, Any]:
    return run_measure(Membership(), replace(case, shadow=shadow)).to_dict()


@pytest.fixture(scope="module")
def edge_shadow(edge_case: Case) -> Shadow:
    return train_shadow(edge_case)


@pytest.fixture(scope="module")
def node_shadow(node_case: Case) -> Shadow:
    return train_shadow(node_case)


@pytest.fixture(params=["edge", "node"])
def asked(request: pytest.FixtureRequest) -> tuple[str, Case, dict[str, Any]]:
    form = request.param
    case, shadow = (request.getfixturevalue(f"{form}_{name}") for name in ("case", "shadow"))
    return form, case, membership(case, shadow)


def test_it_has_power_before_and_none_on_a_model_that_never_saw_them(asked: tuple[str, Case, dict[str, Any]]) -> None:
    form, _, result = asked
    assert result["available"]
    assert result["form"] == form
    assert result["shadow"]["auc"] > 0.8
    assert result["before"]["auc"] > 0.85
    assert abs(result["reference"]["auc"] - 0.5) < 0.13  # 60 (30) elements: a standard error of .05 (.06)
    assert result["before"]["mean"] > 2 * result["reference"]["mean"]


def test_the_ratio_is_before_over_after(asked: tuple[str, Case, dict[str, Any]]) -> None:
    _, _, result = asked
    mean = {name: result[name]["mean"] for name in ("before", "after", "reference")}
    assert result["mi_ratio"] == pytest.approx(mean["before"] / mean["after"])
    assert result["mi_ratio_reference"] == pytest.approx(mean["before"] / mean["reference"])
    assert result["mi_ratio_reference"] > 1


def test_cutting_edges_forgets_a_part_and_presenting_nodes_again_shows_that_unlink_forgot_nothing(
    edge_case: Case, edge_shadow: Shadow, node_case: Case, node_shadow: Shadow
) -> None:
    edges, nodes = membership(edge_case, edge_shadow), membership(node_case, node_shadow)
    assert edges["reference"]["auc"] < edges["after"]["auc"] < edges["before"]["auc"]
    assert nodes["after"] == nodes["before"]  # the weights are the same, and so is the graph that is asked
    assert "original graph" in nodes["shadow"]["what"]
    assert "served" in edges["shadow"]["what"]


def test_the_section_is_plain_repeatable_and_names_nobody(asked: tuple[str, Case, dict[str, Any]]) -> None:
    _, case, result = asked
    text = json.dumps(result, allow_nan=False)
    assert len(text) < 30_000
    for name in ("before", "after", "reference"):
        roc = result[name]["roc"]
        assert len(roc["fpr"]) == len(roc["tpr"]) <= ROC_POINTS
        assert (roc["fpr"][0], roc["tpr"][0], roc["fpr"][-1], roc["tpr"][-1]) == (0, 0, 1, 1)
        assert sorted(roc["fpr"]) == roc["fpr"]
        assert sorted(roc["tpr"]) == roc["tpr"]
    count = len(case.deletion)
    assert result["counts"]["deleted"] == count
    lists = [value for name in ("before", "after") for value in result[name]["roc"].values()]
    assert all(0 <= number <= 1 for numbers in lists for number in numbers)  # rates: no list of ids hides here
    assert "attack" in result["sentence"]


def test_the_same_seed_gives_the_same_numbers_and_no_global_random_state_is_used(
    edge_case: Case, edge_shadow: Shadow
) -> None:
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first, second = membership(edge_case, edge_shadow), membership(edge_case, edge_shadow)
    assert first == second
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert random.getstate() == states[2]


def test_only_training_nodes_count_as_deleted(node_case: Case, node_shadow: Shadow) -> None:
    untrained = node_case.original.val_mask.nonzero().flatten()[:10]
    result = membership(replace(node_case, deletion=gd.Deletion(nodes=untrained)), node_shadow)
    assert not result["available"]
    assert "trained on the label of none of the nodes" in result["reason"]


def test_sure_answers_still_differ(edge_case: Case, edge_shadow: Shadow) -> None:
    """Scores at which a 32-bit probability is exactly 1 are told apart all the same."""

    def shifted(subject: Subject) -> Subject:
        return replace(subject, predict=lambda edges: subject.predict(edges) + 25)

    subjects = {name: shifted(subject) for name, subject in edge_case.subjects.items()}
    shadow = replace(edge_shadow, subject=shifted(edge_shadow.subject))
    assert bool((subjects["before"].predict(edge_case.deletion.edges).sigmoid() == 1).all())
    result = membership(replace(edge_case, subjects=subjects), shadow)
    assert result["before"]["auc"] > 0.85


def test_edges_of_deleted_nodes_are_asked_on_the_original_graph(links: Any, edge_shadow: Shadow) -> None:
    gone = gd.Deletion(nodes=[1, 2, 3, 4, 5, 6])
    result = membership(links.case("unlink", gone), edge_shadow)
    assert result["elements"] == "edges of deleted nodes"
    assert result["after"] == result["before"]
    assert result["reference"] is None
    assert result["mi_ratio_reference"] is None
    assert "never saw them" in result["shadow"]["what"]


def test_very_few_elements_are_called_so(links: Any, edge_shadow: Shadow) -> None:
    case = links.case("unlink", gd.Deletion(edges=gd.datasets.forget_edges(links.data, 2, seed=1)))
    assert "anecdote" in membership(case, edge_shadow)["sentence"]


def test_suppressed_edges_stand_out_from_below(edge_case: Case, edge_shadow: Shadow) -> None:
    gone = {tuple(edge) for edge in edge_case.deletion.edges.t().tolist()}

    def suppressed(edges: torch.Tensor) -> torch.Tensor:
        low = torch.tensor([tuple(edge) in gone for edge in edges.t().tolist()])
        return torch.where(low, edge_case.after.predict(edges) - 20, edge_case.after.predict(edges))

    after = replace(edge_case.after, predict=suppressed)
    result = membership(replace(edge_case, subjects={**edge_case.subjects, "after": after}), edge_shadow)
    assert result["after"]["auc"] < 0.2
    assert "suppressed, and can be recognised" in result["sentence"]


def test_a_useless_attack_says_so(edge_case: Case, edge_shadow: Shadow) -> None:
    blind = replace(edge_shadow.subject, predict=lambda edges: torch.zeros(edges.size(1)))
    result = membership(edge_case, replace(edge_shadow, subject=blind))
    assert result["shadow"]["auc"] == 0.5
    assert "proves little" in result["sentence"]


def test_models_without_finite_scores_do_not_break_the_report(edge_case: Case, edge_shadow: Shadow) -> None:
    ruined = replace(edge_case.after, predict=lambda edges: torch.full((edges.size(1),), float("nan")))
    result = membership(replace(edge_case, subjects={**edge_case.subjects, "after": ruined}), edge_shadow)
    assert (result["after"]["auc"], result["after"]["same"], result["before"]["same"]) == (0.5, True, False)
    assert "every element gets the same answer" in result["sentence"]
    json.dumps(result, allow_nan=False)


def test_what_cannot_be_asked_is_named(nodes: Any, links: Any, edge_case: Case, edge_shadow: Shadow) -> None:
    edges = nodes.case("unlink", gd.Deletion(edges=nodes.data.edge_index[:, :3]))
    reasons = {
        "has no score for an edge": membership(edges, edge_shadow),
        "no test edges": membership(replace(edge_case, task=gd.LinkPrediction()), edge_shadow),
        "because": membership(edge_case, replace(edge_shadow, subject=None, reason="because")),
    }
    gone = nodes.case("unlink", gd.Deletion(nodes=gd.datasets.forget_nodes(nodes.data, 5)))
    silent = replace(gone.after, model=None)
    reasons["keeps no model"] = membership(
        replace(gone, subjects={**gone.subjects, "after": silent}), train_shadow(gone)
    )
    for reason, result in reasons.items():
        assert result["available"] is False
        assert reason in result["reason"]


def test_the_classifier_learns_a_band_that_no_threshold_finds() -> None:
    generator = np.random.default_rng(0)
    inside, outside = generator.uniform(-1, 1, (500, 1)), generator.choice([-1, 1], (500, 1)) * 2.0
    attack = Attack(inside, outside, seed=0)
    assert abs(auc(inside[:, 0], outside[:, 0]) - 0.5) < 0.1
    assert attack.quality > 0.95


def test_long_curves_are_thinned_without_moving_their_area() -> None:
    generator = np.random.default_rng(0)
    found = AttackResult.of(generator.normal(1, 1, 3000), generator.normal(0, 1, 3000))
    assert len(found.roc["fpr"]) == ROC_POINTS
    assert np.trapezoid(found.roc["tpr"], found.roc["fpr"]) == pytest.approx(found.auc, abs=0.005)
