"""A model that does not read the edges it is given is refused before it serves what was deleted."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import to_dense_adj

import gnndelete as gd
from gnndelete.errors import GraphError, ModelError
from tests.hetero import make_hetero

REQUEST = gd.Deletion(edges=[(2, 5), (5, 6)])


class Remembering(nn.Module):
    """Keeps the edges of its first run."""

    def __init__(self):
        super().__init__()
        self.conv, self.edges = GCNConv(6, 5), None

    def forward(self, x, edge_index):
        if self.edges is None:
            self.edges = edge_index
        return self.conv(x, self.edges)


@pytest.mark.parametrize("method", ["unlink", "gnndelete", "retrain"])
def test_edges_of_its_own_are_noticed(graph, method):
    model = Remembering()
    model(graph.x, graph.edge_index)
    unlearner = gd.Unlearner(model, graph, task="node", method=method)
    with pytest.raises(ModelError, match="same with and without the edges"):
        unlearner.delete(REQUEST)
    assert not unlearner.history
    model.edges = None
    assert unlearner.delete(REQUEST).counts == {"edges": 2}, "once they are cleared it is served"
    assert model.edges is None, "and the user's model is as it was"


class Matrix(nn.Module):
    """No graph layers; neighbours are added up by a matrix of its own."""

    def __init__(self, edges):
        super().__init__()
        self.lower, self.upper = nn.Linear(6, 8), nn.Linear(8, 5)
        self.register_buffer("matrix", to_dense_adj(edges, max_num_nodes=48)[0])

    def forward(self, x, edge_index):
        return self.upper(self.matrix @ self.lower(self.matrix @ x).relu())


class Given(Matrix):
    """The same with the edges of the graph."""

    def forward(self, x, edge_index):
        self.matrix = to_dense_adj(edge_index, max_num_nodes=len(x))[0]
        return super().forward(x, edge_index)


class RowByRow(Matrix):
    def forward(self, x, edge_index):
        return self.upper(self.lower(x).relu())


class Mean(Matrix):
    """Every row depends on all others, and on no edge."""

    def forward(self, x, edge_index):
        return self.upper((x + x.mean(dim=0)) @ self.lower.weight.t())


METHODS = ["unlink", "retrain", gd.GNNDelete(layers=["lower", "upper"], lam=0.3)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("directed", [False, True])
def test_a_matrix_of_its_own_is_noticed(graph, method, directed):
    if directed:
        graph = gd.Deletion(edges=[(0, 1)]).remaining(graph)
        graph = graph.edge_subgraph(graph.edge_index[0] < graph.edge_index[1])
        graph.num_nodes = 48
    request = gd.Deletion(edges=[(2, 5)])
    with pytest.raises(ModelError, match="same with and without the edges"):
        gd.Unlearner(Matrix(graph.edge_index), graph, task="node", method=method).delete(request)
    assert gd.Unlearner(Given(graph.edge_index), graph, task="node", method=method).delete(request).counts == {
        "edges": 1
    }


@pytest.mark.parametrize("kind", [RowByRow, Mean])
@pytest.mark.parametrize("method", METHODS)
def test_models_that_need_no_edges_are_served(graph, kind, method):
    unlearned = gd.Unlearner(kind(graph.edge_index), graph, task="node", method=method).delete(REQUEST)
    assert unlearned.counts == {"edges": 2}


class ByType(nn.Module):
    """Keeps the edges of its first run, by type."""

    def __init__(self, types):
        super().__init__()
        self.conv, self.kept = HeteroConv({kind: SAGEConv((-1, -1), 4) for kind in types}), None

    def forward(self, x_dict, edge_index_dict):
        self.kept = self.kept or dict(edge_index_dict)
        return self.conv(x_dict, self.kept)


@pytest.mark.parametrize("method", ["unlink", gd.GNNDelete(lam=0.3)])
def test_edges_of_its_own_by_type_are_noticed(method):
    data = make_hetero()
    model = ByType(data.edge_types)
    model(data.x_dict, data.edge_index_dict)
    kind = data.edge_types[0]
    request = gd.Deletion(edges={kind: [data[kind].edge_index[:, 0].tolist()]})
    unlearner = gd.Unlearner(model, data, method=method)
    with pytest.raises(ModelError, match="same with and without the edges"):
        unlearner.delete(request)
    model.kept = None
    assert sum(unlearner.delete(request).counts.values())


class Encoded(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(9, 5)

    def forward(self, x, edge_index, pe, pos=None):
        return self.conv(torch.cat([x, pe], dim=1), edge_index)


def test_numbers_made_from_the_graph_are_told(graph):
    graph.pe, graph.pos = torch.randn(48, 3), torch.randn(48, 2)
    for method in ("unlink", gd.Retrain(epochs=1)):
        unlearner = gd.Unlearner(Encoded(), graph, task="node", method=method)
        assert not any("The model reads" in note.text for note in unlearner.delete(gd.Deletion(labels=[4])).notes)
        said = [note for note in unlearner.delete(REQUEST).notes if "The model reads" in note.text]
        assert ["reads 'pe' from the graph" in note.text for note in said] == [True], (
            "positions are given, encodings made"
        )


def test_inspect_says_so_and_leaves_the_model_as_it_was(graph):
    model = Remembering()
    assert not gd.inspect(model, graph).notes
    assert model.edges is None
    model(graph.x, graph.edge_index)
    assert any("same with and without the edges" in note.text for note in gd.inspect(model, graph).notes)


def test_features_need_no_edges(graph):
    model = Remembering()
    model(graph.x, graph.edge_index)
    assert gd.Unlearner(model, graph, task="node").delete(gd.Deletion(features=[3])).counts == {"features": 1}


def test_rows_that_are_all_alike_hide_no_model(graph):
    """One edge between equal rows changes nothing behind a mean; the whole graph does."""
    graph.x = torch.ones_like(graph.x)
    assert gd.Unlearner(GCNConv(6, 4), graph, method="unlink").delete(REQUEST).counts == {"edges": 2}


def test_a_first_layer_that_says_nothing_hides_no_model(graph, silent):
    assert gd.Unlearner(silent, graph, method="unlink").delete(REQUEST).counts == {"edges": 2}


def test_a_forward_that_ignores_the_graph_is_noticed(graph):
    edges = graph.edge_index
    unlearner = gd.Unlearner(GCNConv(6, 4), graph, forward=lambda model, data: model(data.x, edges))
    with pytest.raises(ModelError, match="same with and without the edges"):
        unlearner.delete(REQUEST)


def test_edges_that_are_there_twice_are_refused(graph):
    graph.edge_attr = graph.edge_weight = None
    twice = ToSparseTensor(remove_edge_index=False, layout=torch.sparse_csr)(graph)
    with pytest.raises(GraphError, match="'adj_t' holds the edges of 'edge_index' a second time"):
        gd.Unlearner(GCNConv(6, 4), twice)


def test_edges_that_are_there_twice_in_a_dense_matrix_are_refused(graph):
    graph.matrix = to_dense_adj(graph.edge_index, max_num_nodes=48)[0]
    with pytest.raises(GraphError, match="'matrix' holds the edges of 'edge_index' a second time"):
        gd.Unlearner(GCNConv(6, 4), graph)
    for other in (torch.rand(48, 48), torch.eye(48), torch.zeros(48, 48)):  # a kernel, say
        graph.matrix = other
        gd.Unlearner(GCNConv(6, 4), graph)


def test_a_model_that_reads_a_further_set_of_edges_is_served(graph):
    class Further(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(6, 4)

        def forward(self, x, train_edge_index):
            return self.conv(x, train_edge_index)

    graph.train_edge_index = graph.edge_index.clone()
    unlearned = gd.Unlearner(Further(), graph, method="unlink").delete(REQUEST)
    assert torch.equal(unlearned.data.train_edge_index, unlearned.data.edge_index)
    assert any("were also cut from 'train_edge_index'" in note.text for note in unlearned.notes)


def test_two_edges_of_two_nodes_are_no_matrix():
    two = Data(
        x=torch.rand(2, 6), edge_index=torch.tensor([[0, 1], [1, 1]]), edge_attr=torch.tensor([[0.0, 1], [0, 0]])
    )
    assert gd.Unlearner(GCNConv(6, 4), two, method="unlink").delete(gd.Deletion(edges=[(0, 1)])).data.num_edges == 1


def test_threads_wait_for_each_other(graph):
    unlearner = gd.Unlearner(GCNConv(6, 4), graph, method="unlink")
    pairs = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].unique(dim=1)[:, :8]
    results = []

    def ask(pair):
        results.append(unlearner.delete(gd.Deletion(edges=pair[:, None])))

    threads = [threading.Thread(target=ask, args=(pair,)) for pair in pairs.t()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(result.history) for result in results) == list(range(1, 9))
    for result in results:
        assert result.data.num_edges == graph.num_edges - sum(
            int(((graph.edge_index == pair[:, None]).all(dim=0)).sum() * 2) for pair in result.deletion.edges.t()
        ), "each lacks all that its history names"


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("method", [gd.Retrain(epochs=2), gd.GNNDelete(lam=0.5, solver="gradient", epochs=2)])
def test_methods_that_train_do_so_anywhere(graph, gcn, mode, method):
    with mode():
        unlearned = gd.Unlearner(gcn, graph, task="node", method=method).delete(REQUEST)
    assert torch.isfinite(unlearned.output()).all()


class Noisy(nn.Module):
    """Its dropout is on in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(6, 5), GCNConv(5, 4)

    def forward(self, x, edge_index):
        return self.second(nn.functional.dropout(self.first(x, edge_index), 0.5), edge_index)


def test_random_answers_are_told(graph, gcn):
    said = "draws random numbers in evaluation mode"
    assert any(said in note.text for note in gd.Unlearner(Noisy(), graph, task="node").delete(REQUEST).notes)
    assert any(said in note.text for note in gd.inspect(Noisy(), graph).notes)
    assert not any(said in note.text for note in gd.inspect(gcn, graph).notes)
