"""``gnndelete close``: ids go, deletions stay."""

from __future__ import annotations

from pathlib import Path

import pytest

import gnndelete as gd

from .conftest import Cli, contents, latest, opened


def test_ids_go_and_deletions_stay(cli: Cli, link_run: Path) -> None:
    assert cli("close", link_run).code == 2  # nothing was deleted
    for node in (4, 17):
        done = cli("delete", link_run, "--node", node, "--lam", 0.3, "--request-id", f"r{node}", "--json")
        assert done.code == 0, done.err
    model, graph, task = opened(link_run)
    before = contents(link_run)
    adapter = contents(latest(link_run))["adapter_model.safetensors"]
    closed = cli("close", link_run, "--json")
    assert (closed.code, closed.values["applied"], closed.values["counts"]) == (0, True, {"nodes": 2})
    assert set(closed.values["commitments"]) == {"1", "2"}
    after = contents(link_run)
    gone = {"versions/0001/state.json", "versions/0002/state.json"}
    assert before.keys() - after.keys() == gone
    assert all(before[name] == after[name] for name in before.keys() - gone - {"current"})
    assert contents(latest(link_run))["adapter_model.safetensors"] == adapter
    remaining = gd.Deletion(nodes=[4, 17]).remaining(graph.data)
    assert gd.load(latest(link_run), model, remaining, task=task).predict([(1, 2)]).isfinite().all()
    assert cli("verify", link_run).code == 0
    assert cli("status", link_run, "--json").values["closed"]
    for refused in (
        cli("delete", link_run, "--node", 5),
        cli("delete", link_run, "--node", 5, "--fresh"),
        cli("audit", link_run),
    ):
        assert (refused.code, "is closed" in refused.sentence) == (2, True)
    repeated = cli("delete", link_run, "--node", 4, "--request-id", "r4", "--json")
    assert (repeated.code, repeated.values["repeated"], repeated.values["version"]) == (0, True, 1)
    again = cli("close", link_run, "--json")
    assert (again.code, again.values["version"]) == (0, closed.values["version"])


def test_what_a_killed_close_left_is_erased_by_the_next(
    cli: Cli, link_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("delete", link_run, "--node", 4, "--lam", 0.3).code == 0
    state = latest(link_run) / "state.json"
    content = state.read_bytes()
    assert cli("close", link_run).code == 0
    state.write_bytes(content)
    said = cli("verify", link_run, "--json").values["problems"]
    assert said == [f"'{state}' was to be erased when the run was closed: close it again"]
    assert cli("close", link_run).code == 0
    assert not state.exists()
    assert cli("verify", link_run).code == 0
