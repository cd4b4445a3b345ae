"""A deletion service under load on this machine: a burst of requests, and suppression on a large model.

    python benchmarks/service.py --parts burst --requests 1000
    python benchmarks/service.py --parts burst suppression --requests 10000 --edges 2.4e6 --json service.json

A service is started in a process of its own in a temporary folder, listens on 127.0.0.1 only, and is stopped at the end.
Models are untrained: what is measured does not depend on weights. ``--database`` names an empty PostgreSQL database instead
of SQLite. Parts:

- ``burst``: requests for single edges one after another, then all at once from eight clients with a key each. None may be
  lost, none applied twice; the 99th percentile of ``POST`` is compared with its median when idle, in the same run;
- ``suppression``: single edges one after another on a large graph, from the call to the new version, beside ``predict``.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from options import at_least_one
from torch_geometric.data import Data

from gnndelete.datasets import NamedGraph
from gnndelete.models import GCN
from gnndelete.service.access import add_key
from gnndelete.service.home import Home, Settings
from gnndelete.service.lifecycle import Service
from gnndelete.service.register import register
from gnndelete.service.verify import home_problems
from gnndelete.tasks import LinkPrediction

PARTS = ("burst", "suppression")
CLIENTS, IDLE = 8, 50
OPTIONS = {"aim": "nonexistent", "lam": 0.5}


class Running:
    """A service with one model in a process of its own."""

    def __init__(self, folder: Path, database: str | None, graph: Data, widths: tuple[int, int], keys: int) -> None:
        self.home, self.database = folder / "home", database
        settings = Settings(many_share=1.0, rate=100_000, burst=100_000, damage_factor=1e9)
        service = Service.start(Home.create(self.home, settings, database))
        model = GCN(graph.num_features, *widths)
        begun = time.perf_counter()
        register(service, "shop", model, NamedGraph(graph), LinkPrediction(), {"schedule": {"epochs": 1}}, OPTIONS)
        self.registered = time.perf_counter() - begun
        self.keys = [add_key(service.storage, "default", "operator", service.clock.now()) for _ in range(keys)]
        service.storage.close()
        command = [sys.executable, "-m", "gnndelete", "serve", "--home", str(self.home), "--port", "0"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if line.startswith("listening on "))
        self.port = int(line.split()[2].rstrip(",").rpartition(":")[2])

    def client(self, key: str) -> Client:
        return Client(self.port, key)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


class Client:
    """One connection that stays open."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, float]:
        """The status, the answer and the seconds that it took."""
        start = time.perf_counter()
        self._connection.request(method, path, None if body is None else json.dumps(body), {**self._headers, **headers})
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content), time.perf_counter() - start

    def ask(self, edge: list[int], name: str) -> tuple[int, Any, float]:
        return self.call("POST", "/v1/models/shop/requests", {"edges": [edge]}, **{"Idempotency-Key": name})


def random_graph(edges: int, features: int, seed: int = 0) -> Data:
    """An undirected graph with about ten neighbours a node."""
    generator = torch.Generator().manual_seed(seed)
    nodes = max(edges // 10, 100)
    pairs = torch.randint(nodes, (2, edges // 2), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]].sort(dim=0).values.unique(dim=1)
    x = torch.randn(nodes, features, generator=generator)
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))


def some_edges(graph: Data, count: int, seed: int = 1) -> list[list[int]]:
    """Different edges, drawn at random."""
    once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    chosen = torch.randperm(once.size(1), generator=torch.Generator().manual_seed(seed))[:count]
    return once[:, chosen].t().tolist()


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def wait_for_rest(client: Client, seconds: float = 1800) -> float:
    """Wait until nothing is to be suppressed; returns the seconds."""
    start = time.perf_counter()
    while client.call("GET", "/v1/requests?state=validated&limit=1")[1]["requests"]:
        if time.perf_counter() - start > seconds:
            raise TimeoutError("requests still wait to be suppressed")
        time.sleep(0.2)
    return time.perf_counter() - start


def burst(folder: Path, database: str | None, requests: int) -> dict[str, Any]:
    """One after another, then all at once."""
    graph = random_graph(10 * (requests + IDLE), 16)
    running = Running(folder, database, graph, (16, 8), CLIENTS)
    try:
        edges = some_edges(graph, requests + IDLE)
        first = running.client(running.keys[0])
        first.call("GET", "/v1/models")
        idle = []
        for number, edge in enumerate(edges[:IDLE]):
            idle.append(first.ask(edge, f"idle-{number}")[2])
            time.sleep(0.25)
        wait_for_rest(first)
        answers: list[list[tuple[int, Any, float]]] = [[] for _ in range(CLIENTS)]

        def run(client: int) -> None:
            own = running.client(running.keys[client])
            for number in range(IDLE + client, IDLE + requests, CLIENTS):
                answers[client].append(own.ask(edges[number], f"burst-{number}"))

        threads = [threading.Thread(target=run, args=(client,)) for client in range(CLIENTS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken_in = time.perf_counter() - start
        rest = wait_for_rest(running.client(running.keys[0]))
    finally:
        running.stop()
    flat = [answer for part in answers for answer in part]
    seconds = [answer[2] for answer in flat]
    service = Service(Home(running.home), database)
    with service.storage.reading() as records:
        model = records.models()[0]
        states = Counter(
            request.state for request in records.in_state(model.id, "validated", "suppressed", "failed", "held")
        )
        times = Counter()
        for version in records.versions(model.id, 1_000_000):
            if version.kind == "segment":
                times.update(service.folder("default", "shop").manifest("versions", version.number)["requests"])
    problems = home_problems(service)
    service.storage.close()
    ids = [answer[1].get("id") for answer in flat]
    return {
        "requests": requests,
        "accepted": sum(answer[0] == 202 for answer in flat),
        "lost": len(set(ids) - times.keys()),
        "applied_twice": sum(count > 1 for count in times.values()),
        "states": dict(states),
        "idle_median_ms": 1000 * statistics.median(idle),
        "burst_median_ms": 1000 * statistics.median(seconds),
        "burst_p99_ms": 1000 * quantile(seconds, 0.99),
        "burst_max_ms": 1000 * max(seconds),
        "p99_over_idle_median": quantile(seconds, 0.99) / statistics.median(idle),
        "taken_in_seconds": taken_in,
        "suppressed_after_seconds": rest,
        "versions": len(set(times)),
        "problems": problems[:3],
    }


def suppression(folder: Path, database: str | None, edges: int, requests: int) -> dict[str, Any]:
    """Single edges one after another on a large graph, beside ``predict``."""
    graph = random_graph(edges, 64)
    running = Running(folder, database, graph, (64, 32), 1)
    try:
        client = running.client(running.keys[0])
        chosen = some_edges(graph, requests + 10)
        client.call("POST", "/v1/models/shop/predict", {"edges": chosen[:1]})
        client.ask(chosen[-1], "first")
        wait_for_rest(client)
        predict, suppressed = [], []
        for number, edge in enumerate(chosen[:requests]):
            predict.append(client.call("POST", "/v1/models/shop/predict", {"edges": [edge]})[2])
            start = time.perf_counter()
            status, answer, _ = client.ask(edge, f"r-{number}")
            assert status == 202, answer
            while client.call("GET", f"/v1/requests/{answer['id']}")[1]["state"] != "suppressed":
                time.sleep(0.002)
            suppressed.append(time.perf_counter() - start)
    finally:
        running.stop()
    return {
        "edges": graph.edge_index.size(1),
        "requests": requests,
        "registered_seconds": running.registered,
        "predict_median_ms": 1000 * statistics.median(predict),
        "suppressed_median_ms": 1000 * statistics.median(suppressed),
        "suppressed_p95_ms": 1000 * quantile(suppressed, 0.95),
        "p95_over_predict_median": quantile(suppressed, 0.95) / statistics.median(predict),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--requests", type=at_least_one, default=10_000, help="of the burst (default: %(default)s)")
    parser.add_argument("--single", type=at_least_one, default=100, help="requests on it (default: %(default)s)")
    parser.add_argument("--edges", type=float, default=2.4e6, help="of the large graph (default: %(default)s)")
    parser.add_argument("--database", metavar="URL", help="an empty PostgreSQL database; SQLite by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    found: dict[str, Any] = {}
    for part in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            if part == "burst":
                found[part] = burst(Path(folder), options.database, options.requests)
            else:
                found[part] = suppression(Path(folder), options.database, int(options.edges), options.single)
        print(f"{part}: {json.dumps(found[part], indent=1)}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
