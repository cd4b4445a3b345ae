"""Negatives are exactly the pairs that are not edges: never a true edge, never a loop, uniform, fixed by the seed."""

from __future__ import annotations

import time
from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.errors import GraphError, SettingError

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]),
]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Tensor, bool]:
    """(nodes, edge_index, undirected), from empty to complete, with loops and parallel copies."""
    nodes = draw(st.integers(2, 12))
    node = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=3 * nodes * nodes))
    edges = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()
    undirected = draw(st.booleans())
    return nodes, torch.cat([edges, edges.flip(0)], dim=1) if undirected else edges, undirected


def free(nodes: int, edges: Tensor, undirected: bool) -> set[tuple[int, int]]:
    every = combinations(range(nodes), 2) if undirected else permutations(range(nodes), 2)
    return set(every) - set(zip(*edges.tolist(), strict=True))


@given(graphs(), st.integers(0, 40), st.integers(0, 1000))
def test_only_free_pairs(graph: tuple[int, Tensor, bool], count: int, seed: int) -> None:
    nodes, edges, undirected = graph
    sampler = NegativeSampler(edges, nodes, undirected=undirected)
    expected = free(nodes, edges, undirected)
    assert sampler.available == len(expected)
    if count and not expected:
        with pytest.raises(GraphError, match="has 0 pairs that are not edges"):
            sampler.sample(count)
        return
    pairs = sampler.sample(count, torch.Generator().manual_seed(seed))
    assert pairs.shape == (2, count)
    assert set(zip(*pairs.tolist(), strict=True)) <= expected
    assert torch.equal(pairs, sampler.sample(count, torch.Generator().manual_seed(seed)))


@given(graphs(), st.integers(0, 40), st.integers(0, 1000))
def test_distinct_pairs_do_not_repeat(graph: tuple[int, Tensor, bool], count: int, seed: int) -> None:
    nodes, edges, undirected = graph
    sampler = NegativeSampler(edges, nodes, undirected=undirected)
    expected = free(nodes, edges, undirected)
    if count > len(expected):
        with pytest.raises(GraphError, match="distinct"):
            sampler.sample(count, distinct=True)
        count = len(expected)
    pairs = sampler.sample(count, torch.Generator().manual_seed(seed), distinct=True)
    found = set(zip(*pairs.tolist(), strict=True))
    assert len(found) == count
    assert found <= expected


@given(graphs())
@settings(max_examples=30)
def test_direction_is_recognised(graph: tuple[int, Tensor, bool]) -> None:
    nodes, edges, undirected = graph
    if undirected:
        assert NegativeSampler(edges, nodes).undirected
        one_way = edges[:, edges[0] <= edges[1]]
        assert NegativeSampler(one_way, nodes, undirected=True).available == NegativeSampler(edges, nodes).available


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("distinct", [False, True])
def test_uniform(device: str, distinct: bool) -> None:
    """Every free pair is drawn equally often (chi-square far below the 0.1% bound of 44 free pairs, 84)."""
    nodes, ring = 11, torch.arange(11)
    edges = torch.stack([ring, (ring + 1) % nodes]).to(device)
    sampler = NegativeSampler(edges, nodes, undirected=True)
    generator = torch.Generator(device=device).manual_seed(0)
    count = 4 if distinct else 4000
    drawn = torch.cat([sampler.sample(count, generator, distinct=distinct) for _ in range(8000 // count)], dim=1)
    times = (drawn[0] * nodes + drawn[1]).bincount()
    times = times[times > 0].double()
    assert times.numel() == sampler.available == 44
    assert float(((times - times.mean()) ** 2 / times.mean()).sum()) < 84


@pytest.mark.parametrize("device", DEVICES)
def test_cpu_generator_serves_any_device(device: str) -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    on_cpu = NegativeSampler(edges, 50).sample(20, torch.Generator().manual_seed(3), distinct=True)
    there = NegativeSampler(edges.to(device), 50).sample(20, torch.Generator().manual_seed(3), distinct=True)
    assert there.device.type == device
    assert torch.equal(on_cpu, there.cpu())


def test_large_graph_is_quick() -> None:
    """10,000 negatives beside 2.4 million edges in milliseconds (the bound leaves room for a busy machine)."""
    nodes = 235_868
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 2_400_000), generator=generator)
    sampler = NegativeSampler(edges, nodes, undirected=False)
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        sampler.sample(10_000, generator)
        best = min(best, time.perf_counter() - started)
    assert best < 0.05


def test_negative_count_is_refused() -> None:
    with pytest.raises(SettingError, match="got -1"):
        NegativeSampler(torch.empty(2, 0, dtype=torch.long), 3).sample(-1)
