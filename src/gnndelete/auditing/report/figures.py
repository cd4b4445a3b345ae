"""The figures of an audit: each is a row of small panels, written as PNG and SVG files and shown as SVG on the page."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gnndelete.auditing.formatting import QUERY_TITLES, number, ratio, seconds, sentence
from gnndelete.auditing.measures import Section, Unmeasured
from gnndelete.auditing.measures.cost import CostSection
from gnndelete.auditing.measures.figure_data import EmbeddingSection, ScoresSection
from gnndelete.auditing.measures.forgetting import ForgettingSection, UnseenAUC, interval
from gnndelete.auditing.measures.membership import AttackSection
from gnndelete.auditing.report.style import (
    ELSEWHERE,
    INK,
    KINDS,
    MODELS,
    MUTED,
    PAPER,
    RINGS,
    STROKES,
    STYLE,
    Values,
    density,
    fitted,
    plain,
    svg_bytes,
    tight_layout,
)

if TYPE_CHECKING:
    from gnndelete.auditing.entry import Audit

Axes = Any  # matplotlib's, which is imported only where something is drawn


@dataclass(frozen=True)
class Panel:
    """One set of axes, small enough for a phone: its heading, its words for a screen reader, and how it is drawn."""

    title: str
    alt: str
    draw: Callable[[Axes], None]
    size: tuple[float, float] = (3.4, 2.3)  # inches


@dataclass(frozen=True)
class Picture:
    """One figure; without panels ``reason`` says why it is missing."""

    name: str
    title: str
    caption: str = ""
    panels: tuple[Panel, ...] = ()
    reason: str = ""


def pictures(audit: Audit) -> list[Picture]:
    """All figures, in the order of the page."""
    return [make(audit) for make in (_unseen, _scores, _lam, _attacks, _embedding, _cost)]


def figure_files(audit: Audit) -> dict[str, bytes]:
    """The figures as PNG and SVG, by file name; one that could not be measured is left out."""
    made: dict[str, bytes] = {}
    for picture in pictures(audit):
        for kind in ("png", "svg") if picture.panels else ():
            made[f"{picture.name}.{kind}"] = drawn(picture.panels, kind, picture.title)
    return made


def drawn(panels: Sequence[Panel], kind: str, title: str = "") -> bytes:
    """Panels in one row as ``"png"`` or ``"svg"``; with a title they get their headings, too."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide = sum(panel.size[0] for panel in panels)
    headings = [_heading(panel.title, panel.size[0]) if title else "" for panel in panels]
    top = _heading(title, wide)
    lines = top.count("\n") + max(heading.count("\n") for heading in headings)
    high = max(panel.size[1] for panel in panels) + (0.6 + 0.15 * lines if title else 0)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(wide, high), layout=tight_layout(0.08 if title else 0.03), dpi=160, facecolor=PAPER)
        FigureCanvasAgg(figure)
        for axes, panel, heading in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, headings, strict=True
        ):
            panel.draw(axes)
            axes.set_title(heading, loc="left", fontsize=8.5, fontweight="bold", color=INK)
        figure.suptitle(top, x=0.01, ha="left", fontsize=10.5, color=INK)
        if kind == "svg":
            return svg_bytes(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()


def _heading(title: str, wide: float) -> str:
    """A heading in lines that fit ``wide`` inches; what follows a colon begins a new one.

    >>> _heading("Membership attack: AUC before 0.996, after 0.993, Retrain 0.993", 3.4).splitlines()
    ['Membership attack', 'AUC before 0.996, after 0.993,', 'Retrain 0.993']
    """
    return fitted("\n".join(title.split(": ", 1)), wide)


def _reason(section: Section | None, otherwise: str) -> str:
    return sentence(section.reason) if isinstance(section, Unmeasured) else otherwise


# The unseen test ------------------------------------------------------------------------------------------------------------


def _unseen(audit: Audit) -> Picture:
    title, names = "Do deleted elements score like ones the model never saw?", audit.models
    section = audit.sections.get("forgetting")
    if not isinstance(section, ForgettingSection) or not section.unseen:
        missing = next(iter(section.not_asked.values()), "") if isinstance(section, ForgettingSection) else ""
        return Picture("unseen", title, reason=_reason(section, sentence(missing) or "The unseen test was not made."))
    # what is drawn is what decides: without a reference, the test adjusted for surroundings
    tests = {query: test if audit.reference else test.adjusted or test for query, test in section.unseen.items()}
    values = [found for test in tests.values() for name in names if (found := test.get(name)) is not None]
    low, high = min([*(value.low for value in values), 0.45]), max([*(value.high for value in values), 0.55])
    limits = (low - 0.06 * (high - low), high + 0.06 * (high - low))
    made = []
    for query, test in tests.items():
        heading = QUERY_TITLES[query]
        alt = ", ".join(f"{words} {interval(test.get(name))}" for name, words in names.items())
        draw = _whiskers({name: test.get(name) for name in names}, names, limits)
        made.append(Panel(heading.capitalize(), f"Unseen AUC, {heading}: {alt}", draw, (3.4, 0.85 + 0.25 * len(names))))
    caption = (
        "Each dot is the probability that a deleted element scores above a matched unseen one, with its 95% interval. At 0.5 "
        "they cannot be told apart. To the right deleted elements are still recognised, to the left they are suppressed."
    )
    if audit.reference:
        caption += f" The target is {names['reference']}."
    return Picture("unseen", title, caption, tuple(made))


def _whiskers(
    tests: Mapping[str, UnseenAUC | None], names: Mapping[str, str], limits: tuple[float, float]
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        axes.axvline(0.5, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        for row, name in enumerate(reversed(list(names))):
            test, color = tests.get(name), MODELS[name]
            if test is None:
                axes.text(0.5, row, " not measured ", fontsize=8, color=MUTED, va="center", ha="center")
                continue
            axes.plot([test.low, test.high], [row, row], color=color, linewidth=2.4, solid_capstyle="round")
            axes.plot([test.auc], [row], "o", color=color, markersize=7, markeredgecolor=PAPER, markeredgewidth=1)
            right = axes.get_yaxis_transform()
            axes.text(1.02, row, f"{test.auc:.3f}", transform=right, fontsize=8, color=INK, va="center")
        plain(axes, x="AUC, deleted against unseen", grid="x")
        axes.set_xlim(*limits)
        _name_rows(axes, [names[name] for name in reversed(list(names))])

    return draw


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_ylim(-0.5, len(names) - 0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)


# Scores ---------------------------------------------------------------------------------------------------------------------


def _scores(audit: Audit) -> Picture:
    title, names, section = "Scores the models give", audit.models, audit.sections.get("scores")
    groups = section.scores if isinstance(section, ScoresSection) else {}
    every = np.asarray([v for kinds in groups.values() for values in kinds.values() for v in values], dtype=np.float64)
    if not isinstance(section, ScoresSection) or not every.size:
        return Picture("scores", title, reason=_reason(section, "No scores were kept."))
    low, high = np.quantile(every, [0.002, 0.998])
    room = 0.04 * (high - low) or 0.5
    made = []
    for name, kinds in groups.items():
        medians = ", ".join(f"{kind} {number(float(np.median(values)))}" for kind, values in kinds.items() if values)
        draw = distributions(kinds, (float(low - room), float(high + room)), section.axis)
        heading = names[name] if name == "reference" else names[name].capitalize()
        made.append(Panel(heading, f"{section.axis}, {names[name]}, medians: {medians}", draw))
    caption = (
        "Distribution of each kind of element; the dashed line is the median. After a deletion that looks like retraining, "
        "'deleted' is where 'unseen' is, and 'remaining' is where it was."
    )
    caption += f" 'Deleted' are {section.deleted}." if section.deleted else ""
    return Picture("scores", title, caption, tuple(made))


def distributions(
    groups: Mapping[str, Sequence[float]], limits: tuple[float, float], axis: str
) -> Callable[[Axes], None]:
    """Distributions above one another; few values are shown as dots, since a curve would claim more than is known."""
    kinds = [kind for kind in reversed(KINDS) if groups.get(kind)]

    def draw(axes: Axes) -> None:
        grid = np.linspace(*limits, 160)
        for row, kind in enumerate(kinds):
            values: Values = np.asarray(groups[kind], dtype=np.float64).clip(*limits)
            if values.size < 10:
                axes.plot(values, np.full(values.size, row + 0.25), "o", color=KINDS[kind], markersize=5)
            else:
                curve = density(values, grid)
                top, alpha = row + 0.86 * curve / max(curve.max(), 1e-12), 0.7 if kind == "deleted" else 0.35
                axes.fill_between(grid, row, top, color=KINDS[kind], alpha=alpha, linewidth=0)
                axes.plot(grid, top, color=KINDS[kind], linewidth=1.1)
            median = float(np.median(values))
            axes.plot([median, median], [row, row + 0.8], color=INK, linewidth=1, linestyle=(0, (2, 2)))
        plain(axes, x=axis, grid="x")
        axes.set_xlim(*limits)
        axes.set_ylim(-0.08, len(kinds))
        axes.set_yticks([row + 0.3 for row in range(len(kinds))], kinds)
        axes.tick_params(axis="y", length=0)

    return draw


# The search for lam ---------------------------------------------------------------------------------------------------------


def _lam(audit: Audit) -> Picture:
    title, calibration = "How strongly to forget", audit.calibration
    if not calibration:
        return Picture("lam", title, reason="lam was given, or the method has none, so nothing was searched.")
    trials = sorted(calibration.get("trials") or [], key=lambda trial: float(trial["lam"]))
    made = []
    for key, heading in (("auc", "Unseen AUC"), ("utility", "Validation score")):
        measured = [trial for trial in trials if trial.get(key) is not None]
        if len(measured) > 1:
            tried = "; ".join(f"lam {trial['lam']:.3g}: {number(trial[key])}" for trial in measured)
            alt = f"{heading} over lam. {tried}. Chosen: {number(calibration.get('lam'))}."
            made.append(Panel(heading, alt, _search(calibration, measured, key)))
    if not made:
        enough = "lam 0 was enough, so no other lam was tried."
        said = enough if calibration.get("status") == "already" else calibration.get("sentence") or "No lam was tried."
        return Picture("lam", title, reason=said)
    band = ""
    if calibration.get("target") is not None:
        band = f" The green band is the target {number(calibration['target'])} within one standard error."
    elif calibration.get("budget") is not None:
        band = f" The green band is the utility that the budget of {number(calibration['budget'])} allows."
    caption = f"Each dot is one lam that was tried, measured on validation data. The diamond was chosen.{band}"
    return Picture("lam", title, caption, tuple(made))


def _search(found: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], key: str) -> Callable[[Axes], None]:
    """One value over lam, with the band where a trial must lie: near the target, or within the budget."""
    lams, values = [float(trial["lam"]) for trial in trials], [float(trial[key]) for trial in trials]
    errors = [float(trial.get("se") or 0) if key == "auc" else 0.0 for trial in trials]
    band, target, budget = None, found.get("target"), found.get("budget")
    if key == "auc" and target is not None:
        band = (target - errors[0], target + errors[0])
    elif key == "utility" and budget is not None:
        band = (values[0] - float(budget), max(values))

    def draw(axes: Axes) -> None:
        if band:
            axes.axhspan(*band, color=KINDS["unseen"], alpha=0.22, linewidth=0)
        axes.errorbar(lams, values, yerr=errors, fmt="o-", color=MODELS["after"], linewidth=1.3, markersize=4.5)
        plain(axes, x="lam (strength of forgetting)")
        axes.locator_params(axis="y", nbins=5)
        axes.margins(y=0.16)
        _lam_axis(axes, lams)
        chosen = found.get("lam")
        if chosen is not None:
            height = values[int(np.argmin(np.abs(np.asarray(lams) - chosen)))]
            axes.axvline(chosen, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), label=f"chosen: {chosen:.3g}")
            axes.plot([chosen], [height], "D", color=INK, markersize=7, markeredgecolor=PAPER, zorder=5)
            axes.legend(frameon=False, fontsize=8, handlelength=0, loc="best")

    return draw


def _lam_axis(axes: Axes, lams: Sequence[float]) -> None:
    """Logarithmic, with room for zero; a search below zero is shown to its left."""
    sizes = [abs(lam) for lam in lams if lam]
    if not sizes:
        return
    side = -1 if min(lams) < 0 else 1
    least = math.floor(math.log10(min(sizes)) + 1e-9)
    axes.set_xscale("symlog", linthresh=10.0**least, linscale=0.6)
    axes.minorticks_off()
    decades = [10.0**power for power in range(least, 1) if 10.0**power <= 1.01 * max(sizes)]
    ticks = [0.0, *decades] if len(decades) > 1 else sorted({0.0, min(sizes), max(sizes)})
    axes.set_xticks([side * tick for tick in ticks], [f"{side * tick:g}" for tick in ticks])
    axes.set_xlim(*sorted((-0.12 * 10.0**least * side, 1.5 * max(sizes) * side)))


# Attacks --------------------------------------------------------------------------------------------------------------------


def _attacks(audit: Audit) -> Picture:
    title, names = "What an attacker finds", audit.models
    made, reason = [], ""
    for key, heading in (("membership", "Membership attack"), ("trend", "Trend attack")):
        section = audit.sections.get(key)
        if not isinstance(section, AttackSection):
            reason = reason or _reason(section, "The attack was not run.")
            continue
        results = {name: result for name in names if (result := section.results.get(name)) is not None}
        aucs = ", ".join(f"{names[name]} {number(result.auc)}" for name, result in results.items())
        draw = _roc({name: result.roc for name, result in results.items()}, names)
        made.append(Panel(f"{heading}: AUC {aucs}", f"{heading}, AUC {aucs}", draw))
    if not made:
        return Picture("attacks", title, reason=reason)
    caption = "The further a curve is above the diagonal, the more the attacker learns about what was deleted."
    if audit.reference:
        caption += f" The target is the curve of {names['reference']}, not the diagonal."
    return Picture("attacks", title, caption, tuple(made))


def _roc(curves: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7)
        for name in ("before", "reference", "after"):
            if name in curves:
                style = {"color": MODELS[name], "linewidth": 1.7, "linestyle": STROKES[name], "label": names[name]}
                axes.plot(curves[name]["fpr"], curves[name]["tpr"], **style)
        plain(axes, x="false alarms", y="found")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.legend(frameon=False, fontsize=8, loc="lower right", labelcolor=INK)

    return draw


# Embeddings -----------------------------------------------------------------------------------------------------------------


def _embedding(audit: Audit) -> Picture:
    title, section = "Embeddings of the neighbourhood", audit.sections.get("embedding")
    if not isinstance(section, EmbeddingSection):
        return Picture("embedding", title, reason=_reason(section, "No embeddings were kept."))
    sides = {"Before": section.before, "After": section.after}
    filled = {side: {ring: spots for ring, spots in held.items() if spots} for side, held in sides.items()}
    every: Values = np.asarray([spot for held in filled.values() for spots in held.values() for spot in spots])
    low, high = np.quantile(every.reshape(-1, 2), [0.002, 0.998], axis=0)
    room = np.maximum(0.06 * (high - low), 1e-3)
    made = []
    for side, held in filled.items():
        alt = f"Embeddings {side.lower()}: " + ", ".join(f"{len(spots)} points {ring}" for ring, spots in held.items())
        made.append(Panel(side, alt, _points(held, np.stack([low - room, high + room]))))
    caption = (
        "The same nodes in the same plane. Ring 0 are the ends of what was deleted, ring 1 their neighbours. "
        f"{100 * (1 - sum(section.explained)):.0f}% of the variance lies outside this plane."
    )
    return Picture("embedding", title, caption, tuple(made))


def _points(groups: Mapping[str, Sequence[Sequence[float]]], box: Values) -> Callable[[Axes], None]:
    """Points in the plane, those of ring 0 on top; as an image, since a mark for each would make the page far larger."""

    def draw(axes: Axes) -> None:
        for name in sorted(groups):
            spots = np.asarray(groups[name], dtype=np.float64).reshape(-1, 2)
            ring = None if name == "elsewhere" else int(name.removeprefix("ring "))
            color, layer = (ELSEWHERE, 2) if ring is None else (RINGS[ring], 5 - ring)
            size = 9 if len(spots) > 30 else 36
            dots = {"s": size, "color": color, "alpha": 0.75, "linewidth": 0, "zorder": layer, "label": name}
            axes.scatter(*spots.T, rasterized=True, **dots)
        axes.set_xlim(*box[:, 0])
        axes.set_ylim(*box[:, 1])
        plain(axes, grid="")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.legend(frameon=False, fontsize=7, loc="best", labelcolor=INK, handletextpad=0.1, borderaxespad=0.1)

    return draw


# Cost -----------------------------------------------------------------------------------------------------------------------


def _cost(audit: Audit) -> Picture:
    title, names, cost = "What it cost", audit.models, audit.sections.get("cost")
    if not isinstance(cost, CostSection):
        return Picture("cost", title, reason=_reason(cost, "The cost was not measured."))
    if cost.reference is None:
        time = seconds(cost.deletion.seconds)
        return Picture("cost", title, reason=f"There is no reference to compare the {time} of this deletion with.")
    labels = {"after": "deletion", "reference": names["reference"]}
    made = []
    for key, heading, text in (
        ("seconds", "Seconds (log scale)", seconds),
        ("parameters", "Parameters changed (log scale)", number),
    ):
        sides = {"after": getattr(cost.deletion, key), "reference": getattr(cost.reference, key)}
        values = {name: (float(value), text(value)) for name, value in sides.items() if value}
        if len(values) == 2:
            alt = ", ".join(f"{labels[name]} {words}" for name, (_, words) in values.items())
            draw = _bars(values, labels)
            made.append(Panel(heading, f"{heading}: {alt}", draw, (3.4, 1.1)))
    if not made:
        return Picture("cost", title, reason="The deletion changed nothing that could be compared.")
    caption = "Measured on the same kind of device."
    if cost.ratio:
        caption = (
            f"{names['reference']} took {ratio(cost.ratio)} the time of this deletion, on the same kind of device."
        )
    return Picture("cost", title, caption, tuple(made))


def _bars(values: Mapping[str, tuple[float, str]], labels: Mapping[str, str]) -> Callable[[Axes], None]:
    """One bar per model with its value written at the end, so that no axis is needed."""

    def draw(axes: Axes) -> None:
        sizes = [value for value, _ in values.values()]
        for row, name in enumerate(reversed(list(values))):
            value, text = values[name]
            axes.barh(row, value, height=0.5, color=MODELS[name], linewidth=0)
            axes.annotate(text, (value, row), (4, 0), textcoords="offset points", fontsize=8.5, color=INK, va="center")
        plain(axes, grid="")
        axes.set_xscale("log")
        axes.set_xlim(min(sizes) / 2, max(sizes) * (2 * max(sizes) / min(sizes)) ** 0.3)
        axes.minorticks_off()
        axes.set_xticks([])
        _name_rows(axes, [labels[name] for name in reversed(list(values))])

    return draw
