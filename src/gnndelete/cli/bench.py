"""``gnndelete bench``: the experiments that come with the package, listed, run and reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.bench_report import report
from gnndelete.cli.report import Report, prose

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.bench.runner import Summary

_HOW, _WHAT = "How", "What"

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
    device: Device = "auto",
    json: options.Json = False,
) -> Report:
    """List the experiments: how many cells they have, how many are done, and what the rest would cost."""
    from gnndelete.bench.experiment import find
    from gnndelete.bench.listing import listing

    entries = listing(find(name or []), store, _device(device), seeds)
    return Report({"store": str(store), "experiments": entries}, lambda console: _show_list(console, entries, store))


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
    from gnndelete.bench.runner import Choice
    from gnndelete.bench.runner import run as work

    choice = Choice(_list(only), _list(dataset), _list(model), [_number(text) for text in _list(amount)])
    summary = work(
        find(name),
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
    return Report(summary.to_dict(), lambda console: _show_run(console, summary), exit_code=int(summary.failed > 0))


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _number(text: str) -> float:
    from gnndelete.errors import SettingError

    try:
        return float(text)
    except ValueError:
        raise SettingError(f"'--amount' takes shares such as 0.025, or numbers (got '{text}')") from None


def _device(name: str) -> str:
    from gnndelete.cli.settings import Settings, TrainSettings
    from gnndelete.cli.setup import device

    return str(device(Settings(train=TrainSettings(device=name))))


def _show_run(console: Console, summary: Summary) -> None:
    if summary.already == summary.cells:
        lines = [f"All {summary.cells} cells are in {summary.store} already; there is nothing to do."]
    else:
        lines = [
            f"{summary.done} cells done, {summary.failed} failed, {summary.unfit} to which a method does not apply, "
            f"{summary.already} were there already, in {summary.seconds:.0f} s ({summary.models} models trained). "
            f"Written to {summary.store}."
        ]
    if summary.left:
        lines.append(f"Time was up: {summary.left} cells are left. The same command goes on with them.")
    lines += [f"Left out: dataset '{dataset}': {reason}." for dataset, reason in summary.skipped.items()]
    lines += [f"failed: {failure['cell']}: {failure['error']}" for failure in summary.failures[:10]]
    if len(summary.failures) > 10:
        lines.append(f"… and {len(summary.failures) - 10} more; --retry-failed does them again.")
    prose(console, lines)


def _show_list(console: Console, entries: list[dict[str, Any]], store: Path) -> None:
    from rich import box
    from rich.table import Table

    table, wide = Table(box=box.SIMPLE_HEAD), console.width >= 120
    for title in ("name", *(("title",) if wide else ())):
        table.add_column(title, no_wrap=title == "name")
    for title in ("cells", "done", "failed", "missing", "would take"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in entries:
        numbers = [f"{entry[title]:,}" for title in ("cells", "done", "failed", "missing")]
        table.add_row(entry["name"], *((entry["title"],) if wide else ()), *numbers, entry["cost"])
    console.print(table)
    prose(console, [f"Done as {store} has it. Times are those of one process, by finished cells of the same kind."])


_VERBS: dict[str, Callable[..., Report]] = {"ls": ls, "run": run, "report": report}


def group(**looks: Any) -> typer.Typer:
    """The verbs of ``gnndelete bench``."""
    made = typer.Typer(help="The paper's experiments, and ours: list them, run them, report them.", **looks)
    for verb, function in _VERBS.items():
        made.command(verb)(function)
    return made
