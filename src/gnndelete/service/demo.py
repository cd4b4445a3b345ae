"""A model and a stream of requests, to look at the service before there is a model of one's own."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial

from gnndelete.datasets import IdMap, NamedGraph, load, split_links
from gnndelete.models import GCN
from gnndelete.service.access import Caller
from gnndelete.service.elements import Asked
from gnndelete.service.errors import ServiceError
from gnndelete.service.home import Settings
from gnndelete.service.lifecycle import Order, Service
from gnndelete.service.register import register
from gnndelete.tasks import LinkPrediction
from gnndelete.training.loop import train

NAME = "digits"

#: A demo shows both clocks within minutes.
SETTINGS = Settings(undo_window=60.0, regrow_every=150.0, compact_every=60.0)

EPOCHS, LR, SEED = 200, 0.01, 0

#: Requests of the stream at most, and seconds between two.
REQUESTS, PAUSE = 200, 4.0

#: Who asks in the stream.
CALLER = Caller("demo", "default", "admin")


def add_model(service: Service) -> None:
    """Train a model on the links of images of digits and register it, where that was not done before."""
    with service.storage.reading() as records:
        if records.model(CALLER.tenant, NAME) is not None:
            return
    split = split_links(load("digits", None), seed=SEED)
    task = LinkPrediction(validation=split.validation, test=split.test, seed=SEED)
    model = GCN(split.data.num_features, 128, 64)
    train(model, split.data, task, epochs=EPOCHS, lr=LR, seed=SEED, progress=True)
    names = IdMap(f"image:{number}" for number in range(split.data.num_nodes))
    training = {"schedule": {"epochs": EPOCHS, "lr": LR}}
    register(service, NAME, model, NamedGraph(split.data, names), task, training, {"aim": "nonexistent"})


def stream(service: Service, pause: float = PAUSE) -> Callable[[threading.Event], None]:
    """What asks the service to forget something every few seconds, until the event is set."""

    def run(ended: threading.Event) -> None:
        for act in _acts(service):
            if ended.wait(pause):
                return
            try:
                act()
            except ServiceError:  # it was asked for before, or is too late: so it goes
                continue

    return run


def _acts(service: Service) -> Iterator[Callable[[], object]]:
    """Mostly links, sometimes an account, a request that is held, and one that is undone."""
    draw = random.Random()
    for turn in range(REQUESTS):
        kind = "undo" if turn % 9 == 5 else "node" if turn % 6 == 3 else "hold" if turn % 8 == 6 else "edge"
        if kind == "undo":
            yield partial(_undo_last, service)
        else:
            yield partial(_ask, service, kind, draw)


def some_link(service: Service, draw: random.Random) -> list[str]:
    """A link that the model has learned, by the names of its ends."""
    with service.storage.reading() as records:
        model = records.model(CALLER.tenant, NAME)
    assert model is not None
    elements = service.live(model).snapshot().generation.elements
    table = elements.table
    ends = table.edges(table.keys[draw.randrange(len(table.keys))].reshape(1)).flatten().tolist()
    return [elements.names.node(row) for row in ends]


def _ask(service: Service, kind: str, draw: random.Random) -> None:
    names = some_link(service, draw)
    asked = Asked({"nodes": names[:1]} if kind == "node" else {"edges": [names]})
    service.receive(CALLER, NAME, Order(asked, mode="hold" if kind == "hold" else "serve"))


def _undo_last(service: Service) -> None:
    for request in service.requests(CALLER, state="suppressed", limit=1):
        service.act(CALLER, request["id"], "undo")
