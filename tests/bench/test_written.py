"""A report on disk: nothing half-written takes the place of an earlier one, and what is left of it is named."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from gnndelete.bench.written import _own, stale, write
from gnndelete.errors import RunError, SettingError
from gnndelete.io import files as writing

MADE = {
    "index.md": b"gnndelete bench report --out a",
    "paper/a.md": b"gnndelete bench run paper/a",
    "tables/paper-a.csv": b"experiment,task,dataset,model,kind",
}


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
    now = {"index.md": MADE["index.md"], "own/b.md": MADE["paper/a.md"]}
    write(tmp_path, now)
    assert stale(tmp_path, now) == ["tables/paper-a.csv", "paper/a.md"]
    assert "not of this report: tables/paper-a.csv, paper/a.md." in capsys.readouterr().err
    write(tmp_path, {**MADE, **now})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["index.md", "summary.json", "paper/a.md", "tables/paper-a.csv", "figures/a-gap.svg"])
def test_files_of_others_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("MY OWN NOTES")
    with pytest.raises(
        SettingError, match=rf"{name}' was not written by a report and would be lost; give --out another"
    ):
        write(tmp_path, {**MADE, name: MADE.get(name, b"<svg/>")})
    assert files(tmp_path) == {name: b"MY OWN NOTES"}


def test_several_files_of_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("mine")
    (tmp_path / "summary.md").write_text("mine")
    with pytest.raises(SettingError, match=r"index.md', '.*summary.md' were not written by a report .* move them away"):
        write(tmp_path, {**MADE, "summary.md": b"Computed from the rows of the store"})


def test_figures_of_an_earlier_report_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, {**MADE, "figures/a-gap.svg": b"<svg/>", "summary.json": b"[]"})
    write(tmp_path, {**MADE, "figures/a-gap.svg": b"<svg></svg>", "summary.json": b"[1]"})
    assert (tmp_path / "figures/a-gap.svg").read_bytes() == b"<svg></svg>"


def test_every_file_of_the_committed_report_is_known_as_such() -> None:
    results = Path(__file__).parents[2] / "docs/results"
    made = [path for path in results.rglob("*") if path.is_file() and path.name != "results.jsonl"]
    assert made
    assert [path for path in made if not _own(path, results)] == []
