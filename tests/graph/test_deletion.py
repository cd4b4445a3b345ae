"""Deletions as sets, and remaining graphs against PyG's own functions."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import coalesce, is_undirected, subgraph, to_undirected

from gnndelete import Deletion
from gnndelete.datasets import IdMap
from gnndelete.errors import DeletionError
from gnndelete.graph.batch import collate

pairs = st.tuples(st.integers(0, 30), st.integers(0, 30))
deletions = st.builds(
    lambda edges, nodes, features, labels: Deletion(edges=edges, nodes=nodes, features=features, labels=labels),
    st.lists(pairs, max_size=8),
    st.lists(st.integers(0, 30), max_size=6),
    st.one_of(st.lists(pairs, max_size=5), st.lists(st.integers(0, 30), max_size=3)),
    st.lists(st.integers(0, 30), max_size=3),
)


@given(st.lists(pairs, min_size=1, max_size=12), st.randoms())
def test_order_repeats_and_form_do_not_matter(edges, random):
    shuffled = edges + random.sample(edges, len(edges))
    random.shuffle(shuffled)
    forms = [
        edges,
        shuffled,
        tuple(shuffled),
        iter(shuffled),
        [list(pair) for pair in shuffled],
        torch.tensor(shuffled).t(),
        torch.tensor(shuffled, dtype=torch.int32).t(),
        torch.tensor(shuffled).t().numpy(),
    ]
    made = [Deletion(edges=form) for form in forms]
    assert len({deletion.fingerprint for deletion in made}) == 1
    assert all(deletion == made[0] and hash(deletion) == hash(made[0]) for deletion in made)
    assert made[0].edges.t().tolist() == sorted([list(pair) for pair in set(edges)])
    assert len(made[0]) == len(set(edges))


@given(deletions, deletions, deletions)
def test_union_is_that_of_sets(a, b, c):
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | a == a
    assert a | Deletion() == a
    as_set = lambda d: set(map(tuple, d.edges.t().tolist())) | {(n,) for n in d.nodes.tolist()}  # noqa: E731
    assert as_set(a | b) == as_set(a) | as_set(b)
    full = lambda d: (as_set(d), set(d.labels.tolist()), set(map(tuple, d.features.t().tolist())))  # noqa: E731
    assert (a == b) == (full(a) == full(b))
    assert Deletion.from_lists((a | b).to_lists()) == a | b


def test_fingerprint_is_the_same_on_every_machine():
    one = Deletion(edges=[(7, 9), (0, 5)], nodes=[3])
    assert one.fingerprint == "c6a75d70eec034badb117aa5d5aa5c2885e57bc6db965c99028e67eb199ed329"
    assert one.fingerprint != Deletion(edges=[(7, 9), (0, 5), (3, 3)]).fingerprint
    assert Deletion(nodes=[3]).fingerprint != Deletion(features=[3]).fingerprint


def test_a_deletion_cannot_be_changed_by_its_source():
    source = torch.tensor([[0, 7], [5, 9]])
    nodes = torch.tensor([1, 2])
    deletion = Deletion(edges=source, nodes=nodes)
    name = deletion.fingerprint
    source.zero_()
    nodes.zero_()
    assert deletion.fingerprint == name
    with pytest.raises(AttributeError):
        deletion.edges = source


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


def test_already_deleted(graph):
    earlier = Deletion(edges=[(0, 1)], nodes=[9])
    assert Deletion(edges=[(1, 2)], nodes=[4]).require_new(earlier) == Deletion(edges=[(1, 2)], nodes=[4])
    for again, named in (
        (Deletion(edges=[(0, 1), (1, 2)]), r"\(0, 1\)"),
        (Deletion(nodes=[9, 10]), "node 9"),
        (Deletion(edges=[(9, 10)]), r"\(9, 10\)"),
    ):
        with pytest.raises(DeletionError, match=f"already deleted.*{named};"):
            again.require_new(earlier)


@pytest.mark.parametrize("name", ["features", "labels"])
def test_attributes_of_nodes_that_are_not_there(graph, name):
    with pytest.raises(DeletionError, match=f"{name}= names nodes that are not in the graph: 48"):
        Deletion(**{name: [48]}).check(graph)


TYPED = Data(
    edge_index=torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]]), edge_type=torch.tensor([0, 0, 1, 1, 2]), num_nodes=6
)
PLAIN = Data(x=torch.ones(6, 3), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), num_nodes=6, y=torch.arange(6))


@pytest.mark.parametrize(
    ("data", "earlier", "request_", "counts"),
    [
        (PLAIN, {"edges": [(0, 1)]}, {"edges": [(0, 1), (2, 3)]}, {"edges": 1}),
        (PLAIN, {"nodes": [3]}, {"edges": [(0, 1), (2, 3)], "nodes": [3, 4]}, {"edges": 1, "nodes": 1}),
        (PLAIN, {"labels": [1], "nodes": [2]}, {"labels": [1, 2, 3]}, {"labels": 1}),
        (PLAIN, {"features": {1: [0], 2: [0, 1, 2]}}, {"features": {1: [0, 1], 2: [1], 3: [2]}}, {"features": 2}),
        (TYPED, {"relations": [0]}, {"relations": [0, 1]}, {"edges": 2, "relations": 1}),
        (TYPED, {"edges": [(2, 1, 3)]}, {"relations": [1]}, {"edges": 2, "relations": 1}),
        (TYPED, {"edges": [(0, 2, 4)]}, {"relations": [2], "edges": [(0, 0, 1)]}, {"edges": 1}),
        (PLAIN, {"edges": [(0, 1)], "nodes": [3]}, {"edges": [(0, 1)], "nodes": [3]}, {}),
    ],
)
def test_what_was_deleted_before_is_left_out_and_the_graph_is_the_same(data, earlier, request_, counts):
    before, asked = (Deletion(**kinds).check(data) for kinds in (earlier, request_))
    assert asked.already_deleted(before) or "relations" in request_
    rest = asked.not_deleted(before)
    assert rest.counts == counts
    assert not rest.already_deleted(before)
    left, whole = ((part | before).remaining(data).to_dict() for part in (rest, asked))
    assert all(torch.equal(left[name], whole[name]) for name in ("edge_index", "x", "y", "edge_type") if name in whole)
    assert not len(rest) or rest.check(data) == rest


def test_whole_graphs_that_were_deleted_before_are_left_out():
    data = collate([Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.zeros(1)) for _ in range(3)])
    before, asked = (Deletion(graphs=ids).check(data) for ids in ([0], [0, 2]))
    rest = asked.not_deleted(before)
    assert (rest.counts, rest.nodes.tolist()) == ({"graphs": 1}, [4, 5])
    assert not rest.already_deleted(before)


def test_a_hint_is_about_the_edges_that_are_missing():
    looped = Data(edge_index=torch.tensor([[0, 0, 1], [0, 1, 2]]), num_nodes=3)
    with pytest.raises(DeletionError, match=r"\(1, 1\); check the ids"):
        Deletion(edges=[(0, 0), (1, 1)]).check(looped)
    with pytest.raises(DeletionError, match=r"\(2, 1\); the graph is directed and holds the reverse"):
        Deletion(edges=[(0, 0), (2, 1)]).check(looped)


def test_what_went_before_in_two_ways_is_named_once():
    ring = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), num_nodes=4)
    earlier = Deletion(edges=[(0, 1)], nodes=[0]).check(ring)
    with pytest.raises(DeletionError, match=r"already deleted by an earlier request: \(0, 1\);"):
        Deletion(edges=[(0, 1)]).check(ring).require_new(earlier)


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
