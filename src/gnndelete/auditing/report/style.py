"""Colours, fonts and layout that all figures share."""

from __future__ import annotations

import io
import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

INK, MUTED, LINE, PAPER = "#1b1f24", "#5b6470", "#d9dee4", "#ffffff"

# Okabe and Ito's colours, which keep apart for every kind of colour vision. Kinds of elements and models never share one.
KINDS = {"remaining": "#0072b2", "unseen": "#009e73", "deleted": "#d55e00", "random": "#7f7f7f"}
MODELS = {"before": "#8a8a8a", "after": "#b4508b", "reference": INK}
STROKES = {"before": ":", "after": "-", "reference": "--"}
RINGS = ("#d55e00", "#56b4e9", "#e69f00", "#009e73")
ELSEWHERE = "#b5bac0"


def density(scores: Values, grid: Values) -> Values:
    """A smooth density on the grid, not normalised; scores that are all equal give a narrow peak.

    >>> grid = np.linspace(-1, 1, 5)
    >>> int(density(np.zeros(3), grid).argmax())
    2
    """
    spread = min(float(scores.std()), float(np.subtract(*np.quantile(scores, [0.75, 0.25]))) / 1.34)
    width = max(0.9 * spread * scores.size**-0.2, float(grid[-1] - grid[0]) / 200)
    return np.asarray(np.exp(-0.5 * ((grid[:, None] - scores[None, :]) / width) ** 2).sum(axis=1))


# Text stays text, and the reader's own font draws it; equal figures give equal bytes.
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gnndelete",
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "text.parse_math": False,
    "axes.unicode_minus": False,
}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


def plain(axes: Any, x: str = "", y: str = "", grid: str = "both") -> None:
    """The look that all panels share."""
    axes.set_xlabel(x, fontsize=8, color=MUTED)
    axes.set_ylabel(y, fontsize=8, color=MUTED)
    axes.tick_params(labelsize=8, color=LINE, labelcolor=INK, which="both")
    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=LINE, linewidth=0.7)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("bottom", "left") and (grid == "both" or side == "bottom"))
        spine.set_color(LINE)


def fitted(words: str, wide: float, letters: float = 10) -> str:
    """Lines that fit ``wide`` inches of so many letters each; a longer one goes on in the next.

    >>> fitted("How far from Retrain\\nMeans over 6 cells: GCN and GAT on DBLP", 2.1, 13).splitlines()
    ['How far from Retrain', 'Means over 6 cells: GCN and', 'GAT on DBLP']
    """
    return "\n".join(textwrap.fill(line, int(letters * wide)) for line in words.splitlines())


def tight_layout(pad: float = 0.03) -> Any:
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(w_pad=pad, h_pad=pad, wspace=0.02)


def svg_bytes(figure: Any) -> bytes:
    """A matplotlib figure as SVG in the reader's own font, without a date, so that equal figures give equal bytes."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return buffer.getvalue().replace("'DejaVu Sans'", _FONT).encode()
