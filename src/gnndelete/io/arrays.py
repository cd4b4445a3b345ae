"""Folders of large arrays: written piece by piece, resumed after a kill, memory-mapped, and checked byte by byte.

A folder holds one file per array, without a header, and ``manifest.json`` with their types, shapes and digests. `Draft` writes
them. A file only grows, and ``draft.json`` holds the sizes that were reached at the last `Draft.commit`: a draft that is opened
again cuts its files there and goes on. The manifest comes last, so a folder that has one is complete.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from torch import Tensor

from gnndelete.errors import AdapterError, SettingError, StorageError, bounded, why
from gnndelete.io.files import write
from gnndelete.io.versions import Count, Digest, read_file, refuse_links

MANIFEST, DRAFT = "manifest.json", "draft.json"

#: Bytes of a file that have a digest of their own, so that a damaged place can be named.
DIGEST_BYTES = 1 << 26

#: A manifest holds a line per array and per digest.
MAX_MANIFEST_BYTES = 1 << 28

#: The name of an array: no path leads out of the folder.
NAME = r"^(parts/)?[A-Za-z]\w*(\.\d+)?$"
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=100)]
Kind = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


class _File(BaseModel):
    """One array in a manifest."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: Kind
    shape: list[Count]
    sha256: list[Digest]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape, start=np.dtype(self.dtype).itemsize)


class _Manifest(BaseModel):
    """What a folder of arrays holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1] = 1
    kind: str
    identity: dict[str, Any]
    facts: dict[str, Any]
    files: dict[Name, _File]


class _Draft(BaseModel):
    """How far the writing of a folder has come."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str
    identity: dict[str, Any]
    sizes: dict[Name, Count]
    facts: dict[str, Any]


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def in_bytes(memory: int | str) -> int:
    """An amount of memory as a number of bytes.

    >>> in_bytes("2GB"), in_bytes("512 MB"), in_bytes(1000)
    (2147483648, 536870912, 1000)
    """
    text = str(memory).strip().upper().removesuffix("B").removesuffix("I").strip()
    number, unit = (text[:-1], text[-1:]) if text[-1:].isalpha() else (text, "")
    try:
        found = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError):
        found = 0
    if found < 1:
        raise SettingError(f"'memory' must be an amount such as '2GB' (got {memory!r})")
    return found


class Draft:
    """A folder of arrays that is being written.

    Args:
        folder: Where to write; it is made.
        kind: What the folder is, such as ``"graph"``.
        identity: Plain values. A draft that was begun with others is thrown away and begun again.

    Attributes:
        facts: What earlier commits have noted.
    """

    def __init__(self, folder: Path, kind: str, identity: Mapping[str, Any]) -> None:
        self.folder, self.kind, self.identity = folder, kind, dict(identity)
        self.sizes: dict[str, int] = {}
        self.facts: dict[str, Any] = {}
        self._open: dict[str, BinaryIO] = {}
        self._garbage: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)  # what is written would leave the folder
        state = self._state()
        if state is not None and state.kind == kind and state.identity == self.identity:
            self.sizes, self.facts = state.sizes, state.facts
            for name, size in self.sizes.items():
                os.truncate(folder / name, size)
        elif state is not None:
            for name in state.sizes:
                (folder / name).unlink(missing_ok=True)

    def _state(self) -> _Draft | None:
        try:
            state = _Draft.model_validate(json.loads(read_file(self.folder / DRAFT, MAX_MANIFEST_BYTES)))
        except (OSError, ValueError, RecursionError):
            return None
        return state if all(_size(self.folder / name) >= size for name, size in state.sizes.items()) else None

    def append(self, name: str, array: np.ndarray) -> None:
        """Add the numbers of an array to the end of a file."""
        if name not in self._open:
            if not _is_name(name):
                raise SettingError(f"'{bounded(name, 40)}' is no name of an array; use letters, digits and underscores")
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            self._open[name] = open(path, "ab" if name in self.sizes else "wb")  # noqa: SIM115  (closed by `commit`)
            self.sizes.setdefault(name, 0)
        content = np.ascontiguousarray(array)
        try:
            self._open[name].write(content.reshape(-1).view(np.uint8).data if content.size else b"")
        except OSError as error:
            raise StorageError(f"could not write to '{self.folder}' ({error.strerror or error})") from error
        self.sizes[name] += content.nbytes

    def commit(self, **facts: Any) -> None:
        """Bring everything to disk, and note facts: a draft that is killed later goes on from here."""
        try:
            for file in self._open.values():
                file.flush()
                os.fsync(file.fileno())
                file.close()
        except OSError as error:
            raise StorageError(f"could not write to '{self.folder}' ({error.strerror or error})") from error
        self._open.clear()
        self.facts |= facts
        state = {"kind": self.kind, "identity": self.identity, "sizes": self.sizes, "facts": self.facts}
        write(self.folder / DRAFT, json.dumps(state).encode(), private=True)
        for name in self._garbage - self.sizes.keys():
            (self.folder / name).unlink(missing_ok=True)
        self._garbage.clear()

    def map(self, name: str, dtype: str, shape: Iterable[int] | None = None) -> Tensor:
        """A file as a tensor, as far as it is committed; nothing is read yet."""
        count = self.sizes.get(name, 0) // np.dtype(dtype).itemsize
        return _map(self.folder / name, dtype, [count] if shape is None else list(shape))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that are not needed any more, once the next commit has forgotten them."""
        for name in names:
            if name in self._open:
                self._open.pop(name).close()
            self.sizes.pop(name, None)
            self._garbage.add(name)

    def close(self, arrays: Mapping[str, tuple[str, Iterable[int]]], **facts: Any) -> None:
        """Write the manifest of some arrays, each with its type and shape, and remove all other files of the draft."""
        self.remove([name for name in self.sizes if name not in arrays])
        self.commit()
        files: Any = {
            name: {"dtype": dtype, "shape": list(shape), "sha256": list(_digests(self.folder / name))}
            for name, (dtype, shape) in arrays.items()
        }
        manifest = _Manifest(kind=self.kind, identity=self.identity, facts=facts, files=files).model_dump()
        write(self.folder / MANIFEST, _text({**manifest, "sha256": _digest(manifest)}).encode(), private=True)
        (self.folder / DRAFT).unlink(missing_ok=True)


class Arrays:
    """A complete folder of arrays, open for reading.

    Args:
        folder: The folder that a `Draft` wrote.
        kind: What it must be.

    Raises:
        AdapterError: If there is no such folder, or it is damaged or unfinished.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        manifest, digest, problem = _manifest(folder)
        if manifest is None or manifest.kind != kind:
            begun = (folder / DRAFT).exists()
            reason = "its making was not finished" if begun else problem or "it holds something else"
            raise AdapterError(
                f"'{folder}' is no {kind} ({reason})", "make it again; what is there is used" if begun else ""
            )
        self.identity, self.facts, self.files, self.digest = manifest.identity, manifest.facts, manifest.files, digest
        wrong = [name for name in self.files if _size(folder / name) != self.nbytes(name)]
        if wrong:
            raise AdapterError(f"'{folder / wrong[0]}' is missing or cut off", "restore the folder from a backup")

    def nbytes(self, name: str) -> int:
        """The size of a file."""
        return self.files[name].nbytes

    def tensor(self, name: str) -> Tensor:
        """An array as a tensor that is read from the disk as it is used. Writing into it does not reach the file."""
        file = self.files[name]
        return _map(self.folder / name, file.dtype, file.shape)


def is_arrays(folder: Path) -> bool:
    """Whether a folder is one of arrays, complete or not."""
    return (folder / MANIFEST).exists() or (folder / DRAFT).exists()


def problems(folder: Path) -> list[str]:
    """Everything in a folder that is not as it was written; every byte is read."""
    manifest, _, problem = _manifest(folder)
    if manifest is None:
        begun = (folder / DRAFT).exists()
        return [
            f"'{folder}' is not finished; what begun it goes on where it stopped" if begun else f"'{folder}': {problem}"
        ]
    found = []
    for name, file in manifest.files.items():
        path = folder / name
        if (size := _size(path)) != file.nbytes:
            found.append(f"'{path}' is gone" if size < 0 else f"'{path}' has {size:,} bytes of {file.nbytes:,}")
            continue
        try:
            digests = list(_digests(path))
        except OSError as error:
            found.append(f"'{path}' cannot be read ({why(error)})")
            continue
        if len(digests) != len(file.sha256):
            found.append(f"'{folder / MANIFEST}' does not have a digest of every part of '{path}'")
        for number, (one, other) in enumerate(zip(digests, file.sha256, strict=False)):
            if one != other:
                found.append(f"'{path}' is not what was written, from byte {number * DIGEST_BYTES:,} on")
    return found


def release(tensor: Tensor) -> None:
    """Let go of the memory that a mapped file has come to occupy. It is read again where it is used again.

    The pages stay in the system's cache; they only leave the process, whose size then says what it holds itself.
    """
    if sys.platform != "linux" or not tensor.numel():
        return
    page = os.sysconf("SC_PAGE_SIZE")
    start = tensor.data_ptr() // page * page
    length = tensor.data_ptr() + tensor.numel() * tensor.element_size() - start
    ctypes.CDLL(None, use_errno=True).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), 4)  # MADV_DONTNEED


def _map(path: Path, dtype: str, shape: list[int]) -> Tensor:
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    size = int(np.prod(shape, dtype=np.int64))
    if not size:
        return torch.empty(shape, dtype=kind)
    return torch.from_file(str(path), shared=False, size=size, dtype=kind).view(shape)


def _manifest(folder: Path) -> tuple[_Manifest | None, str, str]:
    """The manifest of a folder and its digest, or why there is none."""
    try:
        content = read_file(folder / MANIFEST, MAX_MANIFEST_BYTES)
        values = json.loads(content)
        expected = values.pop("sha256")
        if expected != _digest(values) or content != _text({**values, "sha256": expected}).encode():
            return None, "", "the manifest is not what was written"
        return _Manifest.model_validate(values), expected, ""
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        return None, "", f"'{bounded(place, 60)}' in the manifest is not what this version writes"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return None, "", f"the manifest cannot be read: {bounded(why(error), 200)}"


def _is_name(name: str) -> bool:
    return re.fullmatch(NAME, name) is not None and len(name) <= 100


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=1) + "\n"


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _digests(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        while content := file.read(DIGEST_BYTES):
            yield hashlib.sha256(content).hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1
