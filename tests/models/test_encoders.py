"""Encoders: shapes, one activation between layers and none at the end, real resets, names in any case."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, MessagePassing

from gnndelete.errors import SettingError
from gnndelete.models import build, resolver

EDGES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]])
KINDS = {"gcn": GCNConv, "gat": GATConv, "gin": GINConv}
NAMES = sorted(KINDS)

#: Models with a file of tests of their own.
ELSEWHERE = {"gps", "graphormer", "rgcn", "rgat", "lightgcn", "embeddinggcn", "embeddingsage"}


def test_every_registered_model_is_tested() -> None:
    assert set(KINDS) | ELSEWHERE == set(resolver.lookup_dict)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_shape_and_layers(name: str, layers: int) -> None:
    model = build(name.upper(), in_channels=5, hidden=7, out=3, num_layers=layers)
    assert model(torch.rand(4, 5), EDGES).shape == (4, 3)
    convs = [module for module in model.modules() if isinstance(module, MessagePassing)]
    assert [type(conv) for conv in convs] == [KINDS[name]] * layers


@pytest.mark.parametrize("name", NAMES)
def test_default_is_the_papers_size(name: str) -> None:
    widths: list[int] = []
    model = build(name, in_channels=5)
    for conv in model.convs:
        conv.register_forward_hook(lambda module, inputs, output: widths.append(output.size(1)))
    output = model(torch.randn(4, 5), EDGES)
    assert widths == [128, 64]
    assert bool((output < 0).any())  # no activation at the end


@pytest.mark.parametrize("name", NAMES)
def test_relu_stands_between_layers(name: str) -> None:
    model = build(name, in_channels=5)
    seen: list[torch.Tensor] = []
    model.convs[1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(torch.randn(4, 5), EDGES)
    assert bool((seen[0] >= 0).all())
    assert bool((seen[0] == 0).any())


@pytest.mark.parametrize("name", NAMES)
def test_reset_changes_the_weights(name: str) -> None:
    model = build(name, in_channels=5)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.reset_parameters()
    changed = [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])]
    assert len(changed) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_dropout_only_while_training(name: str) -> None:
    model = build(name, in_channels=5, dropout=0.5)
    x = torch.randn(4, 5)
    assert not torch.equal(model(x, EDGES), model(x, EDGES))
    model.eval()
    assert torch.equal(model(x, EDGES), model(x, EDGES))


def test_gin_has_one_linear_per_layer_and_fixed_eps() -> None:
    model = build("gin", in_channels=5)
    assert all(isinstance(conv.nn, nn.Linear) for conv in model.convs)
    assert not any("eps" in name for name, _ in model.named_parameters())


def test_errors() -> None:
    with pytest.raises(SettingError, match=r"'transformer'.*gat, gcn, gin"):
        build("transformer", in_channels=5)
    with pytest.raises(SettingError, match="num_layers"):
        build("gcn", in_channels=5, num_layers=0)
    with pytest.raises(SettingError, match=r"'GCN'.*'in_channels'"):
        build("gcn")


def test_sizes_may_be_any_whole_numbers():
    assert build("gcn", in_channels=5, hidden=torch.tensor(7), out=3).convs[0].out_channels == 7
    for name, value in (("hidden", 0), ("out", 2.5), ("hidden", True), ("dropout", 1.0), ("dropout", "half")):
        with pytest.raises(SettingError, match=f"'{name}' must be a .* \\(got"):
            build("gcn", in_channels=5, **{name: value})
