"""``gnndelete verify``: whether everything in a run, or in a graph on disk, is as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, prose

_RESTORE = "Restore the folder from a backup."


def verify(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run that 'train' wrote, or a graph on disk or its prepared rows.")
    ],
    json: options.Json = False,
) -> Report:
    """Check every file of a run against the digests in its chain of versions; of a graph on disk against its manifest.

    [bold]gnndelete verify runs/a[/]

    The exit code is 1 where something is missing, was changed, or does not belong together.
    """
    from gnndelete.cli.run_folder import AUDIT, CACHE, is_whole
    from gnndelete.errors import AdapterError, SettingError
    from gnndelete.io import arrays
    from gnndelete.io.versions import Manifest, Versions, folder_problems

    problems: list[str] = []
    versions: list[str] = []
    if arrays.is_arrays(run):
        problems = arrays.problems(run)
        values = {"folder": str(run), "problems": problems, "verified": not problems}
        lines = [*problems, _RESTORE] if problems else [f"{run}: every file is as it was written"]
        return Report(values, lambda console: prose(console, lines), exit_code=1 if problems else 0)
    if not (run / "base").exists():
        raise SettingError(f"'{run}' is no run; give the folder that gnndelete train wrote, or that of a DiskGraph")
    try:
        opened = Versions(run)
        versions = [manifest.digest for manifest in opened.chain]
        for manifest in opened.chain:
            problems += opened.problems(manifest.version)
        for folder in sorted((run / AUDIT).glob("[0-9]*")):
            audit = Manifest.read(folder)
            problems += folder_problems(folder, audit.files)
            if audit.kind != "audit" or audit.previous not in versions:
                problems.append(f"the audit in '{folder}' is about no version of this run")
        cached = sorted((run / AUDIT / CACHE).glob("*"))
        problems += [f"'{file}' is not the file that was written" for file in cached if not is_whole(file)]
    except AdapterError as error:
        problems.append(error.why)
    values = {"run": str(run), "versions": versions, "problems": problems, "verified": not problems}
    good = f"{run}: {len(versions)} version(s), every file is as it was written"
    lines = [*problems, _RESTORE] if problems else [good]
    return Report(values, lambda console: prose(console, lines), exit_code=1 if problems else 0)
