"""The console: pages over the same facade as the HTTP interface. They work without scripts; with them they follow changes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlencode

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from sqlalchemy.exc import DBAPIError

from gnndelete import __version__
from gnndelete.errors import GNNDeleteError
from gnndelete.service.access import Caller
from gnndelete.service.clock import DAY, HOUR, MINUTE, iso
from gnndelete.service.crypto import canonical, same
from gnndelete.service.elements import Asked
from gnndelete.service.errors import ServiceError, not_found
from gnndelete.service.lifecycle import Order, Service
from gnndelete.service.sessions import COOKIE, LASTS, Sessions
from gnndelete.service.states import ACTIONS, HELD, IN_FORCE, STATES

#: Requests on one page.
PAGE = 50

#: Seconds between two looks for changes, and after which a browser connects anew.
LOOK, STREAM = 1.0, 600.0

#: Where the server sends changes; its calls last as long as a page is open.
EVENTS = "/events"

#: What can be named in the form for a new request.
FORM_KINDS = {
    "edges": "Edges: two ids a line, with a comma between them",
    "nodes": "Nodes: one id a line",
    "labels": "Labels of nodes: one id a line",
    "features": "Features of nodes: an id a line, or an id, a comma and a column",
    "relations": "Whole relation types: one name a line",
}

_STATIC = {"console.css": "text/css", "console.js": "text/javascript"}

#: How the states look: good, open, warn or bad.
TONES = {
    **dict.fromkeys(("suppressed", "regrown", "destroyed", "closed"), "good"),
    **dict.fromkeys(("received", "validated", "duplicate", "cancelled", "denied"), "open"),
    "held": "warn",
    "failed": "bad",
}

DUE_TONES = {"on-track": "good", "due-soon": "warn", "overdue": "bad", "done": "good"}


# Words


def moment(text: str | None) -> str:
    """A time for people.

    >>> moment("2026-11-19T20:13:02.125Z")
    '19 Nov 2026, 20:13:02'
    """
    if text is None:
        return "not yet"
    when = datetime.fromisoformat(text)
    return f"{when.day} {when:%b %Y, %H:%M:%S}"


def duration(seconds: float) -> str:
    """A number of seconds for people.

    >>> duration(0.81), duration(250), duration(90_000), duration(3 * 86_400)
    ('0.8 s', '4 min 10 s', '1 day 1 h', '3 days')
    """
    if seconds < MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, size, below, small in (("day", DAY, "h", HOUR), ("h", HOUR, "min", MINUTE), ("min", MINUTE, "s", 1.0)):
        if seconds >= size:
            count, rest = int(seconds // size), int(seconds % size // small)
            name = f"{unit}s" if unit == "day" and count > 1 else unit
            return f"{count} {name} {rest} {below}" if rest and count < 10 else f"{count} {name}"
    raise AssertionError


def count(number: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "edges"), count(2000, "nodes")
    ('1 edge', '2,000 nodes')
    """
    return f"{number:,} {noun.removesuffix('s') if number == 1 else noun}"


def counts(found: Mapping[str, int]) -> str:
    """What a request names."""
    return ", ".join(count(number, noun) for noun, number in found.items() if number) or "nothing new"


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values as pairs of a name and a plain value.

    >>> list(flat({"graph": {"before": "a", "after": "b"}, "codes": []}))
    [('graph before', 'a'), ('graph after', 'b'), ('codes', 'none')]
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(part, f"{name} {key}".strip().replace("_", " "))
    elif isinstance(value, (list, tuple)):
        yield name, ", ".join(map(str, value)) or "none"
    elif value is not None:
        yield name, value


def is_digest(value: Any) -> bool:
    """Whether a value is a digest, which is shown short."""
    return isinstance(value, str) and len(value) in (64, 128) and not set(value) - set("0123456789abcdef")


def _seconds(start: str | None, stop: str | None) -> float:
    if start is None or stop is None:
        return 0.0
    return (datetime.fromisoformat(stop) - datetime.fromisoformat(start)).total_seconds()


def _file(name: str) -> bytes:
    return files("gnndelete.service").joinpath("static", name).read_bytes()


def _environment() -> Environment:
    pages = Environment(
        loader=PackageLoader("gnndelete.service"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"moment": moment, "duration": duration, "counts": counts, "flat": flat}
    pages.tests["digest"] = is_digest
    pages.globals |= {
        "version": __version__,
        "assets": {name: f"/static/{name}?v={hashlib.sha256(_file(name)).hexdigest()[:8]}" for name in _STATIC},
        "tones": TONES,
        "due_tones": DUE_TONES,
        "states": STATES,
        "held_because": HELD,
        "actions": ACTIONS,
        "seconds": _seconds,
        "count": count,
    }
    return pages


_pages = _environment()


def report_page(report: dict[str, Any]) -> str:
    """The evidence about one request as a page."""
    return _pages.get_template("report.html").render(report=report, visit=None)


# Visits


@dataclass(frozen=True)
class Visit:
    """Who looks at a page, and at which.

    Attributes:
        caller: Whose API key it is.
        path: The page.
        token: What its forms carry.
        held: How many requests wait for approval.
    """

    caller: Caller
    path: str
    token: str
    held: int = 0


class _Login(Exception):  # noqa: N818
    """One has to log in first."""


class _Page(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[..., Any]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except _Login:
                path = request.url.path if request.method == "GET" else "/"
                query = f"?{request.url.query}" if request.url.query and request.method == "GET" else ""
                return RedirectResponse(f"/login?next={quote(path + query, safe='')}", 303)
            except (DBAPIError, OSError):
                return error_page(
                    ServiceError("unavailable", "the service cannot answer now", "nothing was changed; try again", 503)
                )
            except ServiceError as error:
                return error_page(error)
            except GNNDeleteError:
                return error_page(
                    ServiceError("unavailable", "the model cannot answer now", "see the log of the service", 503)
                )

        return answer


def error_page(error: ServiceError) -> HTMLResponse:
    """What went wrong, and the way out."""
    return HTMLResponse(_pages.get_template("error.html").render(error=error, visit=None), error.status)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Browsers say where a post comes from: one that another site sent is refused."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ServiceError("foreign-form", "the form was sent by another site", "open the console itself", 403)
    content = (await request.body()).decode(errors="replace")
    try:
        return {name: values[-1] for name, values in parse_qs(content, max_num_fields=50).items()}
    except ValueError:
        raise ServiceError("malformed", "the form has too many fields", "use the console's own", 422) from None


Fields = Annotated[dict[str, str], Depends(_form)]


def _visitor(request: Request) -> Visit:
    service, cookie = request.app.state.service, request.cookies.get(COOKIE)
    sessions: Sessions = request.app.state.sessions
    try:
        caller = sessions.caller(cookie)
    except ServiceError:
        raise _Login from None
    request.scope["gnndelete_caller"] = caller
    service.access.spend(caller.key)
    return Visit(caller, request.url.path, sessions.token(str(cookie)), service.held(caller))


def _poster(request: Request, fields: Fields) -> Visit:
    visit = _visitor(request)
    if not same(fields.get("token", ""), visit.token):
        raise ServiceError("stale-form", "this page is too old to be sent", "go back, load it again and send it", 403)
    return visit


Visiting = Annotated[Visit, Depends(_visitor)]
Posting = Annotated[Visit, Depends(_poster)]


def elements_of(kind: str, text: str, named: bool) -> dict[str, Any]:
    """What was written into the form, as the HTTP interface takes it; JSON is taken as it is.

    >>> elements_of("edges", "user:1, item:2\\n", named=True)
    {'edges': [['user:1', 'item:2']]}
    >>> elements_of("nodes", "4\\n5", named=False)
    {'nodes': [4, 5]}
    """
    if kind not in FORM_KINDS:
        raise ServiceError("wrong-kind", "the form names a kind that there is not", "choose one from the list", 422)
    if text.lstrip().startswith(("[", "{")):
        try:
            return {kind: json.loads(text)}
        except ValueError:
            raise ServiceError("malformed", "the elements are no JSON", "write one element a line", 422) from None

    def plain(part: str) -> Any:
        return int(part) if not named and part.isdecimal() and len(part) < 19 else part

    found: list[Any] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        parts = [plain(part.strip()) for part in line.split(",")]
        if kind == "features" and len(parts) == 2:
            parts[1] = int(parts[1]) if str(parts[1]).isdecimal() else parts[1]
        found.append(parts[0] if len(parts) == 1 else parts)
    return {kind: found}


def _order(fields: Mapping[str, str], named: bool, mode: str) -> Order:
    due = fields.get("due")
    try:
        until = None if not due else datetime.fromisoformat(due).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ServiceError("malformed", "the due date is no date", "give a date such as 2030-01-31", 422) from None
    return Order(
        Asked(elements_of(fields.get("kind", ""), fields.get("elements", ""), named)),
        subject=fields.get("subject") or None,
        mode=mode,
        due=until,
        callbacks=tuple(filter(None, [fields.get("callback")])),
    )


def _safe_path(path: str) -> str:
    """A page of this service to go to; no other site."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"


def add_pages(app: FastAPI, service: Service) -> None:
    """Add the pages to the HTTP interface."""
    sessions = app.state.sessions = Sessions(service)
    router = APIRouter(route_class=_Page, include_in_schema=False)

    def show(name: str, visit: Visit | None, live: bool = True, status: int = 200, **values: Any) -> HTMLResponse:
        stamp = service.stamp(visit.caller) if visit is not None and live else None
        now = str(iso(service.clock.now()))
        page = _pages.get_template(name).render(visit=visit, stamp=stamp, now=now, settings=service.settings, **values)
        return HTMLResponse(page, status)

    # Coming and going

    @router.get("/login")
    def login(next: str = "/") -> HTMLResponse:
        return show("login.html", None, next=_safe_path(next), wrong=False)

    @router.post("/login")
    def log_in(request: Request, fields: Fields) -> Response:
        path = _safe_path(fields.get("next", "/"))
        try:
            cookie = sessions.begin(fields.get("key", "").strip())
        except ServiceError:
            return show("login.html", None, status=401, next=path, wrong=True)
        answer = RedirectResponse(path, 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie, LASTS, path="/", secure=secure, httponly=True, samesite="strict")
        return answer

    @router.post("/logout")
    def log_out(visit: Posting) -> Response:
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    @router.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _STATIC:
            raise not_found()
        return Response(_file(name), media_type=_STATIC[name], headers={"Cache-Control": "public, max-age=86400"})

    @router.get(EVENTS)
    async def events(request: Request, visit: Visiting) -> StreamingResponse:
        cookie = request.cookies.get(COOKIE)

        async def changes() -> AsyncIterator[str]:
            last, ends, quiet = "", time.monotonic() + STREAM, 0
            yield "retry: 2000\n\n"
            while time.monotonic() < ends:
                try:
                    stamp = await anyio.to_thread.run_sync(lambda: service.stamp(sessions.caller(cookie)))
                except ServiceError:  # the session has ended
                    return
                except (DBAPIError, OSError):
                    stamp = last
                quiet = 0 if stamp != last else quiet + 1
                if stamp != last:
                    yield f"data: {stamp}\n\n"
                elif quiet % 15 == 0:
                    yield ": nothing new\n\n"
                last = stamp
                await anyio.sleep(LOOK)

        return StreamingResponse(changes(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    # Requests

    @router.get("/")
    def requests(request: Request, visit: Visiting, state: str = "", model: str = "", before: str = "") -> HTMLResponse:
        if state and state not in STATES:
            raise not_found()
        try:
            until = float(before) if before else None
        except ValueError:
            raise not_found() from None
        by = visit.caller
        found = service.requests(by, state or None, model or None, PAGE + 1, until)
        older = None
        if len(found) > PAGE:
            last = datetime.fromisoformat(found[PAGE - 1]["received"]).timestamp()
            older = "/?" + urlencode({"state": state, "model": model, "before": last})
        figures = service.figures(by)
        by_state: dict[str, int] = {}
        for (_, name), number in figures["requests"].items():
            by_state[name] = by_state.get(name, 0) + number
        return show(
            "requests.html",
            visit,
            requests=found[:PAGE],
            older=older,
            by_state=by_state,
            due=figures["due_requests"],
            late=figures["late_requests"],
            models=service.models(by),
            state=state,
            model=model,
            before=before,
            base=request.base_url,
        )

    @router.get("/approvals")
    def approvals(visit: Visiting) -> HTMLResponse:
        found = service.requests(visit.caller, "held", None, PAGE)
        views = [service.view(visit.caller, each["id"]) for each in found]
        for view in views:
            view["effect"] = view["effect"] or service.effect(visit.caller, view["id"]) or {}
        return show("approvals.html", visit, requests=views)

    def blank(visit: Visit, fields: Mapping[str, str], status: int = 200, **values: Any) -> HTMLResponse:
        models = service.models(visit.caller)
        values = {"error": None, "effect": None, **values}
        return show(
            "new.html", visit, live=False, status=status, models=models, fields=fields, kinds=FORM_KINDS, **values
        )

    @router.get("/new")
    def new(visit: Visiting, model: str = "") -> HTMLResponse:
        visit.caller.require("request")
        return blank(visit, {"model": model})

    @router.post("/new")
    def send(visit: Posting, fields: Fields) -> Response:
        by, name = visit.caller, fields.get("model", "")
        predict = fields.get("do") != "send"
        mode = "dry-run" if predict else "hold" if fields.get("hold") else "serve"
        try:
            by.require("request")
            order = _order(fields, service.asks_about(by, name)["named"], mode)
            _, answer = service.receive(by, name, order)
        except ServiceError as error:
            return blank(visit, fields, error.status, error=error)
        if predict:
            return blank(visit, fields, effect=answer)
        return RedirectResponse(f"/requests/{answer['id']}", 303)

    @router.get("/requests/{id}")
    def request(id: str, visit: Visiting) -> HTMLResponse:
        view = service.view(visit.caller, id)
        if view["state"] == "held" and not view["effect"]:
            view["effect"] = service.effect(visit.caller, id) or {}
        report = service.report(visit.caller, id) if view["state"] in IN_FORCE else None
        has_receipt = view["suppressed"] is not None
        return show("request.html", visit, view=view, report=report, has_receipt=has_receipt)

    @router.get("/requests/{id}/receipt")
    def receipt(id: str, visit: Visiting) -> Response:
        name = f'attachment; filename="receipt-{id[:8]}.json"'
        content = service.receipt(visit.caller, id)
        return Response(content, media_type="application/json", headers={"Content-Disposition": name})

    @router.get("/requests/{id}/report")
    def report(id: str, visit: Visiting) -> HTMLResponse:
        return HTMLResponse(
            _pages.get_template("report.html").render(report=service.report(visit.caller, id), visit=visit)
        )

    @router.post("/requests/{id}/{action}")
    def act(id: str, action: str, visit: Posting, fields: Fields) -> Response:
        if action not in ACTIONS:
            raise not_found()
        service.act(visit.caller, id, action)
        return RedirectResponse(_safe_path(fields.get("back") or f"/requests/{id}"), 303)

    # Models, ledger, calls

    @router.get("/models")
    def models(visit: Visiting) -> HTMLResponse:
        found = [service.model(visit.caller, each["name"]) for each in service.models(visit.caller)]
        return show("models.html", visit, models=found)

    def about(visit: Visit, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        found = service.model(visit.caller, name)
        values = {"asked": "", "scores": None, "error": None, **values}
        may_ask = visit.caller.may("predict")
        answers = service.asks_about(visit.caller, name)["answers"] if may_ask else None
        return show("model.html", visit, status=status, model=found, answers=answers, **values)

    @router.get("/models/{name}")
    def model(name: str, visit: Visiting) -> HTMLResponse:
        return about(visit, name)

    @router.post("/models/{name}")
    def predict(name: str, visit: Posting, fields: Fields) -> HTMLResponse:
        asked = fields.get("elements", "")
        try:
            known = service.asks_about(visit.caller, name)
            wanted = Asked(elements_of(known["answers"], asked, known["named"]))
            scores = service.predict(visit.caller, name, wanted)
        except ServiceError as error:
            return about(visit, name, error.status, asked=asked, error=error)
        lines = [line.strip() for line in asked.splitlines() if line.strip()]
        return about(visit, name, asked=asked, scores={**scores, "lines": lines})

    @router.post("/models/{name}/regrow")
    def regrow(name: str, visit: Posting) -> Response:
        service.regrow(visit.caller, name)
        return RedirectResponse(f"/models/{name}", 303)

    @router.get("/ledger")
    def ledger(request: Request, visit: Visiting) -> HTMLResponse:
        found, base = service.leaves(visit.caller), str(request.base_url).rstrip("/")
        return show("ledger.html", visit, checkpoint=service.checkpoint(visit.caller), leaves=found, base=base)

    @router.get("/ledger/checkpoint")
    def checkpoint(visit: Visiting, since: Annotated[str, Query(alias="from")] = "") -> Response:
        if since and not (since.isdecimal() and len(since) < 19):
            raise not_found()
        content = canonical(service.checkpoint(visit.caller, int(since) if since else None))
        name = {"Content-Disposition": 'attachment; filename="checkpoint.json"'}
        return Response(content, media_type="application/json", headers=name)

    @router.get("/calls")
    def calls(visit: Visiting) -> HTMLResponse:
        return show("calls.html", visit, calls=service.accesses(visit.caller, PAGE))

    app.include_router(router)
