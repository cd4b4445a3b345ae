"""Ranks in lists equal a plain count, and only typed and bipartite graphs are judged by them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.auditing.case import Case, open_case
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.lists import Lists, _known, _ranks
from gnndelete.testing import problem


def lists(case: Case) -> dict[str, Any]:
    return run_measure(Lists(), case).to_dict()


def test_ranks_equal_a_plain_count(edge_case: Case) -> None:
    edges = edge_case.task.test.positives[:, :20]
    found = _ranks(edge_case, edge_case.after, edges, _known(edge_case), None)
    true = {tuple(pair) for pair in edge_case.original.edge_index.t().tolist()}
    for part in (edge_case.task.validation, edge_case.task.test):
        true |= {pair for edge in part.positives.t().tolist() for pair in (tuple(edge), tuple(edge[::-1]))}
    nodes = edge_case.original.edge_index[1].unique().tolist()
    for (u, v), rank in zip(edges.t().tolist(), found.tolist(), strict=True):
        others = [w for w in nodes if (u, w) not in true]
        scores = edge_case.after.predict(torch.tensor([[u] * len(others), others]))
        own = edge_case.after.predict(torch.tensor([[u], [v]]))
        assert rank == pytest.approx(1 + float((scores > own).sum()), abs=0.6)


def test_a_homogeneous_graph_is_not_judged_by_lists(edge_case: Case, node_case: Case) -> None:
    found = lists(edge_case)
    assert found["decides"] is False
    assert found["deleted_count"] == 60
    assert 0 < found["mrr"]["values"]["after"] <= 1
    assert "predicts nodes" in lists(node_case)["reason"]


def test_a_bipartite_and_a_typed_graph_are() -> None:
    generator = torch.Generator().manual_seed(0)
    users, items = torch.randint(30, (400,), generator=generator), 30 + torch.randint(25, (400,), generator=generator)
    once = torch.unique(torch.stack([users, items]), dim=1)
    once = once[:, torch.randperm(once.size(1), generator=generator)]
    kept, test = once[:, 60:], once[:, :60]
    data = Data(x=torch.randn(55, 8, generator=generator), edge_index=torch.cat([kept, kept.flip(0)], dim=1))
    task = gd.LinkPrediction(validation=test[:, :20], test=test[:, 20:])
    task.check(data)
    assert bool((task.test.negatives[0] < 30).all()), "negatives join the two parts"
    assert bool((task.test.negatives[1] >= 30).all())
    unlearned = gd.Unlearner(gd.models.GCN(8, hidden=8, out=4), data, task=task, method="unlink")
    case = open_case(unlearned.delete(gd.Deletion(edges=kept[:, :30])))
    assert lists(case)["decides"] is True

    model, data, task = problem("typed")
    edges = torch.stack([data.edge_index[0, :9], data.edge_type[:9], data.edge_index[1, :9]])
    unlearned = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(edges=edges))
    assert lists(open_case(unlearned))["decides"] is True
