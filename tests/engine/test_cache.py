"""The cache of layer outputs on disk: read back bit by bit, refused for another model or graph, damage is told."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import gnndelete as gd
from gnndelete.engine.cache import MANIFEST, ROWS, Cache
from gnndelete.errors import AdapterError
from tests.engine.test_local import problem


def served(folder: Path, name: str = "gcn") -> torch.Tensor:
    model, data, task = problem(name)
    unlearner = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.4), engine="local").prepare(folder)
    return unlearner.delete(gd.Deletion(edges=data.edge_index[:, [3, 9]])).predict(data.edge_index)


@pytest.mark.parametrize("name", ["gcn", "table-whole"])
def test_a_second_start_reads_the_rows(tmp_path: Path, name: str) -> None:
    first = served(tmp_path / "cache", name)
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    assert torch.equal(served(tmp_path / "cache", name), first)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == times
    assert (tmp_path / "cache" / ROWS).stat().st_mode & 0o077 == 0


def test_the_rows_of_another_model_are_not_taken(tmp_path: Path) -> None:
    served(tmp_path / "cache")
    model, data, task = problem("gcn")
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.skip.weight.mul_(2)
    fresh, kept = (
        gd.Unlearner(other, data, task=task, method="unlink", engine="local").prepare(folder)
        for folder in (None, tmp_path / "cache")
    )
    deletion = gd.Deletion(edges=data.edge_index[:, [3]])
    assert torch.equal(fresh.delete(deletion).predict(data.edge_index), kept.delete(deletion).predict(data.edge_index))


@pytest.mark.parametrize("name", [MANIFEST, ROWS])
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    served(tmp_path / "cache")
    (tmp_path / "cache" / name).write_bytes(b"{")
    with pytest.raises(AdapterError, match="remove the folder and prepare again"):
        served(tmp_path / "cache")


@pytest.mark.parametrize("name", [MANIFEST, ROWS])
def test_a_flipped_bit_is_refused(tmp_path: Path, name: str) -> None:
    model, data, task = problem("gcn")
    unlearner = gd.Unlearner(model, data, task=task, method="unlink", engine="local").prepare(tmp_path)
    identity = unlearner.session.identity()
    assert Cache.load(tmp_path, identity) is not None
    content = (tmp_path / name).read_bytes()
    for place in range(0, len(content), max(len(content) // 200, 1)):
        other = bytearray(content)
        other[place] ^= 1 << place % 5  # letters stay letters
        (tmp_path / name).write_bytes(other)
        try:
            found = Cache.load(tmp_path, identity)
        except AdapterError:
            continue
        assert found is None or other.split() == content.split()


def test_a_rehearsed_lam_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = gd.datasets.split_links(gd.datasets.load("digits"))
    task, method = gd.LinkPrediction(validation=split.validation, test=split.test), gd.GNNDelete(aim="nonexistent")
    model, data = gd.models.GCN(64), split.data
    first = gd.Unlearner(model, data, task=task, method=method).prepare(tmp_path)
    assert first.session.rehearsed is not None
    monkeypatch.setattr(gd.GNNDelete, "unlearn", lambda *_: pytest.fail("it was rehearsed again"))
    again = gd.Unlearner(model, data, task=task, method=method).prepare(tmp_path)
    assert again.session.rehearsed.lam == first.session.rehearsed.lam
