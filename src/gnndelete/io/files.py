"""Writing results so that an interruption, a full disk or a kill leaves all of them as they were, or all of them new."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gnndelete.errors import RunError, StorageError

#: How the name of a folder begins in which files are made before they take the place of others.
WRITING = ".writing-"

#: What an exchange was about to do, in every folder that takes part in it.
JOURNAL = "journal.json"


def commit(contents: Mapping[Path, bytes], remove: Iterable[Path] = (), private: Collection[Path] = ()) -> None:
    """Write all files and remove others, or, on any error and any interrupt, leave every one of them as it was.

    Each file is exchanged in one step, once all of them are complete and a journal says what is to be done: a process that is
    killed leaves no half-written file, and `tidy` does the rest.
    """
    for path in contents:
        if path.is_dir():
            raise RunError(
                f"could not write the file '{path}' (a folder has that name), and earlier files there are unchanged; move that "
                "folder away, or write to another place"
            )
    undo, where = ExitStack(), Path()
    staging: dict[Path, Any] = {}
    remove = [path for path in remove if path.exists()]
    try:
        for folder in {path.parent for path in (*contents, *remove)}:
            where = folder
            _make(folder, undo)
            staging[folder] = tempfile.TemporaryDirectory(dir=folder, prefix=writing(), ignore_cleanup_errors=True)
            undo.callback(staging[folder].cleanup)
        for path, content in contents.items():
            where = path.parent
            _write(Path(staging[path.parent].name) / path.name, content, 0o600 if path in private else 0o644)
        journal = _journal({folder: Path(own.name) for folder, own in staging.items()}, contents, remove)
        for folder, own in staging.items() if len(contents) + len(remove) > 1 else ():
            where = folder
            _write(Path(own.name) / f"{JOURNAL}.part", journal, 0o600)
            os.replace(Path(own.name) / f"{JOURNAL}.part", Path(own.name) / JOURNAL)
        for path in [*contents, *remove]:
            where = path.parent
            new = Path(staging[path.parent].name) / path.name
            old = new.with_name(f"{path.name}.before")
            undo.callback(_put_back, path, _keep(path, old))
            if path in contents:
                new.replace(path)
            else:
                path.unlink()
    except BaseException as error:
        for own in staging.values():
            (Path(own.name) / JOURNAL).unlink(missing_ok=True)
        undo.close()
        if isinstance(error, OSError):
            raise StorageError(
                f"could not write to '{where}' ({error.strerror or error}); earlier files there are unchanged"
            ) from error
        raise
    for temporary in staging.values():
        temporary.cleanup()


def tidy(*folders: Path, below: bool = True) -> list[Path]:
    """Finish what a killed process had begun to exchange in some folders or below, and remove what it left of the rest.

    Gives back the folders in which something was finished. What is left may hold what was deleted, so that it must not stay;
    what a living process is writing is left alone.
    """
    finished = []
    for folder in folders:
        look = folder.rglob if below else folder.glob
        for left in sorted(look(f"{WRITING}*")) if folder.is_dir() else []:
            if not left.is_dir() or _alive(left):
                continue
            try:
                if (left / JOURNAL).is_file() and _finish(json.loads((left / JOURNAL).read_text())):
                    finished.append(folder)
                shutil.rmtree(left, ignore_errors=True)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(
                    f"'{left}' was left by a process that was killed, and cannot be finished ({error}); see to the folder's "
                    "permissions, or remove it and ask again"
                ) from error
    return finished


def writable(*folders: Path) -> None:
    """Refuse folders that could not be written to, before any work is done; none of them is made."""
    for folder in folders:
        there = folder.absolute()
        while not there.exists():
            there = there.parent
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError as error:
            raise RunError(f"could not write to '{folder}' ({error.strerror or error}); nothing was done") from error


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """A folder that is there meanwhile, with those above it; of what had to be made, empty folders go again in the end."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for each in new:
            try:
                each.rmdir()
            except OSError:  # something is in it
                break


def _journal(staging: Mapping[Path, Path], contents: Iterable[Path], remove: Iterable[Path]) -> bytes:
    moves = [[str((staging[path.parent] / path.name).absolute()), str(path.absolute())] for path in contents]
    values = {
        "moves": moves,
        "remove": [str(path.absolute()) for path in remove],
        "folders": [str(own.absolute()) for own in staging.values()],
    }
    return json.dumps(values).encode()


def _finish(journal: Mapping[str, Any]) -> bool:
    """Do what is left of an exchange, and clear up; whether there was anything to do. It may be interrupted as well.

    An exchange begins once every folder has the journal, and folders go once it is over: where one lacks it, nothing of the
    exchange was done, or all of it.
    """
    begun = all((Path(folder) / JOURNAL).is_file() for folder in journal["folders"])
    if begun:
        for new, path in journal["moves"]:
            if os.path.exists(new):
                os.replace(new, path)
        for path in journal["remove"]:
            Path(path).unlink(missing_ok=True)
    for folder in journal["folders"]:
        shutil.rmtree(folder, ignore_errors=True)
    return begun


def _alive(left: Path) -> bool:
    """Whether the process that made such a folder is there; one whose name does not say who made it is left alone."""
    number = left.name.removeprefix(WRITING).partition("-")[0]
    if not number.isdigit():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _keep(path: Path, copy: Path) -> Path | None:
    """A second name of an existing file, which survives that its first one is given to another."""
    if not path.exists():
        return None
    try:
        os.link(path, copy)
    except OSError:  # a file system without hard links
        shutil.copy2(path, copy)
    return copy


def _put_back(path: Path, copy: Path | None) -> None:
    if copy is None:
        path.unlink(missing_ok=True)
    else:
        os.replace(copy, path)


def _make(folder: Path, undo: ExitStack) -> None:
    if folder.is_dir():
        return
    _make(folder.parent, undo)
    folder.mkdir(exist_ok=True)
    undo.callback(folder.rmdir)


def _write(path: Path, content: bytes, mode: int) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(mode)


def writing() -> str:
    """How such a name begins for this process, so that another one can tell whether whoever made it is still there."""
    return f"{WRITING}{os.getpid()}-"


def write_all(folder: Path, contents: Mapping[str, bytes], private: bool = False) -> None:
    """Write several files into a folder, or none of them."""
    files = {folder / name: content for name, content in contents.items()}
    commit(files, private=files if private else ())


def write(path: Path, content: bytes, private: bool = False) -> None:
    """Write one file completely or not at all."""
    write_all(path.parent, {path.name: content}, private)
