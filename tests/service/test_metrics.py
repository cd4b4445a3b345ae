"""Figures: what they say, whose they are, and that they name nobody."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from gnndelete.errors import SettingError
from gnndelete.service.access import add_key
from gnndelete.service.api import create_app
from gnndelete.service.clock import DAY
from gnndelete.service.metrics import STANDING, Metrics
from gnndelete.service.server import serve_metrics
from gnndelete.service.worker import Worker

from .conftest import MARK

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "gnndelete.json"
ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"


def families(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name, and by the values of their labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


@pytest.fixture
def scrape(shop):
    metrics = Metrics()
    shop.worker = Worker(shop.service, metrics, log=lambda event, **values: None)
    client = TestClient(create_app(shop.service, metrics))

    def run(key: str = shop.keys["admin"]) -> dict[str, dict[tuple[str, ...], float]]:
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200
        assert MARK not in answer.text
        return families(answer.text)

    run.client = client
    return run


def test_figures_say_where_requests_stand(shop, scrape):
    edges = shop.edges(5)
    done = [shop.ask(edge)["id"] for edge in edges[:2]]
    shop.work()
    held = shop.ask(edges[2], mode="hold")["id"]
    shop.ask(edges[3], callbacks=("https://shop.example/done",))
    shop.clock.advance(DAY)
    found = scrape()
    assert found["gnndelete_requests"] == {
        ("shop", "suppressed"): 2,
        ("shop", "held"): 1,
        ("shop", "validated"): 1,
    }
    assert found["gnndelete_oldest_seconds"]["held",] >= DAY
    assert found["gnndelete_due_requests"] == {("on-track",): 4, ("due-soon",): 0, ("overdue",): 0}
    assert found["gnndelete_late_requests"] == {(): 2}
    assert found["gnndelete_segments"] == {("shop",): 1}
    assert found["gnndelete_outbox_messages"] == {(): 1}
    assert 28 * DAY < found["gnndelete_next_due_seconds"]["shop",] < 29 * DAY
    assert found["gnndelete_disk_free_bytes"][()] > 0
    assert found["gnndelete_ledger_leaves"][()] == 4  # two versions, two receipts
    assert found["gnndelete_step_seconds_count"]["suppress",] == 1
    assert found["gnndelete_verdicts_total"] == {("not-audited",): 2}
    assert found["gnndelete_build_info"]
    assert not any(number in json.dumps(list(map(list, found))) for number in (*done, held))


def test_figures_are_those_of_the_tenant(shop, scrape):
    shop.ask(shop.edge(0))
    key = add_key(shop.service.storage, "bakery", "operator", shop.clock.now())
    found = scrape(key)
    names = {f"gnndelete_{name}" for name, _, labels in STANDING if "model" in labels}
    assert not names & found.keys()
    requester = add_key(shop.service.storage, "default", "requester", shop.clock.now())
    assert scrape.client.get("/metrics", headers={"Authorization": f"Bearer {requester}"}).status_code == 403


def test_calls_are_counted_by_route_and_logged_without_ids(small):
    lines = []
    metrics = Metrics()
    app = create_app(small.service, metrics, log=lambda event, **values: lines.append({"event": event, **values}))
    client, key = TestClient(app), {"Authorization": f"Bearer {small.keys['admin']}"}
    body = {"edges": [small.edge(0)]}
    asked = client.post("/v1/models/shop/requests", json=body, headers=key).json()["id"]
    client.get(f"/v1/requests/{asked}", headers=key)
    client.get(f"/v1/requests/{MARK}:1", headers=key)
    client.get("/v1/models", headers={"Authorization": "Bearer nonsense"})
    client.get("/healthz")
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/v1/models/{model}/requests", 202),
        ("/v1/requests/{id}", 200),
        ("/v1/requests/{id}", 404),
        ("/v1/models", 401),
    ]
    assert lines[0]["key"] == small.admin.key
    assert lines[3]["key"] is None
    assert MARK not in json.dumps(lines)
    counted = families(metrics.text({name: {} if labels else 0 for name, _, labels in STANDING}).decode())
    assert counted["gnndelete_http_seconds_count"]["/v1/requests/{id}", "404"] == 1


def test_a_call_that_breaks_is_answered_and_logged_by_its_place(small, monkeypatch):
    lines = []
    app = create_app(small.service, log=lambda event, **values: lines.append(values))
    client, key = TestClient(app), {"Authorization": f"Bearer {small.keys['admin']}"}
    for error in (ZeroDivisionError(f"{MARK}:7"), OSError(f"{MARK}:7")):

        def broken(caller, error=error):
            raise error

        monkeypatch.setattr(small.service, "models", broken)
        answer = client.get("/v1/models", headers=key)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert MARK not in answer.text
    assert [line["code"] for line in lines] == ["zero-division-error", "os-error"]
    assert all(re.fullmatch(r"\w+\.py:\d+", line["place"]) for line in lines)
    assert MARK not in json.dumps(lines)


def test_a_worker_answers_scrapes_of_its_own():
    metrics = Metrics()
    metrics.steps.labels("suppress").observe(0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(SettingError, match="cannot listen"):
            serve_metrics("127.0.0.1", taken.getsockname()[1], metrics)
        port = taken.getsockname()[1]
    serve_metrics("127.0.0.1", port, metrics)
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        found = families(answer.read().decode())
    assert found["gnndelete_step_seconds_count"]["suppress",] == 1
