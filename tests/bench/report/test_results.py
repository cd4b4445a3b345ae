"""What a store says about an experiment: seeds together, nothing mixed, gaps seed by seed."""

from __future__ import annotations

from math import sqrt
from statistics import mean, stdev
from typing import Any

import pytest

from gnndelete.bench.cells import search_rule
from gnndelete.bench.report.results import (
    Plan,
    Result,
    gather,
    method_call,
    originals,
    plans,
    references,
    split_uncalibrated,
    timings,
    usual_device,
)
from gnndelete.io.store import Store
from gnndelete.methods import GNNDelete

from .sample import METHODS, SEEDS, Job, key, link_plan, row, rows, store_of, time_plan


def small(*labels: str, **options: Any) -> Plan:
    jobs = [Job(label, key("dblp", "gcn", METHODS[label], seed)) for seed in SEEDS for label in labels]
    return Plan("paper/small", "Small", jobs, "link_prediction", **options)


def filled(plan: Plan, scores: dict[str, list[float]], seconds: dict[str, float] | None = None) -> Store:
    store = Store(None)
    for job in plan.cells:
        values = scores.get(job.label, [])
        number = SEEDS.index(job.key["seed"])
        if number < len(values):
            spent = (seconds or {}).get(job.label, 1.0)
            store.add(job.key, row(job.label, spent, test_auroc=values[number]))
    return store


def by_label(plan: Plan, store: Store) -> dict[str, Result]:
    return {result.label: result for result in gather(plan, store)}


def test_mean_and_standard_error_over_seeds() -> None:
    values = [0.9, 0.92, 0.97]
    stat = by_label(small("unlink"), filled(small("unlink"), {"unlink": values}))["unlink"].stat("test_auroc")
    assert stat is not None
    assert stat.mean == pytest.approx(mean(values))
    assert stat.error == pytest.approx(stdev(values) / sqrt(3))
    assert stat.count == 3


def test_one_seed_has_no_standard_error() -> None:
    stat = by_label(small("unlink"), filled(small("unlink"), {"unlink": [0.9]}))["unlink"].stat("test_auroc")
    assert stat is not None
    assert stat.error is None


def test_gaps_are_taken_seed_by_seed_where_both_have_the_seed() -> None:
    plan = small("retrain", "unlink")
    found = by_label(plan, filled(plan, {"retrain": [0.95, 0.90], "unlink": [0.96, 0.92, 0.50]}))
    gap = found["unlink"].gap("test_auroc", references(found.values())[found["unlink"].scenario.identity])
    assert gap is not None
    assert gap.count == 2  # the third seed has no reference, so its 0.50 does not count
    assert gap.mean == pytest.approx(0.015)


def test_failed_cells_are_said_and_never_counted() -> None:
    plan = small("unlink")
    store = filled(plan, {"unlink": [0.9, 0.92]})
    store.add(plan.cells[2].key, {"label": "unlink", "error": "memory ran out", "kind": "RunError"})
    found = by_label(plan, store)["unlink"]
    stat = found.stat("test_auroc")
    assert stat is not None
    assert stat.count == 2
    assert found.state == "done"
    assert found.reason == "1 of 3 seeds failed: memory ran out"


@pytest.mark.parametrize(
    ("row", "missing", "state", "reason"),
    [
        (None, {}, "not run", ""),
        (None, {"dblp": "no network"}, "not here", "no network"),
        ({"error": "memory ran out", "kind": "RunError"}, {}, "failed", "memory ran out"),
        (
            {"error": "method 'd2d' does not fit: why", "kind": "Unfit"},
            {},
            "does not fit",
            "method 'd2d' does not fit: why",
        ),
    ],
)
def test_why_there_is_no_number(row: dict[str, Any] | None, missing: dict[str, str], state: str, reason: str) -> None:
    plan, store = small("unlink", missing=missing), Store(None)
    if row is not None:
        for job in plan.cells:
            store.add(job.key, row)
    found = by_label(plan, store)["unlink"]
    assert (found.state, found.reason, found.stat("test_auroc")) == (state, reason, None)


def test_a_changed_setting_is_never_mixed_in() -> None:
    plan, store = small("unlink"), Store(None)
    for job in plan.cells:
        for change in ({"train": {"epochs": 10}}, {"device": "cpu"}, {"split": {"given": True}}, {"format": 2}):
            store.add(job.key | change, row("unlink", 1.0, test_auroc=0.1))
        store.add(job.key | {"method": {"name": "unlink", "extra": 1}}, row("unlink", 1.0, test_auroc=0.1))
    assert by_label(plan, store)["unlink"].state == "not run"


def test_times_of_different_machines_are_not_compared() -> None:
    plan = small("retrain", "unlink")
    store = filled(plan, {"retrain": [0.9] * 3, "unlink": [0.9] * 3}, {"retrain": 6.0, "unlink": 0.02})
    found = by_label(plan, store)
    faster = found["unlink"].speedup(found["retrain"])
    assert faster is not None
    assert (faster.mean, faster.count) == (pytest.approx(300), 3)
    for job in plan.cells:
        if job.label == "unlink":
            store.add(
                job.key, row("unlink", 0.02, test_auroc=0.9) | {"hardware": {"name": "another", "device": "cuda"}}
            )
    found = by_label(plan, store)
    assert found["unlink"].speedup(found["retrain"]) is None


def test_not_a_number_is_not_measured() -> None:
    plan = small("unlink")
    found = by_label(plan, filled(plan, {"unlink": [float("nan"), 0.9, 0.9]}))["unlink"].stat("test_auroc")
    assert found is not None
    assert found.count == 2


def test_the_model_before_the_deletion_comes_from_any_row() -> None:
    plan, store = small("unlink"), Store(None)
    for job in plan.cells:
        store.add(job.key, row("unlink", 1.0, test_auroc=0.9) | {"before": {"test_auroc": 0.95}})
    (before,) = originals(gather(plan, store))
    stat = before.stat("test_auroc")
    assert stat is not None
    assert (before.label, stat.mean, stat.count) == ("original", pytest.approx(0.95), 3)


def test_every_wanted_cell_has_a_result() -> None:
    plan = link_plan()
    results = gather(plan, store_of(plan))
    assert sum(result.wanted for result in results) == len(plan.cells)
    assert all(len(result.rows) == len(SEEDS) for result in results)


def retrains(*epochs: int) -> list[Job]:
    """Retrain by several schedules at one place, where models were trained for 2,000 epochs."""
    return [
        Job(
            "retrain" if n == 2000 else f"short {n}",
            key("dblp", "gcn", {"name": "retrain", "epochs": n, "lr": 1e-3}, seed),
        )
        for seed in SEEDS
        for n in epochs
    ]


@pytest.mark.parametrize("order", [(2000, 1), (1, 2000), (1, 2000, 10)])
def test_the_reference_is_the_retrain_that_trains_as_the_model_was_trained(order: tuple[int, ...]) -> None:
    plan = Plan("mine", "Two", [*retrains(*order), *small("unlink").cells])
    store = filled(plan, {"retrain": [0.9] * 3, "short 1": [0.5] * 3, "short 10": [0.6] * 3, "unlink": [0.91] * 3})
    found = by_label(plan, store)
    (reference,) = references(found.values()).values()
    assert reference.label == "retrain"
    gap = found["unlink"].gap("test_auroc", reference)
    assert gap is not None
    assert gap.mean == pytest.approx(0.01)


def test_what_is_measured_once_stands_at_the_end_of_a_sequence() -> None:
    plan = Plan("mine", "Steps", [Job("unlink", key("dblp", "gcn", METHODS["unlink"], 42, forget={"steps": 2}))])
    store = Store(None)
    steps = [{"test_auroc": 0.9}, {"test_auroc": 0.8}]
    store.add(plan.cells[0].key, row("unlink", 1.0, test_auroc=0.8, unseen_auc=0.51) | {"steps": steps})
    (cell,) = gather(plan, store)
    assert [cell.values("unseen_auc", step) for step in (1, 2)] == [{}, {42: 0.51}]
    assert [cell.values("test_auroc", step) for step in (1, 2)] == [{42: 0.9}, {42: 0.8}]


def test_times_with_other_numbers_of_threads_are_not_compared() -> None:
    plan = small("retrain", "unlink")
    store = filled(plan, {"retrain": [0.9] * 3, "unlink": [0.9] * 3}, {"retrain": 8.0, "unlink": 1.0})
    for device, expected in (("cuda", 3), ("cpu", 0)):
        for threads, (cell, result) in zip((1, 2) * 3, list(store.items()), strict=True):
            store.add(cell, result | {"hardware": {"device": device, "name": "X", "job_threads": threads, "jobs": 1}})
        found = by_label(plan, store)
        speedup = found["unlink"].speedup(found["retrain"])
        assert (speedup.count if speedup else 0) == expected


def test_runs_with_a_fallback_lam_do_not_count_as_calibrated() -> None:
    plan, store = small("retrain", "calibrated"), Store(None)
    for job in plan.cells:
        fallback = job.label == "calibrated" and job.key["seed"] != SEEDS[0]
        store.add(job.key, row(job.label, 1.0) | ({"calibration": {"status": "fallback"}} if fallback else {}))
    found = {result.label: sorted(result.rows) for result in split_uncalibrated(gather(plan, store))}
    assert found == {
        "retrain": sorted(SEEDS),
        "calibrated": [SEEDS[0]],
        "calibrated, fallback lam": sorted(SEEDS[1:]),
    }


def test_a_method_is_recognised_by_its_settings() -> None:
    directed = {"name": "gnndelete", **GNNDelete.paper(hops="directed").settings()}
    assert method_call(directed) == "GNNDelete.paper(hops='directed')"
    assert method_call({**directed, "lam": 0.8}) != method_call(directed)
    assert method_call({"name": "d2d", "preset": "paper"}) == "D2D(preset='paper')"
    plan = link_plan(models=("gcn",))
    calls = {result.label: result.call for result in gather(plan, store_of(plan))}
    assert calls["unlink"] == "Unlink()"


def test_the_device_of_most_rows_is_taken() -> None:
    store = Store(None)
    for seed in range(3):
        store.add(key("dblp", "gcn", {"name": "unlink"}, seed, device="cpu"), row("unlink", 1.0))
    store.add(key("dblp", "gcn", {"name": "unlink"}, 0), row("unlink", 1.0))
    assert usual_device(store) == "cpu"


def test_shipped_experiments_are_found_by_group_and_each_once() -> None:
    found = plans(["paper/lambda", "paper/lambda"], "cuda", seeds=1)
    assert [plan.name for plan in found] == ["paper/lambda"]
    assert {cell.key["device"] for cell in found[0].cells} == {"cuda"}


def test_times_of_an_earlier_search_are_left_out() -> None:
    plan, store = time_plan(), Store(None)
    for number, (cell, made) in enumerate(rows(plan)):
        rule = search_rule(cell["method"], "link", "gcn")
        store.add(cell, made | {"search_rule": rule if number else rule - 1})
    found = timings(gather(plan, store))
    assert ["calibrated" in timing.spent for timing in found] == [False, True, True, True]
