"""Sequences of requests, and taking one up again."""

from __future__ import annotations

import json
import stat

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.errors import AdapterError, DeletionError, ModelError, RunError, SettingError
from gnndelete.methods import Method, Outcome

from .conftest import one_sentence

A, B, C = gd.Deletion(edges=[(3, 4)]), gd.Deletion(nodes=[9]), gd.Deletion(edges=[(4, 5), (20, 22)])


def serve(unlearner, *requests):
    for request in requests:
        unlearned = unlearner.delete(request)
    return unlearned


def same(a, b):
    return torch.equal(a.output(), b.output()) and torch.equal(a.data.edge_index, b.data.edge_index)


@given(st.permutations([A, B, C]), st.integers(0, 2))
def test_a_sequence_equals_one_request_in_any_order(order, joined):
    data, model = example()
    whole = gd.Unlearner(model, data).delete(A | B | C)
    order = [*order[:joined], order[joined] | order[2], *order[joined + 1 : 2]] if joined < 2 else order
    assert same(serve(gd.Unlearner(model, data), *order), whole)


def example():
    torch.manual_seed(3)
    line = torch.stack([torch.arange(29), torch.arange(1, 30)])
    edges = torch.cat([line, torch.tensor([[20], [22]])], dim=1)
    data = Data(x=torch.randn(30, 4), edge_index=torch.cat([edges, edges.flip(0)], dim=1))
    return data, gd.models.GCN(4, hidden=6, out=3).eval()


def test_history_grows_with_served_requests_alone():
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    assert unlearner.history == ()
    first = unlearner.delete(A)
    second = unlearner.delete(gd.Deletion(edges=[(5, 4)]))
    assert unlearner.history == (A, gd.Deletion(edges=[(4, 5)])), "in the graph's own terms"
    assert first.history == (A,)
    assert second.history == unlearner.history
    assert second.deletion == gd.Deletion(edges=[(3, 4), (4, 5)])
    assert second.summary()["requests"] == 2
    for bad in (A, gd.Deletion(edges=[(0, 9)]), gd.Deletion(), gd.Deletion(features=[(0, 99)])):
        with pytest.raises(gd.errors.RequestError):
            unlearner.delete(bad)
    assert len(unlearner.history) == 2
    assert same(unlearner.compact(), second)
    assert len(unlearner.history) == 2


def test_the_union_of_requests_follows_the_history(tmp_path):
    """A refused request and `current` leave nothing behind."""
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    serve(unlearner, A, B)
    with pytest.raises(DeletionError):
        unlearner.delete(gd.Deletion(edges=[(0, 9)]))
    unlearner.compact()
    unlearner.delete(C)
    assert same(unlearner.compact(), gd.Unlearner(model, data).delete(A | B | C))
    other = gd.Unlearner(model, data)
    serve(other, gd.Deletion(nodes=[15]), gd.Deletion(nodes=[25]))
    other.save_state(tmp_path / "state.json")
    with pytest.raises(AdapterError, match="has served requests that are not in the state"):
        unlearner.load_state(tmp_path / "state.json")
    assert len(unlearner.history) == 3
    begun = gd.Unlearner(model, data)
    begun.delete(gd.Deletion(nodes=[15]))
    begun.load_state(tmp_path / "state.json")
    assert len(begun.history) == 2
    found = begun.delete(A)
    assert found.deletion.edges.tolist() == A.edges.tolist()
    assert found.deletion.nodes.tolist() == [15, 25]
    assert same(found, gd.Unlearner(model, data).delete(A | gd.Deletion(nodes=[15, 25])))


class Failing(Method):
    name = "failing"
    assurance = "approximate"

    def __init__(self, error=None):
        self.error = error

    def unlearn(self, context):
        if self.error is not None:
            raise self.error
        return Outcome(model=None, parameters=0)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), MemoryError(), RunError("diverged")])
def test_a_request_that_fails_while_it_runs_is_not_in_the_history(error):
    data, model = example()
    unlearner = gd.Unlearner(model, data, method=Failing(error))
    with pytest.raises(type(error) if error else RunError):
        unlearner.delete(A)
    assert unlearner.history == ()


def test_an_interrupted_repetition_keeps_the_history():
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    unlearner.delete(A)
    unlearner.delete(B)
    unlearner.method = Failing(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        unlearner.compact()
    assert unlearner.history == (A, B)


def test_nothing_served_yet():
    data, model = example()
    with pytest.raises(RunError, match="nothing was deleted yet"):
        gd.Unlearner(model, data).compact()


def test_what_the_user_does_to_data_later_does_not_matter():
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    before = unlearner.delete(A)
    data.edge_index = data.edge_index[:, :4]
    data.x = torch.zeros_like(data.x)
    assert same(unlearner.compact(), before)


def test_state_survives_a_restart(tmp_path):
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    serve(unlearner, A, B)
    file = tmp_path / "deep" / "state.json"
    unlearner.save_state(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "SENSITIVE" in json.loads(file.read_text())["warning"]
    data, model = example()
    later = gd.Unlearner(model, data).load_state(file)
    assert later.history == (A, B)
    assert same(later.compact(), unlearner.compact())
    assert same(later.delete(C), gd.Unlearner(model, data).delete(A | B | C))
    with pytest.raises(gd.errors.DeletionError, match="already deleted"):
        later.delete(A)


def test_a_state_file_in_the_place_of_a_folder_is_named_with_the_way_out(tmp_path):
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    unlearner.delete(A)
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=rf"'{tmp_path / 'folder'}' \(a folder has that name\).*; move that folder"):
        unlearner.save_state(tmp_path / "folder")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_state_of_another_model_or_graph_is_refused(tmp_path):
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    unlearner.delete(A)
    unlearner.save_state(tmp_path / "state")
    other = gd.Unlearner(gd.models.GCN(4, hidden=6, out=3), data)
    other.delete(B)
    with pytest.raises(AdapterError, match="belongs to another model"):
        other.load_state(tmp_path / "state")
    assert other.history == (B,)
    data.x = data.x + 1
    with pytest.raises(AdapterError, match="belongs to another graph"):
        gd.Unlearner(model, data).load_state(tmp_path / "state")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        "{}",
        b"\xff\x81",
        '{"requests": 5}',
        '{"requests": [[1]], "base_fingerprint": "", "graph_fingerprint": ""}',
        '{"requests": [{"edges": [["x"], [1]]}]}',
        '{"requests": [{"wrong": [1]}]}',
    ],
)
def test_damaged_state_is_refused(tmp_path, content):
    file = tmp_path / "state"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    unlearner.delete(A)
    for path in (file, tmp_path / "missing", tmp_path):
        with pytest.raises(AdapterError, match="no readable state"):
            unlearner.load_state(path)
    assert unlearner.history == (A,)


def test_names_of_methods_and_tasks():
    data, model = example()
    assert isinstance(gd.Unlearner(model, data).method, gd.GNNDelete)
    assert isinstance(gd.Unlearner(model, data, method="unlink").method, gd.Unlink)
    assert isinstance(gd.Unlearner(model, data, task="link", method="retrain").method, gd.Retrain)
    with pytest.raises(SettingError, match=r"'method' must be one of .*gnndelete, .*retrain, unlink.*'magic'"):
        gd.Unlearner(model, data, method="magic")
    with pytest.raises(SettingError, match=r"'task' must be one of .*node.*'magic'"):
        gd.Unlearner(model, data, task="magic")
    with pytest.raises(SettingError, match="'method'"):
        gd.Unlearner(model, data, method=3)


def test_a_method_that_does_not_fit_says_why_at_once():
    data, model = example()
    with pytest.raises(ModelError, match=r"'retrain' does not fit: nothing says how to train.*task="):
        gd.Unlearner(model, data, method="retrain")
    with pytest.raises(ModelError, match=r"'gnndelete' does not fit: .*no graph layers"):
        gd.Unlearner(nn.Linear(4, 4), data)


def test_a_held_out_edge_is_called_so():
    data, model = example()
    held, test = torch.tensor([[0], [9]]), torch.tensor([[3], [17]])
    task = gd.LinkPrediction(validation=held, test=test)
    unlearner = gd.Unlearner(model, data, task=task, method="unlink")
    with pytest.raises(
        DeletionError, match=r"2 .* were held out from training: \(0, 9\) \(for validation\), \(3, 17\)"
    ):
        unlearner.delete(gd.Deletion(edges=[(0, 9), (3, 4), (3, 17)]))
    with pytest.raises(DeletionError, match=r"does not exist: \(0, 8\).* trained on can be deleted"):
        unlearner.delete(gd.Deletion(edges=[(0, 8)]))
    with pytest.raises(DeletionError, match=r"not in the graph: \(0, 30\)"):
        unlearner.delete(gd.Deletion(edges=[(0, 30)]))
    assert unlearner.history == ()


def test_model_and_data_are_within_reach():
    data, model = example()
    unlearner = gd.Unlearner(model, data)
    assert unlearner.model is model
    assert unlearner.data.x is data.x


def test_a_state_belongs_to_a_graph_with_its_weights_and_labels(tmp_path):
    data, model = example()
    data.edge_weight, data.y = torch.rand(data.num_edges), torch.arange(30) % 3
    unlearner = gd.Unlearner(model, data)
    unlearner.delete(A)
    unlearner.save_state(tmp_path / "state.json")
    order = torch.randperm(data.num_edges)
    turned = data.clone()
    turned.edge_index, turned.edge_weight = data.edge_index[:, order], data.edge_weight[order]
    assert gd.Unlearner(model, turned).load_state(tmp_path / "state.json").history == (A,)
    for name, value in (("edge_weight", data.edge_weight.flip(0)), ("y", data.y.flip(0))):
        other = data.clone()
        other[name] = value
        with pytest.raises(AdapterError, match=f"a graph with other values of '{name}'"):
            gd.Unlearner(model, other).load_state(tmp_path / "state.json")


def test_a_graph_that_is_nearly_undirected_is_told(graph, gcn):
    said = "counts as directed"
    assert not any(said in note.text for note in gd.inspect(gcn, graph).notes)
    keep = torch.ones(104, dtype=torch.bool)
    keep[:2] = False  # (0, 1) and (1, 2) alone go: their reverses stay
    nearly, oneway = graph.edge_subgraph(keep), graph.edge_subgraph(graph.edge_index[0] < graph.edge_index[1])
    assert any("because 2 edges have no reverse" in note.text for note in gd.inspect(gcn, nearly).notes)
    assert not any(said in note.text for note in gd.inspect(gcn, oneway).notes), "this one is meant so"
    notes = gd.Unlearner(gcn, nearly, method="unlink").delete(gd.Deletion(edges=[(4, 5), (5, 6), (6, 5), (2, 1)])).notes
    assert ["the reverse of 1 deleted edge is still there" in note.text for note in notes if said in note.text] == [
        True
    ]
    assert not any(
        said in n.text for n in gd.Unlearner(gcn, nearly, method="unlink").delete(gd.Deletion(nodes=[4])).notes
    )
    assert not any(said in n.text for n in gd.Unlearner(gcn, graph).delete(gd.Deletion(edges=[(4, 5)])).notes)


@pytest.mark.parametrize("request_", [[(0, 1)], torch.tensor([[0], [1]]), {"edges": [(0, 1)]}, None])
def test_delete_wants_a_deletion(graph, gcn, request_):
    with pytest.raises(DeletionError) as caught:
        gd.Unlearner(gcn, graph).delete(request_)
    one_sentence(caught.value, type(request_).__name__, "Deletion(edges=")


def test_a_model_without_graph_layers(graph):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(ModelError) as caught:
        gd.Unlearner(model, graph)
    one_sentence(caught.value, "Sequential", "no graph layers", "layers=[")


def test_a_model_whose_arguments_the_graph_does_not_have(graph):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = gd.models.GCN(6)

        def forward(self, nodes, links):
            return self.conv(nodes, links)

    with pytest.raises(ModelError) as caught:
        gd.Unlearner(Odd(), graph).delete(gd.Deletion(edges=[(0, 1)]))
    one_sentence(caught.value, "Odd", "'nodes'", "forward=")
    forward = lambda model, data: model(data.x, data.edge_index)  # noqa: E731
    assert gd.Unlearner(Odd(), graph, forward=forward).delete(gd.Deletion(edges=[(0, 1)])).parameters
