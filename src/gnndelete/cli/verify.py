"""``gnndelete verify``: whether a run, a graph on disk, a receipt or a whole service is as it was written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, prose

_RESTORE = "Restore the folder from a backup."


def verify(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A receipt, a run that 'train' or 'adopt' wrote, a graph on disk, or the home of a service.",
        ),
    ],
    key: Annotated[
        Path | None, typer.Option(metavar="PUBLIC.PEM", help="Who may have signed the receipt; anyone without.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE", help="A service, or a checkpoint of its ledger, that continues the receipt's."
        ),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Home of the service: solve the deletion again and compare.")
    ] = None,
    json: options.Json = False,
) -> Report:
    """Check a receipt offline; or every file of a run, a graph on disk or a service against its digests.

    [bold]gnndelete verify receipt.json --key public.pem[/]

    The exit code is 1 where something is missing, was changed, or does not belong together. The key for the ledger of a
    service is read from GNNDELETE_API_KEY.
    """
    from gnndelete.errors import SettingError

    if run.is_file():
        return _receipt(run, key, ledger, replay)
    if not run.exists():
        raise SettingError(f"'{run}' is no run: there is nothing; name a receipt, a run, a graph on disk or a service")
    if key is not None or ledger is not None or replay is not None:
        raise SettingError(f"'{run}' is a folder; --key, --ledger and --replay are for receipts")
    return _home(run) if (run / "service.json").exists() else _folder(run)


def _receipt(file: Path, key: Path | None, ledger: str | None, folder: Path | None) -> Report:
    from gnndelete.errors import AdapterError
    from gnndelete.service.receipts import problems, read
    from gnndelete.service.verify import KEY_VARIABLE, fetch_checkpoint, read_key, replay

    content = file.read_bytes()
    trusted = None if key is None else read_key(key)
    found, replayed = problems(content, trusted), None
    values: dict[str, Any] = {"receipt": str(file)}
    lines: list[str] = []
    if not found:
        receipt = read(content)
        if ledger is not None:
            try:
                size = receipt.ledger.checkpoint.size
                newer = fetch_checkpoint(ledger, size, os.environ.get(KEY_VARIABLE))
                found = problems(content, trusted, newer)
            except ValueError as error:
                found = [f"the checkpoint was changed or is damaged: {error}"]
        if folder is not None and not found:
            try:
                replayed = replay(folder, content)
                values["replay"] = {
                    "possible": replayed.is_possible,
                    "identical": replayed.is_identical,
                    "distance": replayed.distance,
                }
            except AdapterError as error:
                found.append(f"replay: {error.why}")
        said = receipt.model_dump(mode="json", include={"id", "model", "level", "weights", "times", "key"})
        values |= {"says": said, "key_pinned": key is not None}
        lines = _said(receipt, trusted is not None)
        lines += [] if replayed is None else [replayed.text]
    values |= {"problems": found, "verified": not found}
    if found:
        lines = [*found, "Do not rely on this receipt; ask the service for it again."]
    return Report(values, lambda console: prose(console, lines), exit_code=1 if found else 0)


def _said(receipt: Any, pinned: bool) -> list[str]:
    old = "the old weights still hold the data until they are replaced"
    weights = f"on the old weights ({old})" if receipt.weights == "base" else "by new weights that never saw the data"
    times = receipt.times
    signer = (
        "by the key that was given"
        if pinned
        else f"by {receipt.key[:16]}…, which nobody vouched for: pin it with --key"
    )
    clock = f"suppressed {times.suppressed}" + ("" if times.regrown is None else f", new weights {times.regrown}")
    return [
        "the receipt holds: it was not changed, and the ledger holds it",
        f"request {receipt.id}: received {times.received}, {clock}",
        f"model {receipt.model['name']}, version {receipt.model['version']}: {receipt.level}, {weights}",
        f"signed {signer}",
        "It proves who said what when, and that it was not changed since; not that nobody kept a copy of the data or the model.",
    ]


def _home(home: Path) -> Report:
    from gnndelete.service.home import Home
    from gnndelete.service.lifecycle import Service
    from gnndelete.service.verify import home_problems

    service = Service(Home(home))
    with service.storage.reading() as records:
        size, models = records.ledger_size(), len(records.models())
    problems = home_problems(service)
    service.storage.close()
    values = {"home": str(home), "leaves": size, "models": models, "problems": problems, "verified": not problems}
    good = f"{home}: {size} leaves of the ledger, {models} model(s): everything is as it was written"
    lines = [*problems, _RESTORE] if problems else [good]
    return Report(values, lambda console: prose(console, lines), exit_code=1 if problems else 0)


def _folder(run: Path) -> Report:
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
        raise SettingError(
            f"'{run}' is no run; give the folder that gnndelete train wrote, that of a DiskGraph, or the home of a service"
        )
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
