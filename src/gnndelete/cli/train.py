"""``gnndelete train``: train a model, or register one that was trained elsewhere, as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.report import Report

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.cli.settings import Settings
    from gnndelete.datasets import NamedGraph


def train(
    out: Annotated[Path, typer.Option(help="Folder to write the run to.")],
    dataset: options.Dataset = None,
    graph: options.Graph = None,
    undirected: options.Undirected = None,
    data_root: options.DataRoot = None,
    split_seed: options.SplitSeed = None,
    model: options.Model = None,
    checkpoint: options.Checkpoint = None,
    task: options.Task = None,
    epochs: options.Epochs = None,
    lr: options.Lr = None,
    weight_decay: options.WeightDecay = None,
    patience: options.Patience = None,
    batch_size: options.BatchSize = None,
    seed: options.Seed = None,
    device: options.Device = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is already there.")] = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Train a model on a graph and keep it as a run that 'inspect' and 'delete' can use.

    [bold]gnndelete train --dataset digits --model gcn --task link --out runs/a[/]

    Node and edge tables of your own, with your own ids: --graph FOLDER, perhaps with --undirected.
    A model trained elsewhere becomes a run with --checkpoint weights.safetensors --epochs 0.
    """
    from gnndelete.cli.settings import resolve

    given = {
        "data.dataset": dataset,
        "data.graph": graph,
        "data.undirected": undirected or None,
        "data.root": data_root,
        "data.seed": split_seed,
        "model.name": model,
        "model.checkpoint": checkpoint,
        "task.name": task,
        "train.epochs": epochs,
        "train.lr": lr,
        "train.weight_decay": weight_decay,
        "train.patience": patience,
        "train.batch_size": batch_size,
        "train.seed": seed,
        "train.device": device,
    }
    settings = resolve(None, config, set_, given)
    values = train_run(settings, out, force)
    return Report(values, lambda console: _show(console, values))


def train_run(settings: Settings, out: Path, force: bool) -> dict[str, Any]:
    """Train by the settings and write the run; everything that can be refused is refused before the first epoch."""
    from gnndelete.cli import runs
    from gnndelete.cli.construct import build_model, model_options
    from gnndelete.cli.loading import dump_weights, load_weights
    from gnndelete.cli.settings import TaskSettings
    from gnndelete.cli.setup import prepare
    from gnndelete.evidence import evidence
    from gnndelete.graph.deletion import Deletion
    from gnndelete.graph.validation import attributes, check_graph, count_nodes, edge_table, fingerprint
    from gnndelete.io import files
    from gnndelete.models.from_graph import FROM_GRAPH
    from gnndelete.nn.adapter import model_fingerprint
    from gnndelete.tasks import LinkPrediction
    from gnndelete.training.loop import train as fit

    _refuse_overwriting(out, force)
    files.writable(out)
    graph, task = prepare(settings)
    data = graph.data
    check_graph(data)
    options = model_options(settings.model, data, settings.task.name)
    settings = settings.filled("model", {name: value for name, value in options.items() if name not in FROM_GRAPH})
    if isinstance(task, LinkPrediction):  # what was left open is written down as what it is
        settings = settings.model_copy(update={"task": TaskSettings(name="link", decoder=str(task.decoder))})
    model = build_model(settings.model, data, settings.task.name, settings.train.seed)
    if settings.model.checkpoint is not None:
        load_weights(settings.model.checkpoint, model)
    model.to(data.edge_index.device)
    schedule = settings.train
    result = fit(
        model,
        data,
        task,
        epochs=schedule.epochs,
        lr=schedule.lr,
        weight_decay=schedule.weight_decay,
        patience=schedule.patience,
        batch_size=schedule.batch_size,
        num_neighbors=schedule.num_neighbors,
        seed=schedule.seed,
        progress=True,
    )
    values = {
        "model": settings.model.name,
        "task": settings.task.name,
        "graph": settings.data.dataset or str(settings.data.graph),
        "nodes": count_nodes(data),
        "edges": data.edge_index.size(1),
        "undirected": edge_table(data).undirected,
        "unused_columns": list(graph.ignored),
        **(_classes(graph) if settings.task.name == "node" else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "test": {k.removeprefix("test_"): v for k, v in evidence(model, data, task, Deletion(), data).items()},
        "validation": {"best": result.best_score, "epoch": result.best_epoch},
        "epochs": result.epochs_run,
        "seconds": result.seconds,
        "seed": schedule.seed,
        "split_seed": settings.data.seed,
        "device": str(data.edge_index.device),
        "versions": runs.versions(),
        "base_fingerprint": model_fingerprint(model),
        "graph_fingerprint": fingerprint(data),
        "graph_attributes": attributes(data, labels=settings.task.name != "link"),
        "ids_fingerprint": runs.ids_fingerprint(graph),
    }
    files.commit(
        {
            out / runs.MODEL: dump_weights(model),
            out / runs.SETTINGS: settings.to_yaml("data", "model", "task", "train").encode(),
            out / runs.METRICS: runs.to_bytes(values),
        }
    )
    return {"out": str(out), **values}


def _classes(graph: NamedGraph) -> dict[str, Any]:
    """How many nodes have each class that tables of one's own name, and how many have none."""
    if not graph.classes:
        return {}
    y = graph.data.y
    counts = y[y >= 0].bincount(minlength=len(graph.classes)).tolist()
    return {"classes": dict(zip(graph.classes, counts, strict=True)), "unlabelled": int((y < 0).sum())}


def _refuse_overwriting(out: Path, force: bool) -> None:
    from gnndelete.cli import runs
    from gnndelete.errors import SettingError

    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    if (out / runs.STATE).exists():
        raise SettingError(
            f"'{out}' has served deletions ({runs.STATE}); training over it would bring them back: give another --out, "
            f"or remove {runs.STATE} first"
        )
    found = [name for name in (runs.MODEL, runs.SETTINGS, runs.METRICS, runs.RESULT) if (out / name).exists()]
    if found and not force:
        raise SettingError(f"'{out}' already holds {found[0]}; give another --out, or --force to replace that run")


def _show(console: Console, values: dict[str, Any]) -> None:
    from rich.table import Table

    from gnndelete.errors import some
    from gnndelete.graph.validation import ways

    console.print(f"{values['model']} for {values['task']}s of {values['graph']}", markup=False, style="bold")
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in values["test"].items():
        table.add_row(f"test {name}", f"{value:.4f}")
    if not values["test"]:
        table.add_row("test", "nothing held out")
    best = values["validation"]
    if best["best"] is not None:
        table.add_row("best validation", f"{best['best']:.4f} (epoch {best['epoch']})")
    table.add_row("nodes", f"{values['nodes']:,}")
    table.add_row("edges to train on", f"{values['edges']:,} ({ways(values['undirected'])})")
    table.add_row("epochs", f"{values['epochs']}")
    table.add_row("seconds", f"{values['seconds']:.1f}")
    table.add_row("parameters", f"{values['parameters']:,}")
    table.add_row("seed", f"{values['seed']}")
    console.print(table)
    if classes := values.get("classes"):
        nodes = some((f"{name} ({count:,})" for name, count in classes.items()), 8)
        none = f"; {values['unlabelled']:,} nodes without a label" if values["unlabelled"] else ""
        console.print(f"{len(classes)} classes (and their nodes): {nodes}{none}", soft_wrap=True, markup=False)
    if values["unused_columns"]:
        unused = ", ".join(values["unused_columns"])
        console.print(f"note: columns of the tables that were not used: {unused}", soft_wrap=True, markup=False)
    console.print(f"written to {values['out']}", soft_wrap=True, markup=False)
