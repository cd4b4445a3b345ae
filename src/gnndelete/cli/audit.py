"""``gnndelete audit``: measured evidence about the latest deletion of a run, with a verdict first, and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.report import Report, note

if TYPE_CHECKING:
    from rich.console import Console

    from gnndelete.auditing import Audit
    from gnndelete.cli.settings import Settings

_WHAT, FULLER = "What is measured", "fuller"


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' wrote, after a 'delete'.")],
    unlearned: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where 'delete' wrote to; RUN/unlearned by default.")
    ] = None,
    reference: Annotated[
        bool | None,
        typer.Option(
            "--reference/--no-reference",
            help="Train once more without the deleted data, and set every figure beside it; on by default.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    attacks: Annotated[
        bool | None,
        typer.Option(
            "--attacks/--no-attacks",
            help="Attack the result, with a shadow model that is trained for it; on by default.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of both trainings and of every draw; that of the run by default.", rich_help_panel=_WHAT
        ),
    ] = None,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the report; RUN/audit by default.")] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit with 1 unless the verdict is 'indistinguishable' and no graph speaks against it."
        ),
    ] = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Measure what the latest deletion of a run achieved: utility, forgetting, attacks, the gap to training again.

    [bold]gnndelete audit runs/a[/]

    Writes OUT/report.html to read and hand on, OUT/audit.json and OUT/figures; nothing of the run changes.
    The reference is kept in OUT/cache, so that a second audit of the same deletion need not train it again.
    A bad verdict is a finding, not an error: the exit code is 0 all the same, unless --strict is given.
    """
    from gnndelete.cli.aside import EARLIER, lost
    from gnndelete.cli.runs import put_in_order, run_settings, unchanged
    from gnndelete.cli.settings import resolve
    from gnndelete.io.files import writable

    given = {
        "audit.reference": reference,
        "audit.attacks": attacks,
        "train.seed": seed,
        "train.device": device,
    }
    settings = resolve(run_settings(run), config, set_, given)
    unchanged(run, settings)
    folder = run / "unlearned" if unlearned is None else unlearned
    out = run / "audit" if out is None else out
    put_in_order(out)
    _refuse_target(run, folder, out)
    writable(out)
    less = lost(out, settings)
    found = _audit(run, folder, out, settings)
    _write(found, out, settings, less)
    if less:
        note(f"note: the report before had {' and '.join(less)}; it was kept in {out / EARLIER / FULLER}")

    def show(console: Console) -> None:
        from gnndelete.auditing.report.html import text

        said = text(found.values, console.width) if console.is_terminal else str(found)
        console.print(said, markup=False, soft_wrap=True)
        console.print(f"\nThe whole report: {out / 'report.html'}", markup=False, soft_wrap=True)

    good = found.verdict == "indistinguishable" and not found.values["verdict"]["doubts"]
    code = 1 if strict and not good else 0
    values = {name: value for name, value in found.to_dict().items() if name != "figures"}  # those are in audit.json
    return Report({"out": str(out), **values}, show, code)


def _refuse_target(run: Path, unlearned: Path, out: Path) -> None:
    from gnndelete.cli import runs
    from gnndelete.cli.aside import EARLIER
    from gnndelete.cli.reference import CACHE
    from gnndelete.errors import SettingError

    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    if out.resolve() in (run.resolve(), unlearned.resolve()) or any(
        (out / name).exists() for name in (runs.METRICS, runs.RESULT)
    ):
        raise SettingError(f"'{out}' holds a run or its result; give --out a folder of its own")
    if (
        out.is_dir()
        and any(out.iterdir())
        and not any((out / name).exists() for name in ("audit.json", CACHE, EARLIER))
    ):
        raise SettingError(f"'{out}' holds other files and no earlier audit; give --out a new folder")


def _audit(run: Path, folder: Path, out: Path, settings: Settings) -> Audit:
    from dataclasses import replace

    import gnndelete.auditing as auditing
    from gnndelete.cli.reference import reference
    from gnndelete.cli.results import open_result
    from gnndelete.errors import SettingError

    asked = settings.audit
    if not settings.train.epochs and (asked.reference or asked.attacks):
        raise SettingError(
            f"the run '{run}' was taken over without training (train.epochs is 0), so it does not say how to train a "
            "reference; give --set train.epochs=… and train.lr=… as the model was trained, or --no-reference --no-attacks"
        )
    unlearned, values = open_result(run, folder, settings)
    assert unlearned.data is not None
    beside = reference(unlearned, out, settings) if asked.reference else None
    where, here = str(values.get("device")), str(unlearned.data.edge_index.device)
    if beside is not None and where != here:
        note(f"note: the deletion ran on {where} and the reference on {here}, so their times are not compared")
        beside = replace(beside, seconds=0.0)
    note("auditing" + (", with a shadow model to train for the attacks" if asked.attacks else ""))
    return auditing.audit(unlearned, beside, attacks=asked.attacks, seed=settings.train.seed, progress=True)


def _write(audit: Audit, out: Path, settings: Settings, less: list[str]) -> None:
    """Everything at once: an audit that fails here leaves an earlier report whole. A fuller one is moved aside."""
    import tempfile

    from gnndelete.cli.aside import move_aside
    from gnndelete.cli.runs import SETTINGS
    from gnndelete.io.files import commit

    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        audit.save(made)
        contents: dict[Path, Any] = {out / p.relative_to(made): p.read_bytes() for p in made.rglob("*") if p.is_file()}
    contents[out / SETTINGS] = settings.to_yaml("data", "model", "task", "train", "audit").encode()
    earlier = [path for kind in ("png", "svg") for path in (out / "figures").glob(f"*.{kind}")]
    aside = move_aside(out, FULLER)[0] if less else {}
    commit(contents | aside, remove=[path for path in earlier if path not in contents])
