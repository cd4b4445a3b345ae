"""Figures: scores against lam, times, and methods against each other; headings and legends stay within their width."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from gnndelete.bench.names import listed
from gnndelete.bench.report import figures
from gnndelete.bench.report.figures import (
    Comparison,
    Sweep,
    compare,
    drawn,
    lam_figure,
    lam_sweeps,
    legend,
    method_figures,
    scatter,
    time_figure,
    time_series,
)
from gnndelete.bench.report.pages import Commands, build
from gnndelete.bench.report.results import Plan, Result, Stat, gather, timings
from gnndelete.io.store import Store

from .sample import METHODS, RING, SEEDS, Job, key, lam_plan, link_plan, row, store_of, time_plan

COMMANDS = Commands("results.jsonl", "out", "cuda")


SWEEP = {f"lam {lam}": METHODS["paper()"] | {"lam": lam} for lam in (0, 0.5, 0.9)}


def swept(task: str, kind: str, **scores: float) -> tuple[Plan, Store]:
    """Three values of lam, and Retrain, whose rows have these scores."""
    methods = {"retrain": METHODS["retrain"], **SWEEP}
    rest: dict[str, Any] = {"task": task, "forget": {"kind": kind}}
    jobs = [Job(label, key("digits", "gcn", method, 1, "random", **rest)) for label, method in methods.items()]
    store = Store(None)
    for job in jobs:
        store.add(job.key, row(job.label, 0.1, **scores))
    return Plan("mine", "Mine", jobs), store


@pytest.mark.parametrize(
    ("task", "kind", "scores", "panels"),
    [
        ("node", "edges", ["test_accuracy", "test_f1"], {"test_accuracy": "accuracy"}),
        (
            "node",
            "nodes",
            ["test_accuracy", "unseen_auc"],
            {"test_accuracy": "accuracy", "unseen_auc": "unseen AUC"},
        ),
        ("graph", "graphs", ["test_accuracy", "test_f1"], {"test_accuracy": "accuracy"}),
        ("graph", "graphs", ["test_auroc", "test_accuracy"], {"test_auroc": "test AUROC"}),
        (
            "link",
            "edges",
            ["test_auroc", "deleted_auroc"],
            {"test_auroc": "test AUROC", "deleted_auroc": "deleted AUROC"},
        ),
    ],
)
def test_the_panels_over_lam_follow_the_task(task: str, kind: str, scores: list[str], panels: dict[str, str]) -> None:
    plan, store = swept(task, kind, **dict.fromkeys(scores, 0.8))
    (picture,) = lam_sweeps(plan, gather(plan, store))
    assert list(picture.curves) == list(picture.retrain) == list(panels)
    said = re.findall(r"<text[^>]*>([^<]*)<", lam_figure(picture, "svg").decode())
    assert [text for text in said if re.search("AUR?O?C|accuracy", text)] == list(panels.values())
    assert "means over 1 seed" in said  # and one seed has no bars


def test_a_sweep_without_any_score_is_reported_without_a_figure() -> None:
    plan, store = swept("node", "edges")
    assert lam_sweeps(plan, gather(plan, store)) == []
    made = build([plan], store, COMMANDS)
    assert not [path for path in made if path.startswith("figures/")]
    assert "own/mine.md" in made


def test_the_line_of_retrain_keeps_off_the_edge_of_its_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    panels: list[Any] = []
    whole = figures.drawn
    monkeypatch.setattr(
        figures,
        "drawn",
        lambda draw, *rest: whole(lambda figure: (draw(figure), panels.extend(figure.axes)), *rest),
    )
    points = tuple((lam, Stat(0.2 + lam / 4, None, 1)) for lam in (0.0, 0.5, 1.0))
    level = 0.46  # just above the highest point
    lam_figure(Sweep("Mine", {"unseen_auc": {"ours": points}}, {"unseen_auc": []}, {"unseen_auc": level}), "png")
    low, high = panels[0].get_ylim()
    assert high - level > 0.04 * (high - low)


def test_a_sweep_without_retrain_has_no_level() -> None:
    whole = lam_plan()
    plan = Plan(whole.name, whole.title, [job for job in whole.cells if job.label != "retrain"])
    (picture,) = lam_sweeps(plan, gather(plan, store_of(whole)))
    assert picture.retrain == {}


def timed(parts: list[dict[str, Any]], *, graph: str = "generated:collab", **changes: Any) -> tuple[Plan, Store]:
    """A calibrated deletion of every part, timed; the time is as long as its position in the list."""
    made = [key(graph, "gcn", METHODS["calibrated"], 42, "random", measures=["time"], forget=part) for part in parts]
    jobs, store = [Job("calibrated", each | changes) for each in made], Store(None)
    for number, job in enumerate(jobs, 1):
        store.add(job.key, row(job.label, 0.1) | {"seconds_of": {"delete": float(number), "forward": 0.01}})
    return Plan("mine", "Mine", jobs), store


def test_times_are_compared_with_retrain_and_other_methods_have_their_names() -> None:
    plan = time_plan()
    store = store_of(plan)
    others = [Job(label, job.key | {"method": METHODS[label]}) for job in plan.cells for label in ("unlink", "retrain")]
    for job in others:
        spent = {"delete": 0.1, "forward": 0.01} if job.label == "unlink" else {"retrain": 50.0}
        store.add(job.key, row(job.label, 0.1) | {"seconds_of": spent})
    results = gather(Plan("t", "t", [*plan.cells, *others]), store)
    (picture,) = time_series(results)
    assert (picture.model, picture.axis, picture.connected) == ("gcn", "edges", True)
    assert picture.datasets == listed(f"generated collab, {size} edges" for size in ("100k", "1M", "10M", "100M"))
    assert [size for size, _ in picture.lines["deletion, fixed lam"]] == [1e5, 1e6, 1e7, 1e8]
    assert {seconds for _, seconds in picture.lines["Unlink"]} == {0.1}
    timing = next(timing for timing in timings(results) if timing.result.label == "unlink")
    assert timing.ratio("retrain", "delete") == pytest.approx(500)
    assert timing.ratio("delete", "forward") == pytest.approx(10)
    assert timing.ratio("further", "forward") is None


def lines_of(shapes: dict[str, dict[str, Any]]) -> dict[str, Sequence[tuple[float, float]]]:
    """The lines of a figure in which these settings of GNNDelete are timed next to each other."""
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
    (picture,) = time_series(gather(Plan("t", "t", jobs), store))
    assert picture.axis == "share of deleted edges"
    return dict(picture.lines)


def test_several_deletions_are_named_by_their_labels() -> None:
    ring = METHODS["calibrated"] | {"lam": 0.5}
    lines = lines_of({"ring lam 0.5": ring, "shared": ring | {"operator": "shared", "lam": "auto", "rule": 5}})
    assert list(lines) == [
        "one forward pass",
        "deletion, fixed lam (ring lam 0.5)",
        "deletion, fixed lam (shared)",
        "deletion, graph known (ring lam 0.5)",
        "deletion, calibrated (ring lam 0.5)",
    ]
    assert lines["deletion, fixed lam (shared)"] == [(0.01, 0.01), (0.05, 0.05)]


def test_one_deletion_has_no_brackets() -> None:
    alone = ["one forward pass", "deletion, fixed lam", "deletion, graph known", "deletion, calibrated"]
    assert list(lines_of({"calibrated": METHODS["calibrated"]})) == alone


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
    pictures = time_series(gather(plan, store))
    assert {picture.axis: picture.lines["deletion, fixed lam"] for picture in pictures} == {
        "number of deleted nodes": [(20, 1), (40, 2)],
        "share of elements with deleted features": [(0.02, 4), (0.04, 5)],
        "share of deleted edges": [(0.05, 7), (0.1, 8)],
    }
    made = build([plan], store, COMMANDS)
    assert len([path for path in made if path.startswith("figures/mine-time-gcn-")]) == 3
    assert "Time against the number of deleted nodes, GCN" in made["own/mine.md"].decode()
    counts, shares = (re.findall(r"<text[^>]*>([^<]*)<", time_figure(p, "svg").decode()) for p in pictures[:2])
    assert {"number of deleted nodes", "20", "40"} <= set(counts)
    assert not [text for text in counts if "%" in text]
    assert {"share of elements with deleted features", "2%", "4%"} <= {text.replace(".00", "") for text in shares}


def test_one_point_of_each_kind_is_no_figure() -> None:
    parts = [{"kind": "nodes", "amount": 20}, *({"kind": k, "amount": 0.02} for k in ("features", "labels", "edges"))]
    plan, store = timed(parts)
    assert time_series(gather(plan, store)) == []


def test_models_of_one_name_have_curves_of_their_own() -> None:
    parts = [{"amount": 0.05}, {"amount": 0.1}]
    (wide, store), (narrow, other) = timed(parts), timed(parts, model={"name": "gcn", "hidden": 32})
    for cell, result in other.items():
        store.add(cell, result)
    pictures = time_series(gather(Plan("mine", "Mine", [*wide.cells, *narrow.cells]), store))
    assert [picture.title for picture in pictures] == ["GCN (hidden 128)", "GCN (hidden 32)"]


def both_scores(result: Result) -> tuple[float | None, ...]:
    stats = [result.stat(metric) for metric in ("deleted_auroc", "test_auroc")]
    return tuple(stat.mean if stat else None for stat in stats)


def test_methods_are_compared_over_the_cells_they_share() -> None:
    plan = link_plan()
    store = store_of(plan)
    for job in plan.cells:  # fails where it would have looked best
        if job.label == "gradascent" and job.key["forget"]["where"] == "in":
            store.add(job.key, {"label": "gradascent", "error": "memory ran out", "kind": "RunError"})
    found = compare(gather(plan, store), both_scores)
    assert {scenario.where for scenario in found.scenarios} == {"out"}
    assert {"Unlink", "calibrated", "GradAscent", "Retrain"} <= set(found.points)
    assert found.controls == {"zeroed (control)"}
    assert found.caption == "Means over 4 cells: GCN and GAT on DBLP; 2.5% of edges, OUT; 5% of edges, OUT."


def test_a_sweep_over_lam_takes_no_cells_from_the_other_methods() -> None:
    plan = link_plan()
    lams = {f"ring lam {lam}": METHODS["paper()"] | RING | {"lam": lam} for lam in (0.1, 0.2, 0.8)}
    swept = [Job(label, key("dblp", "gcn", method, seed)) for label, method in lams.items() for seed in SEEDS]
    whole = Plan("p", "P", [*plan.cells, *swept])
    found = compare(gather(whole, store_of(whole)), both_scores)
    assert len(found.scenarios) == 8
    assert not set(lams) & set(found.points)


def test_the_figures_of_all_methods_name_every_method() -> None:
    plan = link_plan()
    nearest, scores = method_figures(gather(plan, store_of(plan)), "svg")
    assert (nearest.name, scores.name) == ("methods-retrain", "methods-scores")
    for figure, names in ((nearest, {"Unlink", "zeroed (control)", "calibrated"}), (scores, {"Retrain", "paper()"})):
        assert names <= set(re.findall(r"<text[^>]*>([^<]*)<", figure.content.decode()))


def test_short_logarithmic_axes_have_plain_labels() -> None:
    points = {name: (x, 2 * x) for name, x in (("a", 0.06), ("b", 0.061), ("c", 0.08))}
    svg = scatter(Comparison(points), "T", ("x", "y"), True, "svg").decode()
    texts = re.findall(r"<text[^>]*>([^<]*)<", svg)
    assert "0.05" in texts
    assert not [text for text in texts if "$" in text or "mathdefault" in text]


def test_lam_curves_have_the_papers_points_and_retrain() -> None:
    plan = lam_plan()
    (picture,) = lam_sweeps(plan, gather(plan, store_of(plan)))
    assert list(picture.curves["deleted_auroc"]) == [
        "operator shared, targets original",
        "operator ring, targets remaining",
    ]
    curve = picture.curves["test_auroc"]["operator shared, targets original"]
    assert [lam for lam, _ in curve] == [0, 0.2, 0.4, 0.5, 0.6, 0.8, 1]
    assert dict(picture.paper["deleted_auroc"])[0.5] == 0.748
    assert picture.retrain["test_auroc"] == pytest.approx(0.964, abs=0.01)


def reach(svg: bytes) -> tuple[float, dict[str, float]]:
    """How wide a figure is, and where the texts of its heading and its legend end, in points."""
    (wide,) = re.findall(r'<svg[^>]* width="([\d.]+)pt"', svg.decode())
    found = {}
    for tag, words in re.findall(r"<text ([^>]*)>([^<]*)<", svg.decode()):
        if "anchor: middle" not in tag and "anchor: end" not in tag:
            left, size = re.search(r'(?:x="|translate\()([\d.]+)', tag), re.search(r"([\d.]+)px", tag)
            assert left
            assert size
            drawn = TextPath((0, 0), words, prop=FontProperties(family="DejaVu Sans", size=float(size[1])))
            found[words] = float(left[1]) + float(drawn.get_extents().x1)
    return float(wide), found


def test_a_legend_takes_as_many_lines_as_it_needs() -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number in range(4):
            axes.plot([0, 1], [0, number], label=f"operator shared, targets of layer {number}")
        legend(figure)

    wide, ends = reach(drawn(draw, (3.6, 3.3), "Narrow", "svg"))
    assert sum("operator" in words for words in ends) == 4
    assert max(ends.values()) <= wide
