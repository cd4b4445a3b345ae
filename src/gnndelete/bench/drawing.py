"""What all figures of a report share: the sheet with its heading, the legend below, and the form of the file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Literal

from gnndelete.auditing.report.style import INK, MUTED, PAPER, STYLE, fitted, svg_bytes

Format = Literal["svg", "png"]

_HEADING, _LETTERS = 9.5, 13  # the size of a heading in points, and how many of its letters fit an inch for sure
_COLUMNS = 5  # of a legend, at most


def drawn(draw: Callable[[Any], None], size: tuple[float, float], title: str, form: Format) -> bytes:
    """A figure as a file. Its heading is wrapped to its width, and each line beyond the second makes it a little taller."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide, high = size
    heading = fitted(title, wide, _LETTERS)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(wide, high + 0.15 * max(0, heading.count("\n") - 1)), layout="constrained", dpi=110)
        FigureCanvasAgg(figure)
        figure.set_facecolor(PAPER)
        figure.suptitle(heading, x=0.01, ha="left", fontsize=_HEADING, color=INK)
        draw(figure)
        if form == "svg":
            return svg_bytes(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()


def legend(figure: Any) -> None:
    """One legend for all panels, in as many columns as the figure has room for."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for columns in range(min(len(entries), _COLUMNS), 0, -1):
        made = figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            fontsize=8,
            labelcolor=MUTED,
        )
        if columns == 1 or made.get_window_extent().width <= figure.bbox.width:
            break
        made.remove()
