"""Methods beside each other: over the same cells only, which are named, as are those who are not there."""

from __future__ import annotations

from gnndelete.bench.compared import Point, both_scores, distances, front
from gnndelete.bench.gathered import Plan, gather

from .sample import METHODS, RING, SEEDS, Job, key, link_plan, rows, store_of


def test_methods_are_compared_over_the_same_cells_only() -> None:
    plan = link_plan()
    store = store_of(plan)
    for job in plan.cells:  # fails where it would have looked best
        if job.label == "gradascent" and job.key["forget"]["where"] == "in":
            store.add(job.key, {"label": "gradascent", "error": "memory ran out", "kind": "RunError"})
    found = distances(gather(plan, store))
    labels = {point.label for point in found.points}
    assert {place.where for place in found.places} == {"out"}
    assert len(found.places) == 4
    assert {"Unlink", "calibrated", "GradAscent"} <= labels
    assert "Retrain" not in labels
    assert {point.label for point in both_scores(gather(plan, store)).points} == labels | {"Retrain"}
    assert (
        found.caption
        == "Means over 4 cells of 3 seeds: GCN and GAT on DBLP, 2.5% of the edges, OUT; 5% of the edges, OUT."
    )


def test_who_has_too_few_cells_is_named() -> None:
    plan = link_plan()
    lams = {f"ring lam {lam}": METHODS["paper()"] | RING | {"lam": lam} for lam in (0.1, 0.2, 0.8)}
    swept = [Job(label, key("dblp", "gcn", method, seed)) for label, method in lams.items() for seed in SEEDS]
    store = store_of(Plan("p", "P", [job for job in plan.cells if job.label != "gradascent"] + swept))
    for cell, result in rows(Plan("p", "P", [job for job in plan.cells if job.label == "gradascent"])):
        if (cell["forget"]["where"], cell["model"]["name"]) == ("in", "gcn"):
            store.add(cell, result)
    found = both_scores(gather(Plan("p", "P", [*plan.cells, *swept]), store))
    assert len(found.places) == 8
    assert "Left out: GradAscent (too few cells in common with the others); 3 settings of GNNDelete" in found.caption


def test_a_few_cells_are_enough_where_there_are_no_more() -> None:
    plan = link_plan(models=("gcn",))
    one = Plan("own", "One", [job for job in plan.cells if job.key["forget"] == plan.cells[0].key["forget"]])
    found = both_scores(gather(one, store_of(one)))
    assert len(found.points) == len(METHODS)
    assert found.cells == "GCN on DBLP, 2.5% of the edges, IN"


def test_front_is_what_nothing_beats() -> None:
    points = [Point(name, x, y, "other") for name, x, y in (("a", 1, 3), ("b", 2, 2), ("c", 3, 1), ("d", 3, 3))]
    assert [point.label for point in front(points)] == ["a", "b", "c"]
