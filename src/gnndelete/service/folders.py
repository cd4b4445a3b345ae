"""The folder of a model: generations of weights, versions of what is served, and the alias that switches between them.

    generations/0001/     model.pt (model and task), the graph and its ids, base.safetensors (rows of the output), cache/
    versions/000007/      adapter.safetensors (operators), rows.safetensors (rows of the output that changed)
    aliases.json          which version is live, and which was before
    writer/               the lock of the one writer

A *generation* is one set of weights on one graph. A *version* is a generation and a chain of segments on top of it. Both are
written aside, signed, and become real by one rename; the switch is one rename of ``aliases.json``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import load_file as map_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from gnndelete.datasets import NamedGraph, load_graph
from gnndelete.datasets.formats import graph_contents
from gnndelete.errors import AdapterError, RunError
from gnndelete.io.code import load_module
from gnndelete.io.files import STAGING_PREFIX, hold, sync_folder, tidy, write, write_file
from gnndelete.io.versions import locked
from gnndelete.nn.adapter import dump_operators, load_operators
from gnndelete.nn.hooks import Key, Site
from gnndelete.nn.operator import Operator
from gnndelete.service.crypto import canonical, is_signed
from gnndelete.service.home import Keys
from gnndelete.tasks import Task

MANIFEST, ALIASES, LOCK = "manifest.json", "aliases.json", "writer"
MODEL, BASE, CACHE = "model.pt", "base.safetensors", "cache"
ADAPTER, ROWS = "adapter.safetensors", "rows.safetensors"

_RESTORE = "restore the home of the service from a backup"

Operators = list[tuple[Site, Operator]]


@dataclass(frozen=True)
class Changes:
    """Rows of the model's output that a version changed, and nodes that are gone.

    Attributes:
        rows: Per entry of the output, ids and rows.
        gone: Nodes that were deleted: nobody may ask about them.
    """

    rows: dict[Key, tuple[Tensor, Tensor]]
    gone: Tensor


@dataclass(frozen=True)
class Made:
    """A generation in memory.

    Attributes:
        model: The model.
        task: What it was trained for.
        graph: Its graph, with names.
        output: Rows of its output on that graph.
        facts: Plain values for the manifest: digests, how to train, what the rehearsal found.
    """

    model: nn.Module
    task: Task
    graph: NamedGraph
    output: dict[Key, Tensor]
    facts: dict[str, Any] = field(default_factory=dict)


class ModelFolder:
    """The folder of one model.

    Args:
        path: The folder.
        keys: They sign manifests, and tell which were signed by this service.
    """

    def __init__(self, path: Path, keys: Keys) -> None:
        self.path, self._keys = path, keys

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers of this machine out."""
        folder = self.path / LOCK
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            yield

    def tidy(self) -> None:
        """Remove what writers left that were killed."""
        tidy(self.path, self.path / "versions", self.path / "generations", below=False)

    # Aliases

    @property
    def aliases(self) -> dict[str, int | None]:
        """The numbers of the versions ``live`` and ``previous``."""
        try:
            found = json.loads((self.path / ALIASES).read_bytes())
            return {"live": int(found["live"]), "previous": found["previous"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AdapterError(f"'{self.path / ALIASES}' cannot be read ({error})", _RESTORE) from None

    def stamp(self) -> tuple[int, int, int]:
        """What changes when the alias does."""
        found = (self.path / ALIASES).stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def switch(self, number: int, previous: int | None) -> None:
        """Make a version live, by one rename."""
        write(self.path / ALIASES, canonical({"live": number, "previous": previous}))
        sync_folder(self.path)

    # Manifests

    def manifest(self, kind: str, number: int) -> dict[str, Any]:
        """The manifest of a generation or a version; refused where it was not signed by this service."""
        file = self.folder(kind, number) / MANIFEST
        try:
            content = file.read_bytes()
            values = json.loads(content)
            signed = {name: value for name, value in values.items() if name != "signature"}
            good = canonical(values) == content and values["key"] in self._keys.trusted
            if (
                not good
                or not is_signed(canonical(signed), values["signature"], values["key"])
                or values["number"] != number
            ):
                raise ValueError("it was changed, or signed by another key")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise AdapterError(f"'{file}' is missing or damaged ({error})", _RESTORE) from None
        return values

    def folder(self, kind: str, number: int) -> Path:
        """The folder of a generation or a version."""
        return self.path / kind / (f"{number:04}" if kind == "generations" else f"{number:06}")

    def numbers(self, kind: str) -> list[int]:
        """The numbers of all generations or versions."""
        folder = self.path / kind
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def problems(self, kind: str, number: int) -> list[str]:
        """What is wrong with the files of a generation or a version."""
        folder = self.folder(kind, number)
        try:
            files = self.manifest(kind, number)["files"]
        except AdapterError as error:
            return [error.why]
        present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        cached = {name for name in present if name.startswith(f"{CACHE}/")}  # made again where it is gone
        found = [
            f"'{folder / name}' belongs to no manifest" for name in sorted(present - files.keys() - cached - {MANIFEST})
        ]
        for name, digest in files.items():
            if name not in present:
                found.append(f"'{folder / name}' is gone")
            elif _file_digest(folder / name) != digest:
                found.append(f"'{folder / name}' is not the file that was written")
        return found

    def _seal(self, kind: str, number: int, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write a folder with its files and their manifest, as a whole."""
        folder, signer = self.folder(kind, number), self._keys.signer
        writing = folder.parent / f"{STAGING_PREFIX}{os.getpid()}-{number}"
        shutil.rmtree(writing, ignore_errors=True)
        held = ExitStack()
        try:
            writing.mkdir(parents=True)
            held.enter_context(hold(writing))
            for name, content in files.items():
                write_file(writing / name, content, private=True)
            digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
            values = {"format": 1, **facts, "number": number, "files": digests, "key": signer.public}
            values = json.loads(canonical(values))
            values["signature"] = signer.sign(canonical(values))
            write_file(writing / MANIFEST, canonical(values))
            sync_folder(writing)
            writing.rename(folder)
            sync_folder(folder.parent)
        except OSError as error:
            raise RunError(
                f"could not write to '{folder}' ({error.strerror or error}); what is served is unchanged", "make room"
            ) from error
        finally:
            held.close()
            shutil.rmtree(writing, ignore_errors=True)
        return values

    # Generations

    def add_generation(self, made: Made) -> dict[str, Any]:
        """Write a new generation; it is served once a version names it."""
        number = max(self.numbers("generations"), default=0) + 1
        buffer = io.BytesIO()
        torch.save({"model": made.model, "task": made.task}, buffer)
        files = {
            MODEL: buffer.getvalue(),
            BASE: _dump_rows(made.output),
            **graph_contents(made.graph),
        }
        return self._seal("generations", number, files, {**made.facts, "output": list(made.output)})

    def open_generation(self, number: int) -> Made:
        """Load a generation. The pickle in it is data of this service: its digest is in a manifest that the service signed."""
        manifest, folder = self.manifest("generations", number), self.folder("generations", number)
        found = self.problems("generations", number)
        if found:
            raise AdapterError(found[0], _RESTORE)
        if (build := manifest.get("build")) and ":" in build["name"]:
            load_module(build["name"].rpartition(":")[0])
        parts = torch.load(folder / MODEL, weights_only=False)
        graph = load_graph(folder)
        output = _read_rows(map_tensors(folder / BASE), manifest["output"])
        return Made(parts["model"], parts["task"], graph, output, manifest)

    def cache_folder(self, number: int) -> Path:
        """Where a generation keeps the rows of its layers."""
        return self.folder("generations", number) / CACHE

    # Versions

    def add_version(
        self, number: int, operators: Operators, changes: Changes, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write a new version; it is served once it is `switch`-ed to."""
        content, entries = dump_operators(operators)
        tensors = {"gone": changes.gone}
        for index, (ids, rows) in enumerate(changes.rows.values()):
            tensors |= {f"ids.{index}": ids.contiguous(), f"rows.{index}": rows.detach().contiguous()}
        files = {ADAPTER: content, ROWS: dump_tensors(tensors)}
        adapter = hashlib.sha256(content).hexdigest()
        return self._seal(
            "versions", number, files, {**facts, "adapter": adapter, "operators": entries, "output": list(changes.rows)}
        )

    def read_operators(self, number: int) -> Operators:
        """The operators of one version alone."""
        return load_operators(self._read("versions", number, ADAPTER), self.manifest("versions", number)["operators"])

    def read_changes(self, number: int) -> Changes:
        """The rows that one version changed."""
        keys = self.manifest("versions", number)["output"]
        tensors = load_tensors(self._read("versions", number, ROWS))
        rows = {key: (tensors[f"ids.{index}"], tensors[f"rows.{index}"]) for index, key in enumerate(keys)}
        return Changes(rows, tensors["gone"])

    def _read(self, kind: str, number: int, name: str) -> bytes:
        content = (self.folder(kind, number) / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.manifest(kind, number)["files"][name]:
            raise AdapterError(f"'{self.folder(kind, number) / name}' is not the file that was written", _RESTORE)
        return content

    # Cleaning up

    def destroy_generation(self, number: int, unless: Callable[[int], bool]) -> None:
        """Destroy the weights, the graph and the ids of a generation, and all versions on top of it that are not in use."""
        for version in self.numbers("versions"):
            if not unless(version) and self.manifest("versions", version)["generation"] == number:
                _shred(self.folder("versions", version))
        _shred(self.folder("generations", number))

    def remove_version(self, number: int) -> None:
        """Remove a version that nothing names any more."""
        _shred(self.folder("versions", number))


def _shred(folder: Path) -> None:
    """Remove a folder; its manifest goes first, so that a kill in between leaves nothing that looks whole."""
    if folder.is_dir():
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder)
        sync_folder(folder.parent)


def _dump_rows(output: Mapping[Key, Tensor]) -> bytes:
    return dump_tensors(
        {f"rows.{index}": rows.detach().cpu().contiguous().clone() for index, rows in enumerate(output.values())}
    )


def _read_rows(tensors: Mapping[str, Tensor], keys: list[Key]) -> dict[Key, Tensor]:
    return {key: tensors[f"rows.{index}"] for index, key in enumerate(keys)}


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
