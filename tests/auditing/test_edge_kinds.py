"""Deleted edges that were the last of one of their ends are shown apart."""

from __future__ import annotations

import torch

import gnndelete as gd
from gnndelete.auditing.measures.forgetting import CONNECTED, LEFT_ALONE, forgetting
from gnndelete.auditing.report.rows import forgetting as tables


def last_edges(data, count):
    """All edges of the nodes with the fewest, so that these are left alone."""
    degree = torch.bincount(data.edge_index[0], minlength=data.num_nodes)
    few = degree.masked_fill(degree == 0, 10**6).argsort()[:count]
    once = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    return once[:, torch.isin(once, few).any(dim=0)], once


def test_both_kinds_have_an_auc_of_their_own(links):
    alone, once = last_edges(links.data, 25)
    others = once[:, torch.randperm(once.size(1), generator=torch.Generator().manual_seed(0))[:40]]
    case = links.case("unlink", gd.Deletion(edges=torch.cat([alone, others], dim=1)), reference=True)
    section = forgetting(case)
    kinds = section["unseen"]["served"]["kinds"]
    assert [kind["kind"] for kind in kinds] == [CONNECTED, LEFT_ALONE]
    assert sum(kind["deleted"] for kind in kinds) == case.deletion.edges.size(1)
    assert sum(kind["unseen"] for kind in kinds) == links.task.test.positives.size(1)
    for kind in kinds:
        assert all(0 <= kind[name] <= 1 for name in ("before", "after", "reference"))
    names = {"before": "before", "after": "after", "reference": "Retrain"}
    words = [row[0] for table in tables(section, names) for row in table.rows]
    assert sum(word.startswith(f"AUC where {LEFT_ALONE} (") for word in words) == 1
    assert "kinds" not in section["unseen"]["old_id"]


def test_one_kind_is_not_split(links):
    alone, once = last_edges(links.data, 20)
    degree = torch.bincount(links.data.edge_index[0], minlength=links.data.num_nodes)
    connected = once[:, (degree[once] > 4).all(dim=0)][:, :1]
    for edges in (alone, connected):
        section = forgetting(links.case("unlink", gd.Deletion(edges=edges)))
        assert section["unseen"]["served"]["kinds"] == []
