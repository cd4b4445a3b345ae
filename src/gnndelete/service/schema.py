"""The tables. Times are seconds since 1970, digests hexadecimal text. Only ``secrets`` holds what requests name, encrypted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Float, ForeignKey, Index, Integer, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The base of all tables."""

    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, float: Float(53)}  # noqa: RUF012


class ApiKey(Base):
    """An API key: of a tenant, with a role. Only its digest is kept."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(64))
    role: Mapped[str] = mapped_column(String(16))
    digest: Mapped[str] = mapped_column(String(64))
    created: Mapped[float]
    revoked: Mapped[float | None]


class Model(Base):
    """A registered model, and who writes to it."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("tenant", "name"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(64))
    elements: Mapped[int]
    created: Mapped[float]
    lease_owner: Mapped[str | None] = mapped_column(String(80))
    lease_until: Mapped[float | None]
    fence: Mapped[int] = mapped_column(Integer, default=0)
    compacted: Mapped[float]
    regrown: Mapped[float]


class Request(Base):
    """A request and where it stands. It names nothing: what was asked for is in `Secret`."""

    __tablename__ = "requests"
    __table_args__ = (
        UniqueConstraint("model_id", "idempotency"),
        Index("requests_by_state", "model_id", "state"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    tenant: Mapped[str] = mapped_column(String(64))
    origin: Mapped[str] = mapped_column(String(40))
    idempotency: Mapped[str | None] = mapped_column(String(64))
    body_digest: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    wish: Mapped[str | None] = mapped_column(String(16))
    code: Mapped[str | None] = mapped_column(String(64))
    failed_step: Mapped[str | None] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    not_before: Mapped[float] = mapped_column(Float(53), default=0.0)
    approved: Mapped[bool] = mapped_column(default=False)
    duplicate_of: Mapped[str | None] = mapped_column(String(40))
    counts: Mapped[dict[str, Any]]
    effect: Mapped[dict[str, Any]]
    commitment: Mapped[str] = mapped_column(String(64))
    callbacks: Mapped[int] = mapped_column(Integer, default=0)
    received: Mapped[float] = mapped_column(Float(53), index=True)
    suppress_by: Mapped[float]
    due: Mapped[float] = mapped_column(Float(53), index=True)
    undo_until: Mapped[float | None]
    suppressed: Mapped[float | None]
    regrown: Mapped[float | None]
    closed: Mapped[float | None]
    generation: Mapped[int | None]
    in_version: Mapped[int | None]
    regrow: Mapped[str | None] = mapped_column(String(40), index=True)


class Secret(Base):
    """What a request names, encrypted by a key of its own; the row is destroyed when the request is closed."""

    __tablename__ = "secrets"

    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    wrapped: Mapped[bytes] = mapped_column(LargeBinary)
    sealed: Mapped[bytes] = mapped_column(LargeBinary)


class Element(Base):
    """The tombstone of one element that a request names: its kind and a keyed hash. It counts once the request is in force."""

    __tablename__ = "elements"
    __table_args__ = (Index("elements_by_hash", "model_id", "hash"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    hash: Mapped[str] = mapped_column(String(80))


class Step(Base):
    """One step of a request: who, when, and the evidence."""

    __tablename__ = "steps"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    at: Mapped[float]
    step: Mapped[str] = mapped_column(String(32))
    actor: Mapped[str] = mapped_column(String(80))
    evidence: Mapped[dict[str, Any]]


class Version(Base):
    """A version of a model that was published."""

    __tablename__ = "versions"
    __table_args__ = (UniqueConstraint("model_id", "number"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    generation: Mapped[int]
    kind: Mapped[str] = mapped_column(String(16))
    digest: Mapped[str] = mapped_column(String(64))
    requests: Mapped[int]
    at: Mapped[float]
    facts: Mapped[dict[str, Any]]


class Regrow(Base):
    """A second clock at work: new weights for the requests that name it."""

    __tablename__ = "regrows"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    state: Mapped[str] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(String(80))
    asked: Mapped[float]
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    not_before: Mapped[float] = mapped_column(Float(53), default=0.0)
    lease_owner: Mapped[str | None] = mapped_column(String(80))
    lease_until: Mapped[float | None]
    code: Mapped[str | None] = mapped_column(String(64))
    generation: Mapped[int | None]
    done: Mapped[float | None]


class Leaf(Base):
    """A leaf of the ledger: a salted commitment, and its hash."""

    __tablename__ = "ledger_leaves"

    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    content: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))


class Node(Base):
    """The hash of a complete subtree of the ledger."""

    __tablename__ = "ledger_nodes"

    level: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    hash: Mapped[str] = mapped_column(String(64))


class SignedCheckpoint(Base):
    """The state of the ledger after each append."""

    __tablename__ = "ledger_checkpoints"

    size: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    content: Mapped[str] = mapped_column(Text)


class Receipt(Base):
    """The body of a receipt, and where the ledger holds it. A later one of the same request supersedes it."""

    __tablename__ = "receipts"

    leaf: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    salt: Mapped[str] = mapped_column(String(64))
    body: Mapped[str] = mapped_column(Text)


class Message(Base):
    """A webhook that is to be delivered, or was; the address of one that was is not kept."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    url: Mapped[str | None] = mapped_column(Text)
    body: Mapped[dict[str, Any]]
    created: Mapped[float]
    next_attempt: Mapped[float] = mapped_column(Float(53), index=True)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    delivered: Mapped[float | None]


class Access(Base):
    """One call of the HTTP interface."""

    __tablename__ = "accesses"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    at: Mapped[float]
    key: Mapped[str | None] = mapped_column(String(40))
    action: Mapped[str] = mapped_column(String(80))
    subject: Mapped[str | None] = mapped_column(String(80))
    status: Mapped[int]
