"""bench ls: what is done, on which device, and which data may be absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnndelete.cli import run as command

from .conftest import Write, lines


def test_data_that_may_not_be_here_are_listed_as_such(store: Path, capsys: Any) -> None:
    assert command(["bench", "ls", "paper/link-cora", "--store", str(store), "--device", "cuda"]) == 0
    said = capsys.readouterr().out
    assert "no data" in said  # in few words, since the terminal is narrow
    assert "missing cells of paper/link-cora need data that may not be here: CitationFull Cora" in said


def test_all_experiments_are_listed(store: Path, capsys: Any) -> None:
    assert command(["bench", "ls", "--store", str(store), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "paper/link-dblp" in shown
    assert "unknown" in shown


def test_a_store_of_another_device_is_listed_without_it(write: Write, store: Path, capsys: Any) -> None:
    file, options = str(write(methods=["unlink"])), ["--store", str(store)]
    assert command(["bench", "run", file, *options, "--device", "cpu"]) == 0
    moved = [{**line, "key": {**line["key"], "device": "cuda"}} for line in lines(store)]
    store.write_text("".join(json.dumps(line) + "\n" for line in moved))
    for device, done in (([], 2), (["--device", "cuda"], 2), (["--device", "cpu"], 0)):
        capsys.readouterr()
        assert command(["bench", "ls", file, *options, *device, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["device"], found["experiments"][0]["done"]) == ("cuda" if done else "cpu", done)
    assert command(["bench", "ls", file, *options]) == 0
    assert "Done on cuda" in capsys.readouterr().out
    assert command(["bench", "ls", file, *options, "--device", "gpu"]) == 2
    assert command(["bench", "run", file, *options, "--device", "gpu"]) == 2
    assert capsys.readouterr().err.count("'--device' must be auto, cpu or cuda (got 'gpu')") == 2
