"""The runner: nothing is done twice, nothing is lost, what fails is recorded and never counted."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gnndelete.bench import material as materials
from gnndelete.bench.executors import Here
from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.results_file import source
from gnndelete.bench.runner import Choice, Cost, run
from gnndelete.cli import run as command
from gnndelete.datasets import load
from gnndelete.errors import AbsentError, RunError, SettingError, StorageError
from gnndelete.io.store import Store
from gnndelete.methods import Unlink

from .conftest import SMALL, Write, lines, numbers


def test_a_sweep_and_the_same_again(small: Experiment, store: Path) -> None:
    first = run([small], store=store)
    assert (first.cells, first.done, first.failed, first.already, first.models) == (6, 6, 0, 0, 2)
    before = store.read_bytes()
    second = run([small], store=store)
    assert (second.done, second.already, second.models) == (0, 6, 0)
    assert store.read_bytes() == before
    for line in lines(store):
        row = line["row"]
        assert {"test_auroc", "deleted_auroc", "unseen_auc"} <= row["scores"].keys()
        assert {"test_auroc", "deleted_auroc", "unseen_auc"} <= row["before"].keys()
        assert row["seconds"] > 0
        assert row["train_seconds"] > 0
        assert row["hardware"]["device"] == line["key"]["device"] == "cpu"
        assert row["version"]
        assert row["finished"].endswith("Z")
        assert row["assurance"]


@pytest.mark.parametrize(("asked", "started"), [(16, 6), (2, 2), (1, 1)])
def test_no_more_processes_than_cells(
    small: Experiment, store: Path, monkeypatch: pytest.MonkeyPatch, asked: int, started: int
) -> None:
    seen: list[int] = []

    def counted(jobs: int, ray: str | None) -> Here:
        seen.append(jobs)
        return Here()

    monkeypatch.setattr("gnndelete.bench.runner.executor", counted)
    run([small], store=store, jobs=asked)
    assert seen == [started]


def test_cells_that_run_alone_need_no_processes(write: Write, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("gnndelete.bench.runner.executor", lambda jobs, ray: seen.append(jobs) or Here())
    run([read(str(write(methods=["unlink"], measures=["scores", "time"], seeds=[1, 2])))], store=store, jobs=4)
    assert seen == [1]


def test_the_same_cells_give_the_same_numbers(small: Experiment, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run([small], store=tmp_path / name / "r.jsonl")
    assert numbers(tmp_path / "a/r.jsonl") == numbers(tmp_path / "b/r.jsonl")


def test_a_failed_cell_is_recorded_and_not_counted(write: Write, store: Path, capsys: Any) -> None:
    """OUT of an undirected neighbourhood there is nothing here: such cells fail, the others do not."""
    experiment = read(str(write(forget={"amount": 0.05, "where": ["random", "out"]}, methods=["unlink"])))
    first = run([experiment], store=store)
    assert (first.done, first.failed) == (2, 2)
    failed = [line["row"] for line in lines(store) if "error" in line["row"]]
    assert len(failed) == 2
    for row in failed:
        assert "scores" not in row
        assert row["kind"] == "DeletionError"
        assert "are OUT" in row["error"]
    assert "FAILED" in capsys.readouterr().err
    again = run([experiment], store=store)
    assert (again.done, again.failed, again.failed_before, again.already) == (0, 2, 2, 4)
    assert again.failures == first.failures
    retried = run([experiment], store=store, retry_failed=True)
    assert (retried.done, retried.failed, retried.failed_before, retried.already, retried.left) == (0, 2, 0, 2, 0)
    assert Cost(Store(store)).of({**lines(store)[0]["key"]}) is not None


def test_a_full_gpu_is_told_in_one_sentence(small: Experiment, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has … Process 1 has …")

    monkeypatch.setattr("gnndelete.bench.measure.measure", measure)
    run([small], store=store)
    said = {line["row"]["error"] for line in lines(store)}
    assert said == {"CUDA out of memory. Tried to allocate 1.00 GiB; run it with fewer --jobs"}


def test_a_method_that_does_not_apply_is_no_failure(write: Write, store: Path, capsys: Any) -> None:
    file = str(write(methods=["megu", "unlink"]))
    summary = run([read(file)], store=store)
    assert (summary.done, summary.failed, summary.unfit) == (2, 0, 2)
    assert run([read(file)], store=store).failed == 0
    assert command(["bench", "ls", file, "--store", str(store), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (entry["done"], entry["failed"], entry["unfit"], entry["missing"]) == (2, 0, 2, 0)
    more = str(write("more", methods=["megu", "unlink"], seeds=[1, 2, 3]))
    assert command(["bench", "ls", more, "--store", str(store), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (entry["done"], entry["unfit"], entry["missing"]) == (2, 2, 2)
    assert command(["bench", "report", more, "--store", str(store), "--out", str(store.parent / "report")]) == 0
    index = (store.parent / "report/index.md").read_text()
    assert "| [A small one](own/more.md) | 2 | 0 | 2 | 0 | 2 |" in index  # done, failed, unfit, not here, not run
    assert {line["row"].get("kind") for line in lines(store)} == {None, "Unfit"}


def test_a_base_model_that_cannot_be_trained(write: Write, store: Path) -> None:
    experiment = read(str(write(models=[{"name": "gps", "max_nodes": 10}])))  # the graph has more
    summary = run([experiment], store=store)
    assert (summary.done, summary.failed, summary.left) == (0, 6, 0)
    for line in lines(store):
        assert line["row"]["error"].startswith("its base model could not be trained: ")
    assert run([experiment], store=store).already == 6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": ["rgcn"]}, "'rgcn' is for typed edges"),
        ({"models": [{"name": "gcn", "hidden": "abc"}]}, "'models.hidden' should be a whole number (got 'abc')"),
        ({"models": [{"name": "gps", "hidden": 9}]}, "no 'gps' with hidden 9 can be made: 'hidden' must be a multiple"),
        ({"seeds": []}, "'seeds' is an empty list; name at least one"),
        ({"seeds": [2**32], "measures": ["mi"]}, "'seeds' should be less than 4294967296 (got 4294967296)"),
        (
            {"forget": {"amount": 5000}},
            "'forget.amount': 5,000 edges cannot be deleted: there are at most 1,080 edges to learn from in 'gene",
        ),
        ({"methods": [{"name": "gnndelete", "layers": ["conv9"]}]}, "no module 'conv9'; take all, last or names among"),
    ],
)
def test_what_would_fail_in_every_cell_is_refused_at_once(
    write: Write, store: Path, changes: dict[str, Any], words: str, capsys: Any
) -> None:
    assert command(["bench", "run", str(write(**changes)), "--store", str(store), "--device", "cpu"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not store.exists()


def test_a_run_leaves_no_lock_and_a_refused_one_no_folder(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(tmp_path.rglob("*"))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingError, match="needs the package 'ray'"):
        run([small], store=tmp_path / "new/deep/r.jsonl", ray="local", models=tmp_path / "kept/models")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingError, match="the folder of models"):
        run([small], store=tmp_path / "new/deep/r.jsonl", models=tmp_path / "file/models")
    assert set(tmp_path.rglob("*")) == before | {tmp_path / "file"}
    run([small], store=tmp_path / "new/r.jsonl", seeds=1, choice=Choice(labels=["unlink"]))
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"r.jsonl", "models"}


def test_time_that_is_up(small: Experiment, store: Path) -> None:
    summary = run([small], store=store, limit_seconds=0)
    assert (summary.done, summary.left) == (0, 6)
    assert not store.exists()


def test_only_some_cells(write: Write, store: Path) -> None:
    experiment = read(str(write(forget={"amount": [0.05, 0.1]})))
    summary = run([experiment], store=store, choice=Choice(labels=["fixed"], amounts=[0.1]))
    assert summary.done == 2
    with pytest.raises(SettingError, match="has the method 'fixd'; did you mean 'fixed'"):
        run([experiment], store=store, choice=Choice(labels=["fixd"]))


def test_nothing_to_do_is_no_success(write: Write, store: Path, capsys: Any) -> None:
    methods = ["unlink", {"name": "gradascent", "only": {"amount": [0.1]}}]
    file = str(write(forget={"amount": [0.05, 0.1]}, methods=methods))
    asked = ["bench", "run", file, "--store", str(store), "--device", "cpu"]
    assert command([*asked, "--only", "gradascent", "--amount", "0.05"]) == 2
    assert "no cell of these experiments has all of that: method gradascent, amount 0.05" in capsys.readouterr().err
    for option in ("--only", "--dataset", "--model", "--amount"):
        assert command([*asked, option, " , "]) == 2
        assert f"'{option}' names nothing" in capsys.readouterr().err
    assert not store.exists()


def test_more_seeds_than_there_are_is_said(write: Write, store: Path, capsys: Any) -> None:
    assert command(["bench", "ls", str(write()), "--store", str(store), "--device", "cpu", "--seeds", "99"]) == 0
    assert "--seeds 99: there are 2 at most" in capsys.readouterr().err


def test_a_dataset_that_is_not_here_is_left_out(
    write: Write, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnndelete import datasets
    from gnndelete.errors import GraphError

    def absent(name: str) -> None:
        raise GraphError(f"dataset '{name}' is not here and cannot be downloaded")

    monkeypatch.setattr(datasets, "load", absent)
    summary = run([read(str(write(datasets=["cora"], missing={"cora": "it has to be downloaded"})))], store=store)
    assert summary.skipped == {"cora": "dataset 'cora' is not here (it has to be downloaded)"}
    assert (summary.done, summary.failed) == (0, 0)


def test_a_dataset_that_was_expected_here_fails_no_cell(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (own,) = SMALL["datasets"]

    def offline(name: str) -> Any:
        if name == "cora":
            raise AbsentError("dataset 'cora' is not here and cannot be downloaded (no network); put it there")
        return load(name)

    materials._load_material.cache_clear()
    monkeypatch.setattr(materials, "load_dataset", offline)
    asked = read(str(write(datasets=["cora", own])))
    summary = run([asked], store=store)
    assert list(summary.skipped) == ["cora"]
    assert (summary.done, summary.failed, summary.left) == (6, 0, 0)
    assert "FAILED" not in capsys.readouterr().err
    assert {line["key"]["dataset"] for line in lines(store)} == {own}
    monkeypatch.setattr(materials, "load_dataset", lambda name: load(own))
    again = run([asked], store=store)
    materials._load_material.cache_clear()
    assert (again.already, again.done, again.skipped) == (6, 6, {})


def test_the_command_line(write: Write, store: Path, capsys: Any) -> None:
    file = str(write(seeds=[1]))
    assert command(["bench", "run", file, "--store", str(store), "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 3
    assert command(["bench", "run", file, "--store", str(store), "--device", "cpu"]) == 0
    assert "there is nothing to do" in capsys.readouterr().out
    assert command(["bench", "ls", file, "--store", str(store), "--device", "cpu", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (entry["cells"], entry["done"], entry["failed"], entry["missing"]) == (3, 3, 0, 0)
    wider = str(write("wider", seeds=[1, 2]))
    assert command(["bench", "ls", wider, "--store", str(store), "--device", "cpu", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (entry["done"], entry["missing"], entry["unknown"]) == (3, 3, 0)
    assert entry["expected_seconds"] > 0
    assert command(["bench", "run", "nonsense"]) == 2
    assert "there is no experiment 'nonsense'" in capsys.readouterr().err
    failing = str(write("failing", forget={"amount": 0.05, "where": "out"}))
    options = ["--store", str(store), "--device", "cpu"]
    assert command(["bench", "run", failing, *options]) == 1
    capsys.readouterr()
    assert command(["bench", "run", failing, *options, "--limit-seconds", "0"]) == 1
    assert "6 of them failed; --retry-failed runs them again" in capsys.readouterr().out
    assert command(["bench", "run", failing, *options, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["failures"]) == 6


@pytest.mark.parametrize("changes", [{"datasets": ["digit"]}, {"published": "link_predictions"}])
def test_what_would_fail_everywhere_is_refused(write: Write, store: Path, changes: dict[str, Any]) -> None:
    assert command(["bench", "run", str(write(**changes)), "--store", str(store), "--device", "cpu"]) == 2
    assert not store.parent.exists()


def test_a_store_that_cannot_be_written_is_a_bad_request(write: Write, capsys: Any) -> None:
    file = write()
    assert command(["bench", "run", str(file), "--store", str(file / "results.jsonl"), "--device", "cpu"]) == 2
    assert f"the store '{file / 'results.jsonl'}' cannot be written" in capsys.readouterr().err


def test_stopped_it_says_how_to_go_on(write: Write, store: Path, monkeypatch: Any, capsys: Any) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gnndelete.bench.executors.perform", stop)
    assert command(["bench", "run", str(write()), "--store", str(store), "--device", "cpu"]) == 130
    said = capsys.readouterr().err
    assert said.count("topped") == 1
    assert "the same command goes on with the rest" in said


def test_the_first_line_says_what_there_is_to_do(small: Experiment, store: Path, capsys: Any) -> None:
    run([small], store=store, choice=Choice(labels=["unlink"]), seeds=1)
    assert capsys.readouterr().err.splitlines()[0] == "1 cell, 0 done, 1 model to train"
    run([small], store=store, choice=Choice(labels=["unlink"]))
    assert capsys.readouterr().err.splitlines()[0] == "2 cells, 1 done, 1 model to train"


def test_rows_of_another_source_are_named(write: Write, store: Path, capsys: Any) -> None:
    file = str(write(methods=["unlink"]))
    options = ["--store", str(store), "--device", "cpu"]
    assert command(["bench", "run", file, *options]) == 0
    assert "from source" not in capsys.readouterr().out
    changed = [{**line, "row": {**line["row"], "git": "0123456789abcdef"}} for line in lines(store)]
    store.write_text("".join(json.dumps(line) + "\n" for line in changed))
    assert command(["bench", "run", file, *options]) == 0
    assert f"2 rows from source 0123456789ab; this is {source()}." in capsys.readouterr().out


def _order(capsys: Any) -> list[str]:
    """What was done, in the order of the lines: 'seed 1: unlink', …"""
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    return [line[line.index("seed") :].split("  ")[0] for line in said]


def test_cells_follow_their_model_before_the_next_one_is_trained(small: Experiment, store: Path, capsys: Any) -> None:
    run([small], store=store)
    order = _order(capsys)
    assert [name.partition(":")[0] for name in order] == ["seed 1"] * 4 + ["seed 2"] * 4
    assert order[0] == "seed 1: model"
    assert order[4] == "seed 2: model"


def test_a_shadow_model_comes_between_its_base_and_its_cells(write: Write, store: Path, capsys: Any) -> None:
    experiment = read(str(write(measures=["scores", "mi"], methods=["unlink"])))
    run([experiment], store=store)
    order = _order(capsys)
    for seed in ("seed 1", "seed 2"):
        places = [order.index(f"{seed}: {what}") for what in ("model", "shadow", "unlink")]
        assert places == sorted(places)


def test_cells_of_a_model_that_fails_are_lost_and_the_others_done(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = materials.base_model

    def second_fails(key: Any, *rest: Any) -> Any:
        if key["seed"] == 2:
            raise ValueError("no luck")
        return train(key, *rest)

    monkeypatch.setattr(materials, "base_model", second_fails)
    summary = run([read(str(write()))], store=store)
    assert (summary.done, summary.failed, summary.left, summary.models) == (3, 3, 0, 1)
    assert {failure["error"] for failure in summary.failures} == {
        "its base model could not be trained: ValueError: no luck"
    }


def test_an_error_that_nobody_raised_on_purpose_has_its_kind_and_its_place(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def forgets(self: Any, context: Any) -> Any:
        return {}["beta"] if context.seed == 1 else torch.nn.Linear(3, 2)(torch.ones(1, 4))

    monkeypatch.setattr(Unlink, "unlearn", forgets)
    file = str(write(methods=["unlink"]))
    assert command(["bench", "run", file, "--store", str(store)]) == 1
    said = capsys.readouterr()
    assert "FAILED: KeyError: 'beta'" in said.err
    assert "unlink: KeyError: 'beta'" in said.out
    rows = {line["key"]["seed"]: line["row"] for line in lines(store)}
    assert rows[1]["kind"] == "KeyError"
    assert "test_runner.py:" in rows[1]["where"][-1]
    assert rows[1]["where"][-1].endswith(" forgets")
    assert rows[2]["where"][0].endswith(" forgets")  # one's own line, although torch has the innermost three
    assert [place.split("/")[0] for place in rows[2]["where"][1:]] == ["torch"] * 3
    for place in (*rows[1]["where"], *rows[2]["where"]):
        assert f"  at {place}" in said.out
        assert not place.startswith("/")
    assert command(["bench", "run", file, "--store", str(store), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["failures"]
    assert told[0]["where"] == rows[1]["where"]


def test_an_error_with_a_way_out_has_no_place(small: Experiment, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: Any, context: Any) -> Any:
        raise RunError("it broke; mend it")

    monkeypatch.setattr(Unlink, "unlearn", refuses)
    summary = run([small], store=store, choice=Choice(labels=["unlink"]))
    assert {failure["error"] for failure in summary.failures} == {"it broke; mend it"}
    assert not any("where" in line["row"] for line in lines(store))


@pytest.mark.parametrize("error", [StorageError("no room"), OSError(errno.ENOSPC, "no room")])
def test_a_full_disk_ends_a_run_and_fails_no_cell(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    train, experiment = materials.fit, read(str(write()))

    def second_is_full(model: Any, made: Any, schedule: Any, seed: int) -> None:
        if seed == 2:
            raise error
        train(model, made, schedule, seed)

    monkeypatch.setattr(materials, "fit", second_is_full)
    with pytest.raises(RunError, match=r"no room; finished cells are stored: make room"):
        run([experiment], store=store)
    assert {line["key"]["seed"] for line in lines(store)} == {1}
    monkeypatch.undo()
    summary = run([experiment], store=store)
    assert (summary.already, summary.done, summary.failed) == (3, 3, 0)


def test_a_model_that_cannot_be_kept_ends_the_run(
    small: Experiment, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> None:
        raise StorageError("could not write to 'models' (No space left on device)")

    monkeypatch.setattr(materials, "write", write)
    with pytest.raises(RunError, match="No space left"):
        run([small], store=store)
    assert not store.exists() or not store.read_text()


def test_what_failed_before_is_not_called_done(write: Write, store: Path, capsys: Any) -> None:
    """OUT of an undirected neighbourhood there is nothing here, and MEGU is for classes of nodes."""
    asked = {"forget": {"amount": 0.05, "where": ["random", "out"]}, "methods": ["unlink", "megu"]}
    run([read(str(write(**asked)))], store=store)
    capsys.readouterr()
    summary = run([read(str(write(**asked, seeds=[1, 2, 3])))], store=store)
    said = capsys.readouterr().err.splitlines()[0]
    assert said.startswith("12 cells, 2 done, 4 failed before, 2 to which a method does not apply, 1 model to train")
    assert (summary.failed, summary.failed_before, summary.unfit, summary.unfit_before, summary.left) == (6, 4, 3, 2, 0)


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
