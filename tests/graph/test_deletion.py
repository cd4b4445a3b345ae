"""Deletions as sets, and requests after earlier ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gnndelete import Deletion
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


def test_what_went_before_in_two_ways_is_named_once():
    ring = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), num_nodes=4)
    earlier = Deletion(edges=[(0, 1)], nodes=[0]).check(ring)
    with pytest.raises(DeletionError, match=r"already deleted by an earlier request: \(0, 1\);"):
        Deletion(edges=[(0, 1)]).check(ring).require_new(earlier)
