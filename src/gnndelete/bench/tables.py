"""Tables of an experiment: methods down, models and scores across, with the paper's value beside ours in every cell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gnndelete.bench import published as paper
from gnndelete.bench.caveats import why_stated
from gnndelete.bench.gathered import Place, Plan, Result, Stat, originals, references
from gnndelete.bench.published import Published
from gnndelete.bench.reasons import ALL_INSIDE, GIVEN, idle, noted, unmeasured, unpaired
from gnndelete.bench.wording import (
    METRICS,
    amount_name,
    dataset_name,
    is_share,
    method_name,
    metric_name,
    model_titles,
    request_name,
)

#: What "use" is measured by, the first that a cell has.
USE = ("test_auroc", "test_accuracy")


@dataclass(frozen=True)
class Entry:
    """One cell of a table: a number with the paper's beside it, or the reason why there is none."""

    metric: str
    stat: Stat | None = None
    paper: Published | None = None
    state: str = ""  # empty where the experiment does not ask for this cell
    reason: str = ""
    signed: bool = False

    @property
    def difference(self) -> float | None:
        return self.stat.mean - self.paper.value if self.stat and self.paper else None


@dataclass(frozen=True)
class Line:
    label: str
    seeds: tuple[int, int]  # fewest and most seeds among its entries
    entries: tuple[Entry, ...]

    @property
    def told(self) -> bool:
        """Whether it holds a number, ours or the paper's."""
        return any(entry.stat or entry.paper for entry in self.entries)


@dataclass(frozen=True)
class Table:
    """A title, groups of columns (one per model), and lines of entries."""

    name: str
    title: str
    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    several: bool = False  # whether models have to be named: there are others, here or in the table beside it

    @property
    def empty(self) -> bool:
        """Whether it holds no number of ours."""
        return not any(entry.stat for line in self.lines for entry in line.entries)

    @property
    def ratios(self) -> bool:
        """Whether it says how many times faster than Retrain a method is."""
        return any(entry.stat for line in self.lines for entry in line.entries if entry.metric == "speedup")

    @property
    def gaps(self) -> bool:
        """Whether it has a column of gaps to Retrain."""
        return any(column.endswith(" gap") for column in self.columns)


@dataclass(frozen=True)
class Section:
    """What was deleted from one dataset: the scores, and what they cost and how far they are from Retrain."""

    dataset: str
    title: str
    scores: Table
    costs: Table
    cells: tuple[Result, ...] = ()


def silent(plan: Plan, cells: Sequence[Result]) -> list[str]:
    """The methods of an experiment of which the store holds nothing at all, neither a number nor a reason."""
    states: dict[str, set[str]] = {}
    for cell in cells:
        states.setdefault(cell.label, set()).add(cell.state)
    return [label for label, found in states.items() if found == {"not run"}]


def sections(plan: Plan, cells: Sequence[Result]) -> list[Section]:
    """The tables of an experiment, one section per dataset and request, in the order of its file."""
    settings = dict.fromkeys(cell.place.setting for cell in cells)
    titles = _titles([next(c.place for c in cells if c.place.setting == setting) for setting in settings])
    unsaid = {method_name(label) for label in silent(plan, cells)}
    made = []
    for number, (setting, title) in enumerate(zip(settings, titles, strict=True), 1):
        own = [cell for cell in cells if cell.place.setting == setting]
        name = f"{plan.name.replace('/', '-')}-{number}"
        rows = [row for cell in own for row in cell.rows.values()]
        title += " (all are IN: as drawn at random)" * bool(noted(rows, ALL_INSIDE))
        scores, costs = _scores(plan, own, name, title), _costs(own, f"{name}-cost", title)
        # what has neither a number nor the paper's is named once, above the tables
        untold = list(unsaid) if not scores.empty else [line.label for line in scores.lines if _unrun(line)]
        scores = replace(scores, lines=tuple(line for line in scores.lines if line.told or not _of(line, untold)))
        what = "gap to Retrain and cost" if costs.gaps else "cost"
        costs = replace(costs, title=f"{title}; {what}", lines=tuple(line for line in costs.lines if line.told))
        made.append(Section(own[0].place.dataset, title, scores, costs, tuple(own)))
    return made


def _of(line: Line, labels: Iterable[str]) -> bool:
    """Whether a line is one of these methods, or one of them after some requests of a sequence."""
    return any(line.label == label or line.label.startswith(f"{label}, ") for label in labels)


def _unrun(line: Line) -> bool:
    return all(entry.state in ("", "not run") for entry in line.entries)


def asked_metrics(cells: Sequence[Result]) -> list[str]:
    """The scores that the measures of an experiment give, where it has neither rows nor numbers of the paper."""
    tasks, asked = {cell.place.task for cell in cells}, {name for cell in cells for name in cell.measures}
    found = ({"test_auroc", "deleted_auroc"} if "link" in tasks else {"test_accuracy"}) if "scores" in asked else set()
    found |= {scores[0] for name, (scores, _) in GIVEN.items() if name in asked}
    return [name for name in METRICS if name in found] or ["seconds"]


def score_metrics(plan: Plan, cells: Sequence[Result]) -> list[str]:
    """The scores an experiment has or the paper reports for it, in the order of `METRICS`; those without a title last."""
    found = {name for cell in cells for row in cell.rows.values() for name in row.get("scores") or {}}
    foreign = {name for cell in cells for name in _FOREIGN.get(cell.place.task, ())}
    found |= set(paper.metrics(plan.published)) - foreign
    known = [name for name in METRICS if name in found]
    return known + sorted(found - set(known))


# Parts of the paper report several tasks at once; an experiment has one.
_FOREIGN = {"link": ("test_accuracy", "test_f1"), "node": ("test_auroc", "deleted_auroc"), "graph": ("deleted_auroc",)}


def entry(plan: Plan, cell: Result, metric: str, reference: Result | None = None, step: int | None = None) -> Entry:
    """One number of a cell with the paper's; ``step`` takes a sequence after that many requests."""
    place, amount = cell.place, cell.place.amount
    if step is not None and amount is not None:
        amount = amount * step / place.steps
    theirs = paper.published(plan.published, place.dataset, place.model, place.where, amount, cell.label, metric)
    state, reason = cell.state, cell.reason
    if metric == "speedup":
        stat = cell.faster(reference) if cell is not reference else None
        reason = reason or (unpaired(cell, reference) if cell is not reference else "")
    else:
        stat, reason = cell.stat(metric, step), reason or unmeasured(cell, metric) or idle(cell) * (metric in USE)
    if stat is None and state == "done":
        state = "not measured"
    return Entry(metric, stat, theirs, state, reason)


def _scores(plan: Plan, cells: Sequence[Result], name: str, title: str) -> Table:
    cells = [*originals(cells), *cells]
    lookup = {(cell.label, cell.place.variant): cell for cell in cells}
    retrained = references(cells)
    columns = [
        (variant, metric) for variant in _variants(cells) for metric in score_metrics(plan, cells) if metric in METRICS
    ]
    lines, steps = [], max(cell.place.steps for cell in cells)
    for label in dict.fromkeys(cell.label for cell in cells):
        for step in range(1, steps + 1) if steps > 1 and label != "original" else (None,):
            entries = []
            for variant, metric in columns:
                cell = lookup.get((label, variant))
                reference = retrained.get(cell.place.rest) if cell else None
                entries.append(entry(plan, cell, metric, reference, step) if cell else Entry(metric))
            lines.append(Line(_step_label(label, cells[0].place, step), _seeds(cells, label), tuple(entries)))
    return _without_empty(name, title, columns, lines, cells)


def _costs(cells: Sequence[Result], name: str, title: str) -> Table:
    """Per model the gap to Retrain in use and in the unseen test, the lam, the time and how many times faster."""
    lookup = {(cell.label, cell.place.variant): cell for cell in cells}
    retrained = references(cells)
    kinds = [*USE, "unseen_auc", "mi_ratio", "lam", "seconds", "speedup"]
    columns = [(variant, kind) for variant in _variants(cells) for kind in kinds]
    lines = []
    for label in dict.fromkeys(cell.label for cell in cells):
        entries = []
        for variant, kind in columns:
            cell = lookup.get((label, variant))
            entries.append(_cost(cell, kind, retrained.get(cell.place.rest)) if cell else Entry(kind))
        lines.append(Line(method_name(label), _seeds(cells, label), tuple(entries)))
    return _without_empty(name, title, columns, lines, cells, gaps=True)


def _cost(cell: Result, kind: str, reference: Result | None) -> Entry:
    if kind == "lam":
        return Entry(kind, lam_of(cell), reason=why_stated(cell))
    if kind == "seconds":
        return Entry(kind, cell.stat(kind))
    if cell is reference:
        return Entry(kind)
    if kind == "speedup":
        return Entry(kind, cell.faster(reference), reason=unpaired(cell, reference))
    return Entry(kind, cell.gap(kind, reference), signed=True)


def lam_of(cell: Result, step: int | None = None) -> Stat | None:
    """The weight of forgetting that was used, given or calibrated; what other methods call lam is something else."""
    forgets = cell.method.get("name") == "gnndelete" or cell.method.get("lam") == "auto"
    return cell.stat("lam", step) or cell.stat("lam") if forgets else None


def _without_empty(
    name: str,
    title: str,
    columns: Sequence[tuple[str, str]],
    lines: Sequence[Line],
    cells: Sequence[Result],
    gaps: bool = False,
) -> Table:
    """A table of the columns that say something, where models have a group each; the paper's alone if nothing was run."""
    measured = {columns[i][1] for i in range(len(columns)) if any(line.entries[i].stat for line in lines)}
    kept = [
        i for i, (_, metric) in enumerate(columns) if _told([line.entries[i] for line in lines], metric in measured)
    ]
    if not measured:
        kept = [i for i in range(len(columns)) if any(line.entries[i].paper for line in lines)]
    variants = list(dict.fromkeys(columns[i][0] for i in kept))
    groups = [(title, sum(columns[i][0] == v for i in kept)) for v, title in model_titles(variants).items()]
    titles = [
        f"{metric_name(columns[i][1], cells[0].place.task)}{' gap' * (gaps and lines[0].entries[i].metric in _GAPS)}"
        for i in kept
    ]
    shown = [Line(line.label, line.seeds, tuple(line.entries[i] for i in kept)) for line in lines]
    return Table(name, title, tuple(groups), tuple(titles), tuple(shown), len(_variants(cells)) > 1)


def _told(entries: Sequence[Entry], measured: bool) -> bool:
    """Whether a column has a number of ours, or says why it has none where another model has."""
    return any(item.stat or (measured and item.state not in ("", "done", "not measured")) for item in entries)


_GAPS = (*USE, "unseen_auc", "mi_ratio")


def _variants(cells: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(cell.place.variant for cell in cells))


def _seeds(cells: Sequence[Result], label: str) -> tuple[int, int]:
    """Fewest and most seeds of a method; where a model has none, its cells say so themselves."""
    counts = [len(cell.rows) for cell in cells if cell.label == label and cell.rows] or [0]
    return min(counts), max(counts)


def _step_label(label: str, place: Place, step: int | None) -> str:
    if step is None or place.amount is None:
        return method_name(label)
    amount = so_far(place.amount, step, place.steps)
    return f"{method_name(label)}, {f'{100 * amount:.3g}%' if is_share(place.amount) else amount_name(amount)}"


def so_far(amount: float, step: int, steps: int) -> float:
    """What the first requests of a sequence delete together; the first ones take what does not divide.

    >>> so_far(0.5, 1, 4), so_far(20, 2, 3), so_far(3, 1, 3)
    (0.125, 14, 1)
    """
    if is_share(amount):
        return amount * step / steps
    each, more = divmod(int(amount), steps)
    return step * each + min(step, more)


def _titles(places: Sequence[Place]) -> list[str]:
    """One title per setting: dataset and request, and whatever else tells two of them apart."""
    plain = [f"{dataset_name(place.dataset)}: {request_name(place)}" for place in places]
    return [
        title + (f" ({', '.join(_differing(place, same))})" if len(same) > 1 else "")
        for title, place in zip(plain, places, strict=True)
        for same in [[other for other, its in zip(places, plain, strict=True) if its == title]]
    ]


def settings_apart(places: Iterable[Place]) -> dict[str, str]:
    """By setting, what tells it from others with the same dataset and the same kind, place and amount of deletion."""
    first = {place.setting: place for place in places}
    groups: dict[tuple[object, ...], list[Place]] = {}
    for place in first.values():
        groups.setdefault((place.dataset, place.kind, place.where, place.amount), []).append(place)
    return {place.setting: ", ".join(_differing(place, same)) for same in groups.values() for place in same}


def _differing(place: Place, others: Sequence[Place]) -> Iterator[str]:
    own, theirs = dict(_flat(json.loads(place.setting))), [dict(_flat(json.loads(o.setting))) for o in others]
    for name, value in own.items():
        if any(other.get(name) != value for other in theirs):
            yield f"{name} {value}"


def _flat(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(item, f"{prefix} {name}".strip())
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value)
