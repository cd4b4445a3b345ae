"""Opening PyG's datasets without writing beside their raw files: these may lie in a read-only, shared folder.

Raw files are mirrored by symlink into a cache folder, and PyG's own class processes them there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import torch_geometric
from torch_geometric.data import Data

from gnndelete.errors import GraphError


def cache_folder() -> Path:
    """``$GNNDELETE_CACHE``, else ``gnndelete`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if chosen := os.environ.get("GNNDELETE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gnndelete"


def data_folder(root: str | Path | None) -> Path | None:
    """``root``, else ``$GNNDELETE_DATA``, else nothing."""
    chosen = root or os.environ.get("GNNDELETE_DATA")
    return Path(chosen).expanduser().resolve() if chosen else None


def open_pyg(kind: str, name: str, raw: str, files: tuple[str, ...], root: Path | None) -> Data:
    """The graph of PyG's dataset class ``kind``, from ``root / raw / files`` or, where one is missing, a download."""
    from torch_geometric import datasets, transforms

    sources = [root / raw / file for file in files] if root else []
    missing = [source for source in sources if not source.is_file()]
    found = bool(sources) and not missing
    store = cache_folder() / "datasets"
    final = store / f"{raw.split('/')[0]}-{name.lower()}-{_fingerprint(sources) if found else 'download'}"
    if not final.is_dir():
        try:
            store.mkdir(parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(dir=store, prefix=".building-"))
        except OSError as error:
            raise GraphError(f"the cache folder '{store}' cannot be written ({error}); set GNNDELETE_CACHE") from error
        try:
            if found:
                (building / raw).mkdir(parents=True)
                for source in sources:
                    (building / raw / source.name).symlink_to(source)
            getattr(datasets, kind)(str(building / kind), name)
            _publish(building, final)
        except OSError as error:
            if found:
                raise
            place = f"'{missing[0]}'" if missing else f"'{raw}/{files[0]}' in a folder named by root= or GNNDELETE_DATA"
            raise GraphError(
                f"dataset '{name}' ({kind}) is not here and cannot be downloaded ({error}); put its raw file at {place}"
            ) from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return getattr(datasets, kind)(str(final / kind), name, transform=transforms.NormalizeFeatures())[0]


def _publish(building: Path, final: Path) -> None:
    """Give a finished folder its name at once; another process may have been faster, with the same content."""
    try:
        building.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def _fingerprint(sources: list[Path]) -> str:
    """Changes with the raw files and with the PyG version that processed them."""
    parts = [torch_geometric.__version__]
    for source in sources:
        status = source.stat()
        parts.append(f"{source.resolve()} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
