"""``gnndelete status``: the versions of a run."""

from __future__ import annotations

from pathlib import Path

from .conftest import Cli, contents, latest


def test_status(cli: Cli, link_run: Path) -> None:
    fresh = cli("status", link_run, "--json").values
    assert (fresh["version"], fresh["requests"], fresh["counts"], fresh["method"]) == (0, 0, {}, None)
    assert cli("delete", link_run, "--node", 4, "--lam", 0.3, "--request-id", "ticket 7").code == 0
    before = contents(link_run)
    found = cli("status", link_run, "--json").values
    assert (found["version"], found["counts"], found["method"]) == (1, {"nodes": 1}, "gnndelete")
    assert found["folder"] == str(latest(link_run))
    assert [each["kind"] for each in found["versions"]] == ["train", "delete"]
    last = found["versions"][-1]
    assert (last["request_id"], last["request"], last["audited"]) == ("ticket 7", {"nodes": 1}, False)
    assert last["received"] <= last["served"]
    shown = cli("status", link_run)
    assert "deleted: 1 node. Serve " in shown.out
    assert f"to do: measure what the latest request achieved: gnndelete audit {link_run}" in shown.out
    assert "the weights still hold what was deleted" in shown.out
    assert "1 (live)" in shown.out
    assert contents(link_run) == before
