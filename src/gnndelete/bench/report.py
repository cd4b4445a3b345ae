"""Tables, figures and pages of what a store holds: the same store gives the same bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gnndelete.bench import curves, figures
from gnndelete.bench.acceptance import BEST, Acceptance, acceptance, once
from gnndelete.bench.caveats import of_today
from gnndelete.bench.compared import both_scores, distances
from gnndelete.bench.drawing import Format
from gnndelete.bench.formats import latex, latex_needs, latex_note, plain, tidy_csv
from gnndelete.bench.gapfigure import gap_figure
from gnndelete.bench.gathered import Plan, Result, gather, told_apart
from gnndelete.bench.levels import retrained
from gnndelete.bench.pages import Commands, Pictured, experiment_page, flat, heading, index_page, page_path
from gnndelete.bench.reasons import grouped
from gnndelete.bench.summary import headline, summary_page
from gnndelete.bench.tables import sections, silent
from gnndelete.bench.timecurves import time_pictures, timings
from gnndelete.bench.wording import listed, many, method_name
from gnndelete.bench.written import write
from gnndelete.io.store import Store

__all__ = ["build", "devices", "provenance", "usual_device", "write"]

Gathered = Sequence[tuple[Plan, Sequence[Result]]]


def usual_device(store: Store) -> str:
    """The device on which most rows of a store were made, so that one report never mixes two.

    >>> usual_device(Store(None))
    'cpu'
    """
    counts = devices(store)
    return max(("cuda", "cpu"), key=lambda name: (counts[name], name == "cpu"))


def devices(store: Store) -> Counter[str]:
    """How many rows of a store were made on which device."""
    return Counter(str(key.get("device") or (row.get("hardware") or {}).get("device")) for key, row in store.items())


def build(
    plans: Sequence[Plan], store: Store, commands: Commands, best: str = BEST, form: Format = "svg"
) -> tuple[dict[str, bytes], Acceptance]:
    """Every file of a report by its path, and the answers of the summary."""
    gathered = [(plan, [of_today(cell) for cell in gather(plan, store)]) for plan in plans]
    found = acceptance(gathered, best)
    made: dict[str, bytes] = {}
    elsewhere = retrained(store)
    overall, captions = _overall(gathered, form)
    everything = Pictured(_drawn(made, overall), captions)
    for plan, results in gathered:
        lam = curves.lam_pictures(plan, results, elsewhere)
        pictures = Pictured(_drawn(made, _pictures(plan, results, lam, form)), _captions(plan, results, lam, form))
        made[page_path(plan.name)] = experiment_page(plan, results, pictures, commands).encode()
        made[f"tables/{flat(plan.name)}.csv"] = tidy_csv(plan, results).encode()
        made[f"tables/{flat(plan.name)}.tex"] = _tex(plan, results).encode()
    made["index.md"] = index_page(
        gathered, found, everything, provenance(gathered) | {"held": len(store)}, commands
    ).encode()
    made["summary.md"] = summary_page(found).encode()
    made["summary.json"] = (json.dumps(headline(found), indent=1) + "\n").encode()
    return made, found


def provenance(gathered: Gathered) -> dict[str, Any]:
    """What the rows of a report were made with, and when."""
    rows = {id(row): row for _, results in gathered for result in results for row in result.rows.values()}.values()
    said: dict[str, Any] = {"rows": len(rows)}
    for name in ("version", "torch", "git"):
        counts = Counter(_short(str(row[name])) for row in rows if row.get(name))
        several = name == "git" and len(counts) > 1
        said[name] = [f"{each} ({count:,} rows)" if several else each for each, count in sorted(counts.items())]
    said["jobs"] = max(((row.get("hardware") or {}).get("jobs") or 1 for row in rows), default=1)
    said["hardware"] = sorted({str(row["hardware"]["name"]) for row in rows if (row.get("hardware") or {}).get("name")})
    times = sorted(str(row["finished"]) for row in rows if row.get("finished"))
    return said | ({"first": times[0][:10], "last": times[-1][:10]} if times else {})


def _short(name: str) -> str:
    """The beginning of a source's name, and whether it had been changed since.

    >>> _short("47dc97c81604-dirty"), _short("2.11.0")
    ('47dc97c816-dirty', '2.11.0')
    """
    return name[:10] + "-dirty" * name.endswith("-dirty")


_Picture = tuple[str, str, bytes]  # name without ending, what it shows, content
_PNG = b"\x89PNG"


def _drawn(made: dict[str, bytes], pictures: Sequence[_Picture]) -> dict[str, str]:
    """Keep the files of figures; their names with what they show."""
    alts = {}
    for name, alt, content in pictures:
        file = f"{name}.{'png' if content.startswith(_PNG) else 'svg'}"
        made[f"figures/{file}"], alts[file] = content, alt
    return alts


def _pictures(plan: Plan, results: Sequence[Result], lam: Sequence[curves.LamPicture], form: Format) -> list[_Picture]:
    found: list[_Picture] = []
    name = flat(plan.name)
    for number, picture in enumerate(lam, 1):
        found.append(
            (f"{name}-lam-{number}", f"Scores against lam. {picture.title}", figures.lam_figure(picture, form))
        )
    timed = time_pictures(results)
    for number, each in enumerate(timed, 1):
        alt = f"Time against the {'number of ' * (each.axis == 'edges')}{each.axis}, {each.title}: {each.named}"
        alone = [other.model for other in timed].count(each.model) == 1
        found.append((f"{name}-time-{each.model}{'' if alone else f'-{number}'}", alt, figures.time_figure(each, form)))
    rows = curves.gap_rows(results)
    # times are looked at for themselves, and models that were trained too shortly to count have no gaps worth a figure
    if plan.summary and curves.is_about(plan, results, rows) and not timings(results):
        alt = f"{heading(plan.title)}: gap to Retrain of every cell"
        found.append((f"{name}-gap", alt, gap_figure(rows, plan.title, form)))
    return found


def _captions(plan: Plan, results: Sequence[Result], lam: Sequence[curves.LamPicture], form: Format) -> dict[str, str]:
    """What a figure of gaps does not show (methods that are in the tables alone, cells that failed), and notes of others."""
    name = flat(plan.name)
    rest, failed = curves.undrawn(results, curves.gap_rows(results)), curves.failed(results)
    parts = [f"Not drawn, but in the tables: {plain(listed(rest))}."] if rest else []
    parts += [f"Failed, and so not drawn: {plain('; '.join(failed))}."] if failed else []
    found = {
        f"{name}-lam-{number}.{form}": plain(picture.note) for number, picture in enumerate(lam, 1) if picture.note
    }
    return found | ({f"{name}-gap.{form}": " ".join(parts)} if parts else {})


def _overall(gathered: Gathered, form: Format) -> tuple[list[_Picture], dict[str, str]]:
    """Methods over the cells that they share, and captions that say which cells and who is left out."""
    shared = told_apart(once(result for _, results in gathered for result in results if result.rows))
    found: list[_Picture] = []
    captions: dict[str, str] = {}
    for name, compared, draw, what in (
        (
            "methods-retrain",
            distances(shared),
            figures.distance_figure,
            "Distance to Retrain in E_t and in unseen AUC",
        ),
        ("methods-scores", both_scores(shared), figures.scores_figure, "E_t and E_d AUROC"),
    ):
        if len(compared.points) > 1:
            alt = f"{what} of {many(len(compared.points), 'method')}, means over {many(len(compared.places), 'cell')}"
            found.append((name, alt, draw(compared, form)))
            captions[f"{name}.{form}"] = plain(compared.caption)
    return found, captions


def _tex(plan: Plan, results: Sequence[Result]) -> str:
    """All tables of an experiment; what is missing stands there as missing, with its reason."""
    parts: list[str] = []
    unsaid = [method_name(label) for label in silent(plan, results)]
    for section in sections(plan, results):
        tables = [table for table in (section.scores, section.costs) if table.columns and table.lines]
        parts += [latex(table) for table in tables if table is section.scores or not table.empty]
        if section.scores not in tables:
            parts.append(latex_note(section.title, grouped(section.cells)))
    if unsaid and any(result.rows or result.errors for result in results):
        parts.append(latex_note("Not run here", [listed(unsaid)]))
    head = [f"% {' '.join(plan.title.split())}: made by gnndelete bench report", *latex_needs("".join(parts))]
    return "\n".join([*head, *parts]) + "\n"
