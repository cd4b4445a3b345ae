"""The two passes: their price in layer calls, and ``inputs="enclosing"``, the problem as the paper's authors ran it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import gnndelete as gd
from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import read
from gnndelete.errors import SettingError
from gnndelete.graph.edge_table import EdgeTable, Neighborhood

EDGES = gd.Deletion(edges=[(2, 5), (5, 6), (20, 22)])
ENDS = [2, 5, 6, 20, 22]


class Counted(GCNConv):
    calls: list[str]

    def forward(self, x, edge_index):
        self.calls.append(self.name)
        return super().forward(x, edge_index)


class Model(nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.first, self.second = Counted(6, 8), Counted(8, 4)
        for name, conv in self.named_children():
            conv.name, conv.calls = name, Log(calls)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Log(list):
    """A list that copies of the model share."""

    def __init__(self, shared):
        super().__init__()
        self.shared = shared

    def append(self, item):
        self.shared.append(item)

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize(("targets", "first"), [("remaining", 1), ("original", 2)])
def test_the_first_layer_runs_once_on_the_remaining_graph(graph, targets, first):
    calls: list[str] = []
    torch.manual_seed(0)
    unlearner = gd.Unlearner(Model(calls), graph, method=gd.GNNDelete(targets=targets))
    unlearner.delete(gd.Deletion(edges=[(3, 4)]))  # the probe is made once and kept
    calls.clear()
    unlearner.delete(gd.Deletion(edges=[(20, 22)]))
    assert calls.count("first") == first
    assert calls.count("second") == 2


def test_what_follows_the_last_layer_is_not_computed(graph):
    """A head that cannot even run on the rows is never reached while solving."""
    reached = []

    class Head(nn.Module):
        def forward(self, x):
            reached.append(x)
            return x

    class WithHead(Model):
        def __init__(self):
            super().__init__([])
            self.head = Head()

        def forward(self, x, edge_index):
            return self.head(super().forward(x, edge_index))

    unlearner = gd.Unlearner(WithHead(), graph)
    unlearner.delete(gd.Deletion(edges=[(3, 4)]))
    reached.clear()
    unlearner.delete(gd.Deletion(edges=[(20, 22)]))
    assert not reached


def solved(model, data, deletion=EDGES, **settings):
    """The problems that a deletion solves, layer by layer, and its result."""
    seen = []
    method = gd.GNNDelete.paper(
        hops="directed", watch=lambda _, problem, apply: seen.append((problem, apply)), **settings
    )
    return seen, gd.Unlearner(model, data, method=method).delete(deletion)


def reached(data, hops):
    """S^l along the u < v list, as the authors walk it."""
    return Neighborhood(EdgeTable(data.edge_index, data.num_nodes), data.edge_index, "directed").within(
        EDGES.edges.flatten(), hops
    )


def test_the_papers_setting_as_its_authors_ran_it():
    assert gd.GNNDelete.paper(hops="directed").inputs == "enclosing"
    assert gd.GNNDelete.paper().inputs == gd.GNNDelete().inputs == "remaining"
    assert gd.GNNDelete.paper(hops="directed", inputs="remaining").inputs == "remaining"


def test_rows_come_from_the_edges_of_the_neighbourhood_and_the_deleted_ones(graph, gcn):
    (first, second), _ = solved(gcn, graph)
    inside = torch.isin(graph.edge_index, reached(graph, 2)).all(dim=0)
    assert 0 < int(inside.sum()) < graph.num_edges
    assert inside[(graph.edge_index == torch.tensor([[2], [5]])).all(dim=0)].all(), "with the deleted edges"
    around = graph.edge_index[:, inside]
    with torch.no_grad():
        one, weight = first
        torch.testing.assert_close(one.h, gcn.convs[0](graph.x, around))
        below = one.h.clone()
        below[one.rows] = weight(one.h[one.rows])
        torch.testing.assert_close(second[0].h, gcn.convs[1](below.relu(), around))
        kept = gcn.convs[0](graph.x, graph.edge_index)[one.rows]
    torch.testing.assert_close(one.t, kept, msg="targets are the base model's on the original graph")


def test_endpoints_are_not_among_the_rows_to_keep(graph, gcn):
    for problem, _ in solved(gcn, graph)[0]:
        ends = torch.isin(problem.rows, torch.tensor(ENDS))
        assert not problem.b[ends].any()
        assert float(problem.b.sum()) == pytest.approx(0.5)
        assert (problem.a[ends] > 0).all()
        assert not problem.a[~ends].any()


def test_the_model_is_served_on_the_remaining_graph(graph, gcn):
    problems, unlearned = solved(gcn, graph)
    remaining = unlearned.data
    assert remaining.num_edges == graph.num_edges - 6
    with torch.no_grad():
        h = gcn.convs[0](graph.x, remaining.edge_index)
        for (problem, weight), conv in zip(problems, [None, gcn.convs[1]], strict=True):
            h = h if conv is None else conv(h.relu(), remaining.edge_index)
            h[problem.rows] = weight(h[problem.rows])
    torch.testing.assert_close(unlearned.output(), h)


def test_it_is_said_what_it_is_for(graph, gcn):
    assert any("inputs='enclosing'" in note.text for note in solved(gcn, graph)[1].notes)


@pytest.mark.parametrize("targets", ["remaining", "original"])
def test_nothing_is_taken_for_at_rest(graph, gcn, targets):
    """At lam 0 rows of the enclosing graph still have to be brought to those of the other."""
    seen, unlearned = solved(gcn, graph, lam=0, targets=targets)
    assert len(seen) == 2
    assert unlearned.parameters == sum(problem.width**2 for problem, _ in seen)


def test_a_neighbourhood_of_endpoints_alone(graph, gcn):
    pair = gd.Deletion(edges=[(43, 44), (44, 45), (43, 45)])  # a triangle apart from everything
    for lam in (0, 0.5, 1):
        assert torch.isfinite(solved(gcn, graph, pair, lam=lam)[1].output()).all()


def test_every_model(subject, snapshot, tensors):
    """Wherever GNNDelete works this does, and nothing of the user's changes."""
    before = snapshot(subject.model, subject.data)
    result = subject.unlearner(subject.method(operator="shared", lam=0.5, inputs="enclosing")).delete(EDGES)
    assert result.parameters > 0
    assert all(torch.isfinite(part).all() for part in tensors(result.output()))
    assert snapshot(subject.model, subject.data) == before


def test_other_kinds_of_deletion(graph, gcn):
    mixed = gd.Deletion(nodes=[9], features=[3], labels=[30])
    result = gd.Unlearner(gcn, graph, task="node", method=gd.GNNDelete.paper(hops="directed")).delete(mixed)
    assert torch.isfinite(result.output()).all()


@pytest.mark.parametrize(
    ("settings", "needle"),
    [
        ({"inputs": "all", "operator": "shared"}, "'inputs' .*'all'"),
        ({"inputs": "enclosing", "lam": 0.5}, "operator='shared'"),
        ({"inputs": "enclosing", "operator": "shared"}, "a number for lam"),
    ],
)
def test_bad_settings_of_enclosing_inputs(settings, needle):
    with pytest.raises(SettingError, match=needle):
        gd.GNNDelete(**settings).check()


def test_keys_of_rows_that_were_kept_before_it_are_the_same():
    methods = {cell.label: cell.key["method"] for cell in cells(read("paper/link-dblp"))}
    assert methods["paper()"]["inputs"] == "enclosing"
    assert "inputs" not in methods["calibrated"]
