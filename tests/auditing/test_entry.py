"""The audit as a whole: planted cases and their verdicts, what it refuses, and what it writes."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.errors import AdapterError, DeletionError, GraphError, ModelError, SettingError
from gnndelete.methods.controls import UntrainedOperator, ZeroedEndpoints
from gnndelete.testing import problem

EPOCHS = 150


class Memory(nn.Module):
    """A GCN that looks at features and has a small vector of its own for every node."""

    def __init__(self, nodes: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 32)
        self.encoder = gd.models.GCN(features + 32, hidden=32, out=16)

    def forward(self, x, edge_index):
        return self.encoder(torch.cat([x, self.table.weight], dim=1), edge_index)


class Bench:
    """One trained model with a deletion, and every way of forgetting it."""

    def __init__(self, memory: bool) -> None:
        nodes, edges, size = (2000, 16000, 50) if memory else (1500, 12000, 30)
        graph = community_graph(nodes, edges, 16, classes=4, community=size, seed=3)
        split = gd.datasets.split_links(graph, seed=0, val=0.15, test=0.15)
        self.data = split.data
        self.task = gd.LinkPrediction(validation=split.validation, test=split.test)
        torch.manual_seed(0)
        self.model = Memory(nodes, 16) if memory else gd.models.GCN(16, hidden=32, out=16)
        self.fit(self.model, self.data, 0)
        self.deletion = gd.Deletion(edges=gd.datasets.forget_edges(self.data, 0.12, seed=1))
        self.retrained = self.by("retrain")

    def fit(self, model, data, seed):
        # no checkpoint is chosen on validation data: the last weights know the training edges best
        gd.train(model, data, self.task, epochs=EPOCHS, lr=0.01, seed=seed, validate_every=EPOCHS)
        return model

    def by(self, method):
        unlearner = gd.Unlearner(self.model, self.data, task=self.task, method=method, fit=self.fit)
        return unlearner.delete(self.deletion)


@pytest.fixture(scope="module")
def bench():
    return Bench(memory=True)


@pytest.fixture(scope="module")
def plain():
    return Bench(memory=False)


def quick(unlearned, reference=None, **options):
    return gd.audit(unlearned, reference, attacks=False, **options)


def test_the_calibrated_model_scores_like_unseen_data_and_unlink_does_not(bench):
    calibrated, unlinked = bench.by(gd.GNNDelete()), bench.by("unlink")
    for reference in (None, bench.retrained):
        assert quick(calibrated, reference).verdict.by_query["served"] == "indistinguishable"
    before = quick(unlinked, bench.retrained).to_dict()["forgetting"]["unseen"]["served"]
    after = quick(calibrated, bench.retrained).to_dict()["forgetting"]["unseen"]["served"]
    assert abs(after["gap"]) < abs(before["gap"])
    assert before["reference"] == after["reference"]


def test_a_retrained_model_is_indistinguishable(bench, plain):
    for case in (bench, plain):
        found = quick(case.retrained)
        assert found.verdict.code == "indistinguishable"
        assert found.to_dict()["done"]["assurance"] == "retrained"


def test_an_untouched_model_on_the_full_graph_is_under_forgotten(bench, plain):
    for case in (bench, plain):
        untouched = replace(case.by("unlink"), data=case.data)
        for reference in (None, case.retrained):
            found = quick(untouched, reference)
            assert found.verdict.code == "under-forgotten"
            assert f"still holds {case.deletion.edges.size(1)}" in found.to_dict()["verdict"]["text"]
            assert found.to_dict()["verdict"]["by_query"]["served"] == "under-forgotten"


def test_weights_destroyed_by_noise_are_ruin(bench):
    unlinked = bench.by("unlink")
    with torch.no_grad():
        for index, parameter in enumerate(unlinked.model.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
            parameter.add_(20 * parameter.std() * noise)
    found = quick(unlinked, bench.retrained)
    assert found.verdict.code == "ruined"
    assert "Its AUROC" in found.to_dict()["verdict"]["text"]
    with torch.no_grad():
        next(unlinked.model.parameters()).fill_(float("nan"))
    assert quick(unlinked, bench.retrained).verdict.code == "ruined"


@pytest.mark.parametrize("control", [ZeroedEndpoints, UntrainedOperator])
def test_controls_that_reach_the_papers_score_by_ruin_are_called_so(plain, control):
    found = quick(plain.by(control()), plain.retrained).to_dict()
    assert found["verdict"]["code"] == "ruined"
    assert quick(plain.by(control())).verdict.code == "ruined"


def test_ruin_around_a_small_deletion_is_seen_though_the_score_of_all_hardly_moves(plain):
    edges = gd.Deletion(edges=gd.datasets.forget_edges(plain.data, 4, seed=5))
    unlearned = gd.Unlearner(plain.model, plain.data, task=plain.task, method=ZeroedEndpoints()).delete(edges)
    found = quick(unlearned).to_dict()
    assert found["utility"]["metrics"]["auroc"]["after"] > 0.95 * found["utility"]["metrics"]["auroc"]["before"]
    assert found["verdict"]["code"] == "ruined"
    assert "Around the deletion" in found["verdict"]["text"]


def test_suppression_is_no_reproach_where_it_was_asked_for(plain):
    unlearned = plain.by(gd.GNNDelete.paper())
    assert quick(unlearned, plain.retrained).verdict.code == "suppressed"
    settings = {**unlearned.settings, "aim": "retrained"}
    assert quick(replace(unlearned, settings=settings), plain.retrained).verdict.code == "over-forgotten"


def test_moving_only_the_reported_score_is_under_forgetting(bench):
    """The deleted pairs answer exactly like unseen ones, and nothing else of the model has changed."""
    unlinked = bench.by("unlink")
    honest = unlinked.answers()
    nodes = bench.data.num_nodes
    gone = set((bench.deletion.edges[0] * nodes + bench.deletion.edges[1]).tolist())
    level = honest(bench.task.test.positives)

    def predict(edges):
        scores = honest(edges).clone()
        low, high = torch.as_tensor(edges).sort(dim=0).values
        for place, key in enumerate((low * nodes + high).tolist()):
            if key in gone:
                scores[place] = level[place % level.numel()]
        return scores

    found = quick(replace(unlinked, predictor=predict), bench.retrained).to_dict()
    assert found["verdict"]["by_query"]["served"] == "indistinguishable"
    assert found["verdict"]["code"] == "under-forgotten"
    assert "Only the reported scores" in found["verdict"]["text"]


def test_honest_operators_are_not_taken_for_moved_scores(bench, plain):
    for case in (bench, plain):
        for lam in (0.02, 0.3, 0.9):
            sentence = quick(case.by(gd.GNNDelete(lam=lam))).to_dict()["verdict"]["text"]
            assert "Only the reported" not in sentence


def test_under_a_new_id_only_the_weights_speak(plain, bench):
    strong = plain.by(gd.GNNDelete(lam=0.5))
    tests = quick(strong, plain.retrained).to_dict()["forgetting"]["unseen"]
    assert tests["served"]["after"]["auc"] < 0.4
    assert tests["old_id"]["after"]["auc"] < 0.4
    assert tests["new_id"]["after"]["auc"] > tests["old_id"]["after"]["auc"] + 0.05
    base = quick(plain.by("unlink"), plain.retrained).to_dict()["forgetting"]["unseen"]
    assert base["new_id"]["after"]["auc"] == pytest.approx(base["old_id"]["after"]["auc"], abs=1e-6)
    tests = quick(bench.by("unlink")).to_dict()["forgetting"]["unseen"]
    assert not tests["new_id"]["available"]
    assert "embedding table" in tests["new_id"]["reason"]


def test_sections_values_and_files(bench, tmp_path):
    found = gd.audit(bench.by(gd.GNNDelete()), bench.retrained, seed=3)
    values = found.to_dict()
    for section in ("utility", "forgetting", "membership", "trend", "distance", "outliers", "cost"):
        assert values[section]["available"], values[section]
    assert "maps no rows" in values["theorem"]["reason"], "vectors of nodes are corrected in their table"
    assert values["membership"]["before"]["auc"] > 0.55
    assert values["cost"]["ratio"] == pytest.approx(bench.retrained.seconds / values["cost"]["deletion"]["seconds"])
    assert values["calibration"]["lam"] == values["done"]["lam"]
    assert values["seed"] == 3
    found.save(tmp_path / "report")
    assert json.loads((tmp_path / "report" / "audit.json").read_text()) == json.loads(json.dumps(values))
    page = (tmp_path / "report" / "report.html").read_text()
    assert values["verdict"]["title"] in page
    assert len(page) < 3_000_000
    figures = {path.suffix for path in (tmp_path / "report" / "figures").iterdir()}
    assert figures == {".png", ".svg"}
    assert values["verdict"]["title"] in str(found)
    assert repr(found) == f"Audit(verdict='{found.verdict.code}', counts={bench.deletion.counts})"
    assert found.verdict.code in found._repr_html_().lower()


def test_the_same_seed_gives_the_same_audit_and_nothing_is_touched(plain):
    unlearned = plain.by(gd.GNNDelete(lam=0.2))
    before = copy.deepcopy(plain.model.state_dict()), torch.random.get_rng_state()
    first, second = (quick(unlearned, plain.retrained).to_dict() for _ in range(2))
    for values in (first, second):
        values.pop("seconds"), values.pop("created")
    assert first == second
    assert all(torch.equal(value, before[0][name]) for name, value in plain.model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), before[1])


def test_no_id_of_a_deleted_element_is_in_the_values(plain):
    """Asked with ids that cannot be mistaken for anything else."""
    model, data, task = problem("link")
    wide = gd.models.GCN(8, hidden=8, out=4)
    wide.load_state_dict(model.state_dict())
    deletion = gd.Deletion(edges=data.edge_index[:, :30])
    values = quick(gd.Unlearner(wide, data, task=task).delete(deletion)).to_dict()
    assert not any(key in json.dumps(values) for key in ('"edges": [', '"nodes": [', 'edge_index":'))
    assert values["request"]["counts"] == deletion.check(data).counts


def test_nodes_are_judged_where_they_are_presented_again(tmp_path):
    """A quarter of the labels is noise, which only training nodes are known by."""
    graph = community_graph(1000, 4000, 32, classes=3, community=100, seed=5)
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(1000, generator=generator) < 0.25
    graph.y = torch.where(noise, torch.randint(3, (1000,), generator=generator), graph.y)
    data = gd.datasets.split_nodes(graph, seed=0, train=0.5, val=0.25)

    def fit(model, data, seed):
        gd.train(model, data, "node", epochs=120, lr=0.01, seed=seed, validate_every=120)
        return model

    torch.manual_seed(0)
    model = fit(gd.models.GCN(32, hidden=64, out=3), data, 0)
    deletion = gd.Deletion(nodes=gd.datasets.forget_nodes(data, 60, seed=2))

    def by(method):
        return gd.Unlearner(model, data, task="node", method=method, fit=fit).delete(deletion)

    retrained = by("retrain")
    unlinked, calibrated = quick(by("unlink"), retrained), quick(by(gd.GNNDelete()), retrained)
    assert unlinked.verdict.code == "under-forgotten"
    word = calibrated.to_dict()["verdict"]
    assert word["by_query"]["old_id"] == "indistinguishable"
    assert calibrated.verdict.code == "undecided", (
        "ranks agree and scores do not: two trainings are at most .04 bits apart here"
    )
    assert "their scores are distributed differently" in word["text"]
    again = gd.Unlearner(model, data, task="node", method="retrain", fit=fit, seed=1).delete(deletion)
    assert quick(again, retrained).verdict.code == "indistinguishable"
    test = calibrated.to_dict()["forgetting"]["unseen"]["old_id"]
    assert test["before"]["auc"] > test["after"]["auc"] + 0.05
    assert abs(test["reference"]["auc"] - 0.5) < 0.1
    assert calibrated.to_dict()["verdict"]["by_query"]["new_id"] == "under-forgotten"
    assert any("new ids" in warning["text"] for warning in calibrated.to_dict()["verdict"]["warnings"])
    alone = quick(by(gd.GNNDelete())).to_dict()["verdict"]
    assert alone["by_query"]["served"] is None, "blank nodes all get one answer"
    assert alone["code"] == "indistinguishable"
    calibrated.save(tmp_path)


def test_edges_of_a_node_classifier_have_no_score_and_the_verdict_says_so():
    model, data, task = problem("node")
    found = quick(gd.Unlearner(model, data, task=task).delete(gd.Deletion(edges=data.edge_index[:, :9])))
    assert found.verdict.code == "undecided"
    assert "no score for an edge" in found.to_dict()["verdict"]["text"]


def test_one_deleted_edge_is_too_few_to_tell(plain):
    edges = gd.Deletion(edges=gd.datasets.forget_edges(plain.data, 1, seed=5))
    found = quick(gd.Unlearner(plain.model, plain.data, task=plain.task).delete(edges))
    assert found.verdict.code == "undecided"
    assert "too few" in found.to_dict()["verdict"]["text"]


@pytest.mark.parametrize(
    "method",
    [gd.GraphEraser(shards=2), gd.GraphEditor(own_model=True), gd.CertUnlearn(own_model=True), gd.GradAscent()],
    ids=lambda method: method.name,
)
def test_methods_of_every_kind_can_be_audited(method, tmp_path):
    model, data, task = problem("node")
    unlearner = gd.Unlearner(
        model, data, task=task, method=method, fit=lambda m, d, s: gd.train(m, d, task, epochs=5) and m
    )
    found = gd.audit(unlearner.delete(gd.Deletion(nodes=[3, 5, 8])), attacks=False)
    assert found.verdict.code in ("undecided", "ruined", "under-forgotten", "over-forgotten", "indistinguishable")
    found.save(tmp_path)


def test_what_does_not_belong_together_is_refused(plain, bench, tmp_path):
    unlearned = plain.by(gd.GNNDelete(lam=0.3))
    other = gd.Unlearner(plain.model, plain.data, task=plain.task, method="unlink").delete(
        gd.Deletion(edges=plain.data.edge_index[:, :4])
    )
    with pytest.raises(DeletionError, match="forgotten something else"):
        quick(unlearned, other)
    with pytest.raises(SettingError, match="'reference' must be"):
        quick(unlearned, "retrain")
    with pytest.raises(SettingError, match="what delete"):
        quick(plain.model)
    with pytest.raises(GraphError, match="neither what this deletion leaves"):
        quick(replace(unlearned, data=other.data))
    with pytest.raises(ModelError, match="no task"):
        quick(replace(unlearned, task=None))
    broken = replace(unlearned, adapter=copy.deepcopy(unlearned.adapter))
    with torch.no_grad():
        next(broken.adapter.operators[0][1].parameters())[0, 0] = float("nan")
    with pytest.raises(AdapterError, match="damaged"):
        quick(broken)


def test_an_adapter_from_disk(plain, tmp_path):
    unlearned = plain.by(gd.GNNDelete(lam=0.3))
    unlearned.save(tmp_path)
    loaded = gd.load(tmp_path, plain.model, data=unlearned.data, task=plain.task)
    with pytest.raises(DeletionError, match="pass deletion="):
        quick(loaded)
    found = quick(loaded, deletion=plain.deletion, original=plain.data)
    assert found.to_dict()["forgetting"] == quick(unlearned).to_dict()["forgetting"]
    named = {"deletion": plain.deletion, "original": plain.data}
    beside, direct = quick(loaded, plain.retrained, **named), quick(unlearned, plain.retrained)
    assert beside.to_dict()["distance"] == direct.to_dict()["distance"]
    other = gd.Unlearner(plain.model, plain.data, task=plain.task, method="unlink").delete(
        gd.Deletion(edges=plain.data.edge_index[:, :4])
    )
    with pytest.raises(DeletionError, match="forgotten something else"):
        quick(loaded, other, **named)
    with pytest.raises(GraphError, match="neither what this deletion leaves"):
        quick(loaded, deletion=gd.Deletion(edges=plain.data.edge_index[:, :3]), original=plain.data)
    _, data, _ = problem("link")
    with pytest.raises(AdapterError, match="another graph"):
        quick(replace(loaded, data=data), deletion=gd.Deletion(edges=data.edge_index[:, :3]), original=data)


def test_a_model_can_be_the_reference(plain):
    unlearned = plain.by(gd.GNNDelete(lam=0.3))
    by_model, by_result = (quick(unlearned, r).to_dict() for r in (plain.retrained.model, plain.retrained))
    assert by_model["forgetting"] == by_result["forgetting"]
    assert by_model["cost"]["reference"] is None
