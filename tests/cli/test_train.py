"""``gnndelete train``: what a run holds, models and graphs of the user's own, and files that are refused."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
import yaml
from torch_geometric.transforms import RandomLinkSplit

import gnndelete as gd
from gnndelete.datasets.formats import load_saved
from gnndelete.errors import GraphError, ModelError
from gnndelete.training.weights import load_weights

from .conftest import NODES, SMALL, Cli, contents, make_graph

OWN = """
import torch
from torch_geometric.nn import SAGEConv

class Net(torch.nn.Module):
    def __init__(self, in_channels: int, num_classes: int, width: int = 8):
        super().__init__()
        self.first, self.second = SAGEConv(in_channels, width), SAGEConv(width, num_classes)
        self.scale = torch.nn.Parameter(torch.ones(1))  # nothing resets it: the model must be made again to retrain

    def forward(self, x, edge_index):
        return self.scale * self.second(self.first(x, edge_index).relu(), edge_index)

model = Net(6, 3)
number = 3

def nothing():
    return None
"""


def test_a_run_holds_model_settings_and_metrics(trained: Path, graph_file: Path) -> None:
    files = {f"base/{name}" for name in ("model.safetensors", "settings.yaml", "metrics.json", "manifest.json")}
    assert set(contents(trained)) == files | {"current", "lock"}
    metrics = json.loads((trained / "base/metrics.json").read_text())
    assert set(metrics["test"]) == {"auroc", "auprc"}
    assert metrics["validation"]["best"] is not None
    assert metrics["epochs"] == 20
    assert metrics["versions"]["torch"] == torch.__version__
    settings = yaml.safe_load((trained / "base/settings.yaml").read_text())
    assert settings["data"]["graph"] == os.path.relpath(graph_file, trained / "base")
    assert settings["model"] == {
        "name": "gcn", "checkpoint": None, "hidden": 8, "out": 4, "num_layers": 2, "dropout": 0.0, "norm": False,
    }  # fmt: skip
    assert set(settings) == {"data", "model", "task", "train"}


def test_the_same_settings_give_the_same_run(cli: Cli, trained: Path, tmp_path: Path) -> None:
    assert cli("train", "-c", trained / "base/settings.yaml", "--out", "again").code == 0
    again = contents(tmp_path / "again")
    assert again["base/model.safetensors"] == (trained / "base/model.safetensors").read_bytes()
    assert again["base/settings.yaml"] == (trained / "base/settings.yaml").read_bytes()
    assert cli("train", "-c", trained / "base/settings.yaml", "--seed", 1, "--out", "other").code == 0
    assert (tmp_path / "other/base/model.safetensors").read_bytes() != again["base/model.safetensors"]


def test_overwriting_needs_force_and_never_undoes_deletions(cli: Cli, link_run: Path, graph_file: Path) -> None:
    again = ("train", "--graph", graph_file, "--out", link_run, *SMALL, "--seed", 3)
    before = contents(link_run)
    refused = cli(*again)
    assert (refused.code, contents(link_run)) == (2, before)
    assert "--force" in refused.sentence
    done = cli(*again, "--force", "--json")
    assert done.code == 0
    assert done.values["seed"] == 3
    assert contents(link_run).keys() == before.keys()
    assert cli("verify", link_run).code == 0
    assert cli("delete", link_run, "--node", 3).code == 0
    assert "bring them back" in cli(*again, "--force").sentence


def test_a_table_for_people(cli: Cli, graph_file: Path) -> None:
    shown = cli("train", "--graph", graph_file, "--out", "run", *SMALL)
    assert shown.code == 0
    for word in ("test AUROC", "best validation", "epochs", "seconds", "written to run"):
        assert word in shown.out


def test_own_model_for_nodes(cli: Cli, graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    arguments = (
        "--graph",
        graph_file,
        "--task",
        "node",
        "--epochs",
        5,
        "--set",
        "model.width=4",
        "--out",
        "run",
        "--json",
    )
    assert cli("train", "--model", "own.py:Net", *arguments).values["test"].keys() == {"accuracy", "f1"}
    fits = cli("inspect", "run", "--json").values["methods"]
    assert all(fits[name]["fits"] for name in ("gnndelete", "retrain", "unlink", "gif", "grapheraser"))
    assert "own_model=True" in fits["grapheditor"]["reasons"][0]["remedy"]
    again = cli("delete", "run", "--node", 3, "--method", "retrain", "--json")
    assert again.code == 0, again.err
    assert again.values["settings"]["epochs"] == 5
    by_module = cli("train", "--model", "own:Net", *arguments[:-2], "module", "--json")
    assert by_module.values["test"].keys() == {"accuracy", "f1"}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gcm", "did you mean 'gcn'"),
        ("own.py:Nett", "is not in it"),
        ("own.py:number", "is a 'int'"),
        ("own.py:model", "makes a model"),
        ("own.py:nothing", "must return a torch.nn.Module"),
        ("missing.py:Net", "no file"),
        ("missing.module:Net", "cannot be imported"),
        ("wrong.py:Net", "does not run"),
    ],
)
def test_models_that_cannot_be_made(cli: Cli, graph_file: Path, tmp_path: Path, model: str, said: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "wrong.py").write_text("1 / 0")
    refused = cli("train", "--graph", graph_file, "--model", model, "--out", "run")
    assert refused.code == 2
    assert said in refused.sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("model.hiden=8", "did you mean 'model.hidden'"),
        ("model.hidden=wide", "'model.hidden' should be a whole number (got 'wide')"),
        ("model.num_layers=0", "'num_layers' must be a whole number of at least 1"),
        ("train.device=cuda:99", "use auto or cpu"),
        ("train.device=abacus", "auto, cpu or cuda"),
        ("data.dataset=digts", "digits"),
        ("task.decoder=distmult", "distmult"),
    ],
)
def test_settings_that_do_not_fit(cli: Cli, graph_file: Path, assignment: str, said: str) -> None:
    source = () if "dataset" in assignment else ("--graph", graph_file)
    refused = cli("train", *source, "--out", "run", "--set", assignment)
    assert refused.code == 2
    assert said in refused.sentence


def test_no_graph_or_two(cli: Cli, graph_file: Path) -> None:
    assert "--dataset NAME" in cli("train", "--out", "run").sentence
    assert "give one" in cli("train", "--out", "run", "--graph", graph_file, "--dataset", "digits").sentence


def test_a_model_trained_elsewhere_becomes_a_run(cli: Cli, trained: Path, graph_file: Path, tmp_path: Path) -> None:
    model = gd.models.GCN(6, hidden=8, out=4)
    load_weights(trained / "base/model.safetensors", model)
    torch.save({"epoch": 3, "state_dict": model.state_dict()}, tmp_path / "elsewhere.pt")
    shape = ("--model", "gcn", "--set", "model.hidden=8", "--set", "model.out=4")
    registered = cli("adopt", graph_file, *shape, "--checkpoint", "elsewhere.pt", "--out", "run", "--json")
    assert registered.code == 0, registered.err
    assert (tmp_path / "run/base/model.safetensors").read_bytes() == (trained / "base/model.safetensors").read_bytes()
    for place, prefix in enumerate(("module.", "_orig_mod.", "_orig_mod.module.")):  # DataParallel, torch.compile, both
        torch.save({f"{prefix}{name}": value for name, value in model.state_dict().items()}, tmp_path / "wrapped.pt")
        wrapped = ("--checkpoint", "wrapped.pt", "--out", f"wrapped{place}")
        assert cli("adopt", graph_file, *shape, *wrapped).code == 0
        assert (tmp_path / f"wrapped{place}/base/model.safetensors").read_bytes() == (
            trained / "base/model.safetensors"
        ).read_bytes()
    refused = cli("train", "--graph", graph_file, "--checkpoint", "elsewhere.pt", "--out", "other")
    assert refused.code == 2
    assert "does not fit" in refused.sentence


def test_saved_graphs_come_back(tmp_path: Path) -> None:
    used = make_graph()
    used.is_edge_attr("x")  # fills a cache that torch's safe unpickler cannot restore
    torch.save(used, tmp_path / "used.pt")
    (back,) = load_saved(tmp_path / "used.pt")
    assert torch.equal(back.edge_index, used.edge_index)
    assert torch.equal(back.x, used.x)
    assert back.num_nodes == NODES
    parts = RandomLinkSplit(is_undirected=True)(make_graph())
    torch.save(parts, tmp_path / "parts.pt")
    assert [list(part.keys()) for part in load_saved(tmp_path / "parts.pt")] == [list(part.keys()) for part in parts]


def test_splits_that_a_file_brings_along(cli: Cli, tmp_path: Path) -> None:
    torch.save(RandomLinkSplit(num_test=0.2, is_undirected=True)(make_graph()), tmp_path / "parts.pt")
    done = cli("train", "--graph", "parts.pt", "--out", "links", *SMALL, "--json")
    assert done.code == 0, done.err
    assert done.values["edges"] == 2 * round(0.7 * 180)
    assert cli("delete", "links", "--random", 3, "--json").values["after"].keys() >= {"test_auroc", "deleted_auroc"}
    masked = make_graph()
    masked.train_mask = torch.arange(NODES) < 30
    torch.save(masked, tmp_path / "masked.pt")
    quiet = cli("train", "--graph", "masked.pt", "--task", "node", "--epochs", 2, "--out", "nodes", "--json")
    assert quiet.values["test"] == {}  # the file marks no test nodes, and its own masks are kept
    drawn = ("--task", "node", "--epochs", 2, "--set", "data.split=random", "--out", "drawn", "--json")
    assert cli("train", "--graph", "masked.pt", *drawn).values["test"] != {}


def test_held_out_edges_beside_the_graph(cli: Cli, tmp_path: Path) -> None:
    split = gd.datasets.split_links(make_graph(), val=0.1, test=0.1)
    data = split.data
    data.validation, data.test, data.test_negatives = split.validation, split.test, split.test_negatives
    torch.save(data, tmp_path / "beside.pt")
    done = cli("train", "--graph", "beside.pt", "--out", "run", *SMALL, "--json")
    assert done.code == 0, done.err
    assert done.values["edges"] == split.data.edge_index.size(1)
    assert done.values["validation"]["best"] is not None
    u, v = split.test[:, 0].tolist()
    assert "for testing" in cli("delete", "run", "--edge", f"{u},{v}").sentence


class _Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_hostile_and_damaged_files_are_refused(cli: Cli, graph_file: Path, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    torch.save(_Hostile(trap), tmp_path / "hostile.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(_Hostile(trap)))
    (tmp_path / "noise.pt").write_bytes(b"noise")
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "cut.pt").write_bytes(graph_file.read_bytes()[:900])
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"a": 1}, tmp_path / "dict.pt")
    for name in ("hostile.pt", "raw.pt", "noise.pt", "empty.pt", "cut.pt", "list.pt", "dict.pt", "missing.pt"):
        with pytest.raises(GraphError):
            load_saved(tmp_path / name)
        with pytest.raises(ModelError):
            load_weights(tmp_path / name, torch.nn.Linear(1, 1))
    with pytest.raises(ModelError):
        load_weights(tmp_path / "noise.safetensors", torch.nn.Linear(1, 1))
    refused = cli("train", "--graph", "hostile.pt", "--out", "run", "--json")
    assert refused.code == 2
    assert "posix.system" in refused.values["error"]["message"]
    assert len(refused.sentence.splitlines()) == 1
    assert not trap.exists()


def test_a_full_disk_leaves_the_run_that_was_to_be_replaced(
    cli: Cli, graph_file: Path, link_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    before = contents(link_run)
    monkeypatch.setattr(os, "fsync", full)
    assert cli("train", "--graph", graph_file, "--out", link_run, *SMALL, "--force").code == 1
    monkeypatch.undo()
    assert contents(link_run) == before


def test_a_full_disk_is_a_failure_and_leaves_nothing(
    cli: Cli, graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    failed = cli("train", "--graph", graph_file, "--out", "deep/run", *SMALL)
    assert failed.code == 1
    assert "No space left" in failed.sentence
    assert not (tmp_path / "deep").exists()
