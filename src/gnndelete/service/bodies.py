"""What calls of the HTTP interface carry and get back, as the OpenAPI document describes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from gnndelete.service.elements import KINDS, Asked
from gnndelete.service.states import STATES


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("give a time zone, such as Z")
    return value


_Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_Id = (
    Annotated[str, StringConstraints(min_length=1, max_length=500)] | Annotated[int, Field(strict=True, ge=0, lt=2**62)]
)
_Edge = Annotated[list[_Id], Field(min_length=2, max_length=3)]
_Cell = _Id | Annotated[list[_Id], Field(min_length=2, max_length=2)]
_Many: dict[str, Any] = {"max_length": 20_000}
_Edges = Annotated[list[_Edge], Field(**_Many)] | dict[str, Annotated[list[_Edge], Field(**_Many)]]
_Nodes = Annotated[list[_Id], Field(**_Many)] | dict[str, Annotated[list[_Id], Field(**_Many)]]
_Cells = Annotated[list[_Cell], Field(**_Many)] | dict[str, Annotated[list[_Cell], Field(**_Many)]]

State = Annotated[
    str, Field(description=" ".join(f"`{name}`: {text}" for name, text in STATES.items()), examples=["suppressed"])
]
DueStatus = Literal["on-track", "due-soon", "overdue", "done"]
Time = Annotated[str, Field(examples=["2026-11-19T20:13:02.125Z"])]
Digest = Annotated[str, Field(description="SHA-256, in hexadecimal digits.", examples=["5df6e0e2…"])]
RequestId = Annotated[
    str, Field(description="The number of the request.", examples=["b06fc2fd9205477caa0e8d6c5d3a1f11"])
]


class Named(BaseModel):
    """Elements of the graph, by the ids of its user; on a typed graph by type."""

    model_config = ConfigDict(extra="forbid")

    nodes: _Nodes | None = Field(None, description="Nodes by their ids.", examples=[["user:4711"]])
    edges: _Edges | None = Field(
        None,
        description="Edges, each by the ids of its two ends; on a knowledge graph with the relation between them.",
        examples=[[["user:4711", "item:7"]]],
    )

    @property
    def asked(self) -> Asked:
        """What is named."""
        values = {name: getattr(self, name, None) for name in KINDS}
        return Asked({name: value for name, value in values.items() if value is not None})


class DeletionRequest(Named):
    """What must be forgotten, and how."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"subject_request_id": "a6f8c1e0", "nodes": ["user:4711"], "mode": "serve"}]},
    )

    subject_request_id: _Name | None = Field(
        None, description="Your name of the request. The same name again is the same request.", examples=["a6f8c1e0"]
    )
    features: _Cells | None = Field(
        None,
        description="Features of nodes: an id for all of them, or an id and a column.",
        examples=[[["user:4711", 3]]],
    )
    labels: _Nodes | None = Field(None, description="Labels of nodes, by their ids.", examples=[["user:4711"]])
    relations: Annotated[list[_Id], Field(max_length=1000)] | None = Field(
        None, description="Whole types of edges.", examples=[["follows"]]
    )
    graphs: Annotated[list[Annotated[int, Field(strict=True, ge=0, lt=2**62)]], Field(**_Many)] | None = Field(
        None, description="Graphs of a model of many graphs, by their numbers.", examples=[[17]]
    )
    due: Annotated[datetime, AfterValidator(_aware)] | None = Field(
        None,
        description="When new weights must be live; 30 days from now by default.",
        examples=["2030-01-31T00:00:00Z"],
    )
    mode: Literal["serve", "dry-run", "hold"] = Field(
        "serve",
        description="`serve` goes on at once; `dry-run` predicts the effect and stores nothing; `hold` waits for an operator.",
    )
    callback_urls: Annotated[list[Annotated[str, StringConstraints(max_length=2000)]], Field(max_length=5)] = Field(
        [], description="Where each change of its state is posted, signed.", examples=[["https://shop.example/erasure"]]
    )


class _Answer(BaseModel):
    """An answer may carry more than is described here."""

    model_config = ConfigDict(extra="allow")


class Accepted(_Answer):
    """A request that came in."""

    id: RequestId
    state: State
    code: str | None = Field(None, description="Why it is held or failed.")
    suppress_by: Time = Field(description="Until when served answers must no longer know what it names.")
    due: Time = Field(description="Until when new weights must be live.")
    duplicate_of: str | None = Field(None, description="The earlier request that asks for the same.")


class Effect(_Answer):
    """What a request would do, predicted."""

    rows: int | None = Field(description="Rows of the model's output that it can change.", examples=[89])
    neighbours: int = Field(description="Nodes at distance one of what it names.", examples=[6])
    damage: float | None = Field(
        description="How far cutting it moves the answers about what stays: 10 is as much as ten average rows replaced.",
        examples=[1.2],
    )
    usual: float | None = Field(description="The largest damage of random requests of its size.", examples=[9.1])
    codes: list[str] = Field(description="Why it would be held.", examples=[[]])


class DryRun(_Answer):
    """What a request would do; nothing was stored."""

    state: Literal["dry-run"]
    model: str
    counts: dict[str, int] = Field(description="What it names, by kind.", examples=[{"nodes": 1}])
    effect: Effect


class Listed(Accepted):
    """A request in a list."""

    model: str | None
    received: Time
    suppressed: Time | None = Field(description="Since when served answers do not know what it names.")
    regrown: Time | None = Field(description="Since when new weights are live.")
    counts: dict[str, int]
    due_status: DueStatus


class Requests(_Answer):
    """Requests, the newest first."""

    requests: list[Listed]


class Step(_Answer):
    """Something that happened to a request."""

    step: str = Field(examples=["suppressed"])
    at: Time
    by: str = Field(description="The name of the key, or `worker`.")
    evidence: dict[str, Any] = Field(description="Digests before and after, and figures.")


class Remaining(_Answer):
    """A step that is still to come."""

    code: str = Field(examples=["regrown"])
    text: str = Field(examples=["Replace the weights by new ones that never saw the elements."])


class View(Listed):
    """A request: where it stands, how it came there, and what remains to be done."""

    means: str = Field(description="What its state means.")
    wish: str | None = Field(description="What the worker is about to do with it.")
    held_because: str | None
    failed_step: str | None
    attempts: int
    undo_until: Time | None
    closed: Time | None
    effect: dict[str, Any] = Field(description="Its predicted effect, once it was screened.")
    commitment: Digest = Field(description="Salted digest of what it names.")
    version: int | None = Field(description="The version of the model that answers for it.")
    remaining: list[Remaining]
    actions: list[str] = Field(description="What this key can ask for now.", examples=[["undo"]])
    steps: list[Step]
    commitment_salt: str | None = Field(None, description="For whoever asked: opens the commitment. Keep it.")


class Report(_Answer):
    """The evidence about a request."""

    request: RequestId
    state: State
    model: str
    version: int | None
    level: str | None = Field(description="The assurance level.", examples=["approximate"])
    weights: str | None = Field(
        description="`base`: the old weights still hold it; `new`: they are gone.", examples=["base"]
    )
    figures: dict[str, Any]
    notes: list[str]
    audit: dict[str, Any] | None
    effect: dict[str, Any]


class ModelName(_Answer):
    """A model."""

    name: str = Field(examples=["shop"])
    registered: Time


class Models(_Answer):
    """The models of the caller."""

    models: list[ModelName]


class Aliases(_Answer):
    """Names of versions."""

    live: int | None
    previous: int | None


class Version(_Answer):
    """A version of a model."""

    number: int
    kind: str = Field(description="`base`, `segment`, `compact`, `undo` or `regrow`.")
    generation: int = Field(description="The weights below it.")
    requests: int = Field(description="How many requests it is about.")
    digest: Digest
    at: Time


class Regrow(_Answer):
    """New weights that were asked for."""

    id: str
    state: str = Field(examples=["done"])
    asked: Time
    done: Time | None
    code: str | None


class Model(_Answer):
    """A model: its versions, and what is due."""

    name: str = Field(examples=["shop"])
    registered: Time
    aliases: Aliases
    segments: int = Field(description="Adapters on top of each other.")
    generation: int | None
    weights: str | None
    requests: dict[str, int] = Field(description="Requests by state.", examples=[{"suppressed": 4}])
    next_due: Time | None
    compacted: Time | None
    last_regrown: Time | None
    regrows: list[Regrow]
    versions: list[Version]


class RegrowBegun(_Answer):
    """New weights are being made."""

    id: str
    state: str = Field(examples=["waiting"])
    model: str


class Scores(_Answer):
    """What one version of a model says."""

    model: str
    version: int
    scores: list[Any] = Field(description="One for each element, in its order.", examples=[[0.1873]])


class Proof(_Answer):
    """Hashes on the way to the root."""

    proof: list[Digest]


class Access(_Answer):
    """A call."""

    at: Time
    key: str | None
    action: str = Field(examples=["GET /v1/requests/{id}"])
    subject: str | None
    status: int


class Accesses(_Answer):
    """Calls, the newest first."""

    accesses: list[Access]


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["about:blank"])
    title: str = Field(description="What is wrong, in one sentence.", examples=["the call has no valid API key"])
    status: int = Field(examples=[401])
    code: str = Field(description="For programs; it never changes.", examples=["unauthorized"])
    detail: str = Field(
        description="What is wrong, and the way out.",
        examples=["the call has no valid API key; send the header 'Authorization: Bearer KEY'"],
    )
