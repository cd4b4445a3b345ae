"""What a cell measures, for every kind of deletion, and what its row says where a measure could not be taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gnndelete.auditing.case import Case
from gnndelete.auditing.measures.membership import Membership, MembershipSection
from gnndelete.bench import material as materials
from gnndelete.bench.experiment import read
from gnndelete.bench.runner import run
from gnndelete.graph.batch import collate

from .conftest import Write, lines


def test_edges_in_that_are_all_there_are_have_a_note(write: Write, store: Path) -> None:
    """Within two hops, undirected, the graph has no edge that is OUT."""
    file = str(write(forget={"amount": 0.05, "where": ["random", "in"]}, methods=["unlink"], seeds=[1]))
    run([read(file)], store=store)
    rows = {line["key"]["forget"]["where"]: line["row"] for line in lines(store)}
    assert rows["in"]["scores"] == rows["random"]["scores"]
    codes = {where: [note["code"] for note in found["notes"]] for where, found in rows.items()}
    assert "all-edges-in" in codes["in"]
    assert "all-edges-in" not in codes["random"]


def test_an_attack_that_gives_every_element_the_same_answer_has_no_auc(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blind(Membership):
        """The attack on a model that is sure of everything once it has forgotten, as D2D's is."""

        def run(self, case: Case) -> MembershipSection:
            sure = replace(case.after, predict=lambda edges: torch.full((edges.size(1),), 1e4))
            return super().run(replace(case, subjects={**case.subjects, "after": sure}))

    monkeypatch.setattr("gnndelete.bench.measure.Membership", Blind)
    run([read(str(write(methods=["unlink"], measures=["scores", "mi"], seeds=[1])))], store=store)
    (found,) = (line["row"] for line in lines(store))
    assert "mi_auc" not in found["scores"]
    assert "mi_ratio" in found["scores"]
    assert "mi_auc" in found["before"]
    (note,) = [note["text"] for note in found["notes"] if note["code"] == "not-measured"]
    assert "the same answer (" in note


def test_requests_one_after_the_other_end_like_one(write: Write, store: Path) -> None:
    methods = ["unlink", {"label": "fixed", "name": "gnndelete", "lam": 0.5}]
    one = read(str(write("one", methods=methods, seeds=[1])))
    five = read(str(write("five", methods=methods, seeds=[1], forget={"amount": 0.05, "steps": 5})))
    run([one, five], store=store)
    rows = {(line["row"]["label"], line["key"]["forget"]["steps"]): line["row"] for line in lines(store)}
    for label in ("unlink", "fixed"):
        steps = rows[label, 5]["steps"]
        assert [round(step["amount"], 6) for step in steps] == [0.01, 0.02, 0.03, 0.04, 0.05]
        assert rows[label, 5]["scores"] == pytest.approx(rows[label, 1]["scores"])
        assert steps[-1]["test_auroc"] == pytest.approx(rows[label, 1]["scores"]["test_auroc"])
        assert rows[label, 5]["counts"] == rows[label, 1]["counts"]


def test_times_beside_each_other(write: Write, store: Path) -> None:
    methods = ["retrain", {"label": "fixed", "name": "gnndelete", "lam": 0.5}]
    run([read(str(write(methods=methods, measures=["scores", "time"], seeds=[1])))], store=store, jobs=1)
    of = {line["row"]["label"]: line["row"]["seconds_of"] for line in lines(store)}
    assert of["retrain"].keys() == {"forward", "epoch", "retrain"}
    assert of["fixed"].keys() == {"forward", "epoch", "delete", "further", "calibrated"}
    assert all(value > 0 for times in of.values() for value in times.values())


def test_attacks_share_one_shadow(write: Write, store: Path) -> None:
    dataset = "generated:collab?nodes=400&edges=4000&features=8"
    experiment = read(str(write(datasets=[dataset], measures=["scores", "unseen", "mi", "outliers"], seeds=[1])))
    summary = run([experiment], store=store)
    assert summary.models == 2  # the base and the shadow
    for line in lines(store):
        assert {"mi_ratio", "mi_auc", "regular_share", "outlier_share"} <= line["row"]["scores"].keys()
    assert len({line["row"]["mi"]["shadow_auc"] for line in lines(store)}) == 1


CASES = {
    "nodes of a classifier": {"task": "node", "forget": {"kind": "nodes", "amount": 10}},
    "features of a classifier": {"task": "node", "forget": {"kind": "features", "amount": 10}},
    "labels of a classifier": {"task": "node", "forget": {"kind": "labels", "amount": 10}},
    "edges of a classifier": {"task": "node", "forget": {"amount": 0.05}},
    "nodes of a link model": {"forget": {"kind": "nodes", "amount": 10}},
    "triples": {
        "datasets": ["generated:biokg?entities=200&triples=1500&relations=4&community=50"],
        "models": [{"name": "rgcn", "embedding": 8, "hidden": 8, "out": 4}],
        "forget": {"amount": 0.05},
    },
    "a relation": {
        "datasets": ["generated:biokg?entities=200&triples=1500&relations=4&community=50"],
        "models": [{"name": "rgcn", "embedding": 8, "hidden": 8, "out": 4}],
        "forget": {"kind": "relations", "amount": 1},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_deletion(write: Write, store: Path, case: str) -> None:
    changes = dict(CASES[case])
    if changes.get("task") == "node":
        changes["models"] = [{"name": "gcn", "hidden": 8}]
    summary = run([read(str(write(**changes, seeds=[1])))], store=store)
    assert (summary.done, summary.failures) == (3, [])
    for line in lines(store):
        assert {"test_auroc", "test_accuracy"} & line["row"]["scores"].keys()


@pytest.mark.parametrize(
    ("forget", "count"),
    [
        ({"amount": 0.1}, "edges"),
        ({"amount": 0.1, "where": "anywhere"}, "edges"),
        ({"kind": "graphs", "amount": 4}, "graphs"),
        ({"kind": "features", "amount": 4}, "features"),
    ],
)
def test_many_graphs(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch, forget: dict[str, Any], count: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    ring = torch.arange(6)
    edges = torch.cat([torch.stack([ring, ring.roll(1)]), torch.stack([ring.roll(1), ring])], dim=1)
    graphs = collate(
        [
            Data(x=torch.randn(6, 4, generator=generator) + k % 2, edge_index=edges, y=torch.tensor([k % 2]))
            for k in range(60)
        ]
    )
    monkeypatch.setattr(materials, "_load_graph", lambda name: graphs)
    materials._load_material.cache_clear()
    model = {"name": "gcn", "hidden": 8, "num_layers": 2}
    changes = {"task": "graph", "datasets": ["mutag"], "models": [model], "forget": forget, "seeds": [1]}
    summary = run([read(str(write(**changes)))], store=store)
    materials._load_material.cache_clear()
    assert (summary.done, summary.failures) == (3, [])
    assert all(count in line["row"]["counts"] for line in lines(store))
