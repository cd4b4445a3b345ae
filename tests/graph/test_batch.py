"""Many graphs as one: numbering, parts that know their rows, deleted graphs, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

import gnndelete as gd
from gnndelete.errors import DeletionError, GraphError, SettingError
from gnndelete.graph.batch import GraphBatch, collate
from gnndelete.graph.fingerprint import fingerprint


def graphs(sizes=(3, 5, 4), seed=0):
    generator = torch.Generator().manual_seed(seed)
    found = []
    for index, size in enumerate(sizes):
        path = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
        edges = torch.cat([path, path.flip(0)], dim=1)
        found.append(
            Data(
                x=torch.randn(size, 2, generator=generator),
                edge_index=edges,
                edge_attr=torch.randn(edges.size(1), 1, generator=generator),
                y=torch.tensor([index % 2]),
                name=f"g{index}",
                dose=torch.tensor([float(index) + 1]),
            )
        )
    return found


def test_same_numbering_as_pyg_from_a_list_a_dataset_or_a_batch():
    listed = graphs()
    ours, theirs = collate(listed), Batch.from_data_list(listed)
    for name in ("x", "edge_index", "edge_attr", "y", "batch", "ptr"):
        assert torch.equal(ours[name], theirs[name])
    assert isinstance(collate(theirs), GraphBatch)
    assert fingerprint(collate(theirs)) == fingerprint(ours)
    assert ours.num_graphs == 3
    assert ours.sizes.tolist() == [3, 5, 4]
    for graph in listed:
        graph.num_nodes = graph.x.size(0)  # as OGB's graphs have it
    assert collate(listed).select([1]).num_nodes == 5
    one = listed[0]
    assert collate(one) is one


def test_ids_there_and_back():
    data = collate(graphs())
    ids = data.at(1, torch.tensor([[0, 1], [1, 2]]))
    assert ids.tolist() == [[3, 4], [4, 5]]
    graph, local = data.where(ids)
    assert graph.unique().tolist() == [1]
    assert local.tolist() == [[0, 1], [1, 2]]
    assert data.nodes_of([2, 0]).tolist() == [8, 9, 10, 11, 0, 1, 2]


def test_a_part_is_what_pyg_makes_of_the_same_graphs_and_knows_its_rows():
    listed = graphs()
    data = collate(listed)
    part, expected = data.select([2, 0]), Batch.from_data_list([listed[2], listed[0]])
    for name in ("x", "edge_index", "edge_attr", "y", "batch", "ptr", "dose"):
        assert torch.equal(part[name], expected[name]), name
    assert part.name == ["g2", "g0"]
    assert torch.equal(data.x[part.n_id], part.x)
    assert part.graph_id.tolist() == [2, 0]
    inner = part.select([1])
    assert inner.n_id.tolist() == [0, 1, 2]
    assert inner.graph_id.tolist() == [0]


def test_a_part_does_not_depend_on_the_order_of_edges():
    data = collate(graphs())
    mixed = copy.copy(data)
    order = torch.randperm(data.edge_index.size(1), generator=torch.Generator().manual_seed(1))
    mixed.edge_index, mixed.edge_attr = data.edge_index[:, order], data.edge_attr[order]
    a, b = data.select([1]), mixed.select([1])
    pairs = [
        dict(zip(map(tuple, p.edge_index.t().tolist()), p.edge_attr.view(-1).tolist(), strict=True)) for p in (a, b)
    ]
    assert pairs[0] == pairs[1]


def test_graphs_alone_go_through_any_loader_with_their_rows():
    data = collate(graphs())
    (batch,) = DataLoader(data.to_data_list()[1:], batch_size=2)
    assert torch.equal(data.x[batch.n_id], batch.x)
    assert data.get_example(2).n_id.tolist() == [8, 9, 10, 11]


def test_loader_takes_a_mask_and_shuffles_by_seed():
    data = collate(graphs((2,) * 10))
    mask = torch.arange(10) < 6

    def order(seed):
        batches = gd.datasets.graph_loader(data, 2, mask, shuffle=True, seed=seed)
        return [g for batch in batches for g in batch.graph_id.tolist()]

    assert sorted(order(1)) == list(range(6))
    assert order(1) == order(1) != order(2)


def test_sizes_that_agree_by_chance_confuse_nothing():
    """Three graphs with three nodes and three edges in all: y, x and edge_attr have the same length."""
    listed = [
        Data(x=torch.ones(1, 1), edge_index=torch.zeros(2, 1, dtype=torch.long), y=torch.tensor([1])) for _ in range(3)
    ]
    data = collate(listed)
    left = gd.Deletion(nodes=[0]).remaining(data)  # its only node: the graph is gone
    assert left.y.tolist() == [-1, 1, 1]
    assert left.edge_index.tolist() == [[1, 2], [1, 2]]
    assert data.select([2]).y.tolist() == [1]


def test_a_deleted_graph_keeps_its_place_and_nothing_else():
    data = collate(graphs(), {"train": [0, 1], "test": [2]})
    left = gd.Deletion(graphs=[1]).remaining(data)
    assert left.num_graphs == 3
    assert left.num_nodes == data.num_nodes
    assert torch.equal(left.ptr, data.ptr)
    assert not left.x[3:8].any()
    assert not left.alive[3:8].any()
    assert left.alive.sum() == 7
    assert left.y.tolist() == [0, -1, 0]
    assert left.train_mask.tolist() == [True, False, False]
    assert left.dose.tolist() == [1.0, 0.0, 3.0]
    assert left.name == ["g0", None, "g2"]
    assert not torch.isin(left.batch[left.edge_index], torch.tensor([1])).any()
    for kept in (0, 2):
        assert torch.equal(left.select([kept]).edge_index, data.select([kept]).edge_index)


def test_a_graph_without_its_last_node_is_deleted():
    data = collate(graphs())
    checked = gd.Deletion(nodes=[0, 1, 2]).check(data)
    assert checked == gd.Deletion(graphs=[0]).check(data)
    assert checked.counts == {"graphs": 1}
    assert gd.Deletion(nodes=[0, 1]).check(data).counts == {"nodes": 2}


def test_later_requests_may_take_the_rest_of_a_graph_and_not_what_is_gone():
    data = collate(graphs())
    first, second = gd.Deletion(nodes=[4]).check(data), gd.Deletion(graphs=[1]).check(data)
    assert second.require_new(first).counts == {"graphs": 1}
    assert (first | second).check(data).counts == {"graphs": 1}
    for again in (gd.Deletion(graphs=[1]), gd.Deletion(nodes=[4]), gd.Deletion(edges=[(3, 4)])):
        with pytest.raises(DeletionError, match="already deleted"):
            again.check(data).require_new(second)


def test_refusals():
    data = collate(graphs())
    with pytest.raises(DeletionError, match=r"not there: 3; ids go from 0 to 2"):
        gd.Deletion(graphs=[3]).check(data)
    with pytest.raises(DeletionError, match="the data is one graph"):
        gd.Deletion(graphs=[0]).check(graphs()[0])
    with pytest.raises(DeletionError, match="all 12 nodes"):
        gd.Deletion(graphs=[0, 1, 2]).check(data)
    with pytest.raises(SettingError, match="no graph 7"):
        data.select([7])
    with pytest.raises(SettingError, match="nodes 0 to 2"):
        data.at(0, [3])
    with pytest.raises(GraphError, match="empty"):
        collate([])
    with pytest.raises(GraphError, match="holds a 'int'"):
        collate([1])
    with pytest.raises(GraphError, match="one graph"):
        collate(graphs()[0], {"train": [0]})


def test_forget_sets_come_from_training_graphs():
    data = collate(graphs((4,) * 20), {"train": range(10), "valid": range(10, 15), "test": range(15, 20)})
    assert set(gd.datasets.forget_graphs(data, 5).tolist()) <= set(range(10))
    assert data.batch[gd.datasets.forget_nodes(data, 8)].max() < 10
    assert data.batch[gd.datasets.forget_edges(data, 12)].max() < 10
