"""Reading the raw files of datasets with the classes of PyG and OGB, or without them, into tensors.

Raw files are not trusted. Pickles may hold code and sparse matrices may point outside themselves, so both are checked before
PyG reads them. OGB calls ``torch.load`` without safety; that happens here only on a file that OGB's class wrote a moment
before into a private folder, and even then with ``weights_only`` and PyG's own classes allowed.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import pickle
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.io import loadmat
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.mirror import Content, OfflineError
from gnndelete.datasets.registry import Entry
from gnndelete.errors import GraphError


def read_pyg(entry: Entry, building: Path) -> Content:
    """The content of a dataset that PyG's class ``entry.kind`` reads."""
    from torch_geometric import datasets

    kind = guarded(getattr(datasets, entry.kind), rewrite_pickles if entry.kind == "Planetoid" else check_matrices)
    transform = {"pre_transform": sparse_features} if entry.sparse else {}
    found = kind(str(building / entry.folder.split("/")[0]), *([entry.title] if entry.title else []), **transform)
    if entry.graphs > 1:
        return {"data": found._data.to_dict(), "slices": found.slices}
    data = found[0]
    if entry.normalised:
        data.x = normalise(data.x)
    return {"data": data.to_dict()}


def sparse_features(data: Data) -> Data:
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


def guarded(kind: type, before: Callable[[Path], None]) -> Any:
    """A subclass of a PyG dataset class: it raises `OfflineError` when a download fails and checks raw files with ``before``."""

    class Guarded(kind):
        log = property(lambda self: False, lambda self, value: None)  # "Processing… Done!" is PyG's word, not ours

        def download(self) -> None:
            try:
                _knock(getattr(kind, "url", None) or getattr(kind, "github_url", None) or self.meta_info["url"])
                super().download()
            except Exception as error:  # of urllib, aiohttp or ssl
                raise OfflineError(error) from error

        def process(self) -> None:
            before(Path(self.raw_dir))
            super().process()

    return Guarded


def _knock(url: str) -> None:
    """Find out within seconds whether there is a network: a download has no time limit on some systems."""
    scheme, _, rest = url.partition("://")
    try:
        urllib.request.urlopen(urllib.request.Request(f"{scheme}://{rest.split('/')[0]}", method="HEAD"), timeout=10)
    except urllib.error.HTTPError:
        return  # it answers
    except urllib.error.URLError as error:
        if "CERTIFICATE" not in str(error.reason):
            raise


def read_ogb(entry: Entry, building: Path) -> Content:
    """The content of a dataset that OGB's class ``entry.kind`` reads, with its original split.

    Sets of graphs that are in the data folder need no OGB.
    """
    if entry.graphs > 1 and (building / entry.folder).is_dir():
        return read_tables(building / entry.folder)
    with contextlib.redirect_stdout(sys.stderr):  # OGB prints as it goes
        kind = guarded(_ogb_class(entry), lambda _: None)
        here = building / entry.folder
        if here.is_dir():
            release = here / "RELEASE_v1.txt"
            if not release.exists():
                release.touch()  # without it OGB asks a question on the terminal
            for shortcut in here.rglob("split_dict.pt"):
                shortcut.unlink()
        with _pyg_classes():
            found = kind(entry.title, str(here.parent))
        if entry.graphs > 1:
            return {"data": found._data.to_dict(), "slices": found.slices, "split": found.get_idx_split()}
    split = {
        part: _read_split(here / "split" / found.meta_info["split"] / f"{part}.pt")
        for part in ("train", "valid", "test")
    }
    return {"data": (_typed(found._data, split) if entry.typed else _plain(found._data, split)).to_dict()}


def _ogb_class(entry: Entry) -> Any:
    """OGB's class. On import OGB looks for a newer version on the network; this is prevented."""
    absent = object()
    before = sys.modules.get("outdated", absent)
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        if entry.kind == "PygLinkPropPredDataset":
            from ogb.linkproppred import PygLinkPropPredDataset

            return PygLinkPropPredDataset
        from ogb.graphproppred import PygGraphPropPredDataset

        return PygGraphPropPredDataset
    except ImportError as error:
        raise GraphError(
            f"dataset '{entry.name}' needs the package ogb ({error}); run: pip install gnndelete[ogb]"
        ) from error
    finally:
        if before is absent:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = before  # type: ignore[assignment]


@contextlib.contextmanager
def _pyg_classes() -> Iterator[None]:
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    with _allowed([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        yield


@contextlib.contextmanager
def _allowed(classes: list[Any]) -> Iterator[None]:
    """Let ``weights_only`` pass these classes for a while; classes that others allowed stay allowed."""
    with torch.serialization.safe_globals(
        [one for one in classes if one not in torch.serialization.get_safe_globals()]
    ):
        yield


def _read_split(path: Path) -> dict[str, Any]:
    """A dict of arrays; the published files use names of older numpy versions."""
    reconstruct = np.empty(0).__reduce__()[0]
    allowed = [
        np.ndarray,
        np.dtype,
        *(type(np.dtype(code)) for code in ("i4", "i8", "u1", "f4", "f8", "O", "U1", "S1")),
    ]
    named: list[Any] = [(reconstruct, f"numpy.{module}.multiarray._reconstruct") for module in ("core", "_core")]
    with _allowed([*allowed, *named]):
        return {
            key: torch.from_numpy(value) if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" else value
            for key, value in torch.load(path, weights_only=True).items()
        }


def _plain(data: Data, split: dict[str, Any]) -> Data:
    """The graph of training edges; validation and test edges and negatives under the names of `LinkSplit`, each ``[2, k]``."""
    for name, part in (("validation", "valid"), ("test", "test")):
        data[name] = split[part]["edge"].t().contiguous()
        data[f"{name}_negatives"] = split[part]["edge_neg"].t().contiguous()
    return data


def _typed(data: Data, split: dict[str, Any]) -> Data:
    """All triples in one graph, entities of one kind after those of another, with masks for the three parts."""
    counts = {kind: int(count) for kind, count in sorted(data.num_nodes_dict.items())}
    sizes = list(counts.values())
    offset = dict(zip(counts, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    def end(part: dict[str, Any], side: str) -> Tensor:
        kinds, codes = np.unique(np.asarray(part[f"{side}_type"], dtype=str), return_inverse=True)
        return part[side].long() + torch.tensor([offset[str(kind)] for kind in kinds])[torch.from_numpy(codes)]

    parts = [split[part] for part in ("train", "valid", "test")]
    which = torch.arange(3).repeat_interleave(torch.tensor([len(part["head"]) for part in parts]))
    edge_index = torch.cat([torch.stack([end(part, "head"), end(part, "tail")]) for part in parts], dim=1)
    return Data(
        edge_index=edge_index,
        edge_type=torch.cat([part["relation"].long() for part in parts]),
        node_type=torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        train_mask=which == 0,
        val_mask=which == 1,
        test_mask=which == 2,
        num_nodes=sum(sizes),
    )


#: The parts of a split, as their files are named.
_PARTS = ("train", "valid", "test")


def read_tables(folder: Path) -> Content:
    """Graphs whose nodes, edges and labels follow each other in the tables of ``raw``, as ``num-*-list`` counts them.

    Edges are stored once and go both ways here, the second direction right after the first, as in OGB's classes. Needs no
    OGB, and nothing is unpickled.
    """
    raw = folder / "raw"
    nodes, edges = (_table(raw / f"num-{what}-list.csv.gz").flatten() for what in ("node", "edge"))
    x, once, labels = (_table(raw / f"{name}.csv.gz") for name in ("node-feat", "edge", "graph-label"))
    found = (len(x), len(once), len(labels), len(edges))
    if found != (known := (int(nodes.sum()), int(edges.sum()), len(nodes), len(nodes))):
        raise ValueError(f"tables of {found} rows where {known} are counted")
    size = nodes.repeat_interleave(edges)
    if len(once) and not bool(((once >= 0) & (once < size[:, None])).all()):
        raise ValueError("edges that name nodes beyond the last one of their graph")
    data = {"edge_index": torch.stack([once, once.flip(1)], dim=1).view(-1, 2).t().contiguous(), "x": x, "y": labels}
    starts = {"edge_index": 2 * edges, "x": nodes, "y": torch.ones_like(nodes)}
    if (raw / "edge-feat.csv.gz").is_file():
        attributes = _table(raw / "edge-feat.csv.gz")
        if len(attributes) != len(once):
            raise ValueError(f"features of {len(attributes)} edges instead of {len(once)}")
        data["edge_attr"], starts["edge_attr"] = attributes.repeat_interleave(2, dim=0), 2 * edges
    slices = {key: torch.cat([counts.new_zeros(1), counts.cumsum(0)]) for key, counts in starts.items()}
    split = {part: _table(next(folder.glob(f"split/*/{part}.csv.gz"))).flatten() for part in _PARTS}
    return {"data": data, "slices": slices, "split": split}


def _table(path: Path) -> Tensor:
    """Whole numbers ``[rows, columns]``."""
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, delimiter=",", ndmin=2))


def read_debian(entry: Entry, building: Path) -> Content:
    """Triples with the names of entities and relations, from ``triples.npz`` and ``nodes.tsv.gz``."""
    folder = building / entry.folder
    if not folder.is_dir():
        raise OfflineError("it has no public address")
    with np.load(folder / "triples.npz", allow_pickle=False) as file:
        triples, relations, count = file["triples"], file["relations"].tolist(), int(file["num_entities"])
    with gzip.open(folder / "nodes.tsv.gz", "rt", encoding="utf-8", newline="") as lines:
        names = [row["name"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype.kind not in "iu":
        raise ValueError(
            f"'triples' has shape {list(triples.shape)} and dtype {triples.dtype} where rows of 3 ids belong"
        )
    if len(names) != count or triples.min() < 0 or (triples.max(axis=0) >= (count, len(relations), count)).any():
        raise ValueError(f"the triples name entities or relations beyond the {len(names)} and {len(relations)} listed")
    head, relation, tail = torch.from_numpy(triples.astype(np.int64)).t().contiguous()
    data = {"edge_index": torch.stack([head, tail]), "edge_type": relation, "num_nodes": count}
    return {"data": data, "names": {"entity_names": names, "relation_names": relations}}


_MATRICES = {"x", "tx", "allx"}
_LABELS = {"y", "ty", "ally"}


def check_matrices(folder: Path) -> None:
    """Raise where a sparse matrix in ``folder`` (``.npz`` or ``.mat``) points outside itself; scipy would follow it."""
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
        part = path.name.rsplit(".", 1)[-1]
        if part in _MATRICES | _LABELS | {"graph"}:
            content = pickle.dumps(_checked(part, _read(path), path), protocol=4)  # which this module reads, too
            path.unlink()  # a link to the raw file, which stays as it is
            path.write_bytes(content)


def _read(path: Path) -> Any:
    """The content of a pickle that is made of numbers, arrays and containers; a matrix comes as its attributes."""

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
"""All classes that the published files name; a defaultdict becomes a dict, whose factory is never called."""
