"""Every kind of deletion: how it is named, what is refused, and what remains."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import gnndelete as gd
from gnndelete import Deletion
from gnndelete.datasets import IdMap
from gnndelete.errors import DeletionError
from gnndelete.methods import resolver

from ..conftest import make_graph

# What is named


@pytest.mark.parametrize(
    "form",
    [
        {3: [0, 2], 8: 1},
        {8: torch.tensor([1]), 3: (2, 0, 2)},
        [(8, 1), (3, 2), (3, 0), (8, 1)],
        ((3, 0), (3, 2), (8, 1)),
        iter([[3, 0], [3, 2], [8, 1]]),
        torch.tensor([[3, 8, 3], [0, 1, 2]]),
        torch.tensor([[3, 8, 3], [0, 1, 2]], dtype=torch.int32).numpy(),
    ],
    ids=["mapping", "mapping of others", "pairs", "tuple", "iterator", "tensor", "array"],
)
def test_every_form_of_some_columns_is_the_same_request(form):
    made = Deletion(features=form)
    assert made == Deletion(features=[(3, 0), (3, 2), (8, 1)])
    assert made.counts == {"features": 2}, "nodes that lose features"
    assert made.feature_nodes.tolist() == [3, 8]


def test_all_columns(graph):
    whole = Deletion(features=[5, 3])
    assert whole == Deletion(features=torch.tensor([3, 5])) == Deletion(features=range(3, 6, 2))
    both = whole | Deletion(features=[(3, 1)])
    listed = Deletion(features=[(node, column) for node in (3, 5) for column in range(6)])
    for other in (both, listed):
        assert torch.equal(other.remaining(graph).x, whole.remaining(graph).x)
        assert other.counts == whole.counts


def test_fill_is_part_of_the_request():
    assert Deletion(features=[3]) != Deletion(features=[3], fill=1.0)
    assert Deletion(features=[3]) == Deletion(features=[3], fill=-0.0)
    with pytest.raises(DeletionError, match=r"column 1 of node 3 .* 0 and by 2; give one value"):
        Deletion(features=[(3, 1)]) | Deletion(features=[(3, 1)], fill=2)
    both = Deletion(features=[3]) | Deletion(features=[(3, 1)], fill=2.0)
    assert both == Deletion(features=[(3, 1)], fill=2.0) | Deletion(features=[3])
    x = both.remaining(make_graph()).x[3]
    assert x.tolist() == [0, 2, 0, 0, 0, 0], "the column that was named by itself has its own value"


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo, torch.sparse_csr])
def test_features_that_remain(graph, layout):
    before = graph.x.clone()
    graph.x = graph.x if layout == torch.strided else graph.x.to_sparse(layout=layout)
    means = before.mean(dim=0)
    for deletion, rows in {
        Deletion(features=[7, 9]): {7: torch.zeros(6), 9: torch.zeros(6)},
        Deletion(features=[7], fill=2.5): {7: torch.full((6,), 2.5)},
        Deletion(features=[7], fill=means): {7: means},
        Deletion(features={7: [1, 4]}, fill=means): {7: torch.where(torch.arange(6) % 3 == 1, means, before[7])},
    }.items():
        rest = deletion.remaining(graph)
        assert rest.x.layout == layout
        expected = before.clone()
        for node, row in rows.items():
            expected[node] = row
        torch.testing.assert_close(rest.x.to_dense(), expected)
        assert torch.equal(graph.x.to_dense(), before)
        assert torch.equal(rest.edge_index, graph.edge_index)
        assert torch.equal(rest.y, graph.y)
    gone = Deletion(features=[7]).remaining(graph).x
    if layout != torch.strided:
        assert 7 not in gone.to_sparse_coo().coalesce().indices()[0], "not even a stored zero tells where it was"


def test_whole_number_features(graph):
    graph.x = (10 * graph.x).long()
    assert Deletion(features=[(3, 1)], fill=4.0).remaining(graph).x[3, 1] == 4
    with pytest.raises(DeletionError, match=r"fill= holds 0\.5, which 'x' of torch\.int64 cannot hold"):
        Deletion(features=[3], fill=0.5).check(graph)


def test_labels_that_remain(graph):
    rest = Deletion(labels=[0, 2]).remaining(graph)
    assert rest.y[[0, 2]].tolist() == [-1, -1]
    others = torch.ones(48, dtype=torch.bool).index_fill(0, torch.tensor([0, 2]), False)
    assert torch.equal(rest.y[others], graph.y[others])
    for name in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(rest[name], graph[name] & others)
    assert torch.equal(rest.x, graph.x)
    graph.y = torch.rand(48, 2)
    assert Deletion(labels=[4]).remaining(graph).y[4].isnan().all()


def test_features_and_labels_of_deleted_nodes_go_with_them(graph):
    both = Deletion(nodes=[9], features=[9, 10], labels=[9, 10]).check(graph)
    assert both == Deletion(nodes=[9], features=[10], labels=[10]).check(graph)
    assert both.remaining(graph).x[9].tolist() == [0.0] * 6


def test_a_subgraph_is_the_edges_among_its_nodes(graph):
    triangle = Deletion.of_subgraph(graph, [43, 44, 45])
    assert triangle == Deletion(edges=[(43, 44), (44, 45), (43, 45)])
    assert Deletion.of_subgraph(graph, [0, 1, 2, 3]) == Deletion(edges=[(0, 1), (1, 2), (2, 3), (0, 2)])
    with pytest.raises(DeletionError, match="no edge joins two of the 2 nodes"):
        Deletion.of_subgraph(graph, [0, 40])
    typed = Data(edge_index=torch.tensor([[0, 1, 0], [1, 0, 2]]), edge_type=torch.tensor([1, 0, 0]), num_nodes=3)
    assert Deletion.of_subgraph(typed, [0, 1]) == Deletion(edges=[(0, 1, 1), (1, 0, 0)])


MALFORMED = {
    "ids and pairs": (dict(features=[3, (4, 1)]), "pairs (node, column) throughout"),
    "triples": (dict(features=[(3, 4, 1)]), "(3, 4, 1)"),
    "a text": (dict(features="3"), "features"),
    "no columns": (dict(features={3: []}), "no column"),
    "floats": (dict(features=[0.5]), "features"),
    "negative column": (dict(features=[(3, -1)]), "-1"),
    "nan": (dict(features=[3], fill=float("nan")), "fill"),
    "a word": (dict(features=[3], fill="mean"), "'mean'"),
    "a table": (dict(features=[3], fill=[[1.0]]), "[[1.0]]"),
    "fill alone": (dict(nodes=[3], fill=1.0), "features= names none"),
    "short fill": (dict(features=[(3, 5)], fill=[1.0, 2.0]), "2 values"),
}
UNFITTING = {
    "no such node": (dict(features=[48]), "48"),
    "no such column": (dict(features=[(3, 6)]), "(3, 6)"),
    "a fill of another width": (dict(features=[3], fill=[1.0, 2.0]), "'x' has 6 columns"),
    "too long a fill": (dict(features=[3], fill=[1.0] * 7), "'x' has 6 columns"),
    "no such label": (dict(labels=[48]), "48"),
}


@pytest.mark.parametrize("name", [*MALFORMED, *UNFITTING])
def test_requests_that_make_no_sense(graph, name):
    with pytest.raises(DeletionError) as caught:
        Deletion(**(MALFORMED | UNFITTING)[name][0]).check(graph)
    text = str(caught.value)
    assert (MALFORMED | UNFITTING)[name][1] in text
    assert "\n" not in text
    assert len(text) < 320


def test_graphs_without_features_or_labels(graph):
    graph.num_nodes = 48
    graph.y[5] = -1
    with pytest.raises(DeletionError, match="nodes without a label: 5; leave them out"):
        Deletion(labels=[4, 5]).check(graph)
    del graph.x, graph.y
    with pytest.raises(DeletionError, match=r"the graph has none \(no 'x'.*name the nodes"):
        Deletion(features=[4]).check(graph)
    with pytest.raises(DeletionError, match=r"the graph has none \(no 'y'"):
        Deletion(labels=[4]).check(graph)


def test_what_is_already_gone_is_refused():
    earlier = Deletion(nodes=[9], features=[(3, 1), (4, 0)], labels=[5]) | Deletion(features=[7])
    for again, words in (
        (Deletion(features=[(3, 1)]), "request: column 1 of the features of node 3;"),
        (Deletion(features=[(3, 0), (3, 1)], fill=[2.0, 3.0]), "request: column 1 of the features of node 3;"),
        (Deletion(features=[(7, 2)]), "request: column 2 of the features of node 7;"),
        (Deletion(features=[7]), "request: features of node 7;"),
        (Deletion(features=[9]), "request: features of node 9;"),
        (Deletion(labels=[5, 6]), "label of node 5"),
        (Deletion(labels=[9]), "label of node 9"),
    ):
        with pytest.raises(DeletionError, match=f"already deleted.*{words}"):
            again.require_new(earlier)
    for fine in (
        Deletion(features=[3]),
        Deletion(features=[(3, 0), (4, 1)]),
        Deletion(labels=[3, 7]),
        Deletion(nodes=[3]),
    ):
        assert fine.require_new(earlier) == fine


# Labels of any type


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.long])
@pytest.mark.parametrize("masks", [True, False], ids=["masks", "no masks"])
def test_labels_of_any_type_are_gone_from_training(dtype, masks):
    data = make_graph()
    data.y = (data.y % 2).to(dtype)
    if not masks:
        del data.train_mask, data.val_mask, data.test_mask
    task = gd.NodeClassification()
    request = Deletion(labels=[0, 1, 4], nodes=[8, 9])
    rest = request.remaining(data)
    assert rest.y[[0, 1, 4, 8, 9]].tolist() == [-1] * 5
    assert not task.part(rest, "train")[[0, 1, 4, 8, 9]].any()
    others = torch.ones(data.num_nodes, dtype=torch.bool).index_fill(0, torch.tensor([0, 1, 4, 8, 9]), False)
    assert torch.equal(rest.y[others].long(), data.y[others].long())
    model = gd.models.GCN(data.num_features, hidden=8, out=2)
    for name in ("gradascent", "gif", "megu", "d2d", "grapheraser", "gnndelete", "retrain"):
        method = resolver.make(name, {"epochs": 2} if name in ("retrain", "grapheraser") else {})
        unlearned = gd.Unlearner(model, data, task=task, method=method).delete(request)
        assert unlearned.predict([20, 21]).shape == (2, 2)


def test_labels_of_deleted_graphs_are_gone_whatever_their_type():
    graphs = [make_graph(seed) for seed in range(4)]
    for index, graph in enumerate(graphs):
        graph.y = torch.tensor([index % 2 == 0])
        del graph.train_mask, graph.val_mask, graph.test_mask
    unlearned = gd.Unlearner(
        gd.models.build("gcn", graphs[0].num_features, out=2, pool="mean"), graphs, task="graph", method="unlink"
    ).delete(Deletion(graphs=[2]))
    assert unlearned.data.y.tolist() == [1, 0, -1, 0]


@pytest.mark.parametrize("name", ["features", "labels"])
def test_attributes_of_nodes_that_are_not_there(graph, name):
    with pytest.raises(DeletionError, match=f"{name}= names nodes that are not in the graph: 48"):
        Deletion(**{name: [48]}).check(graph)


def test_a_hint_is_about_the_edges_that_are_missing():
    looped = Data(edge_index=torch.tensor([[0, 0, 1], [0, 1, 2]]), num_nodes=3)
    with pytest.raises(DeletionError, match=r"\(1, 1\); check the ids"):
        Deletion(edges=[(0, 0), (1, 1)]).check(looped)
    with pytest.raises(DeletionError, match=r"\(2, 1\); the graph is directed and holds the reverse"):
        Deletion(edges=[(0, 0), (2, 1)]).check(looped)


def test_nodes_without_a_label_are_named_as_their_user_names_them() -> None:
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    plain = Data(x=torch.ones(4, 1), edge_index=edges, y=torch.tensor([0, 1, -1, 0]))
    request = Deletion(labels=[1, 2])
    with pytest.raises(DeletionError, match="of nodes without a label: 2; leave them out"):
        request.check(plain)
    with pytest.raises(DeletionError, match="of nodes without a label: 'user:12'; leave them out"):
        request.with_names(IdMap(["user:4711", "user:3", "user:12", "item:7"])).check(plain)
    typed = HeteroData()
    typed["author"].x, typed["paper"].x, typed["paper"].y = torch.ones(4, 1), torch.ones(4, 1), plain.y
    typed["author", "writes", "paper"].edge_index = edges
    with pytest.raises(DeletionError, match="of 'paper' nodes without a label: 2; leave them out"):
        Deletion(labels={"paper": [1, 2]}).check(typed)
