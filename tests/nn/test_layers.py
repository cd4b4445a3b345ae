"""Copies of a model to work on: nothing that can change is shared, and a module's own way to be copied counts."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from torch_geometric.nn import GCNConv, SAGEConv, to_hetero

from gnndelete.nn.layers import copied


class Tied(nn.Module):
    """Two layers with one weight, a child that knows its parent, and a list, a dict and a method among the attributes."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.conv = nn.Linear(2, 2), nn.Linear(2, 2), GCNConv(2, 2)
        self.second.weight = self.first.weight
        self.second.parents = [self]
        self.seen, self.options, self.apply_first = [torch.ones(2)], {"scale": 2.0}, self.twice

    def twice(self, x):
        return self.options["scale"] * self.first(x)


class OwnWay(nn.Linear):
    def __deepcopy__(self, memo):
        result = OwnWay(self.in_features, self.out_features)
        result.was_asked = True
        return result


class Forgetting(nn.Linear):
    def __getstate__(self):
        return {**super().__getstate__(), "last": None}


def test_a_copy_is_tied_to_itself_alone():
    model = Tied()
    twin = copied(model)
    assert type(twin) is Tied
    assert twin.second.weight is twin.first.weight is not model.first.weight
    assert twin.second.parents[0] is twin
    assert twin.apply_first.__self__ is twin
    assert twin.seen[0] is not model.seen[0]
    twin.options["scale"] = 0.0
    assert model.options["scale"] == 2.0
    twin.conv.register_forward_hook(lambda *_: None)
    assert not model.conv._forward_hooks
    with torch.no_grad():
        twin.first.weight.zero_()
    assert bool(model.first.weight.any())


def test_a_copy_says_what_the_model_says():
    model = Tied().eval()
    x, edges = torch.randn(3, 2), torch.tensor([[0, 1], [1, 2]])
    for twin in (copied(model), copied(copied(model)), copy.deepcopy(copied(model))):
        assert torch.equal(twin.conv(x, edges), model.conv(x, edges))
        assert torch.equal(twin.twice(x), model.twice(x))
        assert vars(twin).keys() == vars(model).keys()
        assert vars(twin.conv).keys() == vars(model.conv).keys()


def test_a_module_may_have_its_own_way():
    model = nn.Sequential(OwnWay(2, 2), Forgetting(2, 2))
    model[1].last = torch.ones(1)
    twin = copied(model)
    assert twin[0].was_asked
    assert twin[1].last is None
    assert torch.equal(twin[1].weight, model[1].weight)


class Frozen(nn.Linear):
    """Copies share it."""

    def __deepcopy__(self, memo):
        memo[id(self)] = self
        return self


class Cached(nn.Module):
    """Reads its child while it is copied, and leaves its cache behind."""

    def __init__(self):
        super().__init__()
        self.inner, self.cache = nn.Linear(2, 2), torch.ones(2)

    def __deepcopy__(self, memo):
        result = Cached()
        result.inner.load_state_dict(self.inner.state_dict())
        result.cache = None
        return result


class Holding(nn.Module):
    """A graph layer beside whatever else a model may hold."""

    def __init__(self, part):
        super().__init__()
        self.part, self.conv = part, GCNConv(2, 2)

    def forward(self, x, edge_index):
        return self.part(self.conv(x, edge_index))


def test_modules_within_keep_their_own_way():
    frozen, cached = Frozen(2, 2), Cached()
    model = nn.Sequential(Holding(frozen), Holding(cached))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    twin = copied(model)
    assert twin[0].part is frozen
    assert twin[1].part.cache is None
    assert torch.equal(twin[1].part.inner.weight, cached.inner.weight)
    assert cached.cache is not None
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


@pytest.mark.parametrize("make", [spectral_norm, weight_norm, orthogonal, torch.fx.symbolic_trace])
def test_modules_that_torch_makes_are_copied_within_a_model(make):
    model = Holding(make(nn.Linear(2, 2))).eval()
    x, edges = torch.randn(3, 2), torch.tensor([[0, 1], [1, 2]])
    assert torch.equal(copied(model)(x, edges), model(x, edges))


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv((2, 2), 2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Wrapped(nn.Module):
    """What `to_hetero` made, as a part of a model of one's own."""

    def __init__(self, metadata):
        super().__init__()
        self.gnn = to_hetero(Sage(), metadata)

    def forward(self, x_dict, edge_index_dict):
        return self.gnn(x_dict, edge_index_dict)


def test_a_model_of_many_types_is_copied_within_another():
    x = {"a": torch.randn(3, 2), "b": torch.randn(2, 2)}
    edges = {("a", "to", "b"): torch.tensor([[0, 2], [1, 0]]), ("b", "to", "a"): torch.tensor([[1], [2]])}
    model = Wrapped((list(x), list(edges)))
    twin = copied(model)
    assert all(torch.equal(twin(x, edges)[name], model(x, edges)[name]) for name in x)
