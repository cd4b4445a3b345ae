"""The report as one HTML page that fetches nothing, and as a card for notebooks."""

from __future__ import annotations

from base64 import b64encode
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from gnndelete.auditing.formatting import number, seconds, sentence
from gnndelete.auditing.report.figures import Picture, drawn, pictures
from gnndelete.auditing.report.text import counts, key_numbers, method, query_verdicts, report_sections, sign
from gnndelete.nn.adapter import in_use
from gnndelete.notes import WEIGHTS

if TYPE_CHECKING:
    from gnndelete.auditing.entry import Audit

#: Longer settings are cut in the list of settings.
SETTING_LENGTH = 120


def page(audit: Audit) -> str:
    """The whole report as one page.

    Args:
        audit: What to show.
    """
    return _template("report.html.j2").render(
        **_shared(audit),
        css=Markup(_file("report.css")),
        pictures=[_embedded(picture) for picture in pictures(audit)],
        sections=report_sections(audit),
        facts=_facts(audit),
        settings=[(key, _setting(value)) for key, value in in_use(audit.done.settings).items()],
        provenance=_provenance(audit),
    )


def card(audit: Audit) -> str:
    """A few lines for a notebook: verdict, key numbers and assurance level, in the notebook's own colours.

    Args:
        audit: What to show.
    """
    return _template("card.html.j2").render(**_shared(audit)).strip()


def _shared(audit: Audit) -> dict[str, Any]:
    """What page and card have in common."""
    mark, tone = sign(audit)
    done, calibration = audit.done, audit.calibration or {}
    return {
        "verdict": audit.verdict,
        "sign": mark,
        "tone": tone,
        "by_query": query_verdicts(audit),
        "asked": counts(audit),
        "method": method(audit),
        "done": done,
        "aim_meaning": sentence(done.aim_meaning or ""),
        "assurance_meaning": sentence(done.assurance_meaning),
        "weights_meaning": WEIGHTS[done.weights],
        # the meaning of an aim says how lam was chosen
        "notes": [note.text for note in done.notes if note.code != "calibration"],
        "calibration": "" if done.aim else calibration.get("sentence") or "",
        "retrain": bool(calibration.get("retrain_recommended")),
        "names": audit.models,
        "limits": audit.limits,
        "higher": audit.higher,
        "table": key_numbers(audit),
    }


def _facts(audit: Audit) -> list[tuple[str, str]]:
    """What was asked, as pairs of name and value."""
    request = audit.request
    return [
        ("To forget", counts(audit)),
        ("Requests", number(request.requests)),
        ("Task", request.task_title),
        ("Nodes in the graph", number(request.nodes)),
        ("Directed entries of edge_index", f"{number(request.edges_before)} → {number(request.edges_after)}"),
        *((f"Fingerprint of the {name}", digest[:16]) for name, digest in audit.subject.items()),
    ]


def _setting(value: Any) -> str:
    text = "not set" if value is None else number(value, 4)
    return text if len(text) <= SETTING_LENGTH else f"{text[: SETTING_LENGTH - 3]}…"


def _provenance(audit: Audit) -> list[tuple[str, str]]:
    return [
        ("Created", audit.created.replace("T", " ")),
        ("gnndelete", audit.gnndelete),
        *audit.versions.items(),
        ("Seed", str(audit.seed)),
        ("Time for this audit", seconds(audit.seconds)),
    ]


def _embedded(picture: Picture) -> dict[str, Any]:
    """Panels as images inside the page; one by one, so that they flow on a phone."""
    images = [b64encode(drawn([panel], "svg")).decode() for panel in picture.panels]
    return {**vars(picture), "panels": list(zip(picture.panels, images, strict=True))}


def _file(name: str) -> str:
    return files("gnndelete.auditing.report").joinpath(name).read_text(encoding="utf-8")


def _template(name: str) -> Any:
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return made.from_string(_file(name))
