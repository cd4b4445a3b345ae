"""GPS: PyG's blocks in a stack; what it refuses; a deletion from training to the report, for it and for Graphormer."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, GPSConv

import gnndelete as gd
from gnndelete.errors import ModelError, SettingError
from gnndelete.models import GPS, build
from gnndelete.models.gps import GroupedAttention
from gnndelete.nn.reset import fresh

EDGES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]])


@pytest.mark.parametrize("attention", ["multihead", "performer"])
@pytest.mark.parametrize(("local", "kind"), [("gcn", GCNConv), ("gin", GINConv)])
@pytest.mark.parametrize("layers", [1, 3])
def test_layers(local: str, kind: type[nn.Module], attention: str, layers: int) -> None:
    model = build("GPS", 5, hidden=8, out=3, num_layers=layers, heads=2, local=local, attention=attention)
    assert model(torch.rand(4, 5), EDGES).shape == (4, 3)
    blocks = [module for module in model.modules() if isinstance(module, GPSConv)]
    assert [(block.heads, block.attn_type, type(block.conv)) for block in blocks] == [(2, attention, kind)] * layers


@pytest.mark.parametrize("name", ["gps", "graphormer"])
def test_default_is_the_papers_size(name: str) -> None:
    model = build(name, 5)
    assert (model.embed.out_features, model.head.out_features) == (128, 64)


@pytest.mark.parametrize(
    ("name", "options"), [("gps", {}), ("gps", {"attention": "performer"}), ("graphormer", {"edge_dim": 2})]
)
def test_every_weight_can_be_drawn_anew(name: str, options: dict[str, object]) -> None:
    model = build(name, 5, hidden=8, heads=2, **options)
    anew = dict(fresh(model, seed=1).named_parameters())  # raises where a weight is left out
    changed = {key for key, value in model.named_parameters() if not torch.equal(value, anew[key])}
    drawn = {key for key, value in model.named_parameters() if value.dim() > 1}
    assert drawn <= changed
    before = {key: value.clone() for key, value in model.named_parameters()}
    model.reset_parameters()
    assert not any(torch.equal(before[key], value) for key, value in model.named_parameters() if value.dim() > 1)


@pytest.mark.parametrize("name", ["gps", "graphormer"])
def test_dropout_only_while_training(name: str) -> None:
    model, x = build(name, 5, hidden=8, dropout=0.5), torch.randn(4, 5)
    assert not torch.equal(model(x, EDGES), model(x, EDGES))
    model.eval()
    assert torch.equal(model(x, EDGES), model(x, EDGES))


@pytest.mark.parametrize("attention", ["multihead", "performer"])
def test_graphs_of_one_batch_do_not_see_each_other(attention: str) -> None:
    torch.manual_seed(0)
    model = build("gps", 5, hidden=8, out=3, attention=attention, heads=2).eval()
    x, batch = torch.randn(8, 5), torch.tensor([0] * 4 + [1] * 4)
    both = torch.cat([EDGES, EDGES + 4], dim=1)
    with torch.no_grad():
        before = model(x, both, batch)
        torch.testing.assert_close(before[:4], model(x[:4], EDGES), rtol=1e-4, atol=1e-5)
        after = model(x.index_add(0, torch.tensor([5]), torch.ones(1, 5)), both, batch)
    assert torch.equal(before[:4], after[:4])
    assert not torch.equal(before[4:], after[4:])


@pytest.mark.parametrize("training", [False, True])
def test_attention_in_groups_equals_torchs_own(training: bool) -> None:
    torch.manual_seed(0)
    grouped, plain = GroupedAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
    plain.load_state_dict(grouped.state_dict(), strict=True)
    sizes = torch.tensor([3, 17, 1, 0, 6, 5, 20])
    padding = torch.arange(20) >= sizes[:, None]
    h = torch.randn(7, 20, 8).masked_fill(padding[..., None], 0.0)
    with torch.set_grad_enabled(training):
        found, _ = grouped.train(training)(h, h, h, key_padding_mask=padding, need_weights=False)
        expected, _ = plain.train(training)(h, h, h, key_padding_mask=padding, need_weights=False)
    torch.testing.assert_close(found[~padding], expected[~padding], rtol=1e-4, atol=1e-5)
    if training:
        found[~padding].sum().backward()
        expected[~padding].sum().backward()
        assert grouped.in_proj_weight.grad is not None
        torch.testing.assert_close(grouped.in_proj_weight.grad, plain.in_proj_weight.grad, rtol=1e-3, atol=1e-4)


def test_errors() -> None:
    with pytest.raises(SettingError, match=r"'hidden' must be a multiple of 'heads' \(got hidden=6 and heads=4\)"):
        GPS(5, hidden=6)
    with pytest.raises(SettingError, match=r"'local' must be 'gcn' or 'gin' \(got 'gat'\)"):
        GPS(5, local="gat")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"'attention' must be .* \(got 'bigbird'\)"):
        GPS(5, attention="bigbird")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"4 nodes has 16 pairs .*max_nodes=3.*attention='performer'"):
        GPS(5, max_nodes=3)(torch.rand(4, 5), EDGES)
    assert GPS(5, max_nodes=3, attention="performer")(torch.rand(4, 5), EDGES).shape == (4, 64)


@pytest.mark.parametrize("attention", ["multihead", "performer"])
def test_the_user_is_told_that_distance_bounds_nothing(graph: Data, attention: str) -> None:
    model = GPS(graph.num_features, hidden=8, out=5, heads=2, attention=attention).double()  # type: ignore[arg-type]
    graph = copy.copy(graph)
    graph.x = graph.x.double()  # small influences are not rounded away
    found = gd.inspect(model, graph)
    assert not found.bounded
    assert [site.layer for site in found.sites] == ["convs.0", "convs.1"]
    assert "distance does not bound the influence" in str(found)
    unlearned = gd.Unlearner(model, graph, method=gd.GNNDelete(lam=0.5)).delete(gd.Deletion(nodes=[4]))
    assert any("distance does not bound" in note.text for note in unlearned.notes)
    with_operators, without = unlearned.output(), gd.Unlearner(model, graph, method="unlink")
    changed = (with_operators != without.delete(gd.Deletion(nodes=[4])).output()).any(dim=1)
    assert bool(changed.all())  # every row, however far away


def test_the_papers_place_in_a_gps_layer_can_be_named(graph: Data) -> None:
    """The paper puts the operator behind the local layer inside; the library's place is the whole block."""
    model = GPS(graph.num_features, hidden=8, out=5, heads=2)
    method = gd.GNNDelete(lam=0.5, layers=["convs.0.conv", "convs.1.conv"])
    unlearned = gd.Unlearner(model, graph, method=method).delete(gd.Deletion(nodes=[4]))
    assert [place.layer for place, _ in unlearned.adapter.operators] == ["convs.0.conv", "convs.1.conv"]


def small(task: str) -> tuple[Data, gd.tasks.Task]:
    """Two hundred digits and their nearest neighbours."""
    data = gd.datasets.load("digits").subgraph(torch.arange(200))
    if task == "node":
        return gd.datasets.split_nodes(data, val=0.2, train=0.6), gd.NodeClassification()
    split = gd.datasets.split_links(data, val=0.15)
    return split.data, gd.LinkPrediction(validation=split.validation, test=split.test)


@pytest.mark.parametrize("task_name", ["node", "link"])
@pytest.mark.parametrize("name", ["gps", "graphormer"])
def test_from_training_to_the_report(name: str, task_name: str, tmp_path: Path) -> None:
    """The same calls as for any other model: train, delete with calibration, audit, save, load, delete more."""
    data, task = small(task_name)
    torch.manual_seed(0)
    model = build(name, data.num_features, hidden=16, out=10, heads=2)
    result = gd.train(model, data, task, epochs=30, lr=0.01)
    assert result.best_score is not None
    assert result.best_score > (0.6 if task_name == "node" else 0.8)
    edges = gd.datasets.forget_edges(data, 12, seed=1)
    deletion = gd.Deletion(edges=edges) if task_name == "link" else gd.Deletion(nodes=gd.datasets.forget_nodes(data, 4))
    unlearner = gd.Unlearner(model, data, task=task)
    unlearned = unlearner.delete(deletion)
    assert unlearned.assurance in ("approximate", "inference-only")
    retrained = gd.Unlearner(model, data, task=task, method=gd.Retrain(epochs=30, lr=0.01)).delete(deletion)
    audit = gd.audit(unlearned, reference=retrained, attacks=False)
    assert audit.to_dict()["utility"]
    score = "test_auroc" if task_name == "link" else "test_accuracy"
    assert unlearned.evaluate()[score] > retrained.evaluate()[score] - 0.15
    strong = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.5)).delete(deletion)
    strong.save(tmp_path)
    back = gd.load(tmp_path, model, data=strong.data, task=task)
    assert torch.equal(back.output(), strong.output())
    again = unlearner.delete(gd.Deletion(nodes=[11]))
    assert len(again.history) == 2


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
@pytest.mark.parametrize(("name", "options"), [("gps", {}), ("graphormer", {"edge_dim": 3})])
def test_another_device_says_the_same(graph: Data, name: str, options: dict[str, object]) -> None:
    torch.manual_seed(0)
    model = build(name, graph.num_features, hidden=8, heads=2, **options).eval()
    method = gd.GNNDelete(lam=0.5)
    here = gd.Unlearner(model, graph, method=method).delete(gd.Deletion(nodes=[4]))
    there = gd.Unlearner(model.to("cuda"), graph.clone().to("cuda"), method=method).delete(gd.Deletion(nodes=[4]))
    torch.testing.assert_close(there.output().cpu(), here.output(), rtol=1e-3, atol=1e-3)
