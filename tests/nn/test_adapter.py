"""Adapters on disk: what is in them, what is not, and what they refuse."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch_geometric.data import Data, HeteroData

import gnndelete as gd
from gnndelete.errors import AdapterError, RequestError, RunError, SettingError
from gnndelete.graph.batch import collate
from gnndelete.graph.fingerprint import attributes
from gnndelete.nn import adapter as adapters
from gnndelete.nn.adapter import CARD, CONFIG, TENSORS


@pytest.fixture
def unlearned(graph, gcn):
    return gd.Unlearner(gcn, graph, method=gd.GNNDelete(lam=0.3)).delete(gd.Deletion(edges=[(3, 4), (20, 22)]))


@pytest.fixture
def folder(unlearned, tmp_path):
    unlearned.save(tmp_path / "out")
    return tmp_path / "out"


def test_three_files(folder, unlearned):
    assert sorted(path.name for path in folder.iterdir()) == sorted([CONFIG, TENSORS, CARD])
    assert {CONFIG, TENSORS, CARD} == {"adapter_config.json", "adapter_model.safetensors", "README.md"}
    config = json.loads((folder / CONFIG).read_text())
    assert config["settings"]["lam"] == 0.3
    assert config["counts"] == {"edges": 2}
    assert config["assurance"] == "approximate"
    assert [place["layer"] for place in config["operators"]] == ["convs.0", "convs.1"]
    tensors = load_file(folder / TENSORS)
    assert sum(t.numel() for name, t in tensors.items() if "weight" in name) == unlearned.parameters


def test_the_card_says_what_a_finder_must_know(folder):
    card = (folder / CARD).read_text()
    for needle in ("approximate", "base weights", "2 edges", "remaining graph", "`0.3`", "convs.1", "given"):
        assert needle in card


def test_the_card_of_an_empty_adapter_says_that_it_is_empty(graph, gcn, tmp_path):
    gd.Unlearner(gcn, graph, method=gd.GNNDelete(lam=0.0)).delete(gd.Deletion(edges=[(3, 4)])).save(tmp_path / "out")
    card = (tmp_path / "out" / CARD).read_text()
    assert "This adapter is empty" in card
    assert "1 edge" in card
    for wrong in ("makes the base model forget", "| layer |", "rows in the tensors", "old model back"):
        assert wrong not in card


def test_the_card_says_what_calibration_found_once_and_no_setting_of_the_other_solver(graph, gcn, tmp_path):
    task = gd.LinkPrediction(validation=torch.tensor([[0, 5], [7, 20]]))
    found = gd.Unlearner(gcn, graph, task=task).delete(gd.Deletion(edges=[(3, 4)]))
    found.save(tmp_path / "out")
    card = (tmp_path / "out" / CARD).read_text()
    assert card.count(found.calibration["sentence"].removesuffix(".")) == 1
    assert "| solver |" in card
    assert "| epochs |" not in card


def test_a_folder_with_other_files_is_refused_and_an_adapter_replaced(unlearned, folder, tmp_path):
    (tmp_path / "README.md").write_text("my project")
    with pytest.raises(AdapterError, match="holds other files and no adapter"):
        unlearned.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my project"
    with pytest.raises(AdapterError, match="is a file"):
        unlearned.save(tmp_path / "README.md")
    unlearned.save(folder)
    (tmp_path / "empty").mkdir()
    unlearned.save(tmp_path / "empty")
    assert (tmp_path / "empty" / CONFIG).exists()


def test_a_loaded_adapter_knows_how_much_was_forgotten(folder, gcn, unlearned):
    back = gd.load(folder, gcn, data=unlearned.data)
    assert back.counts == unlearned.counts == {"edges": 2}
    assert str(back).startswith("gnndelete: 2 edges forgotten")
    assert back.summary()["counts"] == {"edges": 2}
    assert back.summary()["requests"] == 1


def test_deleted_pairs_and_weights_of_the_base_model_are_not_in_the_files(folder, gcn, unlearned):
    config = json.loads((folder / CONFIG).read_text())
    tensors = load_file(folder / TENSORS)

    def lists(value):
        if isinstance(value, dict):
            return [x for item in value.values() for x in lists(item)]
        if isinstance(value, list):
            return [value, *(x for item in value for x in lists(item))]
        return []

    assert not any(found in ([3, 4], [20, 22], [4, 3], [22, 20]) for found in lists(config))
    assert unlearned.deletion.fingerprint not in (folder / CONFIG).read_text()
    for name, tensor in tensors.items():
        if not name.endswith("rows"):
            assert name.endswith("weight")
            continue
        assert tensor.dim() == 1, "rows are nodes, not pairs"
        assert {3, 4, 20, 22} <= set(tensor.tolist())
        ends = tensor[: config["operators"][0]["sizes"][0]].tolist()
        assert ends == sorted(ends), "their order does not say who belongs to whom"
    assert not any(t.shape == p.shape and torch.equal(t, p) for t in tensors.values() for p in gcn.parameters())


def test_loading_leaves_the_base_model_alone(folder, gcn, graph, snapshot, unlearned):
    before = snapshot(gcn, graph)
    back = gd.load(folder, gcn, data=unlearned.data, task="node")
    assert snapshot(gcn, graph) == before
    assert back.model is not gcn
    assert back.settings == unlearned.settings
    assert back.seconds == unlearned.seconds
    assert back.history == ()
    torch.testing.assert_close(back.predict([3]).sum(), torch.tensor(1.0))


def test_without_its_graph_it_serves_the_model_alone(folder, gcn, unlearned, run):
    back = gd.load(folder, gcn)
    assert torch.equal(run(back.model, unlearned.data), run(unlearned.model, unlearned.data))
    with pytest.raises(RequestError, match="without a graph; pass data="):
        back.output()
    with pytest.raises(AdapterError, match="without a graph; load it with data="):
        back.save(folder)


def test_an_adapter_can_be_saved_again(folder, gcn, unlearned, tmp_path, run):
    gd.load(folder, gcn, data=unlearned.data).save(tmp_path / "again")
    back = gd.load(tmp_path / "again", gcn, data=unlearned.data)
    assert torch.equal(run(back.model, back.data), run(unlearned.model, unlearned.data))
    first, second = (json.loads((path / CONFIG).read_text()) for path in (folder, tmp_path / "again"))
    assert first == second


def test_another_base_model_is_refused(folder, gcn, unlearned, make_subject):
    with torch.no_grad():
        gcn.convs[0].bias[0] += 1e-3
    with pytest.raises(AdapterError, match=r"another base model \('Stack' with fingerprint [0-9a-f]{12}, got"):
        gd.load(folder, gcn, data=unlearned.data)
    with pytest.raises(AdapterError, match="another base model"):
        gd.load(folder, make_subject("gat").model)


def test_another_graph_is_refused_and_the_original_one_by_name(folder, gcn, graph, unlearned):
    with pytest.raises(AdapterError, match=r"graph before the deletion.*pass unlearned.data"):
        gd.load(folder, gcn, data=graph)
    for change in ("x", "edge"):
        other = unlearned.data.clone()
        if change == "x":
            other.x[0, 0] += 1
        else:
            other.edge_index = other.edge_index[:, 1:]
        with pytest.raises(AdapterError, match="made on another graph"):
            gd.load(folder, gcn, data=other)
    shuffled = unlearned.data.clone()
    shuffled.edge_index = shuffled.edge_index.flip(1)
    shuffled.edge_weight, shuffled.edge_attr = shuffled.edge_weight.flip(0), shuffled.edge_attr.flip(0)
    gd.load(folder, gcn, data=shuffled)  # the order of the edges is no other graph


def test_an_unknown_task_is_refused(folder, gcn):
    with pytest.raises(SettingError, match=r"'task' must be one of .*link.* .got 'nope'"):
        gd.load(folder, gcn, task="nope")


def truncated(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


def emptied(path):
    path.write_bytes(b"")


def removed(path):
    path.unlink()


def without(*names):
    def cut(path):
        config = json.loads(path.read_text())
        for name in (*names, "sha256"):
            del config[name]
        path.write_bytes(adapters._config_bytes(config))

    return cut


def changed(**values):
    def change(path):
        config = json.loads(path.read_text())
        del config["sha256"]
        path.write_bytes(adapters._config_bytes({**config, **values}))

    return change


DAMAGE = [
    (TENSORS, truncated),
    (TENSORS, flipped),
    (TENSORS, emptied),
    (TENSORS, removed),
    (CONFIG, truncated),
    (CONFIG, emptied),
    (CONFIG, removed),
    (CONFIG, without("base_fingerprint")),
    (CONFIG, without("operators")),
    (CONFIG, without("method", "settings")),
    (CONFIG, changed(format=99)),
    (CONFIG, changed(operators=[{}])),
    (CONFIG, changed(operators=[{"layer": "nowhere"}])),
    (CONFIG, changed(base_fingerprint=None)),
    (CONFIG, changed(base_fingerprint=3)),
    (CONFIG, changed(remaining_fingerprint=None)),
    (CONFIG, changed(remaining_attributes=["x"])),
    (CONFIG, changed(assurance="<script>")),
    (CONFIG, changed(notes=[3])),
    (CONFIG, changed(settings=[])),
    (CONFIG, changed(operators={})),
    (CONFIG, lambda path: path.write_text("[" * 100_000)),
    (CONFIG, lambda path: path.write_text("9" * 10_000)),
    (CONFIG, lambda path: path.write_text(path.read_text().replace('"approximate"', '"retrained"'))),
    (CONFIG, lambda path: path.write_text(path.read_text().replace('"operators": [', '"operators": [], "x": ['))),
    (CONFIG, lambda path: path.write_text("[1, 2]")),
    (CONFIG, lambda path: path.write_bytes(b"\xff\xfe\x81")),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_damaged_files_are_refused(folder, gcn, unlearned, name, damage):
    damage(folder / name)
    with pytest.raises(AdapterError) as caught:
        gd.load(folder, gcn, data=unlearned.data)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_flip_of_a_bit_in_the_config_is_refused(folder, gcn, unlearned):
    content = (folder / CONFIG).read_bytes()
    for place in range(0, len(content)):
        other = bytearray(content)
        other[place] ^= 1 << place % 8
        (folder / CONFIG).write_bytes(other)
        with pytest.raises(AdapterError):
            adapters.read_config(folder)


def test_files_of_two_adapters_do_not_mix(folder, gcn, graph, tmp_path):
    """Same rows and shapes, other weights: only the whole adapter may be loaded."""
    other = gd.Unlearner(gcn, graph, method=gd.GNNDelete(lam=0.9)).delete(gd.Deletion(edges=[(3, 4), (20, 22)]))
    other.save(tmp_path / "other")
    (folder / TENSORS).write_bytes((tmp_path / "other" / TENSORS).read_bytes())
    with pytest.raises(AdapterError):
        gd.load(folder, gcn)


@pytest.mark.parametrize("stage", range(3))
def test_a_failing_write_leaves_the_earlier_adapter_whole(folder, gcn, graph, monkeypatch, stage):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = gd.Unlearner(gcn, graph).delete(gd.Deletion(edges=[(9, 10)]))
    real, calls = os.fsync, 0

    def full(descriptor):
        nonlocal calls
        calls += 1
        if calls > stage:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"could not write to .*No space left.*unchanged"):
        other.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def mlp(width):
    return nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, width))


def test_operators_of_ones_own_come_back_with_their_factory(graph, gcn, tmp_path, run):
    method = gd.GNNDelete(solver="gradient", operator=mlp, epochs=3)
    unlearned = gd.Unlearner(gcn, graph, method=method).delete(gd.Deletion(edges=[(3, 4)]))
    unlearned.save(tmp_path)
    with pytest.raises(AdapterError, match="pass operator="):
        gd.load(tmp_path, gcn)
    back = gd.load(tmp_path, gcn, data=unlearned.data, operator=mlp)
    assert torch.equal(run(back.model, back.data), run(unlearned.model, unlearned.data))
    with pytest.raises(AdapterError, match="damaged"):
        gd.load(tmp_path, gcn, operator=lambda width: nn.Linear(width, width))


@pytest.mark.parametrize("method", ["unlink", gd.Retrain(epochs=1)])
def test_methods_without_an_adapter_say_what_to_keep(graph, gcn, tmp_path, method):
    unlearned = gd.Unlearner(gcn, graph, task="node", method=method).delete(gd.Deletion(edges=[(3, 4)]))
    with pytest.raises(AdapterError, match="makes no adapter; keep the whole model"):
        unlearned.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_method_with_models_of_its_own_says_what_to_keep(graph, gcn, tmp_path):
    eraser = gd.methods.GraphEraser(shards=2, epochs=2)
    unlearned = gd.Unlearner(gcn, graph, task="node", method=eraser).delete(gd.Deletion(edges=[(3, 4)]))
    with pytest.raises(AdapterError, match=r"models of its own.*unlearner\.save_state"):
        unlearned.save(tmp_path / "out")


def test_weights_of_edges_belong_to_the_graph(graph, gcn, tmp_path):
    unlearned = gd.Unlearner(gcn, graph, method=gd.GNNDelete(lam=0.3)).delete(gd.Deletion(edges=[(3, 4)]))
    unlearned.save(tmp_path / "adapter")
    left = unlearned.data
    order = torch.randperm(left.num_edges)
    turned = left.clone()
    for name in ("edge_index", "edge_weight", "edge_attr"):
        turned[name] = left[name][:, order] if name == "edge_index" else left[name][order]
    assert gd.load(tmp_path / "adapter", gcn, data=turned).output().shape == unlearned.output().shape
    bare = Data(x=left.x, edge_index=left.edge_index)  # a model that reads no weights is served without
    assert gd.load(tmp_path / "adapter", gcn, data=bare)
    other = left.clone()
    other.edge_weight = other.edge_weight * 100
    with pytest.raises(AdapterError, match="made on a graph with other values of 'edge_weight'"):
        gd.load(tmp_path / "adapter", gcn, data=other)


def test_attributes_of_every_shape_are_written_down(graph, gcn, tmp_path):
    count = graph.num_edges
    graph.neg_edge_index = torch.randint(0, 9, (2, count))
    graph.edge_names = [str(place) for place in range(count)]
    graph.edge_scale = torch.rand(count, requires_grad=True)
    graph.edge_flag = torch.eye(count, 3).to_sparse()
    graph.pos = torch.randn(graph.num_nodes, 2)
    unlearned = gd.Unlearner(gcn, graph, method=gd.GNNDelete(lam=0.3)).delete(gd.Deletion(edges=[(3, 4)]))
    unlearned.save(tmp_path / "adapter")
    assert gd.load(tmp_path / "adapter", gcn, data=unlearned.data)
    moved = unlearned.data.clone()
    moved.pos = moved.pos + 1
    with pytest.raises(AdapterError, match="other values of 'pos'"):
        gd.load(tmp_path / "adapter", gcn, data=moved)


def test_parallel_edges_and_edges_of_which_none_is_left():
    edges = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 2]])
    data = Data(edge_index=edges, edge_attr=torch.tensor([[1.0, 2.0], [0.0, 5.0], [1.0, 1.0], [3.0, 3.0]]), num_nodes=3)
    order = torch.tensor([2, 3, 0, 1])
    turned = Data(edge_index=edges[:, order], edge_attr=data.edge_attr[order], num_nodes=3)
    assert attributes(data) == attributes(turned)
    data.edge_weight = torch.tensor([0.5, 0.1, 0.9, 2.0])
    turned.edge_weight = data.edge_weight[order]
    assert attributes(data) == attributes(turned)
    other = Data(edge_index=edges, edge_attr=data.edge_attr.flip(0), num_nodes=3)
    assert attributes(data) != attributes(other)
    hetero = HeteroData({"a": {"x": torch.ones(3, 1)}})
    hetero["a", "few", "a"].edge_index = torch.empty(2, 0, dtype=torch.long)
    hetero["a", "few", "a"].edge_attr = torch.empty(0, 2)
    assert list(attributes(collate(hetero))) == ["edge_attr of ('a', 'few', 'a')"]


WRAPPED = {"compiled": lambda model: torch.compile(model, backend="eager"), "parallel": nn.DataParallel}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_an_adapter_passes_between_a_model_and_its_wrapped_self(graph, gcn, unlearned, folder, tmp_path, wrap):
    other = gd.Unlearner(wrap(gcn), graph, method=gd.GNNDelete(lam=0.3)).delete(gd.Deletion(edges=[(3, 4), (20, 22)]))
    other.save(tmp_path / "wrapped")
    first, second = (json.loads((place / CONFIG).read_text()) for place in (folder, tmp_path / "wrapped"))
    for name in ("base_fingerprint", "base_model", "operators"):
        assert first[name] == second[name]
    for place in (folder, tmp_path / "wrapped"):
        for model in (gcn, wrap(gcn), nn.DataParallel(wrap(gcn))):
            assert torch.equal(gd.load(place, model, unlearned.data).output(), unlearned.output())
    with pytest.raises(AdapterError, match="another base model"):
        gd.load(folder, wrap(gd.models.GCN(6, hidden=8, out=5)))


def test_parts_of_a_model_may_be_compiled_and_called_module(graph, tmp_path):
    class Outer(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.module = inner  # a name like any other, and no wrapper

        def forward(self, x, edge_index):
            return self.module(x, edge_index)

    inner = gd.models.GCN(6, hidden=8, out=5)
    compiled, plain = Outer(torch.compile(inner, backend="eager")), Outer(inner)
    unlearned = gd.Unlearner(plain, graph, method=gd.GNNDelete(lam=0.3)).delete(gd.Deletion(edges=[(3, 4)]))
    unlearned.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / CONFIG).read_text())["operators"][0]["layer"] == "module.convs.0"
    for model in (plain, compiled):
        assert torch.equal(gd.load(tmp_path / "out", model, unlearned.data).output(), unlearned.output())
    with pytest.raises(AdapterError, match="another base model"):
        gd.load(tmp_path / "out", Outer(plain))
