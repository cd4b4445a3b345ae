"""``gnndelete bench``: the experiments that come with the package, listed, run and reported."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.bench_report import report
from gnndelete.cli.options import Verb, Verbs
from gnndelete.cli.output import Report, note, prose
from gnndelete.errors import RunError

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.bench.experiment import Experiment
    from gnndelete.bench.runner import Summary

_HOW, _WHAT = "How", "What"


class Interrupted(RunError):  # noqa: N818 (the kind of every command that was stopped)
    """A run that was stopped: like every command that was, and with what becomes of its cells."""

    exit_code = 130


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...", help="Experiments (paper/link-dblp), groups (paper) or YAML files of your own."
    ),
]
StoreFile = Annotated[
    Path, typer.Option("--store", metavar="FILE", help="JSON-lines file of finished cells.", rich_help_panel=_WHAT)
]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="The first so many seeds; all of them by default.", rich_help_panel=_WHAT)
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=_HOW)]
_STORE = Path("bench/results.jsonl")


def ls(
    name: Names = None,
    store: StoreFile = _STORE,
    seeds: Seeds = None,
    device: Annotated[
        str | None,
        typer.Option(help="auto, cpu or cuda; by default the one that most rows come from.", rich_help_panel=_HOW),
    ] = None,
    json: options.Json = False,
) -> Report:
    """List the experiments: how many cells they have, how many are done, and what the rest would cost."""
    from gnndelete.bench.experiment import find
    from gnndelete.bench.listing import listing

    kind = _listed_device(device, store)
    experiments = find(name or [])
    _say_seeds(experiments, seeds)
    entries = listing(experiments, store, kind, seeds)
    values = {"store": str(store), "device": kind, "experiments": entries}
    return Report(values, lambda console: _show_list(console, entries, store, kind))


def run(
    name: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Experiments (paper/link-dblp), groups (paper) or YAML files of your own."
        ),
    ],
    seeds: Seeds = None,
    only: Annotated[
        str | None, typer.Option(help="Labels of methods with commas between.", rich_help_panel=_WHAT)
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only these, with commas between.", rich_help_panel=_WHAT)] = None,
    model: Annotated[str | None, typer.Option(help="Only these, with commas between.", rich_help_panel=_WHAT)] = None,
    amount: Annotated[str | None, typer.Option(help="Only these, with commas between.", rich_help_panel=_WHAT)] = None,
    store: StoreFile = _STORE,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also do again what failed.", rich_help_panel=_WHAT)
    ] = False,
    device: Device = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.", rich_help_panel=_HOW)] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Ray cluster; 'local' starts one here.", rich_help_panel=_HOW),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option("--models", metavar="FOLDER", help="Trained models; beside the store.", rich_help_panel=_HOW),
    ] = None,
    limit_seconds: Annotated[
        float | None, typer.Option(min=0, help="Start nothing new after so long.", rich_help_panel=_HOW)
    ] = None,
    json: options.Json = False,
) -> Report:
    """Run what is missing of some experiments; finished cells are kept, and a stopped run goes on.

    [bold]gnndelete bench run paper/link-dblp --seeds 5 --device cuda --jobs 4[/]

    Trained models are kept beside the store and shared by all cells that start from them. Exit code 1: a cell failed.
    """
    from gnndelete.bench.experiment import find

    amounts = [_number(text) for text in _list(amount, "--amount")]
    parts, datasets, networks = _list(only, "--only"), _list(dataset, "--dataset"), _list(model, "--model")
    experiments = find(name)
    labels = _joined(parts, {method.title for experiment in experiments for method in experiment.methods})
    from gnndelete.bench.runner import Choice  # takes seconds: a mistake in a file is told before
    from gnndelete.bench.runner import run as work

    choice = Choice(labels, datasets, networks, amounts)
    _say_seeds(experiments, seeds)
    try:
        summary = work(
            experiments,
            store=store,
            device=_device(device),
            seeds=seeds,
            jobs=jobs,
            ray=ray,
            choice=choice,
            limit_seconds=limit_seconds,
            retry_failed=retry_failed,
            models=models,
        )
    except KeyboardInterrupt:
        raise Interrupted("stopped: finished cells are kept, and the same command goes on with the rest") from None
    tables = shlex.join(["gnndelete", "bench", "report", *name, *(["--store", str(store)] if store != _STORE else [])])
    return Report(
        summary.to_dict(), lambda console: _show_run(console, summary, tables), exit_code=int(summary.failed > 0)
    )


def _list(text: str | None, option: str) -> list[str]:
    from gnndelete.errors import SettingError

    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not parts:
        raise SettingError(f"'{option}' names nothing (got '{text}'); leave it out to take everything")
    return parts


def _joined(parts: list[str], known: set[str]) -> list[str]:
    """Names between commas; where one has a comma in it, its parts together.

    >>> _joined(["unlink", "lam 0.5", "all"], {"unlink", "lam 0.5, all"})
    ['unlink', 'lam 0.5, all']
    """
    found, start = [], 0
    while start < len(parts):
        ends = [end for end in range(len(parts), start, -1) if ", ".join(parts[start:end]) in known]
        end = ends[0] if ends else start + 1
        found.append(", ".join(parts[start:end]))
        start = end
    return found


def _say_seeds(experiments: Sequence[Experiment], seeds: int | None) -> None:
    """Asked for more seeds than there are, all are taken, and that is said."""
    most = max((len(experiment.seeds) for experiment in experiments), default=0)
    if seeds is not None and seeds > most:
        note(f"--seeds {seeds}: there are {most} at most; more have to be named in a file of your own.")


def _number(text: str) -> float:
    from gnndelete.errors import SettingError

    try:
        return float(text)
    except ValueError:
        raise SettingError(f"'--amount' takes shares such as 0.025, or numbers (got '{text}')") from None


def _device(name: str) -> str:
    from gnndelete.cli.construct import find_device

    return str(find_device(name, "--device"))


def _listed_device(name: str | None, store: Path) -> str:
    """The kind of device whose cells are listed, which need not be here: by default the one most rows come from."""
    from gnndelete.bench.report.results import usual_device
    from gnndelete.bench.results_file import open_store
    from gnndelete.errors import SettingError

    if name in ("cpu", "cuda"):
        return name
    if name not in (None, "auto"):
        raise SettingError(f"'--device' must be auto, cpu or cuda (got '{name}')")
    rows = open_store(store)
    return usual_device(rows) if name is None and len(rows) else _device("auto").partition(":")[0]


def _show_run(console: Console, summary: Summary, tables: str) -> None:
    from gnndelete.bench.words import counted

    before, now = summary.failed_before, summary.failed - summary.failed_before
    unfit = summary.unfit - summary.unfit_before
    if summary.already == summary.cells:
        there = "The cell is" if summary.cells == 1 else f"All {summary.cells:,} cells are"
        which = "it" if summary.cells == 1 else f"{before:,} of them"
        again = f"{which} failed; --retry-failed does {'it' if before == 1 else 'them'} again"
        rest = again if before else "there is nothing to do"
        lines = [f"{there} in {summary.store} already; {rest}."]
    else:
        lines = [
            f"{counted(summary.done, 'cell')} done, {now} failed, {unfit} to which a method does not apply, "
            f"{summary.already} there already{f' ({before} of them failed)' if before else ''}, in {summary.seconds:.0f} s "
            f"({counted(summary.models, 'model')} trained)."
        ]
        if summary.done + now + unfit:
            lines.append(f"Written to {summary.store}; tables and figures: {tables}")
    if summary.left:
        left = "1 cell is left; the same command does it" if summary.left == 1 else ""
        lines.append(f"Time was up: {left or f'{summary.left:,} cells are left; the same command goes on with them'}.")
    lines += [f"Left out: dataset '{dataset}' {reason}." for dataset, reason in summary.skipped.items()]
    for failure in summary.failures[:10]:
        lines.append(f"failed: {failure['cell']}: {failure['error']}")
        lines += [f"  at {place}" for place in failure.get("where", ())]
    if len(summary.failures) > 10:
        lines.append(f"… and {len(summary.failures) - 10} more.")
    if summary.failures and summary.already != summary.cells:
        lines.append("--retry-failed does again what failed.")
    if summary.other_sources:
        total, names = sum(summary.other_sources.values()), ", ".join(summary.other_sources)
        comes = "comes" if total == 1 else "come"
        lines.append(f"{counted(total, 'row')} {comes} from source {names}; this is {summary.source}.")
    prose(console, lines)


def _show_list(console: Console, entries: list[dict[str, Any]], store: Path, device: str) -> None:
    from rich import box
    from rich.table import Table

    table, wide = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False), console.width >= 120
    for title in ("name", *(("title",) if wide else ())):
        table.add_column(title, no_wrap=title == "name")
    counts = ("cells", "done", "failed", *(("unfit",) if any(entry["unfit"] for entry in entries) else ()), "missing")
    for title in (*counts, "would take" if wide else "takes"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in entries:
        numbers = [f"{entry[title]:,}" for title in counts]
        none = "needs data" if wide else "no data"
        cost = none if entry["not_here"] == entry["missing"] > 0 else entry["cost"]
        table.add_row(entry["name"], *((entry["title"],) if wide else ()), *numbers, cost)
    console.print(table)
    has = f"Done on {device}, as {store} has it." if store.exists() else f"There is no {store} yet (cells on {device})."
    if "unfit" in counts:
        has += " Unfit: the method does not apply."
    absent = [
        f"{entry['not_here']:,} missing cells of {entry['name']} need data that may not be here: {reason}."
        for entry in entries
        if entry["not_here"]
        for reason in ["; ".join(entry["absent"].values())]
    ]
    lines = [f"{has} Times are those of one process, by finished cells of the same kind.", *absent]
    if any(entry["cost"] == "unknown" for entry in entries):
        lines.append(
            "Unknown: no such cell is in the store. One seed first (bench run NAME --seeds 1) tells what the rest would take, "
            "and so does --store with a store of earlier runs."
        )
    prose(console, lines)


_VERBS: dict[str, Callable[..., Report]] = {"ls": ls, "run": run, "report": report}


def group(**looks: Any) -> typer.Typer:
    """The verbs of ``gnndelete bench``."""
    made = typer.Typer(help="The paper's experiments, and ours: list them, run them, report them.", cls=Verbs, **looks)
    for verb, function in _VERBS.items():
        made.command(verb, cls=Verb)(function)
    return made
