"""Calling the user's model by the names of its arguments."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GATConv, GCNConv, GraphConv, HeteroConv

import gnndelete as gd
from gnndelete.errors import ModelError
from gnndelete.nn.forward import call, evaluating, require_rows, resolve_forward


def model_of(function):
    """A module whose forward is ``function`` without self, returning what it got."""
    return type("Model", (nn.Module,), {"forward": lambda self: None} | {"forward": function})()


@pytest.fixture
def data():
    return Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]]), edge_weight=torch.ones(1), batch_size=2)


def test_arguments_come_from_attributes_of_the_same_name(data):
    got = call(model_of(lambda self, edge_index, x: (edge_index, x)), data)
    assert got[0] is data.edge_index
    assert got[1] is data.x


def test_an_optional_argument_is_given_where_the_graph_has_it(data):
    model = model_of(lambda self, x, edge_weight=None, edge_attr="none", *, batch=7: (edge_weight, edge_attr, batch))
    assert call(model, data) == (data.edge_weight, "none", 7)


def test_positional_only_and_number_of_nodes(data):
    model = model_of(lambda self, x, edge_index, /, num_nodes: (x, edge_index, num_nodes))
    assert call(model, data)[2] == 3


@pytest.mark.parametrize("name", ["data", "batch", "graph", "g"])
def test_a_model_of_whole_graphs_gets_the_graph(data, name):
    space = {}
    exec(f"def forward(self, {name}): return {name}", space)
    got = call(model_of(space["forward"]), data)
    assert got.x is data.x
    assert got.keys() == data.keys()


def test_what_a_forward_assigns_to_its_graph_is_gone_afterwards(data):
    before = data.x.clone()

    def forward(self, data):
        data.x = data.x * 2
        return data.x

    model = model_of(forward)
    assert torch.equal(call(model, data), call(model, data))
    assert torch.equal(data.x, before)


def test_hidden_arguments_get_the_usual_two(data):
    assert call(model_of(lambda self, *args, **kwargs: (args, kwargs)), data) == ((data.x, data.edge_index), {})


def test_a_missing_argument_is_named(data):
    with pytest.raises(ModelError, match=r"'Model' needs the argument 'z'.*it has: .*edge_index.*forward="):
        call(model_of(lambda self, x, z: x), data)


def test_a_kept_graph_plays_no_part_in_an_evaluation_and_is_there_again_afterwards(data):
    layer = GCNConv(data.num_features, 2, cached=True)
    layer(data.x, data.edge_index)
    kept, other = layer._cached_edge_index, data.edge_index[:, :1]
    with evaluating(layer):
        found = layer(data.x, other)
    assert layer.cached
    assert layer._cached_edge_index is kept
    layer.cached, layer._cached_edge_index = False, None
    assert torch.equal(found, layer(data.x, other))


def test_evaluating_gives_every_module_its_own_flag_back():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Dropout()))
    model.train()
    model[1][0].eval()
    before = [module.training for module in model.modules()]
    for error in (None, KeyboardInterrupt):
        try:
            with evaluating(model):
                assert not any(module.training for module in model.modules())
                assert not torch.is_grad_enabled()
                if error:
                    raise error
        except KeyboardInterrupt:
            pass
        assert [module.training for module in model.modules()] == before
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.float16, torch.float64])
def test_numbers_of_another_type_than_the_models_are_named_with_the_way_out(data, dtype):
    data.x = data.x.to(dtype)
    said = rf"data\.x is {dtype}, 'GCNConv' computes with torch\.float32, and .* write data\.x = data\.x\.float\(\)"
    for forward in (call, resolve_forward(lambda model, data: model(data.x, data.edge_index))):
        with pytest.raises(ModelError, match=said):
            forward(GCNConv(2, 4), data)
    with pytest.raises(ModelError, match=said):
        gd.train(GCNConv(2, 4), data, gd.LinkPrediction(), epochs=1)
    with pytest.raises(ModelError, match=said):
        gd.Unlearner(GCNConv(2, 4), data).delete(gd.Deletion(nodes=[2]))


def test_every_number_that_stands_in_the_way_is_named(data):
    data.x, data.edge_attr = data.x.long(), torch.ones(1, 3).double()
    with pytest.raises(ModelError, match=r"data\.x = data\.x\.float\(\), data\.edge_attr = data\.edge_attr\.float\(\)"):
        call(GATConv(2, 4, edge_dim=3), data)
    with pytest.raises(
        ModelError,
        match=r"^data\.x is torch\.int64.*'GATConv' computes with torch\.float64.*write data\.x = data\.x\.double\(\)",
    ):
        call(GATConv(2, 4, edge_dim=3).double(), data)
    hetero = HeteroData({"paper": {"x": torch.ones(3, 2).double()}})
    hetero["paper", "cites", "paper"].edge_index = data.edge_index
    model = HeteroConv({("paper", "cites", "paper"): GCNConv(2, 4, add_self_loops=False)})
    with pytest.raises(ModelError, match=r"write data\['paper'\]\.x = data\['paper'\]\.x\.float\(\)"):
        resolve_forward(lambda model, data: model(data.x_dict, data.edge_index_dict))(model, hetero)


def test_whole_numbers_that_a_model_looks_up_are_as_meant(data):
    class Atoms(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.atoms, self.conv, self.norm = nn.Embedding(5, 4), GCNConv(width, 2), nn.BatchNorm1d(2)

        def forward(self, x, edge_index):
            return self.norm(self.conv(self.atoms(x[:, 0]), edge_index))

    data.x = data.x.long()
    assert call(Atoms(4), data).shape == (3, 2)
    with pytest.raises(ModelError, match=r"shapes cannot be multiplied.*; if the types are the cause"):
        call(Atoms(7), data)


def test_an_explained_pass_leaves_no_trace_in_the_model(data):
    data.x = data.x.double()
    model = nn.ModuleDict({"norm": nn.BatchNorm1d(2), "conv": GCNConv(2, 2)}).train()
    with pytest.raises(ModelError, match="float64"):
        resolve_forward(lambda model, data: model["conv"](model["norm"](data.x), data.edge_index))(model, data)
    assert model.training
    assert model["norm"].running_mean.tolist() == [0, 0]


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphConv(4, 3)

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight)


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


class Named(Wrapped):
    def forward(self, x, edge_index, **kwargs):
        return self.inner(x, edge_index, **kwargs)


def test_weights_of_edges_reach_a_model_that_torch_has_wrapped():
    data = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.tensor([0.5, 3.0]))
    inner = Weighted()
    expected = inner(data.x, data.edge_index, data.edge_weight)
    assert not torch.allclose(expected, inner(data.x, data.edge_index))
    for model in (nn.DataParallel(inner), torch.compile(inner, backend="eager")):
        torch.testing.assert_close(call(model, data), expected)


@pytest.mark.parametrize("wrap", [Wrapped, lambda inner: Wrapped(Wrapped(inner))])
def test_hidden_arguments_are_not_guessed_where_edges_have_weights(wrap):
    data = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.tensor([0.5, 3.0]))
    with pytest.raises(
        ModelError, match=r"hides its arguments.*'edge_weight'.*model\(data.x, data.edge_index, data.edge_weight\)"
    ):
        call(wrap(Weighted()), data)
    del data.edge_weight
    assert call(wrap(Weighted()), data).shape == (3, 3)


def test_a_model_that_names_the_graph_gets_what_it_names():
    data = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.tensor([0.5, 3.0]))
    model = Named(Weighted())
    torch.testing.assert_close(call(model, data), model.inner(data.x, data.edge_index))


def test_a_forward_that_writes_into_the_graph_is_refused(data):
    def forward(self, x, edge_index):
        x += 1
        return x

    model = model_of(forward)
    for call_it in (call, resolve_forward(lambda model, data: model(data.x, data.edge_index))):
        with pytest.raises(ModelError, match=r"writes into data\.x.*x\.clone\(\)"):
            call_it(model, data)


ROWS = torch.ones(3, 2)
NO_ROWS = {
    "none": None, "text": "x", "number": 1.0, "generator": iter([ROWS]), "array": ROWS.numpy(), "nested": ((ROWS,),),
    "nothing": (), "scalar": ROWS.sum(), "integers": ROWS.long(), "booleans": ROWS > 0, "complex": ROWS.to(torch.complex64),
    "empty": ROWS[:0], "sparse": ROWS.to_sparse(), "graph": Data(x=ROWS), "nan": ROWS * float("nan"),
}  # fmt: skip


@pytest.mark.parametrize("output", NO_ROWS.values(), ids=NO_ROWS)
@pytest.mark.parametrize("method", ["unlink", "gnndelete"])
def test_a_model_without_rows_is_refused_before_it_is_served(output, method):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(2, 2)

        def forward(self, x, edge_index):
            self.conv(x, edge_index)
            return output

    data = Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    method = gd.GNNDelete(lam=0.2) if method == "gnndelete" else method
    for deletion in (gd.Deletion(nodes=[0]), gd.Deletion(features=[0])):
        unlearner = gd.Unlearner(Model(), data, method=method)
        with pytest.raises(ModelError, match=r"no rows of floating-point|nothing but NaN"):
            unlearner.delete(deletion)
        assert unlearner.history == ()


@pytest.mark.parametrize("output", [ROWS, (ROWS, None), [None, ROWS], {"a": ROWS}])
def test_rows_alone_or_among_others(output):
    assert require_rows(nn.Identity(), output) is None, "it is not refused"
