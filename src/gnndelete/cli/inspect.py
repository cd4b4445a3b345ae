"""``gnndelete inspect``: the graph layers of a model, how far each one reaches, and which methods fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report

if TYPE_CHECKING:
    from rich.console import Console


def inspect(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run that 'train' wrote; or leave it out and name a graph and a model."),
    ] = None,
    dataset: options.Dataset = None,
    graph: options.Graph = None,
    undirected: options.Undirected = None,
    data_root: options.DataRoot = None,
    model: options.Model = None,
    checkpoint: options.Checkpoint = None,
    task: options.Task = None,
    device: options.Device = None,
    trust: options.Trust = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Show the graph layers of a model, how far each one reaches, and which methods fit.

    [bold]gnndelete inspect runs/a[/] or [bold]gnndelete inspect --dataset digits --model gcn[/]
    """
    from gnndelete.cli.run_folder import open_model, open_run, run_settings
    from gnndelete.cli.settings import resolve

    chosen = {
        "data.dataset": dataset,
        "data.graph": graph,
        "data.undirected": undirected or None,
        "data.root": data_root,
        "model.name": model,
        "model.checkpoint": checkpoint,
        "task.name": task,
        "train.device": device,
    }
    opened = None if run is None else open_run(run)
    if opened is None:
        settings = resolve(None, config, set_, chosen)
    else:
        settings = run_settings(opened, config, set_, chosen, trust=trust)
    # imports torch, after the settings were checked
    from gnndelete.cli.construct import build_function, prepare, start_model
    from gnndelete.inspection import inspect as inspect_model

    if opened is not None:
        network, named, of_task = open_model(opened, settings)
    else:
        named, of_task = prepare(settings)
        network = start_model(settings, named.data)
    build = build_function(settings, named.data, lambda: settings.train.seed)
    inspection = inspect_model(network, named.data, task=of_task, build=build)
    return Report(inspection.to_dict(), lambda console: _show(console, inspection))


def _show(console: Console, found: Any) -> None:
    from rich.table import Table

    from gnndelete.graph.validation import ways

    kind = ways(found.undirected)
    console.print(f"[bold]{found.model}[/] on {found.nodes:,} nodes and {found.edges:,} edges ({kind})\n")
    if found.error:
        console.print(f"error: the model could not be run on this graph: {found.error}\n", markup=False, soft_wrap=True)
    console.print("graph layers, each of which can get an operator:")
    layers = Table()
    layers.add_column("layer", overflow="fold")
    layers.add_column("width", justify="right")
    layers.add_column("reach")
    for site in found.sites:
        reach = f"{site.hops} hop{'s' * (site.hops != 1)}" if site.bounded else "the whole graph"
        layers.add_row(site.title, f"{site.width}", reach + ("" if site.probed else " (counted, not measured)"))
    console.print(layers if found.sites else "no layers were found")
    reach = "the whole graph" if not found.bounded else "unknown" if found.hops is None else f"{found.hops} hops"
    console.print(f"receptive field of the output: {reach}")
    console.print(f"operator parameters: {found.sizes()}\n", markup=False)
    console.print("methods:")
    methods = Table()
    for column in ("method", "fits", "why not, and the way out"):
        methods.add_column(column, overflow="fold")
    for name, reasons in found.methods.items():
        methods.add_row(name, "no" if reasons else "yes", "\n".join(str(reason) for reason in reasons))
    console.print(methods)
    for note in found.notes:
        console.print(f"note: {note.text}", markup=False)
