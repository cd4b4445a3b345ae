"""Negatives are exactly the pairs that are not edges: never a true edge, never a loop, uniform, fixed by the seed.

Typed links are split without leaks; their negatives are false and keep their relation.
"""

from __future__ import annotations

import time
from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets import NegativeSampler, TripleCorrupter, forget_edges, split_links, training_edges
from gnndelete.datasets.negatives import BipartiteSampler, pair_sampler
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


@given(graphs(), st.integers(0, 1000))
def test_pairs_beside_edges_keep_the_first_end(graph: tuple[int, Tensor, bool], seed: int) -> None:
    nodes, edges, undirected = graph
    pairs = NegativeSampler(edges, nodes, undirected=undirected)
    if not pairs.available:
        return
    drawn = pairs.beside(edges, torch.Generator().manual_seed(seed))
    expected = free(nodes, edges, False)
    open_ends = {first for first, _ in expected}
    assert set(zip(*drawn.tolist(), strict=True)) <= expected
    assert [int(a) for a, b in zip(*drawn, strict=True)] == [
        int(a) if int(a) in open_ends else int(b) for a, b in zip(edges[0], drawn[0], strict=True)
    ]


def test_pairs_beside_edges_are_uniform() -> None:
    star = torch.tensor([[0, 0], [1, 2]])
    drawn = NegativeSampler(star, 7).beside(star[:, :1].expand(2, 6000), torch.Generator().manual_seed(0))
    counts = drawn[1].bincount(minlength=7).tolist()
    assert counts[:3] == [0, 0, 0]
    assert all(1380 < count < 1620 for count in counts[3:])


@pytest.mark.parametrize("towards", [0, 1, None])
def test_pairs_of_a_bipartite_graph_join_its_parts(towards: int | None) -> None:
    users = torch.randint(0, 20, (150,), generator=torch.Generator().manual_seed(0))
    items = torch.randint(20, 50, (150,), generator=torch.Generator().manual_seed(1))
    edges = torch.stack([users, items] if towards == 1 else [items, users])
    known = edges if towards is not None else torch.cat([edges, edges.flip(0)], dim=1)
    sampler = pair_sampler(known, 50)
    assert isinstance(sampler, BipartiteSampler)
    generator = torch.Generator().manual_seed(2)
    drawn, beside = sampler.sample(300, generator, distinct=True), sampler.beside(edges, generator)
    first = 1 if towards == 0 else 0
    true = set(zip(*torch.stack([users, items]).tolist(), strict=True))
    for pairs in (drawn, beside):
        assert int((pairs[first] < 20).sum()) == int((pairs[1 - first] >= 20).sum()) == pairs.size(1)
        assert not true & set(zip(*pairs[[first, 1 - first]].tolist(), strict=True))
    assert len(set(zip(*drawn.tolist(), strict=True))) == 300
    assert torch.equal(beside[0], items if towards == 0 else users)
    assert sampler.available == users.unique().numel() * items.unique().numel() - len(true)


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


@st.composite
def typed_graphs(draw):
    nodes, relations = draw(st.integers(12, 30)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    count = draw(st.integers(20, 60))
    return Data(
        edge_index=torch.randint(nodes, (2, count), generator=generator),
        edge_type=torch.randint(relations, (count,), generator=generator),
        edge_attr=torch.arange(count).float(),
        num_nodes=nodes,
    )


def triples(data: Data) -> list[tuple[int, ...]]:
    return list(zip(data.edge_index[0].tolist(), data.edge_type.tolist(), data.edge_index[1].tolist(), strict=True))


def columns(edges: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(column) for column in edges.t().tolist()]


@given(typed_graphs(), st.integers(0, 50))
def test_typed_links_are_split_without_leaks(data, seed):
    split = split_links(data, seed=seed, val=0.2, test=0.2)
    kept, held = set(triples(split.data)), [*columns(split.validation), *columns(split.test)]
    assert not kept & set(held)
    assert len(held) == len(set(held))
    assert kept | set(held) == set(triples(data))
    assert split.data.edge_attr.size(0) == split.data.edge_type.size(0) == split.data.num_edges
    false = [*columns(split.validation_negatives), *columns(split.test_negatives)]
    assert len(false) == len(held)
    assert not set(false) & set(triples(data))
    assert [t[1] for t in false] == [t[1] for t in held]
    again = split_links(data, seed=seed, val=0.2, test=0.2)
    assert torch.equal(split.test, again.test)
    assert torch.equal(split.test_negatives, again.test_negatives)


def test_the_split_a_graph_came_with_is_taken():
    data = Data(
        edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), edge_type=torch.tensor([0, 1, 0, 1]), num_nodes=9
    )
    data.train_mask = torch.tensor([True, True, False, False])
    data.val_mask = torch.tensor([False, False, True, False])
    data.test_mask = torch.tensor([False, False, False, True])
    split = split_links(data, given=True)
    assert columns(split.validation) == [(2, 0, 3)]
    assert columns(split.test) == [(3, 1, 4)]
    assert triples(split.data) == [(0, 0, 1), (1, 1, 2)]
    assert "val_mask" not in split.data


@pytest.mark.parametrize("end", [0, 1])
def test_only_the_asked_end_changes(end):
    edges = torch.tensor([[0, 1, 2], [5, 6, 7]])
    true = torch.tensor([[0, 1, 2], [0, 0, 0], [5, 6, 7]])
    false = TripleCorrupter(edges, torch.zeros(3, dtype=torch.long), 8).corrupt(
        true, torch.Generator().manual_seed(1), end
    )
    same = 2 if end == 0 else 0
    assert torch.equal(false[same], true[same])
    assert not torch.equal(false[2 - same], true[2 - same])


def test_a_relation_that_everyone_has_is_refused():
    everyone = torch.arange(3)
    edges = torch.stack([everyone.repeat_interleave(3), everyone.repeat(3)])
    corrupter = TripleCorrupter(edges, torch.zeros(9, dtype=torch.long), 3)
    with pytest.raises(GraphError, match="every entity"):
        corrupter.corrupt(torch.tensor([[0], [0], [1]]))


def test_forget_sets_of_one_relation():
    generator = torch.Generator().manual_seed(0)
    data = Data(edge_index=torch.randint(20, (2, 80), generator=generator), num_nodes=20)
    data.edge_type = torch.arange(80) % 3
    chosen = forget_edges(data, 5, relation=1, seed=2)
    assert chosen.shape == (3, 5)
    assert set(chosen[1].tolist()) == {1}
    assert set(columns(chosen)) <= set(triples(data))
    assert training_edges(data).size(0) == 3
    with pytest.raises(SettingError, match="relation 9"):
        forget_edges(data, 5, relation=9)
    with pytest.raises(SettingError, match="no 'edge_type'"):
        forget_edges(Data(edge_index=data.edge_index, num_nodes=20), 5, relation=1)
