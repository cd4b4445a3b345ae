"""What was timed, and the curves of it: against the number of edges, or against what is deleted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gnndelete.bench.gathered import Place, Result, references
from gnndelete.bench.wording import is_share, method_name, model_titles

#: What takes time, in the order of a legend.
TIMES = {
    "forward": "one forward pass",
    "epoch": "one training epoch",
    "delete": "deletion, fixed lam",
    "further": "deletion, graph known",
    "calibrated": "deletion, calibrated",
    "retrain": "Retrain",
}


@dataclass(frozen=True)
class Timing:
    """What one method took at one place, and beside it a forward pass, an epoch and Retrain: medians over seeds."""

    result: Result
    edges: float | None
    spent: Mapping[str, float]

    def ratio(self, above: str, below: str) -> float | None:
        return self.spent[above] / self.spent[below] if above in self.spent and self.spent.get(below) else None


def timings(results: Sequence[Result]) -> list[Timing]:
    """The methods that were timed, Retrain's own time beside each."""
    retrained, found = references(results), []
    for result in results:
        reference = retrained.get(result.place.rest)
        spent = _medians(result)
        if not spent or result is reference:
            continue
        whole = _medians(reference) if reference else {}
        row = next(iter(result.rows.values()))
        found.append(Timing(result, size_of(result, row), spent | {k: v for k, v in whole.items() if k == "retrain"}))
    return found


def _medians(result: Result) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in result.rows.values():
        for name, value in (row.get("seconds_of") or {}).items():
            if isinstance(value, int | float):
                values.setdefault(name, []).append(float(value))
    return {name: median(values[name]) for name in TIMES if name in values}


@dataclass(frozen=True)
class TimePicture:
    """Times of one model against the number of edges, or against what is deleted where the graph is always the same."""

    model: str  # its name
    axis: str
    lines: Mapping[str, tuple[tuple[float, float], ...]]
    joined: bool  # graphs of one kind; the points of different datasets are not joined
    shares: bool = True  # whether deletions are shares, or else numbers of elements
    title: str = ""  # the model, and what is deleted where another picture is about another kind


def time_pictures(results: Sequence[Result]) -> list[TimePicture]:
    """Whatever was timed at two sizes or more: one picture per model and kind of deletion, shares and numbers apart."""
    groups: dict[tuple[str, str, bool], list[Timing]] = {}
    for timing in timings(results):
        place = timing.result.place
        if timing.edges is not None:
            groups.setdefault((place.variant, place.kind, is_share(place.amount or 0)), []).append(timing)
    models = model_titles(variant for variant, _, _ in groups)
    several = len({key[1:] for key in groups}) > 1
    made = [_time_picture(own, models[variant], shares, several) for (variant, _, shares), own in groups.items()]
    return [picture for picture in made if any(len(line) > 1 for line in picture.lines.values())]


def _time_picture(own: Sequence[Timing], model: str, shares: bool, several: bool) -> TimePicture:
    by_edges = len({timing.edges for timing in own}) > 1
    labels = list(dict.fromkeys(t.result.label for t in own if t.result.method.get("name") == "gnndelete"))
    lines: dict[str, dict[float, list[float]]] = {}
    for timing in own:
        x = timing.edges if by_edges else timing.result.place.amount
        for name, value in timing.spent.items():
            if name in ("further", "calibrated") and timing.result.label != labels[0]:
                continue  # one of each is enough beside the deletions of every setting
            line = _line_title(timing.result, name, len(labels) > 1)
            lines.setdefault(line, {}).setdefault(float(x or 0), []).append(value)
    points = {name: tuple((x, median(v)) for x, v in sorted(by.items())) for name, by in lines.items()}
    joined = not by_edges or all(t.result.place.dataset.startswith("generated:") for t in own)
    place, deleted = own[0].result.place, _deleted(own[0].result.place, shares)
    title = f"{model}, {deleted}" if several and by_edges else model
    return TimePicture(
        place.model,
        "edges" if by_edges else deleted,
        {name: points[name] for name in sorted(points, key=_rank)},
        joined,
        shares,
        title,
    )


def _deleted(place: Place, shares: bool) -> str:
    """What is deleted, and in which unit its amount is given."""
    what = f"deleted {place.kind or 'elements'}"
    if place.kind == "features":  # counted by their owners
        what = f"{'graphs' if place.task == 'graph' else 'nodes'} with deleted features"
    return f"{'share' if shares else 'number'} of {what}"


def _line_title(result: Result, name: str, several: bool) -> str:
    """What a line is called; the deletions of another method go by its own name."""
    if name in ("forward", "epoch", "retrain"):
        return TIMES[name]
    if result.method.get("name") != "gnndelete":
        return method_name(result.label)
    return f"{TIMES[name]} ({result.label})" if several else TIMES[name]


def _rank(title: str) -> int:
    return next((i for i, name in enumerate(TIMES.values()) if title.startswith(name)), len(TIMES))


def size_of(cell: Result, row: Mapping[str, Any]) -> float | None:
    """How many edges the graph has: as the row says, as a generated graph's name says, as the catalog says."""
    for name in ("edges", "num_edges"):
        if isinstance(row.get(name), int | float):
            return float(row[name])
    named = re.search(r"(?:edges|triples)=(\d+)", cell.place.dataset)
    if named:
        return float(named[1])
    from gnndelete.datasets import describe

    return next((float(entry.edges) for entry in describe() if entry.name == cell.place.dataset), None)
