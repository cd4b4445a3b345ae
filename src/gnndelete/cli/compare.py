"""``gnndelete compare``: one deletion by several methods and seeds, in one table with Retrain and the controls."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.deletion_options import deletion_options
from gnndelete.cli.output import Report, note, plain

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.comparison import Comparison
    from gnndelete.io.versions import Versions

_how = partial(typer.Option, rich_help_panel="How")


@deletion_options
def compare(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' or 'adopt' wrote.")],
    request: dict[str, Any],
    methods: Annotated[str | None, _how(help="Names separated by commas; every method that fits by default.")] = None,
    seeds: Annotated[int, _how(min=1, help="Number of seeds.")] = 3,
    controls: Annotated[bool, _how(help="Also show the scores of models ruined on purpose.")] = True,
    device: options.Device = None,
    fit: options.Fit = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; RUN/comparison by default.")] = None,
    skip_unseen: options.SkipUnseen = False,
    trust: options.Trust = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Delete the same elements from the model of a run by several methods, and compare them with retraining.

    [bold]gnndelete compare runs/a --random 0.025 --methods gnndelete,unlink --seeds 3[/]

    The run does not change. Finished rows are kept in OUT/rows.jsonl: a stopped comparison resumes there.
    """
    from gnndelete.cli.run_folder import SETTINGS, check_folder, open_run, run_settings, to_bytes
    from gnndelete.io.files import commit, ensure_folder, require_writable
    from gnndelete.io.versions import locked

    opened = open_run(run)
    settings = run_settings(opened, config, set_, {**request, "train.device": device, "train.fit": fit}, trust=trust)
    out = run / "comparison" if out is None else out
    check_folder(out, "rows.jsonl", [run])
    require_writable(out)
    names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    with ensure_folder(out), locked(out, lambda: note(f"waiting for another comparison in {plain(str(out))}")):
        table, request_counts = _table(opened, out, settings, names, seeds, controls, skip_unseen)
        found = {**request_counts, **table.to_dict()}
        commit({out / "comparison.json": to_bytes(found), out / SETTINGS: settings.to_yaml(folder=out).encode()})
    values = {"out": str(out), "run": str(run), **found}
    title = f"{run.name}: one deletion, {len(table.methods)} ways, {seeds} seed{'s' * (seeds > 1)}"
    return Report(values, lambda console: _show(console, table, title, out))


def _show(console: Console, table: Comparison, title: str, out: Path) -> None:
    from gnndelete.comparison import WIDE

    console.print(table.table(title, wide=console.width >= WIDE))
    ranked = "Deleted AUROC: remaining edges score above deleted ones. Ruined models reach it too: read the test AUROC as well."
    lines = [
        *table.failures(),
        *(f"note: {note.text}" for note in table.notes),
        *([ranked] if "deleted_auroc" in table.scores() else []),
        f"The gap is the difference from Retrain. Written to {out}.",
    ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _table(
    run: Versions, out: Path, settings: Any, names: list[str] | None, seeds: int, controls: bool, skip_unseen: bool
) -> tuple[Comparison, dict[str, Any]]:
    from gnndelete.cli.construct import build_method, fit_function
    from gnndelete.cli.deletion_options import check_trained, read_request
    from gnndelete.cli.run_folder import open_model
    from gnndelete.cli.settings import SCHEDULE
    from gnndelete.comparison import compare as run_comparison
    from gnndelete.graph.validation import edge_table

    def method(name: str) -> Any:
        chosen = settings.method.model_dump() if settings.method.name == name else {"name": name}
        return build_method(settings.model_copy(update={"method": type(settings.method).model_validate(chosen)}))

    chosen = (
        [method(name) for name in names] if names is not None else None
    )  # refuses mistakes before anything is loaded
    model, graph, task = open_model(run, settings)
    request = read_request(settings.deletion, graph, task)
    request, skipped = check_trained(request, graph, edge_table(graph.data), task, skip_unseen)
    table = run_comparison(
        model,
        graph.data,
        request,
        task,
        chosen,
        range(settings.train.seed, settings.train.seed + seeds),
        fit=fit_function(settings, task.without(request.nodes), progress=False),
        controls=controls,
        store=out / "rows.jsonl",
        schedule=settings.train.model_dump(include=set(SCHEDULE)),
        progress=True,
    )
    return table, {"request": request.counts, "skipped_unseen": skipped}
