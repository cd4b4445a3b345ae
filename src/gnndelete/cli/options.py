"""Options that several verbs share, with their help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_GRAPH, _MODEL, _TRAIN, _RUN = "Graph", "Model", "Training", "This run"

# Read by gnndelete.cli.run, which prints the report of every verb; the verbs themselves need not look at it.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.", rich_help_panel=_RUN)]
Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file with options of the run.", rich_help_panel=_RUN)
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as method.lam=0.3.", rich_help_panel=_RUN),
]
Dataset = Annotated[
    str | None, typer.Option(help="Name of a dataset, see 'gnndelete ls datasets'.", rich_help_panel=_GRAPH)
]
Graph = Annotated[
    Path | None,
    typer.Option(
        help="Your own graph: a folder with edges.csv and nodes.csv, one edge table (CSV, TSV, Parquet), or a Data that "
        "torch.save wrote.",
        metavar="PATH",
        rich_help_panel=_GRAPH,
    ),
]
Undirected = Annotated[
    bool | None,
    typer.Option("--undirected", help="Every edge of the tables goes both ways.", rich_help_panel=_GRAPH),
]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of raw dataset files.", rich_help_panel=_GRAPH)]
SplitSeed = Annotated[int | None, typer.Option(help="Seed of the split.", rich_help_panel=_GRAPH)]
Model = Annotated[
    str | None,
    typer.Option(
        help="gcn, gat, gin, gps, graphormer, or your own: file.py:factory, package.module:factory (its code is run).",
        rich_help_panel=_MODEL,
    ),
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Weights to start from: .safetensors, or a state dict.", rich_help_panel=_MODEL)
]
Task = Annotated[str | None, typer.Option(help="link, node or graph.", rich_help_panel=_MODEL)]
Epochs = Annotated[int | None, typer.Option(help="Epochs; 0 takes the checkpoint as it is.", rich_help_panel=_TRAIN)]
Lr = Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=_TRAIN)]
WeightDecay = Annotated[float | None, typer.Option(help="Weight decay.", rich_help_panel=_TRAIN)]
Patience = Annotated[
    int | None, typer.Option(help="Stop after that many epochs without a better score.", rich_help_panel=_TRAIN)
]
Seed = Annotated[int | None, typer.Option(help="Seed of weights and training.", rich_help_panel=_TRAIN)]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.", rich_help_panel=_TRAIN)]
SkipUnseen = Annotated[
    bool,
    typer.Option("--skip-unseen", help="Leave out edges that only validate or test the model, and say how many."),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Graphs, or links or nodes of one graph with their neighbours, per step.", rich_help_panel=_TRAIN
    ),
]
