"""``gnndelete train``: train a model and write it as a run folder; `make_run` also takes over a model for ``adopt``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, note, score_title, table
from gnndelete.io.signals import hold_signals

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.cli.settings import Settings
    from gnndelete.datasets import NamedGraph
    from gnndelete.datasets.tombstones import Tombstones

#: Trains a model on a graph for a task: gives the model, and what is known of the training.
Learn = Callable[[Any, Any, Any], tuple[Any, dict[str, Any]]]


def train(
    out: Annotated[Path, typer.Option(help="Folder to write the run to.")],
    dataset: options.Dataset = None,
    graph: options.Graph = None,
    undirected: options.Undirected = None,
    data_root: options.DataRoot = None,
    tombstones: options.Tombstones = None,
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
    fit: options.Fit = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is already there.")] = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Train a model on a graph and write it as a run that the other commands use.

    [bold]gnndelete train --dataset digits --model gcn --task link --out runs/a[/]

    Your own node and edge tables: --graph FOLDER, with --undirected if every edge goes both ways.
    A model that was trained elsewhere, as it is: [bold]gnndelete adopt[/].
    """
    from gnndelete.cli.settings import resolve
    from gnndelete.errors import SettingError

    chosen = {
        "data.dataset": dataset,
        "data.graph": graph,
        "data.undirected": undirected or None,
        "data.root": data_root,
        "data.tombstones": tombstones,
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
        "train.fit": fit,
    }
    settings = resolve(None, config, set_, chosen)
    if settings.model.checkpoint is not None and not settings.train.epochs and settings.train.fit is None:
        raise SettingError(
            "--epochs 0 with --checkpoint would set edges or nodes aside as unseen that this model may have been trained on; "
            "take the model over as it is: gnndelete adopt GRAPH --model … --checkpoint …"
        )
    values = train_run(settings, out, force)
    if settings.model.checkpoint is not None:
        note(
            "note: what this run sets aside for validation and testing may have been seen by the checkpoint in its own training; "
            "scores against it are then too good"
        )
    return Report(values, lambda console: _show(console, values))


def train_run(settings: Settings, out: Path, force: bool) -> dict[str, Any]:
    """Train by the settings and write the run; everything that can be refused is refused before the first epoch."""
    from gnndelete.cli.construct import find_fit
    from gnndelete.cli.settings import SCHEDULE
    from gnndelete.training.loop import as_fitting
    from gnndelete.training.loop import train as fit

    own = None if settings.train.fit is None else as_fitting(find_fit(settings.train.fit))

    def learn(model: Any, data: Any, task: Any) -> tuple[Any, dict[str, Any]]:
        if own is not None:
            started = perf_counter()
            model = own(model, data, settings.train.seed)
            return model, {"validation": {"best": None, "epoch": None}, "seconds": perf_counter() - started}
        schedule = settings.train.model_dump(include=set(SCHEDULE))
        result = fit(model, data, task, seed=settings.train.seed, progress=True, **schedule)
        best = {"best": result.best_score, "epoch": result.best_epoch}
        return model, {"validation": best, "epochs": result.epochs_run, "seconds": result.seconds}

    return make_run(settings, out, force, "train", learn)


def make_run(
    settings: Settings,
    out: Path,
    force: bool,
    kind: str,
    learn: Learn | None = None,
    tombstones: Tombstones | None = None,
) -> dict[str, Any]:
    """Write a model as a run: one that ``learn`` trains, else the weights of the checkpoint as they are.

    Args:
        settings: The graph, the model and the task.
        out: The folder of the run.
        force: Replace a run that is already there.
        kind: The verb that makes it.
        learn: Trains a model on a graph for a task; gives the model and what is known of the training.
        tombstones: What the graph must not hold, since the model would have learned it.
    """
    from gnndelete.cli.construct import find_fit, find_tombstones, model_options, prepare, start_model, with_layout
    from gnndelete.cli.run_folder import (
        DESCRIPTION,
        METRICS,
        MODEL,
        SETTINGS,
        TABLES,
        TOMBSTONES,
        graph_facts,
        provenance,
        tables_of,
        to_bytes,
    )
    from gnndelete.errors import GraphError
    from gnndelete.graph.deletion import Deletion
    from gnndelete.graph.fingerprint import fingerprint
    from gnndelete.graph.hetero import HeteroGraph
    from gnndelete.graph.kinds import in_words
    from gnndelete.graph.validation import check_graph, count_nodes, edge_table
    from gnndelete.io.code import require_trust, running
    from gnndelete.io.files import require_writable, write_file
    from gnndelete.io.versions import CURRENT
    from gnndelete.models import FROM_GRAPH
    from gnndelete.nn.adapter import model_fingerprint
    from gnndelete.nn.forward import call, evaluating
    from gnndelete.result import evidence
    from gnndelete.training.weights import dump_weights

    received = datetime.now(UTC)
    _refuse_overwriting(out, force)
    require_writable(out)
    settings = with_layout(settings)
    if settings.train.fit is not None:
        find_fit(settings.train.fit)
    graph, task = prepare(settings)
    data = graph.data
    check_graph(data)
    if tombstones is not None and (deleted := tombstones.find(graph).counts):
        raise GraphError(
            f"the graph holds {', '.join(in_words(deleted))} that were deleted before, and the model may have learned them; "
            "train on a graph without them: gnndelete train --tombstones PATH"
        )
    options, known = model_options(settings.model, graph, task.name), {*FROM_GRAPH, *graph_names(graph)}
    settings = settings.filled("model", {name: value for name, value in options.items() if name not in known})
    of_task: dict[str, Any] = {"name": task.name}  # write down what was chosen
    if (decoder := getattr(task, "decoder", None)) is not None:
        of_task |= {"decoder": str(decoder), "loss": "bpr" if getattr(task, "paired", False) else "bce"}
    settings = settings.model_copy(update={"task": settings.task.model_copy(update=of_task)})
    model = start_model(settings, graph)
    learned: dict[str, Any] = {"validation": {"best": None, "epoch": None}, "epochs": 0, "seconds": 0.0}
    if learn is not None:
        model, learned = learn(model, data, task)
    else:
        layout = "hetero" if isinstance(data, HeteroGraph) else "single"
        way_out = "correct its forward, or the graph that it is given"
        if graph.tables is not None and len(graph.tables.types) > 1:
            other = "single (one Data)" if layout == "hetero" else "hetero (a HeteroData)"
            way_out += f"; tables can also be --layout {other}"
        with evaluating(model):
            with running(f"the model '{Path(settings.model.name).name}' does not run on the graph", way_out):
                output = call(model, data)
            task.check_output(output, data)
            learned["fits"] = _fits(task, model, output, data)
    about = provenance()
    unseen = {part: int(task.unseen(data, part).size(-1)) for part in ("validation", "test")}
    values = {
        "model": Path(settings.model.name).name,
        "task": task.name,
        "graph": settings.data.dataset or Path(str(settings.data.graph)).name,
        "nodes": count_nodes(data),
        "edges": data.edge_index.size(1),
        "tables": None if graph.tables is None else graph.about(),
        "undirected": edge_table(data).undirected or edge_table(data).mirrored,
        "unused_columns": list(graph.ignored),
        "unused_tables": [] if graph.tables is None else list(graph.tables.unused),
        **(_classes(graph) if task.learns_labels else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "test": {k.removeprefix("test_"): v for k, v in evidence(model, data, task, Deletion(), data).items()},
        "epochs": None,
        **learned,
        "unseen": unseen,
        "unseen_by": unseen_by(settings, graph),
        "seed": settings.train.seed,
        "split_seed": settings.data.seed,
        "device": str(data.edge_index.device),
        "versions": about["software"],
    }

    stones = None if settings.data.tombstones is None else find_tombstones(settings.data.tombstones)
    if stones is not None:  # as they are now: the graph of this run never changes
        kept = settings.data.model_copy(update={"tombstones": (out / "base" / TOMBSTONES).absolute()})
        settings = settings.model_copy(update={"data": kept})
    found = graph.tables if settings.data.description is None and graph.tables is not None else None
    if (
        found is not None and not found.named_by_options
    ):  # other files that come into the folder are no tables of this run
        described = settings.data.model_copy(update={"description": (out / "base" / DESCRIPTION).absolute()})
        settings = settings.model_copy(update={"data": described})
    else:
        found = None

    def make(folder: Path) -> None:
        write_file(folder / MODEL, dump_weights(model))
        if found is not None:
            write_file(folder / DESCRIPTION, graph.describe().encode())
        if stones is not None:
            stones.save(folder / TOMBSTONES)
        chosen = settings.to_yaml("data", "model", "task", "train", folder=out / "base")
        write_file(folder / SETTINGS, chosen.encode())
        write_file(folder / METRICS, to_bytes(values))
        if graph.tables is not None:
            write_file(folder / TABLES, to_bytes(tables_of(graph)))
        hold_signals()
        (out / CURRENT).unlink(missing_ok=True)  # of the run that is replaced

    require_trust(settings.model.name, trusted=True)
    if settings.train.fit is not None:
        require_trust(settings.train.fit, trusted=True)
    fields = {"base": model_fingerprint(model), "graph": fingerprint(data), "facts": graph_facts(data, task, graph)}
    _publish(out, force, make, kind=kind, received=received, served=received, **fields, **about)
    return {"out": str(out), **values}


#: Elements that the model of `adopt` is asked about to see whether it has learned them.
_ASKED = 4000


def _fits(task: Any, model: Any, output: Any, data: Any) -> dict[str, Any] | None:
    """Whether the weights know the graph they are said to be trained on; None where this cannot be asked."""
    import torch

    from gnndelete.errors import GNNDeleteError
    from gnndelete.metrics.ranking import auc

    try:
        elements, classes = task.sample(data, _ASKED, torch.Generator().manual_seed(0))
        predicted = task.predict(model, output, elements).detach().cpu()
    except (GNNDeleteError, NotImplementedError):
        return None
    classes = classes.cpu()
    if task.pairwise:
        return {"auroc": auc(predicted[classes == 1], predicted[classes == 0]), "chance": 0.5}
    chance = float(classes.bincount().max()) / classes.numel()
    return {"accuracy": float((predicted.argmax(dim=-1) == classes).double().mean()), "chance": chance}


def graph_names(graph: NamedGraph) -> set[str]:
    """Arguments of models that the graph fills in by itself."""
    from gnndelete.cli.construct import graph_sizes

    return set(graph_sizes(graph))


def unseen_by(settings: Settings, graph: NamedGraph) -> str:
    """How it is known what the model was not trained on: a word for programs."""
    data = settings.data
    if data.validation is not None or data.test_file is not None:
        return "files"
    if graph.unseen or any(f"{part}_mask" in store for store in _stores(graph) for part in ("val", "test")):
        return "graph"
    return "nothing" if data.split in ("none", "given") else "split"


def _stores(graph: NamedGraph) -> list[Any]:
    from gnndelete.graph.hetero import HeteroGraph

    data = graph.data
    return list(data.hetero.node_stores) if isinstance(data, HeteroGraph) else [data]


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
        *([] if values["epochs"] is None else [("epochs", values["epochs"])]),
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
