"""``gnndelete inspect``: what a deletion would work with in a model, and which methods fit it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.report import Report

if TYPE_CHECKING:
    from rich.console import Console


def inspect(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run that 'train' wrote, or leave it out and name both below."),
    ] = None,
    dataset: options.Dataset = None,
    graph: options.Graph = None,
    undirected: options.Undirected = None,
    data_root: options.DataRoot = None,
    model: options.Model = None,
    checkpoint: options.Checkpoint = None,
    task: options.Task = None,
    device: options.Device = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Show the graph layers of a model, how far each one really sees, and which methods fit.

    [bold]gnndelete inspect runs/a[/] or [bold]gnndelete inspect --dataset digits --model gcn[/]
    """
    from gnndelete.cli.runs import open_run, run_settings, unchanged
    from gnndelete.cli.settings import resolve

    given = {
        "data.dataset": dataset,
        "data.graph": graph,
        "data.undirected": undirected or None,
        "data.root": data_root,
        "model.name": model,
        "model.checkpoint": checkpoint,
        "task.name": task,
        "train.device": device,
    }
    if run is not None:
        settings = resolve(run_settings(run), config, set_, given)
        unchanged(run, settings)
    else:
        settings = resolve(None, config, set_, given)
    from gnndelete.cli.construct import build_model  # takes seconds: a mistake in the settings is told before
    from gnndelete.cli.loading import load_weights
    from gnndelete.cli.setup import prepare
    from gnndelete.inspection import inspect as look

    if run is not None:
        network, found, kind = open_run(run, settings)
        data = found.data
    else:
        found, kind = prepare(settings)
        data = found.data
        network = build_model(settings.model, data, settings.task.name, settings.train.seed)
        if settings.model.checkpoint is not None:
            load_weights(settings.model.checkpoint, network)
        network.to(data.edge_index.device)
    # As 'delete' does: a model of the user's that cannot be reset can still be made again.
    build = (
        (lambda: build_model(settings.model, data, kind.name, settings.train.seed))
        if ":" in settings.model.name
        else None
    )
    seen = look(network, data, task=kind, build=build)
    return Report(seen.to_dict(), lambda console: _show(console, seen))


def _show(console: Console, found: Any) -> None:
    from rich.table import Table

    from gnndelete.graph.validation import ways

    kind = ways(found.undirected)
    console.print(f"[bold]{found.model}[/] on {found.nodes:,} nodes and {found.edges:,} edges ({kind})\n")
    if found.error:
        console.print(f"error: the model could not be run on this graph: {found.error}\n", markup=False, soft_wrap=True)
    console.print("layers an operator would follow:")
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
