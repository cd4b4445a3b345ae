"""JODIE: a stream made of the graph, deletions as negative events behind it, and embeddings that rank links."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import TemporalData

import gnndelete as gd
from gnndelete.errors import ModelError, SettingError
from gnndelete.methods.jodie import JODIE, Coevolution, edge_stream, last_partners, retractions, t_batches


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def split():
    return gd.datasets.split_links(gd.datasets.load("digits"), seed=1)


def linked(split, **options):
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    return gd.Unlearner(gd.models.GCN(64), split.data, task=task, method=JODIE(dim=32, epochs=3), **options)


def test_it_ranks_links_and_lowers_what_was_deleted(split, snapshot):
    edges = split.data.edge_index[:, split.data.edge_index[0] < split.data.edge_index[1]]
    deletion = gd.Deletion(edges=edges[:, ::45])
    unlearner = linked(split)
    before = snapshot(unlearner.model, split.data)
    little = unlearner.delete(gd.Deletion(edges=edges[:, 1:2]))
    assert little.evaluate()["test_auroc"] > 0.8
    much = unlearner.delete(deletion)
    found = much.evaluate()
    assert found["test_auroc"] > 0.8
    assert found["deleted_auroc"] > 0.6
    assert much.details["retracted"] == deletion.edges.size(1) + 1
    assert much.details["prepare_seconds"] < 0.01 < little.details["prepare_seconds"], "the stream is learned once"
    assert float(much.predict(deletion.edges).mean()) < float(little.predict(deletion.edges).mean())
    assert torch.allclose(much.predict(edges[:, :9]), much.predict(edges[:, :9].flip(0)), atol=1e-5)
    assert much.assurance == "approximate"
    assert much.model is None
    assert "Our construction" in much.notes[0].text
    assert snapshot(unlearner.model, split.data) == before


def small(graph, gcn, **options):
    return gd.Unlearner(gcn, graph, task="link", method=JODIE(dim=8, epochs=2), **options)


def test_a_sequence_equals_one_request_and_a_seed_fixes_it(graph, gcn):
    one, two = gd.Deletion(edges=[(3, 4)]), gd.Deletion(nodes=[9])
    step = small(graph, gcn)
    step.delete(one)
    later = step.delete(two).predict(graph.edge_index)
    assert torch.equal(later, small(graph, gcn).delete(one | two).predict(graph.edge_index))
    assert not torch.equal(later, small(graph, gcn, seed=1).delete(one | two).predict(graph.edge_index))


def test_deleting_a_node_retracts_its_edges(graph, gcn):
    unlearned = small(graph, gcn).delete(gd.Deletion(nodes=[9]))
    assert unlearned.details["retracted"] == int((graph.edge_index[0] == 9).sum())
    assert bool(torch.isfinite(unlearned.predict([(8, 9), (0, 1)])).all())


def test_an_interruption_leaves_the_memory_whole(graph, gcn, monkeypatch):
    unlearner = small(graph, gcn)
    first = unlearner.delete(gd.Deletion(edges=[(3, 4)])).predict(graph.edge_index)
    kept = unlearner._context.memory["jodie"]
    weights = {name: value.clone() for name, value in kept.model.state_dict().items()}

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("gnndelete.methods.jodie._predictor", stop)
        with pytest.raises(KeyboardInterrupt):
            unlearner.delete(gd.Deletion(nodes=[9]))
    assert unlearner._context.memory["jodie"] is kept
    assert all(torch.equal(value, kept.model.state_dict()[name]) for name, value in weights.items())
    assert torch.equal(unlearner.compact().predict(graph.edge_index), first)


@pytest.mark.parametrize("directed", [False, True])
def test_graphs_without_features_and_directed_ones(directed, graph, gcn):
    del graph.x
    graph.num_nodes = 48
    graph.edge_index = graph.edge_index[:, :52] if directed else graph.edge_index
    for name in ("edge_weight", "edge_attr"):
        del graph[name]
    scores = small(graph, gcn).delete(gd.Deletion(edges=[(3, 4)])).predict(graph.edge_index)
    assert bool(torch.isfinite(scores).all())


def test_the_stream_holds_every_training_edge_once(graph):
    stream = edge_stream(graph, seeded())
    once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    assert sorted(zip(stream.src.tolist(), stream.dst.tolist(), strict=True)) == sorted(map(tuple, once.t().tolist()))
    assert bool((stream.t[1:] > stream.t[:-1]).all())
    gone = torch.zeros(stream.num_events, dtype=torch.bool)
    gone[[3, 5]] = True
    back = retractions(stream, gone)
    assert back.src.tolist() == stream.src[[3, 5]].tolist()
    assert float(back.t.min()) > float(stream.t.max())
    assert bool((back.msg == -1).all())


@given(st.integers(2, 12), st.integers(1, 40), st.integers(0, 10_000))
def test_t_batches_share_no_node_and_keep_the_order(nodes, events, seed):
    head = torch.randint(0, nodes, (events,), generator=seeded(seed))
    tail = (head + torch.randint(1, nodes, (events,), generator=seeded(seed + 1))) % nodes
    stream = TemporalData(src=head, dst=tail, t=torch.arange(events))
    batches = t_batches(stream, nodes)
    assert sorted(torch.cat(batches).tolist()) == list(range(events))
    for batch in batches:
        ends = torch.cat([head[batch], tail[batch]])
        assert ends.unique().numel() == ends.numel()
    number = torch.empty(events, dtype=torch.long)
    for index, batch in enumerate(batches):
        number[batch] = index
    for node in range(nodes):
        own = number[(head == node) | (tail == node)]
        assert bool((own[1:] > own[:-1]).all())
    partner = last_partners(stream, torch.ones(events, dtype=torch.bool), nodes, undirected=True)
    slow = [-1] * nodes
    for u, v in zip(head.tolist(), tail.tolist(), strict=True):
        slow[u], slow[v] = v, u
    assert partner.tolist() == slow


@pytest.mark.parametrize("undirected", [True, False])
def test_batches_give_what_single_events_give(graph, undirected):
    """The embeddings after the stream do not depend on how many events are processed at once."""
    stream, static = edge_stream(graph, seeded()), torch.nn.functional.normalize(graph.x, dim=1)
    torch.manual_seed(0)
    model = Coevolution(8, 6)
    together, alone = model.blank(48), model.blank(48)
    model.run(together, static, stream, t_batches(stream, 48), undirected)
    model.run(alone, static, stream, list(torch.arange(stream.num_events).split(1)), undirected)
    for name in ("user", "item", "time", "last"):
        torch.testing.assert_close(getattr(together, name), getattr(alone, name))
    every = torch.ones(stream.num_events, dtype=torch.bool)
    assert torch.equal(together.last, last_partners(stream, every, 48, undirected))


def test_why_it_does_not_fit(graph, gcn):
    with pytest.raises(ModelError, match="links and no classes; pass task='link'"):
        gd.Unlearner(gcn, graph, task="node", method=JODIE())
    graph.edge_type = torch.zeros(graph.edge_index.size(1), dtype=torch.long)
    with pytest.raises(ModelError, match="edge_type"):
        gd.Unlearner(gcn, graph, method=JODIE())


@pytest.mark.parametrize("settings", [{"dim": 0}, {"epochs": 0}, {"lr": 0}, {"lam_u": -1}, {"lam_i": -0.5}])
def test_settings_are_checked(settings):
    with pytest.raises(SettingError, match=f"'{next(iter(settings))}'"):
        JODIE(**settings).check()


def test_a_deleted_node_is_as_if_it_never_had_an_event(graph, gcn):
    unlearner = small(graph, gcn)
    unlearner.delete(gd.Deletion(edges=[(3, 4)]))
    trained = unlearner._context.memory["jodie"]
    gone = (trained.stream.src == 9) | (trained.stream.dst == 9)
    after = JODIE(dim=8)._retract(trained, gone, torch.tensor([9]))
    blank = after.model.blank(48)
    for name in ("user", "item", "time", "last"):
        assert torch.equal(getattr(after.memory, name)[9], getattr(blank, name)[9])
    assert not after.static[9].any()
    assert not bool((after.memory.last == 9).any()), "and nobody's last partner"
    assert trained.static[9].any(), "the trained stream itself is left for later requests"
