"""The trend attack: its bits, the shadow that was itself unlearned, and the gap to a model that never saw the edges."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
import torch

import gnndelete as gd
from gnndelete.auditing.case import Case, Shadow
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.attack import train_shadow
from gnndelete.auditing.measures.trend import Trend, _non_edges, _same_method, neighbor_mean, trend_bits


def trend(case: Case, shadow: Shadow) -> dict[str, Any]:
    return run_measure(Trend(), replace(case, shadow=shadow)).to_dict()


@pytest.fixture(scope="module")
def shadow(edge_case: Case) -> Shadow:
    return train_shadow(edge_case)


def test_means_over_neighbours_are_those_of_a_loop(edge_case: Case) -> None:
    edges, nodes = edge_case.remaining.edge_index, edge_case.remaining.num_nodes
    values = torch.rand(nodes, generator=torch.Generator().manual_seed(0)).double()
    found = neighbor_mean(values, edges)
    for node in range(nodes):
        near = edges[1, edges[0] == node]
        expected = values[near].mean() if near.numel() else values[node]
        assert found[node] == pytest.approx(float(expected))


def test_a_dip_is_seen_whatever_the_direction_of_the_edges() -> None:
    star = torch.tensor([[0, 0, 0, 4], [1, 2, 3, 4]])  # node 4 has only a self-loop
    confidence = torch.tensor([0.2, 0.9, 0.9, 0.9, 0.5])
    bits = trend_bits(confidence, star)
    assert bits[0].tolist() == [1, 0]
    assert bits[4].tolist() == [0, 0]
    assert torch.equal(bits, trend_bits(confidence, star.flip(0)))
    assert torch.equal(bits, trend_bits(confidence, torch.cat([star, star.flip(0)], dim=1)))


def test_what_unlink_leaves_behind_shows_as_a_gap_to_the_reference(edge_case: Case, shadow: Shadow) -> None:
    state, weights = torch.random.get_rng_state(), copy.deepcopy(shadow.subject.model.state_dict())
    result = trend(edge_case, shadow)
    assert result["available"]
    assert result["before"]["auc"] > 0.9
    assert result["after"]["auc"] > result["reference"]["auc"] + 0.1
    assert abs(result["reference"]["auc"] - 0.5) < 0.13  # in a random graph true edges look like any other pair
    assert set(result["without_bits"]) == {"before", "after", "reference"}
    assert "construction of this library" in result["what"]
    assert result == trend(edge_case, shadow)
    json.dumps(result, allow_nan=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, weights[key]) for key, value in shadow.subject.model.state_dict().items())


def test_deleted_edges_under_a_node_task_are_asked_too(nodes: Any) -> None:
    case = nodes.case("unlink", gd.Deletion(edges=gd.datasets.forget_edges(nodes.data, 40, seed=2)))
    result = trend(case, train_shadow(case))
    assert result["available"]
    assert result["reference"] is None
    assert "largest class probability" in result["what"]
    assert "without a retrained reference" in result["sentence"]


def test_non_edges_are_no_edges_of_any_part_and_serve_once(edge_case: Case) -> None:
    first, second = _non_edges(edge_case, 300, 200)
    assert (first.size(1), second.size(1)) == (300, 200)
    drawn = [tuple(pair) for pair in torch.cat([first, second], dim=1).t().tolist()]
    assert len(set(drawn)) == 500
    task = edge_case.task
    known = torch.cat([edge_case.original.edge_index, task.validation.positives, task.test.positives], dim=1)
    assert not set(drawn) & {tuple(sorted(pair)) for pair in known.t().tolist()}


@pytest.mark.parametrize(
    "method",
    [gd.GNNDelete(lam=0.1), gd.GNNDelete.paper(), gd.methods.GradAscent(epochs=2), gd.methods.ZeroedEndpoints()],
)
def test_the_method_is_made_again_from_its_settings(links: Any, shadow: Shadow, method: Any) -> None:
    edges = gd.datasets.forget_edges(links.data, 20, seed=5)
    case = links.case(method, gd.Deletion(edges=edges))
    assert _same_method(case).settings() == method.settings()
    assert trend(case, shadow)["available"]


def test_the_strength_that_calibration_chose_is_used(edge_case: Case) -> None:
    unlearned = replace(
        edge_case.unlearned,
        method="gnndelete",
        settings={**gd.GNNDelete(lam=0.5).settings(), "lam": "auto"},
        details={"calibration": {"lam": 0.03}},
    )
    assert _same_method(replace(edge_case, unlearned=unlearned)).lam == 0.03


def test_what_cannot_be_asked_is_named(links: Any, edge_case: Case, shadow: Shadow) -> None:
    def with_(**changes: Any) -> Case:
        return replace(edge_case, unlearned=replace(edge_case.unlearned, **changes))

    reasons = {
        "between nodes that remain": trend(links.case("unlink", gd.Deletion(nodes=[1, 2])), shadow),
        "keeps no model": trend(with_(model=None), shadow),
        "trains again": trend(with_(method="retrain"), shadow),
        "'operator' must be": trend(with_(method="gnndelete", settings={"operator": "MyMap"}), shadow),
        "method 'elsewhere'": trend(with_(method="elsewhere"), shadow),
        "because": trend(edge_case, replace(shadow, subject=None, reason="because")),
    }
    for reason, result in reasons.items():
        assert result["available"] is False
        assert reason in result["reason"]


def test_two_edges_are_too_few_and_it_says_so(links: Any, shadow: Shadow) -> None:
    case = links.case("unlink", gd.Deletion(edges=gd.datasets.forget_edges(links.data, 2, seed=5)))
    assert "anecdote" in trend(case, shadow)["sentence"]
