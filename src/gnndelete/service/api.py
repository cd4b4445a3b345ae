"""The HTTP interface: FastAPI over the facade. It parses, asks `Service`, and answers; nothing is decided here."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Any

import anyio.to_thread
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gnndelete import __version__
from gnndelete.errors import GNNDeleteError
from gnndelete.service import bodies, logs
from gnndelete.service import schema as t
from gnndelete.service.access import Caller
from gnndelete.service.console import EVENTS, add_pages, report_page
from gnndelete.service.crypto import canonical
from gnndelete.service.errors import ServiceError, not_found
from gnndelete.service.lifecycle import Order, Service
from gnndelete.service.logs import quiet
from gnndelete.service.metrics import CONTENT_TYPE, Metrics
from gnndelete.service.openapi import PROBLEM, document
from gnndelete.service.receipts import Checkpoint, Receipt
from gnndelete.service.states import ACTIONS

#: Threads that answer calls; each may hold one connection of the database.
THREADS = 16

ABOUT = """Every call carries an API key: `Authorization: Bearer KEY`. Bodies are JSON, times are in UTC.

A request has two clocks. *At once*, within minutes, served answers no longer know what it names: it is `suppressed`. *By the
deadline* new weights that never saw it are live: it is `regrown`, and the old weights are destroyed. Errors are
problem+json (RFC 9457) with a `code`. What does not exist is answered like what the key may not see."""

EARLIER = "The number of leaves of an earlier ledger."

#: Headers of every answer: nothing is loaded from elsewhere, nothing is framed, nothing is cached.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Strict-Transport-Security": "max-age=31536000",
    "Cache-Control": "no-store",
}


_bearer = HTTPBearer(auto_error=False, description="An API key: gnndelete service key add")


def caller(request: Request, key: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None) -> Caller:
    """Who calls."""
    service: Service = request.app.state.service
    found = service.access.caller(None if key is None else key.credentials)
    request.scope["gnndelete_caller"] = found
    service.access.spend(found.key)
    return found


Calling = Annotated[Caller, Depends(caller)]
ModelPath = Annotated[str, Path(max_length=64)]
RequestPath = Annotated[str, Path(max_length=64)]


def problem(error: ServiceError) -> JSONResponse:
    """An error as an answer."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if "retry_after" in error.facts:
        headers["Retry-After"] = str(error.facts["retry_after"])
    body = {
        "type": "about:blank",
        "title": error.why,
        "status": error.status,
        "code": error.code,
        "detail": f"{error.why}; {error.remedy}" if error.remedy else error.why,
        **{name: value for name, value in error.facts.items() if name != "retry_after"},
    }
    return JSONResponse(body, error.status, headers, PROBLEM)


def create_app(
    service: Service, metrics: Metrics | None = None, lifespan: Any = None, log: Callable[..., None] = quiet
) -> FastAPI:
    """The HTTP interface of a service.

    Args:
        service: The service.
        metrics: Its figures.
        lifespan: What runs as long as the interface does, as a context manager.
        log: Where a line about each call goes.
    """
    figures = metrics or Metrics()

    @asynccontextmanager
    async def running(app: FastAPI) -> Any:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        if lifespan is None:
            yield
            return
        with lifespan():
            yield

    app = FastAPI(
        title="gnndelete",
        version=__version__,
        summary="Erasure with two clocks, for graph neural networks.",
        lifespan=running,
        docs_url=None,
        redoc_url=None,
        description=ABOUT,
        generate_unique_id_function=lambda route: route.name,
    )
    app.openapi = cache(lambda: document(app))  # type: ignore[method-assign]
    app.state.service, app.state.metrics = service, figures
    _add_errors(app)

    @app.get("/v1/models", response_model=bodies.Models, tags=["models"])
    def models(by: Calling) -> Any:
        """The models of the caller."""
        return {"models": service.models(by)}

    @app.get("/v1/models/{model}", tags=["models"], response_model=bodies.Model)
    def model(model: ModelPath, by: Calling) -> dict[str, Any]:
        """Versions, aliases, segments and due work of a model."""
        return service.model(by, model)

    @app.post(
        "/v1/models/{model}/requests",
        status_code=202,
        response_model=bodies.Accepted,
        responses={200: {"model": bodies.DryRun, "description": "A dry run: what the request would do."}},
        tags=["requests"],
    )
    def receive(
        model: ModelPath,
        body: bodies.DeletionRequest,
        by: Calling,
        idempotency_key: Annotated[str | None, Header(max_length=200, description="Your name of the request.")] = None,
    ) -> Any:
        """Ask to forget. The same Idempotency-Key or subject_request_id is the same request."""
        order = Order(
            body.asked,
            subject=body.subject_request_id,
            mode=body.mode,
            due=None if body.due is None else body.due.timestamp(),
            callbacks=tuple(body.callback_urls),
            idempotency=idempotency_key,
        )
        status, answer = service.receive(by, model, order)
        return JSONResponse(answer, status)

    @app.get("/v1/requests", tags=["requests"], response_model=bodies.Requests)
    def requests(
        by: Calling,
        state: Annotated[str | None, Query(max_length=20, description="Only those in this state.")] = None,
        model: Annotated[str | None, Query(max_length=64, description="Only those of this model.")] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="So many at most; 100 by default.")] = 100,
    ) -> dict[str, Any]:
        """The latest requests that the caller sees."""
        return {"requests": service.requests(by, state, model, limit)}

    @app.get("/v1/requests/{id}", tags=["requests"], response_model=bodies.View)
    def request(id: RequestPath, by: Calling) -> dict[str, Any]:
        """State, steps with their evidence, and what remains to be done."""
        return service.view(by, id)

    def act(name: str) -> Callable[..., Any]:
        def action(id: RequestPath, by: Calling) -> Any:
            return service.act(by, id, name)

        states, roles = " or ".join(sorted(ACTIONS[name].before)), ", ".join(sorted(ACTIONS[name].roles))
        said = ACTIONS[name].said
        action.__doc__ = f"{said[0].upper()}{said[1:]}. Possible while it is {states}; for the roles {roles}."
        action.__name__ = name
        return action

    for name in ACTIONS:
        app.post(f"/v1/requests/{{id}}/{name}", response_model=bodies.Accepted, tags=["requests"])(act(name))

    @app.get("/v1/requests/{id}/receipt", tags=["evidence"], response_model=Receipt)
    def receipt(id: RequestPath, by: Calling) -> Response:
        """The signed receipt, as canonical JSON; 409 until the request is suppressed."""
        return Response(service.receipt(by, id), media_type="application/json")

    @app.get("/v1/requests/{id}/report", tags=["evidence"], response_model=bodies.Report)
    def report(
        id: RequestPath,
        by: Calling,
        accept: Annotated[str, Header(description="`text/html` for a page.")] = "application/json",
    ) -> Response:
        """The evidence about a request: JSON, or HTML where ``Accept`` asks for it."""
        found = service.report(by, id)
        if "text/html" in accept:
            return Response(report_page(found), media_type="text/html")
        return JSONResponse(found)

    @app.post("/v1/models/{model}/predict", response_model=bodies.Scores, tags=["models"])
    def predict(model: ModelPath, body: bodies.Named, by: Calling) -> Any:
        """Scores of the live version, with its number."""
        return service.predict(by, model, body.asked)

    @app.post("/v1/models/{model}/regrow", status_code=202, tags=["models"], response_model=bodies.RegrowBegun)
    def regrow(model: ModelPath, by: Calling) -> dict[str, Any]:
        """Start the second clock now."""
        return service.regrow(by, model)

    @app.get("/v1/ledger/checkpoint", tags=["evidence"], response_model=Checkpoint)
    def checkpoint(
        by: Calling, since: Annotated[int | None, Query(alias="from", ge=1, lt=2**62, description=EARLIER)] = None
    ) -> Response:
        """The signed state of the ledger, as canonical JSON; with ``from``, a proof that it continues that of so many leaves."""
        return Response(canonical(service.checkpoint(by, since)), media_type="application/json")

    @app.get("/v1/ledger/proof", tags=["evidence"], response_model=bodies.Proof)
    def proof(
        by: Calling,
        leaf: Annotated[str | None, Query(max_length=64, description="The number or the hash of a leaf.")] = None,
        since: Annotated[int | None, Query(alias="from", ge=0, lt=2**62, description=EARLIER)] = None,
        to: Annotated[int | None, Query(ge=0, lt=2**62, description="The later size; that of now by default.")] = None,
    ) -> dict[str, Any]:
        """That a leaf is in the ledger, or that a ledger is the beginning of a later one."""
        return service.proof(by, leaf, since, to)

    @app.get("/v1/accesses", tags=["operations"], response_model=bodies.Accesses)
    def accesses(
        by: Calling, limit: Annotated[int, Query(ge=1, le=1000, description="So many at most; 100 by default.")] = 100
    ) -> dict[str, Any]:
        """The latest calls by the keys of the caller's tenant."""
        return {"accesses": service.accesses(by, limit)}

    @app.get("/healthz", tags=["operations"], response_class=PlainTextResponse)
    def healthz() -> str:
        """Whether the process runs."""
        return "ok\n"

    @app.get("/readyz", tags=["operations"], response_class=PlainTextResponse)
    def readyz() -> str:
        """Whether the database answers."""
        service.is_ready()
        return "ready\n"

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    def prometheus(by: Calling) -> Response:
        """Figures for Prometheus."""
        return Response(figures.text(service.standing(by)), media_type=CONTENT_TYPE)

    add_pages(app, service)
    app.add_middleware(_Guard, service=service, metrics=figures, log=log)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ServiceError)
    async def refused(_: Request, error: ServiceError) -> JSONResponse:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(_malformed(error.errors()))

    @app.exception_handler(HTTPException)
    async def wrong(_: Request, error: HTTPException) -> JSONResponse:
        if isinstance(error, _TooLarge):
            return problem(error.said)
        if error.status_code == 404:
            return problem(not_found())
        codes = {400: "malformed", 405: "wrong-method"}
        why = "the call is not possible" if error.status_code != 405 else "this address does not take this method"
        found = ServiceError(codes.get(error.status_code, "refused"), why, "see /openapi.json", error.status_code)
        answer = problem(found)
        answer.headers.update(error.headers or {})
        return answer

    async def failed(request: Request, error: Exception) -> JSONResponse:
        request.scope[_FAILED] = logs.error(error)
        return problem(_unavailable())

    for kind in (DBAPIError, GNNDeleteError, OSError):
        app.add_exception_handler(kind, failed)


def _malformed(errors: Sequence[Mapping[str, Any]]) -> ServiceError:
    """What does not fit in a call, by the first of its errors; values stay unsaid."""
    first, known = errors[0], bodies.DeletionRequest.model_fields
    place, *rest = first["loc"]
    name = rest[0] if rest else None
    where = sorted({".".join(str(part) for part in each["loc"][:2]) for each in errors})[:5]
    if first["type"] == "json_invalid":
        why, remedy = f"the body is not JSON: {first['ctx']['error']}, at character {name}", "send a JSON object"
        where = ["body"]
    elif name is None:
        why = "the call has no body" if first["type"] == "missing" else "the body is not a JSON object"
        remedy = "send a JSON object, with the header 'Content-Type: application/json'"
    elif place != "body":
        why, remedy = f"the {place} parameter '{name}' does not fit: {first['msg']}", "see /openapi.json"
    elif name not in known or first["type"] == "extra_forbidden":
        why, remedy = "the body has a field that this call does not take", "see /openapi.json"
    else:
        field = known[name]
        example = json.dumps((field.examples or [field.default])[0])
        why, remedy = f"the field '{name}' does not fit", f"it takes: {field.description} Such as {example}"
    return ServiceError("malformed", why, remedy, 422, fields=where)


def _unavailable() -> ServiceError:
    why = "the service cannot answer now; nothing was changed"
    return ServiceError("unavailable", why, "try again in a minute", 503, retry_after=10)


#: Where a call keeps what went wrong in it.
_FAILED = "gnndelete_failed"

#: Routes whose calls are neither logged nor written down: they say nothing about anybody, and come often.
UNTOLD = frozenset({"other", "/healthz", "/readyz", "/static/{name}", EVENTS})


class _Guard:
    """Limits bodies, adds headers, measures, and writes down every call; whatever goes wrong, an answer has no details."""

    def __init__(self, app: ASGIApp, service: Service, metrics: Metrics, log: Callable[..., None]) -> None:
        self.app, self.service, self.metrics, self.log = app, service, metrics, log
        self.accesses = Accesses(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, begun = time.perf_counter(), 500, False
        limit, seen = self.service.settings.body_limit, 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLarge(limit)
            return message

        async def headed(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                given = {name.lower() for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(each for each in added if each[0] not in given)]
            await send(message)

        try:
            declared = dict(scope["headers"]).get(b"content-length", b"0")
            if declared.isdigit() and int(declared) > limit:
                raise _TooLarge(limit)
            await self.app(scope, limited, headed)
        except _TooLarge as error:
            await self._answer(error.said, headed, begun)
        except Exception as problem:  # answered like any other; the log has its class and place
            scope[_FAILED] = logs.error(problem)
            await self._answer(_unavailable(), headed, begun)
        finally:
            path, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - start
            if path != EVENTS:  # it lasts as long as a page is open
                self.metrics.http.labels(path, str(status)).observe(seconds)
            failed: dict[str, str] = scope.get(_FAILED, {})
            if failed:
                self.metrics.failures.labels("http", failed["code"]).inc()
            if path not in UNTOLD or failed:
                by: Caller | None = scope.get("gnndelete_caller")
                known = {"key": None if by is None else by.key, "seconds": round(seconds, 4), **failed}
                self.log("call", method=scope["method"], route=path, status=status, **known)
            self.accesses.add(scope, path, status)

    async def _answer(self, error: ServiceError, send: Callable[[Message], Awaitable[None]], begun: bool) -> None:
        if begun:
            return
        answer = problem(error)
        headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


class _TooLarge(HTTPException):
    """The body is too large."""

    def __init__(self, limit: int) -> None:
        super().__init__(413)
        self.said = ServiceError("too-large", f"the body has more than {limit} bytes", "ask in parts", 413)


class Accesses:
    """Calls that are written down together, every second or so.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rows: list[dict[str, Any]] = []
        self._last = time.monotonic()

    def add(self, scope: Scope, path: str, status: int) -> None:
        """Note a call: the key, the route, and the request or model that it named where it may be known."""
        if path in UNTOLD:
            return
        caller: Caller | None = scope.get("gnndelete_caller")
        named = scope.get("path_params") or {}
        subject = named.get("id") or named.get("model") or named.get("name") if 200 <= status < 300 else None
        self._rows.append(
            {
                "at": self._service.clock.now(),
                "key": None if caller is None else caller.key,
                "action": f"{scope['method']} {path}"[:80],
                "subject": None if subject is None else str(subject)[:80],
                "status": status,
            }
        )
        if time.monotonic() - self._last > 1.0 or len(self._rows) > 500:
            self._last = time.monotonic()
            rows, self._rows = self._rows, []
            threading.Thread(target=self._write, args=(rows,), daemon=True).start()

    def _write(self, rows: list[dict[str, Any]]) -> None:
        try:
            with self._service.storage.writing() as records:
                records.session.execute(t.Access.__table__.insert(), rows)  # type: ignore[attr-defined]
        except DBAPIError:
            self._rows = [*rows, *self._rows][:100_000]
