"""``gnndelete bench``: list, run and report experiments."""

from __future__ import annotations

import shlex
from enum import StrEnum
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.options import Verb, Verbs
from gnndelete.cli.output import Report, note, prose
from gnndelete.errors import RunError, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gnndelete.bench.experiment import Experiment
    from gnndelete.bench.runner import Summary

_HOW, _WHAT = "How", "What"
_NAMES = "Experiments (paper/link-dblp), groups (paper) or your YAML files"
_STORE = Path("bench/results.jsonl")


class Interrupted(RunError):  # noqa: N818 (the kind of every command that was stopped)
    """A run that was stopped, with what becomes of its cells."""

    exit_code = 130


class Figures(StrEnum):
    """The file format of figures."""

    SVG = "svg"
    PNG = "png"


def _what(*flags: str, **settings: Any) -> Any:
    return typer.Option(*flags, rich_help_panel=_WHAT, **settings)


def _how(*flags: str, **settings: Any) -> Any:
    return typer.Option(*flags, rich_help_panel=_HOW, **settings)


Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help=f"{_NAMES}; all by default.")]
StoreFile = Annotated[Path, _what("--store", metavar="FILE", help="JSON-lines file of finished cells.")]
Seeds = Annotated[int | None, _what(min=1, help="Use the first N seeds; all by default.")]
CommaList = Annotated[str | None, _what(help="Only these, separated by commas.")]
ListedDevice = Annotated[str | None, _how(help="auto, cpu or cuda; by default the device of most rows.")]


def ls(
    name: Names = None,
    store: StoreFile = _STORE,
    seeds: Seeds = None,
    device: ListedDevice = None,
    json: options.Json = False,
) -> Report:
    """List the experiments: how many cells they have, how many are done, and how long the rest would take."""
    from gnndelete.bench.experiment import find
    from gnndelete.bench.runner import listing

    kind = _listed_device(device, store)
    experiments = find(name or [])
    _warn_of_seeds(experiments, seeds)
    entries = listing(experiments, store, kind, seeds)
    values = {"store": str(store), "device": kind, "experiments": entries}
    return Report(values, lambda console: _show_list(console, entries, store, kind))


def run(
    name: Annotated[list[str], typer.Argument(metavar="NAME...", help=f"{_NAMES}.")],
    seeds: Seeds = None,
    only: Annotated[str | None, _what(help="Labels of methods, separated by commas.")] = None,
    dataset: CommaList = None,
    model: CommaList = None,
    amount: CommaList = None,
    store: StoreFile = _STORE,
    retry_failed: Annotated[bool, _what("--retry-failed", help="Also run failed cells again.")] = False,
    device: Annotated[str, _how(help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int, _how(min=1, help="Processes at a time.")] = 1,
    ray: Annotated[str | None, _how(metavar="ADDRESS", help="A Ray cluster; 'local' starts one here.")] = None,
    models: Annotated[
        Path | None, _how("--models", metavar="FOLDER", help="Trained models; by default next to the store.")
    ] = None,
    limit_seconds: Annotated[float | None, _how(min=0, help="Start nothing new after so many seconds.")] = None,
    json: options.Json = False,
) -> Report:
    """Run the missing cells of experiments; finished cells are stored, and the same command resumes a stopped run.

    [bold]gnndelete bench run paper/link-dblp --seeds 5 --device cuda --jobs 4[/]

    Trained models are stored, too, and shared by all cells that start from them. Exit code 1: a cell failed.
    """
    from gnndelete.bench.experiment import find

    labels, datasets, networks = _parts(only, "--only"), _parts(dataset, "--dataset"), _parts(model, "--model")
    sizes = _parts(amount, "--amount")
    try:
        amounts = [float(text) for text in sizes]
    except ValueError:
        raise SettingError(f"'--amount' takes shares such as 0.025, or numbers (got '{amount}')") from None
    experiments = find(name)
    _warn_of_seeds(experiments, seeds)
    from gnndelete.bench.runner import Choice  # takes seconds: a mistake in a file is reported before
    from gnndelete.bench.runner import run as run_cells
    from gnndelete.training.loop import find_device

    try:
        summary = run_cells(
            experiments,
            store=store,
            device=str(find_device(device, "--device")),
            seeds=seeds,
            jobs=jobs,
            ray=ray,
            choice=Choice(labels, datasets, networks, amounts),
            limit_seconds=limit_seconds,
            retry_failed=retry_failed,
            models=models,
        )
    except KeyboardInterrupt:
        raise Interrupted("stopped: finished cells are stored", "the same command goes on with the rest") from None
    tables = shlex.join(["gnndelete", "bench", "report", *name, *(["--store", str(store)] if store != _STORE else [])])
    return Report(
        summary.to_dict(), lambda console: prose(console, _run_lines(summary, tables)), int(summary.failed > 0)
    )


def report(
    name: Names = None,
    store: StoreFile = _STORE,
    out: Annotated[Path, _what(metavar="FOLDER", help="Folder for pages, tables and figures.")] = Path("bench/report"),
    device: Annotated[str | None, _how(help="cpu or cuda; by default the device of most rows.")] = None,
    seeds: Seeds = None,
    figures: Annotated[Figures, _how(help="File format of the figures.")] = Figures.SVG,
    json: options.Json = False,
) -> Report:
    """Write tables (Markdown, CSV, LaTeX), figures and a summary, with the paper's number next to ours.

    [bold]gnndelete bench report --store docs/results/results.jsonl --out docs/results[/]

    Nothing is run. Missing numbers are shown as missing, with the reason; the same store gives the same files.
    """
    from gnndelete.bench.names import counted, listed
    from gnndelete.bench.report.pages import MANIFEST, Commands, build, unnamed, write
    from gnndelete.bench.report.results import devices, plans, usual_device
    from gnndelete.bench.results_file import broken, open_store
    from gnndelete.io.files import require_writable

    if not store.exists():
        raise SettingError(f"there is no store '{store}'; give it with --store, or make it with 'gnndelete bench run'")
    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    require_writable(out)
    rows = open_store(store)
    if device and not devices(rows)[device]:
        raise SettingError(
            f"the store '{store}' has no row of --device {device}: {counted(len(rows), 'row')}, of "
            f"{listed(sorted(devices(rows)))}; leave --device out, or give another --store"
        )
    kind = device or usual_device(rows)
    wanted = plans(name or [], kind, seeds)
    given = [*(["--seeds", str(seeds)] if seeds else []), *(["--figures", "png"] if figures is Figures.PNG else [])]
    commands = Commands(store.as_posix(), out.as_posix(), kind, tuple(name or ()), tuple(given))
    made = build(wanted, rows, commands, figures.value)
    write(out, made)
    cells = [cell for plan in wanted for cell in plan.cells]
    flaws = broken(cells, rows)
    unknown = unnamed(len(rows)) if len(rows) and not any(rows.get(cell.key) for cell in cells) else None
    values = {"out": str(out), "store": str(store), "device": kind, **loads(made[MANIFEST])}
    lines = [f"Not counted: {each['cell']}: {each['error']}." for each in flaws[:10]]
    lines += [f"… and {len(flaws) - 10} more."] if len(flaws) > 10 else []
    lines += [unknown] if unknown else []
    lines.append(f"{counted(len(wanted), 'experiment')} written to {out}; begin with {out / 'index.md'}.")
    return Report({**values, "broken": flaws, "note": unknown}, lambda console: prose(console, lines))


def _parts(text: str | None, option: str) -> list[str]:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not parts:
        raise SettingError(f"'{option}' names nothing (got '{text}')", "leave it out to take everything")
    return parts


def _warn_of_seeds(experiments: Sequence[Experiment], seeds: int | None) -> None:
    """Say so if there are fewer seeds than asked for; all of them are used then."""
    most = max((len(experiment.seeds) for experiment in experiments), default=0)
    if seeds is not None and seeds > most:
        note(f"--seeds {seeds}: there are {most} at most; a YAML file can name more.")


def _listed_device(name: str | None, store: Path) -> str:
    """The kind of device whose cells are listed, which this machine need not have; by default that of most rows."""
    from gnndelete.bench.report.results import usual_device
    from gnndelete.bench.results_file import open_store
    from gnndelete.training.loop import find_device

    if name in ("cpu", "cuda"):
        return name
    rows = open_store(store)
    return usual_device(rows) if name is None and len(rows) else find_device(name or "auto", "--device").type


def _run_lines(summary: Summary, tables: str) -> list[str]:
    """What a run did, line by line."""
    from gnndelete.bench.names import counted

    before, failed = summary.failed_before, summary.failed - summary.failed_before
    unfit = summary.unfit - summary.unfit_before
    if summary.already == summary.cells:
        rest = f"{before:,} of them failed; --retry-failed runs them again" if before else "there is nothing to do"
        lines = [f"{counted(summary.cells, 'cell')} in {summary.store} already; {rest}."]
    else:
        lines = [
            f"{counted(summary.done, 'cell')} done, {failed} failed, {unfit} to which a method does not apply, "
            f"{summary.already} there already{f' ({before} of them failed)' if before else ''}, in {summary.seconds:.0f} s "
            f"({counted(summary.models, 'model')} trained)."
        ]
        if summary.done + failed + unfit:
            lines.append(f"Written to {summary.store}; tables and figures: {tables}")
    if summary.left:
        lines.append(f"Time was up: {counted(summary.left, 'cell')} left; the same command goes on.")
    lines += [f"Left out: {reason}." for reason in summary.skipped.values()]
    for failure in summary.failures[:10]:
        lines += [f"failed: {failure['cell']}: {failure['error']}", *(f"  at {at}" for at in failure.get("where", ()))]
    if len(summary.failures) > 10:
        lines.append(f"… and {len(summary.failures) - 10} more.")
    if summary.failures and summary.already != summary.cells:
        lines.append("--retry-failed runs failed cells again.")
    if summary.other_sources:
        total, names = sum(summary.other_sources.values()), ", ".join(summary.other_sources)
        lines.append(f"{counted(total, 'row')} from source {names}; this is {summary.source}.")
    return lines


def _show_list(console: Console, entries: list[dict[str, Any]], store: Path, device: str) -> None:
    from rich import box
    from rich.table import Table

    unfit = any(entry["unfit"] for entry in entries)
    counts = ["cells", "done", "failed", *(["unfit"] if unfit else []), "missing"]
    table = Table("name", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for title in (*counts, "takes"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in entries:
        cost = "no data" if entry["not_here"] == entry["missing"] > 0 else entry["cost"]
        table.add_row(entry["name"], *(f"{entry[count]:,}" for count in counts), cost)
    console.print(table)
    state = f"Done on {device}, according to {store}." if store.exists() else f"There is no {store} yet ({device})."
    lines = [f"{state} Times are those of one process, by finished cells of the same kind."]
    lines += ["Unfit: the method does not apply."] if unfit else []
    lines += [
        f"{entry['not_here']:,} missing cells of {entry['name']} need data that may not be here: "
        f"{', '.join(entry['absent'].values())}."
        for entry in entries
        if entry["not_here"]
    ]
    if any(entry["cost"] == "unknown" for entry in entries):
        lines.append("Unknown: the store has no such cell. Run one seed first (bench run NAME --seeds 1).")
    prose(console, lines)


def group(**looks: Any) -> typer.Typer:
    """The verbs of ``gnndelete bench``."""
    made = typer.Typer(help="List, run and report experiments: the paper's, ours and your own.", cls=Verbs, **looks)
    for verb in (ls, run, report):
        made.command(verb.__name__, cls=Verb)(verb)
    return made
