"""``gnndelete demo``: the whole story, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Cli, contents


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
