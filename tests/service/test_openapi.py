"""The OpenAPI document: complete, and true of the interface, by schemathesis."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings

from gnndelete.service.access import MAY, add_key
from gnndelete.service.api import create_app
from gnndelete.service.home import Settings
from gnndelete.service.openapi import ERRORS
from gnndelete.service.states import ACTIONS, ROLES

from .conftest import caller, make_shop

schemathesis = pytest.importorskip("schemathesis", reason="the Python package schemathesis is not installed")

#: Calls of each operation.
EXAMPLES = int(10 * float(os.environ.get("GNNDELETE_FUZZ", "1")))

#: The schema cannot say which ids a model knows, nor which states a request passes through.
UNKNOWABLE = ("positive_data_acceptance", "use_after_free", "ensure_resource_availability")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Any:
    """A shop with a suppressed and a held request, whose keys are not limited."""
    shop = make_shop(tmp_path_factory.mktemp("openapi") / "home", settings=Settings(rate=1e9, burst=10**9))
    shop.known = [shop.ask(shop.edge(0))["id"]]
    shop.work()
    shop.known.append(shop.ask(shop.edges(9)[7], mode="hold")["id"])
    shop.app = create_app(shop.service)
    yield shop
    shop.service.storage.close()


def document(site) -> dict[str, Any]:
    return site.app.openapi()


def operations(site) -> list[Any]:
    return [found.ok() for found in schemathesis.openapi.from_asgi("/openapi.json", site.app).get_all_operations()]


def excluded() -> list[Any]:
    return [schemathesis.checks.CHECKS.get_one(name) for name in UNKNOWABLE]


def test_calls_and_answers_are_as_the_document_says(site):
    seen: Counter[tuple[str, int]] = Counter()
    for operation in operations(site):

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
        )
        def run(case):
            case.headers = {**(case.headers or {}), "Authorization": f"Bearer {site.keys['admin']}"}
            for number, known in enumerate((None, *site.known)):
                path = {"model": "shop", "id": known}
                if known and number > 1 and "id" not in case.path_parameters:
                    continue
                if known:
                    case.path_parameters = {name: path[name] for name in case.path_parameters}
                answer = case.call()
                seen[case.operation.label, answer.status_code] += 1
                case.validate_response(answer, excluded_checks=excluded())

        run()
    assert {label for label, _ in seen} == {operation.label for operation in operations(site)}
    assert not {status for _, status in seen} & {401, 403, 429, 500, 503}
    assert any(status == 200 for _, status in seen)


def test_every_call_needs_a_key(site):
    client, checked = TestClient(site.app), 0
    names = {"model": "shop", "id": site.known[0]}
    for path, methods in document(site)["paths"].items():
        for method, operation in methods.items():
            if path in ("/healthz", "/readyz"):
                assert client.get(path).status_code == 200
                continue
            assert operation["security"] == [{"HTTPBearer": []}]
            for key in (None, "Bearer nonsense", "Bearer gd_0_0", "Basic eDp5"):
                headers = {} if key is None else {"Authorization": key}
                answer = client.request(method, path.format(**names), headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
                assert answer.headers["content-type"] == "application/problem+json"
                checked += 1
    assert checked > 60


#: What each operation needs, in the words of `access.MAY`.
NEEDS = {
    **{name: name for name in ("predict", "regrow", "receipt", "report", "accesses", *ACTIONS)},
    **{"models": "models", "model": "models", "receive": "request", "requests": "read", "request": "read"},
    **{"checkpoint": "ledger", "proof": "ledger", "prometheus": "metrics"},
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_table_says_and_nothing_else(site, role):
    client, key = TestClient(site.app), add_key(site.service.storage, "default", role, site.clock.now())
    for path, methods in document(site)["paths"].items():
        for method, operation in methods.items():
            if "security" not in operation:
                continue
            path = path.format(model="shop", id="0" * 32)
            answer = client.request(
                method,
                path,
                headers={"Authorization": f"Bearer {key}"},
                json={"nodes": ["a"]} if method == "post" else None,
            )
            allowed = role in MAY[NEEDS[operation["operationId"]]]
            assert (answer.status_code != 403) == allowed, (role, method, path)


def test_a_stranger_cannot_tell_what_exists(site):
    """What another tenant has, and what is nowhere, are answered by the same bytes."""
    client, key = TestClient(site.app), None
    caller(site, "admin", "bakery")
    key = {"Authorization": f"Bearer {site.keys['bakery/admin']}"}
    checked = 0
    for path, methods in document(site)["paths"].items():
        if "{" not in path:
            continue
        for method in methods:
            body = {"nodes": ["a"]} if method == "post" else None
            known = client.request(method, path.format(model="shop", id=site.known[0]), headers=key, json=body)
            nowhere = client.request(method, path.format(model="nowhere", id="0" * 32), headers=key, json=body)
            assert known.status_code == nowhere.status_code == 404, path
            assert known.content == nowhere.content
            checked += 1
    assert checked >= 11
    for path, name in (("/v1/models", "models"), ("/v1/requests", "requests")):
        assert client.get(path, headers=key).json() == {name: []}
    assert '"shop"' not in client.get("/metrics", headers=key).text
    assert all(row["key"] != site.admin.key for row in client.get("/v1/accesses", headers=key).json()["accesses"])


def test_everything_is_described(site):
    found = document(site)
    assert set(found["components"]["responses"]) == set(map(str, ERRORS))
    names = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            assert operation["tags"]
            good = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
            content = good["content"]
            assert next(iter(content.values()))["schema"] or path == "/metrics", (method, path)
    body = found["components"]["schemas"]["DeletionRequest"]
    assert body["examples"]
    assert all("description" in field for field in body["properties"].values())


def test_the_example_is_taken(site):
    example = document(site)["components"]["schemas"]["DeletionRequest"]["examples"][0]
    headers = {"Authorization": f"Bearer {site.keys['admin']}"}
    body = {**example, "nodes": [site.name(30)], "mode": "dry-run"}
    answer = TestClient(site.app).post("/v1/models/shop/requests", headers=headers, json=body)
    assert (answer.status_code, answer.json()["state"]) == (200, "dry-run")
