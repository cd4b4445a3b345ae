"""``gnndelete delete``: forget elements from the model of a run, together with all earlier requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.deletion_options import deletion_options
from gnndelete.cli.output import Report, note, prose, score_title

if TYPE_CHECKING:
    from rich.console import Console

_HOW = "How"


@deletion_options
def delete(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' wrote.")],
    request: dict[str, Any],
    method: Annotated[str | None, typer.Option(help="See 'gnndelete ls methods'.", rich_help_panel=_HOW)] = None,
    lam: Annotated[
        str | None, typer.Option(help="Weight of forgetting: auto, or from 0 to 1 (gnndelete).", rich_help_panel=_HOW)
    ] = None,
    aim: Annotated[
        str | None,
        typer.Option(
            help="Forget as if retrained, or as if nonexistent (gnndelete); as for earlier requests by default.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; RUN/unlearned by default.")] = None,
    save_graph: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the remaining graph to this folder; without a request, that of earlier requests."
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Drop the earlier requests of this run: what they deleted comes back.")
    ] = False,
    skip_deleted: Annotated[
        bool, typer.Option("--skip-deleted", help="Leave out what earlier requests have deleted, and report how much.")
    ] = False,
    skip_unseen: options.SkipUnseen = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the request and show what would happen.")] = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Make the model of a run forget edges, nodes, features, labels, relations or graphs.

    [bold]gnndelete delete runs/a --edges requests.csv[/]

    The request is solved together with all earlier requests of the run.
    For link models the edges must be training edges of the run: the model never learned the others.
    RUN/state.json names what was deleted and is needed for later requests: keep it as safe as the data itself.
    """
    from gnndelete.cli.run_folder import STATE, run_settings, take_over, unchanged
    from gnndelete.cli.settings import resolve
    from gnndelete.io.files import tidy

    chosen = {
        **request,
        "method.name": method,
        "method.lam": _number(lam),
        "method.aim": aim,
        "train.device": device,
    }
    settings = resolve(run_settings(run), config, set_, chosen)
    unchanged(run, settings)
    out = run / "unlearned" if out is None else out
    tidy(out, *([save_graph] if save_graph is not None else []))
    _check_out(run, out)
    changed = ""
    if not fresh and settings.deletion.asks:
        settings, changed = take_over(settings, run / STATE)
    from gnndelete.cli.serving import Serving  # imports torch, after the settings were checked

    serving = Serving(run, out, settings, save_graph, skip_deleted, skip_unseen)
    if save_graph is not None and not settings.deletion.asks and not (fresh or dry_run):
        saved = serving.save_remaining()
        return Report(saved, lambda console: _show_saved(console, saved))
    values = serving.plan(fresh) if dry_run else serving.serve(fresh)
    if changed:
        note(f"note: {changed}")
    return Report(values, lambda console: (_show_plan if dry_run else _show)(console, values))


def _check_out(run: Path, out: Path) -> None:
    from gnndelete.cli.run_folder import RESULT, check_target, result_of
    from gnndelete.errors import SettingError

    check_target(out, [RESULT], [run])
    if out.resolve().parent == run.resolve():  # the result in a copied run names the original run
        return
    owner = result_of(out)
    if owner is not None and owner.resolve() != run.resolve() and owner.is_dir():
        raise SettingError(f"'{out}' holds the result of the run '{owner}'; give --out another folder")


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _counts(counts: dict[str, int]) -> str:
    from gnndelete.graph.kinds import in_words

    return ", ".join(in_words(counts)) or "nothing"


def _show_plan(console: Console, values: dict[str, Any]) -> None:
    level = values["assurance"]
    if values["weaker"] is not None:
        level += f", or {values['weaker']} if taking the elements out of the data is enough"
    lines = [f"The request is valid: {_counts(values['request'])} would be forgotten with '{values['method']}'."]
    if values["earlier_requests"]:
        lines.append(f"Together with {values['earlier_requests']} earlier request(s): {_counts(values['counts'])}.")
    lines.append(f"assurance: {level}. {values['assurance_meaning']}")
    if values["aim"]:
        lines.append(f"aim: {_aim(values)}.")
    lines.append(f"The result would go to {values['out']}, the list of requests to {values['state']}.")
    prose(console, [*lines, "Nothing was written."])


def _aim(values: dict[str, Any]) -> str:
    from gnndelete.notes import AIMS, explain_aim

    aim, lam = values["aim"], values["lam"]
    if lam != "auto":
        return f"{aim}: {explain_aim(aim, lam)}"
    return f"{aim}: {AIMS[aim]}. How strongly (lam) is chosen on validation data when it runs"


def _show_saved(console: Console, values: dict[str, Any]) -> None:
    text = f"The graph without {_counts(values['counts'])} ({values['requests']} request(s)) was written to "
    console.print(f"{text}{values['remaining_graph']}. Nothing else was changed.", markup=False, soft_wrap=True)


def _show(console: Console, values: dict[str, Any]) -> None:
    from rich.table import Table

    before, after = values["before"], values["after"]
    console.print(f"{_counts(values['counts'])} forgotten with {values['method']}", markup=False, style="bold")
    table = Table()
    table.add_column("")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for name in after:
        table.add_row(score_title(name), f"{before[name]:.4f}", f"{after[name]:.4f}")
    if not after:
        table.add_row("scores", "no test data", "no test data")
    table.add_row("seconds", "", f"{values['seconds']:.3g}")
    table.add_row("parameters changed", "", f"{values['parameters']:,}")
    console.print(table)
    lines = [f"assurance: {values['assurance']}, {values['weights']} weights. {values['assurance_meaning']}"]
    if values["aim"]:
        lines.append(f"aim: {values['aim']}: {values['aim_meaning']}.")
    if "deleted_auroc" in after:
        lines.append(
            "deleted AUROC: at 1 every deleted edge scores below the remaining ones; read it together with the test AUROC."
        )
    lines.append("Both columns are measured without deleted elements in the test data.")
    lines += [f"note: {note['text']}" for note in values["notes"] if note["code"] != "calibration"]
    lines.append(f"requests so far: {values['requests']}; written to {values['out']}")
    saved = values["remaining_graph"]
    how = (
        f": {saved}" if saved else f"; 'gnndelete delete {values['run']} --save-graph DIR' writes it, deleting nothing"
    )
    lines.append(f"serve it on the remaining graph{how}")
    lines.append(f"SENSITIVE: {values['state']} names what was deleted; it is needed for later requests only")
    prose(console, lines)
