"""R-GCN and R-GAT: the layers are PyG's own in other words, weights are regularised as asked, everything is reset."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import MessagePassing, RGATConv, RGCNConv

from gnndelete.errors import ModelError, SettingError
from gnndelete.models import build
from gnndelete.models.relational import Grouping, RelationalAttention, RelationalConvolution
from gnndelete.nn.reset import fresh

NAMES = ("rgcn", "rgat")
LAYERS = {"rgcn": (RGCNConv, RelationalConvolution), "rgat": (RGATConv, RelationalAttention)}
EDGES, TYPES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]]), torch.tensor([0, 1, 0, 1, 1])
SMALL = {"num_nodes": 5, "num_relations": 2, "embedding": 8, "hidden": 12, "out": 4}


@pytest.mark.parametrize("regularised", [{}, {"num_bases": 3}, {"num_blocks": 4}], ids=["plain", "bases", "blocks"])
@pytest.mark.parametrize("name", NAMES)
@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 40), st.integers(0, 1000))
def test_layers_compute_what_pyg_computes(name, regularised, nodes, relations, edges, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    theirs, ours = (kind(8, 12, relations, **regularised) for kind in LAYERS[name])
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(nodes, 8, generator=generator, requires_grad=True)
    index = torch.randint(nodes, (2, edges), generator=generator)
    kind = torch.randint(relations, (edges,), generator=generator)
    expected, got = theirs(x, index, kind), ours(x, index, kind)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    slopes = [torch.autograd.grad(h.square().sum(), x, materialize_grads=True)[0] for h in (expected, got)]
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_shape_and_layers(name: str, layers: int) -> None:
    model = build(name.upper(), **SMALL, num_layers=layers)
    assert model(EDGES, TYPES).shape == (5, 4)
    assert model.entity.shape == (5, 8)
    assert model.relation.shape == (2, 4)
    assert sum(isinstance(module, MessagePassing) for module in model.modules()) == layers


@pytest.mark.parametrize("name", NAMES)
def test_default_is_the_papers_size(name: str) -> None:
    model = build(name, num_nodes=5, num_relations=2)
    assert [conv.out_channels for conv in model.convs] == [128, 64]


@pytest.mark.parametrize("name", NAMES)
def test_reverse_carries_messages_against_a_relation(name: str) -> None:
    def moved(reverse: bool) -> bool:
        torch.manual_seed(0)
        model = build(name, **SMALL, num_layers=1, reverse=reverse)
        edges, kind = torch.tensor([[0], [1]]), torch.tensor([0])
        return not torch.equal(model(edges, kind)[0], model(edges[:, :0], kind[:0])[0])

    assert moved(reverse=True)
    assert not moved(reverse=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_relation_of_an_edge_matters(name: str) -> None:
    model = build(name, **SMALL)
    assert not torch.allclose(model(EDGES, TYPES), model(EDGES, 1 - TYPES))


@pytest.mark.parametrize("name", NAMES)
def test_features_are_used_where_the_model_was_made_for_them(name: str) -> None:
    model = build(name, in_channels=3, **SMALL)
    x = torch.randn(5, 3)
    assert not torch.allclose(model(EDGES, TYPES, x), model(EDGES, TYPES, 2 * x))
    with pytest.raises(ModelError, match="in_channels"):
        model(EDGES, TYPES)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_knows_its_entities(name: str) -> None:
    model = build(name, **SMALL)
    whole = model(EDGES[:, :2], TYPES[:2])
    part = model(EDGES[:, :2], TYPES[:2], n_id=torch.tensor([0, 1, 2]))  # of the path 0 -> 1 -> 2
    torch.testing.assert_close(part, whole[:3])


@pytest.mark.parametrize("regularised", [{}, {"num_bases": 2}, {"num_blocks": 4}])
@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_reset(name: str, regularised: dict[str, int]) -> None:
    model = build(name, in_channels=3, **SMALL, **regularised)
    again = fresh(model, seed=1)  # an error where a parameter is left as it was
    assert not torch.equal(again.entity, model.entity)
    assert not torch.equal(again.relation, model.relation)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in again.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_dropout_only_while_training(name: str) -> None:
    model = build(name, **SMALL, dropout=0.5)
    assert not torch.equal(model(EDGES, TYPES), model(EDGES, TYPES))
    model.eval()
    assert torch.equal(model(EDGES, TYPES), model(EDGES, TYPES))


@pytest.mark.parametrize("name", NAMES)
def test_errors(name: str) -> None:
    with pytest.raises(SettingError, match=r"num_bases.*num_blocks"):
        build(name, **SMALL, num_bases=2, num_blocks=2)
    with pytest.raises(SettingError, match=r"num_blocks.*\(3\).*8"):
        build(name, **SMALL, num_blocks=3)
    with pytest.raises(SettingError, match=r"num_relations.*0"):
        build(name, num_nodes=5, num_relations=0)
    with pytest.raises(SettingError, match="num_nodes"):
        build(name, num_relations=2)
    with pytest.raises(ModelError, match=r"node 7.*0 to 4"):
        build(name, **SMALL)(torch.tensor([[0], [7]]), torch.tensor([0]))


@st.composite
def messages(draw):
    nodes, relations, edges = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.integers(0, 30))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    index = torch.randint(nodes, (2, edges), generator=generator)
    kind = torch.randint(relations, (edges,), generator=generator)
    return index, kind, torch.randn(nodes, 3, dtype=torch.double, generator=generator)


@given(messages())
def test_one_row_for_every_node_and_relation_that_meet(given_) -> None:
    index, kind, x = given_
    grouping = Grouping(index, kind, x.size(0))
    means, sums = grouping.mean(x), grouping.sum(x[index[0]])
    pairs = sorted(set(zip(kind.tolist(), index[1].tolist(), strict=True)))
    assert [target for _, target in pairs] == grouping.target.tolist()
    assert sum(grouping.per_relation) == len(pairs)
    for row, (relation, target) in enumerate(pairs):
        heard = x[index[0][(kind == relation) & (index[1] == target)]]
        torch.testing.assert_close(means[row], heard.mean(dim=0))
        torch.testing.assert_close(sums[row], heard.sum(dim=0))


@given(messages())
def test_derivatives(given_) -> None:
    index, kind, x = given_
    grouping = Grouping(index, kind, x.size(0))
    assert torch.autograd.gradcheck(grouping.mean, x.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda h: grouping.mean(h).square(), x)
