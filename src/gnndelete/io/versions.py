"""A folder that is only ever added to: versions that never change, chained by digests, one writer at a time.

    base/            version 0
    versions/0001/   each version holds its files and manifest.json, which has the digests of them and of the version before
    current          the number and the digest of the latest version
    lock             held by whoever writes

A version is written aside, brought to disk, and made live by one rename. A writer that is killed before that leaves
``versions/.writing``, which the next one removes. Nothing here reads anything outside the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gnndelete.errors import AdapterError, AppliedError, RunError, some
from gnndelete.io.files import sync_folder, write_file

try:
    import fcntl
except ImportError:  # Windows: writers are not kept apart
    fcntl = None  # type: ignore[assignment]

MANIFEST, CURRENT, LOCK, WRITING = "manifest.json", "current", "lock", ".writing"
_RESTORE = "restore the folder from a backup"

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Counts = dict[Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")], Count]
#: The name of a file in a version: no path leads out of its folder.
FileName = Annotated[str, StringConstraints(pattern=r"^(figures/)?\w[\w.-]{0,100}$")]
Text = Annotated[str, StringConstraints(max_length=200)]


class Manifest(BaseModel):
    """What one version holds, and how it came to be.

    Attributes:
        version: Its number, from 0.
        kind: What made it.
        previous: The digest of the manifest of the version before; of an audit, of the version that it is about.
        request_id: The caller's name of the request.
        actor: Who asked.
        received: When the request came in.
        served: When it was done.
        requests: How many requests are in force.
        request: How many elements of each kind this one names.
        counts: How many elements of each kind all of them name.
        base: The fingerprint of the base model.
        graph: The fingerprint of the graph before any deletion.
        remaining: The fingerprint of the graph that is left.
        facts: Further plain values.
        software: Versions of the software.
        files: The digest of every file. That of a file with ids is also a commitment to them: the file holds a salt.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal[1] = 1
    version: Count
    kind: Literal["train", "adopt", "delete", "close", "audit"]
    previous: Digest | None
    request_id: Text | None = None
    actor: Text = ""
    received: AwareDatetime
    served: AwareDatetime
    requests: Count = 0
    request: Counts = {}
    counts: Counts = {}
    base: Digest
    graph: Digest
    remaining: Digest | None = None
    facts: dict[Text, Text | int | float | None] = {}
    software: dict[Text, Text] = {}
    files: dict[FileName, Digest]

    @property
    def digest(self) -> str:
        """The digest of all fields, which the manifest on disk carries too."""
        return _sha256(self.model_dump_json(indent=1).encode())

    def to_bytes(self) -> bytes:
        """The content of ``manifest.json``."""
        return (json.dumps({**self.model_dump(mode="json"), "digest": self.digest}, indent=1) + "\n").encode()

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest in a folder; an `AdapterError` where it is damaged or edited."""
        file = folder / MANIFEST
        try:
            content = read_file(file, limit=1_000_000)
            values = json.loads(content)
            digest = values.pop("digest")
            manifest = cls.model_validate_json(json.dumps(values))
            if manifest.digest != digest or manifest.to_bytes() != content:
                raise ValueError("its digest is another")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            said = "a field is wrong" if isinstance(error, ValidationError) else str(error)
            raise AdapterError(f"'{file}' is missing, damaged or edited ({said})", _RESTORE) from None
        return manifest


class Versions:
    """The versions in a folder, as they were when it was opened.

    Args:
        root: The folder.
        anew: Begin with version 0, whatever is there.

    Raises:
        AdapterError: If a link of the chain is missing or was changed, or an older one was put in its place.
    """

    def __init__(self, root: Path, anew: bool = False) -> None:
        self.root = root
        self.chain: list[Manifest] = []
        refuse_links(root)
        while not anew:
            current = self._current()
            self.chain = self._read_chain()
            if not self.chain:
                return
            latest = self.latest  # `current` lags by one version where a writer was killed between its two renames
            if current in ((latest.version, latest.digest), (latest.version - 1, latest.previous)):
                return
            if current == self._current():  # else a writer was at work just now
                raise AdapterError(
                    f"'{root / CURRENT}' does not name version {latest.version}, the latest here: a later one is gone, or "
                    "an older one was put in its place",
                    _RESTORE,
                )

    def _read_chain(self) -> list[Manifest]:
        chain: list[Manifest] = []
        for number in range(_highest(self.root) + 1):
            manifest = Manifest.read(self.folder(number))
            fits = (
                manifest.kind in ("delete", "close") and chain[-1].kind != "close"
                if chain
                else manifest.kind in ("train", "adopt")
            )
            if not fits or (manifest.version, manifest.previous) != (number, chain[-1].digest if chain else None):
                raise AdapterError(f"'{self.folder(number)}' does not follow the version before it", _RESTORE)
            chain.append(manifest)
        return chain

    def _current(self) -> tuple[Any, Any]:
        try:
            current = json.loads(read_file(self.root / CURRENT, limit=1000))
            return current["version"], current["digest"]
        except FileNotFoundError:
            return -1, None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None, None

    @property
    def latest(self) -> Manifest:
        """The manifest of the version that is live."""
        return self.chain[-1]

    def folder(self, version: int | None = None) -> Path:
        """The folder of a version; of the latest one without a number."""
        version = len(self.chain) - 1 if version is None else version
        return self.root / ("base" if version == 0 else f"versions/{version:04}")

    def check(self, *versions: int) -> None:
        """Refuse versions of which a file is missing or has changed."""
        for version in versions:
            if problems := self.problems(version):
                raise AdapterError(some(problems, 3), _RESTORE)

    def problems(self, version: int) -> list[str]:
        """What is wrong with the files of a version. A file that holds ids may be gone once the last version closed it."""
        return folder_problems(self.folder(version), self.chain[version].files, self.erased)

    @property
    def erased(self) -> frozenset[str]:
        """Names of files that were erased from all versions: what the last one before the run was closed had beyond it."""
        if self.latest.kind != "close":
            return frozenset()
        return frozenset(self.chain[-2].files.keys() - self.latest.files.keys())

    def publish(self, make: Callable[[Path], None], private: frozenset[str] = frozenset(), **fields: Any) -> Manifest:
        """Add a version; its files are what ``make`` puts into the folder that it is given. Hold `locked` meanwhile.

        When this returns, the version is on disk and live. After an `AppliedError` it is live too; after any other error the
        folder is as it was.
        """
        number = len(self.chain)
        manifest = Manifest(version=number, previous=self.latest.digest if self.chain else None, files={}, **fields)
        folder = self.root / f"versions/{number:04}" if number else self.root / "base"
        self.chain.append(seal(folder, make, manifest, private, self.root / "versions"))
        try:
            sync_folder(folder.parent)
            self._point()
        except OSError as error:
            raise AppliedError(
                f"version {number} is live, and the disk did not confirm it ({error.strerror or error})",
                f"look with gnndelete verify {self.root}",
            ) from error
        return self.latest

    def _point(self) -> None:
        content = {"version": self.latest.version, "digest": self.latest.digest}
        aside = self.root / f".{CURRENT}"
        aside.unlink(missing_ok=True)
        write_file(aside, (json.dumps(content) + "\n").encode())
        aside.replace(self.root / CURRENT)
        sync_folder(self.root)

    def repair(self) -> None:
        """Finish what a killed writer began: remove what it left, name the latest version, erase what was closed."""
        for left in (self.root / "versions" / WRITING, self.root / "audit" / WRITING):
            shutil.rmtree(left, ignore_errors=True)
        if not self.chain:
            return
        self._point()
        for number in range(len(self.chain)):
            for name in self.erased:
                (self.folder(number) / name).unlink(missing_ok=True)
            if self.erased:
                sync_folder(self.folder(number))


def seal(
    folder: Path,
    make: Callable[[Path], None],
    manifest: Manifest,
    private: frozenset[str] = frozenset(),
    parent: Path | None = None,
) -> Manifest:
    """Write a folder with the files that ``make`` puts into it and their manifest, as a whole; an earlier one is replaced.

    It is completed in ``parent``, by default the folder that will hold it.
    """
    parent = folder.parent if parent is None else parent
    new, writing = not parent.exists(), parent / WRITING
    shutil.rmtree(writing, ignore_errors=True)  # of a writer that was killed
    try:
        writing.mkdir(parents=True)
        make(writing)
        files = {}
        for path in sorted(writing.rglob("*")):
            if path.is_dir():
                sync_folder(path)
                continue
            name = path.relative_to(writing).as_posix()
            if name in private:
                path.chmod(0o600)
            with path.open("rb") as file:
                files[name] = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
        manifest = manifest.model_copy(update={"files": files, "served": datetime.now(UTC)})
        write_file(writing / MANIFEST, manifest.to_bytes())
        sync_folder(writing)
        if folder.exists():
            shutil.rmtree(folder)
        writing.rename(folder)
    except OSError as error:
        raise RunError(
            f"could not write to '{folder}' ({error.strerror or error}); earlier results are unchanged"
        ) from error
    finally:
        shutil.rmtree(writing, ignore_errors=True)
        if new and parent.exists() and not any(parent.iterdir()):
            parent.rmdir()
    return manifest


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Keep other writers out for the length of a block; ``waiting`` is called where one is at work.

    The lock file stays, unless there is nothing else in the folder at the end.
    """
    refuse_links(folder)
    path, held = folder / LOCK, False
    while not held:
        with open(os.open(path, os.O_CREAT | os.O_RDWR, 0o666), "wb") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    waiting()
                    fcntl.flock(file, fcntl.LOCK_EX)
            held = (
                path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino
            )  # else the holder has removed it
            if held:
                try:
                    yield
                finally:
                    if os.listdir(folder) == [LOCK]:
                        path.unlink()


def refuse_links(root: Path) -> None:
    """Refuse a folder in which anything but files and folders lies: a link could lead out of it."""
    for parent, folders, files in os.walk(root):
        for name in (*folders, *files):
            try:
                mode = os.lstat(os.path.join(parent, name)).st_mode
            except FileNotFoundError:  # a writer is at work
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise AdapterError(
                    f"'{os.path.join(parent, name)}' is a link or a device, and everything in '{root}' must be a file",
                    "replace it by what it stands for",
                )


def read_file(path: Path, limit: int) -> bytes:
    """The content of a small file."""
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return content


def folder_problems(folder: Path, files: Mapping[str, str], erased: frozenset[str] = frozenset()) -> list[str]:
    """What differs between the files in a folder and the digests they should have."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    problems = [f"'{found[name]}' belongs to no version" for name in sorted(found.keys() - files.keys() - {MANIFEST})]
    for name, digest in files.items():
        if name in found and name in erased:
            problems.append(f"'{found[name]}' was to be erased when the run was closed: close it again")
        elif name not in found and name not in erased:
            problems.append(f"'{folder / name}' is gone")
        elif name in found:
            with found[name].open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    problems.append(f"'{found[name]}' is not the file that was written")
    return problems


def _highest(root: Path) -> int:
    """The number of the latest version; -1 where there is none."""
    if not (root / "base").is_dir():
        return -1
    names = os.listdir(root / "versions") if (root / "versions").is_dir() else []
    return max((int(name) for name in names if re.fullmatch(r"\d{4,9}", name)), default=0)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
