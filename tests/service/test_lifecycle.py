"""The life of a request, from the facade, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import torch

from gnndelete.service import ledger, receipts
from gnndelete.service.clock import DAY, HOUR
from gnndelete.service.elements import Asked
from gnndelete.service.errors import ServiceError
from gnndelete.service.home import Settings
from gnndelete.service.lifecycle import Order, check_callback
from gnndelete.service.states import ACTIONS, HELD, STATES, STEP_FROM, STEPS, WAY, remaining

from .conftest import MARK, caller, make_shop


def refused(code, act, *args, **kwargs):
    with pytest.raises(ServiceError) as caught:
        act(*args, **kwargs)
    assert caught.value.code == code
    assert MARK not in str(caught.value)
    return caught.value


def test_a_request_passes_both_clocks(shop):
    edges = shop.edges(4)
    before = shop.scores(*edges)
    answers = [shop.ask(edge) for edge in edges[:3]]
    assert [each["state"] for each in answers] == ["validated"] * 3
    shop.work()
    first = answers[0]["id"]
    assert shop.state(first) == "suppressed"
    after = shop.scores(*edges)
    assert all(one < other for one, other in zip(after[:3], before[:3], strict=True))
    receipt = shop.service.receipt(shop.admin, first)
    assert receipts.problems(receipt) == []
    assert json.loads(receipt)["weights"] == "base"
    shop.service.regrow(shop.admin, "shop")
    shop.work()
    view = shop.service.view(shop.admin, first)
    assert view["state"] == "closed"
    assert view["due_status"] == "done"
    assert not view["remaining"]
    names = [step["step"] for step in view["steps"]]
    assert [name for name in names if name in WAY] == list(WAY)
    receipt = json.loads(shop.service.receipt(shop.admin, first))
    assert receipt["weights"] == "new"
    assert receipt["level"] == "retrained"
    assert receipt["times"]["regrown"]
    with shop.service.storage.reading() as records:
        assert ledger.problems(records, shop.service.keys.trusted) == []
        assert records.secret(first) is None
    assert shop.service.folder("default", "shop").numbers("generations") == [2]


def test_nothing_is_stored_about_a_request_that_does_not_fit(shop):
    unknown = refused("unknown-elements", shop.ask, [f"{MARK}:0", f"{MARK}:nobody"])
    assert unknown.facts["positions"] == {"edges": [0]}
    refused("empty-request", shop.ask, elements={"nodes": []})
    refused("wrong-kind", shop.ask, elements={"walls": [1]})
    refused("unknown-elements", shop.ask, elements={"nodes": [[["deep"]]]})
    refused("due-passed", shop.ask, shop.edge(0), due=shop.clock.now() - 1)
    refused("wrong-mode", shop.ask, shop.edge(0), mode="now")
    refused("not-found", shop.service.receive, shop.admin, "bakery", Order(Asked({"nodes": [f"{MARK}:1"]})))
    assert shop.service.requests(shop.admin) == []


def test_the_same_request_is_one(shop):
    edges = shop.edges(3)
    answers = {json.dumps(shop.ask(edges[0], subject="s-1")) for _ in range(5)}
    assert len(answers) == 1
    refused("idempotency-conflict", shop.ask, edges[1], subject="s-1")
    duplicates = [shop.ask(edges[0]) for _ in range(3)]
    assert {each["state"] for each in duplicates} == {"duplicate"}
    assert {each["duplicate_of"] for each in duplicates} == {json.loads(answers.pop())["id"]}
    assert shop.ask(edges[0], edges[1])["state"] == "validated"  # one of the two is new
    shop.work()
    versions = shop.service.model(shop.admin, "shop")["versions"]
    assert sum(version["requests"] for version in versions) == 2


def test_requests_that_wait_are_solved_together(shop):
    asked = [shop.ask(edge)["id"] for edge in shop.edges(5)]
    shop.work()
    assert {shop.state(each) for each in asked} == {"suppressed"}
    assert len(shop.service.model(shop.admin, "shop")["versions"]) == 2
    with shop.service.storage.reading() as records:
        assert records.version(records.models()[0].id, 1).requests == 5


def test_a_dry_run_says_what_would_happen_and_stores_nothing(shop):
    status, found = shop.service.receive(shop.admin, "shop", Order(Asked({"edges": [shop.edge(0)]}), mode="dry-run"))
    assert status == 200
    assert found["counts"] == {"edges": 1}
    assert found["effect"]["rows"] > found["effect"]["neighbours"] > 0
    assert found["effect"]["damage"] > 0
    assert found["effect"]["usual"] > 0
    assert shop.service.requests(shop.admin) == []


def test_a_held_request_waits_for_approval(shop):
    answer = shop.ask(shop.edge(0), mode="hold")
    shop.work()
    assert shop.state(answer["id"]) == "held"
    shop.service.act(shop.admin, answer["id"], "approve")
    shop.work()
    assert shop.state(answer["id"]) == "suppressed"
    other = shop.ask(shop.edges(9)[8], mode="hold")["id"]
    shop.service.act(shop.admin, other, "deny")
    refused("wrong-state", shop.service.act, shop.admin, other, "approve")
    refused("no-receipt", shop.service.receipt, shop.admin, other)
    assert shop.state(other) == "denied"


def test_a_cancelled_request_can_be_asked_again(shop):
    edge = shop.edge(0)
    answer = shop.ask(edge)
    shop.service.act(shop.admin, answer["id"], "cancel")
    shop.work()
    assert shop.state(answer["id"]) == "cancelled"
    assert len(shop.service.model(shop.admin, "shop")["versions"]) == 1
    assert shop.ask(edge)["state"] == "validated"


def test_an_undo_brings_the_answers_back_and_keeps_the_others(shop):
    edges = shop.edges(3)
    before = shop.scores(*edges)
    asked = [shop.ask(edge)["id"] for edge in edges[:2]]
    shop.work()
    shop.service.act(shop.admin, asked[0], "undo")
    refused("undo-waiting", shop.service.act, shop.admin, asked[0], "undo")
    shop.work()
    after = shop.scores(*edges)
    assert [shop.state(each) for each in asked] == ["cancelled", "suppressed"]
    assert after[1] < before[1]
    shop.service.act(shop.admin, asked[1], "undo")
    shop.work()
    assert torch.allclose(torch.tensor(shop.scores(*edges)), torch.tensor(before), atol=1e-5)


def test_an_undo_is_refused_when_it_is_too_late(shop):
    first = shop.ask(shop.edge(0))["id"]
    shop.work()
    assert shop.ask(shop.edge(0))["state"] == "duplicate"
    refused("others-asked", shop.service.act, shop.admin, first, "undo")
    second = shop.ask(shop.edges(9)[8])["id"]
    shop.work()
    shop.clock.advance(25 * HOUR)
    refused("too-late", shop.service.act, shop.admin, second, "undo")


def test_an_undo_that_races_with_new_weights_loses(shop):
    asked = shop.ask(shop.edge(0))["id"]
    shop.work()
    shop.service.regrow(shop.admin, "shop")
    refused("too-late", shop.service.act, shop.admin, asked, "undo")
    refused("regrow-running", shop.service.regrow, shop.admin, "shop")
    shop.work()
    assert shop.state(asked) == "closed"


def test_requests_that_come_in_while_new_weights_are_made_are_carried_over(shop):
    edges = shop.edges(4)
    first = shop.ask(edges[0])["id"]
    shop.work()
    shop.service.regrow(shop.admin, "shop")
    second = shop.ask(edges[1])["id"]
    shop.worker.models_once()
    assert [shop.state(first), shop.state(second)] == ["suppressed", "suppressed"]
    shop.work()
    assert [shop.state(first), shop.state(second)] == ["closed", "suppressed"]
    receipt = json.loads(shop.service.receipt(shop.admin, second))
    manifest = shop.service.folder("default", "shop").manifest("versions", int(receipt["model"]["version"]))
    assert receipt["base"] == manifest["base"]
    assert receipt["adapter"] == manifest["adapter"]
    assert shop.service.folder("default", "shop").manifest("generations", 2)["base"] == receipt["base"]


def test_deleted_elements_stay_deleted_after_their_ids_are_gone(shop):
    node = int(shop.data.edge_index[0, 0])
    asked = shop.ask(elements={"nodes": [shop.name(node)]})["id"]
    shop.work()
    if shop.state(asked) == "held":
        shop.service.act(shop.admin, asked, "approve")
        shop.work()
    refused("unknown-elements", shop.scores, [shop.name(node), shop.name(int(shop.data.edge_index[1, 0]))])
    shop.service.regrow(shop.admin, "shop")
    shop.work()
    assert shop.state(asked) == "closed"
    again = shop.ask(elements={"nodes": [shop.name(node)]})
    assert again["state"] == "duplicate"
    assert again["duplicate_of"] == asked
    refused("unknown-elements", shop.scores, [shop.name(node), shop.name(int(shop.data.edge_index[1, 0]))])


def test_new_weights_are_made_by_schedule_and_before_the_due_date(shop):
    asked = shop.ask(shop.edge(0))["id"]
    soon = shop.ask(shop.edges(9)[8], due=shop.clock.now() + 6 * DAY)["id"]
    shop.work()
    assert shop.service.view(shop.admin, asked)["due_status"] == "on-track"
    shop.clock.advance(1.5 * DAY)
    assert shop.service.view(shop.admin, soon)["due_status"] == "due-soon"
    shop.work()
    assert shop.state(soon) == "closed"
    assert shop.state(asked) == "closed"
    late = shop.ask(shop.edges(20)[17])["id"]
    shop.clock.advance(31 * DAY)
    assert shop.service.view(shop.admin, late)["due_status"] == "overdue"


def test_segments_are_solved_again_as_one_by_schedule(shop):
    for edge in shop.edges(3):
        shop.ask(edge)
        shop.work()
    assert shop.service.model(shop.admin, "shop")["segments"] == 3
    before = shop.scores(*shop.edges(6))
    shop.clock.advance(1.01 * DAY)
    shop.work()
    model = shop.service.model(shop.admin, "shop")
    assert model["segments"] == 1
    assert model["versions"][0]["kind"] == "compact"
    assert torch.allclose(torch.tensor(shop.scores(*shop.edges(6))), torch.tensor(before), atol=0.5)


def test_requests_of_others_are_as_if_they_did_not_exist(shop):
    asked = shop.ask(shop.edge(0))["id"]
    stranger, same_tenant = caller(shop, "admin", "elsewhere"), caller(shop, "requester")
    for by in (stranger, same_tenant):
        missing = refused("not-found", shop.service.view, by, "0" * 32)
        hidden = refused("not-found", shop.service.view, by, asked)
        assert str(missing) == str(hidden)
        assert missing.facts == hidden.facts
        assert shop.service.requests(by) == []
    assert shop.service.models(stranger) == []
    refused("not-found", shop.service.model, stranger, "shop")


def test_many_requests_of_one_origin_are_held(tmp_path):
    shop = make_shop(tmp_path, settings=Settings(many_share=0.005, many_least=3))
    asked = [shop.ask(edge)["id"] for edge in shop.edges(8)]
    shop.work()
    view = shop.service.view(shop.admin, asked[0])
    assert view["state"] == "held"
    assert view["code"] == "many-of-one-origin"
    assert view["held_because"]


def test_every_state_step_and_reason_has_words():
    assert set(WAY) <= set(STATES)
    assert set(remaining("received")) <= set(STEPS)
    assert {action.after for action in ACTIONS.values()} - {None} <= set(STATES)
    assert all(action.before <= set(STATES) for action in ACTIONS.values())
    assert set(STEP_FROM.values()) <= set(STATES)
    assert all(HELD.values())
    assert all(STATES[one] != STATES[other] for one, other in pairwise(WAY))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a",
        "https://10.0.0.1/",
        "https://localhost/",
        "https://a@b.org/",
        "ftp://b.org",
        "https://[::1]/",
        "",
    ],
)
def test_callbacks_do_not_reach_inside(url):
    refused("wrong-callback", check_callback, url, ())


def test_callbacks_go_to_public_and_to_listed_hosts():
    check_callback("https://example.org/hook", ())
    check_callback("http://10.0.0.1:8080/hook", ("10.0.0.1",))
