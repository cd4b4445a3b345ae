"""The price of a deletion in layer calls, counted in the layers themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import gnndelete as gd


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
