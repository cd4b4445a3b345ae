"""The rows of every section of an audit: what was measured before, after and by the reference, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gnndelete.auditing.report.wording import (
    DASH,
    KIND_NAMES,
    QUERIES,
    VERDICTS,
    interval,
    label,
    number,
    of_deleted,
    ratio,
    reason,
    seconds,
    sentence,
    share,
)

Part = Mapping[str, Any]
Names = Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; the first cell of a row names it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def compared(title: str, values: Part | None, names: Names, text: Callable[[Any], str] = number) -> tuple[str, ...]:
    """One row: the same measure of every model.

    >>> compared("AUROC", {"before": 0.965, "after": 0.964}, {"before": "before", "after": "after"})
    ('AUROC', '0.965', '0.964')
    """
    return (title, *(text((values or {}).get(name)) for name in names))


def metrics(section: Part | None) -> Part:
    """The task's metrics; empty where utility was not measured."""
    return {} if section is None or reason(section) else section.get("metrics") or {}


def auc(attack: Part | None) -> str:
    """The AUC of one attack."""
    return number((attack or {}).get("auc"))


def utility(section: Part, names: Names) -> Iterable[Table]:
    """Task metrics on test data, near the deletion, and what became of retained elements."""
    rows = [compared(label(key), values, names) for key, values in metrics(section).items()]
    near = section.get("near") or {}
    for key, values in near.items():
        if isinstance(values, Mapping):
            rows.append(
                compared(f"{label(key)} near the deletion ({number(near.get('count'))} elements)", values, names)
            )
    yield Table(("test data", *names.values()), tuple(rows), caption=reason(near) if near else "")
    kept = section.get("retained") or {}
    if kept and not reason(kept):
        listed: list[tuple[str, ...]] = [
            ("score fell, share", share(kept.get("share_fell")), share(kept.get("reference_share_fell"))),
            ("mean change", number(kept.get("mean_change"), 4), number(kept.get("reference_mean_change"), 4)),
            ("median change", number(kept.get("median_change"), 4), DASH),
            ("worst change", number(kept.get("worst")), DASH),
        ]
        width = 3 if "reference" in names else 2
        columns = ("retained elements", "after", names.get("reference", ""))[:width]
        caption = f"Probability of {number(kept.get('count'))} retained elements against before."
        yield Table(columns, tuple(row[:width] for row in listed), caption)


def forgetting(section: Part, names: Names) -> Iterable[Table]:
    """The paper's ranking, then the unseen test on each graph that can be asked."""
    rows = [compared(label(key), values, names) for key, values in (section.get("ranking") or {}).items()]
    if any(set(row[1:]) != {DASH} for row in rows):
        yield Table(
            ("remaining above deleted", *names.values()),
            tuple(rows),
            "The ranking of the paper; it rewards suppression.",
        )
    for key, test in (section.get("unseen") or {}).items():
        title = f"unseen test, {QUERIES.get(key, key)}"
        if reason(test):
            yield Table((title,), ((f"Not measured: {reason(test)}",),))
            continue
        listed = [compared("AUC [95% interval]", test, names, interval)]
        for part, words in (("se", "standard error"), ("plain_auc", "AUC without matching")):
            listed.append((words, *(number((test.get(name) or {}).get(part)) for name in names)))
        if test.get("finely"):
            listed.insert(1, compared("AUC, corrected for surroundings", test["finely"], names, interval))
        for kind in test.get("kinds") or ():
            words = f"AUC where {kind['kind']} ({number(kind['deleted'])} deleted, {number(kind['unseen'])} held out)"
            listed.append((words, *(number(kind.get(name)) for name in names)))
        after = test.get("after") or {}
        size = (
            f" {number(after.get('deleted'))} deleted against {number(after.get('unseen'))} unseen elements, "
            f"{share(after.get('matched'))} of the deleted with a match."
        )
        gap = (
            f" Gap to {names['reference']}: {test['gap']:+.3f}{_error(test)}."
            if test.get("gap") is not None and "reference" in names
            else ""
        )
        word = str(test.get("verdict") or "")
        verdict = f"{VERDICTS.get(word, word).capitalize()}. " if word else ""
        said = " ".join(str(test[part]) for part in ("graph", "sentence") if test.get(part))
        yield Table((title, *names.values()), tuple(listed), f"{verdict}{said}{gap}{size}")


def _error(test: Part) -> str:
    return "" if test.get("gap_error") is None else f" ± {number(test['gap_error'])}"


def membership(section: Part, names: Names) -> Iterable[Table]:
    """The shadow attack, its ratio, and how well it does on its own shadow model."""
    yield from attack(section, names)
    shadow = section.get("shadow") or {}
    rows = [
        ("form of the attack", str(section.get("form") or DASH)),
        ("MI ratio, before to after", number(section.get("mi_ratio"))),
    ]
    if "reference" in names:
        rows.append((f"MI ratio, before to {names['reference']}", number(section.get("mi_ratio_reference"))))
    rows += [
        ("AUC on the shadow model itself", number(shadow.get("auc"))),
        ("time for the shadow model", seconds(shadow.get("seconds"))),
    ]
    yield Table(("shadow attack", "value"), tuple(rows), str(shadow.get("what") or ""))


def attack(section: Part, names: Names) -> Iterable[Table]:
    """AUC and mean presence probability of one attack."""
    rows = [compared("AUC", section, names, auc)]
    means = {name: (section.get(name) or {}).get("mean") for name in names}
    if any(value is not None for value in means.values()):
        rows.append(compared("mean presence probability", means, names))
    yield Table(("attack on deleted elements", *names.values()), tuple(rows))


def trend(section: Part, names: Names) -> Iterable[Table]:
    """The attack with the trend and without it, and how well both do on the shadow model."""
    shadow = section.get("shadow") or {}
    for table in attack(section, names):
        rows = table.rows
        if section.get("without_bits"):
            rows = (*rows, compared("AUC without the trend", section["without_bits"], names))
        said = (
            f"On the shadow model itself the attack reaches an AUC of {number(shadow.get('auc'))}."
            if shadow.get("auc")
            else ""
        )
        yield Table(table.columns, rows, said)


def distance(section: Part, names: Names) -> Iterable[Table]:
    """Score distributions and decisions against the reference."""
    two = {key: names[key] for key in ("before", "after")}
    rows = tuple(
        (*compared(f"scores of {_scored(key, values)}", values, two), number(values.get("floor")))
        for key, values in (section.get("js") or {}).items()
    )
    yield Table(("Jensen-Shannon to the reference", *two.values(), "sampling floor"), rows)
    agreement, difference = section.get("agreement") or {}, section.get("difference") or {}
    listed = [compared("decisions that agree", agreement, two, share)] if agreement else []
    listed += [compared("mean difference", difference, two)] if difference else []
    said = " ".join(sentence(str(part["what"])) for part in (agreement, difference) if part.get("what"))
    yield Table(("test elements against the reference", *two.values()), tuple(listed), said)


def _scored(group: str, values: Part) -> str:
    return of_deleted(values).rstrip(",") if group == "deleted" else f"{KIND_NAMES.get(group, group)} elements"


def cost(section: Part, names: Names) -> Iterable[Table]:
    """Time, parameters and memory of the deletion and of the reference."""
    sides = ["deletion", *(["reference"] if "reference" in names else [])]
    measures: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("seconds", "time", seconds),
        ("parameters", "parameters changed", number),
        ("peak_mb", "peak memory, MB", lambda value: number(value, 1)),
    )
    rows = tuple(
        (words, *(text((section.get(side) or {}).get(key)) for side in sides)) for key, words, text in measures
    )
    said = ""
    if section.get("ratio") is not None and "reference" in names:
        said = f"{names['reference']} took {ratio(section['ratio'])} the time of the deletion."
    yield Table(("measure", "deletion", *([names["reference"]] if "reference" in names else [])), rows, said)


def theorem(section: Part, names: Names) -> Iterable[Table]:
    """How often the inequality holds and how tight it is, under the theorem's assumptions and without them."""
    readings = {
        "under its own assumptions (unit vectors)": section,
        "unit vectors before the operator only": section.get("operator"),
        "vectors as served": section.get("served"),
        "sharper bound, unit vectors": section.get("sharper"),
    }
    rows = tuple(
        (
            words,
            share(part.get("holds")),
            number(part.get("tightness")),
            number(part.get("actual_mean")),
            number(part.get("bound_mean")),
        )
        for words, part in readings.items()
        if part
    )
    yield Table(
        ("vectors", "holds", "median of actual / bound", "mean actual", "mean bound"),
        rows,
        str(section.get("assumptions") or ""),
    )
    yield Table(
        ("measure", "value"),
        (
            ("deleted edges looked at", f"{number(section.get('edges'))} of {number(section.get('deleted'))}"),
            ("edges whose product fell", share(section.get("lowered"))),
            ("norm of the operator", number(section.get("operator_norm"))),
            ("exact identity, largest relative error", number(section.get("identity_max_error"))),
        ),
    )


def outliers(section: Part, names: Names) -> Iterable[Table]:
    """What an outlier detector says of touched nodes and of deleted edges."""
    for key, title, parts in (
        ("nodes", "nodes called outliers", {"touched": "touched nodes", "others": "untouched nodes"}),
        ("edges", "edges called regular", {"deleted": "deleted edges", "remaining": "remaining edges"}),
    ):
        held = section.get(key) or {}
        yield Table(
            (title, *names.values()),
            tuple(
                (words, *(share((held.get(name) or {}).get(part)) for name in names))
                for part, words in parts.items()
                if held
            ),
        )
