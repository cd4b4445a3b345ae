"""The sorted edge table against the obvious loops; rings and S^l against PyG's k_hop_subgraph."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import coalesce, is_undirected, k_hop_subgraph, to_undirected

from gnndelete.errors import SettingError
from gnndelete.graph.edge_table import EdgeTable, Neighborhood


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
    assert Counter(table.neighbors(torch.arange(nodes)).tolist()) == Counter(v for _, v in pairs)
    assert not table.undirected


# Rings


@st.composite
def graphs(draw):
    """A graph of any density, its seeds and a number of hops; small rings and rings that fill the graph both occur."""
    nodes = draw(st.integers(2, 60))
    count = draw(st.integers(0, 90))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    edges = torch.randint(nodes, (2, count), generator=generator)
    if draw(st.booleans()):
        edges = to_undirected(edges, num_nodes=nodes)
    seeds = torch.randint(nodes, (draw(st.integers(1, 4)),), generator=generator)
    return nodes, edges, seeds, draw(st.integers(0, 4))


@given(graphs())
def test_undirected_hops_equal_k_hop_subgraph(case):
    nodes, edges, seeds, hops = case
    near = Neighborhood(EdgeTable(edges, nodes), edges)
    both = to_undirected(edges, num_nodes=nodes)
    assert_rings(near, seeds, hops, lambda k: k_hop_subgraph(seeds, k, both, num_nodes=nodes)[0])


@given(graphs())
def test_directed_hops_equal_the_authors_computation(case):
    nodes, edges, seeds, hops = case
    near = Neighborhood(EdgeTable(edges, nodes), edges, "directed")
    listed = edges[:, edges[0] < edges[1]] if is_undirected(coalesce(edges), num_nodes=nodes) else edges
    expected = lambda k: k_hop_subgraph(seeds, k, listed, num_nodes=nodes, flow="source_to_target")[0]  # noqa: E731
    assert_rings(near, seeds, hops, expected)


def assert_rings(near, seeds, hops, expected):
    rings = near.rings(seeds, hops)
    assert len(rings) == hops + 1
    assert rings[0].tolist() == sorted(set(seeds.tolist()))
    for k in range(hops + 1):
        assert near.within(seeds, k).tolist() == expected(k).sort().values.tolist()
        assert rings[k].tolist() == sorted(set(expected(k).tolist()) - set(expected(k - 1).tolist() if k else []))


def test_unknown_hops_are_refused():
    edges = torch.tensor([[0], [1]])
    with pytest.raises(SettingError, match=r"'hops' must be 'undirected' or 'directed' .got 'both'"):
        Neighborhood(EdgeTable(edges, 2), edges, "both")
