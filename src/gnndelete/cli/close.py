"""``gnndelete close``: erase the ids of what was deleted; the deletions stay in force."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report
from gnndelete.io.signals import hold_signals


def close(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with deletions.")],
    request_id: Annotated[str | None, typer.Option(metavar="ID", help="Your name of this request.")] = None,
    json: options.Json = False,
) -> Report:
    """Erase the lists of what was deleted from a run. The deletions stay in force, and no further ones can be added.

    [bold]gnndelete close runs/a[/]

    A salted digest of every list stays, and the rows in the adapter. Write the remaining graph first, if you need it:
    [bold]gnndelete delete runs/a --save-graph left[/]
    """
    from gnndelete.cli.run_folder import AUDIT, CACHE, PREPARED, PRIVATE, STATE, provenance, require_state, writing

    received = datetime.now(UTC)
    with writing(run) as opened:
        before = opened.latest
        if before.kind != "close":
            require_state(opened)
            source = opened.folder()

            def copy(folder: Path) -> None:
                for name in before.files.keys() - {STATE}:
                    shutil.copyfile(source / name, folder / name)
                hold_signals()

            same = ("requests", "counts", "base", "graph", "remaining", "facts")
            opened.publish(
                copy,
                PRIVATE,
                kind="close",
                request_id=request_id,
                received=received,
                served=received,
                **{name: getattr(before, name) for name in same},
                **provenance(),
            )
            opened.repair()
        for folder in (run / AUDIT / CACHE, run / PREPARED):  # the latter holds rows of what was deleted
            shutil.rmtree(folder, ignore_errors=True)
    commitments = {manifest.version: manifest.files[STATE] for manifest in opened.chain if STATE in manifest.files}
    values = {
        "run": str(run),
        "version": opened.latest.version,
        "applied": True,
        "counts": opened.latest.counts,
        "requests": opened.latest.requests,
        "commitments": commitments,
    }
    said = (
        f"closed {run}: {opened.latest.requests} request(s) stay in force, and the lists of what they name were erased"
    )
    return Report(values, lambda console: console.print(said, markup=False, soft_wrap=True))
