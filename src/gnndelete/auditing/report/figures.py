"""The figures of an audit: which there are, what each shows, and how it becomes PNG, SVG, or SVG inside the page."""

from __future__ import annotations

import html
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gnndelete.auditing.formatting import QUERY_TITLES, number, ratio, seconds, sentence
from gnndelete.auditing.measures import Section, Unmeasured
from gnndelete.auditing.measures.cost import CostSection
from gnndelete.auditing.measures.embedding import EmbeddingSection
from gnndelete.auditing.measures.forgetting import ForgettingSection, interval
from gnndelete.auditing.measures.membership import AttackSection
from gnndelete.auditing.measures.scores import ScoresSection
from gnndelete.auditing.report import panels
from gnndelete.auditing.report.panels import Panel
from gnndelete.auditing.report.style import (
    ELSEWHERE,
    INK,
    MODELS,
    MUTED,
    PAPER,
    RINGS,
    STROKES,
    STYLE,
    VARIABLES,
    Values,
    fitted,
    svg_bytes,
    svg_text,
    tight_layout,
)

if TYPE_CHECKING:
    from gnndelete.auditing.entry import Audit


@dataclass(frozen=True)
class Mark:
    """One entry of a legend."""

    label: str
    color: str
    stroke: str = "solid"  # or dashed, dotted, patch


@dataclass(frozen=True)
class Picture:
    """One figure; without panels ``reason`` says why it is missing."""

    name: str
    title: str
    caption: str = ""
    panels: tuple[Panel, ...] = ()
    legend: tuple[Mark, ...] = ()
    reason: str = ""


def pictures(audit: Audit) -> list[Picture]:
    """All figures, in the order of the page."""
    return [make(audit) for make in (_unseen, _scores, _lam, _attacks, _embedding, _cost)]


def _reason(section: Section | None, otherwise: str) -> str:
    return sentence(section.reason) if isinstance(section, Unmeasured) else otherwise


def _unseen(audit: Audit) -> Picture:
    title, names = "Do deleted elements score like ones the model never saw?", audit.models
    section = audit.sections.get("forgetting")
    if not isinstance(section, ForgettingSection) or not section.unseen:
        missing = next(iter(section.not_asked.values()), "") if isinstance(section, ForgettingSection) else ""
        return Picture("unseen", title, reason=_reason(section, sentence(missing) or "The unseen test was not made."))
    # what is drawn is what decides: without a reference, the test adjusted for surroundings
    tests = {query: test if audit.reference else test.adjusted or test for query, test in section.unseen.items()}
    values = [found for test in tests.values() for name in names if (found := test.get(name)) is not None]
    low = min([*(value.low for value in values), 0.45])
    high = max([*(value.high for value in values), 0.55])
    limits = (low - 0.06 * (high - low), high + 0.06 * (high - low))
    made = []
    for query, test in tests.items():
        heading = QUERY_TITLES[query]
        alt = ", ".join(f"{words} {interval(test.get(name))}" for name, words in names.items())
        draw = panels.whiskers({name: test.get(name) for name in names}, names, limits)
        made.append(Panel(heading.capitalize(), f"Unseen AUC, {heading}: {alt}", draw, (3.4, 0.85 + 0.25 * len(names))))
    caption = (
        "Each dot is the probability that a deleted element scores above a matched unseen one, with its 95% interval. At 0.5 "
        "they cannot be told apart. To the right deleted elements are still recognised, to the left they are suppressed."
    )
    if audit.reference:
        caption += f" The target is {names['reference']}."
    return Picture("unseen", title, caption, tuple(made))


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
        draw = panels.scores(kinds, (float(low - room), float(high + room)), section.axis)
        heading = names[name] if name == "reference" else names[name].capitalize()
        made.append(Panel(heading, f"{section.axis}, {names[name]}, medians: {medians}", draw))
    caption = (
        "Distribution of each kind of element; the dashed line is the median. After a deletion that looks like retraining, "
        "'deleted' is where 'unseen' is, and 'remaining' is where it was."
    )
    caption += f" 'Deleted' are {section.deleted}." if section.deleted else ""
    return Picture("scores", title, caption, tuple(made))


def _lam(audit: Audit) -> Picture:
    title, calibration = "How strongly to forget", audit.calibration
    if not calibration:
        return Picture("lam", title, reason="lam was given, or the method has none, so nothing was searched.")
    made = tuple(panels.calibration(calibration))
    if not made:
        enough = "lam 0 was enough, so no other lam was tried."
        reason = (
            enough if calibration.get("status") == "already" else calibration.get("sentence") or "No lam was tried."
        )
        return Picture("lam", title, reason=reason)
    band = ""
    if calibration.get("target") is not None:
        band = f" The green band is the target {number(calibration['target'])} within one standard error."
    elif calibration.get("budget") is not None:
        band = f" The green band is the utility that the budget of {number(calibration['budget'])} allows."
    caption = f"Each dot is one lam that was tried, measured on validation data. The diamond was chosen.{band}"
    return Picture("lam", title, caption, made)


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
        draw = panels.roc({name: result.roc for name, result in results.items()})
        made.append(Panel(f"{heading}: AUC {aucs}", f"{heading}, AUC {aucs}", draw))
    if not made:
        return Picture("attacks", title, reason=reason)
    caption = "The further a curve is above the diagonal, the more the attacker learns about what was deleted."
    if audit.reference:
        caption += f" The target is the curve of {names['reference']}, not the diagonal."
    legend = tuple(Mark(words, MODELS[name], STROKES[name]) for name, words in names.items())
    return Picture("attacks", title, caption, tuple(made), legend)


def _embedding(audit: Audit) -> Picture:
    title, section = "Embeddings of the neighbourhood", audit.sections.get("embedding")
    if not isinstance(section, EmbeddingSection):
        return Picture("embedding", title, reason=_reason(section, "No embeddings were kept."))
    sides = {"Before": section.before, "After": section.after}
    filled = {side: {ring: spots for ring, spots in held.items() if spots} for side, held in sides.items()}
    groups = sorted({ring for held in filled.values() for ring in held}, key=lambda ring: (ring == "elsewhere", ring))
    colors = {
        ring: ELSEWHERE if ring == "elsewhere" else RINGS[min(index, len(RINGS) - 1)]
        for index, ring in enumerate(groups)
    }
    every: Values = np.asarray([spot for held in filled.values() for spots in held.values() for spot in spots])
    low, high = np.quantile(every.reshape(-1, 2), [0.002, 0.998], axis=0)
    room = np.maximum(0.06 * (high - low), 1e-3)
    box = np.stack([low - room, high + room])
    made = []
    for side, held in filled.items():
        alt = f"Embeddings {side.lower()}: " + ", ".join(f"{len(spots)} points {ring}" for ring, spots in held.items())
        made.append(Panel(side, alt, panels.points(held, colors, box)))
    hidden = 100 * (1 - sum(section.explained))
    caption = (
        "The same nodes in the same plane. Ring 0 are the ends of what was deleted, ring 1 their neighbours. "
        f"{hidden:.0f}% of the variance lies outside this plane."
    )
    return Picture(
        "embedding", title, caption, tuple(made), tuple(Mark(ring, colors[ring], "patch") for ring in groups)
    )


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
            draw = panels.bars(values, labels, log=True)
            made.append(Panel(heading, f"{heading}: {alt}", draw, (3.4, 1.3)))
    if not made:
        return Picture("cost", title, reason="The deletion changed nothing that could be compared.")
    caption = "Measured on the same kind of device."
    if cost.ratio:
        caption = (
            f"{names['reference']} took {ratio(cost.ratio)} the time of this deletion, on the same kind of device."
        )
    return Picture("cost", title, caption, tuple(made))


def figure_files(audit: Audit) -> dict[str, bytes]:
    """The figures as PNG and SVG, by file name; one that could not be measured is left out."""
    made: dict[str, bytes] = {}
    for picture in pictures(audit):
        if picture.panels:
            made[f"{picture.name}.png"], made[f"{picture.name}.svg"] = drawn(picture)
    return made


def inline(panel: Panel, name: str) -> str:
    """One panel as SVG for a page: its ids begin with ``name``, its colours are the page's variables.

    >>> svg = inline(Panel("Cost", "Cost: 1 s", panels.bars({"after": (1.0, "1 s")}, {"after": "deletion"}, True)), "cost0")
    >>> svg.startswith("<svg"), "var(--after)" in svg, "http" in svg
    (True, True, False)
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=panel.size, layout=tight_layout())
        FigureCanvasSVG(figure)
        figure.patch.set_visible(False)
        panel.draw(figure.subplots())
        return _embedded(svg_text(figure), name, panel.alt)


def drawn(picture: Picture) -> tuple[bytes, bytes]:
    """All panels in one row, with heading and legend, as PNG and SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count, wide = len(picture.panels), sum(panel.size[0] for panel in picture.panels)
    title, titles = _wrapped(picture.title, wide), [_wrapped(panel.title, panel.size[0]) for panel in picture.panels]
    lines = title.count("\n") + max(part.count("\n") for part in titles)
    with mpl.rc_context(STYLE):
        high = max(panel.size[1] for panel in picture.panels) + 0.6 + 0.15 * lines + 0.3 * bool(picture.legend)
        figure = Figure(figsize=(wide, high), layout=tight_layout(0.08), dpi=160)
        FigureCanvasAgg(figure)
        figure.set_facecolor(PAPER)
        for axes, panel, words in zip(figure.subplots(1, count, squeeze=False)[0], picture.panels, titles, strict=True):
            panel.draw(axes)
            axes.set_title(words, loc="left", fontsize=8.5, fontweight="bold", color=INK)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, color=INK)
        if picture.legend:
            figure.legend(
                [_handle(mark.color, mark.stroke) for mark in picture.legend],
                [mark.label for mark in picture.legend],
                loc="outside lower center",
                ncols=len(picture.legend),
                frameon=False,
                fontsize=8,
                labelcolor=MUTED,
            )
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue(), svg_bytes(figure)


def _wrapped(title: str, wide: float) -> str:
    """A heading in lines that fit ``wide`` inches; what follows a colon begins a new one.

    >>> _wrapped("Membership attack: AUC before 0.996, after 0.993, Retrain 0.993", 3.4).splitlines()
    ['Membership attack', 'AUC before 0.996, after 0.993,', 'Retrain 0.993']
    """
    return fitted("\n".join(title.split(": ", 1)), wide)


def _handle(color: str, stroke: str) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if stroke == "patch":
        return Patch(color=color)
    style: dict[str, Any] = {"solid": "-", "dashed": "--", "dotted": ":"}
    return Line2D([], [], color=color, linewidth=1.8, linestyle=style[stroke])


def _embedded(svg: str, name: str, alt: str) -> str:
    """A saved SVG made fit for a page: no prologue, no addresses, unique ids, colours that follow the page."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]+)"', svg)
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")].replace("xlink:href", "href")
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], name), body)
    body = re.sub(r">\s+<", "><", body).strip()
    title = html.escape(alt)
    head = (
        f'<svg class="panel" viewBox="{box[1] if box else ""}" role="img" aria-label="{title}"><title>{title}</title>'
    )
    # matplotlib's own style sheet, which the page does not take over, sets how lines join
    return f'{head}<g stroke-linejoin="round" stroke-linecap="butt">{body}</g></svg>'


def _tag(tag: str, name: str) -> str:
    """One element: only ids that are referred to, the page's colours and font, no more digits than one can see."""
    if tag.startswith("<g "):
        tag = re.sub(r' id="[^"]*"', "", tag)
    tag = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    tag = re.sub(
        r"font-family: [^;\"]*;?|font: (?=[\d.]+px)", lambda found: "font-size: " * found[0].startswith("font: "), tag
    )
    tag = re.sub(r"(px) 'DejaVu Sans'[^;\"]*", r"\1", tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    tag = re.sub(r"-?\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), tag)
    for color, variable in VARIABLES.items():
        tag = tag.replace(color, f"var({variable})")
    return re.sub(r"\s*\n\s*", " ", tag)
