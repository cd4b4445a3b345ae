"""What a session computes once for all requests."""

from __future__ import annotations

import torch

import gnndelete as gd
from gnndelete.engine import session as sessions
from gnndelete.engine.session import Session
from gnndelete.nn.forward import call


def test_check_and_probe_share_one_copy_and_further_requests_need_none(graph, gcn, monkeypatch, snapshot):
    copies = []

    def counted(model):
        copies.append(model)
        return original(model)

    original = sessions.working_copy
    monkeypatch.setattr(sessions, "working_copy", counted)
    before = snapshot(gcn, graph)
    unlearner = gd.Unlearner(gcn, graph, task="node", method=gd.GNNDelete(lam=0.3))
    for edge in ((3, 4), (20, 22)):
        unlearner.delete(gd.Deletion(edges=[edge]))
        assert len(copies) == 1
    assert snapshot(gcn, graph) == before


def test_a_probe_is_made_once(graph, gcn):
    session = Session(gcn, graph, call)
    assert session.probe() is session.probe()
    assert session.probe("last") is not session.probe()
    assert [site.hops for site in session.probe().sites] == [1, 2]


def test_neighbourhoods_are_made_once_for_each_way_to_count_hops(graph, gcn):
    session = Session(gcn, graph, call)
    assert session.neighborhood() is session.neighborhood("undirected")
    assert session.neighborhood("directed") is not session.neighborhood()


def test_a_loop_is_noticed(graph, gcn):
    assert Session(gcn, graph, call).loopless
    graph.edge_index = torch.cat([graph.edge_index, torch.tensor([[7], [7]])], dim=1)
    for name in ("edge_weight", "edge_attr"):
        if graph.get(name) is not None:
            graph[name] = torch.cat([graph[name], graph[name][:1]])
    assert not Session(gcn, graph, call).loopless
