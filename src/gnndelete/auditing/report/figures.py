"""Figures of an audit as files (PNG and SVG) and, panel by panel, as SVG inside a page."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping
from typing import Any

from gnndelete.auditing.report.panels import Panel
from gnndelete.auditing.report.pictures import Picture, pictures
from gnndelete.auditing.report.style import (
    INK,
    MUTED,
    PAPER,
    STYLE,
    VARIABLES,
    fitted,
    svg_bytes,
    svg_text,
    tight_layout,
)


def figures(report: Mapping[str, Any]) -> dict[str, bytes]:
    """The figures an audit has, by file name; one that could not be measured is left out.

    >>> sorted(figures({"cost": {"deletion": {"seconds": 0.05}, "reference": {"seconds": 6.1}}}))
    ['cost.png', 'cost.svg']
    """
    made: dict[str, bytes] = {}
    for picture in pictures(report):
        if picture.panels:
            made[f"{picture.name}.png"], made[f"{picture.name}.svg"] = _files(picture)
    return made


def inline(panel: Panel, name: str) -> str:
    """One panel as SVG for a page: its ids begin with ``name``, its colours are the page's variables.

    >>> from gnndelete.auditing.report.panels import bars
    >>> svg = inline(Panel("Cost", "Cost: 1 s", bars({"after": (1.0, "1 s")}, {"after": "deletion"}, True)), "cost0")
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


def _files(picture: Picture) -> tuple[bytes, bytes]:
    """All panels beside one another, with heading and legend."""
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
        drawn = zip(figure.subplots(1, count, squeeze=False)[0], picture.panels, titles, strict=True)
        for axes, panel, words in drawn:
            panel.draw(axes)
            axes.set_title(words, loc="left", fontsize=8.5, fontweight="bold", color=INK)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, color=INK)
        if picture.legend:
            handles = [_handle(mark.color, mark.stroke) for mark in picture.legend]
            names = [mark.label for mark in picture.legend]
            figure.legend(
                handles,
                names,
                loc="outside lower center",
                ncols=len(names),
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
    """A saved SVG made fit to live in a page: no prologue, no addresses, unique ids, colours that follow the page."""
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
    # matplotlib's own style sheet, which the page does not take over, sets how lines join.
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
