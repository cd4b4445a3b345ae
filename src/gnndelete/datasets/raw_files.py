"""Raw files of datasets: found or downloaded, read by PyG's and OGB's classes, and kept as one cached file of tensors each.

Raw files are linked into a private folder and read there, so that nothing is written into the data folder. They are not
trusted: pickles may hold code and sparse matrices may point outside themselves, so both are checked before PyG reads them.
PyG's processed files are not kept: its ``fs.torch_load`` falls back to ``weights_only=False`` and would run whatever is put in
their place. OGB calls ``torch.load`` without safety; that happens here only on a file that OGB's class wrote a moment before
into a private folder, and even then with ``weights_only`` and PyG's own classes allowed.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import hashlib
import io
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.registry import Entry
from gnndelete.errors import AbsentError, GNNDeleteError, GraphError
from gnndelete.io.files import write

#: Changes when the content of cached files does.
FORMAT = 1

Content = dict[str, Any]
"""``data``: a graph's attributes; ``names`` of its parts; for many graphs ``slices`` and perhaps a ``split``."""

#: The parts of a split, as OGB names their files.
_PARTS = ("train", "valid", "test")


class OfflineError(Exception):
    """The raw files are not in the data folder and could not be downloaded."""


class GraphSet(InMemoryDataset):
    """Many graphs, as a PyG dataset; ``split`` has the original ``train``, ``valid`` and ``test`` positions."""

    def __init__(self, data: Data, slices: dict[str, Tensor], split: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        self.data, self.slices = data, slices
        self.split = split or {}

    def get_idx_split(self) -> dict[str, Tensor]:
        """The split under OGB's name for it."""
        return self.split


def load_raw(entry: Entry, root: str | Path | None, sparse: bool) -> Data | GraphSet:
    """The graph, or the set of graphs, of a dataset; ``sparse`` leaves sparse features as they are."""
    chosen = root or os.environ.get("GNNDELETE_DATA")
    content = _open(entry, Path(chosen).expanduser().resolve() if chosen else None)
    data = Data.from_dict(content["data"])
    if isinstance(data.x, Tensor) and data.x.layout != torch.strided and not sparse:
        data.x = data.x.to_dense()
    for name, names in content.get("names", {}).items():
        data[name] = IdMap(names)  # not a list, which PyG would walk through whenever the graph is copied
    if "slices" in content:
        return GraphSet(data, content["slices"], content.get("split"))
    return data


def cache_folder() -> Path:
    """``$GNNDELETE_CACHE``, else ``gnndelete`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if chosen := os.environ.get("GNNDELETE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gnndelete"


def _open(entry: Entry, root: Path | None) -> Content:
    """The content of a dataset: from the cache, else from its raw files in the data folder or from a download."""
    store, downloads = cache_folder() / "datasets", cache_folder() / "downloads"
    found = [folder / entry.folder for folder in (root, downloads) if folder and not _missing(entry, folder)]
    sources = _sources(found[0]) if found else []
    stored = store / f"{entry.name}-{_fingerprint(sources)}.pt"
    if found and stored.is_file():
        return _read_cached(stored)
    read = _read_debian if entry.kind == "debian" else _read_ogb if entry.folder.startswith("ogb/") else _read_pyg
    unwritable = f"the cache folder '{store}' cannot be written"
    try:
        store.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=store, prefix=".building-"))  # no other user may enter it
    except OSError as error:
        raise GraphError(f"{unwritable} ({error}); set GNNDELETE_CACHE") from error
    try:
        here = building / entry.folder
        for source in sources:
            link = here / source.relative_to(found[0])
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source)
        content = read(entry, building)
        _check_size(entry, content)
        if not found:
            sources = _keep_download(here, downloads / entry.folder)
            stored = store / f"{entry.name}-{_fingerprint(sources)}.pt"
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write(stored, buffer.getvalue())
        return content
    except OfflineError as error:
        raise AbsentError(*_how_to_get(entry, root, error)) from error
    except (GNNDeleteError, MemoryError, ImportError):
        raise
    except Exception as error:  # a damaged file can make PyG stumble over anything
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise GraphError(f"{unwritable} ({error}); set GNNDELETE_CACHE") from error
        where = f"'{found[0]}'" if found else "the download"
        raise GraphError(
            f"the raw files of '{entry.name}' in {where} are damaged or not what {entry.source} is made of "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no more is known'}); replace them"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _missing(entry: Entry, folder: Path) -> list[Path]:
    return [path for file in entry.files if not (path := folder / entry.folder / file).is_file()]


def _how_to_get(entry: Entry, root: Path | None, error: Exception) -> tuple[str, str]:
    missing = _missing(entry, root or Path())
    where = f"'{missing[0]}'" if root else f"'{missing[0]}' in a folder that root= or GNNDELETE_DATA names"
    more = f" (with {len(missing) - 1} more that belong to it)" if len(missing) > 1 else ""
    known = f"dataset '{entry.name}' ({entry.source}) is not here and cannot be downloaded ({error})"
    return known, f"put its raw file at {where}{more}"


def _check_size(entry: Entry, content: Content) -> None:
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


def _sources(folder: Path) -> list[Path]:
    """The raw files below a folder; processed files of others are ignored."""
    parts = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in parts if "processed" not in str(path.relative_to(folder)).lower().split(os.sep)]


def _keep_download(here: Path, target: Path) -> list[Path]:
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


def _read_cached(path: Path) -> Content:
    """The content of a cached file; a file that holds anything but tensors, numbers and text is refused."""
    try:
        with torch.sparse.check_sparse_tensor_invariants():  # otherwise a bad index is followed anywhere
            content: Content = torch.load(path, weights_only=True)
        if not all(isinstance(key, str) for key, _ in content["data"].items()):
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


def _read_pyg(entry: Entry, building: Path) -> Content:
    """The content of a dataset that PyG's class ``entry.kind`` reads."""
    from torch_geometric import datasets

    check = rewrite_pickles if entry.kind == "Planetoid" else _check_matrices
    kind = _guarded(getattr(datasets, entry.kind), check)
    transform = {"pre_transform": _with_sparse_features} if entry.sparse else {}
    found = kind(str(building / entry.folder.split("/")[0]), *([entry.title] if entry.title else []), **transform)
    if entry.graphs > 1:
        return {"data": found._data.to_dict(), "slices": found.slices}
    data = found[0]
    if entry.normalised:
        data.x = normalise(data.x)
    return {"data": data.to_dict()}


def _with_sparse_features(data: Data) -> Data:
    """The graph with its features as a sparse tensor, so that PyG never writes them out in full."""
    if isinstance(data.x, Tensor) and data.x.layout == torch.strided:
        data.x = data.x.float().to_sparse_coo()
    return data


def normalise(x: Tensor) -> Tensor:
    """Sparse features that sum to one per node where they sum to more, as PyG's ``NormalizeFeatures`` has it.

    >>> normalise(torch.tensor([[1.0, 3.0], [0.0, 0.0]]).to_sparse_coo()).to_dense().tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    x = x.coalesce()
    total = torch.zeros(x.size(0)).index_add_(0, x.indices()[0], x.values()).clamp_(min=1.0)
    return torch.sparse_coo_tensor(
        x.indices(), x.values() / total[x.indices()[0]], x.shape, is_coalesced=True, check_invariants=True
    )


def _guarded(kind: type, check: Callable[[Path], None] | None = None) -> Any:
    """A subclass of a PyG dataset class: it raises `OfflineError` when a download fails, and checks the raw files first."""

    class Guarded(kind):
        log = property(lambda self: False, lambda self, value: None)  # "Processing… Done!" is PyG's word, not ours

        def download(self) -> None:
            try:
                super().download()
            except Exception as error:  # of urllib, aiohttp or ssl
                raise OfflineError(error) from error

        def process(self) -> None:
            if check is not None:
                check(Path(self.raw_dir))
            super().process()

    return Guarded


def _check_matrices(folder: Path) -> None:
    """Raise where a sparse matrix in ``folder`` (``.npz`` or ``.mat``) points outside itself; scipy would follow it."""
    from scipy.io import loadmat  # here, since they take longer to import than a local request
    from scipy.sparse import csr_matrix

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
    """Replace each pickle in ``folder`` by a safe one with the same content, so that PyG reads no foreign pickle."""
    for path in sorted(folder.glob("ind.*")):
        if not path.name.endswith(".test.index"):
            content = pickle.dumps(_read_pickle(path), protocol=4)
            path.unlink()  # a link to the raw file, which stays as it is
            path.write_bytes(content)


def _read_pickle(path: Path) -> Any:
    """The content of a pickle that is made of numbers, arrays and containers, or that is a sparse matrix."""
    from scipy.sparse import csr_matrix

    class Matrix:  # stands in for scipy's class, and is a new one each time: a pickle may change the class it names
        pass

    allowed: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("collections", "defaultdict"): lambda *_: {},  # its factory is never called
        ("builtins", "list"): None,
        ("__builtin__", "list"): None,
    }

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (name, module.split(".")[0]) == ("csr_matrix", "scipy"):
                return Matrix
            if (module, name) in allowed:
                return allowed[module, name]
            if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
                return _RECONSTRUCT
            raise pickle.UnpicklingError(f"it calls for '{module}.{name}'")

    value = Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    if not isinstance(value, Matrix):
        return value
    held: dict[str, Any] = vars(value)
    matrix = csr_matrix((held["data"], held["indices"], held["indptr"]), shape=held["_shape"])
    matrix.check_format(full_check=True)
    return matrix


#: What makes an array of a pickle.
_RECONSTRUCT = np.empty(0).__reduce__()[0]


def _read_ogb(entry: Entry, building: Path) -> Content:
    """The content of a dataset that OGB's class ``entry.kind`` reads, with its original split.

    Sets of graphs that are in the data folder need no OGB.
    """
    here = building / entry.folder
    if entry.graphs > 1 and here.is_dir():
        return _read_graph_tables(here)
    with contextlib.redirect_stdout(sys.stderr):  # OGB prints as it goes
        kind = _guarded(_ogb_class(entry))
        if here.is_dir():
            release = here / "RELEASE_v1.txt"
            if not release.exists():  # a touch would reach the data folder
                release.touch()  # without it OGB asks a question on the terminal
            for shortcut in here.rglob("split_dict.pt"):
                shortcut.unlink()
        with _allowed(Data, DataEdgeAttr, DataTensorAttr, GlobalStorage):
            found = kind(entry.title, str(here.parent))
        if entry.graphs > 1:
            return {"data": found._data.to_dict(), "slices": found.slices, "split": found.get_idx_split()}
    split = {part: _read_split(here / "split" / found.meta_info["split"] / f"{part}.pt") for part in _PARTS}
    if entry.typed:
        return {"data": _typed(found._data, split).to_dict()}
    data = found._data  # the graph of training edges; the others go by the names of `LinkSplit`, each [2, k]
    for name, part in (("validation", "valid"), ("test", "test")):
        data[name] = split[part]["edge"].t().contiguous()
        data[f"{name}_negatives"] = split[part]["edge_neg"].t().contiguous()
    return {"data": data.to_dict()}


def _ogb_class(entry: Entry) -> Any:
    """OGB's class. On import OGB looks for a newer version on the network; this is prevented."""
    before = {name: module for name, module in sys.modules.items() if name == "outdated"}
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        from ogb import graphproppred, linkproppred
    except ImportError as error:
        raise GraphError(
            f"dataset '{entry.name}' needs the package ogb ({error}); run: pip install gnndelete[ogb]"
        ) from error
    finally:
        del sys.modules["outdated"]
        sys.modules.update(before)
    return getattr(graphproppred if entry.graphs > 1 else linkproppred, entry.kind)


def _allowed(*classes: Any) -> Any:
    """Let ``weights_only`` pass these classes for a while; classes that others allowed stay allowed."""
    before = torch.serialization.get_safe_globals()
    return torch.serialization.safe_globals([each for each in classes if each not in before])


def _read_split(path: Path) -> dict[str, Any]:
    """A dict of arrays; the published files use names of older numpy versions."""
    codes = ("i4", "i8", "u1", "f4", "f8", "O", "U1", "S1")
    named = [(_RECONSTRUCT, f"numpy.{module}.multiarray._reconstruct") for module in ("core", "_core")]
    with _allowed(np.ndarray, np.dtype, *(type(np.dtype(code)) for code in codes), *named):
        return {
            key: torch.from_numpy(value) if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" else value
            for key, value in torch.load(path, weights_only=True).items()
        }


def _typed(data: Data, split: dict[str, Any]) -> Data:
    """All triples in one graph, entities of one kind after those of another, with masks for the three parts."""
    counts = {kind: int(count) for kind, count in sorted(data.num_nodes_dict.items())}
    sizes = list(counts.values())
    offset = dict(zip(counts, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    def end(part: dict[str, Any], side: str) -> Tensor:
        kinds, codes = np.unique(np.asarray(part[f"{side}_type"], dtype=str), return_inverse=True)
        return part[side].long() + torch.tensor([offset[str(kind)] for kind in kinds])[torch.from_numpy(codes)]

    parts = [split[part] for part in _PARTS]
    which = torch.arange(3).repeat_interleave(torch.tensor([len(part["head"]) for part in parts]))
    return Data(
        edge_index=torch.cat([torch.stack([end(part, "head"), end(part, "tail")]) for part in parts], dim=1),
        edge_type=torch.cat([part["relation"].long() for part in parts]),
        node_type=torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        train_mask=which == 0,
        val_mask=which == 1,
        test_mask=which == 2,
        num_nodes=sum(sizes),
    )


def _read_graph_tables(folder: Path) -> Content:
    """Graphs whose nodes, edges and labels follow each other in the tables of ``raw``, as ``num-*-list`` counts them.

    Edges are stored once and go both ways here, the second direction right after the first, as in OGB's classes. Needs no
    OGB, and nothing is unpickled.
    """
    raw = folder / "raw"
    nodes, edges = (_whole_numbers(raw / f"num-{what}-list.csv.gz").flatten() for what in ("node", "edge"))
    x, once, labels = (_whole_numbers(raw / f"{name}.csv.gz") for name in ("node-feat", "edge", "graph-label"))
    found, known = (len(x), len(once), len(labels), len(edges)), (int(nodes.sum()), int(edges.sum()), *[len(nodes)] * 2)
    if found != known:
        raise ValueError(f"tables of {found} rows where {known} are counted")
    size = nodes.repeat_interleave(edges)
    if len(once) and not bool(((once >= 0) & (once < size[:, None])).all()):
        raise ValueError("edges that name nodes beyond the last one of their graph")
    data = {"edge_index": torch.stack([once, once.flip(1)], dim=1).view(-1, 2).t().contiguous(), "x": x, "y": labels}
    starts = {"edge_index": 2 * edges, "x": nodes, "y": torch.ones_like(nodes)}
    if (raw / "edge-feat.csv.gz").is_file():
        attributes = _whole_numbers(raw / "edge-feat.csv.gz")
        if len(attributes) != len(once):
            raise ValueError(f"features of {len(attributes)} edges instead of {len(once)}")
        data["edge_attr"], starts["edge_attr"] = attributes.repeat_interleave(2, dim=0), 2 * edges
    slices = {key: torch.cat([counts.new_zeros(1), counts.cumsum(0)]) for key, counts in starts.items()}
    split = {part: _whole_numbers(next(folder.glob(f"split/*/{part}.csv.gz"))).flatten() for part in _PARTS}
    return {"data": data, "slices": slices, "split": split}


def _whole_numbers(path: Path) -> Tensor:
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, delimiter=",", ndmin=2))


def _read_debian(entry: Entry, building: Path) -> Content:
    """Triples with the names of entities and relations, from ``triples.npz`` and ``nodes.tsv.gz``."""
    folder = building / entry.folder
    if not folder.is_dir():
        raise OfflineError("it has no public address")
    with np.load(folder / "triples.npz", allow_pickle=False) as file:
        triples, relations, count = file["triples"], file["relations"].tolist(), int(file["num_entities"])
    with gzip.open(folder / "nodes.tsv.gz", "rt", encoding="utf-8", newline="") as lines:
        names = [row["name"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    if len(names) != count or triples.min() < 0 or (triples.max(axis=0) >= (count, len(relations), count)).any():
        raise ValueError(f"the triples name entities or relations beyond the {len(names)} and {len(relations)} listed")
    head, relation, tail = torch.from_numpy(triples.astype(np.int64)).t().contiguous()
    data = {"edge_index": torch.stack([head, tail]), "edge_type": relation, "num_nodes": count}
    return {"data": data, "names": {"entity_names": names, "relation_names": relations}}
