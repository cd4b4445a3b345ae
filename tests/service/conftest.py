"""A small model in a service, on SQLite and, where a server is given, on PostgreSQL."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("fastapi", reason="needs the extra [serve]")

import httpx
from sqlalchemy import create_engine, text

from gnndelete.datasets import IdMap, NamedGraph
from gnndelete.service.access import Caller, add_key
from gnndelete.service.clock import Clock
from gnndelete.service.elements import Asked
from gnndelete.service.home import Home, Settings
from gnndelete.service.lifecycle import Order, Service
from gnndelete.service.logs import quiet
from gnndelete.service.register import register
from gnndelete.service.worker import Worker
from gnndelete.testing import problem

#: The URL of a PostgreSQL server on which databases can be made; `.ci/run` starts one.
POSTGRES = "GNNDELETE_POSTGRES"

#: What every id of a customer in these tests begins with, so that files can be searched for it.
MARK = "customer"


def server() -> str:
    """The URL of the server; the test is skipped where there is none."""
    url = os.environ.get(POSTGRES)
    if not url:
        pytest.skip(f"{POSTGRES} does not name a PostgreSQL server")
    return url


@contextmanager
def new_database(template: str = "template1") -> Iterator[str]:
    """A new database on the server, as long as the block lasts."""
    url, name = server(), f"gnndelete_{uuid4().hex[:12]}"
    admin = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    base, _, query = url.partition("?")
    try:
        yield f"{base.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()


@dataclass
class Shop:
    """A service with one model, ``shop``, and what tests do with it."""

    service: Service
    worker: Worker
    clock: Clock
    data: Any
    admin: Caller
    keys: dict[str, str] = field(default_factory=dict)

    def name(self, node: int) -> str:
        return f"{MARK}:{node}"

    def edge(self, column: int) -> list[str]:
        return [self.name(int(node)) for node in self.data.edge_index[:, column]]

    def edges(self, count: int) -> list[list[str]]:
        """Different edges, each once."""
        pairs = {tuple(sorted(pair)): None for pair in self.data.edge_index.t().tolist() if pair[0] != pair[1]}
        step = max(len(pairs) // count, 1)
        return [[self.name(a), self.name(b)] for a, b in list(pairs)[::step][:count]]

    def ask(self, *edges: list[str], by: Caller | None = None, **options: Any) -> dict[str, Any]:
        elements = options.pop("elements", None) or {"edges": list(edges)}
        _, answer = self.service.receive(by or self.admin, "shop", Order(Asked(elements), **options))
        return answer

    def state(self, request: str) -> str:
        return self.service.view(self.admin, request)["state"]

    def work(self) -> None:
        self.worker.once()

    def another_worker(self) -> Worker:
        return Worker(self.service, log=quiet)

    def scores(self, *edges: list[str]) -> list[float]:
        return self.service.predict(self.admin, "shop", Asked({"edges": list(edges)}))["scores"]

    def files(self) -> Iterator[tuple[Path, bytes]]:
        for path in self.service.home.path.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


def make_home(folder: Path, url: str | None = None, settings: Settings | None = None) -> str:
    """A home with a model that suppresses, so that every adapter has operators; returns the admin key."""
    model, data, task = problem("link")
    service = Service.start(Home.create(folder, settings or Settings(audit=False)), url)
    key = service.first_key()
    ids = IdMap([f"{MARK}:{node}" for node in range(data.num_nodes)])
    register(service, "shop", model, NamedGraph(data, ids), task, {"schedule": {"epochs": 2}}, {"aim": "nonexistent"})
    service.storage.close()
    return str(key)


def open_shop(folder: Path, key: str, url: str | None = None) -> Shop:
    """A home that exists, with a clock of its own."""
    clock = Clock()
    service = Service(Home(folder), url, clock)
    _, data, _ = problem("link")
    admin = service.access.caller(key)
    return Shop(service, Worker(service, log=quiet), clock, data, admin, {"admin": key})


def make_shop(folder: Path, url: str | None = None, settings: Settings | None = None) -> Shop:
    """A new home, opened."""
    return open_shop(folder, make_home(folder, url, settings), url)


@pytest.fixture(scope="session")
def sqlite_home(tmp_path_factory) -> tuple[Path, str]:
    """A home that tests copy."""
    folder = tmp_path_factory.mktemp("sqlite") / "home"
    return folder, make_home(folder)


@pytest.fixture(scope="session")
def postgresql_home(tmp_path_factory) -> Iterator[tuple[Path, str, str]]:
    """A home whose database is on the server."""
    folder = tmp_path_factory.mktemp("postgresql") / "home"
    with new_database() as url:
        yield folder, make_home(folder, url), url


@pytest.fixture
def small(sqlite_home, tmp_path) -> Iterator[Shop]:
    """A shop on SQLite."""
    home, key = sqlite_home
    shutil.copytree(home, tmp_path / "home")
    made = open_shop(tmp_path / "home", key)
    yield made
    made.service.storage.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request, tmp_path) -> Iterator[Shop]:
    """A shop on each database."""
    if request.param == "sqlite":
        yield request.getfixturevalue("small")
        return
    server()
    home, key, url = request.getfixturevalue("postgresql_home")
    shutil.copytree(home, tmp_path / "home")
    with new_database(url.partition("?")[0].rpartition("/")[2]) as copy:
        made = open_shop(tmp_path / "home", key, copy)
        yield made
        made.service.storage.close()


def caller(shop: Shop, role: str, tenant: str = "default") -> Caller:
    """A caller with a key of a role."""
    key = add_key(shop.service.storage, tenant, role, shop.clock.now())
    shop.keys[f"{tenant}/{role}"] = key
    return shop.service.access.caller(key)


#: Children start from a process that has imported everything already.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["gnndelete.cli", "gnndelete.service.server", "gnndelete.service.register"])


class Server:
    """``gnndelete serve`` or ``gnndelete worker`` in a process of its own, on this machine only.

    Args:
        home: The home.
        url: The database; by default the one in the home.
        options: Further options.
        verb: The verb.
        variables: Of the environment.
    """

    def __init__(
        self, home: Path, url: str | None = None, *options: str, verb: str = "serve", **variables: str
    ) -> None:
        arguments = [verb, "--home", str(home), *options]
        arguments += ["--port", "0"] if verb == "serve" and "--port" not in options else []
        arguments += [] if url is None else ["--database", url]
        self.log, self.out = home.parent / f"{verb}.log", home.parent / f"{verb}-{uuid4().hex}.out"
        given = {
            "child": {
                "arguments": arguments,
                "out": str(self.out),
                "err": str(self.log),
                "variables": {"OMP_NUM_THREADS": "1", **variables},
            }
        }
        self.process = FORKS.Process(target=runpy.run_path, args=(str(Path(__file__).parent / "child.py"), given))
        self.process.start()
        self.said: list[str] = []
        self.address = ""
        while not self.address:
            assert self.process.is_alive(), self.log.read_text()
            time.sleep(0.02)
            self.said = self.out.read_text().splitlines() if self.out.exists() else []
            found = [line for line in self.said if line.startswith(("listening on ", "working for "))]
            self.address = found[0].split()[2].rstrip(",") if found else ""

    def call(self, method: str, path: str, key: str | None, body: Any = None, **headers: str) -> httpx.Response:
        given = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.request(method, self.address + path, json=body, headers={**given, **headers}, timeout=60)

    def wait(self, request: str, key: str, *states: str, seconds: float = 60) -> dict[str, Any]:
        """The view of a request once it is in one of some states."""
        end = time.monotonic() + seconds
        while (view := self.call("GET", f"/v1/requests/{request}", key).json())["state"] not in states:
            assert time.monotonic() < end, (view, self.log.read_text()[-3000:])
            time.sleep(0.05)
        return view

    def kill(self) -> None:
        """End it as a machine does that loses power."""
        self.process.kill()
        self.process.join()

    def stop(self) -> int | None:
        """Ask it to end, as an operator would."""
        self.process.terminate()
        self.process.join(60)
        return self.process.exitcode


@pytest.fixture
def started() -> Iterator[Callable[..., Server]]:
    """Starts servers and workers, which end with the test."""
    all_started: list[Server] = []

    def start(*args: Any, **options: Any) -> Server:
        all_started.append(Server(*args, **options))
        return all_started[-1]

    yield start
    for each in all_started:
        if each.process.is_alive():
            each.kill()


@pytest.fixture(params=["sqlite", "postgresql"])
def copied(request, tmp_path) -> Iterator[tuple[Path, str, str | None]]:
    """A copy of a home, its admin key and the URL of its database, for processes."""
    if request.param == "sqlite":
        home, key = request.getfixturevalue("sqlite_home")
        shutil.copytree(home, tmp_path / "home")
        yield tmp_path / "home", key, None
        return
    server()
    home, key, url = request.getfixturevalue("postgresql_home")
    shutil.copytree(home, tmp_path / "home")
    with new_database(url.partition("?")[0].rpartition("/")[2]) as copy:
        yield tmp_path / "home", key, copy
