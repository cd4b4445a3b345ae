"""Writing results so that an interruption or a full disk leaves the earlier ones whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gnndelete.errors import RunError

#: How the name of a folder begins in which files are made before they take the place of others.
WRITING = ".writing-"


def writing() -> str:
    """How such a name begins for this process, so that another one can tell whether whoever made it is still there."""
    return f"{WRITING}{os.getpid()}-"


def write_all(folder: Path, contents: Mapping[str, bytes], private: bool = False) -> None:
    """Write several files into a folder: all are complete on disk before the first one replaces an older one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=writing()) as temporary:
            for name, content in contents.items():
                part = Path(temporary) / name
                with part.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                part.chmod(0o600 if private else 0o644)
            _replace(Path(temporary), folder, list(contents))
    except OSError as error:
        raise RunError(
            f"could not write to '{folder}' ({error.strerror or error}); earlier files there are unchanged"
        ) from error


def _replace(temporary: Path, folder: Path, names: list[str]) -> None:
    """Move complete files into place; where one cannot be moved, those before it are put back as they were."""
    earlier = {name: temporary / f"earlier-{name}" for name in names if (folder / name).is_file()}
    for name, kept in earlier.items():
        try:
            os.link(folder / name, kept)
        except OSError:  # a file system without hard links
            shutil.copy2(folder / name, kept)
    moved: list[str] = []
    try:
        for name in names:
            (temporary / name).replace(folder / name)
            moved.append(name)
    except BaseException:
        for name in moved:
            if name in earlier:
                os.replace(earlier[name], folder / name)
            else:
                (folder / name).unlink()
        raise


def write(path: Path, content: bytes, private: bool = False) -> None:
    """Write one file completely or not at all."""
    write_all(path.parent, {path.name: content}, private)
