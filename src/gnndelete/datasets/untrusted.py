"""Raw files that must be looked at before PyG reads them: pickles may hold code, and sparse matrices may point anywhere.

Planetoid's pickles are read with everything but numbers and arrays shut out, and written anew for PyG.
"""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat
from scipy.sparse import csr_matrix

from gnndelete.errors import GraphError

_MATRICES = {"x", "tx", "allx"}
_LABELS = {"y", "ty", "ally"}


def check_matrices(folder: Path) -> None:
    """Raise where a sparse matrix in ``folder`` (``.npz`` or ``.mat``) points outside itself: scipy would follow it."""
    for path in folder.glob("*.npz"):
        with np.load(path, allow_pickle=False) as file:
            for name in ("attr", "adj"):
                parts = tuple(file[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
                csr_matrix(parts, shape=tuple(file[f"{name}_shape"])).check_format(full_check=True)
    for path in folder.glob("*.mat"):
        with warnings.catch_warnings():  # that scipy will hand out another class one day, which has the same check
            warnings.simplefilter("ignore", DeprecationWarning)
            matrix = loadmat(path)["A"]
        matrix.check_format(full_check=True)


def rewrite_pickles(folder: Path) -> None:
    """Replace each pickle in ``folder`` by one of our own with the same content, so that PyG reads no foreign one."""
    for path in sorted(folder.glob("ind.*")):
        part = path.name.rsplit(".", 1)[-1]
        if part in _MATRICES | _LABELS | {"graph"}:
            content = pickle.dumps(_checked(part, _read(path), path), protocol=4)  # which this module reads, too
            path.unlink()  # a link to the raw file, which stays as it is
            path.write_bytes(content)


def _read(path: Path) -> Any:
    """What a pickle holds, made of numbers, arrays and containers alone; a matrix comes back as its attributes."""

    class Matrix:  # stands in for scipy's class, and is a new one each time: a pickle may change the class it names
        pass

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (name, module.split(".")[0]) == ("csr_matrix", "scipy"):
                return Matrix
            if (module, name) in _ALLOWED:
                return _ALLOWED[module, name]
            raise pickle.UnpicklingError(f"it calls for '{module}.{name}'")

    return Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()


def _checked(part: str, value: Any, path: Path) -> Any:
    """The matrix, the labels or the adjacency lists that this part of the dataset must be."""
    if part == "graph":
        if isinstance(value, dict) and all(type(key) is int and _ids(ids) for key, ids in value.items()):
            return {key: list(ids) for key, ids in value.items()}
    elif part in _LABELS:
        if _numbers(value) and value.ndim == 2:
            return value
    else:
        held = getattr(value, "__dict__", {})
        arrays: list[Any] = [held.get(name) for name in ("data", "indices", "indptr")]
        if all(_numbers(array) and array.ndim == 1 for array in arrays):
            matrix = csr_matrix(tuple(arrays), shape=tuple(int(size) for size in held["_shape"]))
            matrix.check_format(full_check=True)
            return matrix
    raise GraphError(f"'{path.name}' does not hold what Planetoid's '{part}' must hold")


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _numbers(value: Any) -> bool:
    return type(value) is np.ndarray and value.dtype.kind in "biuf"


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "defaultdict"): lambda *_: {},
    ("builtins", "list"): None,
    ("__builtin__", "list"): None,
    **{(f"numpy.{module}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for module in ("core", "_core")},
}
"""All that the published files call for; a defaultdict becomes a dict, whose factory is never called."""
