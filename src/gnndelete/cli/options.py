"""Options that several verbs share, with their help texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

_GRAPH, _MODEL, _TRAIN, _RUN, _WHAT = "Graph", "Model", "Training", "This run", "What to forget"

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

Edges = Annotated[
    Path | None, typer.Option(help="CSV with columns source,target, in your own ids.", rich_help_panel=_WHAT)
]
Nodes = Annotated[Path | None, typer.Option(help="CSV with a column node.", rich_help_panel=_WHAT)]
Edge = Annotated[
    list[str] | None, typer.Option(metavar="U,V", help="One edge; can be repeated.", rich_help_panel=_WHAT)
]
Node = Annotated[list[str] | None, typer.Option(metavar="ID", help="One node; can be repeated.", rich_help_panel=_WHAT)]
Graphs = Annotated[
    Path | None,
    typer.Option("--graphs", help="CSV with a column graph: positions of whole graphs.", rich_help_panel=_WHAT),
]
OneGraph = Annotated[
    list[int] | None,
    typer.Option("--graph", metavar="ID", help="One whole graph; can be repeated.", rich_help_panel=_WHAT),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Graphs, or links or nodes of one graph with their neighbours, per step.", rich_help_panel=_TRAIN
    ),
]
Features = Annotated[
    Path | None, typer.Option(help="CSV with a column node, and column for some features alone.", rich_help_panel=_WHAT)
]
Labels = Annotated[
    Path | None, typer.Option(help="CSV with a column node: whose labels to forget.", rich_help_panel=_WHAT)
]
Feature = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID[,COLUMN]", help="Features of a node, or one of them; can be repeated.", rich_help_panel=_WHAT
    ),
]
Label = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="The label of one node; can be repeated.", rich_help_panel=_WHAT)
]
Fill = Annotated[
    float | None, typer.Option(help="What replaces deleted features; 0 by default.", rich_help_panel=_WHAT)
]
Random = Annotated[
    float | None, typer.Option(help="Draw a share (below 1) or a number of elements.", rich_help_panel=_WHAT)
]
Kind = Annotated[str | None, typer.Option(help="With --random: edges, nodes or graphs.", rich_help_panel=_WHAT)]
Where = Annotated[
    str | None,
    typer.Option(
        help="With --random: in or out of the test edges' 2-hop neighbourhood, hubs, or community.",
        rich_help_panel=_WHAT,
    ),
]
Hops = Annotated[
    str | None, typer.Option(help="With --where: undirected, or directed as in the paper.", rich_help_panel=_WHAT)
]
DrawSeed = Annotated[int | None, typer.Option(help="With --random: seed.", rich_help_panel=_WHAT)]


def request(
    edges: Path | None,
    nodes: Path | None,
    edge: list[str] | None,
    node: list[str] | None,
    random: float | None,
    kind: str | None,
    where: str | None,
    hops: str | None,
    draw_seed: int | None,
    graphs: Path | None = None,
    graph: list[int] | None = None,
    features: Path | None = None,
    labels: Path | None = None,
    feature: list[str] | None = None,
    label: list[str] | None = None,
    fill: float | None = None,
) -> dict[str, Any]:
    """What is to be forgotten, as settings; None where an option was not given."""
    return {
        "deletion.edges_csv": edges,
        "deletion.nodes_csv": nodes,
        "deletion.edges": _pairs(edge or ()) or None,
        "deletion.nodes": [name.strip() for name in node or ()] or None,
        "deletion.graphs_csv": graphs,
        "deletion.graphs": list(graph or ()) or None,
        "deletion.features_csv": features,
        "deletion.labels_csv": labels,
        "deletion.features": _pairs(feature or (), "features are written node or node,column, such as --feature 3,7")
        or None,
        "deletion.labels": [name.strip() for name in label or ()] or None,
        "deletion.fill": fill,
        "deletion.random": _amount(random),
        "deletion.kind": kind,
        "deletion.where": where,
        "deletion.hops": hops,
        "deletion.seed": draw_seed,
    }


def _pairs(texts: Iterable[str], form: str = "an edge is written source,target, such as --edge 0,5") -> list[list[str]]:
    """The cells of edges or features as a line of a CSV file has them, so that an id can hold a comma."""
    import csv

    from gnndelete.errors import DeletionError

    pairs = []
    for text in texts:
        try:
            rows = list(csv.reader([text], strict=True, skipinitialspace=True))
        except csv.Error as error:
            raise DeletionError(f"{form} (got {text}: {error})") from None
        pairs.append([cell.strip() for cell in rows[0]] if rows else [])
    return pairs


def _amount(random: float | None) -> int | float | None:
    """A whole number of elements, or a share of them."""
    return int(random) if random is not None and random >= 1 and random.is_integer() else random
