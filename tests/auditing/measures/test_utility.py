"""What is called ruin: constant answers and lost skill, if there are enough test elements to tell them from chance."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import gnndelete as gd
from gnndelete.auditing.case import Case
from gnndelete.auditing.measures.utility import Utility, classified, edges_from, ranked
from gnndelete.auditing.verdict import Findings, model_ruined, perhaps_ruined
from gnndelete.testing import problem


def answering(case: Case, **predict: Any) -> Case:
    """The same case with other answers of some models."""
    changed = {name: replace(case.subjects[name], predict=function) for name, function in predict.items()}
    return replace(case, subjects={**case.subjects, **changed})


def rare(nodes: int = 2000, seed: int = 0) -> Data:
    """Two classes of which one has 8% of the nodes, and features that tell some of them."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(nodes, generator=generator) < 0.08).long()
    x = torch.randn(nodes, 8, generator=generator)
    x[:, 0] += 2.5 * y
    edges = to_undirected(torch.randint(0, nodes, (2, 2 * nodes), generator=generator))
    parts = torch.randperm(nodes, generator=generator).split([nodes * 6 // 10, nodes * 2 // 10, nodes * 2 // 10])
    masks = [torch.zeros(nodes, dtype=torch.bool).index_fill(0, part, True) for part in parts]
    return Data(x=x, y=y, edge_index=edges, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])


class Plain(torch.nn.Module):
    """Reads features and a little of the neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.beside = torch.nn.Linear(8, 2), gd.models.GCN(8, hidden=8, out=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.own(x) + 0.1 * self.beside(x, edge_index)


@pytest.fixture(scope="module")
def uneven() -> gd.Unlearned:
    """60 nodes cut out of a classifier of uneven classes."""
    data = rare()
    torch.manual_seed(0)
    model = Plain()
    gd.train(model, data, "node", epochs=60, lr=0.05)
    gone = data.train_mask.nonzero().flatten()[:60]
    return gd.Unlearner(model, data, task="node", method="unlink").delete(gd.Deletion(nodes=gone))


def test_a_classifier_that_always_gives_the_frequent_class_is_ruined(uneven: gd.Unlearned) -> None:
    dead = Plain()
    with torch.no_grad():
        for parameter in dead.parameters():
            parameter.zero_()
        dead.own.bias[0] = 1.0
    found = gd.audit(replace(uneven, model=dead, adapter=None), attacks=False).to_dict()
    scores = found["utility"]["metrics"]["accuracy"]
    assert scores["after"] > 0.85, "by accuracy alone it seems to know something"
    assert found["utility"]["tested"]["constant"] == scores["after"]
    assert found["verdict"]["code"] == "ruined"
    assert gd.audit(uneven, attacks=False).verdict.code != "ruined"


def ruined(case: Case) -> tuple[str, str]:
    """Why the model is ruined, or else why it may be."""
    found = Findings({"utility": Utility().run(case)})
    sure, perhaps = model_ruined(found), perhaps_ruined(found)
    return sure.text if sure else "", perhaps.text if perhaps else ""


@pytest.mark.parametrize("seed", [0, 3])
def test_a_model_trained_again_is_not_ruined_by_two_of_twenty_test_nodes(seed: int) -> None:
    torch.manual_seed(seed)
    y = torch.arange(120) % 3
    x = torch.randn(120, 6)
    x[:, :3] += 1.2 * torch.nn.functional.one_hot(y, 3)
    edges, order = to_undirected(torch.randint(0, 120, (2, 250))), torch.randperm(120)
    masks = [torch.zeros(120, dtype=torch.bool).index_fill(0, part, True) for part in order.split([80, 20, 20])]
    data = Data(x=x, y=y, edge_index=edges, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])
    model = gd.models.GCN(6, hidden=16, out=3)
    gd.train(model, data, "node", epochs=30, lr=0.01, seed=seed)
    deletion = gd.Deletion(nodes=data.train_mask.nonzero().flatten()[:15])
    again = gd.Unlearner(model, data, task="node", method=gd.Retrain(epochs=30, lr=0.01), seed=seed).delete(deletion)
    found = gd.audit(again, attacks=False).to_dict()
    accuracy = found["utility"]["metrics"]["accuracy"]
    assert accuracy["before"] - accuracy["after"] > 0.1
    assert found["verdict"]["code"] == "undecided"
    told = [found["verdict"]["text"], *(note["text"] for note in found["verdict"]["warnings"])]
    assert sum("20 elements are too few to say whether the model is ruined" in said for said in told) == 1


@pytest.mark.parametrize("count", [2, 60])
def test_edges_that_no_longer_rank_are_ruin_if_there_are_enough(edge_case: Case, count: int) -> None:
    test = edge_case.task.test
    few = gd.LinkPrediction(test=test.positives[:, :count], test_negatives=test.negatives[:, :count])
    true = set(map(tuple, test.positives.t().tolist()))

    def knows(edges: Tensor) -> Tensor:
        return torch.tensor([1.0 if tuple(pair) in true else 0.0 for pair in edges.t().tolist()])

    def opposite(edges: Tensor) -> Tensor:
        return -knows(edges)

    case = answering(replace(edge_case, task=few), before=knows, after=opposite, reference=knows)
    sure, perhaps = ruined(case)
    if count == 60:
        assert "AUROC is 0.000 on 120 test elements, 1.000 before" in sure
    else:
        assert sure == ""
        assert "4 elements are too few" in perhaps


def test_a_classifier_whose_answers_are_no_numbers_is_ruined(node_case: Case) -> None:
    def nothing(nodes: Tensor) -> Tensor:
        return torch.full((nodes.numel(), 3), float("nan"))

    case = answering(node_case, after=nothing)
    assert ruined(case)[0].startswith("Its answers are not finite")


def test_errors_are_those_of_differences_between_two_models_on_the_same_elements(
    edge_case: Case, node_case: Case
) -> None:
    """Two models of equal skill, drawn many times: the differences spread as the errors say."""
    generator, off, errors = torch.Generator().manual_seed(0), [], []
    both, kinds = torch.zeros(2, 130, dtype=torch.long), (torch.arange(130) < 80).long()
    for _ in range(300):
        shared = torch.randn(130, generator=generator) + (torch.arange(130) < 80).double()
        noise = torch.randn(2, 130, generator=generator)

        def answers(which: int, shared: Tensor = shared, noise: Tensor = noise) -> Any:
            scores = shared + noise[which]
            return lambda edges: scores

        found = ranked(answering(edge_case, before=answers(0), after=answers(1)), both, kinds)
        off.append(found.values.after - found.values.before)
        errors.append(found.before_error)
    assert torch.tensor(off).std() == pytest.approx(float(torch.tensor(errors).mean()), rel=0.15)
    nodes = node_case.task.part(node_case.remaining, "test").nonzero().flatten()[:10]
    known = node_case.original.y[nodes]
    wrong = torch.where(torch.arange(10) < 4, (known + 1) % 3, known)
    one_hot = torch.nn.functional.one_hot
    case = answering(node_case, before=lambda _: one_hot(known, 3).double(), after=lambda _: one_hot(wrong, 3).double())
    skill = classified(case, nodes)
    assert (skill.values.before, skill.values.after) == (1.0, 0.6)
    assert skill.before_error == pytest.approx(0.2)


def test_remaining_edges_near_the_deletion_are_asked_once_from_their_near_end(edge_case: Case) -> None:
    data, near = edge_case.remaining, torch.zeros(240, dtype=torch.bool)
    near[:120] = True
    found = edges_from(near, edge_case.task.learned_once(data), undirected=True)
    assert bool(near[found[0]].all())
    touching = data.edge_index[:, near[data.edge_index].any(dim=0)]
    once = {tuple(sorted(pair)) for pair in touching.t().tolist()}
    assert sorted(map(tuple, found.sort(dim=0).values.t().tolist())) == sorted(once)
    oneway = Data(edge_index=torch.tensor([[0, 200, 3], [200, 1, 4]]), num_nodes=240)
    assert edges_from(near, oneway.edge_index, undirected=False).t().tolist() == [[0, 200], [3, 4]]


def test_graphs_are_judged_by_their_ranking() -> None:
    model, data, task = problem("graph")
    gone = task.part(data, "train").nonzero().flatten()[:5]
    unlearned = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(graphs=gone))
    turned = copy.deepcopy(unlearned.model)
    turned.register_forward_hook(lambda _, __, output: -output)
    opposite = replace(unlearned, model=turned, predictor=None)
    few, whole = (gd.audit(result, attacks=False).to_dict() for result in (opposite, unlearned))
    assert whole["utility"]["tested"]["before_error"] == pytest.approx(0.0, abs=1e-9), "no test graph has changed"
    assert few["utility"]["tested"]["values"] == {"before": 1.0, "after": 0.0, "reference": None}
    assert few["verdict"]["code"] == "undecided"
    assert "6 elements are too few to say whether the model is ruined" in few["verdict"]["warnings"][0]["text"]
    others = [graph for graph in range(data.num_graphs) if graph not in gone.tolist()]
    many = gd.audit(replace(opposite, task=gd.GraphClassification(train=gone, test=others)), attacks=False).to_dict()
    assert "Its AUROC" in many["verdict"]["text"]
    assert many["verdict"]["code"] == "ruined"
