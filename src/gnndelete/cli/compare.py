"""``gnndelete compare``: one deletion by several methods and seeds, in one table beside Retrain and the controls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.asking import asking
from gnndelete.cli.report import Report

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.comparison import Comparison

_HOW = "How"


@asking
def compare(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' wrote.")],
    request: dict[str, Any],
    methods: Annotated[
        str | None,
        typer.Option(help="Names with commas between; every method that fits by default.", rich_help_panel=_HOW),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.", rich_help_panel=_HOW)] = 3,
    controls: Annotated[bool, typer.Option(help="Show what ruined models reach, too.", rich_help_panel=_HOW)] = True,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; RUN/comparison by default.")] = None,
    skip_unseen: options.SkipUnseen = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Delete the same elements by several methods from the model of a run, and compare them with training again.

    [bold]gnndelete compare runs/a --random 0.025 --methods gnndelete,unlink --seeds 3[/]

    Nothing of the run changes. Finished rows are kept in OUT/rows.jsonl: started again, a stopped comparison goes on.
    """
    from gnndelete.cli.runs import SETTINGS, run_settings, to_bytes, unchanged
    from gnndelete.cli.settings import resolve
    from gnndelete.errors import SettingError
    from gnndelete.io.files import commit, writable

    settings = resolve(run_settings(run), config, set_, {**request, "train.device": device})
    unchanged(run, settings)
    out = run / "comparison" if out is None else out
    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    writable(out)
    names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    table, asked = _table(run, out, settings, names, seeds, controls, skip_unseen)
    values = {"out": str(out), "run": str(run), **asked, **table.to_dict()}
    contents = {out / "comparison.json": to_bytes(values), out / SETTINGS: settings.to_yaml().encode()}
    commit(contents)
    title = f"{run.name}: one deletion, {len(table.methods)} ways, {seeds} seed{'s' * (seeds > 1)}"
    return Report(values, lambda console: _show(console, table, title, out))


def _show(console: Console, table: Comparison, title: str, out: Path) -> None:
    from gnndelete.comparison import WIDE

    console.print(table.table(title, wide=console.width >= WIDE))
    ranked = (
        "E_d says how surely deleted edges score below remaining ones; ruined models reach it, so read it beside E_t."
    )
    lines = [
        *table.failures(),
        *(f"note: {note.text}" for note in table.notes),
        *([ranked] if "deleted_auroc" in table.scores() else []),
        f"The gap is the difference from Retrain, that is from training again. Written to {out}.",
    ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _table(
    run: Path, out: Path, settings: Any, names: list[str] | None, seeds: int, controls: bool, skip_unseen: bool
) -> tuple[Comparison, dict[str, Any]]:
    from gnndelete.cli.construct import build_method
    from gnndelete.cli.requests import read_request
    from gnndelete.cli.runs import open_run
    from gnndelete.cli.untrained import check_trained
    from gnndelete.comparison import compare as run_comparison
    from gnndelete.graph.validation import edge_table
    from gnndelete.training.loop import train

    def method(name: str) -> Any:
        chosen = settings.method.model_dump() if settings.method.name == name else {"name": name}
        return build_method(settings.model_copy(update={"method": type(settings.method).model_validate(chosen)}))

    chosen = [method(name) for name in names] if names is not None else None  # mistakes show before anything is loaded
    model, graph, task = open_run(run, settings)
    asked = read_request(settings.deletion, graph, task)
    request, skipped = check_trained(asked, graph, edge_table(graph.data), task, skip_unseen)
    schedule = settings.train.model_dump(include={"epochs", "lr", "weight_decay", "patience", "batch_size"})
    left = task.without(request.nodes)

    def fit(model: Any, data: Any, seed: int) -> Any:
        train(model, data, left, seed=seed, **schedule)
        return model

    table = run_comparison(
        model,
        graph.data,
        request,
        task,
        chosen,
        range(settings.train.seed, settings.train.seed + seeds),
        fit=fit,
        controls=controls,
        store=out / "rows.jsonl",
        schedule=schedule,
        progress=True,
    )
    return table, {"request": request.counts, "skipped_unseen": skipped}
