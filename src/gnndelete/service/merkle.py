"""The Merkle tree of RFC 6962: the root of a list of leaves, and proofs that a leaf or an earlier list is in it.

A tree is read through a function ``read(level, position)`` that gives the hash of a complete subtree of ``2**level`` leaves. The
ledger keeps these in a table, so that an append and a proof cost a logarithm of the leaves.

>>> leaves = [leaf_hash(bytes([i])) for i in range(5)]
>>> read = complete_subtrees(leaves)
>>> proof = inclusion_proof(read, 3, 5)
>>> root_of_inclusion(leaves[3], 3, 5, proof) == root(read, 5)
True
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

Read = Callable[[int, int], bytes]


def leaf_hash(content: bytes) -> bytes:
    """The hash of a leaf."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def complete_subtrees(leaves: Sequence[bytes]) -> Read:
    """The function that reads the complete subtrees of a list of leaf hashes."""

    def read(level: int, position: int) -> bytes:
        if level == 0:
            return leaves[position]
        return node_hash(read(level - 1, 2 * position), read(level - 1, 2 * position + 1))

    return read


def completed_by(read: Read, index: int, leaf: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The complete subtrees that a new leaf adds to a tree of ``index`` leaves: level, position and hash."""
    level, position, value = 0, index, leaf
    yield level, position, value
    while position % 2:
        value = node_hash(read(level, position - 1), value)
        level, position = level + 1, position // 2
        yield level, position, value


def root(read: Read, size: int) -> bytes:
    """The root of the first ``size`` leaves."""
    return _range_hash(read, 0, size) if size else hashlib.sha256(b"").digest()


def inclusion_proof(read: Read, index: int, size: int) -> list[bytes]:
    """The hashes that lead from leaf ``index`` to the root of the first ``size`` leaves."""
    if not 0 <= index < size:
        raise ValueError("the leaf is not in a tree of this size")
    proof, start, stop = [], 0, size
    while stop - start > 1:
        middle = start + _split(stop - start)
        if index < middle:
            proof.append(_range_hash(read, middle, stop))
            stop = middle
        else:
            proof.append(_range_hash(read, start, middle))
            start = middle
    return proof[::-1]


def consistency_proof(read: Read, before: int, size: int) -> list[bytes]:
    """The hashes that show that the first ``before`` leaves of a tree of ``size`` leaves did not change."""
    if not 0 < before <= size:
        raise ValueError("the earlier tree is empty or larger")
    proof: list[bytes] = []
    start, stop, whole = 0, size, True
    while before != stop:
        middle = start + _split(stop - start)
        if before <= middle:
            proof.append(_range_hash(read, middle, stop))
            stop = middle
        else:
            proof.append(_range_hash(read, start, middle))
            start, whole = middle, False
    return ([] if whole else [_range_hash(read, start, stop)]) + proof[::-1]


def root_of_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes | None:
    """The root that an inclusion proof leads to; None where its length does not fit."""
    if not 0 <= index < size:
        return None
    value, position, last = leaf, index, size - 1
    for sibling in proof:
        if last == 0:
            return None
        if position % 2 or position == last:
            value = node_hash(sibling, value)
            while position % 2 == 0 and position:
                position, last = position // 2, last // 2
        else:
            value = node_hash(value, sibling)
        position, last = position // 2, last // 2
    return value if last == 0 else None


def is_consistent(before: int, old: bytes, size: int, new: bytes, proof: Sequence[bytes]) -> bool:
    """Whether a proof shows that the tree of ``before`` leaves is the beginning of that of ``size`` leaves."""
    if before == size:
        return old == new and not proof
    if not 0 < before < size:
        return False
    hashes = [old, *proof] if before & (before - 1) == 0 else list(proof)
    if not hashes:
        return False
    position, last = before - 1, size - 1
    while position % 2:
        position, last = position // 2, last // 2
    one = other = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if position % 2 or position == last:
            one, other = node_hash(sibling, one), node_hash(sibling, other)
            while position % 2 == 0 and position:
                position, last = position // 2, last // 2
        else:
            other = node_hash(other, sibling)
        position, last = position // 2, last // 2
    return last == 0 and one == old and other == new


def _split(count: int) -> int:
    """The largest power of two below ``count``."""
    return 1 << ((count - 1).bit_length() - 1)


def _range_hash(read: Read, start: int, stop: int) -> bytes:
    """The root of the leaves of a range whose start is a multiple of the power of two at or above its length."""
    count = stop - start
    if count & (count - 1) == 0:
        level = count.bit_length() - 1
        return read(level, start >> level)
    middle = start + _split(count)
    return node_hash(_range_hash(read, start, middle), _range_hash(read, middle, stop))
