"""Guides: which rows are followed, on which graphs and batches, and when they fall silent."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.errors import ModelError
from gnndelete.graph.batch import collate
from gnndelete.methods.base import Context
from gnndelete.methods.regrow.teacher import Course, FollowedRows, Guide, Shape, old_answers, shape_of, touched_nodes
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


def test_the_shape_of_a_graph_is_its_leading_eigenvectors(graph):
    shape = Shape(graph, 4, seed=0)
    count = graph.num_nodes
    dense = torch.eye(count)
    for source, target in graph.edge_index.t().tolist():
        dense[source, target] += 1
        dense[target, source] += 1
    scale = dense.sum(dim=0).rsqrt()
    values = torch.linalg.eigvalsh(scale[:, None] * dense * scale).flip(0)
    assert torch.allclose(shape.values[:2], values[:2], atol=0.02)
    assert shape.vectors.square().mean(dim=0) == pytest.approx([1.0] * 4, rel=1e-3)


def test_vectors_of_nodes_start_from_the_shape_and_rows_of_other_models_follow_it(graph):
    model = gd.models.build("embeddinggcn", num_nodes=graph.num_nodes, embedding=8, hidden=8, out=4)
    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    before = model.embedding.weight.detach().clone()
    assert shape_of(model, context_of(model, data), seed=0).parts == ()
    after = model.embedding.weight.detach()
    assert not torch.allclose(before, after)
    assert float(after.std()) == pytest.approx(float(before.std()), rel=0.2)
    features = gd.models.GCN(6, hidden=8, out=4)
    (part,) = shape_of(features, context_of(features, graph), seed=0).parts
    assert part.targets.shape == (graph.num_nodes, 4)
