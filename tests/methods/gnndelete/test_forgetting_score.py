"""What a trial measures: which edges are compared, and what is said where few or none can be."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.methods.gnndelete.forgetting_score import FEW_MATCHED, ForgettingScore, comparable_edges
from gnndelete.metrics.edge_matching import ADJUSTED


class Memory(nn.Module):
    """A GCN with a trained vector per node: it remembers single nodes and their edges."""

    def __init__(self, nodes: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 16)
        self.encoder = gd.models.GCN(features + 16, hidden=32, out=16)

    def forward(self, x, edge_index):
        return self.encoder(torch.cat([x, self.table.weight], dim=1), edge_index)


@pytest.fixture(scope="module")
def memory():
    graph = community_graph(400, 3000, 8, classes=4, community=100, seed=4)
    split = gd.datasets.split_links(graph, seed=0, val=0.15, test=0.15)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = Memory(400, 8)
    gd.train(model, split.data, task, epochs=300, lr=0.01, seed=0)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(split.data, 0.1, seed=1))
    return model, split.data, task, deletion


def test_unseen_edges_that_the_deletion_isolates_are_left_out():
    """A path of six nodes and a pair far away: deleting (4, 5) leaves 5 alone, and with it the unseen edge (3, 5)."""
    pairs = torch.tensor([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (6, 7)]).t()
    data = Data(x=torch.eye(9), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    held = torch.tensor([(3, 5), (0, 2), (1, 8)]).t()  # 8 never had an edge, so that nothing moves it
    task = gd.LinkPrediction(validation=held)
    prepared = gd.Unlearner(gd.models.GCN(9), data, task=task)._context
    deletion = gd.Deletion(edges=[(4, 5)]).check(data)
    context = prepared.for_deletion(deletion)
    assert comparable_edges(context, deletion.edges, held).t().tolist() == [[0, 2], [1, 8]]
    assert comparable_edges(context, deletion.edges, held[:, :1]).t().tolist() == [[3, 5]], "where there are no others"


def test_where_few_can_be_compared_the_result_says_so(memory):
    """Sixty nodes lose all their edges: to edges with an end left alone no unseen one is fit to be compared."""
    model, data, task, deletion = memory
    lonely = deletion.edges.flatten().unique()[:60]
    near = torch.isin(data.edge_index, lonely).any(dim=0) & (data.edge_index[0] < data.edge_index[1])
    request = gd.Deletion(edges=data.edge_index[:, near]) | deletion
    measured = ForgettingScore(gd.Unlearner(model, data, task=task)._context.for_deletion(request.check(data)))
    assert measured.matching.matched < FEW_MATCHED
    found = gd.Unlearner(model, data, task=task).delete(request)
    assert (
        f"Only {measured.matching.matched:.0%} of the deleted edges have unseen ones to compare with"
        in found.calibration["sentence"]
    )
    usual = ForgettingScore(gd.Unlearner(model, data, task=task)._context.for_deletion(deletion.check(data)))
    assert usual.matching.matched > FEW_MATCHED


def test_where_no_held_out_edge_is_like_any_deleted_one_nothing_is_claimed():
    """Edges that were the last of an end cannot be judged by edges whose ends have others."""
    around = torch.arange(40)
    ring = torch.stack([around, (around + 1) % 40])
    spokes = torch.stack([torch.arange(40, 52), torch.arange(0, 36, 3)])
    once = torch.cat([ring, spokes], dim=1)
    data = Data(
        x=torch.randn(52, 6, generator=torch.Generator().manual_seed(0)), edge_index=torch.cat([once, once.flip(0)], 1)
    )
    task = gd.LinkPrediction(validation=torch.stack([torch.arange(0, 30), torch.arange(10, 40)]))
    torch.manual_seed(0)
    unlearned = gd.Unlearner(gd.models.GCN(6, hidden=8, out=4), data, task=task).delete(gd.Deletion(edges=spokes))
    assert unlearned.calibration["status"] == "fallback"
    assert "no deleted edge can be compared with an unseen one" in unlearned.calibration["sentence"]


@pytest.fixture(scope="module")
def links():
    split = gd.datasets.split_links(gd.datasets.load("digits"), val=0.1, test=0.1, seed=0)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = gd.models.GCN(64, hidden=16, out=8)
    gd.train(model, split.data, task, epochs=20, lr=0.01, validate_every=20)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(split.data, 0.05, seed=0))
    return model, split.data, task, deletion


def test_calibration_says_that_it_compared_beyond_the_surroundings(links):
    model, data, task, deletion = links
    said = ADJUSTED
    assert said in gd.Unlearner(model, data, task=task).delete(deletion).calibration["sentence"]
    gone = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(aim="nonexistent")).delete(deletion)
    assert said not in gone.calibration["sentence"]
    few = gd.LinkPrediction(validation=task.validation.positives[:, :100])
    assert said not in gd.Unlearner(model, data, task=few).delete(deletion).calibration["sentence"]


def test_both_matchings_measure_the_same_edges(links):
    model, data, task, deletion = links
    context = gd.Unlearner(model, data, task=task)._context.for_deletion(deletion.check(data))
    plain, adjusted = ForgettingScore(context, by_surroundings=False), ForgettingScore(context)
    assert (plain.matching.how, adjusted.matching.how) == ("", ADJUSTED)
    assert plain.matching.matched == adjusted.matching.matched
    output = model(context.remaining.x, context.remaining.edge_index)
    one, other = (score.trial(0.0, model, output, output) for score in (plain, adjusted))
    assert one.auc != other.auc
    assert one.se == other.se


def test_held_out_edges_that_were_trained_on_are_pointed_out(links):
    model, data, task, deletion = links
    said = "of the unseen edges are in the graph that the model was trained on"
    assert said not in gd.Unlearner(model, data, task=task).delete(deletion).calibration["sentence"]
    wrong = gd.LinkPrediction(validation=torch.cat([task.validation.positives, data.edge_index[:, :7]], dim=1))
    sentence = gd.Unlearner(model, data, task=wrong).delete(deletion).calibration["sentence"]
    assert f" 7 {said}" in sentence


def test_nodes_with_deleted_labels_that_all_get_one_answer_are_marked():
    graph = community_graph(400, 2000, 8, classes=3, community=100, seed=4)
    data = gd.datasets.split_nodes(graph, seed=0, train=0.5, val=0.3)
    torch.manual_seed(0)
    model = gd.models.GCN(8, hidden=16, out=3)
    deletion = gd.Deletion(labels=gd.datasets.forget_nodes(data, 60, seed=1)).check(data)
    measured = ForgettingScore(gd.Unlearner(model, data, task="node")._context.for_deletion(deletion))
    output = model(data.x, data.edge_index).detach()
    assert measured.trial(0.0, model, output, output).mark == 0
    flat = output.clone()
    flat[deletion.labels] = output.mean(dim=0) + 0.01 * torch.randn(60, 3)
    assert measured.trial(0.5, model, flat, flat).mark > 0.2
    assert measured.trial(0.1, model, output * 1.01, output * 1.01).mark < 0.05
