"""``gnndelete bench report``: tables, figures and a summary of the finished cells in a store."""

from __future__ import annotations

from enum import StrEnum
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, prose

if TYPE_CHECKING:
    from rich.console import Console

_WHAT, _HOW = "What", "How"


class Figures(StrEnum):
    """The file format of figures."""

    SVG = "svg"
    PNG = "png"


def report(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Experiments, groups or your YAML files; all by default."),
    ] = None,
    store: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON-lines file of finished cells.", rich_help_panel=_WHAT)
    ] = Path("bench/results.jsonl"),
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for pages, tables and figures.", rich_help_panel=_WHAT)
    ] = Path("bench/report"),
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda; by default the device of most rows.", rich_help_panel=_HOW),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Use the first N seeds; all by default.", rich_help_panel=_HOW)
    ] = None,
    figures: Annotated[Figures, typer.Option(help="File format of the figures.", rich_help_panel=_HOW)] = Figures.SVG,
    json: options.Json = False,
) -> Report:
    """Write tables (Markdown, CSV, LaTeX), figures and a summary, with the paper's number next to ours.

    [bold]gnndelete bench report --store docs/results/results.jsonl --out docs/results[/]

    Nothing is run. Missing numbers are shown as missing, with the reason; the same store gives the same files.
    """
    from gnndelete.bench.report.names import listed
    from gnndelete.bench.report.pages import MANIFEST, Commands, build, unnamed, write
    from gnndelete.bench.report.results import devices, plans, usual_device
    from gnndelete.bench.results_file import broken, open_store
    from gnndelete.bench.words import counted
    from gnndelete.errors import SettingError
    from gnndelete.io.files import require_writable

    if not store.exists():
        raise SettingError(
            f"there is no store '{store}'; give its file with --store, or make it with 'gnndelete bench run'"
        )
    if device not in (None, "cpu", "cuda"):
        raise SettingError(f"'device' must be cpu or cuda (got '{device}')")
    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    require_writable(out)
    rows = open_store(store)
    if device and len(rows) and not devices(rows)[device]:
        raise SettingError(
            f"the store '{store}' has no row of --device {device}: {counted(len(rows), 'row')}, of "
            f"{listed(sorted(devices(rows)))}; leave --device out, or give another --store"
        )
    kind = device or usual_device(rows)
    wanted = plans(name or [], kind, seeds)
    options_given = [
        *(["--seeds", str(seeds)] if seeds else []),
        *(["--figures", "png"] if figures is Figures.PNG else []),
    ]
    commands = Commands(store.as_posix(), out.as_posix(), kind, tuple(name or ()), tuple(options_given))
    made = build(wanted, rows, commands, figures.value)
    write(out, made)
    cells = [cell for plan in wanted for cell in plan.cells]
    flaws = broken(cells, rows)
    note = unnamed(len(rows)) if len(rows) and not any(rows.get(cell.key) for cell in cells) else None
    values: dict[str, Any] = {"out": str(out), "store": str(store), "device": kind, **loads(made[MANIFEST])}
    values |= {"broken": flaws, "note": note}
    return Report(values, lambda console: _show(console, flaws, out, counted(len(wanted), "experiment"), note))


def _show(console: Console, flaws: list[dict[str, str]], out: Path, experiments: str, note: str | None) -> None:
    lines = [f"Not counted: {each['cell']}: {each['error']}." for each in flaws[:10]]
    lines += [f"… and {len(flaws) - 10} more."] if len(flaws) > 10 else []
    lines += [note] if note else []
    prose(console, [*lines, f"{experiments} written to {out}; begin with {out / 'index.md'}."])
