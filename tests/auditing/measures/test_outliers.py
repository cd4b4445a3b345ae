"""Outlier detection: a planted shift is found, a pull to the middle too, and noise is neither."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gnndelete as gd
from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.outliers import Outliers
from gnndelete.auditing.samples import touched
from gnndelete.datasets.generated import community_graph
from gnndelete.testing import problem


def outliers(case: Case) -> dict[str, Any]:
    return run_measure(Outliers(), case).to_dict()


@pytest.fixture
def case() -> Case:
    """A graph of 600 nodes whose model is a table of random rows: what stands out is what a test plants."""
    _, _, task = problem("link")
    generator = torch.Generator().manual_seed(0)
    data = community_graph(600, 2000, 8, classes=3, community=40, seed=0)
    model = gd.models.GCN(8, hidden=8, out=6)
    edges = data.edge_index[:, ::50]
    result = gd.Unlearner(model, data, method="unlink").delete(gd.Deletion(edges=edges))
    z = torch.randn(600, 6, generator=generator)
    assert result.data is not None
    subjects = {name: subject(name, z, data) for name in ("before", "after")}
    return Case(result, None, result.deletion, data, result.data, task, model, subjects, result.forward)


def subject(name: str, z: Any, data: Any) -> Subject:
    return Subject(name, lambda edges: (z[edges[0]] * z[edges[1]]).sum(dim=1), data, None, z)


def with_rows(case: Case, name: str, z: Any) -> Case:
    return replace(case, subjects={**case.subjects, name: subject(name, z, case.remaining)})


def rows_of(case: Case) -> Tensor:
    return case.after.output.clone()


def test_rows_of_one_distribution_are_alike(case: Case) -> None:
    result = outliers(case)
    assert 0 <= result["untouched"]["after"] < 0.15
    assert 0 <= result["touched"]["after"] < 0.15
    assert result["counts"] == {"nodes": touched(case)[0].numel(), "edges": case.deletion.edges.size(1)}


def test_a_planted_shift_is_found(case: Case) -> None:
    z = rows_of(case)
    z[touched(case)[0]] += 8
    result = outliers(with_rows(case, "after", z))
    assert result["touched"]["after"] > 0.9
    assert result["untouched"]["after"] < 0.15
    assert result["touched"]["before"] < 0.15
    # the paper's form: few deleted edges are regular now, and they were before
    assert result["deleted"]["after"] < 0.2 < 0.8 < result["deleted"]["before"]


def test_a_pull_to_the_middle_is_found(case: Case) -> None:
    z, near = rows_of(case), touched(case)[0]
    pulled = z.index_fill(0, near, 0.0)
    z[near[::4]] += 8
    result = outliers(with_rows(with_rows(case, "before", z), "after", pulled))
    assert result["touched"]["after"] == 0 < result["touched"]["before"]


def test_the_reference_has_shares_of_its_own(case: Case) -> None:
    z = rows_of(case)
    z[touched(case)[0]] += 8
    result = outliers(with_rows(with_rows(case, "after", z), "reference", z))
    assert result["touched"]["reference"] == result["touched"]["after"] > 0.9
    assert "in the retrained model" in result["sentence"]


def test_touched_are_those_that_lost_an_edge(case: Case) -> None:
    near, far = touched(case)
    assert near.tolist() == case.deletion.edges.unique().tolist()
    assert sorted([*near.tolist(), *far.tolist()]) == list(range(600))
    node = int(case.original.edge_index[0, 0])
    beside = case.original.edge_index[1][case.original.edge_index[0] == node].unique()
    near, far = touched(replace(case, deletion=gd.Deletion(nodes=[node])))
    assert near.tolist() == beside.tolist()
    assert node not in far.tolist()


def test_plain_values_same_answer_and_nothing_touched(case: Case) -> None:
    state, rng = copy.deepcopy(case.base.state_dict()), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # type: ignore[union-attr, index]
    z = rows_of(case)
    first = json.dumps(outliers(case), allow_nan=False)
    assert json.dumps(outliers(case), allow_nan=False) == first
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert (np.random.get_state()[1] == numpy_state).all()  # type: ignore[index]
    assert torch.equal(case.after.output, z)
    assert all(torch.equal(value, state[key]) for key, value in case.base.state_dict().items())


def test_node_deletions_have_nodes_and_no_edges_to_judge(case: Case) -> None:
    result = outliers(replace(case, deletion=gd.Deletion(nodes=[0, 1, 2])))
    assert result["available"]
    assert result["deleted"] is result["remaining"] is None


@pytest.mark.parametrize("output", [None, "text", torch.ones(3, 6), torch.full((600, 6), float("nan"))])
def test_unavailable_without_representations(case: Case, output: Any) -> None:
    result = outliers(with_rows(case, "after", output))
    assert result["available"] is False
    assert "representation" in result["reason"]
    only = outliers(with_rows(case, "before", output))
    assert only["available"]
    assert only["touched"]["before"] is None


def test_unavailable_where_nothing_or_everything_is_touched(case: Case) -> None:
    lonely = gd.Deletion(nodes=[599])
    edges = case.original.edge_index
    bare = case.original.clone()
    bare.edge_index = edges[:, (edges != 599).all(dim=0)]
    assert "lost an edge" in outliers(replace(case, deletion=lonely, original=bare))["reason"]
    everywhere = torch.stack([torch.arange(599), torch.arange(1, 600)])
    assert "too few" in outliers(replace(case, deletion=gd.Deletion(edges=everywhere)))["reason"]


def test_remaining_edges_are_drawn_each_once(case: Case) -> None:
    """Otherwise an edge that the detector is fitted on is among those that it judges, in the other direction."""
    left = case.task.learned_once(case.remaining)
    once = {tuple(sorted(pair)) for pair in case.remaining.edge_index.t().tolist()}
    assert sorted(map(tuple, left.sort(dim=0).values.t().tolist())) == sorted(once)
    labelled = case.remaining.clone()
    labelled.edge_label_index = case.remaining.edge_index[:, :100].repeat(1, 2)
    few = case.task.learned_once(labelled)
    assert few.size(1) == few.sort(dim=0).values.unique(dim=1).size(1) <= 100
