"""Graphs, tasks and models from settings: many graphs, and typed graphs, from training to deletion and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from gnndelete.cli import run
from gnndelete.datasets.generated import knowledge_graph
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


def test_train_and_delete_graphs(cli: Cli, graphs: Path, tmp_path: Path) -> None:
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


SMALL = ("--epochs", "5", "--lr", "0.02", "--device", "cpu", "--set", "model.embedding=8", "--set", "model.hidden=8")
PARTS = ("--set", "model.out=4", "--set", "data.val=0.1", "--set", "data.test=0.1")


@pytest.fixture(scope="module")
def typed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed") / "graph.pt"
    data = knowledge_graph(120, 900, 3, community=40, seed=1)
    del data.node_type
    torch.save(data, path)
    return path


@pytest.fixture(scope="module")
def typed_run(typed_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "typed"
    assert run(["train", "--graph", str(typed_file), "--model", "rgcn", "--out", str(out), *SMALL, *PARTS]) == 0
    return out


@pytest.mark.parametrize("model", ["rgcn", "rgat"])
def test_train_and_delete_triples(cli, typed_file: Path, model: str) -> None:
    done = cli("train", "--graph", typed_file, "--model", model, "--out", "run", *SMALL, *PARTS, "--json")
    assert done.code == 0, done.err
    assert done.values["test"].keys() == {"auroc", "auprc"}
    assert done.values["undirected"] is False
    deleted = cli("delete", "run", "--random", "0.05", "--json")
    assert deleted.code == 0, deleted.err


def test_train_and_retrain_by_batches(cli, typed_file: Path) -> None:
    batches = ("--batch-size", "100", "--set", "train.num_neighbors=[4,2]")
    done = cli("train", "--graph", typed_file, "--model", "rgcn", "--out", "run", *SMALL, *PARTS, *batches, "--json")
    assert done.code == 0, done.err
    assert "num_neighbors:\n  - 4\n  - 2" in Path("run/base/settings.yaml").read_text()
    retrained = cli("delete", "run", "--random", "0.05", "--method", "retrain", "--json")
    assert retrained.code == 0, retrained.err
    refused = cli("train", "--graph", typed_file, "--model", "rgcn", "--out", "b", "--set", "train.num_neighbors=0")
    assert "num_neighbors" in refused.sentence


def test_a_triple_or_a_relation_is_named(cli, typed_run: Path, typed_file: Path) -> None:
    from gnndelete.cli.construct import prepare
    from gnndelete.cli.settings import resolve

    graph, task = prepare(resolve(options={"data.graph": typed_file, "data.val": 0.1, "data.test": 0.1}))
    data = graph.data
    head, kind, tail = (int(data.edge_index[0, 0]), int(data.edge_type[0]), int(data.edge_index[1, 0]))
    unlink = ("--method", "unlink", "--json")
    done = cli("delete", typed_run, "--edge", f"{head},{kind},{tail}", *unlink, "--out", "one")
    assert done.code == 0, done.err
    done = cli("delete", typed_run, "--relation", "2", *unlink, "--out", "two")
    assert done.code == 0, done.err
    assert "source,relation,target" in cli("delete", typed_run, "--edge", "zero,1", "--out", "three").sentence
    assert "source,relation,target" in cli("delete", typed_run, "--edge", f"{head},{tail}", "--out", "three").sentence
    assert "no relation" in cli("delete", typed_run, "--relation", "likes", "--out", "three").sentence
    held = ",".join(str(value) for value in task.validation.positives[:, 0].tolist())
    assert "held out" in cli("delete", typed_run, "--edge", held, "--out", "three").sentence
    other = f"{int(data.edge_index[0, 1])},{int(data.edge_type[1])},{int(data.edge_index[1, 1])}"
    done = cli("delete", typed_run, "--edge", held, "--edge", other, "--skip-unseen", *unlink, "--out", "two")
    assert (done.code, done.values["request"], done.values["skipped_unseen"]) == (0, {"edges": 1}, 1)


def test_compare(cli, typed_run: Path) -> None:
    done = cli("compare", typed_run, "--random", "20", "--methods", "unlink,gnndelete", "--json")
    assert done.code == 0, done.err


def test_errors_name_the_way_out(cli, typed_file: Path, graph_file: Path) -> None:
    assert "--model rgcn" in cli("train", "--graph", typed_file, "--model", "gcn", "--out", "run").sentence
    assert "--model gcn" in cli("train", "--graph", graph_file, "--model", "rgcn", "--out", "run").sentence
    small = ("--set", "model.embedding=8", "--epochs", "1")
    said = cli(
        "train", "--graph", typed_file, "--model", "rgcn", "--out", "run", *small, "--set", "task.decoder=decode"
    )
    assert "'decode'" in said.sentence
