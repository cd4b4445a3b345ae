"""``gnndelete verify``: every changed file is found, and nothing earlier comes back in silence."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gnndelete.cli import run

from .conftest import Cli, contents

FUZZ = int(os.environ.get("GNNDELETE_FUZZ", "1"))


@pytest.fixture(scope="module")
def deleted(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two deletions and an audit; copy it before changing it."""
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("verified") / "run"))
    for request in (["--node", "4"], ["--random", "5"]):
        assert run(["delete", str(folder), *request, "--lam", "0.2"]) == 0
    assert run(["audit", str(folder), "--no-reference", "--no-attacks"]) == 0
    return folder


@pytest.fixture
def served(deleted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(deleted, tmp_path / "run"))


def test_a_run_that_is_as_it_was_written(cli: Cli, served: Path, tmp_path: Path) -> None:
    before = contents(served)
    found = cli("verify", served, "--json")
    assert (found.code, found.values["problems"], len(found.values["versions"])) == (0, [], 3)
    assert "every file is as it was written" in cli("verify", served).out
    assert contents(served) == before
    moved = served.rename(tmp_path / "moved")
    assert cli("verify", moved).code == 0
    assert cli("delete", moved, "--node", 9, "--lam", 0.2).code == 0
    nowhere = cli("verify", tmp_path / "nowhere")
    assert (nowhere.code, "is no run" in nowhere.sentence) == (2, True)


def test_every_flipped_bit_is_found(cli: Cli, served: Path) -> None:
    draw = random.Random(0)
    for path in sorted(path for path in served.rglob("*") if path.is_file() and path.name != "lock"):
        content = path.read_bytes()
        for _ in range(3 * FUZZ):
            changed = bytearray(content)
            changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            path.write_bytes(bytes(changed))
            found = cli("verify", served, "--json")
            same = path.name == "current" and _meaning(changed) == _meaning(content)
            assert found.code == (0 if same else 1), path
        path.write_bytes(content)
    assert cli("verify", served).code == 0


def _meaning(content: bytes | bytearray) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _state_gone(served: Path) -> None:
    (served / "versions/0002/state.json").unlink()


def _state_older(served: Path) -> None:
    shutil.copy(served / "versions/0001/state.json", served / "versions/0002/state.json")


def _state_edited(served: Path) -> None:
    file = served / "versions/0002/state.json"
    file.write_text(file.read_text().replace("4", "5", 1))


def _version_gone(served: Path) -> None:
    shutil.rmtree(served / "versions/0002")


def _version_older(served: Path) -> None:
    shutil.rmtree(served / "versions/0002")
    shutil.copytree(served / "versions/0001", served / "versions/0002")


def _history_gone(served: Path) -> None:
    shutil.rmtree(served / "versions")


def _model_of_another(served: Path) -> None:
    shutil.copy(served / "versions/0001/adapter_model.safetensors", served / "versions/0002/adapter_model.safetensors")


def _level_forged(served: Path) -> None:
    file = served / "versions/0002/adapter_config.json"
    file.write_text(file.read_text().replace('"approximate"', '"retrained"'))


@pytest.mark.parametrize(
    "change",
    [
        _state_gone, _state_older, _state_edited, _version_gone, _version_older, _history_gone, _model_of_another, _level_forged,
    ],
)  # fmt: skip
def test_a_run_whose_parts_disagree_is_refused_by_every_verb(
    cli: Cli, served: Path, change: Callable[[Path], None]
) -> None:
    change(served)
    before = contents(served)
    assert cli("verify", served).code == 1
    for verb in (
        ["delete", "--node", 20],
        ["audit"],
        ["inspect"],
        ["status"],
        ["close"],
        ["delete", "--save-graph", "g"],
    ):
        refused = cli(verb[0], served, *verb[1:])
        assert refused.code == 2, verb
        assert "restore" in refused.sentence, verb
    assert contents(served) == before


def test_a_graph_on_disk(cli: Cli, tmp_path: Path) -> None:
    import torch

    import gnndelete as gd

    gd.DiskGraph.build(tmp_path / "graph", torch.tensor([[0, 1], [1, 2]]), torch.ones(3, 2))
    good = cli("verify", tmp_path / "graph", "--json")
    assert (good.code, good.values["verified"]) == (0, True)
    content = (tmp_path / "graph" / "x").read_bytes()
    (tmp_path / "graph" / "x").write_bytes(b"\1" + content[1:])
    bad = cli("verify", tmp_path / "graph", "--json")
    assert (bad.code, len(bad.values["problems"])) == (1, 1)
