"""A report on disk: nothing half-written takes the place of an earlier one, and what is left of it is named."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from gnndelete import files as writing
from gnndelete.bench.written import stale, write
from gnndelete.errors import RunError

MADE = {"index.md": b"i", "paper/a.md": b"a", "tables/paper-a.csv": b"c"}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_there(tmp_path: Path) -> None:
    write(tmp_path / "out", MADE)
    assert files(tmp_path / "out") == MADE


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, MADE)
    written_so_far: list[Path] = []
    complete = writing._write

    def full(path: Path, content: bytes, mode: int) -> None:
        if len(written_so_far) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written_so_far.append(path)
        complete(path, content, mode)

    monkeypatch.setattr(writing, "_write", full)
    with pytest.raises(RunError, match=r"No space left on device\); earlier files there are unchanged"):
        write(tmp_path, {name: b"new" for name in MADE})
    assert files(tmp_path) == MADE


def test_a_folder_in_the_way_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, MADE)
    (tmp_path / "tables/paper-b.csv/x").mkdir(parents=True)
    with pytest.raises(RunError, match="earlier files there are unchanged"):
        write(tmp_path, {**{name: b"new" for name in MADE}, "tables/paper-b.csv": b"b"})
    assert files(tmp_path) == MADE


def test_what_an_earlier_report_left_is_named(tmp_path: Path, capsys: Any) -> None:
    write(tmp_path, MADE)
    (tmp_path / "results.jsonl").write_text("")
    now = {"index.md": b"i", "own/b.md": b"b"}
    write(tmp_path, now)
    assert stale(tmp_path, now) == ["tables/paper-a.csv", "paper/a.md"]
    assert "not of this report: tables/paper-a.csv, paper/a.md." in capsys.readouterr().err
    write(tmp_path, {**MADE, **now})
    assert capsys.readouterr().err == ""
