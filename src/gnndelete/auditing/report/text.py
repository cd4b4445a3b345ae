"""The report as text for a terminal, and what all forms of the report share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from gnndelete.auditing.formatting import DASH, QUERY_TITLES, sentence, verdict_words
from gnndelete.auditing.measures import Table, Unmeasured, measures
from gnndelete.auditing.measures.forgetting import ForgettingSection
from gnndelete.graph.kinds import in_words
from gnndelete.notes import WEIGHTS

if TYPE_CHECKING:
    from gnndelete.auditing.entry import Audit

#: The sign of each verdict, so that it never depends on colour alone, and the name of its colours.
SIGNS = {
    "ruined": ("✕", "bad"),
    "under-forgotten": ("▲", "warn"),
    "over-forgotten": ("▼", "warn"),
    "indistinguishable": ("✓", "good"),
    "marked": ("◆", "warn"),
    "suppressed": ("▽", "good"),
    "missed": ("△", "warn"),
    "undecided": ("?", "open"),
}
#: In place of the tick where another graph contradicts it.
DOUBTED = ("≈", "warn")


@dataclass(frozen=True)
class ReportSection:
    """One part of the report: sentences and tables, or the reason why it was not measured."""

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    reason: str = ""


def sign(audit: Audit) -> tuple[str, str]:
    """The sign beside the verdict, and the name of its colours."""
    return DOUBTED if audit.verdict.doubts else SIGNS[audit.verdict.code]


def query_verdicts(audit: Audit) -> list[tuple[str, str]]:
    """The verdict on each graph that could be asked."""
    return [(QUERY_TITLES[name], verdict_words(code)) for name, code in audit.verdict.by_query.items() if code]


def counts(audit: Audit) -> str:
    """What was to be forgotten, such as "1,189 edges and 1 node"."""
    return " and ".join(in_words(audit.request.counts)) or "nothing"


def method(audit: Audit) -> str:
    """The method, its model and lam."""
    lam = "" if audit.done.lam is None else f", lam {audit.done.lam:.3g}"
    return f"{audit.done.method} on {audit.done.model}{lam}"


def key_numbers(audit: Audit) -> Table:
    """The few numbers that a reader needs first."""
    names = audit.models
    rows = [row for section in audit.sections.values() for row in section.key_rows(names)]
    return Table(("measure", *names.values()), tuple(row for row in rows if set(row[1:]) != {DASH}))


def report_sections(audit: Audit) -> list[ReportSection]:
    """All sections with a title, in the order of the report."""
    titles = {measure.name: measure.title for measure in measures()}
    names, made = audit.models, []
    for name, section in audit.sections.items():
        title = titles.get(name, "")
        if not title:
            continue
        if isinstance(section, Unmeasured):
            made.append(ReportSection(name, title, reason=sentence(section.reason)))
            continue
        sentences = tuple(text for text in (section.sentence, section.what) if text)
        made.append(
            ReportSection(name, title, sentences, tuple(table for table in section.tables(names) if table.rows))
        )
    return made


def text(audit: Audit, width: int | None = None) -> str:
    """The report in about 25 lines, verdict first.

    Args:
        audit: What to print.
        width: Columns of the terminal; on a narrow one intervals are left out.
    """

    def wrapped(words: str, first: str, later: str | None = None) -> list[str]:
        columns = min(width or 100, 100)
        return wrap(words, columns, initial_indent=first, subsequent_indent=first if later is None else later)

    verdict, done = audit.verdict, audit.done
    lines = [f"[{sign(audit)[0]}] {verdict.title}", *wrapped(verdict.text, "    ")]
    lines += [f"    {query}: {word}" for query, word in query_verdicts(audit)]
    for warning in verdict.warnings:
        lines += wrapped(f"Warning: {warning.text}", "    ")
    lines += ["", f"Asked      forget {counts(audit)}", f"Done       {method(audit)}"]
    for name, value, meaning in (
        ("Aim", done.aim, done.aim_meaning),
        ("Assurance", done.assurance, done.assurance_meaning),
        ("Weights", done.weights, WEIGHTS[done.weights]),
    ):
        if value:
            lines += wrapped(f"{name:9}  {value}: {sentence(meaning or '')}", "", " " * 11)
    table = key_numbers(audit)
    if table.rows:
        lines += ["", *_columns([table.columns, *table.rows], width)]
    for heading, items in (("Not measured", not_measured(audit)), ("What this does not give", audit.limits)):
        if items:
            lines += ["", heading, *(line for item in items for line in wrapped(item, "  - ", "    "))]
    return "\n".join(lines)


def not_measured(audit: Audit) -> list[str]:
    """Everything that was not measured, with the reason."""
    missing = [f"{section.title}: {section.reason}" for section in report_sections(audit) if section.reason]
    forgetting = audit.sections.get("forgetting")
    if isinstance(forgetting, ForgettingSection):
        for query, reason in forgetting.not_asked.items():
            missing.append(f"Unseen test, {QUERY_TITLES[query]}: {sentence(reason)}")
    return missing


def _columns(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """A table as text. Where it is wider than the terminal, intervals are left out and the first column wraps.

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
