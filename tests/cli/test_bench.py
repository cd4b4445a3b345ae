"""``gnndelete bench report`` on a store of rows for an experiment of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnndelete.bench.report.results import plans
from gnndelete.cli import run
from gnndelete.io.store import Store


def row(label: str, seconds: float, **scores: float) -> dict[str, Any]:
    """A finished cell, in the form in which the runner stores it."""
    hardware = {"device": "cpu", "name": "X", "jobs": 1}
    return {"label": label, "scores": scores, "seconds": seconds, "parameters": 0, "lam": None, "hardware": hardware}


EXPERIMENT = """
title: Links of digits
task: link
datasets: [digits]
models: [gcn]
forget: {kind: edges, amount: 0.05}
methods: [retrain, unlink, {label: calibrated, name: gnndelete}]
seeds: [1, 2]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(EXPERIMENT)
    (plan,) = plans(["mine.yaml"], "cpu")
    store = Store("rows.jsonl")
    for job in plan.cells:
        spent = 6.0 if job.label == "retrain" else 0.05
        store.add(job.key, row(job.label, spent, test_auroc=0.9, deleted_auroc=0.6, unseen_auc=0.5))
    return tmp_path


def test_pages_tables_and_one_json_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "report", "mine.yaml", "--store", "rows.jsonl", "--out", "out", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["device"] == "cpu"
    assert {"index.md", "summary.md", "own/mine.md", "tables/mine.csv", "tables/mine.tex"} <= set(values["files"])
    assert all((folder / "out" / name).is_file() for name in values["files"])
    assert {each["label"] for each in values["distances"]} == {"unlink", "calibrated"}
    page = (folder / "out/own/mine.md").read_text()
    assert "gnndelete bench run mine.yaml --seeds 2 --device cpu --store rows.jsonl" in page
    assert "6 of 6 runs done." in page


def test_notes_of_ones_own_are_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other").mkdir()
    (folder / "other/index.md").write_text("MY OWN NOTES")
    assert run(["bench", "report", "mine.yaml", "--store", "rows.jsonl", "--out", "other"]) == 2
    assert "'other/index.md' would be overwritten, and no report has written it" in capsys.readouterr().err
    assert [path.name for path in (folder / "other").iterdir()] == ["index.md"]
    assert (folder / "other/index.md").read_text() == "MY OWN NOTES"


def test_twice_gives_the_same_bytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for _ in range(2):
        assert run(["bench", "report", "mine.yaml", "--store", "rows.jsonl", "--out", "out"]) == 0
        found.append({path: path.read_bytes() for path in (folder / "out").rglob("*.*")})
    assert found[0] == found[1]
    assert "begin with out/index.md" in capsys.readouterr().out


def test_the_printed_commands_name_what_was_given(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a folder").mkdir()
    (folder / "mine.yaml").rename(folder / "a folder/mine.yaml")
    given = ["bench", "report", "a folder/mine.yaml", "--store", "rows.jsonl", "--out", "out", "--seeds", "1"]
    assert run([*given, "--figures", "png"]) == 0
    index, page = (folder / "out/index.md").read_text(), (folder / "out/own/mine.md").read_text()
    assert (
        "gnndelete bench report 'a folder/mine.yaml' --device cpu --store rows.jsonl --out out --seeds 1 --figures png"
        in index
    )
    assert "gnndelete bench run 'a folder/mine.yaml' --seeds 1 --device cpu --store rows.jsonl" in page
    assert "1 experiment written" in capsys.readouterr().out


def test_a_device_without_a_row_is_refused_with_those_that_have_some(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["bench", "report", "mine.yaml", "--store", "rows.jsonl", "--out", "out", "--device", "cuda"]
    assert run(given) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the store 'rows.jsonl' has no row of --device cuda: 6 rows, of cpu; leave --device out" in said
    assert not (folder / "out").exists()
    (plan,) = plans(["mine.yaml"], "cuda")
    Store("rows.jsonl").add(plan.cells[0].key, row(plan.cells[0].label, 6.0, test_auroc=0.9))
    assert run(given) == 0
    assert "1 of 6 runs done." in (folder / "out/own/mine.md").read_text()


@pytest.mark.parametrize(("first", "second"), [("a/mine.yaml", "b/mine.yaml"), ("paper/lambda", "paper-lambda.yaml")])
def test_two_experiments_never_share_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str], first: str, second: str
) -> None:
    for name in (first, second):
        if name.endswith(".yaml"):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(EXPERIMENT)
    assert run(["bench", "report", first, second, "--store", "rows.jsonl", "--out", "out"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"'{first}' and '{second}' would write the same files" in said
    assert not (folder / "out").exists()


def test_one_file_under_two_names_is_one_experiment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "report", "mine.yaml", "./mine.yaml", "--store", "rows.jsonl", "--out", "out"]) == 0
    assert "1 experiment written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "none.jsonl"], "there is no store 'none.jsonl'"),
        (["--device", "tpu"], "has no row of --device tpu"),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert run(["bench", "report", "mine.yaml", "--store", "rows.jsonl", *options]) == 2
    error = capsys.readouterr().err
    assert said in error.replace("\n", " ")
    assert "Traceback" not in error


def test_a_folder_that_cannot_be_written_is_refused_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnndelete.bench.report.pages.build", lambda *_: pytest.fail("it began to work"))
    for out, code in (("rows.jsonl", 2), ("rows.jsonl/below", 1)):
        assert run(["bench", "report", "mine.yaml", "--store", "rows.jsonl", "--out", out]) == code


def test_rows_of_experiments_that_are_not_named_are_pointed_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = (
        "The store has 6 rows, but none of these experiments on this device; name the YAML file that they come from, or the "
        "--device that they were run on."
    )
    assert run(["bench", "report", "paper/lambda", "--store", "rows.jsonl", "--out", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["note"] == said
    assert said in (folder / "out/index.md").read_text()
    assert run(["bench", "report", "mine.yaml", "--store", "rows.jsonl", "--out", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["note"] is None
