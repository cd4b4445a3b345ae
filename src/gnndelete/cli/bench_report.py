"""``gnndelete bench report``: tables, figures and a summary of what a store of finished cells holds."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, prose

if TYPE_CHECKING:
    from rich.console import Console

_WHAT, _HOW = "What", "How"


class Figures(StrEnum):
    """The form of figures."""

    SVG = "svg"
    PNG = "png"


def report(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Experiments, groups or YAML files of your own; all by default."),
    ] = None,
    store: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON-lines file of finished cells.", rich_help_panel=_WHAT)
    ] = Path("bench/results.jsonl"),
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for pages, tables and figures.", rich_help_panel=_WHAT)
    ] = Path("bench/report"),
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda; by default the one that most rows come from.", rich_help_panel=_HOW),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="The first so many seeds; all of them by default.", rich_help_panel=_HOW)
    ] = None,
    best: Annotated[
        str, typer.Option(metavar="LABEL", help="The setting held against the paper.", rich_help_panel=_HOW)
    ] = "nonexistent",
    figures: Annotated[Figures, typer.Option(help="Form of the figures.", rich_help_panel=_HOW)] = Figures.SVG,
    json: options.Json = False,
) -> Report:
    """Write tables (Markdown, CSV, LaTeX), figures and a summary, with the paper's number beside ours in every cell.

    [bold]gnndelete bench report --store docs/results/results.jsonl --out docs/results[/]

    Nothing is run. What is missing is shown as missing with the reason; the same store gives the same files.
    """
    from gnndelete.bench.acceptance import BEST
    from gnndelete.bench.pages import Commands, unnamed
    from gnndelete.bench.plans import plans
    from gnndelete.bench.report import build, devices, usual_device, write
    from gnndelete.bench.rows import broken, open_store
    from gnndelete.bench.summary import headline
    from gnndelete.bench.wording import listed, many
    from gnndelete.errors import SettingError, unknown
    from gnndelete.io.files import writable

    if not store.exists():
        raise SettingError(
            f"there is no store '{store}'; give its file with --store, or make it with 'gnndelete bench run'"
        )
    if device not in (None, "cpu", "cuda"):
        raise SettingError(f"'device' must be cpu or cuda (got '{device}')")
    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    writable(out)
    rows = open_store(store)
    if device and len(rows) and not devices(rows)[device]:
        raise SettingError(
            f"the store '{store}' has no row of --device {device}: {many(len(rows), 'row')}, of {listed(sorted(devices(rows)))}; "
            "leave --device out, or give another --store"
        )
    kind = device or usual_device(rows)
    wanted = plans(name or [], kind, seeds)
    settings = {cell.label: None for plan in wanted for cell in plan.cells if cell.key["method"]["name"] == "gnndelete"}
    if best != BEST and best not in settings:
        raise SettingError(unknown("'--best': no cell of these experiments has the setting", best, settings))
    given = ["--seeds", str(seeds)] if seeds else []
    given += (["--best", best] if best != BEST else []) + (["--figures", "png"] if figures is Figures.PNG else [])
    commands = Commands(store.as_posix(), out.as_posix(), kind, tuple(name or ()), tuple(given))
    made, found = build(wanted, rows, commands, best, figures.value)
    write(out, made)
    lines = headline(found)
    flawed = broken((cell for plan in wanted for cell in plan.cells), rows)
    known = any(rows.get(cell.key) is not None for plan in wanted for cell in plan.cells)
    note = unnamed(len(rows)) if len(rows) and not known else None
    values: dict[str, Any] = {"out": str(out), "store": str(store), "device": kind, "files": sorted(made)}
    values |= {"summary": lines, "broken": flawed, "note": note}
    return Report(values, lambda console: _show(console, lines, flawed, out, len(wanted), note))


def _show(
    console: Console,
    lines: list[dict[str, Any]],
    broken: list[dict[str, str]],
    out: Path,
    experiments: int,
    note: str | None,
) -> None:
    answers = [f"{line['question'].replace('`', '')}: {line['answer']}{_verdict(line)}" for line in lines]
    count = f"{experiments} experiment{'s' * (experiments != 1)}"
    flaws = [f"Not counted: {each['cell']}: {each['error']}." for each in broken[:10]]
    flaws += [f"… and {len(broken) - 10} more."] if len(broken) > 10 else []
    flaws += [note] if note else []
    prose(console, [*answers, *flaws, f"{count} written to {out}; begin with {out / 'index.md'}."])


def _verdict(line: dict[str, Any]) -> str:
    """The aim and whether it was reached, where there is one, and how many cells failed."""
    said = {True: "reached", False: "not reached", None: "not run"}[line["reached"]]
    parts = [f"aim: {line['aim']}", said] if line["aim"] else []
    lost = line["left_out"]
    parts += [f"{lost} failed cell{'s' * (lost != 1)} left out"] if lost else []
    return f" ({'; '.join(parts)})" if parts else ""
