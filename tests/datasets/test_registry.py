"""Loading by name: the bundled graph anywhere, the others from a data folder that is never written to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from gnndelete.datasets import describe, load, names
from gnndelete.datasets.digits import digits
from gnndelete.errors import GraphError, SettingError

needs_data = pytest.mark.skipif("GNNDELETE_DATA" not in os.environ, reason="GNNDELETE_DATA names no data folder")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNDELETE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data folder with a tiny CitationFull 'dblp'."""
    raw = tmp_path / "data" / "CitationFull" / "dblp" / "raw"
    raw.mkdir(parents=True)
    attr = csr_matrix(np.array([[1.0, 1, 0], [0, 0, 1], [1, 0, 1]]))
    adj = csr_matrix(np.array([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    parts = {f"attr_{part}": getattr(attr, part) for part in ("data", "indices", "indptr", "shape")}
    parts |= {f"adj_{part}": getattr(adj, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(raw / "dblp.npz", labels=np.array([0, 1, 0]), **parts)
    return tmp_path / "data"


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_digits() -> None:
    data = digits()
    entry = describe()[0]
    found = (data.num_nodes, data.num_edges, data.num_features, int(data.y.max()) + 1)
    assert found == (entry.nodes, entry.edges, entry.features, entry.classes)
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert int(data.edge_index[0].bincount().min()) >= 8
    assert torch.equal(data.edge_index, digits().edge_index)
    assert data.x.mean().abs() < 1e-6
    same = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    assert same.float().mean() > 0.95  # images that look alike mostly show the same digit


def test_digits_neighbors() -> None:
    assert digits(neighbors=3).num_edges < digits(neighbors=8).num_edges
    with pytest.raises(SettingError, match="'neighbors'"):
        digits(neighbors=0)


def test_data_folder_is_only_read(root: Path, cache: Path) -> None:
    before = everything(root)
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o555)
    data = load("DBLP", root=root)
    assert everything(root) == before
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.x.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.5]]  # rows sum to one
    assert sorted(data.keys()) == ["edge_index", "x", "y"]
    cached = everything(cache)
    assert load("dblp", root=str(root)).num_edges == 4
    assert everything(cache) == cached  # processed once
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)


def test_root_from_the_environment(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNDELETE_DATA", str(root))
    assert load("dblp").num_nodes == 3


def test_changed_raw_file_is_noticed(root: Path, cache: Path) -> None:
    assert load("dblp", root=root).y.tolist() == [0, 1, 0]
    path = root / "CitationFull/dblp/raw/dblp.npz"
    with np.load(path) as old:
        parts = dict(old)
    np.savez(path, **(parts | {"labels": np.array([1, 1, 1])}))
    os.utime(path, ns=(1, 1))
    assert load("dblp", root=root).y.tolist() == [1, 1, 1]


def test_unfinished_work_leaves_nothing(root: Path, cache: Path) -> None:
    (root / "CitationFull/dblp/raw/dblp.npz").write_bytes(b"not a graph")
    with pytest.raises(Exception, match=r".*"):
        load("dblp", root=root)
    assert not list((cache / "datasets").iterdir())


def test_missing_file_is_named(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torch_geometric.datasets.citation_full.download_url", offline)
    with pytest.raises(GraphError, match=r"no network.*CitationFull/pubmed/raw/pubmed\.npz"):
        load("pubmed", root=tmp_path)
    monkeypatch.delenv("GNNDELETE_DATA", raising=False)
    with pytest.raises(GraphError, match=r"CitationFull/pubmed/raw/pubmed\.npz.*GNNDELETE_DATA"):
        load("pubmed")
    assert not list((cache / "datasets").iterdir())


def test_unwritable_cache_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GNNDELETE_CACHE", str(tmp_path / "file"))
    with pytest.raises(GraphError, match="GNNDELETE_CACHE"):
        load("dblp", root=root)


def test_unknown_name() -> None:
    with pytest.raises(GraphError, match=r"'dlbp'.*'dblp'.*planetoid-cora"):
        load("dlbp")
    assert len(set(names())) == len(names()) == len(describe())


@needs_data
@pytest.mark.parametrize("name", ["cora_ml", "citeseer", "planetoid-cora", "planetoid-pubmed"])
def test_real_sizes(name: str, cache: Path) -> None:
    entry = next(entry for entry in describe() if entry.name == name)
    if not all(
        (Path(os.environ["GNNDELETE_DATA"]) / entry.kind / entry.folder / "raw" / f).is_file() for f in entry.files
    ):
        pytest.skip(f"{name} is not in the data folder")
    data = load(name)
    found = (data.num_nodes, data.num_edges, data.num_features, int(data.y.max()) + 1)
    assert found == (entry.nodes, entry.edges, entry.features, entry.classes)
    sums = data.x.sum(dim=1)
    assert torch.allclose(sums[sums > 0], torch.ones_like(sums[sums > 0]), atol=1e-5)
    shutil.rmtree(cache)
