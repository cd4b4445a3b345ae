"""``gnndelete delete``: sequences, what is written and what is not, and errors that change nothing."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
import torch
import yaml
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.datasets.forget import training_edges

from .conftest import SMALL, Cli, contents, latest, opened

ADAPTER = {"adapter_config.json", "adapter_model.safetensors", "README.md"}


def _open(run: Path) -> tuple[torch.nn.Module, gd.tasks.Task, list[tuple[int, int]], torch.Tensor]:
    model, graph, task = opened(run)
    return model, task, [tuple(pair) for pair in training_edges(graph.data).t().tolist()], graph.data


def _csv(path: Path, header: str, rows: list[object]) -> Path:
    lines = [",".join(map(str, row)) if isinstance(row, tuple) else str(row) for row in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_sequence_equals_one_request(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    _, _, edges, _ = _open(link_run)
    first, second = edges[:3], edges[10:12]
    one = cli("delete", link_run, "--edges", _csv(tmp_path / "a.csv", "source,target", first), "--json")
    assert one.values["requests"] == 1
    u, v = second[0]
    both = cli("delete", link_run, "--edge", f"{v},{u}", "--edge", f"{second[1][0]},{second[1][1]}", "--json")
    assert (both.values["requests"], both.values["counts"], both.values["request"]) == (2, {"edges": 5}, {"edges": 2})
    sequence = contents(latest(link_run))
    all_at_once = _csv(tmp_path / "all.csv", "source,target", [*second, *first])
    fresh = cli("delete", link_run, "--edges", all_at_once, "--fresh", "--out", tmp_path / "once", "--json")
    assert fresh.values["requests"] == 1
    assert "back in the model" in fresh.err
    once = contents(tmp_path / "once")
    assert once["adapter_model.safetensors"] == sequence["adapter_model.safetensors"]
    assert fresh.values["after"] == both.values["after"]


def test_a_prepared_run_gives_the_same_result_from_rows(cli: Cli, tmp_path: Path) -> None:
    once = torch.cat([torch.stack([torch.arange(400), (torch.arange(400) + step) % 400]) for step in (1, 2)], dim=1)
    generator = torch.Generator().manual_seed(0)
    graph = Data(x=torch.randn(400, 6, generator=generator), edge_index=torch.cat([once, once.flip(0)], dim=1))
    torch.save(graph, tmp_path / "ring.pt")
    link_run, other = tmp_path / "run", tmp_path / "other"
    assert cli("train", "--graph", tmp_path / "ring.pt", "--out", link_run, *SMALL).code == 0
    shutil.copytree(link_run, other)
    _, _, edges, _ = _open(link_run)
    prepared = cli("delete", link_run, "--prepare", "--json")
    assert (prepared.code, prepared.values["local"]) == (0, True)
    files = {path.name: path.stat().st_mtime_ns for path in (link_run / "prepared").iterdir()}
    results = {}
    for run in (link_run, other):
        request = ("--edge", "{},{}".format(*edges[0]), "--edge", "{},{}".format(*edges[9]), "--lam", 0.3)
        results[run] = cli("delete", run, *request, "--json").values
    assert (results[link_run]["engine"], results[other]["engine"]) == ("local", "full")
    for scores in ("before", "after"):
        assert results[link_run][scores] == pytest.approx(results[other][scores], abs=1e-6)
    assert {path.name: path.stat().st_mtime_ns for path in (link_run / "prepared").iterdir()} == files
    assert cli("verify", link_run).code == 0
    assert cli("close", link_run).code == 0
    assert not (link_run / "prepared").exists()


@pytest.mark.parametrize("option", ["--edges", "--random"])
def test_an_option_that_takes_one_value_is_not_given_twice(cli: Cli, link_run: Path, option: str) -> None:
    before = contents(link_run)
    values = ("a.csv", "b.csv") if option == "--edges" else (5, 10)
    found = cli("delete", link_run, option, values[0], option, values[1])
    assert found.code == 2
    assert f"'{option}': it comes twice" in found.err
    assert contents(link_run) == before


def test_what_is_written(cli: Cli, link_run: Path) -> None:
    model, task, edges, data = _open(link_run)
    base = contents(link_run)
    shown = cli("delete", link_run, "--edge", "{},{}".format(*edges[0]), "--lam", 0.3)
    assert shown.code == 0
    for words in (
        "test AUROC",
        "deleted AUROC",
        "seconds",
        "approximate",
        "disabling the adapter",
        "aim: retrained",
        "lam 0.3 was given, not calibrated",
        "SENSITIVE",
    ):
        assert words in shown.out
    after = contents(link_run)
    assert [name for name in base if after[name] != base[name]] == ["current"]
    files = ADAPTER | {"result.json", "settings.yaml", "state.json", "manifest.json"}
    assert after.keys() - base.keys() == {f"versions/0001/{name}" for name in files}
    folder = latest(link_run)
    for name in ("state.json", "adapter_model.safetensors"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert json.loads(after["versions/0001/result.json"])["settings"]["lam"] == 0.3
    remaining = gd.Deletion(edges=[edges[0]]).remaining(data)
    loaded = gd.load(folder, model, remaining, task=task)
    assert loaded.predict([edges[0]]).isfinite().all()


def test_elements_are_named_in_the_state_only(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    _, _, edges, _ = _open(link_run)
    u, v = edges[7]
    assert cli("delete", link_run, "--edge", f"{u},{v}").code == 0
    folder = contents(latest(link_run))
    assert json.loads(folder.pop("state.json"))["requests"] == [{"edges": [[u], [v]]}]
    for name, content in folder.items():
        assert f"{u},{v}".encode() not in content.replace(b" ", b""), name


def test_methods_without_adapter_leave_a_model(cli: Cli, link_run: Path) -> None:
    _, _, edges, _ = _open(link_run)
    assert cli("delete", link_run, "--edge", "{},{}".format(*edges[0])).code == 0
    retrained = cli("delete", link_run, "--edge", "{},{}".format(*edges[1]), "--method", "retrain", "--json")
    assert retrained.values["assurance"] == "retrained"
    assert retrained.values["settings"]["epochs"] == 20  # the run's own schedule
    files = {"model.safetensors", "result.json", "settings.yaml", "state.json", "manifest.json"}
    assert contents(latest(link_run)).keys() == files
    unlinked = cli("delete", link_run, "--random", 2, "--method", "unlink", "--json").values
    assert (unlinked["assurance"], unlinked["requests"], unlinked["counts"]) == ("inference-only", 3, {"edges": 4})
    assert (latest(link_run) / "model.safetensors").read_bytes() == (link_run / "base/model.safetensors").read_bytes()
    own = cli("delete", link_run, "--random", 1, "--method", "retrain", "--set", "method.epochs=3", "--json").values
    assert own["settings"]["epochs"] == 3


def test_random_requests_do_not_repeat(cli: Cli, link_run: Path) -> None:
    counts = [cli("delete", link_run, "--random", 0.1, "--json").values["counts"]["edges"] for _ in range(3)]
    assert counts == sorted(set(counts))
    inside = cli("delete", link_run, "--random", 1, "--where", "in", "--hops", "directed", "--draw-seed", 4, "--json")
    assert inside.values["request"] == {"edges": 1}
    nodes = cli("delete", link_run, "--random", 2, "--kind", "nodes", "--json")
    assert nodes.values["request"] == {"nodes": 2}


def test_dry_run_writes_nothing(cli: Cli, link_run: Path) -> None:
    before = contents(link_run)
    plan = cli("delete", link_run, "--random", 4, "--dry-run", "--json")
    assert (plan.code, plan.values["request"], plan.values["earlier_requests"]) == (0, {"edges": 4}, 0)
    assert "Nothing was written" in cli("delete", link_run, "--random", 4, "--dry-run").out
    assert cli("delete", link_run, "--edge", "0,30", "--dry-run").code == 2
    assert contents(link_run) == before


def test_aims(cli: Cli, link_run: Path) -> None:
    strong = ("--lam", "auto", "--aim", "nonexistent", "--set", "method.budget=0.02")
    planned = cli("delete", link_run, "--random", 8, *strong, "--dry-run")
    assert (planned.code, "aim: nonexistent" in planned.out, "when it runs" in planned.out) == (0, True, True)
    assert "lam 0.3 was given" in cli("delete", link_run, "--random", 8, "--lam", 0.3, "--dry-run").out
    done = cli("delete", link_run, "--random", 8, *strong, "--json").values
    assert (done["aim"], done["settings"]["budget"], done["calibration"]["budget"]) == ("nonexistent", 0.02, 0.02)
    shown = cli("delete", link_run, "--random", 8, "--fresh").out  # as if retrained, by default
    assert "aim: retrained" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("aim: ")]
    assert "validation" in line or "AUC" in line or "held" in line
    assert shown.count(line.partition(". ")[2]) == 1


def test_a_held_out_edge_is_explained(cli: Cli, link_run: Path) -> None:
    _, task, _, _ = _open(link_run)
    assert isinstance(task, gd.LinkPrediction)
    for part, word in ((task.validation, "validation"), (task.test, "testing")):
        assert part is not None
        v, u = part.positives[:, 0].tolist()
        said = cli("delete", link_run, "--edge", f"{u},{v}").sentence
        assert f"held out from training: ({u}, {v}) (for {word})" in said or f"({v}, {u})" in said
        assert "not trained on them" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing is named"),
        (("--edge", "0,30"), "only edges that the model was trained on"),
        (("--edge", "a,b"), "--edge 0,5"),
        (("--edge", "0,1,2"), "it is written source,target"),
        (("--edge", '"0,1'), "--edge 0,5"),
        (("--edge", ""), "it is written source,target"),
        (("--node", "ann"), "nodes have numbers here"),
        (("--set", "deletion.nodes=[true]"), "'deletion.nodes': input should be a valid string"),
        (("--edge", "0,60"), "go from 0 to 59"),
        (("--node", "60"), "go from 0 to 59"),
        (("--node", "-1"), "--node -1 (nodes have numbers here, from 0"),
        (("--edges", "missing.csv"), "the request file 'missing.csv' cannot be read: it does not exist"),
        (("--edges", "other.csv"), "are separated by ';' ('1;2'); use commas"),
        (("--edges", "wrong.csv"), "2 lines of"),
        (("--random", "0"), "'deletion.random': input should be greater than 0 (got 0"),
        (("--random", "99999999"), "(got 99999999)"),
        (("--edges", "nodes.csv"), "give it with --nodes"),
        (("--nodes", "empty.csv"), "is empty"),
        (("--nodes", "bare.csv"), "no rows"),
        (("--random", "0.5", "--node", "1"), "or have it drawn"),
        (("--random", "inf"), "should be less than"),
        (("--random", "1.5"), "share below 1"),
        (("--random", "1000"), "between 1 and"),
        (("--random", "0.1", "--where", "sideways"), "'random', 'in', 'out'"),
        (("--random", "0.1", "--method", "gndelete"), "did you mean 'gnndelete'"),
        (("--random", "0.1", "--method", "unlink", "--lam", "0.1"), "method 'unlink' has no setting 'method.lam'"),
        (("--random", "0.1", "--set", "method.lamb=1"), "did you mean 'method.lam'"),
        (("--random", "0.1", "--lam", "high"), "'method.lam' should be"),
        (("--random", "0.1", "--lam", "2"), "from 0 to 1"),
        (("--random", "0.1", "--lam", "nan"), "from 0 to 1"),
        (("--random", "0.1", "--aim", "nonexistant"), "'retrained' or 'nonexistent'"),
        (("--random", "0.1", "--set", "method.budget=-1"), "'budget'"),
        (
            ("--random", "0.1", "--method", "unlink", "--aim", "retrained"),
            "method 'unlink' has no setting 'method.aim'",
        ),
        (("--random", "0.1", "--set", "method.lam=yes"), "(got True)"),
        (("--random", "0.1", "--set", "data.seed=1"), "was trained with 0"),
        (("--random", "0.1", "--set", "model.hidden=9"), "was trained with 8"),
        (("--random", "0.1", "--out", "occupied"), "holds other files"),
        (("--random", "0.1", "--request-id", ""), "1 to 200 printable"),
        (("--random", "0.1", "--out", "run"), "holds a run"),
        (("--random", "0.1", "--out", "bare.csv"), "is a file"),
    ],
)
def test_a_bad_request_changes_nothing(
    cli: Cli, link_run: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    _csv(tmp_path / "nodes.csv", "node", [1, 2])
    _csv(tmp_path / "bare.csv", "node", [])
    (tmp_path / "other.csv").write_text("1;2\n3;4\n")
    (tmp_path / "wrong.csv").write_text("source,target\n1,2\n-1,4\nx,4\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied/thesis.tex").write_text("mine")
    assert cli("delete", link_run, "--node", 17).code == 0
    before = contents(tmp_path)
    refused = cli("delete", link_run, *arguments)
    assert refused.code == 2, refused.err
    assert said in refused.sentence
    assert len(refused.sentence.splitlines()) == 1
    assert contents(tmp_path) == before


def test_nothing_is_deleted_twice(cli: Cli, link_run: Path) -> None:
    assert cli("delete", link_run, "--node", 4).code == 0
    before = contents(link_run)
    again = cli("delete", link_run, "--node", 4, "--json")
    assert again.code == 2
    assert "already deleted" in again.values["error"]["message"]
    assert contents(link_run) == before


def test_what_was_deleted_before_can_be_skipped(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    _, _, edges, _ = _open(link_run)
    far = [pair for pair in edges if 4 not in pair]
    assert cli("delete", link_run, "--edges", _csv(tmp_path / "a.csv", "source,target", far[:3]), "--node", 4).code == 0
    file = _csv(tmp_path / "b.csv", "source,target", [far[2][::-1], *far[3:6]])
    refused = cli("delete", link_run, "--edges", file, "--node", 4)
    assert refused.code == 2
    assert "leave them out, earlier requests stay in force (--skip-deleted does so)" in refused.sentence
    before = contents(link_run)
    plan = cli("delete", link_run, "--edges", file, "--node", 4, "--skip-deleted", "--dry-run", "--json")
    assert (plan.values["request"], plan.values["skipped"]) == ({"edges": 3}, 2)
    assert contents(link_run) == before
    done = cli("delete", link_run, "--edges", file, "--node", 4, "--skip-deleted", "--json")
    assert (done.code, done.values["request"], done.values["skipped"]) == (0, {"edges": 3}, 2)
    assert done.values["counts"] == {"edges": 6, "nodes": 1}
    assert "left out 2 elements that earlier requests have deleted: " in done.err
    before = contents(link_run)
    nothing = cli("delete", link_run, "--edges", file, "--skip-deleted")
    assert (nothing.code, "nothing is left to delete" in nothing.sentence) == (2, True)
    assert contents(link_run) == before
    new = cli("delete", link_run, "--edge", f"{far[6][0]},{far[6][1]}", "--skip-deleted", "--json")
    assert (new.code, new.values["skipped"], "left out" in new.err) == (0, 0, False)


def test_held_out_edges_can_be_skipped(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    _, task, edges, _ = _open(link_run)
    assert isinstance(task, gd.LinkPrediction)
    assert task.validation is not None
    assert task.test is not None
    held = [*task.validation.positives[:, :2].t().tolist(), *task.test.positives[:, :1].t().tolist()]
    (a, b), (u, v) = held[0], held[2]
    file = _csv(tmp_path / "a.csv", "source,target", [*map(tuple, held), (b, a), *edges[:3]])
    refused = cli("delete", link_run, "--edges", file)
    assert (refused.code, "remove them from your own data (--skip-unseen leaves them out)" in refused.err) == (2, True)
    before = contents(link_run)
    plan = cli("delete", link_run, "--edges", file, "--skip-unseen", "--dry-run", "--json")
    assert (plan.values["request"], plan.values["skipped_unseen"]) == ({"edges": 3}, 3)
    assert contents(link_run) == before
    done = cli("delete", link_run, "--edges", file, "--skip-unseen", "--json")
    assert (done.code, done.values["counts"], done.values["skipped_unseen"]) == (0, {"edges": 3}, 3)
    assert "left out 3 edges that the model was not trained on: " in done.err
    assert f"({min(u, v)}, {max(u, v)}) (for testing)" in done.err
    _, after, _, _ = _open(link_run)  # what the note says: the run goes on testing with them
    assert isinstance(after, gd.LinkPrediction)
    assert after.test is not None
    assert torch.equal(after.test.positives, task.test.positives)
    nothing = cli("delete", link_run, "--edge", f"{u},{v}", "--skip-unseen")
    assert (nothing.code, "all of it was held out from training" in nothing.sentence) == (2, True)
    new = cli("delete", link_run, "--edge", "{},{}".format(*edges[5]), "--skip-unseen", "--json")
    assert (new.code, new.values["skipped_unseen"], "left out" in new.err) == (0, 0, False)
    strange = cli("delete", link_run, "--edge", f"{u},{v}", "--edge", "0,30", "--skip-unseen")
    assert (strange.code, "(0, 30)" in strange.sentence) == (2, True)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", [0, 3, 9])
def test_an_error_while_writing_changes_nothing(
    cli: Cli, link_run: Path, monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException
) -> None:
    assert cli("delete", link_run, "--node", 4).code == 0
    before = contents(link_run)
    fsync, calls = os.fsync, []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > step + 1:  # the first is that of `current`, which every writer renews
            raise error
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    failed = cli("delete", link_run, "--node", 5)
    monkeypatch.undo()
    assert failed.code == (1 if isinstance(error, OSError) else 130), failed.err
    assert contents(link_run) == before


def test_a_run_that_changed_is_refused(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    assert "no finished run" in cli("delete", tmp_path / "nowhere", "--node", 1).sentence
    graph = yaml.safe_load((link_run / "base/settings.yaml").read_text())["data"]["graph"]
    other = torch.load(link_run / "base" / graph, weights_only=False)
    other.x = other.x + 1
    torch.save(other, tmp_path / "other.pt")
    moved = ("--set", f"data.graph={tmp_path / 'other.pt'}")
    assert "not the one it was trained on" in cli("delete", link_run, "--node", 1, *moved).sentence
    weights = link_run / "base/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x00\x00\x00")
    assert "is not the file that was written; restore" in cli("delete", link_run, "--node", 1).sentence


def test_one_file_for_training_and_deleting(cli: Cli, graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"data: {{graph: {graph_file}, val: 0.1, test: 0.1}}\nmodel: {{name: gin, hidden: 8, out: 4}}\n"
        "train: {epochs: 5, lr: 1e-2}\ndeletion: {random: 5, seed: 1}\nmethod: {lam: 0.2}\n"
    )
    assert cli("train", "-c", "run.yaml", "--out", "run").code == 0
    done = cli("delete", "run", "-c", "run.yaml", "--json")
    assert done.values["settings"]["lam"] == 0.2
    assert done.values["counts"] == {"edges": 5}
    assert (
        cli("delete", "run", "-c", "run.yaml", "--set", "method.lam=0.1", "--lam", 0.4, "--json").values["settings"][
            "lam"
        ]
        == 0.4
    )


def test_a_sequence_keeps_its_aim_and_says_so(cli: Cli, link_run: Path) -> None:
    first = cli("delete", link_run, "--random", 4, "--aim", "nonexistent", "--json").values
    second = cli("delete", link_run, "--random", 4, "--draw-seed", 1, "--json")
    assert second.values["aim"] == first["aim"] == "nonexistent"
    assert "aim nonexistent as for the earlier requests" in second.err
    assert "nonexistent" in cli("delete", link_run, "--random", 4, "--draw-seed", 2, "--dry-run").out
    third = cli("delete", link_run, "--random", 4, "--draw-seed", 2, "--aim", "retrained", "--json")
    assert third.values["aim"] == "retrained"
    assert "aim retrained instead of nonexistent, for the earlier requests too" in third.err
    fourth = cli("delete", link_run, "--random", 4, "--draw-seed", 3, "--json")
    assert fourth.values["aim"] == "retrained"
    assert "note" not in fourth.err


def test_a_lam_that_was_given_is_kept_until_another_aim_is(cli: Cli, link_run: Path) -> None:
    cli("delete", link_run, "--random", 4, "--lam", 0.4)
    assert cli("delete", link_run, "--random", 4, "--draw-seed", 1, "--json").values["lam"] == 0.4
    other = cli("delete", link_run, "--random", 4, "--draw-seed", 2, "--aim", "nonexistent", "--json").values
    assert other["settings"]["lam"] == "auto"
    said = cli("delete", link_run, "--random", 4, "--draw-seed", 3, "--method", "unlink").err
    assert "now served with 'unlink', no longer with 'gnndelete'" in said
    fresh = cli("delete", link_run, "--random", 4, "--fresh", "--json").values
    assert (fresh["aim"], fresh["settings"]["lam"]) == ("retrained", "auto")


def test_a_folder_that_cannot_be_written_to_is_refused_first_and_named(cli: Cli, link_run: Path) -> None:
    before = contents(link_run)
    (link_run / "file").write_text("")
    for option in ("--save-graph", "--out"):
        refused = cli("delete", link_run, "--random", 4, option, link_run / "file" / "g")
        assert refused.code == 1
        assert "could not write to 'run/file/g'" in refused.sentence
        assert "nothing was done" in refused.sentence
    (link_run / "file").unlink()
    assert contents(link_run) == before


def test_a_plan_says_that_cutting_may_be_enough(cli: Cli, link_run: Path) -> None:
    assert (
        "or inference-only if taking the elements out of the data is enough"
        in cli("delete", link_run, "--random", 4, "--dry-run").out
    )
    assert "inference-only" not in cli("delete", link_run, "--random", 4, "--lam", 0.3, "--dry-run").out
