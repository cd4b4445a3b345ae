"""Graphs and deletions that cannot be served: one sentence that names the thing and the value, and nothing has changed."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete import Deletion
from gnndelete.errors import DeletionError, GraphError, ModelError

from ..conftest import one_sentence

UNFITTING = {
    "id out of range": (dict(edges=[(0, 48)]), DeletionError, "(0, 48)", "0 to 47"),
    "node out of range": (dict(nodes=[99, 2]), DeletionError, "99", "0 to 47"),
    "missing edge": (dict(edges=[(0, 1), (0, 40)]), DeletionError, "(0, 40)", "1 of the edges", "does not exist"),
    "missing self-loop": (dict(edges=[(3, 3)]), DeletionError, "(3, 3)"),
    "triples": (dict(edges=[(0, 0, 1)]), DeletionError, "triples", "edge_type"),
    "three pairs, transposed": (
        dict(edges=torch.tensor([[0, 1], [1, 2], [2, 3]])),
        DeletionError,
        "pairs",
        "transpose",
    ),
    "nothing": ({}, DeletionError, "names nothing", "edges="),
    "an empty list": (dict(edges=[], nodes=[]), DeletionError, "names nothing"),
    "every node": (dict(nodes=range(48)), DeletionError, "all 48 nodes"),
    "features": (dict(features=[(1, 6)]), DeletionError, "(1, 6)", "0 to 5"),
    "labels": (dict(labels=[48]), DeletionError, "48", "0 to 47"),
    "relations": (dict(relations=[0]), DeletionError, "relations", "edge_type"),
    "graphs": (dict(graphs=[0]), DeletionError, "one graph"),
}


@pytest.mark.parametrize("name", UNFITTING)
def test_unfitting(name, graph, gcn, snapshot):
    request, kind, *needles = UNFITTING[name]
    unlearner = gd.Unlearner(gcn, graph)
    unlearner.delete(Deletion(edges=[(20, 21)]))
    before, history = snapshot(gcn, graph), unlearner.history
    with pytest.raises(kind) as caught:
        unlearner.delete(Deletion(**request))
    one_sentence(caught.value, *needles)
    assert snapshot(gcn, graph) == before
    assert unlearner.history == history
    with pytest.raises(kind):
        Deletion(**request).remaining(graph)


def test_every_edge_and_what_was_deleted_before(graph, gcn, snapshot):
    unlearner = gd.Unlearner(gcn, graph)
    before = snapshot(gcn, graph)
    with pytest.raises(DeletionError) as caught:
        unlearner.delete(Deletion(edges=graph.edge_index))
    one_sentence(caught.value, "none of the", str(graph.edge_index.size(1)))
    half = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    unlearner.delete(Deletion(edges=half[:, 1:]))
    history = unlearner.history
    with pytest.raises(DeletionError) as caught:  # each request leaves something, both together do not
        unlearner.delete(Deletion(edges=half[:, :1]))
    one_sentence(caught.value, "none of the")
    with pytest.raises(DeletionError) as caught:
        unlearner.delete(Deletion(edges=half[:, 1:2].flip(0)))
    one_sentence(caught.value, "already deleted", str(tuple(half[:, 1].tolist())))
    assert unlearner.history == history
    assert snapshot(gcn, graph) == before


def test_the_wrong_direction_of_a_directed_graph_is_hinted_at(graph):
    data = Data(x=graph.x, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    with pytest.raises(DeletionError) as caught:
        Deletion(edges=[(1, 0)]).check(data)
    one_sentence(caught.value, "(1, 0)", "directed")


def nan_features(data):
    data.x = data.x.clone()
    data.x[5, 2] = float("nan")


def nan_weights(data):
    data.edge_weight[3] = float("inf")


def no_edges(data):
    del data.edge_index


def short_ids(data):
    data.edge_index = data.edge_index.int()


def flat_edges(data):
    data.edge_index = data.edge_index.t()


def wild_edges(data):
    data.edge_index = data.edge_index.clone()
    data.edge_index[0, 0] = 77


def negative_edges(data):
    data.edge_index = data.edge_index.clone()
    data.edge_index[1, 2] = -4


@pytest.mark.parametrize(
    ("spoil", "needles"),
    [
        (nan_features, ("'x'", "row 5")),
        (nan_weights, ("'edge_weight'", "row 3")),
        (no_edges, ("edge_index",)),
        (short_ids, ("edge_index", "int32")),
        (flat_edges, ("edge_index", "shape")),
        (wild_edges, ("edge_index", "77", "0 to 47")),
        (negative_edges, ("edge_index", "-4")),
    ],
)
def test_broken_graphs(graph, gcn, spoil, needles):
    spoil(graph)
    for attempt in (gd.Unlearner, gd.inspect):
        with pytest.raises(GraphError) as caught:
            attempt(gcn, graph)
        one_sentence(caught.value, *needles)


def test_things_that_are_no_graph_or_no_model(graph, gcn):
    for wrong in (None, {"edge_index": 1}, torch.ones(2, 3)):
        with pytest.raises(GraphError) as caught:
            gd.Unlearner(gcn, wrong)
        one_sentence(caught.value, type(wrong).__name__)
    for wrong in (None, lambda x: x, gcn.state_dict()):
        with pytest.raises(ModelError) as caught:
            gd.Unlearner(wrong, graph)
        one_sentence(caught.value, type(wrong).__name__)
