"""Code of the user's own, in files and packages: run only once it is trusted. Nothing is run to find out."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from gnndelete.errors import GNNDeleteError, ModelError, SettingError, bounded
from gnndelete.io.files import commit


def require_trust(name: str, trusted: bool) -> None:
    """Refuse a model class from a file or package that is not trusted; one that the user names is trusted from now on."""
    if ":" not in name:
        return
    source, _, attribute = name.rpartition(":")
    code = _source(source)
    content = b"" if code is None else code.read_bytes()
    # with its folder, since it may import other files from there
    line = hashlib.sha256(f"{source if code is None else code.resolve()}:{attribute}\n".encode() + content).hexdigest()
    store = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gnndelete" / "trusted"
    known = store.read_text().split() if store.is_file() else []
    if line in known:
        return
    if code is None and source.endswith(".py"):
        raise SettingError(
            f"this run uses code from '{source}', which is not there; restore it, or name it where it is now"
        )
    if not trusted:
        raise SettingError(
            f"this run uses code from '{code or source}', which is not trusted, or has moved or changed "
            "since; look at it, then give --trust once"
        )
    commit({store: "\n".join([*known, line, ""]).encode()}, private=[store])


@contextmanager
def running(what: str, remedy: str) -> Iterator[None]:
    """Code of the user's: whatever it raises becomes one sentence that names its line."""
    try:
        yield
    except (GNNDeleteError, MemoryError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        library = str(Path(__file__).parent.parent)
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith(library) and "site-packages" not in frame.filename
            if not Path(frame.filename).name.startswith("torch_geometric.")  # code that PyG has made
        ]
        where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
        said = bounded((str(error).strip().splitlines() or [""])[0], 300)
        raise ModelError(f"{what} ({where}{type(error).__name__}: {said})", remedy) from error


def code_digest(name: str) -> str:
    """A digest of the file that ``file.py:name`` or ``package.module:name`` is in; empty where there is none."""
    code = _source(name.rpartition(":")[0])
    return "" if code is None else hashlib.sha256(code.read_bytes()).hexdigest()


def _source(name: str) -> Path | None:
    """The file of a module, found without running anything; None where it has none."""
    if name.endswith(".py"):
        return Path(name) if Path(name).is_file() else None
    path: Any = [*sys.path, str(Path.cwd())]
    origin = None
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        spec = None if path is None else PathFinder.find_spec(".".join(parts[:length]), path)
        origin, path = (spec.origin, spec.submodule_search_locations) if spec is not None else (None, None)
    return Path(origin) if origin is not None and Path(origin).is_file() else None


def load_module(name: str) -> Any:
    """The module in a file, or of a package; its code is run."""
    return _module_of_file(Path(name)) if name.endswith(".py") else _module_of_package(name)


def _module_of_file(path: Path) -> Any:
    if not path.is_file():
        raise SettingError(f"there is no file '{path}'; check the path before the colon")
    # A unique name, so that a file named like an installed package does not shadow it.
    content = path.read_bytes()
    name = f"gnndelete_model_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__dict__.get("_gnndelete_content") == content:
        return known  # run once: models of one file are of one class, so that they can be pickled
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingError(f"'{path}' is no Python file; a model is named file.py:factory")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["_gnndelete_content"] = content
    sys.modules[name] = module  # dataclasses and pickle look it up there
    _search(path.parent)  # for imports from the same folder
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if known is None:
            del sys.modules[name]
        else:
            sys.modules[name] = known
        raise ModelError(f"the file '{path}' does not run ({type(error).__name__}: {error}); correct it") from error
    return module


def _module_of_package(name: str) -> Any:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise SettingError(f"the module '{name}' cannot be imported ({type(error).__name__}: {error})") from error


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
