"""Curves over lam: the panels follow the task, and a place without a score has no figure."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gnndelete.bench import figures
from gnndelete.bench.curves import Curve, LamPicture, lam_pictures
from gnndelete.bench.figures import lam_figure
from gnndelete.bench.gathered import Plan, Stat, gather
from gnndelete.bench.pages import Commands
from gnndelete.bench.report import build
from gnndelete.io.store import Store

from .sample import METHODS, Job, key, row

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
        ("graph", "graphs", ["test_auroc", "test_accuracy"], {"test_auroc": "AUROC"}),
        ("link", "edges", ["test_auroc", "deleted_auroc"], {"test_auroc": "E_t AUROC", "deleted_auroc": "E_d AUROC"}),
    ],
)
def test_the_panels_over_lam_follow_the_task(task: str, kind: str, scores: list[str], panels: dict[str, str]) -> None:
    plan, store = swept(task, kind, **dict.fromkeys(scores, 0.8))
    (picture,) = lam_pictures(plan, gather(plan, store))
    assert list(picture.curves) == list(picture.retrain) == list(panels)
    said = re.findall(r"<text[^>]*>([^<]*)<", lam_figure(picture, "svg").decode())
    assert [text for text in said if re.search("AUR?O?C|accuracy", text)] == list(panels.values())
    assert "means over 1 seed" in said  # and one seed has no bars


def test_a_sweep_without_any_score_is_reported_without_a_figure() -> None:
    plan, store = swept("node", "edges")
    assert lam_pictures(plan, gather(plan, store)) == []
    made, _ = build([plan], store, Commands("results.jsonl", "out", "cuda"))
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
    curve, level = Curve("ours", points), 0.46  # just above the highest point
    lam_figure(LamPicture("Mine", {"unseen_auc": (curve,)}, {}, {"unseen_auc": level}, "1 seed"), "png")
    low, high = panels[0].get_ylim()
    assert high - level > 0.04 * (high - low)
