"""Times and their curves: against the size of graphs, or against what is deleted, kinds and units never on one axis."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gnndelete.bench.figures import time_figure
from gnndelete.bench.gathered import Plan, gather
from gnndelete.bench.pages import Commands
from gnndelete.bench.report import build
from gnndelete.bench.timecurves import time_pictures, timings
from gnndelete.io.store import Store

from .sample import METHODS, Job, key, row, store_of, time_plan


def timed(parts: list[dict[str, Any]], *, graph: str = "generated:collab", **changes: Any) -> tuple[Plan, Store]:
    """A calibrated deletion of every part, timed; the time is as long as its place in the list."""
    made = [key(graph, "gcn", METHODS["calibrated"], 42, "random", measures=["time"], forget=part) for part in parts]
    jobs, store = [Job("calibrated", each | changes) for each in made], Store(None)
    for number, job in enumerate(jobs, 1):
        store.add(job.key, row(job.label, 0.1) | {"seconds_of": {"delete": float(number), "forward": 0.01}})
    return Plan("mine", "Mine", jobs), store


def test_times_stand_beside_retrain_and_other_methods_keep_their_names() -> None:
    plan = time_plan()
    store = store_of(plan)
    others = [Job(label, job.key | {"method": METHODS[label]}) for job in plan.cells for label in ("unlink", "retrain")]
    for job in others:
        spent = {"delete": 0.1, "forward": 0.01} if job.label == "unlink" else {"retrain": 50.0}
        store.add(job.key, row(job.label, 0.1) | {"seconds_of": spent})
    results = gather(Plan("t", "t", [*plan.cells, *others]), store)
    (picture,) = time_pictures(results)
    assert (picture.model, picture.axis, picture.joined) == ("gcn", "edges", True)
    assert picture.named == "generated collab, 100k to 100M edges"
    assert [size for size, _ in picture.lines["deletion, fixed lam"]] == [1e5, 1e6, 1e7, 1e8]
    assert {seconds for _, seconds in picture.lines["Unlink"]} == {0.1}
    timing = next(timing for timing in timings(results) if timing.result.label == "unlink")
    assert timing.ratio("retrain", "delete") == pytest.approx(500)
    assert timing.ratio("delete", "forward") == pytest.approx(10)
    assert timing.ratio("further", "forward") is None


def beside(shapes: dict[str, dict[str, Any]]) -> dict[str, tuple[tuple[float, float], ...]]:
    """The lines of a figure in which these settings of GNNDelete are timed beside each other."""
    jobs = [
        Job(label, key("generated:collab", "gcn", method, 42, "random", amount, measures=["time"]))
        for amount in (0.01, 0.05)
        for label, method in shapes.items()
    ]
    store = Store(None)
    for job in jobs:
        amount = job.key["forget"]["amount"]
        spent = {"delete": amount, "forward": 0.01, "further": amount / 2, "calibrated": 9 * amount}
        store.add(job.key, row(job.label, 0.1) | {"seconds_of": spent})
    (picture,) = time_pictures(gather(Plan("t", "t", jobs), store))
    assert picture.axis == "share of deleted edges"
    return dict(picture.lines)


def test_deletions_beside_each_other_are_told_apart_by_the_settings_they_differ_in() -> None:
    ring = METHODS["calibrated"] | {"lam": 0.5}
    lines = beside({"ring lam 0.5": ring, "calibrated": ring | {"operator": "shared", "lam": "auto", "rule": 5}})
    assert list(lines) == [
        "one forward pass",
        "deletion, fixed lam (operator ring)",
        "deletion, fixed lam (operator shared)",
        "deletion, graph known (operator ring)",
        "deletion, calibrated (operator ring)",
    ]
    assert lines["deletion, fixed lam (operator shared)"] == ((0.01, 0.01), (0.05, 0.05))


def test_what_is_timed_alike_is_one_line_without_brackets() -> None:
    alone = ["one forward pass", "deletion, fixed lam", "deletion, graph known", "deletion, calibrated"]
    searched = METHODS["calibrated"]
    assert list(beside({"calibrated": searched})) == alone
    assert list(beside({"calibrated": searched, "lam 0.5": searched | {"lam": 0.5}})) == alone
    lines = beside({"calibrated": searched, "lam 0.2": searched | {"lam": 0.2}})
    assert list(lines)[1:3] == ["deletion, fixed lam (lam 0.5)", "deletion, fixed lam (lam 0.2)"]
    assert list(lines)[-1] == "deletion, calibrated"


def test_kinds_and_units_are_never_joined() -> None:
    parts = [
        {"kind": "nodes", "amount": 20},
        {"kind": "nodes", "amount": 40},
        {"kind": "nodes", "amount": 0.1},
        {"kind": "features", "amount": 0.02},
        {"kind": "features", "amount": 0.04},
        {"kind": "labels", "amount": 0.02},
        {"kind": "edges", "amount": 0.05},
        {"kind": "edges", "amount": 0.1},
    ]
    plan, store = timed(parts)
    pictures = time_pictures(gather(plan, store))
    assert {picture.axis: picture.lines["deletion, fixed lam"] for picture in pictures} == {
        "number of deleted nodes": ((20, 1), (40, 2)),
        "share of nodes with deleted features": ((0.02, 4), (0.04, 5)),
        "share of deleted edges": ((0.05, 7), (0.1, 8)),
    }
    made = build([plan], store, Commands("results.jsonl", "out", "cuda"))[0]
    assert len([path for path in made if path.startswith("figures/mine-time-gcn-")]) == 3
    assert "Time against the number of deleted nodes, GCN" in made["own/mine.md"].decode()
    counts, shares = (re.findall(r"<text[^>]*>([^<]*)<", time_figure(p, "svg").decode()) for p in pictures[:2])
    assert {"number of deleted nodes", "20", "40"} <= set(counts)
    assert not [text for text in counts if "%" in text]
    assert {"share of nodes with deleted features", "2%", "4%"} <= {text.replace(".00", "") for text in shares}


def test_one_point_of_each_kind_is_no_figure() -> None:
    parts = [{"kind": "nodes", "amount": 20}, *({"kind": k, "amount": 0.02} for k in ("features", "labels", "edges"))]
    plan, store = timed(parts)
    assert time_pictures(gather(plan, store)) == []


def test_models_of_one_name_have_curves_of_their_own() -> None:
    parts = [{"amount": 0.05}, {"amount": 0.1}]
    (wide, store), (narrow, other) = timed(parts), timed(parts, model={"name": "gcn", "hidden": 32})
    for cell, result in other.items():
        store.add(cell, result)
    pictures = time_pictures(gather(Plan("mine", "Mine", [*wide.cells, *narrow.cells]), store))
    assert [picture.title for picture in pictures] == ["GCN (hidden 128)", "GCN (hidden 32)"]
