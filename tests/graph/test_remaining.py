"""Remaining graphs against PyG's own functions."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, is_undirected, subgraph, to_undirected

from gnndelete import Deletion
from gnndelete.errors import DeletionError


@st.composite
def graphs(draw):
    """Graphs with self-loops, parallel edges, isolated nodes and every attribute that must follow the edges."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    nodes = draw(st.integers(3, 14))
    edges = torch.randint(nodes - 1, (2, draw(st.integers(2, 24))), generator=generator)  # the last node is isolated
    edges = torch.cat([edges, edges[:, :2]], dim=1)  # parallel
    if draw(st.booleans()):
        edges = torch.cat([edges, edges.flip(0)], dim=1)[:, torch.randperm(2 * edges.size(1), generator=generator)]
    count = edges.size(1)
    data = Data(
        x=torch.rand(nodes, 3, generator=generator) + 1,
        edge_index=edges,
        edge_attr=torch.arange(2 * count).float().view(count, 2),
        edge_weight=torch.arange(count).float(),
        y=torch.arange(nodes),
        train_mask=torch.rand(nodes, generator=generator) < 0.6,
        splits=torch.rand(nodes, nodes + 1, generator=generator) < 0.6,
        title="graph",
    )
    if draw(st.booleans()):
        pick = torch.randperm(count, generator=generator)[: count // 2]
        negatives = torch.randint(nodes, (2, 5), generator=generator)
        data.edge_label_index = torch.cat([edges[:, pick], negatives], dim=1)
        data.edge_label = torch.cat([torch.ones(pick.numel()), torch.zeros(5)])
    columns = torch.randperm(count, generator=generator)[: draw(st.integers(0, 4))]
    gone = torch.randperm(nodes, generator=generator)[: draw(st.integers(0, 2))]
    wanted = edges[:, columns]
    if is_undirected(coalesce(edges), num_nodes=nodes):
        swap = torch.rand(columns.numel(), generator=generator) < 0.5
        wanted = torch.where(swap, wanted.flip(0), wanted)
    return data, Deletion(edges=wanted, nodes=gone)


def unchanged(before, after):
    return before.keys() == after.keys() and all(
        torch.equal(before[k], after[k]) if isinstance(before[k], torch.Tensor) else before[k] == after[k]
        for k in before
    )


@given(graphs())
def test_remaining_equals_pyg_and_leaves_the_graph_alone(case):
    data, deletion = case
    nodes, edges = data.num_nodes, data.edge_index
    undirected = is_undirected(coalesce(edges), num_nodes=nodes)
    gone = set(map(tuple, deletion.edges.t().tolist()))
    gone |= {(v, u) for u, v in gone} if undirected else set()
    keep = torch.tensor([(u, v) not in gone for u, v in edges.t().tolist()])
    alive = torch.ones(nodes, dtype=torch.bool)
    alive[deletion.nodes] = False
    rank = torch.arange(edges.size(1))[keep]
    expected, rank = subgraph(alive, edges[:, keep], rank, num_nodes=nodes)
    assume(len(deletion) and expected.size(1))

    before, tensors = copy.deepcopy(data.to_dict()), {k: id(v) for k, v in data.to_dict().items()}
    rest = deletion.remaining(data)
    assert unchanged(before, data.to_dict())
    assert {k: id(v) for k, v in data.to_dict().items()} == tensors

    assert torch.equal(rest.edge_index, expected)
    assert torch.equal(rest.edge_attr, data.edge_attr[rank])
    assert torch.equal(rest.edge_weight, data.edge_weight[rank])
    assert rest.num_nodes == nodes
    assert rest.title == "graph"
    assert torch.equal(rest.x[alive], data.x[alive])
    assert torch.equal(rest.y[alive], data.y[alive])
    assert not rest.x[~alive].any()
    assert (rest.y[~alive] == -1).all()
    for name in ("train_mask", "splits"):
        assert torch.equal(rest[name][alive], data[name][alive])
        assert not rest[name][~alive].any()
    if "edge_label_index" in data:
        stays = [
            (u, v) not in gone and bool(alive[u]) and bool(alive[v]) for u, v in data.edge_label_index.t().tolist()
        ]
        assert torch.equal(rest.edge_label_index, data.edge_label_index[:, stays])
        assert torch.equal(rest.edge_label, data.edge_label[stays])
    if undirected:
        assert is_undirected(coalesce(rest.edge_index), num_nodes=nodes)
    rest.validate(raise_on_error=True)


@given(graphs())
def test_both_directions_of_an_undirected_graph_count_once(case):
    data, _ = case
    data.edge_index = to_undirected(data.edge_index[:, :-2], num_nodes=data.num_nodes)
    for name in ("edge_attr", "edge_weight", "edge_label_index", "edge_label"):
        if name in data:
            del data[name]
    u, v = data.edge_index[:, 0].tolist()
    assume(len({tuple(sorted(pair)) for pair in data.edge_index.t().tolist()}) > 1)
    checked = [Deletion(edges=e).check(data) for e in ([(u, v)], [(v, u)], [(u, v), (v, u)], [(v, u), (v, u)])]
    assert all(deletion == checked[0] for deletion in checked)
    assert len(checked[0]) == 1
    assert checked[0].edges.flatten().tolist() == sorted([u, v])


def test_a_typed_graph_loses_the_triple_and_nothing_else():
    data = Data(edge_index=torch.tensor([[0, 0, 1], [1, 1, 0]]), edge_type=torch.tensor([0, 1, 0]), num_nodes=3)
    rest = Deletion(edges=[(0, 1, 1)]).remaining(data)
    assert rest.edge_index.tolist() == [[0, 1], [1, 0]]
    assert rest.edge_type.tolist() == [0, 0]
    with pytest.raises(DeletionError, match=r"pairs.*edge_type.*triples"):
        Deletion(edges=[(0, 1)]).check(data)
    with pytest.raises(DeletionError, match=r"relations that are not in the graph: \(0, 7, 1\).*0 to 1"):
        Deletion(edges=[(0, 7, 1)]).check(data)
    with pytest.raises(DeletionError, match="does not exist"):
        Deletion(edges=[(1, 1, 0)]).check(data)


def test_training_labels_alone_can_be_deleted(graph):
    """A positive pair that carries no message still leaves the supervision."""
    graph.edge_label_index = torch.tensor([[0, 0, 30], [20, 40, 5]])
    graph.edge_label = torch.tensor([1.0, 0.0, 1.0])
    rest = Deletion(edges=[(20, 0)]).remaining(graph)
    assert rest.edge_index.size(1) == graph.edge_index.size(1)
    assert rest.edge_label_index.tolist() == [[0, 30], [40, 5]]
    with pytest.raises(DeletionError, match=r"\(0, 40\)"):  # a negative is no edge
        Deletion(edges=[(0, 40)]).check(graph)


@pytest.mark.parametrize("count", [30, 104])  # 104: as many as the graph has edges
def test_further_sets_of_edges_lose_them_too(graph, count):
    generator = torch.Generator().manual_seed(3)
    pairs = torch.randint(0, 48, (2, count), generator=generator)
    pairs[:, 0], pairs[:, 1], pairs[:, 2] = torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([20, 3])
    graph.edge_index_knn, graph.edge_weight_knn = pairs, torch.arange(count).float()
    left = Deletion(edges=[(0, 1)], nodes=[20]).remaining(graph)
    keep = [k for k, (u, v) in enumerate(pairs.t().tolist()) if {u, v} != {0, 1} and 20 not in (u, v)]
    assert len(keep) < count - 2
    assert torch.equal(left.edge_index_knn, pairs[:, keep])
    assert left.edge_weight_knn.tolist() == keep
    assert graph.num_edges == 104
    assert graph.edge_index_knn is pairs


def test_a_further_set_with_types_loses_edges_of_that_type_alone():
    edges, kinds = torch.tensor([[0, 0, 1, 2, 3], [1, 1, 2, 3, 0]]), torch.tensor([0, 1, 0, 1, 0])
    graph = Data(
        edge_index=edges, edge_type=kinds, train_edge_index=edges.clone(), train_edge_type=kinds.clone(), num_nodes=4
    )
    for request in (Deletion(relations=[1]), Deletion(edges=[(0, 0, 1)]), Deletion(nodes=[3])):
        left = request.remaining(graph)
        assert torch.equal(left.train_edge_index, left.edge_index)
        assert torch.equal(left.train_edge_type, left.edge_type)
    del graph.train_edge_type  # without types of its own: the pair goes
    assert Deletion(edges=[(0, 0, 1)]).remaining(graph).train_edge_index.tolist() == [[1, 2, 3], [2, 3, 0]]


def test_what_holds_no_pairs_of_nodes_is_left(graph):
    graph.hyperedge_index = torch.stack([torch.arange(48), torch.arange(48) // 12])
    graph.edge_index_knn, graph.edge_dist_knn = torch.tensor([[0, 4], [1, 5]]), torch.tensor([0.5, 0.7])
    left = Deletion(edges=[(0, 1)]).remaining(graph)
    assert torch.equal(left.hyperedge_index, graph.hyperedge_index)
    assert (left.edge_index_knn.tolist(), left.edge_dist_knn.tolist()) == ([[4], [5]], [pytest.approx(0.7)])


def test_of_a_deleted_node_floats_go_and_whole_numbers_and_lists_stay(graph):
    count = graph.num_nodes
    graph.pos, graph.walk = torch.rand(count, 3) + 1, torch.rand(count) + 1
    graph.row, graph.names = torch.arange(count) + 1, [f"n{node}" for node in range(count)]
    rest = Deletion(nodes=[5]).remaining(graph)
    others = torch.arange(count) != 5
    for name in ("x", "pos", "walk"):
        assert not rest[name][5].any(), name
        assert torch.equal(rest[name][others], graph[name][others]), name
    assert torch.equal(rest.row, graph.row)  # it may be an index, and 0 is that of another node
    assert rest.names == graph.names


def test_sparse_features_of_deleted_nodes_are_removed():
    dense = torch.tensor([[1.0, 0.0], [2.0, 3.0], [0.0, 4.0]])
    edges = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    for sparse in (dense.to_sparse_coo(), dense.to_sparse_csr()):
        data = Data(x=sparse, edge_index=edges, num_nodes=3)
        rest = Deletion(nodes=[1]).remaining(data)
        assert rest.x.layout == sparse.layout
        assert rest.x.to_dense().tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 4.0]]
        assert rest.x.to_sparse_coo().coalesce().values().numel() == 2  # not even a stored zero tells where it was
