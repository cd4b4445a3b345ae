"""Retrain's level where an experiment did not run it: from the same place, seeds and schedule, whatever else was measured."""

from __future__ import annotations

import pytest

from gnndelete.bench.curves import lam_pictures
from gnndelete.bench.gathered import Plan, gather
from gnndelete.bench.levels import retrained
from gnndelete.bench.pages import Commands
from gnndelete.bench.report import build
from gnndelete.io.store import Store

from .sample import METHODS, Job, key, lam_plan, row, store_of

NOTE = "Retrain's level, dashed, is from other runs of the store at the same place (3 seeds)."


@pytest.fixture
def swept() -> tuple[Plan, Store]:
    """The sweep over lam without Retrain, which is in the store all the same."""
    whole = lam_plan()
    return Plan(whole.name, whole.title, [job for job in whole.cells if job.label != "retrain"]), store_of(whole)


def test_every_panel_over_lam_has_the_level_of_retrain_that_the_store_knows(swept: tuple[Plan, Store]) -> None:
    plan, store = swept
    (picture,) = lam_pictures(plan, gather(plan, store), retrained(store))
    assert set(picture.retrain) == {"test_auroc", "deleted_auroc", "unseen_auc"}
    assert picture.retrain["unseen_auc"] == pytest.approx(0.51, abs=0.01)
    made, _ = build([plan], store, Commands("results.jsonl", "out", "cuda"))
    assert b">Retrain<" in made["figures/paper-lambda-lam-1.svg"]
    assert NOTE in made["paper/lambda.md"].decode()


def test_a_score_that_the_experiments_own_retrain_lacks_is_taken_from_another(swept: tuple[Plan, Store]) -> None:
    plan, store = swept
    own = [Job("retrain", key("dblp", "gcn", METHODS["retrain"], seed, measures=["scores"])) for seed in (42, 21, 13)]
    for job in own:
        store.add(job.key, row("retrain", 7.0, test_auroc=0.5, deleted_auroc=0.5))
    plan = Plan(plan.name, plan.title, [*plan.cells, *own])
    (picture,) = lam_pictures(plan, gather(plan, store), retrained(store))
    assert (picture.retrain["test_auroc"], picture.retrain["deleted_auroc"]) == (0.5, 0.5)
    assert picture.retrain["unseen_auc"] == pytest.approx(0.51, abs=0.01)
    assert picture.note.startswith("Retrain's level in unseen AUC, dashed, is from other runs")


@pytest.mark.parametrize(
    "other",
    [
        key("dblp", "gcn", METHODS["retrain"], 42, "out"),
        key("dblp", "gcn", METHODS["retrain"], 42, device="cpu"),
        key("dblp", "gcn", METHODS["retrain"], 7),
        key("dblp", "gcn", METHODS["retrain"] | {"epochs": 10}, 42),
    ],
    ids=["place", "device", "seed", "schedule"],
)
def test_another_place_device_seed_or_schedule_is_no_level(swept: tuple[Plan, Store], other: dict[str, object]) -> None:
    plan, full = swept
    store = Store(None)
    for cell, result in full.items():
        if cell["method"]["name"] != "retrain":
            store.add(cell, result)
    store.add(other, row("retrain", 7.0, test_auroc=0.9, deleted_auroc=0.6, unseen_auc=0.5))
    (picture,) = lam_pictures(plan, gather(plan, store), retrained(store))
    assert (picture.retrain, picture.note) == ({}, "")
