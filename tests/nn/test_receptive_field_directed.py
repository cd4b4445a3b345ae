"""The reach of layers that read directed graphs along the edges, against them, or both ways."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, DirGNNConv, GCNConv, RGCNConv, SAGEConv
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd

from .test_receptive_field import Convs, line, undirected

READS = {
    "along": lambda conv: conv(4, 4),
    "against": lambda conv: conv(4, 4, flow="target_to_source"),
    "both": lambda conv: DirGNNConv(conv(4, 4)),
    "two steps against": lambda conv: APPNP(K=2, alpha=0.1, flow="target_to_source"),
}


@pytest.mark.parametrize("conv", [GCNConv, SAGEConv])
@pytest.mark.parametrize(
    ("ways", "hops"),
    [
        (["against"] * 3, [1, 2, 3]),
        (["along", "along", "against"], [1, 2, 3]),
        (["against", "along"], [1, 2]),
        (["along", "against", "along"], [1, 2, 3]),
        (["both", "both"], [1, 1, 2, 2]),
        (["against", "both"], [1, 2, 2]),
        (["along", "two steps against"], [1, 3]),
    ],
)
def test_reach_of_layers_that_read_against_the_edges(ways, hops, conv, run):
    """Rows move along edges, against them or both, by layers: what is measured has to hold on random directed graphs."""
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        edges = torch.randint(30, (2, 40), generator=generator)
        edges = edges[:, edges[0] != edges[1]]
        data = Data(x=torch.randn(30, 4, generator=generator), edge_index=edges)
        torch.manual_seed(seed)
        model = Convs(*[READS[way](conv) for way in ways])
        found = gd.inspect(model, data)
        assert [site.hops for site in found.sites] == hops
        assert found.hops == hops[-1]
        assert found.bounded
        unlearned = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.5)).delete(gd.Deletion(edges=edges[:, 3:4]))
        near = k_hop_subgraph(edges[:, 3], hops[-1], undirected(edges), num_nodes=30)[0]
        outside = torch.ones(30, dtype=torch.bool).index_fill(0, near, False)
        before, after = run(model, unlearned.data), run(unlearned.model, unlearned.data)
        assert torch.equal(before[outside], after[outside])
        assert not torch.equal(before, after)


@pytest.mark.parametrize("way", ["along", "against"])
def test_reach_goes_no_long_way_round_a_cycle(way):
    """Against the edges of a directed cycle the neighbour of one hop is the last that a walk along them meets."""
    data = Data(x=torch.randn(18, 4), edge_index=torch.tensor([*line(17), (17, 0)]).t())

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.conv = nn.Linear(4, 4), READS[way](GCNConv)

        def forward(self, x, edge_index):
            return self.conv(self.first(x), edge_index)

    assert [site.hops for site in gd.inspect(Two(), data).sites] == [1]
    assert [site.hops for site in gd.inspect(Two(), data, layers=["first", "conv"]).sites] == [0, 1]


def test_reach_against_the_edges_of_several_relations():
    class Related(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([RGCNConv(4, 4, 2, flow="target_to_source") for _ in range(2)])

        def forward(self, x, edge_index, edge_type):
            for conv in self.convs:
                x = torch.tanh(conv(x, edge_index, edge_type))
            return x

    edges = torch.tensor([*line(17), (17, 0)]).t()
    data = Data(x=torch.randn(18, 4), edge_index=edges, edge_type=torch.arange(18) % 2)
    assert [site.hops for site in gd.inspect(Related(), data).sites] == [1, 2]


def test_reach_of_a_model_that_wants_more_than_one_edge():
    """Which way its messages run is not seen on a single edge: both are tried."""

    class Many(Convs):
        def forward(self, x, edge_index):
            if edge_index.size(1) < 2:
                raise ValueError("too few edges")
            return super().forward(x, edge_index)

    data = Data(x=torch.randn(21, 4), edge_index=torch.tensor(line(20)).t())
    for way in ("along", "against"):
        found = gd.inspect(Many(*[READS[way](GCNConv) for _ in range(2)]), data)
        assert [site.hops for site in found.sites] == [1, 2]
