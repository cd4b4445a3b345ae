"""What linear methods are trained on, and which models they refuse."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, SGConv

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.errors import SettingError
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.methods import Context
from gnndelete.methods.linear.certunlearn import CertUnlearn
from gnndelete.methods.linear.grapheditor import GraphEditor
from gnndelete.methods.linear.rows import alive_nodes, changed_rows, is_linear, training_rows
from gnndelete.nn.forward import call


def context(model, data, task=None, **options):
    return Context(Session(model, data, call), task=task, **options)


def pairs(data, seed=0, deleted=()):
    asked = context(gd.models.GCN(6), data, gd.LinkPrediction(), seed=seed)
    return training_rows(asked, data, alive_nodes(asked, torch.tensor(deleted, dtype=torch.long)))


def test_every_true_edge_has_a_non_edge_of_its_own(graph):
    rows = pairs(graph)
    true, false = rows.ends[:, rows.target == 1], rows.ends[:, rows.target == -1]
    table = EdgeTable(graph.edge_index, 48)
    assert true.size(1) == false.size(1) == graph.edge_index.size(1) // 2
    assert bool(table.contains(true).all())
    assert not bool(table.contains(false).any())
    assert bool((false[0] < false[1]).all())
    assert torch.unique(false).numel() > 30, "spread over the graph"
    assert torch.equal(rows.key, torch.unique(rows.key)), "sorted, each once"


def test_the_rows_depend_on_the_remaining_graph_and_the_seed_alone(graph):
    shuffled = graph.__copy__()
    shuffled.edge_index = graph.edge_index[:, torch.randperm(graph.edge_index.size(1))]
    assert torch.equal(pairs(graph).ends, pairs(shuffled).ends)
    assert not torch.equal(pairs(graph, seed=1).ends, pairs(graph).ends)
    # an edge goes: it loses its two rows, and all other edges keep their non-edges unless they had drawn that pair before
    rows, left = pairs(graph), pairs(gd.Deletion(edges=[(3, 4)]).remaining(graph))
    gone, come = changed_rows(rows, left, torch.zeros(48, dtype=torch.bool))
    assert gone.numel() - come.numel() == 2
    assert {(3, 4)} == {tuple(rows.ends[:, i].tolist()) for i in gone if rows.target[i] == 1}
    assert bool(torch.isin(left.ends[:, come], torch.tensor([3, 4])).all()), "only the freed pair can be drawn anew"
    # a node goes: nobody draws it any more
    left = pairs(gd.Deletion(nodes=[9]).remaining(graph), deleted=[9])
    assert not torch.isin(left.ends, 9).any()


def test_a_deleted_pair_may_be_drawn_like_any_other():
    edges = torch.combinations(torch.arange(6)).t()
    edges = edges[:, ~((edges[0] == 0) & (edges[1] == 1))]
    complete = Data(x=torch.ones(6, 2), edge_index=torch.cat([edges, edges.flip(0)], dim=1))
    rows = pairs(complete)
    assert {(0, 1)} == {tuple(pair) for pair in rows.ends[:, rows.target == -1].t().tolist()}
    rows = pairs(gd.Deletion(edges=[(2, 3)]).remaining(complete))
    assert {(0, 1), (2, 3)} == {tuple(pair) for pair in rows.ends[:, rows.target == -1].t().tolist()}


def test_training_nodes_are_those_of_the_task(graph):
    def chosen(data):
        asked = context(gd.models.GCN(6), data, gd.NodeClassification())
        return training_rows(asked, data, alive_nodes(asked))

    rows = chosen(graph)
    assert torch.equal(rows.ends[0], graph.train_mask.nonzero().flatten())
    assert torch.equal(rows.target, graph.y[rows.key])
    assert 8 not in chosen(gd.Deletion(nodes=[8]).remaining(graph)).key.tolist()
    del graph.train_mask
    assert torch.equal(chosen(graph).key, (~graph.val_mask & ~graph.test_mask).nonzero().flatten())


class Sgc(nn.Module):
    def __init__(self, between=None, cached=False):
        super().__init__()
        self.conv, self.head, self.between = SGConv(6, 8, K=2, cached=cached), nn.Linear(8, 5), between

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        return self.head(x if self.between is None else self.between(x))


class Appnp(Sgc):
    def __init__(self):
        super().__init__()
        self.spread = APPNP(K=2, alpha=0.1)

    def forward(self, x, edge_index):
        return self.spread(self.head(self.conv(x, edge_index)), edge_index)


@pytest.mark.parametrize(
    ("model", "linear"),
    [
        (lambda: Sgc(), True),
        (lambda: Sgc(cached=True), True),
        (lambda: Appnp(), True),
        (lambda: Sgc(F.relu), False),
        (lambda: Sgc(torch.tanh), False),
        (lambda: Sgc(nn.ReLU()), False),
        (lambda: gd.models.GCN(6, out=5), False),
        (lambda: gd.models.GAT(6, out=5), False),
        (lambda: GCNConv(6, 5), False),  # by the rule: SGConv and the like, propagation and Linear only
    ],
)
def test_linear_models(graph, model, linear, snapshot):
    model = model()
    before = snapshot(model, graph)
    assert is_linear(context(model, graph)) is linear
    assert snapshot(model, graph) == before


METHODS = [GraphEditor, CertUnlearn]


@pytest.mark.parametrize("method", METHODS)
def test_what_does_not_fit_is_refused_with_a_way_out(graph, method):
    def reasons(data=graph, model=None, task="node", **options):
        model = model or gd.models.GAT(6, out=5)
        known = {"node": gd.NodeClassification(), "link": gd.LinkPrediction(), "graph": gd.GraphClassification()}
        return [str(reason) for reason in method(**options).unfit(context(model, data, known.get(task)))]

    title = method.__name__
    (reason,) = reasons()
    assert reason.startswith(f"{title} edits a linear model; 'GAT' is not linear; pass own_model=True")
    assert "or use gnndelete" in reason
    assert reasons(own_model=True) == reasons(task="link", own_model=True) == []
    assert reasons(model=Sgc()) == []
    assert "pass task=" in reasons(task=None, own_model=True)[0]
    assert "retrain" in reasons(task="graph", own_model=True)[0]
    bare = graph.__copy__()
    bare.num_nodes = 48
    del bare.x
    assert "no 'x'" in reasons(bare, own_model=True)[0]
    bare = graph.__copy__()
    del bare.y
    assert "needs 'y'" in reasons(bare, own_model=True)[0]
    typed = graph.__copy__()
    typed.edge_type = torch.zeros(graph.edge_index.size(1), dtype=torch.long)
    assert "typed" in reasons(typed, own_model=True)[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "wrong", [{"hops": 0}, {"hops": 1.5}, {"dim": 0}, {"lam": 0}, {"lam": "1"}, {"lam": float("nan")}]
)
def test_settings(method, wrong):
    with pytest.raises(SettingError, match=f"'{next(iter(wrong))}' must"):
        method(**wrong).check()
    settings = method(own_model=True).settings()
    assert method(**settings).settings() == settings
