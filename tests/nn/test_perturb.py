"""The perturbation runner: which rows move with a node, and that a run leaves no trace in the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

from gnndelete.errors import ModelError
from gnndelete.nn.forward import call
from gnndelete.nn.perturb import dependent_rows, moved_rows, run


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(4, 4), GCNConv(4, 3)
        self.edges, self.calls = None, []
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x, edge_index):
        self.edges = edge_index if self.edges is None else self.edges
        self.calls.append(1)
        self.total += 1
        return self.second(self.first(x, self.edges), self.edges)


@pytest.fixture
def ring():
    nodes = torch.arange(12)
    edges = torch.stack([nodes, nodes.roll(1)])
    return Data(x=torch.randn(12, 4), edge_index=torch.cat([edges, edges.flip(0)], dim=1))


def near(data, hops):
    return set(k_hop_subgraph([5], hops, data.edge_index, num_nodes=12)[0].tolist())


@pytest.mark.parametrize("compare", [dependent_rows, moved_rows])
def test_rows_that_move_are_those_within_the_hops_of_the_layers(ring, compare):
    found = compare(Two(), ring, call, ["first", "second"], ["first", "second"], torch.tensor([5]))
    assert [(each.site.layer, each.output) for each in found] == [("first", False), ("second", False), ("", True)]
    assert [set(each.moved.nonzero().flatten().tolist()) for each in found] == [
        near(ring, 1),
        near(ring, 2),
        near(ring, 2),
    ]
    assert not any(each.whole for each in found)


def test_what_a_site_gave_can_be_changed_before_it_is_handed_on(ring):
    model = Two()
    found = run(model, ring, call, ["first"], change=lambda reading: reading.h if reading.output else reading.h * 0)
    assert torch.equal(found.output, run(model, ring, call, []).output * 0 + model.second.bias)
    assert [reading.site.width for reading in found.readings] == [4, 3]


def test_a_run_leaves_no_trace(ring):
    model = Two().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run(model, ring, call, ["first"], nodes=torch.tensor([5]), shift=float("nan"), inputs=["first"])
    assert model.edges is None
    assert not model.calls
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_model_that_does_not_run_is_named(ring):
    ring.x = ring.x[:, :2]
    with pytest.raises(ModelError, match="'Two' does not run on the graph") as caught:
        run(Two(), ring, call, [])
    assert caught.value.remedy
