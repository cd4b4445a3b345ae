"""The contract of a measure: one class of another package is run, stored and shown like the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import pytest

import gnndelete as gd
from gnndelete.auditing import entry
from gnndelete.auditing.case import Case
from gnndelete.auditing.measures import BUILT_IN, Measure, NotMeasuredError, Section, Table, measures
from gnndelete.auditing.report import text
from gnndelete.testing import problem


@dataclass(frozen=True, kw_only=True)
class SizeSection(Section):
    share: float

    def tables(self, names: object) -> Iterable[Table]:
        yield Table(("size", "value"), (("deleted share", f"{self.share:.4f}"),))


class Size(Measure):
    name: ClassVar[str] = "size"
    title: ClassVar[str] = "Size of the request"

    def run(self, case: Case) -> SizeSection:
        if not case.deletion.edges.size(1):
            raise NotMeasuredError("no edge was deleted")
        return SizeSection(
            share=case.deletion.edges.size(1) / case.original.edge_index.size(1), sentence="So much went."
        )


def test_built_in_measures_have_names_of_their_own() -> None:
    assert [measure.name for measure in measures()][: len(BUILT_IN)] == [kind.name for kind in BUILT_IN]
    assert len({kind.name for kind in BUILT_IN}) == len(BUILT_IN)


def test_another_measure_is_run_stored_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (entry, text):
        monkeypatch.setattr(module, "measures", lambda: [*measures(), Size()])
    model, data, task = problem("link")
    unlearner = gd.Unlearner(model, data, task=task, method="unlink")
    found = gd.audit(unlearner.delete(gd.Deletion(edges=data.edge_index[:, :20])), attacks=False)
    assert found.to_dict()["size"]["available"]
    assert 0 < found.to_dict()["size"]["share"] < 1
    assert "Size of the request" in found.to_html()
    assert "So much went." in found.to_html()
    nodes = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(nodes=[3]))
    assert "Size of the request: No edge was deleted." in str(gd.audit(nodes, attacks=False))
