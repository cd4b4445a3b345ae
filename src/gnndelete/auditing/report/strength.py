"""The panels of a calibration: what each strength of forgetting that was tried did to utility and to forgetting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gnndelete.auditing.report.panels import Axes, Panel
from gnndelete.auditing.report.style import INK, KINDS, MODELS, PAPER, plain
from gnndelete.auditing.report.wording import number

Trial = Mapping[str, Any]


def panels(calibration: Mapping[str, Any]) -> list[Panel]:
    """Utility over lam and the unseen AUC over lam; a panel with fewer than two values shows nothing and is left out.

    >>> trials = [{"lam": 0.0, "auc": 0.55, "se": 0.01, "utility": 0.96}, {"lam": 0.02, "auc": 0.5, "se": 0.01, "utility": 0.95}]
    >>> [panel.title for panel in panels({"lam": 0.02, "target": 0.5, "trials": trials})]
    ['Forgetting: unseen AUC', 'Utility: validation score']
    """
    trials: list[Trial] = sorted(calibration.get("trials") or [], key=lambda trial: float(trial["lam"]))
    chosen = calibration.get("lam")
    made = []
    for key, title in (("auc", "Forgetting: unseen AUC"), ("utility", "Utility: validation score")):
        measured = [trial for trial in trials if trial.get(key) is not None]
        if len(measured) > 1:
            said = "; ".join(f"lam {trial['lam']:.3g}: {number(trial[key])}" for trial in measured)
            band = _band(calibration, measured, key)
            made.append(
                Panel(
                    title, f"{title} over lam. {said}. Chosen: {number(chosen)}.", _drawing(measured, key, chosen, band)
                )
            )
    return made


def _band(calibration: Mapping[str, Any], trials: Sequence[Trial], key: str) -> tuple[float, float] | None:
    """Where a trial must lie: within a standard error of the target, or no more than the budget below lam 0."""
    target, budget = calibration.get("target"), calibration.get("budget")
    if key == "auc" and target is not None:
        error = float(trials[0].get("se") or 0)
        return (target - error, target + error)
    if key == "utility" and budget is not None:
        return (float(trials[0][key]) - float(budget), math.inf)
    return None


def _nearest(trials: Sequence[Trial], lam: float | None) -> Trial | None:
    return None if lam is None else min(trials, key=lambda trial: abs(float(trial["lam"]) - lam))


def _drawing(trials: Sequence[Trial], key: str, chosen: float | None, band: tuple[float, float] | None) -> Any:
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
