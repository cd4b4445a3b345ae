"""Pages of a report: one per experiment, the summary of all, the index, and the files on disk."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from statistics import mean, median
from typing import Any
from urllib.parse import quote

from gnndelete.bench.cells import unusual_options
from gnndelete.bench.names import (
    EXPLANATIONS,
    counted,
    dataset_title,
    listed,
    method_title,
    metric_title,
    model_titles,
    seconds,
    times,
)
from gnndelete.bench.published import MAIN, PAPER_LABEL, published
from gnndelete.bench.report.figures import TIMES, Figure, Format, experiment_figures, method_figures
from gnndelete.bench.report.results import (
    Plan,
    Result,
    Row,
    gather,
    in_common,
    is_fallback,
    references,
    same_hardware,
    split_uncalibrated,
    timings,
    unique,
)
from gnndelete.bench.report.tables import Section, escape_markdown, grid, latex_page, markdown, sections, tidy_csv
from gnndelete.bench.results_file import source
from gnndelete.errors import SettingError, some
from gnndelete.io.files import commit, tidy
from gnndelete.io.store import Store
from gnndelete.methods import RetrainAgain

#: The file that holds the numbers of the summary and the names of all files of a report.
MANIFEST = "summary.json"

#: The paper's two scores.
SCORES = ("test_auroc", "deleted_auroc")

Gathered = Sequence[tuple[Plan, Sequence[Result]]]

_READING = """\
Numbers are means over seeds, with the standard error where there are two seeds or more. The last column of a table has the \
number of seeds; a number over fewer says so. Below ours is the paper's number, and ours minus the paper's. Gaps to Retrain \
are taken seed by seed. A dash means that an experiment does not ask for a number, or that it could not be measured."""

#: Ratios of times that a page shows: title, what is divided, by what.
_RATIOS = (
    ("deletion / forward pass", "delete", "forward"),
    ("graph known / forward pass", "further", "forward"),
    ("Retrain / deletion, fixed lam", "retrain", "delete"),
    ("Retrain / deletion, calibrated", "retrain", "calibrated"),
)


@dataclass(frozen=True)
class Commands:
    """The command lines that make the results and the report."""

    store: str
    out: str
    device: str
    names: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def run(self, plan: Plan) -> str:
        """The command that runs what is missing of an experiment."""
        seeds = len({cell.key["seed"] for cell in plan.cells})
        parts = [plan.source or plan.name, "--seeds", str(seeds), "--device", self.device, "--store", self.store]
        return shlex.join(["gnndelete", "bench", "run", *parts])

    @property
    def report(self) -> str:
        """The command that makes the report."""
        parts = [*self.names, "--device", self.device, "--store", self.store, "--out", self.out, *self.options]
        return shlex.join(["gnndelete", "bench", "report", *parts])


def build(plans: Sequence[Plan], store: Store, commands: Commands, form: Format = "svg") -> dict[str, bytes]:
    """Every file of a report by its path; the same store gives the same bytes.

    Args:
        plans: The experiments, as `gnndelete.bench.report.results.plans` gives them.
        store: The finished cells.
        commands: The command lines that the pages show.
        form: The file format of figures.

    Returns:
        Markdown pages, CSV and LaTeX tables, figures, and ``summary.json``.
    """
    gathered = [(plan, gather(plan, store)) for plan in plans]
    overall = method_figures([result for _, results in gathered for result in results], form)
    made = {f"figures/{figure.name}.{form}": figure.content for figure in overall}
    for plan, results in gathered:
        figures, found = experiment_figures(plan, results, form), sections(plan, results)
        made |= {f"figures/{figure.name}.{form}": figure.content for figure in figures}
        page = experiment_page(plan, results, found, _links(figures, form, "../"), commands)
        made[page_path(plan.name)] = page.encode()
        made[f"tables/{plan.file_name}.csv"] = tidy_csv(plan, results).encode()
        made[f"tables/{plan.file_name}.tex"] = latex_page(plan, found).encode()
    summary = summarize(gathered)
    made["index.md"] = index_page(gathered, _links(overall, form), len(store), commands).encode()
    made["summary.md"] = summary_page(summary).encode()
    manifest = {"files": sorted([*made, MANIFEST]), **summary.as_json()}
    made[MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode()
    return made


def write(folder: Path, made: Mapping[str, bytes]) -> None:
    """Write the files of a report, all or none, and name those that an earlier report has left in the folder.

    Args:
        folder: Where the report is written.
        made: The files by their paths, as `build` gives them.

    Raises:
        SettingError: If a file in the folder, which no report has written, would be overwritten.
    """
    tidy(folder, *{(folder / path).parent for path in made}, below=False)
    try:
        earlier = set(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        earlier = set()
    foreign = [f"'{folder / path}'" for path in sorted(made) if path not in earlier and (folder / path).is_file()]
    if foreign:
        raise SettingError(
            f"{some(foreign)} would be overwritten, and no report has written {'it' if len(foreign) == 1 else 'them'}; "
            "give --out another folder, or move what is there"
        )
    commit({folder / path: made[path] for path in sorted(made, key=lambda path: path == "index.md")})
    left = [path for path in sorted(earlier) if path not in made and (folder / path).is_file()]
    if left:
        print(f"An earlier report has left files in {folder}: {some(left)}.", file=sys.stderr)


def page_path(name: str) -> str:
    """The path of an experiment's page.

    >>> page_path("paper/link-dblp"), page_path("mine")
    ('paper/link-dblp.md', 'own/mine.md')
    """
    return f"{name if '/' in name else f'own/{name}'}.md"


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(text: str) -> str:
    return escape_markdown(" ".join(text.split()))


def _links(figures: Sequence[Figure], form: Format, folder: str = "") -> str:
    """Markdown that shows figures with their captions."""
    parts = []
    for each in figures:
        parts.append(f"![{escape_markdown(each.alt)}]({folder}figures/{quote(each.name)}.{form})")
        parts += [escape_markdown(each.caption)] if each.caption else []
    return "\n\n".join(parts)


def _explanations(results: Iterable[Result]) -> str:
    names = {name for result in results for row in result.rows.values() for name in row["scores"]}
    return " ".join(text for name, text in EXPLANATIONS.items() if name in names)


# One experiment.


def experiment_page(
    plan: Plan, results: Sequence[Result], found: Sequence[Section], figures: str, commands: Commands
) -> str:
    """The page of one experiment: its command, figures, tables and settings."""
    table = f"../tables/{quote(plan.file_name)}"
    done, failed, unfit = (sum(map(len, counts)) for counts in zip(*map(_by_state, results), strict=True))
    counts = [f"{done} of {sum(each.wanted for each in results)} runs done"]
    counts += [f"{failed} failed"] if failed else []
    counts += [f"{unfit} to which a method does not apply"] if unfit else []
    parts = [
        f"# {_heading(plan.title)}",
        plan.about.strip(),
        f"{', '.join(counts)}. Also as [CSV]({table}.csv) and [LaTeX]({table}.tex).",
        _unusual_models(plan),
        _explanations(results),
        f"```bash\n{commands.run(plan)}\n```",
        figures,
        _times(results),
    ]
    for section in found:
        parts.append(f"## {_heading(section.title)}")
        parts += [markdown(section.scores)] if section.scores.lines and section.scores.columns else []
        if not section.costs.empty:
            parts += ["Gap to Retrain, seed by seed, and cost:", markdown(section.costs)]
        parts.append("\n".join(f"- {escape_markdown(text)}" for text in section.remarks))
    return _joined([*parts, _settings(results)])


def _by_state(result: Result) -> tuple[Mapping[int, Any], ...]:
    return result.rows, result.errors, result.unfit


def _unusual_models(plan: Plan) -> str:
    """The options of models that are not their defaults."""
    found: dict[str, None] = {}
    for cell in plan.cells:
        options = unusual_options(cell.key["model"], cell.key["task"])
        if options:
            (title,) = model_titles([json.dumps(cell.key["model"])]).values()
            found[f"{title} ({escape_markdown(options)})"] = None
    return f"Options of models that are not defaults: {listed(found)}." if found else ""


def _times(results: Sequence[Result]) -> str:
    """A table of times, and how a deletion compares with a forward pass and with Retrain."""
    timed = timings(results)
    if not timed:
        return ""
    names = [name for name in TIMES if any(name in timing.spent for timing in timed)]
    ratios = [each for each in _RATIOS if any(timing.ratio(*each[1:]) is not None for timing in timed)]
    models = model_titles(result.scenario.variant for result in results)
    rows = []
    for timing in timed:
        scenario = timing.result.scenario
        row = [dataset_title(scenario.dataset), models[scenario.variant], scenario.request]
        row += [escape_markdown(method_title(timing.result.label))]
        row += [seconds(timing.spent[name]) if name in timing.spent else "–" for name in names]
        row += ["–" if (value := timing.ratio(*each[1:])) is None else times(value) for each in ratios]
        rows.append(row)
    head = ["dataset", "model", "deleted", "method", *(TIMES[name] for name in names), *(each[0] for each in ratios)]
    return f"## Times\n\n{grid(head, rows, left=4)}"


def _settings(results: Sequence[Result]) -> str:
    """Every label with its call in Python, where that is more than the method's name."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        if result.rows and (not result.call.endswith("()") or result.is_gnndelete):
            found.setdefault(result.label, {})[f"`{result.call}`"] = None
    rows = [[escape_markdown(method_title(label)), " or ".join(calls)] for label, calls in found.items()]
    table = grid(["method", "in Python"], rows, left=2)
    return f"## Settings\n\nAll other settings are defaults.\n\n{table}" if rows else ""


# The index.


def index_page(gathered: Gathered, figures: str, stored: int, commands: Commands) -> str:
    """The first page: how to read the tables, the methods in figures, and every experiment with its state."""
    everything = [result for _, results in gathered for result in results]
    begun = [pair for pair in gathered if any(any(_by_state(each)) for each in pair[1])]
    rows = []
    for plan, results in begun:
        counts = [sum(map(len, counts)) for counts in zip(*map(_by_state, results), strict=True)]
        counts += [sum(each.unrun for each in results if bool(each.missing) is flag) for flag in (True, False)]
        rows.append([f"[{_heading(plan.title)}]({quote(page_path(plan.name))})", *map(str, counts)])
    parts = [
        "# Results",
        _READING,
        _explanations(everything),
        f"One command makes these pages:\n\n```bash\n{commands.report}\n```",
        _provenance(everything, stored),
        "## Methods" if figures else "",
        figures,
        "The [summary](summary.md) has means over all cells, distances to Retrain and speed-ups.",
        "## Experiments",
        grid(["experiment", "done", "failed", "does not fit", "not here", "not run"], rows) if rows else "",
        "Runs are counted: one per method, scenario and seed." if rows else "None has been run.",
        _not_run([pair for pair in gathered if pair not in begun]),
    ]
    return _joined(parts)


def _not_run(gathered: Gathered) -> str:
    """The experiments without a single run."""
    lines = []
    for plan, results in gathered:
        why = "; ".join(dict.fromkeys(each.missing for each in results if each.missing))
        count = counted(sum(each.wanted for each in results), "run")
        reason = f"; {escape_markdown(why)}" if why else ""
        lines.append(f"- [{_heading(plan.title)}]({quote(page_path(plan.name))}): {count}{reason}")
    return "## Not run here\n\n" + "\n".join(lines) if lines else ""


def unnamed(rows: int) -> str:
    """What a report says if the rows of a store belong to other experiments."""
    return (
        f"The store has {counted(rows, 'row')}, but none of these experiments on this device; name the YAML file that they "
        "come from, or the --device that they were run on."
    )


def _provenance(results: Iterable[Result], stored: int) -> str:
    """In one line how many rows there are and what they were made with."""
    rows = list({id(row): row for result in results for row in result.rows.values()}.values())
    if not rows:
        return unnamed(stored) if stored else "The store has no rows yet."
    hardware = [row.get("hardware") or {} for row in rows]
    processes = max(each.get("jobs") or 1 for each in hardware)
    days = sorted(row["finished"][:10] for row in rows if row.get("finished"))
    parts = [counted(len(rows), "row")]
    parts += [f"up to {processes} processes at a time"] if processes > 1 else []
    for title, values in (
        ("on", [each.get("name") for each in hardware]),
        ("gnndelete", [row.get("version") for row in rows]),
        ("torch", [row.get("torch") for row in rows]),
        ("source", [source(row) for row in rows]),
    ):
        names = sorted({value for value in values if value})
        parts += [f"{title} {', '.join(names)}"] if names else []
    parts += [f"finished {' to '.join(dict.fromkeys((days[0], days[-1])))}"] if days else []
    return "; ".join(parts) + "."


# The summary of all experiments: means next to the paper's, distances to Retrain, and speed-ups.


@dataclass(frozen=True)
class PaperMean:
    """The means of one method over the cells of the paper's main tables, ours and the paper's."""

    label: str
    dataset: str
    cells: int
    ours: tuple[float, ...]
    theirs: tuple[float, ...]


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
    worst: str
    shared_cells: int = 0  # cells that all compared methods have
    shared: float | None = None  # by_seed over these; None where the method has too few of them


@dataclass(frozen=True)
class Speedup:
    """How many times faster than Retrain the slowest cell of a dataset is."""

    dataset: str
    kind: str
    ratio: float
    slowest: str
    cells: int


@dataclass(frozen=True)
class Summary:
    """What all experiments say together; a cell that two experiments share counts once."""

    means: tuple[PaperMean, ...]
    distances: tuple[Distance, ...]
    speedups: tuple[Speedup, ...]
    short: tuple[str, ...]  # experiments that do not count, since their models are trained too briefly

    def as_json(self) -> dict[str, Any]:
        """The numbers as plain values."""
        return {name: value for name, value in asdict(self).items() if name != "short"}


def summarize(gathered: Iterable[tuple[Plan, Sequence[Result]]]) -> Summary:
    """The summary of the experiments that count in it."""
    pairs = list(gathered)
    counting = [(plan, split_uncalibrated(results)) for plan, results in pairs if plan.summary]
    everything = unique(result for _, results in counting for result in results)
    main = unique(result for plan, results in counting if plan.published == MAIN for result in results)
    return Summary(
        tuple(_paper_means(main)),
        tuple(distances(everything)),
        tuple(_speedups([results for _, results in counting])),
        tuple(plan.name for plan, results in pairs if not plan.summary and any(each.rows for each in results)),
    )


def _paper_means(results: Sequence[Result]) -> list[PaperMean]:
    """Means by method and dataset; every setting of GNNDelete is compared with the paper's GNNDelete."""
    found: dict[tuple[str, str], list[tuple[list[float], list[float]]]] = {}
    for result in results:
        each, label = result.scenario, PAPER_LABEL if result.is_gnndelete else result.label
        cell = (each.dataset, each.model, each.where, each.amount)
        theirs = [known.value for score in SCORES if (known := published(MAIN, *cell, label, score))]
        ours = [stat.mean for score in SCORES if (stat := result.stat(score))]
        if len(theirs) == len(ours) == len(SCORES) and each.steps == 1:
            found.setdefault((result.label, each.dataset), []).append((ours, theirs))
    means = []
    for (label, dataset), pairs in found.items():
        ours_mean, theirs_mean = (tuple(map(mean, zip(*side, strict=True))) for side in zip(*pairs, strict=True))
        means.append(PaperMean(label, dataset, len(pairs), ours_mean, theirs_mean))
    return means


def distances(results: Sequence[Result]) -> list[Distance]:
    """The distance to Retrain of every method that has at least a quarter of the cells.

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
    """The distances in one score, each over all cells of the method and over those that the methods share."""
    most = max(map(len, every.values()), default=0)

    def counts(part: list[tuple[Result, list[float]]]) -> bool:
        return 4 * len(part) >= most or all(each.method.get("name") == RetrainAgain.name for each, _ in part)

    every = {label: part for label, part in every.items() if counts(part)}
    taken, shared = in_common({label: [each.scenario.identity for each, _ in part] for label, part in every.items()})
    found = []
    for label, part in every.items():
        means = [mean(values) for _, values in part]
        sizes = [mean(map(abs, values)) for _, values in part]
        worst = _title(part[sizes.index(max(sizes))][0])
        numbers = (mean(sizes), mean(map(abs, means)), mean(means))
        total = Distance(label, task, metric, len(part), *numbers, worst, len(shared))
        if label in taken:
            common = [size for size, (each, _) in zip(sizes, part, strict=True) if each.scenario.identity in shared]
            total = replace(total, shared=mean(common))
        found.append(total)
    return found


def _title(result: Result) -> str:
    scenario = result.scenario
    (model,) = model_titles([scenario.variant]).values()
    return f"{dataset_title(scenario.dataset)}, {model}, {scenario.request}"


def _speedups(experiments: Sequence[Sequence[Result]]) -> list[Speedup]:
    """The slowest cell of each dataset, of cells that measured their times with nothing else running."""
    found: dict[tuple[str, str], dict[str, tuple[float, Result]]] = {}
    for results in experiments:
        retrained = references(results)
        for result in results:
            reference = retrained.get(result.scenario.identity)
            solved = result.is_gnndelete and result.method.get("solver") != "gradient"
            if reference is None or not solved or any(map(is_fallback, result.rows.values())):
                continue
            aim = result.method.get("aim", "retrained")
            searched = "calibrated" + (f", aim {aim}" if aim != "retrained" else "")
            for name, kind in (("delete", "fixed lam"), ("calibrated", searched)):
                found_ratios = (_ratio(row, reference.rows.get(seed), name) for seed, row in result.rows.items())
                ratios = [ratio for ratio in found_ratios if ratio is not None]
                if ratios:
                    found.setdefault((result.scenario.dataset, kind), {})[result.identity] = (median(ratios), result)
    made = []
    for key, cells in sorted(found.items()):
        ratio, slowest = min(cells.values(), key=lambda pair: pair[0])
        made.append(Speedup(*key, ratio, f"{_title(slowest)}, {slowest.label}", len(cells)))
    return made


def _ratio(row: Row, other: Row | None, name: str) -> float | None:
    """The time of Retrain divided by that of a deletion, where both were measured on the same hardware."""
    spent = (row.get("seconds_of") or {}).get(name)
    whole = ((other or {}).get("seconds_of") or {}).get("retrain")
    return whole / spent if spent and whole and other and same_hardware(row, other) else None


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
    "Per dataset the slowest cell: Retrain's time divided by the deletion's on the same hardware, median over seeds. Nothing "
    "else ran while these times were measured."
)


def summary_page(summary: Summary) -> str:
    """The summary as Markdown."""
    short = ", ".join(f"`{name}`" for name in summary.short)
    parts = ["# Summary", _INTRODUCTION + (f" Models are trained too briefly to count in {short}." if short else "")]
    for title, text, table in (
        ("Means next to the paper's", _MEANS, means_table(summary.means)),
        ("Distance to Retrain", _DISTANCES, distance_tables(summary.distances)),
        ("Times faster than Retrain", _SPEEDUPS, speedup_table(summary.speedups)),
    ):
        parts += [f"## {title}", *([text, table] if table else ["Not run yet."])]
    return _joined(parts)


def means_table(means: Sequence[PaperMean]) -> str:
    """The means of all methods, ours, the paper's and the difference."""
    head = ["method", "dataset", "cells"]
    head += [f"{metric_title(score)}{what}" for score in SCORES for what in ("", ", paper", ", difference")]
    rows = []
    for each in means:
        pairs = zip(each.ours, each.theirs, strict=True)
        numbers = [text for a, b in pairs for text in (f"{a:.3f}", f"{b:.3f}", f"{a - b:+.3f}")]
        rows.append([escape_markdown(method_title(each.label)), dataset_title(each.dataset), str(each.cells), *numbers])
    return grid(head, rows, left=2) if rows else ""


def distance_tables(found: Sequence[Distance]) -> str:
    """One table per task and score, the nearest method first."""
    tables = []
    for task, metric in dict.fromkeys((each.task, each.metric) for each in found):
        group = [each for each in found if (each.task, each.metric) == (task, metric)]
        group.sort(key=lambda each: (inf if each.shared is None else each.shared, each.by_seed))
        shared = f"shared, {counted(group[0].shared_cells, 'cell')}"
        head = [f"{metric_title(metric)}, {task}", "cells", "by seed", "by cell", "signed", shared, "farthest cell"]
        rows = []
        for each in group:
            numbers = [f"{each.by_seed:.4f}", f"{each.by_cell:.4f}", f"{each.signed:+.4f}"]
            numbers.append("–" if each.shared is None else f"{each.shared:.4f}")
            rows.append([escape_markdown(method_title(each.label)), str(each.cells), *numbers, each.worst])
        tables.append(grid(head, rows))
    return "\n\n".join(tables)


def speedup_table(found: Sequence[Speedup]) -> str:
    rows = []
    for each in found:
        names = [dataset_title(each.dataset), each.kind, times(each.ratio), escape_markdown(each.slowest)]
        rows.append([*names, str(each.cells)])
    return grid(["dataset", "deletion", "times faster", "slowest cell", "cells"], rows, left=2) if rows else ""
