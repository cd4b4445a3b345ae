"""The summary: cells count once, and gaps are taken seed by seed."""

from __future__ import annotations

from typing import Any

import pytest

from gnndelete.bench.report.results import Plan, gather
from gnndelete.bench.report.summary import Summary, summarize, summary_page
from gnndelete.io.store import Store

from .sample import METHODS, SEEDS, Job, key, link_plan, row, store_of

LABELS = ("retrain", "paper()", "calibrated", "nonexistent")
THEIRS = {"in": (0.934, 0.748), "out": (0.957, 0.892)}  # the paper's GNNDelete on DBLP with GCN at 2.5%


def plan_of(name: str = "paper/link-dblp", labels: tuple[str, ...] = LABELS) -> Plan:
    jobs = [
        Job(label, key("dblp", "gcn", METHODS[label], seed, where))
        for seed in SEEDS
        for where in ("in", "out")
        for label in labels
    ]
    return Plan(name, "Links", jobs, "link_prediction")


def store_with(plan: Plan, scores: Any, seconds: dict[str, float] | None = None) -> Store:
    store = Store(None)
    for job in plan.cells:
        use, deleted, unseen = scores(job.label, job.key["forget"]["where"], SEEDS.index(job.key["seed"]))
        spent = (seconds or {}).get(job.label, 1.0)
        store.add(job.key, row(job.label, spent, test_auroc=use, deleted_auroc=deleted, unseen_auc=unseen))
    return store


def answers(store: Store, *plans: Plan) -> Summary:
    return summarize([(plan, gather(plan, store)) for plan in plans])


def test_means_are_next_to_those_of_the_paper() -> None:
    def scores(label: str, where: str, seed: int) -> tuple[float, float, float]:
        use, deleted = THEIRS[where]
        return use + 0.01, deleted + (0.02 if where == "in" else 0.05), 0.5

    plan = plan_of()
    found = answers(store_with(plan, scores), plan)
    mean = next(each for each in found.means if each.label == "paper()")
    assert (mean.dataset, mean.cells) == ("dblp", 2)
    assert mean.ours[0] - mean.theirs[0] == pytest.approx(0.01)
    assert mean.ours[1] - mean.theirs[1] == pytest.approx(0.035)
    assert "| paper() | DBLP | 2 | 0.956 | 0.946 | +0.010 | 0.855 | 0.820 | +0.035 |" in summary_page(found)


def test_an_experiment_whose_training_is_short_counts_nowhere_and_is_named() -> None:
    whole = plan_of()
    jobs = [
        Job(label, {**key("dblp", "gcn", METHODS[label], seed, "in"), "train": {"epochs": 1}})
        for seed in SEEDS
        for label in LABELS
    ]
    short = Plan("paper/parameters", "Parameters", jobs, "parameters", summary=False)
    seconds = {"retrain": 900.0}
    store = store_with(whole, lambda *_: (0.9, 0.6, 0.5), seconds)
    alone = answers(store, whole)
    for job in jobs:
        store.add(job.key, row(job.label, 1.0, test_auroc=0.1, deleted_auroc=0.1, unseen_auc=0.9))
    both = answers(store, whole, short)
    assert (both.distances, both.speedups, both.short) == (alone.distances, alone.speedups, ("paper/parameters",))
    assert "trained too briefly to count in `paper/parameters`" in summary_page(both)
    assert "too briefly" not in summary_page(alone)
    assert not answers(store, short).speedups


def test_gaps_do_not_cancel_between_seeds() -> None:
    def scores(label: str, where: str, seed: int) -> tuple[float, float, float]:
        shift = (0.01, -0.01, 0.0)[seed] if label == "calibrated" else 0.0
        return 0.9 + 0.02 * seed + shift, 0.5, 0.5 + 2 * shift

    plan = plan_of()
    found = answers(store_with(plan, scores), plan)
    gap = next(g for g in found.distances if g.label == "calibrated" and g.metric == "test_auroc")
    assert gap.cells == 2
    assert gap.by_seed == pytest.approx(0.02 / 3)
    assert gap.by_cell == pytest.approx(0, abs=1e-12)


def test_methods_are_sorted_over_the_cells_they_share() -> None:
    """Unlink was tried in the easy half alone, where every method is near; calibration is nearer there."""
    whole = link_plan()
    cells = [job for job in whole.cells if job.label != "unlink" or job.key["forget"]["where"] == "out"]
    plan, store = Plan(whole.name, whole.title, cells, whole.published), Store(None)
    size = {"retrain": 0.0, "unlink": 0.02, "calibrated": 0.01}
    for job in cells:
        off = size.get(job.label, 0.2) * (1 if job.key["forget"]["where"] == "out" else 10)
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9 - off, deleted_auroc=0.5, unseen_auc=0.5 + off))
    found = answers(store, plan)
    near = {gap.label: gap for gap in found.distances if gap.metric == "test_auroc"}
    assert (near["unlink"].cells, near["calibrated"].cells) == (4, 8)
    assert near["unlink"].by_seed < near["calibrated"].by_seed
    assert {gap.shared_cells for gap in near.values()} == {4}
    assert near["calibrated"].shared == pytest.approx(0.01)
    page = summary_page(found).partition("## Distance to Retrain")[2]
    assert "| test AUROC, link | cells | by seed | by cell | signed | shared, 4 cells | farthest cell |" in page
    lines = [line.split(" | ")[0] for line in page.splitlines() if line.startswith(("| Unlink |", "| calibrated |"))]
    assert lines == ["| calibrated", "| Unlink"] * 2  # in both scores


def test_cells_that_experiments_share_count_once() -> None:
    plan, again = plan_of(), plan_of("beyond/gap")
    store = store_with(plan, lambda *_: (0.94, 0.75, 0.5))
    once, twice = answers(store, plan), answers(store, plan, again)
    assert once.means == twice.means
    assert [gap.cells for gap in once.distances] == [gap.cells for gap in twice.distances]


def test_a_shared_cell_has_its_most_common_label() -> None:
    jobs = [Job("lam 0.5", key("dblp", "gcn", METHODS["paper()"], seed)) for seed in SEEDS]
    other, plan = Plan("paper/lambda", "lam", jobs, "link_prediction"), plan_of()
    found = answers(store_with(plan, lambda *_: (0.94, 0.75, 0.5)), other, plan)
    assert [each.cells for each in found.means if each.label == "paper()"] == [2]
    assert not [each for each in found.means if each.label == "lam 0.5"]


def test_the_slowest_cell_of_a_dataset_counts() -> None:
    seconds = {"retrain": 6.0, "paper()": 0.01, "calibrated": 0.05, "nonexistent": 0.06}
    plan = plan_of()
    found = answers(store_with(plan, lambda *_: (0.9, 0.5, 0.5), seconds), plan)
    assert {speed.kind: round(speed.ratio) for speed in found.speedups} == {
        "calibrated": 120,
        "fixed lam": 600,
        "calibrated, aim nonexistent": 100,
    }


def test_times_measured_alone_go_before_those_of_a_sweep() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    store = store_with(plan, lambda *_: (0.9, 0.5, 0.5), {"retrain": 6.0, "calibrated": 0.5})
    alone = Plan("paper/time", "Time", [Job(j.label, j.key | {"measures": ["time"]}) for j in plan.cells])
    for job in alone.cells:
        spent = {"retrain": 5.0} if job.label == "retrain" else {"delete": 0.01, "calibrated": 0.05}
        store.add(job.key, row(job.label, 5.0, test_auroc=0.9) | {"seconds_of": spent})
    found = answers(store, plan, alone)
    assert {(s.kind, round(s.ratio), s.undisturbed) for s in found.speedups} == {
        ("fixed lam", 500, True),
        ("calibrated", 100, True),
    }
    assert "| DBLP | fixed lam | 500× | alone |" in summary_page(found)


def test_nothing_is_claimed_of_an_empty_store() -> None:
    plan = link_plan("cora", missing={"cora": "needs a download"})
    found = answers(Store(None), plan)
    assert (found.means, found.distances, found.speedups) == ((), (), ())
    assert summary_page(found).count("Not run yet.") == 3


def test_failed_cells_do_not_count() -> None:
    plan = link_plan()
    store = store_of(plan)
    for job in plan.cells:
        if job.label == "paper()" and job.key["model"]["name"] == "gat":
            store.add(job.key, {"label": "paper()", "error": "memory ran out", "kind": "RunError"})
    cells = {each.label: each.cells for each in answers(store, plan).means}
    assert (cells["paper()"], cells["nonexistent"]) == (4, 8)


def test_runs_with_a_fallback_lam_have_a_line_and_no_speedup() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    store = store_with(plan, lambda *_: (0.9, 0.5, 0.5))
    for cell, result in list(store.items()):
        if cell["method"].get("lam") == "auto":
            store.add(cell, result | {"calibration": {"status": "fallback"}})
    found = answers(store, plan)
    assert {each.label for each in found.distances} == {"calibrated, fallback lam"}
    assert found.speedups == ()


def test_a_second_retrain_is_shown_however_few_cells_it_has() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    more = [Job(j.label, j.key | {"dataset": name}) for name in ("cs", "pubmed", "cora") for j in plan.cells]
    twin = [Job("retrain-again", key("dblp", "gcn", {"name": "retrain-again"}, seed, "in")) for seed in SEEDS]
    whole = Plan(plan.name, plan.title, [*plan.cells, *more, *twin], plan.published)
    store = store_with(whole, lambda label, *_: (0.9, 0.5, 0.504 if label == "retrain-again" else 0.5))
    page = summary_page(answers(store, whole))
    assert "| retrain-again (control) | 1 | 0.0040 | 0.0040 | +0.0040 |" in page
