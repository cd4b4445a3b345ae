"""Shards: every node in exactly one, none above its capacity, communities kept together."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnndelete.datasets.generated import community_graph
from gnndelete.methods.grapheraser.partition import (
    at_random,
    bekm,
    blpa,
    capacity,
    closest_with_room,
    metis,
)

KINDS = ["random", "blpa", "bekm", "metis"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def data():
    return community_graph(600, 6_000, 8, community=60, noise=0.5, seed=1)


def split(kind, data, shards, seed=0):
    nodes, edges = data.num_nodes, data.edge_index
    if kind == "random":
        return at_random(nodes, shards, seeded(seed))
    if kind == "blpa":
        return blpa(edges, nodes, shards, seeded(seed))
    if kind == "bekm":
        return bekm(data.x, shards, seeded(seed))
    if find_spec("pymetis") is None:
        pytest.skip("pymetis is not installed")
    return metis(edges, nodes, shards, seed)


def cut(shard, data):
    head, tail = data.edge_index
    return float((shard[head] != shard[tail]).float().mean())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shards", [1, 3, 10])
def test_shards_are_within_capacity_and_the_same_for_a_seed(kind, shards, data):
    shard = split(kind, data, shards)
    assert shard.shape == (600,)
    assert 0 <= int(shard.min()) <= int(shard.max()) < shards
    assert int(torch.bincount(shard, minlength=shards).max()) <= capacity(600, shards)
    assert torch.equal(shard, split(kind, data, shards))


@pytest.mark.parametrize("kind", ["blpa", "bekm", "metis"])
def test_communities_stay_together_better_than_at_random(kind, data):
    assert cut(split(kind, data, 10), data) < 0.7 * cut(split("random", data, 10), data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_star_cannot_burst_its_shard(kind):
    hub = torch.zeros(40, dtype=torch.long)
    star = torch.stack([hub, torch.arange(1, 41)])
    graph = type("Star", (), {"num_nodes": 41, "edge_index": star, "x": torch.zeros(41, 2)})
    assert int(torch.bincount(split(kind, graph, 4), minlength=4).max()) <= capacity(41, 4)


def test_self_loops_copies_and_directions_do_not_sway_the_votes(data):
    once = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    loops = torch.arange(600).repeat(2, 1)
    assert torch.equal(split("blpa", data, 5), blpa(torch.cat([once, once, loops], dim=1), 600, 5, seeded()))


@given(st.integers(1, 25), st.integers(1, 6), st.integers(0, 10_000))
def test_the_nearest_pairs_are_joined_first(rows, columns, seed):
    distance = torch.randint(0, 12, (rows, columns), generator=seeded(seed)).double()
    distance += torch.rand(rows, columns, generator=seeded(seed), dtype=torch.double) * 1e-3  # no ties
    room_for = capacity(rows, columns)
    slow, room = [-1] * rows, [room_for] * columns
    for pair in distance.flatten().argsort().tolist():  # the definition, pair by pair
        row, column = divmod(pair, columns)
        if slow[row] < 0 and room[column]:
            slow[row], room[column] = column, room[column] - 1
    assert closest_with_room(distance, room_for).tolist() == slow


def test_capacity_is_the_papers():
    assert capacity(17_716, 10) == 1852  # ceil(1771.6 + .005 (17716 - 1771.6))
    assert capacity(48, 48) >= 1
