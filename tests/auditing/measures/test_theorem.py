"""Theorem 1 against a dense computation of its own, the operator's identity, and every reason not to measure."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import gnndelete as gd
from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.theorem import Theorem
from gnndelete.nn.operator import LayerOperators
from gnndelete.testing import problem


def theorem(case: Case) -> dict[str, Any]:
    return run_measure(Theorem(), case).to_dict()


def case_of(method: Any, name: str = "link", deletion: gd.Deletion | None = None) -> Case:
    model, data, task = problem(name)
    if deletion is None:
        deletion = gd.Deletion(edges=data.edge_index[:, 3::20])
    result = gd.Unlearner(model, data, task=task, method=method).delete(deletion)
    assert result.data is not None
    subjects = {"before": Subject.of_model("before", model, data, task, result.forward)}
    if result.model is not None:
        subjects["after"] = Subject.of_model("after", result.model, result.data, task, result.forward)
    return Case(result, None, result.deletion, data, result.data, task, model, subjects, result.forward)


METHODS = {
    "weak": gd.GNNDelete(lam=0.02),
    "strong": gd.GNNDelete(lam=0.5),
    "paper": gd.GNNDelete.paper(),
    "last": gd.GNNDelete(lam=0.5, layers="last"),
    "gradient": gd.GNNDelete(lam=0.5, solver="gradient", epochs=20),
}


@pytest.fixture(params=list(METHODS))
def case(request: pytest.FixtureRequest) -> Case:
    return case_of(METHODS[request.param])


def dense(case: Case) -> dict[str, list[float]]:
    """Both sides of the theorem edge by edge, from inputs that a model without its last operator gives."""
    model = copy.deepcopy(case.unlearned.model)
    assert model is not None
    operators = [module for module in model.modules() if isinstance(module, LayerOperators)]
    last = operators[-1]
    W = last.operators[0].maps[0].weight.double()  # ring 0, or the shared one
    last.sites, last.operators = [], torch.nn.ModuleList()
    model.eval()
    with torch.no_grad():
        z = case.forward(model, case.remaining).double()
    norm = float(torch.linalg.svdvals(W)[0])
    found: dict[str, list[float]] = {"actual": [], "bound": [], "served": [], "served_bound": [], "exact": []}
    for u, v in case.deletion.edges.t().tolist():
        a, b = z[u] / z[u].norm(), z[v] / z[v].norm()
        c, d = z[u] @ W, z[v] @ W
        found["actual"].append(float(a @ b - (c / c.norm()) @ (d / d.norm())))
        found["bound"].append(float(-(1 + norm**2) / 2 * (a - b).norm() ** 2))
        found["served"].append(float(z[u] @ z[v] - c @ d))
        found["served_bound"].append(float(-(1 + norm**2) / 2 * (z[u] - z[v]).norm() ** 2))
        found["exact"].append(float(z[u] @ (torch.eye(len(W)) - W @ W.t()) @ z[v]))
    return found


def share(actual: list[float], bound: list[float]) -> float:
    return sum(a >= b - 1e-9 for a, b in zip(actual, bound, strict=True)) / len(actual)


def test_bound_and_identity_equal_a_dense_computation(case: Case) -> None:
    result, own = theorem(case), dense(case)
    assert result["available"], result
    assert result["edges"] == result["deleted"] == case.deletion.edges.size(1) > 10
    assert result["unit"]["holds"] == share(own["actual"], own["bound"]) == 1.0
    assert result["served"]["holds"] == share(own["served"], own["served_bound"])
    assert result["unit"]["actual_mean"] == pytest.approx(float(torch.tensor(own["actual"]).mean()), rel=1e-4, abs=1e-6)
    assert result["unit"]["bound_mean"] == pytest.approx(float(torch.tensor(own["bound"]).mean()), rel=1e-4)
    ratios = torch.tensor([a / b for a, b in zip(own["actual"], own["bound"], strict=True)])
    assert result["unit"]["tightness"] == pytest.approx(float(ratios.median()), rel=1e-3, abs=1e-5)
    assert own["served"] == pytest.approx(own["exact"], abs=1e-9)
    assert result["served"]["actual_mean"] == pytest.approx(
        float(torch.tensor(own["exact"]).mean()), rel=1e-4, abs=1e-5
    )
    assert result["identity_max_error"] < 1e-5


def test_no_bound_is_tighter_than_its_proof_allows(case: Case) -> None:
    """With unit vectors actual / bound is (1 - |z'_u - z'_v|^2 / |z_u - z_v|^2) / (1 + |W|^2)."""
    result = theorem(case)
    assert result["unit"]["tightness"] <= 1 / (1 + result["operator_norm"] ** 2) + 1e-9
    assert result["sharper"]["holds"] == 1.0
    assert abs(result["sharper"]["tightness"]) >= abs(result["unit"]["tightness"])


def test_an_operator_that_stretches_breaks_the_inequality_only_without_unit_vectors() -> None:
    case = case_of(gd.GNNDelete(lam=0.5))
    assert case.unlearned.adapter is not None
    for _, operator in case.unlearned.adapter.operators:
        for apply in operator.maps:
            apply.weight.data = 3 * torch.eye(operator.width)
    result = theorem(case)
    assert result["unit"]["holds"] == 1.0
    assert result["unit"]["actual_mean"] == pytest.approx(0, abs=1e-6)  # a direction is not changed by stretching
    assert result["served"]["holds"] < 1.0
    assert result["served"]["lowered"] < 0.5
    assert result["operator_norm"] == pytest.approx(3.0)
    assert result["identity_max_error"] < 1e-5


def test_identity_finds_a_map_that_is_not_its_weight() -> None:
    case = case_of(gd.GNNDelete(lam=0.5))
    assert case.unlearned.adapter is not None
    operator = case.unlearned.adapter.operators[-1][1]
    operator.maps[0].register_forward_hook(lambda *args: args[2] + 0.5)
    assert theorem(case)["identity_max_error"] > 1e-3


def test_plain_values_same_answer_and_nothing_touched(case: Case) -> None:
    state = copy.deepcopy(case.base.state_dict())
    hooks = [len(module._forward_hooks) for module in case.unlearned.model.modules()]  # type: ignore[union-attr]
    rng = torch.random.get_rng_state()
    first = json.dumps(theorem(case), allow_nan=False)
    assert json.dumps(theorem(case), allow_nan=False) == first
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert all(torch.equal(value, state[key]) for key, value in case.base.state_dict().items())
    assert [len(m._forward_hooks) for m in case.unlearned.model.modules()] == hooks  # type: ignore[union-attr]


def test_node_tasks_have_inner_products_too() -> None:
    assert theorem(case_of(gd.GNNDelete(lam=0.5), "node"))["identity_max_error"] < 1e-5


class Bent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return self.inner(h).tanh()


@pytest.mark.parametrize(
    ("method", "deletion", "word"),
    [
        ("unlink", None, "'unlink' has none"),
        (gd.GNNDelete(lam=0.0), None, "lam is 0"),
        (gd.GNNDelete(lam=0.5), gd.Deletion(nodes=[3, 5]), "none was deleted"),
        (gd.GNNDelete(lam=0.5, layers=["convs.0"]), None, "last graph layer"),
        (gd.GNNDelete(lam=0.5, solver="gradient", operator=Bent, epochs=2), None, "the user's own"),
    ],
)
def test_unavailable_says_why(method: Any, deletion: gd.Deletion | None, word: str) -> None:
    result = theorem(case_of(method, deletion=deletion))
    assert result["available"] is False
    assert word in result["reason"]


def test_unavailable_while_operators_are_off() -> None:
    case = case_of(gd.GNNDelete(lam=0.5))
    assert case.unlearned.adapter is not None
    with case.unlearned.adapter.disabled():
        assert "switched off" in theorem(case)["reason"]


def test_unavailable_where_no_edge_has_a_direction() -> None:
    case = case_of(gd.GNNDelete(lam=0.5))
    zero = replace(case, forward=lambda model, data: 0 * case.forward(model, data))
    assert theorem(zero)["available"]  # what a wrapper does after the layers is not the operator's
    assert case.unlearned.adapter is not None
    for apply in case.unlearned.adapter.operators[-1][1].maps:
        apply.weight.data.zero_()
    assert "direction" in theorem(case)["reason"]
