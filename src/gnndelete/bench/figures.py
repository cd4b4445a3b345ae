"""The figures of a report: lam, time against size, methods against one another, the gap to Retrain of every cell."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gnndelete.auditing.figures import STYLE, svg_bytes
from gnndelete.auditing.palette import INK, LINE, MUTED, PAPER
from gnndelete.auditing.panels import plain
from gnndelete.bench.curves import GAPS, GapRow, LamPicture, Point, TimePicture, front
from gnndelete.bench.wording import amount_name, count, method_name, metric_name, model_name, seconds

Format = Literal["svg", "png"]

# Okabe and Ito's colours, which keep apart for every kind of colour vision.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a", INK, "#7b4b94", "#a6761d")
_MARKERS = "osD^vPXh<>"
_GROUPS = {
    "retrain": (INK, "Retrain"),
    "gnndelete": ("#0072b2", "GNNDelete"),
    "other": ("#d55e00", "other methods"),
    "control": ("#8a8a8a", "controls"),
}
_FLOOR = 5e-4  # smaller distances than this are drawn here, so that a logarithmic axis can hold them


def lam_figure(picture: LamPicture, form: Format) -> bytes:
    """One panel per score, our curves with standard errors, the paper's points as rings, Retrain dashed."""

    def draw(figure: Any) -> None:
        for axes, metric in zip(figure.subplots(1, len(picture.curves), squeeze=False)[0], picture.curves, strict=True):
            plain(axes, "lam", metric_name(metric))
            for index, curve in enumerate(picture.curves[metric]):
                xs, stats = [x for x, _ in curve.points], [stat for _, stat in curve.points]
                axes.errorbar(
                    xs,
                    [stat.mean for stat in stats],
                    [stat.error or 0 for stat in stats],
                    color=_COLORS[index % 10],
                    marker=_MARKERS[index % 10],
                    markersize=4,
                    linewidth=1.5,
                    label=curve.label,
                )
            if picture.paper.get(metric):
                rings = zip(*picture.paper[metric], strict=True)
                axes.plot(*rings, "o", markersize=7, markerfacecolor="none", color=INK, label="the paper")
            if metric in picture.retrain:
                axes.axhline(picture.retrain[metric], color=MUTED, linestyle="--", linewidth=1, label="Retrain")
        _legend(figure)

    return _drawn(draw, (3.3 * len(picture.curves) + 0.3, 3.1), picture.title, form)


def time_figure(picture: TimePicture, form: Format) -> bytes:
    """Seconds against edges, both logarithmic, or against the share of deleted edges."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, picture.axis, "time")
        axes.set_yscale("log")
        if picture.axis == "edges":
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: count(value))
        else:
            axes.xaxis.set_major_formatter(lambda value, _: amount_name(value))
        for index, (name, points) in enumerate(picture.lines.items()):
            style = ("--" if name.startswith("one ") else "-") if picture.joined else "none"
            color, marker = _COLORS[index % 10], _MARKERS[index % 10]
            axes.plot(
                *zip(*points, strict=True), linestyle=style, marker=marker, markersize=4.5, color=color, label=name
            )
        axes.yaxis.set_major_formatter(lambda value, _: seconds(value))
        axes.minorticks_off()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8, labelcolor=MUTED)

    return _drawn(draw, (7.2, 3.4), f"Time against {picture.axis}, {model_name(picture.model)}", form)


def distance_figure(points: Sequence[Point], form: Format) -> bytes:
    """All methods by their distance to Retrain in use and in the held-out test; the front joins the unbeaten ones."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, "distance to Retrain in E_t AUROC", "distance to Retrain in held-out AUC")
        axes.set_xscale("log")
        axes.set_yscale("log")
        placed = [Point(p.label, max(p.x, _FLOOR), max(p.y, _FLOOR), p.group) for p in points]
        best = front(placed)
        axes.step([p.x for p in best], [p.y for p in best], where="post", color=MUTED, linewidth=1, linestyle="--")
        _scatter(figure, axes, placed)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")

    return _drawn(draw, (6.6, 4.4), "How far from Retrain: lower left is better", form)


def scores_figure(points: Sequence[Point], form: Format) -> bytes:
    """All methods by the paper's two scores; the front joins those that no other beats in both."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, "E_d AUROC: deleted edges rank below remaining ones", "E_t AUROC: test edges are found")
        best = front([Point(p.label, -p.x, -p.y, p.group) for p in points])
        xs, ys = [-p.x for p in best], [-p.y for p in best]
        axes.step(xs, ys, where="post", color=MUTED, linewidth=1, linestyle="--")
        _scatter(figure, axes, points)

    return _drawn(draw, (6.6, 4.4), "The paper's two scores: upper right is better", form)


def gap_figure(rows: Sequence[GapRow], form: Format) -> bytes:
    """The gap to Retrain of every place, seed by seed and then averaged, with standard errors."""
    labels = list(dict.fromkeys(label for row in rows for label in row.gaps))
    metrics = [metric for metric in GAPS if any(metric in gaps for row in rows for gaps in row.gaps.values())]

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0]
        for axes, metric in zip(panels, metrics, strict=True):
            plain(axes, f"gap to Retrain in {metric_name(metric)}", grid="x")
            axes.axvline(0, color=INK, linewidth=1)
            for index, label in enumerate(labels):
                known = [
                    (i, row.gaps[label][metric]) for i, row in enumerate(rows) if metric in row.gaps.get(label, {})
                ]
                shift = 0.14 * (index - (len(labels) - 1) / 2)
                axes.errorbar(
                    [stat.mean for _, stat in known],
                    [i + shift for i, _ in known],
                    xerr=[stat.error or 0 for _, stat in known],
                    linestyle="none",
                    marker=_MARKERS[index % 10],
                    markersize=4,
                    color=_COLORS[index % 10],
                    label=method_name(label),
                )
            axes.set_yticks(range(len(rows)), [row.place for row in rows])
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.tick_params(axis="y", length=0)
            for i in range(len(rows) - 1):
                axes.axhline(i + 0.5, color=LINE, linewidth=0.5)
        _legend(figure)

    size = (2.0 + 2.9 * len(metrics), 1.3 + max(0.28, 0.09 * len(labels) + 0.1) * len(rows))
    return _drawn(draw, size, "Gap to Retrain, cell by cell", form)


def _scatter(figure: Any, axes: Any, points: Sequence[Point]) -> None:
    """Points coloured by kind, with their names beside them where nothing else lies."""
    for group, (color, title) in _GROUPS.items():
        own = [p for p in points if p.group == group]
        if own:
            axes.plot([p.x for p in own], [p.y for p in own], "o", markersize=6, color=color, zorder=3, label=title)
    axes.margins(0.12)
    _legend(figure)
    figure.canvas.draw()  # so that positions on the page are known
    scale = 72 / figure.dpi
    spots = [tuple(float(v) * scale for v in axes.transData.transform((p.x, p.y))) for p in points]
    frame = axes.get_window_extent()
    taken: list[_Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in spots]
    for point, (x, y) in zip(points, spots, strict=True):
        box = _free(x, y, 4.7 * len(point.label), taken, (frame.x0 * scale, frame.x1 * scale))
        taken.append(box)
        axes.annotate(
            point.label,
            (point.x, point.y),
            xytext=((box[0] + box[2]) / 2 - x, (box[1] + box[3]) / 2 - y),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            color=INK,
            zorder=4,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.6},
        )


_Box = tuple[float, float, float, float]  # left, bottom, right, top


def _free(x: float, y: float, wide: float, taken: Sequence[_Box], limits: tuple[float, float]) -> _Box:
    """Where a name of that width lies on the least: beside the point if it can, else above or below it."""
    best: tuple[float, _Box] | None = None
    for up in (0, 11, -11, 20, -20, 29, -29):
        for side in (0, 1, 2) if up else (0, 1):
            left = (x + 7, x - 7 - wide, x - wide / 2)[side]
            box = (left, y + up - 5, left + wide, y + up + 5)
            out = max(0.0, limits[0] - box[0]) + max(0.0, box[2] - limits[1])
            cost = 100 * out + sum(_overlap(box, other) for other in taken)
            if best is None or cost < best[0]:
                best = (cost, box)
    assert best is not None
    return best[1]


def _overlap(a: _Box, b: _Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _legend(figure: Any) -> None:
    """One legend for all panels."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=min(len(entries), 5),
        frameon=False,
        fontsize=8,
        labelcolor=MUTED,
    )


def _drawn(draw: Callable[[Any], None], size: tuple[float, float], title: str, form: Format) -> bytes:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained", dpi=110)
        FigureCanvasAgg(figure)
        figure.set_facecolor(PAPER)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, color=INK)
        draw(figure)
        if form == "svg":
            return svg_bytes(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()
