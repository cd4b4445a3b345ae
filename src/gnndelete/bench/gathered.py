"""What a store holds about an experiment: one `Result` per method and place, its seeds together, never mixed with others.

Gaps to Retrain are taken seed by seed and then averaged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from statistics import mean, median, stdev
from typing import Any, Protocol

from gnndelete.bench.words import full_memory
from gnndelete.io.store import Store

Key = Mapping[str, Any]
Row = Mapping[str, Any]

#: Figures of a row that are no scores, but are asked for by name like them.
COSTS = ("seconds", "train_seconds", "parameters", "peak_mb", "lam")


#: The kind of error in the row of a method that does not apply to a model, a task or what is deleted.
UNFIT = "Unfit"

_APART = ("model", "method", "measures", "seed")


class Wanted(Protocol):
    """One job of an experiment: the key of its row in the store and the name its method has in the experiment."""

    @property
    def label(self) -> str: ...

    @property
    def key(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Plan:
    """An experiment as the report sees it: what it asks for, and how it is shown."""

    name: str
    title: str
    cells: Sequence[Wanted]
    published: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    source: str = ""  # how a command names it, where that is not its name
    summary: bool = True  # whether its numbers count in the summary

    @property
    def shipped(self) -> bool:
        """Whether it comes with the package; a file of the user's own has a name without a group."""
        return "/" in self.name


@dataclass(frozen=True)
class Stat:
    """A mean over seeds and its standard error, which needs two seeds.

    >>> Stat.of([1.0, 3.0])
    Stat(mean=2.0, error=1.0, count=2)
    """

    mean: float
    error: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Stat | None:
        known = list(values)
        if not known:
            return None
        return cls(mean(known), stdev(known) / sqrt(len(known)) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Place:
    """Where a method was tried: everything of a key but the method, what is measured and the seed."""

    dataset: str
    model: str
    kind: str
    where: str
    amount: float | None
    steps: int
    task: str
    variant: str = ""  # the model with all its options
    setting: str = ""  # the rest of the key but method, measures and seed: what differs in anything is never joined

    @classmethod
    def of(cls, key: Key) -> Place:
        forget = key.get("forget") or {}
        model = key["model"]
        return cls(
            str(key["dataset"]),
            str(model["name"] if isinstance(model, Mapping) else model),
            str(forget.get("kind") or ""),
            str(forget.get("where") or ""),
            forget.get("amount"),
            int(forget.get("steps") or 1),
            str(key.get("task") or ""),
            text(model),
            text({name: value for name, value in key.items() if name not in _APART}),
        )

    @property
    def rest(self) -> str:
        """All of that as text."""
        return f"{self.variant} {self.setting}"


@dataclass(frozen=True)
class Result:
    """One method at one place: rows by seed, errors by seed, and why there is no number where there is none."""

    experiment: str
    place: Place
    label: str
    method: Mapping[str, Any]
    wanted: int
    rows: Mapping[int, Row]
    errors: Mapping[int, str]
    missing: str = ""
    unfit: str = ""
    measures: tuple[str, ...] = ()
    misfits: int = 0  # seeds whose row says that the method does not apply

    @property
    def unrun(self) -> int:
        """How many of the seeds asked for have no row at all."""
        return self.wanted - len(self.rows) - len(self.errors) - self.misfits

    @property
    def state(self) -> str:
        """``done``, ``not here``, ``does not fit``, ``failed`` or ``not run``."""
        if self.rows:
            return "done"
        if self.unfit:
            return "does not fit"
        if self.errors:
            return "failed"
        return "not here" if self.missing else "not run"

    @property
    def reason(self) -> str:
        """In one sentence why there is no number; empty where there is one and no seed failed."""
        if self.rows:
            failed = len(self.errors)
            return f"{failed} of {failed + len(self.rows)} seeds failed: {_first(self.errors)}" if failed else ""
        return self.unfit or (_first(self.errors) if self.errors else self.missing)

    @property
    def seeds(self) -> int:
        return len(self.rows)

    @property
    def jobs(self) -> int:
        """How many processes ran at a time while its times were taken, at most."""
        return max(((row.get("hardware") or {}).get("jobs") or 1 for row in self.rows.values()), default=1)

    @property
    def device(self) -> str:
        said = {str((row.get("hardware") or {}).get("device") or "") for row in self.rows.values()}
        return said.pop() if len(said) == 1 else ""

    @property
    def identity(self) -> str:
        """Equal for cells that two experiments share."""
        return f"{self.place.rest} {text(self.method)}"

    def values(self, metric: str, step: int | None = None) -> dict[int, float]:
        """A score or a cost by seed; ``step`` counts the requests of a sequence from 1."""
        found = {seed: _value(self._timed(row), metric, step) for seed, row in self.rows.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def _timed(self, row: Row) -> Row:
        """A row with its time as it was taken by repeats, beside a forward pass, where it was."""
        kind = "calibrated" if self.method.get("lam") == "auto" else "delete"
        spent = (row.get("seconds_of") or {}).get("retrain" if self.method.get("name") == "retrain" else kind)
        return row if spent is None else {**row, "seconds": spent}

    def stat(self, metric: str, step: int | None = None) -> Stat | None:
        return Stat.of(self.values(metric, step).values())

    def gaps(self, metric: str, reference: Result | None, step: int | None = None) -> dict[int, float]:
        """This minus the reference, by seed, where both have the seed; of a sequence after so many requests."""
        if reference is None:
            return {}
        theirs = reference.values(metric, step)
        return {seed: value - theirs[seed] for seed, value in self.values(metric, step).items() if seed in theirs}

    def gap(self, metric: str, reference: Result | None, step: int | None = None) -> Stat | None:
        return Stat.of(self.gaps(metric, reference, step).values())

    def ratios(self, reference: Result | None) -> list[float]:
        """The reference's time by this one's, of every seed that ran on the same hardware."""
        if reference is None:
            return []
        mine, theirs = self.values("seconds"), reference.values("seconds")
        return [
            theirs[seed] / mine[seed]
            for seed in sorted(mine.keys() & theirs.keys())
            if mine[seed] > 0 and alike(self.rows[seed], reference.rows[seed])
        ]

    def faster(self, reference: Result | None) -> Stat | None:
        """How many times faster than the reference: the median over seeds, and of how many."""
        ratios = self.ratios(reference)
        return Stat(median(ratios), None, len(ratios)) if ratios else None


def gather(plan: Plan, store: Store) -> list[Result]:
    """The results of an experiment in its own order, with a reason wherever the store has none."""
    jobs: dict[tuple[str, str], list[Wanted]] = {}
    for wanted in plan.cells:
        whole = text({name: value for name, value in wanted.key.items() if name != "seed"})
        jobs.setdefault((wanted.label, whole), []).append(wanted)
    return [_result(plan, label, group, store) for (label, _), group in jobs.items()]


def _result(plan: Plan, label: str, group: Sequence[Wanted], store: Store) -> Result:
    key = group[0].key
    rows, errors, unfit, misfits = {}, {}, "", 0
    for wanted in group:
        row = store.get(wanted.key)
        if row is None:
            continue
        if row.get("kind") == UNFIT:
            unfit, misfits = str(row["error"]), misfits + 1
        elif "error" in row:
            errors[int(wanted.key["seed"])] = shortened(str(row["error"]))
        else:
            rows[int(wanted.key["seed"])] = row
    absent = plan.missing.get(str(key["dataset"]), "")
    measures = tuple(key.get("measures") or ())
    found = (len(group), rows, errors, absent, unfit, measures, misfits)
    return Result(plan.name, Place.of(key), label, key["method"], *found)


def references(cells: Iterable[Result]) -> dict[str, Result]:
    """Retrain by place, the reference of every gap there.

    Of several the one that trains as the base model was trained, and among such the first of that name.
    """
    found: dict[str, Result] = {}
    for cell in cells:
        if cell.method.get("name") == "retrain":
            known = found.setdefault(cell.place.rest, cell)
            if _as_trained(cell) > _as_trained(known):
                found[cell.place.rest] = cell
    return found


def _as_trained(cell: Result) -> tuple[bool, bool]:
    """Whether a Retrain has the schedule of the base model, and the plain name."""
    schedule = json.loads(cell.place.setting).get("train") or {} if cell.place.setting else {}
    same = all(cell.method[name] == value for name, value in schedule.items() if name in cell.method)
    return same, cell.label == "retrain"


def told_apart(cells: Iterable[Result]) -> list[Result]:
    """The cells. Where two at one place have one name and other settings, the rarer ones go by their experiment as well."""
    cells = list(cells)
    settings = [text({name: value for name, value in cell.method.items() if name != "rule"}) for cell in cells]
    found: dict[tuple[str, str], set[str]] = {}
    for cell, own in zip(cells, settings, strict=True):
        found.setdefault((cell.label, cell.place.rest), set()).add(own)
    usual = {}
    for label in {label for (label, _), several in found.items() if len(several) > 1}:
        counts = Counter(own for cell, own in zip(cells, settings, strict=True) if cell.label == label)
        usual[label] = counts.most_common(1)[0][0]
    return [
        replace(cell, label=f"{cell.label} ({cell.experiment})") if usual.get(cell.label, own) != own else cell
        for cell, own in zip(cells, settings, strict=True)
    ]


def originals(cells: Iterable[Result]) -> list[Result]:
    """The models before the deletion, one per place, as the rows of any method there measured them."""
    found: dict[str, Result] = {}
    for cell in cells:
        rows = {seed: {"scores": row["before"]} for seed, row in cell.rows.items() if row.get("before")}
        if len(rows) > len(found[cell.place.rest].rows if cell.place.rest in found else ()):
            found[cell.place.rest] = Result(cell.experiment, cell.place, "original", {}, len(rows), rows, {})
    return list(found.values())


def text(key: Any) -> str:
    """A key as text, the same whatever the order of its fields."""
    return json.dumps(key, sort_keys=True)


def _value(row: Row, metric: str, step: int | None) -> float | None:
    steps = row.get("steps") or ()
    part = {} if step is None or step > len(steps) else steps[step - 1]
    if metric in COSTS:  # of a step its own, and none where none was kept
        value = (row if step is None else part).get(metric)
    elif step is None:
        value = (row.get("scores") or {}).get(metric)
    else:
        value = part.get("scores", part).get(metric)
        if value is None and step == len(steps):  # some is measured once, at the end
            value = (row.get("scores") or {}).get(metric)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)


def hardware(row: Row) -> tuple[Any, Any, Any]:
    """What a time depends on: the machine, how many processes shared it and, on a CPU, how many threads each had."""
    said = row.get("hardware") or {}
    return said.get("name"), said.get("jobs"), said.get("job_threads") if said.get("device") == "cpu" else None


def alike(one: Row, other: Row) -> bool:
    """Whether two times were taken in the same way; rows of before do not say with how many threads."""
    (*mine, threads), (*theirs, others) = hardware(one), hardware(other)
    return mine == theirs and (None in (threads, others) or threads == others)


def shortened(said: str, most: int = 400) -> str:
    """A reason for a table: of one that goes on and on, its first sentences.

    >>> shortened("Out of memory. " + "This and that. " * 40)[:32]
    'Out of memory. This and that. Th'
    >>> len(shortened("Out of memory. " + "This and that. " * 40)) < 220
    True
    """
    said = full_memory(said)
    if len(said) <= most:
        return said
    return said[:200].rpartition(". ")[0] or f"{said[:200]}…"


def _first(errors: Mapping[int, str]) -> str:
    return errors[min(errors)]
