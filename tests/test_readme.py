"""What the README promises runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from gnndelete.io.code import load_module
from tests.shop import ITEMS, USERS, write_shop

README = Path(__file__).resolve().parents[1] / "README.md"


def _open_shop(folder: Path) -> None:
    """The tables, the code and the weights that the README says its reader has."""
    write_shop(folder / "shop")
    code = (folder / "shop" / "recnet.py").read_text().replace("def bpr(", "def train(")
    (folder / "recnet.py").write_text(code)
    torch.save(load_module(str(folder / "recnet.py")).RecNet(USERS, ITEMS).state_dict(), folder / "weights.pt")


def test_the_quickstart_runs(tmp_path, monkeypatch):
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    blocks = re.findall(r"^```(?:python|py)\b[^\n]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks, "README.md has no python block"
    monkeypatch.chdir(tmp_path)
    _open_shop(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:  # later blocks may go on from earlier ones
        exec(compile(block, str(README), "exec"), space)
    assert (tmp_path / "shop-report/report.html").is_file()
    assert "user,u-103,removed" in (tmp_path / "index/changes.csv").read_text()
