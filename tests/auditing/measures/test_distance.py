"""Distances to the reference: zero to itself, growing with noise, and figure data that names nobody."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor, nn

import gnndelete as gd
from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures import figure_data
from gnndelete.auditing.measures.distance import Distance, divergence, floor
from gnndelete.auditing.measures.figure_data import Scores
from gnndelete.testing import problem


def distance(case: Case) -> dict[str, Any]:
    return run_measure(Distance(), case).to_dict()


def score_samples(case: Case) -> dict[str, Any]:
    return run_measure(Scores(), case).to_dict()


def fit_of(task: Any) -> Any:
    def fit(model: nn.Module, data: Any, seed: int) -> nn.Module:
        gd.train(model, data, task, epochs=20, lr=0.01, seed=seed)
        return model

    return fit


def case_of(name: str, kind: str = "edges") -> Case:
    model, data, task = problem(name)
    deletion = gd.Deletion(edges=data.edge_index[:, 3::20]) if kind == "edges" else gd.Deletion(nodes=range(0, 30, 2))
    results = [
        gd.Unlearner(model, data, task=task, method=method, fit=fit_of(task)).delete(deletion)
        for method in ("unlink", "retrain")
    ]
    after, reference = results
    assert after.model is not None
    assert after.data is not None
    assert reference.model is not None
    subjects = {
        "before": Subject.of_model("before", model, data, task, after.forward),
        "after": Subject.of_model("after", after.model, after.data, task, after.forward),
        "reference": Subject.of_model("reference", reference.model, after.data, task, after.forward),
    }
    left = task.without(after.deletion.nodes)
    return Case(after, reference, after.deletion, data, after.data, left, model, subjects, after.forward)


class Other(gd.tasks.Task):
    """A task of the user's own, which says nothing of its elements."""

    name = "other"

    def check(self, data: Any) -> None:
        return None

    def loss(self, *args: Any) -> Tensor:
        raise NotImplementedError

    def validates(self, data: Any) -> bool:
        return False

    def validate(self, *args: Any) -> float:
        raise NotImplementedError

    def evaluate_by(self, *args: Any) -> dict[str, float]:
        return {}

    def predict(self, model: nn.Module, output: Any, elements: Any) -> Tensor:
        return elements


def with_after(case: Case, subject: Subject) -> Case:
    return replace(case, subjects={**case.subjects, "after": replace(subject, name="after")})


def noisy(subject: Subject, size: float, link: bool) -> Subject:
    def predict(elements: Any) -> Tensor:
        scores = subject.predict(elements)
        noise = size * torch.randn(scores.shape, generator=torch.Generator().manual_seed(1))
        return scores + noise if link else (scores.log() + noise).softmax(dim=-1)

    return replace(subject, predict=predict)


@pytest.fixture(params=["link/edges", "link/nodes", "node/edges", "node/nodes"])
def case(request: pytest.FixtureRequest) -> Case:
    return case_of(*request.param.split("/"))


def test_the_reference_is_at_distance_zero_from_itself(case: Case) -> None:
    result = distance(with_after(case, case.subjects["reference"]))
    assert {"deleted", "unseen", "remaining"} <= set(result["js"])
    assert all(group["after"] == 0 for group in result["js"].values())
    assert all(0 <= group["floor"] < 0.5 for group in result["js"].values())
    assert result["agreement"]["after"] == 1
    assert result["difference"]["after"] == 0


def test_distance_grows_with_noise(case: Case) -> None:
    link = case.task.name == "link"
    steps = [distance(with_after(case, noisy(case.subjects["reference"], size, link))) for size in (0.0, 0.3, 30.0)]
    for measure in (
        lambda r: r["js"]["remaining"]["after"],
        lambda r: r["difference"]["after"],
        lambda r: -r["agreement"]["after"],
    ):
        values = [measure(step) for step in steps]
        assert values == sorted(values)
        assert values[0] < values[2]


def test_agreement_and_difference_equal_a_plain_loop() -> None:
    case = case_of("link")
    task = case.task
    assert isinstance(task, gd.LinkPrediction)
    assert task.test is not None
    assert task.test.negatives is not None
    pairs = torch.cat([task.test.positives, task.test.negatives], dim=1)
    p, q = (case.subjects[name].predict(pairs).sigmoid().tolist() for name in ("after", "reference"))
    result = distance(case)
    assert result["agreement"]["count"] == len(p)
    alike = sum((a > 0.5) == (b > 0.5) for a, b in zip(p, q, strict=True)) / len(p)
    assert result["agreement"]["after"] == pytest.approx(alike)
    assert result["difference"]["after"] == pytest.approx(
        sum(abs(a - b) for a, b in zip(p, q, strict=True)) / len(p), rel=1e-5
    )


def test_divergence_is_scipys_on_the_same_bins_and_sees_only_order() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=400), draw.normal(0.5, 1.2, size=400)
    cuts = np.quantile(np.concatenate([a, b]), np.linspace(0, 1, 21), method="higher")
    cuts[0], cuts[-1] = -np.inf, np.inf
    p, q = np.histogram(a, cuts)[0], np.histogram(b, cuts)[0]
    assert divergence(a, b) == pytest.approx(jensenshannon(p, q, base=2) ** 2)
    assert divergence(np.exp(a), np.exp(b)) == divergence(a, b) == pytest.approx(divergence(b, a))


@pytest.mark.parametrize("count", [10, 37, 50, 400])
def test_samples_that_do_not_overlap_are_one_bit_apart(count: int) -> None:
    draw = np.random.default_rng(count)
    assert divergence(draw.random(count), 2 + draw.random(count)) == 1
    assert divergence(np.zeros(count), np.ones(count)) == 1
    assert divergence(np.zeros(count), np.zeros(count)) == 0


def test_the_floor_is_what_two_samples_of_one_distribution_show() -> None:
    draw = np.random.default_rng(3)
    shown = np.mean([divergence(draw.normal(size=500), draw.normal(size=500)) for _ in range(40)])
    assert floor(draw.normal(size=500), seed=0) == pytest.approx(shown, rel=0.25)
    assert floor(draw.normal(size=2000), seed=0) < shown / 2


def test_plain_values_same_answer_and_nothing_touched(case: Case) -> None:
    state, rng = copy.deepcopy(case.base.state_dict()), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # type: ignore[union-attr, index]
    first = json.dumps([distance(case), score_samples(case)], allow_nan=False)
    assert json.dumps([distance(case), score_samples(case)], allow_nan=False) == first
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert (np.random.get_state()[1] == numpy_state).all()  # type: ignore[index]
    assert all(torch.equal(value, state[key]) for key, value in case.base.state_dict().items())


def test_score_samples_hold_each_models_own_answers(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    link = case.task.name == "link"
    monkeypatch.setattr(figure_data, "SCORE_LIMIT", 25)
    data = score_samples(case)
    assert data["axis"] == ("score (logit)" if link else "probability of the true class")
    assert set(data["scores"]) == {"before", "after", "reference"}
    groups = {"deleted", "unseen", "remaining"} | ({"random"} if link else set())
    for found in data["scores"].values():
        assert set(found) == groups
        assert all(0 < len(values) <= 25 for values in found.values())
        if not link:
            assert all(0 <= value <= 1 for values in found.values() for value in values)
    if link and not case.deletion.nodes.numel():
        monkeypatch.undo()
        everything = score_samples(case)["scores"]["after"]["deleted"]
        own = [round(float(value), 4) for value in case.after.predict(case.deletion.edges).double()]
        assert sorted(everything) == sorted(own)
        mean = {name: sum(values) / len(values) for name, values in data["scores"]["before"].items()}
        assert mean["random"] < mean["remaining"]


def test_deleted_nodes_are_judged_by_the_class_they_had() -> None:
    case = case_of("node", "nodes")
    assert bool((case.remaining.y[case.deletion.nodes] == -1).all())
    true = case.original.y[case.deletion.nodes]
    own = case.subjects["before"].predict(case.deletion.nodes)[torch.arange(len(true)), true]
    values = score_samples(case)["scores"]["before"]["deleted"]
    assert sorted(values) == pytest.approx(sorted(own.tolist()), abs=1e-4)


@pytest.mark.parametrize("name", ["link", "node", "graph"])
def test_elements_that_are_blank_as_served_are_presented_again(name: str) -> None:
    """Cutting changes no weight, so that the model answers about them as before; blank, all of them get one answer."""
    model, data, task = problem(name)
    gone = gd.Deletion(graphs=range(10)) if name == "graph" else gd.Deletion(nodes=range(0, 30, 2))
    by = [gd.Unlearner(model, data, task=task, method=m, fit=fit_of(task)) for m in ("unlink", "retrain")]
    unlinked, retrained = (unlearner.delete(gone) for unlearner in by)
    found = gd.audit(unlinked, reference=retrained, attacks=False)
    values = found.to_dict()
    js = values["distance"]["js"]["deleted"]
    assert js["after"] == js["before"]
    assert js["graph"] == "old_id"
    words = {"link": "edges of deleted nodes", "node": "deleted nodes", "graph": "deleted graphs"}[name]
    assert f"Scores of {words} (presented again), bits from Retrain" in str(found)
    assert f"The scores of {words} (presented again) are" in values["distance"]["sentence"]
    scores = values["scores"]["scores"]
    assert scores["after"]["deleted"] == scores["before"]["deleted"]
    assert f"'Deleted' are {words} (presented again)." in found.to_html().replace("&#39;", "'")


def test_a_model_that_answers_on_no_other_graph_is_not_compared_on_blank_nodes() -> None:
    case = case_of("node", "nodes")
    result = distance(with_after(case, replace(case.after, model=None)))
    assert "deleted" not in result["js"]
    assert result["left_out"]["deleted"].startswith("this method answers on the graph it was fitted on")
    assert "not compared: nothing of them is left as served, and this method answers on" in result["sentence"]


@pytest.mark.parametrize(
    ("name", "words"), [("node", "nodes at deleted edges"), ("graph", "graphs that lost an edge or a node")]
)
def test_edges_of_a_classifier_are_not_called_scores_of_deleted_elements(name: str, words: str) -> None:
    model, data, task = problem(name)
    gone = gd.Deletion(edges=data.edge_index[:, ::5])
    by = [gd.Unlearner(model, data, task=task, method=m, fit=fit_of(task)) for m in ("unlink", "retrain")]
    found = gd.audit(by[0].delete(gone), reference=by[1].delete(gone), attacks=False)
    assert f"Scores of {words}, bits from Retrain" in str(found)
    assert found.to_dict()["distance"]["sentence"].startswith(f"The scores of {words} are")


def test_unavailable_says_why() -> None:
    case = case_of("link")
    bare = replace(case, subjects={k: v for k, v in case.subjects.items() if k != "reference"}, reference=None)
    assert "reference=" in distance(bare)["reason"]
    other = Other()
    assert distance(replace(case, task=other))["available"] is False
    assert "'other' task" in score_samples(replace(case, task=other))["reason"]
    broken = replace(case.after, predict=lambda edges: torch.full((edges.size(1),), float("nan")))
    assert "NaN" in distance(with_after(case, broken))["reason"]


def test_few_elements_are_not_called_a_distribution() -> None:
    case = case_of("link")
    few = replace(case, deletion=gd.Deletion(edges=case.deletion.edges[:, :3]))
    result = distance(few)
    assert "deleted" not in result["js"]
    assert "unseen" in result["js"]
    assert result["agreement"]["after"] > 0
    assert "bits" not in result["sentence"]
