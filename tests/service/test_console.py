"""The console without a browser: every page for every role, sessions, forms, and what nobody may learn."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest
from fastapi.testclient import TestClient

from gnndelete.service import receipts, sessions
from gnndelete.service.access import add_key
from gnndelete.service.api import create_app
from gnndelete.service.clock import DAY
from gnndelete.service.console import elements_of
from gnndelete.service.errors import ServiceError

from .conftest import MARK, caller

PAGES = ["/", "/approvals", "/models", "/models/shop", "/ledger", "/ledger/checkpoint", "/calls", "/new"]


@pytest.fixture
def site(small):
    """The console of a shop; `visit` logs a role in."""
    app = create_app(small.service)
    small.site = lambda: TestClient(app, base_url="https://shop.example", follow_redirects=False)

    def visit(role: str = "admin", tenant: str = "default") -> TestClient:
        client = small.site()
        key = small.keys.get(role if tenant == "default" else f"{tenant}/{role}")
        key = key or add_key(small.service.storage, tenant, role, small.clock.now())
        answer = client.post("/login", data={"key": key, "next": "/models"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/models")
        return client

    small.visit = visit
    return small


def token(client: TestClient, path: str = "/ledger") -> str:
    return re.search(r'name="token" value="(\w+)"', client.get(path).text)[1]


def post(client: TestClient, path: str, **fields):
    return client.post(path, data={"token": token(client), **fields})


def every_state(shop) -> dict[str, str]:
    """A request in each state that one can stay in."""
    edges = shop.edges(7)
    found = {"closed": shop.ask(edges[0])["id"]}
    shop.work()
    shop.service.regrow(shop.admin, "shop")
    shop.work()
    found["suppressed"] = shop.ask(edges[1])["id"]
    found["cancelled"] = shop.ask(edges[2])["id"]
    shop.work()
    shop.service.act(shop.admin, found["cancelled"], "undo")
    shop.work()
    found["duplicate"] = shop.ask(edges[1])["id"]
    found["held"] = shop.ask(edges[3], mode="hold")["id"]
    found["denied"] = shop.ask(edges[4])["id"]
    shop.service.act(shop.admin, found["denied"], "deny")
    found["failed"] = shop.ask(edges[5])["id"]
    with shop.service.storage.writing() as records:
        request = records.request(found["failed"])
        request.failed_step, request.attempts = "suppress", 5
        shop.service.move(records, request, "failed", "worker", {"code": "memory-error", "step": "suppress"})
    found["validated"] = shop.ask(edges[6])["id"]
    assert {state: shop.state(each) for state, each in found.items()} == {state: state for state in found}
    return found


def test_every_page_of_every_state_is_shown(site):
    requests, client = every_state(site), site.visit()
    listed = client.get("/").text
    for state, each in requests.items():
        page = client.get(f"/requests/{each}")
        assert page.status_code == 200
        assert f">{state}</span>" in page.text
        assert each in listed
        assert each in client.get("/", params={"state": state}).text
        buttons = set(re.findall(rf'action="/requests/{each}/(\w+)"', page.text))
        assert buttons == set(site.service.view(site.admin, each)["actions"])
    assert requests["held"] not in client.get("/", params={"state": "closed"}).text
    for path in PAGES:
        page = client.get(path)
        assert page.status_code == 200, path
        assert MARK not in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert not re.search(r"<style|style=|<script>|\son\w+=|https?://(?!shop\.example)", page.text)
    for part in ("receipt", "report"):
        assert client.get(f"/requests/{requests['closed']}/{part}").status_code == 200
        assert client.get(f"/requests/{requests['denied']}/{part}").status_code == 409


def test_pages_say_what_to_do_where_there_is_nothing(site):
    client = site.visit()
    assert "/v1/models/shop/requests" in client.get("/").text
    assert "Nothing waits for approval" in client.get("/approvals").text
    assert "Show all requests" in client.get("/", params={"state": "failed"}).text
    stranger = site.visit("admin", "bakery")
    for path in ("/", "/models", "/new"):
        assert "gnndelete service register" in stranger.get(path).text
    assert client.get("/", params={"state": "nonsense"}).status_code == 404
    assert client.get("/", params={"before": "nonsense"}).status_code == 404


def test_the_list_says_what_is_late_and_of_what_nothing_is_left_to_do(site):
    client, edges = site.visit(), site.edges(2)
    for edge in edges:
        site.ask(edge, mode="hold")
    assert "Late to suppress:" not in client.get("/").text
    site.clock.advance(DAY)
    site.service.act(site.admin, site.service.requests(site.admin)[0]["id"], "deny")
    page = site.visit().get("/").text
    assert "<b>1</b> late to suppress" in page
    assert "Late to suppress: the promised time is over" in page
    denied = next(row for row in page.split("<tr>") if ">denied</span>" in row)
    assert denied.count("nothing to do") == 2


def test_older_requests_are_on_further_pages(site, monkeypatch):
    monkeypatch.setattr("gnndelete.service.console.PAGE", 2)
    asked, client, seen, path = [], site.visit(), [], "/"
    for edge in site.edges(5):
        asked.append(site.ask(edge)["id"])
        site.clock.advance(60)
    while path:
        page = client.get(path).text
        seen += re.findall(r'id="r-\w+" href="/requests/(\w+)"', page)
        found = re.search(r'href="(/\?[^"]*before=[^"]*)" rel="next"', page)
        path = found and found[1].replace("&amp;", "&")
    assert seen == asked[::-1]


def test_a_session_begins_with_a_key_and_ends(site, monkeypatch):
    client = site.site()
    for path in [*PAGES, "/events", "/requests/1", "/requests/1/receipt", "/requests/1/report"]:
        answer = client.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=%2F")
    wrong = client.post("/login", data={"key": "gd_0_0"})
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    answer = client.post("/login", data={"key": site.keys["admin"], "next": "//elsewhere.example"})
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "secure", "path=/"))
    assert site.keys["admin"] not in client.cookies[sessions.COOKIE]
    page_token, value = token(client), client.cookies[sessions.COOKIE]
    assert client.post("/logout", data={"token": page_token}).headers["location"] == "/login"
    assert client.get("/").status_code == 303
    name, ends, nonce, signature = value.split(".")
    for forged in (f"{name}.{int(ends) + 1}.{nonce}.{signature}", f"{name}.{ends}.{nonce}.", "x", "..", "ä" * 9):
        with pytest.raises(ServiceError):
            sessions.Sessions(site.service).caller(forged)
    known = sessions.Sessions(site.service)
    assert known.caller(value) == site.admin
    later = time.time() + sessions.LASTS + 1
    monkeypatch.setattr(sessions.time, "time", lambda: later)
    with pytest.raises(ServiceError):
        known.caller(value)


def test_a_revoked_key_ends_its_session(site):
    client = site.visit("operator")
    name = client.cookies[sessions.COOKIE].split(".")[0]
    assert client.get("/").status_code == 200
    with site.service.storage.writing() as records:
        records.api_key(name).revoked = site.clock.now()
    assert client.get("/").status_code == 303


def test_forms_of_other_sites_change_nothing(site):
    held, client = site.ask(site.edge(0), mode="hold")["id"], site.visit()
    own = token(client)
    for path in (f"/requests/{held}/approve", f"/requests/{held}/deny", "/models/shop/regrow", "/new", "/logout"):
        assert client.post(path).status_code == 403
        assert client.post(path, data={"token": token(site.visit())}).status_code == 403
        assert client.post(path, data={"token": own}, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    login = site.site().post("/login", data={"key": site.keys["admin"]}, headers={"sec-fetch-site": "cross-site"})
    assert login.status_code == 403
    assert "set-cookie" not in login.headers
    assert site.state(held) == "held"
    assert post(client, f"/requests/{held}/approve").headers["location"] == f"/requests/{held}"
    assert site.state(held) == "validated"
    assert post(client, f"/requests/{held}/explode").status_code == 404
    cookie = {sessions.COOKIE: client.cookies[sessions.COOKIE]}
    assert site.site().get("/v1/models", cookies=cookie).status_code == 401  # the interface takes keys only


def test_a_role_is_offered_what_it_may_do(site):
    held = site.ask(site.edge(0), mode="hold")["id"]
    allowed = {
        "requester": {"/", "/models", "/models/shop", "/ledger", "/new"},
        "operator": {*PAGES} - {"/calls"},
        "auditor": {*PAGES} - {"/new"},
        "admin": {*PAGES},
    }
    for role, expected in allowed.items():
        client = site.visit(role)
        for path in PAGES:
            assert (client.get(path).status_code == 200) == (path in expected | {"/approvals", "/ledger/checkpoint"})
        links = set(re.findall(r'<li><a href="(/\w*)"', client.get("/models").text))
        assert links <= expected
    asked = post(site.visit("requester"), f"/requests/{held}/approve")
    assert asked.status_code == 403
    assert site.state(held) == "held"


def test_strangers_learn_nothing(site):
    requests = every_state(site)
    for client in (site.visit("admin", "bakery"), site.visit("requester")):
        missing = client.get("/requests/0" * 8)
        for each in requests.values():
            for part in ("", "/receipt", "/report"):
                answer = client.get(f"/requests/{each}{part}")
                assert answer.status_code == 404
                assert each[:8] not in answer.text
            assert post(client, f"/requests/{each}/cancel").status_code == 404
            for path in ("/", "/ledger"):
                assert each not in client.get(path).text
        assert missing.status_code == 404
    stranger = site.visit("admin", "bakery")
    for path in ("/models/shop", "/models/nothing"):
        assert stranger.get(path).status_code == 404
    assert "shop</a>" not in stranger.get("/models").text
    assert post(stranger, "/models/shop", elements="1,2").status_code == 404
    assert post(stranger, "/new", model="shop", kind="nodes", elements=f"{MARK}:1", do="send").status_code == 404
    assert site.admin.key not in stranger.get("/calls").text


def test_the_form_predicts_and_sends(site):
    client, edge = site.visit("requester"), site.edge(0)
    fields = {"model": "shop", "kind": "edges", "elements": ", ".join(edge), "subject": "s-1", "due": "2099-01-31"}
    page = post(client, "/new", do="predict", **fields)
    assert page.status_code == 200
    assert "Nothing was stored" in page.text
    assert "average row of the model" in page.text
    assert site.service.requests(site.admin) == []
    sent = post(client, "/new", do="send", hold="yes", **fields)
    assert sent.status_code == 303
    view = site.service.view(site.admin, sent.headers["location"].rpartition("/")[2])
    assert (view["state"], view["counts"]) == ("held", {"edges": 1})
    assert datetime.fromisoformat(view["due"]).year == 2099
    again = post(client, "/new", do="send", hold="yes", **fields)
    assert again.headers["location"] == sent.headers["location"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"elements": f"{MARK}:0,{MARK}:1\n<script>alert(1)</script>,x", "kind": "edges"}, "line 2"),
        ({"elements": "[1", "kind": "edges"}, "no JSON"),
        ({"elements": "  ", "kind": "nodes"}, "names nothing"),
        ({"elements": "x", "kind": "walls"}, "kind"),
        ({"elements": f"{MARK}:0", "kind": "nodes", "due": "tomorrow"}, "no date"),
        ({"elements": f"{MARK}:0", "kind": "nodes", "callback": "http://localhost/"}, "callback"),
    ],
)
def test_the_form_says_what_is_wrong_and_keeps_what_was_written(site, fields, said):
    client = site.visit()
    page = post(client, "/new", model="shop", do="send", **fields)
    assert 400 <= page.status_code < 500
    assert said in re.search(r'role="alert"[^>]*>(.*?)</p>', page.text)[1]
    assert "<script>alert" not in page.text
    assert site.service.requests(site.admin) == []
    if len(fields["elements"].strip()) > 10:
        assert f"{MARK}:0" in page.text


def test_a_held_request_is_shown_with_its_effect(site):
    held, client = site.ask(site.edge(0), mode="hold")["id"], site.visit("operator")
    for path in ("/approvals", f"/requests/{held}"):
        assert "average row of the model" in client.get(path).text
    post(client, f"/requests/{held}/deny", back="/approvals")
    assert "Nothing waits" in client.get("/approvals").text
    assert site.state(held) == "denied"


def test_the_live_version_answers_on_its_page(site):
    client, edge = site.visit(), site.edge(0)
    expected = site.scores(edge)[0]
    page = post(client, "/models/shop", elements=", ".join(edge))
    assert f"{expected:.4f}" in page.text
    assert "Scores of version 0" in page.text
    wrong = post(client, "/models/shop", elements="nobody, nothing")
    assert wrong.status_code == 422
    assert 'role="alert"' in wrong.text


def test_new_weights_can_be_asked_for(site):
    client = site.visit("operator")
    refused = post(client, "/models/shop/regrow")
    assert refused.status_code == 409
    assert "no suppressed request" in refused.text.lower()
    site.ask(site.edge(0))
    site.work()
    assert "/models/shop/regrow" in client.get("/models/shop").text
    assert post(client, "/models/shop/regrow").status_code == 303
    assert "/models/shop/regrow" not in client.get("/models/shop").text
    assert site.service.model(site.admin, "shop")["regrows"][0]["state"] == "waiting"


def test_a_checkpoint_with_a_proof_can_be_downloaded(site):
    old = receipts.read_checkpoint(site.visit().get("/ledger/checkpoint").content)
    site.ask(site.edge(0))
    site.work()
    client = site.visit()
    new = receipts.read_checkpoint(client.get("/ledger/checkpoint", params={"from": old.size}).content)
    assert new.size > old.size
    assert receipts.ledger_problems(old, new, old.key) == []
    for wrong in ("0", "99", "x", "-1", "9" * 30):
        assert client.get("/ledger/checkpoint", params={"from": wrong}).status_code == 404


def test_elements_can_be_written_as_json():
    assert elements_of("edges", '[["a", "b"]]', named=True) == {"edges": [["a", "b"]]}
    assert elements_of("features", "a, 3\nb", named=True) == {"features": [["a", 3], "b"]}
    assert elements_of("edges", "1, 2", named=False) == {"edges": [[1, 2]]}


def test_the_stamp_changes_with_what_the_caller_sees(shop):
    requester, stranger = caller(shop, "requester"), caller(shop, "admin", "bakery")
    everyone = (shop.admin, requester, stranger)

    def stamps() -> list[str]:
        return [shop.service.stamp(each) for each in everyone]

    begin = stamps()
    assert stamps() == begin
    shop.ask(shop.edge(0), by=requester)
    asked = stamps()
    assert [one != other for one, other in zip(begin, asked, strict=True)] == [True, True, False]
    shop.ask(shop.edges(3)[2])
    assert [one != other for one, other in zip(asked, stamps(), strict=True)] == [True, False, False]
    before = stamps()
    shop.work()
    assert [one != other for one, other in zip(before, stamps(), strict=True)] == [True, True, False]


def test_calls_and_figures_are_those_of_the_tenant(shop):
    stranger = caller(shop, "admin", "bakery")
    shop.ask(shop.edge(0))
    assert shop.service.figures(shop.admin)["requests"] == {("shop", "validated"): 1}
    assert shop.service.figures(stranger)["requests"] == {}
    assert shop.service.leaves(shop.admin)[0]["request"] is None
    shop.work()
    assert shop.service.leaves(shop.admin)[0]["request"]
    assert {each["request"] for each in shop.service.leaves(stranger)} == {None}


def test_what_is_hidden_after_new_weights_is_still_in_them(shop):
    edges = shop.edges(2)
    first = shop.ask(edges[0])["id"]
    shop.work()
    shop.service.regrow(shop.admin, "shop")
    shop.work()
    later = shop.ask(edges[1])["id"]
    shop.work()
    assert shop.service.model(shop.admin, "shop")["weights"] == "new"
    for request, expected in ((first, ("new", "retrained")), (later, ("base", "approximate"))):
        report = shop.service.report(shop.admin, request)
        assert (report["weights"], report["level"]) == expected
