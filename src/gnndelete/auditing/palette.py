"""Colours and the density that figures of scores share. On the page a colour becomes a CSS variable, for light and dark."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

INK, MUTED, LINE, PAPER = "#1b1f24", "#5b6470", "#d9dee4", "#ffffff"

# Okabe and Ito's colours, which keep apart for every kind of colour vision. Kinds of elements and models never share one.
KINDS = {"remaining": "#0072b2", "unseen": "#009e73", "deleted": "#d55e00", "random": "#7f7f7f"}
MODELS = {"before": "#8a8a8a", "after": "#b4508b", "reference": INK}
STROKES = {"before": "dotted", "after": "solid", "reference": "dashed"}
RINGS = ("#d55e01", "#56b4e9", "#e69f00", "#009e74")
ELSEWHERE = "#b5bac0"

#: Every colour a figure may use, and the CSS variable that stands for it on the page.
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    PAPER: "--paper",
    ELSEWHERE: "--elsewhere",
    **{color: f"--{kind}" for kind, color in KINDS.items()},
    MODELS["before"]: "--before",
    MODELS["after"]: "--after",
    **{color: f"--ring{index}" for index, color in enumerate(RINGS)},
}


def density(scores: Values, grid: Values) -> Values:
    """A smooth density on the grid, not normalised; scores that are all equal give a narrow peak.

    >>> grid = np.linspace(-1, 1, 5)
    >>> int(density(np.zeros(3), grid).argmax())
    2
    """
    spread = min(float(scores.std()), float(np.subtract(*np.quantile(scores, [0.75, 0.25]))) / 1.34)
    width = max(0.9 * spread * scores.size**-0.2, float(grid[-1] - grid[0]) / 200)
    return np.asarray(np.exp(-0.5 * ((grid[:, None] - scores[None, :]) / width) ** 2).sum(axis=1))
