"""The drawn neighbourhood: the same nodes twice, in one projection, without a way back to their ids."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import gnndelete as gd
from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures import figure_data as module
from gnndelete.auditing.measures.figure_data import RINGS, Embedding
from gnndelete.auditing.samples import rings
from gnndelete.testing import problem


def embedding(case: Case) -> dict[str, Any]:
    return run_measure(Embedding(), case).to_dict()


@pytest.fixture
def case() -> Case:
    model, data, task = problem("link")
    deletion = gd.Deletion(edges=data.edge_index[:, 3:4])
    result = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.5)).delete(deletion)
    assert result.model is not None
    assert result.data is not None
    subjects = {
        "before": Subject.of_model("before", model, data, task, result.forward),
        "after": Subject.of_model("after", result.model, result.data, task, result.forward),
    }
    return Case(result, None, result.deletion, data, result.data, task, model, subjects, result.forward)


def with_rows(case: Case, name: str, z: Any) -> Case:
    return replace(case, subjects={**case.subjects, name: replace(case.subjects[name], output=z)})


def points(result: dict[str, Any], name: str) -> np.ndarray:
    return np.array([point for ring in RINGS for point in result[name][ring]])


def test_rings_part_the_graph(case: Case) -> None:
    ends, near, far = rings(case)
    assert ends.tolist() == sorted(case.deletion.edges.flatten().tolist())
    source, target = case.original.edge_index
    beside = set(target[torch.isin(source, ends)].tolist()) - set(ends.tolist())
    assert set(near.tolist()) == beside
    assert sorted(torch.cat([ends, near, far]).tolist()) == list(range(120))


def test_it_is_the_projection_of_both_together(case: Case) -> None:
    result = embedding(case)
    z = torch.cat([case.subjects[name].output for name in ("before", "after")]).double()
    _, singular, axes = torch.linalg.svd(z - z.mean(dim=0), full_matrices=False)
    shares = singular**2 / (singular**2).sum()
    assert result["explained"] == pytest.approx(shares[:2].tolist(), abs=1e-3)
    for index, name in enumerate(("before", "after")):
        flat = ((z - z.mean(dim=0)) @ axes[:2].t()).chunk(2)[index].abs()
        assert sorted(np.abs(points(result, name)[:, 0])) == pytest.approx(sorted(flat[:, 0].tolist()), abs=1e-3)


def test_the_same_nodes_in_the_same_order(case: Case) -> None:
    same = embedding(with_rows(case, "after", case.subjects["before"].output))
    assert same["before"] == same["after"]
    moved = case.subjects["before"].output.clone()
    ends, near, _ = rings(case)
    moved[ends] += 5
    result = embedding(with_rows(case, "after", moved))
    steps = {
        ring: np.linalg.norm(np.array(result["after"][ring]) - np.array(result["before"][ring]), axis=1)
        for ring in RINGS
    }
    assert steps["ring 0"].min() > 1
    assert steps["ring 1"].max() == steps["elsewhere"].max() == 0
    assert len(result["before"]["ring 0"]) == 2
    assert len(result["before"]["ring 1"]) == near.numel()


def test_few_points_in_random_order(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POINT_LIMIT", 7)
    result = embedding(case)
    assert [len(result["after"][ring]) for ring in RINGS] == [2, 7, 7]
    monkeypatch.undo()
    index = torch.arange(120.0)[:, None].expand(120, 4).contiguous()
    order = points(embedding(with_rows(with_rows(case, "before", index), "after", index)), "after")[2:, 0]
    steps = np.diff(order)
    assert (steps > 0).any()
    assert (steps < 0).any()


def test_plain_values_same_answer_and_nothing_touched(case: Case) -> None:
    state, rng = copy.deepcopy(case.base.state_dict()), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # type: ignore[union-attr, index]
    first = json.dumps(embedding(case), allow_nan=False)
    assert json.dumps(embedding(case), allow_nan=False) == first
    assert embedding(replace(case, seed=5)) != embedding(case)
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert (np.random.get_state()[1] == numpy_state).all()  # type: ignore[index]
    assert all(torch.equal(value, state[key]) for key, value in case.base.state_dict().items())


def test_a_single_column_lies_on_a_line(case: Case) -> None:
    result = embedding(with_rows(with_rows(case, "before", torch.rand(120, 1)), "after", torch.rand(120, 1)))
    assert (points(result, "after")[:, 1] == 0).all()
    assert result["explained"] == [1.0]


def test_unavailable_says_why(case: Case) -> None:
    assert "before the deletion" in embedding(with_rows(case, "before", None))["reason"]
    assert "after the deletion" in embedding(with_rows(case, "after", None))["reason"]
    assert "different widths" in embedding(with_rows(case, "after", torch.rand(120, 9)))["reason"]
    flat = torch.ones(120, 4)
    assert "the same" in embedding(with_rows(with_rows(case, "before", flat), "after", flat))["reason"]
