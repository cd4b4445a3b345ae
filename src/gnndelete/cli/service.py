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

    service = _existing(home, database)
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

    service = _existing(home, database)
    with service.storage.writing() as records:
        key = records.api_key(name)
        if key is None:
            raise SettingError(f"there is no key '{name}' in force; 'gnndelete service key ls' lists them")
        key.revoked = service.clock.now()
    service.storage.close()
    said = f"revoked {name}"
    return Report({"name": name, "revoked": True}, lambda console: console.print(said, markup=False))


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, such as service.tar.gz.")],
    home: Home,
    database: Database = None,
    json: options.Json = False,
) -> Report:
    """Write models, keys and the database into one file, while the service runs.

    [bold]gnndelete service backup service.tar.gz --home DIR[/]

    The file is sensitive: it holds the graph, the weights and all keys. Keep it no longer than you need it.
    """
    from gnndelete.service.upkeep import backup as write

    service = _existing(home, database)
    made = write(service, file)
    service.storage.close()
    said = f"wrote {file}: {made['models']} model(s), {made['requests']} request(s), {made['bytes']:,} bytes"
    return Report({"file": str(file), **made}, lambda console: console.print(said, markup=False, soft_wrap=True))


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that 'backup' wrote.")],
    home: Home,
    database: Database = None,
    tombstones: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="What was deleted after the backup, as 'service tombstones' wrote it."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in the place of the service in the folder.")
    ] = False,
    json: options.Json = False,
) -> Report:
    """Bring a service back from a backup; stop it first. What was deleted since is suppressed before anything is served.

    [bold]gnndelete service restore service.tar.gz --home DIR --tombstones stones.json[/]

    What the service that is replaced knows to be deleted is taken along.
    """
    from gnndelete.datasets.tombstones import Tombstones
    from gnndelete.service.upkeep import restore as bring_back

    made = bring_back(file, home, database, [Tombstones.load(each) for each in tombstones or []], replace)
    said = (
        f"restored {home}: {made['models']} model(s), {made['requests']} request(s); "
        f"{made['deleted_again']} element(s) that were deleted since the backup were suppressed again"
    )
    return Report({"home": str(home), **made}, lambda console: console.print(said, markup=False, soft_wrap=True))


def tombstones(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; only its owner reads it.")],
    home: Home,
    tenant: Tenant = "default",
    database: Database = None,
    json: options.Json = False,
) -> Report:
    """Write down what was deleted, as keyed hashes that 'train', 'adopt' and 'restore' honour.

    [bold]gnndelete service tombstones stones.json --home DIR[/]
    """
    service = _existing(home, database)
    found = service.tombstones(tenant)
    service.storage.close()
    found.save(file)
    said = f"wrote {file}: {len(found.hashes)} tombstone(s); whoever has the file can try out names"
    values = {"file": str(file), "tombstones": len(found.hashes)}
    return Report(values, lambda console: console.print(said, markup=False, soft_wrap=True))


def rotate_keys(home: Home, database: Database = None, json: options.Json = False) -> Report:
    """Sign by a new key and encrypt by a new master key; the old master key is destroyed. The service can run on.

    [bold]gnndelete service rotate-keys --home DIR[/]

    Receipts that were issued before stay good: their keys are in keys/public.
    """
    from gnndelete.service.upkeep import rotate_keys as rotate

    service = _existing(home, database)
    made = rotate(service)
    service.storage.close()
    said = f"receipts are signed by {made['signed_by'][:16]}… from now on; {made['requests']} request(s) encrypted anew"
    return Report(made, lambda console: console.print(said, markup=False, soft_wrap=True))


def gc(
    home: Home,
    days: Annotated[float, typer.Option(min=0, help="Accesses and delivered webhooks that are older go.")] = 365,
    database: Database = None,
    json: options.Json = False,
) -> Report:
    """Remove versions that nothing names any more, old accesses and delivered webhooks.

    [bold]gnndelete service gc --home DIR[/]
    """
    from gnndelete.service.upkeep import collect

    service = _existing(home, database)
    made = collect(service, days)
    service.storage.close()
    said = f"removed {made['versions']} version(s), {made['accesses']} access(es), {made['webhooks']} webhook(s)"
    return Report(made, lambda console: console.print(said, markup=False, soft_wrap=True))


def _existing(home: Path, database: str | None) -> Service:
    from gnndelete.service.home import Home as Folder
    from gnndelete.service.lifecycle import Service

    return Service.start(Folder(home), database)


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
    upkeep: dict[str, Callable[..., Report]] = {
        "register": register,
        "backup": backup,
        "restore": restore,
        "tombstones": tombstones,
        "rotate-keys": rotate_keys,
        "gc": gc,
    }
    for name, verb in upkeep.items():
        made.command(name, cls=Verb)(verb)
    made.add_typer(keys, name="key")
    return made
