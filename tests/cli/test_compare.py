"""``gnndelete compare``: a table beside Retrain and the controls, kept rows, and mistakes that show at once."""

from __future__ import annotations

import json

import pytest

from gnndelete.cli.deletion_options import OPTIONS

from .conftest import opened


@pytest.fixture
def run(cli, tmp_path):
    assert cli("train", "--dataset", "digits", "--epochs", 3, "--out", tmp_path / "run").code == 0
    return tmp_path / "run"


def test_a_comparison_is_shown_and_kept(cli, run):
    arguments = ("compare", run, "--random", 5, "--methods", "unlink,gnndelete", "--seeds", 2)
    first = cli(*arguments, "--json")
    assert first.code == 0, first.err
    values = json.loads(first.out)
    assert [line["method"] for line in values["summary"]] == [
        "original",
        "retrain",
        "unlink",
        "gnndelete",
        "zeroed",
        "untrained",
    ]
    assert {row["seed"] for row in values["rows"] if row["label"] == "unlink"} == {0, 1}
    kept = (run / "comparison" / "rows.jsonl").read_text()
    again = cli(*arguments)
    assert again.code == 0
    assert "gnndelete" in again.out
    assert (run / "comparison" / "rows.jsonl").read_text() == kept  # nothing was done twice
    assert not (run / "versions").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--random", 5, "--methods", "nope"), "no method 'nope'"),
        (("--methods", "unlink"), "nothing is named"),
        (("--random", 5, "--methods", "grapheditor"), "does not fit"),
    ],
)
def test_mistakes_show_before_any_work(cli, run, arguments, message):
    outcome = cli("compare", run, *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert not (run / "comparison").exists()


def test_a_method_with_a_model_of_its_own_is_not_kept_in_a_run(cli, run):
    outcome = cli("delete", run, "--random", 5, "--method", "certunlearn", "--set", "method.own_model=true")
    assert outcome.code == 2
    assert "gnndelete compare" in outcome.err
    assert not (run / "versions").exists()


def test_held_out_edges_can_be_skipped(cli, link_run):
    _, graph, task = opened(link_run)
    held, trained = (",".join(map(str, e[:, 0].tolist())) for e in (task.test.positives, graph.data.edge_index))
    arguments = ("compare", link_run, "--edge", held, "--edge", trained, "--methods", "unlink", "--seeds", 1, "--json")
    assert "(--skip-unseen leaves them out)" in cli(*arguments).err
    done = cli(*arguments, "--skip-unseen")
    assert (done.code, done.values["request"]) == (0, {"edges": 1}), done.err
    assert done.values["skipped_unseen"] == 1
    assert "left out 1 edge that the model was not trained on" in done.err


def test_every_kind_of_request_can_be_compared(cli, node_run):
    arguments = ("--feature", "3,1", "--label", 12, "--node", 40, "--fill", 0.5)
    shown = cli("compare", node_run, *arguments, "--methods", "unlink", "--seeds", 1, "--no-controls", "--json")
    assert shown.code == 0, shown.err
    assert shown.values["request"] == {"nodes": 1, "features": 1, "labels": 1}
    assert [line["method"] for line in shown.values["summary"]] == ["original", "retrain", "unlink"]
    assert "deletion.labels: left out" in (node_run / "comparison" / "settings.yaml").read_text()


def test_a_verb_has_the_options_of_the_other(cli):
    for verb in ("delete", "compare"):
        shown = cli(verb, "--help").out
        assert all(f"--{name.replace('_', '-')}" in shown for name in OPTIONS)


def test_a_folder_that_cannot_be_written_is_refused_first(cli, run, tmp_path, monkeypatch):
    monkeypatch.setattr("gnndelete.comparison.compare", lambda *_, **__: pytest.fail("it began to work"))
    (tmp_path / "file").write_text("mine")
    for out, code in ((tmp_path / "file", 2), (tmp_path / "file/below", 1)):
        refused = cli("compare", run, "--random", 5, "--out", out)
        assert refused.code == code
        assert f"'{out.relative_to(tmp_path)}'" in refused.err


def test_a_schedule_other_than_the_runs_is_told(cli, run):
    arguments = ("compare", run, "--random", 5, "--methods", "grapheraser", "--seeds", 1, "--no-controls")
    assert "a schedule of its own" not in cli(*arguments).out  # it has that of the run
    other = cli(*arguments, "--set", "method.name=grapheraser", "--set", "method.epochs=2", "--set", "method.shards=2")
    assert other.code == 0, other.err
    assert "trained its shards for 2 epochs" in " ".join(other.out.split())
