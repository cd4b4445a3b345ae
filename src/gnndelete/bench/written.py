"""The files of a report on disk: all are complete before the first takes the place of an older one."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from gnndelete.errors import RunError, some

#: What reports consist of, and the folders they are in.
_SUFFIXES = (".md", ".csv", ".tex", ".svg", ".png")
_FOLDERS = ("tables", "figures", "own", "paper", "beyond")


def write(folder: Path, made: Mapping[str, bytes]) -> None:
    """Put files by their paths into a folder, the index last; say which ones an earlier report has left there."""
    moved = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".writing-") as temporary:
            for path, content in made.items():
                _write(Path(temporary) / path, content)
            for path in sorted(made, key=lambda path: path == "index.md"):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(temporary) / path).replace(folder / path)
                moved += 1
    except OSError as error:
        now = f"{moved} of {len(made)} files there are new by now, so write them again" if moved else ""
        raise RunError(
            f"could not write to '{folder}' ({error.strerror or error}); {now or 'earlier files there are unchanged'}"
        ) from error
    left = stale(folder, made)
    if left:
        print(f"In {folder}, and not of this report: {some(left)}.", file=sys.stderr)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)


def stale(folder: Path, made: Collection[str]) -> list[str]:
    """Files of the kind that reports write, in the folders that they write to, which are not of this one."""
    there = [path for name in _FOLDERS for path in sorted((folder / name).glob("*")) if path.suffix in _SUFFIXES]
    names = [path.relative_to(folder).as_posix() for path in there if path.is_file()]
    return [name for name in names if name not in made]
