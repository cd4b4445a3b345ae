"""The database: connections, transactions, and every query of the service in one place.

SQLite and PostgreSQL run the same statements. What differs is how a writer begins: on SQLite by ``BEGIN IMMEDIATE``, on
PostgreSQL by locks on rows (``FOR UPDATE SKIP LOCKED``) and advisory locks.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import case, create_engine, delete, event, func, or_, select, text, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from gnndelete.errors import SettingError
from gnndelete.service import schema as t
from gnndelete.service.states import FINAL, STANDING

#: The tenant of whoever runs the service.
FIRST_TENANT = "default"

#: Rows that one statement handles.
CHUNK = 500

#: How long a statement waits for another writer on SQLite, in milliseconds.
_BUSY = 60_000


class Storage:
    """A database.

    Args:
        url: Its URL: ``sqlite:///file``, or ``postgresql://…``.
    """

    def __init__(self, url: str) -> None:
        self.url = url.replace("postgresql://", "postgresql+psycopg://", 1) if url.startswith("postgresql://") else url
        if not self.url.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise SettingError("the database must be sqlite:///FILE or postgresql://…", "correct --database")
        self.is_sqlite = self.url.startswith("sqlite")
        options: dict[str, Any] = {"pool_pre_ping": True}
        if not self.is_sqlite:
            options |= {"pool_size": 8, "max_overflow": 8, "connect_args": {"connect_timeout": 5}}
        self.engine: Engine = create_engine(self.url, **options)
        self._writers = threading.Lock()  # on SQLite writers of one process take turns, in the order in which they came
        if self.is_sqlite:
            event.listen(self.engine, "connect", _configure_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)

    def migrate(self) -> None:
        """Bring the tables to the newest form."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self._turn(), self.engine.execution_options(gnndelete_writes=True).begin() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _lock_key("migrate")})
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    @contextmanager
    def reading(self) -> Iterator[Records]:
        """Read from one state of the database."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield Records(session, self.is_sqlite)

    @contextmanager
    def snapshot(self) -> Iterator[Records]:
        """Read much from one state of the database, whatever others write meanwhile."""
        engine = self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="REPEATABLE READ")
        with Session(engine) as session:
            yield Records(session, self.is_sqlite)

    @contextmanager
    def writing(self) -> Iterator[Records]:
        """A transaction: everything in the block happens, or nothing."""
        with self._turn():
            engine = self.engine.execution_options(gnndelete_writes=True)
            with Session(engine, expire_on_commit=False) as session, session.begin():
                yield Records(session, self.is_sqlite)

    def _turn(self) -> Any:
        return self._writers if self.is_sqlite else nullcontext()

    def checkpoint(self) -> None:
        """Let no bytes of deleted rows stay in the journal of SQLite or as dead rows of PostgreSQL."""
        if self.is_sqlite:
            with self.engine.connect() as connection:
                connection.exec_driver_sql("COMMIT")
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.exec_driver_sql("BEGIN")
        else:
            with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"VACUUM {t.Secret.__tablename__}")

    def count(self, table: type[t.Base]) -> int:
        """The number of rows of a table."""
        with self.reading() as records:
            return records.count(table)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _configure_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        f"busy_timeout={_BUSY}",
        "foreign_keys=ON",
        "secure_delete=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    writes = connection.get_execution_options().get("gnndelete_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _lock_key(name: str) -> int:
    return zlib.crc32(name.encode())


class Records:
    """All queries, within one transaction.

    Args:
        session: The session of the transaction.
        is_sqlite: Whether the database has one writer at a time anyway.
    """

    def __init__(self, session: Session, is_sqlite: bool) -> None:
        self.session, self._is_sqlite = session, is_sqlite

    def lock(self, name: str) -> None:
        """Wait until no other transaction holds this lock; it is free again at the end of the transaction."""
        if not self._is_sqlite:
            self.session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _lock_key(name)})

    def lock_shared(self, name: str) -> None:
        """Keep others from holding this lock alone until the end of the transaction."""
        if not self._is_sqlite:
            self.session.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _lock_key(name)})

    def add(self, *rows: t.Base) -> None:
        """Add rows."""
        self.session.add_all(rows)
        self.session.flush()

    # API keys and accesses

    def api_key(self, name: str) -> t.ApiKey | None:
        """An API key that was not revoked."""
        found = self.session.get(t.ApiKey, name)
        return found if found is not None and found.revoked is None else None

    def api_keys(self) -> Sequence[t.ApiKey]:
        """All API keys."""
        return self.session.scalars(select(t.ApiKey).order_by(t.ApiKey.created)).all()

    def accesses(self, tenant: str, limit: int) -> Sequence[t.Access]:
        """The latest accesses by keys of a tenant; the first tenant also sees those without a valid key."""
        own = t.Access.key.in_(select(t.ApiKey.id).where(t.ApiKey.tenant == tenant))
        seen = or_(own, t.Access.key.is_(None)) if tenant == FIRST_TENANT else own
        return self.session.scalars(select(t.Access).where(seen).order_by(t.Access.id.desc()).limit(limit)).all()

    # Models and their versions

    def models(self, tenant: str | None = None) -> Sequence[t.Model]:
        """The models of a tenant, or all."""
        query = select(t.Model).order_by(t.Model.tenant, t.Model.name)
        return self.session.scalars(query if tenant is None else query.where(t.Model.tenant == tenant)).all()

    def model(self, tenant: str, name: str) -> t.Model | None:
        """A model by its name."""
        return self.session.scalar(select(t.Model).where(t.Model.tenant == tenant, t.Model.name == name))

    def model_by_id(self, model_id: str) -> t.Model:
        """A model."""
        return self.session.get_one(t.Model, model_id)

    def take_model(
        self, model_id: str, owner: str, now: float, lease: float, is_dead: Callable[[str], bool] = lambda owner: False
    ) -> int | None:
        """Become the one writer of a model until the lease ends; returns the number of the term, or None where it is taken.

        A lease that ends further in the future than any lease can is one of a clock that has jumped; that of a process that
        is known to be dead is free.
        """
        query = select(t.Model).where(t.Model.id == model_id)
        model = self.session.scalar(query if self._is_sqlite else query.with_for_update(skip_locked=True))
        if model is None:
            return None
        until = model.lease_until
        free = until is None or until <= now or until > now + 2 * lease or is_dead(model.lease_owner or "")
        if not free and model.lease_owner != owner:
            return None
        if model.lease_owner != owner or free:
            model.fence += 1
        model.lease_owner, model.lease_until = owner, now + lease
        self.session.flush()
        return model.fence

    def holds_model(self, model_id: str, owner: str, fence: int) -> bool:
        """Whether a writer still is the one writer; no other can become it before the transaction ends."""
        query = select(t.Model).where(t.Model.id == model_id)
        model = self.session.scalar(query if self._is_sqlite else query.with_for_update())
        return model is not None and model.lease_owner == owner and model.fence == fence

    def free_model(self, model_id: str, owner: str) -> None:
        """Give a model back."""
        condition = (t.Model.id == model_id, t.Model.lease_owner == owner)
        self.session.execute(update(t.Model).where(*condition).values(lease_owner=None, lease_until=None))

    def versions(self, model_id: str, limit: int = 100) -> Sequence[t.Version]:
        """The latest versions of a model."""
        query = select(t.Version).where(t.Version.model_id == model_id).order_by(t.Version.number.desc())
        return self.session.scalars(query.limit(limit)).all()

    def version(self, model_id: str, number: int) -> t.Version | None:
        """A version."""
        return self.session.scalar(select(t.Version).where(t.Version.model_id == model_id, t.Version.number == number))

    # Requests

    def request(self, request_id: str) -> t.Request | None:
        """A request."""
        return self.session.get(t.Request, request_id)

    def request_for_update(self, request_id: str) -> t.Request | None:
        """A request that no other transaction changes meanwhile."""
        query = select(t.Request).where(t.Request.id == request_id)
        return self.session.scalar(query if self._is_sqlite else query.with_for_update())

    def requests(
        self,
        tenant: str,
        origin: str | None = None,
        state: str | None = None,
        model_id: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> Sequence[t.Request]:
        """The latest requests that may be seen."""
        query = select(t.Request).where(t.Request.tenant == tenant).order_by(t.Request.received.desc(), t.Request.id)
        for condition in (
            None if origin is None else t.Request.origin == origin,
            None if state is None else t.Request.state == state,
            None if model_id is None else t.Request.model_id == model_id,
            None if before is None else t.Request.received < before,
        ):
            query = query if condition is None else query.where(condition)
        return self.session.scalars(query.limit(limit)).all()

    def by_idempotency(self, model_id: str, key: str) -> t.Request | None:
        """The request that came in under an idempotency key."""
        return self.session.scalar(
            select(t.Request).where(t.Request.model_id == model_id, t.Request.idempotency == key)
        )

    def waiting(self, model_id: str, now: float, limit: int) -> Sequence[t.Request]:
        """Requests that wait to be suppressed, the oldest first, locked against other workers."""
        query = (
            select(t.Request)
            .where(t.Request.model_id == model_id, t.Request.state == "validated", t.Request.not_before <= now)
            .order_by(t.Request.received, t.Request.id)
            .limit(limit)
        )
        return self.session.scalars(query if self._is_sqlite else query.with_for_update(skip_locked=True)).all()

    def in_state(self, model_id: str, *states: str) -> Sequence[t.Request]:
        """The requests of a model in some states, the oldest first."""
        query = select(t.Request).where(t.Request.model_id == model_id, t.Request.state.in_(states))
        return self.session.scalars(query.order_by(t.Request.received, t.Request.id)).all()

    def wishing(self, model_id: str, wish: str, now: float) -> Sequence[t.Request]:
        """The requests of a model that wait to be undone."""
        condition = (t.Request.model_id == model_id, t.Request.wish == wish, t.Request.not_before <= now)
        return self.session.scalars(select(t.Request).where(*condition).order_by(t.Request.received)).all()

    def some_requests(self, ids: Iterable[str]) -> list[t.Request]:
        """Requests by their ids, in that order."""
        wanted = list(ids)
        found: dict[str, t.Request] = {}
        for start in range(0, len(wanted), CHUNK):
            part = wanted[start : start + CHUNK]
            found |= {each.id: each for each in self.session.scalars(select(t.Request).where(t.Request.id.in_(part)))}
        return [found[each] for each in wanted if each in found]

    def duplicates_of(self, request_id: str) -> int:
        """How many requests asked for nothing but what this one asks for."""
        query = select(func.count()).select_from(t.Request).where(t.Request.duplicate_of == request_id)
        return self.session.scalar(query) or 0

    def work(self, now: float) -> set[str]:
        """The models that have something to do that cannot wait for a schedule."""
        ready = or_(t.Request.state.in_(("validated", "regrown", "destroyed")), t.Request.wish.is_not(None))
        query = select(t.Request.model_id).where(ready, t.Request.not_before <= now).distinct()
        return set(self.session.scalars(query))

    def renew(self, owner: str, until: float) -> None:
        """Keep what a worker holds for longer."""
        self.session.execute(update(t.Model).where(t.Model.lease_owner == owner).values(lease_until=until))
        running = (t.Regrow.lease_owner == owner, t.Regrow.state == "running")
        self.session.execute(update(t.Regrow).where(*running).values(lease_until=until))

    def of_origin(self, model_id: str, origin: str, since: float) -> tuple[int, int]:
        """How many requests of one origin came in since a time, and how many elements they name."""
        recent = (t.Request.model_id == model_id, t.Request.origin == origin, t.Request.received >= since)
        standing = (*recent, t.Request.state.in_(STANDING))
        requests = self.session.scalar(select(func.count()).select_from(t.Request).where(*standing)) or 0
        elements = select(func.count()).select_from(t.Element).join(t.Request, t.Element.request_id == t.Request.id)
        return requests, self.session.scalar(elements.where(*standing)) or 0

    def counts_by_state(self, tenant: str | None = None, origin: str | None = None) -> dict[tuple[str, str], int]:
        """How many requests each model has in each state."""
        query = select(t.Model.name, t.Request.state, func.count()).join(t.Model, t.Model.id == t.Request.model_id)
        query = query if tenant is None else query.where(t.Model.tenant == tenant)
        query = query if origin is None else query.where(t.Request.origin == origin)
        return {
            (name, state): count
            for name, state, count in self.session.execute(query.group_by(t.Model.name, t.Request.state))
        }

    def held(self, tenant: str) -> int:
        """How many requests of a tenant wait for approval."""
        query = select(func.count()).select_from(t.Request).join(t.Model, t.Model.id == t.Request.model_id)
        return self.session.scalar(query.where(t.Model.tenant == tenant, t.Request.state == "held")) or 0

    def open_by_state(
        self, now: float, soon: float, tenant: str | None = None, origin: str | None = None
    ) -> Sequence[Any]:
        """Of the requests that are not done, for each state: the oldest, how many are overdue, due soon, and late."""
        request = t.Request
        columns = (
            request.state,
            func.count().label("total"),
            func.min(request.received).label("oldest"),
            func.sum(case((request.due < now, 1), else_=0)).label("overdue"),
            func.sum(case(((request.due >= now) & (request.due <= now + soon), 1), else_=0)).label("due_soon"),
            func.sum(case((request.suppressed.is_(None) & (request.suppress_by < now), 1), else_=0)).label("late"),
        )
        query = select(*columns).where(request.state.not_in(FINAL)).group_by(request.state)
        query = query if tenant is None else query.where(request.tenant == tenant)
        query = query if origin is None else query.where(request.origin == origin)
        return self.session.execute(query).all()

    def next_due(self, model_id: str) -> float | None:
        """The earliest due date among the requests that wait for new weights and for which none are being made."""
        waiting = (t.Request.model_id == model_id, t.Request.state == "suppressed", t.Request.regrow.is_(None))
        return self.session.scalar(select(func.min(t.Request.due)).where(*waiting))

    def is_ripe(self, model_id: str, now: float) -> bool:
        """Whether a request that waits for new weights can no longer be undone."""
        waiting = (t.Request.model_id == model_id, t.Request.state == "suppressed", t.Request.regrow.is_(None))
        over = or_(t.Request.undo_until.is_(None), t.Request.undo_until <= now)
        return self.session.scalar(select(t.Request.id).where(*waiting, over).limit(1)) is not None

    # What requests name

    def secret(self, request_id: str) -> t.Secret | None:
        """The encrypted ids of a request; None where their key was destroyed."""
        return self.session.get(t.Secret, request_id)

    def secrets(self) -> Sequence[t.Secret]:
        """All encrypted ids."""
        return self.session.scalars(select(t.Secret)).all()

    def shred(self, request_id: str) -> None:
        """Destroy the key to the ids of a request, and the ids."""
        secret = self.session.get(t.Secret, request_id)
        if secret is not None:
            secret.wrapped, secret.sealed = bytes(len(secret.wrapped)), bytes(len(secret.sealed))
            self.session.flush()
            self.session.delete(secret)
            self.session.flush()

    def standing_for(self, tenant: str, hashes: Sequence[str], model_id: str) -> dict[str, str]:
        """Which requests that stand name some elements, by the hash of the element; the first one each."""
        found: dict[str, str] = {}
        for start in range(0, len(hashes), CHUNK):
            query = (
                select(t.Element.hash, t.Element.request_id)
                .join(t.Request, t.Request.id == t.Element.request_id)
                .where(
                    t.Element.model_id == model_id,
                    t.Request.tenant == tenant,
                    t.Element.hash.in_(hashes[start : start + CHUNK]),
                    t.Request.state.in_(STANDING),
                )
                .order_by(t.Element.id.desc())
            )
            found |= {digest: request for digest, request in self.session.execute(query)}
        return found

    def add_elements(self, model_id: str, request_id: str, hashes: Sequence[str]) -> None:
        """Remember what a request names, by keyed hashes."""
        rows = [{"model_id": model_id, "request_id": request_id, "hash": each} for each in hashes]
        if rows:
            self.session.execute(t.Element.__table__.insert(), rows)  # type: ignore[attr-defined]

    def forget_elements(self, request_id: str) -> None:
        """Drop the hashes of a request that is not in force."""
        self.session.execute(delete(t.Element).where(t.Element.request_id == request_id))

    def tombstones(self, tenant: str, states: Iterable[str]) -> Iterator[str]:
        """The hashes of all elements of requests in some states."""
        query = select(t.Element.hash).join(t.Request, t.Request.id == t.Element.request_id)
        query = query.where(t.Request.tenant == tenant, t.Request.state.in_(list(states))).distinct()
        yield from self.session.scalars(query.order_by(t.Element.hash))

    # Steps and receipts

    def newest_step(self, tenant: str, origin: str | None = None) -> int:
        """The number of the last step of any request that may be seen."""
        query = select(t.Step.id).join(t.Request, t.Request.id == t.Step.request_id).where(t.Request.tenant == tenant)
        query = query if origin is None else query.where(t.Request.origin == origin)
        return self.session.scalar(query.order_by(t.Step.id.desc()).limit(1)) or 0

    def newest_versions(self, tenant: str) -> list[tuple[int, str | None]]:
        """The newest version of each model of a tenant, and the states of its second clocks."""
        version = select(func.max(t.Version.number)).where(t.Version.model_id == t.Model.id).scalar_subquery()
        newest = select(t.Regrow.state).where(t.Regrow.model_id == t.Model.id)
        regrow = newest.order_by(t.Regrow.asked.desc()).limit(1).scalar_subquery()
        query = select(version, regrow).where(t.Model.tenant == tenant).order_by(t.Model.id)
        return [(number or 0, state) for number, state in self.session.execute(query)]

    def steps(self, request_id: str) -> Sequence[t.Step]:
        """What happened to a request."""
        return self.session.scalars(select(t.Step).where(t.Step.request_id == request_id).order_by(t.Step.id)).all()

    def receipt(self, request_id: str) -> t.Receipt | None:
        """The newest receipt of a request."""
        query = select(t.Receipt).where(t.Receipt.request_id == request_id).order_by(t.Receipt.leaf.desc()).limit(1)
        return self.session.scalar(query)

    # New weights

    def regrow(self, regrow_id: str) -> t.Regrow | None:
        """A second clock."""
        return self.session.get(t.Regrow, regrow_id)

    def regrows(self, model_id: str, *states: str) -> Sequence[t.Regrow]:
        """The second clocks of a model in some states, the newest first."""
        query = select(t.Regrow).where(t.Regrow.model_id == model_id)
        query = query.where(t.Regrow.state.in_(states)) if states else query
        return self.session.scalars(query.order_by(t.Regrow.asked.desc())).all()

    def free_regrows(self, is_dead: Callable[[str], bool]) -> None:
        """Give back the second clocks of workers that are dead."""
        for each in self.session.scalars(select(t.Regrow).where(t.Regrow.state == "running")):
            if is_dead(each.lease_owner or ""):
                each.state, each.lease_owner, each.lease_until = "waiting", None, None

    def take_regrow(self, owner: str, now: float, lease: float) -> t.Regrow | None:
        """A second clock that nobody works on, for this worker until the lease ends."""
        free = or_(
            t.Regrow.state == "waiting",
            (t.Regrow.state == "running") & ((t.Regrow.lease_until <= now) | (t.Regrow.lease_until > now + 2 * lease)),
        )
        query = select(t.Regrow).where(free, t.Regrow.not_before <= now).order_by(t.Regrow.asked).limit(1)
        found = self.session.scalar(query if self._is_sqlite else query.with_for_update(skip_locked=True))
        if found is not None:
            found.state, found.lease_owner, found.lease_until = "running", owner, now + lease
            self.session.flush()
        return found

    def of_regrow(self, regrow_id: str) -> Sequence[t.Request]:
        """The requests whose weights a second clock replaces."""
        query = select(t.Request).where(t.Request.regrow == regrow_id)
        return self.session.scalars(query.order_by(t.Request.received, t.Request.id)).all()

    # The ledger

    def ledger_size(self) -> int:
        """The number of leaves."""
        size = self.session.scalar(select(func.max(t.Leaf.number)))
        return 0 if size is None else size + 1

    def leaf(self, number: int) -> t.Leaf | None:
        """A leaf."""
        return self.session.get(t.Leaf, number)

    def leaf_by_hash(self, value: str) -> t.Leaf | None:
        """A leaf by its hash."""
        return self.session.scalar(select(t.Leaf).where(t.Leaf.hash == value).limit(1))

    def newest_leaves(self, limit: int) -> list[tuple[t.Leaf, t.Request | None]]:
        """The last leaves, each with the request whose receipt it commits to, where there is one."""
        query = select(t.Leaf, t.Request).outerjoin(t.Receipt, t.Receipt.leaf == t.Leaf.number)
        query = query.outerjoin(t.Request, t.Request.id == t.Receipt.request_id)
        rows = self.session.execute(query.order_by(t.Leaf.number.desc()).limit(limit))
        return [(leaf, request) for leaf, request in rows]

    def leaves(self, start: int = 0, limit: int | None = None) -> Iterator[t.Leaf]:
        """Leaves in their order."""
        query = select(t.Leaf).where(t.Leaf.number >= start).order_by(t.Leaf.number)
        yield from self.session.scalars(query if limit is None else query.limit(limit))

    def node(self, level: int, position: int) -> str:
        """The hash of a complete subtree."""
        return self.session.get_one(t.Node, (level, position)).hash

    def nodes(self) -> Iterator[t.Node]:
        """All complete subtrees."""
        yield from self.session.scalars(select(t.Node).order_by(t.Node.level, t.Node.position))

    def checkpoint(self, size: int | None = None) -> t.SignedCheckpoint | None:
        """The checkpoint of a size; the newest one without."""
        query = select(t.SignedCheckpoint).order_by(t.SignedCheckpoint.size.desc()).limit(1)
        return self.session.scalar(query if size is None else query.where(t.SignedCheckpoint.size == size))

    def checkpoints(self) -> Iterator[t.SignedCheckpoint]:
        """All checkpoints, by size."""
        yield from self.session.scalars(select(t.SignedCheckpoint).order_by(t.SignedCheckpoint.size))

    def receipts(self) -> Iterator[t.Receipt]:
        """All receipts, by their leaf."""
        yield from self.session.scalars(select(t.Receipt).order_by(t.Receipt.leaf))

    # Webhooks

    def messages(self, now: float, limit: int = 50) -> Sequence[t.Message]:
        """Webhooks that are due, locked against other workers."""
        query = (
            select(t.Message)
            .where(t.Message.delivered.is_(None), t.Message.url.is_not(None), t.Message.next_attempt <= now)
            .order_by(t.Message.id)
            .limit(limit)
        )
        return self.session.scalars(query if self._is_sqlite else query.with_for_update(skip_locked=True)).all()

    def waiting_messages(self, tenant: str) -> int:
        """How many webhooks of a tenant wait to be delivered."""
        query = select(func.count()).select_from(t.Message).join(t.Request, t.Request.id == t.Message.request_id)
        query = query.where(t.Request.tenant == tenant, t.Message.delivered.is_(None), t.Message.url.is_not(None))
        return self.session.scalar(query) or 0

    # Upkeep

    def forget_before(self, time: float) -> tuple[int, int]:
        """Drop accesses and delivered webhooks from before a time; returns how many."""
        accesses = self.session.execute(delete(t.Access).where(t.Access.at < time))
        messages = self.session.execute(delete(t.Message).where(t.Message.url.is_(None), t.Message.created < time))
        return _count(accesses), _count(messages)

    def reset_counters(self, tables: Iterable[Any]) -> None:
        """Number further rows after those that were inserted with their numbers."""
        if self._is_sqlite:
            return
        for table in tables:
            if table.autoincrement_column is not None and table.autoincrement_column.name == "id":
                sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                highest = f"(SELECT coalesce(max(id), 0) + 1 FROM {table.name})"
                self.session.execute(text(f"SELECT setval({sequence}, {highest}, false)"))

    def count(self, table: type[t.Base]) -> int:
        """The number of rows of a table."""
        return self.session.scalar(select(func.count()).select_from(table)) or 0


def _count(result: Any) -> int:
    return int(result.rowcount)
