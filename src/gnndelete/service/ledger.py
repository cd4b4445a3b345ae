"""The ledger in the database: appended in the transaction of what it records, with a signed checkpoint after each append."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gnndelete.service import merkle
from gnndelete.service import schema as t
from gnndelete.service.clock import iso
from gnndelete.service.crypto import Signer, canonical
from gnndelete.service.errors import not_found
from gnndelete.service.receipts import Checkpoint
from gnndelete.service.storage import Records

_LOCK = "ledger"


def begin(records: Records) -> int:
    """Keep other transactions from appending until this one ends; returns the number of the next leaf."""
    records.lock(_LOCK)
    return records.ledger_size()


def append(records: Records, signer: Signer, contents: Sequence[bytes], now: float) -> list[int]:
    """Append leaves and sign the new state; `begin` was called in this transaction.

    Returns:
        The numbers of the leaves.
    """
    size = records.ledger_size()
    known: dict[tuple[int, int], bytes] = {}

    def read(level: int, position: int) -> bytes:
        if (level, position) not in known:
            known[level, position] = bytes.fromhex(records.node(level, position))
        return known[level, position]

    rows: list[t.Base] = []
    numbers = list(range(size, size + len(contents)))
    for number, content in zip(numbers, contents, strict=True):
        value = merkle.leaf_hash(content)
        rows.append(t.Leaf(number=number, content=content.hex(), hash=value.hex()))
        for level, position, node in merkle.completed_by(read, number, value):
            known[level, position] = node
            rows.append(t.Node(level=level, position=position, hash=node.hex()))
    size += len(contents)
    checkpoint = Checkpoint.sign(signer, size, merkle.root(read, size).hex(), str(iso(now)))
    rows.append(t.SignedCheckpoint(size=size, content=canonical(checkpoint.model_dump(exclude_none=True)).decode()))
    records.add(*rows)
    return numbers


def _reader(records: Records) -> merkle.Read:
    return lambda level, position: bytes.fromhex(records.node(level, position))


def checkpoint(records: Records, signer: Signer, now: float, since: int | None = None) -> dict[str, Any]:
    """The newest checkpoint; with a proof that an earlier one is its beginning, where one is named."""
    found = records.checkpoint()
    if found is None:
        empty = Checkpoint.sign(signer, 0, merkle.root(_reader(records), 0).hex(), str(iso(now)))
        return empty.model_dump(exclude_none=True)
    signed = _signed(found, signer)
    return signed if since is None else {**signed, "consistency": consistency(records, since, found.size)}


def _signed(found: t.SignedCheckpoint, signer: Signer) -> dict[str, Any]:
    """A checkpoint as it was signed; signed again where the key was replaced since."""
    values: dict[str, Any] = json.loads(found.content)
    if values["key"] == signer.public:
        return values
    return Checkpoint.sign(signer, values["size"], values["root"], values["time"]).model_dump(exclude_none=True)


def consistency(records: Records, before: int, size: int) -> list[str]:
    """The proof that the first leaves did not change."""
    if not 0 < before <= size or size > records.ledger_size():
        raise not_found()
    return [value.hex() for value in merkle.consistency_proof(_reader(records), before, size)]


def inclusion(records: Records, leaf: int, size: int) -> list[str]:
    """The proof that a leaf is in the ledger."""
    if not 0 <= leaf < size:
        raise not_found()
    return [value.hex() for value in merkle.inclusion_proof(_reader(records), leaf, size)]


def place(records: Records, signer: Signer, leaf: int, salt: str) -> dict[str, Any]:
    """Where a receipt is in the ledger as it is now."""
    newest = records.checkpoint()
    if newest is None or newest.size <= leaf:
        raise not_found()
    return {
        "leaf": leaf,
        "salt": salt,
        "proof": inclusion(records, leaf, newest.size),
        "checkpoint": _signed(newest, signer),
    }


def problems(records: Records, trusted: frozenset[str]) -> list[str]:
    """What is wrong with the rows of the ledger: every byte of them is checked."""
    found: list[str] = []
    leaves = list(records.leaves())
    values: list[bytes] = []
    for index, leaf in enumerate(leaves):
        try:
            value = merkle.leaf_hash(bytes.fromhex(leaf.content))
        except ValueError:
            value = b""
        if leaf.number != index or leaf.hash != value.hex() or leaf.content != leaf.content.lower():
            found.append(f"leaf {index} of the ledger was changed")
        values.append(value)
    expected: dict[tuple[int, int], bytes] = {}
    for index, value in enumerate(values):
        for level, position, node in merkle.completed_by(
            lambda level, position: expected[level, position], index, value
        ):
            expected[level, position] = node
    stored = {(node.level, node.position): node.hash for node in records.nodes()}
    for key in expected.keys() | stored.keys():
        if key not in expected or stored.get(key) != expected[key].hex():
            found.append(f"the subtree {key} of the ledger was changed")
    sizes = set()
    for row in records.checkpoints():
        try:
            signed = Checkpoint.model_validate_json(row.content)
            tree = merkle.root(lambda level, position: expected[level, position], signed.size)
            good = canonical(json.loads(row.content)).decode() == row.content
            good = (
                good
                and signed.is_signed
                and signed.key in trusted
                and signed.size == row.size
                and signed.root == tree.hex()
            )
        except (ValueError, KeyError):
            good = False
        if not good:
            found.append(f"the checkpoint of size {row.size} was changed, or the leaves below it were")
        sizes.add(row.size)
    if leaves and len(leaves) not in sizes:
        found.append("the newest checkpoint does not cover all leaves")
    return found
