"""The measured reach: on graphs of every shape, rows further away than it says must not move."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    APPNP,
    DirGNNConv,
    GCNConv,
    GraphUNet,
    HeteroConv,
    LGConv,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    SimpleConv,
    SuperGATConv,
)
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete.errors import ModelError, SettingError
from gnndelete.graph.batch import collate
from gnndelete.nn import receptive_field
from gnndelete.nn.forward import call
from gnndelete.nn.layers import graph_layers, working_copy


class Convs(nn.Module):
    def __init__(self, *convs):
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = torch.tanh(conv(x, edge_index))
        return x


def undirected(edges):
    edges = torch.as_tensor(edges).t() if not isinstance(edges, torch.Tensor) else edges
    return torch.cat([edges, edges.flip(0)], dim=1)


def line(count, start=0):
    return [(start + i, start + i + 1) for i in range(count)]


def stars_and_a_line():
    """The line is where reach shows, and it is neither the largest part nor the one with the hub."""
    edges = [(40 * s, 40 * s + leaf) for s in range(12) for leaf in range(1, 40)]
    return undirected(edges + line(20, 480)), 501


GRAPHS = {
    "line": lambda: (undirected(line(20)), 21),
    "cycle": lambda: (undirected([*line(17), (17, 0)]), 18),
    "stars and a line": stars_and_a_line,
    "two lines": lambda: (undirected(line(3) + line(12, 5)), 18),
    "tail on a clique": lambda: (undirected([*torch.combinations(torch.arange(8)).tolist(), *line(9, 7)]), 17),
    "directed line": lambda: (torch.tensor(line(20)).t(), 21),
    "directed tree": lambda: (torch.tensor([((i - 1) // 2, i) for i in range(1, 63)]).t(), 63),
    "directed stars and a line": lambda: (
        torch.tensor([(40 * s, 40 * s + leaf) for s in range(12) for leaf in range(1, 40)] + line(20, 480)).t(),
        501,
    ),
}
NETWORKS = {
    "gcn": (lambda flow: [GCNConv(4, 4, flow=flow) for _ in range(4)], [1, 2, 3, 4]),
    "appnp": (lambda flow: [APPNP(K=4, alpha=0.1, flow=flow)], [4]),
    "no self-loops": (lambda flow: [LGConv(flow=flow), LGConv(flow=flow), SimpleConv(flow=flow)], [1, 2, 3]),
    "appnp without self-loops": (lambda flow: [APPNP(K=3, alpha=0.0, add_self_loops=False, flow=flow)], [3]),
}


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("shape", GRAPHS)
def test_reach_is_the_true_one(shape, network, flow):
    torch.manual_seed(1)
    edges, nodes = GRAPHS[shape]()
    build, hops = NETWORKS[network]
    data = Data(x=torch.randn(nodes, 4), edge_index=edges)
    found = gd.inspect(Convs(*build(flow)), data)
    assert [site.hops for site in found.sites] == hops
    assert found.hops == hops[-1]
    assert found.bounded


def test_a_graph_smaller_than_the_reach_is_covered_whole():
    data = Data(x=torch.randn(6, 4), edge_index=undirected(torch.combinations(torch.arange(6)).t()))
    model = Convs(*[GCNConv(4, 4) for _ in range(3)])
    found = gd.inspect(model, data)
    assert found.bounded
    unlearned = gd.Unlearner(model, data).delete(gd.Deletion(edges=[(0, 1)]))
    assert all(sum(operator.sizes) == 6 for _, operator in unlearned.adapter.operators[1:])


@pytest.mark.parametrize("seed", range(12))
def test_nothing_outside_the_measured_reach_moves_on_random_graphs(seed, run):
    """The claim itself, on sparse random graphs of many small parts, directed or not."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(60, (2, 45), generator=generator)
    edges = edges if seed % 2 else undirected(edges)
    data = Data(x=torch.randn(60, 4, generator=generator), edge_index=edges)
    torch.manual_seed(seed)
    model = Convs(*[GCNConv(4, 4) for _ in range(2)], APPNP(K=2, alpha=0.1))
    found = gd.inspect(model, data)
    deletion = gd.Deletion(edges=edges[:, 3:4])
    unlearned = gd.Unlearner(model, data).delete(deletion)
    before, after = run(model, unlearned.data), run(unlearned.model, unlearned.data)
    near = k_hop_subgraph(edges[:, 3], found.sites[-1].hops, undirected(edges), num_nodes=60)[0]
    outside = torch.ones(60, dtype=torch.bool).index_fill(0, near, False)
    true = k_hop_subgraph(edges[:, 3], 4, undirected(edges), num_nodes=60)[0]
    assert set(true.tolist()) == set(near.tolist())
    assert torch.equal(before[outside], after[outside])


def test_a_node_with_nothing_but_loops_is_no_hub():
    edges = torch.cat([undirected(line(20)), torch.full((2, 9), 21)], dim=1)
    found = gd.inspect(Convs(GCNConv(4, 4), GCNConv(4, 4)), Data(x=torch.randn(22, 4), edge_index=edges))
    assert [site.hops for site in found.sites] == [1, 2]


class Block(MessagePassing):
    def __init__(self):
        super().__init__()
        self.inner = GCNConv(4, 4)

    def forward(self, x, edge_index):
        return self.inner(x, edge_index)


def test_the_outermost_graph_layers_are_taken():
    assert graph_layers(Convs(Block(), GCNConv(4, 4))) == ["convs.0", "convs.1"]
    assert graph_layers(GCNConv(4, 4)) == [""]
    shared = GCNConv(4, 4)
    model = Convs(shared, nn.Sequential(shared))
    assert graph_layers(model) == ["convs.0"]


class Marked(nn.Module):
    gnndelete_layer = True

    def __init__(self):
        super().__init__()
        self.inner = GCNConv(4, 4)

    def forward(self, x, edge_index):
        return x + self.inner(x, edge_index)


def test_a_marked_module_is_a_graph_layer_of_any_class():
    assert graph_layers(Convs(Marked(), nn.Linear(4, 4), GCNConv(4, 4))) == ["convs.0", "convs.2"]
    data = Data(x=torch.randn(21, 4), edge_index=undirected(line(20)))
    found = gd.inspect(Convs(Marked(), Marked()), data)
    assert [(site.layer, site.hops, site.bounded) for site in found.sites] == [
        ("convs.0", 1, True),
        ("convs.1", 2, True),
    ]
    unmarked = Marked()
    unmarked.gnndelete_layer = False
    assert graph_layers(unmarked) == ["inner"]


class PerGraph(nn.Module):
    """Every node gets the mean of its graph."""

    def __init__(self):
        super().__init__()
        self.conv, self.after = GCNConv(4, 4), GCNConv(4, 4)

    def forward(self, x, edge_index, batch):
        h = self.conv(x, edge_index)
        mean = h.new_zeros(3, 4).index_add(0, batch, h) / 6
        return self.after(h + mean[batch], edge_index)


def test_in_a_batch_of_graphs_one_that_is_seen_whole_is_no_bound():
    edges = undirected(line(5) + line(5, 6) + line(5, 12))
    data = Data(x=torch.randn(18, 4), edge_index=edges, batch=torch.arange(3).repeat_interleave(6))
    found = gd.inspect(PerGraph(), data)
    assert [site.bounded for site in found.sites] == [True, False]
    assert found.hops is None
    deep = gd.inspect(Convs(*[GCNConv(4, 4) for _ in range(6)]), data)  # sees its line whole as well, edge by edge
    assert deep.bounded


def test_a_model_that_is_itself_one_graph_layer(graph, run):
    conv = GCNConv(6, 4)
    nn.init.normal_(conv.bias)
    found = gd.inspect(conv, graph)
    assert [(site.layer, site.hops) for site in found.sites] == [("", 1)]
    unlearned = gd.Unlearner(conv, graph).delete(gd.Deletion(edges=[(3, 4)]))
    assert not torch.equal(run(unlearned.model, unlearned.data), run(conv, unlearned.data))
    unlearned.adapter.detach()
    assert torch.equal(run(unlearned.model, unlearned.data), run(conv, unlearned.data))


def test_a_layer_that_shows_nothing_is_counted_and_noted(graph):
    class Swallow(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(6, 4), Clean(4, 4)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index), edge_index)

    class Clean(GCNConv):
        def forward(self, x, edge_index):
            return super().forward(torch.ones_like(x), edge_index)

    found = gd.inspect(Swallow(), graph)
    assert [(site.hops, site.probed) for site in found.sites] == [(1, True), (2, False)]
    assert "counted, not measured" in str(found)
    notes = gd.Unlearner(Swallow(), graph).delete(gd.Deletion(edges=[(3, 4)])).notes
    assert any("second" in note.text and "counted" in note.text for note in notes)


@pytest.mark.parametrize(
    "between",
    [
        lambda x: torch.nan_to_num(x).relu(),
        lambda x: torch.where(x > 0, x, 0),
        lambda x: torch.fmax(x, torch.zeros(())),
        lambda x: x * (x > 0),
    ],
    ids=["nan_to_num", "where", "fmax", "product"],
)
def test_poison_that_is_swallowed_between_layers_hides_no_reach(graph, between):
    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([GCNConv(6, 8), GCNConv(8, 8), GCNConv(8, 3)])

        def forward(self, x, edge_index):
            for conv in self.convs[:-1]:
                x = between(conv(x, edge_index))
            return self.convs[-1](x, edge_index)

    torch.manual_seed(0)
    model = Three()
    found = gd.inspect(model, graph)
    assert [site.hops for site in found.sites] == [1, 2, 3]
    assert found.hops == 3
    assert found.bounded
    unlearned = gd.Unlearner(model, graph, method=gd.GNNDelete(lam=0.5)).delete(gd.Deletion(edges=[(20, 22)]))
    near = k_hop_subgraph([20, 22], 3, graph.edge_index, num_nodes=graph.num_nodes)[0]
    far = torch.ones(graph.num_nodes, dtype=torch.bool).index_fill(0, near, False)
    with torch.no_grad():
        base = model.eval()(unlearned.data.x, unlearned.data.edge_index)
    assert torch.equal(unlearned.output()[far], base[far])


def test_an_aggregation_that_swallows_poison_hides_no_reach(graph):
    class Medians(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = SAGEConv(6, 8, aggr="median"), SAGEConv(8, 3, aggr="median")

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    SAGEConv(6, 8)  # PyG writes how messages pass for the first layer of a class: let that be one that can multiply
    torch.manual_seed(0)
    assert [site.hops for site in gd.inspect(Medians(), graph).sites] == [1, 2]


@pytest.mark.parametrize(
    ("layers", "needles"),
    [("first", "'first'"), (["nowhere"], "nowhere"), ([], "empty"), (["convs.0", "x"], "x;")],
)
def test_unknown_layers_are_refused(graph, gcn, layers, needles):
    with pytest.raises(SettingError, match=needles) as caught:
        gd.inspect(gcn, graph, layers=layers)
    assert "convs.1" in str(caught.value), "the message lists what there is"
    with pytest.raises(
        SettingError, match=needles if layers else r"got \[\]"
    ):  # a mistake, not a method that does not fit
        gd.Unlearner(gcn, graph, method=gd.GNNDelete(layers=layers)).delete(gd.Deletion(edges=[(3, 4)]))


def test_a_layer_without_rows_of_nodes_is_refused(graph):
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = GCNConv(6, 4), nn.Linear(4, 2)

        def forward(self, x, edge_index):
            return self.head(self.conv(x, edge_index).mean(dim=0))

    with pytest.raises(ModelError, match=r"none of the layers head .*48 nodes"):
        gd.Unlearner(Pooled(), graph, method=gd.GNNDelete(layers=["head"])).delete(gd.Deletion(edges=[(3, 4)]))


def test_a_model_that_cannot_be_copied_is_refused(graph, gcn):
    gcn.rows = (row for row in graph.x)
    with pytest.raises(ModelError, match="cannot be copied"):
        working_copy(gcn)


def test_what_a_layer_keeps_of_a_call_is_no_obstacle(graph):
    class Super(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.kept = SuperGATConv(6, 4), SuperGATConv(4, 5), []

        def forward(self, x, edge_index):
            self.kept[:] = [{"hidden": self.first(x, edge_index)}]
            return self.second(self.kept[0]["hidden"].relu(), edge_index)

    model = Super()
    gd.train(model, graph, "node", epochs=2)
    model(graph.x, graph.edge_index)
    hidden = model.kept[0]["hidden"]
    assert not gd.inspect(model, graph, task="node").methods["retrain"]
    assert gd.inspect(model, graph).error is None
    gd.Unlearner(model, graph, method=gd.GNNDelete(lam=0.3)).delete(gd.Deletion(edges=[(3, 4)]))
    assert model.kept[0]["hidden"] is hidden
    assert hidden.requires_grad
    assert torch.equal(working_copy(model).kept[0]["hidden"], hidden)


def test_a_kept_graph_is_forgotten_by_the_copy_alone(make_subject):
    subject = make_subject("gcn-cached")
    copied = working_copy(subject.model)
    assert all(conv._cached_edge_index is None and not conv.cached for conv in copied.convs)
    assert all(conv._cached_edge_index is not None and conv.cached for conv in subject.model.convs)


def test_pooling_that_chooses_among_all_nodes_is_no_bound(graph):
    found = gd.inspect(GraphUNet(6, 8, 4, depth=2), graph)
    assert not found.bounded
    assert found.hops is None


@pytest.mark.parametrize("mixing", ["numbers", "nearest"])
def test_rows_that_no_edge_joins_are_mixed(mixing):
    """By their numbers, or because they look alike: what lies how many hops away bounds neither."""
    torch.manual_seed(0)
    nodes = torch.randperm(400)
    ring = torch.stack([nodes, nodes.roll(1)])
    data = Data(x=torch.randn(400, 6), edge_index=torch.cat([ring, ring.flip(0)], dim=1))

    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.between, self.last = GCNConv(6, 8), nn.Conv1d(8, 8, 3, padding=1), GCNConv(8, 4)

        def forward(self, x, edge_index):
            h = self.first(x, edge_index)
            if mixing == "numbers":
                return self.last(self.between(h.t()[None])[0].t(), edge_index)
            alike = torch.cdist(h, h).topk(4, largest=False).indices
            return self.last(h, torch.stack([alike.reshape(-1), torch.arange(400).repeat_interleave(4)]))

    found = gd.inspect(Mixing(), data)
    assert [site.bounded for site in found.sites] == [True, False]
    assert not found.bounded


class Shuffled(nn.Module):
    """Works on nodes in an order of its own, and puts them back; or only looks other nodes up."""

    def __init__(self, order, edges_too, itself):
        super().__init__()
        self.first, self.last = (SAGEConv(6, 6, root_weight=itself) for _ in range(2))
        self.out, self.order, self.edges_too = nn.Linear(6, 4), order, edges_too

    def forward(self, x, edge_index):
        back = self.order.argsort()
        edges = back[edge_index] if self.edges_too else edge_index
        h = self.last(self.first(x[self.order], edges).relu(), edges)
        return self.out(h[back] if self.edges_too else h)


def test_rows_that_are_shuffled_on_purpose_are_no_other_order(graph):
    """Contrastive models ask their layers a second time about nodes in a random order, another one in every run."""

    class Contrasts(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(6, 4)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index), self.conv(x[torch.randperm(x.size(0))], edge_index)

    unlearner = gd.Unlearner(Contrasts(), graph, method=gd.GNNDelete(lam=0.3))
    for seed in range(5):
        torch.manual_seed(seed)
        assert gd.inspect(Contrasts(), graph).error is None
    assert unlearner.delete(gd.Deletion(edges=[(3, 4)])).parameters


@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize("stays", [True, False])  # whether the node that is poisoned first keeps its place
def test_rows_in_another_order_than_the_nodes_are_refused(itself, stays):
    torch.manual_seed(0)
    ring = torch.stack([torch.arange(60), torch.arange(60).roll(1)])
    data = Data(x=torch.randn(60, 6), edge_index=torch.cat([ring, ring.flip(0)], dim=1))
    first = int((receptive_field.line(data)[1] == 0).nonzero())
    rest = torch.tensor([node for node in range(60) if node != first])
    order = torch.arange(60)
    order[rest] = rest[torch.randperm(59)]
    if not stays:
        order = order.roll(7)
    request = gd.Deletion(edges=[(10, 11)])
    model = Shuffled(order, True, itself)
    with pytest.raises(ModelError, match=r"rows behind first, last of 'Shuffled' are in another order than the nodes"):
        gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.3)).delete(request)
    assert any("another order" in note.text for note in gd.inspect(model, data).notes)
    method = gd.GNNDelete(lam=0.3, layers=["out"])
    assert gd.Unlearner(model, data, method=method).delete(request).counts == {"edges": 1}
    for served in (Shuffled(order, False, itself), Shuffled(torch.arange(60), True, itself)):
        assert gd.Unlearner(served, data, method=gd.GNNDelete(lam=0.3)).delete(request).counts == {"edges": 1}


def test_a_further_set_of_edges_is_no_matter_of_hops():
    torch.manual_seed(0)
    ring = torch.stack([torch.arange(60), torch.arange(60).roll(1)])
    data = Data(x=torch.randn(60, 6), edge_index=torch.cat([ring, ring.flip(0)], dim=1))
    data.edge_index_knn = torch.stack([torch.arange(60), torch.randperm(60)])

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = GCNConv(6, 8), GCNConv(8, 4)

        def forward(self, x, edge_index, edge_index_knn):
            return self.last(self.first(x, edge_index), edge_index_knn)

    assert not gd.inspect(Two(), data).bounded


def test_a_layer_that_leaves_neighbours_out_is_local_all_the_same():
    """Two steps at once: the rows beside a node do not move with it, and still all that do are reached along edges."""
    nodes = torch.arange(60)
    ring = torch.stack([nodes, nodes.roll(1)])
    data = Data(x=torch.randn(60, 6), edge_index=torch.cat([ring, ring.flip(0)], dim=1))

    class Second(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=self.propagate(edge_index, x=x))

    found = gd.inspect(Second(), data)
    assert (found.bounded, found.hops) == (True, 2)


def test_poison_that_is_swallowed_in_a_graph_of_several_types():
    """Of some types nothing turns NaN: what moves there is still a row of all nodes."""
    torch.manual_seed(0)
    data = HeteroData({"a": {"x": torch.randn(12, 4)}, "b": {"x": torch.randn(9, 4)}})
    data["a", "to", "b"].edge_index = torch.stack([torch.arange(12), torch.arange(12) % 9])
    data["b", "back", "a"].edge_index = data["a", "to", "b"].edge_index.flip(0)

    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            kinds = data.edge_types
            self.convs = nn.ModuleList([HeteroConv({kind: SAGEConv(4, 4) for kind in kinds}) for _ in range(3)])

        def forward(self, x_dict, edge_index_dict):
            for conv in self.convs:
                x_dict = {kind: h.nan_to_num().relu() for kind, h in conv(x_dict, edge_index_dict).items()}
            return x_dict

    found = gd.inspect(Typed(), data)
    assert found.error is None
    assert max(site.hops for site in found.sites) == 3
    assert gd.Unlearner(Typed(), data).delete(gd.Deletion(edges={("a", "to", "b"): [(0, 0)]})).data is not None


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
    made = receptive_field.line(data)[0]
    within = (data.group[made.edge_index[0]] == data.group[made.edge_index[1]]).sum()
    assert int(within) <= 2, "next to nothing is seen on the line"
    assert [site.hops for site in gd.inspect(Within(), data).sites] == [1, 2]


@pytest.mark.parametrize("strange", ["assert", "numpy", "batch"])
def test_layers_of_what_runs_on_its_own_graph_alone_are_counted(strange):
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
    found = gd.inspect(Strict(), data).sites
    assert [(site.hops, site.bounded) for site in found] == [(1, True), (2, True)]
    assert any(site.probed for site in found) == (strange == "numpy")


def test_nodes_of_a_line_are_in_no_order():
    made, places = receptive_field.line(typed(0, undirected=False))
    assert places.sort().values.tolist() == list(range(-1, NODES - 1)), "one is left out"
    start, end = made.edge_index
    assert (places[start] - places[end]).abs().unique().tolist() == [1]
    assert (end - start).abs().float().mean() > 5


def test_a_star_of_many_relations_is_probed_on_few_edges():
    """Its hub has more edges, and each of them stands for more relations, than fit on a line."""
    star = torch.stack([torch.zeros(2000, dtype=torch.long), torch.arange(1, 2001)])
    data = Data(x=torch.randn(2001, 4), edge_index=star, edge_type=torch.arange(2000))
    made, _ = receptive_field.line(data)
    assert made.num_edges == 2 * (receptive_field.LINE_NODES - 1) * receptive_field.LINE_SAMPLES
    assert gd.inspect(ManyHops(), data).hops == 7


def test_steps_of_a_line_have_all_relations_and_attributes_of_the_graph():
    data = typed(0, undirected=False)
    data.edge_attr = torch.arange(data.num_edges) % 5
    data.edge_label_index, data.edge_index_knn = data.edge_index[:, :3], data.edge_index[:, :4]
    made, places = receptive_field.line(data)
    assert made.num_nodes == NODES
    assert torch.equal(made.edge_label_index, data.edge_label_index)
    assert torch.equal(made.edge_index_knn, data.edge_index_knn)
    found = torch.stack([made.edge_type, made.edge_attr]).unique(dim=1)
    for step in range(NODES - 2):
        here = (places[made.edge_index] == torch.tensor([[step], [step + 1]])).all(dim=0)
        assert here.sum() == receptive_field.LINE_SAMPLES
        assert torch.equal(torch.stack([made.edge_type, made.edge_attr])[:, here].unique(dim=1), found)
    assert found[0].unique().tolist() == list(range(RELATIONS))
    assert found[1].unique().tolist() == list(range(5))


def test_node_types_have_a_line_each():
    data = HeteroData({"a": {"x": torch.randn(12, 4)}, "b": {"x": torch.randn(5, 4)}})
    data["a", "to", "b"].edge_index = torch.stack([torch.arange(12), torch.arange(12) % 5])
    data["a", "to", "b"].edge_attr = torch.arange(12.0)
    data["b", "back", "a"].edge_index = data["a", "to", "b"].edge_index.flip(0)
    made, places = receptive_field.line(collate(data))
    assert places[:12].sort().values.tolist() == list(range(-1, 11))
    assert places[12:].sort().values.tolist() == list(range(-1, 4))
    assert (places[made.edge_index[0]] - places[made.edge_index[1]]).abs().unique().tolist() == [1]
    assert places[made.edge_index].min() == 0
    kind = made.hetero["a", "to", "b"]
    assert kind.edge_attr.unique().tolist() == list(range(12))
    assert kind.edge_index.size(1) == kind.edge_attr.size(0) == 7 * 12
    assert made.hetero["b", "back", "a"].edge_index.size(1) == 7, "nothing to sample"


def test_a_line_stays_within_one_graph():
    graphs = [typed(seed, undirected=True) for seed in range(3)]
    batch = collate(
        [*graphs, Data(x=torch.randn(60, 4), edge_index=torch.tensor([[0], [1]]), edge_type=torch.tensor([2]))]
    )
    made, _ = receptive_field.line(batch)
    assert int(made.edge_index.min()) >= 3 * NODES
    assert made.edge_index.unique().numel() == 59


@pytest.mark.parametrize("edges", [torch.empty(2, 0, dtype=torch.long), torch.tensor([[0], [0]])])
def test_nothing_to_make_a_line_of(edges):
    data = Data(x=torch.randn(1, 4), edge_index=edges, edge_type=torch.zeros(edges.size(1), dtype=torch.long))
    made, places = receptive_field.line(data)
    assert (made.num_edges, places.tolist()) == (0, [0])


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


class Recording(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(4, 4), GCNConv(4, 3)
        self.edges, self.calls = None, []
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x, edge_index):
        self.edges = edge_index if self.edges is None else self.edges
        self.calls.append(1)
        self.total += 1
        return self.second(self.first(x, self.edges), self.edges)


@pytest.fixture
def cycle():
    nodes = torch.arange(12)
    edges = torch.stack([nodes, nodes.roll(1)])
    return Data(x=torch.randn(12, 4), edge_index=torch.cat([edges, edges.flip(0)], dim=1))


def nodes_near(data, hops):
    return set(k_hop_subgraph([5], hops, data.edge_index, num_nodes=12)[0].tolist())


@pytest.mark.parametrize("compare", [receptive_field.dependent_rows, receptive_field.moved_rows])
def test_rows_that_move_are_those_within_the_hops_of_the_layers(cycle, compare):
    found = compare(Recording(), cycle, call, ["first", "second"], ["first", "second"], torch.tensor([5]))
    assert [(each.site.layer, each.output) for each in found] == [("first", False), ("second", False), ("", True)]
    assert [set(each.moved.nonzero().flatten().tolist()) for each in found] == [
        nodes_near(cycle, 1),
        nodes_near(cycle, 2),
        nodes_near(cycle, 2),
    ]


def test_what_a_site_gave_can_be_changed_before_it_is_handed_on(cycle):
    model = Recording()
    found = receptive_field.run(
        model, cycle, call, ["first"], change=lambda reading: reading.h if reading.output else reading.h * 0
    )
    assert torch.equal(found.output, receptive_field.run(model, cycle, call, []).output * 0 + model.second.bias)
    assert [reading.site.width for reading in found.readings] == [4, 3]


def test_a_run_leaves_no_trace(cycle):
    model = Recording().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    receptive_field.run(model, cycle, call, ["first"], nodes=torch.tensor([5]), shift=float("nan"), inputs=["first"])
    assert model.edges is None
    assert not model.calls
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_model_that_does_not_run_is_named(cycle):
    cycle.x = cycle.x[:, :2]
    with pytest.raises(ModelError, match="'Recording' does not run on the graph") as caught:
        receptive_field.run(Recording(), cycle, call, [])
    assert caught.value.remedy
