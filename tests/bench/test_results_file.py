"""The results file: rows that are no results, torn lines, one writer at a time."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gnndelete.bench import results_file
from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.report.results import gather, plans
from gnndelete.bench.results_file import check_row, lock_file, locked, open_store
from gnndelete.bench.runner import Choice, run
from gnndelete.cli import run as command
from gnndelete.errors import SettingError
from gnndelete.io.store import Store

from .conftest import Write, lines, numbers
from .report.sample import row


def filled(file: Path, store: Path, line: int, spoiled: dict[str, Any]) -> None:
    """A row for every cell of an experiment; the one on a line is spoiled."""
    (plan,), rows = plans([str(file)], "cpu"), Store(store)
    for number, job in enumerate(plan.cells, 1):
        sound = row(job.label, 1.0, test_auroc=0.9)
        rows.add(job.key, sound | (spoiled if number == line else {}))


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ({"scores": {"test_auroc": "abc"}}, "it has 'abc' for 'scores.test_auroc'"),
        ({"scores": {"test_auroc": float("nan")}}, "it has nan for 'scores.test_auroc'"),
        ({"scores": {"test_auroc": True}}, "it has True for 'scores.test_auroc'"),
        ({"scores": None}, "it has None for 'scores'"),
        ({"steps": [{"test_auroc": 0.9}, {"test_auroc": "x"}]}, "it has 'x' for 'steps.1.test_auroc'"),
        ({"seconds": "long"}, "it has 'long' for 'seconds'"),
        ({"before": 3}, "it has 3 for 'before'"),
        ({"hardware": "a big one"}, "it has 'a big one' for 'hardware'"),
        ({"notes": ["lam was fixed."]}, "it has 'lam was fixed.' for 'notes.0'"),
        ({"scores": {"test_auroc": None}}, ""),
        ({"lam": None, "before": None}, ""),
    ],
)
def test_what_is_no_number_is_named(spoiled: dict[str, Any], said: str) -> None:
    checked = check_row(row("unlink", 1.0, test_auroc=0.9) | spoiled, 3)
    assert (f"line 3 of the store is no result: {said}; " in checked["error"]) if said else "error" not in checked


@pytest.mark.parametrize("score", ["abc", float("nan")])
def test_a_row_without_a_number_is_not_done(write: Write, tmp_path: Path, capsys: Any, score: Any) -> None:
    file, store, out = write(), tmp_path / "rows.jsonl", tmp_path / "report"
    filled(file, store, 3, {"scores": {"test_auroc": score}})
    (plan,) = plans([str(file)], "cpu")
    results = gather(plan, open_store(store))
    assert sum(len(result.rows) for result in results) == 5
    asked = [str(file), "--store", str(store)]
    assert command(["bench", "report", *asked, "--out", str(out), "--json"]) == 0
    (named,) = json.loads(capsys.readouterr().out)["broken"]
    assert named["cell"] == str(plan.cells[2])
    assert named["error"].startswith("line 3 of the store is no result: it has ")
    page = (out / "own/small.md").read_text()
    assert "5 of 6 runs done, 1 failed." in page
    assert "line 3 of the store is no result" in page
    assert command(["bench", "report", *asked, "--out", str(out)]) == 0
    assert "Not counted: " in capsys.readouterr().out
    assert command(["bench", "ls", *asked, "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (entry["done"], entry["failed"]) == (5, 1)
    assert command(["bench", "run", *asked, "--device", "cpu"]) == 1
    assert "line 3 of the store is no result" in " ".join(capsys.readouterr().out.split())
    assert command(["bench", "run", *asked, "--device", "cpu", "--retry-failed"]) == 0
    assert sum(len(result.rows) for result in gather(plan, open_store(store))) == 6


@pytest.mark.parametrize("line", ["{", '{"key": {}, "row": 5}', '{"row": {}}'])
def test_a_broken_line_is_refused_with_the_way_out(tmp_path: Path, line: str) -> None:
    store = tmp_path / "rows.jsonl"
    store.write_text('{"key": 1, "row": {}}\n{"key": 2, "row": {}}\n' + line + "\n")
    with pytest.raises(SettingError, match=r"line 3 of the store .* is no result; remove or repair line 3"):
        Store(store)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"key": 5, "row": {"scores": {}}}, "its key has no 'device'"),
        ({"key": {"format": 1}, "row": {}}, "its key has no 'device'"),
    ],
)
@pytest.mark.parametrize("verb", ["ls", "run", "report"])
def test_a_line_of_no_cell_is_refused(
    write: Write, tmp_path: Path, capsys: Any, line: dict[str, Any], said: str, verb: str
) -> None:
    file, store = write(), tmp_path / "rows.jsonl"
    filled(file, store, 0, {})
    store.write_text(store.read_text() + json.dumps(line) + "\n")
    before = store.read_bytes()
    assert command(["bench", verb, str(file), "--store", str(store), "--device", "cpu"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "line 7 of the store" in told
    assert f"is no result: {said}; remove or repair line 7" in told
    assert store.read_bytes() == before


def test_a_torn_last_line_is_still_repaired(write: Write, tmp_path: Path) -> None:
    file, store = write(), tmp_path / "rows.jsonl"
    filled(file, store, 0, {})
    store.write_text(store.read_text()[:-20])
    assert len(open_store(store)) == 5


def test_blank_lines_are_no_rows(write: Write, tmp_path: Path) -> None:
    file, store = write(), tmp_path / "rows.jsonl"
    filled(file, store, 0, {})
    store.write_text("\n" + store.read_text() + "\n\n")
    assert len(open_store(store)) == 6
    store.write_text(store.read_text() + '{"key": 5, "row": {}}\n')
    with pytest.raises(SettingError, match=r"line 10 of the store .* its key has no 'device'"):
        open_store(store)


def test_a_folder_of_models_that_cannot_be_written_is_a_bad_request(write: Write, tmp_path: Path, capsys: Any) -> None:
    file, store = write(methods=["unlink"], seeds=[1]), tmp_path / "rows.jsonl"
    given = ["bench", "run", str(file), "--store", str(store), "--device", "cpu"]
    assert command([*given, "--models", str(file / "models")]) == 2
    assert f"the folder of models '{file / 'models'}' cannot be written" in " ".join(capsys.readouterr().err.split())
    assert not store.exists()
    assert command([*given, "--models", str(tmp_path / "kept")]) == 0


def test_models_of_one_class_are_told_apart_while_they_run(write: Write, tmp_path: Path, capsys: Any) -> None:
    models = ["gin", {"name": "gin", "hidden": 32}]
    file = write(models=models, methods=["unlink"], seeds=[1], forget={"amount": 0.05, "where": "out"})
    names = [str(cell) for cell in cells(read(str(file)))]
    assert [" gin (hidden 32) " in name for name in names] == [False, True]
    assert command(["bench", "run", str(file), "--store", str(tmp_path / "rows.jsonl"), "--device", "cpu"]) == 1
    said = capsys.readouterr()
    for name in names:
        assert f"{name}: FAILED" in said.err
        assert f"failed: {name}: " in " ".join(said.out.split())


def test_a_torn_last_line_is_repaired(small: Experiment, store: Path) -> None:
    run([small], store=store)
    whole = store.read_text()
    store.write_text(whole[: whole.rindex("\n", 0, -1) + 40])  # the last line, torn
    assert run([small], store=store).done == 1
    assert len(lines(store)) == 6
    assert numbers(store).keys() == {json.dumps(cell.key, sort_keys=True) for cell in cells(small)}


@pytest.mark.parametrize("torn", [b'{"key": {"see', b'{"key": "\xc3'], ids=["torn", "torn within a letter"])
def test_lines_that_end_as_on_windows(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "r.jsonl"
    rows = [json.dumps({"key": {"seed": n}, "row": {"v": "é" * n}}).encode() for n in range(5)]
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([*rows, torn]))
    opened = Store(path)
    assert len(opened) == 5
    opened.add({"seed": 9}, {"v": 9})
    again = Store(path)
    assert len(again) == 6
    assert again.get({"seed": 4}) == {"v": "éééé"}


@pytest.mark.parametrize("name", [".", "folder"])
def test_a_folder_is_no_store(small: Experiment, tmp_path: Path, monkeypatch: Any, name: str) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match="is a folder; give a file"):
        run([small], store=Path(name))


def test_a_last_line_that_lacks_only_its_end_is_kept(small: Experiment, store: Path) -> None:
    run([small], store=store, choice=Choice(labels=["unlink"]))
    store.write_text(store.read_text().rstrip("\n"))
    assert run([small], store=store).already == 2
    assert len(lines(store)) == 6


def test_a_second_writer_is_refused(small: Experiment, store: Path) -> None:
    with locked(store), pytest.raises(SettingError, match=r"process \d+ on .* is writing to this store"):
        run([small], store=store)
    assert not store.exists()


def test_a_lock_file_that_its_holder_removed_is_not_taken_for_the_lock(store: Path, monkeypatch: Any) -> None:
    """Between opening the file and locking it, its holder may end and remove it, and a third process make a new one."""
    real, others = results_file.fcntl.flock, ExitStack()
    before = []

    def late(file: Any, flags: int) -> None:
        if not before:
            before.append(file)
            lock_file(store).unlink()
            others.enter_context(locked(store))
        real(file, flags)

    monkeypatch.setattr(results_file.fcntl, "flock", late)
    with pytest.raises(SettingError, match="is writing to this store"), locked(store):
        pass
    assert lock_file(store).exists()
    others.close()
    assert not lock_file(store).exists()


def test_the_lock_of_a_dead_process_is_taken_over(small: Experiment, store: Path) -> None:
    store.parent.mkdir()
    lock_file(store).write_text("process 4194305 on here\n")
    assert run([small], store=store, seeds=1, choice=Choice(labels=["unlink"])).done == 1
