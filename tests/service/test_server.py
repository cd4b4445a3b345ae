"""A service as its users meet it: processes, HTTP and receipts, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import os

import pytest

from gnndelete.errors import SettingError
from gnndelete.service import receipts
from gnndelete.service.home import Home
from gnndelete.service.lifecycle import Service
from gnndelete.service.server import listen
from gnndelete.service.verify import home_problems, replay
from gnndelete.testing import problem

from .conftest import MARK


def edges_of(count: int) -> list[list[str]]:
    _, data, _ = problem("link")
    pairs = {tuple(sorted(pair)): None for pair in data.edge_index.t().tolist() if pair[0] != pair[1]}
    return [[f"{MARK}:{a}", f"{MARK}:{b}"] for a, b in list(pairs)[:: len(pairs) // count][:count]]


def test_a_request_over_http_from_post_to_closed(copied, started):
    home, key, url = copied
    server, edges, path = started(home, url), edges_of(4), "/v1/models/shop/requests"
    assert server.call("GET", "/v1/models", key).json()["models"][0]["name"] == "shop"
    before = server.call("POST", "/v1/models/shop/predict", key, {"edges": edges}).json()
    dry = server.call("POST", path, key, {"edges": edges[:1], "mode": "dry-run"})
    assert (dry.status_code, dry.json()["state"]) == (200, "dry-run")
    taken = [
        server.call("POST", path, key, {"edges": [edge]}, **{"Idempotency-Key": f"k-{number}"})
        for number, edge in enumerate(edges[:3])
        for _ in range(2)
    ]
    assert {answer.status_code for answer in taken} == {202}
    ids = list(dict.fromkeys(answer.json()["id"] for answer in taken))
    assert len(ids) == 3
    for each in ids:
        assert server.wait(each, key, "suppressed")["due_status"] == "on-track"
    after = server.call("POST", "/v1/models/shop/predict", key, {"edges": edges}).json()
    assert after["version"] > before["version"]
    assert all(now < then for now, then in zip(after["scores"][:3], before["scores"][:3], strict=True))
    content = server.call("GET", f"/v1/requests/{ids[0]}/receipt", key).content
    assert receipts.problems(content) == []
    assert replay(home, content, database=url).is_identical

    server.kill()  # as a machine would that loses power
    server = started(home, url, "--no-worker")
    worker = started(home, url, verb="worker")
    again = server.call("POST", "/v1/models/shop/predict", key, {"edges": edges}).json()
    assert again == after
    assert server.call("POST", f"/v1/requests/{ids[0]}/undo", key).status_code == 200
    assert server.wait(ids[0], key, "cancelled")["code"] is None
    assert server.call("POST", "/v1/models/shop/regrow", key).status_code == 202
    assert server.wait(ids[1], key, "closed")["due_status"] == "done"
    final = server.call("GET", f"/v1/requests/{ids[1]}/receipt", key).json()
    assert (final["weights"], final["level"]) == ("new", "retrained")
    page = server.call("GET", f"/v1/requests/{ids[1]}/report", key, accept="text/html")
    assert page.headers["content-type"].startswith("text/html")
    assert 'gnndelete_requests{model="shop",state="closed"} 2.0' in server.call("GET", "/metrics", key).text
    assert [server.stop(), worker.stop()] == [0, 0]
    log = server.log.read_text() + worker.log.read_text()
    assert MARK not in log
    assert all(json.loads(line)["event"] for line in log.splitlines())
    service = Service(Home(home), url)
    assert home_problems(service) == []
    service.storage.close()


def test_the_admin_key_is_printed_once(tmp_path, started):
    home = tmp_path / "home"
    first = started(home)
    keys = [line.removeprefix("admin key: ") for line in first.said if line.startswith("admin key: ")]
    assert first.call("GET", "/v1/models", keys[0]).json() == {"models": []}
    assert first.call("GET", "/healthz", None).text == "ok\n"
    assert first.call("GET", "/readyz", None).text == "ready\n"
    assert first.stop() == 0
    assert not any("key" in line for line in started(home).said)
    assert os.stat(home).st_mode & 0o077 == 0


def test_an_address_that_is_taken_is_said():
    held = listen("127.0.0.1", 0)
    with pytest.raises(SettingError, match="choose another --port"):
        listen("127.0.0.1", held.getsockname()[1])
    held.close()
    with pytest.raises(SettingError, match="correct --host"):
        listen("nowhere.invalid", 0)
