"""``gnndelete audit``: measured evidence about the latest deletion of a run, with a verdict, printed and as a page."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, note

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.auditing import Audit
    from gnndelete.auditing.verdict import Verdict
    from gnndelete.cli.settings import Settings
    from gnndelete.io.versions import Versions

_what = partial(typer.Option, rich_help_panel="What is measured")


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' or 'adopt' wrote, after a 'delete'.")],
    unlearned: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A copy of the latest result that is to be audited instead, such as the one in use."
        ),
    ] = None,
    reference: Annotated[
        bool | None,
        _what(
            "--reference/--no-reference", help="Retrain without the deleted data and compare with that; on by default."
        ),
    ] = None,
    attacks: Annotated[
        bool | None,
        _what("--attacks/--no-attacks", help="Attack the result, which trains a shadow model; on by default."),
    ] = None,
    seed: Annotated[
        int | None, _what(help="Seed of both trainings and of every sample; that of the run by default.")
    ] = None,
    device: options.Device = None,
    fit: options.Fit = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the report; RUN/audit/VERSION by default.")] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit with 1 unless the verdict is 'indistinguishable' and no doubts are listed."
        ),
    ] = False,
    trust: options.Trust = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Measure what the latest deletion of a run achieved: utility, forgetting, attacks, the gap to retraining.

    [bold]gnndelete audit runs/a[/]

    Writes report.html, audit.json and figures to RUN/audit/VERSION, or to OUT; no version of the run changes.
    The retrained reference is cached: a second audit of the same deletion does not train it again.
    The exit code is 0 whatever the verdict, unless --strict is given.
    """
    from gnndelete.cli.run_folder import AUDIT, check_folder, open_run, run_settings
    from gnndelete.io.files import require_writable

    received = datetime.now(UTC)
    chosen = {"audit.reference": reference, "audit.attacks": attacks, "train.seed": seed, "train.device": device}
    chosen["train.fit"] = fit
    opened = open_run(run)
    settings = run_settings(opened, config, set_, chosen, trust=trust)
    folder = opened.folder() if unlearned is None else unlearned
    if out is not None:
        check_folder(out, "audit.json", [run, run / "versions", folder])
    require_writable(run if out is None else out)
    found = _audit(opened, folder, run / AUDIT if out is None else out, settings)
    _write(found, opened, out, settings, received)
    out = run / AUDIT / f"{opened.latest.version:04}" if out is None else out

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


def _audit(run: Versions, folder: Path, out: Path, settings: Settings) -> Audit:
    from dataclasses import replace

    import gnndelete.auditing as auditing
    from gnndelete.cli.reference import reference
    from gnndelete.cli.run_folder import open_result
    from gnndelete.errors import SettingError

    options = settings.audit
    if not settings.train.epochs and settings.train.fit is None and (options.reference or options.attacks):
        raise SettingError(
            f"the run '{run.root}' was made without training (train.epochs is 0), so it does not say how to train a "
            "reference; give --fit file.py:function, or --set train.epochs=… and train.lr=…, or --no-reference --no-attacks"
        )
    unlearned, _ = open_result(run, folder, settings)
    assert unlearned.graph is not None
    retrained = reference(unlearned, run.latest.digest, out, settings) if options.reference else None
    before, now = str(run.latest.facts.get("device")), str(unlearned.graph.edge_index.device)
    if retrained is not None and before != now:
        note(f"note: the deletion ran on {before} and the reference on {now}, so their times are not compared")
        retrained = replace(retrained, seconds=0.0)
    note("auditing" + (", with a shadow model to train for the attacks" if options.attacks else ""))
    found = auditing.audit(unlearned, retrained, attacks=options.attacks, seed=settings.train.seed, progress=True)
    if run.chain[0].kind == "adopt" and settings.train.fit is None and (options.reference or options.attacks):
        found = replace(found, verdict=_with_warning(found.verdict, settings))
    # Ids can be guessed from a plain digest of a request; that of a version is salted.
    return replace(found, subject={**found.subject, "request": run.latest.digest})


def _with_warning(verdict: Verdict, settings: Settings) -> Verdict:
    """The verdict on an adopted model whose reference was trained by another loss than the model."""
    from dataclasses import replace

    from gnndelete.notes import Note

    train = settings.train
    text = (
        f"How this model was trained is not known, so the built-in loop ({settings.task.loss or 'cross-entropy'} loss, Adam, "
        f"{train.epochs:,} epochs, learning rate {train.lr:g}) trained every model it is compared with. Differences may come "
        "from that: audit again with --fit FILE.PY:FUNCTION, your own training."
    )
    return replace(verdict, warnings=(Note("trained-by-another-loss", text), *verdict.warnings))


def _write(audit: Audit, run: Versions, out: Path | None, settings: Settings, received: datetime) -> None:
    """Write the report as a whole, so that a failure leaves the earlier one."""
    from gnndelete.cli.run_folder import AUDIT, SETTINGS, provenance
    from gnndelete.io.files import commit
    from gnndelete.io.versions import Manifest, locked, seal

    def make(folder: Path) -> None:
        audit.save(folder)
        chosen = settings.to_yaml("data", "model", "task", "train", "audit", folder=folder)
        commit({folder / SETTINGS: chosen.encode()})

    if out is not None:
        make(out)
        return

    about = run.latest
    manifest = Manifest(
        version=about.version,
        kind="audit",
        previous=about.digest,
        received=received,
        served=received,
        base=about.base,
        graph=about.graph,
        remaining=about.remaining,
        facts={"verdict": audit.verdict.code},
        files={},
        **provenance(),
    )
    with locked(run.root):
        seal(run.root / AUDIT / f"{about.version:04}", make, manifest)
