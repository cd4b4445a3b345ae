"""What is drawn into one panel of a figure. A panel is small enough to stay legible on a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnndelete.auditing.formatting import number
from gnndelete.auditing.measures.forgetting import UnseenAUC
from gnndelete.auditing.report.style import INK, KINDS, MODELS, MUTED, PAPER, STROKES, Values, density, plain

Axes = Any  # matplotlib's, which is imported only where something is drawn


@dataclass(frozen=True)
class Panel:
    """One set of axes: its heading, what a screen reader says of it, and how it is drawn."""

    title: str
    alt: str
    draw: Callable[[Axes], None]
    size: tuple[float, float] = (3.4, 2.3)  # inches


def scores(groups: Mapping[str, Sequence[float]], limits: tuple[float, float], axis: str) -> Callable[[Axes], None]:
    """Distributions above one another; few values are shown as dots, since a curve would claim more than is known."""
    kinds = [kind for kind in reversed(KINDS) if groups.get(kind)]

    def draw(axes: Axes) -> None:
        grid = np.linspace(*limits, 160)
        for row, kind in enumerate(kinds):
            values: Values = np.asarray(groups[kind], dtype=np.float64)
            if values.size < 10:
                axes.plot(values.clip(*limits), np.full(values.size, row + 0.25), "o", color=KINDS[kind], markersize=5)
            else:
                curve = density(values, grid)
                top = row + 0.86 * curve / max(curve.max(), 1e-12)
                axes.fill_between(
                    grid, row, top, color=KINDS[kind], alpha=0.7 if kind == "deleted" else 0.35, linewidth=0
                )
                axes.plot(grid, top, color=KINDS[kind], linewidth=1.1)
            median = float(np.clip(np.median(values), *limits))
            axes.plot([median, median], [row, row + 0.8], color=INK, linewidth=1, linestyle=(0, (2, 2)))
        plain(axes, x=axis, grid="x")
        axes.set_xlim(*limits)
        axes.set_ylim(-0.08, len(kinds))
        axes.set_yticks([row + 0.3 for row in range(len(kinds))], kinds)
        axes.tick_params(axis="y", length=0)

    return draw


def points(
    groups: Mapping[str, Sequence[Sequence[float]]], colors: Mapping[str, str], box: Values
) -> Callable[[Axes], None]:
    """Points in the plane, those of ring 0 on top. One path per group: a mark per point would make the page far larger."""

    def draw(axes: Axes) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        for name in sorted(groups, key=lambda name: (name != "elsewhere", name)):
            spots = np.asarray(groups[name], dtype=np.float64).reshape(-1, 2)
            if not len(spots):
                continue
            # A line of hardly any length with round ends is a dot.
            length = np.array([1e-3 * (box[1, 0] - box[0, 0]), 0])
            ends = np.stack([spots, spots + length], axis=1).reshape(-1, 2)
            path = Path(ends, np.tile([Path.MOVETO, Path.LINETO], len(spots)))
            path.should_simplify = False
            order = 2 if name == "elsewhere" else 5 - 0.1 * list(colors).index(name)
            dots = PathPatch(
                path,
                fill=False,
                edgecolor=colors[name],
                alpha=0.75,
                linewidth=3 if len(spots) > 30 else 6,
                capstyle="round",
                zorder=order,
            )
            axes.add_patch(dots)
        axes.set_xlim(*box[:, 0])
        axes.set_ylim(*box[:, 1])
        plain(axes, grid="")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(True)

    return draw


def roc(curves: Mapping[str, Mapping[str, Any]]) -> Callable[[Axes], None]:
    """Attack curves of the models; the diagonal is guessing."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7)
        for name in ("before", "reference", "after"):
            curve = curves.get(name)
            if curve:
                style = {"solid": "-", "dashed": (0, (5, 2)), "dotted": (0, (1, 1.5))}[STROKES[name]]
                axes.plot(curve["fpr"], curve["tpr"], color=MODELS[name], linewidth=1.7, linestyle=style)
        plain(axes, x="false alarms", y="found")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"])

    return draw


def whiskers(
    tests: Mapping[str, UnseenAUC | None], labels: Mapping[str, str], limits: tuple[float, float]
) -> Callable[[Axes], None]:
    """The unseen AUC of each model with its interval, against one half."""

    def draw(axes: Axes) -> None:
        axes.axvline(0.5, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        rows, right_of_axes = list(labels)[::-1], axes.get_yaxis_transform()
        for row, name in enumerate(rows):
            test, color = tests.get(name), MODELS[name]
            if test is None:
                words = {"fontsize": 8, "color": MUTED, "va": "center", "ha": "center", "backgroundcolor": PAPER}
                axes.text(0.5, row, " not measured ", **words)
                continue
            axes.plot([test.low, test.high], [row, row], color=color, linewidth=2.4, solid_capstyle="round")
            axes.plot([test.auc], [row], "o", color=color, markersize=7, markeredgecolor=PAPER, markeredgewidth=1)
            axes.text(1.02, row, f"{test.auc:.3f}", transform=right_of_axes, fontsize=8, color=INK, va="center")
        plain(axes, x="AUC, deleted against unseen", grid="x")
        axes.set_xlim(*limits)
        _name_rows(axes, [labels[name] for name in rows])

    return draw


def bars(values: Mapping[str, tuple[float, str]], labels: Mapping[str, str], log: bool) -> Callable[[Axes], None]:
    """One bar per model with its value written at the end."""

    def draw(axes: Axes) -> None:
        rows = list(values)[::-1]
        largest, smallest = (pick(value for value, _ in values.values()) for pick in (max, min))
        for row, name in enumerate(rows):
            value, text = values[name]
            axes.barh(row, value, height=0.5, color=MODELS[name], linewidth=0)
            axes.annotate(text, (value, row), (4, 0), textcoords="offset points", fontsize=8.5, color=INK, va="center")
        plain(axes, grid="x")
        if log:
            low = 10 ** math.floor(math.log10(smallest) - 0.3)
            high = 10 ** (math.log10(largest) + 0.28 * (math.log10(largest) - math.log10(low)))
            axes.set_xscale("log")
            decades = [10.0**power for power in range(round(math.log10(low)), math.floor(math.log10(high)) + 1)]
            axes.set_xticks(
                decades[:: max(1, len(decades) // 4)], [f"{tick:,g}" for tick in decades[:: max(1, len(decades) // 4)]]
            )
            axes.minorticks_off()
            axes.set_xlim(low, high)
        else:
            axes.set_xlim(0, 1.35 * largest or 1)
            axes.locator_params(axis="x", nbins=4)
        _name_rows(axes, [labels[name] for name in rows])

    return draw


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_ylim(-0.5, len(names) - 0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)


def calibration(found: Mapping[str, Any]) -> list[Panel]:
    """Utility over lam and the unseen AUC over lam; a panel with fewer than two values shows nothing and is left out.

    >>> trials = [{"lam": 0.0, "auc": 0.55, "se": 0.01, "utility": 0.96}, {"lam": 0.02, "auc": 0.5, "se": 0.01, "utility": 0.95}]
    >>> [panel.title for panel in calibration({"lam": 0.02, "target": 0.5, "trials": trials})]
    ['Unseen AUC', 'Validation score']
    """
    trials: list[Mapping[str, Any]] = sorted(found.get("trials") or [], key=lambda trial: float(trial["lam"]))
    chosen = found.get("lam")
    made = []
    for key, title in (("auc", "Unseen AUC"), ("utility", "Validation score")):
        measured = [trial for trial in trials if trial.get(key) is not None]
        if len(measured) > 1:
            tried = "; ".join(f"lam {trial['lam']:.3g}: {number(trial[key])}" for trial in measured)
            band = _band(found, measured, key)
            made.append(
                Panel(
                    title,
                    f"{title} over lam. {tried}. Chosen: {number(chosen)}.",
                    _drawing(measured, key, chosen, band),
                )
            )
    return made


def _band(found: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], key: str) -> tuple[float, float] | None:
    """Where a trial must lie: within a standard error of the target, or no more than the budget below lam 0."""
    target, budget = found.get("target"), found.get("budget")
    if key == "auc" and target is not None:
        error = float(trials[0].get("se") or 0)
        return (target - error, target + error)
    if key == "utility" and budget is not None:
        return (float(trials[0][key]) - float(budget), math.inf)
    return None


def _nearest(trials: Sequence[Mapping[str, Any]], lam: float | None) -> Mapping[str, Any] | None:
    return None if lam is None else min(trials, key=lambda trial: abs(float(trial["lam"]) - lam))


def _drawing(
    trials: Sequence[Mapping[str, Any]], key: str, chosen: float | None, band: tuple[float, float] | None
) -> Any:
    def draw(axes: Axes) -> None:
        lams, values = [float(trial["lam"]) for trial in trials], [float(trial[key]) for trial in trials]
        errors = [float(trial.get("se") or 0) if key == "auc" else 0.0 for trial in trials]
        low, high = (
            min(v - e for v, e in zip(values, errors, strict=True)),
            max(v + e for v, e in zip(values, errors, strict=True)),
        )
        if band:
            low, high = min(low, band[0]), max(high, band[1] if math.isfinite(band[1]) else high)
        room = max(0.16 * (high - low), 0.004)
        top = high + 1.9 * room
        if band:
            axes.axhspan(band[0], min(band[1], top), color=KINDS["unseen"], alpha=0.22, linewidth=0)
        _lam_axis(axes, lams)
        axes.plot(lams, values, color=MODELS["after"], linewidth=1.3, alpha=0.6)
        if any(errors):
            axes.errorbar(lams, values, yerr=errors, fmt="none", ecolor=MODELS["after"], elinewidth=1.1)
        axes.plot(lams, values, "o", color=MODELS["after"], markersize=4.5)
        plain(axes, x="lam (strength of forgetting)")
        axes.set_ylim(low - room, top)
        axes.locator_params(axis="y", nbins=5)
        nearest = _nearest(trials, chosen)
        if chosen is None or nearest is None:
            return
        axes.axvline(chosen, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.plot(
            [chosen], [nearest[key]], "D", color=INK, markersize=7, markeredgecolor=PAPER, markeredgewidth=1.2, zorder=5
        )
        right = axes.transAxes.inverted().transform(axes.transData.transform((chosen, low)))[0] > 0.6
        axes.annotate(
            f"chosen: {chosen:.3g}", (chosen, top), xytext=(-5 if right else 5, -2), textcoords="offset points",
            fontsize=8, color=INK, ha="right" if right else "left", va="top",
        )  # fmt: skip

    return draw


def _lam_axis(axes: Axes, lams: Sequence[float]) -> None:
    """Logarithmic, with room for zero; a search below zero is shown to its left."""
    sizes = [abs(lam) for lam in lams if lam]
    if not sizes:
        axes.set_xlim(-0.05, 1)
        return
    side = -1 if min(lams) < 0 else 1
    least = 10 ** math.floor(math.log10(min(sizes)) + 1e-9)
    axes.set_xscale("symlog", linthresh=least, linscale=0.6)
    axes.minorticks_off()
    ticks = [0.0] + [10.0**power for power in range(round(math.log10(least)), 1) if 10.0**power <= 1.01 * max(sizes)]
    if len(ticks) < 3:
        ticks = sorted({0.0, min(sizes), max(sizes)})
    axes.set_xticks([side * tick for tick in ticks], [f"{side * tick:g}" for tick in ticks])
    axes.set_xlim(*sorted((-0.12 * least * side, 1.5 * max(sizes) * side)))
