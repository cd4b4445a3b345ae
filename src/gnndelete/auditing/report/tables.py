"""The tables of an audit's page: the key numbers, and each section with what was measured before, after and by the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gnndelete.auditing.report import rows as made_of
from gnndelete.auditing.report.pictures import Report, model_names
from gnndelete.auditing.report.rows import Names, Part, Table, auc, compared, metrics
from gnndelete.auditing.report.wording import DASH, QUERIES, interval, label, number, of_deleted, reason, seconds


@dataclass(frozen=True)
class Section:
    """One part of the audit: sentences and tables, or the reason why it could not be measured."""

    key: str
    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    reason: str = ""


def key_numbers(report: Report) -> Table:
    """The few figures a reader needs, each beside the reference's.

    >>> key_numbers({"cost": {"deletion": {"seconds": 0.05}}}).rows
    (('Time', '–', '50 ms'),)
    """
    names = model_names(report)
    forgetting, membership = report.get("forgetting") or {}, report.get("membership") or {}
    rows = [compared(f"Test {label(key)}", values, names) for key, values in _first(metrics(report.get("utility")))]
    for key, test in (forgetting.get("unseen") or {}).items():
        if not reason(test):
            rows.append(compared(f"Unseen AUC, {QUERIES.get(key, key)} (0.5: like unseen)", test, names, interval))
            if test.get("finely"):
                decides = "" if "reference" in names else " (decides)"
                rows.append(compared(f"… corrected for surroundings{decides}", test["finely"], names, interval))
    for key, values in _first(forgetting.get("ranking")):
        rows.append(compared(f"Deleted {label(key)} (E_d): remaining above deleted", values, names))
    for key, title in (
        ("membership", "Membership attack, AUC"),
        ("trend", "Trend attack, AUC against pairs without an edge"),
    ):
        if report.get(key) and not reason(report[key]):
            rows.append(compared(title, report[key], names, auc))
    if membership.get("mi_ratio") is not None:
        held = {"after": membership["mi_ratio"], "reference": membership.get("mi_ratio_reference")}
        rows.append(compared("MI ratio, before to after", held, names))
    js = ((report.get("distance") or {}).get("js") or {}).get("deleted")
    if js and "reference" in names:
        row = compared(f"Scores of {of_deleted(js).rstrip(',')}, bits from {names['reference']}", js, names)
        rows.append((*row[:-1], f"{number(js['floor'])} by sampling" if js.get("floor") is not None else DASH))
    cost = report.get("cost") or {}
    held = {
        "after": (cost.get("deletion") or {}).get("seconds"),
        "reference": (cost.get("reference") or {}).get("seconds"),
    }
    rows.append(compared("Time", held, names, seconds))
    return Table(("measure", *names.values()), tuple(row for row in rows if set(row[1:]) != {DASH}))


def unasked(report: Report) -> list[tuple[str, str]]:
    """The graphs that the unseen test was not taken on, each with the reason, where it was on another.

    >>> tests = {"served": {"auc": 0.5}, "new_id": {"available": False, "reason": "it has a vector for each node."}}
    >>> unasked({"forgetting": {"unseen": tests}})
    [('presented again, new id', 'It has a vector for each node.')]
    """
    tests = (report.get("forgetting") or {}).get("unseen") or {}
    return [(QUERIES.get(key, key), reason(test)) for key, test in tests.items() if reason(test)]


def sections(report: Report) -> list[Section]:
    """All sections in the order of the page; one that was not measured carries its reason.

    >>> [section.reason for section in sections({"trend": {"available": False, "reason": "No neighbours."}})][3]
    'No neighbours.'
    """
    makers: dict[str, tuple[str, Callable[[Part, Names], Iterable[Table]]]] = {
        "utility": ("Utility", made_of.utility),
        "forgetting": ("Forgetting", made_of.forgetting),
        "membership": ("Membership attack", made_of.membership),
        "trend": ("Trend attack", made_of.trend),
        "distance": ("Distance to retraining", made_of.distance),
        "theorem": ("Theorem 1 of the paper", made_of.theorem),
        "outliers": ("Outliers among the embeddings", made_of.outliers),
        "cost": ("Cost", made_of.cost),
    }
    names, made = model_names(report), []
    for key, (title, maker) in makers.items():
        section = report.get(key)
        if section is None or reason(section):
            made.append(Section(key, title, reason=reason(section)))
            continue
        said = tuple(str(section[name]) for name in ("sentence", "what") if isinstance(section.get(name), str))
        made.append(Section(key, title, said, tuple(table for table in maker(section, names) if table.rows)))
    return made


def _first(measures: Part | None) -> list[tuple[str, Any]]:
    """The measure that counts; the others stand in their section."""
    return list((measures or {}).items())[:1]
