"""Splits on disk: a round trip, and every way in which they no longer fit."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from gnndelete.datasets import (
    communities,
    forget_edges,
    load,
    load_split,
    save_split,
    split_graphs,
    split_links,
    split_nodes,
)
from gnndelete.errors import GraphError


def test_links_round_trip(tmp_path):
    data = load("digits")
    split = split_links(data, seed=4)
    save_split(split, data, tmp_path / "links", seed=4, val=0.05)
    again = load_split(tmp_path / "links", data, seed=4, val=0.05)
    for name in ("validation", "test", "validation_negatives", "test_negatives"):
        assert torch.equal(getattr(again, name), getattr(split, name))
    assert torch.equal(again.data.edge_index, split.data.edge_index)


def test_typed_links_nodes_and_graphs_round_trip(tmp_path):
    generator = torch.Generator().manual_seed(0)
    typed = Data(edge_index=torch.randint(30, (2, 90), generator=generator), num_nodes=30)
    typed.edge_type = torch.arange(90) % 3
    split = split_links(typed, seed=1)
    save_split(split, typed, tmp_path / "typed")
    again = load_split(tmp_path / "typed", typed)
    assert torch.equal(again.data.edge_index, split.data.edge_index)
    assert torch.equal(again.test, split.test)
    data = load("digits")
    masked = split_nodes(data, seed=2)
    save_split(masked, data, tmp_path / "nodes", seed=2)
    assert torch.equal(load_split(tmp_path / "nodes", data, seed=2).test_mask, masked.test_mask)
    graphs = [data, typed]
    save_split(split_graphs(graphs, seed=0, train=0.5, val=0.0), graphs, tmp_path / "graphs")
    assert load_split(tmp_path / "graphs", graphs).train.numel() == 1


def test_another_graph_other_parameters_and_damage_are_refused(tmp_path):
    data = load("digits")
    save_split(split_links(data, seed=4), data, tmp_path / "links", seed=4)
    changed = data.clone()
    changed.edge_index = changed.edge_index[:, 2:]
    with pytest.raises(GraphError, match="another graph"):
        load_split(tmp_path / "links", changed, seed=4)
    with pytest.raises(GraphError, match="seed=4, not 5"):
        load_split(tmp_path / "links", data, seed=5)
    content = (tmp_path / "links").read_bytes()
    (tmp_path / "links").write_bytes(content[: len(content) // 2])
    with pytest.raises(GraphError, match="no readable split"):
        load_split(tmp_path / "links", data, seed=4)
    with pytest.raises(GraphError, match="no split"):
        save_split(data, data, tmp_path / "none")


def test_hubs_and_communities():
    data = load("digits")
    degree = torch.bincount(data.edge_index[0])
    hubs = forget_edges(data, 50, "hubs", seed=1)
    usual = forget_edges(data, 50, "random", seed=1)
    assert degree[hubs].sum() > 1.5 * degree[usual].sum()
    label = communities(data, seed=1)
    assert torch.equal(label, communities(data, seed=1))
    assert 1 < int(label.max()) + 1 < data.num_nodes / 4
    together = forget_edges(data, 50, "community", seed=1)
    assert torch.equal(label[together[0]], label[together[1]])
    assert label[together[0]].unique().numel() < label[usual[0]].unique().numel()
