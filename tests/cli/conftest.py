"""A small graph in a file, a model trained on it, and a way to run a command line in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gnndelete.cli import run
from gnndelete.cli.run_folder import open_model, open_run, run_settings
from gnndelete.datasets import NamedGraph
from gnndelete.tasks import Task

NODES = 60


@pytest.fixture(autouse=True, scope="session")
def config_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of its own for what is trusted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


def opened(run: Path) -> tuple[torch.nn.Module, NamedGraph, Task]:
    """The model, the graph and the task of a run."""
    versions = open_run(run)
    return open_model(versions, run_settings(versions))


def latest(run: Path) -> Path:
    """The folder of the latest version of a run."""
    return open_run(run).folder()


def make_graph() -> Data:
    """A ring with two kinds of chords, undirected, with features and three classes."""
    ids = torch.arange(NODES)
    once = torch.cat([torch.stack([ids, (ids + step) % NODES]) for step in (1, 2, 5)], dim=1)
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(NODES, 6, generator=generator),
        edge_index=torch.cat([once, once.flip(0)], dim=1),
        y=ids * 3 // NODES,
    )


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def values(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """What an error says; it must not be a traceback."""
        assert "Traceback" not in self.err, self.err
        return self.err.strip()


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "graph.pt"
    torch.save(make_graph(), path)
    return path


SMALL = ("--set", "model.hidden=8", "--set", "model.out=4", "--epochs", "20", "--lr", "0.05", "--device", "cpu")


@pytest.fixture(scope="session")
def trained(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a link model; copy it before changing it."""
    out = tmp_path_factory.mktemp("runs") / "link"
    split = ("--set", "data.val=0.1", "--set", "data.test=0.1")
    assert run(["train", "--graph", str(graph_file), "--out", str(out), *SMALL, *split]) == 0
    return out


@pytest.fixture
def link_run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="session")
def trained_nodes(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a node classifier; copy it before changing it."""
    out = tmp_path_factory.mktemp("runs") / "node"
    split = ("--set", "data.val=0.2", "--set", "data.test=0.2", "--epochs", "20", "--lr", "0.05", "--device", "cpu")
    assert run(["train", "--graph", str(graph_file), "--task", "node", "--out", str(out), *split]) == 0
    return out


@pytest.fixture
def node_run(trained_nodes: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_nodes, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to see whether anything has changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
