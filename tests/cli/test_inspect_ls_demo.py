"""``gnndelete inspect``, ``ls`` and ``demo``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gnndelete as gd

from .conftest import Cli, contents


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
    weights = ("--checkpoint", trained / "model.safetensors", "--set", "model.hidden=8", "--set", "model.out=4")
    assert cli("inspect", "--graph", graph_file, *weights, "--json").values["parameters"] == 80
    assert cli("inspect").code == 2
    assert "was trained with 'gcn'" in cli("inspect", trained, "--model", "gat").sentence


def test_ls(cli: Cli) -> None:
    everything = cli("ls", "--json").values
    assert list(everything) == ["datasets", "models", "methods", "tasks"]
    assert [entry["name"] for entry in everything["datasets"]] == gd.datasets.names()
    counted = {entry["name"]: (entry["classes"], entry["relations"]) for entry in everything["datasets"]}
    assert (counted["wordnet18"], counted["dblp"]) == ((0, 18), (4, 0))
    assert {entry["name"] for entry in everything["methods"]} == set(gd.methods.resolver.lookup_dict)
    assert {entry["name"] for entry in everything["tasks"]} == {"link", "node", "graph"}
    assert all(entry["description"] for kind in ("models", "methods", "tasks") for entry in everything[kind])
    assert list(cli("ls", "models", "--json").values) == ["models"]
    shown = cli("ls", "methods")
    assert "inference-only" in shown.out
    assert "digits" not in shown.out


def test_demo(cli: Cli, tmp_path: Path) -> None:
    shown = cli("demo", "--epochs", 15)
    assert shown.code == 0, shown.err
    for words in (
        "original",
        "unlink",
        "gnndelete nonexistent",
        "gnndelete paper",
        "retrain",
        "times as fast",
        "A ruined model",
        "At 0.5 they look alike",
        "merely unseen",
        "The audit of gnndelete",
    ):
        assert words in " ".join(shown.out.split()), words
    written = contents(tmp_path / "demo")
    assert written.keys() == {"report.html", "results.json", "scores.png", "settings.yaml"}
    assert written["scores.png"].startswith(b"\x89PNG")
    rows = {row["name"]: row for row in json.loads(written["results.json"])["rows"]}
    assert list(rows) == [
        "original",
        "unlink",
        "gnndelete",
        "gnndelete nonexistent",
        "gnndelete paper",
        "retrain",
    ]
    suppressed = rows["gnndelete nonexistent"]
    assert suppressed["deleted_auroc"] > rows["unlink"]["deleted_auroc"] > rows["original"]["deleted_auroc"]
    assert suppressed["unseen_auc"] < 0.3 < rows["gnndelete"]["unseen_auc"] < rows["original"]["unseen_auc"]
    assert rows["retrain"]["assurance"] == "retrained"
    again = cli("demo", "--epochs", 2, "--json")
    assert again.code == 0
    assert again.values["figure"] == "demo/scores.png"
    (tmp_path / "file").write_text("mine")
    assert cli("demo", "--out", "file").code == 2


def test_demo_looks_at_its_folder_first(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("it began to work")

    monkeypatch.setattr("gnndelete.training.loop.train", worked)
    (tmp_path / "file").write_text("mine")
    for out, code in (("file", 2), ("file/below", 1)):
        refused = cli("demo", "--out", out)
        assert (refused.code, "it began" in refused.err, "file" in refused.err) == (code, False, True)
