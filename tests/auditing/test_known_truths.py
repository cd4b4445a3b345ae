"""Results of known worth and their verdicts, on a model that remembers and one that does not: the short form of
``benchmarks/verdicts.py``."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import gnndelete as gd

verdicts = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "verdicts.py"))
#: Left out here, as another form of a fraud that is in, or since anything may be due.
LEFT_OUT = {
    "scaled reference",
    "noisy reference",
    "list, 50% noise",
    "ends scattered",
    "ends shrunk",
    "ends smoothed",
    "ends exchanged",
    "edges put back",
    "calibrated",
    "ends from a Retrain",
    "Retrain alone",
    "Retrain 1 beside 0",
}


@pytest.fixture(scope="module", params=["small ratings", "communities"])
def claims(request: pytest.FixtureRequest) -> list[tuple[str, Any]]:
    return [
        (title, make) for title, make in verdicts["claims"](verdicts["World"](request.param)) if title not in LEFT_OUT
    ]


def test_every_fraud_is_called_and_no_honest_result_is_accused(claims: list[tuple[str, Any]]) -> None:
    wrong = {}
    for title, make in claims:
        claim = make()
        code = gd.audit(claim.result, claim.reference, attacks=False).verdict.code
        if claim.due and code not in claim.due:
            wrong[title] = code
    assert not wrong
