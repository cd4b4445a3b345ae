"""The files of a report on disk: all are complete before the first takes the place of an older one, and of no other file."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from gnndelete.errors import SettingError, some
from gnndelete.io.files import commit, tidy

#: What reports consist of, and the folders they are in.
_SUFFIXES = (".md", ".csv", ".tex", ".svg", ".png")
_FOLDERS = ("tables", "figures", "own", "paper", "beyond")

#: What every report has written into its files, by name or by kind. Others, such as figures, belong to the two first ones.
_MARKS = {
    "index.md": b"gnndelete bench report",
    "summary.md": b"Computed from the rows of the store",
    ".md": b"gnndelete bench run",
    ".csv": b"experiment,task,dataset,model,",
    ".tex": b"made by gnndelete bench report",
}
_FIRST = ("index.md", "summary.md")


def write(folder: Path, made: Mapping[str, bytes]) -> None:
    """Put files by their paths into a folder, the index last; say which ones an earlier report has left there."""
    tidy(folder, *(folder / name for name in _FOLDERS), below=False)
    _refuse_foreign(folder, made)
    commit({folder / path: made[path] for path in sorted(made, key=lambda path: path == "index.md")})
    left = stale(folder, made)
    if left:
        print(f"In {folder}, and not of this report: {some(left)}.", file=sys.stderr)


def stale(folder: Path, made: Collection[str]) -> list[str]:
    """Files of the kind that reports write, in the folders that they write to, which are not of this one."""
    there = [path for name in _FOLDERS for path in sorted((folder / name).glob("*")) if path.suffix in _SUFFIXES]
    names = [path.relative_to(folder).as_posix() for path in there if path.is_file()]
    return [name for name in names if name not in made]


def _refuse_foreign(folder: Path, made: Iterable[str]) -> None:
    """Refuse to take the place of a file that no report has written."""
    there = [folder / path for path in sorted(made) if (folder / path).is_file()]
    foreign = [f"'{path}'" for path in there if not _own(path, folder)]
    if foreign:
        was, it = ("was", "it") if len(foreign) == 1 else ("were", "them")
        raise SettingError(
            f"{some(foreign)} {was} not written by a report and would be lost; give --out another folder, or move {it} away"
        )


def _own(path: Path, folder: Path) -> bool:
    """Whether a report has written a file: its own text says so, or that of the files it belongs to."""
    relative = path.relative_to(folder).as_posix()
    mark = _MARKS.get(relative) or _MARKS.get(path.suffix)
    if mark is not None:
        return mark in path.read_bytes()
    return any(_own(folder / name, folder) for name in _FIRST if (folder / name).is_file())
