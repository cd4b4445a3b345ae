"""The OpenAPI document: complete, and true of the interface, by schemathesis."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings

from gnndelete.service.api import create_app
from gnndelete.service.home import Settings
from gnndelete.service.openapi import ERRORS

from .conftest import make_shop

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
