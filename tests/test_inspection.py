"""What a user is told before anything is deleted."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import gnndelete as gd
from gnndelete.errors import GraphError, ModelError


@pytest.mark.filterwarnings("error:Unable to accurately infer")
def test_a_graph_without_features_is_named_once_and_not_warned_of(graph, gcn):
    without = Data(edge_index=graph.edge_index, y=graph.y[: int(graph.edge_index.max()) + 1])
    without.test_mask = torch.arange(without.y.numel()) < 9
    said = "needs the argument 'x', and the graph has no attribute of that name"
    assert said in (gd.inspect(gcn, without).error or "")
    for run in (
        lambda: gd.train(gcn, without, "node", epochs=1),
        lambda: gd.Unlearner(gcn, without).delete(gd.Deletion(nodes=[3])),
        lambda: gd.evaluate(gcn, without, "node"),
    ):
        with pytest.raises(ModelError, match=said):
            run()
    assert "num_nodes" not in without, "the user's own graph is as it was"
    without.y, without.test_mask = graph.y, None
    with pytest.raises(GraphError, match=r"48 entries for 46 nodes; give one class per node, or set data\.num_nodes"):
        gd.train(gcn, without, "node", epochs=1)


def test_it_reads_like_a_report(graph, gcn):
    text = str(gd.inspect(gcn, graph))
    for needle in (
        "Stack",
        "48 nodes",
        "undirected",
        "convs.0",
        "width 8",
        "1 hop",
        "2 hops",
        "89",
        "gnndelete",
        "fits",
    ):
        assert needle in text, text
    assert text.count("\n") > 5


def test_every_method_says_whether_it_fits_and_what_to_do(graph, gcn):
    found = gd.inspect(gcn, graph)
    assert set(found.methods) == set(gd.methods.resolver.lookup_dict)
    assert found.methods["gnndelete"] == found.methods["unlink"] == ()
    (reason,) = found.methods["retrain"]
    assert "nothing says how to train" in reason.why
    assert "task=" in reason.remedy
    assert "does not fit: nothing says" in str(found)
    assert gd.inspect(gcn, graph, task=gd.NodeClassification()).methods["retrain"] == ()
    assert gd.inspect(gcn, graph, fit=lambda model, data, seed: None).methods["retrain"] == ()


def test_a_model_without_graph_layers_is_explained_not_refused(graph):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    found = gd.inspect(model, graph)
    assert found.sites == ()
    assert found.parameters == 0
    assert "no graph layers" in found.methods["gnndelete"][0].why
    assert "could not be run" in found.methods["unlink"][0].why
    runs = gd.inspect(model, graph, forward=lambda model, data: model(data.x))
    assert "layers=[" in str(runs)
    assert runs.error is None
    assert runs.methods["unlink"] == ()
    named = gd.inspect(model, graph, layers=["0"], forward=lambda model, data: model(data.x))
    assert [(site.layer, site.hops) for site in named.sites] == [("0", 0)]


@pytest.mark.parametrize("name", ["gcn", "appnp", "three-calls", "gps-encoder", "plain"])
def test_both_sizes_are_those_of_an_adapter(make_subject, name):
    subject = make_subject(name)
    found = gd.inspect(subject.model, subject.data, layers=subject.case.layers)
    for operator, said in (("ring", found.ring_parameters), ("shared", found.parameters)):
        unlearned = subject.unlearner(subject.method(lam=0.5, operator=operator)).delete(subject.deletion)
        assert unlearned.parameters == said
        assert f"{said:,}" in str(found)


def test_a_model_that_does_not_run_is_an_error_first_and_fits_nothing(graph):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(6, 4)

        def forward(self, features, edges):
            return self.conv(features, edges)

    found = gd.inspect(Own(), graph)
    assert "'features'" in found.error
    assert str(found).splitlines()[2].startswith("error: the model could not be run")
    assert all(found.methods.values())
    assert not any(line.endswith(" fits") for line in str(found).splitlines())
    assert found.to_dict()["error"] == found.error
    runs = gd.inspect(Own(), graph, forward=lambda model, data: model(data.x, data.edge_index))
    assert (runs.error, runs.methods["gnndelete"]) == (None, ())


def test_layers_and_direction(graph, gcn):
    assert [site.layer for site in gd.inspect(gcn, graph, layers="last").sites] == ["convs.1"]
    assert [site.layer for site in gd.inspect(gcn, graph, layers=["convs.0"]).sites] == ["convs.0"]
    directed = Data(x=graph.x, edge_index=graph.edge_index[:, : graph.edge_index.size(1) // 2])
    found = gd.inspect(gcn, directed)
    assert not found.undirected
    assert [site.hops for site in found.sites] == [1, 2]


def test_it_can_be_written_down(graph, gcn, make_subject):
    for model, data in ((gcn, graph), ((s := make_subject("gps")).model, s.data)):
        found = gd.inspect(model, data)
        written = json.loads(json.dumps(found.to_dict()))
        assert written["methods"]["gnndelete"] == {"fits": True, "reasons": []}
        assert written["methods"]["retrain"]["reasons"][0].keys() == {"why", "remedy"}
        assert [site["layer"] for site in written["sites"]] == [site.layer for site in found.sites]
        assert written["hops"] == found.hops


def test_a_model_that_sees_everything_is_pointed_out(make_subject):
    subject = make_subject("graphnorm")
    found = gd.inspect(subject.model, subject.data)
    assert not found.bounded
    assert any("distance does not bound" in note.text for note in found.notes)
    assert "the whole graph" in str(found)


def test_random_state_is_left_alone(graph, gcn):
    state = torch.get_rng_state()
    gd.inspect(gcn, graph, task=gd.NodeClassification())
    gd.Unlearner(gcn, graph).delete(gd.Deletion(edges=[(3, 4)]))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_task_by_name_and_a_model_that_does_not_run(graph, gcn):
    assert gd.inspect(gcn, graph, task="node").methods["retrain"] == ()
    with pytest.raises(ModelError, match=r"does not run on the graph \(RuntimeError"):
        gd.Unlearner(gd.models.GCN(999), graph).delete(gd.Deletion(nodes=[1]))


def test_a_decoder_that_plays_no_part_is_said(graph, gcn):
    gcn.decode = lambda z, edges: z[edges[0]].sum(dim=-1)
    said = "not by the model's 'decode' method"
    assert any(said in note.text for note in gd.inspect(gcn, graph, task="link").notes)
    assert not any(said in note.text for note in gd.inspect(gcn, graph, task=gd.LinkPrediction(decoder="decode")).notes)
    assert not any(said in note.text for note in gd.inspect(gcn, graph, task="node").notes)


class ScoresEdges(nn.Module):
    """A link model as tutorials have it: ``forward`` ends in one logit for each edge."""

    def __init__(self, flat):
        super().__init__()
        self.conv, self.flat = GCNConv(6, 8), flat

    def encode(self, x, edge_index):
        return self.conv(x, edge_index)

    def decode(self, z, edges):
        return (z[edges[0]] * z[edges[1]]).sum(dim=-1)

    def forward(self, x, edge_index, edge_label_index):
        scores = self.decode(self.encode(x, edge_index), edge_label_index)
        return scores if self.flat else scores.view(-1, 1)


@pytest.mark.parametrize("flat", [True, False])
def test_scores_of_edges_are_not_taken_for_rows_of_nodes(graph, flat):
    data, model, deletion = graph.clone(), ScoresEdges(flat), gd.Deletion(edges=[(3, 4)])
    data.edge_label_index = data.edge_index
    shape = "104" if flat else "104, 1"
    said = rf"the model returned \[{shape}\] on 48 nodes, and a link task needs a vector for each node; .*\(decoder='decode'\)"
    assert gd.inspect(model, data).error is None, "without a task an output may be anything"
    found = gd.inspect(model, data, task="link")
    assert found.error is not None
    assert found.methods["gnndelete"]
    for run in (
        lambda: gd.train(model, data, "link", epochs=1),
        lambda: gd.train(model, data, gd.LinkPrediction(decoder="decode"), epochs=1),
        lambda: gd.evaluate(model, data, gd.LinkPrediction(test=[(0, 1)])),
        lambda: gd.Unlearner(model, data, task="link", method=gd.GNNDelete(lam=0.3)).delete(deletion),
        lambda: gd.Unlearner(model, data, task="link", method="unlink").delete(deletion),
    ):
        with pytest.raises(ModelError, match=said):
            run()
    with pytest.raises(ModelError, match=r"must return \[num_nodes, classes\]"):
        gd.Unlearner(model, data, task="node", method=gd.GNNDelete(lam=0.3)).delete(deletion)


@pytest.mark.parametrize("rows", [0, 1, 48])
def test_rows_beside_those_of_the_nodes_are_the_models_own_affair(graph, rows):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(6, 8)

        def forward(self, x, edge_index):
            z = self.conv(x, edge_index)
            return torch.cat([z, z[:rows]])

    gd.train(Wide(), graph, "link", epochs=1)
    encode = {"forward": lambda model, data: model.encode(data.x, data.edge_index)}
    assert gd.inspect(ScoresEdges(True), graph, task=gd.LinkPrediction(decoder="decode"), **encode).error is None
    unlearned = gd.Unlearner(Wide(), graph, task="link", method=gd.GNNDelete(lam=0.3)).delete(
        gd.Deletion(edges=[(3, 4)])
    )
    assert unlearned.predict([(3, 4)]).shape == (1,)


def test_a_model_that_ends_in_softmax_is_pointed_out(graph, gcn):
    said, forward = (
        "The model returns probabilities",
        lambda model, data: model(data.x, data.edge_index).softmax(dim=-1),
    )
    assert any(said in note.text for note in gd.inspect(gcn, graph, task="node", forward=forward).notes)
    assert not any(said in note.text for note in gd.inspect(gcn, graph, task="link", forward=forward).notes)
    assert not any(said in note.text for note in gd.inspect(gcn, graph, task="node").notes)
    unlearned = gd.Unlearner(gcn, graph, task="node", method=gd.GNNDelete(lam=0.3), forward=forward).delete(
        gd.Deletion(nodes=[3])
    )
    assert torch.equal(unlearned.predict([5, 6]), unlearned.output()[[5, 6]])


class Beside(nn.Module):
    """Runs on more rows than there are nodes, or on the nodes in another dimension, and returns those of the nodes."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.conv, self.own = kind, GCNConv(6, 5), nn.Identity()

    def forward(self, x, edge_index):
        count = x.size(0)
        if self.kind == "steps":
            return self.own(self.conv(torch.stack([x, 2 * x]), edge_index).sum(dim=0))
        rows = torch.cat([x, x[:1] if self.kind == "virtual" else x])
        return self.own(self.conv(rows, edge_index)[:count])


@pytest.mark.parametrize("kind", ["virtual", "copies", "steps"])
def test_rows_beside_those_of_the_nodes_are_named_with_the_way_out(graph, kind):
    model, deletion = Beside(kind), gd.Deletion(edges=[(3, 4)])
    with pytest.raises(ModelError, match=r"none of the layers conv of 'Beside' gave one row per node") as caught:
        gd.Unlearner(model, graph, method=gd.GNNDelete(lam=0.3)).delete(deletion)
    assert "(48 nodes); where there are other rows" in str(caught.value)
    assert "layers=[…]" in str(caught.value)
    (reason,) = gd.inspect(model, graph).methods["gnndelete"]
    assert str(reason) == str(caught.value)
    assert gd.Unlearner(model, graph, method=gd.GNNDelete(lam=0.3, layers=["own"])).delete(deletion).parameters
    assert gd.inspect(model, graph, layers=["own"]).methods["gnndelete"] == ()
