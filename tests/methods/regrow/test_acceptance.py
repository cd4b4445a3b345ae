"""The judge: a second retraining passes, and what remembers does not."""

from __future__ import annotations

import pytest
import torch

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.engine.session import Session
from gnndelete.methods.base import Context
from gnndelete.methods.regrow.acceptance import Judge, share_deleted
from gnndelete.nn.forward import call
from gnndelete.nn.reset import fresh
from gnndelete.training.loop import train


@pytest.fixture(scope="module")
def case():
    """A link model that remembers single edges by its vectors, and two that were trained without some of them."""
    split = gd.datasets.split_links(community_graph(400, 2400, 8, classes=4, community=80, seed=1), seed=0, val=0.1)
    data = split.data.__copy__()
    data.num_nodes = 400
    del data["x"]
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    task.check(data)
    torch.manual_seed(0)
    model = gd.models.build("embeddinggcn", num_nodes=400, embedding=32, hidden=32, out=32)
    train(model, data, task, epochs=150, lr=0.01)
    edges = task.learned_once(data)
    chosen = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))[:200]
    deletion = gd.Deletion(edges=edges[:, chosen]).check(data)
    context = Context(Session(model, data, call), task=task).for_deletion(deletion)
    trained = []
    for seed in (1, 2):
        trained.append(fresh(model, seed))
        train(trained[-1], context.remaining, task, epochs=150, lr=0.01, seed=seed)
    return context, trained


def test_a_second_retraining_passes_and_the_old_weights_do_not(case):
    context, (first, second) = case
    judge = Judge(context)
    clean = judge.measure(first)
    assert judge.missing == ""
    again = {check.code: check for check in judge.checks(judge.measure(second), clean)}
    assert set(again) == {"utility", "served", "presented", "difference", "white-box"}
    assert all(check.passed for code, check in again.items() if code != "utility"), again
    old = {check.code: check for check in judge.checks(judge.measure(context.model), clean)}
    assert old["utility"].passed
    assert not old["served"].passed
    assert not old["presented"].passed
    assert not old["difference"].passed
    assert not old["white-box"].passed


def test_what_cannot_be_measured_is_not_passed(case):
    context, (first, second) = case
    judge = Judge(context.for_deletion(gd.Deletion(labels=[3]).check(context.data)))
    assert judge.missing
    found = judge.checks(judge.measure(second), judge.measure(first))
    assert [check.passed for check in found if check.code == "served"] == [False]


def test_the_share_of_a_request(case):
    context, _ = case
    learned = context.task.learned_once(context.data).size(1)
    assert share_deleted(context) == pytest.approx(200 / learned, abs=0.01)


def test_a_request_too_small_to_tell_is_not_passed(case):
    context, (first, second) = case
    few = context.for_deletion(gd.Deletion(edges=context.deletion.edges[:, :3]).check(context.data))
    judge = Judge(few)
    found = judge.checks(judge.measure(second), judge.measure(first))
    assert [check.passed for check in found if check.code in ("served", "presented")] == [False, False]
    assert "too small to tell" in str(found[1])


def test_measuring_changes_nothing(case, snapshot):
    context, (first, _) = case
    before = snapshot(first, context.data)
    Judge(context).measure(first)
    assert snapshot(first, context.data) == before
