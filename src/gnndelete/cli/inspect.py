"""``gnndelete inspect``: the graph layers of a model, how far each one reaches, and which methods fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report


def inspect(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="A run that 'train' or 'adopt' wrote; or leave it out and name a graph and a model."
        ),
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
        network = start_model(settings, named)
    build = build_function(settings, named, lambda: settings.train.seed)
    inspection = inspect_model(network, named.data, task=of_task, build=build)
    return Report(inspection.to_dict(), lambda console: console.print(str(inspection), markup=False, soft_wrap=True))
