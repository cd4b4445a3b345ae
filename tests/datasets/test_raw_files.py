"""Raw files are only read; the cache is written whole or not at all; what is damaged or hostile is refused unrun."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from gnndelete.datasets import load
from gnndelete.datasets.raw_files import _allowed, _ogb_class, rewrite_pickles
from gnndelete.datasets.registry import ENTRIES
from gnndelete.errors import GraphError

needs_ogb = pytest.mark.skipif(find_spec("ogb") is None, reason="the extra 'ogb' is not installed")

NPZ = "CitationFull/dblp/raw/dblp.npz"


class Code:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNDELETE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A folder that exists once hostile code has run."""
    return tmp_path / "ran"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The datasets of these tests are tiny, and their known sizes with them."""
    monkeypatch.setitem(ENTRIES, "dblp", replace(ENTRIES["dblp"], nodes=3, edges=4))
    monkeypatch.setitem(ENTRIES, "planetoid-cora", replace(ENTRIES["planetoid-cora"], nodes=508, edges=4))
    monkeypatch.setitem(ENTRIES, "wordnet18", replace(ENTRIES["wordnet18"], nodes=4, edges=5))
    monkeypatch.setitem(ENTRIES, "ogbl-collab", replace(ENTRIES["ogbl-collab"], nodes=4, edges=6))
    monkeypatch.setitem(ENTRIES, "ogbl-biokg", replace(ENTRIES["ogbl-biokg"], nodes=5, edges=5))
    monkeypatch.setitem(ENTRIES, "ogbg-molhiv", replace(ENTRIES["ogbg-molhiv"], graphs=3))


def parts(**matrices: csr_matrix) -> dict[str, np.ndarray]:
    names = ("data", "indices", "indptr", "shape")
    return {f"{name}_{part}": np.asarray(getattr(m, part)) for name, m in matrices.items() for part in names}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data folder with a tiny CitationFull 'dblp', Planetoid 'Cora' and WordNet18."""
    data = tmp_path / "data"
    for folder in ("CitationFull/dblp/raw", "Planetoid/Cora/raw", "WordNet18/raw"):
        (data / folder).mkdir(parents=True)
    attr = csr_matrix(np.array([[1.0, 1, 0], [0, 0, 1], [1, 0, 1]]))
    adj = csr_matrix(np.array([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    np.savez(data / NPZ, labels=np.array([0, 1, 0]), **parts(attr=attr, adj=adj))
    rows = {"x": 4, "allx": 505, "tx": 3}
    planetoid: dict[str, Any] = {
        part: csr_matrix(np.ones((count, 2), dtype=np.float32)) for part, count in rows.items()
    }
    planetoid |= {part: np.eye(count, 3, dtype=np.int32) for part, count in (("y", 4), ("ally", 505), ("ty", 3))}
    planetoid["graph"] = defaultdict(list, {0: [1, 2], 1: [0], 2: [0]})
    for part, value in planetoid.items():
        (data / f"Planetoid/Cora/raw/ind.cora.{part}").write_bytes(pickle.dumps(value, protocol=4))
    (data / "Planetoid/Cora/raw/ind.cora.test.index").write_text("505\n507\n506\n")
    for part, lines in (("train", "0\t1\t0\n1\t2\t0\n2\t3\t1\n"), ("valid", "0\t2\t1\n"), ("test", "0\t3\t0\n")):
        (data / f"WordNet18/raw/{part}.txt").write_text(f"{lines.count(chr(10))}\n{lines}")
    return data


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def stored(cache: Path) -> Path:
    (path,) = (cache / "datasets").iterdir()
    return path


@pytest.mark.parametrize("name", ["DBLP", "planetoid-cora", "wordnet18"])
def test_data_folder_is_only_read(name: str, root: Path, cache: Path) -> None:
    before = everything(root)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    assert load(name, root=root).num_edges > 0
    assert everything(root) == before
    cached = everything(cache)
    load(name, root=str(root))
    assert everything(cache) == cached  # processed once
    for folder in folders:
        folder.chmod(0o755)


def test_content(root: Path, cache: Path) -> None:
    for _ in range(2):  # from the raw file, from the cache
        data = load("dblp", root=root)
        assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
        assert data.x.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.5]]  # rows sum to one
        assert sorted(data.keys()) == ["edge_index", "x", "y"]
        assert torch.equal(load("dblp", root=root, sparse=True).x.to_dense(), data.x)
        typed = load("wordnet18", root=root)
        assert typed.edge_type[typed.val_mask].tolist() == [1]
        assert typed.num_nodes == 4


def test_root_from_the_environment(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNDELETE_DATA", str(root))
    assert load("dblp").num_nodes == 3


def test_changed_raw_file_is_noticed(root: Path, cache: Path) -> None:
    assert load("dblp", root=root).y.tolist() == [0, 1, 0]
    with np.load(root / NPZ) as old:
        content = dict(old)
    np.savez(root / NPZ, **(content | {"labels": np.array([1, 1, 1])}))
    os.utime(root / NPZ, ns=(1, 1))
    assert load("dblp", root=root).y.tolist() == [1, 1, 1]


def test_several_at_once(root: Path, cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: load("dblp", root=root).num_edges, range(8)))
    assert found == [4] * 8
    assert stored(cache).suffix == ".pt"  # one file, and nothing half done beside it


def test_download_is_kept(root: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def download(_: str, folder: str) -> None:
        calls.append(folder)
        (Path(folder) / "dblp.npz").write_bytes((root / NPZ).read_bytes())

    monkeypatch.setattr("torch_geometric.datasets.citation_full.download_url", download)
    monkeypatch.delenv("GNNDELETE_DATA", raising=False)
    for _ in range(2):
        assert load("dblp").num_edges == 4
    stored(cache).unlink()
    assert load("dblp", root=tmp_path).num_edges == 4
    assert len(calls) == 1


def test_rewritten_pickles_read_as_before(root: Path) -> None:
    """A download is kept as it was rewritten, and is read again."""
    raw = root / "Planetoid/Cora/raw"
    rewrite_pickles(raw)
    once = {path.name: path.read_bytes() for path in raw.iterdir()}
    rewrite_pickles(raw)
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == once
    assert pickle.loads(once["ind.cora.graph"]) == {0: [1, 2], 1: [0], 2: [0]}


def test_missing_file_is_named(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(GraphError, match=r"no network.*CitationFull/pubmed/raw/pubmed\.npz"):
        load("pubmed", root=tmp_path)
    with pytest.raises(GraphError, match=r"debian_bookworm_kg/triples\.npz.*1 more"):
        load("debian", root=tmp_path)
    monkeypatch.delenv("GNNDELETE_DATA", raising=False)
    with pytest.raises(GraphError, match=r"CitationFull/pubmed/raw/pubmed\.npz.*GNNDELETE_DATA"):
        load("pubmed")
    assert not list((cache / "datasets").iterdir())


def test_unwritable_cache_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GNNDELETE_CACHE", str(tmp_path / "file"))
    with pytest.raises(GraphError, match="GNNDELETE_CACHE"):
        load("dblp", root=root)


def hostile_npz(path: Path, ran: Path) -> None:
    with np.load(path) as old:
        content = dict(old)
    np.savez(path, **(content | {"labels": np.array([Code(ran)], dtype=object)}))


def truncated(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def pointing_outside(path: Path, _: Path) -> None:
    with np.load(path) as old:
        content = dict(old)
    np.savez(path, **(content | {"attr_indices": content["attr_indices"] + 10**6}))


RAW: list[tuple[str, str, Callable[[Path, Path], object]]] = [
    ("dblp", NPZ, truncated),
    ("dblp", NPZ, pointing_outside),
    ("dblp", NPZ, hostile_npz),
    ("dblp", NPZ, lambda path, ran: path.write_bytes(pickle.dumps(Code(ran)))),
    ("dblp", NPZ, lambda path, _: path.write_bytes(b"")),
    ("dblp", NPZ, lambda path, _: zipfile.ZipFile(path, "w").close()),
    *(
        ("planetoid-cora", f"Planetoid/Cora/raw/ind.cora.{part}", spoil)
        for part in ("x", "graph", "ally")
        for spoil in (
            truncated,
            lambda path, ran: path.write_bytes(pickle.dumps(Code(ran), protocol=0)),
            lambda path, ran: path.write_bytes(pickle.dumps(Code(ran), protocol=4)),
            lambda path, ran: path.write_bytes(pickle.dumps({0: [Code(ran)]})),
            lambda path, _: path.write_bytes(pickle.dumps({0: ["one"]})),
            lambda path, _: path.write_bytes(pickle.dumps(np.array([[1, "a"]], dtype=object))),
        )
    ),
    ("wordnet18", "WordNet18/raw/train.txt", truncated),
    ("wordnet18", "WordNet18/raw/train.txt", lambda path, _: path.write_text("2\n0\t1\t0\n1\t2\t0\n")),
    ("wordnet18", "WordNet18/raw/test.txt", lambda path, _: path.write_text("1\n0\tx\t0\n")),
]


@pytest.mark.parametrize(("name", "file", "spoil"), RAW)
def test_bad_raw_files(name: str, file: str, spoil: Callable, root: Path, cache: Path, ran: Path) -> None:
    spoil(root / file, ran)
    with pytest.raises(GraphError, match=rf"'{name}'|'{Path(file).name}'") as caught:
        load(name, root=root)
    assert "\n" not in str(caught.value)
    assert not ran.exists()
    assert not list((cache / "datasets").iterdir())  # nothing half done is left


def test_matrix_of_a_pickle_that_points_outside(root: Path, cache: Path) -> None:
    matrix = csr_matrix(np.ones((4, 2), dtype=np.float32))
    matrix.indices += 10**6
    (root / "Planetoid/Cora/raw/ind.cora.x").write_bytes(pickle.dumps(matrix))
    with pytest.raises(GraphError, match="planetoid-cora"):
        load("planetoid-cora", root=root)


def test_what_others_processed_is_not_looked_at(root: Path, cache: Path, ran: Path) -> None:
    processed = root / "CitationFull/dblp/processed"
    processed.mkdir()
    for file in ("data_undirected.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Code(ran), processed / file)
    assert load("dblp", root=root).num_edges == 4
    assert not ran.exists()


def far_feature(path: Path, _: Path) -> None:
    content = torch.load(path, weights_only=True)
    x = content["data"]["x"]
    content["data"]["x"] = torch.sparse_coo_tensor(x.indices() + 10**9, x.values(), x.shape, check_invariants=False)
    torch.save(content, path)


@pytest.mark.parametrize(
    "spoil",
    [
        truncated,
        far_feature,
        lambda path, ran: torch.save(Code(ran), path),
        lambda path, ran: torch.save({"data": {"x": Code(ran)}}, path),
        lambda path, ran: path.write_bytes(pickle.dumps(Code(ran))),
        lambda path, _: torch.save({"data": 3}, path),
        lambda path, _: torch.save([1], path),
        lambda path, _: path.write_bytes(b""),
    ],
)
def test_bad_cache_files(spoil: Callable, root: Path, cache: Path, ran: Path) -> None:
    load("dblp", root=root)
    spoil(stored(cache), ran)
    with pytest.raises(GraphError, match=r"dblp-.*\.pt.*was not loaded; delete it") as caught:
        load("dblp", root=root)
    assert "\n" not in str(caught.value)
    assert not ran.exists()
    stored(cache).unlink()
    assert load("dblp", root=root).num_edges == 4


def table(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def arrays(path: Path, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(values, path)


@pytest.fixture
def ogb_root(tmp_path: Path, cache: Path) -> Path:
    root = tmp_path / "data"
    collab = root / "ogb/ogbl_collab"
    for name, text in (
        ("edge", "0,1\n1,2\n2,3\n"),
        ("node-feat", "0.5,1\n1,1\n0,1\n2,1.5\n"),
        ("edge_weight", "1\n2\n1\n"),
        ("edge_year", "2001\n2002\n2003\n"),
        ("num-node-list", "4\n"),
        ("num-edge-list", "3\n"),
    ):
        table(collab / f"raw/{name}.csv.gz", text)
    arrays(collab / "split/time/train.pt", edge=np.array([[0, 1], [1, 2], [2, 3]]), weight=np.array([1, 2, 1]))
    arrays(collab / "split/time/valid.pt", edge=np.array([[0, 2]]), edge_neg=np.array([[0, 3], [1, 3]]))
    arrays(collab / "split/time/test.pt", edge=np.array([[1, 3]]), edge_neg=np.array([[0, 3]]))

    biokg = root / "ogb/ogbl_biokg"
    table(biokg / "raw/num-node-dict.csv.gz", "drug,protein\n2,3\n")
    table(biokg / "raw/triplet-type-list.csv.gz", "drug,drug-protein,protein\n")
    relation = biokg / "raw/relations/drug___drug-protein___protein"
    table(relation / "edge.csv.gz", "0,0\n0,2\n1,1\n")
    table(relation / "num-edge-list.csv.gz", "3\n")
    table(relation / "edge_reltype.csv.gz", "0\n0\n0\n")
    kinds = {"head_type": ["drug"], "tail_type": ["protein"]}
    for part, head, tail in (("train", [0, 0, 1], [0, 2, 1]), ("valid", [1], [2]), ("test", [1], [0])):
        named = {key: value * len(head) for key, value in kinds.items()}
        ids = {"head": np.array(head), "tail": np.array(tail), "relation": np.zeros(len(head), dtype=np.int64)}
        arrays(biokg / f"split/random/{part}.pt", **ids, **named)

    molhiv = root / "ogb/ogbg_molhiv"
    for name, text in (
        ("edge", "0,1\n0,1\n1,2\n0,1\n"),
        ("node-feat", "1,2\n" * 7),
        ("edge-feat", "1,0,0\n" * 4),
        ("graph-label", "0\n1\n0\n"),
        ("num-node-list", "2\n3\n2\n"),
        ("num-edge-list", "1\n2\n1\n"),
    ):
        table(molhiv / f"raw/{name}.csv.gz", text)
    for part, ids in (("train", "0\n"), ("valid", "1\n"), ("test", "2\n")):
        table(molhiv / f"split/scaffold/{part}.csv.gz", ids)
    (molhiv / "RELEASE_v1.txt").write_text("")  # the others come without one, which makes OGB ask
    return root


@needs_ogb
def test_collab(ogb_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(ogb_root)
    for _ in range(2):
        data = load("ogbl-collab", root=ogb_root)
        assert (data.num_nodes, data.num_edges, data.num_features) == (4, 6, 2)
        assert data.is_undirected()
        assert data.edge_weight.shape == data.edge_year.shape == (6, 1)
        assert data.validation.tolist() == [[0], [2]]
        assert data.validation_negatives.tolist() == [[0, 1], [3, 3]]
        assert (data.test.tolist(), data.test_negatives.tolist()) == ([[1], [3]], [[0], [3]])
    assert everything(ogb_root) == before
    assert capsys.readouterr().out == ""  # OGB's own words go to standard error


@needs_ogb
def test_split_written_by_an_older_numpy(ogb_root: Path) -> None:
    path = ogb_root / "ogb/ogbl_collab/split/time/test.pt"
    torch.save({"edge": np.array([[1, 3]]), "edge_neg": np.array([[0, 3]])}, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    assert b"numpy._core.multiarray" in content or b"numpy.core.multiarray" in content
    path.write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert load("ogbl-collab", root=ogb_root).test.tolist() == [[1], [3]]


@needs_ogb
def test_biokg(ogb_root: Path) -> None:
    data = load("ogbl-biokg", root=ogb_root)
    assert data.edge_index.tolist() == [[0, 0, 1, 1, 1], [2, 4, 3, 4, 2]]  # proteins come after the two drugs
    assert data.node_type.tolist() == [0, 0, 1, 1, 1]
    assert data.edge_type.tolist() == [0] * 5
    assert data.val_mask.tolist() == [False, False, False, True, False]
    assert int((data.train_mask.int() + data.val_mask.int() + data.test_mask.int()).sum()) == 5


def test_molhiv(ogb_root: Path, tmp_path: Path) -> None:
    (ogb_root / "ogb/ogbg_molhiv/split/scaffold/split_dict.pt").write_bytes(pickle.dumps(Code(tmp_path / "ran")))
    (ogb_root / "ogb/ogbg_molhiv/processed").mkdir()
    torch.save(Code(tmp_path / "ran"), ogb_root / "ogb/ogbg_molhiv/processed/geometric_data_processed.pt")
    before = everything(ogb_root)
    for _ in range(2):
        found = load("ogbg-molhiv", root=ogb_root)
        assert [graph.num_nodes for graph in found] == [2, 3, 2]
        assert [graph.num_edges for graph in found] == [2, 4, 2]
        assert found.get_idx_split()["valid"].tolist() == [1]
        assert found[found.split["valid"]][0].y.tolist() == [[1]]
    assert everything(ogb_root) == before
    assert not (tmp_path / "ran").exists()


@needs_ogb
def test_torch_load_is_as_strict_as_before(ogb_root: Path) -> None:
    before = set(map(str, torch.serialization.get_safe_globals()))
    for name in ("ogbg-molhiv", "ogbl-collab", "ogbl-biokg"):
        load(name, root=ogb_root)
    assert set(map(str, torch.serialization.get_safe_globals())) == before


@needs_ogb
@pytest.mark.parametrize("content", ["code", "text", "part"])
def test_bad_split(content: str, ogb_root: Path, tmp_path: Path) -> None:
    path = ogb_root / "ogb/ogbl_collab/split/time/valid.pt"
    if content == "code":
        torch.save({"edge": Code(tmp_path / "ran")}, path)
    else:
        path.write_bytes(b"edges" if content == "text" else path.read_bytes()[:200])
    with pytest.raises(GraphError, match="'ogbl-collab'"):
        load("ogbl-collab", root=ogb_root)
    assert not (tmp_path / "ran").exists()


def test_bad_table(ogb_root: Path) -> None:
    path = ogb_root / "ogb/ogbg_molhiv/raw/edge.csv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(GraphError, match="'ogbg-molhiv'"):
        load("ogbg-molhiv", root=ogb_root)


def test_without_ogb(ogb_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "ogb"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ogb", None)
    assert [graph.num_nodes for graph in load("ogbg-molhiv", root=ogb_root)] == [2, 3, 2], "tables are read without it"
    with pytest.raises(GraphError, match=r"pip install gnndelete\[ogb\]"):
        load("ogbl-collab", root=ogb_root)


@needs_ogb
def test_tables_read_as_ogb_reads_them(ogb_root: Path, tmp_path: Path) -> None:
    table(ogb_root / "ogb/ogbg_molhiv/raw/node-feat.csv.gz", "".join(f"{row},{row % 3}\n" for row in range(7)))
    table(ogb_root / "ogb/ogbg_molhiv/raw/edge-feat.csv.gz", "".join(f"{row},0,1\n" for row in range(4)))
    own = load("ogbg-molhiv", root=ogb_root)
    copied = shutil.copytree(ogb_root / "ogb", tmp_path / "ogb")
    with _allowed(Data, DataEdgeAttr, DataTensorAttr, GlobalStorage):
        theirs = _ogb_class(ENTRIES["ogbg-molhiv"])("ogbg-molhiv", str(copied))
    for mine, other in zip(own, theirs, strict=True):
        assert all(torch.equal(mine[key], other[key]) for key in ("x", "edge_index", "edge_attr", "y"))
        assert mine.num_nodes == other.num_nodes
    assert all(torch.equal(own.split[part], found) for part, found in theirs.get_idx_split().items())


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("edge", "0,1\n0,1\n1,3\n0,1\n", "beyond the last one"),
        ("edge", "0,1\n0,1\n", "where .* are counted"),
        ("edge-feat", "1,0,0\n", "features of 1 edges"),
        ("node-feat", "a,b\n" * 7, "ValueError"),
    ],
)
def test_tables_that_do_not_belong_together(name: str, text: str, words: str, ogb_root: Path) -> None:
    table(ogb_root / f"ogb/ogbg_molhiv/raw/{name}.csv.gz", text)
    with pytest.raises(GraphError, match=f"'ogbg-molhiv'.*{words}"):
        load("ogbg-molhiv", root=ogb_root)
