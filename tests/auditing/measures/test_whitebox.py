"""The attack with the weights: old weights are open to it, those of Retrain are not, and a leak of the teacher is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import gnndelete as gd
from gnndelete.auditing.case import Subject, open_case
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.base import NotMeasuredError
from gnndelete.auditing.measures.whitebox import Leak, WhiteBox, WhiteBoxResult, WhiteBoxSection
from gnndelete.auditing.verdict import Findings, old_answers_passed_on, weights_remember
from gnndelete.datasets import split_links
from gnndelete.datasets.generated import community_graph
from gnndelete.methods.regrow.acceptance import Check, Judge
from gnndelete.training.loop import LoopFit, train


@pytest.fixture(scope="module")
def world():
    """A model that remembers single edges, its graph, task and training, and a request."""
    split = split_links(community_graph(300, 1500, 8, classes=4, community=60, seed=1), seed=0, test=0.15)
    data = split.data
    del data["x"]
    data.num_nodes = 300
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = gd.models.build("embeddinggcn", num_nodes=300, embedding=32, hidden=32, out=16)
    fit = LoopFit(task, {"epochs": 150, "lr": 0.01})
    train(model, data, task, **fit.options, validate_every=150)  # the last weights, which remember most
    edges = task.learned_once(data)
    chosen = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))[:100]
    return {"model": model, "data": data, "task": task, "fit": fit}, gd.Deletion(edges=edges[:, chosen])


def delete(world, method):
    options, deletion = world
    return gd.Unlearner(**options, method=method).delete(deletion)


@pytest.fixture(scope="module")
def section(world):
    """The white-box section of a distilled result beside Retrain, and its case."""
    failed = [Check("utility", 0.5, 0.9, 0.01, passed=False)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "checks", lambda self, model, clean: [] if clean else failed)
        unlearned = delete(world, gd.Regrow())
    assert unlearned.details["regrow"]["taken"] == "distilled"
    case = open_case(unlearned, delete(world, gd.Retrain(seed=5)))
    return WhiteBox().run(case), case


def test_old_weights_are_open_to_it_and_those_of_retrain_are_not(section):
    found, _ = section
    assert list(found.models) == ["before", "after", "reference", "second"]
    before, retrained = found.models["before"], found.models["reference"]
    assert before.attack > 0.6
    assert before.loss > 0.6
    assert before.relearned > retrained.relearned
    assert abs(retrained.attack - 0.5) < 3 * found.error
    assert abs(found.models["second"].attack - 0.5) < 3 * found.error
    assert retrained.old_answers > 0.65, "whoever kept the old model can tell, after a retraining too"
    assert before.old_answers is None


def test_the_step_is_made_again_from_the_retrained_model(section):
    found, case = section
    assert [leak.graph for leak in found.leaks] == ["served", "old_id"]
    for leak in found.leaks:
        assert leak.gap == pytest.approx(leak.result - leak.from_reference)
        assert 0.3 < leak.from_reference < 0.65
    assert "passed on" in found.sentence
    again = WhiteBox().run(replace(case, reference=replace(case.reference, model=case.base)))
    assert all(abs(leak.gap) < 1e-6 for leak in again.leaks), "from the old model itself it is the result"


def test_what_keeps_the_old_weights_is_not_attacked(world):
    unlinked = delete(world, "unlink")
    with pytest.raises(NotMeasuredError, match="old weights are in the result"):
        WhiteBox().run(open_case(unlinked))


def test_old_weights_that_are_called_new_are_found(section):
    found, case = section
    fraud = replace(
        case,
        subjects={
            **case.subjects,
            "after": Subject.of_model("after", case.base, case.remaining, case.task, case.forward),
        },
    )
    shown = WhiteBox().run(replace(fraud, unlearned=replace(case.unlearned, assurance="retrained")))
    assert shown.leaks == ()
    opinion = weights_remember(Findings({"white_box": shown}))
    assert opinion is not None
    assert opinion.code == "under-forgotten"
    assert weights_remember(Findings({"white_box": found})) is None


def test_a_leak_takes_a_good_verdict_away():
    model = WhiteBoxResult(0.5, 0.5, 0.5, 0.5)
    values = {
        "models": {"after": model, "reference": model},
        "graph": "served",
        "counts": {"deleted": 200},
        "error": 0.02,
    }
    leaking = WhiteBoxSection(**values, leaks=(Leak(0.6, 0.5, 0.1, 0.04, "served"),))
    assert old_answers_passed_on(Findings({"white_box": leaking})).code == "under-forgotten"
    tight = WhiteBoxSection(**values, leaks=(Leak(0.52, 0.5, 0.02, 0.04, "served"),))
    assert old_answers_passed_on(Findings({"white_box": tight})) is None


def test_it_runs_with_the_attacks_alone(section):
    _, case = section
    assert case.shadow is None
    assert "attacks=False" in run_measure(WhiteBox(), case).reason
