"""What a number is not: calibrated, timed by today's rule, or taken from the model that Retrain stands beside."""

from __future__ import annotations

from typing import Any

from gnndelete.bench.acceptance import acceptance
from gnndelete.bench.caveats import calibrated_apart, of_today, other_bases, outdated, stated
from gnndelete.bench.cells import search_rule
from gnndelete.bench.gathered import Plan, gather
from gnndelete.bench.pages import Commands
from gnndelete.bench.report import build
from gnndelete.bench.settings import call, call_of
from gnndelete.bench.summary import summary_page
from gnndelete.bench.timecurves import timings
from gnndelete.io.store import Store
from gnndelete.methods import GNNDelete

from .sample import METHODS, SEEDS, Job, key, link_plan, row, store_of, time_plan

WHY = "lam was not calibrated, since no edge is named; 0.03 was taken instead."


def two_of_three() -> tuple[Plan, Store]:
    """Retrain and calibrated deletions of three seeds; two of these could not be calibrated."""
    jobs = [
        Job(label, key("dblp", "gcn", METHODS[label], seed)) for seed in SEEDS for label in ("retrain", "calibrated")
    ]
    plan = Plan("paper/link-dblp", "Links", jobs, "link_prediction")
    store = Store(None)
    for job in jobs:
        made = row(
            job.label, 6.0 if job.label == "retrain" else 0.05, test_auroc=0.9, deleted_auroc=0.5, unseen_auc=0.5
        )
        failed = job.label == "calibrated" and job.key["seed"] != SEEDS[0]
        made |= {"lam": 0.03, "calibration": {"status": "fallback"}, "notes": [WHY]} if failed else {}
        store.add(job.key, made)
    return plan, store


def test_runs_that_could_not_be_calibrated_do_not_count_as_calibrated() -> None:
    plan, store = two_of_three()
    results = gather(plan, store)
    apart = {cell.label: sorted(cell.rows) for cell in calibrated_apart(results)}
    assert apart == {"retrain": sorted(SEEDS), "calibrated": [SEEDS[0]], "calibrated, lam stated": sorted(SEEDS[1:])}
    found = acceptance([(plan, results)])
    (gap,) = [gap for gap in found.gaps if (gap.label, gap.metric) == ("calibrated", "unseen_auc")]
    assert gap.seeds == (1, 1)
    assert not any(stated(row) for speed in found.speeds for row in speed.cell.rows.values())
    assert "calibrated, lam stated" in summary_page(found)


def test_a_table_says_why_a_lam_is_not_calibrated() -> None:
    plan, store = two_of_three()
    made, _ = build([plan], store, Commands("s.jsonl", "out", "cuda"))
    page = made["paper/link-dblp.md"].decode()
    assert "[1] Lam was not calibrated, since no edge is named; 0.03 was taken instead." in page


def test_times_of_an_earlier_rule_are_left_out_and_counted() -> None:
    plan, store = time_plan(), Store(None)
    for number, (job, (where, made)) in enumerate(zip(plan.cells, rows_of(plan), strict=True)):
        rule = search_rule(job.key["method"], "link", "gcn")
        store.add(where, made | {"search_rule": rule if number else rule - 1})
    results = [of_today(cell) for cell in gather(plan, store)]
    assert ["calibrated" in timing.spent for timing in timings(results)] == [False, True, True, True]
    assert outdated(results).startswith("In 1 run the time of a calibrated deletion is left out")
    assert not outdated(gather(plan, store_of(plan)))


def rows_of(plan: Plan) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    store = store_of(plan)
    return [(job.key, dict(store.get(job.key) or {})) for job in plan.cells]


def test_the_rule_of_a_search_is_known_where_lam_is_fixed() -> None:
    fixed = {"name": "gnndelete", **GNNDelete(lam=0.5).settings()}
    assert search_rule(fixed, "link", "gcn") == GNNDelete().rule("link")
    assert search_rule(fixed, "link", "rgcn") == GNNDelete().rule("link", vectors=True)
    enclosing = {"name": "gnndelete", **GNNDelete.paper(hops="directed").settings()}
    assert search_rule(enclosing, "link", "gcn") == GNNDelete(aim="nonexistent").rule("link")


def test_another_training_of_the_base_model_is_told() -> None:
    plan = link_plan(models=("gcn",))
    store = Store(None)
    for job in plan.cells:
        drift = 0.02 if (job.label, job.key["seed"]) == ("calibrated", SEEDS[0]) else 0.0
        before = {"test_auroc": 0.9 + drift}
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9, unseen_auc=0.5) | {"before": before})
    said = other_bases(gather(plan, store))
    assert said.startswith("4 of 72 runs (calibrated) started from another training")
    assert "differ by up to 0.020" in said
    assert not other_bases(gather(plan, store), "unlink")
    assert said.replace("72", "12") in summary_page(acceptance([(plan, gather(plan, store))]))


def test_a_label_has_its_settings() -> None:
    directed = {"name": "gnndelete", **GNNDelete.paper(hops="directed").settings()}
    assert call(directed) == "GNNDelete.paper(hops='directed')"
    assert call({**directed, "lam": 0.8}) != call(directed)
    assert call({"name": "d2d", "preset": "paper"}) == "D2D(preset='paper')"
    plan = link_plan(models=("gcn",))
    calls = {cell.label: call_of(cell) for cell in gather(plan, store_of(plan))}
    assert calls["unlink"] == "Unlink()"
    made, _ = build([plan], store_of(plan), Commands("s.jsonl", "out", "cuda"))
    assert "## Settings" in made["paper/link-dblp.md"].decode()
