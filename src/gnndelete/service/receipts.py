"""Receipts: what was done about one request, signed and bound into the ledger, without any id.

A receipt proves that the holder of the key said these things, that the ledger has held them since, and, by replaying, that the
adapter is the one that this procedure gives. It does not prove that nobody kept a copy of the old weights.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gnndelete.service import merkle
from gnndelete.service.crypto import Signer, canonical, is_signed, salted

Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Signature = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
Time = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]

#: Fields that are not part of the commitment in the ledger.
_OUTSIDE = ("ledger", "key", "signature")

LARGEST = 1_000_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Checkpoint(_Strict):
    """The state of the ledger at one time, signed.

    Attributes:
        size: The number of leaves.
        root: The root of their Merkle tree.
        time: When it was signed.
        key: The public key.
        signature: The signature of the other fields as canonical JSON.
        consistency: Hashes that show that an earlier checkpoint is its beginning, where one was named.
    """

    size: Annotated[int, Field(ge=0)]
    root: Hex32
    time: Time
    key: Hex32
    signature: Signature
    consistency: list[Hex32] | None = None

    @classmethod
    def sign(cls, signer: Signer, size: int, root: str, time: str) -> Checkpoint:
        """Sign the state of the ledger."""
        signed: dict[str, Any] = {"size": size, "root": root, "time": time, "key": signer.public}
        return cls(**signed, signature=signer.sign(canonical(signed)))

    @property
    def is_signed(self) -> bool:
        """Whether the signature is right."""
        signed = self.model_dump(include={"size", "root", "time", "key"})
        return is_signed(canonical(signed), self.signature, self.key)


class Place(_Strict):
    """Where a receipt is in the ledger.

    Attributes:
        leaf: The number of its leaf.
        salt: The salt of the commitment in the leaf.
        proof: The hashes from the leaf to the root.
        checkpoint: The state of the ledger that the proof is for.
    """

    leaf: Annotated[int, Field(ge=0)]
    salt: Hex32
    proof: list[Hex32]
    checkpoint: Checkpoint


class Graphs(_Strict):
    """Digests of the graph before and after. ``after`` is chained: before, and the commitment to what was cut."""

    before: Hex32
    after: Hex32


class Method(_Strict):
    """How it was done."""

    name: str
    settings: dict[str, Any]
    requests: Annotated[int, Field(ge=1)]


class Times(_Strict):
    """When the request came in, and when each clock stopped."""

    received: Time
    suppressed: Time | None
    regrown: Time | None


class Receipt(_Strict):
    """What was done about one request.

    Attributes:
        version: The format.
        id: The number of the request in the service.
        request: A salted commitment to what was asked.
        model: The name of the model, and the version that answers since.
        base: The digest of the weights under the adapter, or of the new ones.
        graph: Digests of the graph.
        method: How it was done, and how many requests were solved together.
        level: The assurance level.
        weights: ``base`` where the weights saw what was deleted, ``new`` where they did not.
        adapter: The digest of the adapter; None where no operator was needed, or the weights are new.
        notes: Codes of what a reader must know.
        audit: The verdict, figures and sample sizes.
        software: Versions.
        times: When.
        ledger: Where the ledger holds the commitment to all fields above.
        key: The public key that signed.
        signature: The signature of all other fields as canonical JSON.
    """

    version: Literal[1]
    id: str
    request: Hex32
    model: dict[str, str]
    base: Hex32
    graph: Graphs
    method: Method
    level: str
    weights: Literal["base", "new"]
    adapter: Hex32 | None
    notes: list[str]
    audit: dict[str, Any]
    software: dict[str, str]
    times: Times
    ledger: Place
    key: Hex32
    signature: Signature


def commitment(body: dict[str, Any], salt: str) -> bytes:
    """The content of the leaf of a receipt without its place, key and signature."""
    return bytes.fromhex(salted(salt, canonical(body)))


def issue(signer: Signer, body: dict[str, Any], place: dict[str, Any]) -> bytes:
    """The receipt as a file: canonical JSON."""
    whole = {**body, "ledger": place, "key": signer.public}
    return canonical({**whole, "signature": signer.sign(canonical(whole))})


def read(content: bytes) -> Receipt:
    """The receipt in a file. A ValueError says what is wrong; a single changed byte is."""
    if len(content) > LARGEST:
        raise ValueError("it is too long")
    try:
        values = json.loads(content)
        if canonical(values) != content:
            raise ValueError("it is not the canonical JSON that was issued")
        return Receipt.model_validate_json(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ValueError(f"the field '{where}' is wrong") from None
    except (RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no JSON ({type(error).__name__})") from None


def problems(content: bytes, trusted: str | None = None, ledger: Checkpoint | None = None) -> list[str]:
    """What is wrong with a receipt, offline; nothing where it holds.

    Args:
        content: The file.
        trusted: The public key that may have signed; any where None.
        ledger: A later checkpoint with a proof of consistency, or one of the same size.
    """
    try:
        receipt = read(content)
    except ValueError as error:
        return [f"the receipt was changed or is damaged: {error}"]
    values = json.loads(content)
    signed = {name: value for name, value in values.items() if name != "signature"}
    body = {name: value for name, value in values.items() if name not in _OUTSIDE}
    place, checkpoint, found = receipt.ledger, receipt.ledger.checkpoint, []
    if not is_signed(canonical(signed), receipt.signature, receipt.key):
        found.append("the signature does not belong to the receipt")
    if trusted is not None and receipt.key != trusted:
        found.append("it was signed by another key than the one given")
    if checkpoint.consistency is not None:
        found.append("the checkpoint in the receipt has fields that it must not have")
    if not checkpoint.is_signed or checkpoint.key != receipt.key:
        found.append("the signature does not belong to the checkpoint in the receipt")
    leaf = merkle.leaf_hash(commitment(body, place.salt))
    proof = [bytes.fromhex(value) for value in place.proof]
    top = merkle.root_of_inclusion(leaf, place.leaf, checkpoint.size, proof)
    if top is None or top.hex() != checkpoint.root:
        found.append("the ledger does not hold this receipt")
    if ledger is not None:
        found += ledger_problems(checkpoint, ledger, trusted)
    return found


def ledger_problems(old: Checkpoint, new: Checkpoint, trusted: str | None) -> list[str]:
    """Why a later checkpoint does not continue an earlier one."""
    if not new.is_signed or (trusted is not None and new.key != trusted):
        return ["the checkpoint of the ledger is not signed by the key"]
    if old.size == new.size:
        return [] if old.root == new.root else ["the ledger was rewritten: two roots for one size"]
    if new.size < old.size:
        return ["the ledger is shorter than it was when the receipt was issued"]
    if new.consistency is None:
        return [
            f"the checkpoint has {new.size} leaves, that of the receipt {old.size}, and it brings no proof that joins them; "
            f"get it with ?from={old.size}"
        ]
    proof = [bytes.fromhex(value) for value in new.consistency]
    if not merkle.is_consistent(old.size, bytes.fromhex(old.root), new.size, bytes.fromhex(new.root), proof):
        return ["the ledger was rewritten: it does not continue the one that the receipt names"]
    return []


def read_checkpoint(content: bytes) -> Checkpoint:
    """The checkpoint in a file; a ValueError says what is wrong, and a single changed byte is."""
    try:
        if canonical(json.loads(content)) != content:
            raise ValueError("it is not the canonical JSON that /v1/ledger/checkpoint answers")
        return Checkpoint.model_validate_json(content)
    except (ValidationError, RecursionError, UnicodeDecodeError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else type(error).__name__
        raise ValueError(f"it is no checkpoint of a ledger ({why})") from None


def chained(before: str, committed: str) -> str:
    """The digest of a graph after a cut, from the digest before and the commitment to what was cut."""
    return hashlib.sha256(bytes.fromhex(before) + bytes.fromhex(committed)).hexdigest()
