"""Folders of large arrays: written piece by piece, resumed after a kill, memory-mapped, and checked byte by byte.

A folder holds one file per array, without a header, and ``manifest.json`` with their types, shapes and digests. `Draft` writes
them. A file only grows, and ``draft.json`` holds the sizes that were reached at the last `Draft.commit`: a draft that is opened
again cuts its files there and goes on. The manifest comes last, so a folder that has one is complete.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from gnndelete.errors import AdapterError, SettingError, StorageError, why
from gnndelete.io.files import write

MANIFEST, DRAFT = "manifest.json", "draft.json"

#: Bytes of a file that have a digest of their own, so that a damaged place can be named.
DIGEST_BYTES = 1 << 26

_FORMAT = 1
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
        state = self._state()
        if state is not None and state["kind"] == kind and state["identity"] == self.identity:
            self.sizes, self.facts = state["sizes"], state["facts"]
            for name, size in self.sizes.items():
                os.truncate(folder / name, size)
        elif state is not None:
            for name in state["sizes"]:
                (folder / name).unlink(missing_ok=True)

    def _state(self) -> dict[str, Any] | None:
        try:
            state = json.loads((self.folder / DRAFT).read_text())
            return state if all((self.folder / name).exists() for name in state["sizes"]) else None
        except (OSError, ValueError, KeyError):
            return None

    def append(self, name: str, array: np.ndarray) -> None:
        """Add the numbers of an array to the end of a file."""
        if name not in self._open:
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
        files = {
            name: {"dtype": dtype, "shape": list(shape), "sha256": list(_digests(self.folder / name))}
            for name, (dtype, shape) in arrays.items()
        }
        manifest = {"format": _FORMAT, "kind": self.kind, "identity": self.identity, "facts": facts, "files": files}
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
        manifest, problem = _manifest(folder)
        if manifest is None or manifest["kind"] != kind:
            begun = (folder / DRAFT).exists()
            reason = "its making was not finished" if begun else problem or f"it holds a '{(manifest or {})['kind']}'"
            raise AdapterError(
                f"'{folder}' is no {kind} ({reason})", "make it again; what is there is used" if begun else ""
            )
        self.identity: dict[str, Any] = manifest["identity"]
        self.facts: dict[str, Any] = manifest["facts"]
        self.files: dict[str, Any] = manifest["files"]
        self.digest: str = manifest["sha256"]
        wrong = [name for name in self.files if _size(folder / name) != self.nbytes(name)]
        if wrong:
            raise AdapterError(f"'{folder / wrong[0]}' is missing or cut off", "restore the folder from a backup")

    def nbytes(self, name: str) -> int:
        """The size of a file."""
        file = self.files[name]
        return int(np.dtype(file["dtype"]).itemsize * np.prod(file["shape"], dtype=np.int64))

    def tensor(self, name: str) -> Tensor:
        """An array as a tensor that is read from the disk as it is used. Writing into it does not reach the file."""
        file = self.files[name]
        return _map(self.folder / name, file["dtype"], file["shape"])


def is_arrays(folder: Path) -> bool:
    """Whether a folder is one of arrays, complete or not."""
    return (folder / MANIFEST).exists() or (folder / DRAFT).exists()


def problems(folder: Path) -> list[str]:
    """Everything in a folder that is not as it was written; every byte is read."""
    manifest, problem = _manifest(folder)
    if manifest is None:
        begun = (folder / DRAFT).exists()
        return [
            f"'{folder}' is not finished; what begun it goes on where it stopped" if begun else f"'{folder}': {problem}"
        ]
    found = []
    for name, file in manifest["files"].items():
        path, expected = folder / name, file["sha256"]
        try:
            digests = list(_digests(path))
        except OSError as error:
            found.append(f"'{path}' cannot be read ({why(error)})")
            continue
        if len(digests) != len(expected):
            found.append(f"'{path}' has {_size(path):,} bytes, not as many as were written")
        for number, (one, other) in enumerate(zip(digests, expected, strict=False)):
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


def _manifest(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The manifest of a folder, or why there is none."""
    try:
        text = (folder / MANIFEST).read_text()
        manifest = json.loads(text)
        expected = manifest.pop("sha256")
        if expected != _digest(manifest) or text != _text({**manifest, "sha256": expected}):
            return None, "the manifest is not what was written"
        if manifest["format"] != _FORMAT:
            return None, f"it has the format {manifest['format']}, and this version reads {_FORMAT}"
        return {**manifest, "sha256": expected}, ""
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return None, f"the manifest cannot be read: {why(error)}"


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
