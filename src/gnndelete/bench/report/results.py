"""Results of experiments as the store has them: seeds together, one `Result` per method and scenario."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from gnndelete.bench.cells import Cell, cells, make_method, search_rule
from gnndelete.bench.experiment import describe, find
from gnndelete.bench.names import request_title
from gnndelete.bench.results_file import UNFIT
from gnndelete.comparison import settings_that_differ
from gnndelete.errors import SettingError
from gnndelete.io.store import Store
from gnndelete.methods import GNNDelete, Retrain

Row = Mapping[str, Any]

#: Values of a row that are not scores but are read by name like scores.
COSTS = ("seconds", "train_seconds", "parameters", "peak_mb", "lam")

#: Parts of a cell's key that do not belong to its scenario's setting.
_NOT_SETTING = ("model", "method", "measures", "seed")

#: Methods are compared over at least this many cells, or over half of them where there are fewer.
FEWEST_SHARED = 4

#: The errors of a row are cut to this many letters.
LONGEST_REASON = 400


@dataclass(frozen=True)
class Plan:
    """An experiment as the report needs it: the cells it asks for, and how it is presented."""

    name: str
    title: str
    cells: Sequence[Cell]
    published: str | None = None  # the part of the paper that it repeats
    missing: Mapping[str, str] = field(default_factory=dict)  # datasets that are not here, with the reason
    about: str = ""
    source: str = ""  # the YAML file, where it is the user's
    summary: bool = True  # whether its numbers count in the summary

    @property
    def file_name(self) -> str:
        """The name without slashes, for tables and figures."""
        return self.name.replace("/", "-")


def plans(names: Iterable[str], device: str, seeds: int | None = None) -> list[Plan]:
    """Experiments by name, by group or from YAML files; all shipped ones if none is named.

    Args:
        names: Names such as ``paper/link-dblp``, groups such as ``paper``, or paths of YAML files.
        device: ``cpu`` or ``cuda``; a cell on another device is another cell.
        seeds: How many seeds to take, from the first on; None takes all.

    Returns:
        One plan per experiment.

    Raises:
        SettingError: If two experiments would write the same files.
    """
    found: dict[str, tuple[str, Plan]] = {}
    for name in list(dict.fromkeys(names)) or [""]:
        source = name if name.endswith((".yaml", ".yml")) else ""
        for each in find([name] if name else []):
            identity = str(Path(source).resolve()) if source else each.name
            wanted = cells(each, device, seeds)
            plan = Plan(each.name, each.title, wanted, each.published, each.missing, each.about, source, each.summary)
            first, known = found.setdefault(plan.file_name, (identity, plan))
            if first != identity:
                raise SettingError(
                    f"'{known.source or known.name}' and '{source or each.name}' would write the same files "
                    f"({plan.file_name}); rename one of them, or report them into two folders"
                )
    return [plan for _, plan in found.values()]


@dataclass(frozen=True)
class Stat:
    """A mean over seeds and its standard error, which needs at least two seeds.

    >>> Stat.of([1.0, 3.0])
    Stat(mean=2.0, error=1.0, count=2)
    """

    mean: float
    error: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Stat | None:
        """The mean of values, or None if there is none."""
        known = list(values)
        if not known:
            return None
        return cls(mean(known), stdev(known) / sqrt(len(known)) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Scenario:
    """What a method was run on: all of a cell's key but the method, the measures and the seed."""

    dataset: str
    model: str
    kind: str
    where: str
    amount: float
    steps: int
    task: str
    variant: str  # the model with all its options, as JSON
    setting: str  # the rest of the key, as JSON; scenarios that differ in it are never mixed

    @classmethod
    def of(cls, key: Mapping[str, Any]) -> Scenario:
        """The scenario of a cell's key."""
        forget = key["forget"]
        return cls(
            key["dataset"],
            key["model"]["name"],
            forget["kind"],
            forget["where"],
            forget["amount"],
            forget["steps"],
            key["task"],
            as_text(key["model"]),
            as_text({name: value for name, value in key.items() if name not in _NOT_SETTING}),
        )

    @property
    def identity(self) -> str:
        """Equal for equal scenarios."""
        return f"{self.variant} {self.setting}"

    @property
    def schedule(self) -> dict[str, Any]:
        """How the base model was trained."""
        return dict(json.loads(self.setting)["train"])

    @property
    def request(self) -> str:
        """What is deleted, in words."""
        return request_title(self.kind, self.amount, self.where, self.steps)


@dataclass(frozen=True)
class Result:
    """One method in one scenario: rows and errors by seed."""

    experiment: str
    scenario: Scenario
    label: str
    method: Mapping[str, Any]  # its name and settings
    wanted: int  # seeds that the experiment asks for
    rows: Mapping[int, Row]
    errors: Mapping[int, str] = field(default_factory=dict)
    missing: str = ""  # why the dataset is not here
    unfit: Mapping[int, str] = field(default_factory=dict)  # by seed, why the method does not apply

    @property
    def unrun(self) -> int:
        """How many seeds have no row at all."""
        return self.wanted - len(self.rows) - len(self.errors) - len(self.unfit)

    @property
    def state(self) -> str:
        """``done``, ``does not fit``, ``failed``, ``not here`` or ``not run``."""
        if self.rows:
            return "done"
        if self.unfit:
            return "does not fit"
        if self.errors:
            return "failed"
        return "not here" if self.missing else "not run"

    @property
    def reason(self) -> str:
        """Why there is no number, or why some seeds have none; empty if all seeds have one."""
        error = next(iter(self.errors.values()), "")
        if self.rows:
            return f"{len(self.errors)} of {len(self.errors) + len(self.rows)} seeds failed: {error}" if error else ""
        return next(iter(self.unfit.values()), "") or error or self.missing

    @property
    def identity(self) -> str:
        """Equal for cells that two experiments share."""
        return f"{self.scenario.identity} {as_text(self.method)}"

    @property
    def is_gnndelete(self) -> bool:
        """Whether the method is GNNDelete, with any settings."""
        return self.method.get("name") == GNNDelete.name

    @property
    def is_retrain(self) -> bool:
        """Whether the method is Retrain, the reference of every gap."""
        return self.method.get("name") == Retrain.name

    @property
    def call(self) -> str:
        """The shortest Python call that makes the method; settings from the training schedule are left out."""
        return method_call(self.method, self.scenario.schedule)

    def values(self, metric: str, step: int | None = None) -> dict[int, float]:
        """A score or a cost by seed; ``step`` counts the requests of a sequence from 1."""
        found = {seed: self._value(row, metric, step) for seed, row in self.rows.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def _value(self, row: Row, metric: str, step: int | None) -> float | None:
        """A finite number of a row; what is measured once counts for the last step of a sequence."""
        steps = row.get("steps") or ()
        part = {} if step is None or step > len(steps) else steps[step - 1]
        if metric in COSTS:
            value = part.get(metric) if step is not None else row.get(metric)
            if metric == "seconds" and step is None:  # its repeated measurement, where there is one
                kind = "calibrated" if self.method.get("lam") == "auto" else "delete"
                spent = (row.get("seconds_of") or {}).get("retrain" if self.is_retrain else kind)
                value = value if spent is None else spent
        else:
            value = part.get(metric)
            if step is None or (value is None and step == len(steps)):
                value = row["scores"].get(metric)
        return float(value) if value is not None and isfinite(value) else None

    def stat(self, metric: str, step: int | None = None) -> Stat | None:
        """The mean of a score over seeds."""
        return Stat.of(self.values(metric, step).values())

    def gaps(self, metric: str, reference: Result | None, step: int | None = None) -> dict[int, float]:
        """This minus the reference by seed, for the seeds that both have."""
        theirs = reference.values(metric, step) if reference else {}
        return {seed: value - theirs[seed] for seed, value in self.values(metric, step).items() if seed in theirs}

    def gap(self, metric: str, reference: Result | None, step: int | None = None) -> Stat | None:
        """The mean gap to the reference."""
        return Stat.of(self.gaps(metric, reference, step).values())

    def speedup(self, reference: Result | None) -> Stat | None:
        """How many times faster than the reference it is: the median over seeds on the same hardware."""
        if reference is None:
            return None
        mine, theirs = self.values("seconds"), reference.values("seconds")
        ratios = [
            theirs[seed] / mine[seed]
            for seed in sorted(mine.keys() & theirs.keys())
            if mine[seed] > 0 and same_hardware(self.rows[seed], reference.rows[seed])
        ]
        return Stat(median(ratios), None, len(ratios)) if ratios else None


def gather(plan: Plan, store: Store) -> list[Result]:
    """The results of an experiment in the order of its file."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in plan.cells:
        key = as_text({name: value for name, value in cell.key.items() if name != "seed"})
        groups.setdefault((cell.label, key), []).append(cell)
    return [_result(plan, label, group, store) for (label, _), group in groups.items()]


def _result(plan: Plan, label: str, group: Sequence[Cell], store: Store) -> Result:
    rows: dict[int, Row] = {}
    errors: dict[int, str] = {}
    unfit: dict[int, str] = {}
    for cell in sorted(group, key=lambda cell: int(cell.key["seed"])):
        row, seed = store.get(cell.key), int(cell.key["seed"])
        if row is None:
            continue
        if "error" not in row:
            rows[seed] = _without_outdated_time(row, cell.key)
        else:
            reason = textwrap.shorten(str(row["error"]), LONGEST_REASON, placeholder=" …")
            (unfit if row.get("kind") == UNFIT else errors)[seed] = reason
    key = group[0].key
    missing = plan.missing.get(key["dataset"], "")
    return Result(plan.name, Scenario.of(key), label, key["method"], len(group), rows, errors, missing, unfit)


def _without_outdated_time(row: Row, key: Mapping[str, Any]) -> Row:
    """A row without the time of a calibrated deletion, if another version of the search for lam took it."""
    spent = row.get("seconds_of") or {}
    if "calibrated" not in spent or "search_rule" not in row:
        return row
    if row["search_rule"] == search_rule(key["method"], key["task"], key["model"]["name"]):
        return row
    return {**row, "seconds_of": {name: value for name, value in spent.items() if name != "calibrated"}}


def references(results: Iterable[Result]) -> dict[str, Result]:
    """Retrain by scenario; of several the one that is trained like the base model, then the one named retrain."""

    def likeness(result: Result) -> tuple[bool, bool]:
        schedule = result.scenario.schedule
        same = all(result.method.get(name, value) == value for name, value in schedule.items())
        return same, result.label == Retrain.name

    found: dict[str, Result] = {}
    for result in results:
        if result.is_retrain:
            known = found.setdefault(result.scenario.identity, result)
            if likeness(result) > likeness(known):
                found[result.scenario.identity] = result
    return found


def originals(results: Iterable[Result]) -> list[Result]:
    """The models before the deletion, one per scenario, as the rows of any method measured them."""
    found: dict[str, Result] = {}
    for result in results:
        rows = {seed: {"scores": row["before"]} for seed, row in result.rows.items() if row.get("before")}
        known = found.get(result.scenario.identity)
        if len(rows) > (len(known.rows) if known else 0):
            found[result.scenario.identity] = Result("", result.scenario, "original", {}, len(rows), rows)
    return list(found.values())


def unique(results: Iterable[Result]) -> list[Result]:
    """Cells that several experiments share once: where most was measured, under the most common label."""
    results = list(results)
    labels = Counter((as_text(result.method), result.label) for result in results)

    def weight(result: Result) -> tuple[int, int, int]:
        scores = {name for row in result.rows.values() for name in row["scores"]}
        return len(result.rows), len(scores), labels[as_text(result.method), result.label]

    found: dict[str, Result] = {}
    for result in results:
        known = found.setdefault(result.identity, result)
        if weight(result) > weight(known):
            found[result.identity] = result
    return list(found.values())


def is_fallback(row: Row) -> bool:
    """Whether lam could not be calibrated and the fallback value was used."""
    return (row.get("calibration") or {}).get("status") == "fallback"


def split_uncalibrated(results: Iterable[Result]) -> list[Result]:
    """The results; runs that used the fallback lam get a separate label and do not count as calibrated."""
    found = []
    for result in results:
        fallback = {seed: row for seed, row in result.rows.items() if is_fallback(row)}
        calibrated = {seed: row for seed, row in result.rows.items() if seed not in fallback}
        if calibrated or not fallback:
            found.append(replace(result, rows=calibrated))
        if fallback:
            label, method = f"{result.label}, fallback lam", {**result.method, "lam": "fallback"}
            found.append(replace(result, label=label, method=method, rows=fallback, errors={}))
    return found


def in_common(scenarios: Mapping[str, Collection[str]]) -> tuple[set[str], set[str]]:
    """Which methods are compared, and the scenarios that all of these have.

    Methods are added by how many scenarios they have, as long as a quarter of the most stays in common, and at least
    `FEWEST_SHARED` (half of the most, where that is less).

    >>> taken, shared = in_common({"a": "12345678", "b": "1234", "c": "5678"})
    >>> sorted(taken), sorted(shared)
    (['a', 'b'], ['1', '2', '3', '4'])
    """
    most = max(map(len, scenarios.values()), default=0)
    enough = max(min(FEWEST_SHARED, (most + 1) // 2), most // 4)
    taken: set[str] = set()
    shared: set[str] = set()
    for label in sorted(scenarios, key=lambda label: -len(scenarios[label])):
        left = shared & set(scenarios[label]) if taken else set(scenarios[label])
        if len(left) >= enough:
            taken, shared = taken | {label}, left
    return taken, shared


@dataclass(frozen=True)
class Timing:
    """The times of one method in one scenario, with those of a forward pass, an epoch and Retrain: medians over seeds."""

    result: Result
    edges: int
    spent: Mapping[str, float]
    pairs: tuple[Mapping[str, float], ...] = ()  # the times of each seed; Retrain's where the hardware is the same

    def ratio(self, above: str, below: str) -> float | None:
        """The median over seeds of one time divided by another."""
        found = [pair[above] / pair[below] for pair in self.pairs if above in pair and pair.get(below)]
        return median(found) if found else None


def timings(results: Sequence[Result]) -> list[Timing]:
    """The times of every method that was timed."""
    retrained, found = references(results), []
    for result in results:
        reference = retrained.get(result.scenario.identity)
        spent = _medians(result.rows)
        if not spent or result is reference:
            continue
        theirs = reference.rows if reference else {}
        if "retrain" in (whole := _medians(theirs)):
            spent["retrain"] = whole["retrain"]
        pairs = []
        for seed, row in result.rows.items():
            other = theirs.get(seed)
            whole = _times(other) if other is not None and same_hardware(row, other) else {}
            pairs.append(_times(row) | {name: value for name, value in whole.items() if name == "retrain"})
        found.append(Timing(result, describe(result.scenario.dataset).edges, spent, tuple(pairs)))
    return found


def _times(row: Row) -> dict[str, float]:
    return {name: value for name, value in (row.get("seconds_of") or {}).items() if value is not None}


def _medians(rows: Mapping[int, Row]) -> dict[str, float]:
    times = [_times(row) for row in rows.values()]
    names = dict.fromkeys(name for spent in times for name in spent)
    return {name: median(spent[name] for spent in times if name in spent) for name in names}


def same_hardware(one: Row, other: Row) -> bool:
    """Whether two times can be compared: same machine, processes at a time and, on a CPU, threads."""
    mine, theirs = one.get("hardware") or {}, other.get("hardware") or {}
    if any(mine.get(name) != theirs.get(name) for name in ("name", "jobs")):
        return False
    threads = [each.get("job_threads") if each.get("device") == "cpu" else None for each in (mine, theirs)]
    return None in threads or threads[0] == threads[1]


def devices(store: Store) -> Counter[str]:
    """How many rows of a store were made on which device."""
    return Counter(key["device"] for key, _ in store.items())


def usual_device(store: Store) -> str:
    """The device that most rows of a store were made on; a report never mixes two.

    >>> usual_device(Store(None))
    'cpu'
    """
    counts = devices(store)
    return max(("cuda", "cpu"), key=lambda name: (counts[name], name == "cpu"))


def method_call(method: Mapping[str, Any], schedule: Mapping[str, Any] | None = None) -> str:
    """The shortest Python call that makes a method.

    >>> method_call({"name": "gnndelete", "lam": 0.2})
    'GNNDelete(lam=0.2)'
    >>> method_call({"name": "gnndelete", "aim": "nonexistent", "lam": 0.5, "operator": "shared", "targets": "original"})
    'GNNDelete.paper()'
    >>> method_call({"name": "retrain", "epochs": 50, "lr": 0.01}, {"epochs": 50, "lr": 0.001})
    'Retrain(lr=0.01)'
    """
    made = make_method(method)
    preset, differing = settings_that_differ(made, schedule if made.needs == "a training function" else None)
    options = ", ".join(f"{name}={value!r}" for name, value in differing.items())
    return f"{type(made).__name__}{f'.{preset}' if preset else ''}({options})"


def as_text(key: Any) -> str:
    """A key as JSON, whatever the order of its fields."""
    return json.dumps(key, sort_keys=True)
