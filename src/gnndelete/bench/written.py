"""The files of a report on disk: all are complete before the first takes the place of an older one."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from gnndelete.errors import some
from gnndelete.files import commit, tidy

#: What reports consist of, and the folders they are in.
_SUFFIXES = (".md", ".csv", ".tex", ".svg", ".png")
_FOLDERS = ("tables", "figures", "own", "paper", "beyond")


def write(folder: Path, made: Mapping[str, bytes]) -> None:
    """Put files by their paths into a folder, the index last; say which ones an earlier report has left there."""
    tidy(folder, *(folder / name for name in _FOLDERS), below=False)
    commit({folder / path: made[path] for path in sorted(made, key=lambda path: path == "index.md")})
    left = stale(folder, made)
    if left:
        print(f"In {folder}, and not of this report: {some(left)}.", file=sys.stderr)


def stale(folder: Path, made: Collection[str]) -> list[str]:
    """Files of the kind that reports write, in the folders that they write to, which are not of this one."""
    there = [path for name in _FOLDERS for path in sorted((folder / name).glob("*")) if path.suffix in _SUFFIXES]
    names = [path.relative_to(folder).as_posix() for path in there if path.is_file()]
    return [name for name in names if name not in made]
