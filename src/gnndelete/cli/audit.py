"""``gnndelete audit``: measured evidence about the latest deletion of a run, with a verdict, printed and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, note

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.auditing import Audit
    from gnndelete.cli.settings import Settings

#: The folder for a report that has parts which the next one lacks.
FULLER = "fuller"
_WHAT = "What is measured"


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' wrote, after a 'delete'.")],
    unlearned: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where 'delete' wrote to; RUN/unlearned by default.")
    ] = None,
    reference: Annotated[
        bool | None,
        typer.Option(
            "--reference/--no-reference",
            help="Retrain without the deleted data and compare every figure with that; on by default.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    attacks: Annotated[
        bool | None,
        typer.Option(
            "--attacks/--no-attacks",
            help="Attack the result, for which a shadow model is trained; on by default.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of both trainings and of every sample; that of the run by default.", rich_help_panel=_WHAT
        ),
    ] = None,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the report; RUN/audit by default.")] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit with 1 unless the verdict is 'indistinguishable' and no doubts are listed."
        ),
    ] = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Measure what the latest deletion of a run achieved: utility, forgetting, attacks, the gap to retraining.

    [bold]gnndelete audit runs/a[/]

    Writes OUT/report.html, OUT/audit.json and OUT/figures; the run does not change.
    The retrained reference is cached in OUT/cache: a second audit of the same deletion does not train it again.
    The exit code is 0 whatever the verdict, unless --strict is given.
    """
    from gnndelete.cli.run_folder import (
        AUDIT_JSON,
        CACHE,
        EARLIER,
        check_target,
        missing_parts,
        run_settings,
        unchanged,
    )
    from gnndelete.cli.settings import resolve
    from gnndelete.io.files import require_writable, tidy

    chosen = {
        "audit.reference": reference,
        "audit.attacks": attacks,
        "train.seed": seed,
        "train.device": device,
    }
    settings = resolve(run_settings(run), config, set_, chosen)
    unchanged(run, settings)
    folder = run / "unlearned" if unlearned is None else unlearned
    out = run / "audit" if out is None else out
    tidy(out)
    check_target(out, [AUDIT_JSON, CACHE, EARLIER], [run, folder])
    require_writable(out)
    missing = missing_parts(out, settings)
    found = _audit(run, folder, out, settings)
    _write(found, out, settings, keep_earlier=bool(missing))
    if missing:
        note(f"note: the earlier report had {' and '.join(missing)}; it is now in {out / EARLIER / FULLER}")

    def show(console: Console) -> None:
        from gnndelete.auditing.report.text import text

        summary = text(found, console.width) if console.is_terminal else str(found)
        console.print(summary, markup=False, soft_wrap=True)
        console.print(f"\nThe whole report: {out / 'report.html'}", markup=False, soft_wrap=True)

    good = found.verdict.code == "indistinguishable" and not found.verdict.doubts
    code = 1 if strict and not good else 0
    # what only figures need is in audit.json
    values = {name: value for name, value in found.to_dict().items() if name not in ("scores", "embedding")}
    return Report({"out": str(out), **values}, show, code)


def _audit(run: Path, folder: Path, out: Path, settings: Settings) -> Audit:
    from dataclasses import replace

    import gnndelete.auditing as auditing
    from gnndelete.cli.reference import reference
    from gnndelete.cli.run_folder import open_result
    from gnndelete.errors import SettingError

    options = settings.audit
    if not settings.train.epochs and (options.reference or options.attacks):
        raise SettingError(
            f"the run '{run}' was made without training (train.epochs is 0), so it does not say how to train a "
            "reference; give --set train.epochs=… and train.lr=… as the model was trained, or --no-reference --no-attacks"
        )
    unlearned, values = open_result(run, folder, settings)
    assert unlearned.data is not None
    retrained = reference(unlearned, out, settings) if options.reference else None
    before, now = str(values.get("device")), str(unlearned.data.edge_index.device)
    if retrained is not None and before != now:
        note(f"note: the deletion ran on {before} and the reference on {now}, so their times are not compared")
        retrained = replace(retrained, seconds=0.0)
    note("auditing" + (", with a shadow model to train for the attacks" if options.attacks else ""))
    return auditing.audit(unlearned, retrained, attacks=options.attacks, seed=settings.train.seed, progress=True)


def _write(audit: Audit, out: Path, settings: Settings, keep_earlier: bool) -> None:
    """Write the report as a whole, so that a failure leaves the earlier one; ``keep_earlier`` moves that one first."""
    import tempfile

    from gnndelete.cli.run_folder import SETTINGS, move_report
    from gnndelete.io.files import commit

    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        audit.save(made)
        contents: dict[Path, Any] = {out / p.relative_to(made): p.read_bytes() for p in made.rglob("*") if p.is_file()}
    contents[out / SETTINGS] = settings.to_yaml("data", "model", "task", "train", "audit").encode()
    earlier = [path for kind in ("png", "svg") for path in (out / "figures").glob(f"*.{kind}")]
    moved = move_report(out, FULLER)[0] if keep_earlier else {}
    commit(contents | moved, remove=[path for path in earlier if path not in contents])
