"""The reach of models whose layers are each given the edges of one relation."""

from __future__ import annotations

from operator import ge

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import RGCNConv, SAGEConv
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete import spread
from gnndelete.graph import edge_table

RELATIONS, NODES = 3, 40


class Summed(nn.Module):
    """Two layers, each the sum over relations of a layer of its own: an R-GCN by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList(SAGEConv(4, 4) for _ in range(RELATIONS)) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(sum(conv(x, edge_index[:, edge_type == r]) for r, conv in enumerate(layer)))
        return x


class InTurn(nn.Module):
    """One relation after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(SAGEConv(4, 4) for _ in range(RELATIONS))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        for relation, conv in enumerate(self.convs):
            x = torch.tanh(conv(x, edge_index[:, edge_type == relation]))
        return x


def typed(seed: int, undirected: bool) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(NODES, (2, 60), generator=generator)
    triples = torch.cat([edges, torch.randint(RELATIONS, (1, 60), generator=generator)])[:, edges[0] != edges[1]]
    if undirected:
        triples = torch.cat([triples, triples[[1, 0, 2]]], dim=1)
    triples = triples.unique(dim=1)
    x = torch.randn(NODES, 4, generator=generator)
    return Data(x=x, edge_index=triples[:2], edge_type=triples[2])


@pytest.mark.parametrize("limit", [spread.AT_MOST, 120])
@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize(("make", "hops"), [(Summed, [1, 1, 1, 2, 2, 2]), (InTurn, [1, 2, 3])])
def test_reach_of_layers_of_one_relation(make, hops, undirected, limit, monkeypatch, run):
    monkeypatch.setattr(spread, "AT_MOST", limit)
    for seed in range(5):
        data = typed(seed, undirected)
        torch.manual_seed(seed)
        model = make().eval()
        found = gd.inspect(model, data)
        reach = [site.hops for site in found.sites]
        assert reach == hops or (limit == 120 and all(map(ge, reach, hops))), (
            "too few edges may show too much, never too little"
        )
        edge = data.edge_index[:, 3:4]
        deletion = gd.Deletion(edges=torch.cat([edge[:1], data.edge_type[None, 3:4], edge[1:]]))
        unlearned = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.5)).delete(deletion)
        both = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
        near = k_hop_subgraph(edge.flatten(), found.hops, both, num_nodes=NODES)[0]
        outside = torch.ones(NODES, dtype=torch.bool).index_fill(0, near, False)
        before, after = run(model, unlearned.data), run(unlearned.model, unlearned.data)
        assert torch.equal(before[outside], after[outside])
        assert not torch.equal(before, after)


def test_layers_that_are_told_of_relations_are_probed_on_the_graph_itself():
    assert spread.reads_apart(Summed(), ["layers.0.1"])
    assert not spread.reads_apart(nn.ModuleList([RGCNConv(4, 4, RELATIONS)]), ["0"])


def test_a_part_around_the_hub_is_taken_of_a_large_graph(monkeypatch):
    data = typed(0, undirected=True)
    data.edge_attr = torch.arange(data.num_edges)
    whole, table = spread.every_relation(data, edge_table(data))
    assert whole.num_edges == 2 * RELATIONS * data.num_edges == table.num_edges
    assert whole.edge_attr.numel() == whole.num_edges
    monkeypatch.setattr(spread, "AT_MOST", 200)
    part, _ = spread.every_relation(data, edge_table(data))
    assert 0 < part.num_edges <= 200
    hub = data.edge_index.flatten().bincount().argmax()
    assert bool((part.edge_index == hub).any())
    assert part.num_nodes == NODES
