"""Writing: complete or not at all."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from gnndelete.errors import RunError
from gnndelete.io.files import STAGING_PREFIX, commit, hold, tidy, write, write_all

OLD = {"a": b"old a", "b": b"old b"}
NEW = {"a": b"new a", "b": b"new b", "c": b"new c"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_are_replaced_and_nothing_else_is_left(tmp_path):
    folder = tmp_path / "deep" / "er"
    write_all(folder, OLD)
    assert contents(folder) == OLD
    write_all(folder, NEW)
    assert contents(folder) == NEW


def test_modes(tmp_path):
    write(tmp_path / "secret", b"x", private=True)
    write(tmp_path / "open", b"x")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o644
    (tmp_path / "open").chmod(0o666)
    write(tmp_path / "open", b"y", private=True)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o600


@pytest.mark.parametrize("stage", ["fsync", "first", "second", "third"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_earlier_files_whole(tmp_path, monkeypatch, stage, error):
    write_all(tmp_path, OLD)

    def fail(*_, **__):
        raise error

    if stage == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        real, left = Path.replace, ["first", "second", "third"].index(stage)

        def replace(self, target):
            nonlocal left
            left -= 1
            return fail() if left < 0 else real(self, target)

        monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises((RunError, KeyboardInterrupt)) as caught:
        write_all(tmp_path, NEW)
    monkeypatch.undo()
    assert contents(tmp_path) == OLD
    if isinstance(caught.value, RunError):
        assert str(tmp_path) in str(caught.value)
        assert "No space left" in str(caught.value)
        assert caught.value.exit_code == 1


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="could not write"):
        write_all(tmp_path / "file", NEW)
    assert (tmp_path / "file").read_text() == "mine"


def _killed_at(event: int, run: Path) -> bool:
    """Commit in a child that dies at the n-th event of the file system; whether it lived to the end."""
    child = os.fork()
    if child == 0:
        left = event

        def count(name: str, _: object) -> None:
            nonlocal left
            left -= name in ("os.rename", "os.remove", "os.mkdir", "os.link", "open")
            if left == 0:
                os._exit(9)

        sys.addaudithook(count)
        new = {run / "out" / "a.json": b"new", run / "out" / "b.json": b"new", run / "state.json": b"new"}
        commit(new, remove=[run / "out" / "gone.json"])
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork to kill a child of")
def test_whenever_it_is_killed_files_are_whole_and_the_last_one_is_new_only_after_all_others(tmp_path: Path) -> None:
    old = {"state.json": "old", "out/a.json": "old", "out/gone.json": "old"}
    new = {"state.json": "new", "out/a.json": "new", "out/b.json": "new"}
    states, lived, event = set(), False, 0
    while not lived:
        event += 1
        run = tmp_path / str(event)
        for name, content in old.items():
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text(content)
        lived = _killed_at(event, run)
        tidy(run)
        found = {str(p.relative_to(run)): p.read_text() for p in sorted(run.rglob("*")) if p.is_file()}
        assert set(found.values()) <= {"old", "new"}, f"killed at event {event}"
        assert found == new if found["state.json"] == "new" else "state.json" in found
        assert not list(run.rglob(f"{STAGING_PREFIX}*")), f"killed at event {event}"
        states.add(found["state.json"])
        assert event < 200
    assert states == {"old", "new"}


def test_what_a_running_process_writes_is_left_and_the_rest_goes_whatever_its_process_number(tmp_path: Path) -> None:
    held, left = (tmp_path / f"{STAGING_PREFIX}{os.getpid()}-{name}" for name in "ab")
    outside = tmp_path / "outside"
    for folder in (held, left, outside):
        folder.mkdir()
    (tmp_path / f"{STAGING_PREFIX}link").symlink_to(outside)
    with hold(held):
        tidy(tmp_path, tmp_path / "nowhere")
        assert {path.name for path in tmp_path.iterdir()} == {held.name, f"{STAGING_PREFIX}link", "outside"}
    write(tmp_path / "file", b"content")  # a writer removes what the one before it left
    assert not held.exists()
