"""`Service`: the facade. What can be asked of the service, and what may happen next; HTTP, console and command line call it."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from sqlalchemy.exc import IntegrityError

from gnndelete.datasets.tombstones import Tombstones, keyed
from gnndelete.graph.deletion import NOTHING
from gnndelete.service import ledger
from gnndelete.service import schema as t
from gnndelete.service.access import Access, Caller, add_key
from gnndelete.service.clock import Clock, iso, system_clock
from gnndelete.service.crypto import Sealed, canonical, digest, new_salt, salted
from gnndelete.service.elements import KINDS, Asked, raw_hashes
from gnndelete.service.errors import ServiceError, not_found
from gnndelete.service.folders import ModelFolder
from gnndelete.service.home import Home
from gnndelete.service.live import Live
from gnndelete.service.receipts import issue
from gnndelete.service.screening import predicted_effect
from gnndelete.service.states import ACTIONS, HELD, IN_FORCE, STATES, STEP_FROM, STEPS, due_status, remaining
from gnndelete.service.storage import Records, Storage

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MODES = ("serve", "dry-run", "hold")

#: The caller that acts where no key does: the worker, and the command line.
WORKER = "worker"


@dataclass(frozen=True)
class Order:
    """A request as it came in.

    Args:
        asked: What it names.
        subject: The caller's name of the request.
        mode: ``serve``, ``dry-run`` or ``hold``.
        due: When it must be done, in seconds since 1970; by default after the period in the settings.
        callbacks: Where changes of its state are posted.
        idempotency: The same text twice is the same request.
    """

    asked: Asked
    subject: str | None = None
    mode: str = "serve"
    due: float | None = None
    callbacks: tuple[str, ...] = field(default=())
    idempotency: str | None = None


class Service:
    """A service: its home, its database, and everything that can be asked of it.

    Args:
        home: The folder of the service.
        database: The URL of its database; by default the one in its home.
        clock: The time.
    """

    def __init__(self, home: Home, database: str | None = None, clock: Clock | None = None) -> None:
        self.home, self.clock, self.settings = home, clock or system_clock(), home.settings
        self.storage = Storage(database or home.database)
        self.keys = home.keys
        self.access = Access(self.storage, self.settings.rate, self.settings.burst)
        self.changed: Callable[[], None] = lambda: None  # wakes a worker in the same process
        self._live: dict[str, Live] = {}
        self._lock = threading.Lock()

    @classmethod
    def start(cls, home: Home, database: str | None = None, clock: Clock | None = None) -> Service:
        """Open a service; its tables are made, or brought to the newest form."""
        service = cls(home, database, clock)
        with home.locked():
            service.storage.migrate()
        return service

    def first_key(self) -> str | None:
        """An admin key where there is none yet; it is shown once."""
        with self.home.locked():
            with self.storage.reading() as records:
                if any(key.role == "admin" for key in records.api_keys()):
                    return None
            return add_key(self.storage, "default", "admin", self.clock.now())

    # Models

    def folder(self, tenant: str, name: str) -> ModelFolder:
        """The folder of a model."""
        return ModelFolder(self.home.model_folder(tenant, name), self.keys)

    def live(self, model: t.Model) -> Live:
        """The live version of a model."""
        with self._lock:
            if model.id not in self._live:
                self._live[model.id] = Live(self.folder(model.tenant, model.name))
            return self._live[model.id]

    def models(self, caller: Caller) -> list[dict[str, Any]]:
        """The models that a caller sees."""
        caller.require("models")
        with self.storage.reading() as records:
            return [{"name": model.name, "registered": iso(model.created)} for model in records.models(caller.tenant)]

    def model(self, caller: Caller, name: str) -> dict[str, Any]:
        """A model: versions, aliases, segments and due work."""
        caller.require("models")
        with self.storage.reading() as records:
            model = self._model(records, caller, name)
            folder = self.folder(model.tenant, model.name)
            aliases = folder.aliases
            versions = records.versions(model.id, 50)
            live = next((each for each in versions if each.number == aliases["live"]), None)
            counts = {
                state: count for (of, state), count in records.counts_by_state(caller.tenant).items() if of == name
            }
            due = records.next_due(model.id)
            regrows = [
                {
                    "id": each.id,
                    "state": each.state,
                    "asked": iso(each.asked),
                    "done": iso(each.done),
                    "code": each.code,
                }
                for each in records.regrows(model.id)[:10]
            ]
        return {
            "name": model.name,
            "registered": iso(model.created),
            "aliases": aliases,
            "segments": len(live.facts.get("chain", [])) if live is not None else 0,
            "generation": None if live is None else live.generation,
            "weights": None if live is None else folder.manifest("generations", live.generation)["weights"],
            "requests": counts,
            "next_due": iso(due),
            "compacted": iso(model.compacted),
            "last_regrown": iso(model.regrown),
            "regrows": regrows,
            "versions": [
                {
                    "number": each.number,
                    "kind": each.kind,
                    "generation": each.generation,
                    "requests": each.requests,
                    "digest": each.digest,
                    "at": iso(each.at),
                }
                for each in versions
            ],
        }

    def predict(self, caller: Caller, name: str, asked: Asked) -> dict[str, Any]:
        """Scores of the live version, from its rows."""
        caller.require("predict")
        with self.storage.reading() as records:
            model = self._model(records, caller, name)
        return {"model": name, **self.live(model).predict(asked)}

    def regrow(self, caller: Caller, name: str) -> dict[str, Any]:
        """Start the second clock now, for all requests that are suppressed."""
        caller.require("regrow")
        with self.storage.writing() as records:
            model = self._model(records, caller, name)
            records.lock(f"model {model.id}")
            begun = self.begin_regrow(records, model, caller.key, everything=True)
        if begun is None:
            raise ServiceError(
                "nothing-to-regrow", "no suppressed request of this model waits for new weights", "", 409
            )
        self.changed()
        return {"id": begun.id, "state": begun.state, "model": name}

    def begin_regrow(self, records: Records, model: t.Model, actor: str, everything: bool) -> t.Regrow | None:
        """Name the requests whose weights will be replaced; None where there are none, or a regrow is at work."""
        now = self.clock.now()
        if records.regrows(model.id, "waiting", "running", "trained"):
            raise ServiceError("regrow-running", "new weights are being made already", "wait for them", 409)
        chosen = [
            request
            for request in records.in_state(model.id, "suppressed")
            if request.wish is None
            and (everything or (request.undo_until or 0) <= now or request.due - now < self.settings.due_soon)
        ]
        if not chosen:
            return None
        regrow = t.Regrow(
            id=uuid4().hex, model_id=model.id, state="waiting", actor=actor, asked=now, attempts=0, not_before=0.0
        )
        records.add(regrow)
        for request in chosen:
            request.regrow = regrow.id
            self.step(records, request, "regrow-begun", actor, {"regrow": regrow.id})
        return regrow

    # Requests

    def receive(self, caller: Caller, name: str, order: Order) -> tuple[int, dict[str, Any]]:
        """Take in a request.

        Args:
            caller: Who asks.
            name: The model.
            order: What is asked.

        Returns:
            The status of the HTTP answer, and the answer.
        """
        caller.require("request")
        self._check_order(order)
        with self.storage.reading() as records:
            model = self._model(records, caller, name)
        key = self._idempotency(caller, order)
        same_body = digest(
            {"elements": order.asked.elements, "mode": order.mode, "due": order.due, "subject": order.subject}
        )
        same_body = keyed(self.keys.tombstones, same_body)
        if key is not None:
            with self.storage.reading() as records:
                known = records.by_idempotency(model.id, key)
                if known is not None:
                    return self._again(known, same_body)
        snapshot = self.live(model).snapshot()
        elements = snapshot.generation.elements
        undirected = elements.table.undirected
        raw = raw_hashes(order.asked, self.keys.tombstones, caller.tenant, undirected)
        if raw and order.mode != "dry-run" and order.asked.count:
            with self.storage.reading() as records:
                stood = records.standing_for(caller.tenant, raw, model.id)
        else:
            stood = {}
        if raw and len(stood) == len(raw):  # everything was asked for before; a regrown graph no longer has the names
            hashes, counts = raw, {}
        else:
            deletion = elements.deletion(order.asked)
            hashes = elements.hashes(deletion, self.keys.tombstones, caller.tenant)
            counts = dict(deletion.counts)
            if order.mode == "dry-run":
                effect = predicted_effect(self, model, snapshot, deletion)
                return 200, {"state": "dry-run", "counts": counts, "effect": effect.to_dict(), "model": name}
        try:
            with self.storage.writing() as records:
                return self._store(records, caller, model, order, key, same_body, hashes, counts)
        except IntegrityError:  # the same key came in at the same time
            with self.storage.reading() as records:
                known = records.by_idempotency(model.id, str(key))
            if known is None:
                raise
            return self._again(known, same_body)
        finally:
            self.changed()

    def _check_order(self, order: Order) -> None:
        if order.mode not in MODES:
            raise ServiceError("wrong-mode", "the mode is not known", f"choose from {', '.join(MODES)}", 422)
        if order.asked.elements.keys() - set(KINDS):
            raise ServiceError(
                "wrong-kind", "the request names kinds of elements that there are not", f"use {KINDS}", 422
            )
        if order.due is not None and order.due <= self.clock.now():
            raise ServiceError("due-passed", "the due date has passed", "give a later one", 422)
        for url in order.callbacks:
            check_callback(url, self.settings.webhook_hosts)

    def _idempotency(self, caller: Caller, order: Order) -> str | None:
        name = order.idempotency or order.subject
        return None if name is None else keyed(self.keys.tombstones, "idempotency", caller.tenant, caller.key, name)

    def _again(self, known: t.Request, same_body: str) -> tuple[int, dict[str, Any]]:
        if known.body_digest != same_body:
            raise ServiceError(
                "idempotency-conflict", "another request came in under this idempotency key", "use a new key", 409
            )
        return 202, self._receipt_of_order(known)

    def _receipt_of_order(self, request: t.Request) -> dict[str, Any]:
        return {
            "id": request.id,
            "state": request.state,
            "code": request.code,
            "suppress_by": iso(request.suppress_by),
            "due": iso(request.due),
            "duplicate_of": request.duplicate_of if request.duplicate_of else None,
        }

    def _store(
        self,
        records: Records,
        caller: Caller,
        model: t.Model,
        order: Order,
        key: str | None,
        same_body: str,
        hashes: list[str],
        counts: dict[str, int],
    ) -> tuple[int, dict[str, Any]]:
        now = self.clock.now()
        records.lock(f"model {model.id}")
        records.lock_shared("keys")
        if key is not None and (known := records.by_idempotency(model.id, key)) is not None:
            return self._again(known, same_body)
        payload = {"elements": order.asked.elements, "subject": order.subject, "callbacks": list(order.callbacks)}
        salt = new_salt()
        standing = records.standing_for(caller.tenant, hashes, model.id)
        original = next(iter(standing.values())) if len(standing) == len(hashes) else None
        state = "duplicate" if original is not None else "held" if order.mode == "hold" else "validated"
        request = t.Request(
            id=uuid4().hex,
            model_id=model.id,
            tenant=caller.tenant,
            origin=caller.key,
            idempotency=key,
            body_digest=same_body,
            state=state,
            code="asked" if state == "held" else None,
            counts=counts,
            effect={},
            commitment=salted(salt, canonical(payload["elements"])),
            callbacks=len(order.callbacks),
            received=now,
            suppress_by=now + self.settings.suppress_within,
            due=order.due if order.due is not None else now + self.settings.due,
            duplicate_of=original,
            attempts=0,
            not_before=0.0,
            approved=False,
        )
        records.add(request)
        self.step(records, request, "received", caller.key, {"mode": order.mode})
        if original is None:
            sealed = self.keys.safe.seal({**payload, "salt": salt}, request.id)
            records.add(t.Secret(request_id=request.id, wrapped=sealed.wrapped, sealed=sealed.content))
            records.add_elements(model.id, request.id, hashes)
            before = {"asked_before": len(standing)} if standing else {}
            self.step(records, request, "validated", caller.key, {"counts": counts, **before})
            if state == "held":
                self.step(records, request, "held", caller.key, {"code": "asked"})
        else:
            self.step(records, request, "duplicate", caller.key, {})
        self.announce(records, request, order.callbacks)
        return 202, self._receipt_of_order(request)

    def view(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """A request: its state, its steps with their evidence, and what remains to be done."""
        caller.require("read")
        with self.storage.reading() as records:
            request = self._request(records, caller, request_id)
            model = records.model_by_id(request.model_id)
            steps = records.steps(request.id)
            secret = records.secret(request.id)
        now = self.clock.now()
        left = remaining(request.state) if request.state != "failed" else remaining(_before_failure(request))
        found = {
            **self._receipt_of_order(request),
            "model": model.name,
            "means": STATES[request.state],
            "wish": request.wish,
            "held_because": HELD.get(request.code or "") if request.state == "held" else None,
            "failed_step": request.failed_step,
            "attempts": request.attempts,
            "due_status": due_status(request.state, request.due, now, self.settings.due_soon),
            "received": iso(request.received),
            "suppressed": iso(request.suppressed),
            "undo_until": iso(request.undo_until) if request.state == "suppressed" else None,
            "regrown": iso(request.regrown),
            "closed": iso(request.closed),
            "counts": request.counts,
            "effect": request.effect,
            "commitment": request.commitment,
            "version": request.in_version,
            "remaining": [{"code": step, "text": STEPS[step]} for step in left],
            "actions": self._possible(caller, request, now),
            "steps": [
                {"step": each.step, "at": iso(each.at), "by": each.actor, "evidence": each.evidence} for each in steps
            ],
        }
        if secret is not None and caller.key == request.origin:  # whoever asked can open the commitment later
            found["commitment_salt"] = self.keys.safe.open(Sealed(secret.wrapped, secret.sealed), request.id)["salt"]
        return found

    def effect(self, caller: Caller, request_id: str) -> dict[str, Any] | None:
        """What a request that waits would do; None where nothing can be said."""
        caller.require("read")
        with self.storage.reading() as records:
            request = self._request(records, caller, request_id)
            model, payload = records.model_by_id(request.model_id), self.payload(records, request_id)
        snapshot = self.live(model).snapshot()
        deletion = NOTHING if payload is None else snapshot.generation.elements.still_there(Asked(payload["elements"]))
        return predicted_effect(self, model, snapshot, deletion).to_dict() if len(deletion) else None

    def _possible(self, caller: Caller, request: t.Request, now: float) -> list[str]:
        """What the caller can ask for now."""
        found = [
            name for name, action in ACTIONS.items() if request.state in action.before and caller.role in action.roles
        ]
        if "undo" in found and (request.wish or request.regrow or now > (request.undo_until or 0)):
            found.remove("undo")
        return found

    def requests(
        self,
        caller: Caller,
        state: str | None = None,
        model: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[dict[str, Any]]:
        """The latest requests that a caller sees, in short."""
        caller.require("read")
        now = self.clock.now()
        with self.storage.reading() as records:
            names = {each.id: each.name for each in records.models(caller.tenant)}
            model_id = next((key for key, name in names.items() if name == model), "none") if model else None
            found = records.requests(caller.tenant, caller.own, state, model_id, min(max(limit, 1), 500), before)
        return [
            {
                **self._receipt_of_order(request),
                "model": names.get(request.model_id),
                "received": iso(request.received),
                "suppressed": iso(request.suppressed),
                "regrown": iso(request.regrown),
                "counts": request.counts,
                "due_status": due_status(request.state, request.due, now, self.settings.due_soon),
            }
            for request in found
        ]

    def held(self, caller: Caller) -> int:
        """How many requests wait for the caller's approval."""
        if not caller.may("approve"):
            return 0
        with self.storage.reading() as records:
            return records.held(caller.tenant)

    def stamp(self, caller: Caller) -> str:
        """A text that changes whenever something changes that the caller sees."""
        caller.require("read")
        with self.storage.reading() as records:
            step, versions = records.newest_step(caller.tenant, caller.own), records.newest_versions(caller.tenant)
        return digest([step, [list(each) for each in versions]])[:16]

    def asks_about(self, caller: Caller, name: str) -> dict[str, Any]:
        """How elements of a model are named, and what can be asked of it."""
        caller.require("models")
        with self.storage.reading() as records:
            model = self._model(records, caller, name)
        made = self.live(model).snapshot().generation.made
        answers = "edges" if made.task.pairwise else "nodes" if made.task.on_nodes else "graphs"
        return {"named": made.graph.ids is not None, "relations": list(made.graph.relations), "answers": answers}

    def act(self, caller: Caller, request_id: str, name: str) -> dict[str, Any]:
        """Approve, deny, cancel, undo or retry a request.

        Args:
            caller: Who asks.
            request_id: The request.
            name: The action.
        """
        caller.require(name)
        action = ACTIONS[name]
        with self.storage.writing() as records:
            request = self._request(records, caller, request_id, locked=True)
            if request.state not in action.before:
                raise ServiceError(
                    "wrong-state",
                    f"a request in the state '{request.state}' cannot be asked to {name}",
                    f"this is possible in the state {' or '.join(sorted(action.before))}",
                )
            if name == "undo":
                self._wish_undo(records, request, caller)
            elif name == "retry":
                self._retry(records, request, caller)
            else:
                self.move(records, request, str(action.after), caller.key, {"action": name})
                request.approved = request.approved or name == "approve"
                if name in ("deny", "cancel"):
                    records.forget_elements(request.id)
                    records.shred(request.id)
            answer = self._receipt_of_order(request)
        self.changed()
        return answer

    def _wish_undo(self, records: Records, request: t.Request, caller: Caller) -> None:
        now = self.clock.now()
        if request.wish is not None:
            raise ServiceError("undo-waiting", "the request is being undone already", "wait for it")
        if request.regrow is not None:
            raise ServiceError(
                "too-late", "new weights without the elements are being made", "ask for nothing; it is final"
            )
        if now > (request.undo_until or 0):
            raise ServiceError("too-late", f"the window for an undo ended at {iso(request.undo_until)}", "it is final")
        if records.duplicates_of(request.id):
            raise ServiceError(
                "others-asked",
                "others have asked to forget the same elements",
                "their requests stand, so nothing can be undone",
            )
        request.wish, request.not_before = "undo", 0.0
        self.step(records, request, "undo-asked", caller.key, {})

    def _retry(self, records: Records, request: t.Request, caller: Caller) -> None:
        step, state = request.failed_step, _before_failure(request)
        request.attempts, request.not_before, request.failed_step = 0, 0.0, None
        self.move(records, request, state, caller.key, {"action": "retry", "from_step": step})

    def receipt(self, caller: Caller, request_id: str) -> bytes:
        """The newest receipt of a request, as a file."""
        caller.require("receipt")
        with self.storage.reading() as records:
            request = self._request(records, caller, request_id)
            found = records.receipt(request.id)
            if found is None:
                raise ServiceError(
                    "no-receipt",
                    f"there is no receipt of a request in the state '{request.state}'",
                    "wait until it is suppressed",
                )
            return issue(
                self.keys.signer,
                json.loads(found.body),
                ledger.place(records, self.keys.signer, found.leaf, found.salt),
            )

    def report(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """The evidence about a request: what its newest receipt says, and what was predicted."""
        caller.require("report")
        with self.storage.reading() as records:
            request = self._request(records, caller, request_id)
            if request.state not in IN_FORCE:
                raise ServiceError(
                    "no-report",
                    f"nothing was measured about a request in the state '{request.state}'",
                    "wait until it is suppressed",
                )
            model = records.model_by_id(request.model_id)
            receipt = records.receipt(request.id)
        body = {} if receipt is None else json.loads(receipt.body)
        audit = body.get("audit") or {}
        return {
            "request": request.id,
            "state": request.state,
            "model": model.name,
            "version": request.in_version,
            "figures": audit.get("figures", {}),
            "level": body.get("level"),
            "weights": body.get("weights"),
            "notes": body.get("notes", []),
            "audit": audit or None,
            "effect": request.effect,
        }

    # The ledger, accesses and figures

    def checkpoint(self, caller: Caller, since: int | None = None) -> dict[str, Any]:
        """The newest checkpoint of the ledger."""
        caller.require("ledger")
        with self.storage.reading() as records:
            return ledger.checkpoint(records, self.keys.signer, self.clock.now(), since)

    def proof(self, caller: Caller, leaf: str | None, start: int | None, stop: int | None) -> dict[str, Any]:
        """That a leaf is in the ledger, or that an earlier ledger is the beginning of a later one."""
        caller.require("ledger")
        with self.storage.reading() as records:
            size = records.ledger_size()
            if leaf is not None:
                row = records.leaf(int(leaf)) if leaf.isdigit() and len(leaf) < 19 else records.leaf_by_hash(leaf)
                if row is None:
                    raise not_found()
                size = size if stop is None else stop
                return {
                    "leaf": row.number,
                    "hash": row.hash,
                    "size": size,
                    "proof": ledger.inclusion(records, row.number, size),
                }
            stop = size if stop is None else stop
            if start is None:
                raise ServiceError(
                    "malformed", "neither a leaf nor a size is named", "give ?leaf=… or ?from=…&to=…", 422
                )
            return {"from": start, "to": stop, "proof": ledger.consistency(records, start, stop)}

    def leaves(self, caller: Caller, limit: int = 50) -> list[dict[str, Any]]:
        """The last leaves of the ledger, the newest first, with the requests among them that the caller sees."""
        caller.require("ledger")
        with self.storage.reading() as records:
            found = records.newest_leaves(limit)
        return [
            {
                "leaf": leaf.number,
                "hash": leaf.hash,
                "request": request.id if request is not None and self._sees(caller, request) else None,
            }
            for leaf, request in found
        ]

    def accesses(self, caller: Caller, limit: int = 100) -> list[dict[str, Any]]:
        """The latest calls of the interface by keys of the caller's tenant."""
        caller.require("accesses")
        with self.storage.reading() as records:
            rows = records.accesses(caller.tenant, min(max(limit, 1), 1000))
        names = ("key", "action", "subject", "status")
        return [{"at": iso(row.at), **{name: getattr(row, name) for name in names}} for row in rows]

    def figures(self, caller: Caller) -> dict[str, Any]:
        """Requests by model and state, the age of the oldest, and what is due, of what the caller sees."""
        now, mine = self.clock.now(), (caller.tenant, caller.own)
        with self.storage.reading() as records:
            counts, waiting = records.counts_by_state(*mine), records.open_by_state(now, self.settings.due_soon, *mine)
        unfinished = [row for row in waiting if due_status(row.state, now, now) != "done"]
        overdue, soon = sum(row.overdue for row in unfinished), sum(row.due_soon for row in unfinished)
        on_track = sum(row.total for row in unfinished) - overdue - soon
        return {
            "requests": counts,
            "oldest_seconds": {row.state: now - row.oldest for row in waiting},
            "due_requests": {"on-track": on_track, "due-soon": soon, "overdue": overdue},
            "late_requests": sum(row.late for row in waiting),
        }

    def standing(self, caller: Caller) -> dict[str, Any]:
        """What metrics show, by the names in `metrics.STANDING`."""
        caller.require("metrics")
        now = self.clock.now()
        with self.storage.reading() as records:
            models = records.models(caller.tenant)
            newest = {model.name: records.versions(model.id, 1) for model in models}
            due = {model.name: records.next_due(model.id) for model in models}
            regrows = Counter(
                (model.name, regrow.state)
                for model in models
                for regrow in records.regrows(model.id, "waiting", "running", "trained", "failed")
            )
            outbox, size = records.waiting_messages(caller.tenant), records.ledger_size()
        return {
            **self.figures(caller),
            "next_due_seconds": {name: at - now for name, at in due.items() if at is not None},
            "segments": {name: len(found[0].facts.get("chain", [])) for name, found in newest.items() if found},
            "regrows": regrows,
            "outbox_messages": outbox,
            "ledger_leaves": size,
            "disk_free_bytes": shutil.disk_usage(self.home.path).free,
        }

    def is_ready(self) -> bool:
        """Whether the database answers."""
        with self.storage.reading() as records:
            records.ledger_size()
        return True

    # What the worker calls, too

    def payload(self, records: Records, request_id: str) -> dict[str, Any] | None:
        """What a request named; None where its key was destroyed."""
        secret = records.secret(request_id)
        return None if secret is None else self.keys.safe.open(Sealed(secret.wrapped, secret.sealed), request_id)

    def tombstones(self, tenant: str) -> Tombstones:
        """What was deleted from any model of a tenant, or is about to be."""
        states = IN_FORCE | {"validated", "failed"}
        with self.storage.reading() as records:
            return Tombstones(self.keys.tombstones, tenant, frozenset(records.tombstones(tenant, states)))

    def step(self, records: Records, request: t.Request, name: str, actor: str, evidence: dict[str, Any]) -> None:
        """Write down that something happened to a request."""
        records.session.add(
            t.Step(request_id=request.id, at=self.clock.now(), step=name, actor=actor, evidence=evidence)
        )

    def move(self, records: Records, request: t.Request, state: str, actor: str, evidence: dict[str, Any]) -> None:
        """Change the state of a request, with its evidence and its webhooks, in this transaction."""
        request.state, request.code = state, evidence.get("code")
        self.step(records, request, state, actor, evidence)
        if request.callbacks:
            payload = self.payload(records, request.id)
            self.announce(records, request, () if payload is None else payload["callbacks"])

    def announce(self, records: Records, request: t.Request, urls: Iterable[str]) -> None:
        """Put webhooks about the state of a request into the outbox."""
        now = self.clock.now()
        body = {"id": request.id, "state": request.state, "code": request.code, "at": iso(now)}
        for url in urls:
            records.session.add(
                t.Message(
                    request_id=request.id, url=url, body=body, created=now, next_attempt=now, attempts=0, delivered=None
                )
            )

    def add_leaves(self, records: Records, contents: Sequence[bytes]) -> list[int]:
        """Append to the ledger, in this transaction."""
        ledger.begin(records)
        return ledger.append(records, self.keys.signer, contents, self.clock.now())

    def _model(self, records: Records, caller: Caller, name: str) -> t.Model:
        model = records.model(caller.tenant, name)
        if model is None:
            raise not_found()
        return model

    def _request(self, records: Records, caller: Caller, request_id: str, locked: bool = False) -> t.Request:
        request = records.request_for_update(request_id) if locked else records.request(request_id)
        if request is None or not self._sees(caller, request):
            raise not_found()
        return request

    def _sees(self, caller: Caller, request: t.Request) -> bool:
        return request.tenant == caller.tenant and caller.own in (None, request.origin)


def _before_failure(request: t.Request) -> str:
    return STEP_FROM.get(request.failed_step or "suppress", "validated")


def check_name(name: str, what: str) -> str:
    """Refuse a name that cannot be a folder."""
    if not _NAME.fullmatch(name):
        raise ServiceError(
            "wrong-name",
            f"{what} {name[:80]!r} is not allowed",
            "use up to 64 letters, digits, dots, dashes and underscores",
            422,
        )
    return name


def check_callback(url: str, hosts: Sequence[str]) -> None:
    """Refuse an address that webhooks must not go to: inside the network, unless the settings name its host."""
    wrong = ServiceError(
        "wrong-callback",
        "a callback URL is not allowed",
        "give an https URL of a public host, or name its host in webhook_hosts of service.json",
        422,
    )
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise wrong from None
    if host in hosts and parts.scheme in ("http", "https"):
        return
    if parts.scheme != "https" or not host or parts.username or len(url) > 2000 or "." not in host:
        raise wrong
    try:
        public = ip_address(host).is_global
    except ValueError:  # a name; what it resolves to is checked when a webhook is sent
        public = not host.endswith((".local", ".internal", ".localhost"))
    if not public:
        raise wrong


def open_service(path: Path, database: str | None = None, clock: Clock | None = None) -> Service:
    """A service that exists already."""
    return Service(Home(path), database, clock)
