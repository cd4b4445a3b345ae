"""The plain-torch sampler against the whole graph and against its own promises."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.datasets import NeighborSampler, link_loader, load, node_loader
from gnndelete.errors import SettingError


@st.composite
def graphs(draw):
    nodes = draw(st.integers(2, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    return Data(edge_index=torch.randint(nodes, (2, draw(st.integers(0, 120))), generator=generator), num_nodes=nodes)


@given(graphs(), st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=3), st.integers(1, 5))
def test_sampled_edges_exist_and_caps_hold(data, fanout, batch):
    seeds = torch.arange(min(batch, data.num_nodes))
    out = NeighborSampler(data, fanout, halo=False).sample(seeds)
    assert torch.equal(out.node[: seeds.numel()], seeds)
    assert out.node.unique().numel() == out.node.numel()
    assert torch.equal(torch.stack([out.node[out.row], out.node[out.col]]), data.edge_index[:, out.edge])
    assert out.edge.unique().numel() == out.edge.numel()
    assert sum(out.num_sampled_nodes) == out.node.numel()
    assert sum(out.num_sampled_edges) == out.edge.numel()
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    bounds = torch.tensor(out.num_sampled_nodes).cumsum(0)
    sampled = torch.bincount(out.col, minlength=out.node.numel())
    for hop, cap in enumerate(fanout):
        low = int(bounds[hop - 1]) if hop else 0
        own = degree[out.node[low : int(bounds[hop])]]
        expected = own if cap == -1 else own.clamp(max=cap)
        assert torch.equal(sampled[low : int(bounds[hop])], expected)


@pytest.mark.parametrize("name", ["gcn", "gat", "gin"])
def test_all_neighbours_reproduce_the_whole_graph(name):
    data = load("digits")
    keep = (
        torch.rand(data.num_edges, generator=torch.Generator().manual_seed(0)) < 0.15
    )  # sparse, so that a batch is a part
    data = Data(x=data.x, edge_index=data.edge_index[:, keep], y=data.y)
    model = gd.models.build(name, 64).eval()
    with torch.no_grad():
        whole = model(data.x, data.edge_index)
        sizes = []
        for batch in node_loader(data, [-1, -1], input_nodes=torch.randperm(data.num_nodes)[:60], batch_size=20):
            part = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.testing.assert_close(part, whole[batch.n_id[: batch.batch_size]], atol=1e-5, rtol=1e-5)
            sizes.append(batch.num_nodes)
    assert max(sizes) < data.num_nodes


def test_links_come_with_both_ends_and_negatives():
    data = load("digits")
    loader = link_loader(data, [2, 2], edge_label_index=data.edge_index[:, :30], batch_size=10, neg_sampling="binary")
    for batch in loader:
        pairs = batch.n_id[batch.edge_label_index]
        assert torch.equal(pairs[:, :10], data.edge_index[:, batch.input_id])
        assert batch.edge_label.tolist() == [1.0] * 10 + [0.0] * 10


def test_an_unlearned_model_serves_sampled_batches():
    data = load("digits")
    model = gd.models.GCN(64, hidden=16, out=8)
    unlearned = gd.Unlearner(model, data).delete(gd.Deletion(edges=data.edge_index[:, :40]))
    whole = unlearned.output()
    unlearned.model.eval()
    with torch.no_grad():
        for batch in node_loader(unlearned.data, [-1, -1], input_nodes=torch.arange(0, 200, 5), batch_size=20):
            with gd.rows(unlearned.model, batch.n_id):
                part = unlearned.model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.testing.assert_close(part, whole[batch.n_id[: batch.batch_size]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fanout", [[], [0], [2, -2], [1.5]])
def test_bad_fanouts_are_refused(fanout):
    with pytest.raises(SettingError, match="num_neighbors"):
        NeighborSampler(load("digits"), fanout)


def test_a_seeded_generator_repeats_the_sample():
    data = load("digits")
    draws = [
        NeighborSampler(data, [2, 2], generator=torch.Generator().manual_seed(seed)).sample(torch.arange(9)).edge
        for seed in (4, 4, 5)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@given(graphs(), st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=3))
def test_both_ways_every_edge_comes_once_and_all_edges_of_a_seed_come(data, fanout):
    seeds = torch.arange(min(3, data.num_nodes))
    out = NeighborSampler(data, fanout, halo=False, both_ways=True).sample(seeds)
    assert torch.equal(torch.stack([out.node[out.row], out.node[out.col]]), data.edge_index[:, out.edge])
    assert out.edge.unique().numel() == out.edge.numel()
    if fanout[0] == -1:
        touched = torch.isin(data.edge_index, seeds).any(dim=0).nonzero().flatten()
        assert bool(torch.isin(touched, out.edge).all())


def test_the_neighbours_of_a_hub_are_drawn_alike_and_once():
    star = Data(edge_index=torch.stack([torch.arange(1, 201), torch.zeros(200, dtype=torch.long)]), num_nodes=201)
    sampler = NeighborSampler(star, [20], halo=False, generator=torch.Generator().manual_seed(0))
    drawn = [sampler.sample(torch.tensor([0])) for _ in range(400)]
    assert all(out.row.unique().numel() == 20 for out in drawn)
    often = torch.bincount(torch.cat([out.node[out.row] for out in drawn]), minlength=201)[1:]
    assert 15 < int(often.min()) <= int(often.max()) < 70  # 40 expected, standard deviation 6


def test_a_loader_that_goes_both_ways_serves_a_typed_model():
    data = load("generated:biokg?entities=200&triples=400&relations=3&community=40")
    model = gd.models.build("rgcn", num_nodes=200, num_relations=3, embedding=8, hidden=8, out=4).eval()
    with torch.no_grad():
        whole = model(data.edge_index, data.edge_type)
        batch = next(iter(node_loader(data, [-1, -1], torch.arange(9), both_ways=True, batch_size=9)))
        part = model(batch.edge_index, batch.edge_type, n_id=batch.n_id)
    torch.testing.assert_close(part[:9], whole[:9], atol=1e-5, rtol=1e-5)
