"""The sorted edge table against the obvious loops."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnndelete.graph.edge_table import EdgeTable


@st.composite
def edge_lists(draw):
    """Directed edge lists with self-loops, parallel edges and isolated nodes."""
    nodes = draw(st.integers(1, 12))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    return nodes, draw(st.lists(pair, max_size=40))


def tensor(pairs, width=2):
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, width).t()


@given(edge_lists(), edge_lists())
def test_contains_and_positions(graph, asked):
    (nodes, pairs), (_, wanted) = graph, asked
    wanted = [(u % nodes, v % nodes) for u, v in wanted]
    table = EdgeTable(tensor(pairs), nodes)
    assert table.contains(tensor(wanted)).tolist() == [pair in pairs for pair in wanted]
    expected = [column for column, pair in enumerate(pairs) if pair in wanted]
    assert sorted(table.positions(tensor(wanted)).tolist()) == expected
    assert (~table.without(tensor(wanted))).nonzero().flatten().tolist() == expected
    single = list(dict.fromkeys(pairs))  # without parallel copies places are found another way
    left = EdgeTable(tensor(single), nodes).without(tensor(wanted)).tolist()
    assert left == [pair not in wanted for pair in single]
    assert table.num_edges == len(pairs)


@given(edge_lists(), st.lists(st.integers(0, 11), max_size=6))
def test_neighbors_and_degree(graph, asked):
    nodes, pairs = graph
    asked = [node % nodes for node in asked]
    table = EdgeTable(tensor(pairs), nodes)
    found = Counter(table.neighbors(torch.tensor(asked, dtype=torch.long)).tolist())
    assert found == Counter(v for node in asked for u, v in pairs if u == node)
    assert table.degree.tolist() == [sum(u == node for u, _ in pairs) for node in range(nodes)]


@given(edge_lists(), st.booleans())
def test_undirected_means_that_every_reverse_is_there(graph, both):
    nodes, pairs = graph
    if both:
        pairs = pairs + [(v, u) for u, v in pairs]
    assert EdgeTable(tensor(pairs), nodes).undirected == all((v, u) in pairs for u, v in pairs)


@given(edge_lists(), st.integers(1, 4), st.randoms())
def test_typed_edges_are_told_apart_by_their_type(graph, relations, random):
    nodes, pairs = graph
    types = [random.randrange(relations) for _ in pairs]
    triples = [(u, r, v) for (u, v), r in zip(pairs, types, strict=True)]
    table = EdgeTable(tensor(pairs), nodes, torch.tensor(types, dtype=torch.long))
    known = max(types, default=0)
    asked = [(u, r, v) for u, v in pairs for r in range(known + 1)]
    assert table.contains(tensor(asked, 3)).tolist() == [triple in triples for triple in asked]
    wanted = triples[::2]
    expected = [column for column, triple in enumerate(triples) if triple in wanted]
    assert sorted(table.positions(tensor(wanted, 3)).tolist()) == expected
    assert (~table.without(tensor(wanted, 3))).nonzero().flatten().tolist() == expected
    assert Counter(table.neighbors(torch.arange(nodes)).tolist()) == Counter(v for _, v in pairs)
    assert not table.undirected
