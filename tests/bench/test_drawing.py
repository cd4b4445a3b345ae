"""Sheets of figures: headings and legends stay within their width."""

from __future__ import annotations

import re
from typing import Any

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from gnndelete.bench.compared import Compared, Point
from gnndelete.bench.drawing import drawn, legend
from gnndelete.bench.figures import distance_figure, scores_figure
from gnndelete.bench.gathered import Place


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


@pytest.mark.parametrize("draw", [distance_figure, scores_figure])
def test_the_cells_below_a_heading_are_wrapped_to_the_figure(draw: Any) -> None:
    datasets = ("pubmed", "citeseer", "cora_ml", "planetoid-cora")
    places = tuple(Place(name, "gcn", "edges", "random", 0.025, 1, "link", '{"name": "gcn"}') for name in datasets)
    points = tuple(Point(name, x, x, "other", name) for name, x in (("a", 0.1), ("b", 0.2)))
    wide, ends = reach(draw(Compared(points, places), "svg"))
    assert max(ends.values()) <= wide
    assert "Planetoid Cora, 2.5% of the edges, at random" in " ".join(ends)


def test_a_legend_takes_as_many_lines_as_it_needs() -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number in range(4):
            axes.plot([0, 1], [0, number], label=f"operator shared, targets of layer {number}")
        legend(figure)

    wide, ends = reach(drawn(draw, (3.6, 3.3), "Narrow", "svg"))
    assert sum("operator" in words for words in ends) == 4
    assert max(ends.values()) <= wide
