"""Atomic writes: a file is replaced completely or not at all, and several files together or, on an error, not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gnndelete.errors import RunError, StorageError

try:
    import fcntl
except ImportError:  # Windows: what a killed process left stays
    fcntl = None  # type: ignore[assignment]

#: How the name of a folder begins in which files are completed before they replace others.
STAGING_PREFIX = ".writing-"


def write(path: Path, content: bytes, private: bool = False) -> None:
    """Write one file completely or not at all; a private one can be read by its owner only."""
    write_all(path.parent, {path.name: content}, private)


def write_all(folder: Path, contents: Mapping[str, bytes], private: bool = False) -> None:
    """Write several files into a folder, or, on an error, none of them."""
    files = {folder / name: content for name, content in contents.items()}
    commit(files, private=files if private else ())


def commit(contents: Mapping[Path, bytes], remove: Iterable[Path] = (), private: Collection[Path] = ()) -> None:
    """Write some files and remove others; on an error or an interrupt every file is as it was.

    All new files are complete on disk before the first old one is replaced. A process that is killed in between leaves whole
    files, some of them old. The last of ``contents`` is written after everything else is done: let it be the file that says
    that the others are valid.
    """
    for path in contents:
        if path.is_dir():
            raise RunError(
                f"could not write the file '{path}' (a folder has that name), and earlier files there are unchanged; move that "
                "folder away, or write to another place"
            )
    undo, where = ExitStack(), Path()
    staging: dict[Path, Path] = {}
    remove = [path for path in remove if path.exists()]
    with ExitStack() as held:
        try:
            for folder in {path.parent for path in (*contents, *remove)}:
                where = folder
                new = [each for each in (folder, *folder.parents) if not each.exists()]
                folder.mkdir(parents=True, exist_ok=True)
                for each in reversed(new):
                    undo.callback(each.rmdir)
                tidy(folder, below=False)
                staging[folder] = _held_folder(folder, held)
                undo.callback(shutil.rmtree, staging[folder], ignore_errors=True)
            for path, content in contents.items():
                where = path.parent
                write_file(staging[where] / path.name, content, path in private)
            last = list(contents)[-1:]
            for path in [*(path for path in contents if path not in last), *remove, *last]:
                where = path.parent
                before = staging[where] / f"{path.name}.before"
                if path.exists():
                    _second_name(path, before)
                    undo.callback(os.replace, before, path)
                else:
                    undo.callback(path.unlink, missing_ok=True)
                if path in contents:
                    (staging[where] / path.name).replace(path)
                else:
                    path.unlink()
        except BaseException as error:
            undo.close()
            if isinstance(error, OSError):
                raise StorageError(
                    f"could not write to '{where}' ({error.strerror or error}); earlier files there are unchanged"
                ) from error
            raise
        for folder in staging.values():
            shutil.rmtree(folder, ignore_errors=True)


def _held_folder(folder: Path, held: ExitStack) -> Path:
    """A new staging folder that ``held`` holds. Another writer's `tidy` may take it for a left one before it is held."""
    while True:
        made = Path(tempfile.mkdtemp(dir=folder, prefix=STAGING_PREFIX))
        with ExitStack() as attempt, suppress(FileNotFoundError):
            attempt.enter_context(hold(made))
            if made.exists():
                held.push(attempt.pop_all())
                return made


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep `tidy` from removing a staging folder for the length of a block, or until the process ends."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks, on which `tidy` removes nothing
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def tidy(*folders: Path, below: bool = True) -> None:
    """Remove the staging folders of processes that were killed, in some folders or below: they may hold deleted data.

    Whoever uses one holds it. A process number would not tell: in containers the next command has the same.
    """
    for folder in folders:
        search = folder.rglob if below else folder.glob
        for left in sorted(search(f"{STAGING_PREFIX}*")) if folder.is_dir() else []:
            if left.is_dir() and not left.is_symlink():
                _remove_unheld(left)


def require_writable(*folders: Path) -> None:
    """Refuse folders that cannot be written to, before any work is done; no folder is made."""
    for folder in folders:
        existing = folder.absolute()
        while not existing.exists():
            existing = existing.parent
        try:
            tempfile.TemporaryFile(dir=existing).close()
        except OSError as error:
            raise RunError(f"could not write to '{folder}' ({error.strerror or error}); nothing was done") from error


@contextmanager
def ensure_folder(folder: Path) -> Iterator[None]:
    """Make a folder for the length of a block; new folders that are empty at its end are removed."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for each in new:
            try:
                each.rmdir()
            except OSError:  # it is not empty
                break


def was_begun(folder: Path, mark: str) -> bool:
    """Whether a writer was killed in a folder before it put a file there: its staging folder still has it."""
    return any((left / mark).is_file() for left in folder.glob(f"{STAGING_PREFIX}*"))


def _remove_unheld(folder: Path) -> None:
    """Remove a staging folder that no running process holds; it is held meanwhile, so that nobody begins to use it."""
    if fcntl is None:
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # it is gone, or belongs to another user
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # somebody holds it
        pass
    finally:
        os.close(descriptor)


def _second_name(path: Path, copy: Path) -> None:
    """Give a file a second name, so that it survives when its first name is given to another file."""
    try:
        os.link(path, copy)
    except OSError:  # a file system without hard links
        shutil.copy2(path, copy)


def write_file(path: Path, content: bytes, private: bool = False) -> None:
    """Write a new file to disk; a private one can be read by its owner only, another one by whom the umask allows."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(os.open(path, flags, 0o600 if private else 0o666), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the names of the files in a folder to disk."""
    if os.name == "nt":  # there folders cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
