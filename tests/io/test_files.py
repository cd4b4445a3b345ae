"""Writing: complete or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gnndelete.errors import RunError
from gnndelete.io.files import write, write_all

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


@pytest.mark.parametrize("stage", ["fsync", "chmod", "first", "second", "third"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_earlier_files_whole(tmp_path, monkeypatch, stage, error):
    write_all(tmp_path, OLD)

    def fail(*_, **__):
        raise error

    if stage == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    elif stage == "chmod":
        monkeypatch.setattr(Path, "chmod", fail)
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
