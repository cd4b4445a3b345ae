"""What the README promises runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_quickstart_runs(tmp_path, monkeypatch):
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    blocks = re.findall(r"^```(?:python|py)\b[^\n]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks, "README.md has no python block"
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:  # later blocks may go on from earlier ones
        exec(compile(block, str(README), "exec"), space)
