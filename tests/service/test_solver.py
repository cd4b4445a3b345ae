"""What is said about a segment and about new weights: figures that were measured, and no names."""

from __future__ import annotations

import json

import pytest

import gnndelete.service.solver as solver
from gnndelete.service import receipts
from gnndelete.service.home import Settings

from .conftest import MARK, make_shop


def test_a_receipt_says_what_was_scored_before_and_after(small):
    edges = small.edges(4)
    before = small.scores(*edges[:3])
    asked = [small.ask(edge)["id"] for edge in edges[:3]]
    small.work()
    figures = small.service.report(small.admin, asked[0])["figures"]
    assert figures["scored"] == 3
    assert figures["score_before"] == pytest.approx(sum(before) / 3, abs=1e-4)
    assert figures["score_after"] == pytest.approx(sum(small.scores(*edges[:3])) / 3, abs=1e-4)
    assert figures["score_after"] < figures["score_before"]


def test_new_weights_are_audited(tmp_path):
    shop = make_shop(tmp_path, settings=Settings())
    asked = [shop.ask(edge)["id"] for edge in shop.edges(30)]
    shop.work()
    shop.service.regrow(shop.admin, "shop")
    shop.work()
    content = shop.service.receipt(shop.admin, asked[0])
    assert receipts.problems(content) == []
    found = json.loads(content)["audit"]
    assert found["verdict"] != solver.NOT_AUDITED
    assert found["figures"]["rule"]
    assert 0 < found["figures"]["test"]["after"] <= 1
    assert found["figures"]["test"]["elements"] > 0
    unseen = found["figures"]["unseen"]
    assert unseen["low"] <= unseen["auc"] <= unseen["high"]
    assert unseen["deleted"] == 30
    assert MARK not in content.decode()
    shop.service.storage.close()


def test_weights_that_cannot_be_audited_are_served_all_the_same(tmp_path, monkeypatch):
    def broken(*args, **options):
        raise RuntimeError(f"{MARK}:1")

    monkeypatch.setattr(solver, "audit", broken)
    shop = make_shop(tmp_path, settings=Settings())
    asked = shop.ask(shop.edge(0))["id"]
    shop.work()
    shop.service.regrow(shop.admin, "shop")
    shop.work()
    assert shop.state(asked) == "closed"
    content = shop.service.receipt(shop.admin, asked)
    assert json.loads(content)["audit"]["figures"] == {"audit_failed": "runtime-error"}
    assert json.loads(content)["audit"]["verdict"] == solver.NOT_AUDITED
    assert MARK not in content.decode()
    shop.service.storage.close()
