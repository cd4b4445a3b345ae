"""Code of the user's own is run once as long as it stays as it is."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gnndelete.errors import ModelError
from gnndelete.io.code import load_module


def test_a_file_is_one_module_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run_once.py"
    file.write_text("class Net:\n    width = 3\n")
    first = load_module(str(file))
    monkeypatch.chdir(tmp_path)
    assert load_module("run_once.py") is first, "by whatever path it is named"
    assert pickle.loads(pickle.dumps(first.Net())).width == 3
    file.write_text("class Net:\n    width = 4\n")
    assert load_module(str(file)).Net.width == 4


def test_a_file_that_does_not_run_leaves_what_was_loaded(tmp_path: Path) -> None:
    file = tmp_path / "run_once.py"
    file.write_text("value = 1\n")
    load_module(str(file))
    file.write_text("value = 1 / 0\n")
    for _ in range(2):
        with pytest.raises(ModelError, match="ZeroDivisionError"):
            load_module(str(file))
    file.write_text("value = 1\n")
    assert load_module(str(file)).value == 1
