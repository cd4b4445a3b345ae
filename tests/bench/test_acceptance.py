"""The summary: every answer follows from rows, cells count once, and gaps are taken seed by seed."""

from __future__ import annotations

from typing import Any

import pytest

from gnndelete.bench.acceptance import Acceptance, acceptance
from gnndelete.bench.gathered import Plan, gather
from gnndelete.bench.summary import headline, summary_page
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


def answers(store: Store, *plans: Plan, **options: Any) -> Acceptance:
    return acceptance([(plan, gather(plan, store)) for plan in plans], **options)


def test_within_means_both_scores() -> None:
    def scores(label: str, where: str, seed: int) -> tuple[float, float, float]:
        use, deleted = THEIRS[where]
        return use + 0.01, deleted + (0.02 if where == "in" else 0.05), 0.5

    plan = plan_of()
    found = answers(store_with(plan, scores), plan)
    assert [(b.cell.place.where, b.within) for b in found.repeated] == [("in", True), ("out", False)]
    first = headline(found)[0]
    assert (first["answer"], first["reached"]) == ("1 of 2 (50%)", False)
    assert "| DBLP | GCN | 2.5% of the edges, OUT | 0.967 (+0.010) | 0.942 (+0.050) |" in summary_page(found)


def test_models_of_one_name_are_told_apart_by_their_options() -> None:
    plan = plan_of()
    wide = [Job(job.label, job.key | {"model": {"name": "gcn", "hidden": 64}}) for job in plan.cells]
    both = Plan(plan.name, plan.title, [*plan.cells, *wide], plan.published)
    store = store_with(both, lambda *_: (0.94, 0.95, 0.5))
    page = summary_page(answers(store, both))
    for hidden in (64, 128):
        assert f"| DBLP | GCN (hidden {hidden}) | 2.5% of the edges, IN | 0.940" in page
    assert "| DBLP | GCN | 2.5% of the edges, IN | 0.940" in summary_page(answers(store, plan))


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
    assert (both.gaps, both.speeds, both.short) == (alone.gaps, alone.speeds, ("paper/parameters",))
    assert "trained too shortly to count in `paper/parameters`" in summary_page(both)
    assert "too shortly" not in summary_page(alone)
    assert not answers(store, short).speeds


def test_above_means_both_scores_for_one_setting_of_all_cells() -> None:
    def scores(label: str, where: str, seed: int) -> tuple[float, float, float]:
        use, deleted = THEIRS[where]
        return use + (0.01 if label == "nonexistent" else -0.01), deleted + 0.01, 0.5

    plan = plan_of()
    store = store_with(plan, scores)
    assert headline(answers(store, plan))[1]["answer"] == "2 of 2 (100%)"
    assert headline(answers(store, plan, best="calibrated"))[1]["answer"] == "0 of 2 (0%)"


def test_gaps_do_not_cancel_between_seeds() -> None:
    def scores(label: str, where: str, seed: int) -> tuple[float, float, float]:
        shift = (0.01, -0.01, 0.0)[seed] if label == "calibrated" else 0.0
        return 0.9 + 0.02 * seed + shift, 0.5, 0.5 + 2 * shift

    plan = plan_of()
    found = answers(store_with(plan, scores), plan)
    gap = next(g for g in found.gaps if g.label == "calibrated" and g.metric == "test_auroc")
    assert gap.cells == 2
    assert gap.seed_gap == pytest.approx(0.02 / 3)
    assert gap.cell_gap == pytest.approx(0, abs=1e-12)
    by_cell, use, _, unseen = headline(found)[2:6]
    assert (by_cell["reached"], use["reached"], unseen["reached"]) == (True, False, True)
    assert unseen["value"] == pytest.approx(0.04 / 3)


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
    near = {gap.label: gap for gap in found.gaps if gap.metric == "test_auroc"}
    assert (near["unlink"].cells, near["calibrated"].cells) == (4, 8)
    assert near["unlink"].seed_gap < near["calibrated"].seed_gap
    assert {gap.shared for gap in near.values()} == {4}
    assert near["calibrated"].shared_gap == pytest.approx(0.01)
    page = summary_page(found).partition("## Distance to Retrain")[2]
    assert "| E_t AUROC, link | cells | seed by seed | by cell | signed | shared, 4 cells | farthest cell |" in page
    lines = [line.split(" | ")[0] for line in page.splitlines() if line.startswith(("| Unlink |", "| calibrated |"))]
    assert lines == ["| calibrated", "| Unlink"] * 2  # in both scores
    same = Plan(whole.name, whole.title, [job for job in cells if job.label != "unlink"], whole.published)
    assert "shared, " not in summary_page(answers(store, same))


def test_cells_that_experiments_share_count_once() -> None:
    plan, again = plan_of(), plan_of("beyond/gap")
    store = store_with(plan, lambda *_: (0.94, 0.75, 0.5))
    once, twice = answers(store, plan), answers(store, plan, again)
    assert len(once.repeated) == len(twice.repeated) == 2
    assert [gap.cells for gap in once.gaps] == [gap.cells for gap in twice.gaps]


def test_the_same_cell_under_another_name_still_answers_the_question() -> None:
    jobs = [Job("lam 0.5", key("dblp", "gcn", METHODS["paper()"], seed)) for seed in SEEDS]
    other, plan = Plan("paper/lambda", "lam", jobs, "link_prediction"), plan_of()
    found = answers(store_with(plan, lambda *_: (0.94, 0.75, 0.5)), other, plan)
    assert len(found.repeated) == 2


def test_the_slowest_cell_of_a_dataset_counts() -> None:
    seconds = {"retrain": 6.0, "paper()": 0.01, "calibrated": 0.05, "nonexistent": 0.06}
    plan = plan_of()
    found = answers(store_with(plan, lambda *_: (0.9, 0.5, 0.5), seconds), plan)
    assert {speed.kind: round(speed.ratio) for speed in found.speeds} == {
        "calibrated": 120,
        "fixed": 600,
        "nonexistent": 100,
    }
    assert [line["reached"] for line in headline(found)[6:]] == [True, True]
    calibrated = headline(found)[7]
    assert calibrated["question"] == "a deletion calibrated for the aim `retrained` against Retrain"
    assert "Beside it, for the aim nonexistent: 100× on DBLP" in calibrated["answer"]


def test_datasets_without_a_time_of_their_own_are_named() -> None:
    plan = plan_of(labels=("retrain", "paper()", "calibrated"))
    other = [Job(job.label, job.key | {"dataset": "cs"}) for job in plan.cells if job.label != "calibrated"]
    both = Plan(plan.name, plan.title, [*plan.cells, *other], plan.published)
    seconds = {"retrain": 6.0, "paper()": 0.01, "calibrated": 0.05}
    fixed, calibrated = headline(answers(store_with(both, lambda *_: (0.9, 0.5, 0.5), seconds), both))[6:]
    assert "the slowest of 2 datasets" in fixed["answer"]
    assert "not timed" not in fixed["answer"]
    assert calibrated["answer"].endswith("not timed on CS")


def test_times_measured_alone_go_before_those_of_a_sweep() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    store = store_with(plan, lambda *_: (0.9, 0.5, 0.5), {"retrain": 6.0, "calibrated": 0.5})
    alone = Plan("paper/time", "Time", [Job(j.label, j.key | {"measures": ["time"]}) for j in plan.cells])
    for job in alone.cells:
        spent = {"retrain": 5.0} if job.label == "retrain" else {"delete": 0.01, "calibrated": 0.05}
        store.add(job.key, row(job.label, 5.0, test_auroc=0.9) | {"seconds_of": spent})
    found = answers(store, plan, alone)
    assert {(s.kind, round(s.ratio), s.alone) for s in found.speeds} == {
        ("fixed", 500, True),
        ("calibrated", 100, True),
    }
    # the same cell was timed at a fixed lam too, and does not go by its own name there
    assert "| DBLP | fixed lam | 500× | alone | GCN, 2.5% of the edges, IN, fixed lam |" in summary_page(found)


def test_nothing_is_claimed_of_an_empty_store() -> None:
    plan = link_plan("cora", missing={"cora": "needs a download"})
    found = answers(Store(None), plan)
    assert {line["reached"] for line in headline(found)} == {None}
    assert {line["value"] for line in headline(found)} == {None}
    assert "| Cora | 8 | not here | needs a download |" in summary_page(found)


def test_failed_cells_answer_nothing() -> None:
    plan = link_plan()
    store = store_of(plan)
    before = headline(answers(store, plan))
    for job in plan.cells:
        if job.label == "paper()" and job.key["model"]["name"] == "gat":
            store.add(job.key, {"label": "paper()", "error": "memory ran out", "kind": "RunError"})
    after = answers(store, plan)
    assert before[0]["answer"].endswith("%)")
    assert len(after.repeated) == 4
    assert len(after.absent) == 4


def test_failed_cells_are_named_beside_the_verdict_with_their_reason() -> None:
    plan = plan_of()
    store = store_with(plan, lambda *_: (0.94, 0.75, 0.5))
    for job in plan.cells:
        if job.label == "calibrated" and job.key["forget"]["where"] == "out":
            store.add(job.key, {"label": "calibrated", "error": FULL, "kind": "OutOfMemoryError"})
    found = answers(store, plan, plan_of("beyond/gap"))
    lines = headline(found)
    assert [line["left_out"] for line in lines] == [0, 0, 1, 1, 1, 1, 0, 1]
    page = summary_page(found)
    assert page.count("with 1 failed cell left out |") == 5
    said = "| DBLP | GCN | 2.5% of the edges, OUT | calibrated | 13, 21, 42 | CUDA out of memory. Tried to allocate "
    assert f"{said}1.00 GiB; run it with fewer --jobs |" in page
    assert "Process 526" not in page
    assert "these could have changed it." in page


def test_failed_cells_that_no_verdict_asks_for_are_said_to_be_such() -> None:
    plan = plan_of(labels=(*LABELS, "gradascent"))
    store = store_with(plan, lambda *_: (0.94, 0.75, 0.5))
    for job in plan.cells:
        if job.label == "gradascent":
            store.add(job.key, {"label": "gradascent", "error": "all scores are NaN", "kind": "RunError"})
    page = summary_page(answers(store, plan))
    assert "No verdict asks for these cells." in page
    assert "these could have changed it." not in page


FULL = (
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 668.56 MiB is free. "
    "Process 526 has 66.00 MiB memory in use."
)


def test_the_verdict_on_speed_says_how_times_were_taken() -> None:
    plan = plan_of()
    store = store_with(plan, lambda *_: (0.9, 0.5, 0.5), {"retrain": 6.0, "paper()": 0.01, "calibrated": 0.05})
    for cell, result in list(store.items()):
        store.add(cell, result | {"hardware": result["hardware"] | {"jobs": 12}})
    assert headline(answers(store, plan))[6]["answer"].endswith("timed in a sweep of up to 12 processes on one GPU")


def test_files_of_ones_own_are_held_against_no_aim() -> None:
    plan = plan_of("mine")
    found = answers(store_with(plan, lambda *_: (0.94, 0.75, 0.5)), plan)
    assert {line["reached"] for line in headline(found)} == {None}
    assert "at least 200 times" not in summary_page(found)
    shipped = plan_of()
    assert answers(store_with(shipped, lambda *_: (0.94, 0.75, 0.5)), shipped, plan).graded


def test_cells_that_the_paper_prints_are_counted_apart() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    other = [Job(job.label, job.key | {"dataset": "cs"}) for job in plan.cells]
    both = Plan(plan.name, plan.title, [*plan.cells, *other], plan.published)
    store = Store(None)
    for job in both.cells:
        off = 0.0 if job.label == "retrain" else 0.01 if job.key["dataset"] == "dblp" else 0.03
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9, deleted_auroc=0.5, unseen_auc=0.5 + off))
    by_cell, by_seed = headline(answers(store, both))[4:6]
    assert by_cell["answer"] == "0.0200, 4 cells of 3 seeds"
    assert by_seed["answer"] == "0.0200, 0.0100 over the 2 cells that the paper prints"
    assert "the paper prints" not in headline(answers(store, plan))[5]["answer"]


def test_a_second_retrain_is_shown_however_few_cells_it_has() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    more = [Job(j.label, j.key | {"dataset": name}) for name in ("cs", "pubmed", "cora") for j in plan.cells]
    twin = [Job("retrain-again", key("dblp", "gcn", {"name": "retrain-again"}, seed, "in")) for seed in SEEDS]
    whole = Plan(plan.name, plan.title, [*plan.cells, *more, *twin], plan.published)
    store = store_with(whole, lambda label, *_: (0.9, 0.5, 0.504 if label == "retrain-again" else 0.5))
    page = summary_page(answers(store, whole))
    assert "| Retrain again (control) | 1 | 0.0040 | 0.0040 | +0.0040 |" in page
    assert "Where Retrain was run twice, in 1 cell: 0.0000, and the second Retrain has 0.0040" in page
