"""Options that several verbs share, and the commands and groups that parse them.

No torch and no pydantic here, so that ``--help`` is quick.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gnndelete.cli.deletion_options import OPTIONS
from gnndelete.errors import some, unknown

_graph, _model, _train, _run = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Graph", "Model", "Training", "This run")
)
_TABLES = "a folder of tables (CSV, Parquet, Arrow), a database, one edge table, or a Data that torch.save wrote"
_OWN = "file.py:factory, package.module:factory (its code is run)"

# Read by gnndelete.cli.run, which prints the report of every verb; the verbs need not look at it.
Json = Annotated[bool, _run("--json", help="Print one JSON object on standard output.")]
Config = Annotated[Path | None, _run("--config", "-c", help="YAML file with options of the run.")]
Set = Annotated[list[str] | None, _run("--set", metavar="KEY=VALUE", help="One setting, such as method.lam=0.3.")]
Trust = Annotated[bool, _run("--trust", help="Use the model code that the run names, until it changes.")]
Dataset = Annotated[str | None, _graph(help="Name of a dataset, see 'gnndelete ls datasets'.")]
Graph = Annotated[Path | None, _graph(help=f"Your own graph: {_TABLES}.", metavar="PATH")]
Undirected = Annotated[bool | None, _graph("--undirected", help="Every edge of the tables goes both ways.")]
DataRoot = Annotated[Path | None, _graph(help="Folder of raw dataset files.")]
Tombstones = Annotated[
    Path | None,
    _graph(metavar="PATH", help="What was deleted before: tombstones of a service, or its home. It is left out."),
]
SplitSeed = Annotated[int | None, _graph(help="Seed of the split.")]
Model = Annotated[str | None, _model(help=f"gcn, gat, gin, lightgcn (see 'gnndelete ls models'), or your own: {_OWN}.")]
Checkpoint = Annotated[
    Path | None, _model(help="Trained weights: .safetensors, a state dict, or a checkpoint with one.")
]
Task = Annotated[str | None, _model(help="link, ranking, node or graph.")]
Epochs = Annotated[int | None, _train(help="Epochs.")]
Lr = Annotated[float | None, _train(help="Learning rate.")]
WeightDecay = Annotated[float | None, _train(help="Weight decay.")]
Patience = Annotated[int | None, _train(help="Stop after that many epochs without a better score.")]
Seed = Annotated[int | None, _train(help="Seed of weights and training.")]
Device = Annotated[str | None, _train(help="auto, cpu or cuda.")]
BatchSize = Annotated[
    int | None, _train(help="Graphs, or links or nodes of one graph with their neighbours, per step.")
]
Fit = Annotated[
    str | None,
    _train(metavar="FILE.PY:FUNCTION", help="Your own training, function(model, data, seed) (its code is run)."),
]
SkipUnseen = Annotated[
    bool, typer.Option("--skip-unseen", help="Leave out edges that only validate or test the model, and say how many.")
]


#: The error of the parser; its module differs between versions of typer.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Verb(TyperCommand):
    """A command. An option that names a deletion is refused when it comes twice, unless it can be repeated."""

    def get_params(self, ctx: Any) -> Any:
        return _flagged(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        _refuse_twice(order, ctx)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            _explain(error, values, self.help or "")
            raise


class Verbs(TyperGroup):
    """A group of commands. An unknown name is refused with the closest one, or with all of them."""

    def get_params(self, ctx: Any) -> Any:
        return _flagged(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(unknown("there is no command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


def _flagged(params: list[Any]) -> list[Any]:
    """Show flags without a value: the help would show them as if they took one."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _refuse_twice(order: list[Any], ctx: Any) -> None:
    """Refuse an option of a deletion that takes one value and comes twice: the first value would be dropped silently."""
    names: set[str] = set()
    for option in order:
        if option.name in OPTIONS and not option.multiple and option.name in names:
            raise typer.BadParameter(
                "it comes twice and takes one value; give it once (a file can name many elements), or run the command twice",
                ctx=ctx,
                param=option,
            )
        names.add(str(option.name))


def _explain(error: Any, values: dict[str, Any], help_text: str) -> None:
    """Add the value to the error of the parser or, where something is missing, an example of the command."""
    if not error.message:  # something is missing, and the parser says what
        example = re.search(r"\[bold\](.+?)\[/\]", help_text)
        error.message = f"For example: {example[1]}" if example else ""
        return
    value = values.get(getattr(error.param, "name", ""))
    shown = some(f"'{each}'" for each in (value if isinstance(value, list) else [value]))
    message = error.message.removeprefix("Value error, ").partition(", unable to parse")[0].rstrip(".")
    known = value is None or shown in message
    error.message = message if known else f"{message[:1].lower()}{message[1:]} (got {shown})"
