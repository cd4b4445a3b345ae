"""Choosing lam: both aims on made-up curves, then on models that really remember."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.errors import ModelError
from gnndelete.methods.gnndelete.calibration import (
    ACTIONS,
    CUTTING,
    FREE_LAM,
    LARGEST_LAM,
    MARK,
    MAX_TRIALS,
    as_nonexistent,
    as_retrained,
)
from gnndelete.methods.gnndelete.forgetting_score import Trial
from gnndelete.testing import problem


def curve(auc, utility=lambda lam: 0.9 - 0.01 * lam, se=0.01):
    return lambda lam: Trial(lam, auc(lam), se, utility(lam))


@pytest.mark.parametrize(
    "auc",
    [
        lambda lam: 0.53 - lam,
        lambda lam: 0.66 - 0.5 * lam,
        lambda lam: 0.52 - 3 * lam,
        lambda lam: 0.6 - 0.25 * lam**0.5,
        lambda lam: 0.5 + 0.2 * (1 - lam * 1.5) ** 3,
        lambda lam: 0.55 - 30 * lam if lam < 0.01 else 0.25 - 0.1 * lam,
    ],
)
def test_as_retrained_finds_the_middle_in_few_trials(auc):
    found = as_retrained(curve(auc))
    assert found.status == "reached"
    assert abs(auc(found.lam) - 0.5) <= 0.01
    assert len(found.trials) <= MAX_TRIALS
    assert not found.retrain_recommended


def test_the_smallest_change_where_cutting_is_enough():
    found = as_retrained(curve(lambda lam: 0.508 - lam))
    assert (found.status, found.lam, len(found.trials)) == ("already", 0.0, 1)
    assert "Cutting the graph is enough: deleted elements score like unseen ones" in found.sentence
    assert as_retrained(curve(lambda lam: 0.43 - lam)).lam == 0


def test_where_no_lam_reaches_it_retraining_is_recommended_with_the_figure():
    found = as_retrained(curve(lambda lam: 0.7 - 0.1 * lam, lambda lam: 0.9))
    assert found.status == "unreached"
    assert found.retrain_recommended
    assert "0.600" in found.sentence
    assert "costs nothing" in found.sentence
    assert "Regrow or retrain to forget" in found.sentence
    assert found.lam == FREE_LAM


def test_a_lam_that_marks_the_nodes_is_not_taken():
    def measure(lam):
        return Trial(lam, auc=0.7 - 0.3 * lam, se=0.01, utility=0.9, mark=0.5 * lam)

    found = as_retrained(measure)
    assert (found.status, found.retrain_recommended) == ("unreached", True)
    assert found.lam <= 0.12
    assert "a mark on its nodes" in found.sentence


def test_ranks_that_users_would_miss_count_as_a_loss():
    def measure(lam):
        return Trial(lam, auc=0.6 - 0.2 * lam, se=0.01, utility=0.9, mrr=0.3 - 0.2 * lam)

    found = as_retrained(measure)
    assert (found.status, found.lam) == ("unreached", 0.0)
    assert as_nonexistent(measure, 0.01).lam < 0.05
    assert "of the mean reciprocal rank in lists" in as_nonexistent(measure, 0.01).sentence


def test_suppression_that_its_budget_does_not_buy_is_not_called_reached():
    found = as_nonexistent(lambda lam: Trial(lam, auc=0.7 - 0.2 * lam, se=0.01, utility=0.9 - 0.05 * lam), 0.01)
    assert found.status == "unreached"
    assert "not enough" in found.sentence


def test_what_gains_next_to_nothing_is_not_paid_for_where_nothing_reaches_it():
    found = as_retrained(curve(lambda lam: 0.66 - 0.005 * lam, lambda lam: 0.9 - 0.05 * lam, se=0.05))
    assert (found.status, found.lam, found.retrain_recommended) == ("unreached", 0.0, True)


def test_answers_that_are_no_numbers_are_refused():
    model, data, task = problem("node")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    unlearner = gd.Unlearner(model, data, task=task)
    with pytest.raises(ModelError, match="nothing but NaN and infinite values; look for them in its weights"):
        unlearner.delete(gd.Deletion(nodes=data.train_mask.nonzero().flatten()[:5]))


def test_what_reaches_it_at_a_cost_says_so_and_at_a_high_cost_is_not_taken():
    found = as_retrained(curve(lambda lam: 0.6 - 0.2 * lam, lambda lam: 0.9 - 0.04 * lam))
    assert found.status == "reached"
    assert not found.retrain_recommended
    assert "costs 0.02" in found.sentence
    for cost in (0.08, 0.2):
        found = as_retrained(curve(lambda lam: 0.6 - 0.2 * lam, lambda lam, cost=cost: 0.9 - cost * lam))
        assert (found.status, found.lam, found.retrain_recommended) == ("unreached", 0.0, True)
        assert "lam stays 0" in found.sentence


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("budget", [0.003, 0.01, 0.05])
def test_as_nonexistent_takes_the_strongest_lam_within_the_budget(power, budget):
    """As long as forgetting goes on."""
    found = as_nonexistent(curve(lambda lam: 1 - 5 * lam, lambda lam: 0.9 - 0.06 * lam**power), budget)
    lost = 0.06 * found.lam**power
    assert lost <= budget
    assert lost >= 0.6 * budget or found.lam == LARGEST_LAM
    assert len(found.trials) <= MAX_TRIALS


def test_what_is_forgotten_already_is_not_paid_for():
    found = as_nonexistent(curve(lambda lam: max(0.5 - 2 * lam, 0.01), lambda lam: 0.9 - 0.02 * lam), 0.01)
    assert 0.24 < found.lam < 0.4, "a quarter is enough, a half stays within the budget"
    assert "nearly as much as the budget of 0.01 would buy" in found.sentence
    assert len(found.trials) <= MAX_TRIALS


def test_a_budget_that_nothing_keeps_leaves_the_graph_cut():
    found = as_nonexistent(curve(lambda lam: 0.5, lambda lam: 0.9 - 0.1 * (lam > 0)), 0.01)
    assert (found.lam, found.status) == (0.0, "unreached")


class Memory(nn.Module):
    """A GCN with a trained vector per node: it remembers single nodes and their edges."""

    def __init__(self, nodes: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 16)
        self.encoder = gd.models.GCN(features + 16, hidden=32, out=16)

    def forward(self, x, edge_index):
        return self.encoder(torch.cat([x, self.table.weight], dim=1), edge_index)


@pytest.fixture(scope="module")
def memory():
    graph = community_graph(400, 3000, 8, classes=4, community=100, seed=4)
    split = gd.datasets.split_links(graph, seed=0, val=0.15, test=0.15)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = Memory(400, 8)
    gd.train(model, split.data, task, epochs=300, lr=0.01, seed=0)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(split.data, 0.1, seed=1))
    return model, split.data, task, deletion


def test_on_a_model_that_remembers_lam_is_found_and_stated(memory, tmp_path):
    model, data, task, deletion = memory
    unlearned = gd.Unlearner(model, data, task=task).delete(deletion)
    found = unlearned.calibration
    assert found is not None
    assert found["status"] == "reached"
    assert 0 < unlearned.lam == found["lam"] < 1
    taken = [trial for trial in found["trials"] if trial["mark"] <= MARK]
    first, best = taken[0], min(taken, key=lambda trial: abs(trial["auc"] - 0.5))
    assert first["auc"] > 0.5 + first["se"]
    assert best["lam"] == found["lam"]
    assert abs(best["auc"] - 0.5) <= best["se"]
    assert found["sentence"] in map(str, unlearned.notes)
    assert "aim: retrained: deleted elements should score like unseen ones" in str(unlearned)
    unlearned.save(tmp_path)
    assert "Aim: retrained" in (tmp_path / "README.md").read_text()
    assert found["sentence"] in (tmp_path / "README.md").read_text()
    loaded = gd.load(tmp_path, model, data=unlearned.data, task=task)
    assert (loaded.lam, loaded.aim, loaded.calibration) == (unlearned.lam, "retrained", found)


def test_the_calibrated_result_is_the_plain_one_at_that_lam(memory):
    model, data, task, deletion = memory
    found = gd.Unlearner(model, data, task=task).delete(deletion)
    plain = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=found.lam)).delete(deletion)
    torch.testing.assert_close(found.output(), plain.output())


def test_calibration_never_looks_at_test_data(memory):
    model, data, task, deletion = memory
    blind = gd.LinkPrediction(validation=task.validation.positives, validation_negatives=task.validation.negatives)
    with_test = gd.Unlearner(model, data, task=task).delete(deletion)
    without = gd.Unlearner(model, data, task=blind).delete(deletion)
    assert with_test.lam == without.lam


def test_it_costs_at_most_eight_deletions(memory, monkeypatch):
    model, data, task, deletion = memory
    passes = []
    count = type(model).forward
    monkeypatch.setattr(Memory, "forward", lambda self, x, edge_index: passes.append(1) or count(self, x, edge_index))

    def cost(method):
        unlearner = gd.Unlearner(model, data, task=task, method=method)
        unlearner.delete(deletion)  # with the probe of the model, once
        passes.clear()
        unlearner.compact()
        return len(passes)

    assert 0 < cost(gd.GNNDelete()) <= 8 * cost(gd.GNNDelete(lam=0.1))


def test_nonexistent_is_stronger_than_retrained_and_keeps_its_budget(memory):
    model, data, task, deletion = memory
    retrained = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(operator="ring")).delete(deletion)
    gone = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(aim="nonexistent", budget=0.02)).delete(deletion)
    assert gone.lam > retrained.lam
    trials = {trial["lam"]: trial["utility"] for trial in gone.calibration["trials"]}
    assert trials[0.0] - trials[gone.lam] <= 0.02
    assert gone.evaluate()["deleted_auroc"] > retrained.evaluate()["deleted_auroc"]


def test_the_gradient_solver_takes_the_lam_of_the_exact_one(memory):
    model, data, task, deletion = memory
    found = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(operator="ring")).delete(deletion)
    slow = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(solver="gradient", epochs=2)).delete(deletion)
    assert slow.lam == found.lam
    assert slow.parameters == found.parameters


class Known(nn.Module):
    """Knows nodes by vectors of its own beside their features."""

    def __init__(self):
        super().__init__()
        self.nodes = nn.Embedding(400, 16)
        self.first, self.second = SAGEConv(32, 32), SAGEConv(32, 4)

    def forward(self, x, edge_index):
        h = torch.cat([x, self.nodes.weight], dim=1)
        return self.second(self.first(h, edge_index).relu(), edge_index)


@pytest.mark.parametrize("count", [20, 60, 110])
def test_deleted_nodes_are_calibrated_by_their_label_where_they_are_presented_again(count):
    """Every fifth label is random and learned by heart: a deleted node's own label gives it away until lam takes it back."""
    graph = community_graph(400, 1600, 16, classes=4, community=100, seed=5)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(4, (400,), generator=generator)
    graph.y = torch.where(torch.rand(400, generator=generator) < 0.2, noise, graph.y)
    data = gd.datasets.split_nodes(graph, seed=0, train=0.5, val=0.25)
    torch.manual_seed(0)
    model = Known()
    gd.train(model, data, "node", epochs=25, lr=0.02, seed=0, validate_every=25)
    nodes = data.train_mask.nonzero().flatten()[:count]
    unlearned = gd.Unlearner(model, data, task="node").delete(gd.Deletion(nodes=nodes))
    found = unlearned.calibration
    assert found["status"] == "reached"
    assert found["trials"][0]["auc"] > 0.6
    assert found["trials"][0]["se"] < 0.35 / count**0.5 + 0.035, "all of them took part"
    assert min(abs(trial["auc"] - 0.5) for trial in found["trials"]) <= found["trials"][0]["se"]


@pytest.mark.parametrize(
    ("name", "deletion", "change", "words"),
    [
        ("node", gd.Deletion(edges=[(0, 0)]), {}, "no score for an edge"),
        ("link", gd.Deletion(nodes=[3]), {}, "and the request names none"),
        ("link", gd.Deletion(edges=[(0, 0)]), {"validation": None}, "no validation edges"),
        ("none", gd.Deletion(edges=[(0, 0)]), {}, "no task"),
    ],
)
def test_where_nothing_can_be_measured_a_stated_lam_is_taken(name, deletion, change, words):
    model, data, task = problem("link" if name == "none" else name)
    if not deletion.nodes.numel():
        deletion = gd.Deletion(edges=data.edge_index[:, [0]])
    for key, value in change.items():
        setattr(task, key, value)
    unlearner = gd.Unlearner(model, data, task=None if name == "none" else task)
    found = unlearner.delete(deletion)
    assert found.calibration["status"] == "fallback"
    assert words in found.calibration["sentence"]
    assert found.lam == 0.03
    assert "not calibrated" in str(found)


def test_one_deleted_edge_and_repeated_requests(memory):
    model, data, task, _ = memory
    unlearner = gd.Unlearner(model, data, task=task)
    first = unlearner.delete(gd.Deletion(edges=data.edge_index[:, [0]]))
    assert first.calibration["status"] == "rehearsed"
    second = unlearner.delete(gd.Deletion(edges=gd.datasets.forget_edges(first.data, 0.1, seed=4)))
    assert second.calibration["trials"] != first.calibration["trials"]


def test_what_training_again_would_keep_is_not_searched_for():
    measure = lambda lam: Trial(lam, auc=0.8 - lam, se=0.01, utility=0.9)  # noqa: E731
    assert as_retrained(measure).lam == pytest.approx(0.3, abs=0.01)
    few = as_retrained(curve(lambda lam: 1.0, se=0.316), kept=2 / 3)  # one node of a small graph
    assert few.lam == 0
    assert few.sentence.startswith("The sample is too small to show anything (unseen AUC 1.000")
    assert "retraining" not in few.sentence
    assert "target" not in few.sentence
    half = as_retrained(measure, kept=0.5)
    assert half.lam == pytest.approx(0.15, abs=0.01)
    assert half.target == pytest.approx(0.65)
    assert "The target is 0.650, not 0.5: elements that lost features" in half.sentence


@pytest.mark.parametrize(
    ("kinds", "action"),
    [
        (["features"], "replacing the features"),
        (["features", "labels"], "removing features and labels"),
        (["features", "labels", "nodes"], "cutting the graph"),
    ],
)
def test_what_is_kept_is_worded_for_all_that_was_deleted(kinds, action):
    assert ACTIONS.get(frozenset(kinds), CUTTING) == action
    sure = as_retrained(curve(lambda lam: 0.51), kept=0.5, noun="node", action=action)
    assert sure.lam == 0
    assert sure.sentence == (
        f"{action[0].upper()}{action[1:]} leaves no more than retraining would (unseen AUC 0.510 ± 0.010 on validation data), so "
        "lam is 0. The target is 0.505, not 0.5: nodes that lost features are still trained on their labels."
    )
    unsure = as_retrained(curve(lambda lam: 0.7, se=0.08), kept=0.5, noun="node", action=action)
    assert unsure.lam == 0
    assert "The sample is small: any AUC within ±0.16 of this one would say the same." in unsure.sentence
    assert unsure.sentence.endswith(
        "The target is 0.600, not 0.5: nodes that lost features are still trained on their labels."
    )


def test_a_handful_has_to_show_more():
    few = as_retrained(lambda lam: Trial(lam, auc=0.9 - lam, se=0.29, utility=0.9))
    assert (few.status, few.lam) == ("already", 0.0)
    assert few.sentence.startswith("The sample is too small to show anything (unseen AUC 0.900")
    assert few.sentence.endswith("so lam is 0.")
    assert "is enough" not in few.sentence
    some = as_retrained(lambda lam: Trial(lam, auc=0.9 - lam, se=0.08, utility=0.9))
    assert some.status == "reached"
    assert "within ±0.16" in some.sentence


def test_damage_around_the_deletion_is_not_paid_for():
    """In the score of all validation edges it hardly shows."""
    found = as_retrained(
        lambda lam: Trial(lam, auc=0.7 - 0.3 * lam, se=0.01, utility=0.9 - 0.01 * lam, near=0.9 - 0.4 * lam)
    )
    assert found.status == "unreached"
    assert found.retrain_recommended
    assert found.lam <= 0.2  # as far as it is free


def test_edges_around_the_deletion_are_scored_apart(memory):
    model, data, task, deletion = memory
    first = gd.Unlearner(model, data, task=task).delete(deletion).calibration["trials"][0]
    assert 0.5 < first["near"] <= 1
    assert first["near"] != first["utility"]
    one = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(operator="ring"))
    one = one.delete(gd.Deletion(edges=data.edge_index[:, :1]))
    assert one.calibration["trials"][0]["near"] is None


def test_nothing_is_calibrated_by_a_model_at_chance():
    """Random edges: they can be remembered, and unseen ones cannot be predicted."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(300, (2, 1500), generator=generator).unique(dim=1)
    pairs = pairs[:, (pairs[0] < pairs[1])]
    graph = Data(
        x=torch.randn(300, 32, generator=generator), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=300
    )
    split = gd.datasets.split_links(graph, seed=0, val=0.2, test=0.1)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = gd.models.GCN(32, hidden=16, out=8)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(split.data, 100, seed=1))
    for aim in ("retrained", "nonexistent"):
        found = gd.Unlearner(model, split.data, task=task, method=gd.GNNDelete(aim=aim)).delete(deletion).calibration
        assert (found["status"], found["lam"], len(found["trials"])) == ("fallback", 0.0, 1)
        assert "no better than chance" in found["sentence"]
