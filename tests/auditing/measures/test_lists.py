"""Only typed and bipartite graphs are judged by them."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.auditing.case import Case, open_case
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.lists import Lists
from gnndelete.testing import problem


def lists(case: Case) -> dict[str, Any]:
    return run_measure(Lists(), case).to_dict()


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
