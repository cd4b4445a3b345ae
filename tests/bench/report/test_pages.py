"""The report as a whole: the same store gives the same bytes, every link leads somewhere, figures show what they should."""

from __future__ import annotations

import errno
import json
import posixpath
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gnndelete.bench.report.pages import Commands, Summary, build, summarize, summary_page, write
from gnndelete.bench.report.results import Plan, gather
from gnndelete.errors import RunError, SettingError
from gnndelete.io.store import Store

from .sample import METHODS, SEEDS, Job, key, lam_plan, link_plan, row, rows, store_of, time_plan

COMMANDS = Commands("results.jsonl", "out", "cuda")


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [link_plan(), lam_plan(), time_plan(), link_plan("cora", missing={"cora": "needs a download"})]


@pytest.fixture(scope="module")
def store(plans: list[Plan]) -> Store:
    return store_of(*plans[:3])


@pytest.fixture(scope="module")
def made(plans: list[Plan], store: Store) -> dict[str, bytes]:
    return build(plans, store, COMMANDS)


def test_the_same_rows_give_the_same_bytes_in_any_order(
    plans: list[Plan], store: Store, made: dict[str, bytes]
) -> None:
    turned = Store(None)
    for cell, result in reversed(list(store.items())):
        turned.add(cell, result)
    again = build(plans, turned, COMMANDS)
    assert again == made


def test_every_link_leads_to_a_file(made: dict[str, bytes]) -> None:
    pages = [path for path in made if path.endswith(".md")]
    assert {"index.md", "summary.md", "paper/link-dblp.md", "paper/link-cora.md"} <= set(pages)
    for page in pages:
        links = re.findall(r"\]\(([^)]+)\)", made[page].decode())
        targets = {posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) for link in links}
        assert targets <= set(made)
    shown = "".join(made[page].decode() for page in pages)
    assert all(Path(path).name in shown for path in made if path.startswith(("figures/", "tables/")))


def test_each_page_has_the_command_that_made_it(made: dict[str, bytes]) -> None:
    command = "gnndelete bench run paper/link-dblp --seeds 3 --device cuda --store results.jsonl"
    assert command in made["paper/link-dblp.md"].decode()
    assert "gnndelete bench report --device cuda --store results.jsonl --out out" in made["index.md"].decode()


def test_a_page_in_which_all_failed_says_why() -> None:
    jobs = [Job(label, key("digits", "gcn", METHODS[label], 1)) for label in ("unlink", "calibrated")]
    plan, store = Plan("mine", "Mine", jobs), Store(None)
    for job in jobs:
        store.add(job.key, {"label": job.label, "error": f"no room for <{job.label}>", "kind": "RunError"})
    page = build([plan], store, COMMANDS)["own/mine.md"].decode()
    assert "- Unlink (GCN): failed: no room for &lt;unlink&gt;." in page
    assert "- calibrated (GCN): failed: no room for &lt;calibrated&gt;." in page


def test_what_nobody_has_run_is_named_and_stands_apart() -> None:
    plan, other = link_plan("digits"), link_plan("cs")
    store = Store(None)
    for cell, result in rows(plan):
        if cell["method"]["name"] != "gradascent" and cell["seed"] != 13:
            store.add(cell, result)
    made = build([plan, other], store, COMMANDS)
    index, page = made["index.md"].decode(), made["paper/link-digits.md"].decode()
    assert index.index("link-digits.md") < index.index("## Not run here") < index.index("link-cs.md")
    assert "GradAscent (GCN) and GradAscent (GAT): not run." in page
    assert "| GradAscent |" not in page


def test_a_deletion_that_nobody_has_run_shows_the_papers_numbers() -> None:
    plan, store = link_plan(), Store(None)
    for cell, result in rows(plan):
        if cell["forget"]["where"] == "in":
            store.add(cell, result)
    page = build([plan], store, COMMANDS)["paper/link-dblp.md"].decode().replace("\u00a0", " ")
    unrun = page.partition("## DBLP: 2.5% of edges, OUT")[2].partition("## ")[0]
    assert "| paper() | *not run*<br><small>paper 0.957</small> |" in unrun
    assert "| Unlink |" not in unrun
    assert "- All: not run." in unrun
    nothing = build([plan], Store(None), COMMANDS)["paper/link-dblp.md"].decode()
    assert nothing.replace("\u00a0", " ").count("| paper() | *not run*<br><small>paper 0.957</small> |") == 1


def test_a_title_is_harmless_in_every_page() -> None:
    plan = Plan("mine", "A | <b>bold</b>\ntitle", link_plan().cells)
    for store in (store_of(link_plan()), Store(None)):
        made = build([plan], store, COMMANDS)
        shown = r"A \| &lt;b&gt;bold&lt;/b&gt; title"
        assert f"[{shown}](own/mine.md)" in made["index.md"].decode()
        assert made["own/mine.md"].decode().startswith(f"# {shown}\n")
        assert made["tables/mine.tex"].decode().startswith("% A | <b>bold</b> title: made")
        assert "<b>" not in made["own/mine.md"].decode() + made["index.md"].decode()


def test_a_page_names_the_options_of_models_that_are_not_the_usual_ones() -> None:
    base = key("dblp", "gin", METHODS["unlink"], 42)
    jobs = [Job("unlink", base | {"model": {"name": "gin", "hidden": 32, "num_layers": 2}})]
    store = Store(None)
    store.add(jobs[0].key, row("unlink", 1.0, test_auroc=0.9))
    made = build([Plan("own", "A small model", jobs)], store, COMMANDS)
    assert "Options of models that are not defaults: GIN (hidden 32)." in made["own/own.md"].decode()
    assert ",gin,hidden 32,edges," in made["tables/own.csv"].decode()
    usual = build([Plan("own", "A usual one", [Job("unlink", base)])], store, COMMANDS)
    assert "not defaults" not in usual["own/own.md"].decode()


def test_a_dataset_that_is_not_here_says_why(made: dict[str, bytes]) -> None:
    page = made["paper/link-cora.md"].decode().replace("\u00a0", " ")
    assert page.count("- All: not here: needs a download.") == 4  # once per deletion
    assert "| paper() | *not here*<br><small>paper 0.925</small> |" in page
    tex = made["tables/paper-link-cora.tex"].decode()
    assert "All: not here: needs a download." in tex
    assert "{\\scriptsize paper~0.925}" in tex


def test_what_was_not_run_is_in_every_format() -> None:
    jobs = [Job("unlink", key("cs", "gcn", METHODS["unlink"], 1, where="random"))]
    files = build([Plan("mine", "Mine", jobs)], Store(None), COMMANDS)
    assert "- Unlink (GCN): not run." in files["own/mine.md"].decode()
    assert "2.5\\% of edges, at random. Unlink (GCN): not run." in files["tables/mine.tex"].decode()
    (line,) = files["tables/mine.csv"].decode().splitlines()[1:]
    assert line.endswith(",not run,")


def test_a_model_alone_in_its_table_is_named_where_others_were_asked_for() -> None:
    jobs = [Job("unlink", key("cs", model, METHODS["unlink"], 1)) for model in ("gcn", "gin")]
    store = Store(None)
    store.add(jobs[0].key, row("unlink", 1.0, test_auroc=0.9))
    page = build([Plan("mine", "Mine", jobs)], store, COMMANDS)["own/mine.md"].decode()
    assert "| method | GCN<br>seconds | seeds |" in page
    assert "0–1" not in page


def test_provenance_comes_from_the_rows(made: dict[str, bytes]) -> None:
    index = made["index.md"].decode()
    assert "on NVIDIA H200; gnndelete 0.1.0; torch 2.11.0; source ab12cd34ef56; finished 2026-11-15." in index


def test_one_day_is_said_once_and_several_from_when_to_when() -> None:
    jobs, store = [Job("unlink", key("cs", "gcn", METHODS["unlink"], seed)) for seed in (1, 2)], Store(None)
    for job, day, said in zip(jobs, (18, 16), ("2026-11-18.", "2026-11-16 to 2026-11-18."), strict=True):
        store.add(job.key, row("unlink", 1.0) | {"finished": f"2026-11-{day}T08:00:00Z"})
        assert f"; finished {said}" in build([Plan("mine", "Mine", jobs)], store, COMMANDS)["index.md"].decode()


def test_summary_is_readable_by_programs(made: dict[str, bytes]) -> None:
    values = json.loads(made["summary.json"])
    assert values["files"] == sorted(made)
    assert {"label", "dataset", "cells", "ours", "theirs"} == set(values["means"][0])
    assert {"label", "task", "metric", "by_seed", "shared", "worst"} <= set(values["distances"][0])
    assert values["speedups"] == []


def test_scores_are_explained_where_they_appear() -> None:
    job = Job("unlink", key("dblp", "gcn", METHODS["unlink"], 1))
    store = Store(None)
    store.add(job.key, row("unlink", 1.0, test_auroc=0.9, mi_ratio=1.1))
    files = build([Plan("mine", "Mine", [job])], store, COMMANDS)
    for page in ("own/mine.md", "index.md"):
        assert "*MI ratio* (the paper's)" in files[page].decode()
        assert "*Regular share*" not in files[page].decode()


def test_a_page_has_the_settings_of_its_methods(made: dict[str, bytes]) -> None:
    settings = made["paper/link-dblp.md"].decode().partition("## Settings")[2]
    assert "| calibrated | `GNNDelete(operator='ring', hops='directed')` |" in settings


def test_figures_are_whole_and_carry_no_date(made: dict[str, bytes]) -> None:
    figures = {path: content for path, content in made.items() if path.startswith("figures/")}
    names = {Path(path).stem for path in figures}
    assert {
        "methods-retrain",
        "methods-scores",
        "paper-lambda-lam-1",
        "beyond-scale-time-gcn",
    } <= names
    for content in figures.values():
        assert ElementTree.fromstring(content).tag.endswith("svg")
        assert b"dc:date" not in content
        assert len(content) < 100_000


def test_figures_as_png(plans: list[Plan], store: Store) -> None:
    found = {
        path: content for path, content in build(plans[:1], store, COMMANDS, form="png").items() if "figures/" in path
    }
    assert found
    assert all(path.endswith(".png") and content.startswith(b"\x89PNG") for path, content in found.items())


def test_an_empty_store_gives_pages_without_figures(plans: list[Plan]) -> None:
    made = build(plans, Store(None), COMMANDS)
    assert not [path for path in made if path.startswith("figures/")]
    assert "The store has no rows yet." in made["index.md"].decode()


def test_files_are_written_into_their_folders(made: dict[str, bytes], tmp_path: Path) -> None:
    write(tmp_path, made)
    write(tmp_path, made)
    found = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == made


def report(*names: str) -> dict[str, bytes]:
    """Files of a report, with the list of them."""
    names = (*names, "summary.json")
    return {name: b"new" for name in names} | {"summary.json": json.dumps({"files": sorted(set(names))}).encode()}


MADE = report("index.md", "paper/a.md", "tables/paper-a.csv")


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_there(tmp_path: Path) -> None:
    write(tmp_path / "out", MADE)
    assert files(tmp_path / "out") == MADE


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, MADE)
    written: list[int] = []

    def full(file: int) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(file)

    monkeypatch.setattr("gnndelete.io.files.os.fsync", full)
    with pytest.raises(RunError, match=r"No space left on device\); earlier files there are unchanged"):
        write(tmp_path, {name: b"newer" for name in MADE})
    assert files(tmp_path) == MADE


def test_a_folder_in_the_way_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, MADE)
    (tmp_path / "tables/paper-b.csv/x").mkdir(parents=True)
    with pytest.raises(RunError, match="earlier files there are unchanged"):
        write(tmp_path, {**{name: b"newer" for name in MADE}, "tables/paper-b.csv": b"b"})
    assert files(tmp_path) == MADE


def test_what_an_earlier_report_left_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, MADE)
    (tmp_path / "results.jsonl").write_text("")
    write(tmp_path, report("index.md", "own/b.md"))
    assert "has left files in" in (left := capsys.readouterr().err)
    assert left.endswith("paper/a.md, tables/paper-a.csv.\n")
    write(tmp_path, report("index.md", "own/b.md"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["index.md", "summary.json", "paper/a.md", "figures/a-lam-1.svg"])
def test_files_of_others_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("MY OWN NOTES")
    with pytest.raises(SettingError, match=rf"{name}' would be overwritten, and no report has written it; give --out"):
        write(tmp_path, report(*MADE, name))
    assert files(tmp_path) == {name: b"MY OWN NOTES"}


def test_several_files_of_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("mine")
    (tmp_path / "summary.md").write_text("mine")
    with pytest.raises(SettingError, match=r"index.md', '.*summary.md' would be overwritten, .* written them"):
        write(tmp_path, report(*MADE, "summary.md"))


def test_files_of_an_earlier_report_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, report(*MADE, "figures/a-lam-1.svg"))
    write(tmp_path, report(*MADE, "figures/a-lam-1.svg") | {"figures/a-lam-1.svg": b"<svg></svg>"})
    assert (tmp_path / "figures/a-lam-1.svg").read_bytes() == b"<svg></svg>"


def test_every_file_of_the_committed_report_is_in_its_manifest() -> None:
    results = Path(__file__).parents[3] / "docs/results"
    there = {path.relative_to(results).as_posix() for path in results.rglob("*") if path.is_file()}
    assert there - {"results.jsonl"} == set(json.loads((results / "summary.json").read_text())["files"])


# The summary: cells count once, and gaps are taken seed by seed.

LABELS = ("retrain", "paper()", "calibrated", "nonexistent")
THEIRS = {"in": (0.934, 0.748), "out": (0.957, 0.892)}  # the paper's GNNDelete on DBLP with GCN at 2.5%


def plan_of(name: str = "paper/link-dblp", labels: tuple[str, ...] = LABELS) -> Plan:
    jobs = [
        Job(label, key("dblp", "gcn", METHODS[label], seed, where))
        for seed in SEEDS
        for where in ("in", "out")
        for label in labels
    ]
    return Plan(name, "Links", jobs, "link_prediction")


def store_with(plan: Plan, scores: Any, seconds: dict[str, float] | None = None) -> Store:
    store = Store(None)
    for job in plan.cells:
        use, deleted, unseen = scores(job.label, job.key["forget"]["where"], SEEDS.index(job.key["seed"]))
        spent = (seconds or {}).get(job.label, 1.0)
        store.add(job.key, row(job.label, spent, test_auroc=use, deleted_auroc=deleted, unseen_auc=unseen))
    return store


def answers(store: Store, *plans: Plan) -> Summary:
    return summarize([(plan, gather(plan, store)) for plan in plans])


def test_means_are_next_to_those_of_the_paper() -> None:
    def scores(label: str, where: str, seed: int) -> tuple[float, float, float]:
        use, deleted = THEIRS[where]
        return use + 0.01, deleted + (0.02 if where == "in" else 0.05), 0.5

    plan = plan_of()
    found = answers(store_with(plan, scores), plan)
    mean = next(each for each in found.means if each.label == "paper()")
    assert (mean.dataset, mean.cells) == ("dblp", 2)
    assert mean.ours[0] - mean.theirs[0] == pytest.approx(0.01)
    assert mean.ours[1] - mean.theirs[1] == pytest.approx(0.035)
    assert "| paper() | DBLP | 2 | 0.956 | 0.946 | +0.010 | 0.855 | 0.820 | +0.035 |" in summary_page(found)


def test_an_experiment_whose_training_is_short_counts_nowhere_and_is_named() -> None:
    whole = plan_of()
    jobs = [
        Job(label, {**key("dblp", "gcn", METHODS[label], seed, "in"), "train": {"epochs": 1}})
        for seed in SEEDS
        for label in LABELS
    ]
    short = Plan("paper/parameters", "Parameters", jobs, "parameters", summary=False)
    seconds = {"retrain": 900.0}
    store = store_with(whole, lambda *_: (0.9, 0.6, 0.5), seconds)
    alone = answers(store, whole)
    for job in jobs:
        store.add(job.key, row(job.label, 1.0, test_auroc=0.1, deleted_auroc=0.1, unseen_auc=0.9))
    both = answers(store, whole, short)
    assert (both.distances, both.speedups, both.short) == (alone.distances, alone.speedups, ("paper/parameters",))
    assert "trained too briefly to count in `paper/parameters`" in summary_page(both)
    assert "too briefly" not in summary_page(alone)
    assert not answers(store, short).speedups


def test_gaps_do_not_cancel_between_seeds() -> None:
    def scores(label: str, where: str, seed: int) -> tuple[float, float, float]:
        shift = (0.01, -0.01, 0.0)[seed] if label == "calibrated" else 0.0
        return 0.9 + 0.02 * seed + shift, 0.5, 0.5 + 2 * shift

    plan = plan_of()
    found = answers(store_with(plan, scores), plan)
    gap = next(g for g in found.distances if g.label == "calibrated" and g.metric == "test_auroc")
    assert gap.cells == 2
    assert gap.by_seed == pytest.approx(0.02 / 3)
    assert gap.by_cell == pytest.approx(0, abs=1e-12)


def test_methods_are_sorted_over_the_cells_they_share() -> None:
    """Unlink was tried in the easy half alone, where every method is near; calibration is nearer there."""
    whole = link_plan()
    cells = [job for job in whole.cells if job.label != "unlink" or job.key["forget"]["where"] == "out"]
    plan, store = Plan(whole.name, whole.title, cells, whole.published), Store(None)
    size = {"retrain": 0.0, "unlink": 0.02, "calibrated": 0.01}
    for job in cells:
        off = size.get(job.label, 0.2) * (1 if job.key["forget"]["where"] == "out" else 10)
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9 - off, deleted_auroc=0.5, unseen_auc=0.5 + off))
    found = answers(store, plan)
    near = {gap.label: gap for gap in found.distances if gap.metric == "test_auroc"}
    assert (near["unlink"].cells, near["calibrated"].cells) == (4, 8)
    assert near["unlink"].by_seed < near["calibrated"].by_seed
    assert {gap.shared_cells for gap in near.values()} == {4}
    assert near["calibrated"].shared == pytest.approx(0.01)
    page = summary_page(found).partition("## Distance to Retrain")[2]
    assert "| test AUROC, link | cells | by seed | by cell | signed | shared, 4 cells | farthest cell |" in page
    lines = [line.split(" | ")[0] for line in page.splitlines() if line.startswith(("| Unlink |", "| calibrated |"))]
    assert lines == ["| calibrated", "| Unlink"] * 2  # in both scores


def test_cells_that_experiments_share_count_once() -> None:
    plan, again = plan_of(), plan_of("beyond/gap")
    store = store_with(plan, lambda *_: (0.94, 0.75, 0.5))
    once, twice = answers(store, plan), answers(store, plan, again)
    assert once.means == twice.means
    assert [gap.cells for gap in once.distances] == [gap.cells for gap in twice.distances]


def test_a_shared_cell_has_its_most_common_label() -> None:
    jobs = [Job("lam 0.5", key("dblp", "gcn", METHODS["paper()"], seed)) for seed in SEEDS]
    other, plan = Plan("paper/lambda", "lam", jobs, "link_prediction"), plan_of()
    found = answers(store_with(plan, lambda *_: (0.94, 0.75, 0.5)), other, plan)
    assert [each.cells for each in found.means if each.label == "paper()"] == [2]
    assert not [each for each in found.means if each.label == "lam 0.5"]


def test_the_slowest_cell_of_a_dataset_counts() -> None:
    plan = plan_of(labels=("retrain", "calibrated", "nonexistent"))
    swept = store_with(plan, lambda *_: (0.9, 0.5, 0.5), {"retrain": 6.0, "calibrated": 0.5, "nonexistent": 0.5})
    assert answers(swept, plan).speedups == ()  # other cells ran beside these
    alone = Plan("paper/time", "Time", [Job(j.label, j.key | {"measures": ["time"]}) for j in plan.cells])
    for job in alone.cells:
        slower = 1 if job.key["forget"]["where"] == "in" else 2
        searched = {"delete": 0.005 * slower, "calibrated": 0.025 * slower}
        spent = {"retrain": 5.0} if job.label == "retrain" else searched
        swept.add(job.key, row(job.label, 5.0, test_auroc=0.9) | {"seconds_of": spent})
    found = answers(swept, plan, alone)
    assert {(s.kind, round(s.ratio), s.cells) for s in found.speedups} == {
        ("fixed lam", 500, 4),
        ("calibrated", 100, 2),
        ("calibrated, aim nonexistent", 100, 2),
    }
    assert "| DBLP | fixed lam | 500× | DBLP, GCN, 2.5% of edges, OUT, calibrated | 4 |" in summary_page(found)


def test_nothing_is_claimed_of_an_empty_store() -> None:
    plan = link_plan("cora", missing={"cora": "needs a download"})
    found = answers(Store(None), plan)
    assert (found.means, found.distances, found.speedups) == ((), (), ())
    assert summary_page(found).count("Not run yet.") == 3


def test_failed_cells_do_not_count() -> None:
    plan = link_plan()
    store = store_of(plan)
    for job in plan.cells:
        if job.label == "paper()" and job.key["model"]["name"] == "gat":
            store.add(job.key, {"label": "paper()", "error": "memory ran out", "kind": "RunError"})
    cells = {each.label: each.cells for each in answers(store, plan).means}
    assert (cells["paper()"], cells["nonexistent"]) == (4, 8)


def test_runs_with_a_fallback_lam_have_a_line_and_no_speedup() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    store = store_with(plan, lambda *_: (0.9, 0.5, 0.5))
    for cell, result in list(store.items()):
        if cell["method"].get("lam") == "auto":
            store.add(cell, result | {"calibration": {"status": "fallback"}})
    found = answers(store, plan)
    assert {each.label for each in found.distances} == {"calibrated, fallback lam"}
    assert found.speedups == ()


def test_a_second_retrain_is_shown_however_few_cells_it_has() -> None:
    plan = plan_of(labels=("retrain", "calibrated"))
    more = [Job(j.label, j.key | {"dataset": name}) for name in ("cs", "pubmed", "cora") for j in plan.cells]
    twin = [Job("retrain-again", key("dblp", "gcn", {"name": "retrain-again"}, seed, "in")) for seed in SEEDS]
    whole = Plan(plan.name, plan.title, [*plan.cells, *more, *twin], plan.published)
    store = store_with(whole, lambda label, *_: (0.9, 0.5, 0.504 if label == "retrain-again" else 0.5))
    page = summary_page(answers(store, whole))
    assert "| retrain-again (control) | 1 | 0.0040 | 0.0040 | +0.0040 |" in page
