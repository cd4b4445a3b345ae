"""OGB's classes on tiny datasets in their raw layout: one graph, one typed graph, many graphs, with their splits."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnndelete.datasets import load
from gnndelete.datasets.loaders import _ogb_class, _pyg_classes
from gnndelete.datasets.registry import ENTRIES
from gnndelete.errors import GraphError

pytest.importorskip("ogb", reason="the extra 'ogb' is not installed")


class Code:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNDELETE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(ENTRIES, "ogbl-collab", replace(ENTRIES["ogbl-collab"], nodes=4, edges=6))
    monkeypatch.setitem(ENTRIES, "ogbl-biokg", replace(ENTRIES["ogbl-biokg"], nodes=5, edges=5))
    monkeypatch.setitem(ENTRIES, "ogbg-molhiv", replace(ENTRIES["ogbg-molhiv"], graphs=3))


def table(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def arrays(path: Path, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(values, path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
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


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_collab(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(root)
    for _ in range(2):
        data = load("ogbl-collab", root=root)
        assert (data.num_nodes, data.num_edges, data.num_features) == (4, 6, 2)
        assert data.is_undirected()
        assert data.edge_weight.shape == data.edge_year.shape == (6, 1)
        assert data.validation.tolist() == [[0], [2]]
        assert data.validation_negatives.tolist() == [[0, 1], [3, 3]]
        assert (data.test.tolist(), data.test_negatives.tolist()) == ([[1], [3]], [[0], [3]])
    assert everything(root) == before
    assert capsys.readouterr().out == ""  # OGB's own words go to standard error


def test_split_written_by_an_older_numpy(root: Path) -> None:
    path = root / "ogb/ogbl_collab/split/time/test.pt"
    torch.save({"edge": np.array([[1, 3]]), "edge_neg": np.array([[0, 3]])}, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    assert b"numpy._core.multiarray" in content or b"numpy.core.multiarray" in content
    path.write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert load("ogbl-collab", root=root).test.tolist() == [[1], [3]]


def test_biokg(root: Path) -> None:
    data = load("ogbl-biokg", root=root)
    assert data.edge_index.tolist() == [[0, 0, 1, 1, 1], [2, 4, 3, 4, 2]]  # proteins come after the two drugs
    assert data.node_type.tolist() == [0, 0, 1, 1, 1]
    assert data.edge_type.tolist() == [0] * 5
    assert data.val_mask.tolist() == [False, False, False, True, False]
    assert int((data.train_mask.int() + data.val_mask.int() + data.test_mask.int()).sum()) == 5


def test_molhiv(root: Path, tmp_path: Path) -> None:
    (root / "ogb/ogbg_molhiv/split/scaffold/split_dict.pt").write_bytes(pickle.dumps(Code(tmp_path / "ran")))
    (root / "ogb/ogbg_molhiv/processed").mkdir()
    torch.save(Code(tmp_path / "ran"), root / "ogb/ogbg_molhiv/processed/geometric_data_processed.pt")
    before = everything(root)
    for _ in range(2):
        found = load("ogbg-molhiv", root=root)
        assert [graph.num_nodes for graph in found] == [2, 3, 2]
        assert [graph.num_edges for graph in found] == [2, 4, 2]
        assert found.get_idx_split()["valid"].tolist() == [1]
        assert found[found.split["valid"]][0].y.tolist() == [[1]]
    assert everything(root) == before
    assert not (tmp_path / "ran").exists()


def test_torch_load_is_as_strict_as_before(root: Path) -> None:
    before = set(map(str, torch.serialization.get_safe_globals()))
    for name in ("ogbg-molhiv", "ogbl-collab", "ogbl-biokg"):
        load(name, root=root)
    assert set(map(str, torch.serialization.get_safe_globals())) == before


@pytest.mark.parametrize("content", ["code", "text", "part"])
def test_bad_split(content: str, root: Path, tmp_path: Path) -> None:
    path = root / "ogb/ogbl_collab/split/time/valid.pt"
    if content == "code":
        torch.save({"edge": Code(tmp_path / "ran")}, path)
    else:
        path.write_bytes(b"edges" if content == "text" else path.read_bytes()[:200])
    with pytest.raises(GraphError, match="'ogbl-collab'"):
        load("ogbl-collab", root=root)
    assert not (tmp_path / "ran").exists()


def test_bad_table(root: Path) -> None:
    path = root / "ogb/ogbg_molhiv/raw/edge.csv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(GraphError, match="'ogbg-molhiv'"):
        load("ogbg-molhiv", root=root)


def test_without_ogb(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "ogb"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ogb", None)
    assert [graph.num_nodes for graph in load("ogbg-molhiv", root=root)] == [2, 3, 2], "tables are read without it"
    with pytest.raises(GraphError, match=r"pip install gnndelete\[ogb\]"):
        load("ogbl-collab", root=root)


def test_tables_read_as_ogb_reads_them(root: Path, tmp_path: Path) -> None:
    table(root / "ogb/ogbg_molhiv/raw/node-feat.csv.gz", "".join(f"{row},{row % 3}\n" for row in range(7)))
    table(root / "ogb/ogbg_molhiv/raw/edge-feat.csv.gz", "".join(f"{row},0,1\n" for row in range(4)))
    own = load("ogbg-molhiv", root=root)
    copied = shutil.copytree(root / "ogb", tmp_path / "ogb")
    with _pyg_classes():
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
def test_tables_that_do_not_belong_together(name: str, text: str, words: str, root: Path) -> None:
    table(root / f"ogb/ogbg_molhiv/raw/{name}.csv.gz", text)
    with pytest.raises(GraphError, match=f"'ogbg-molhiv'.*{words}"):
        load("ogbg-molhiv", root=root)
