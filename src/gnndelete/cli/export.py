"""``gnndelete export``: write what a serving system loads: rows with ids, what changed in them, or the model as a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, prose


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, with deletions or before the first one.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write to; an earlier export there is replaced.")
    ] = None,
    format: Annotated[
        str, typer.Option(help="embeddings (Parquet), npy, onnx or torch.export.", metavar="NAME")
    ] = "embeddings",
    since: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="List what changed since this earlier export; by default since the one that is replaced.",
        ),
    ] = None,
    device: options.Device = None,
    trust: options.Trust = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Export the model of a run for serving: the rows of all nodes with your ids, or the model as a program.

    [bold]gnndelete export runs/a --out index[/]
    [bold]gnndelete export runs/a --out program --format onnx[/]

    Export rows before the first deletion and after each: changes.csv then lists the rows to update or remove in a vector index.
    """
    from gnndelete.cli.run_folder import open_model, open_result, open_run, run_settings
    from gnndelete.errors import SettingError
    from gnndelete.exporting import export as write

    opened = open_run(run)
    if out is None:
        raise SettingError("--out is missing; add --out and the folder to write to, such as --out index")
    if out.resolve().is_relative_to(run.resolve()):
        raise SettingError(f"'{out}' is in the run '{run}', which holds only what the run wrote; name another folder")
    settings = run_settings(opened, config, set_, {"train.device": device}, trust=trust)
    if opened.latest.version:
        unlearned, graph = open_result(opened, opened.folder(), settings)
        values = unlearned.export(out, format, ids=graph.ids, since=since)  # type: ignore[arg-type]
    else:
        model, graph, task = open_model(opened, settings)
        values = write(model, graph.data, out, format, task=task, ids=graph.ids, since=since)  # type: ignore[arg-type]
    values = {**values, "run": str(run), "version": opened.latest.version, "out": str(out)}
    return Report(values, lambda console: _show(console, values))


def _show(console: Any, values: dict[str, Any]) -> None:
    from gnndelete.exporting import describe

    state = (
        f"version {values['version']} of {values['run']}"
        if values["version"]
        else f"{values['run']}, before any deletion"
    )
    prose(console, [f"exported {state} as {values['kind']} to {values['out']}", *describe(values)])
