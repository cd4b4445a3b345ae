"""The process of a service: the HTTP interface, and by default a worker in a thread of its own."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from prometheus_client import start_http_server

from gnndelete.errors import SettingError
from gnndelete.service.api import create_app
from gnndelete.service.lifecycle import Service
from gnndelete.service.logs import Log
from gnndelete.service.metrics import Metrics
from gnndelete.service.worker import Worker

#: Seconds after which a thread that computes lets others go on. A call takes many turns, and the worker computes in this process.
SWITCH = 0.0005

#: Calls that wait to be answered, beyond which the kernel refuses further ones.
BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts calls; port 0 takes a free one.

    Raises:
        SettingError: If the address is taken or not one of this machine.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind)
    except OSError as error:
        raise SettingError(f"the host '{host}' is not known ({error.strerror or error}); correct --host") from None
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise SettingError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); choose another --port or --host"
        ) from None
    return opened


def serve_metrics(host: str, port: int, metrics: Metrics) -> None:
    """Answer scrapes of what a worker of its own process did, in a thread.

    Args:
        host: The address.
        port: The port.
        metrics: The figures.

    Raises:
        SettingError: If the address cannot be had.
    """
    try:
        start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise SettingError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); choose another --metrics"
        ) from None


def serve(
    service: Service,
    listening: socket.socket,
    with_worker: bool = True,
    beside: Sequence[Callable[[threading.Event], None]] = (),
    log: Log | None = None,
) -> None:
    """Answer calls until the process is asked to end.

    Args:
        service: The service.
        listening: The socket of `listen`.
        with_worker: Whether to do the work in this process, too.
        beside: What else runs as long as the service does, each in a thread, until the event is set.
        log: Where lines go.
    """
    sys.setswitchinterval(SWITCH)
    metrics, said, ended = Metrics(), log or Log(), threading.Event()
    worker = Worker(service, metrics, said) if with_worker else None
    acts = [*([] if worker is None else [worker.run]), *((lambda act=act: act(ended)) for act in beside)]

    @contextmanager
    def running() -> Iterator[None]:
        threads = [threading.Thread(target=act, daemon=True) for act in acts]
        if worker is not None:
            service.changed = worker.wake
        for thread in threads:
            thread.start()
        said("started", worker=with_worker)
        try:
            yield
        finally:
            ended.set()
            if worker is not None:
                worker.stop()
            for thread in threads:
                thread.join(timeout=30)
            said("stopped")

    app = create_app(service, metrics, running, said)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
        backlog=BACKLOG,
    )
    uvicorn.Server(config).run(sockets=[listening])
