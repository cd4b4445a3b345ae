"""Unlearning on many graphs: what is deleted in one leaves the others alone, whole graphs go, and batches know their rows."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.errors import ModelError
from gnndelete.methods import CONTROLS, resolver
from gnndelete.methods.base import Context
from gnndelete.nn.forward import call
from gnndelete.nn.operator import Operator

KINDS = ("gcn", "gin", "gat")
FORGOTTEN = (1, 4, 6, 9, 12, 15, 18, 21)


def make_graphs(count=60, seed=0):
    """Rings and paths with noise: two classes that a small model can learn."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for index in range(count):
        size = int(torch.randint(5, 9, (1,), generator=generator))
        ends = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
        ends = ends if index % 2 else ends[:, :-1]
        x = torch.randn(size, 4, generator=generator) + index % 2
        found.append(Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=torch.tensor([index % 2])))
    return found


SPLIT = {"train": range(36), "validation": range(36, 48), "test": range(48, 60)}


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    data = gd.datasets.collate(make_graphs(), SPLIT)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = gd.models.build(request.param, 4, hidden=8, out=2, pool="mean", num_layers=2)
    gd.train(model, data, "graph", epochs=12, lr=0.02, batch_size=12)
    return model.eval(), data


def output(model, data):
    with torch.no_grad():
        return call(model.eval(), data)


def unlearner(case, method=None, **options):
    model, data = case
    return gd.Unlearner(model, data, task="graph", method=method or gd.GNNDelete(lam=0.4), **options)


def test_an_operator_in_one_graph_never_changes_another(case):
    model, data = case
    edge = data.at(7, [[0], [1]])
    unlearned = unlearner(case).delete(gd.Deletion(edges=edge))
    assert unlearned.parameters > 0
    assert {int(g) for _, op in unlearned.adapter.operators for g in data.batch[op.rows]} == {7}
    before, after = output(model, data), output(unlearned.model, unlearned.data)
    others = torch.arange(data.num_graphs) != 7
    assert torch.equal(before[others], after[others])
    assert not torch.equal(before[7], after[7])


def test_a_deleted_graph_is_as_if_it_had_never_been_there_for_the_others(case):
    model, data = case
    unlearned = unlearner(case).delete(gd.Deletion(graphs=list(FORGOTTEN)))
    rest = [graph for graph in range(data.num_graphs) if graph not in FORGOTTEN]
    assert torch.allclose(output(unlearned.model, unlearned.data)[rest], output(model, data.select(rest)), atol=1e-6)
    again = output(unlearned.model, data)  # presented again: the operators act there, and only there
    base = output(model, data)
    assert torch.equal(again[rest], base[rest])
    assert not torch.isclose(again[list(FORGOTTEN)], base[list(FORGOTTEN)]).all(dim=1).any()


def test_a_deleted_node_leaves_the_graph_it_would_never_have_been_in(case):
    model, data = case
    unlearned = unlearner(case, "unlink").delete(gd.Deletion(nodes=data.at(3, [2])))
    alone = data.get_example(3)
    keep = torch.arange(alone.num_nodes) != 2
    expected = output(model, gd.datasets.collate([alone.subgraph(keep)]))
    assert torch.allclose(output(unlearned.model, unlearned.data)[3], expected[0], atol=1e-6)


def test_order_does_not_matter_and_a_sequence_is_one_request(case):
    data = case[1]
    parts = [gd.Deletion(graphs=[3]), gd.Deletion(edges=data.at(5, [[0], [1]])), gd.Deletion(nodes=data.at(8, [2]))]
    results = []
    for order in ((0, 1, 2), (2, 0, 1)):
        server = unlearner(case)
        for index in order:
            last = server.delete(parts[index])
        results.append(output(last.model, last.data))
    together = unlearner(case).delete(parts[0] | parts[1] | parts[2])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], output(together.model, together.data))
    assert together.deletion.counts == {"edges": 1, "nodes": 1, "graphs": 1}


def test_batches_with_their_rows_equal_the_whole(case):
    unlearned = unlearner(case).delete(gd.Deletion(graphs=[3], edges=case[1].at(5, [[0], [1]])))
    for presented in (unlearned.data, case[1]):
        whole = output(unlearned.model, presented)
        for batch in gd.datasets.graph_loader(presented, 7, shuffle=True, seed=1):
            with gd.rows(unlearned.model, batch.n_id):
                assert torch.allclose(output(unlearned.model, batch), whole[batch.graph_id], atol=1e-5)
    with pytest.raises(ModelError, match=r"gnndelete\.rows"):
        output(unlearned.model, batch)


def test_lam_zero_is_unlink(case):
    deletion = gd.Deletion(graphs=[3], edges=case[1].at(5, [[0], [1]]))
    kept, cut = (unlearner(case, method).delete(deletion) for method in (gd.GNNDelete(lam=0), "unlink"))
    assert torch.equal(output(kept.model, kept.data), output(cut.model, cut.data))
    assert kept.parameters == 0


def test_predict_and_evaluate(case):
    unlearned = unlearner(case).delete(gd.Deletion(graphs=[3]))
    chances = unlearned.predict([50, 2])
    assert chances.shape == (2, 2)
    assert torch.allclose(chances.sum(dim=1), torch.ones(2))
    assert set(unlearned.evaluate()) == {"test_auroc", "test_accuracy", "test_f1"}


def test_save_and_load(case, tmp_path):
    model, data = case
    server = unlearner(case)
    unlearned = server.delete(gd.Deletion(graphs=[3], nodes=data.at(8, [2])))
    unlearned.save(tmp_path / "adapter")
    loaded = gd.load(tmp_path / "adapter", model, unlearned.data, task="graph")
    assert torch.equal(loaded.predict(range(60)), unlearned.predict(range(60)))
    server.save_state(tmp_path / "state.json")
    again = unlearner(case).load_state(tmp_path / "state.json").compact()
    assert torch.equal(again.predict(range(60)), unlearned.predict(range(60)))
    assert again.deletion == unlearned.deletion


def test_lists_and_masks_given_to_the_task(case):
    model = case[0]
    ids = {name: list(part) for name, part in SPLIT.items()}
    listed = gd.Unlearner(model, make_graphs(), task=gd.GraphClassification(**ids), method=gd.GNNDelete(lam=0.4))
    a, b = listed.delete(gd.Deletion(graphs=[3])), unlearner(case).delete(gd.Deletion(graphs=[3]))
    assert torch.equal(a.predict(range(60)), b.predict(range(60)))
    assert a.evaluate() == b.evaluate()


def test_calibration_compares_with_held_out_graphs(case):
    done = unlearner(case, gd.GNNDelete()).delete(gd.Deletion(graphs=list(range(20))))
    assert done.calibration["status"] in ("reached", "already", "unreached")
    inside = unlearner(case, gd.GNNDelete()).delete(gd.Deletion(edges=case[1].at(5, [[0], [1]])))
    assert inside.calibration["status"] == "fallback"
    assert "within a graph" in inside.calibration["sentence"]
    unseen = unlearner(case, gd.GNNDelete()).delete(gd.Deletion(graphs=[50]))
    assert "learned from nothing that was deleted" in unseen.calibration["sentence"]


def test_training_on_parts_learns_and_repeats():
    data = gd.datasets.collate(make_graphs(), SPLIT)
    scores = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = gd.models.build("gin", 4, hidden=8, out=2, pool="add", norm=False)
        state = torch.random.get_rng_state()
        gd.train(model, data, "graph", epochs=20, lr=0.02, batch_size=10, seed=5)
        assert torch.equal(state, torch.random.get_rng_state())
        scores.append(gd.evaluate(model, data, gd.GraphClassification()))
    assert scores[0] == scores[1]
    assert scores[0]["auroc"] > 0.7


def test_every_method_serves_graphs_or_says_why_not(case):
    model, data = case
    context = Context(Session(model, data, call), task=gd.GraphClassification())
    for kind in [*resolver.lookup_dict.values(), *CONTROLS]:
        reasons = kind().unfit(context)
        assert all(reason.why and reason.remedy for reason in reasons)
        if reasons:
            continue
        small = {"epochs": 2} if kind.name in ("retrain", "gradascent") else {}
        done = unlearner(case, kind(**small)).delete(gd.Deletion(graphs=[3, 5]))
        assert bool(torch.isfinite(done.predict(range(60))).all()), kind.name
    with pytest.raises(ModelError, match="no loss of its own"):
        unlearner(case, "gradascent").delete(gd.Deletion(nodes=[2]))


def test_compare_and_audit(case):
    model, data = case
    deletion = gd.Deletion(graphs=list(range(12)))
    table = gd.compare(model, data, deletion, "graph", [gd.GNNDelete(lam=0.3), gd.Retrain(epochs=6, batch_size=12)])
    assert {row["label"] for row in table.rows} >= {"original", "retrain", "gnndelete (lam 0.3)", "zeroed"}
    assert all("error" not in row for row in table.rows)
    reference = unlearner(case, gd.Retrain(epochs=6, lr=0.02, batch_size=12)).delete(deletion)
    found = gd.audit(unlearner(case).delete(deletion), reference)
    values = found.to_dict()
    asked = values["forgetting"]["unseen"]
    assert not asked["served"]["available"]
    assert asked["old_id"]["available"]
    base = gd.audit(unlearner(case, "unlink").delete(deletion), attacks=False).to_dict()["forgetting"]["unseen"]
    # no operator acts on new ids, where only the weights speak: the untouched model answers the same on either
    assert asked["new_id"]["after"]["auc"] == pytest.approx(base["old_id"]["after"]["auc"])
    assert (
        values["membership"]["form"] == "graph" if values["membership"]["available"] else values["membership"]["reason"]
    )
    assert values["distance"]["agreement"]["count"] == 12
    assert "Graph classification".lower() in found.to_html().lower()
    edges = unlearner(case).delete(gd.Deletion(edges=data.at(5, [[0], [1]])))
    assert "within a graph" in gd.audit(edges, attacks=False).to_dict()["forgetting"]["reason"]


def test_integer_features_are_categories():
    generator = torch.Generator().manual_seed(0)
    listed = make_graphs(20)
    for graph in listed:
        graph.x = torch.randint(3, (graph.num_nodes, 2), generator=generator)
    data = gd.datasets.collate(listed)
    model = gd.models.build(
        "gcn", 2, out=1, pool="mean", categories=gd.models.Categories.sizes(data.x), hidden=8
    ).eval()
    unlearned = gd.Unlearner(model, data, task="graph", method=gd.GNNDelete(lam=0.5)).delete(gd.Deletion(graphs=[2]))
    assert unlearned.predict([0]).shape == (1, 2)
    rest = torch.arange(20) != 2
    assert torch.equal(output(unlearned.model, unlearned.data)[rest], output(model, data)[rest])


@pytest.mark.parametrize("method", [gd.GNNDelete(lam=0.5), *(control() for control in CONTROLS)], ids=lambda m: m.name)
def test_graphs_beyond_the_part_that_was_probed_are_forgotten_too(case, method):
    """Of 200 graphs 64 are probed; operators must act on the rows of every one."""
    model, _ = case
    data = gd.datasets.collate(make_graphs(200))
    deletion = gd.Deletion(graphs=[2, 199])
    unlearned = gd.Unlearner(model, data, task="graph", method=method).delete(deletion)
    inside = torch.isin(data.batch, torch.tensor([2, 199])).nonzero().flatten()
    for operator in (module for module in unlearned.model.modules() if isinstance(module, Operator)):
        assert operator.num_rows == data.num_nodes
        assert torch.equal(operator.rows.sort().values, inside)
    assert torch.isfinite(unlearned.predict(range(200))).all()


def test_the_reach_of_layers_is_measured_on_a_part_of_many_graphs(case):
    model, _ = case
    many = gd.inspect(model, make_graphs(200))
    few = gd.inspect(model, make_graphs(30))
    assert [(site.layer, site.hops, site.bounded) for site in many.sites] == [
        ("encoder.convs.0", 1, True),
        ("encoder.convs.1", 2, True),
    ]
    assert [site.hops for site in few.sites] == [1, 2]
    assert many.nodes > few.nodes


class Plain(torch.nn.Module):
    """Pools every row that there is."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = GCNConv(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x, edge_index, batch, num_graphs):
        return self.out(global_mean_pool(self.conv(x, edge_index).relu(), batch, num_graphs))


@pytest.mark.parametrize("method", ["unlink", "gnndelete"])
def test_a_pool_that_counts_deleted_nodes_is_told(case, method):
    code = "deleted-nodes-pooled"
    data = case[1]
    own = gd.Unlearner(Plain(), data, task="graph", method=method)
    assert any(note.code == code for note in own.delete(gd.Deletion(nodes=data.at(7, [0, 2]))).notes)
    assert not any(
        note.code == code for note in unlearner(case, method).delete(gd.Deletion(nodes=data.at(7, [0, 2]))).notes
    )
    rest = gd.Unlearner(Plain(), data, task="graph", method=method).delete(gd.Deletion(graphs=[7]))
    assert not any(note.code == code for note in rest.notes)


@pytest.mark.parametrize("lam", ["auto", 0.4])
def test_graphs_that_were_never_trained_on_get_no_operator(case, lam):
    said, method = "The model was trained on none of these graphs", gd.GNNDelete(lam=lam)
    unlearned = unlearner(case, method).delete(gd.Deletion(graphs=[50, 51]))
    assert (unlearned.assurance, unlearned.parameters) == ("inference-only", 0)
    assert any(said in note.text for note in unlearned.notes)
    assert not unlearned.data.alive[unlearned.data.batch == 50].any()
    inner = gd.Deletion(graphs=[50], nodes=case[1].at(52, [0]))
    for other in (gd.Deletion(graphs=[50, 1]), inner):
        found = unlearner(case, method).delete(other)
        assert not any(said in note.text for note in found.notes)
        assert found.parameters or lam == "auto"
