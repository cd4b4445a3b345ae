"""What the figures of a report show, as plain numbers: curves over lam, gaps of cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnndelete.bench import published as paper
from gnndelete.bench.compared import CONTROLS, fixed
from gnndelete.bench.gathered import Plan, Result, Stat, references, text
from gnndelete.bench.levels import Level, Retrained, level
from gnndelete.bench.tables import USE
from gnndelete.bench.wording import (
    dataset_name,
    listed,
    method_name,
    metric_name,
    model_titles,
    request_name,
    span,
)


@dataclass(frozen=True)
class Curve:
    """A score against lam for one shape of GNNDelete."""

    label: str
    points: tuple[tuple[float, Stat], ...]


@dataclass(frozen=True)
class LamPicture:
    """Curves over lam at one place: ours by score, the paper's points, and Retrain's level."""

    title: str
    curves: Mapping[str, tuple[Curve, ...]]
    paper: Mapping[str, tuple[tuple[float, float], ...]]
    retrain: Mapping[str, float]
    seeds: str  # how many
    task: str = "link"
    note: str = ""  # where Retrain's level is from, if not from the experiment


def lam_pictures(plan: Plan, cells: Sequence[Result], elsewhere: Retrained | None = None) -> list[LamPicture]:
    """One picture per place at which a shape was tried with at least three values of lam.

    Retrain's level is taken from ``elsewhere`` where the experiment does not have it.
    """
    found, retrained = [], references(cells)
    models = model_titles(cell.place.variant for cell in cells)
    for rest in dict.fromkeys(cell.place.rest for cell in cells):
        own = [cell for cell in cells if cell.place.rest == rest]
        shapes = _shapes([cell for cell in own if _lam(cell) is not None and cell.rows])
        place = own[0].place
        if place.steps > 1 or not any(len(shape) > 2 for shape in shapes.values()):
            continue
        curves, theirs, levels = {}, {}, {}
        seeds = {seed for shape in shapes.values() for _, cell in shape for seed in cell.rows}
        for metric in _lam_metrics(shapes):
            lines = [
                Curve(name, tuple((lam, stat) for lam, cell in shape if (stat := cell.stat(metric)) is not None))
                for name, shape in shapes.items()
            ]
            if not any(line.points for line in lines):
                continue
            curves[metric] = tuple(line for line in lines if line.points)
            labels = {cell.label: _lam(cell) for cell in own}
            numbers = {
                lam: paper.published(
                    plan.published, place.dataset, place.model, place.where, place.amount, label, metric
                )
                for label, lam in labels.items()
                if lam is not None and re.fullmatch(r"lam [\d.]+", label)
            }
            theirs[metric] = tuple((lam, known.value) for lam, known in sorted(numbers.items()) if known)
            known_level = level(metric, retrained.get(rest), (elsewhere or {}).get(rest, ()), seeds)
            if known_level is not None:
                levels[metric] = known_level
        title = f"{dataset_name(place.dataset)}, {models[place.variant]}: {request_name(place)}"
        counts = {stat.count for lines in curves.values() for line in lines for _, stat in line.points}
        if counts:  # rows may hold times alone
            means = {metric: each.stat.mean for metric, each in levels.items()}
            seeded = span(counts, "seed")
            found.append(LamPicture(title, curves, theirs, means, seeded, place.task, _borrowed(levels, place.task)))
    return found


def _borrowed(levels: Mapping[str, Level], task: str) -> str:
    """Which levels of Retrain were run for another experiment."""
    own = {metric: each.stat.count for metric, each in levels.items() if each.borrowed}
    if not own:
        return ""
    which = "" if len(own) == len(levels) else f" in {listed(metric_name(metric, task) for metric in own)}"
    return f"Retrain's level{which}, dashed, is from other runs of the store at the same place ({span(own.values(), 'seed')})."


def _lam_metrics(shapes: Mapping[str, Sequence[tuple[float, Result]]]) -> list[str]:
    """What the panels show: what a model is of use for, by the score of its task, and what is left of the deleted."""
    cells = [cell for shape in shapes.values() for _, cell in shape]
    use = [metric for metric in USE if any(cell.values(metric) for cell in cells)]
    return [*use[:1], "deleted_auroc", "unseen_auc"]


def _lam(cell: Result) -> float | None:
    lam = cell.method.get("lam")
    is_number = isinstance(lam, int | float) and not isinstance(lam, bool)
    return float(lam) if cell.method.get("name") == "gnndelete" and is_number and lam is not None else None


def _shapes(cells: Sequence[Result]) -> dict[str, list[tuple[float, Result]]]:
    """Cells that differ in lam alone, by the settings in which the groups differ."""
    groups: dict[str, dict[float, Result]] = {}
    rests: dict[str, dict[str, Any]] = {}
    for cell in cells:
        rest = {name: value for name, value in cell.method.items() if name not in ("lam", "name", "aim")}
        rests[text(rest)] = rest
        groups.setdefault(text(rest), {})[_lam(cell) or 0.0] = cell
    groups = {key: group for key, group in groups.items() if len(group) > 2}
    differing = [
        name
        for name in dict.fromkeys(name for key in groups for name in rests[key])
        if len({text(rests[key].get(name)) for key in groups}) > 1
    ]
    shown = {key: ", ".join(f"{name} {rests[key].get(name)}" for name in differing) or "ours" for key in groups}
    return {shown[key]: sorted(group.items(), key=lambda item: item[0]) for key, group in groups.items()}


@dataclass(frozen=True)
class GapRow:
    """One place of an experiment and the gaps to Retrain there, by method and score."""

    dataset: str
    place: str  # the model and what is deleted
    gaps: Mapping[str, Mapping[str, Stat]]
    task: str = "link"


def gap_rows(cells: Sequence[Result]) -> list[GapRow]:
    """The gaps of some methods at every place; places without a gap are left out."""
    retrained, found, shown = references(cells), [], _shown(cells)
    models = model_titles(cell.place.variant for cell in cells)
    for rest in dict.fromkeys(cell.place.rest for cell in cells):
        own = [cell for cell in cells if cell.place.rest == rest and cell.label in shown]
        gaps = {
            cell.label: {metric: stat for metric in GAPS if (stat := cell.gap(metric, retrained.get(rest))) is not None}
            for cell in own
        }
        gaps = {label: values for label, values in gaps.items() if values}
        if gaps:
            place = own[0].place
            within = f"{models[place.variant]}, {request_name(place).replace(' of the edges', '')}"
            found.append(GapRow(dataset_name(place.dataset), within, gaps, place.task))
    return found


def is_about(plan: Plan, cells: Sequence[Result], rows: Sequence[GapRow]) -> bool:
    """Whether gaps show what an experiment is about: more than Unlink, and every method that its title names was run."""
    drawn = {label for row in rows for label in row.gaps}
    named = {cell.label for cell in cells if method_name(cell.label) in re.findall(r"[\w()]+", plan.title)}
    run = {cell.label for cell in cells if cell.rows}
    return bool(drawn - {"unlink"}) and named <= run


def failed(cells: Sequence[Result]) -> list[str]:
    """What a figure of gaps would show and cannot, because it failed."""
    models, shown = model_titles(cell.place.variant for cell in cells), _shown(cells)
    return [
        f"{method_name(cell.label)} at {dataset_name(cell.place.dataset)} {models[cell.place.variant]}, "
        f"{request_name(cell.place)}"
        for cell in cells
        if cell.label in shown and cell.state == "failed"
    ]


def undrawn(cells: Sequence[Result], rows: Sequence[GapRow]) -> list[str]:
    """Methods with numbers that a figure of gaps leaves out."""
    drawn = {label for row in rows for label in row.gaps}
    rest = [cell for cell in cells if cell.rows and cell.method.get("name") != "retrain" and cell.label not in drawn]
    return list(dict.fromkeys(method_name(cell.label) for cell in rest))


#: Scores whose gap is drawn.
GAPS = ("test_auroc", "test_accuracy", "unseen_auc", "mi_ratio", "regular_share")


#: So many methods are all drawn: one line of a legend holds them.
MOST = 5


def _shown(cells: Sequence[Result]) -> set[str]:
    """Methods whose gaps are drawn: all but controls, or of many calibrated settings, the paper's and Unlink.

    A sweep over lam has curves of its own, and a fixed lam that was tried at some places alone is left to the tables.
    """
    tried = [cell for cell in cells if cell.rows or cell.errors]
    places = {cell.place.rest for cell in tried}
    real: set[str] = set()
    for label in {cell.label for cell in tried}:
        own = [cell for cell in tried if cell.label == label]
        apart = fixed(own[0]) and len({cell.place.rest for cell in own}) < len(places)
        if own[0].method.get("name") not in ("retrain", *CONTROLS) and not apart:
            real.add(label)
    return real if len(real) <= MOST else {cell.label for cell in tried if _usual(cell)}


def _usual(cell: Result) -> bool:
    return cell.method.get("name") == "unlink" or cell.label == "paper()" or cell.method.get("lam") == "auto"
