"""``gnndelete status``: what is in force in a run, and how it came to be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, table

if TYPE_CHECKING:
    from rich.console import Console


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' wrote.")],
    json: options.Json = False,
) -> Report:
    """Show what is in force in a run, and its versions.

    [bold]gnndelete status runs/a[/]
    """
    from gnndelete.cli.run_folder import AUDIT, open_run

    opened = open_run(run)
    latest = opened.latest
    audits = [manifest.version for manifest in opened.chain if (run / AUDIT / f"{manifest.version:04}").exists()]
    shown = ("version", "kind", "request_id", "actor", "received", "served", "requests", "request", "files", "digest")
    versions = [
        {**manifest.model_dump(mode="json"), "digest": manifest.digest, "audited": manifest.version in audits}
        for manifest in opened.chain
    ]
    values = {
        "run": str(run),
        "version": latest.version,
        "folder": str(opened.folder()),
        "closed": latest.kind == "close",
        "requests": latest.requests,
        "counts": latest.counts,
        "method": latest.facts.get("method"),
        "versions": [{name: version[name] for name in (*shown, "audited")} for version in versions],
    }
    return Report(values, lambda console: _show(console, values))


def _show(console: Console, values: dict[str, Any]) -> None:
    from gnndelete.graph.kinds import in_words

    rows = [
        (
            str(each["version"]),
            each["kind"],
            ", ".join(in_words(each["request"])),
            each["requests"],
            each["request_id"] or "",
            each["actor"],
            each["served"].partition(".")[0].replace("T", " "),
            "yes" if each["audited"] else "",
        )
        for each in values["versions"]
    ]
    console.print(table(("version", "made by", "request", "requests", "id", "actor", "served (UTC)", "audited"), rows))
    force = ", ".join(in_words(values["counts"])) or "nothing"
    closed = "; closed: the ids were erased" if values["closed"] else ""
    console.print(f"deleted: {force}{closed}. Serve {values['folder']}.", markup=False, soft_wrap=True)
