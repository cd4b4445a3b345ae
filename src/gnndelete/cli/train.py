"""``gnndelete train``: train a model, or register one that was trained elsewhere, as a run folder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, score_title, table
from gnndelete.io.signals import hold_signals

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
    """Train a model on a graph and write it as a run that the other commands use.

    [bold]gnndelete train --dataset digits --model gcn --task link --out runs/a[/]

    Your own node and edge tables: --graph FOLDER, with --undirected if every edge goes both ways.
    A model that was trained elsewhere: --checkpoint weights.safetensors --epochs 0.
    """
    from gnndelete.cli.settings import resolve

    chosen = {
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
    settings = resolve(None, config, set_, chosen)
    values = train_run(settings, out, force)
    return Report(values, lambda console: _show(console, values))


def train_run(settings: Settings, out: Path, force: bool) -> dict[str, Any]:
    """Train by the settings and write the run; everything that can be refused is refused before the first epoch."""
    from gnndelete.cli.construct import model_options, prepare, start_model
    from gnndelete.cli.run_folder import METRICS, MODEL, SETTINGS, graph_facts, provenance, to_bytes
    from gnndelete.cli.settings import SCHEDULE
    from gnndelete.graph.deletion import Deletion
    from gnndelete.graph.fingerprint import fingerprint
    from gnndelete.graph.validation import check_graph, count_nodes, edge_table
    from gnndelete.io.code import require_trust
    from gnndelete.io.files import require_writable, write_file
    from gnndelete.io.versions import CURRENT
    from gnndelete.models import FROM_GRAPH
    from gnndelete.nn.adapter import model_fingerprint
    from gnndelete.result import evidence
    from gnndelete.training.loop import train as fit
    from gnndelete.training.weights import dump_weights

    received = datetime.now(UTC)
    _refuse_overwriting(out, force)
    require_writable(out)
    graph, task = prepare(settings)
    data = graph.data
    check_graph(data)
    options = model_options(settings.model, data, settings.task.name)
    settings = settings.filled("model", {name: value for name, value in options.items() if name not in FROM_GRAPH})
    if (decoder := getattr(task, "decoder", None)) is not None:  # write down the decoder that was chosen
        task_settings = settings.task.model_copy(update={"decoder": str(decoder)})
        settings = settings.model_copy(update={"task": task_settings})
    model = start_model(settings, data)
    schedule = settings.train.model_dump(include=set(SCHEDULE))
    result = fit(model, data, task, seed=settings.train.seed, progress=True, **schedule)
    about = provenance()
    values = {
        "model": Path(settings.model.name).name,
        "task": settings.task.name,
        "graph": settings.data.dataset or Path(str(settings.data.graph)).name,
        "nodes": count_nodes(data),
        "edges": data.edge_index.size(1),
        "undirected": edge_table(data).undirected,
        "unused_columns": list(graph.ignored),
        **(_classes(graph) if task.learns_labels else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "test": {k.removeprefix("test_"): v for k, v in evidence(model, data, task, Deletion(), data).items()},
        "validation": {"best": result.best_score, "epoch": result.best_epoch},
        "epochs": result.epochs_run,
        "seconds": result.seconds,
        "seed": settings.train.seed,
        "split_seed": settings.data.seed,
        "device": str(data.edge_index.device),
        "versions": about["software"],
    }

    def make(folder: Path) -> None:
        write_file(folder / MODEL, dump_weights(model))
        chosen = settings.to_yaml("data", "model", "task", "train", folder=out / "base")
        write_file(folder / SETTINGS, chosen.encode())
        write_file(folder / METRICS, to_bytes(values))
        hold_signals()
        (out / CURRENT).unlink(missing_ok=True)  # of the run that is replaced

    require_trust(settings.model.name, trusted=True)
    fields = {"base": model_fingerprint(model), "graph": fingerprint(data), "facts": graph_facts(data, task, graph)}
    _publish(out, force, make, kind="train", received=received, served=received, **fields, **about)
    return {"out": str(out), **values}


def _publish(out: Path, force: bool, make: Callable[[Path], None], **fields: Any) -> None:
    """Write the run. Where that fails, nothing is left of a folder that was not there before."""
    from gnndelete.io.files import ensure_folder
    from gnndelete.io.versions import Versions, locked

    with ensure_folder(out), locked(out):
        _refuse_overwriting(out, force)  # another train may have been faster
        Versions(out, anew=True).publish(make, **fields)


def _classes(graph: NamedGraph) -> dict[str, Any]:
    """How many nodes have each class that the user's tables name, and how many have none."""
    if not graph.classes:
        return {}
    y = graph.data.y
    counts = y[y >= 0].bincount(minlength=len(graph.classes)).tolist()
    return {"classes": dict(zip(graph.classes, counts, strict=True)), "unlabelled": int((y < 0).sum())}


def _refuse_overwriting(out: Path, force: bool) -> None:
    from gnndelete.errors import SettingError
    from gnndelete.io.versions import CURRENT, LOCK

    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    if (out / "versions").exists():
        raise SettingError(
            f"'{out}' has served deletions, and training over it would bring them back; give another --out"
        )
    found = sorted({path.name for path in out.iterdir()} - {LOCK, CURRENT}) if out.exists() else []
    if found and not (force and "base" in found):
        raise SettingError(f"'{out}' already holds {found[0]}; give another --out, or --force to replace a run")


def _show(console: Console, values: dict[str, Any]) -> None:
    from gnndelete.errors import some
    from gnndelete.graph.validation import ways

    console.print(f"{values['model']} for {values['task']}s of {values['graph']}", markup=False, style="bold")
    rows: list[tuple[str, object]] = [(score_title(f"test_{n}"), f"{v:.4f}") for n, v in values["test"].items()]
    best = values["validation"]
    if best["best"] is not None:
        rows.append(("best validation", f"{best['best']:.4f} (epoch {best['epoch']})"))
    rows += [
        *([] if values["test"] else [("test", "no test data")]),
        ("nodes", values["nodes"]),
        ("edges to train on", f"{values['edges']:,} ({ways(values['undirected'])})"),
        ("epochs", values["epochs"]),
        ("seconds", f"{values['seconds']:.1f}"),
        ("parameters", values["parameters"]),
        ("seed", values["seed"]),
    ]
    console.print(table(("", ""), rows))
    if classes := values.get("classes"):
        nodes = some((f"{name} ({count:,})" for name, count in classes.items()), 8)
        none = f"; {values['unlabelled']:,} nodes without a label" if values["unlabelled"] else ""
        console.print(f"{len(classes)} classes (and their nodes): {nodes}{none}", soft_wrap=True, markup=False)
    if values["unused_columns"]:
        unused = ", ".join(values["unused_columns"])
        console.print(f"note: columns of your tables that were not used: {unused}", soft_wrap=True, markup=False)
    console.print(f"written to {values['out']}", soft_wrap=True, markup=False)
