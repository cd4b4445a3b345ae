"""Figures as files and as SVG for the page: all of them are drawn, none fetches, none clashes with another."""

from __future__ import annotations

import io
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnndelete.auditing.report import figures as drawing
from gnndelete.auditing.report.figures import Picture, drawn, figure_files
from gnndelete.auditing.report.figures import pictures as pictures_of

sample = runpy.run_path(str(Path(__file__).with_name("sample.py")))


def figures(report: dict[str, Any]) -> dict[str, bytes]:
    return figure_files(sample["made"](report))


def pictures(report: dict[str, Any]) -> list[Picture]:
    return pictures_of(sample["made"](report))


NAMES = ["unseen", "scores", "lam", "attacks", "embedding", "cost"]


def only(name: str) -> dict[str, Any]:
    """The sample without all sections but one."""
    return {key: value for key, value in sample["link"]().items() if key == name or key not in sample["SECTIONS"]}


def colors_of(png: bytes) -> list[tuple[int, int, int]]:
    from matplotlib.image import imread

    red, green, blue = (imread(io.BytesIO(png), format="png")[..., :3] * 255).round().astype(int).reshape(-1, 3).T
    return [(code >> 16, code >> 8 & 255, code & 255) for code in np.unique(red << 16 | green << 8 | blue).tolist()]


def test_every_figure_is_a_png_and_an_svg() -> None:
    made = figures(sample["link"]())
    assert sorted(made) == sorted(f"{name}.{kind}" for name in NAMES for kind in ("png", "svg"))
    for name, content in made.items():
        if name.endswith("png"):
            assert content.startswith(b"\x89PNG")
            assert len(colors_of(content)) > 10, f"{name} is blank"
        else:
            root = ElementTree.fromstring(content)
            assert root.tag.endswith("svg")
            assert "".join(root.itertext()).strip(), f"{name} has no text"


def test_equal_reports_give_equal_files() -> None:
    report = only("cost")
    assert figures(report) == figures(report)


def test_dots_are_drawn_in_the_embedding_png() -> None:
    # Agg draws nothing for a line of no length; the dots must have some.
    orange = [color for color in colors_of(figures(only("embedding"))["embedding.png"]) if color[2] < 90]
    assert orange


def test_a_deletion_that_touches_every_node_has_no_dots_elsewhere() -> None:
    report = only("embedding")
    for side in ("before", "after"):
        report["embedding"][side]["elsewhere"] = []
    (shown,) = (picture for picture in pictures(report) if picture.name == "embedding")
    assert "elsewhere" not in words_of(shown)


@pytest.mark.parametrize("variant", sample["VARIANTS"])
def test_every_variant_draws_what_it_has_and_says_what_it_has_not(variant: str) -> None:
    shown = pictures(sample["VARIANTS"][variant]())
    assert [picture.name for picture in shown] == NAMES
    for picture in shown:
        assert bool(picture.panels) != bool(picture.reason)
        assert bool(picture.panels) == bool(picture.caption)


@pytest.mark.parametrize("attacks", [("membership", "trend"), ("membership",)])
def test_headings_stay_above_their_own_panel_and_within_the_picture(
    attacks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = sample["link"]()
    report["trend"] |= {name: report["membership"][name] for name in ("before", "after", "reference")}
    if "trend" not in attacks:
        report["trend"] = {"available": False, "reason": "none"}
    report["forgetting"] |= {
        "unseen": {"served": report["forgetting"]["unseen"]["served"]},  # one panel, a long title
        "not_asked": {"old_id": "no", "new_id": "no"},
    }
    made = []
    monkeypatch.setattr(drawing, "svg_bytes", lambda figure: made.append(figure) or b"")
    figures(report)
    assert len(made) == len(NAMES)
    for figure in made:
        width = figure.bbox.width / len(figure.axes)
        for place, axes in enumerate(figure.axes):
            assert axes.title.get_text() == "" != axes._left_title.get_text()
            assert axes._left_title.get_window_extent().x1 <= (place + 1) * width, axes._left_title.get_text()
        assert figure._suptitle.get_window_extent().x1 <= figure.bbox.x1, figure._suptitle.get_text()


def test_panels_of_each_figure() -> None:
    titles = {picture.name: [panel.title for panel in picture.panels] for picture in pictures(sample["link"]())}
    assert titles["unseen"] == ["As served", "Presented again, old id", "Presented again, new id"]
    assert titles["scores"] == ["Before", "After", "Retrain"]
    assert titles["lam"] == ["Unseen AUC", "Validation score"]
    assert titles["attacks"] == [
        "Membership attack: AUC before 0.621, after 0.538, Retrain 0.533",
        "Trend attack: AUC after 0.564, Retrain 0.559",
    ]
    assert titles["embedding"] == ["Before", "After"]
    assert len(titles["cost"]) == 2
    assert [p.title for p in pictures(sample["nonexistent"]())[2].panels] == ["Validation score"]
    assert [p.title for p in pictures(sample["without_reference"]())[1].panels] == ["Before", "After"]


def words_of(picture: Picture, panel: int = 0) -> set[str]:
    return set(ElementTree.fromstring(drawn([picture.panels[panel]], "svg")).itertext())


def test_numbers_in_labels_keep_their_digits() -> None:
    shown = pictures(sample["link"]())
    assert "0.512" in words_of(shown[0])
    assert "chosen: 0.0213" in words_of(shown[2])


def test_legends_name_what_is_drawn() -> None:
    shown = pictures(sample["link"]())
    assert {"before", "after", "Retrain"} <= words_of(shown[3])
    assert {"ring 0", "ring 1", "elsewhere"} <= words_of(shown[4])


def test_a_single_deleted_edge_is_a_dot_and_not_a_curve() -> None:
    svg = drawn([pictures(sample["one_edge"]())[1].panels[0]], "svg").decode()
    filled = svg.count("fill-opacity")
    assert filled == svg.count("fill-opacity: 0.35"), "a curve of the deleted elements is drawn stronger"


def test_points_do_not_cost_a_mark_each() -> None:
    assert len(drawn([pictures(sample["link"]())[4].panels[0]], "svg")) < 120_000


def test_a_reason_stands_in_for_a_figure() -> None:
    reasons = {picture.name: picture.reason for picture in pictures(sample["unavailable"]())}
    assert reasons["unseen"] == "There is no unseen data for forgetting."
    assert reasons["attacks"] == "There is no unseen data for membership."
    assert reasons["embedding"] == "The model gives no representation of every node."
    assert "nothing was searched" in reasons["lam"]
    assert reasons["cost"] == "There is no reference to compare the 49.8 ms of this deletion with."
    assert pictures(sample["fallback"]())[2].reason == "lam was not calibrated, since there is no unseen data."
