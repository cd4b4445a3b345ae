"""The worker: does what requests wait for. It can be killed between any two steps, and several can run.

One model has one writer at a time: a lease in the database with a number that grows (so that a writer that lost it cannot
publish), and a lock on the folder. A version is written aside, made live by one rename, and then recorded in one transaction with
its receipts and the ledger. Where a worker was killed in between, the next one finds a live version that is not recorded, and
records it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy.exc import DBAPIError

from gnndelete.errors import AdapterError, RunError
from gnndelete.graph.deletion import NOTHING, Deletion
from gnndelete.service import logs
from gnndelete.service import schema as t
from gnndelete.service.clock import iso
from gnndelete.service.crypto import canonical, digest, joined_digest, new_salt
from gnndelete.service.elements import Asked, together
from gnndelete.service.folders import ModelFolder
from gnndelete.service.lifecycle import WORKER, Service
from gnndelete.service.logs import Log, error_code
from gnndelete.service.metrics import Metrics
from gnndelete.service.receipts import chained, commitment
from gnndelete.service.screening import effect_of, of_one_origin
from gnndelete.service.solver import NOT_AUDITED, Solved, Solver, live_elements, new_generation
from gnndelete.service.storage import Records
from gnndelete.service.webhooks import deliver

#: Requests that are solved together name at most so many elements.
MOST_TOGETHER = 5000

#: Errors of the surroundings: nothing is wrong with the request, which waits until they are over.
OUTSIDE = (DBAPIError, OSError, RunError, AdapterError)

#: Seconds until a step is tried again, times two for each attempt.
BACKOFF = 2.0


class LostError(RunError):
    """Another worker writes to the model now."""


@dataclass
class Writer:
    """One model in the memory of its writer.

    Attributes:
        solver: The live generation and its segments.
        number: The version that is live.
        digest: The digest of its manifest.
        graph: The digest of the graph as it is served.
        chain: The versions whose segments make up what is served.
    """

    solver: Solver
    number: int
    digest: str
    graph: str
    chain: list[int]


class Worker:
    """Does what is to be done, for all models.

    Args:
        service: The service.
        metrics: Where figures go.
        log: Where lines go.
    """

    def __init__(
        self, service: Service, metrics: Metrics | None = None, log: Callable[..., None] | None = None
    ) -> None:
        self.service, self.metrics, self.log = service, metrics or Metrics(), log or Log()
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._writers: dict[str, Writer] = {}
        self._fences: dict[str, int] = {}
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._troubled: dict[str, float] = {}

    # Running

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    def stop(self) -> None:
        """End after the step at hand."""
        self._stop.set()
        self._wake.set()

    def run(self, idle: float = 0.2) -> None:
        """Work until `stop` is called.

        Args:
            idle: Seconds between two looks for work.
        """
        helpers = [
            threading.Thread(target=self._every, args=(self.service.settings.lease / 3, self._renew), daemon=True),
            threading.Thread(target=self._every, args=(idle, self.regrow_once), daemon=True),
            threading.Thread(target=self._every, args=(1.0, self.send_once), daemon=True),
        ]
        for helper in helpers:
            helper.start()
        while not self._stop.is_set():
            self._wake.clear()
            if not self._guarded("look", self.models_once):
                self._wake.wait(idle)
        self._guarded("free", self.free)
        for helper in helpers:
            helper.join(timeout=5)

    def _every(self, seconds: float, act: Callable[[], Any]) -> None:
        while not self._stop.wait(seconds):
            while self._guarded(act.__name__, act) and not self._stop.is_set():
                pass

    def _guarded(self, what: str, act: Callable[[], Any]) -> bool:
        """Do something that must not end the worker, whatever happens."""
        try:
            return bool(act())
        except Exception as error:
            self.log("worker-error", what=what, **logs.error(error))
            self._stop.wait(1.0)
            return False

    def _renew(self) -> bool:
        with self.service.storage.writing() as records:
            records.renew(self.owner, self.service.clock.now() + self.service.settings.lease)
        return False

    def free(self) -> None:
        """Give all models back."""
        with self.service.storage.writing() as records:
            for model_id in self._writers:
                records.free_model(model_id, self.owner)
        self._writers.clear()

    def once(self) -> bool:
        """Do everything that is to be done now, in this thread: for tests and simulations."""
        worked = False
        while self.models_once() | self.regrow_once():
            worked = True
        self.send_once()
        return worked

    # One look at all models

    def models_once(self) -> bool:
        """Do the next step of every model; whether there was any."""
        now = self.service.clock.now()
        with self.service.storage.reading() as records:
            models, ready = records.models(), records.work(now)
            due = {
                model.id
                for model in models
                if records.regrows(model.id, "trained") or self._is_scheduled(records, model, now)
            }
        worked = False
        for model in models:
            if model.id in ready | due and self._troubled.get(model.id, 0.0) <= now:
                worked |= self._model_once(model)
        return worked

    def _is_scheduled(self, records: Records, model: t.Model, now: float) -> bool:
        settings = self.service.settings
        newest = records.versions(model.id, 1)
        segments = len(newest[0].facts.get("chain", [])) if newest else 0
        if segments > 1 and now - model.compacted >= settings.compact_every:
            return True
        return self._wants_regrow(records, model, now)

    def _wants_regrow(self, records: Records, model: t.Model, now: float) -> bool:
        """Whether requests wait for new weights long enough, or are due soon."""
        settings = self.service.settings
        due = records.next_due(model.id)
        if due is None or records.regrows(model.id, "waiting", "running", "trained"):
            return False
        failed = records.regrows(model.id, "failed")
        if failed and (failed[0].done or 0) + settings.regrow_every / 7 > now:
            return False
        soon = due - now < settings.due_soon
        by_schedule = now - model.regrown >= settings.regrow_every
        return soon or (by_schedule and records.is_ripe(model.id, now))

    def _model_once(self, model: t.Model) -> bool:
        """Do the next steps of one model, where this worker may write to it."""
        service, now = self.service, self.service.clock.now()
        with service.storage.writing() as records:
            fence = records.take_model(model.id, self.owner, now, service.settings.lease, is_dead)
        if fence is None:
            self._writers.pop(model.id, None)
            return False
        self._fences[model.id] = fence
        folder = service.folder(model.tenant, model.name)
        try:
            with folder.writing():
                writer = self._open(model, folder)
                steps = (
                    self._undo,
                    self._adopt_regrown,
                    self._suppress,
                    self._destroy,
                    self._close,
                    self._compact,
                    self._schedule,
                )
                return any([step(model, folder, writer) for step in steps if self._writers.get(model.id) is writer])
        except OUTSIDE as error:
            self._writers.pop(model.id, None)  # what is in memory may be ahead of what is recorded
            self._troubled[model.id] = service.clock.now() + BACKOFF
            self.metrics.failures.labels("model", error_code(error)).inc()
            self.log("model-troubled", model=model.name, **logs.error(error))
            return False

    def _open(self, model: t.Model, folder: ModelFolder) -> Writer:
        """The model in memory, as it is live; what a killed writer left undone is finished first."""
        live = folder.aliases["live"]
        known = self._writers.get(model.id)
        if known is not None and known.number == live:
            return known
        assert live is not None
        folder.tidy()
        with self.service.storage.reading() as records:
            newest = records.versions(model.id, 1)
        recorded = newest[0].number if newest else -1
        if live < recorded:  # the folder is older than the database: it was restored
            if recorded not in folder.numbers("versions"):
                raise AdapterError(
                    f"version {recorded} of a model is gone", "restore the home of the service from a backup"
                )
            folder.switch(recorded, live)
            live = recorded
        manifest = folder.manifest("versions", live)
        if live > recorded:
            self._record(model, folder, manifest)
            self.log("version-recovered", model=model.name, version=live)
        for number in folder.numbers("versions"):
            if number > live:
                folder.remove_version(number)
        with self.service.storage.writing() as records:  # claims of a writer that was killed
            for request in records.in_state(model.id, "validated"):
                if request.wish == "suppress":
                    request.wish = None
        solver = Solver(folder, manifest["generation"])
        for number in manifest["chain"]:
            part = folder.manifest("versions", number)
            solver.restore(self._deletion(solver, part["solved"]), folder.read_operators(number))
        writer = Writer(solver, live, digest(manifest), manifest["graph"]["after"], list(manifest["chain"]))
        self._writers[model.id] = writer
        return writer

    def _deletion(self, solver: Solver, ids: Sequence[str]) -> Deletion:
        """What some requests name, as far as the graph of the generation still has it."""
        with self.service.storage.reading() as records:
            payloads = [self.service.payload(records, each) for each in ids]
        found = [solver.elements.still_there(Asked(each["elements"])) for each in payloads if each is not None]
        return together(found) if found else NOTHING

    # Publishing

    def _publish(
        self,
        model: t.Model,
        folder: ModelFolder,
        kind: str,
        solved: Solved,
        chain: list[int],
        requests: Sequence[str],
        in_force: Sequence[str],
        generation: int,
        graph: dict[str, str],
        solver: Solver,
        **more: Any,
    ) -> dict[str, Any]:
        """Make a version live, and record it. ``requests`` are those that it is about, ``in_force`` all that it covers."""
        before = folder.aliases["live"]
        number = max(folder.numbers("versions"), default=0) + 1
        with self.service.storage.reading() as records:
            newest = records.versions(model.id, 1)
        number = max(number, newest[0].number + 1 if newest else 0)
        manifest = folder.add_version(
            number,
            solved.operators,
            solved.changes,
            {
                "kind": kind,
                "generation": generation,
                "base": solver.manifest["base"],
                "chain": [*chain, number],
                "previous": digest(folder.manifest("versions", before)) if before is not None else None,
                "requests": list(requests),
                "solved": list(in_force),
                "graph": graph,
                "facts": solved.facts,
                "at": self.service.clock.now(),
                **more,
            },
        )
        with self.service.storage.writing() as records:
            self._require_lease(records, model)
        folder.switch(number, before if kind != "regrow" else None)
        self._record(model, folder, manifest)
        self._writers[model.id] = Writer(solver, number, digest(manifest), graph["after"], [*chain, number])
        return manifest

    def _require_lease(self, records: Records, model: t.Model) -> None:
        if not records.holds_model(model.id, self.owner, self._fences[model.id]):
            raise LostError("another worker writes to this model now")

    def _record(self, model: t.Model, folder: ModelFolder, manifest: dict[str, Any]) -> None:
        """Everything that follows from a live version, in one transaction: states, receipts, ledger, webhooks."""
        number, kind, facts = manifest["number"], manifest["kind"], manifest["facts"]
        with self.service.storage.writing() as records:
            self._require_lease(records, model)
            if records.version(model.id, number) is not None:
                return
            row = {
                name: facts.get(name)
                for name in ("level", "weights", "notes", "figures", "counts", "lam", "method", "seconds")
            }
            records.add(
                t.Version(
                    model_id=model.id,
                    number=number,
                    generation=manifest["generation"],
                    kind=kind,
                    digest=digest(manifest),
                    requests=len(manifest["requests"]),
                    at=manifest["at"],
                    facts={**row, "chain": manifest["chain"], "adapter": manifest["adapter"]},
                )
            )
            acts = {
                "segment": self._record_suppressed,
                "undo": self._record_undone,
                "regrow": self._record_regrown,
                "compact": self._record_compacted,
            }
            bodies = acts[kind](records, model, manifest)
            self._add_receipts(records, manifest, bodies)
        for _, body in bodies:
            self.metrics.verdicts.labels(body["audit"]["verdict"]).inc()

    def _add_receipts(
        self, records: Records, manifest: dict[str, Any], bodies: list[tuple[str, dict[str, Any]]]
    ) -> None:
        """Receipts, their leaves and that of the version."""
        salts = [new_salt() for _ in bodies]
        contents = [commitment(body, salt) for (_, body), salt in zip(bodies, salts, strict=True)]
        numbers = self.service.add_leaves(records, [bytes.fromhex(digest(manifest)), *contents])[1:]
        rows = [
            t.Receipt(leaf=leaf, request_id=request, salt=salt, body=canonical(body).decode())
            for leaf, salt, (request, body) in zip(numbers, salts, bodies, strict=True)
        ]
        records.add(*rows)

    def _body(
        self, model: t.Model, request: t.Request, manifest: dict[str, Any], facts: dict[str, Any], **changes: Any
    ) -> dict[str, Any]:
        """The receipt of a request without its place in the ledger."""
        figures = facts.get("figures") or {}
        return {
            "version": 1,
            "id": request.id,
            "request": request.commitment,
            "model": {"name": model.name, "version": str(manifest["number"])},
            "base": manifest["base"],
            "graph": manifest["graph"],
            "method": {
                "name": facts["method"],
                "settings": facts["settings"],
                "requests": max(len(manifest["solved"]), 1),
            },
            "level": facts["level"],
            "weights": facts["weights"],
            "adapter": manifest["adapter"],
            "notes": facts["notes"],
            "audit": {
                "verdict": facts.get("verdict", NOT_AUDITED),
                "figures": figures,
                "elements": sum(request.counts.values()),
            },
            "software": facts["software"],
            "times": {
                "received": iso(request.received),
                "suppressed": iso(request.suppressed),
                "regrown": iso(request.regrown),
            },
            **changes,
        }

    def _record_suppressed(
        self, records: Records, model: t.Model, manifest: dict[str, Any]
    ) -> list[tuple[str, dict[str, Any]]]:
        now, facts, found = self.service.clock.now(), manifest["facts"], []
        for request in records.some_requests(manifest["requests"]):
            if request.state != "validated":
                continue
            request.suppressed, request.undo_until = now, now + self.service.settings.undo_window
            request.generation, request.in_version = manifest["generation"], manifest["number"]
            request.wish, request.attempts = None, 0
            evidence = {
                "version": manifest["number"],
                "graph": manifest["graph"],
                "adapter": manifest["adapter"],
                "level": facts["level"],
                "figures": facts["figures"],
                "together": len(manifest["requests"]),
            }
            self.service.move(records, request, "suppressed", WORKER, evidence)
            found.append((request.id, self._body(model, request, manifest, facts)))
        return found

    def _record_undone(
        self, records: Records, model: t.Model, manifest: dict[str, Any]
    ) -> list[tuple[str, dict[str, Any]]]:
        for request in records.some_requests(manifest["requests"]):
            if request.state != "suppressed":
                continue
            request.wish, request.in_version = None, None
            evidence = {"action": "undo", "version": manifest["number"], "graph": manifest["graph"]}
            self.service.move(records, request, "cancelled", WORKER, evidence)
            records.forget_elements(request.id)
            records.shred(request.id)
        return self._carried_over(records, model, manifest)

    def _record_regrown(
        self, records: Records, model: t.Model, manifest: dict[str, Any]
    ) -> list[tuple[str, dict[str, Any]]]:
        now, found = self.service.clock.now(), []
        for request in records.some_requests(manifest["requests"]):
            if request.state != "suppressed":
                continue
            request.regrown, request.in_version, request.generation = now, manifest["number"], manifest["generation"]
            evidence = {
                "version": manifest["number"],
                "base": {"before": manifest["base_before"], "after": manifest["base"]},
                "graph": manifest["regrown"]["graph"],
                "method": manifest["regrown"]["facts"]["method"],
                "level": manifest["regrown"]["facts"]["level"],
            }
            self.service.move(records, request, "regrown", WORKER, evidence)
            facts = manifest["regrown"]["facts"]
            changes = {"adapter": None, "graph": manifest["regrown"]["graph"]}
            found.append((request.id, self._body(model, request, manifest, facts, **changes)))
        regrow = records.regrow(manifest["regrow"])
        if regrow is not None:
            regrow.state, regrow.done = "done", now
        records.model_by_id(model.id).regrown = now
        return found + self._carried_over(records, model, manifest)

    def _record_compacted(
        self, records: Records, model: t.Model, manifest: dict[str, Any]
    ) -> list[tuple[str, dict[str, Any]]]:
        records.model_by_id(model.id).compacted = self.service.clock.now()
        return self._carried_over(records, model, manifest)

    def _carried_over(
        self, records: Records, model: t.Model, manifest: dict[str, Any]
    ) -> list[tuple[str, dict[str, Any]]]:
        """Requests that were in force before and were solved again: another adapter answers for them now."""
        found = []
        for request in records.some_requests(manifest["solved"]):
            if request.state == "suppressed":
                request.in_version, request.generation = manifest["number"], manifest["generation"]
                evidence = {"by": manifest["kind"], "version": manifest["number"], "base": manifest["base"]}
                self.service.step(records, request, "carried-over", WORKER, evidence)
                found.append((request.id, self._body(model, request, manifest, manifest["facts"])))
        return found

    # The steps of one model

    def _suppress(self, model: t.Model, folder: ModelFolder, writer: Writer) -> bool:
        """Screen the waiting requests, and put the others in force together."""
        service, now = self.service, self.service.clock.now()
        with service.storage.reading() as records:
            waiting = list(records.waiting(model.id, now, service.settings.together))
            payloads = {each.id: service.payload(records, each.id) for each in waiting}
        if not waiting:
            return False
        deletions: dict[str, Deletion] = {}
        for request in waiting:
            payload = payloads[request.id]
            deletions[request.id] = (
                NOTHING if payload is None else writer.solver.elements.still_there(Asked(payload["elements"]))
            )
        chosen = self._claim(model, writer, waiting, deletions)
        while chosen:
            part: list[str] = []
            count = 0
            while chosen and (not part or count + len(deletions[chosen[0]]) <= MOST_TOGETHER):
                count += len(deletions[chosen[0]])
                part.append(chosen.pop(0))
            self._suppress_together(model, folder, part, deletions)
        return True

    def _claim(
        self, model: t.Model, writer: Writer, waiting: list[t.Request], deletions: dict[str, Deletion]
    ) -> list[str]:
        """Hold what must be looked at; of the others nobody can cancel one until it is in force."""
        service, chosen = self.service, []
        solver, settings = writer.solver, self.service.settings
        with service.storage.reading() as records:
            many = {
                origin: of_one_origin(
                    records, model, origin, service.clock.now(), settings.many_share, settings.many_least
                )
                for origin in {each.origin for each in waiting}
            }
        effects: dict[str, Any] = {}
        for request in waiting:
            if request.approved or not len(deletions[request.id]):
                continue
            try:
                with self.metrics.timed("screen"):
                    effects[request.id] = effect_of(
                        solver.unlearner.session,
                        solver.made.task,
                        deletions[request.id],
                        solver.gone,
                        solver.manifest.get("damage", {}),
                        settings.damage_factor,
                    )
            except Exception as error:  # the model may raise on its block; solving will say so
                self.log("screen-failed", request=request.id, **logs.error(error))
        with service.storage.writing() as records:
            self._require_lease(records, model)
            for request in records.some_requests([each.id for each in waiting]):
                if request.state != "validated":  # cancelled or denied meanwhile
                    continue
                effect = effects.get(request.id)
                codes = [] if effect is None else list(effect.codes)
                if many[request.origin] and not request.approved:
                    codes.append("many-of-one-origin")
                if effect is not None:
                    request.effect = effect.to_dict()
                if codes:
                    service.move(records, request, "held", WORKER, {"code": codes[0], "codes": codes})
                else:
                    request.wish = "suppress"
                    chosen.append(request.id)
        return chosen

    def _suppress_together(
        self, model: t.Model, folder: ModelFolder, ids: list[str], deletions: dict[str, Deletion]
    ) -> None:
        """Solve some requests as one; where that fails, one by one, so that only those that cannot be solved fail."""
        writer = self._writers[model.id]
        try:
            with self.metrics.timed("suppress"):
                named = [deletions[each] for each in ids if len(deletions[each])]
                solved = writer.solver.suppress(together(named) if named else NOTHING)
        except OUTSIDE:
            raise
        except Exception as error:
            if len(ids) > 1:
                for each in ids:
                    self._suppress_together(model, folder, [each], deletions)
            else:
                self._failed(model, ids[0], "suppress", error)
            return
        with self.service.storage.reading() as records:
            commitments = [each.commitment for each in records.some_requests(ids)]
        graph = {"before": writer.graph, "after": chained(writer.graph, joined_digest(commitments))}
        with self.metrics.timed("publish"):
            self._publish(
                model, folder, "segment", solved, writer.chain, ids, ids, writer.solver.generation, graph, writer.solver
            )
        self.log("suppressed", model=model.name, requests=len(ids), version=self._writers[model.id].number)

    def _failed(self, model: t.Model, request_id: str, step: str, error: Exception) -> None:
        """A step of a request failed: try it later, or give it up until somebody asks to retry."""
        code, settings = error_code(error), self.service.settings
        self.metrics.failures.labels(step, code).inc()
        self.log("step-failed", model=model.name, request=request_id, step=step, **logs.error(error))
        with self.service.storage.writing() as records:
            request = records.request_for_update(request_id)
            if request is None:
                return
            request.attempts += 1
            request.wish = None if request.wish == "suppress" else request.wish
            request.not_before = self.service.clock.now() + BACKOFF * 2**request.attempts
            if request.attempts >= settings.attempts:
                request.failed_step, request.wish = step, None
                self.service.move(
                    records, request, "failed", WORKER, {"code": code, "step": step, "attempts": request.attempts}
                )
            else:
                self.service.step(
                    records, request, f"{step}-failed", WORKER, {"code": code, "attempt": request.attempts}
                )

    def _standing(self, records: Records, model: t.Model) -> list[t.Request]:
        return list(records.in_state(model.id, "suppressed"))

    def _alone(
        self,
        model: t.Model,
        folder: ModelFolder,
        kind: str,
        about: list[str],
        standing: list[t.Request],
        generation: int,
        **more: Any,
    ) -> None:
        """Publish a version in which some requests are solved as one on a generation, in place of all segments."""
        solver = Solver(folder, generation)
        union = self._deletion(solver, [each.id for each in standing])
        solved = solver.alone(union if len(union) else None)
        before = solver.manifest["graph"]
        after = chained(before, joined_digest(each.commitment for each in standing)) if standing else before
        ids = [each.id for each in standing]
        graph = {"before": before, "after": after}
        self._publish(model, folder, kind, solved, [], about, ids, generation, graph, solver, **more)

    def _undo(self, model: t.Model, folder: ModelFolder, writer: Writer) -> bool:
        """Bring back what requests named that are undone."""
        with self.service.storage.reading() as records:
            undone = [
                each
                for each in records.wishing(model.id, "undo", self.service.clock.now())
                if each.state == "suppressed"
            ]
            if not undone:
                return False
            gone = {request.id for request in undone}
            left = [each for each in self._standing(records, model) if each.id not in gone]
        try:
            with self.metrics.timed("undo"):
                self._alone(model, folder, "undo", [each.id for each in undone], left, writer.solver.generation)
        except OUTSIDE:
            raise
        except Exception as error:
            self._writers.pop(model.id, None)
            for each in undone:
                self._failed(model, each.id, "undo", error)
        return True

    def _compact(self, model: t.Model, folder: ModelFolder, writer: Writer) -> bool:
        """Solve all segments again as one, by schedule."""
        if len(writer.chain) < 2:
            return False
        with self.service.storage.reading() as records:
            since = records.model_by_id(model.id).compacted
            if self.service.clock.now() - since < self.service.settings.compact_every:
                return False
            standing = self._standing(records, model)
        with self.metrics.timed("compact"):
            self._alone(model, folder, "compact", [], standing, writer.solver.generation)
        self.log("compacted", model=model.name, requests=len(standing))
        return True

    def _schedule(self, model: t.Model, folder: ModelFolder, writer: Writer) -> bool:
        """Begin the second clock, by schedule or by a due date."""
        with self.service.storage.reading() as records:
            wanted = self._wants_regrow(records, records.model_by_id(model.id), self.service.clock.now())
        if not wanted:
            return False
        with self.service.storage.writing() as records:
            records.lock(f"model {model.id}")
            return (
                self.service.begin_regrow(records, records.model_by_id(model.id), WORKER, everything=False) is not None
            )

    # The second clock

    def regrow_once(self) -> bool:
        """Make new weights for the oldest second clock that nobody works on; suppression goes on meanwhile."""
        service = self.service
        with service.storage.reading() as records:
            models = records.models()
            if not any(records.regrows(model.id, "waiting", "running") for model in models):
                return False
        with service.storage.writing() as records:
            records.free_regrows(is_dead)
            regrow = records.take_regrow(self.owner, service.clock.now(), service.settings.lease)
            if regrow is None:
                return False
            model = records.model_by_id(regrow.model_id)
            requests = [each.id for each in records.of_regrow(regrow.id)]
        folder = service.folder(model.tenant, model.name)
        try:
            with self.metrics.timed("regrow"):
                number = self._grow(folder, requests)
        except Exception as error:
            self._regrow_failed(regrow.id, model, error)
            return True
        with service.storage.writing() as records:
            current = records.regrow(regrow.id)
            if current is not None and current.lease_owner == self.owner and current.state == "running":
                current.state, current.generation = "trained", number
        self.wake()
        return True

    def _grow(self, folder: ModelFolder, requests: list[str]) -> int:
        live = folder.aliases["live"]
        assert live is not None
        generation = folder.manifest("versions", live)["generation"]
        for number in folder.numbers("generations"):
            if number > generation:  # of a worker that was killed
                folder.destroy_generation(number, lambda version: version <= live)
        elements = live_elements(folder.open_generation(generation))
        with self.service.storage.reading() as records:
            payloads = [self.service.payload(records, each) for each in requests]
        named = [elements.still_there(Asked(each["elements"])) for each in payloads if each is not None]
        audited = self.service.settings.audit
        made, said = new_generation(folder, generation, together(named), seed=generation, audited=audited)
        made.facts["said"], made.facts["replaces"] = said, generation
        return int(folder.add_generation(made)["number"])

    def _regrow_failed(self, regrow_id: str, model: t.Model, error: Exception) -> None:
        code, service = error_code(error), self.service
        self.metrics.failures.labels("regrow", code).inc()
        self.log("step-failed", model=model.name, step="regrow", **logs.error(error))
        with service.storage.writing() as records:
            regrow = records.regrow(regrow_id)
            if regrow is None:
                return
            regrow.attempts, regrow.code = regrow.attempts + 1, code
            given_up = regrow.attempts >= service.settings.attempts
            regrow.state = "failed" if given_up else "waiting"
            regrow.not_before, regrow.done = service.clock.now() + BACKOFF * 2**regrow.attempts, service.clock.now()
            for request in records.of_regrow(regrow_id):
                service.step(records, request, "regrow-failed", WORKER, {"code": code, "attempt": regrow.attempts})
                request.regrow = None if given_up else request.regrow

    def _adopt_regrown(self, model: t.Model, folder: ModelFolder, writer: Writer) -> bool:
        """Serve new weights, with the requests that came in since on top of them."""
        with self.service.storage.reading() as records:
            ready = records.regrows(model.id, "trained")
            if not ready:
                return False
            regrow = ready[0]
            included = [each.id for each in records.of_regrow(regrow.id)]
            others = [each for each in self._standing(records, model) if each.id not in set(included)]
        number = int(regrow.generation or 0)
        manifest = folder.manifest("generations", number)
        before = folder.manifest("generations", manifest["replaces"])
        regrown = {"facts": manifest["said"], "graph": {"before": before["graph"], "after": manifest["graph"]}}
        with self.metrics.timed("adopt-regrown"):
            self._alone(
                model,
                folder,
                "regrow",
                included,
                others,
                number,
                regrow=regrow.id,
                regrown=regrown,
                base_before=before["base"],
            )
        self.log("regrown", model=model.name, requests=len(included), generation=number)
        return True

    def _destroy(self, model: t.Model, folder: ModelFolder, writer: Writer) -> bool:
        """Destroy the weights, graphs and adapters of generations that are not served any more."""
        with self.service.storage.reading() as records:
            waiting = [each.id for each in records.in_state(model.id, "regrown")]
            busy = {each.generation for each in records.regrows(model.id, "running", "trained")}
        if not waiting:
            return False
        live = writer.solver.generation
        kept = set(writer.chain) | {writer.number}
        destroyed = [number for number in folder.numbers("generations") if number < live and number not in busy]
        for number in destroyed:
            folder.destroy_generation(number, lambda version: version in kept)
        with self.service.storage.writing() as records:
            self._require_lease(records, model)
            for request in records.some_requests(waiting):
                if request.state == "regrown":
                    self.service.move(records, request, "destroyed", WORKER, {"generations": destroyed})
        return True

    def _close(self, model: t.Model, folder: ModelFolder, writer: Writer) -> bool:
        """Destroy the keys to the ids of requests whose old weights are gone."""
        now, done = self.service.clock.now(), 0
        with self.service.storage.writing() as records:
            for request in records.in_state(model.id, "destroyed"):
                if now >= (request.regrown or now) + self.service.settings.close_after:
                    self.service.move(records, request, "closed", WORKER, {})
                    records.shred(request.id)
                    request.closed, request.idempotency = now, None
                    done += 1
        if done:
            self.service.storage.checkpoint()
        return bool(done)

    # Webhooks

    def send_once(self) -> bool:
        """Deliver webhooks that are due."""
        return deliver(self.service, self.metrics)


def is_dead(owner: str) -> bool:
    """Whether a worker is known to be dead: it ran on this machine, and its process is gone.

    >>> is_dead(f"{socket.gethostname()}:{os.getpid()}:0"), is_dead("elsewhere:1:0"), is_dead("")
    (False, False, False)
    """
    host, _, rest = owner.partition(":")
    number = rest.partition(":")[0]
    if host != socket.gethostname() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
