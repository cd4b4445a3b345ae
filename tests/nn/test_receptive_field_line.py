"""The reach of models whose layers read some of the edges alone: those of one relation, of one direction, of one kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, RGCNConv, SAGEConv
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete.graph.batch import collate
from gnndelete.graph.validation import edge_table
from gnndelete.nn import receptive_field

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


class Told(InTurn):
    """One relation after the other, by layers that are told of relations."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(RGCNConv(4, 4, RELATIONS) for _ in range(RELATIONS))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        for relation, conv in enumerate(self.convs):
            own = edge_type == relation
            x = torch.tanh(conv(x, edge_index[:, own], edge_type[own]))
        return x


class Mixed(nn.Module):
    """Along the edges and against them, by layers that are told of relations."""

    def __init__(self) -> None:
        super().__init__()
        flows = ["source_to_target", "target_to_source", "source_to_target"]
        self.convs = nn.ModuleList(RGCNConv(4, 4, RELATIONS, flow=flow) for flow in flows)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        for conv in self.convs:
            x = torch.tanh(conv(x, edge_index, edge_type))
        return x


class ManyHops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = SAGEConv(4, 4), APPNP(K=6, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.far(torch.tanh(self.near(x, edge_index)), edge_index)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize(
    ("make", "hops"),
    [
        (Summed, [1, 1, 1, 2, 2, 2]),
        (InTurn, [1, 2, 3]),
        (Told, [1, 2, 3]),
        (Mixed, [1, 2, 3]),
        (ManyHops, [1, 7]),
    ],
)
def test_reach_on_typed_graphs(make, hops, undirected, run):
    for seed in range(5):
        data = typed(seed, undirected)
        torch.manual_seed(seed)
        model = make().eval()
        found = gd.inspect(model, data)
        assert [site.hops for site in found.sites] == hops
        edge = data.edge_index[:, 3:4]
        deletion = gd.Deletion(edges=torch.cat([edge[:1], data.edge_type[None, 3:4], edge[1:]]))
        unlearned = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.5)).delete(deletion)
        both = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
        near = k_hop_subgraph(edge.flatten(), found.hops, both, num_nodes=NODES)[0]
        outside = torch.ones(NODES, dtype=torch.bool).index_fill(0, near, False)
        before, after = run(model, unlearned.data), run(unlearned.model, unlearned.data)
        assert torch.equal(before[outside], after[outside])
        assert not torch.equal(before, after)


@pytest.mark.parametrize("undirected", [True, False])
def test_reach_of_layers_that_choose_edges_by_an_attribute(undirected):
    """Relations that are kept in `edge_attr`: no graph of one kind of edges, though it has no types."""

    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = SAGEConv(4, 4), SAGEConv(4, 4, flow="target_to_source")

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            x = torch.tanh(self.one(x, edge_index[:, edge_attr == 0]))
            return self.other(x, edge_index[:, edge_attr == 1])

    for seed in range(5):
        data = typed(seed, undirected)
        data.edge_attr = data.edge_type % 2
        del data.edge_type
        assert [site.hops for site in gd.inspect(Chosen(), data).sites] == [1, 2]


def test_the_graph_itself_has_a_word_too():
    """Edges within groups alone: a line has next to none of them, since few of a group stand beside each other there."""

    class Within(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(SAGEConv(4, 4) for _ in range(2))

        def forward(self, x: Tensor, edge_index: Tensor, group: Tensor) -> Tensor:
            within = edge_index[:, group[edge_index[0]] == group[edge_index[1]]]
            for conv in self.convs:
                x = torch.tanh(conv(x, within))
            return x

    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    rest = torch.stack([torch.arange(5, 39), torch.arange(6, 40)])
    data = Data(x=torch.randn(NODES, 4), edge_index=torch.cat([path, rest], dim=1))  # directed
    data.group = torch.cat([torch.zeros(5), torch.arange(1, 36)])
    made = receptive_field.line(data, edge_table(data))[0]
    within = (data.group[made.edge_index[0]] == data.group[made.edge_index[1]]).sum()
    assert int(within) <= 2, "next to nothing is seen on the line"
    assert [site.hops for site in gd.inspect(Within(), data).sites] == [1, 2]


@pytest.mark.parametrize("strange", ["assert", "numpy", "batch"])
def test_what_runs_on_its_own_graph_alone_is_probed_there(strange):
    """A model or an attribute may have anything against another graph."""

    class Strict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(SAGEConv(4, 4) for _ in range(2))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            assert strange != "assert" or edge_index.size(1) == data.num_edges
            for conv in self.convs:
                x = torch.tanh(conv(x, edge_index))
            return x

    data = typed(0, undirected=False)
    del data.edge_type
    if strange == "numpy":
        data.names = np.arange(NODES)
        data.edge_names = np.arange(data.num_edges)
    if strange == "batch":
        data.batch = torch.full((NODES,), -1)
    assert [site.hops for site in gd.inspect(Strict(), data).sites] == [1, 2]


def test_nodes_of_a_line_are_in_no_order():
    data = typed(0, undirected=False)
    (start, end), _ = receptive_field.line(data, edge_table(data))[0].edge_index[:, : NODES - 1], None
    assert sorted({*start.tolist(), *end.tolist()}) == list(range(NODES))
    assert (end - start).abs().float().mean() > 5


def test_a_star_of_many_relations_is_probed_on_few_edges():
    """Its hub has more edges, and each of them stands for more relations, than fit on a line."""
    star = torch.stack([torch.zeros(2000, dtype=torch.long), torch.arange(1, 2001)])
    data = Data(x=torch.randn(2001, 4), edge_index=star, edge_type=torch.arange(2000))
    made, table = receptive_field.line(data, edge_table(data))
    assert made.num_edges == table.num_edges <= receptive_field.LINE_EDGES
    assert gd.inspect(ManyHops(), data).hops == 7


def test_steps_of_a_line_have_all_relations_and_attributes_of_the_graph():
    data = typed(0, undirected=False)
    data.edge_attr = torch.arange(data.num_edges) % 5
    made, table = receptive_field.line(data, edge_table(data))
    assert table.num_edges == made.num_edges
    assert made.num_nodes == NODES
    kinds = torch.stack([*made.edge_index, made.edge_type, made.edge_attr]).unique(dim=1)
    assert kinds.size(1) == 2 * (NODES - 1) * RELATIONS * 5


def test_a_line_stays_within_one_graph():
    graphs = [typed(seed, undirected=True) for seed in range(3)]
    batch = collate(
        [*graphs, Data(x=torch.randn(60, 4), edge_index=torch.tensor([[0], [1]]), edge_type=torch.tensor([2]))]
    )
    made, _ = receptive_field.line(batch, edge_table(batch))
    assert int(made.edge_index.min()) == 3 * NODES
    assert int(made.edge_index.max()) == 3 * NODES + 59


@pytest.mark.parametrize("edges", [torch.empty(2, 0, dtype=torch.long), torch.tensor([[0], [0]])])
def test_nothing_to_make_a_line_of(edges):
    data = Data(x=torch.randn(1, 4), edge_index=edges, edge_type=torch.zeros(edges.size(1), dtype=torch.long))
    assert receptive_field.line(data, edge_table(data)) is None
