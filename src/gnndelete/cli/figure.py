"""The demo's figure: how four kinds of node pairs score before a deletion, after it, and after honest retraining."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from gnndelete.auditing.report import style
from gnndelete.auditing.report.style import Values

# From top to bottom.
KINDS = {
    "remaining edges": style.KINDS["remaining"],
    "unseen edges": style.KINDS["unseen"],
    "deleted edges": style.KINDS["deleted"],
    "random pairs": style.KINDS["random"],
}


def score_figure(panels: Mapping[str, Mapping[str, Values]], captions: Mapping[str, str], title: str) -> bytes:
    """A PNG with one panel per model; each holds the distribution of the scores of each kind of pair."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ends = np.array([np.quantile(scores, [0.005, 0.995]) for panel in panels.values() for scores in panel.values()])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    grid = np.linspace(low - 0.04 * (high - low), high + 0.04 * (high - low), 400)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08, wspace=0.02)
    figure = Figure(figsize=(3.3 * len(panels) + 1.2, 3.9), dpi=160, layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axis, (name, panel) in zip(axes, panels.items(), strict=True):
        axis.set_title(name, loc="left", fontsize=11, fontweight="bold", pad=20)
        axis.text(0, 1.025, captions.get(name, ""), transform=axis.transAxes, fontsize=8.5, color="#555555")
        for row, (kind, color) in enumerate(reversed(KINDS.items())):
            curve = style.density(panel[kind], grid)
            top = 0.86 * curve / curve.max()
            alpha = 0.85 if kind == "deleted edges" else 0.45
            axis.fill_between(grid, row, row + top, color=color, alpha=alpha, linewidth=0)
            axis.plot(grid, row + top, color=color, linewidth=1.2)
            median = float(np.median(panel[kind]))
            axis.plot([median, median], [row, row + 0.86], color="#222222", linewidth=1.1, linestyle=(0, (2, 2)))
        axis.tick_params(axis="y", length=0, labelsize=9)
        axis.tick_params(axis="x", labelsize=8.5, color="#999999")
        axis.set_ylim(-0.05, len(KINDS) + 0.05)
        axis.set_xlim(grid[0], grid[-1])
        axis.grid(axis="x", color="#E6E6E6", linewidth=0.8)
        axis.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.spines["bottom"].set_color("#999999")
    axes[0].set_yticks([row + 0.3 for row in range(len(KINDS))], list(reversed(KINDS)))
    for label, color in zip(axes[0].get_yticklabels(), reversed(KINDS.values()), strict=True):
        label.set_color(color)
        label.set_fontweight("bold")
    figure.supxlabel("score the model gives a pair of nodes (logit); dashed: median", fontsize=9)
    figure.suptitle(title, fontsize=12, x=0.012, ha="left")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
