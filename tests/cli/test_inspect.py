"""``gnndelete inspect``: layers, reach and methods of a run or of a named model."""

from __future__ import annotations

from pathlib import Path

from .conftest import Cli


def test_inspect_a_run(cli: Cli, trained: Path) -> None:
    found = cli("inspect", trained, "--json").values
    assert [(site["layer"], site["width"], site["hops"]) for site in found["sites"]] == [
        ("convs.0", 8, 1),
        ("convs.1", 4, 2),
    ]
    assert found["methods"]["gnndelete"]["fits"]
    shown = cli("inspect", trained)
    assert shown.code == 0
    for words in ("convs.1", "2 hops", "gnndelete", "receptive field", 'operator="shared"'):
        assert words in shown.out


def test_inspect_by_name(cli: Cli, graph_file: Path, trained: Path) -> None:
    assert cli("inspect", "--graph", graph_file, "--model", "gat", "--json").values["model"] == "GAT"
    weights = ("--checkpoint", trained / "base/model.safetensors", "--set", "model.hidden=8", "--set", "model.out=4")
    assert cli("inspect", "--graph", graph_file, *weights, "--json").values["parameters"] == 80
    assert cli("inspect").code == 2
    assert "was trained with 'gcn'" in cli("inspect", trained, "--model", "gat").sentence
