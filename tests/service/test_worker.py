"""What goes wrong around the worker, and that it goes on where it was."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from sqlalchemy.exc import OperationalError

from gnndelete.datasets import NamedGraph
from gnndelete.errors import RunError
from gnndelete.models import GCN
from gnndelete.service import folders
from gnndelete.service.clock import DAY, HOUR
from gnndelete.service.elements import Asked
from gnndelete.service.lifecycle import Order
from gnndelete.service.register import register
from gnndelete.service.solver import Solver
from gnndelete.service.storage import Storage
from gnndelete.service.verify import home_problems, replay
from gnndelete.testing import problem


def names_of(view: dict) -> list[str]:
    return [step["step"] for step in view["steps"]]


def fail_on(patch: pytest.MonkeyPatch, edge: list[str], shop) -> None:
    """Let the solver raise on whatever holds one edge."""
    real, bad = Solver.suppress, {int(name.partition(":")[2]) for name in edge}

    def suppress(solver, deletion):
        if any(set(ends) == bad for ends in deletion.edges.t().tolist()):
            raise ValueError("the model raised")
        return real(solver, deletion)

    patch.setattr(Solver, "suppress", suppress)


def test_one_that_cannot_be_solved_fails_alone_and_is_retried_from_there(shop, monkeypatch):
    edges = shop.edges(4)
    asked = [shop.ask(edge)["id"] for edge in edges]
    with monkeypatch.context() as patch:
        fail_on(patch, edges[1], shop)
        for _ in range(8):
            shop.work()
            shop.clock.advance(HOUR)
    assert [shop.state(each) for each in asked] == ["suppressed", "failed", "suppressed", "suppressed"]
    view = shop.service.view(shop.admin, asked[1])
    assert (view["code"], view["failed_step"], view["attempts"]) == ("value-error", "suppress", 5)
    assert names_of(view).count("suppress-failed") == 4
    assert [step["code"] for step in view["remaining"]] == ["suppressed", "regrown", "destroyed", "closed"]
    shop.service.act(shop.admin, asked[1], "retry")
    shop.work()
    assert shop.state(asked[1]) == "suppressed"
    assert home_problems(shop.service) == []


def test_what_was_asked_before_is_said_and_not_done_twice(small):
    edges = small.edges(3)
    small.ask(edges[0])
    second = small.ask(edges[0], edges[1])["id"]
    small.work()
    view = small.service.view(small.admin, second)
    assert view["state"] == "suppressed"
    assert next(step for step in view["steps"] if step["step"] == "validated")["evidence"]["asked_before"] == 1
    third = small.ask(elements={"edges": [edges[2]], "nodes": [edges[0][0]]})["id"]
    small.work()
    assert small.state(third) in ("suppressed", "held")


def test_a_full_disk_stops_nothing_but_the_work(small, monkeypatch):
    asked = small.ask(small.edge(0))["id"]
    before = small.scores(small.edge(0))
    with monkeypatch.context() as patch:

        def full(path, *_args, **_kwargs):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

        patch.setattr(folders, "write_file", full)
        for _ in range(20):
            small.work()
            small.clock.advance(60)
        assert small.state(asked) == "validated"
        assert small.scores(small.edge(0)) == before
    small.work()
    assert small.state(asked) == "suppressed"
    assert home_problems(small.service) == []


def test_a_database_that_is_away_is_waited_for(small, monkeypatch):
    asked = small.ask(small.edge(0))["id"]
    real, calls = Storage.writing, 0

    def away(storage):
        nonlocal calls
        calls += 1
        if calls % 3 == 0:  # in the middle of the work
            raise OperationalError("BEGIN", {}, Exception("the server closed the connection"))
        return real(storage)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "writing", away)
        for _ in range(10):
            with pytest.MonkeyPatch.context():
                small.worker._guarded("look", small.worker.models_once)
            small.clock.advance(60)
    small.clock.advance(60)
    small.work()
    assert small.state(asked) == "suppressed"
    assert [step["step"] for step in small.service.view(small.admin, asked)["steps"]].count("suppressed") == 1
    assert home_problems(small.service) == []


@pytest.mark.parametrize("jump", [-400 * DAY, 400 * DAY])
def test_a_clock_that_jumps_and_comes_back_stops_nothing(small, jump):
    first = small.ask(small.edge(0), due=small.clock.now() + 900 * DAY)["id"]
    small.clock.advance(jump)
    small.work()
    small.clock.advance(-jump)
    other = small.another_worker()
    second = small.ask(small.edges(9)[8])["id"]
    small.clock.advance(5 * HOUR)
    other.models_once()
    assert small.state(second) == "suppressed"
    assert small.state(first) in ("suppressed", "closed")
    assert home_problems(small.service) == []


def test_two_workers_share_the_work_and_one_writes(shop):
    other = shop.another_worker()
    shop.ask(shop.edge(0))
    shop.work()
    second = shop.ask(shop.edges(9)[8])["id"]
    assert not other.models_once()  # the first one holds the model
    shop.clock.advance(shop.service.settings.lease + 1)
    assert other.models_once()
    assert shop.state(second) == "suppressed"
    third = shop.ask(shop.edges(15)[11])["id"]
    assert not shop.worker.models_once()  # it has lost the model
    other.once()
    assert shop.state(third) == "suppressed"
    assert home_problems(shop.service) == []


def test_a_writer_that_lost_its_lease_while_it_worked_cannot_publish(small, monkeypatch):
    small.ask(small.edge(0))
    other, real = small.another_worker(), Solver.suppress

    def slow(solver, deletion):
        small.clock.advance(small.service.settings.lease + 1)
        with small.service.storage.writing() as records:
            model = records.models()[0]
            assert records.take_model(model.id, other.owner, small.clock.now(), small.service.settings.lease)
        return real(solver, deletion)

    with monkeypatch.context() as patch:
        patch.setattr(Solver, "suppress", slow)
        small.worker.models_once()
    assert small.service.model(small.admin, "shop")["aliases"]["live"] == 0
    other.models_once()
    assert small.service.model(small.admin, "shop")["aliases"]["live"] == 1
    assert home_problems(small.service) == []


def test_the_same_request_a_hundred_times_at_once_is_one(shop):
    edge = shop.edge(0)
    with ThreadPoolExecutor(8) as pool:
        keyed = list(pool.map(lambda _: shop.ask(edge, idempotency="one")["id"], range(50)))
        plain = list(pool.map(lambda _: shop.ask(shop.edges(9)[8])["state"], range(50)))
    assert len(set(keyed)) == 1
    assert sorted(plain) == ["duplicate"] * 49 + ["validated"]
    shop.work()
    with shop.service.storage.reading() as records:
        assert sum(version.requests for version in records.versions(records.models()[0].id)) == 2


def test_predictions_never_mix_two_versions(small):
    """Whoever asks while versions change gets the scores of the version that the answer names."""
    edges, seen, ended = small.edges(12), [], threading.Event()

    def ask() -> None:
        while not ended.is_set():
            seen.append(small.service.predict(small.admin, "shop", Asked({"edges": edges})))

    thread = threading.Thread(target=ask)
    thread.start()
    expected = {}
    for edge in edges[:6]:
        small.ask(edge)
        small.work()
        found = small.service.predict(small.admin, "shop", _asked(edges))
        expected[found["version"]] = found["scores"]
    ended.set()
    thread.join()
    assert len({each["version"] for each in seen}) > 1
    assert all(each["scores"] == expected[each["version"]] for each in seen if each["version"] in expected)


def _asked(edges):
    return Asked({"edges": edges})


def test_new_weights_that_cannot_be_made_are_tried_again_and_then_said(small, monkeypatch):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    small.service.regrow(small.admin, "shop")
    with monkeypatch.context() as patch:

        def broken(*_args, **_kwargs):
            raise RunError("the training diverged")

        patch.setattr("gnndelete.service.worker.new_generation", broken)
        for _ in range(8):
            small.work()
            small.clock.advance(HOUR)
    view = small.service.view(small.admin, asked)
    assert view["state"] == "suppressed"
    assert names_of(view).count("regrow-failed") == 5
    regrow = small.service.model(small.admin, "shop")["regrows"][0]
    assert (regrow["state"], regrow["code"]) == ("failed", "run-error")
    small.service.regrow(small.admin, "shop")
    small.work()
    assert small.state(asked) == "closed"


class Centred(torch.nn.Module):
    """A model in which every node sees every other, so that no request is local."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = GCN(8, 16, 8)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        first, second = self.layers.convs
        x = first(x, edge_index)
        return second((x - x.mean(0)).relu(), edge_index)


def test_a_model_that_cannot_be_run_locally_passes_both_clocks(small):
    _, data, task = problem("link")
    made = register(
        small.service, "whole", Centred(), NamedGraph(data), task, {"schedule": {"epochs": 2}}, {"aim": "nonexistent"}
    )
    assert not made["local"]
    edges = [list(pair) for pair in data.edge_index.t().tolist() if pair[0] < pair[1]][:4]

    def ask(edge: list[int]) -> str:
        return small.service.receive(small.admin, "whole", Order(Asked({"edges": [edge]})))[1]["id"]

    asked = []
    for edge in edges[:3]:
        asked.append(ask(edge))
        small.work()
    small.worker = small.another_worker()
    small.clock.advance(HOUR)
    asked.append(ask(edges[3]))
    small.work()
    for each in asked:
        found = replay(small.service.home.path, small.service.receipt(small.admin, each))
        assert found.is_identical, found.text
    small.service.act(small.admin, asked[0], "undo")
    small.work()
    small.service.regrow(small.admin, "whole")
    small.work()
    assert [small.state(each) for each in asked] == ["cancelled", "closed", "closed", "closed"]
    assert home_problems(small.service) == []
