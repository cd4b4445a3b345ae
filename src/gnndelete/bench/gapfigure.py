"""The figure of gaps to Retrain: a line per place, a panel per score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil
from typing import Any

from gnndelete.auditing.report.style import INK, LINE, plain
from gnndelete.bench.curves import GAPS, GapRow
from gnndelete.bench.drawing import Format, drawn, legend
from gnndelete.bench.gathered import Stat
from gnndelete.bench.looks import looks
from gnndelete.bench.wording import method_name, metric_name

_TALL = 24  # rows that are still seen at once
_FEW = 10  # of fewer points all are on the axis
_FAR = 6  # times as far from Retrain as nine in ten: such points would stretch the axis until nothing else can be read


def gap_figure(rows: Sequence[GapRow], title: str, form: Format) -> bytes:
    """The gap to Retrain of every place, seed by seed and then averaged, with standard errors.

    Many places have panels by dataset, two beside each other, so that they fit on a page.
    """
    labels = list(dict.fromkeys(label for row in rows for label in row.gaps))
    metrics = [metric for metric in GAPS if any(metric in gaps for row in rows for gaps in row.gaps.values())]
    errors = [stat.error for row in rows for gaps in row.gaps.values() for stat in gaps.values()]
    ends = {
        metric: limits([gaps[metric] for row in rows for gaps in row.gaps.values() if metric in gaps])
        for metric in metrics
    }
    names = list(dict.fromkeys(row.dataset for row in rows)) if len(rows) > _TALL else []
    groups = [[row for row in rows if row.dataset == name] for name in names] or [
        [replace(row, place=f"{row.dataset} {row.place}") for row in rows]
    ]
    across = min(len(groups), 2 if len(metrics) < 3 else 1)
    heights = [max(map(len, groups[i : i + across])) for i in range(0, len(groups), across)]

    def draw(figure: Any) -> None:
        grid = figure.subplots(len(heights), across * len(metrics), squeeze=False, height_ratios=heights)
        for number, own in enumerate(groups):
            line, place = divmod(number, across)
            last = number + across >= len(groups)
            panels = grid[line][place * len(metrics) :][: len(metrics)]
            for axes, first, metric in zip(panels, grid[0], metrics, strict=False):
                if axes is not first:
                    axes.sharex(first)
                plain(axes, f"gap to Retrain in {metric_name(metric, rows[0].task)}" * last, grid="x")
                _gaps(axes, own, metric, labels, ends[metric], ticks=5 if len(groups) == 1 else 4)
                axes.set_yticks(range(len(own)), [row.place for row in own] if axes is panels[0] else [])
                axes.set_ylim(heights[line] - 0.4, -0.6)
                axes.tick_params(axis="x", labelbottom=last)
            if names:
                panels[0].set_title(names[number], loc="left", fontsize=9, color=INK)
        for axes in grid.flat[len(groups) * len(metrics) :]:
            axes.remove()
        legend(figure)

    one = max(0.28, 0.09 * len(labels) + 0.1)
    size = (2.0 + 2.9 * len(metrics), 1.5 + one * len(rows))
    if len(groups) > 1:
        size = (across * (1.7 + 1.7 * len(metrics)), 1.5 + sum(0.8 * one * count + 0.3 for count in heights))
    known = sum(error is not None for error in errors)
    bars = "no bars: one seed each" if not known else "bars ± standard error over seeds"
    bars += " (none where there is one seed)" * (0 < known < len(errors))
    arrows = "; an arrow names a gap beyond the axis" * any(ends.values())
    return drawn(draw, size, f"{title}\nGap to Retrain in every cell, mean over seeds; {bars}{arrows}", form)


def limits(stats: Sequence[Stat]) -> tuple[float, float] | None:
    """Where an axis ends that leaves out the few gaps that would stretch it; None where it holds all of them.

    >>> near = [Stat(0.1 * i, None, 1) for i in range(20)]
    >>> limits(near) is None, [round(end, 3) for end in limits([*near, Stat(60.0, 20.0, 3)])]
    (True, [-0.095, 2.565])
    """
    sizes = sorted(abs(stat.mean) for stat in stats)
    usual = sizes[ceil(0.9 * len(sizes)) - 1]
    if len(sizes) < _FEW or not usual or sizes[-1] < _FAR * usual:
        return None
    most = 2 * usual
    inside = [stat for stat in stats if abs(stat.mean) <= most]
    low = min(0.0, *(max(stat.mean - (stat.error or 0), -most) for stat in inside))
    high = max(0.0, *(min(stat.mean + (stat.error or 0), most) for stat in inside))
    room = high - low  # and a third of it beside the points, where values are named
    left, right = (any(sign * stat.mean > most for stat in stats) for sign in (-1, 1))
    return low - room * (0.35 if left else 0.05), high + room * (0.35 if right else 0.05)


def _gaps(
    axes: Any, rows: Sequence[GapRow], metric: str, labels: Sequence[str], ends: tuple[float, float] | None, ticks: int
) -> None:
    """One score of some places, a line for each, with the methods beside each other."""
    from matplotlib.ticker import MaxNLocator

    look = looks(labels)
    axes.axvline(0, color=INK, linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=ticks))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    beyond: list[tuple[int, float, float, str]] = []  # row, height, gap, colour
    for index, label in enumerate(labels):
        known = [(i, row.gaps[label][metric]) for i, row in enumerate(rows) if metric in row.gaps.get(label, {})]
        shift = 0.14 * (index - (len(labels) - 1) / 2)
        inside = [(i, stat) for i, stat in known if ends is None or ends[0] <= stat.mean <= ends[1]]
        beyond += [(i, i + shift, stat.mean, look[label][0]) for i, stat in known if (i, stat) not in inside]
        axes.errorbar(
            [stat.mean for _, stat in inside],
            [i + shift for i, _ in inside],
            xerr=[stat.error or 0 for _, stat in inside],
            linestyle="none",
            marker=look[label][1],
            markersize=4,
            color=look[label][0],
            label=method_name(label),
        )
    if ends is not None:
        axes.set_xlim(*ends)
        _name_beyond(axes, ends, beyond)
    axes.tick_params(axis="y", length=0)
    for i in range(len(rows) - 1):
        axes.axhline(i + 0.5, color=LINE, linewidth=0.5)


def _name_beyond(axes: Any, ends: tuple[float, float], beyond: Sequence[tuple[int, float, float, str]]) -> None:
    """An arrow to the edge with its value for every gap that lies outside; those of one row stand beside each other."""
    for _, own in groupby(sorted(beyond, key=lambda gap: (gap[0], gap[2] > 0)), key=lambda gap: (gap[0], gap[2] > 0)):
        for number, (_, height, gap, color) in enumerate(own):
            inwards = -1 if gap > 0 else 1
            axes.annotate(
                f"{gap:+.3g}",
                (ends[gap > 0], height),
                (inwards * (14 + 30 * number), 0),
                textcoords="offset points",
                ha="right" if gap > 0 else "left",
                va="center",
                fontsize=7,
                color=color,
                arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1, "shrinkA": 1, "shrinkB": 0},
            )
