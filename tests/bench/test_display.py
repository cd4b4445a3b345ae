"""The display of a run shows that it goes on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gnndelete.bench.display import display


def test_a_long_cell_is_heard_of(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("gnndelete.io.progress.SILENCE", 0.05)
    monkeypatch.setattr("gnndelete.bench.display.SILENCE", 0.05)
    with display(1, {"a": None, "b": None}):
        time.sleep(0.5)
    assert "cells: 1 running: 0 of 2 done" in capsys.readouterr().err
