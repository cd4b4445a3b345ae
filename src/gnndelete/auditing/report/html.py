"""The report of an audit for readers: one self-contained HTML page, a card for notebooks, and text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from textwrap import wrap
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from gnndelete.auditing.report.figures import figures, inline
from gnndelete.auditing.report.pictures import Picture, model_names, pictures
from gnndelete.auditing.report.style import VARIABLES
from gnndelete.auditing.report.tables import key_numbers, sections, unasked
from gnndelete.auditing.report.wording import DASH, QUERIES, VERDICTS, counts, number, seconds, sentence
from gnndelete.nn.adapter import in_use

__all__ = ["card_html", "figures", "html", "text"]

#: The sign beside the verdict, so that it never stands on colour alone, and which colours it takes.
SIGNS = {
    "ruined": ("✕", "bad"),
    "under-forgotten": ("▲", "warn"),
    "over-forgotten": ("▼", "warn"),
    "indistinguishable": ("✓", "good"),
    "undecided": ("?", "open"),
}
#: Instead of the tick where another graph that can be asked speaks against it.
DOUBTED = ("≈", "warn")


def html(report: Mapping[str, Any]) -> str:
    """The whole report as one page that fetches nothing.

    >>> page = html({"verdict": {"word": "undecided", "title": "Too little to judge <by>", "sentence": "One edge."}})
    >>> "Too little to judge &lt;by&gt;" in page, "https://" in page
    (True, False)
    """
    return _template("report.html.j2").render(
        **_shared(report),
        css=Markup(_file("report.css")),
        pictures=[_shown(picture) for picture in pictures(report)],
        table=key_numbers(report),
        sections=sections(report),
        facts=_facts(report),
        settings=[(key, _setting(value)) for key, value in in_use(_part(report, "done").get("settings") or {}).items()],
        provenance=_provenance(report),
    )


def card_html(report: Mapping[str, Any]) -> str:
    """A few lines for a notebook: verdict, key numbers and assurance level, in the notebook's own colours.

    >>> card_html({"verdict": {"word": "ruined", "title": "The model is ruined"}}).startswith("<div")
    True
    """
    return _template("card.html.j2").render(**_shared(report), table=key_numbers(report)).strip()


def text(report: Mapping[str, Any], width: int | None = None) -> str:
    """The report in about 25 lines for a terminal, verdict first; on one of fewer columns, intervals are left to the page.

    >>> print(text({"verdict": {"word": "ruined", "title": "The model is ruined", "sentence": "Nothing works."}}).splitlines()[0])
    [✕] The model is ruined
    """
    shared = _shared(report)
    verdict = shared["verdict"]

    def _wrapped(words: str, first: str, later: str | None = None) -> list[str]:
        later = first if later is None else later
        return wrap(words, min(width or 100, 100), initial_indent=first, subsequent_indent=later)

    lines = [f"[{shared['sign']}] {verdict['title']}", *_wrapped(verdict["sentence"], "    ")]
    lines += [f"    {query}: {word}" for query, word in shared["by_query"]]
    for warning in verdict["warnings"]:
        lines += _wrapped(f"Warning: {warning}", "    ")
    lines += ["", f"Asked      forget {shared['asked']}", f"Done       {shared['method']}"]
    for name in ("aim", "assurance"):
        if shared["done"][name]:
            said = f"{name.capitalize():9}  {shared['done'][name]}: {shared['done'][f'{name}_meaning']}"
            lines += _wrapped(said, "", " " * 11)
    table = key_numbers(report)
    if table.rows:
        lines += ["", *_columns([table.columns, *table.rows], width)]
    missing = [f"{section.title}: {section.reason}" for section in sections(report) if section.reason]
    missing += [f"Unseen test, {name}: {why}" for name, why in unasked(report)]
    if missing:
        lines += ["", "Not measured", *(line for why in missing for line in _wrapped(why, "  - ", "    "))]
    if shared["limits"]:
        lines += [
            "",
            "What this does not give",
            *(line for limit in shared["limits"] for line in _wrapped(limit, "  - ", "    ")),
        ]
    return "\n".join(lines)


def _columns(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """A table of text; where it is wider than the terminal it goes without intervals, and its first column wraps.

    >>> _columns([("measure", "after"), ("a long name of it", "0.5 [0.4, 0.6]")], 20)
    ['measure        after', 'a long name    0.5', 'of it']
    """
    widths = _widths(rows)
    if width is None or sum(widths) + 2 * len(widths) - 2 <= width:
        return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    rows = [[row[0], *(cell.partition(" [")[0] for cell in row[1:])] for row in rows]
    widths = _widths(rows)
    first = max(12, min(widths[0], width - sum(widths[1:]) - 2 * len(widths) + 2))
    lines = []
    for name, *cells in rows:
        head, *more = wrap(name, first) or [""]
        lines += ["  ".join(map(str.ljust, (head, *cells), (first, *widths[1:]))).rstrip(), *more]
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _part(report: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return report.get(key) or {}


def _shared(report: Mapping[str, Any]) -> dict[str, Any]:
    """What page, card and text have in common; every string is there, if empty, so that templates need no cases."""
    given, done = _part(report, "verdict"), _part(report, "done")
    word = str(given.get("word") or "undecided")
    sign, tone = SIGNS.get(word, SIGNS["undecided"])
    if word == "indistinguishable" and given.get("doubts"):
        sign, tone = DOUBTED
    lam = f", lam {done['lam']:.3g}" if done.get("lam") is not None else ""
    model = f" on {done['model']}" if done.get("model") else ""
    calibrated = _part(report, "calibration").get("sentence") or ""
    return {
        "verdict": {
            "word": word,
            "title": given.get("title") or word.capitalize(),
            "sentence": given.get("sentence") or "",
            "warnings": given.get("warnings") or [],
        },
        "sign": sign,
        "tone": tone,
        "by_query": [
            (QUERIES.get(key, key), VERDICTS.get(value, value))
            for key, value in (given.get("by_query") or {}).items()
            if value
        ],
        "asked": counts(_part(report, "request")),
        "method": f"{done.get('method') or 'unknown method'}{model}{lam}",
        "done": {
            "assurance": done.get("assurance") or "",
            "assurance_meaning": sentence(done.get("assurance_meaning") or ""),
            "aim": done.get("aim") or "",
            "aim_meaning": sentence(done.get("aim_meaning") or ""),
        },
        "notes": [note["text"] for note in done.get("notes") or [] if note["code"] != "calibration"],
        # what the aim means already says how lam was chosen
        "calibration": "" if calibrated.rstrip(".") in (done.get("aim_meaning") or "") else calibrated,
        "retrain": bool(_part(report, "calibration").get("retrain_recommended")),
        "names": model_names(report),
        "limits": report.get("limits") or [],
        "higher": report.get("higher") or [],
    }


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was asked, as pairs of name and value."""
    request = _part(report, "request")
    edges = " → ".join(
        number(request.get(key)) for key in ("edges_before", "edges_after") if request.get(key) is not None
    )
    facts = [
        ("To forget", counts(request)),
        ("Requests", number(request.get("requests"))),
        ("Task", {"link": "link prediction", "node": "node classification", "graph": "graph classification"}.get(
            request.get("task", ""), str(request.get("task") or DASH))),
        ("Nodes in the graph", number(request.get("nodes"))),
        (str(request.get("edges_word") or "edges").capitalize(), edges or DASH),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value != DASH]


def _setting(value: Any) -> str:
    said = "not set" if value is None else number(value, 4)
    return said if len(said) <= 120 else f"{said[:117]}…"


def _provenance(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = [
        ("Made", str(report.get("created") or DASH).replace("T", " ")),
        ("gnndelete", str(report.get("gnndelete") or DASH)),
        *((str(name), str(version)) for name, version in _part(report, "versions").items()),
        ("Seed", str(report.get("seed", DASH))),
        ("Time for this audit", seconds(report.get("seconds"))),
        ("Format of the data", str(report.get("format", DASH))),
    ]
    return [(name, value) for name, value in shown if value != DASH]


def _shown(picture: Picture) -> dict[str, Any]:
    return {
        "name": picture.name,
        "title": picture.title,
        "caption": picture.caption,
        "reason": picture.reason,
        "legend": picture.legend,
        "panels": [
            (panel.title, Markup(inline(panel, f"{picture.name}{i}"))) for i, panel in enumerate(picture.panels)
        ],
    }


def _file(name: str) -> str:
    return files("gnndelete.auditing.report").joinpath(name).read_text(encoding="utf-8")


def _template(name: str) -> Any:
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals["variable"] = _variable
    return made.from_string(_file(name))


def _variable(color: str) -> str:
    return f"var({VARIABLES[color]})"
