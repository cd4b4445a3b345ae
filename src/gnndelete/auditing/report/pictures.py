"""The figures of an audit, made of panels: which there are, what they are called and how to read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnndelete.auditing.report import panels, strength
from gnndelete.auditing.report.panels import Mark, Panel
from gnndelete.auditing.report.style import ELSEWHERE, MODELS, RINGS, STROKES, Values
from gnndelete.auditing.report.wording import QUERIES, interval, number, of_deleted, ratio, reason, seconds

Report = Mapping[str, Any]

POINTS = 400  # per group: more would only lie on top of one another


@dataclass(frozen=True)
class Picture:
    """One figure; without panels it says in ``reason`` why it is not there."""

    name: str
    title: str
    caption: str = ""
    panels: tuple[Panel, ...] = ()
    legend: tuple[Mark, ...] = ()
    reason: str = ""


def model_names(report: Report) -> dict[str, str]:
    """What the models are called; the reference only where the audit has one.

    >>> model_names({"cost": {"reference": {"seconds": 6.1}}})
    {'before': 'before', 'after': 'after', 'reference': 'Retrain'}
    """
    names = {"before": "before", "after": "after"}
    if has_reference(report):
        names["reference"] = str((report.get("reference") or {}).get("name") or "Retrain")
    return names


def has_reference(report: Report) -> bool:
    """Whether any section was measured on a reference model."""
    metrics = (report.get("utility") or {}).get("metrics") or {}
    return bool(
        report.get("reference")
        or (report.get("cost") or {}).get("reference")
        or ((report.get("figures") or {}).get("scores") or {}).get("reference")
        or any((values or {}).get("reference") is not None for values in metrics.values())
    )


def pictures(report: Report) -> list[Picture]:
    """All figures in the order of the page.

    >>> [picture.name for picture in pictures({})]
    ['unseen', 'scores', 'lam', 'attacks', 'embedding', 'cost']
    """
    return [_unseen(report), _scores(report), _lam(report), _attacks(report), _embedding(report), _cost(report)]


def _models(names: Mapping[str, str]) -> tuple[Mark, ...]:
    return tuple(Mark(label, MODELS[name], STROKES[name]) for name, label in names.items())


def _unseen(report: Report) -> Picture:
    title, names = "Do deleted elements score like ones the model never saw?", model_names(report)
    forgetting = report.get("forgetting")
    tests = {
        key: test if "reference" in names else test.get("finely") or test  # what decides is what is drawn
        for key, test in ((forgetting or {}).get("unseen") or {}).items()
        if not reason(test)
    }
    if reason(forgetting) or not tests:
        why = reason(forgetting) or next(map(reason, ((forgetting or {}).get("unseen") or {}).values()), "")
        return Picture("unseen", title, reason=why or "The unseen test was not made.")
    ends = [
        test[name][end]
        for test in tests.values()
        for name in names
        for end in ("auc", "low", "high")
        if test.get(name) and test[name].get(end) is not None
    ]
    low, high = min([*ends, 0.45]), max([*ends, 0.55])
    limits = (low - 0.06 * (high - low), high + 0.06 * (high - low))
    made = []
    for key, test in tests.items():
        query = QUERIES.get(key, key)
        said = ", ".join(f"{label} {interval(test.get(name))}" for name, label in names.items())
        draw = panels.whiskers({name: test.get(name) or {} for name in names}, names, limits)
        made.append(Panel(query.capitalize(), f"Unseen AUC, {query}: {said}", draw, (3.4, 0.85 + 0.25 * len(names))))
    caption = (
        "Each dot is the chance that a deleted element scores above a matched one held out from training, with its 95% "
        "interval. At 0.5 they cannot be told apart; to the right the deleted are still recognised, to the left suppressed."
    )
    if "reference" in names:
        caption += f" The best one can ask for is to lie where {names['reference']} does."
    return Picture("unseen", title, caption, tuple(made))


def _scores(report: Report) -> Picture:
    title, names = "Scores the models give", model_names(report)
    figures = report.get("figures") or {}
    groups = {name: figures["scores"][name] for name in names if (figures.get("scores") or {}).get(name)}
    everything = np.asarray(
        [v for kinds in groups.values() for values in kinds.values() for v in values], dtype=np.float64
    )
    if not everything.size:
        return Picture("scores", title, reason=reason(figures.get("scores") or {}) or "No scores were kept.")
    low, high = np.quantile(everything, [0.002, 0.998])
    room = 0.04 * (high - low) or 0.5
    axis = str(figures.get("scores_axis") or "score")
    made = tuple(
        Panel(
            names[name].capitalize() if name != "reference" else names[name],
            f"{axis}, {names[name]}, medians: "
            + ", ".join(f"{kind} {number(float(np.median(values)))}" for kind, values in kinds.items() if values),
            panels.scores(kinds, (float(low - room), float(high + room)), axis),
        )
        for name, kinds in groups.items()
    )
    caption = (
        "Distribution of each kind of element; the dashed line is the median. A deletion that looks like retraining puts "
        "'deleted' where 'unseen' is, and leaves 'remaining' where it was."
    )
    if figures.get("scores_deleted"):
        caption += f" 'Deleted' are {of_deleted(figures['scores_deleted']).rstrip(',')}."
    return Picture("scores", title, caption, made)


def _lam(report: Report) -> Picture:
    title, calibration = "How strongly to forget", report.get("calibration")
    if not calibration:
        return Picture("lam", title, reason="The strength was given or the method has none, so nothing was searched.")
    made = tuple(strength.panels(calibration))
    if not made:
        enough = "lam 0 was enough, so that no other strength was tried."
        already = calibration.get("status") == "already"  # its sentence stands above, with what was done
        return Picture(
            "lam", title, reason=enough if already else calibration.get("sentence") or "No strength was tried."
        )
    band = ""
    if calibration.get("target") is not None:
        band = f" The green band is the target {number(calibration['target'], 3)} within one standard error."
    elif calibration.get("budget") is not None:
        band = f" The green band is the utility the budget of {number(calibration['budget'])} leaves."
    caption = f"Each dot is one deletion that was tried, measured on validation data; the diamond was chosen.{band}"
    return Picture("lam", title, caption, made)


def _attacks(report: Report) -> Picture:
    title, names = "What an attacker finds", model_names(report)
    made, why = [], ""
    for key, heading in (("membership", "Membership attack"), ("trend", "Trend attack")):
        section = report.get(key)
        curves = {name: ((section or {}).get(name) or {}).get("roc") for name in names}
        if reason(section) or not any(curves.values()):
            why = why or reason(section) or "The attack kept no curve."
            continue
        aucs = ", ".join(
            f"{names[name]} {number((section or {})[name]['auc'])}" for name, curve in curves.items() if curve
        )
        made.append(
            Panel(
                f"{heading}: AUC {aucs}", f"{heading}, AUC {aucs}", panels.roc({k: v for k, v in curves.items() if v})
            )
        )
    if not made:
        return Picture("attacks", title, reason=why)
    caption = (
        "The further a curve lies above the diagonal, the more the attacker learns about what was deleted. "
        + ("The aim is a curve like that of Retrain, not a curve on the diagonal." if "reference" in names else "")
    ).strip()
    return Picture("attacks", title, caption, tuple(made), _models(names))


def _embedding(report: Report) -> Picture:
    title = "Embeddings of the neighbourhood"
    section = (report.get("figures") or {}).get("embedding") or None
    sides = {name: (section or {})[name] for name in ("before", "after", "reference") if (section or {}).get(name)}
    if reason(section) or not sides:
        return Picture("embedding", title, reason=reason(section) or "No embeddings were kept.")
    sides = {side: {name: spots for name, spots in held.items() if spots} for side, held in sides.items()}
    groups = sorted({name for side in sides.values() for name in side}, key=lambda name: (name == "elsewhere", name))
    colors = {
        name: ELSEWHERE if name == "elsewhere" else RINGS[min(i, len(RINGS) - 1)] for i, name in enumerate(groups)
    }
    thin = {
        side: {name: spots[:: 1 + (len(spots) - 1) // POINTS] for name, spots in held.items()}
        for side, held in sides.items()
    }
    everything: Values = np.asarray(
        [spot for held in thin.values() for spots in held.values() for spot in spots], dtype=np.float64
    )
    if not everything.size:
        return Picture("embedding", title, reason="No embeddings were kept.")
    low, high = np.quantile(everything.reshape(-1, 2), [0.002, 0.998], axis=0)
    room = np.maximum(0.06 * (high - low), 1e-3)
    box = np.stack([low - room, high + room])
    labels = {"before": "Before", "after": "After", "reference": model_names(report).get("reference", "Reference")}
    made = tuple(
        Panel(labels[side], f"Embeddings {labels[side].lower()}: " + ", ".join(f"{len(s)} points {n}" for n, s in held.items()),
              panels.points(held, colors, box))
        for side, held in thin.items()
    )  # fmt: skip
    spread = section.get("explained") if section else None
    hidden = 100 * (1 - sum(spread)) if spread else 0.0
    shown = f" A flat view: {hidden:.0f}% of how the nodes differ lies outside it." if spread else ""
    caption = (
        f"The same nodes in the same plane. Ring 0 are the ends of what was deleted, ring 1 their neighbours.{shown}"
    )
    return Picture(
        "embedding", title, caption, made, tuple(Mark(name, color, "patch") for name, color in colors.items())
    )


def _cost(report: Report) -> Picture:
    title, cost, names = "What it cost", report.get("cost"), model_names(report)
    labels = {"after": "deletion", **({"reference": names["reference"]} if "reference" in names else {})}
    sides = {"after": (cost or {}).get("deletion") or {}, "reference": (cost or {}).get("reference") or {}}
    made = []
    for key, heading, text in (
        ("seconds", "Seconds (log scale)", seconds),
        ("parameters", "Parameters changed (log scale)", number),
        ("peak_mb", "Peak memory in MB", lambda value: number(float(value), 1)),
    ):
        values = {name: (float(side[key]), text(side[key])) for name, side in sides.items() if side.get(key)}
        if len(values) == 2:
            said = ", ".join(f"{labels.get(name, name)} {value}" for name, (_, value) in values.items())
            made.append(Panel(heading, f"{heading}: {said}", panels.bars(values, labels, key != "peak_mb"), (3.4, 1.3)))
    if reason(cost) or not made:
        alone = f"There is no reference to set the {seconds(sides['after'].get('seconds'))} of this deletion against."
        return Picture("cost", title, reason=reason(cost) or alone)
    times = (cost or {}).get("ratio")
    caption = "Measured on the same kind of device."
    if times:
        caption = f"{names.get('reference')} took {ratio(times)} the time of this deletion, on the same kind of device."
    return Picture("cost", title, caption, tuple(made))
