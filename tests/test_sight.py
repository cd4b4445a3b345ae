"""A model that does not read the edges it is given is refused before it serves what was deleted."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import ToSparseTensor

import gnndelete as gd
from gnndelete.errors import GraphError, ModelError

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


def test_inspect_says_so_and_leaves_the_model_as_it_was(graph):
    model = Remembering()
    assert not gd.inspect(model, graph).notes
    assert model.edges is None
    model(graph.x, graph.edge_index)
    assert any("same with and without the edges" in note for note in gd.inspect(model, graph).notes)


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
    with pytest.raises(GraphError, match="'adj_t' holds the edges a second time"):
        gd.Unlearner(GCNConv(6, 4), twice)


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
    assert any(said in note for note in gd.Unlearner(Noisy(), graph, task="node").delete(REQUEST).notes)
    assert any(said in note for note in gd.inspect(Noisy(), graph).notes)
    assert not any(said in note for note in gd.inspect(gcn, graph).notes)
