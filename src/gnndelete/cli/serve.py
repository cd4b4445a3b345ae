"""``gnndelete serve`` and ``gnndelete worker``: the deletion service and what works for it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, note
from gnndelete.io.signals import Stopped

if TYPE_CHECKING:
    from gnndelete.service.lifecycle import Service

Home = Annotated[Path, typer.Option(help="Folder of the service: keys, settings, models, database.", metavar="DIR")]
Database = Annotated[
    str | None,
    typer.Option(metavar="URL", help="postgresql://… or sqlite:///FILE; by default a file in the folder."),
]

#: The home of a demo, where none is given.
DEMO_HOME = Path("gnndelete-demo")


def serve(
    home: Annotated[
        Path | None, typer.Option(help="Folder of the service; made on the first start.", metavar="DIR")
    ] = None,
    database: Database = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8080,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Leave the work to 'gnndelete worker'.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Bring a small model and a stream of requests.")] = False,
    json: options.Json = False,
) -> Report:
    """Serve deletion requests over HTTP, with a console for the browser, until stopped.

    [bold]gnndelete serve --home DIR[/]

    The first start makes the folder, its keys and an admin key, which is printed once.
    """
    from random import Random

    from gnndelete.errors import SettingError
    from gnndelete.service import server
    from gnndelete.service.demo import SETTINGS, add_model, some_link, stream
    from gnndelete.service.home import Home as Folder

    if home is None and not demo:
        raise SettingError("no folder for the service is given; give --home DIR, or --demo to try it")
    opened = Folder.create(home or DEMO_HOME, SETTINGS if demo else None, database)
    service, listening = _start(opened, database), server.listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    key = service.first_key()
    beside = []
    if demo:
        note("demo: training a small model to predict the links of images of digits")
        add_model(service)
        beside = [stream(service)]
    lines = [f"admin key: {key}"] if key is not None else []
    lines.append(f"listening on {address}" + ("" if no_worker else ", with a worker"))
    if demo and key is not None:
        lines += _examples(address, key, some_link(service, Random(0)))
    _say(lines)
    with contextlib.suppress(KeyboardInterrupt, Stopped):  # asked to end: the usual way
        server.serve(service, listening, not no_worker, beside)
    service.storage.close()
    values = {"home": str(opened.path), "address": address, "stopped": True}
    return Report(values, lambda console: console.print(f"stopped serving {opened.path}", markup=False, soft_wrap=True))


def worker(
    home: Home,
    database: Database = None,
    metrics: Annotated[
        int | None,
        typer.Option(help="Port of this machine for figures of this worker, for Prometheus.", min=1, max=65535),
    ] = None,
    host: Annotated[str, typer.Option(help="Address for --metrics.")] = "127.0.0.1",
    json: options.Json = False,
) -> Report:
    """Do the work of a service until stopped: suppress, make new weights, destroy old ones, deliver webhooks.

    [bold]gnndelete worker --home DIR[/]

    Several can run; each model has one writer at a time.
    """
    import signal
    from threading import Thread

    from gnndelete.service import server
    from gnndelete.service.home import Home as Folder
    from gnndelete.service.worker import Worker

    opened = Folder(home)
    service = _start(opened, database)
    working = Worker(service)
    if metrics is not None:
        server.serve_metrics(host, metrics, working.metrics)
    thread = Thread(target=working.run)
    thread.start()
    _say([f"working for {opened.path}"])
    with contextlib.suppress(KeyboardInterrupt, Stopped):
        signal.pause()
    working.stop()
    thread.join()
    service.storage.close()
    values = {"home": str(opened.path), "stopped": True}
    return Report(
        values, lambda console: console.print(f"stopped working for {opened.path}", markup=False, soft_wrap=True)
    )


def _start(home: Any, database: str | None) -> Service:
    from gnndelete.service.lifecycle import Service

    return Service.start(home, database)


def _say(lines: list[str]) -> None:
    """Print at once: what waits for these lines may not see the end of the command."""
    for line in lines:
        print(line, flush=True)


def _examples(address: str, key: str, link: list[str]) -> list[str]:
    """Commands to try."""
    first, second = link
    bearer = f"-H 'Authorization: Bearer {key}'"
    return [
        "",
        f"console: {address}/",
        "ask to forget a link:",
        f"  curl -s {bearer} -H 'Content-Type: application/json' \\",
        f'    -d \'{{"edges": [["{first}", "{second}"]]}}\' {address}/v1/models/digits/requests',
        "a second later, its receipt, and whether it holds:",
        f"  curl -s {bearer} {address}/v1/requests/ID/receipt -o receipt.json",
        "  gnndelete verify receipt.json",
        "",
    ]
