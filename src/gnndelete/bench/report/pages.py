"""Pages of a report: one per experiment, the index, and the files on disk."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gnndelete.bench.cells import unusual_options
from gnndelete.bench.names import (
    EXPLANATIONS,
    counted,
    dataset_title,
    listed,
    method_title,
    model_titles,
    seconds,
    times,
)
from gnndelete.bench.report.figures import TIMES, Figure, Format, experiment_figures, method_figures
from gnndelete.bench.report.results import Plan, Result, gather, provenance, timings
from gnndelete.bench.report.summary import summarize, summary_page
from gnndelete.bench.report.tables import (
    Section,
    escape_markdown,
    grid,
    latex_page,
    markdown,
    sections,
    tidy_csv,
    unrun_methods,
)
from gnndelete.errors import SettingError, some
from gnndelete.io.files import commit, tidy
from gnndelete.io.store import Store

#: The file that holds the numbers of the summary and the names of all files of a report.
MANIFEST = "summary.json"

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

#: What a list of provenance says, and under which name it is found.
_PROVENANCE = {"hardware": "on", "version": "gnndelete", "torch": "torch", "source": "source"}


@dataclass(frozen=True)
class Commands:
    """The command lines that make the results and the report."""

    store: str
    out: str
    device: str
    names: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def run(self, plan: Plan) -> str:
        """Return the command that runs what is missing of an experiment."""
        seeds = len({cell.key["seed"] for cell in plan.cells})
        name = plan.source or plan.name
        parts = [name, "--seeds", str(seeds), "--device", self.device, "--store", self.store]
        return shlex.join(["gnndelete", "bench", "run", *parts])

    @property
    def report(self) -> str:
        """The command that makes the report."""
        parts = [*self.names, "--device", self.device, "--store", self.store, "--out", self.out, *self.options]
        return shlex.join(["gnndelete", "bench", "report", *parts])


def build(plans: Sequence[Plan], store: Store, commands: Commands, form: Format = "svg") -> dict[str, bytes]:
    """Return every file of a report by its path; the same store gives the same bytes.

    Args:
        plans: The experiments, as `gnndelete.bench.report.results.plans` gives them.
        store: The finished cells.
        commands: The command lines that the pages show.
        form: The file format of figures.

    Returns:
        Markdown pages, CSV and LaTeX tables, figures, and ``summary.json``.
    """
    gathered = [(plan, gather(plan, store)) for plan in plans]
    everything = [result for _, results in gathered for result in results]
    summary = summarize(gathered)
    overall = method_figures(everything, form)
    made = {f"figures/{figure.name}.{form}": figure.content for figure in overall}
    for plan, results in gathered:
        figures = experiment_figures(plan, results, form)
        made |= {f"figures/{figure.name}.{form}": figure.content for figure in figures}
        made[page_path(plan.name)] = experiment_page(plan, results, _links(figures, form, "../"), commands).encode()
        made[f"tables/{plan.file_name}.csv"] = tidy_csv(plan, results).encode()
        made[f"tables/{plan.file_name}.tex"] = latex_page(plan, results).encode()
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
    earlier = _earlier_files(folder)
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


def _earlier_files(folder: Path) -> set[str]:
    """Return the files that the last report in a folder has written."""
    try:
        return set(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def page_path(name: str) -> str:
    """Return the path of an experiment's page.

    >>> page_path("paper/link-dblp"), page_path("mine")
    ('paper/link-dblp.md', 'own/mine.md')
    """
    return f"{name if '/' in name else f'own/{name}'}.md"


def _heading(text: str) -> str:
    return escape_markdown(" ".join(text.split()))


def _links(figures: Sequence[Figure], form: Format, folder: str = "") -> str:
    """Return Markdown that shows figures with their captions."""
    parts = []
    for each in figures:
        parts.append(f"![{escape_markdown(each.alt)}]({folder}figures/{quote(each.name)}.{form})")
        parts += [escape_markdown(each.caption)] if each.caption else []
    return "\n\n".join(parts)


def experiment_page(plan: Plan, results: Sequence[Result], figures: str, commands: Commands) -> str:
    """Return the page of one experiment: its command, figures, tables and settings."""
    table = f"../tables/{quote(plan.file_name)}"
    unrun = unrun_methods(results) if any(result.rows or result.errors for result in results) else []
    parts = [
        f"# {_heading(plan.title)}",
        plan.about.strip(),
        f"{_counted(results)} Also as [CSV]({table}.csv) and [LaTeX]({table}.tex).",
        _unusual_models(plan),
        _explanations(results),
        f"Not run here: {escape_markdown(listed(unrun))}." if unrun else "",
        f"```bash\n{commands.run(plan)}\n```",
        figures,
        _times(results),
    ]
    for section in sections(plan, results):
        parts += _section(section)
    parts.append(_settings([result for result in results if result.rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {_heading(section.title)}"]
    if section.scores.lines and section.scores.columns:
        parts.append(markdown(section.scores))
    if not section.costs.empty:
        parts += ["Gap to Retrain, seed by seed, and cost:", markdown(section.costs)]
    return [*parts, "\n".join(f"- {escape_markdown(text)}" for text in section.remarks)]


def _counted(results: Sequence[Result]) -> str:
    wanted, done = sum(each.wanted for each in results), sum(len(each.rows) for each in results)
    failed, unfit = sum(len(each.errors) for each in results), sum(len(each.unfit) for each in results)
    parts = [f"{done} of {wanted} runs done"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{unfit} to which a method does not apply"] if unfit else []
    return ", ".join(parts) + "."


def _unusual_models(plan: Plan) -> str:
    """Return the options of models that are not their defaults."""
    found: dict[str, None] = {}
    for cell in plan.cells:
        options = unusual_options(cell.key["model"], str(cell.key.get("task")))
        if options:
            (title,) = model_titles([json.dumps(cell.key["model"])]).values()
            found[f"{title} ({escape_markdown(options)})"] = None
    return f"Options of models that are not defaults: {listed(found)}." if found else ""


def _explanations(results: Sequence[Result]) -> str:
    names = {name for result in results for row in result.rows.values() for name in row.get("scores") or {}}
    return " ".join(text for name, text in EXPLANATIONS.items() if name in names)


def _times(results: Sequence[Result]) -> str:
    """Return a table of times, and how a deletion compares with a forward pass and with Retrain."""
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
    """Return every label with its call in Python, where that is more than the method's name."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        if not result.call.endswith("()") or result.is_gnndelete:
            found.setdefault(result.label, {})[result.call] = None
    if not found:
        return ""
    rows = [
        [escape_markdown(method_title(label)), " or ".join(f"`{call}`" for call in calls)]
        for label, calls in found.items()
    ]
    return f"## Settings\n\nAll other settings are defaults.\n\n{grid(['method', 'in Python'], rows, left=2)}"


def index_page(gathered: Sequence[tuple[Plan, Sequence[Result]]], figures: str, stored: int, commands: Commands) -> str:
    """Return the first page: how to read the tables, the methods in figures, and every experiment with its state."""
    everything = [result for _, results in gathered for result in results]
    begun = [pair for pair in gathered if any(each.rows or each.errors or each.unfit for each in pair[1])]
    rows = [[f"[{_heading(plan.title)}]({quote(page_path(plan.name))})", *_states(results)] for plan, results in begun]
    parts = [
        "# Results",
        _READING,
        _explanations(everything),
        f"One command makes these pages:\n\n```bash\n{commands.report}\n```",
        _provenance(provenance(everything), stored),
        "## Methods" if figures else "",
        figures,
        "The [summary](summary.md) has means over all cells, distances to Retrain and speed-ups.",
        "## Experiments",
        grid(["experiment", "done", "failed", "does not fit", "not here", "not run"], rows) if rows else "",
        "Runs are counted: one per method, scenario and seed." if rows else "None has been run.",
        _not_run([pair for pair in gathered if pair not in begun]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _states(results: Sequence[Result]) -> list[str]:
    done, failed = sum(len(each.rows) for each in results), sum(len(each.errors) for each in results)
    unfit = sum(len(each.unfit) for each in results)
    absent, rest = (sum(each.unrun for each in results if bool(each.missing) is flag) for flag in (True, False))
    return [str(count) for count in (done, failed, unfit, absent, rest)]


def _not_run(gathered: Sequence[tuple[Plan, Sequence[Result]]]) -> str:
    """Return the experiments without a single run."""
    if not gathered:
        return ""
    lines = []
    for plan, results in gathered:
        why = "; ".join(dict.fromkeys(each.missing for each in results if each.missing))
        count = counted(sum(each.wanted for each in results), "run")
        reason = f"; {escape_markdown(why)}" if why else ""
        lines.append(f"- [{_heading(plan.title)}]({quote(page_path(plan.name))}): {count}{reason}")
    return "## Not run here\n\n" + "\n".join(lines)


def unnamed(rows: int) -> str:
    """Return what a report says if the rows of a store belong to other experiments."""
    return (
        f"The store has {counted(rows, 'row')}, but none of these experiments on this device; name the YAML file that they "
        "come from, or the --device that they were run on."
    )


def _provenance(values: Mapping[str, Any], stored: int) -> str:
    """Return in one line how many rows there are and what they were made with."""
    if not values["rows"]:
        return unnamed(stored) if stored else "The store has no rows yet."
    parts = [counted(values["rows"], "row")]
    parts += [f"up to {values['processes']} processes at a time"] if values["processes"] > 1 else []
    parts += [f"{title} {', '.join(values[name])}" for name, title in _PROVENANCE.items() if values[name]]
    parts += [f"finished {' to '.join(dict.fromkeys(values['days']))}"] if values["days"] else []
    return "; ".join(parts) + "."
