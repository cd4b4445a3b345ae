"""The OpenAPI document of the HTTP interface."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gnndelete.service.bodies import Problem

PROBLEM = "application/problem+json"

ERRORS = {
    400: "The call is malformed.",
    401: "There is no valid API key.",
    403: "The role of the key may not do this.",
    404: "There is nothing here, or the key may not see it.",
    409: "This is not possible in the present state.",
    413: "The body is too large.",
    422: "The call does not fit the interface or the model.",
    429: "The key calls too often.",
    503: "The service cannot answer now; nothing was changed.",
}

TAGS = [
    {"name": "requests", "description": "Ask to forget, follow a request, decide about it."},
    {"name": "evidence", "description": "Receipts, reports and the ledger."},
    {"name": "models", "description": "What is served, and its versions."},
    {"name": "operations", "description": "Health, figures and the list of calls."},
]


def errors_of(path: str, method: str, operation: dict[str, Any]) -> list[int]:
    """The statuses by which an operation can refuse."""
    if "security" not in operation:
        return [503]
    found = {401, 403, 429, 503}
    if "{" in path:
        found |= {404}
    if operation.get("parameters") or "requestBody" in operation:
        found |= {422}
    if path.startswith("/v1/ledger"):
        found |= {404}
    if method == "post":
        found |= {400, 409, 413}
    if path.endswith(("/receipt", "/report")):
        found |= {409}
    return sorted(found)


def document(app: FastAPI) -> dict[str, Any]:
    """The document: what FastAPI finds, and the errors of each operation."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=TAGS,
        license_info={"name": "MIT", "identifier": "MIT"},
    )
    components = found["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["schemas"]["Problem"] = Problem.model_json_schema()
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    components["responses"] = {
        str(status): {"description": text, "content": content} for status, text in ERRORS.items()
    }
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            operation["responses"].pop("422", None)
            for status in errors_of(path, method, operation):
                operation["responses"][str(status)] = {"$ref": f"#/components/responses/{status}"}
    return found
