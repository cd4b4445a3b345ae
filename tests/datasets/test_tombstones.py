"""What was deleted is found again in other graphs by its names, and left out."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from gnndelete.datasets import IdMap, NamedGraph
from gnndelete.datasets.tombstones import Names, Tombstones, tombstone
from gnndelete.errors import GraphError
from gnndelete.graph.batch import collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.validation import edge_table

KEY = b"k"


def people(names: list[str], edges: list[tuple[int, int]], both: bool = True, **more) -> NamedGraph:
    pairs = torch.tensor(edges).t()
    pairs = torch.cat([pairs, pairs.flip(0)], dim=1) if both else pairs
    return NamedGraph(Data(edge_index=pairs, num_nodes=len(names), **more), IdMap(names))


def stones_of(graph: NamedGraph, deletion: Deletion, tenant: str = "shop") -> Tombstones:
    data = collate(graph.data)
    table = edge_table(data)
    texts = Names(graph, data, table).texts(deletion.check(data, table))
    return Tombstones(KEY, tenant, frozenset(tombstone(KEY, tenant, *text) for text in texts))


def test_deleted_elements_are_found_under_other_row_numbers():
    x = torch.ones(4, 2)
    before = people(["ann", "bob", "cy", "di"], [(0, 1), (1, 2), (2, 3)], x=x, y=torch.arange(4))
    stones = stones_of(before, Deletion(nodes=[0], edges=[(1, 2)], features=[(3, 1)], labels=[2]))
    after = people(
        ["di", "eve", "cy", "bob", "ann"], [(4, 3), (3, 2), (2, 0), (0, 1)], x=torch.ones(5, 2), y=torch.arange(5)
    )
    left, deletion = stones.strip(after)
    assert deletion.counts == {"edges": 1, "nodes": 1, "features": 1, "labels": 1}
    assert left.ids.names == ("di", "eve", "cy", "bob", "deleted:4")
    kept = {tuple(sorted(pair)) for pair in left.data.edge_index.t().tolist()}
    assert kept == {(0, 2), (0, 1)}
    assert left.data.x[0].tolist() == [1, 0]
    assert after.data.edge_index.size(1) == 8


def test_a_direction_is_only_ignored_where_it_means_nothing():
    one_way = people(["ann", "bob", "cy"], [(0, 1), (1, 2)], both=False)
    stones = stones_of(one_way, Deletion(edges=[(0, 1)]))
    other_way = people(["bob", "ann", "cy"], [(0, 1), (1, 2)], both=False)
    assert stones.find(other_way).counts == {}
    assert stones.find(people(["bob", "ann", "cy"], [(0, 1), (1, 2)])).counts == {"edges": 1}
    undirected = stones_of(people(["ann", "bob", "cy"], [(0, 1), (1, 2)]), Deletion(edges=[(1, 0)]))
    assert undirected.find(other_way).counts == {"edges": 1}


def test_typed_graphs_are_stripped_by_type_and_name():
    data = HeteroData()
    data["user"].x, data["item"].x = torch.ones(3, 2), torch.ones(2, 2)
    data["user", "bought", "item"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    data["user", "saw", "item"].edge_index = torch.tensor([[0, 1], [1, 1]])
    graph = NamedGraph(data, IdMap(["1", "2", "3", "1", "2"], {"user": 3, "item": 2}, joined=False))
    deletion = Deletion(nodes={"user": [2]}, edges={("user", "saw", "item"): [(0, 1)]})
    stones = stones_of(graph, deletion)
    left, found = stones.strip(graph)
    assert found.counts == {"edges": 1, "nodes": 1}
    assert isinstance(left.data, HeteroData)
    assert left.data["user", "bought", "item"].edge_index.tolist() == [[0, 1], [0, 1]]
    assert left.data["user", "saw", "item"].edge_index.tolist() == [[1], [1]]


def test_nothing_is_found_by_another_key_or_tenant():
    graph = people(["ann", "bob", "cy"], [(0, 1), (1, 2)])
    stones = stones_of(graph, Deletion(nodes=[0]))
    assert stones.find(graph).counts == {"nodes": 1}
    assert Tombstones(b"other", "shop", stones.hashes).strip(graph)[0] is graph
    assert Tombstones(KEY, "bakery", stones.hashes).find(graph).counts == {}


def test_a_file_keeps_them_for_its_owner(tmp_path):
    stones = stones_of(people(["ann", "bob", "cy"], [(0, 1), (1, 2)]), Deletion(nodes=[0]))
    file = tmp_path / "stones.json"
    stones.save(file)
    assert Tombstones.load(file) == stones
    assert file.stat().st_mode & 0o077 == 0
    assert "ann" not in file.read_text()
    file.write_text("{}")
    with pytest.raises(GraphError, match="holds no tombstones"):
        Tombstones.load(file)
    with pytest.raises(GraphError, match="there is no file"):
        Tombstones.load(tmp_path / "nowhere")
