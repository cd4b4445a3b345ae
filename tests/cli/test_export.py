"""``gnndelete export``: rows before the first deletion and after each, and programs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gnndelete as gd
from gnndelete.io.code import load_module
from tests.shop import ITEMS, USERS, write_shop

from .conftest import Cli


@pytest.fixture
def run(cli: Cli) -> Path:
    write_shop(Path("shop"))
    model = load_module(str(Path("shop/recnet.py").resolve())).RecNet(USERS, ITEMS)
    torch.save(model.state_dict(), "weights.pt")
    made = cli("adopt", "shop", "--model", "shop/recnet.py:RecNet", "--checkpoint", "weights.pt", "--out", "run")
    assert made.code == 0, made.err
    return Path("run")


def test_changes_follow_the_deletions_of_a_run(cli: Cli, run: Path) -> None:
    first = cli("export", "run", "--out", "index", "--json")
    assert first.code == 0, first.err
    assert first.values["rows"] == {"user": USERS, "item": ITEMS}
    assert cli("delete", "run", "--node", "u-103").code == 0
    shown = cli("export", "run", "--out", "index")
    assert "1 removed (changes.csv" in shown.out
    assert "user,u-103,removed" in Path("index/changes.csv").read_text().splitlines()
    assert cli("delete", "run", "--node", "u-104").code == 0
    later = cli("export", "run", "--out", "later", "--since", "index", "--json")
    assert later.values["changes"]["removed"] == 1
    assert later.values["requests"] == 2
    assert cli("verify", "run").code == 0


def test_a_program_is_written(cli: Cli, run: Path) -> None:
    made = cli("export", "run", "--out", "program", "--format", "torch.export", "--json")
    assert made.code == 0, made.err
    assert made.values["inputs"] == ["edge_index"]
    program = torch.export.load("program/model.pt2").module()
    graph = gd.datasets.load_graph("shop", layout="single")
    assert program(graph.data.edge_index).shape == (USERS + ITEMS, 8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--out is missing"),
        (("--out", "run/inside"), "is in the run 'run'"),
        (("--out", "shop"), "holds other files"),
        (("--out", "x", "--format", "parquet"), "there is no export format 'parquet'"),
        (("--out", "x", "--since", "nowhere"), "'nowhere' holds no earlier export"),
        (("--out", "x", "--since", "nowhere", "--format", "onnx"), "leave it out"),
    ],
)
def test_errors(cli: Cli, run: Path, arguments: tuple[str, ...], said: str) -> None:
    refused = cli("export", "run", *arguments)
    assert refused.code == 2
    assert said in refused.sentence
