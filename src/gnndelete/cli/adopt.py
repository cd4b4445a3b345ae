"""``gnndelete adopt``: take over a model that was trained elsewhere, on a graph or tables as they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, prose, score_title, table

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.cli.settings import Settings

_UNSEEN = "never saw: the columns of your tables, such as user_id,item_id."


def adopt(
    graph: Annotated[
        Path | None,
        typer.Argument(
            metavar="GRAPH", help="A folder of tables, a database, a table, a description, or a Data in a .pt file."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write the run to.")] = None,
    model: options.Model = None,
    checkpoint: options.Checkpoint = None,
    task: options.Task = None,
    predict: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The edges that the model predicts, where tables hold several kinds."),
    ] = None,
    fit: options.Fit = None,
    validation: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Edges or nodes to calibrate on that the model {_UNSEEN}")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Edges or nodes to measure on that the model {_UNSEEN}")
    ] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Only show how the tables are understood, as a description to correct.")
    ] = False,
    description: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML or YAML that says what the tables mean, as --describe prints it."),
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="hetero or single (one Data for all types); by the model's forward by default.")
    ] = None,
    dataset: options.Dataset = None,
    undirected: options.Undirected = None,
    tombstones: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="What was deleted before, from a service or its home; refused in the graph."),
    ] = None,
    seed: options.Seed = None,
    device: options.Device = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is already there.")] = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Take over a model that was trained elsewhere, with its graph or tables as they are.

    [bold]gnndelete adopt shop --describe[/]
    [bold]gnndelete adopt shop --model recnet.py:RecNet --checkpoint weights.pt --out runs/shop[/]

    Nothing is set aside: the model was trained on everything in the tables but what --validation and --test, a column named
    split, or masks say. With --fit an audit trains its reference as you trained the model.
    """
    from gnndelete.cli.construct import find_tombstones
    from gnndelete.cli.settings import resolve
    from gnndelete.cli.train import make_run
    from gnndelete.errors import SettingError

    chosen = {
        "data.split": "none",
        "data.dataset": dataset,
        "data.graph": graph,
        "data.undirected": undirected or None,
        "data.validation": validation,
        "data.test_file": test,
        "data.description": description,
        "data.layout": layout,
        "model.name": model,
        "model.checkpoint": checkpoint,
        "task.name": task,
        "task.edges": predict,
        "train.fit": fit,
        "train.seed": seed,
        "train.device": device,
    }
    settings = resolve({"task": {"name": "auto"}}, config, set_, chosen)
    if describe:
        text, values = _described(settings)
        return Report(values, lambda console: console.print(text, markup=False, soft_wrap=True, end=""))
    missing = {
        "--model": "model.py:Class" if "name" not in settings.model.model_fields_set else "",
        "--checkpoint": "weights.pt" if settings.model.checkpoint is None else "",
        "--out": "runs/shop" if out is None else "",
    }
    needed = [f"{name} {example}" for name, example in missing.items() if example]
    if needed or out is None:
        raise SettingError(
            f"adopt takes over a trained model, and {', '.join(name.split()[0] for name in needed)} "
            f"{'are' if len(needed) > 1 else 'is'} missing; add {' '.join(needed)}"
        )
    stones = None if tombstones is None else find_tombstones(tombstones)
    values = make_run(settings, out, force, "adopt", tombstones=stones)
    return Report(values, lambda console: _show(console, values))


def _described(settings: Settings) -> tuple[str, dict[str, Any]]:
    """What was understood of the tables, as the text of a description."""
    from gnndelete.cli.run_folder import tables_of
    from gnndelete.datasets import load_graph
    from gnndelete.errors import SettingError

    data = settings.data
    if data.graph is None:
        raise SettingError(
            "--describe shows how tables are understood, and none are named; give a folder of tables first"
        )
    graph = load_graph(data.graph, **data.table_options)
    return graph.describe(), {"description": graph.describe(), **tables_of(graph)}


def _show(console: Console, values: dict[str, Any]) -> None:
    from gnndelete.graph.validation import ways

    console.print(f"{values['model']} for {values['task']}s of {values['graph']}, as it is", markup=False, style="bold")
    rows: list[tuple[str, object]] = [
        (score_title(f"test_{name}"), f"{value:.4f}") for name, value in values["test"].items()
    ]
    rows += [
        ("nodes", values["nodes"]),
        ("edges the model was trained on", f"{values['edges']:,} ({ways(values['undirected'])})"),
        ("parameters", values["parameters"]),
    ]
    console.print(table(("", ""), rows))
    lines = [] if values["tables"] is None else [values["tables"]]
    lines += _fit_lines(values)
    lines += unseen_lines(values)
    if values["unused_tables"]:
        lines.append(f"tables that are not used: {', '.join(values['unused_tables'])} (--describe shows what is)")
    if values["unused_columns"]:
        lines.append(f"columns that are no features: {', '.join(values['unused_columns'])} (--describe says why)")
    prose(console, [*lines, f"written to {values['out']}"])


#: A model that ranks its training edges, or classifies its training nodes, by no more than this above chance is doubted.
_LEARNED = 0.1


def _fit_lines(values: dict[str, Any]) -> list[str]:
    """Whether the weights know the graph: rows in another order than the model's would show here, and nowhere else."""
    fits = values["fits"]
    if fits is None:
        return []
    name, score = next(iter(fits.items()))
    noun = "training edges above random pairs" if name == "auroc" else "training nodes, accuracy"
    line = f"the model knows the graph: {noun} {score_title(name) if name == 'auroc' else ''} {score:.3f}".replace(
        "  ", " "
    )
    if score - fits["chance"] > _LEARNED:
        return [line]
    return [
        f"WARNING: {line.replace('knows', 'hardly knows')} ({fits['chance']:.3f} by chance). Are these the weights, and are the "
        "rows of the tables in the order of the model's? A column with that order is named by index = in a description "
        "(--describe shows one)."
    ]


def unseen_lines(values: dict[str, Any]) -> list[str]:
    """What is known to be unseen by the model, or what cannot be measured without that and how to get it."""
    counts = {part: count for part, count in values["unseen"].items() if count}
    known = {"files": "by your files", "graph": "by the split of the graph", "split": "set aside before training"}
    noun = {"node": "nodes", "graph": "graphs"}.get(values["task"], "edges")
    lines = []
    if counts:
        shown = " and ".join(
            f"{count:,} {noun} for {'testing' if part == 'test' else part}" for part, count in counts.items()
        )
        lines.append(f"never seen by the model: {shown} ({known.get(values['unseen_by'], 'named')})")
    missing = [part for part in ("validation", "test") if part not in counts]
    lost = {
        "validation": "how strongly to forget is not calibrated, and a fixed strength is used",
        "test": "neither the model's score nor whether deleted data looks unseen is measured",
    }
    if missing:
        how = f"--{' FILE and --'.join(missing)} FILE"
        lines.append(
            f"nothing is known to be unseen by the model for {' and '.join(missing)}: "
            f"{'; '.join(lost[part] for part in missing)}. "
            f"To measure it, adopt again with {how} naming {noun} that the model was not trained on."
        )
    return lines
