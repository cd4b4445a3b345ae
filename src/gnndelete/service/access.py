"""Who may do what: API keys, roles, and how often a key may call."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from gnndelete.service import schema as t
from gnndelete.service.crypto import api_key_digest, api_key_name, new_api_key, same
from gnndelete.service.errors import ServiceError
from gnndelete.service.states import ROLES
from gnndelete.service.storage import Storage

EVERYONE = frozenset(ROLES)
OPERATE, READ = frozenset({"operator", "admin"}), frozenset({"operator", "auditor", "admin"})

#: Which roles may use each part of the interface. Requesters see their own requests only.
MAY: dict[str, frozenset[str]] = {
    "models": EVERYONE,
    "request": frozenset({"requester", "operator", "admin"}),
    "read": EVERYONE,
    "receipt": EVERYONE,
    "report": EVERYONE,
    "predict": frozenset({"requester", "operator", "admin"}),
    "regrow": OPERATE,
    "ledger": EVERYONE,
    "metrics": READ,
    "accesses": frozenset({"auditor", "admin"}),
    "approve": OPERATE,
    "deny": OPERATE,
    "cancel": frozenset({"requester", "operator", "admin"}),
    "undo": frozenset({"requester", "operator", "admin"}),
    "retry": OPERATE,
}


@dataclass(frozen=True)
class Caller:
    """Who calls: the key, its tenant and its role.

    Args:
        key: The name of the API key.
        tenant: Its tenant.
        role: Its role.
    """

    key: str
    tenant: str
    role: str

    @property
    def own(self) -> str | None:
        """The key whose requests it is limited to; None where it sees all of its tenant."""
        return self.key if self.role == "requester" else None

    def may(self, what: str) -> bool:
        """Whether the role may use a part of the interface."""
        return self.role in MAY[what]

    def require(self, what: str) -> None:
        """Refuse what the role may not do, whatever it is about."""
        if not self.may(what):
            raise ServiceError(
                "forbidden", f"a key with the role '{self.role}' may not do this", "use a key with another role", 403
            )


def unauthorized() -> ServiceError:
    """The answer to a call without a valid key."""
    return ServiceError(
        "unauthorized", "the call has no valid API key", "send the header 'Authorization: Bearer KEY'", 401
    )


class Access:
    """Finds the caller of a key, and limits how often it calls.

    Args:
        storage: The database.
        rate: Calls per second and key.
        burst: Calls at once.
    """

    def __init__(self, storage: Storage, rate: float, burst: int) -> None:
        self._storage, self._rate, self._burst = storage, rate, burst
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}
        self._known: dict[str, tuple[float, Caller]] = {}

    def caller(self, key: str | None) -> Caller:
        """The caller of a key; a key is looked up again every few seconds, so that a revoked one ends soon."""
        if not key:
            raise unauthorized()
        digest, now = api_key_digest(key), time.monotonic()
        known = self._known.get(digest)
        if known is not None and known[0] > now:
            return known[1]
        with self._storage.reading() as records:
            found = records.api_key(api_key_name(key))
        if found is None or not same(found.digest, digest):
            self._known.pop(digest, None)
            raise unauthorized()
        caller = Caller(found.id, found.tenant, found.role)
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[digest] = (now + 2.0, caller)
        return caller

    def named(self, name: str) -> Caller:
        """The caller of a key that was shown before: of a session of the console."""
        with self._storage.reading() as records:
            found = records.api_key(name)
        if found is None:
            raise unauthorized()
        return Caller(found.id, found.tenant, found.role)

    def spend(self, name: str) -> None:
        """Count one call; too many in too short a time are refused."""
        now = time.monotonic()
        with self._lock:
            left, last = self._buckets.get(name, (float(self._burst), now))
            left = min(self._burst, left + (now - last) * self._rate)
            if left < 1:
                raise ServiceError(
                    "too-many-calls", "this key calls too often", "wait and try again", 429, retry_after=1
                )
            if len(self._buckets) > 10_000:
                self._buckets.clear()
            self._buckets[name] = (left - 1, now)


def add_key(storage: Storage, tenant: str, role: str, now: float) -> str:
    """Make an API key.

    Args:
        storage: The database.
        tenant: Its tenant.
        role: Its role.
        now: The time.

    Returns:
        The key, which nobody can read again.
    """
    if role not in ROLES:
        raise ServiceError("wrong-role", f"there is no role {role!r}", f"choose from {', '.join(ROLES)}", 422)
    name, key, digest = new_api_key()
    with storage.writing() as records:
        records.add(t.ApiKey(id=name, tenant=tenant, role=role, digest=digest, created=now, revoked=None))
    return key
