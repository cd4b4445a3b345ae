"""The summary of all experiments: means next to the paper's, distances to Retrain, and speed-ups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from statistics import mean, median
from typing import Any

from gnndelete.bench.names import counted, dataset_title, method_title, metric_title, model_titles, times
from gnndelete.bench.published import MAIN, PAPER_LABEL, published
from gnndelete.bench.report.results import (
    Plan,
    Result,
    distinct,
    in_common,
    is_fallback,
    references,
    same_hardware,
    split_uncalibrated,
    unique,
)
from gnndelete.bench.report.tables import escape_markdown, grid
from gnndelete.methods import RetrainAgain

#: The paper's two scores.
SCORES = ("test_auroc", "deleted_auroc")


@dataclass(frozen=True)
class PaperMean:
    """The means of one method over the cells of the paper's main tables, ours and the paper's."""

    label: str
    dataset: str
    cells: int
    ours: tuple[float, float]
    theirs: tuple[float, float]


@dataclass(frozen=True)
class Distance:
    """The distance of one method to Retrain in one score, over all scenarios where both were run."""

    label: str
    task: str
    metric: str
    cells: int
    by_seed: float  # mean over cells of the mean of |gap| over seeds
    by_cell: float  # mean over cells of |mean gap|
    signed: float  # mean over cells of the mean gap
    worst: Result
    shared_cells: int = 0  # cells that all compared methods have
    shared: float | None = None  # by_seed over these; None where the method has too few of them


@dataclass(frozen=True)
class Speedup:
    """How many times faster than Retrain the slowest cell of a dataset is."""

    dataset: str
    kind: str
    ratio: float
    slowest: Result
    cells: int
    undisturbed: bool  # whether nothing else ran while the times were measured


@dataclass(frozen=True)
class Summary:
    """What all experiments say together; a cell that two experiments share counts once."""

    means: tuple[PaperMean, ...]
    distances: tuple[Distance, ...]
    speedups: tuple[Speedup, ...]
    short: tuple[str, ...]  # experiments that do not count, since their models are trained too briefly

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return {
            "means": [_plain(each) for each in self.means],
            "distances": [_plain(each) for each in self.distances],
            "speedups": [_plain(each) for each in self.speedups],
        }


def _plain(value: PaperMean | Distance | Speedup) -> dict[str, Any]:
    """Return the fields of a line; a result is named by its experiment, cell and label."""
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    return {
        name: f"{each.experiment}: {cell_title(each)}, {each.label}" if isinstance(each, Result) else each
        for name, each in values.items()
    }


def summarize(gathered: Iterable[tuple[Plan, Sequence[Result]]]) -> Summary:
    """Return the summary of the experiments that count in it."""
    pairs = list(gathered)
    counting = [(plan, split_uncalibrated(results)) for plan, results in pairs if plan.summary]
    everything = unique(result for _, results in counting for result in results)
    main = unique(result for plan, results in counting if plan.published == MAIN for result in results)
    return Summary(
        tuple(_paper_means(main)),
        tuple(distances(distinct(everything))),
        tuple(_speedups([results for _, results in counting])),
        tuple(plan.name for plan, results in pairs if not plan.summary and any(each.rows for each in results)),
    )


def _paper_means(results: Sequence[Result]) -> list[PaperMean]:
    """Return means by method and dataset; every setting of GNNDelete is compared with the paper's GNNDelete."""
    found: dict[tuple[str, str], list[tuple[list[float], list[float]]]] = {}
    for result in results:
        each, label = result.scenario, PAPER_LABEL if result.is_gnndelete else result.label
        cell = (each.dataset, each.model, each.where, each.amount)
        theirs = [known.value for score in SCORES if (known := published(MAIN, *cell, label, score))]
        ours = [stat.mean for score in SCORES if (stat := result.stat(score))]
        if len(theirs) == len(ours) == len(SCORES) and each.steps == 1:
            found.setdefault((result.label, each.dataset), []).append((ours, theirs))
    return [
        PaperMean(
            label,
            dataset,
            len(pairs),
            (mean(ours[0] for ours, _ in pairs), mean(ours[1] for ours, _ in pairs)),
            (mean(theirs[0] for _, theirs in pairs), mean(theirs[1] for _, theirs in pairs)),
        )
        for (label, dataset), pairs in found.items()
    ]


def distances(results: Sequence[Result]) -> list[Distance]:
    """Return the distance to Retrain of every method that has at least a quarter of the cells.

    RetrainAgain is always included: it shows how much two retrained models differ. Where a task has unseen AUCs, its
    test AUROC is taken over the same cells.
    """
    retrained = references(results)
    found: list[Distance] = []
    for task in dict.fromkeys(result.scenario.task for result in results):
        runs = [each for each in results if each.scenario.task == task and each.scenario.steps == 1]
        runs = [each for each in runs if not each.is_retrain]
        gaps = {
            metric: {id(each): each.gaps(metric, retrained.get(each.scenario.identity)) for each in runs}
            for metric in ("test_auroc", "test_accuracy", "unseen_auc")
        }
        for metric, values in gaps.items():
            paired = gaps["unseen_auc"] if metric == "test_auroc" and any(gaps["unseen_auc"].values()) else values
            every: dict[str, list[tuple[Result, list[float]]]] = {}
            for each in runs:
                if values[id(each)] and paired[id(each)]:
                    every.setdefault(each.label, []).append((each, list(values[id(each)].values())))
            found += _distances(task, metric, every)
    return found


def _distances(task: str, metric: str, every: Mapping[str, list[tuple[Result, list[float]]]]) -> list[Distance]:
    """Return the distances in one score, each over all cells of the method and over those that the methods share."""
    most = max(map(len, every.values()), default=0)
    every = {label: part for label, part in every.items() if 4 * len(part) >= most or _is_control(part)}
    taken, shared = in_common({label: [each.scenario.identity for each, _ in part] for label, part in every.items()})
    found = []
    for label, part in every.items():
        means = [mean(values) for _, values in part]
        sizes = [mean(map(abs, values)) for _, values in part]
        worst = part[sizes.index(max(sizes))][0]
        total = Distance(
            label, task, metric, len(part), mean(sizes), mean(map(abs, means)), mean(means), worst, len(shared)
        )
        if label in taken:
            common = [size for size, (each, _) in zip(sizes, part, strict=True) if each.scenario.identity in shared]
            total = replace(total, shared=mean(common))
        found.append(total)
    return found


def _is_control(part: Sequence[tuple[Result, list[float]]]) -> bool:
    return all(each.method.get("name") == RetrainAgain.name for each, _ in part)


def _speedups(experiments: Sequence[Sequence[Result]]) -> list[Speedup]:
    """Return the slowest cell of each dataset; times that were measured with nothing else running take precedence."""
    undisturbed: dict[tuple[str, str], dict[str, tuple[float, Result]]] = {}
    swept: dict[tuple[str, str], dict[str, tuple[float, Result]]] = {}
    for results in experiments:
        retrained = references(results)
        for result in results:
            reference = retrained.get(result.scenario.identity)
            if reference is None or not _counts(result):
                continue
            timed = _timed_ratios(result, reference)
            for kind, ratio in timed.items():
                undisturbed.setdefault((result.scenario.dataset, kind), {})[result.identity] = (ratio, result)
            faster = result.speedup(reference)
            if not timed and faster is not None:
                key = (result.scenario.dataset, _kind(result))
                swept.setdefault(key, {})[result.identity] = (faster.mean, result)
    found = []
    for key in sorted(undisturbed.keys() | swept.keys()):
        known = list(undisturbed.get(key, swept.get(key, {})).values())
        ratio, slowest = min(known, key=lambda pair: pair[0])
        found.append(Speedup(*key, ratio, slowest, len(known), key in undisturbed))
    return found


def _counts(result: Result) -> bool:
    """Return whether it is GNNDelete in closed form, with the requested lam."""
    solved = result.is_gnndelete and result.method.get("solver") != "gradient"
    return solved and not any(map(is_fallback, result.rows.values()))


def _kind(result: Result) -> str:
    return _calibrated_kind(result) if result.method.get("lam") == "auto" else "fixed lam"


def _calibrated_kind(result: Result) -> str:
    aim = result.method.get("aim", "retrained")
    return "calibrated" if aim == "retrained" else f"calibrated, aim {aim}"


def _timed_ratios(result: Result, reference: Result) -> dict[str, float]:
    """Return Retrain's time divided by the deletion's, for rows that repeated their times with nothing else running."""
    ratios: dict[str, list[float]] = {}
    for seed, row in sorted(result.rows.items()):
        other: Mapping[str, Any] = reference.rows.get(seed) or {}
        spent, whole = row.get("seconds_of") or {}, (other.get("seconds_of") or {}).get("retrain")
        for name, kind in (("delete", "fixed lam"), ("calibrated", _calibrated_kind(result))):
            if whole and spent.get(name) and same_hardware(row, other):
                ratios.setdefault(kind, []).append(whole / spent[name])
    return {kind: median(values) for kind, values in ratios.items()}


_INTRODUCTION = (
    "All numbers come from the rows of the store. A cell is one dataset, model and deletion; a cell that two experiments "
    "share counts once, and a failed one never."
)
_MEANS = (
    "Means over the cells of the paper's main tables. Settings of GNNDelete are compared with the paper's GNNDelete."
)
_DISTANCES = (
    "A gap is a method's score minus Retrain's with the same seed. *By seed* is the mean of |gap|, *by cell* the mean over "
    "cells of |mean gap|, *signed* the mean gap. Even two retrained models differ: see retrain-again. *Shared* is the "
    "distance by seed over the cells that all methods have; tables are sorted by it. Methods with fewer than a quarter of "
    "the cells are left out."
)
_SPEEDUPS = (
    "Per dataset the slowest cell: Retrain's time divided by the deletion's on the same hardware, median over seeds. *Alone*: "
    "nothing else ran while the times were measured."
)


def summary_page(summary: Summary) -> str:
    """Return the summary as Markdown."""
    short = ", ".join(f"`{name}`" for name in summary.short)
    parts = [
        "# Summary",
        _INTRODUCTION + (f" Models are trained too briefly to count in {short}." if short else ""),
        "## Means next to the paper's",
        f"{_MEANS}\n\n{means_table(summary.means)}" if summary.means else "Not run yet.",
        "## Distance to Retrain",
        f"{_DISTANCES}\n\n{distance_tables(summary.distances)}" if summary.distances else "Not run yet.",
        "## Times faster than Retrain",
        f"{_SPEEDUPS}\n\n{_speedup_table(summary.speedups)}" if summary.speedups else "Not run yet.",
    ]
    return "\n\n".join(parts) + "\n"


def means_table(means: Sequence[PaperMean]) -> str:
    """Return the means of all methods, ours, the paper's and the difference."""
    head = ["method", "dataset", "cells"]
    head += [f"{metric_title(score)}{what}" for score in SCORES for what in ("", ", paper", ", difference")]
    rows = []
    for each in means:
        pairs = zip(each.ours, each.theirs, strict=True)
        numbers = [text for a, b in pairs for text in (f"{a:.3f}", f"{b:.3f}", f"{a - b:+.3f}")]
        rows.append([escape_markdown(method_title(each.label)), dataset_title(each.dataset), str(each.cells), *numbers])
    return grid(head, rows, left=2)


def distance_tables(found: Sequence[Distance]) -> str:
    """Return one table per task and score, the nearest method first."""
    tables = []
    for task, metric in dict.fromkeys((each.task, each.metric) for each in found):
        group = [each for each in found if (each.task, each.metric) == (task, metric)]
        group.sort(key=lambda each: (inf if each.shared is None else each.shared, each.by_seed))
        shared = f"shared, {counted(group[0].shared_cells, 'cell')}"
        head = [f"{metric_title(metric)}, {task}", "cells", "by seed", "by cell", "signed", shared, "farthest cell"]
        rows = [
            [
                escape_markdown(method_title(each.label)),
                str(each.cells),
                f"{each.by_seed:.4f}",
                f"{each.by_cell:.4f}",
                f"{each.signed:+.4f}",
                "–" if each.shared is None else f"{each.shared:.4f}",
                cell_title(each.worst),
            ]
            for each in group
        ]
        tables.append(grid(head, rows))
    return "\n\n".join(tables)


def _speedup_table(found: Sequence[Speedup]) -> str:
    rows = [
        [
            dataset_title(each.dataset),
            each.kind,
            times(each.ratio),
            "alone" if each.undisturbed else "in a sweep",
            escape_markdown(f"{cell_title(each.slowest)}, {each.slowest.label}"),
            str(each.cells),
        ]
        for each in found
    ]
    return grid(["dataset", "deletion", "times faster", "timed", "slowest cell", "cells"], rows, left=2)


def cell_title(result: Result) -> str:
    scenario = result.scenario
    (model,) = model_titles([scenario.variant]).values()
    return f"{dataset_title(scenario.dataset)}, {model}, {scenario.request}"
