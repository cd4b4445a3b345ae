"""``gnndelete status``: what is in force in a run, or what a service has to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, prose, table

if TYPE_CHECKING:
    from rich.console import Console


def status(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run that 'train' or 'adopt' wrote, or the home of a service.")
    ],
    json: options.Json = False,
) -> Report:
    """Show the requests of a run with their dates, what is in force, and what is left to do; of a service, its models.

    [bold]gnndelete status runs/a[/]
    """
    if (run / "service.json").exists():
        return _service(run)
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
        "weights": latest.facts.get("weights"),
        "versions": [{name: version[name] for name in (*shown, "audited")} for version in versions],
    }
    values["to_do"] = _to_do(values, latest.version in audits)
    return Report(values, lambda console: _show(console, values))


def _to_do(values: dict[str, Any], audited: bool) -> list[str]:
    """What is left to do about the requests that are in force, in sentences."""
    run, found = values["run"], []
    if not values["requests"]:
        return [f"nothing was deleted yet: gnndelete delete {run} --nodes FILE"]
    if not audited and not values["closed"]:
        found.append(f"measure what the latest request achieved: gnndelete audit {run}")
    if values["weights"] != "new":
        found.append(
            "the weights still hold what was deleted: train new ones without it, then destroy these and their copies "
            "(gnndelete delete RUN --save-graph DIR writes the graph to train on)".replace("RUN", run)
        )
    if not values["closed"]:
        found.append(
            f"remove it from your own tables, too; when no further request follows, gnndelete close {run} erases the lists"
        )
    return found


def _service(home: Path) -> Report:
    from gnndelete.service.access import Caller
    from gnndelete.service.lifecycle import open_service

    service = open_service(home)
    with service.storage.reading() as records:
        tenants = sorted({model.tenant for model in records.models()})
        leaves = records.ledger_size()
    models, late, due = [], 0, {"on-track": 0, "due-soon": 0, "overdue": 0}
    for tenant in tenants:
        caller = Caller("status", tenant, "admin")
        models += [{"tenant": tenant, **service.model(caller, each["name"])} for each in service.models(caller)]
        figures = service.figures(caller)
        late += figures["late_requests"]
        for name, count in figures["due_requests"].items():
            due[name] += count
    service.storage.close()
    values = {"home": str(home), "models": models, "due_requests": due, "late_requests": late, "ledger_leaves": leaves}
    return Report(values, lambda console: _show_service(console, values))


def _show_service(console: Console, values: dict[str, Any]) -> None:
    lines = []
    for each in values["models"]:
        requests = ", ".join(f"{count:,} {state}" for state, count in sorted(each["requests"].items())) or "none"
        due = (each["next_due"] or "").partition(".")[0].replace("T", " ")
        lines += [
            f"{each['name']} (tenant {each['tenant']})",
            f"  live: version {each['aliases']['live']}, {each['weights']} weights of generation {each['generation']}, "
            f"segments: {each['segments']}",
            f"  requests: {requests}",
            f"  next due: {due} UTC" if due else "  next due: nothing",
        ]
    if not lines:
        lines = [f"no model yet: gnndelete service register RUN --home {values['home']} --name NAME"]
    due = values["due_requests"]
    prose(
        console,
        [
            *lines,
            f"suppression: {values['late_requests']} late (past the promised time)",
            f"new weights: {due['on-track']} on track, {due['due-soon']} due soon, {due['overdue']} overdue",
        ],
    )


def _show(console: Console, values: dict[str, Any]) -> None:
    from gnndelete.graph.kinds import in_words

    rows = [
        (
            f"{each['version']}{' (live)' if each['version'] == values['version'] else ''}",
            each["kind"],
            ", ".join(in_words(each["request"])),
            each["request_id"] or "",
            each["received"].partition(".")[0].replace("T", " ")[:16],
            "yes" if each["audited"] else "",
        )
        for each in values["versions"]
    ]
    console.print(table(("version", "made by", "request", "id", "received (UTC)", "audited"), rows))
    force = ", ".join(in_words(values["counts"])) or "nothing"
    closed = "; closed: the ids were erased" if values["closed"] else ""
    console.print(f"deleted: {force}{closed}. Serve {values['folder']}.", markup=False, soft_wrap=True)
    prose(console, [f"to do: {line}" for line in values["to_do"]])
