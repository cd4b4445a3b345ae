"""The published numbers: complete, in this library's own names, and found where they belong."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest

from gnndelete.bench.names import METRICS
from gnndelete.bench.published import metrics, published
from gnndelete.datasets import describe
from gnndelete.methods import resolver as methods
from gnndelete.models import resolver as models

LINES = list(csv.DictReader(files("gnndelete.bench").joinpath("published.csv").read_text().splitlines()))


def test_every_line_is_named_as_the_library_names_things() -> None:
    labels = {"paper()", "last layer", *(f"lam {lam}" for lam in ("0", "0.2", "0.4", "0.5", "0.6", "0.8", "1"))}
    for line in LINES:
        assert line["dataset"] in {entry.name for entry in describe()}
        assert line["model"] in models.lookup_dict
        assert line["method"] in labels | set(methods.lookup_dict)
        assert line["metric"] in METRICS
        assert line["where"] in ("", "in", "out")


def test_no_number_stands_twice_and_scores_are_scores() -> None:
    keys = [tuple(value for name, value in line.items() if name not in ("value", "std")) for line in LINES]
    assert len(keys) == len(set(keys))
    for line in LINES:
        if line["metric"].endswith(("auroc", "accuracy", "f1", "share")):
            assert 0 < float(line["value"]) < 1


def test_the_main_tables_are_whole() -> None:
    main = [line for line in LINES if (line["experiment"], line["method"]) == ("link_prediction", "paper()")]
    places = {(line["dataset"], line["model"], line["where"], float(line["amount"])) for line in main}
    assert len(places) == 78  # 18 on Cora, PubMed and DBLP, 12 on OGB-Collab and WordNet18
    for place in places:
        for method in ("retrain", "gradascent", "d2d", "grapheraser", "paper()"):
            assert published("link_prediction", *place, method, "test_auroc") is not None
            assert published("link_prediction", *place, method, "deleted_auroc") is not None


@pytest.mark.parametrize(
    ("part", "place", "method", "metric", "value"),
    [
        ("link_prediction", ("dblp", "gcn", "out", 0.025), "paper()", "deleted_auroc", 0.892),
        ("mi", ("wordnet18", "rgcn", "in", 0.025), "retrain", "mi_ratio", 1.250),
        ("lambda", ("dblp", "gcn", "in", 0.025), "lam 0.2", "deleted_auroc", 0.593),
        ("placement", ("dblp", "gcn", "in", 0.025), "last layer", "test_auroc", 0.927),
        ("downstream", ("ogbg-molhiv", "gcn", "random", 0.025), "paper()", "test_auroc", 0.710),
        ("node_deletion", ("dblp", "gcn", "random", 100), "paper()", "test_f1", 0.768),
        ("feature_deletion_links", ("dblp", "gcn", "random", 100), "d2d", "test_auroc", 0.504),
        ("sequential", ("dblp", "gcn", "in", 0.015), "paper()", "test_auroc", 0.943),
        ("jodie", ("dblp", "gcn", "in", 0.025), "jodie", "deleted_auroc", 0.613),
        ("outliers", ("dblp", "gcn", "in", 0.025), "grapheditor", "regular_share", 0.642),
        ("parameters", ("ogbl-collab", "gcn", "in", 0.05), "grapheraser", "parameters", 52160),
        ("time", ("wordnet18", "rgcn", "in", 0.025), "paper()", "speedup", 12.3),
    ],
)
def test_numbers_of_every_part(
    part: str, place: tuple[str, str, str, float], method: str, metric: str, value: float
) -> None:
    found = published(part, *place, method, metric)
    assert found is not None
    assert found.value == value
    assert metric in metrics(part)


def test_a_silent_part_is_helped_by_the_main_tables_alone() -> None:
    place = ("dblp", "gcn", "in", 0.025)
    main = published("link_prediction", *place, "retrain", "deleted_auroc")
    assert published("lambda", *place, "retrain", "deleted_auroc") == main
    assert published(None, *place, "retrain", "deleted_auroc") is None
    assert published("lambda", *place, "retrain", "mi_ratio") is None
