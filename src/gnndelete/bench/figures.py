"""The figures of a report: lam, time against size, methods against one another. Gaps are drawn in `gapfigure`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gnndelete.auditing.report.style import INK, LINE, MUTED, PAPER, fitted, plain
from gnndelete.bench.compared import Compared, Point, front
from gnndelete.bench.curves import LamPicture
from gnndelete.bench.drawing import Format, drawn, legend
from gnndelete.bench.labels import Page, leader, placed_names
from gnndelete.bench.looks import COLORS, MARKERS, logarithmic, looks
from gnndelete.bench.timecurves import TimePicture
from gnndelete.bench.wording import count, many, metric_name, seconds

#: Markers by the kind of a method: colours name the method itself.
_GROUPS = {"gnndelete": ("o", "GNNDelete"), "other": ("s", "other methods"), "control": ("X", "controls")}
_OVER = {"other": 3, "control": 3.1, "gnndelete": 3.2}  # a disc leaves the corners of a square to be seen
_LOG = " (logarithmic)"
_NAMES = 8  # the size of names beside points
_ENTRY = 42  # letters in a line of a legend that stands beside a figure
_FLOOR = 5e-4  # smaller distances than this are drawn here, so that a logarithmic axis can hold them


def lam_figure(picture: LamPicture, form: Format) -> bytes:
    """One panel per score, our curves with standard errors, the paper's points as rings, Retrain dashed."""

    def draw(figure: Any) -> None:
        for axes, metric in zip(figure.subplots(1, len(picture.curves), squeeze=False)[0], picture.curves, strict=True):
            plain(axes, "lam", metric_name(metric, picture.task))
            for index, curve in enumerate(picture.curves[metric]):
                xs, stats = [x for x, _ in curve.points], [stat for _, stat in curve.points]
                axes.errorbar(
                    xs,
                    [stat.mean for stat in stats],
                    [stat.error or 0 for stat in stats],
                    color=COLORS[index % len(COLORS)],
                    marker=MARKERS[index % 10],
                    markersize=4,
                    linewidth=1.5,
                    label=curve.label,
                )
            if picture.paper.get(metric):
                rings = zip(*picture.paper[metric], strict=True)
                axes.plot(*rings, "o", markersize=7, markerfacecolor="none", color=INK, label="the paper")
            if metric in picture.retrain:
                axes.axhline(picture.retrain[metric], color=MUTED, linestyle="--", linewidth=1, label="Retrain")
                axes.autoscale_view()  # a line that lies in the margin would hide at the edge
        legend(figure)

    stats = [stat for lines in picture.curves.values() for line in lines for _, stat in line.points]
    bars = ", bars ± standard error" * any(stat.error is not None for stat in stats)
    title = f"{picture.title}\nmeans over {picture.seeds}{bars}"
    return drawn(draw, (3.3 * len(picture.curves) + 0.3, 3.3), title, form)


def time_figure(picture: TimePicture, form: Format) -> bytes:
    """Seconds against edges, both logarithmic, or against the share or the number of what is deleted."""
    from matplotlib.ticker import MaxNLocator

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, f"{picture.axis}{_LOG * (picture.axis == 'edges')}", f"time{_LOG}")
        axes.set_yscale("log")
        if picture.axis == "edges":
            axes.set_xscale("log")
        looks = {name: (COLORS[i % len(COLORS)], MARKERS[i % 10]) for i, name in enumerate(picture.lines)}
        for name, points in picture.lines.items():
            style = ("--" if name.startswith("one ") else "-") if picture.joined else "none"
            color, marker = looks[name]
            axes.plot(
                *zip(*points, strict=True),
                linestyle=style,
                marker=marker,
                markersize=4.5,
                color=color,
                label=_entry(name),
            )
        if picture.axis == "edges":
            logarithmic(axes.xaxis, count)
        elif picture.shares:
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        else:
            axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        logarithmic(axes.yaxis, seconds)
        axes.minorticks_off()
        if not picture.joined:
            _name_sizes(axes, picture.datasets)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8, labelcolor=MUTED)

    title = f"Time against {'the ' * (picture.axis != 'edges')}{picture.axis}, {picture.title}\n{picture.named}"
    return drawn(draw, (7.2, 3.8), title, form)


def _entry(name: str) -> str:
    """An entry of a legend beside a figure: one that is too long for a line has its brackets in the next.

    >>> _entry("deletion, fixed lam (operator ring, targets original)").splitlines()
    ['deletion, fixed lam', '(operator ring, targets original)']
    """
    return name if len(name) <= _ENTRY else fitted(name.replace(" (", "\n(", 1), 1, _ENTRY)


def _name_sizes(axes: Any, datasets: Mapping[float, str]) -> None:
    """The names of datasets above their sizes, joined to them by a line where others are too near."""
    low, high = axes.get_xlim()
    sizes = sorted(datasets)
    places = apart([math.log(size / low) / math.log(high / low) for size in sizes], 0.045)
    for size, place in zip(sizes, places, strict=True):
        axes.annotate(
            datasets[size],
            (size, 1.0),
            (place, 1.05),
            xycoords=axes.get_xaxis_transform(),
            textcoords="axes fraction",
            rotation=30,
            fontsize=7.5,
            color=MUTED,
            arrowprops={
                "arrowstyle": "-",
                "color": LINE,
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0),
            },
        )


def apart(places: Sequence[float], least: float) -> list[float]:
    """Sorted places, each moved to the right as far as it has to be so that ``least`` lies between neighbours.

    >>> apart([0.1, 0.11, 0.5], 0.05)
    [0.1, 0.15, 0.5]
    """
    found: list[float] = []
    for place in places:
        found.append(round(max(place, found[-1] + least) if found else place, 6))
    return found


def distance_figure(compared: Compared, form: Format) -> bytes:
    """Methods by their distance to Retrain in use and in the unseen test; the front joins the unbeaten ones."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, f"distance to Retrain in E_t AUROC{_LOG}", f"distance to Retrain in unseen AUC{_LOG}")
        axes.set_xscale("log")
        axes.set_yscale("log")
        placed = [replace(p, x=max(p.x, _FLOOR), y=max(p.y, _FLOOR)) for p in compared.points]
        best = front(placed)
        axes.margins(0.12)
        axes.plot([p.x for p in placed], [p.y for p in placed], "none")
        logarithmic(axes.xaxis, lambda value: f"{value:g}")
        logarithmic(axes.yaxis, lambda value: f"{value:g}")
        _scatter(figure, axes, placed, _front(axes, [(p.x, p.y) for p in best]))

    title = f"How far from Retrain: lower left is nearer\n{_over(compared)}"
    return drawn(draw, (6.6, 4.4), title, form)


def _over(compared: Compared) -> str:
    """The cells of a figure below its title, as far as there is room."""
    said = f"Means over {many(len(compared.places), 'cell')}"
    return f"{said}: {compared.cells}" if len(compared.cells) < 150 else said


def scores_figure(compared: Compared, form: Format) -> bytes:
    """Methods by the paper's two scores; the front joins those that no other beats in both."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, "E_d AUROC: deleted edges rank below remaining ones", "E_t AUROC: test edges are found")
        best = front([Point(p.label, -p.x, -p.y, p.group) for p in compared.points])
        _scatter(figure, axes, compared.points, _front(axes, [(-p.x, -p.y) for p in best]))

    title = f"The paper's two scores: it wants both high; deletions as if retrained lie at Retrain\n{_over(compared)}"
    return drawn(draw, (6.6, 4.6), title, form)


def _front(axes: Any, corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Joins the methods that no other beats in both; the corners of the line, so that names keep off it."""
    corners = list(dict.fromkeys(corners))  # two methods may be at one place
    if len(corners) < 2:
        return []
    line = [corners[0]]
    for x, y in corners[1:]:
        line += [(x, line[-1][1]), (x, y)]
    label = "beaten by none in both"
    axes.plot(*zip(*line, strict=True), color=MUTED, linewidth=1, linestyle="--", label=label, zorder=1)
    return line


def _scatter(figure: Any, axes: Any, points: Sequence[Point], line: Sequence[tuple[float, float]]) -> None:
    """Points with the colour of their method, the marker of its kind and its name beside; Retrain is a ring."""
    look = looks(point.method for point in points)
    for group, (marker, title) in _GROUPS.items():
        own = [p for p in points if p.group == group]
        for p in own:
            edge = {"markeredgecolor": PAPER, "markeredgewidth": 0.6}  # marks that lie on each other keep apart
            axes.plot([p.x], [p.y], marker, markersize=7.4, color=look[p.method][0], zorder=_OVER[group], **edge)
        if own:
            axes.plot([], [], marker, markersize=6, color=MUTED, label=title)
    for p in points:
        if p.group == "retrain":  # a ring, so that what lies on it is seen
            ring = {"markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.5, "color": INK}
            axes.plot([p.x], [p.y], "o", zorder=4, label="Retrain", **ring)
    axes.margins(0.12)
    legend(figure)
    figure.canvas.draw()  # so that positions on the page are known
    scale = 72 / figure.dpi

    def on_page(x: float, y: float) -> tuple[float, float]:
        across, up = axes.transData.transform((x, y))
        return float(across) * scale, float(up) * scale

    spots, bends = [on_page(p.x, p.y) for p in points], [on_page(x, y) for x, y in line]
    lines = [(min(a, c) - 1, min(b, d) - 1, max(a, c) + 1, max(b, d) + 1) for (a, b), (c, d) in pairwise(bends)]
    x0, y0, x1, y1 = (float(value) * scale for value in axes.get_window_extent().extents)
    widths = [_width(axes, point.label) * scale for point in points]
    line_of = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4}
    boxes = placed_names(Page(spots, lines, (x0, y0, x1, y1)), widths)
    for point, spot, box in zip(points, spots, boxes, strict=True):
        joined = leader(box, spot)
        start = [(joined[0][i] - box[i]) / (box[i + 2] - box[i]) for i in (0, 1)] if joined else []
        axes.annotate(
            point.label,
            (point.x, point.y),
            xytext=((box[0] + box[2]) / 2 - spot[0], (box[1] + box[3]) / 2 - spot[1]),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_NAMES,
            color=INK,
            zorder=4,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.6},
            arrowprops={**line_of, "relpos": start} if joined else None,
        )


def _width(axes: Any, name: str) -> float:
    """How wide a name is on the page, in pixels."""
    text = axes.text(0, 0, name, fontsize=_NAMES)
    wide = float(text.get_window_extent().width)
    text.remove()
    return wide
