"""How the figures of a report look: one colour and one marker per method in all of them, and axes that stay readable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

from gnndelete.auditing.report.style import INK

# Okabe and Ito's colours, which keep apart for every kind of colour vision, and a few that keep apart from these.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b4b94", "#a6761d", "#8a8a8a")
MARKERS = "osD^vPXh<>"

#: Methods that many experiments have; others take what these leave.
_FIXED = {
    "retrain": (INK, "*"),
    "retrain-again": ("#5f6670", "*"),
    "calibrated": ("#0072b2", "o"),
    "gnndelete": ("#0072b2", "o"),
    "unlink": ("#d55e00", "s"),
    "nonexistent": ("#009e73", "D"),
    "paper()": ("#cc79a7", "^"),
    "zeroed": ("#8a8a8a", "X"),
    "untrained": ("#b5bac0", "P"),
    "gradascent": ("#e69f00", "v"),
    "d2d": ("#56b4e9", "h"),
    "grapheraser": ("#7b4b94", "<"),
    "grapheditor": ("#a6761d", ">"),
    "certunlearn": ("#66a61e", "p"),
    "gif": ("#e7298a", "d"),
    "megu": ("#1b9e9e", "8"),
    "jodie": ("#5b4b2e", "H"),
}
_OTHERS = ("#e69f00", "#56b4e9", "#7b4b94", "#a6761d", "#66a61e", "#e7298a", "#1b9e9e", "#5b4b2e")


def looks(labels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for every label, the same in every figure; two unknown labels of one figure never share both.

    >>> looks(["unlink", "calibrated"])["unlink"] == looks(["unlink"])["unlink"]
    True
    """
    found: dict[str, tuple[str, str]] = {}
    for label in labels:
        if label in _FIXED:
            found[label] = _FIXED[label]
            continue
        start = crc32(label.encode())
        tried = [(_OTHERS[(start + i) % len(_OTHERS)], MARKERS[(start + i) % len(MARKERS)]) for i in range(40)]
        used = set(found.values())
        found[label] = next((look for look in tried if look not in used), tried[0])
    return found


def logarithmic(axis: Any, show: Callable[[float], str]) -> None:
    """A logarithmic axis with labels in plain figures: at least a decade long, and ticks at 1, 2 and 5 where it is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < 10 * low:
        middle = (low * high) ** 0.5
        low, high = middle / 10**0.5, middle * 10**0.5
        (axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim)(low, high)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axis.set_minor_formatter(NullFormatter())
