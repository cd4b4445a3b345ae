"""The golden test: deletions give what they gave when golden.json was written.

By default numbers are compared up to a small tolerance, and whole numbers (rows, edges) exactly. With the environment
variable ``GNNDELETE_GOLDEN=exact`` every float is compared bit for bit too: that holds on x86, with the instruction set of
`tests.processor`. Any other value (``approximate``) is the default.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden import cases

#: The worst-conditioned map of all cases moves by 2e-5 of its norm between instruction sets.
TOLERANCE = 1e-4
GOLDEN = cases.stored()


def differences(found: Any, golden: Any, path: str = "", scale: float = 0.0) -> Iterator[str]:
    """Where a record differs from the golden one; digests of floats (``exact``) are left out."""
    if isinstance(golden, dict) and isinstance(found, dict):
        if found.keys() != golden.keys():
            yield f"{path}: has {sorted(found)}, and {sorted(golden)} were expected"
            return
        scale = golden.get("norm", 0.0)  # a sum of large numbers may be small
        for name, value in golden.items():
            if name == "exact" or (name == "codes" and value is None):
                continue
            yield from differences(found[name], value, f"{path}.{name}", scale)
    elif isinstance(golden, list) and isinstance(found, list):
        if len(found) != len(golden):
            yield f"{path}: has {len(found)} entries, and {len(golden)} were expected"
            return
        for index, (one, other) in enumerate(zip(found, golden, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif isinstance(golden, float) and isinstance(found, (int, float)):
        if not math.isclose(found, golden, rel_tol=TOLERANCE, abs_tol=TOLERANCE * scale):
            yield f"{path}: {found!r}, and {golden!r} was expected"
    elif found != golden:
        yield f"{path}: {found!r}, and {golden!r} was expected"


def digests(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every digest of floats in a record, with its place."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from [(path, part)] if name == "exact" else digests(part, f"{path}.{name}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from digests(part, f"{path}[{index}]")


def test_every_case_has_a_record() -> None:
    assert list(GOLDEN) == list(cases.CASES)


@pytest.mark.parametrize("name", cases.CASES)
def test_numbers(name: str) -> None:
    assert list(differences(cases.run(name), GOLDEN[name])) == []


@pytest.mark.skipif(os.environ.get("GNNDELETE_GOLDEN") != "exact", reason="only with GNNDELETE_GOLDEN=exact")
@pytest.mark.parametrize("name", cases.CASES)
def test_every_bit(name: str) -> None:
    golden = dict(digests(GOLDEN[name]))
    found = dict(digests(cases.run(name)))
    assert golden
    assert [place for place in golden if found.get(place) != golden[place]] == []
