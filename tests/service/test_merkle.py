"""The tree against the definition in RFC 6962, and every proof of every small tree."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnndelete.service import merkle


def leaves_of(size: int) -> list[bytes]:
    return [merkle.leaf_hash(number.to_bytes(4, "big")) for number in range(size)]


def defined(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, as it is written there."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while 2 * half < len(leaves):
        half *= 2
    return hashlib.sha256(b"\x01" + defined(leaves[:half]) + defined(leaves[half:])).digest()


@pytest.mark.parametrize("size", range(34))
def test_the_root_is_that_of_the_definition(size):
    assert merkle.root(merkle.complete_subtrees(leaves_of(size)), size) == defined(leaves_of(size))


@pytest.mark.parametrize("size", range(1, 34))
def test_every_leaf_is_proven_and_no_other(size):
    leaves = leaves_of(size)
    read, top = merkle.complete_subtrees(leaves), defined(leaves)
    for index in range(size):
        proof = merkle.inclusion_proof(read, index, size)
        assert merkle.root_of_inclusion(leaves[index], index, size, proof) == top
        others = [
            merkle.root_of_inclusion(leaves[index], other, size, proof) for other in range(size) if other != index
        ]
        assert top not in others


@pytest.mark.parametrize("size", range(1, 34))
def test_every_earlier_tree_is_proven_and_no_other(size):
    leaves = leaves_of(size)
    read, top = merkle.complete_subtrees(leaves), defined(leaves)
    for before in range(1, size + 1):
        proof = merkle.consistency_proof(read, before, size)
        assert merkle.is_consistent(before, defined(leaves[:before]), size, top, proof)
        assert not merkle.is_consistent(before, leaves[0][::-1], size, top, proof)
        assert not merkle.is_consistent(before, defined(leaves[:before]), size, top, [*proof, top])


def test_appended_subtrees_are_the_tree():
    known: dict[tuple[int, int], bytes] = {}
    leaves = leaves_of(70)
    for index, leaf in enumerate(leaves):
        for level, position, value in merkle.completed_by(lambda *key: known[key], index, leaf):
            known[level, position] = value
    assert merkle.root(lambda *key: known[key], 70) == defined(leaves)


@given(st.integers(1, 60), st.data())
def test_a_changed_proof_leads_elsewhere(size, data):
    leaves = leaves_of(size)
    index = data.draw(st.integers(0, size - 1))
    proof = merkle.inclusion_proof(merkle.complete_subtrees(leaves), index, size)
    if not proof:
        return
    place, bit = data.draw(st.integers(0, len(proof) - 1)), data.draw(st.integers(0, 255))
    flipped = bytearray(proof[place])
    flipped[bit // 8] ^= 1 << bit % 8
    changed = [*proof[:place], bytes(flipped), *proof[place + 1 :]]
    assert merkle.root_of_inclusion(leaves[index], index, size, changed) != defined(leaves)
