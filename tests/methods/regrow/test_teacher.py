"""Guides: which rows are followed, on which graphs and batches, and when they fall silent."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.errors import ModelError
from gnndelete.graph.batch import collate
from gnndelete.methods.base import Context
from gnndelete.methods.regrow.teacher import (
    Course,
    FollowedRows,
    Guide,
    Walks,
    feature_directions,
    graph_guide,
    old_answers,
    rarity,
    touched_nodes,
)
from gnndelete.nn.forward import call, evaluating

DELETION = gd.Deletion(edges=[(3, 4)], nodes=[9])


def context_of(model, data, deletion=DELETION):
    data = collate(data)
    return Context(Session(model, data, call)).for_deletion(deletion.check(data))


def test_rows_that_a_deleted_element_touches_are_masked(graph, gcn):
    context = context_of(gcn, graph)
    (part,) = old_answers(context, decoys=0.0, rank=None, hops=0, seed=0).parts
    ends = graph.edge_index[:, (graph.edge_index == 9).any(dim=0)].unique().tolist()
    assert (~part.kept).nonzero().flatten().tolist() == sorted({3, 4, *ends})
    with evaluating(gcn):
        assert torch.equal(part.targets, gcn(context.remaining.x, context.remaining.edge_index))
    (decoyed,) = old_answers(context, decoys=0.5, rank=None, hops=0, seed=0).parts
    assert not (decoyed.kept & ~part.kept).any()
    assert decoyed.kept.sum() < part.kept.sum()
    (wider,) = old_answers(context, decoys=0.0, rank=None, hops=1, seed=0).parts
    assert wider.kept.sum() < part.kept.sum()


def test_the_rank_of_the_rows(graph, gcn):
    (part,) = old_answers(context_of(gcn, graph), decoys=0.0, rank=2, hops=0, seed=0).parts
    centred = part.targets - part.targets[part.kept].mean(dim=0)
    assert torch.linalg.matrix_rank(centred, atol=1e-4) == 2


def test_nodes_that_lose_features_or_labels_are_touched(graph, gcn):
    deletion = gd.Deletion(features=[5], labels=[7])
    context = context_of(gcn, graph, deletion)
    assert touched_nodes(context.deletion, context.data, context.session).nonzero().flatten().tolist() == [5, 7]


def test_graphs_that_lose_something_are_masked():
    edge = torch.tensor([[0, 1], [1, 0]])
    graphs = [Data(x=torch.randn(2, 4), edge_index=edge, y=torch.tensor([k % 2])) for k in range(6)]
    model = gd.models.build("gcn", 4, hidden=4, out=2, num_layers=2, pool="mean")
    context = context_of(model, graphs, gd.Deletion(graphs=[1], edges=[(6, 7)]))
    (part,) = old_answers(context, decoys=0.0, rank=None, hops=0, seed=0).parts
    assert part.nodes is None
    assert part.kept.tolist() == [True, False, True, False, True, True]


def test_rows_of_a_batch_are_found_by_their_ids():
    targets = torch.arange(10.0).view(5, 2)
    guide = Guide((FollowedRows(None, targets, torch.tensor([True, True, True, True, False]), range(5)),))
    batch = Data(edge_index=torch.empty(2, 0, dtype=torch.long), n_id=torch.tensor([4, 2]), num_nodes=2)
    off = torch.full((2, 2), 100.0)
    off[1] = targets[2]
    assert float(guide.distance(off, batch)) == 0, "row 4 is masked, and row 2 is there"
    with pytest.raises(ModelError, match=r"\[2, 2\] rows where \[5, 2\] were expected.*n_id"):
        guide.distance(off, Data(num_nodes=2))


def test_a_guide_falls_silent():
    guide = Guide((FollowedRows(None, torch.randn(5, 2), torch.ones(5, dtype=torch.bool), range(5)),))
    course = Course(10, 4.0, guide, weight=2.0)
    model, output = nn.Identity(), torch.zeros(5, 2)
    told = []
    for epoch in range(10):
        course.schedule(epoch)
        told.append(float(course.extra_loss(model, output, Data(num_nodes=5))))
    assert told[0] > told[1] > told[5] > 0
    assert told[6:] == [0.0] * 4
    untold = Course(10, 4.0, guide, weight=2.0)  # a training that asks for no schedule
    assert [float(untold.extra_loss(model, output)) for _ in range(10)] == pytest.approx(told)


def two_parts(nodes=40, seed=0):
    """A graph of two parts with no edge between them, and features that name the part."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.cat(
        [torch.randint(nodes // 2, (2, 6 * nodes), generator=generator) + k * nodes // 2 for k in (0, 1)], dim=1
    )
    pairs = torch.unique(pairs[:, pairs[0] < pairs[1]], dim=1)
    part = (torch.arange(nodes) >= nodes // 2).float()
    x = torch.stack([part, 1 - part, torch.rand(nodes, generator=generator)], dim=1)
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=nodes)


def inside_and_across(rows):
    half = len(rows) // 2
    similar = rows @ rows.t()
    return float(similar[:half, :half].mean()), float(similar[:half, half:].mean())


def test_nodes_that_walks_join_point_the_same_way():
    graph = two_parts()
    graph.num_nodes += 1  # a node without edges
    walks = Walks(graph, 8, seed=0)
    rows = walks.rows(4)
    assert rows.shape == (41, 4)
    assert rows[:-1].norm(dim=1) == pytest.approx([1.0] * 40, abs=1e-4)
    assert not rows[-1].any()
    inside, across = inside_and_across(rows[:-1])
    assert inside > across + 0.3
    assert torch.equal(Walks(graph, 8, seed=0).rows(4), rows)
    assert Walks(graph, 64, seed=0).rows(64).shape == (41, 64), "more columns than nodes are zeros"
    bare = Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=3)
    assert not Walks(bare, 2, seed=0).rows(2).any()


def test_features_are_averaged_over_the_graph():
    graph = two_parts()
    rows = feature_directions(graph, 2, seed=0)
    inside, across = inside_and_across(rows)
    assert inside > across
    assert feature_directions(graph, 5, seed=0).shape == (40, 5), "fewer features than columns"
    assert feature_directions(Data(edge_index=graph.edge_index, num_nodes=40), 2, seed=0) is None
    dense = rarity(torch.tensor([[1.0, 10.0], [2.0, 30.0], [3.0, 20.0]]))
    assert dense.tolist() == pytest.approx([1.0, 0.1])


def test_the_guide_with_the_better_validation_score_is_followed():
    split = gd.datasets.split_links(two_parts(120), seed=0, val=0.2)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    edges = split.data.edge_index
    deletion = gd.Deletion(edges=edges[:, :1])
    torch.manual_seed(0)
    model = gd.models.GCN(3, hidden=8, out=4)
    context = replace(context_of(model, split.data, deletion), task=task)
    found = graph_guide(model, context, seed=0)
    (part,) = found.guide.parts
    assert part.targets.shape == (120, 4)
    assert found.score == pytest.approx(task.validate(model, part.targets, context.remaining))
    same = split.data.__copy__()
    same.x = torch.ones(120, 3)
    assert graph_guide(model, replace(context_of(model, same, deletion), task=task), seed=0).source == "walks"


def test_vectors_of_nodes_start_from_walks():
    split = gd.datasets.split_links(two_parts(60), seed=0, val=0.2)
    data = Data(edge_index=split.data.edge_index, num_nodes=60)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    model = gd.models.build("embeddinggcn", num_nodes=60, embedding=8, hidden=8, out=4)
    context = replace(context_of(model, data, gd.Deletion(edges=data.edge_index[:, :1])), task=task)
    graph_guide(model, context, seed=0)
    rows = model.embedding.weight.detach()
    assert float(rows.std()) == pytest.approx(0.1, rel=0.01)
    inside, across = inside_and_across(rows)
    assert inside > across
