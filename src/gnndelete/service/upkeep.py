"""Upkeep: backups that do not bring deleted data back, new keys, and removing what nothing needs any more."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, select

from gnndelete.datasets.tombstones import Tombstones
from gnndelete.errors import RunError, SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.io.files import STAGING_PREFIX, sync_folder, write
from gnndelete.service import schema as t
from gnndelete.service.access import Caller
from gnndelete.service.clock import DAY
from gnndelete.service.elements import Asked, Elements
from gnndelete.service.folders import CACHE, LOCK
from gnndelete.service.home import DATABASE, SETTINGS, Home
from gnndelete.service.lifecycle import Order, Service
from gnndelete.service.logs import quiet
from gnndelete.service.storage import CHUNK, Records
from gnndelete.service.verify import home_problems
from gnndelete.service.worker import Worker, is_dead

_ROWS = "database.jsonl"

#: Who asks, where a restored model holds what was deleted since.
RESTORE = "restore"


# Backup


def backup(service: Service, file: Path) -> dict[str, int]:
    """Write everything that a service needs into one file, which only its owner reads. Suppression waits for a moment only.

    Args:
        service: The service.
        file: The file; it must not be there yet.

    Returns:
        How many models, requests and bytes it holds.
    """
    if file.exists():
        raise SettingError(f"'{file}' is there already; give a new name")
    home = service.home.path
    staging = home / f"{STAGING_PREFIX}{os.getpid()}-backup"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        with service.storage.reading() as records:
            models = records.models()
        with ExitStack() as locks:
            for model in models:
                locks.enter_context(service.folder(model.tenant, model.name).writing())
            for path in _files(home):  # files of models never change, so that a second name is a copy
                copy = staging / path.relative_to(home)
                copy.parent.mkdir(parents=True, exist_ok=True)
                _second_name(path, copy)
            with service.storage.snapshot() as records:
                requests = _dump(records, staging / _ROWS)
        partial = file.with_name(f"{STAGING_PREFIX}{os.getpid()}-{file.name}")
        try:
            with (
                open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as opened,
                tarfile.open(fileobj=opened, mode="w:gz", compresslevel=1) as archive,
            ):
                archive.add(staging, "home")
            partial.rename(file)
            sync_folder(file.absolute().parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"the backup could not be written ({error.strerror or error})", "make room") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return {"models": len(models), "requests": requests, "bytes": file.stat().st_size}


def _files(home: Path) -> Iterator[Path]:
    """The files of a home that a backup holds: not the database itself, no locks, and no rows that are computed again."""
    for folder in (home / "keys", home / "models"):
        for path in sorted(folder.rglob("*")):
            left_out = {CACHE, LOCK} & set(path.relative_to(home).parts)
            staged = any(part.startswith(STAGING_PREFIX) for part in path.relative_to(home).parts)
            if path.is_file() and not left_out and not staged:
                yield path
    yield home / SETTINGS


def _second_name(path: Path, copy: Path) -> None:
    try:
        os.link(path, copy)
    except OSError:
        shutil.copyfile(path, copy)


def _dump(records: Records, file: Path) -> int:
    """All rows of the database, a line each; returns the number of requests."""
    count = 0
    with file.open("w") as opened:
        for table in t.Base.metadata.sorted_tables:
            for row in records.session.execute(select(table)):
                values = {
                    name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
                    for name, value in row._mapping.items()
                }
                opened.write(json.dumps({"table": table.name, "row": values}) + "\n")
                count += table.name == t.Request.__tablename__
    return count


# Restore


def restore(
    file: Path,
    home: Path,
    database: str | None = None,
    tombstones: Iterable[Tombstones] = (),
    replace: bool = False,
) -> dict[str, Any]:
    """Bring a service back from a backup, without what was deleted since: that is suppressed before anything is served.

    Args:
        file: The backup.
        home: The folder of the service.
        database: The URL of its database; by default a file in the folder. What is in it is replaced.
        tombstones: What was deleted after the backup. What the present home knows is taken along.
        replace: Replace the home that is there.

    Returns:
        How many models and requests came back, and how many elements were deleted once more.
    """
    home, known = home.absolute(), list(tombstones)
    if (home / SETTINGS).exists():
        if not replace:
            raise SettingError(f"'{home}' holds a service; give --replace to put the backup in its place")
        known += _known(home, database)
    elif home.exists() and any(home.iterdir()):
        raise SettingError(f"'{home}' holds other files; give an empty folder")
    fresh = home.with_name(f"{STAGING_PREFIX}{os.getpid()}-{home.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir(parents=True, mode=0o700)
        with tarfile.open(file) as archive:
            archive.extractall(fresh, filter="data")
        rows = fresh / "home" / _ROWS
        made = Home(fresh / "home")
        if database is not None:
            write(made.keys.path / "database", database.encode(), private=True)
        else:
            (made.keys.path / "database").unlink(missing_ok=True)
        service = Service.start(made, database or f"sqlite:///{made.path / DATABASE}")
        requests = _load(service, rows)
        rows.unlink()
        again = _apply(service, known)
        problems = home_problems(service)
        models = service.storage.count(t.Model)
        service.storage.checkpoint()
        service.storage.close()
        if problems:
            raise RunError(f"the backup is damaged: {problems[0]}", "take another backup")
        if home.exists():
            shutil.rmtree(home)
        made.path.rename(home)
        sync_folder(home.parent)
    except (OSError, EOFError, tarfile.TarError, KeyError, json.JSONDecodeError) as error:
        raise RunError(
            f"'{file}' could not be restored ({error})", "check the file, and the room on the disk"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return {"models": models, "requests": requests, "deleted_again": again}


def _known(home: Path, database: str | None) -> list[Tombstones]:
    """What a home that is replaced knows to be deleted."""
    service = Service.start(Home(home), database)
    now = service.clock.now()
    with service.storage.reading() as records:
        models = records.models()
    tenants = {model.tenant for model in models}
    if any((model.lease_until or 0) > now and not is_dead(model.lease_owner or "") for model in models):
        raise SettingError(f"a worker of '{home}' is at work", "stop the service and its workers first")
    found = [service.tombstones(tenant) for tenant in sorted(tenants)]
    service.storage.close()
    return found


def _load(service: Service, file: Path) -> int:
    tables = {table.name: table for table in t.Base.metadata.sorted_tables}
    count = 0
    with service.storage.writing() as records, file.open() as lines:
        for table in reversed(t.Base.metadata.sorted_tables):
            records.session.execute(delete(table))
        waiting: list[dict[str, Any]] = []
        name = ""
        for line in [*lines, '{"table": "", "row": {}}\n']:
            values = json.loads(line)
            if waiting and (values["table"] != name or len(waiting) >= CHUNK):
                records.session.execute(insert(tables[name]), waiting)
                waiting = []
            name = values["table"]
            row = {
                key: base64.b64decode(value["base64"])
                if isinstance(value, dict) and value.keys() == {"base64"}
                else value
                for key, value in values["row"].items()
            }
            waiting.append(row)
            count += name == t.Request.__tablename__
        for model in records.models():  # nobody works on them
            model.lease_owner, model.lease_until = None, None
        records.reset_counters(t.Base.metadata.sorted_tables)
    return count


def _apply(service: Service, known: Iterable[Tombstones]) -> int:
    """Ask to forget what a restored model holds and was deleted since, and suppress it now."""
    count = 0
    with service.storage.reading() as records:
        models = records.models()
    for stones in known:
        own = service.tombstones(stones.tenant)
        if stones.key == own.key:
            stones = Tombstones(stones.key, stones.tenant, stones.hashes - own.hashes)
        for model in models:
            if model.tenant != stones.tenant or not stones.hashes:
                continue
            elements = service.live(model).snapshot().generation.elements
            deletion = stones.find(elements.graph)
            if not len(deletion):
                continue
            caller = Caller(RESTORE, model.tenant, "admin")
            order = Order(_asked(elements, deletion), due=service.clock.now() + DAY)
            _, answer = service.receive(caller, model.name, order)
            if answer["state"] == "validated":
                count += len(deletion)
                with service.storage.writing() as records:
                    records.session.get_one(t.Request, answer["id"]).approved = True
    worker = Worker(service, log=quiet)
    worker.models_once()
    worker.free()
    with service.storage.reading() as records:
        if any(records.in_state(model.id, "validated", "failed") for model in models):
            raise RunError(
                "what was deleted since the backup could not be suppressed", "look at the model, and try again"
            )
    return count


def _asked(elements: Elements, deletion: Deletion) -> Asked:
    """A deletion as a request would name it."""
    data, ids, pairs = elements.data, elements.graph.ids, deletion.edges.t().tolist()
    found: dict[str, Any]
    if isinstance(data, HeteroGraph):

        def local(row: int) -> tuple[str, Any]:
            kind, rows = next((kind, rows) for kind, rows in data.types.nodes.items() if row in rows)
            return kind, row - rows.start if ids is None else ids.names[row]

        found = {"nodes": {}, "labels": {}, "edges": {}}
        for each in ("nodes", "labels"):
            for row in getattr(deletion, each).tolist():
                kind, name = local(row)
                found[each].setdefault(kind, []).append(name)
        for first, number, last in pairs:
            kind = elements.names.relation(number)
            found["edges"].setdefault(kind, []).append([local(first)[1], local(last)[1]])
    else:
        name = int if ids is None else elements.names.node
        found = {
            "nodes": [name(row) for row in deletion.nodes.tolist()],
            "labels": [name(row) for row in deletion.labels.tolist()],
            "features": [[name(row), column] for row, column in deletion.features.t().tolist()],
            "relations": deletion.relations.tolist(),
            "graphs": deletion.graphs.tolist(),
            "edges": [[name(ends[0]), *ends[1:-1], name(ends[-1])] for ends in pairs],
        }
    return Asked({kind: value for kind, value in found.items() if value})


# Keys


def rotate_keys(service: Service) -> dict[str, Any]:
    """Sign by a new key, and encrypt the keys of requests by a new master key; the old master key is destroyed.

    Whatever an old copy of the database still holds of a key that was destroyed cannot be read any more.
    """
    keys = service.keys
    with service.home.locked(), service.storage.writing() as records:
        records.lock("keys")
        masters = keys.safe.masters
        number = keys.safe.newest + 1
        keys.write_masters({**masters, number: secrets.token_bytes(32)})
        rows = records.secrets()
        for secret in rows:
            secret.wrapped = keys.safe.rewrap(secret.wrapped, secret.request_id)
    newest = keys.safe.newest
    keys.write_masters({newest: keys.safe.masters[newest]})
    service.storage.checkpoint()
    return {"signed_by": keys.new_signer(), "master": newest, "requests": len(rows)}


# What nothing needs any more


def collect(service: Service, days: float = 365) -> dict[str, int]:
    """Remove versions that are neither live nor the previous one, delivered webhooks, and old accesses.

    Args:
        service: The service.
        days: Accesses and delivered webhooks that are older go.
    """
    removed = 0
    with service.storage.reading() as records:
        models = records.models()
    for model in models:
        folder = service.folder(model.tenant, model.name)
        with folder.writing():
            folder.tidy()
            aliases = folder.aliases
            kept: set[int] = set()
            for number in (aliases["live"], aliases["previous"]):
                if number in folder.numbers("versions"):
                    kept |= {int(number or 0), *folder.manifest("versions", int(number or 0))["chain"]}
            for number in folder.numbers("versions"):
                if number not in kept and number < max(kept):
                    folder.remove_version(number)
                    removed += 1
    before = service.clock.now() - days * DAY
    with service.storage.writing() as records:
        accesses, messages = records.forget_before(before)
    service.storage.checkpoint()
    return {"versions": removed, "accesses": accesses, "webhooks": messages}
