"""Rings and S^l against PyG's k_hop_subgraph."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import coalesce, is_undirected, k_hop_subgraph, to_undirected

from gnndelete.errors import SettingError
from gnndelete.graph import neighborhood
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.neighborhood import Neighborhood


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
    near = both_kinds(edges, nodes)
    both = to_undirected(edges, num_nodes=nodes)
    assert_rings(near, seeds, hops, lambda k: k_hop_subgraph(seeds, k, both, num_nodes=nodes)[0])


@given(graphs())
def test_directed_hops_equal_the_authors_computation(case):
    nodes, edges, seeds, hops = case
    near = both_kinds(edges, nodes, "directed")
    listed = edges[:, edges[0] < edges[1]] if is_undirected(coalesce(edges), num_nodes=nodes) else edges
    expected = lambda k: k_hop_subgraph(seeds, k, listed, num_nodes=nodes, flow="source_to_target")[0]  # noqa: E731
    assert_rings(near, seeds, hops, expected)


def both_kinds(edges, nodes, hops="undirected"):
    """The neighbourhood as of few edges, which are looked at all at once, and as of many, which are walked."""
    found = []
    for few in (neighborhood.FEW_EDGES, -1):
        with mock.patch.object(neighborhood, "FEW_EDGES", few):
            found.append(Neighborhood(EdgeTable(edges, nodes), edges, hops))
    return found


def assert_rings(kinds, seeds, hops, expected):
    for near in kinds:
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
