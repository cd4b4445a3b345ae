"""What a row says where a measure could not be taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gnndelete.auditing.case import Case
from gnndelete.auditing.measures.membership import Membership, MembershipSection
from gnndelete.bench.experiment import read
from gnndelete.bench.runner import run

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
