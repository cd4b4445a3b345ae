"""Shortest paths of all pairs: against a search written out node by node, in batches, and as remembered."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gnndelete.errors import GraphError
from gnndelete.models.paths import Block, RecentPaths, shortest_paths


def all_paths(edges: list[tuple[int, int]], start: int, end: int, limit: int) -> list[list[int]]:
    """Every shortest walk from start to end, as lists of positions in ``edges``; none if it takes more than ``limit``."""
    walks: list[tuple[int, list[int]]] = [(start, [])]
    for _ in range(limit + 1):
        found = [walk for node, walk in walks if node == end]
        if found:
            return found
        walks = [(t, [*walk, i]) for node, walk in walks for i, (s, t) in enumerate(edges) if s == node]
    return []


@given(st.data())
def test_lengths_and_features_equal_a_search_by_hand(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 6))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))  # loops and parallel edges included
    edges = data.draw(st.lists(pair, max_size=9))
    limit = data.draw(st.integers(1, 4))
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    attr = torch.randn(len(edges), 2, generator=torch.Generator().manual_seed(len(edges)))
    (block,) = shortest_paths(edge_index, nodes, edge_attr=attr, max_distance=limit)
    assert block.features is not None
    for j, i in itertools.product(range(nodes), repeat=2):
        walks = all_paths(edges, j, i, limit)
        length = len(walks[0]) if walks else limit + 1
        assert block.distance[0, i, j] == length
        mean = torch.zeros(2)
        if walks and length:
            mean = torch.stack([attr[walk].mean(dim=0) for walk in walks]).mean(dim=0)
        torch.testing.assert_close(block.features[0, i, j], mean, rtol=1e-4, atol=1e-5)


def ring(size: int) -> Tensor:
    line = torch.arange(size)
    return torch.stack([torch.cat([line, line.roll(1)]), torch.cat([line.roll(1), line])])


def unpacked(blocks: list[Block], num_nodes: int, far: int) -> Tensor:
    """Distances of all pairs of a batch, ``far`` across graphs."""
    whole = torch.full((num_nodes + 1, num_nodes + 1), far)
    for block in blocks:
        for nodes, distance in zip(block.nodes, block.distance, strict=True):
            real = nodes < num_nodes
            whole[nodes[real][:, None], nodes[real]] = distance[real][:, real].long()
    return whole[:-1, :-1]


def test_a_batch_is_its_graphs_in_any_order() -> None:
    sizes, offsets = [3, 20, 1, 5, 9, 4], [0, 3, 23, 24, 29, 38]
    edges = torch.cat([ring(size) + start for size, start in zip(sizes, offsets, strict=True)], dim=1)
    graph = torch.repeat_interleave(torch.arange(6), torch.tensor(sizes))
    place = torch.randperm(42, generator=torch.Generator().manual_seed(3))  # a node's new id
    mixed = torch.empty_like(graph)
    mixed[place] = graph * 2  # numbers without a graph are no harm
    blocks = shortest_paths(place[edges], 42, mixed, max_distance=3)
    assert sorted(n for block in blocks for n in block.nodes.flatten()[block.slots].tolist()) == list(range(42))
    assert all(block.nodes.numel() < 4 * block.slots.numel() for block in blocks)
    assert len(blocks) > 1
    expected = unpacked(shortest_paths(edges, 42, max_distance=3), 42, 4)
    assert torch.equal(unpacked(blocks, 42, 4)[place][:, place], expected)


def test_edges_between_graphs_of_a_batch_are_refused() -> None:
    with pytest.raises(GraphError, match="two graphs of the batch"):
        shortest_paths(torch.tensor([[0], [1]]), 2, torch.tensor([0, 1]))


def test_no_nodes_and_no_edges() -> None:
    assert shortest_paths(torch.empty(2, 0, dtype=torch.long), 0) == []
    (block,) = shortest_paths(torch.empty(2, 0, dtype=torch.long), 2, edge_attr=torch.empty(0, 3), max_distance=2)
    assert block.distance.tolist() == [[[0, 3], [3, 0]]]
    assert block.features is not None
    assert block.features.shape == (1, 2, 2, 3)


class Counting:
    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> list[Block]:
        self.runs += 1
        return []


def test_paths_are_remembered_until_a_tensor_changes() -> None:
    recent, compute = RecentPaths(), Counting()
    a, b = ring(4), ring(5)
    for edges in (a, b, a, b):
        recent.get((edges, None), (4,), compute)
    assert compute.runs == 2
    recent.get((a.clone(), None), (4,), compute)  # equal, but another tensor, which is gone afterwards
    recent.get((b, None), (4,), compute)
    assert compute.runs == 3
    b[0, 0] = 2
    recent.get((b, None), (4,), compute)
    assert compute.runs == 4
    recent.get((b, None), (5,), compute)
    assert compute.runs == 5
    with torch.inference_mode():
        c = ring(3)
        recent.get((c, None), (3,), compute)
        recent.get((c, None), (3,), compute)  # its changes would not show
    assert compute.runs == 7


def test_copies_and_pickles_remember_nothing() -> None:
    recent, compute = RecentPaths(), Counting()
    edges = ring(4)
    recent.get((edges,), (4,), compute)
    for copied in (copy.deepcopy(recent), pickle.loads(pickle.dumps(recent))):
        copied.get((edges,), (4,), compute)
    assert compute.runs == 3
