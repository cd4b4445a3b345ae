"""``gnndelete service``: models, keys, backups and upkeep of a deletion service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.options import Verb, Verbs
from gnndelete.cli.output import Report, table
from gnndelete.cli.serve import Database, Home

if TYPE_CHECKING:
    from gnndelete.service.lifecycle import Service

Tenant = Annotated[str, typer.Option(help="Whose keys may use it; tenants see nothing of each other.")]


def register(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' or 'adopt' wrote.")],
    home: Home,
    name: Annotated[str, typer.Option(help="The name under which it is served.")],
    tenant: Tenant = "default",
    aim: Annotated[str | None, typer.Option(help="retrained or nonexistent; by default that of the method.")] = None,
    database: Database = None,
    trust: options.Trust = False,
    json: options.Json = False,
) -> Report:
    """Make the trained model of a run a model of the service: copy, rehearse and serve it.

    [bold]gnndelete service register runs/a --home DIR --name shop[/]
    """
    from gnndelete.cli.run_folder import open_model, open_run, run_settings
    from gnndelete.cli.settings import SCHEDULE
    from gnndelete.errors import SettingError
    from gnndelete.service.register import register as add

    opened = open_run(run)
    if opened.latest.requests:
        raise SettingError(
            f"the run '{run}' has {opened.latest.requests} deletion(s) in force; register a run without any, and send the "
            "requests to the service"
        )
    settings = run_settings(opened, trust=trust)
    model, graph, task = open_model(opened, settings)
    training = {
        "schedule": settings.train.model_dump(include=set(SCHEDULE)),
        "build": {"name": settings.model.name, "options": settings.model.options},
        "fit": settings.train.fit,
    }
    service = _open(home, database)
    made = add(service, name, model, graph, task, training, None if aim is None else {"aim": aim}, tenant)
    service.storage.close()
    shape = f"{made['nodes']:,} nodes, {made['edges']:,} edges"
    local = (
        "requests are solved locally" if made["local"] else f"every request runs the whole model ({made['not_local']})"
    )
    said = f"registered '{name}': {shape}; {local}"
    return Report(made, lambda console: console.print(said, markup=False, soft_wrap=True))


def key_add(
    home: Home,
    role: Annotated[str, typer.Option(help="requester, operator, auditor or admin.")],
    tenant: Tenant = "default",
    database: Database = None,
    json: options.Json = False,
) -> Report:
    """Make an API key, which is printed once.

    [bold]gnndelete service key add --role operator --home DIR[/]
    """
    from gnndelete.service.access import add_key
    from gnndelete.service.lifecycle import check_name

    service = _open(home, database)
    key = add_key(service.storage, check_name(tenant, "the name of a tenant"), role, service.clock.now())
    service.storage.close()
    values = {"key": key, "role": role, "tenant": tenant}
    return Report(values, lambda console: console.print(f"{role} key: {key}", markup=False, soft_wrap=True))


def key_ls(home: Home, database: Database = None, json: options.Json = False) -> Report:
    """List the API keys by their names."""
    from gnndelete.service.clock import iso

    service = _open(home, database)
    with service.storage.reading() as records:
        keys = [
            {
                "name": key.id,
                "tenant": key.tenant,
                "role": key.role,
                "created": iso(key.created),
                "revoked": iso(key.revoked),
            }
            for key in records.api_keys()
        ]
    service.storage.close()
    columns = ("name", "tenant", "role", "created", "revoked")
    rows = [tuple(each[column] or "" for column in columns) for each in keys]
    return Report({"keys": keys}, lambda console: console.print(table(columns, rows)))


def key_revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the key: what stands after gd_ in it.")],
    home: Home,
    database: Database = None,
    json: options.Json = False,
) -> Report:
    """Revoke an API key; it ends within seconds."""
    from gnndelete.errors import SettingError

    service = _open(home, database)
    with service.storage.writing() as records:
        key = records.api_key(name)
        if key is None:
            raise SettingError(f"there is no key '{name}' in force; 'gnndelete service key ls' lists them")
        key.revoked = service.clock.now()
    service.storage.close()
    said = f"revoked {name}"
    return Report({"name": name, "revoked": True}, lambda console: console.print(said, markup=False))


def _open(home: Path, database: str | None) -> Service:
    """The service of a home, which is made where there is none."""
    from gnndelete.service.home import Home as Folder
    from gnndelete.service.lifecycle import Service

    return Service.start(Folder.create(home, database=database), database)


def group(**looks: Any) -> typer.Typer:
    """The verbs of ``gnndelete service``."""
    made = typer.Typer(help="Models, keys, backups and upkeep of a deletion service.", cls=Verbs, **looks)
    keys = typer.Typer(help="API keys.", cls=Verbs, **looks)
    verbs: dict[str, Callable[..., Report]] = {"add": key_add, "ls": key_ls, "revoke": key_revoke}
    for name, verb in verbs.items():
        keys.command(name, cls=Verb)(verb)
    made.command("register", cls=Verb)(register)
    made.add_typer(keys, name="key")
    return made
