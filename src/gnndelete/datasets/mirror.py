"""The data folder, which is only read, and the cache folder, which holds each dataset as one file of tensors.

Raw files are linked into a private folder and read there, so that nothing is written next to them. PyG's processed files are
not kept: its ``fs.torch_load`` falls back to ``weights_only=False`` and would run whatever is put in their place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.registry import Entry
from gnndelete.errors import AbsentError, GraphError
from gnndelete.io.files import staging_prefix

#: Changes when the content of cached files does.
FORMAT = 1


class OfflineError(Exception):
    """The raw files are not in the data folder and could not be downloaded."""


def cache_folder() -> Path:
    """``$GNNDELETE_CACHE``, else ``gnndelete`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if chosen := os.environ.get("GNNDELETE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gnndelete"


def data_folder(root: str | Path | None) -> Path | None:
    """``root``, else ``$GNNDELETE_DATA``, else None."""
    chosen = root or os.environ.get("GNNDELETE_DATA")
    return Path(chosen).expanduser().resolve() if chosen else None


def open_raw(entry: Entry, root: Path | None, read: Callable[[Entry, Path], Content]) -> Content:
    """The content of a dataset: from the cache, else what ``read`` makes of the raw files in the folder it is called with."""
    store, downloads = cache_folder() / "datasets", cache_folder() / "downloads"
    found = [folder / entry.folder for folder in (root, downloads) if folder and not _missing(entry, folder)]
    sources = _sources(found[0]) if found else []
    stored = store / f"{entry.name}-{_fingerprint(sources)}.pt"
    if found and stored.is_file():
        return read_content(stored)
    try:
        store.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=store, prefix=".building-"))  # no other user may enter it
    except OSError as error:
        raise GraphError(f"the cache folder '{store}' cannot be written ({error}); set GNNDELETE_CACHE") from error
    try:
        here = building / entry.folder
        for source in sources:
            link = here / source.relative_to(found[0])
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source)
        content = _check_size(entry, read(entry, building))
        if not found:
            sources = _keep(here, downloads / entry.folder)
            stored = store / f"{entry.name}-{_fingerprint(sources)}.pt"
        write_content(stored, content)
        return content
    except OfflineError as error:
        raise AbsentError(_how_to_get(entry, root, error)) from error
    except (GraphError, MemoryError, ImportError):
        raise
    except Exception as error:  # a damaged file can make PyG stumble over anything
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise GraphError(f"the cache folder '{store}' cannot be written ({error}); set GNNDELETE_CACHE") from error
        where = f"'{found[0]}'" if found else "the download"
        raise GraphError(
            f"the raw files of '{entry.name}' in {where} are damaged or not what {entry.source} is made of "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no more is known'}); replace them"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _missing(entry: Entry, folder: Path) -> list[Path]:
    return [path for file in entry.files if not (path := folder / entry.folder / file).is_file()]


def _how_to_get(entry: Entry, root: Path | None, error: Exception) -> str:
    missing = _missing(entry, root or Path())
    where = f"'{missing[0]}'" if root else f"'{missing[0]}' in a folder that root= or GNNDELETE_DATA names"
    more = f" (with {len(missing) - 1} more that belong to it)" if len(missing) > 1 else ""
    known = f"dataset '{entry.name}' ({entry.source}) is not here and cannot be downloaded ({error})"
    return f"{known}; put its raw file at {where}{more}"


def _check_size(entry: Entry, content: Content) -> Content:
    """Compare the size with the known one: a text file that lost its end can still be read."""
    data = content["data"]
    if entry.graphs > 1:
        found, known, what = [len(content["slices"]["edge_index"]) - 1], [entry.graphs], "graphs"
    else:
        nodes = data["x"].size(0) if "x" in data else data["num_nodes"]
        found, known, what = [nodes, data["edge_index"].size(1)], [entry.nodes, entry.edges], "nodes and edges"
    if found != known:
        raise ValueError(f"{' and '.join(map(str, found))} {what} instead of {' and '.join(map(str, known))}")
    if entry.graphs == 1 and not 0 <= int(data["edge_index"].min()) <= int(data["edge_index"].max()) < entry.nodes:
        raise ValueError("edges that name nodes beyond the last one")
    return content


def _sources(folder: Path) -> list[Path]:
    """The raw files below a folder; processed files of others are ignored."""
    parts = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in parts if "processed" not in str(path.relative_to(folder)).lower().split(os.sep)]


def _keep(here: Path, target: Path) -> list[Path]:
    """Move downloaded raw files to where the next load finds them, unless another process was faster."""
    shutil.rmtree(here / "processed", ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        here.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    return _sources(target)


def _fingerprint(sources: list[Path]) -> str:
    """Changes with the raw files and with the PyG version that processed them."""
    parts = [f"{FORMAT} {torch_geometric.__version__}"]
    for source in sources:
        status = source.stat()
        parts.append(f"{source.resolve()} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


Content = dict[str, Any]
"""``data``: a graph's attributes; ``names`` of its parts; for many graphs ``slices`` and perhaps a ``split``."""


class GraphSet(InMemoryDataset):
    """Many graphs, as a PyG dataset; ``split`` has the original ``train``, ``valid`` and ``test`` positions."""

    def __init__(self, data: Data, slices: dict[str, Tensor], split: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        self.data, self.slices = data, slices
        self.split = split or {}

    def get_idx_split(self) -> dict[str, Tensor]:
        """The split under OGB's name for it."""
        return self.split


def write_content(path: Path, content: Content) -> None:
    """Write the file completely or not at all; when two processes write it, the last one wins."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=staging_prefix())
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def read_content(path: Path) -> Content:
    """The content of a cached file; a file that holds anything but tensors, numbers and text is refused."""
    try:
        with torch.sparse.check_sparse_tensor_invariants():  # otherwise a bad index is followed anywhere
            content = torch.load(path, weights_only=True)
        if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
            raise ValueError("it holds no graph")
        if not all(isinstance(key, str) for key in content["data"]):
            raise ValueError("it holds no graph")
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file makes the reader stumble over
        reason = type(error).__name__ if len(str(error)) > 100 else str(error)
        raise GraphError(
            f"'{path}' in the cache folder is damaged or was not written by gnndelete ({reason}), and was not loaded; "
            "delete it, and it is made again"
        ) from error
    return content


def as_graph(content: Content, sparse: bool) -> Data | GraphSet:
    """The graph, or the set of graphs, of a cached file; ``sparse`` leaves sparse features as they are."""
    data = Data.from_dict(content["data"])
    if isinstance(data.x, Tensor) and data.x.layout != torch.strided and not sparse:
        data.x = data.x.to_dense()
    for name, names in content.get("names", {}).items():
        data[name] = IdMap(names)  # not a list, which PyG would walk through whenever the graph is copied
    if "slices" in content:
        return GraphSet(data, content["slices"], content.get("split"))
    return data
