"""Several files written at once by a process that is killed at any moment: afterwards all are old, or all are new."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gnndelete.io.files import WRITING, commit, tidy, writing

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork to kill a child of")


def _files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


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
        new = {run / "state.json": b"new", run / "out" / "a.json": b"new", run / "out" / "b.json": b"new"}
        commit(new, remove=[run / "out" / "gone.json"])
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_whenever_it_is_killed_all_files_are_old_or_all_are_new(tmp_path: Path) -> None:
    old = {"state.json": "old", "out/a.json": "old", "out/gone.json": "old"}
    new = {"state.json": "new", "out/a.json": "new", "out/b.json": "new"}
    seen, lived, event = set(), False, 0
    while not lived:
        event += 1
        run = tmp_path / str(event)
        for name, content in old.items():
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text(content)
        lived = _killed_at(event, run)
        tidy(run, run / "out")
        found = _files(run)
        assert found in (old, new), f"killed at event {event}"
        assert not list(run.rglob(f"{WRITING}*")), f"killed at event {event}"
        seen.add(found == new)
        assert event < 200
    assert seen == {False, True}


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{writing()}x").mkdir()
    (tmp_path / f"{WRITING}somebody").mkdir()
    tidy(tmp_path, tmp_path / "nowhere")
    assert len(list(tmp_path.iterdir())) == 2
