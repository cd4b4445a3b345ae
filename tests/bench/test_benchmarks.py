"""The scripts beside the package: each answers --help, and a value that cannot be served is one sentence."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if "__main__" in path.read_text())


def start(monkeypatch: pytest.MonkeyPatch, *line: str) -> int:
    """Run a script in this process until its command line has been read; its exit code."""
    monkeypatch.setattr(sys, "argv", list(line))
    monkeypatch.syspath_prepend(str(FOLDER))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / line[0]), run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(monkeypatch, script, "--help") == 0
    assert "usage: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("dblp.py", "--seeds", "0"), "at least 1 (got '0')"),
        (("memory.py", "--device", "cuda"), "torch finds no such device here"),
    ],
)
def test_mistakes_are_one_sentence(
    line: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    assert start(monkeypatch, *line) == 2
    assert said in " ".join(capsys.readouterr().err.split())
