"""Graphs of one's own in an experiment: by a path, with a digest of what lies there in every key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gnndelete.bench.cells import cells
from gnndelete.bench.dataset_names import load_dataset, with_digest
from gnndelete.bench.experiment import read
from gnndelete.cli import run as command
from gnndelete.datasets import load_graph, save_graph
from gnndelete.errors import GraphError, SettingError

from .conftest import Write, lines

NODES = 40


def tables(folder: Path, feature: int = 1) -> str:
    """A ring with chords, both ways, features and two classes, as tables."""
    folder.mkdir(exist_ok=True)
    ends = [(i, (i + step) % NODES) for i in range(NODES) for step in (1, 2, 5)]
    both = [*ends, *((b, a) for a, b in ends)]
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"n{a},n{b}\n" for a, b in both))
    nodes = "".join(f"n{i},{i % 7},{i % 3 * feature},{'ab'[i % 2]}\n" for i in range(NODES))
    (folder / "nodes.csv").write_text(f"id,p,q,label\n{nodes}")
    return str(folder)


def saved(folder: Path) -> str:
    graph = load_graph(tables(folder / "tables"))
    save_graph(graph, folder / "kept")
    return str(folder / "kept")


def pickled(folder: Path) -> str:
    torch.save(Data(**load_graph(tables(folder / "tables")).data.to_dict()), folder / "graph.pt")
    return str(folder / "graph.pt")


@pytest.mark.parametrize("make", [tables, saved, pickled])
def test_a_path_stands_for_the_graph_that_lies_there(make: Any, write: Write, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    path = make(tmp_path / "mine")
    for task in ("link", "node"):
        (dataset,) = {cell.key["dataset"] for cell in cells(read(str(write(datasets=[path], task=task))))}
        assert dataset == with_digest(path)
        assert dataset.startswith(f"{path}@")
        assert load_dataset(dataset).edge_index.size(1) == 6 * NODES


def test_changed_tables_are_other_cells_and_files_beside_them_are_not(write: Write, tmp_path: Path) -> None:
    path = tables(tmp_path / "mine")
    experiment = str(write(datasets=[path]))
    before = [cell.digest for cell in cells(read(experiment))]
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert [cell.digest for cell in cells(read(experiment))] == before
    dataset = with_digest(path)
    tables(tmp_path / "mine", feature=2)
    assert not {cell.digest for cell in cells(read(experiment))} & set(before)
    with pytest.raises(GraphError, match=r"mine' has changed since the experiment was read; start again"):
        load_dataset(dataset)


def test_what_is_not_there_or_does_not_fit_is_refused_when_the_file_is_read(write: Write, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"'datasets': there is no graph at '.*/nowhere'; check the path"):
        read(str(write(datasets=[f"{tmp_path}/nowhere"])))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingError, match=r"holds neither graph\.json nor edges\.csv"):
        read(str(write(datasets=[f"{tmp_path}/empty"])))
    path = tables(tmp_path / "mine")
    for changes, words in (
        ({"models": ["rgcn"]}, "those of .* have no types"),
        ({"forget": {"kind": "relations", "amount": 1}}, "has no relations to delete"),
        ({"forget": {"amount": 121}}, "121 edges are more than there are to learn from"),
        ({"task": "graph"}, "is one graph, and the task is 'graph'"),
    ):
        with pytest.raises(SettingError, match=words):
            cells(read(str(write(datasets=[path], **changes))))
    copy = tables(tmp_path / "copy")
    with pytest.raises(SettingError, match="are the same; leave one of them out"):
        cells(read(str(write(datasets=[path, copy]))))


def test_tables_of_ones_own_are_run_chosen_and_reported(
    write: Write, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    tables(tmp_path / "pay_ments")
    monkeypatch.chdir(tmp_path)
    methods = ["unlink", {"name": "gradascent", "only": {"datasets": ["./pay_ments"]}}]
    file = str(write(datasets=["./pay_ments"], methods=methods, seeds=[1]))
    assert command(["bench", "run", file, "--store", str(store), "--dataset", "./pay_ments", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 2
    assert {line["key"]["dataset"] for line in lines(store)} == {with_digest("./pay_ments")}
    assert command(["bench", "report", file, "--store", str(store), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report/own/small.md").read_text()
    assert r"## pay\_ments: 5% of edges, at random" in page
    assert "@" not in page
