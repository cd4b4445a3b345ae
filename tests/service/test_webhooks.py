"""Webhooks: signed, sent again until the receiver takes them, and never inside the network unasked."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gnndelete.service import schema as t
from gnndelete.service.home import Settings
from gnndelete.service.webhooks import ATTEMPTS, SIGNATURE, TIMESTAMP

from .conftest import MARK, make_shop


@dataclass
class Receiver:
    """Takes webhooks, and refuses the first few."""

    port: int = 0
    refuse: int = 0
    taken: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?of=shop"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found.refuse:
                found.refuse -= 1
                self.send_response(503)
            else:
                found.taken.append((body, dict(self.headers)))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def hooked(tmp_path, receiver):
    shop = make_shop(tmp_path / "home", settings=Settings(webhook_hosts=("127.0.0.1",)))
    yield shop
    shop.service.storage.close()


def test_each_change_of_state_is_posted_once_and_signed(hooked, receiver):
    asked = hooked.ask(hooked.edge(0), callbacks=(receiver.url,))["id"]
    hooked.work()
    hooked.service.regrow(hooked.admin, "shop")
    hooked.work()
    hooked.work()
    bodies = [json.loads(body) for body, _ in receiver.taken]
    assert [body["state"] for body in bodies] == ["validated", "suppressed", "regrown", "destroyed", "closed"]
    assert {body["id"] for body in bodies} == {asked}
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(hooked.service.keys.signer.public))
    for body, headers in receiver.taken:
        kind, _, signature = headers[SIGNATURE].partition("=")
        assert kind == "ed25519"
        key.verify(bytes.fromhex(signature), headers[TIMESTAMP].encode() + b"." + body)
        assert MARK.encode() not in body
    with hooked.service.storage.reading() as records:
        assert not records.messages(hooked.clock.now() + 1e9)


def test_a_receiver_that_is_away_gets_it_later(hooked, receiver):
    receiver.refuse = 2
    hooked.ask(hooked.edge(0), mode="hold", callbacks=(receiver.url,))
    hooked.worker.send_once()
    hooked.worker.send_once()  # not due yet
    assert (receiver.refuse, receiver.taken) == (1, [])
    hooked.clock.advance(3)
    hooked.worker.send_once()
    hooked.clock.advance(3)
    hooked.worker.send_once()
    assert not receiver.taken  # each pause is twice as long
    hooked.clock.advance(2)
    hooked.worker.send_once()
    assert [json.loads(body)["state"] for body, _ in receiver.taken] == ["held"]


def test_a_receiver_that_never_answers_is_given_up_and_its_address_forgotten(hooked, receiver):
    receiver.refuse = 10**6
    hooked.ask(hooked.edge(0), mode="hold", callbacks=(receiver.url,))
    for _ in range(ATTEMPTS):
        hooked.worker.send_once()
        hooked.clock.advance(86400)
    assert receiver.refuse == 10**6 - ATTEMPTS
    hooked.worker.send_once()
    assert receiver.refuse == 10**6 - ATTEMPTS
    with hooked.service.storage.reading() as records:
        assert [message.url for message in records.session.query(t.Message)] == [None]


def test_a_name_that_leads_inside_the_network_is_not_called(hooked, receiver, monkeypatch):
    address = [(2, 1, 6, "", ("127.0.0.1", receiver.port))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: address)
    hooked.ask(hooked.edge(0), mode="hold", callbacks=(f"https://shop.example:{receiver.port}/",))
    hooked.worker.send_once()
    assert not receiver.taken
