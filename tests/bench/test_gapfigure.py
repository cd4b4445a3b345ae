"""The figure of gaps: it fits on a page, and a few that lie far away are named at the edge and leave the axis to the others."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from gnndelete.bench.curves import GapRow
from gnndelete.bench.gapfigure import gap_figure, limits
from gnndelete.bench.gathered import Stat


def gap_row(number: int, **gaps: float) -> GapRow:
    return GapRow("DBLP", f"GCN {number}", {label: {"mi_ratio": Stat(gap, 0.1, 3)} for label, gap in gaps.items()})


def said(rows: list[GapRow]) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)<", gap_figure(rows, "Attacks", "svg").decode())


def test_gaps_far_beyond_the_others_are_named_at_the_edge() -> None:
    rows = [gap_row(i, unlink=0.05 * i, nonexistent=4.0 - 0.1 * i) for i in range(20)]
    rows += [gap_row(20, unlink=-52.5, nonexistent=66.6), gap_row(21, nonexistent=95.0)]
    words = said(rows)
    assert {"+66.6", "+95", "-52.5"} <= set(words)
    assert "an arrow names a gap beyond the axis" in " ".join(words)
    ticks = [float(word) for word in words if re.fullmatch(r"-?\d+(\.\d+)?", word)]
    assert max(ticks) < 10
    assert {"Unlink", "nonexistent"} <= set(words)


@pytest.mark.parametrize(
    "gaps",
    [
        [0.1, 0.2, 0.1, 50.0],  # few points are all shown
        [0.1] * 8 + [50.0] * 4,  # a third of them is no exception
        [0.1] * 18 + [0.4, 0.5],  # not so far that the others could not be read
        [0.0] * 12,
    ],
)
def test_an_axis_holds_all_gaps_where_these_can_be_read(gaps: list[float]) -> None:
    assert limits([Stat(gap, None, 1) for gap in gaps]) is None
    assert not [word for word in said([gap_row(i, unlink=gap) for i, gap in enumerate(gaps)]) if word.startswith("+")]


def test_bars_do_not_stretch_an_axis_that_leaves_gaps_out() -> None:
    gaps = [Stat(0.1 * i, 30.0 if i == 3 else None, 3) for i in range(20)] + [Stat(-60.0, None, 3)]
    ends = limits(gaps)
    assert ends is not None
    assert -10 < ends[0] < ends[1] < 10


@pytest.mark.parametrize(("datasets", "panels"), [(2, 1), (7, 2), (8, 2)])
def test_many_gaps_fit_on_a_page_with_panels_by_dataset(datasets: int, panels: int) -> None:
    scores = {"test_auroc": Stat(-0.01, 0.002, 3), "unseen_auc": Stat(0.1, None, 1)}
    places = [f"{model}, 2.5%, {where}" for model in ("GCN", "GAT", "GIN") for where in ("at random", "IN")]
    gaps = {"unlink": scores, "paper()": scores}
    rows = [GapRow(f"graph {i}", place, gaps) for i in range(datasets) for place in places]
    drawn = ElementTree.fromstring(gap_figure(rows, "Everywhere", "svg"))
    assert float(drawn.attrib["height"].removesuffix("pt")) <= 72 * 10  # inches
    said = ["".join(text.itertext()).strip() for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert said.count("gap to Retrain in unseen AUC") == panels  # once below each column of panels
    if panels == 1:
        assert said.count("graph 1 GIN, 2.5%, IN") == 1
    else:
        assert [said.count(f"graph {i}") for i in range(datasets)] == [1] * datasets
        assert said.count("GIN, 2.5%, IN") == datasets
