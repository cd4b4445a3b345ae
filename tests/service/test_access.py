"""Who may do what, for every endpoint of the OpenAPI document; whoever may not learns nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from gnndelete.service.access import MAY, Access, Caller
from gnndelete.service.api import HEADERS, create_app
from gnndelete.service.errors import ServiceError
from gnndelete.service.states import ROLES

from .conftest import MARK, caller

#: What needs no key, since it says nothing.
OPEN = {"/healthz", "/readyz"}

#: What each endpoint asks of the caller.
NEEDS = {
    ("GET", "/v1/models"): "models",
    ("GET", "/v1/models/{model}"): "models",
    ("POST", "/v1/models/{model}/requests"): "request",
    ("POST", "/v1/models/{model}/predict"): "predict",
    ("POST", "/v1/models/{model}/regrow"): "regrow",
    ("GET", "/v1/requests"): "read",
    ("GET", "/v1/requests/{id}"): "read",
    ("GET", "/v1/requests/{id}/receipt"): "receipt",
    ("GET", "/v1/requests/{id}/report"): "report",
    ("GET", "/v1/ledger/checkpoint"): "ledger",
    ("GET", "/v1/ledger/proof"): "ledger",
    ("GET", "/v1/accesses"): "accesses",
    ("GET", "/metrics"): "metrics",
    **{("POST", f"/v1/requests/{{id}}/{name}"): name for name in ("approve", "deny", "cancel", "undo", "retry")},
}


@pytest.fixture
def client(small) -> Iterator[TestClient]:
    with TestClient(create_app(small.service), raise_server_exceptions=False) as found:
        yield found


def endpoints(client: TestClient) -> list[tuple[str, str]]:
    """Every operation that the OpenAPI document names."""
    paths = client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def ask(client: TestClient, method: str, path: str, key: str | None, model: str, request: str) -> Any:
    body = (
        {"edges": [[f"{MARK}:0", f"{MARK}:1"]]}
        if path.endswith(("/requests", "/predict")) and method == "POST"
        else None
    )
    query = {"leaf": "0"} if path.endswith("/proof") else {}
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
    return client.request(method, path.format(model=model, id=request), json=body, params=query, headers=headers)


def test_every_endpoint_has_a_rule(client):
    assert {(method, path) for method, path in endpoints(client) if path not in OPEN} == NEEDS.keys()
    assert set(NEEDS.values()) <= MAY.keys()


@pytest.mark.parametrize("key", [None, "", "nonsense", "gd_000000000000_secret", "gd_x", "Ü" * 50])
def test_without_a_valid_key_every_endpoint_gives_one_and_the_same_answer(small, client, key):
    asked = small.ask(small.edge(0))["id"]
    answers = set()
    for method, path in endpoints(client):
        if path in OPEN:
            continue
        for model, request in (("shop", asked), ("bakery", "0" * 32)):
            found = ask(client, method, path, key, model, request)
            assert found.status_code == 401, (method, path)
            assert found.headers["www-authenticate"] == "Bearer"
            answers.add(found.content)
    assert len(answers) == 1


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_table_says_and_nothing_else(small, client, role):
    caller(small, role)
    key = small.keys[f"default/{role}"]
    for (method, path), need in NEEDS.items():
        refused = role not in MAY[need]
        answers = {ask(client, method, path, key, model, "0" * 32).content for model in ("shop", "bakery")}
        found = ask(client, method, path, key, "shop", "0" * 32)
        assert (found.status_code == 403) == refused, (role, method, path, found.text)
        if refused:  # whether there is such a model is not said
            assert len(answers) == 1


@pytest.mark.parametrize("role", ROLES)
def test_what_belongs_to_another_tenant_is_as_if_it_did_not_exist(small, client, role):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    caller(small, role, "elsewhere")
    key = small.keys[f"elsewhere/{role}"]
    for method, path in NEEDS:
        if "{" not in path:
            continue
        there = ask(client, method, path, key, "shop", asked)
        nowhere = ask(client, method, path, key, "bakery", "0" * 32)
        assert there.status_code in (403, 404), (method, path)
        assert (there.status_code, there.content) == (nowhere.status_code, nowhere.content)
    assert ask(client, "GET", "/v1/models", key, "", "").json() == {"models": []}
    assert ask(client, "GET", "/v1/requests", key, "", "").json() == {"requests": []}
    for path in ("/metrics", "/v1/accesses"):
        found = ask(client, "GET", path, key, "", "")
        assert found.status_code == 403 or all(each not in found.text for each in (asked, '"shop"', 'state="'))


def test_a_requester_sees_nothing_of_other_requesters(small, client):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    caller(small, "requester")
    key = small.keys["default/requester"]
    for method, path in NEEDS:
        if "{id}" in path:
            there = ask(client, method, path, key, "shop", asked)
            nowhere = ask(client, method, path, key, "shop", "0" * 32)
            assert (there.status_code, there.content) == (nowhere.status_code, nowhere.content)
    assert ask(client, "GET", "/v1/requests", key, "", "").json() == {"requests": []}


def test_answers_carry_the_security_headers_and_no_details(small, client):
    for path in ("/", "/healthz", "/v1/models", "/nowhere", "/v1/requests/%00", "/v1/models/shop"):
        found = client.get(path, headers={"Authorization": f"Bearer {small.keys['admin']}"})
        assert found.headers.items() >= {name.lower(): value for name, value in HEADERS.items()}.items(), path
        assert "server" not in found.headers
    small.service.live = None  # anything that nobody expected
    asked = {"edges": [small.edge(0)]}
    found = client.post(
        "/v1/models/shop/predict", json=asked, headers={"Authorization": f"Bearer {small.keys['admin']}"}
    )
    assert found.status_code == 503
    assert found.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in found.text
    assert "NoneType" not in found.text


def test_a_body_that_is_too_large_is_refused_unread(small, client):
    limit = small.service.settings.body_limit
    headers = {"Authorization": f"Bearer {small.keys['admin']}", "Content-Type": "application/json"}
    declared = client.post("/v1/models/shop/requests", content=b"x" * (limit + 1), headers=headers)
    streamed = client.post("/v1/models/shop/requests", content=iter([b"x" * 65536] * 20), headers=headers)
    for found in (declared, streamed):
        assert found.status_code == 413
        assert found.json()["code"] == "too-large"


@pytest.mark.parametrize(
    ("content", "where", "said"),
    [
        ("{bad", ["body"], ["the body is not JSON", "at character 1"]),
        ("[]", ["body"], ["the body is not a JSON object", "Content-Type: application/json"]),
        (
            '{"edges": [["MARK:0"]]}',
            ["body.edges"],
            ["'edges'", "by the ids of its two ends", '["user:4711", "item:7"]'],
        ),
        ('{"nodes": "MARK:0"}', ["body.nodes"], ["'nodes'", 'Such as ["user:4711"]']),
        ('{"mode": "MARK"}', ["body.mode"], ["'mode'", "`dry-run` predicts"]),
        ('{"nodes": ["MARK:0"], "nodez": []}', ["body.nodez"], ["a field that this call does not take"]),
    ],
)
def test_a_body_that_does_not_fit_is_answered_with_the_field_and_what_it_takes(small, client, content, where, said):
    headers = {"Authorization": f"Bearer {small.keys['admin']}", "Content-Type": "application/json"}
    found = client.post("/v1/models/shop/requests", content=content.replace("MARK", MARK), headers=headers)
    assert (found.status_code, found.json()["code"], found.json()["fields"]) == (422, "malformed", where)
    assert all(each in found.json()["detail"] for each in said), found.json()["detail"]
    assert MARK not in found.text


def test_a_parameter_that_does_not_fit_is_named(small, client):
    found = client.get("/v1/requests?limit=many", headers={"Authorization": f"Bearer {small.keys['admin']}"}).json()
    assert found["fields"] == ["query.limit"]
    assert "'limit'" in found["detail"]
    assert "valid integer" in found["detail"]


def test_a_revoked_key_ends_within_seconds(small, client, monkeypatch):
    caller(small, "auditor")
    key = small.keys["default/auditor"]
    assert ask(client, "GET", "/v1/models", key, "", "").status_code == 200
    with small.service.storage.writing() as records:
        records.api_key(key.split("_")[1]).revoked = small.clock.now()
    later = time.monotonic() + 10
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert ask(client, "GET", "/v1/models", key, "", "").status_code == 401


def test_a_key_that_calls_too_often_is_slowed_down(small):
    access = Access(small.service.storage, rate=10, burst=3)
    for _ in range(3):
        access.spend("a")
    with pytest.raises(ServiceError) as caught:
        access.spend("a")
    assert (caught.value.status, caught.value.facts) == (429, {"retry_after": 1})
    access.spend("b")
    with pytest.raises(ServiceError):
        Caller("a", "default", "auditor").require("request")


def test_every_call_is_written_down_without_what_it_named(small, client):
    small.ask(small.edge(0))
    for _ in range(3):
        ask(client, "POST", "/v1/models/{model}/predict", small.keys["admin"], "shop", "")
    ask(client, "GET", "/v1/models", None, "", "")
    time.sleep(1.1)
    ask(client, "GET", "/v1/models", small.keys["admin"], "", "")
    end = time.monotonic() + 10
    while len(rows := small.service.accesses(small.admin)) < 5 and time.monotonic() < end:
        time.sleep(0.05)
    assert [row["status"] for row in rows if row["action"] == "POST /v1/models/{model}/predict"] == [200] * 3
    assert [row["key"] for row in rows if row["status"] == 401] == [None]
    assert all(MARK not in str(row) for row in rows)
