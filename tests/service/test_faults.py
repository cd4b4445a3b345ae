"""Kills at any moment, and months of a calendar with crashes; `make fuzz` runs the large versions."""

from __future__ import annotations

import json
import os
import random
import socket
import tarfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from torch_geometric.data import Data

from gnndelete.datasets import IdMap, NamedGraph
from gnndelete.io.files import write
from gnndelete.models import GCN
from gnndelete.service.clock import DAY, Clock
from gnndelete.service.elements import Asked
from gnndelete.service.folders import ModelFolder
from gnndelete.service.home import Home, Settings
from gnndelete.service.lifecycle import Service
from gnndelete.service.logs import Log
from gnndelete.service.register import register
from gnndelete.service.storage import Records
from gnndelete.service.upkeep import backup
from gnndelete.service.verify import home_problems, replay
from gnndelete.service.worker import Worker
from gnndelete.tasks import LinkPrediction
from gnndelete.testing import problem

from .conftest import MARK, Server, Shop

#: How many times as large as usual.
FUZZ = int(os.environ.get("GNNDELETE_FUZZ", "1"))
KILLS, DAYS = (10 * FUZZ if FUZZ > 1 else 4), min(4 * FUZZ, 90)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def all_edges() -> list[list[str]]:
    _, data, _ = problem("link")
    pairs = sorted({tuple(sorted(pair)) for pair in data.edge_index.t().tolist() if pair[0] != pair[1]})
    return [[f"{MARK}:{a}", f"{MARK}:{b}"] for a, b in pairs]


class Load:
    """Asks one thing after another, and asks again under the same key where no answer came back."""

    def __init__(self, port: int, key: str, draw: random.Random) -> None:
        self.address, self.key, self.draw = f"http://127.0.0.1:{port}", key, draw
        self.edges = all_edges()
        draw.shuffle(self.edges)
        self.taken: dict[str, str] = {}  # request by idempotency key
        self.undone: set[str] = set()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response | None:
        try:
            given = {"Authorization": f"Bearer {self.key}", **headers}
            answer = httpx.request(method, self.address + path, json=body, headers=given, timeout=20)
        except httpx.HTTPError:
            return None
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        return None if answer.status_code == 503 else answer

    def ask(self) -> bool:
        """One step; whether an answer came back."""
        number = len(self.taken)
        edge = self.edges[number % len(self.edges)]
        answer = self.call("POST", "/v1/models/shop/requests", {"edges": [edge]}, **{"Idempotency-Key": f"k-{number}"})
        if answer is None:
            return False
        assert answer.status_code == 202, answer.text
        self.taken[f"k-{number}"] = answer.json()["id"]
        if number % 7 == 3:
            chosen = self.draw.choice(list(self.taken.values()))
            found = self.call("POST", f"/v1/requests/{chosen}/undo")
            if found is not None and found.status_code == 200:
                self.undone.add(chosen)
        if number % 25 == 20:
            self.call("POST", "/v1/models/shop/regrow")
        return True


def test_kills_lose_nothing_and_do_nothing_twice(copied, started):
    home, key, url = copied
    draw, port = random.Random(FUZZ), free_port()
    settings = home / "service.json"
    write(settings, Settings(many_share=1.0, lease=2.0, undo_window=3600).model_dump_json().encode())
    log = home.parent / "kills.log"

    def start(verb: str) -> Server:
        options = ("--port", str(port), "--no-worker") if verb == "serve" else ()
        return started(home, url, *options, verb=verb)

    running = {"serve": start("serve"), "first": start("worker"), "second": start("worker")}
    load, kills = Load(port, key, draw), 0
    while kills < KILLS:
        until = time.monotonic() + draw.uniform(0.02, 0.6)
        while time.monotonic() < until:
            load.ask()
        chosen = draw.choice(list(running))
        running[chosen].kill()
        kills += 1
        running[chosen] = start("serve" if chosen == "serve" else "worker")
    while not load.ask():
        time.sleep(0.1)
    end = time.monotonic() + 120
    while True:
        found = load.call("GET", "/v1/requests?limit=500")
        views = [] if found is None else found.json()["requests"]
        waiting = [view for view in views if view["state"] in ("received", "validated", "regrown", "destroyed")]
        if views and not waiting and not _wishes(home, url):
            break
        assert time.monotonic() < end, (waiting[:2], log.read_text() if log.exists() else "")
        time.sleep(0.2)
    for each in running.values():
        each.stop()
    check(home, url, load)


def _wishes(home: Path, url: str | None) -> bool:
    """Whether an undo or new weights are still to come."""
    service = Service(Home(home), url)
    with service.storage.reading() as records:
        model = records.models()[0]
        wishes = records.wishing(model.id, "undo", time.time() + DAY)
        found = bool(wishes or records.regrows(model.id, "waiting", "running", "trained"))
    service.storage.close()
    return found


def check(home: Path, url: str | None, load: Load) -> None:
    """Nothing was lost or done twice, everything that was signed holds, and the model is as the receipts say."""
    service = Service(Home(home), url)
    folder = service.folder("default", "shop")
    with service.storage.reading() as records:
        known = {request.id: request for request in records.requests("default", limit=100_000)}
        steps = {each: Counter(step.step for step in records.steps(each)) for each in known}
        live = folder.manifest("versions", int(folder.aliases["live"] or 0))
        bodies = {each: records.receipt(each) for each in known}
    assert set(load.taken.values()) == known.keys()
    assert home_problems(service) == []
    adapters = {folder.manifest("versions", number)["adapter"] for number in live["chain"]}
    for each, request in known.items():
        assert request.state in {"suppressed", "closed", "cancelled", "duplicate"}, (request.state, request.code)
        assert all(steps[each][name] <= 1 for name in ("received", "validated", "suppressed", "regrown", "closed"))
        if request.state == "suppressed":
            body = json.loads(bodies[each].body)
            assert body["adapter"] in adapters
            assert int(body["model"]["version"]) in live["chain"]
            assert body["base"] == live["base"]
        assert (request.state == "cancelled") <= (each in load.undone)
    checked = 0
    for each, request in known.items():
        if request.state == "suppressed" and checked < 5:
            admin = service.access.caller(load.key)
            found = replay(home, service.receipt(admin, each), database=url)
            assert found.is_identical, found.text
            checked += 1
    suppressed = [number for number, each in enumerate(load.taken.values()) if known[each].state == "suppressed"]
    edges = [load.edges[number % len(load.edges)] for number in suppressed[:20]]
    if edges:
        again = Service(Home(home), url)
        admin = service.access.caller(load.key)
        one, other = (each.predict(admin, "shop", Asked({"edges": edges}))["scores"] for each in (service, again))
        assert one == other
        again.storage.close()
    service.storage.close()


class Crash(BaseException):
    """The process is gone."""


#: Where the process may be gone, before or after.
MOMENTS = [
    (ModelFolder, "_seal"),
    (ModelFolder, "switch"),
    (ModelFolder, "destroy_generation"),
    (ModelFolder, "add_generation"),
    (Worker, "_record"),
    (Worker, "_add_receipts"),
    (Worker, "_claim"),
    (Service, "move"),
    (Service, "begin_regrow"),
    (Records, "shred"),
    (Records, "take_regrow"),
]


def crash(shop: Shop, draw: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Let the worker be gone at one of its moments, and start anew as after a lease has ended."""
    kind, name = draw.choice(MOMENTS)
    before, real = draw.random() < 0.5, getattr(kind, name)

    def gone(*args: Any, **kwargs: Any) -> Any:
        if not before:
            real(*args, **kwargs)
        raise Crash

    with patch.context() as inside:
        inside.setattr(kind, name, gone)
        with suppress(Crash):
            shop.work()
    shop.service.storage.close()
    shop.clock.advance(2 * shop.service.settings.lease)
    shop.service = Service(shop.service.home, shop.service.storage.url, shop.clock)
    shop.worker = Worker(shop.service, shop.worker.metrics, shop.worker.log)


def town(folder: Path, customers: int, settings: Settings) -> Shop:
    """A shop with so many customers, each with a few neighbours; every name has the same length, so that it can be searched."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(customers, (2, 6 * customers), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]].sort(dim=0).values.unique(dim=1)
    x = torch.randn(customers, 8, generator=generator)
    data = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    names = IdMap(f"{MARK}:{number:06}" for number in range(customers))
    clock = Clock()
    service = Service.start(Home.create(folder, settings), None, clock)
    admin = service.access.caller(service.first_key())
    training = {"schedule": {"epochs": 1}}
    register(service, "shop", GCN(8, 8, 4), NamedGraph(data, names), LinkPrediction(), training, {"lam": 0.5})
    return Shop(service, Worker(service), clock, data, admin)


def test_months_pass_with_crashes_and_nothing_is_late_or_left(tmp_path, monkeypatch):
    """Twenty requests a day, a crash now and then: each is suppressed at once and regrown in time, and leaves no name."""
    draw, log = random.Random(FUZZ), tmp_path / "log"
    settings = Settings(many_share=1.0, many_least=10_000, regrow_every=4 * DAY, due=10 * DAY, damage_factor=1e9)
    shop = town(tmp_path / "home", 100 + 40 * DAYS, settings)
    columns = iter(draw.sample(range(shop.data.edge_index.size(1)), 40 * DAYS))
    people = iter(draw.sample(range(shop.data.num_nodes), 40 * DAYS))
    asked: list[str] = []
    deleted: list[str] = []
    late: list[str] = []
    crashes = 0
    with log.open("w") as stream:
        shop.worker = Worker(shop.service, log=Log(stream))
        for day in range(DAYS):
            today = 0
            while today < 20:
                person = f"{MARK}:{next(people):06}" if today % 7 == 3 else None
                ends = [f"{MARK}:{int(row):06}" for row in shop.data.edge_index[:, next(columns)]]
                if set(ends) & set(deleted):
                    continue
                answer = shop.ask(elements={"edges": [ends]} if person is None else {"nodes": [person]})
                asked.append(answer["id"])
                deleted += [] if person is None else [person]
                today += 1
                if draw.random() < 0.08:
                    crash(shop, draw, monkeypatch)
                    crashes += 1
            shop.work()
            views = shop.service.requests(shop.admin, limit=500)
            late += [view["id"] for view in views if view["due_status"] == "overdue" or view["state"] == "validated"]
            shop.clock.advance(DAY)
            if day % 30 == 2:
                backup(shop.service, tmp_path / f"early-{day}.tar.gz")
        while any(shop.state(each) not in ("closed", "duplicate") for each in asked):
            shop.clock.advance(DAY)
            shop.work()
            views = shop.service.requests(shop.admin, limit=500)
            over = [view for view in views if view["due_status"] == "overdue"]
            assert not over, (shop.service.model(shop.admin, "shop")["regrows"], log.read_text()[-1500:])
        metrics = shop.worker.metrics.text(shop.service.standing(shop.admin))
    assert not late
    assert crashes
    for each in asked:
        view = shop.service.view(shop.admin, each)
        assert view["state"] == "duplicate" or view["regrown"] <= view["due"]
    assert home_problems(shop.service) == []
    backup(shop.service, tmp_path / "last.tar.gz")
    with tarfile.open(tmp_path / "last.tar.gz") as archive:
        archive.extractall(tmp_path / "home" / "unpacked", filter="data")
    shop.service.storage.close()
    contents = {path: path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()}
    contents |= {log: log.read_bytes(), Path("metrics"): metrics}
    for path, content in contents.items():
        assert not [name for name in deleted if name.encode() in content], path
        if not path.name.startswith("ids"):  # the names of those who are still there
            assert MARK.encode() not in content, path
