"""``--task graph``: many graphs from a file, trained in batches, whole graphs deleted by id, by file and at random."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from gnndelete.graph.batch import collate

from .conftest import Cli


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    ring = torch.stack([torch.arange(5), (torch.arange(5) + 1) % 5])
    edges = torch.cat([ring, ring.flip(0)], dim=1)
    listed = [
        Data(x=torch.randn(5, 3, generator=generator) + k % 2, edge_index=edges, y=torch.tensor([k % 2]))
        for k in range(40)
    ]
    path = tmp_path / "graphs.pt"
    torch.save(Data.from_dict(collate(listed).to_dict()), path)
    return path


def test_train_and_delete(cli: Cli, graphs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--graph", graphs, "--task", "graph", "--model", "gin", "--epochs", "3", "--batch-size", "8")
    result = cli("train", *options, "--set", "data.val=0.2", "--set", "data.test=0.2", "--out", run, "--json")
    assert result.code == 0, result.err
    assert result.values["task"] == "graph"

    done = cli("delete", run, "--graph", "0", "--graph", "1", "--json", "--lam", "0.3")
    assert done.code == 0, done.err
    assert done.values["counts"] == {"graphs": 2}
    file = tmp_path / "request.csv"
    file.write_text("graph\n2\n3\n")
    done = cli("delete", run, "--graphs", file, "--json", "--method", "retrain")
    assert done.code == 0, done.err
    assert done.values["counts"] == {"graphs": 4}
    plan = cli("delete", run, "--random", "3", "--kind", "graphs", "--dry-run", "--json")
    assert plan.values["request"] == {"graphs": 3}
    again = cli("delete", run, "--graph", "2")
    assert again.code == 2
    assert "graph 2" in again.sentence


def test_one_graph_is_not_many(cli: Cli, tmp_path: Path) -> None:
    refused = cli("train", "--dataset", "digits", "--task", "graph", "--out", tmp_path / "run")
    assert refused.code == 2
    assert "one graph" in refused.sentence
