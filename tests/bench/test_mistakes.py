"""Mistakes in a file: every sentence names the setting and shows how it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnndelete.bench.experiment import read
from gnndelete.errors import SettingError

from .conftest import Write


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": [3]}, "'models': write a name, or {name: …, hidden: …} (got 3)"),
        ({"models": None}, "'models': write a name, or {name: …, hidden: …} (got None)"),
        ({"methods": [["unlink"]]}, "'methods': write a name, or {name: …, label: …} (got ['unlink'])"),
        ({"methods": [{"name": 3}]}, "'methods.name': write a name (got 3)"),
        ({"train": 3}, "'train': write settings such as {epochs: 1000, lr: 0.001} (got 3)"),
        ({"forget": [0.05]}, "'forget': write settings such as {amount: 0.05} (got 0.05)"),
        ({"missing": 3}, "'missing': write settings such as {cora: it has to be downloaded} (got 3)"),
        ({"datasets": "digits"}, "'datasets': write a list, such as [digits] (got 'digits')"),
        ({"seeds": 5}, "'seeds': write a list, such as [42, 21] (got 5)"),
        (
            {"methods": [{"name": "unlink", "only": {"models": "gcn"}}]},
            "'methods.only.models': write a list, such as [gcn] (got 'gcn')",
        ),
        (
            {"methods": [{"name": "unlink", "only": {"datasets": "digits"}}]},
            "'methods.only.datasets': write a list, such as [digits] (got 'digits')",
        ),
        ({"forget": {"amount": 3, "hops": -1}}, "'forget.hops': write undirected or directed (got -1)"),
        ({"train": {5: 3}}, "'train': the name of a setting is a word (got 5); write it in quotes"),
        (
            {"models": [{"hidden": 3}]},
            "it lacks 'models.name'; write, for example, models: [gcn, {name: gin, hidden: 64}]",
        ),
        (
            {"forget": {"kind": "nodes", "where": "in", "amount": 3}},
            ": 'forget.where' is for edges, and nodes are drawn",
        ),
    ],
)
def test_how_a_setting_is_written(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(**changes)))
    assert words in str(error.value)


def test_what_is_missing_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("{title: T, task: link, datasets: [digits], models: [gcn], methods: [unlink]}")
    with pytest.raises(SettingError, match=r"it lacks 'forget'; write, for example, forget: \{amount: 0.05\}$"):
        read(str(file))
    file.write_text("{title: T, task: link, datasets: [digits], modles: [gcn], forget: {amount: 3}, methods: [unlink]}")
    with pytest.raises(SettingError, match=r": there is no setting 'modles'; did you mean 'models'\?$"):
        read(str(file))


def test_what_is_shown_can_be_read(tmp_path: Path) -> None:
    """The examples of an empty file, each in a line of its own, are an experiment."""
    file = tmp_path / "mine.yaml"
    file.write_text("")
    with pytest.raises(SettingError) as error:
        read(str(file))
    examples = str(error.value).partition("write, for example, ")[2]
    for name in ("task", "datasets", "models", "forget", "methods"):
        examples = examples.replace(f", {name}: ", f"\n{name}: ")
    file.write_text(examples)
    assert read(str(file)).datasets == ["digits"]
