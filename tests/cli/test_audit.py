"""``gnndelete audit``: the report, the reference that is kept, what is refused, and that nothing of the run changes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from gnndelete.cli import run

from .conftest import SMALL, Cli, contents, latest

QUICK = ("--no-reference", "--no-attacks")
FIGURES = {f"figures/{name}.{kind}" for name in ("unseen", "scores") for kind in ("png", "svg")}


@pytest.fixture(scope="module")
def deleted(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one deletion; copy it before changing it."""
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("deleted") / "run"))
    assert run(["delete", str(folder), "--random", "20", "--lam", "0.2"]) == 0
    return folder


@pytest.fixture
def served(deleted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(deleted, tmp_path / "run"))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without pictures, which take most of the time and are not what these tests are about."""
    monkeypatch.setattr("gnndelete.auditing.report.html.pictures", lambda audit: [])
    monkeypatch.setattr("gnndelete.auditing.entry.figure_files", lambda audit: {"scores.png": b"png"})


def _references(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "cache").glob("*")}


def test_report(cli: Cli, served: Path) -> None:
    before = contents(served)
    shown = cli("audit", served)
    assert shown.code == 0, shown.err
    assert shown.out.startswith("[")
    for words in (
        "Asked      forget 20 edges",
        "Retrain",
        "Membership attack",
        "Assurance  approximate",
        "report.html",
    ):
        assert words in shown.out
    assert "training the reference without what was deleted, 20 epochs" in shown.err
    after = contents(served)
    assert {name: after[name] for name in before} == before
    written = contents(served / "audit/0001")
    assert {"report.html", "audit.json", "settings.yaml", *FIGURES} <= written.keys()
    assert b"<html" in written["report.html"]
    values = json.loads(written["audit.json"])
    assert values["request"]["counts"] == {"edges": 20}
    assert values["utility"]["metrics"]["auroc"]["reference"] is not None
    assert values["membership"]["available"]
    manifest = json.loads(before["versions/0001/manifest.json"])
    subject = values["subject"]
    assert [subject["base model"], subject["graph"]] == [manifest["base"], manifest["graph"]]
    assert [subject["remaining graph"], subject["request"]] == [manifest["remaining"], manifest["digest"]]
    assert all(digest[:16].encode() in written["report.html"] for digest in subject.values())
    state = json.loads(before["versions/0001/state.json"])["requests"][0]["edges"]
    pairs = [f"[{u},{v}]" for u, v in zip(*state, strict=True)]
    assert not any(pair in written["audit.json"].decode().replace(" ", "").replace("\n", "") for pair in pairs)


@pytest.mark.usefixtures("undrawn")
def test_the_reference_is_trained_once(cli: Cli, served: Path) -> None:
    first = cli("audit", served, "--no-attacks", "--json")
    kept = _references(served / "audit")
    assert len(kept) == 1
    again = cli("audit", served, "--no-attacks", "--json")
    assert "trained before" in again.err
    assert _references(served / "audit") == kept
    assert again.values["forgetting"] == first.values["forgetting"]
    assert again.values["cost"] == first.values["cost"]
    for changed in (("--set", "train.epochs=7"), ("--set", "train.lr=0.02"), ("--seed", 5)):
        other = cli("audit", served, "--no-attacks", *changed, "--json")
        assert "training the reference" in other.err, changed
        assert other.values["utility"] != first.values["utility"]
    assert len(_references(served / "audit")) == 4


@pytest.mark.usefixtures("undrawn")
def test_a_reference_that_knows_deleted_data_goes(cli: Cli, served: Path) -> None:
    assert cli("audit", served, "--no-attacks").code == 0
    first = _references(served / "audit")
    assert cli("delete", served, "--random", 5, "--lam", 0.2).code == 0
    assert not _references(served / "audit"), "gone with the request, whether an audit follows or not"
    second = cli("audit", served, "--no-attacks", "--json")
    assert "training the reference" in second.err
    assert second.values["request"]["counts"] == {"edges": 25}
    assert second.values["request"]["requests"] == 2
    assert not first.keys() & _references(served / "audit").keys()


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_reference_is_trained_again(cli: Cli, served: Path) -> None:
    first = cli("audit", served, "--no-attacks", "--json").values
    for damage in (lambda good: good[:-4] + b"\0\0\0\0", lambda good: good[:100], lambda good: b""):
        (file,) = (served / "audit/cache").iterdir()
        good = file.read_bytes()
        file.write_bytes(damage(good))
        assert cli("verify", served).code == 1
        again = cli("audit", served, "--no-attacks", "--json")
        assert "is damaged" in again.err
        assert again.values["forgetting"] == first["forgetting"]
        (file,) = (served / "audit/cache").iterdir()
        assert file.read_bytes()[-64:] == good[-64:]
        assert cli("verify", served).code == 0


@pytest.mark.usefixtures("undrawn")
def test_what_is_left_out(cli: Cli, served: Path) -> None:
    alone = cli("audit", served, *QUICK, "--json").values
    assert alone["utility"]["metrics"]["auroc"]["reference"] is None
    assert not alone["membership"]["available"]
    assert not (served / "audit/cache").exists()
    attacked = cli("audit", served, "--no-reference", "--json").values
    assert attacked["membership"]["available"]
    assert attacked["membership"]["reference"] is None
    (served / "run.yaml").write_text("audit: {reference: false, attacks: false}\n")
    assert cli("audit", served, "-c", served / "run.yaml", "--json").values["verdict"] == alone["verdict"]
    assert "audit:\n  reference: false\n  attacks: false\n" in (served / "audit/0001/settings.yaml").read_text()
    assert cli("audit", served, "--set", "audit.attack=false").code == 2


@pytest.mark.usefixtures("undrawn")
def test_json_is_one_object(cli: Cli, served: Path) -> None:
    found = cli("audit", served, "--no-attacks", "--json", "--out", "elsewhere")
    assert found.values["out"] == "elsewhere"
    assert len(found.out.strip().splitlines()) == 1
    written = json.loads(Path("elsewhere/audit.json").read_text())
    assert written.pop("scores")
    assert written.pop("embedding")
    assert {name: value for name, value in found.values.items() if name != "out"} == written
    assert not (served / "audit").exists()


@pytest.mark.usefixtures("undrawn")
def test_strict(cli: Cli, served: Path) -> None:
    crushed = cli("delete", served, "--random", 40, "--lam", 1.0, "--set", "method.operator=shared", "--fresh")
    assert crushed.code == 0, crushed.err
    found = cli("audit", served, *QUICK, "--json")
    assert found.code == 0
    assert found.values["verdict"]["code"] in ("ruined", "over-forgotten")
    strict = cli("audit", served, *QUICK, "--strict")
    assert strict.code == 1
    assert strict.out.startswith("[")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("method", ["retrain", "unlink", "gradascent"])
def test_methods_without_an_adapter(cli: Cli, link_run: Path, method: str) -> None:
    assert cli("delete", link_run, "--random", 20, "--method", method).code == 0
    found = cli("audit", link_run, "--no-attacks", "--json")
    assert found.code == 0, found.err
    assert found.values["done"]["method"] == method
    if method == "retrain":  # another training than the one under audit, or they would be one model
        held = found.values["forgetting"]["unseen"]["served"]
        assert held["after"]["auc"] != held["reference"]["auc"]
    weights = latest(link_run) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\x80\x3f")
    refused = cli("audit", link_run, *QUICK)
    assert (refused.code, "is not the file that was written" in refused.sentence) == (2, True)


@pytest.mark.usefixtures("undrawn")
def test_nodes(cli: Cli, graph_file: Path, tmp_path: Path) -> None:
    assert cli("train", "--graph", graph_file, "--task", "node", "--out", "run", *SMALL[2:]).code == 0
    for request in (("--node", 1, "--node", 22), ("--edge", "30,31")):
        assert cli("delete", "run", *request).code == 0
        before = contents(tmp_path / "run")
        found = cli("audit", "run", "--json", "--out", "report")
        assert found.code == 0, found.err
        assert "accuracy" in found.values["utility"]["metrics"]
        assert contents(tmp_path / "run") == before


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_deletions(cli: Cli, link_run: Path) -> None:
    refused = cli("audit", link_run)
    assert (refused.code, "nothing was deleted" in refused.sentence) == (2, True)


@pytest.mark.usefixtures("undrawn")
def test_a_copy_of_the_result_is_audited_where_it_is_the_latest(cli: Cli, served: Path, tmp_path: Path) -> None:
    assert cli("delete", served, "--random", 5, "--lam", 0.2, "--draw-seed", 4, "--out", "copy").code == 0
    assert not (tmp_path / "copy/state.json").exists()
    assert cli("audit", served, *QUICK, "--unlearned", "copy").code == 0
    older = cli("audit", served, *QUICK, "--unlearned", served / "versions/0001")
    assert (older.code, "does not hold the latest result" in older.sentence) == (2, True)
    tensors = tmp_path / "copy/adapter_model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-8] + bytes(8))
    edited = cli("audit", served, *QUICK, "--unlearned", "copy")
    assert (edited.code, "does not hold the latest result" in edited.sentence) == (2, True)


@pytest.mark.usefixtures("undrawn")
def test_bad_options(cli: Cli, served: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.tex").write_text("mine")
    before = contents(tmp_path)
    for arguments, said in (
        (("--out", "thesis"), "holds other files"),
        (("--out", "thesis/thesis.tex"), "is a file"),
        (("--out", served), "another folder"),
        (("--out", served / "versions"), "another folder"),
        (("--unlearned", "nowhere"), "no result of a deletion"),
        (("--set", "data.seed=1"), "was trained with 0"),
        (("--device", "cuda:77"), "no such device"),
        (("--seed", -1), "greater than or equal to 0"),
    ):
        refused = cli("audit", served, *arguments, *QUICK)
        assert refused.code == 2, (arguments, refused.err)
        assert said in refused.sentence
    assert "no finished run" in cli("audit", "nowhere").sentence
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("undrawn")
def test_a_model_from_elsewhere_needs_a_schedule(cli: Cli, served: Path, graph_file: Path) -> None:
    weights = ("--checkpoint", served / "base/model.safetensors", "--model", "gcn", "--set", "train.epochs=0")
    assert cli("adopt", graph_file, *SMALL[:4], *weights, "--out", "own").code == 0
    assert cli("delete", "own", "--random", 20, "--lam", 0.2).code == 0
    assert "does not say how to train" in cli("audit", "own").sentence
    assert "does not say how to train" in cli("audit", "own", "--no-reference").sentence
    assert cli("audit", "own", *QUICK).code == 0
    assert cli("audit", "own", "--set", "train.epochs=5", "--no-attacks").code == 0


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", [0, 3])
def test_an_error_leaves_the_earlier_report(
    cli: Cli, served: Path, monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException
) -> None:
    assert cli("audit", served, *QUICK).code == 0
    before = contents(served)
    fsync, calls = os.fsync, []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > step:
            raise error
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    failed = cli("audit", served, *QUICK, "--seed", 1)
    monkeypatch.undo()
    assert failed.code == (1 if isinstance(error, OSError) else 130), failed.err
    assert contents(served) == before


@pytest.mark.usefixtures("undrawn")
def test_every_version_has_its_report_and_a_new_audit_replaces_it(cli: Cli, served: Path) -> None:
    cli("audit", served, *QUICK)
    first = contents(served / "audit/0001")
    assert cli("delete", served, "--random", 5, "--draw-seed", 3).code == 0
    again = cli("audit", served, *QUICK, "--json")
    assert again.values["request"]["counts"] == {"edges": 25}
    assert contents(served / "audit/0001") == first
    before = contents(served / "audit/0002")
    assert cli("audit", served, *QUICK, "--seed", 1).code == 0
    after = contents(served / "audit/0002")
    assert after.keys() == before.keys()
    assert after["audit.json"] != before["audit.json"]
    (served / "audit/0002/audit.json").write_bytes(before["audit.json"])
    assert cli("verify", served, "--json").values["problems"] == [
        f"'{served / 'audit/0002/audit.json'}' is not the file that was written"
    ]


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_trained(cli: Cli, served: Path) -> None:
    (served.parent / "file").write_text("")
    refused = cli("audit", served, "--out", served.parent / "file" / "x")
    assert refused.code == 1
    assert "nothing was done" in refused.sentence
    assert "training" not in refused.err
