"""Webhooks: each change of state, signed, from the outbox, until the receiver takes it."""

from __future__ import annotations

import http.client
import socket
import ssl
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gnndelete.service.clock import DAY, iso
from gnndelete.service.crypto import canonical

if TYPE_CHECKING:
    from gnndelete.service.lifecycle import Service
    from gnndelete.service.metrics import Metrics

#: So many times a webhook is tried, over about three days.
ATTEMPTS = 26
TIMEOUT = 5.0

SIGNATURE, TIMESTAMP = "X-Gnndelete-Signature", "X-Gnndelete-Timestamp"


def deliver(service: Service, metrics: Metrics) -> bool:
    """Deliver the webhooks that are due; whether there were any."""
    now = service.clock.now()
    with service.storage.reading() as records:
        waiting = list(records.messages(now))
    for message in waiting:
        sent = _post(service, str(message.url), canonical(message.body), now)
        with service.storage.writing() as records:
            row = records.session.get(type(message), message.id)
            if row is None or row.delivered is not None:
                continue
            row.attempts += 1
            if sent:
                row.delivered, row.url = now, None
            elif row.attempts >= ATTEMPTS:
                row.url = None
            else:
                row.next_attempt = now + min(2.0**row.attempts, DAY / 4)
        metrics.webhooks.labels("delivered" if sent else "failed").inc()
    return bool(waiting)


def _post(service: Service, url: str, body: bytes, now: float) -> bool:
    """Post once; no redirect is followed, and nothing inside the network is reached that the settings do not name."""
    parts = urlsplit(url)
    host, time = parts.hostname or "", str(iso(now))
    listed = host in service.settings.webhook_hosts
    headers = {
        "Content-Type": "application/json",
        TIMESTAMP: time,
        SIGNATURE: f"ed25519={service.keys.signer.sign(time.encode() + b'.' + body)}",
    }
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        address = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
        if not listed and not ip_address(address).is_global:
            return False
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=ssl.create_default_context())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        connection.sock = socket.create_connection(
            (address, port), timeout=TIMEOUT
        )  # the very address that was checked
        if isinstance(connection, http.client.HTTPSConnection):
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, headers)
            return 200 <= connection.getresponse().status < 300
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):
        return False
